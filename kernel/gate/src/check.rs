//! What an extension is by its manifest, and what of it needs the operator's agreement.

use std::path::{Path, PathBuf};

use drupe_config::{
    Config, ContextSource, Diagnostics, Instructions, Isolation, Loaded, Manifest, Right,
    instructions::{self, UnreadableText},
    load_agent_file, load_manifest,
};
use drupe_extension_api::DefinitionLimits;
use drupe_folders::content::Content;

use crate::printable::{shown, whole};

/// Parameters for the provider that are named one by one.
const NAMED: usize = 32;

/// What an extension asks the operator for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// To what an answer is bound: its content, and every text that it takes from elsewhere.
    pub hash: String,
    /// A phrase each; empty where nobody need be asked.
    pub needs: Vec<String>,
}

/// What an extension is: a folder with a manifest, or a single file that is an agent.
pub fn load(path: &Path, home: &Path) -> Result<Loaded<Manifest>, Diagnostics> {
    if path.is_file() { load_agent_file(path, home) } else { load_manifest(path, home) }
}

/// What it asks for. Texts that its content does not hold are read here, once, into the manifest: what is agreed to is what
/// is used, whatever becomes of their files.
pub fn judge(manifest: &mut Manifest, content: &Content, config: &Config) -> Result<Ask, UnreadableText> {
    let needs = needs_agreement(manifest, config);
    let mut taken: Vec<(PathBuf, String)> = Vec::new();
    let folder = manifest.folder.clone();
    let mut take = |path: &Path| match path.strip_prefix(&folder) {
        Ok(within) if content.holds(within) => Ok(None),
        _ => {
            let text = instructions::read(path)?;
            taken.push((path.to_owned(), text.clone()));
            Ok::<_, UnreadableText>(Some(text))
        }
    };
    if let Some(agent) = &mut manifest.agent {
        if let Some(Instructions::File { path, template }) = &agent.instructions
            && let (template, Some(text)) = (*template, take(path)?)
        {
            agent.instructions =
                Some(if template { Instructions::Template(text) } else { Instructions::Inline(text) });
        }
        for source in &mut agent.context {
            if let ContextSource::File(path) = source
                && let Some(text) = take(path)?
            {
                *source = ContextSource::Inline(text);
            }
        }
    }
    let named: Vec<(String, String)> =
        taken.into_iter().map(|(path, text)| (path.display().to_string(), text)).collect();
    let hash = content.hash_with(named.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    Ok(Ask { hash, needs })
}

/// Whether its code is to run in the kernel's process.
pub fn runs_inside(manifest: &Manifest) -> bool {
    manifest.entrypoint.is_some() && manifest.isolation == Some(Isolation::Inproc)
}

/// What an extension brings that the operator must agree to, a phrase each: code, secrets, rights, and whatever gives an
/// agent more than its own prompt and the tools that are open to all.
pub fn needs_agreement(manifest: &Manifest, config: &Config) -> Vec<String> {
    let mut needs = Vec::new();
    let mut want = |wants: bool, what: &dyn Fn() -> String| {
        // Two tools of one extension are one thing to agree to.
        if let Some(phrase) = wants.then(what)
            && !needs.contains(&phrase)
        {
            needs.push(phrase);
        }
    };
    let inside = runs_inside(manifest);
    want(manifest.entrypoint.is_some() && !inside, &|| "native code".into());
    want(inside, &|| {
        "native code inside the kernel's process, unconfined: it can read and do whatever the daemon can"
            .into()
    });
    want(!manifest.secrets.is_empty(), &|| format!("the secrets {}", manifest.secrets.join(", ")));
    for bound in &manifest.bound_secrets {
        want(true, &|| {
            let places = bound
                .addresses
                .iter()
                .map(|key| format!(" and to the host of `{}` of its configuration", shown(key)));
            format!(
                "the secret {}, sent to {}{}",
                bound.name,
                bound.hosts.join(", "),
                places.collect::<String>()
            )
        });
    }
    let services: Vec<String> = manifest.rights.iter().filter(|r| **r != Right::Network).map(name).collect();
    want(!services.is_empty(), &|| format!("the rights {}", services.join(", ")));
    want(manifest.rights.contains(&Right::Network), &|| {
        "the network: TCP to any address, services of this machine included".into()
    });
    want(!manifest.program_folders.is_empty(), &|| {
        let named: Vec<_> =
            manifest.program_folders.iter().map(|folder| format!("`{}`", shown(folder))).collect();
        format!("programs that read {}", named.join(", "))
    });
    want(!manifest.listen.is_empty(), &|| {
        let keys: Vec<_> = manifest.listen.iter().map(|key| format!("`{}`", shown(key))).collect();
        format!("connections from other programs, at the addresses {} of its configuration", keys.join(", "))
    });
    for followed in &manifest.subscribe {
        want(true, &|| format!("work at each message of `{}`", shown(&followed.topic)));
    }
    for schedule in &manifest.schedules {
        let only_if = schedule.only_if.as_ref();
        let looks = only_if.map(|it| format!(", after a call of `{}`", shown(&it.tool))).unwrap_or_default();
        want(true, &|| format!("work at set times: `{}`{looks}", shown(&schedule.cron)));
    }
    for (name, server) in &manifest.mcp_servers {
        want(true, &|| format!("the MCP server `{}`: {}", shown(name), whole(&server.told())));
    }
    want(manifest.overrides, &|| "the place of a shipped extension".into());
    let Some(agent) = &manifest.agent else { return needs };
    for selector in &agent.uses_tools {
        let allowed = config.orchestrator.builder_may_use.contains(&selector.extension);
        want(!allowed, &|| format!("the tools of `{}`", selector.extension));
    }
    for other in &agent.uses_agents {
        want(true, &|| format!("calls of the agent `{other}`"));
    }
    want(agent.tool_name.is_some(), &|| "a tool name of its own choice".into());
    let extra = &agent.parameters.extra;
    want(!extra.is_empty(), &|| {
        let named: Vec<String> = extra.keys().take(NAMED).map(|key| format!("`{}`", shown(key))).collect();
        let more = match extra.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("parameters that its provider is given as they are: {}{more}", named.join(", "))
    });
    let files = agent.context.iter().filter_map(|source| match source {
        ContextSource::File(path) => Some(path),
        ContextSource::Inline(_) => None,
    });
    let instructions = match &agent.instructions {
        Some(Instructions::File { path, .. }) => Some(path),
        _ => None,
    };
    for file in files.chain(instructions) {
        want(!file.starts_with(&manifest.folder), &|| {
            format!("the file `{}` from outside its folder", shown(&file.display().to_string()))
        });
    }
    let defaults = &config.agents.defaults;
    want(is_more(&agent.limits_over(defaults), &defaults.limits), &|| {
        "more than twice the usual limits".into()
    });
    needs
}

/// Whether limits let an agent use more than twice of something, or nest deeper, or run at a cost that nobody can tell. Retries
/// and calls at once are of this kind: they multiply what others are asked for.
fn is_more(asked: &DefinitionLimits, usual: &DefinitionLimits) -> bool {
    let twice = |of: fn(&DefinitionLimits) -> u64| of(asked) > of(usual).saturating_mul(2);
    twice(|l| l.max_turns.into())
        || twice(|l| l.max_tokens_per_invocation)
        || twice(|l| l.time_budget_ms)
        || twice(|l| l.tool_timeout_ms)
        || twice(|l| l.max_tool_calls.into())
        || twice(|l| l.max_tool_calls_per_step.into())
        || twice(|l| l.parallel_tool_calls.into())
        || twice(|l| l.max_retries.into())
        || twice(|l| l.max_invocations.into())
        || twice(|l| l.max_active_children.into())
        || asked.max_depth > usual.max_depth
        || asked.allow_unknown_price && !usual.allow_unknown_price
        || usual.max_cost_usd.is_some_and(|usual| asked.max_cost_usd.is_none_or(|asked| asked > usual))
}

/// A right as manifests write it.
pub fn name(right: &Right) -> String {
    serde_json::to_value(right).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use drupe_config::{Sources, load_config};

    use super::*;

    fn check(agent: &str) -> Vec<String> {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("extensions/one");
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["shared.md", "a\nb\u{202e}.md"] {
            fs::write(home.path().join(name), "x").expect("a file");
        }
        fs::write(folder.join("own.md"), "x").expect("a file");
        let manifest = format!("id: one\nname: One\ndescription: x\n{agent}");
        fs::write(folder.join("manifest.yaml"), manifest).expect("a file");
        let sources = Sources { home: home.path().to_owned(), ..Sources::default() };
        let config = load_config(&sources).expect("defaults are valid").value;
        let loaded =
            load_manifest(&folder, home.path()).unwrap_or_else(|faults| panic!("{}", faults.render(false)));
        needs_agreement(&loaded.value, &config)
    }

    #[test]
    fn each_limit_counts_as_more_than_usual_beyond_twice_of_it() {
        let agent =
            |limits: &str| format!("agent: {{model: default, instructions: own.md, limits: {{{limits}}}}}\n");
        for (limit, usual) in [
            ("max_turns", 10),
            ("max_tokens_per_invocation", 50_000),
            ("time_budget_ms", 120_000),
            ("max_tool_calls_per_step", 16),
            ("parallel_tool_calls", 8),
            ("max_retries", 2),
            ("tool_timeout_ms", 60_000),
            ("max_tool_calls", 200),
            ("max_invocations", 32),
            ("max_active_children", 4),
        ] {
            assert_eq!(check(&agent(&format!("{limit}: {}", 2 * usual))), Vec::<String>::new(), "{limit}");
            assert_eq!(
                check(&agent(&format!("{limit}: {}", 2 * usual + 1))),
                ["more than twice the usual limits"],
                "{limit}"
            );
        }
    }

    #[test]
    fn each_phrase_is_one_line_that_shows_what_it_names_and_stands_there_once() {
        let hostile = r#""a\nand nothing else. [agreed]\u202E\e[2J\u200b""#;
        let agent = |more: &str| format!("agent: {{model: default, instructions: own.md{more}}}\n");
        let keys: Vec<String> = (0..500).map(|n| format!("k{n}: 1")).collect();
        for (manifest, said) in [
            (
                agent("") + &format!("subscribe: [{{topic: {}, task: x}}]\n", r#""kv.a\u202E\u200b""#),
                r"\u{202e}",
            ),
            (agent(&format!(", parameters: {{extra: {{{hostile}: 1}}}}")), r"\nand nothing"),
            (agent(&format!(", parameters: {{extra: {{{}}}}}", keys.join(", "))), "and 468 more"),
            (agent(r#", context: ["a\nb\u202E.md"]"#), r"\nb\u{202e}.md"),
            (agent("") + &format!("mcp_servers: {{a: {{command: {hostile}}}}}\n"), r"\nand nothing"),
            (agent(", uses_tools: [shell, shell/one, shell/two]"), "`shell`"),
        ] {
            let needs = check(&manifest);
            assert!(needs.len() == 1 && needs[0].contains(said), "{manifest}: {needs:?}");
            assert!(!needs[0].contains(drupe_config::acts) && needs[0].len() < 1_000, "{needs:?}");
        }
    }

    #[test]
    fn of_the_command_of_a_server_nothing_is_left_out() {
        let long = "x".repeat(400);
        let server = format!(
            "agent: {{model: default, instructions: own.md}}\nmcp_servers: {{a: {{command: sh, args: ['{long} evil {long}']}}}}\n"
        );
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("own.md"), "x").expect("a file");
        fs::write(
            folder.path().join("manifest.yaml"),
            format!("id: one\nname: One\ndescription: x\n{server}"),
        )
        .expect("a file");
        let refused = load_manifest(folder.path(), folder.path()).expect_err("it is too long").render(false);
        assert!(refused.contains("more of it than somebody reads"), "{refused}");
        let needs = check(&server.replace(&long, &long[..200]));
        assert!(needs[0].contains(" evil ") && needs[0].len() > 400, "{needs:?}");
    }

    #[test]
    fn what_an_agent_makes_brings_nothing_that_needs_agreement() {
        let agent = |more: &str| format!("agent: {{model: default, instructions: own.md{more}}}\n");
        for modest in
            ["", ", uses_tools: [kv, files/files_read]", ", context: [own.md]", ", limits: {max_turns: 20}"]
        {
            assert_eq!(check(&agent(modest)), Vec::<String>::new(), "{modest}");
        }
        let cases = [
            (agent(", uses_tools: [shell]"), "`shell`"),
            (agent(", uses_agents: [ops]"), "`ops`"),
            (agent(", tool_name: agent_kv"), "tool name"),
            (agent(", parameters: {extra: {plugins: [web]}}"), "plugins"),
            (agent(", context: [shared.md]"), "shared.md"),
            (agent(", limits: {max_turns: 1000}"), "limits"),
            (agent(", limits: {allow_unknown_price: true}"), "limits"),
            (agent("") + "subscribe: [{topic: kv.changed, task: look}]\n", "kv.changed"),
            (agent("") + "rights: [control]\n", "rights"),
            (agent("") + "rights: [network]\n", "TCP to any address"),
            (agent("") + "program_folders: [~/.tool]\n", "programs that read `~/.tool`"),
            (
                agent("") + "listen: [address]\n",
                "connections from other programs, at the addresses `address` of its configuration",
            ),
            (
                agent("")
                    + "mcp_servers: {time: {command: serve, args: [--zone, 'a b'], env: {K: v}, network: true}}\n",
                r#"the MCP server `time`: the program "serve" "--zone" "a b", with the variables K, with the network"#,
            ),
            (
                agent("")
                    + "mcp_servers: {far: {url: 'https://x.example/mcp', tools: {read_only: ['get*']}}}\n",
                r#"the address "https://x.example/mcp", whose tools get* nobody is asked about"#,
            ),
            (
                agent("")
                    + "schedules: [{name: a, cron: '@daily', task: look, only_if: {tool: kv_get, params: {key: k}}}]\n",
                "work at set times: `@daily`, after a call of `kv_get`",
            ),
            (agent("") + "overrides: true\n", "shipped"),
            (agent("") + "entrypoint: libx\nisolation: inproc\n", "inside the kernel's process, unconfined"),
            (agent("") + "entrypoint: libx\nisolation: process\n", "native code"),
        ];
        for (manifest, named) in cases {
            let needs = check(&manifest);
            assert!(needs.len() == 1 && needs[0].contains(named), "{manifest}: {needs:?}");
        }
    }

    #[test]
    fn a_bound_secret_is_agreed_to_with_its_hosts() {
        let bound = "bound_secrets: [{name: KEY, hosts: [api.example.org, 'localhost:1']}]\n";
        let needs = check(&("entrypoint: libx\nisolation: process\n".to_owned() + bound));
        assert_eq!(needs, ["native code", "the secret KEY, sent to api.example.org, localhost:1"]);
    }

    #[test]
    fn what_the_builders_guide_shows_is_right_and_asked_about_by_each_command_and_time() {
        let guide = include_str!("../../../extensions/builder_agent/src/guide.md");
        let shown =
            guide.split("```yaml").nth(2).and_then(|rest| rest.split("```").next()).expect("both keys");
        let needs = check(&format!("agent: {{model: default, instructions: own.md}}\n{shown}"));
        let asked = [
            "the secrets RHYMES_TOKEN",
            "work at set times: `0 8 * * 1-5`",
            r#"the MCP server `rhymes`: the program "mcp-server-rhymes", with the variables TOKEN"#,
        ];
        assert_eq!(needs, asked);
    }
}
