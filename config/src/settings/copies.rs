//! `copies`: what people are told in some conversations goes out through further channels as well.

use drupe_extension_api::{ExtensionId, SessionId};

use crate::{declare::keys, forms, shape::Shape};

/// Each is looked at for each message that people are told.
pub(super) const MOST: usize = 64;

keys! {
    /// Where what people are told in some conversations goes besides.
    #[derive(PartialEq, Eq)]
    pub struct CopyRule in COPY("the copy") {
        /// The session, or what the ids of several begin with and `*` behind it.
        session: String => Shape::Text(&forms::SESSIONS), required;
        /// The channel that it goes out through.
        channel: ExtensionId => Shape::Text(&forms::ID), required;
        /// Where in the channel; what that is, the channel says.
        address (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::ADDRESS);
    }
}

impl CopyRule {
    /// Whether what people are told in a session goes there.
    pub fn holds_of(&self, session: &SessionId) -> bool {
        let session = session.as_str();
        match self.session.strip_suffix('*') {
            Some(beginning) => session.starts_with(beginning),
            None => session == self.session,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(rule: &str, session: &str) -> bool {
        let rule = format!(r#"{{"session": "{rule}", "channel": "push"}}"#);
        let rule: CopyRule = serde_json::from_str(&rule).expect("a rule");
        rule.holds_of(&session.parse().expect("a session"))
    }

    #[test]
    fn a_rule_holds_of_one_session_or_of_all_that_begin_alike() {
        assert!(holds("main", "main") && !holds("main", "main:2") && !holds("main", "mai"));
        assert!(holds("schedule:news:*", "schedule:news:2026-11-27"));
        assert!(!holds("schedule:news:*", "schedule:newsletter:2026-11-27"));
        assert!(holds("*", "main"));
    }
}
