//! Buttons below messages, of which the service only has to know how it draws them. Pure.

use drupe_extension_api::prelude::*;

/// What the button says to the bot that ends an answer which is being made.
pub(crate) const STOP: &str = "stop";

/// A button below a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Button {
    pub label: &'static str,
    /// What the bot is told when it is pressed: what a person would write.
    pub value: String,
    pub style: ButtonStyle,
}

/// How much a button stands out, where the service can show that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ButtonStyle {
    Plain,
    Primary,
    Danger,
}

impl Button {
    fn new(label: &'static str, value: impl Into<String>, style: ButtonStyle) -> Self {
        Self { label, value: value.into(), style }
    }

    /// That which ends an answer.
    pub(crate) fn stop() -> Self {
        Self::new("Stop", STOP, ButtonStyle::Plain)
    }

    /// Those of a question whose text says how it is answered; none of any other message.
    pub(crate) fn of(message: &OutboundMessage) -> Vec<Self> {
        let OutboundMessage { kind, delivery: id, text, .. } = message;
        let says = |answer: &str| text.contains(&format!("`{answer}`"));
        let (allow, deny, session) =
            (format!("allow {id}"), format!("deny {id}"), format!("allow {id} session"));
        if *kind != OutboundKind::Notice || !says(&allow) || !says(&deny) {
            return Vec::new();
        }
        let lasting =
            says(&session).then(|| Self::new("Allow in this conversation", session, ButtonStyle::Plain));
        let both =
            [Self::new("Allow", allow, ButtonStyle::Primary), Self::new("Deny", deny, ButtonStyle::Danger)];
        both.into_iter().chain(lasting).collect()
    }
}

/// The id of the question that a button answers.
pub(crate) fn answers(value: &str) -> Option<&str> {
    value.split(' ').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_the_buttons_whose_answers_its_text_names() {
        let buttons = |kind, text: &str| {
            let session = SessionId::new("slack:person.U7").expect("an id");
            let message = OutboundMessage {
                delivery: "q1".into(),
                kind,
                session,
                address: None,
                text: text.into(),
                file: None,
            };
            Button::of(&message)
        };
        let labels =
            |kind, text: &str| buttons(kind, text).into_iter().map(|button| button.label).collect::<Vec<_>>();
        let (both, all) = ("`allow q1` or `deny q1`", "`allow q1`, `allow q1 session` or `deny q1`");
        assert_eq!(labels(OutboundKind::Notice, both), ["Allow", "Deny"]);
        assert_eq!(labels(OutboundKind::Notice, all), ["Allow", "Deny", "Allow in this conversation"]);
        assert!(labels(OutboundKind::Answer, all).is_empty(), "a model cannot make buttons");
        assert!(labels(OutboundKind::Notice, "`allow q2` or `deny q2`").is_empty());
        for button in buttons(OutboundKind::Notice, all) {
            assert_eq!(answers(&button.value), Some("q1"));
        }
        assert_eq!(answers(STOP), None);
    }
}
