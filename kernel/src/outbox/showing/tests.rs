use std::sync::Arc;

use drupe_extension_api::{Event, Item, SessionId};
use jiff::Timestamp;

use super::*;

fn event(body: EventBody) -> Watched {
    Watched::Event(Arc::new(Event {
        seq: 1,
        time: Timestamp::UNIX_EPOCH,
        session: SessionId::new("s").expect("valid"),
        turn: Some(TurnId::new("t").expect("valid")),
        correlation_id: None,
        agent: None,
        body,
    }))
}

fn item(id: &str) -> Item {
    Item { id: id.into(), kind: ItemKind::AgentMessage, name: None, input: None, output: None }
}

fn begins(id: &str) -> Watched {
    event(EventBody::ItemStarted { item: item(id) })
}

fn says(id: &str, delta: &str) -> Watched {
    event(EventBody::ItemUpdated { id: id.into(), item: ItemKind::AgentMessage, delta: delta.into() })
}

fn ends(id: &str, outcome: ItemOutcome) -> Watched {
    event(EventBody::ItemCompleted { item: item(id), outcome, elapsed_ms: 1 })
}

fn anew(id: &str) -> Watched {
    event(EventBody::StreamReset { id: id.into(), reason: "it was cut".into() })
}

/// What somebody sees at the other end, who takes each part or not: `id: text`, and `~` where what was there is void.
struct Channel(Showing, String);

impl Channel {
    fn new() -> Self {
        Self(Showing::of(TurnId::new("t").expect("valid")), String::new())
    }

    fn hear(&mut self, all: &[Watched]) {
        all.iter().for_each(|one| self.0.hear(one));
    }

    /// Takes all that there is, or refuses one part.
    fn take(&mut self, takes: bool) {
        while let Some(Shown { message, part }) = self.0.next() {
            let id = message.unwrap_or_default();
            match &part {
                StreamPart::Delta { text } => self.1 += &format!("[{id}:{text}]"),
                StreamPart::Reset => self.1 += &format!("[{id}~]"),
                other => panic!("{other:?}"),
            }
            self.0.went(&part, takes);
            if !takes {
                self.1 += "!";
                return;
            }
        }
    }
}

#[test]
fn what_a_slow_channel_has_not_taken_comes_as_one_piece_of_each_message() {
    let mut channel = Channel::new();
    channel.hear(&[begins("a"), says("a", "he")]);
    channel.take(true);
    channel.hear(&[
        says("a", "l"),
        says("a", "lo"),
        ends("a", ItemOutcome::Ok),
        begins("b"),
        says("b", "you"),
    ]);
    channel.hear(&[says("b", "!")]);
    channel.take(true);
    assert_eq!(channel.1, "[a:he][a:llo][b:you!]");
}

#[test]
fn a_message_that_begins_anew_is_void_only_where_something_of_it_is_shown() {
    let mut channel = Channel::new();
    channel.hear(&[begins("a"), says("a", "half"), anew("a"), anew("a-reasoning"), says("a", "whole")]);
    channel.take(true);
    assert_eq!(channel.1, "[a:whole]", "nothing of it was shown");
    channel.hear(&[anew("a"), says("a", "again"), ends("a", ItemOutcome::Ok), begins("b"), anew("b")]);
    channel.take(true);
    assert_eq!(channel.1, "[a:whole][a~][a:again]", "one that is whole stays");
    channel.hear(&[says("b", "x")]);
    channel.take(true);
    channel.hear(&[ends("b", ItemOutcome::Error)]);
    channel.take(true);
    assert_eq!(channel.1, "[a:whole][a~][a:again][b:x][b~]");
}

#[test]
fn a_part_that_a_channel_may_not_have_is_given_again_with_all_before_it() {
    let mut channel = Channel::new();
    channel.hear(&[begins("a"), says("a", "one ")]);
    channel.take(true);
    channel.hear(&[says("a", "two ")]);
    channel.take(false);
    channel.take(true);
    assert_eq!(channel.1, "[a:one ][a:two ]!", "not again before anything happens");
    channel.hear(&[says("a", "three")]);
    channel.take(false);
    channel.hear(&[says("a", "!")]);
    channel.take(true);
    assert_eq!(channel.1, "[a:one ][a:two ]![a~]![a~][a:one two ][a:three!]");
}

#[test]
fn of_a_message_that_was_not_heard_whole_nothing_is_shown_but_the_next_one_is() {
    let mut channel = Channel::new();
    channel.hear(&[begins("a"), says("a", "one "), Watched::Skipped, says("a", "three")]);
    channel.take(true);
    assert_eq!(channel.1, "", "nothing with a hole");
    channel.hear(&[begins("b"), says("b", "one ")]);
    channel.take(true);
    channel.hear(&[Watched::Skipped, says("b", "three"), ends("b", ItemOutcome::Ok)]);
    channel.take(true);
    assert_eq!(channel.1, "[b:one ][b~]");
    channel.hear(&[begins("c"), says("c", "all")]);
    channel.take(true);
    assert_eq!(channel.1, "[b:one ][b~][c:all]");
}
