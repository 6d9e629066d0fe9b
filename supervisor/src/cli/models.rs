//! What clients know of models: that a scripted one is a file, and that the offline one deserves a word.

use std::path::Path;

use drupe_extension_api::control::{Status, method};
use serde_json::Value;

use super::client::Daemon;

const SCRIPTED: &str = "scripted:";

/// The name of a model for a daemon, which stands in another folder than its client.
pub fn absolute(model: &str, here: &Path) -> String {
    match model.strip_prefix(SCRIPTED) {
        Some(file) => format!("{SCRIPTED}{}", here.join(file).display()),
        None => model.to_owned(),
    }
}

/// What to say where the offline model answers.
pub fn offline_notice(daemon: &Daemon<'_>) -> Option<&'static str> {
    let status: Status = daemon.once(method::STATUS, &Value::Null).ok()?;
    is_offline(status.model.as_deref()?).then_some(
        "the offline model answers: it follows rules and is no language model; for a real one set OPENAI_API_KEY or \
         ANTHROPIC_API_KEY, or configure a provider",
    )
}

fn is_offline(model: &str) -> bool {
    model.split('/').next() == Some("offline")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_found_from_where_it_was_named() {
        let check = |model, expected| assert_eq!(absolute(model, Path::new("/here")), expected);
        check("scripted:flow.yaml", "scripted:/here/flow.yaml");
        check("scripted:/there/flow.yaml", "scripted:/there/flow.yaml");
        check("openai/gpt-5", "openai/gpt-5");
    }

    #[test]
    fn only_the_offline_model_is_offline() {
        assert!(is_offline("offline/offline") && is_offline("offline"));
        assert!(!is_offline("openai/offline") && !is_offline("offliner/x"));
    }
}
