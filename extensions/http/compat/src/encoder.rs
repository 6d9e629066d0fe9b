//! How an answer becomes what a client reads: one [`Encoder`] for all three formats.
//!
//! Who uses it: whoever serves the formats over HTTP. It makes an encoder when the turn is submitted, feeds it the events of
//! the turn's session in their order ([`event`](Encoder::event)), the calls that the turn leaves to the client
//! ([`call`](Encoder::call)), and at last the response ([`end`](Encoder::end)) or why there is none
//! ([`fail`](Encoder::fail)). Each gives frames, which are written to a client that streams; for one that does not they
//! are dropped, and [`answer`](Encoder::answer) gives the body.
//!
//! What holds whatever comes in: the first frames open the answer, nothing follows its end, every index counts up from
//! 0, and nothing panics. It does no I/O, reads no clock and knows no session: what it writes follows from what it was given.
//!
//! A client that does not stream, or wants JSON, gets the answer alone: nothing is written before the response is there. JSON
//! because the kernel may have a model mend it, and half a text before it would make it no JSON.

use drupe_extension_api::{
    AgentResponse, Event, FailureClass, Fault, ResponseStatus, ToolCallRequest, TurnId, Usage,
};
use serde_json::{Map, Value};

use crate::{
    Ask, Rejection, RejectionKind,
    speech::{Cut, Speech, Step},
};

/// A frame of a stream of server-sent events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseFrame {
    /// Its name, where the format gives frames names.
    pub event: Option<&'static str>,
    /// One line; empty for a comment, which keeps a connection alive and which clients ignore.
    pub data: String,
}

impl SseFrame {
    pub(crate) fn named(event: &'static str, data: &Value) -> Self {
        Self { event: Some(event), data: data.to_string() }
    }

    pub(crate) fn comment() -> Self {
        Self { event: None, data: String::new() }
    }

    /// The bytes that go out.
    pub fn text(&self) -> String {
        match (self.event, self.data.as_str()) {
            (None, "") => ":\n\n".to_owned(),
            (None, data) => format!("data: {data}\n\n"),
            (Some(event), data) => format!("event: {event}\ndata: {data}\n\n"),
        }
    }
}

/// A call that the turn leaves to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCall {
    /// By which the client gives the result back.
    pub id: String,
    pub name: String,
    pub arguments: Map<String, Value>,
}

impl TryFrom<&ToolCallRequest> for ClientCall {
    type Error = Fault;

    fn try_from(call: &ToolCallRequest) -> Result<Self, Fault> {
        let arguments = match call.arguments.trim() {
            "" => Map::new(),
            text => serde_json::from_str(text).map_err(|error| {
                Fault::invalid(format!("the arguments of `{}` are no JSON object: {error}", call.name))
            })?,
        };
        Ok(Self { id: call.call_id.clone(), name: call.name.clone(), arguments })
    }
}

/// The turn that an answer belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTurn {
    pub turn: TurnId,
    /// When it was accepted, in seconds since 1970.
    pub created: i64,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(Text),
    Refusal(String),
    Call(ClientCall),
}

/// A message of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub text: String,
    /// Whether it is the answer, and not what was said on the way to it.
    pub last: bool,
    /// Whether it was begun anew.
    pub void: bool,
}

/// How an answer ended that is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
    Filter,
    Calls,
    Refused,
}

/// How far an answer has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    Running,
    Ended(Finish),
    Failed(Rejection),
}

/// All of an answer so far.
#[derive(Debug)]
pub(crate) struct Whole {
    pub pieces: Vec<Piece>,
    pub stage: Stage,
    pub usage: Usage,
}

impl Whole {
    /// The text that is the answer; of one that does not stream there is no other.
    pub fn text(&self) -> Option<&str> {
        self.pieces.iter().rev().find_map(|piece| match piece {
            Piece::Text(text) if !text.void => Some(text.text.as_str()),
            _ => None,
        })
    }

    pub fn refusal(&self) -> Option<&str> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Refusal(words) => Some(words.as_str()),
            _ => None,
        })
    }

    pub fn calls(&self) -> impl Iterator<Item = &ClientCall> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// A vendor's format. `at` is the index of a piece in the answer. The encoder sees to the order: `begin` first, `text` of a
