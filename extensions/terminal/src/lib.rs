//! The channel behind `drupe chat` and `drupe ask`: it publishes answers on the topics `terminal.message` and
//! `terminal.stream`, where whoever is attached to the session reads them.
//!
//! It listens on nothing. Terminals attach through the kernel's control socket, and what they type comes in
//! there; a second door would need a second lock.

use drupe_extension_api::prelude::*;

struct Terminal {
    host: Host,
}

/// What `terminal.message` carries.
#[derive(Serialize)]
struct Shown<'a> {
    session: &'a SessionId,
    text: &'a str,
    /// The same for each attempt: a reader shows it once.
    delivery: &'a str,
}

/// What `terminal.stream` carries.
#[derive(Serialize)]
struct Streamed<'a> {
    session: &'a SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: &'a Option<String>,
    #[serde(flatten)]
    part: &'a StreamPart,
}

impl Extension for Terminal {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Terminal { host })
    }
}

impl Channel for Terminal {
    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        let OutboundMessage { delivery, session, text, .. } = &message;
        self.host.emit("message", &Shown { session, text, delivery }).await?;
        Ok(Delivery { remote_id: Some(message.delivery) })
    }

    async fn stream(&self, part: ChannelStream) -> Result<(), Fault> {
        let ChannelStream { session, message, part, .. } = &part;
        self.host.emit("stream", &Streamed { session, message, part }).await
    }
}

export!(Terminal: Channel);

#[cfg(test)]
mod tests {
    use drupe_extension_api::testing::{Harness, block_on};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_published_with_its_session_and_the_delivery_is_confirmed() {
        let terminal = block_on(Harness::<Terminal>::start(json!({}))).expect("it starts");
        let message = OutboundMessage {
            kind: OutboundKind::Answer,
            delivery: "d-1".to_owned(),
            session: SessionId::new("s-1").expect("an id"),
            address: None,
            text: "hello".to_owned(),
            file: None,
        };
        let delivery = block_on(terminal.channel_send(message));
        assert_eq!(delivery, Ok(Delivery { remote_id: Some("d-1".to_owned()) }));
        let expected = json!({"session": "s-1", "text": "hello", "delivery": "d-1"});
        assert_eq!(terminal.host().emitted(), [("message".to_owned(), expected)]);
    }

    #[test]
    fn parts_of_an_answer_are_published_as_they_come() {
        let terminal = block_on(Harness::<Terminal>::start(json!({}))).expect("it starts");
        let session = SessionId::new("s-1").expect("an id");
        for part in [StreamPart::Begin, StreamPart::Delta { text: "he".to_owned() }, StreamPart::End] {
            let part = ChannelStream { session: session.clone(), address: None, message: None, part };
            assert_eq!(block_on(terminal.channel_stream(part)), Ok(()));
        }
        let parts: Vec<_> = terminal.host().emitted().into_iter().map(|(_, part)| part).collect();
        assert_eq!(
            parts,
            [
                json!({"session": "s-1", "part": "begin"}),
                json!({"session": "s-1", "part": "delta", "text": "he"}),
                json!({"session": "s-1", "part": "end"}),
            ]
        );
    }
}
