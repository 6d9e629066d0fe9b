//! Skills as the tool by which an agent loads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use drupe_agent::{Registered, RegistryError, ToolError, load_skill, load_skill::SkillSource};
use drupe_config::counterpart;
use drupe_prompts::{
    NoText,
    skills::{Skill, Skills},
};
use futures_util::{FutureExt as _, future::BoxFuture};

/// Skills that are read from their folders.
struct OnDisk(BTreeMap<String, Arc<Skill>>);

/// The tool for the skills of an agent; none where it has none. What lies in the workspace may have been written by an agent
/// that obeyed strangers.
pub(crate) fn tool(skills: &Skills, workspace: &Path) -> Result<Option<Arc<Registered>>, RegistryError> {
    if skills.all.is_empty() {
        return Ok(None);
    }
    let by_strangers = skills.all.values().any(|skill| passes(&skill.folder, workspace));
    let source = Arc::new(OnDisk(skills.all.clone()));
    load_skill::tool(source, by_strangers).map(Some)
}

/// Whether the way to a folder leads through the workspace, by its name or by links.
fn passes(folder: &Path, workspace: &Path) -> bool {
    let real = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let mut way = folder.ancestors().filter_map(|part| part.canonicalize().ok());
    folder.starts_with(workspace) || way.any(|part| part.starts_with(&real))
}

impl SkillSource for OnDisk {
    fn listed(&self) -> Vec<(String, String)> {
        self.0.values().map(|skill| (skill.name.clone(), skill.description.clone())).collect()
    }

    fn read(&self, name: String, file: Option<String>) -> BoxFuture<'_, Result<String, ToolError>> {
        let Some(skill) = self.0.get(&name).cloned() else {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let message = format!("there is no skill `{name}`; there are {}", known.join(", "));
            return std::future::ready(Err(ToolError::failed(message))).boxed();
        };
        // Files may lie on a slow disk.
        let reading = tokio::task::spawn_blocking(move || match file {
            Some(file) => skill.file(&file),
            None => whole(&skill),
        });
        async {
            let read = reading.await.map_err(|error| ToolError::failed(error.to_string()))?;
            read.map_err(|why| ToolError::failed(why.to_string()))
        }
        .boxed()
    }

    fn hash(&self, name: String) -> BoxFuture<'_, Option<String>> {
        let Some(skill) = self.0.get(&name).cloned() else { return std::future::ready(None).boxed() };
        async move { tokio::task::spawn_blocking(move || skill.hash()).await.ok() }.boxed()
    }

    fn allows(&self, name: &str) -> Option<BTreeSet<String>> {
        let allowed = self.0.get(name)?.allowed.as_ref()?;
        Some(allowed.iter().map(|written| our_name(written)).collect())
    }
}

/// Its instructions, where it lies, and which files they may name.
fn whole(skill: &Skill) -> Result<String, NoText> {
    let instructions = skill.instructions()?;
    let files = skill.files();
    let beside = match files.is_empty() {
        true => String::new(),
        false => format!(
            "\n\nFiles of this skill, for `file` of load_skill, and for commands beneath that folder: {}",
            files.join(", ")
        ),
    };
    Ok(format!("The skill `{}` in {}:\n\n{instructions}{beside}", skill.name, skill.folder.display()))
}

/// The name of our tool for what a skill calls a tool: that of another system with what it says of parameters, or our own.
fn our_name(written: &str) -> String {
    let name = written.split_once('(').map_or(written, |(name, _)| name);
    counterpart(name).unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_way_through_the_workspace_is_known_by_whatever_name_it_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |within: &str| folder.path().join(within);
        for made in ["project/skills/a", "home/skills/b", "elsewhere"] {
            fs::create_dir_all(at(made)).expect("a folder");
        }
        let workspace = at("home/workspace");
        symlink(at("project"), &workspace).expect("a link");
        symlink(&workspace, at("way")).expect("a link");
        // An agent can put it there.
        symlink(at("elsewhere"), at("project/out")).expect("a link");
        for (skill, through) in [
            ("home/skills/b", false),
            ("home/skills/gone", false),
            ("home/workspace/skills/a", true),
            ("home/workspace/gone", true),
            ("project/skills/a", true),
            ("way/skills/a", true),
            ("way/out", true),
            ("elsewhere", false),
        ] {
            assert_eq!(passes(&at(skill), &workspace), through, "{skill}");
        }
    }
}