/// piece before its `close`, one piece at a time, then `end` or `fail`, then nothing.
pub(crate) trait Dialect: Send {
    /// What stands between two messages where the format has one text for them.
    fn separator(&self) -> &'static str;
    fn begin(&mut self, out: &mut Vec<SseFrame>);
    /// More of a message; `first` opens it.
    fn text(&mut self, at: usize, delta: &str, first: bool, out: &mut Vec<SseFrame>);
    fn close(&mut self, at: usize, text: &Text, out: &mut Vec<SseFrame>);
    /// Takes the open message back; false where the format cannot.
    fn withdraw(&mut self, at: usize, out: &mut Vec<SseFrame>) -> bool;
    fn refusal(&mut self, at: usize, words: &str, out: &mut Vec<SseFrame>);
    fn call(&mut self, at: usize, call: &ClientCall, out: &mut Vec<SseFrame>);
    fn end(&mut self, whole: &Whole, finish: Finish, out: &mut Vec<SseFrame>);
    fn fail(&mut self, whole: &Whole, rejection: &Rejection, out: &mut Vec<SseFrame>);
    fn ping(&self) -> SseFrame;
    fn body(&self, whole: &Whole) -> Value;
}

/// Writes one answer; see the module for who feeds it and in which order.
pub struct Encoder {
    dialect: Box<dyn Dialect>,
    speech: Speech,
    whole: Whole,
    /// Whether nothing is written before the response is there.
    held: bool,
    /// The call that the answer is to become: its id, and the tool.
    forced: Option<(String, String)>,
    begun: bool,
    /// Whether the last piece is a message that may grow.
    open: bool,
}

impl Encoder {
    pub(crate) fn new(dialect: impl Dialect + 'static, turn: &ServedTurn, ask: &Ask) -> Self {
        Self {
            dialect: Box::new(dialect),
            speech: Speech::new(turn.turn.clone()),
            whole: Whole { pieces: Vec::new(), stage: Stage::Running, usage: Usage::default() },
            held: ask.holds(),
            forced: ask.forced().map(|tool| (format!("call_{}", turn.turn), tool.name.to_string())),
            begun: false,
            open: false,
        }
    }

    /// What a client reads before anything was said. Whatever else comes first begins the answer as well.
    pub fn begin(&mut self) -> Vec<SseFrame> {
        let mut out = Vec::new();
        if !self.begun && self.running() {
            self.begun = true;
            self.dialect.begin(&mut out);
        }
        out
    }

    pub fn event(&mut self, event: &Event) -> Vec<SseFrame> {
        let mut out = self.begin();
        if self.running() {
            let steps = self.speech.hear(event);
            if !self.held {
                self.say(steps, &mut out);
            }
        }
        out
    }

    /// A call for the client; all of them come before the end.
    pub fn call(&mut self, call: ClientCall) -> Vec<SseFrame> {
        let mut out = self.begin();
        if self.running() {
            self.finish_text(&mut out);
            self.dialect.call(self.whole.pieces.len(), &call, &mut out);
            self.whole.pieces.push(Piece::Call(call));
        }
        out
    }

    /// The turn has ended like this, and has used so much.
    pub fn end(&mut self, response: &AgentResponse, usage: Usage) -> Vec<SseFrame> {
        let mut out = self.begin();
        if !self.running() {
            return out;
        }
        self.whole.usage = if usage.total() > 0 { usage } else { self.speech.spent.unwrap_or(usage) };
        let forced = self.call_forced(response, &mut out);
        if !self.running() {
            return out;
        }
        let Some(finish) = self.finish(response) else {
            out.extend(self.fail(&Rejection::of_turn(response)));
            return out;
        };
        if !forced {
            self.last_words(finish, &response.content, &mut out);
        }
        if self.running() {
            self.close(true, &mut out);
            self.whole.stage = Stage::Ended(finish);
            self.dialect.end(&self.whole, finish, &mut out);
        }
        out
    }

    /// Makes the call of the answer where a certain tool must be called; whether it did.
    fn call_forced(&mut self, response: &AgentResponse, out: &mut Vec<SseFrame>) -> bool {
        let answered = response.status == ResponseStatus::Success && self.whole.calls().next().is_none();
        let Some((call_id, name)) = self.forced.take().filter(|_| answered) else { return false };
        // What was heard so far is the arguments, and no text beside the call.
        self.speech.end(None);
        let arguments = response.content.clone();
        out.extend(match ClientCall::try_from(&ToolCallRequest { call_id, name, arguments }) {
            Ok(call) => self.call(call),
            Err(fault) => self.fail(&Rejection::new(RejectionKind::Unprocessable, fault.to_string())),
        });
        true
    }

    /// How an answer ended; none where there is none.
    fn finish(&self, response: &AgentResponse) -> Option<Finish> {
        let cut = self.speech.cut().filter(|_| response.class == Some(FailureClass::Model));
        match (response.status, cut) {
            (ResponseStatus::Success, _) if self.whole.calls().next().is_some() => Some(Finish::Calls),
            (ResponseStatus::Success, _) => Some(Finish::Stop),
            (ResponseStatus::Refused, _) => Some(Finish::Refused),
            // The client's own bound, most likely: what came within it is what was asked for.
            (ResponseStatus::Error, Some(Cut::Length)) => {
                (!self.speech.text().is_empty()).then_some(Finish::Length)
            }
            (ResponseStatus::Error, Some(Cut::Filter)) => Some(Finish::Filter),
            (ResponseStatus::Error, None) => None,
        }
    }

