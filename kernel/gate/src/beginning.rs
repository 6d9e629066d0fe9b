//! Whether a kernel could begin with a configuration: by the functions with which one begins.

use std::path::{Path, PathBuf};

use drupe_config::{Config, Severity, Sources, default_file, load_config};
use drupe_models::Models;
use drupe_prompts::Day;
use drupe_wiring::Part;

/// Why no kernel could begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The first fault, in one line.
    pub first: String,
    pub whole: String,
}

/// The file that the operator writes, whether it is there or not.
pub fn file(sources: &Sources) -> PathBuf {
    sources.file.clone().unwrap_or_else(|| sources.home.join("drupe.yaml"))
}

/// What the next kernel reads: without a file that was named, that of the home, where there is one by then.
#[must_use]
pub fn written(sources: &Sources) -> Sources {
    let file = sources.file.clone().or_else(|| default_file(&sources.home));
    Sources { file, ..sources.clone() }
}

/// Why no kernel could begin with what the operator has written, if that is so. `parts` are the extensions that it would
/// have, as far as they are known. Blocks for as long as files are read.
pub fn refusal(sources: &Sources, day: Day, parts: &[Part]) -> Option<Refusal> {
    let config = match load_config(&written(sources)) {
        Ok(loaded) => loaded.value,
        Err(faults) => {
            let whole = faults.render(false).trim_end().to_owned();
            let first = faults.iter().find(|fault| fault.severity == Severity::Error);
            let first = first.map_or_else(
                || whole.lines().next().unwrap_or_default().to_owned(),
                |fault| match fault.line {
                    0 => format!("`{}`: {}", fault.file.display(), fault.message),
                    line => format!("`{}`, line {line}: {}", fault.file.display(), fault.message),
                },
            );
            return Some(Refusal { first, whole });
        }
    };
    // One begins without any extension, and goes on with those that it has.
    let begun =
        begin(&config, &sources.home, day, &[]).and_then(|_| begin(&config, &sources.home, day, parts));
    let whole = begun.err()?;
    Some(Refusal { first: whole.lines().next().unwrap_or_default().to_owned(), whole })
}

/// The models with which a kernel would begin, or why none could.
///
/// # Errors
///
/// What a kernel would end with.
pub fn begin(config: &Config, home: &Path, day: Day, parts: &[Part]) -> Result<Models, String> {
    drupe_wiring::begin(config, &home.join("workspace"), day, parts).map(|(models, ..)| models)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SERVER: &str = "models: {aliases: {default: own/some}, providers: {own: {kind: openai_chat, base_url: \"http://127.0.0.1:9/v1\", api_key: k}}}\n";

    #[test]
    fn what_a_kernel_would_end_with_is_told_of_the_file_that_the_next_one_reads() {
        let home = tempfile::tempdir().expect("a folder");
        let sources = Sources { home: home.path().to_owned(), ..Sources::default() };
        let first = || refusal(&sources, Day::of(0), &[]).map(|refusal| refusal.first);
        assert_eq!(first(), None, "defaults hold where there is no file");
        let check = |text: String, reason: &str| {
            fs::write(file(&sources), &text).expect("a file");
            let first = first().unwrap_or_else(|| panic!("a kernel would begin with {text}"));
            assert!(first.contains(reason) && !first.contains('\n'), "{text}: {first}");
        };
        check("\norchestrater: {}\n".into(), "drupe.yaml`, line 2: ");
        check("orchestrator: {instructions: \"Hi {{ nosuch }}\"}\n".into(), "`orchestrator.instructions`");
        check(format!("{SERVER}orchestrator: {{model: nosuch}}\n"), "`orchestrator.model`");
        check(format!("{SERVER}limits: {{day: {{max_cost_usd: 1}}}}\n"), "price");
        fs::write(file(&sources), SERVER).expect("a file");
        assert_eq!(first(), None, "it is mended");
    }
}
