//! Text files of the workspace, and its pictures. Provides `files_read`, `files_write`, `files_edit`, `files_delete`,
//! `files_move`, `files_list`, `files_search`, `files_send`, `files_changes` and `files_undo`.
//!
//! Every path is opened beneath the workspace's root: `..`, absolute paths elsewhere, and symbolic links out
//! do not leave it, whatever changes while a call runs. It opens no devices and pipes, and runs
//! nothing but the confined program that reads PDFs. What is written where text of strangers was read is marked, and reading it says so.
//!
//! A change is planned before it is made, so that a person can be shown it (`change.rs`), and what was there before is kept, so
//! that it can be taken back (`undo.rs`).

mod change;
mod lines;
mod marks;
mod patch;
mod plan;
mod root;
mod send;
mod undo;
mod walk;

use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use change::{FileChange, FileState};
use drupe_extension_api::{ImageData, ImageFacts, ScopeKind, look_at_image, prelude::*};
use marks::MarkedText;
use plan::Planned;
use root::{Bounds, Readable, Root};
use undo::{Before, ChangeFacts, ChangeStage, UndoBounds, UndoStore};

struct Files {
    host: Host,
    bounds: Bounds,
    /// Held while a file is changed: an edit reads and writes. None in it where nothing is kept of what was there before.
    changing: Arc<Mutex<Option<UndoStore>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    max_file_bytes: u64,
    max_output_bytes: usize,
    undo_bytes: u64,
    undo_days: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_file_bytes: 8 << 20, max_output_bytes: 256 << 10, undo_bytes: 64 << 20, undo_days: 30 }
    }
}

impl Extension for Files {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let Config { max_file_bytes, max_output_bytes, undo_bytes, undo_days } = host.config()?;
        let bounds = Bounds { file_bytes: max_file_bytes, output_bytes: max_output_bytes };
        let keeps = UndoBounds { bytes: undo_bytes, days: undo_days };
        let store = (undo_bytes > 0).then(|| UndoStore::new(host.data_folder(), keeps));
        Ok(Files { host, bounds, changing: Arc::new(Mutex::new(store)) })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The file, relative to the workspace.
    path: String,
    /// The first line of a text, from 1.
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
struct Delete {
    /// The file, relative to the workspace.
    path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    /// The file, relative to the workspace.
    path: String,
    /// Its new path, relative to the workspace, which no file has; folders that are missing are made.
    to: String,
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Undo {
    /// The change to take back, as `files_changes` names it; without it, the latest of this conversation.
    #[serde(default)]
    change: Option<String>,
}

impl ToolProvider for Files {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new("files_read", "Reads a text file or a PDF, or some lines of it; shows a picture (PNG, JPEG, GIF, WebP).", Files::read).read_only(),
            Tool::new("files_write", "Writes a text file, in place of what was there.", Files::write)
                .idempotent()
                .preview(Files::preview_write)
                .item(ItemKind::FileChange),
            Tool::new("files_edit", "Changes a part of a text file.", Files::edit)
                .once()
                .lookup(Files::happened)
                .preview(Files::preview_edit)
                .item(ItemKind::FileChange),
            Tool::new("files_delete", "Deletes a file. files_undo brings it back for a time.", Files::delete)
            // What is kept of it is bounded, and whoever lost it may not look in time.
            .destructive()
            .approval_scope("path", ScopeKind::Folder, &[])
            .once()
            .lookup(Files::happened)
            .preview(Files::preview_delete)
            .item(ItemKind::FileChange),
            Tool::new("files_move", "Gives a file another name, or moves it into another folder.", Files::rename)
                .once()
                .lookup(Files::happened)
                .preview(Files::preview_rename)
                .item(ItemKind::FileChange),
            Tool::new("files_list", "Lists the files and folders in a folder.", Files::list).read_only(),
            Tool::new(
                "files_search",
                "Finds lines of text files that match a regular expression.",
                Files::search,
            )
            .read_only(),
            Tool::new(
                "files_send",
                "Sends a file of any kind to the person in this conversation, who gets it as a file where the chat takes files.",
                Files::send,
            )
            .outward()
            .idempotent()
            .preview(Files::preview_send),
            Tool::new(
                "files_changes",
                "Lists the changes that were made to files in this conversation, and which can be taken back.",
                Files::changes,
            )
            .read_only(),
            Tool::new(
                "files_undo",
                "Takes back a change of a file that was made in this conversation.",
                Files::undo,
            )
            .once()
            .lookup(Files::happened)
            .preview(Files::preview_undo)
            .item(ItemKind::FileChange),
        ]
    }
}

