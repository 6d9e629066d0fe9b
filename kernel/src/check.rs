//! Checks a folder before it becomes an extension, and makes it one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use drupe_config::{Config, ContextSource, Instructions, Manifest, load_manifest};
use drupe_extension_api::{DefinitionLimits, Fault, control::CheckReport};

use crate::kernel::Kernel;

/// How the name of a folder begins while it is being added.
pub const ADDING: &str = ".adding-";

/// The most files and folders that a folder may have to be copied.
const ENTRIES: usize = 256;

/// The most bytes that they may have together.
const BYTES: u64 = 64 * 1024 * 1024;

/// Every fault of a folder's manifest, as data and for people.
pub fn folder(path: &Path, home: &Path) -> CheckReport {
    let diagnostics = match load_manifest(path, home) {
        Ok(loaded) => loaded.warnings,
        Err(faults) => faults,
    };
    CheckReport {
        ok: !diagnostics.has_errors(),
        rendered: diagnostics.render(false),
        diagnostics: serde_json::to_value(&diagnostics).unwrap_or_default(),
    }
}

/// Copies a folder to where the home's extensions live. It takes effect with the next start. What an agent made may
/// only bring what needs no person's agreement.
pub async fn add(kernel: &Arc<Kernel>, path: PathBuf, by_agent: bool) -> Result<(), Fault> {
    let kernel = Arc::clone(kernel);
    let work = move || {
        let staged = kernel.home.extensions().join(format!("{ADDING}{}", uuid::Uuid::new_v4().simple()));
        let added = add_through(&kernel, &path, &staged, by_agent);
        // It is hidden from discovery; a rest of it is swept at the next start.
        let _ = fs::remove_dir_all(&staged);
        added
    };
    tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
}

/// Judges the copy and not the original, which its maker could change in between.
fn add_through(kernel: &Kernel, path: &Path, staged: &Path, by_agent: bool) -> Result<(), Fault> {
    let name =
        path.file_name().ok_or_else(|| Fault::invalid(format!("`{}` is no folder", path.display())))?;
    let copied = staged.join(name);
    copy(path, &copied, &mut Room { entries: ENTRIES, bytes: BYTES })
        .map_err(|error| Fault::invalid(format!("`{}` cannot be copied: {error}", path.display())))?;
    let loaded = load_manifest(&copied, kernel.home.root())
        .map_err(|faults| Fault::invalid(format!("the extension has faults:\n{}", faults.render(false))))?;
    let manifest = loaded.value;
    if by_agent {
        modest(kernel, &manifest)?;
    }
    if kernel.extensions.read(|r| r.found.name == manifest.id.as_str()).contains(&true) {
        return Err(Fault::denied(format!("there is an extension `{}` already", manifest.id))
            .help("choose another id"));
    }
    let target = kernel.home.extensions().join(manifest.id.as_str());
    if target.symlink_metadata().is_ok() {
        return Err(Fault::denied(format!("`{}` exists already", target.display())).help("choose another id"));
    }
    // The one moment at which the extension comes to exist, whole.
    fs::rename(&copied, &target)
        .map_err(|error| Fault::internal(format!("`{}` cannot be made: {error}", target.display())))
}

/// Refuses what would need the operator's agreement.
fn modest(kernel: &Kernel, manifest: &Manifest) -> Result<(), Fault> {
    let needs = immodest(manifest, &kernel.config);
    if needs.is_empty() {
        return Ok(());
    }
    let message = format!(
        "extension `{}` wants {}, which needs the operator's agreement",
        manifest.id,
        needs.join(", ")
    );
    Err(Fault::denied(message).help("the operator can copy the folder into the home's `extensions`"))
}

/// What an extension brings beyond what an agent may give to another without asking.
fn immodest(manifest: &Manifest, config: &Config) -> Vec<String> {
    let mut needs = Vec::new();
    let mut want = |wants: bool, what: &dyn Fn() -> String| {
        if wants {
            needs.push(what());
        }
    };
    want(manifest.entrypoint.is_some(), &|| "native code".into());
    want(!manifest.secrets.is_empty(), &|| format!("the secrets {}", manifest.secrets.join(", ")));
    want(!manifest.rights.is_empty(), &|| format!("the rights {:?}", manifest.rights));
    want(manifest.overrides, &|| "to replace a shipped extension".into());
    let Some(agent) = &manifest.agent else { return needs };
    for selector in &agent.uses_tools {
        let allowed = config.orchestrator.builder_may_use.contains(&selector.extension);
        want(!allowed, &|| format!("the tools of `{}`", selector.extension));
    }
    for other in &agent.uses_agents {
        want(true, &|| format!("to call the agent `{other}`"));
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
        want(!file.starts_with(&manifest.folder), &|| format!("to read `{}`", file.display()));
    }
    let (asked, usual) = (
        agent.limits_over(&config.agents_defaults),
        config.agents_defaults.limits.over(&DefinitionLimits::default()),
    );
    let more = asked.max_turns > 2 * usual.max_turns
        || asked.max_tokens_per_invocation > 2 * usual.max_tokens_per_invocation
        || asked.time_budget_ms > 2 * usual.time_budget_ms
        || asked.max_depth > usual.max_depth
        || asked.allow_unknown_price && !usual.allow_unknown_price
        || usual.max_cost_usd.is_some_and(|usual| asked.max_cost_usd.is_none_or(|asked| asked > usual));
    want(more, &|| "more than twice the usual limits".into());
    needs
}

struct Room {
    entries: usize,
    bytes: u64,
}

fn copy(from: &Path, to: &PathBuf, room: &mut Room) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        room.entries = room
            .entries
            .checked_sub(1)
            .ok_or_else(|| io::Error::other(format!("it has more than {ENTRIES} files and folders")))?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target, room)?;
        } else if kind.is_file() {
            let bytes = entry.metadata()?.len();
            room.bytes = room
                .bytes
                .checked_sub(bytes)
                .ok_or_else(|| io::Error::other(format!("its files have more than {BYTES} bytes")))?;
            fs::copy(entry.path(), &target)?;
            // What is renamed into place later is to be whole after a power loss, too.
            fs::File::open(&target)?.sync_all()?;
        } else {
            let message = format!("`{}` is neither a file nor a folder", entry.path().display());
            return Err(io::Error::other(message));
        }
    }
    Ok(())
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
