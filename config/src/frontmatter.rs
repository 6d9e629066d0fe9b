//! Files of markdown that begin with keys: agents in a single file, and skills.

use std::sync::Arc;

use crate::{
    Diagnostics,
    source::{At, Source},
};

/// Where the two parts of the file lie.
pub(crate) struct Parts {
    /// In bytes; the line that closes the frontmatter begins there.
    pub frontmatter_end: usize,
    /// What follows the frontmatter, without blank lines around it.
    pub text: String,
    pub text_at: At,
}

impl Parts {
    pub fn of(source: &Arc<Source>, faults: &mut Diagnostics) -> Option<Self> {
        let text = &source.text;
        let is_fence = |line: &str| line.trim_end() == "---";
        let first = text.split_inclusive('\n').next().unwrap_or_default();
        if !is_fence(first.trim_start_matches(MARK)) {
            faults
                .error("no_frontmatter", &At::start_of(source), "", "the first line is not `---`")
                .help("begin with `---`, then keys such as `description: …`, then `---`, then the text");
            return None;
        }
        let mut start = first.len();
        for (line, number) in text[start..].split_inclusive('\n').zip(3..) {
            if is_fence(line) {
                let end = start + line.len();
                let below = text[end..].trim().replace("\r\n", "\n");
                let text_at = At { line: number, start: end, ..At::start_of(source) };
                return Some(Self { frontmatter_end: start, text: below, text_at });
            }
            start += line.len();
        }
        let at = At { len: first.trim_end().len(), ..At::start_of(source) };
        faults
            .error("open_frontmatter", &at, "", "the frontmatter that begins here has no end")
            .help("close it with a line `---`, and write the text below");
        None
    }
}

/// Of byte order; some editors begin a file with it.
const MARK: char = '\u{feff}';
