//! Lists and searches folders, in order of names, within bounds.
//!
//! Symbolic links are shown and not followed, so that a walk ends; `.git` is shown and not entered, because
//! what it holds is not meant to be read as text.

use std::ffi::OsStr;

use cap_std::fs::{Dir, DirEntry};
use drupe_extension_api::Fault;
use regex::{Regex, RegexBuilder};

use crate::{
    marks::MarkedText,
    root::{self, Root, explain},
};

/// The most entries of a list; a model has no use for more at once.
const ENTRIES: usize = 1000;
/// The most files that one search opens, and entries that it looks at.
const FILES: usize = 20_000;
/// The longest file that is searched: longer ones are seldom written by people.
const SEARCHED_BYTES: u64 = 1 << 20;
/// The most lines that a search gives.
const MATCHES: usize = 200;
/// The most of one line that a search shows, in bytes.
const SHOWN: usize = 300;
/// Levels of folders that a search goes down.
const DEPTH: usize = 32;
/// Bytes of the compiled expression: refuses those that would take long to build.
const REGEX_BYTES: usize = 1 << 20;

/// The names in a folder, folders with a slash, deeper ones with their way.
pub fn list(root: &Root, folder: Option<&str>, depth: usize) -> Result<MarkedText, Fault> {
    let name = folder.unwrap_or("");
    let (mut lines, mut strangers) = (Vec::new(), false);
    let mut walk = Walk { left: ENTRIES };
    let whole = walk.visit(&root.folder(name)?, "", depth, &mut |path, entry| {
        let kind = entry.file_type().ok();
        let mark = match kind {
            Some(kind) if kind.is_dir() => "/",
            Some(kind) if kind.is_symlink() => " (symbolic link)",
            Some(kind) if !kind.is_file() => " (not a file)",
            _ => "",
        };
        // Names are text, too.
        strangers |= root.is_name_marked(name, path);
        lines.push(format!("{path}{mark}"));
        true
    })?;
    if lines.is_empty() {
        return Ok(MarkedText::own("the folder is empty".to_owned()));
    }
    if !whole {
        lines.push(format!("[more than {ENTRIES} entries; list a folder below]"));
    }
    Ok(MarkedText { text: lines.join("\n"), strangers })
}

/// Lines that match, as `path:line: text`.
pub fn search(root: &Root, place: Option<&str>, pattern: &str) -> Result<MarkedText, Fault> {
    let regex = RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build();
    let regex = regex.map_err(|e| Fault::invalid(format!("`{pattern}` is not a regular expression: {e}")))?;
    let name = place.unwrap_or("");
    let mut found = Found {
        regex,
        lines: Vec::new(),
        bytes: root.bounds().output_bytes,
        skipped: 0,
        full: false,
        strangers: false,
    };
    let mut whole = true;
    if root.is_folder(name)? {
        let prefix = if name.is_empty() { String::new() } else { format!("{}/", name.trim_end_matches('/')) };
        let mut walk = Walk { left: FILES };
        whole =
            walk.visit(&root.folder(name)?, &prefix, DEPTH, &mut |path, entry| found.look(path, entry))?;
    } else {
        found.scan(name, &root.read(name)?);
    }
    Ok(found.report(whole))
}

struct Found {
    regex: Regex,
    lines: Vec<String>,
    bytes: usize,
    skipped: usize,
    full: bool,
    strangers: bool,
}

impl Found {
    /// Searches one file of a walk; whether to go on.
    fn look(&mut self, path: &str, entry: &DirEntry) -> bool {
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            return true;
        }
        let text =
            entry.open().map_err(|e| explain(path, &e)).and_then(|f| root::text(path, f, SEARCHED_BYTES));
        match text {
            Ok(text) => self.scan(path, &text),
            Err(_) => self.skipped += 1,
        }
        !self.full
    }

    fn scan(&mut self, path: &str, given: &MarkedText) {
        for (number, line) in (1..).zip(given.text.lines()) {
            if !self.regex.is_match(line) {
                continue;
            }
            let shown = &line[..line.floor_char_boundary(SHOWN)];
            let found = format!("{path}:{number}: {shown}");
            if self.lines.len() == MATCHES || found.len() >= self.bytes {
                self.full = true;
                return;
            }
            self.bytes -= found.len() + 1;
            self.strangers |= given.strangers;
            self.lines.push(found);
        }
    }

    fn report(mut self, whole: bool) -> MarkedText {
        if self.lines.is_empty() {
            self.lines.push("no line matches".to_owned());
        }
        if self.full {
            let note = "[there are more; narrow the expression or the folder]";
            self.lines.push(note.to_owned());
        } else if !whole {
            self.lines.push(format!("[stopped after {FILES} entries; search a folder below]"));
        }
        if self.skipped > 0 {
            self.lines.push(format!("[{} files are binary, too long or not readable]", self.skipped));
        }
        MarkedText { text: self.lines.join("\n"), strangers: self.strangers }
    }
}

struct Walk {
    left: usize,
}

impl Walk {
    /// Calls `each` for every entry down to `depth`; false where it ended before all were seen.
    fn visit(
        &mut self,
        dir: &Dir,
        prefix: &str,
        depth: usize,
        each: &mut dyn FnMut(&str, &DirEntry) -> bool,
    ) -> Result<bool, Fault> {
        let shown = if prefix.is_empty() { "the folder" } else { prefix };
        let mut entries = Vec::new();
        for entry in dir.entries().map_err(|error| explain(shown, &error))? {
            if entries.len() > self.left {
                break;
            }
            entries.push(entry.map_err(|error| explain(shown, &error))?);
        }
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
            self.left = left;
            let name = entry.file_name();
            let path = format!("{prefix}{}", name.to_string_lossy());
            if !each(&path, &entry) {
                return Ok(false);
            }
            let enter =
                depth > 1 && name != OsStr::new(".git") && entry.file_type().is_ok_and(|kind| kind.is_dir());
            // A folder that cannot be opened is shown and passed over.
            if let (true, Ok(below)) = (enter, entry.open_dir())
                && !self.visit(&below, &format!("{path}/"), depth - 1, each)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
