//! `drupe mcp`: the agents as tools of a client, and the servers whose tools agents have.

use std::{fs, path::PathBuf};

use drupe_extension_api::control::{ExtensionAsk, method};
use serde_json::{Value, json};

use super::{
    Context, Facts,
    console::{plain, short, table},
    failure::Failure,
    mcp_login::{McpLogin, McpLogout},
    stdio::Stdio,
};

/// The extension that speaks with servers.
const CLIENT: &str = "mcp";

/// Characters of a description or an error that are shown; `--json` has all.
const SHOWN: usize = 160;

/// What the verb `mcp` is given.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct McpVerbs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    stdio: Stdio,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the servers whose tools agents have, and what of them waits for you
    Servers(Facts),
    /// Agree to what changed of a server
    Approve(Approve),
    /// Ask a server for its tools anew
    Refresh(Refresh),
    /// Sign in to a server that wants to know who asks, with a browser
    Login(McpLogin),
    /// Sign out of a server: what it was used with is deleted, and taken back where that can be done
    Logout(McpLogout),
    /// Print what drupe.yaml needs for the servers of another assistant; changes nothing
    Import(Import),
}

#[derive(Debug, clap::Args)]
struct Approve {
    /// The server, as `drupe mcp servers` lists it
    server: String,
    /// One of its tools; without it all that waits
    tool: Option<String>,
    /// Agree only if the tool is what `drupe mcp servers` showed with this
    #[arg(long, requires = "tool")]
    digest: Option<String>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
struct Refresh {
    /// The server, as `drupe mcp servers` lists it
    server: String,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
struct Import {
    /// The file in which the other assistant has its servers
    file: PathBuf,
    #[command(flatten)]
    facts: Facts,
}

impl McpVerbs {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self.verb {
            None => self.stdio.execute("mcp", context),
            Some(Verb::Servers(facts)) => servers(facts, context),
            Some(Verb::Approve(Approve { server, tool, digest, facts })) => {
                let mut params = json!({"server": server});
                for (name, value) in [("tool", tool), ("digest", digest)] {
                    if let Some(value) = value {
                        params[name] = value.into();
                    }
                }
                let approved = decide(context, "approve", params)?;
                said(&approved, facts, context, &format!("`{}`: {}", plain(&server), counted(&approved)))
            }
            Some(Verb::Refresh(Refresh { server, facts })) => {
                let asked = decide(context, "refresh", json!({"server": server}))?;
                said(
                    &asked,
                    facts,
                    context,
                    &format!("`{}`: {}", plain(&server), short(&asked.to_string(), SHOWN)),
                )
            }
            Some(Verb::Login(login)) => login.execute(context),
            Some(Verb::Logout(logout)) => logout.execute(context),
            Some(Verb::Import(Import { file, facts })) => import(&file, facts, context),
        }
    }
}

fn counted(approved: &Value) -> String {
    let tools: Vec<_> =
        approved["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain).collect();
    match (approved["server"].as_bool(), tools.is_empty()) {
        (Some(true), true) => "its command is agreed to".into(),
        (Some(true), false) => format!("its command is agreed to, and {}", tools.join(", ")),
        (_, true) => "nothing of it waited".into(),
        (_, false) => format!("agreed to {}", tools.join(", ")),
    }
}

fn said(answer: &Value, facts: Facts, context: &Context, remark: &str) -> Result<u8, Failure> {
    match facts.json {
        true => context.console.json(answer)?,
        false => context.console.remark(remark),
    }
    Ok(0)
}

fn servers(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let said = ask(context, "servers", json!({}))?;
    if facts.json {
        return context.console.json(&said).map(|()| 0);
    }
    let servers = said["servers"].as_array().cloned().unwrap_or_default();
    if servers.is_empty() {
        context.console.remark("there are no servers; `extensions.mcp.servers` of drupe.yaml names them");
        return Ok(0);
    }
    let rows: Vec<_> = servers.iter().map(row).collect();
    context.console.draw(&table(&rows))?;
    for server in &servers {
        let name = text(server, "server");
        for one in server["waiting"].as_array().into_iter().flatten() {
            let tool = text(one, "tool");
            let change = match one["old"].is_null() {
                true => "is new".to_owned(),
                false => format!(
                    "said before: {}",
                    short(one["old"]["description"].as_str().unwrap_or_default(), SHOWN)
                ),
            };
            let now = short(one["new"]["description"].as_str().unwrap_or_default(), SHOWN);
            context.console.draw(&format!("\n`{tool}` of {name} waits: {change}\n  says now: {now}\n"))?;
            let digest = text(one, "digest");
            context.console.remark(&format!(
                "`drupe mcp approve {name} {tool} --digest {digest}` agrees to it; `--json` shows all of it"
            ));
        }
        let unread: Vec<_> = server["unread"].as_array().into_iter().flatten().collect();
        for one in &unread {
            let said = short(one["said"]["description"].as_str().unwrap_or_default(), SHOWN);
            context.console.draw(&format!("\n`{}` of {name} says: {said}\n", text(one, "tool")))?;
        }
        if !unread.is_empty() {
            context.console.remark(&format!(
                "conversations that are offered these count as holding text of strangers until you agree to what they say: \
                 `drupe mcp approve {name}`"
            ));
        }
        if server["state"] == "sign_in" {
            context
                .console
                .remark(&format!("`{name}` wants to know who asks: sign in with `drupe mcp login {name}`"));
        }
        if server["state"] == "changed" {
            context.console.remark(&format!(
                "what `{name}` is started with has changed: `drupe mcp approve {name}` lets it start"
            ));
        }
    }
    Ok(0)
}

fn row(server: &Value) -> Vec<String> {
    let offered = server["tools"].as_array().map_or(0, Vec::len);
    let waiting = server["waiting"].as_array().map_or(0, Vec::len);
    let tools = match waiting {
        0 => format!("{offered} tools"),
        waiting => format!("{offered} tools, {waiting} wait"),
    };
    let error = server["error"].as_str().map_or_else(String::new, |error| short(error, SHOWN));
    vec![text(server, "server"), text(server, "transport"), text(server, "state"), tools, error]
}

fn import(file: &PathBuf, facts: Facts, context: &Context) -> Result<u8, Failure> {
    let json = fs::read_to_string(file).map_err(|error| {
        Failure::new(super::failure::status::IO, format!("{} cannot be read: {error}", file.display()))
    })?;
    let made = ask(context, "import", json!({"json": json}))?;
    if facts.json {
        return context.console.json(&made).map(|()| 0);
    }
    context.console.draw(&plain(made["yaml"].as_str().unwrap_or_default()))?;
    let lines = |key: &str| {
        made[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain).collect::<Vec<_>>()
    };
    let secrets = lines("secrets");
    if !secrets.is_empty() {
        context
            .console
            .remark(&format!("give each of these a value by `drupe secret set`: {}", secrets.join(", ")));
    }
    lines("notes").iter().for_each(|note| context.console.remark(note));
    Ok(0)
}

fn text(of: &Value, key: &str) -> String {
    plain(of[key].as_str().unwrap_or_default())
}

pub fn asked(ask: &str, params: Value) -> ExtensionAsk {
    ExtensionAsk { id: CLIENT.into(), ask: ask.into(), params }
}

fn ask(context: &Context, name: &str, params: Value) -> Result<Value, Failure> {
    context.daemon().call(method::EXTENSIONS_ASK, &asked(name, params))
}

pub fn decide(context: &Context, name: &str, params: Value) -> Result<Value, Failure> {
    context.daemon().decide(method::EXTENSIONS_ASK, &asked(name, params))
}
