//! What a conversation looks like: events and the time come in, pieces of text come out. Pure.

use std::time::Instant;

use drupe_extension_api::{
    Event, EventBody, Item, ItemKind, ItemOutcome, Preview, ResponseStatus, Spend, TurnId,
};

use crate::cli::{
    activity::{self, Activity},
    console::{Style, duration, plain, short},
};

/// Characters of a failed call's output that are shown.
const OUTPUT: usize = 160;

/// Something to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A part of the answer, as it streams.
    Text(String),
    /// The answer so far ends; what follows begins on a line of its own.
    End,
    /// A line about what happens.
    Line(Style, String),
    /// The whole answer of that turn, which the events do not hold.
    Whole(TurnId),
}

/// The state of a conversation, as far as its look depends on it.
#[derive(Debug, Default)]
pub struct Renderer {
    activity: Activity,
    /// The message that streams: its id, and what of it was shown.
    streaming: Option<(String, String)>,
    running: Option<TurnId>,
    /// A message of this client: its author sees it already.
    own: Option<Preview>,
    /// Whether the last message of the turn was shown whole.
    answered: bool,
}

impl Renderer {
    /// Tells that this client is about to send a message.
    pub fn expect(&mut self, text: &str) {
        self.own = Some(Preview::of(text));
    }

    /// Tells that a turn runs whose beginning is not among the events to come.
    pub fn runs(&mut self, turn: TurnId) {
        self.running = Some(turn);
    }

    /// The turn that runs.
    pub fn running(&self) -> Option<&TurnId> {
        self.running.as_ref()
    }

    /// A line for each thing that goes on.
    pub fn live(&self, now: Instant) -> Vec<String> {
        self.activity.lines(now)
    }

