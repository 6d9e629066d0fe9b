//! What each call would do, decided from its parameters and from what is there. Changes nothing.

use std::fmt::Write as _;

use drupe_extension_api::{Fault, FaultCode};

use crate::{
    Edit, Write,
    change::{FileChange, FileContent, FileState, as_text},
    lines, patch,
    root::{self, Root},
    undo::{ChangeFacts, ChangeStage, KeptChange, now_ms},
};

/// Changes that a list names.
pub const LISTED: usize = 50;

/// A change, and what the model reads when it is done.
pub struct Planned {
    pub change: FileChange,
    pub said: String,
    /// Whether the model reads text of strangers by it.
    pub strangers: bool,
}

/// A file as a whole.
pub fn write(root: &Root, input: &Write, tainted: bool) -> Result<Planned, Fault> {
    root.fits(&input.path, &input.content)?;
    let before = root.state(&input.path)?;
    let verb = if before == FileState::Absent { "created" } else { "wrote" };
    let said = format!("{verb} `{}`, {} bytes", input.path, input.content.len());
    let after = Some(FileContent { bytes: input.content.clone().into_bytes(), strangers: tainted });
    Ok(Planned { change: changed(root, &input.path, before, after)?, said, strangers: false })
}

/// A part of a file.
pub fn edit(root: &Root, input: &Edit, tainted: bool) -> Result<Planned, Fault> {
    let name = &input.path;
    let before = root.state(name)?;
    let content = match &before {
        FileState::Held(content) => content,
        FileState::Absent => return Err(Fault::not_found(format!("there is no `{name}`"))),
        FileState::Long { .. } => return Err(root.too_long(name)),
    };
    let text = as_text(&content.bytes).ok_or_else(|| root::binary(name, &content.bytes))?;
    let after = match input {
        Edit { old: Some(old), new: Some(new), patch: None, .. } => lines::replace_once(text, old, new)?,
        Edit { old: None, new: None, patch: Some(patch), .. } => patch::apply(text, patch)?,
        _ => return Err(Fault::invalid("give either `old` and `new`, or `patch`")),
    };
    root.fits(name, &after)?;
    let said = format!("edited `{name}`: {}", lines::difference(text, &after));
    let strangers = content.strangers;
    let after = Some(FileContent { bytes: after.into_bytes(), strangers: strangers || tainted });
    Ok(Planned { change: changed(root, name, before, after)?, said, strangers })
}

/// A file that goes. Refuses one of which nothing could be kept.
pub fn delete(root: &Root, name: &str) -> Result<Planned, Fault> {
    let before = root.state(name)?;
    let said = match &before {
        FileState::Held(content) => format!("deleted `{name}`, {} bytes", content.bytes.len()),
        FileState::Absent => return Err(Fault::not_found(format!("there is no `{name}`"))),
        FileState::Long { .. } => {
            return Err(root.too_long(name).help("it could not be taken back: ask the user to delete it"));
        }
    };
    Ok(Planned { change: changed(root, name, before, None)?, said, strangers: false })
}

/// A file that gets another name, which no other has.
pub fn moved(root: &Root, from: &str, to: &str) -> Result<Planned, Fault> {
    let content = match root.state(from)? {
        FileState::Held(content) => content,
        FileState::Absent => return Err(Fault::not_found(format!("there is no `{from}`"))),
        FileState::Long { .. } => return Err(root.too_long(from)),
    };
    let change =
        FileChange { from: Some(root.relative(from)?), ..changed(root, to, root.state(to)?, Some(content))? };
    if change.before != FileState::Absent {
        return Err(Fault::invalid(format!("there is a `{to}` already"))
            .help("choose another name, or delete that one first"));
    }
    let said = format!("moved `{from}` to `{to}`");
    Ok(Planned { change, said, strangers: false })
}

