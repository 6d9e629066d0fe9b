//! From the events of a turn to what its root agent says: text that grows, messages that end, text that is void.
//!
//! Sub-agents, tools of ours and reasoning are not part of it: a client would take them for its own. Three things do not
//! fit the formats of the vendors, which know one answer that only grows:
//!
//! - **Text before tool calls of the agent's own.** Whether a text is the answer is known at its end only. It streams
//!   like the answer does, because a client that hears nothing until the last step has no stream; it is a message of its
//!   own, and what follows is the next one.
//! - **An answer that is begun anew.** What was sent cannot be taken back. The new text is compared with it: as long as it
//!   repeats what was sent nothing is told, and where it goes on from there, so does the stream. Where it differs,
//!   the message is void, and each format decides what becomes of that.
//! - **An answer that its bound cut off.** The agent has its model go on with it, so the next text belongs to the same message.

use drupe_extension_api::{Event, EventBody, Item, ItemKind, ItemOutcome, TurnId, Usage};

/// One step of what is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// More of the message that is open; it opens one where none is.
    Text(String),
    /// The open message is whole. The last one is the answer.
    Close { last: bool },
    /// What was told of the open message is not said.
    Void,
}

/// A message of which some was told.
#[derive(Debug, Default)]
struct Open {
    id: String,
    /// What was told of it.
    text: String,
    /// How much of that will not be said anew, because its item has ended, in bytes.
    sure: usize,
    /// What came of the rest since it is asked for anew.
    again: Option<String>,
    /// What comes next belongs to it, because its bound cut it off.
    goes_on: bool,
    /// Less was told of it than there is, because parts were missed and events show the beginning of long texts alone.
    missing: bool,
}

impl Open {
    fn of(id: &str, text: String) -> Self {
        Self { id: id.to_owned(), text, ..Self::default() }
    }

    /// What was told and may be said anew.
    fn unsure(&self) -> &str {
        &self.text[self.sure..]
    }

    /// What was told is void, unless it is said again in the same words.
    fn doubt(&mut self) {
        if !self.unsure().is_empty() {
            self.again = Some(String::new());
        }
    }
}

/// Follows the events of one turn.
#[derive(Debug)]
pub(crate) struct Speech {
    turn: TurnId,
    open: Option<Open>,
    /// Whether parts of the message that is being said were missed.
    gap: bool,
    /// How the last attempt of the root's model ended.
    stop: String,
    /// What the turn spent, once it has ended.
    pub spent: Option<Usage>,
}

impl Speech {
    pub fn new(turn: TurnId) -> Self {
        Self { turn, open: None, gap: false, stop: String::new(), spent: None }
    }

    /// Takes an event in, and says what it adds to what was told.
    pub fn hear(&mut self, event: &Event) -> Vec<Step> {
        if let EventBody::TurnSteered { from, .. } = &event.body
            && *from == self.turn
            && let Some(turn) = &event.turn
        {
            // The turn that was running answers this message, too.
            self.turn = turn.clone();
        }
        if event.turn.as_ref().is_some_and(|turn| *turn != self.turn)
            || event.agent.as_ref().is_some_and(|agent| agent.depth > 0)
        {
            return Vec::new();
        }
        match &event.body {
            EventBody::TurnCompleted { spend, .. } => self.spent = Some(spend.usage),
            EventBody::ModelAttempt { stop, .. } => self.stop.clone_from(stop),
            EventBody::StreamSkipped => self.gap = true,
            EventBody::StreamReset { .. } => {
                if let Some(open) = &mut self.open {
                    open.doubt();
                }
            }
            EventBody::ItemStarted { item } if item.kind == ItemKind::AgentMessage => self.gap = false,
            EventBody::ItemUpdated { id, item: ItemKind::AgentMessage, delta } if !delta.is_empty() => {
                return self.delta(id, delta);
            }
            EventBody::ItemCompleted { item, outcome, .. } if item.kind == ItemKind::AgentMessage => {
                return self.completed(item, *outcome);
            }
            _ => {}
        }
        Vec::new()
    }

    /// Whether a bound on its tokens, or a provider's filter, ended the last answer.
    pub fn cut(&self) -> Option<Cut> {
        match self.stop.as_str() {
            "length" => Some(Cut::Length),
            "filter" => Some(Cut::Filter),
            _ => None,
        }
    }

    /// What was told of the message that is open.
    pub fn text(&self) -> &str {
        self.open.as_ref().map_or("", |open| open.text.as_str())
    }

    fn delta(&mut self, id: &str, delta: &str) -> Vec<Step> {
        if self.gap {
            return Vec::new();
        }
        match &mut self.open {
            Some(Open { again: Some(again), .. }) => {
                again.push_str(delta);
                let again = again.clone();
                self.anew(id, &again)
            }
            Some(open) if open.id == id || open.goes_on => {
                open.id = id.to_owned();
                open.goes_on = false;
                open.text.push_str(delta);
                vec![Step::Text(delta.to_owned())]
            }
            _ => self.next(id, delta),
        }
    }