export!(Files: Tool);

impl Files {
    async fn read(&self, input: Read, call: Call) -> Result<String, Fault> {
        let path = input.path.clone();
        let (text, strangers) = match self.beneath(&call, move |root| root.look(&path)).await? {
            Readable::Text(MarkedText { text, strangers }) => (text, strangers),
            Readable::Picture { bytes, strangers } => {
                let text = picture(&input, &bytes)?;
                call.show_image(ImageData { data: BASE64_STANDARD.encode(bytes) });
                return Ok(told(&call, MarkedText { text, strangers }));
            }
            Readable::Pdf { bytes, strangers } => {
                let read = drupe_pdf_text::read(&self.host, &bytes).await.map_err(|fault| Fault {
                    message: format!("`{}` is a PDF: {}", input.path, fault.message),
                    ..fault
                })?;
                (read.told(), strangers)
            }
        };
        let text = lines::excerpt(&text, input.offset, input.limit, self.bounds.output_bytes)?;
        Ok(told(&call, MarkedText { text, strangers }))
    }

    async fn write(&self, input: Write, call: Call) -> Result<String, Fault> {
        let tainted = call.tainted;
        self.change(&call, move |root| plan::write(root, &input, tainted)).await
    }

    async fn preview_write(&self, input: Write, call: Call) -> Result<ToolPreview, Fault> {
        let tainted = call.tainted;
        self.preview(&call, move |root, _| plan::write(root, &input, tainted)).await
    }

    async fn edit(&self, input: Edit, call: Call) -> Result<String, Fault> {
        let tainted = call.tainted;
        self.change(&call, move |root| plan::edit(root, &input, tainted)).await
    }

    async fn preview_edit(&self, input: Edit, call: Call) -> Result<ToolPreview, Fault> {
        let tainted = call.tainted;
        self.preview(&call, move |root, _| plan::edit(root, &input, tainted)).await
    }

    async fn delete(&self, input: Delete, call: Call) -> Result<String, Fault> {
        self.change(&call, move |root| plan::delete(root, &input.path)).await
    }

    async fn preview_delete(&self, input: Delete, call: Call) -> Result<ToolPreview, Fault> {
        self.preview(&call, move |root, _| plan::delete(root, &input.path)).await
    }

    async fn rename(&self, input: Move, call: Call) -> Result<String, Fault> {
        self.change(&call, move |root| plan::moved(root, &input.path, &input.to)).await
    }

    async fn preview_rename(&self, input: Move, call: Call) -> Result<ToolPreview, Fault> {
        self.preview(&call, move |root, _| plan::moved(root, &input.path, &input.to)).await
    }

    async fn list(&self, input: List, call: Call) -> Result<String, Fault> {
        let depth = input.depth.unwrap_or(1).clamp(1, 16);
        self.with(&call, move |root| walk::list(root, input.path.as_deref(), depth)).await
    }

    async fn search(&self, input: Search, call: Call) -> Result<String, Fault> {
        self.with(&call, move |root| walk::search(root, input.path.as_deref(), &input.pattern)).await
    }

    async fn changes(&self, _: NoInput, call: Call) -> Result<String, Fault> {
        let session = call.session.clone();
        self.keeping(&call, move |root, store| {
            Ok(MarkedText::own(plan::list(root, &store.of(&session, plan::LISTED)?)))
        })
        .await
    }