/// A kept change, the other way round. Refuses where the file does not hold any more what the change wrote.
pub fn undo(root: &Root, kept: &KeptChange) -> Result<Planned, Fault> {
    let (facts, id) = (&kept.facts, kept.id());
    let name = facts.path.to_string_lossy().into_owned();
    if facts.workspace != root.path() {
        let message =
            format!("change `{id}` is one of the workspace {}, not of this one", facts.workspace.display());
        return Err(Fault::invalid(message));
    }
    // From the root of the workspace, wherever relative paths of this call begin.
    let before = root.state(&root.path().join(&facts.path).to_string_lossy())?;
    let is_as_written = match (&facts.after, &before) {
        (Some(after), before) => before.hash().as_ref() == Some(after),
        (None, before) => *before == FileState::Absent,
    };
    if !is_as_written {
        let message = format!("`{name}` does not hold any more what change `{id}` wrote; it was not touched");
        return Err(Fault::new(FaultCode::Denied, message).help(
            "files_changes lists later changes; what is there now may be somebody else's: edit it instead",
        ));
    }
    if let Some(from) = &facts.from {
        let old = from.to_string_lossy().into_owned();
        if root.state(&root.path().join(from).to_string_lossy())? != FileState::Absent {
            let message = format!("there is a `{old}` again, so change `{id}` cannot be taken back");
            return Err(Fault::new(FaultCode::Denied, message));
        }
        let (FileState::Held(content), path) = (before, from.clone()) else {
            return Err(Fault::internal("a file that was moved has a content"));
        };
        let (after, from) = (Some(content), Some(facts.path.clone()));
        let change = FileChange { name: old, path, before: FileState::Absent, after, from };
        return Ok(Planned { change, said: took_back(kept), strangers: false });
    }
    let after = kept.content().map_err(|fault| {
        Fault::new(fault.code, format!("change `{id}` of `{name}` cannot be taken back: {}", fault.message))
    })?;
    let change = FileChange { name, path: facts.path.clone(), before, after, from: None };
    Ok(Planned { change, said: took_back(kept), strangers: false })
}

/// What the model is told of a change that was taken back.
pub fn took_back(kept: &KeptChange) -> String {
    let (name, id) = (kept.facts.path.display(), kept.id());
    if let Some(from) = &kept.facts.from {
        return format!("took back change `{id}`: `{name}` is `{}` again", from.display());
    }
    match kept.facts.before {
        None => format!("took back change `{id}`: `{name}` is gone, as it was before"),
        Some(_) => format!("took back change `{id}`: `{name}` holds what it held before"),
    }
}

/// The change that a call means, of all of its conversation, the latest first.
pub fn wanted(all: &[KeptChange], id: Option<&str>) -> Result<KeptChange, Fault> {
    let found = match id {
        Some(id) => all.iter().find(|kept| kept.id() == id),
        None => all.iter().find(|kept| is_open(kept)),
    };
    match (found, id) {
        (Some(kept), _) if is_open(kept) => Ok(kept.clone()),
        (Some(kept), _) => Err(Fault::invalid(format!("change `{}` was taken back already", kept.id()))),
        (None, Some(id)) => Err(Fault::not_found(format!("no change `{id}` of this conversation is kept"))
            .help("files_changes lists those that are")),
        (None, None) => {
            Err(Fault::not_found("no change of this conversation is left that could be taken back"))
        }
    }
}

/// Whether a change was not taken back. One of which it could not be noted that it was made counts as well: what the file holds
/// tells whether it was.
fn is_open(kept: &KeptChange) -> bool {
    matches!(kept.stage, ChangeStage::Begun | ChangeStage::Done)
}

/// The changes of a conversation, a line each.
pub fn list(root: &Root, all: &[KeptChange]) -> String {
    let mut text = String::new();
    for kept in all {
        let state = match &kept.stage {
            ChangeStage::Undone(_) | ChangeStage::Undoing(_) => "taken back",
            ChangeStage::Begun | ChangeStage::Done => match undo(root, kept) {
                Ok(_) => "can be taken back",
                Err(_) if kept.facts.before.as_ref().is_some_and(|before| before.hash.is_none()) => {
                    "cannot be taken back: what was there was too long to be kept"
                }
                Err(_) => "the file was changed since",
            },
        };
        let minutes = now_ms().saturating_sub(kept.at_ms) / 60_000;
        let (id, said) = (kept.id(), &kept.facts.said);
        let _ = writeln!(text, "{id}: {said}, {minutes} minutes ago ({state})");
    }
    if text.is_empty() {
        return "no change of this conversation is kept".to_owned();
    }
    text
}

/// What the file of a change holds now; none where it cannot be looked at.
pub fn look(root: &Root, facts: &ChangeFacts) -> Option<FileState> {
    if facts.workspace != root.path() {
        return None;
    }
    root.state(&root.path().join(&facts.path).to_string_lossy()).ok()
}

/// That the operator wants nothing to be kept.
pub fn keeps_nothing() -> Fault {
    Fault::new(FaultCode::NotConfigured, "nothing is kept of what files held before: `undo_bytes` is 0")
}

fn changed(
    root: &Root,
    name: &str,
    before: FileState,
    after: Option<FileContent>,
) -> Result<FileChange, Fault> {
    Ok(FileChange { name: name.to_owned(), path: root.relative(name)?, before, after, from: None })
}
