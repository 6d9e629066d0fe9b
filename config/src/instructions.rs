//! Reads the texts that a configuration names.

use std::path::Path;

use crate::{ContextSource, read_text_file};

/// The texts of an agent's default context.
pub fn context(sources: &[ContextSource]) -> Result<Vec<String>, String> {
    let text = |source: &ContextSource| match source {
        ContextSource::Inline(text) => Ok(text.clone()),
        ContextSource::File(path) => read(path),
    };
    sources.iter().map(text).collect()
}

/// The text of a prompt file. What is no regular file, or larger than 1 MiB, is refused and never opened for long.
pub fn read(path: &Path) -> Result<String, String> {
    read_text_file(path).map_err(|faults| faults.render(false).trim_end().to_owned())
}
