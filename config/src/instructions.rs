//! Reads the texts that a configuration names.

use std::path::Path;

use crate::{ContextSource, Diagnostics, read_text_file};

/// A file that cannot be a prompt; its text shows the file and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.render(false).trim_end())]
pub struct UnreadableText(#[from] Diagnostics);

/// For those to whom it is a part of what they say.
impl From<UnreadableText> for String {
    fn from(error: UnreadableText) -> Self {
        error.to_string()
    }
}

/// The texts of an agent's default context.
pub fn context(sources: &[ContextSource]) -> Result<Vec<String>, UnreadableText> {
    let text = |source: &ContextSource| match source {
        ContextSource::Inline(text) => Ok(text.clone()),
        ContextSource::File(path) => read(path),
    };
    sources.iter().map(text).collect()
}

/// The text of a prompt file. What is no regular file, or larger than 1 MiB, is refused and never opened for long.
pub fn read(path: &Path) -> Result<String, UnreadableText> {
    Ok(read_text_file(path)?)
}