    async fn undo(&self, input: Undo, call: Call) -> Result<String, Fault> {
        let (session, shown, by) =
            (call.session.clone(), call.shown.clone(), undo::short(call.effect_id.as_str()));
        self.keeping(&call, move |root, store| {
            let kept = plan::wanted(&store.of(&session, usize::MAX)?, input.change.as_deref())?;
            let Planned { change, said, strangers } = plan::undo(root, &kept)?;
            change.as_shown(shown.as_deref())?;
            let undoing = store.advance(&kept, ChangeStage::Undoing(by.clone()))?;
            if let Err(fault) = root.apply(&change) {
                // It was not taken back. Where this cannot be said either, the next process finds out.
                let _ = store.advance(&undoing, ChangeStage::Done);
                return Err(fault);
            }
            root.remove_folders(&kept.facts.folders);
            // What cannot be noted now is settled by the next process.
            let _ = store.advance(&undoing, ChangeStage::Undone(by));
            Ok(MarkedText { text: said, strangers })
        })
        .await
    }

    async fn preview_undo(&self, input: Undo, call: Call) -> Result<ToolPreview, Fault> {
        let session = call.session.clone();
        self.preview(&call, move |root, store| {
            let store = store.as_mut().ok_or_else(plan::keeps_nothing)?;
            store.settle(|facts| plan::look(root, facts))?;
            plan::undo(root, &plan::wanted(&store.of(&session, usize::MAX)?, input.change.as_deref())?)
        })
        .await
    }

    /// What became of a call that changes a file, after its process ended.
    async fn happened(&self, effect: EffectId) -> Result<LookupResult, Fault> {
        let (workspace, bounds, changing) =
            (self.host.workspace().to_owned(), self.bounds, self.changing.clone());
        self.host
            .blocking(move || {
                let root = Root::open(&workspace, "", bounds)?;
                let mut store = changing.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(store) = store.as_mut() else { return Ok(LookupResult::Unknown) };
                store.settle(|facts| plan::look(&root, facts))?;
                Ok(match store.by_effect(&effect)? {
                    Some(kept) if kept.facts.effect == effect => {
                        LookupResult::Done { content: kept.facts.said }
                    }
                    Some(kept) if matches!(kept.stage, ChangeStage::Undone(_)) => {
                        LookupResult::Done { content: plan::took_back(&kept) }
                    }
                    // What is to be changed is kept before.
                    _ => LookupResult::NotDone,
                })
            })
            .await
    }

    /// Makes the change that `plan` says, and keeps what was there before.
    async fn change(
        &self,
        call: &Call,
        plan: impl FnOnce(&Root) -> Result<Planned, Fault> + Send + 'static,
    ) -> Result<String, Fault> {
        let changing = self.changing.clone();
        let of = call.clone();
        self.with(call, move |root| {
            let mut store = changing.lock().unwrap_or_else(PoisonError::into_inner);
            let Planned { change, said, strangers } = plan(root)?;
            let given = MarkedText { text: said, strangers };
            if change.is_nothing() {
                return Ok(given);
            }
            change.as_shown(of.shown.as_deref())?;
            let Some(store) = store.as_mut() else {
                root.apply(&change)?;
                return Ok(given);
            };
            store.settle(|facts| plan::look(root, facts))?;
            let kept = match facts(root, &change, &of, &given.text) {
                Some(facts) => Some(store.begin(facts, &change.before).map_err(unkept)?),
                None => None,
            };
            let applied = root.apply(&change);
            if let Some(kept) = kept {
                // What cannot be noted now is settled by the next process.
                let _ = match &applied {
                    Ok(()) => store.advance(&kept, ChangeStage::Done).map(drop),
                    Err(_) => store.forget(&kept),
                };
            }
            applied.map(|()| given)
        })
        .await
    }