    /// A further message begins, so the open one is whole.
    fn next(&mut self, id: &str, text: &str) -> Vec<Step> {
        let before = self.open.replace(Open::of(id, text.to_owned()));
        let mut steps = Vec::new();
        if let Some(before) = before {
            steps.extend(before.missing.then(|| Step::Text(" …".to_owned())));
            steps.push(Step::Close { last: false });
        }
        steps.push(Step::Text(text.to_owned()));
        steps
    }

    /// The open message is said anew, and has come as far as `again`.
    fn anew(&mut self, id: &str, again: &str) -> Vec<Step> {
        let Some(open) = &mut self.open else { return self.next(id, again) };
        let told = open.unsure();
        if told.len() > again.len() && told.starts_with(again) {
            return Vec::new();
        }
        if let Some(rest) = again.strip_prefix(told) {
            (open.id, open.again) = (id.to_owned(), None);
            open.text.push_str(rest);
            return if rest.is_empty() { Vec::new() } else { vec![Step::Text(rest.to_owned())] };
        }
        self.reworded(id, again)
    }

    /// What was told of the open message is not what it says.
    fn reworded(&mut self, id: &str, text: &str) -> Vec<Step> {
        let sure = self.open.take().map_or_else(String::new, |open| open.text[..open.sure].to_owned());
        let mut steps = vec![Step::Void];
        if !sure.is_empty() || !text.is_empty() {
            let sure_bytes = sure.len();
            steps.extend(self.next(id, &(sure + text)));
            self.open.get_or_insert_default().sure = sure_bytes;
        }
        steps
    }

    fn completed(&mut self, item: &Item, outcome: ItemOutcome) -> Vec<Step> {
        let gap = std::mem::take(&mut self.gap);
        let shown = item.output.as_ref();
        let text = shown.map_or("", |preview| preview.text.as_str());
        if outcome != ItemOutcome::Ok {
            // Somebody may say it anew; if nobody does, the turn ends without it.
            if let Some(open) = self.open.as_mut().filter(|open| open.id == item.id && open.again.is_none()) {
                open.doubt();
            }
            return Vec::new();
        }
        // The beginning alone may be shown; where nothing was missed, the parts were the whole.
        let partial = shown.is_some_and(|preview| preview.truncated);
        let steps = match &mut self.open {
            Some(Open { again: Some(again), .. }) => {
                let whole = if partial && !gap { again.clone() } else { text.to_owned() };
                self.whole_anew(&item.id, &whole, partial && gap)
            }
            Some(open) if open.id == item.id => match text.strip_prefix(open.unsure()) {
                Some(rest) if !rest.is_empty() => {
                    open.text.push_str(rest);
                    vec![Step::Text(rest.to_owned())]
                }
                _ => Vec::new(),
            },
            _ if text.is_empty() => Vec::new(),
            Some(open) if open.goes_on => {
                open.id.clone_from(&item.id);
                open.text.push_str(text);
                vec![Step::Text(text.to_owned())]
            }
            _ => self.next(&item.id, text),
        };
        if let Some(open) = self.open.as_mut().filter(|open| open.id == item.id) {
            open.goes_on = self.stop == "length";
            open.missing = shown.is_some_and(|preview| open.unsure().len() < preview.bytes);
            open.sure = open.text.len();
        }
        steps
    }

    /// The message that was said anew is `whole`, or begins so where it is longer than what is known of it.
    fn whole_anew(&mut self, id: &str, whole: &str, longer: bool) -> Vec<Step> {
        let told = self.open.as_ref().map_or("", Open::unsure);
        if told.len() <= whole.len() || !told.starts_with(whole) {
            return self.anew(id, whole);
        }
        if longer {
            // What was told is within it, as far as anybody knows.
            self.open.iter_mut().for_each(|open| (open.id, open.again) = (id.to_owned(), None));
            return Vec::new();
        }
        self.reworded(id, whole)
    }

    /// The turn has ended. `answer` is what it gave, which is more than was told where parts were missed, and something else
    /// where somebody changed it.
    pub fn end(&mut self, answer: Option<&str>) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Some(answer) = answer.filter(|answer| !answer.is_empty()) {
            let told = self.text().to_owned();
            if let Some(rest) = answer.strip_prefix(told.as_str()) {
                if !rest.is_empty() {
                    steps.push(Step::Text(rest.to_owned()));
                    self.open.get_or_insert_default().text = answer.to_owned();
                }
            } else if self.open.take_if(|open| open.again.is_some()).is_some() {
                steps.push(Step::Void);
                steps.extend(self.next("", answer));
            } else if !told.trim().ends_with(answer.trim()) {
                steps.extend(self.next("", answer));
            }
        }
        if self.open.take().is_some() {
            steps.push(Step::Close { last: true });
        }
        steps
    }
}

/// What cut an answer off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Length,
    Filter,
}
