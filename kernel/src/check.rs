//! Checks a folder before it becomes an extension, and makes it one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use drupe_config::{
    Config, ContextSource, Diagnostics, Instructions, Loaded, Manifest, Right, load_agent_file, load_manifest,
};
use drupe_extension_api::{
    DefinitionLimits, ExtensionId, Fault,
    control::{CheckReport, ExtensionState, ExtensionStatus},
};

use crate::{extension::change, kernel::Kernel};

/// How the name of a folder begins while it is being added.
pub const ADDING: &str = ".adding-";

/// What an extension is: a folder with a manifest, or a single file that is an agent.
pub fn load(path: &Path, home: &Path) -> Result<Loaded<Manifest>, Diagnostics> {
    if path.is_file() { load_agent_file(path, home) } else { load_manifest(path, home) }
}

/// Every fault of an extension, as data and for people.
pub fn report(path: &Path, home: &Path) -> CheckReport {
    let diagnostics = match load(path, home) {
        Ok(loaded) => loaded.warnings,
        Err(faults) => faults,
    };
    CheckReport {
        ok: !diagnostics.has_errors(),
        rendered: diagnostics.render(false),
        diagnostics: serde_json::to_value(&diagnostics).unwrap_or_default(),
    }
}

/// Copies a folder, or the file of an agent, to where the home's extensions live, and takes it in. What it brings that needs the operator's
/// agreement waits for that. What an agent made and does not come to work is taken back: its maker is told why, mends
/// its draft and tries again.
pub async fn add(kernel: &Arc<Kernel>, path: PathBuf, by_agent: bool) -> Result<ExtensionStatus, Fault> {
    let adding = Arc::clone(kernel);
    let work = move || {
        let staged = adding.home.extensions().join(format!("{ADDING}{}", uuid::Uuid::new_v4().simple()));
        let added = add_through(&adding, &path, &staged);
        // It is hidden from discovery; a rest of it is swept at the next start.
        let _ = fs::remove_dir_all(&staged);
        added
    };
    let id = tokio::task::spawn_blocking(work).await.map_err(Fault::internal)??;
    change::rescan(kernel).await?;
    let status = kernel.extensions.status(id.as_str())?;
    let hopeless = matches!(
        status.state,
        ExtensionState::Failed | ExtensionState::Skipped | ExtensionState::Quarantined
    );
    if by_agent && hopeless {
        let made = Path::new(&status.source);
        let removed = if made.is_file() { fs::remove_file(made) } else { fs::remove_dir_all(made) };
        removed.map_err(|error| {
            Fault::internal(format!("`{}` cannot be taken back: {error}", made.display()))
        })?;
        change::rescan(kernel).await?;
    }
    Ok(status)
}

/// Judges the copy and not the original, which its maker could change in between.
fn add_through(kernel: &Kernel, path: &Path, staged: &Path) -> Result<ExtensionId, Fault> {
    let name = path.file_name().ok_or_else(|| Fault::invalid(format!("`{}` has no name", path.display())))?;
    let copied = staged.join(name);
    drupe_folders::copy::copy(path, &copied)
        .map_err(|error| Fault::invalid(format!("`{}` cannot be copied: {error}", path.display())))?;
    let loaded = load(&copied, kernel.home.root())
        .map_err(|faults| Fault::invalid(format!("the extension has faults:\n{}", faults.render(false))))?;
    let id = loaded.value.id;
    if !kernel.extensions.named(id.as_str()).is_empty() {
        return Err(Fault::denied(format!("there is an extension `{id}` already")).help("choose another id"));
    }
    let ending = if copied.is_file() { ".md" } else { "" };
    let target = kernel.home.extensions().join(format!("{id}{ending}"));
    if target.symlink_metadata().is_ok() {
        return Err(Fault::denied(format!("`{}` exists already", target.display())).help("choose another id"));
    }
    // The one moment at which the extension comes to exist, whole.
    fs::rename(&copied, &target)
        .map_err(|error| Fault::internal(format!("`{}` cannot be made: {error}", target.display())))?;
    Ok(id)
}

/// What an extension brings that the operator must agree to, a phrase each: code, secrets, rights, and whatever gives an
/// agent more than its own prompt and the tools that are open to all.
pub fn immodest(manifest: &Manifest, config: &Config) -> Vec<String> {
    let mut needs = Vec::new();
    let mut want = |wants: bool, what: &dyn Fn() -> String| {
        if wants {
            needs.push(what());
        }
    };
    want(manifest.entrypoint.is_some(), &|| "native code".into());
    want(!manifest.secrets.is_empty(), &|| format!("the secrets {}", manifest.secrets.join(", ")));
    want(!manifest.rights.is_empty(), &|| {
        let names: Vec<String> = manifest.rights.iter().map(name).collect();
        format!("the rights {}", names.join(", "))
    });
    for followed in &manifest.subscribe {
        want(true, &|| format!("work at each message of `{}`", followed.topic));
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
            format!("the file `{}` from outside its folder", file.display())
        });
    }
    let (asked, usual) = (
        agent.limits_over(&config.agents_defaults),
        config.agents_defaults.limits.over(&DefinitionLimits::default()),
    );
    let more = asked.max_turns > 2 * usual.max_turns
        || asked.max_tokens_per_invocation > 2 * usual.max_tokens_per_invocation
        || asked.time_budget_ms > 2 * usual.time_budget_ms
        || asked.max_depth > usual.max_depth
        || asked.max_tool_calls > 2 * usual.max_tool_calls
        || asked.max_invocations > 2 * usual.max_invocations
        || asked.allow_unknown_price && !usual.allow_unknown_price
        || usual.max_cost_usd.is_some_and(|usual| asked.max_cost_usd.is_none_or(|asked| asked > usual));
    want(more, &|| "more than twice the usual limits".into());
    needs
}

/// A right as manifests write it.
pub fn name(right: &Right) -> String {
    serde_json::to_value(right).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use drupe_config::{Sources, load_config};

    use super::*;

    fn check(agent: &str) -> Vec<String> {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("extensions/one");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(home.path().join("shared.md"), "x").expect("a file");
        fs::write(folder.join("own.md"), "x").expect("a file");
        let manifest = format!("id: one\nname: One\ndescription: x\n{agent}");
        fs::write(folder.join("manifest.yaml"), manifest).expect("a file");
        let sources = Sources { home: home.path().to_owned(), ..Sources::default() };
        let config = load_config(&sources).expect("defaults are valid").value;
        let loaded =
            load_manifest(&folder, home.path()).unwrap_or_else(|faults| panic!("{}", faults.render(false)));
        immodest(&loaded.value, &config)
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
            (agent(", context: [shared.md]"), "shared.md"),
            (agent(", limits: {max_turns: 1000}"), "limits"),
            (agent(", limits: {allow_unknown_price: true}"), "limits"),
            (agent("") + "subscribe: [{topic: kv.changed, task: look}]\n", "kv.changed"),
            (agent("") + "rights: [control]\n", "rights"),
            (agent("") + "overrides: true\n", "shipped"),
            (agent("") + "entrypoint: libx\nisolation: inproc\n", "native code"),
        ];
        for (manifest, named) in cases {
            let needs = check(&manifest);
            assert!(needs.len() == 1 && needs[0].contains(named), "{manifest}: {needs:?}");
        }
    }
}
