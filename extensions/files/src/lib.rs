//! Text files of the workspace. Provides `files_read`, `files_write`, `files_edit`, `files_list` and
//! `files_search`.
//!
//! Every path is opened beneath the workspace's root: `..`, absolute paths elsewhere, and symbolic links out
//! do not leave it, whatever changes while a call runs. It runs nothing, deletes nothing, and neither changes
//! binary files nor opens devices and pipes.

mod lines;
mod patch;
mod root;
mod walk;

use std::sync::{Arc, Mutex, PoisonError};

use drupe_extension_api::prelude::*;
use root::{Bounds, Root};

struct Files {
    host: Host,
    bounds: Bounds,
    /// Held while a file is changed: an edit reads and writes.
    changing: Arc<Mutex<()>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    max_file_bytes: u64,
    max_output_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_file_bytes: 8 << 20, max_output_bytes: 256 << 10 }
    }
}

impl Extension for Files {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let Config { max_file_bytes, max_output_bytes } = host.config()?;
        let bounds = Bounds { file_bytes: max_file_bytes, output_bytes: max_output_bytes };
        Ok(Files { host, bounds, changing: Arc::default() })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The file, relative to the workspace.
    path: String,
    /// The first line, from 1.
    #[serde(default)]
    offset: Option<usize>,
    /// The number of lines.
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// The file, relative to the workspace; folders that are missing are made.
    path: String,
    /// The whole new content.
    content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The file, relative to the workspace.
    path: String,
    /// The text to replace, exactly as it is in the file, where it stands once. With `new`.
    #[serde(default)]
    old: Option<String>,
    /// The text to put in its place.
    #[serde(default)]
    new: Option<String>,
    /// Instead of `old` and `new`: a unified diff of this file.
    #[serde(default)]
    patch: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The folder, relative to the workspace; without it, the workspace.
    #[serde(default)]
    path: Option<String>,
    /// Levels of folders below it, 1 to 16; 1 without it.
    #[serde(default)]
    depth: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// A regular expression, matched against each line.
    pattern: String,
    /// The file or folder to search, relative to the workspace; without it, the workspace.
    #[serde(default)]
    path: Option<String>,
}

impl ToolProvider for Files {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new("files_read", "Reads a text file, or some lines of it.", Files::read).read_only(),
            Tool::new("files_write", "Writes a text file, in place of what was there.", Files::write)
                .idempotent()
                .item(ItemKind::FileChange),
            Tool::new("files_edit", "Changes a part of a text file.", Files::edit)
                .once()
                .item(ItemKind::FileChange),
            Tool::new("files_list", "Lists the files and folders in a folder.", Files::list).read_only(),
            Tool::new(
                "files_search",
                "Finds lines of text files that match a regular expression.",
                Files::search,
            )
            .read_only(),
        ]
    }
}

export!(Files: Tool);

impl Files {
    async fn read(&self, input: Read, call: Call) -> Result<String, Fault> {
        self.with(&call, move |root| {
            let text = root.read(&input.path)?;
            lines::excerpt(&text, input.offset, input.limit, root.bounds().output_bytes)
        })
        .await
    }

    async fn write(&self, input: Write, call: Call) -> Result<String, Fault> {
        self.change(&call, move |root| {
            let made = root.write(&input.path, &input.content)?;
            let verb = if made { "created" } else { "wrote" };
            Ok(format!("{verb} `{}`, {} bytes", input.path, input.content.len()))
        })
        .await
    }

    async fn edit(&self, input: Edit, call: Call) -> Result<String, Fault> {
        self.change(&call, move |root| {
            let before = root.read(&input.path)?;
            let after = edited(&before, &input)?;
            root.write(&input.path, &after)?;
            Ok(format!("edited `{}`: {}", input.path, lines::difference(&before, &after)))
        })
        .await
    }

    async fn list(&self, input: List, call: Call) -> Result<String, Fault> {
        let depth = input.depth.unwrap_or(1).clamp(1, 16);
        self.with(&call, move |root| walk::list(root, input.path.as_deref(), depth)).await
    }

    async fn search(&self, input: Search, call: Call) -> Result<String, Fault> {
        self.with(&call, move |root| walk::search(root, input.path.as_deref(), &input.pattern)).await
    }

    async fn change<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl FnOnce(&Root) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let changing = self.changing.clone();
        self.with(call, move |root| {
            let _alone = changing.lock().unwrap_or_else(PoisonError::into_inner);
            work(root)
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl FnOnce(&Root) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (workspace, bounds) = (self.host.workspace().to_owned(), self.bounds);
        let base = call.base_folder.clone();
        self.host.blocking(move || work(&Root::open(&workspace, &base, bounds)?)).await
    }
}

fn edited(before: &str, edit: &Edit) -> Result<String, Fault> {
    match edit {
        Edit { old: Some(old), new: Some(new), patch: None, .. } => lines::replace_once(before, old, new),
        Edit { old: None, new: None, patch: Some(patch), .. } => patch::apply(before, patch),
        _ => Err(Fault::invalid("give either `old` and `new`, or `patch`")),
    }
}

#[cfg(test)]
mod tests;