    fn last_words(&mut self, finish: Finish, words: &str, out: &mut Vec<SseFrame>) {
        let told = self.whole.text().is_some_and(|told| told.trim().ends_with(words.trim()));
        match finish {
            // What was said before the calls is not said again after them.
            Finish::Calls if told => {}
            Finish::Stop | Finish::Calls => self.say_all(Some(words), out),
            Finish::Length | Finish::Filter => self.say_all(None, out),
            Finish::Refused if self.speech.text().is_empty() || !words.starts_with(self.speech.text()) => {
                self.close(false, out);
                self.dialect.refusal(self.whole.pieces.len(), words, out);
                self.whole.pieces.push(Piece::Refusal(words.to_owned()));
            }
            Finish::Refused => self.say_all(Some(words), out),
        }
    }

    /// There will be no answer.
    pub fn fail(&mut self, rejection: &Rejection) -> Vec<SseFrame> {
        let mut out = self.begin();
        if self.running() {
            self.whole.usage = self.speech.spent.unwrap_or(self.whole.usage);
            self.whole.stage = Stage::Failed(rejection.clone());
            self.dialect.fail(&self.whole, rejection, &mut out);
        }
        out
    }

    /// What keeps a silent connection alive; none before the beginning and after the end.
    pub fn ping(&self) -> Option<SseFrame> {
        (self.begun && self.running()).then(|| self.dialect.ping())
    }

    /// The body for a client that does not stream; of an answer that has not ended, what there is of it.
    pub fn answer(&self) -> Result<Value, Rejection> {
        match &self.whole.stage {
            Stage::Failed(rejection) => Err(rejection.clone()),
            Stage::Running | Stage::Ended(_) => Ok(self.dialect.body(&self.whole)),
        }
    }

    /// The answer as an object that is asked for later: a failed one is told within it, where the format can.
    pub fn object(&self) -> Value {
        self.dialect.body(&self.whole)
    }

    pub fn running(&self) -> bool {
        self.whole.stage == Stage::Running
    }

    /// Nothing is added to the message that is open.
    fn finish_text(&mut self, out: &mut Vec<SseFrame>) {
        if self.held {
            self.say_all(None, out);
        } else {
            self.speech.end(None);
        }
        self.close(false, out);
    }

    /// All that is to be said, with the answer where there is one.
    fn say_all(&mut self, answer: Option<&str>, out: &mut Vec<SseFrame>) {
        let told = self.speech.text().to_owned();
        let steps = self.speech.end(answer);
        if !self.held {
            return self.say(steps, out);
        }
        let text = answer.unwrap_or(&told);
        if !text.is_empty() {
            self.text(text, out);
        }
    }

    fn say(&mut self, steps: Vec<Step>, out: &mut Vec<SseFrame>) {
        for step in steps {
            match step {
                _ if !self.running() => return,
                Step::Text(delta) => self.text(&delta, out),
                Step::Close { last } => self.close(last, out),
                Step::Void => self.withdraw(out),
            }
        }
    }

    fn text(&mut self, delta: &str, out: &mut Vec<SseFrame>) {
        let first = !self.open;
        if first {
            let follows = self.whole.text().is_some();
            let text = if follows { self.dialect.separator().to_owned() } else { String::new() };
            self.whole.pieces.push(Piece::Text(Text { text, ..Text::default() }));
            self.open = true;
        }
        let at = self.whole.pieces.len().saturating_sub(1);
        if let Some(Piece::Text(text)) = self.whole.pieces.last_mut() {
            text.text.push_str(delta);
            let delta = if first { text.text.as_str() } else { delta };
            self.dialect.text(at, delta, first, out);
        }
    }

    fn close(&mut self, last: bool, out: &mut Vec<SseFrame>) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let at = self.whole.pieces.len().saturating_sub(1);
        if let Some(Piece::Text(text)) = self.whole.pieces.last_mut() {
            text.last = last;
            self.dialect.close(at, text, out);
        }
    }

    fn withdraw(&mut self, out: &mut Vec<SseFrame>) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let at = self.whole.pieces.len().saturating_sub(1);
        if self.dialect.withdraw(at, out) {
            if let Some(Piece::Text(text)) = self.whole.pieces.last_mut() {
                text.void = true;
            }
            return;
        }
        let why = "the model's answer broke off after a part of it was sent, and it was begun anew with other words; ask \
            again, or ask without a stream";
        let broken = Rejection::new(RejectionKind::Upstream, why);
        out.extend(self.fail(&broken));
    }
}