    /// Takes an event in; what to show of it.
    pub fn take(&mut self, event: &Event, now: Instant) -> Vec<Piece> {
        let ended = self.activity.take(event, now);
        let depth = event.agent.as_ref().map_or(0, |agent| agent.depth);
        let line = |style, text: String| vec![Piece::Line(style, plain(&text))];
        match &event.body {
            EventBody::TurnStarted { input } => self.begin(event, input),
            EventBody::TurnCompleted { status, error, class, spend } => {
                let mut pieces = vec![Piece::End];
                self.running = None;
                self.streaming = None;
                let done = *status == ResponseStatus::Success;
                if let (true, false, Some(turn)) = (done, self.answered, &event.turn) {
                    pieces.push(Piece::Whole(turn.clone()));
                }
                if let Some(error) = error.as_ref().filter(|_| !done) {
                    pieces.push(Piece::Line(Style::Bad, plain(error)));
                    pieces.extend(
                        class.map(|class| Piece::Line(Style::Dim, format!("help: {}", class.remedy()))),
                    );
                }
                pieces.push(Piece::Line(Style::Dim, spent(spend)));
                pieces
            }
            EventBody::ItemUpdated { id, item: ItemKind::AgentMessage, delta } if depth == 0 => {
                self.shown(id).push_str(delta);
                vec![Piece::Text(plain(delta))]
            }
            EventBody::ItemCompleted { item, .. } if item.kind == ItemKind::AgentMessage && depth == 0 => {
                self.message(item)
            }
            EventBody::ItemCompleted { item, outcome, elapsed_ms } if activity::is_call(item) => {
                let label = ended.unwrap_or_else(|| activity::label(item));
                call(item, &label, *outcome, *elapsed_ms, depth)
            }
            EventBody::SubagentCompleted { spend, .. } => ended
                .map(|label| line(Style::Dim, format!("{}✓ {label} {}", indent(depth), spent(spend))))
                .unwrap_or_default(),
            EventBody::SubagentFailed { error, .. } => ended
                .map(|label| {
                    line(Style::Bad, format!("{}✗ {label}: {}", indent(depth), short(error, OUTPUT)))
                })
                .unwrap_or_default(),
            EventBody::StreamReset { id, reason } => {
                self.shown(id).clear();
                let text = format!("the answer begins anew: {}", short(reason, OUTPUT));
                vec![Piece::End, Piece::Line(Style::Dim, text)]
            }
            EventBody::BudgetExceeded { limit, used, allowed } => {
                line(Style::Warning, format!("the limit `{limit}` is reached: {used} of {allowed}"))
            }
            EventBody::Diagnostic { message, .. } => line(Style::Warning, message.clone()),
            EventBody::Lifecycle { state, reason } => {
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                line(Style::Dim, format!("{state}{reason}"))
            }
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, event: &Event, input: &Preview) -> Vec<Piece> {
        self.running.clone_from(&event.turn);
        self.answered = false;
        self.streaming = None;
        if self.own.take_if(|own| own == input).is_some() {
            return Vec::new();
        }
        vec![Piece::End, Piece::Line(Style::Bold, format!("› {}", plain(&input.text)))]
    }

    /// What of a message was shown; it begins here if another one streamed before.
    fn shown(&mut self, id: &str) -> &mut String {
        if self.streaming.as_ref().is_none_or(|(streaming, _)| streaming != id) {
            self.streaming = Some((id.to_owned(), String::new()));
        }
        &mut self.streaming.get_or_insert_default().1
    }

    /// A message that is complete: what of it did not stream is shown now.
    fn message(&mut self, item: &Item) -> Vec<Piece> {
        let shown = std::mem::take(self.shown(&item.id));
        self.streaming = None;
        let Some(output) = item.output.as_ref().filter(|output| output.bytes > 0) else {
            return vec![Piece::End];
        };
        if output.truncated {
            // The rest is fetched with the end of the turn, unless it came live.
            self.answered = shown.len() == output.bytes;
            return vec![Piece::End];
        }
        self.answered = true;
        let mut pieces = match output.text.strip_prefix(shown.as_str()) {
            Some("") => Vec::new(),
            Some(rest) => vec![Piece::Text(plain(rest))],
            None => vec![Piece::End, Piece::Text(plain(&output.text))],
        };
        pieces.push(Piece::End);
        pieces
    }
}

fn indent(depth: u32) -> String {
    "  ".repeat(depth as usize)
}

fn call(item: &Item, label: &str, outcome: ItemOutcome, elapsed_ms: u64, depth: u32) -> Vec<Piece> {
    let (style, mark, word) = match outcome {
        ItemOutcome::Ok => (Style::Dim, "✓", ""),
        ItemOutcome::Error => (Style::Bad, "✗", "failed"),
        ItemOutcome::Refused => (Style::Warning, "✗", "refused"),
        ItemOutcome::Cancelled => (Style::Warning, "✗", "stopped"),
        ItemOutcome::Interrupted => (Style::Warning, "✗", "interrupted"),
        ItemOutcome::OutcomeUnknown => (Style::Warning, "?", "nobody knows whether it happened"),
    };
    let mut text = format!("{}{mark} {label} {}", indent(depth), duration(elapsed_ms));
    if !word.is_empty() {
        text.push_str(&format!(": {word}"));
        if let Some(output) = &item.output {
            text.push_str(&format!(": {}", short(&output.text, OUTPUT)));
        }
    }
    vec![Piece::Line(style, plain(&text))]
}

fn spent(spend: &Spend) -> String {
    let cost =
        spend.cost_usd.filter(|cost| *cost > 0.0).map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    format!("({}, {} tokens{cost})", duration(spend.elapsed_ms), spend.usage.total())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(depth: u32, kind: &str, data: Value) -> Event {
        let agent = json!({"id": "a", "invocation": format!("i-{depth}"), "depth": depth});
        let event = json!({
            "seq": 1, "time": "2026-01-01T00:00:00Z", "session": "s", "turn": "t", "agent": agent, "kind": kind,
            "data": data,
        });
        serde_json::from_value(event).expect("an event")
    }

    fn started(text: &str) -> Event {
        event(0, "interaction.turn.started", json!({"input": {"text": text, "bytes": text.len()}}))
    }

    fn delta(depth: u32, text: &str) -> Event {
        event(depth, "interaction.item.updated", json!({"id": "m", "item": "agent_message", "delta": text}))
    }

    fn message(depth: u32, text: &str, bytes: usize) -> Event {
        let output = json!({"text": text, "bytes": bytes, "truncated": bytes > text.len()});
        let item = json!({"id": "m", "type": "agent_message", "output": output});
        event(depth, "interaction.item.completed", json!({"item": item, "outcome": "ok", "elapsed_ms": 1}))
    }

    fn completed() -> Event {
        event(0, "interaction.turn.completed", json!({"status": "success", "spend": {}}))
    }

    /// The pieces as one text: `|` for an end, `[…]` for a line, `<turn>` for a whole answer.
    fn check(events: &[Event], expected: &str) {
        let mut renderer = Renderer::default();
        renderer.expect("mine");
        let pieces = events.iter().flat_map(|event| renderer.take(event, Instant::now()));
        let shown: String = pieces
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::End => "|".into(),
                Piece::Line(_, text) => format!("[{text}]"),
                Piece::Whole(turn) => format!("<{turn}>"),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    const SPENT: &str = "[(0 ms, 0 tokens)]";

    #[test]
    fn text_streams_and_is_shown_once() {
        let events = [started("mine"), delta(0, "he"), delta(0, "llo"), message(0, "hello", 5), completed()];
        check(&events, &format!("hello||{SPENT}"));
    }

    #[test]
    fn what_did_not_stream_is_shown_when_it_is_complete() {
        check(&[started("mine"), message(0, "hello", 5), completed()], &format!("hello||{SPENT}"));
        check(&[delta(0, "he"), message(0, "hello", 5)], "hello|");
        check(&[delta(0, "other"), message(0, "hello", 5)], "other|hello|");
    }

    #[test]
    fn an_answer_that_the_events_do_not_hold_is_fetched() {
        check(&[started("mine"), completed()], &format!("|<t>{SPENT}"));
        check(&[started("mine"), message(0, "hel", 5), completed()], &format!("||<t>{SPENT}"));
        check(&[delta(0, "hello"), message(0, "hel", 5), completed()], &format!("hello||{SPENT}"));
    }

    #[test]
    fn the_messages_of_others_are_shown_and_my_own_are_not() {
        check(&[started("mine"), started("mine"), started("yours")], "|[› mine]|[› yours]");
    }

    #[test]
    fn the_words_of_sub_agents_are_not_the_answer() {
        check(&[delta(1, "draft"), message(1, "draft", 5)], "");
    }

    #[test]
    fn a_call_ends_with_a_line_and_a_failure_with_its_reason() {
        let item = |output: &str| {
            json!({"id": "e", "type": "tool_call", "name": "files_read", "input": {"text": "{}", "bytes": 2},
                   "output": {"text": output, "bytes": output.len()}})
        };
        let began = event(1, "interaction.item.started", json!({"item": item("")}));
        let done = |outcome: &str| {
            let data =
                json!({"item": item("no \u{1b}[2J such file"), "outcome": outcome, "elapsed_ms": 1500});
            event(1, "interaction.item.completed", data)
        };
        check(&[began.clone(), done("ok")], "[  ✓ files_read {} 1.5 s]");
        check(&[began, done("error")], "[  ✗ files_read {} 1.5 s: failed: no [2J such file]");
        check(&[done("refused")], "[  ✗ files_read {} 1.5 s: refused: no [2J such file]");
    }

    #[test]
    fn a_turn_that_fails_says_why_and_what_to_do() {
        let data = json!({"status": "error", "error": "no key", "class": "auth", "spend": {}});
        let failed = event(0, "interaction.turn.completed", data);
        check(&[started("mine"), failed], &format!("|[no key][help: check the provider's key]{SPENT}"));
    }

    #[test]
    fn an_answer_that_is_void_begins_anew() {
        let reset = event(0, "interaction.stream.reset", json!({"id": "m", "reason": "broken"}));
        check(
            &[delta(0, "he"), reset, delta(0, "hi"), message(0, "hi", 2)],
            "he|[the answer begins anew: broken]hi|",
        );
    }
}
