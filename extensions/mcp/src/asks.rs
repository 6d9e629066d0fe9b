//! What the operator asks of this extension, as the control method `extensions.ask` hands it over.

use std::sync::Arc;

use drupe_extension_api::prelude::*;
use drupe_mcp_import::import;
use serde_json::{Value, json};

use crate::{
    catalog::{Catalog, is_used},
    config::ServerSettings,
    definition::ToolText,
    names,
    pins::{KnownServer, KnownSkills},
    servers::{Condition, Servers},
    skills::SkillText,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approve {
    server: String,
    /// One of its tools, or the address of one of its skills; without it, the server with all of both.
    #[serde(default)]
    tool: Option<String>,
    /// The digest of what was looked at, so that nothing else is approved.
    #[serde(default)]
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refresh {
    server: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Import {
    /// The text of the file, or what is in it.
    json: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    server: String,
    /// The address of this machine to which the browser is led back.
    redirect: String,
    /// Scopes beyond those that are asked for anyway.
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginResponse {
    server: String,
    /// The address to which it was led.
    response: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logout {
    server: String,
}

/// Answers what was asked under one of these names.
pub async fn answer(servers: &Arc<Servers>, ask: &str, params: Value) -> Result<Value, Fault> {
    match ask {
        "servers" => Ok(state(servers)),
        "approve" => approve(servers, serde_json::from_value(params)?).await,
        "refresh" => {
            let Refresh { server } = serde_json::from_value(params)?;
            refresh(servers, &server).await
        }
        "import" => {
            let Import { json } = serde_json::from_value(params)?;
            import(&json)
        }
        "login" => {
            let Login { server: name, redirect, scopes } = serde_json::from_value(params)?;
            let server = servers.used(&name)?;
            servers.signins.begin(&name, &server, &redirect, &scopes).await
        }
        "login_response" => {
            let LoginResponse { server: name, response } = serde_json::from_value(params)?;
            let server = servers.used(&name)?;
            let mut told = servers.signins.finish(&name, &server, &response).await?;
            // It is signed in to, whatever becomes of it now.
            let begun = servers.begin_anew(&name).await;
            told["error"] = begun.err().map(|fault| fault.message).into();
            Ok(told)
        }
        "logout" => {
            let Logout { server: name } = serde_json::from_value(params)?;
            names::check_known(&name)?;
            // Also of one that is not configured any more.
            let (was, revoked) = servers.signins.forget(&name).await?;
            if was {
                servers.instances.end(&name);
            }
            Ok(json!({"signed_in": was, "revoked": revoked}))
        }
        _ => {
            let names =
                "there are `servers`, `approve`, `refresh`, `import`, `login`, `login_response` and `logout`";
            Err(Fault::unsupported(ask).help(names))
        }
    }
}

fn state(servers: &Servers) -> Value {
    let state = servers.pins.state().clone();
    let settings = servers.settings();
    let catalog = Catalog::new(&settings, &state);
    let empty = KnownServer::default();
    let all: Vec<Value> = settings
        .servers
        .iter()
        .map(|(name, server)| {
            let known = state.servers.get(name).unwrap_or(&empty);
            let mut told = of_server(servers, &catalog, name, server, known);
            let of_name = |tool: &str| tool.starts_with(&names::prefix(name));
            let refused: Vec<Value> = (state.refused.iter().filter(|(tool, _)| of_name(tool)))
                .map(|(tool, why)| json!({"tool": tool, "why": why}))
                .collect();
            told["refused"] = refused.into();
            told
        })
        .collect();
    json!({"searched": catalog.is_searched(&settings), "servers": all})
}

fn of_server(
    servers: &Servers,
    catalog: &Catalog,
    name: &str,
    server: &ServerSettings,
    known: &KnownServer,
) -> Value {
    let (error, version, wants_sign_in) = {
        let live = servers.live();
        let live = live.get(name);
        let of = |what: fn(&Condition) -> Option<String>| live.and_then(what);
        (
            of(|live| live.error.clone()),
            of(|live| live.version.clone()),
            live.is_some_and(|live| live.wants_sign_in),
        )
    };
    let state = match () {
        () if !server.enabled => "disabled",
        () if !is_used(server, known) => "changed",
        () if wants_sign_in && !server.has_authorization() => "sign_in",
        () if error.is_some() => "failed",
        () if !known.gathered => "starting",
        () => "ready",
    };
    let offered: Vec<Value> = (catalog.tools.iter().filter(|(_, target)| target.server == name))
        .map(|(offered, target)| {
            json!({"tool": target.tool, "offered": offered, "read_only": server.tools.read_only(&target.tool)})
        })
        .collect();
    let clashes: Vec<Value> = (catalog.clashes.iter().filter(|(target, _)| target.server == name))
        .map(|(target, other)| json!({"tool": target.tool, "why": format!("its name looks like `{other}`")}))
        .collect();
    let text =
        |definition: &ToolText| json!({"description": definition.description, "schema": definition.schema});
    let mut waiting: Vec<Value> = known
        .waiting()
        .filter(|(tool, ..)| server.tools.admits(tool))
        .map(|(tool, new, old)| json!({"tool": tool, "new": text(new), "old": old.map(text), "digest": new.digest()}))
        .collect();
    let mut unread: Vec<Value> = known
        .unread()
        .filter(|(tool, _)| server.tools.admits(tool))
        .map(|(tool, said)| json!({"tool": tool, "said": text(said), "digest": said.digest()}))
        .collect();
    let mut unfit: Vec<Value> =
        known.unfit.iter().map(|(tool, why)| json!({"tool": tool, "why": why})).collect();
    if server.skills {
        of_skills(&known.skills, &mut waiting, &mut unread, &mut unfit);
    }
    let kept_out: Vec<&String> = known.seen.keys().filter(|tool| !server.tools.admits(tool)).collect();
    json!({
        "server": name,
        "agent": server.only_for,
        "transport": if server.url.is_some() { "http" } else { "stdio" },
        "state": state,
        "instances": servers.instances.of(name),
        "revision": version,
        "tools": offered,
        "waiting": waiting,
        "unread": unread,
        "kept_out": kept_out,
        "unfit": unfit,
        "clashes": clashes,
        "skills": skills(catalog, name, &known.skills),
        "resources": known.resources,
        "prompts": known.prompts,
        "signed_in": servers.signins.told(name, server),
        "error": error,
    })
}

/// The skills of a server, where they are offered.
fn skills(catalog: &Catalog, name: &str, known: &KnownSkills) -> Value {
    let tool = catalog.skills.iter().find(|(_, server)| *server == name).map(|(offered, _)| offered);
    let one = |(uri, text): (&String, &SkillText)| json!({"skill": uri, "name": text.name, "offered": known.stands(uri)});
    let all: Vec<Value> = known.seen.iter().filter(|_| tool.is_some()).map(one).collect();
    json!({"tool": tool, "skills": all, "error": known.error})
}

/// What of skills waits, is unread or cannot be loaded, beside the tools of which the same is told.
fn of_skills(known: &KnownSkills, waiting: &mut Vec<Value>, unread: &mut Vec<Value>, unfit: &mut Vec<Value>) {
    let said = |skill: &SkillText| format!("{}: {}", skill.name, skill.description);
    let text = |said: String| json!({"description": said, "schema": null});
    waiting.extend(known.waiting().map(|(uri, new, old)| {
        // What a person is shown of it may be the same.
        let also = old.is_some_and(|old| said(old) == said(new));
        let now = said(new) + if also { " [its files or its other keys changed]" } else { "" };
        json!({"tool": uri, "new": text(now), "old": old.map(|old| text(said(old))), "digest": new.digest})
    }));
    unread.extend(
        known
            .unread()
            .map(|(uri, skill)| json!({"tool": uri, "said": text(said(skill)), "digest": skill.digest})),
    );
    unfit.extend(known.unfit.iter().map(|(uri, why)| json!({"tool": uri, "why": why})));
}

async fn approve(servers: &Arc<Servers>, approved: Approve) -> Result<Value, Fault> {
    let Approve { server: name, tool, digest } = approved;
    let (name, tool) = (name.as_str(), tool.as_deref());
    let server = configured(servers, name)?;
    let definition = server.definition();
    let (approved, renewed) = {
        let mut state = servers.pins.state();
        let known = state.servers.entry(name.to_owned()).or_default();
        let renewed = known.definition != definition;
        let approved: Vec<String> = match tool {
            None if renewed => {
                // Another command is another server: what it says first is agreed to, as with any new one.
                *known = KnownServer { definition, ..KnownServer::default() };
                Vec::new()
            }
            None => known.open(&server).into_keys().collect(),
            Some(_) if renewed => {
                let message = format!("the command, the arguments or the address of `{name}` changed");
                return Err(Fault::invalid(message).help("approve the server first, without `tool`"));
            }
            Some(tool) => match known.open(&server).get(tool) {
                Some(now) if digest.as_ref().is_some_and(|digest| digest != now) => {
                    let message = format!("`{tool}` of `{name}` changed since it was looked at");
                    return Err(Fault::invalid(message).help("look at it again"));
                }
                Some(_) => vec![tool.to_owned()],
                None => {
                    let message = format!("no tool and no skill `{tool}` of `{name}` waits");
                    return Err(Fault::not_found(message));
                }
            },
        };
        approved.iter().for_each(|tool| known.agree(tool));
        state.refused.retain(|refused, _| !refused.starts_with(&names::prefix(name)));
        (approved, renewed)
    };
    servers.announce().await;
    if renewed {
        // What runs by the old command ends.
        servers.instances.end(name);
        servers.forgive(name);
        if server.enabled {
            servers.refresh(name).await?;
        }
    }
    Ok(json!({"server": renewed, "tools": approved}))
}

async fn refresh(servers: &Arc<Servers>, name: &str) -> Result<Value, Fault> {
    configured(servers, name)?;
    servers.forgive(name);
    {
        let mut state = servers.pins.state();
        state.refused.retain(|refused, _| !refused.starts_with(&names::prefix(name)));
        // It may be a newer one by now, which speaks the newer revision as well.
        if let Some(known) = state.servers.get_mut(name) {
            known.initialize = false;
        }
    }
    servers.refresh(name).await?;
    servers.announce().await;
    let known = servers.pins.known(name);
    let tools = known.waiting().map(|(tool, ..)| tool);
    let waiting: Vec<&String> = tools.chain(known.skills.waiting().map(|(uri, ..)| uri)).collect();
    Ok(json!({"tools": known.seen.len(), "skills": known.skills.seen.len(), "waiting": waiting}))
}

fn configured(servers: &Servers, name: &str) -> Result<ServerSettings, Fault> {
    names::check_known(name)?;
    servers.settings().servers.get(name).cloned().ok_or_else(|| {
        Fault::not_found(format!("there is no MCP server `{name}`"))
            .help("they are named under `extensions.mcp.servers` in drupe.yaml")
    })
}