    async fn preview(
        &self,
        call: &Call,
        plan: impl FnOnce(&Root, &mut Option<UndoStore>) -> Result<Planned, Fault> + Send + 'static,
    ) -> Result<ToolPreview, Fault> {
        let (workspace, bounds, changing) =
            (self.host.workspace().to_owned(), self.bounds, self.changing.clone());
        let base = call.base_folder.clone();
        self.host
            .blocking(move || {
                let root = Root::open(&workspace, &base, bounds)?;
                // So that no change is half done while it looks.
                let mut store = changing.lock().unwrap_or_else(PoisonError::into_inner);
                let planned = plan(&root, &mut store)?;
                drop(store);
                Ok(planned.change.preview())
            })
            .await
    }

    /// Does something with what is kept.
    async fn keeping(
        &self,
        call: &Call,
        work: impl FnOnce(&Root, &mut UndoStore) -> Result<MarkedText, Fault> + Send + 'static,
    ) -> Result<String, Fault> {
        let changing = self.changing.clone();
        self.with(call, move |root| {
            let mut store = changing.lock().unwrap_or_else(PoisonError::into_inner);
            let store = store.as_mut().ok_or_else(plan::keeps_nothing)?;
            store.settle(|facts| plan::look(root, facts))?;
            work(root, store)
        })
        .await
    }

    async fn with(
        &self,
        call: &Call,
        work: impl FnOnce(&Root) -> Result<MarkedText, Fault> + Send + 'static,
    ) -> Result<String, Fault> {
        self.beneath(call, work).await.map(|given| told(call, given))
    }

    async fn beneath<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl FnOnce(&Root) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (workspace, bounds) = (self.host.workspace().to_owned(), self.bounds);
        let base = call.base_folder.clone();
        self.host.blocking(move || work(&Root::open(&workspace, &base, bounds)?)).await
    }
}

/// A text, with which the call tells whether strangers may have written it.
fn told(call: &Call, given: MarkedText) -> String {
    if given.strangers {
        call.read_untrusted();
    }
    given.text
}

/// What is said of a picture that is shown, if it is one that models can see.
fn picture(input: &Read, bytes: &[u8]) -> Result<String, Fault> {
    let name = &input.path;
    if input.offset.or(input.limit).is_some() {
        return Err(Fault::invalid(format!("`{name}` is a picture, which has no lines"))
            .help("leave out `offset` and `limit`"));
    }
    let ImageFacts { media_type, width, height } = look_at_image(bytes).map_err(|refusal| {
        let message = format!("`{name}` is a picture that cannot be shown: {refusal}");
        Fault::invalid(message).help(refusal.help())
    })?;
    let size = bytes.len();
    Ok(format!("`{name}` is a picture: {media_type}, {width}x{height} pixels, {size} bytes"))
}

/// What is to be kept of a change; none where the text stays as it is.
fn facts(root: &Root, change: &FileChange, call: &Call, said: &str) -> Option<ChangeFacts> {
    let after = change.after.as_ref().map(|content| change::hash(&content.bytes));
    let before = match &change.before {
        FileState::Absent => None,
        FileState::Held(content) => {
            let (bytes, hash) = (content.bytes.len() as u64, change::hash(&content.bytes));
            if after.as_ref() == Some(&hash) {
                return None;
            }
            Some(Before { bytes, hash: Some(hash), strangers: content.strangers })
        }
        FileState::Long { bytes, .. } => Some(Before { bytes: *bytes, hash: None, strangers: false }),
    };
    Some(ChangeFacts {
        session: call.session.clone(),
        turn: call.turn.clone(),
        effect: call.effect_id.clone(),
        tool: call.tool()?.clone(),
        workspace: root.path().to_owned(),
        path: change.path.clone(),
        before,
        after,
        from: change.from.clone(),
        said: said.to_owned(),
        folders: root.missing_folders(&change.path),
    })
}

fn unkept(fault: Fault) -> Fault {
    let message = format!("nothing was written, because what is there could not be kept: {}", fault.message);
    Fault::new(fault.code, message)
}

#[cfg(test)]
mod tests;
