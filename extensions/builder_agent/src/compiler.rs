//! What cargo says, as a model can use it: the first errors in full, the rest counted.

use std::{env::consts::DLL_SUFFIX, path::Path};

use serde::Deserialize;

/// The most of errors that a model is given, in bytes: a handful in full. Later ones often follow from the first.
pub const SHOWN: usize = 8 * 1024;

/// The most of warnings: they stop nothing.
const SHOWN_WARNINGS: usize = 2 * 1024;

/// A line of `cargo build --message-format=json`.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Line {
    CompilerMessage {
        message: Message,
    },
    CompilerArtifact {
        manifest_path: String,
        filenames: Vec<String>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Message {
    rendered: Option<String>,
    level: String,
}

/// What a build said.
#[derive(Default)]
pub struct Build {
    errors: Vec<String>,
    warnings: Vec<String>,
    library: Option<String>,
}

impl Build {
    /// Reads the lines of a build of the package in `folder`. A line that is none of cargo's is passed over.
    pub fn read(stdout: &str, folder: &Path) -> Self {
        let mut build = Self::default();
        for line in stdout.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                Line::CompilerMessage { message } => build.take(message),
                Line::CompilerArtifact { manifest_path, filenames } => {
                    let ours = Path::new(&manifest_path).parent() == Some(folder);
                    let library = filenames.iter().find(|file| file.ends_with(DLL_SUFFIX));
                    let name = library.and_then(|file| Path::new(file).file_name()?.to_str());
                    if let (true, Some(name)) = (ours, name) {
                        build.library = Some(name.to_owned());
                    }
                }
                Line::Other => {}
            }
        }
        build
    }

    fn take(&mut self, message: Message) {
        let Some(rendered) = message.rendered else { return };
        match message.level.as_str() {
            level if level.starts_with("error") => self.errors.push(rendered),
            "warning" => self.warnings.push(rendered),
            _ => {}
        }
    }

    /// The file name of the library that drupe can load, if one was built.
    pub fn library(&self) -> Option<&str> {
        self.library.as_deref()
    }

    /// The errors; where the compiler had none, what cargo itself said.
    pub fn errors(&self, stderr: &str) -> String {
        match self.errors.is_empty() {
            true => excerpt(stderr.trim(), SHOWN),
            false => first(&self.errors, SHOWN, "errors"),
        }
    }

    /// The warnings; empty where there are none.
    pub fn warnings(&self) -> String {
        first(&self.warnings, SHOWN_WARNINGS, "warnings")
    }
}

/// As many as fit, whole, and how many follow. The first is shown also where it alone is too long.
fn first(all: &[String], limit: usize, what: &str) -> String {
    let (mut text, mut shown) = (String::new(), 0);
    for one in all {
        let one = one.trim_end();
        if shown > 0 && text.len() + one.len() > limit {
            break;
        }
        text += &excerpt(one, limit);
        text += "\n\n";
        shown += 1;
    }
    if shown < all.len() {
        text += &format!("… and {} more {what}", all.len() - shown);
    }
    text.trim_end().to_owned()
}

/// The beginning of a text and its end, where it is too long: a summary often stands at the end.
pub fn excerpt(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(limit / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - limit / 4);
    format!("{}\n… {} bytes left out …\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(level: &str, rendered: &str) -> String {
        json!({"reason": "compiler-message", "message": {"level": level, "rendered": rendered}}).to_string()
    }

    fn artifact(manifest: &str, file: &str) -> String {
        json!({
            "reason": "compiler-artifact",
            "manifest_path": manifest,
            "filenames": [format!("{file}.rlib"), format!("{file}{DLL_SUFFIX}")],
        })
        .to_string()
    }

    fn read(lines: &[String]) -> Build {
        Build::read(&lines.join("\n"), Path::new("/d/x"))
    }

    #[test]
    fn errors_come_before_warnings_and_whole() {
        let build = read(&[message("warning", "unused"), message("error", "E1\n"), message("error", "E2\n")]);
        assert_eq!(build.errors("noise"), "E1\n\nE2");
        assert_eq!(build.warnings(), "unused");
    }

    #[test]
    fn many_errors_are_cut_between_two_and_counted() {
        let one = "e".repeat(3000);
        let build = read(&vec![message("error", &one); 5]);
        let text = build.errors("");
        assert_eq!(text.matches('e').count(), 2 * 3000 + "more errors".matches('e').count(), "{text}");
        assert!(text.ends_with("… and 3 more errors") && text.len() <= SHOWN, "{text}");
    }

    #[test]
    fn one_error_that_is_too_long_is_still_shown() {
        let build = read(&[message("error", &"ä".repeat(SHOWN))]);
        let text = build.errors("");
        assert!(text.contains("bytes left out") && text.len() < SHOWN + 64, "{}", text.len());
    }

    #[test]
    fn without_errors_of_the_compiler_cargo_speaks() {
        assert_eq!(
            read(&["no JSON".into()]).errors("error: no matching package\n"),
            "error: no matching package"
        );
    }

    #[test]
    fn the_library_is_that_of_the_draft_and_not_of_a_dependency() {
        let own = artifact("/d/x/Cargo.toml", "/t/release/libx");
        let other = artifact("/d/other/Cargo.toml", "/t/release/libother");
        assert_eq!(read(&[own, other.clone()]).library(), Some(format!("libx{DLL_SUFFIX}").as_str()));
        assert_eq!(read(&[other]).library(), None);
    }
}
