//! What a channel has to know after a restart.

use std::collections::VecDeque;

use drupe_extension_api::prelude::*;

use crate::kept::Recent;

/// What was heard and is known by its id, so that it is not done twice: services tell again of what was not confirmed, for some minutes, and of turns
/// the daemon knows.
const HEARD: usize = 500;

/// What is kept of a channel, with what its service keeps besides.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelRecord<T> {
    #[serde(flatten)]
    pub own: T,
    #[serde(rename = "done")]
    heard: VecDeque<String>,
    /// Conversations that were begun anew, by those in whose place they are.
    conversations: Recent<String>,
    /// Messages that show an answer which is being made, by session.
    pub(crate) showing: Recent<String>,
    /// Questions with buttons, by the id that an answer names.
    pub(crate) questions: Recent<QuestionCard>,
    /// How many parts of a message went out, by delivery.
    pub(crate) parts: Recent<usize>,
}

/// A message with buttons that asks something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct QuestionCard {
    /// None while it is being sent, and where nobody knows whether it arrived.
    pub message: Option<String>,
    /// The place to which an answer to it is handed in.
    pub address: String,
    /// The conversation in which it is asked.
    pub session: String,
    pub text: String,
}

impl<T> ChannelRecord<T> {
    pub fn was_heard(&self, id: &str) -> bool {
        self.heard.iter().any(|heard| heard == id)
    }

    pub fn hear(&mut self, id: &str) {
        self.heard.push_back(id.to_owned());
        while self.heard.len() > HEARD {
            self.heard.pop_front();
        }
    }

    /// The conversation that goes on in place of another.
    pub fn conversation(&self, base: &str) -> String {
        self.conversations.get(base).map_or(base, String::as_str).to_owned()
    }

    /// Begins a conversation anew; the same `name` twice is one.
    pub(crate) fn begin_anew(&mut self, base: &str, name: &str) {
        self.conversations.insert(base, format!("{base}:{name}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_is_known_for_a_while_and_no_longer() {
        let mut kept = ChannelRecord::<()>::default();
        kept.hear("C1:1.1");
        assert!(kept.was_heard("C1:1.1") && !kept.was_heard("C1:1.2"));
        for number in 0..HEARD {
            kept.hear(&number.to_string());
        }
        assert!(!kept.was_heard("C1:1.1") && kept.heard.len() == HEARD);
        kept.begin_anew("slack:person.U7", "1.1");
        assert_eq!(kept.conversation("slack:person.U7"), "slack:person.U7:1.1");
        assert_eq!(kept.conversation("slack:person.U8"), "slack:person.U8");
    }

    #[test]
    fn a_file_of_before_is_read_and_what_a_service_keeps_besides_stands_beside_the_rest() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        struct Own {
            offset: Option<(i64, i64)>,
        }
        let before = r#"{"offset":[43,1000],"heard":[42],"done":["C1:1"],"conversations":{"a":"a:1"},"drafts":{"a":7},
            "cards":{"q":{"chat":7,"message":8,"session":"a","text":"x"}},"parts":{"d":2}}"#;
        let kept: ChannelRecord<Own> = serde_json::from_str(before).expect("it is read");
        assert_eq!((kept.own.offset, kept.conversation("a")), (Some((43, 1000)), "a:1".to_owned()));
        assert!(kept.parts.get("d") == Some(&2) && kept.was_heard("C1:1"));
        let text = serde_json::to_string(&kept).expect("JSON");
        assert!(text.starts_with(r#"{"offset":[43,1000],"#), "{text}");
        let empty = serde_json::to_string(&ChannelRecord::<()>::default()).expect("JSON");
        serde_json::from_str::<ChannelRecord<()>>(&empty).expect("it is read");
    }
}
