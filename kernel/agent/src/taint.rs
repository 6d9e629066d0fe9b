//! Text of strangers in a conversation.
//!
//! Whoever has read what strangers wrote may do what they want, so what it then calls is looked at more closely. A turn is one
//! as a whole: what one of its runs has read reaches the others through tasks and answers, and to follow each word would miss
//! some. The journal keeps it for the turns behind this one, whose transcript holds the same text.

use std::sync::OnceLock;

/// Whether text of strangers came into a conversation, and by what.
#[derive(Debug, Default)]
pub struct Taint(OnceLock<String>);

impl Taint {
    /// That of a turn which begins.
    pub fn new(source: Option<String>) -> Self {
        source.map_or_else(Self::default, |source| Self(source.into()))
    }

    /// The tool by which it came, or what else brought it.
    pub fn source(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// It came by this tool; whether that is new.
    pub(crate) fn came_by(&self, tool: &str) -> bool {
        self.0.set(tool.to_owned()).is_ok()
    }
}
