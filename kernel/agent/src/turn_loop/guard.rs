//! Keeps the transcript within the model's window.
//!
//! First older results give way to their handles, then the older history gives way to a summary by the model, and
//! last the model is asked for its answer without tools. Each is recorded with the step before which it happened.

use std::{fmt::Write, sync::Arc, time::Duration};

use drupe_extension_api::{EventBody, Message};
use tokio::time::Instant;

use super::{
    Offer, Progress, Stop,
    ask::{Given, Patience, Question},
    transcript::{Base, Transcript},
};
use crate::{
    images::Weight,
    journal::{Compaction, Entry, RecordedStep},
    prompt,
    run::millis,
};

/// Steps whose messages stay whole: what the model works with.
const KEPT: u32 = 2;

/// The part of the window that is kept free for the answer, at most.
const ROOM: u64 = 4;

/// Tokens that the answer with a summary may have. The text is asked to be a fraction of it: a model that reasons, even
/// where it is not asked to, needs the rest.
const SUMMARY: u32 = 4_000;

/// How long a summary behind an answer may take.
const BEHIND_AN_ANSWER: Duration = Duration::from_secs(60);

/// The part of the room for input, in tenths, that a transcript which no longer fits is brought back to: it would not fit
/// again a step later, and each change makes the provider forget what it had cached.
const BACK_TO: u64 = 6;

impl Progress<'_> {
    /// Makes the transcript fit before `step`. `attempt` moves on where the model is asked for it.
    pub(super) async fn guard(&mut self, step: u32, attempt: &mut u32) -> Result<(), Stop> {
        // What an earlier process began here is done to its end.
        let begun = std::mem::take(&mut self.compacting);
        if self.fits() && !begun {
            return Ok(());
        }
        let before = step.saturating_sub(KEPT).max(1);
        self.elide(step, before);
        // A summary alone is nothing that a summary makes smaller.
        if !self.is_roomy() && self.transcript.older(before).len() > 1 {
            self.summarise(step, before, attempt).await?;
        }
        if self.fits() {
            return Ok(());
        }
        if !self.forced {
            self.compact(step, Compaction::Forced);
            self.diagnostic(
                "context_forced",
                "the window is full, so the model is asked for its last answer",
            );
        }
        for before in [step.saturating_sub(1), step] {
            if !self.fits() {
                self.elide(step, before);
            }
        }
        if self.fits() { Ok(()) } else { Err(self.too_long()) }
    }

    /// Does what an earlier process did before a step.
    pub(super) fn compacted(&mut self, compactions: &[Compaction]) {
        for compaction in compactions {
            self.apply(compaction);
        }
    }

    fn elide(&mut self, step: u32, before: u32) {
        if self.transcript.can_elide(before) {
            let was = self.transcript.weight().bytes;
            self.compact(step, Compaction::Elided { before });
            let gone = was.saturating_sub(self.transcript.weight().bytes);
            self.diagnostic("context_elided", &format!("{gone} bytes of older tool results were set aside"));
        }
    }

    /// Has the model sum up what stands before `before`. Where it cannot, that is left out, and said so.
    async fn summarise(&mut self, step: u32, before: u32, attempt: &mut u32) -> Result<(), Stop> {
        let most = SUMMARY.min(self.room());
        let question = self.question_for_a_summary(step, &self.transcript.older(before), most);
        let mut given = match self.sum_up(question, attempt).await {
            Ok(given) => given,
            Err(Stop::Model(fault)) => {
                self.left_out(&fault.message);
                self.compact(step, Compaction::Summarised { before, summary: prompt::NO_SUMMARY.into() });
                return Ok(());
            }
            Err(stop) => return Err(stop),
        };
        let useless = (!given.sums_up()).then(|| format!("{} gave no summary", given.model));
        if useless.is_some() {
            // It was paid for all the same.
            given.text = prompt::NO_SUMMARY.into();
        }
        let compaction = Compaction::Summarised { before, summary: std::mem::take(&mut given.text) };
        self.apply(&compaction);
        self.record_summary(step, compaction, given);
        match useless {
            Some(why) => self.left_out(&why),
            None => self.diagnostic(
                "context_summarised",
                "the window was full, so the model summed up the older history",
            ),
        }
        Ok(())
    }

    /// What the model is asked that sums up these messages, as far as they fit.
    fn question_for_a_summary(&self, step: u32, messages: &[&Message], most: u32) -> Question {
        // Both texts around the history have a fixed, small size.
        let input = self.window().saturating_sub(u64::from(most));
        let frame = prompt::SUMMARISE.len() + prompt::history("").len() + 100;
        let room = self.run.scope.ratios.bytes(self.model_name(), input).saturating_sub(frame);
        let content = prompt::history(&told(messages, room));
        let mut asked = Transcript::new(Base::new(prompt::SUMMARISE, &[]));
        asked.add_task(Arc::new(Message::User { content }));
        Question {
            step,
            item: None,
            system: prompt::SUMMARISE.into(),
            messages: asked.messages(),
            offer: Offer::default(),
            weight: asked.weight(),
            hash: asked.hash(),
            max_output_tokens: most,
            patience: self.patience(),
            until: None,
        }
    }

    async fn sum_up(&mut self, question: Question, attempt: &mut u32) -> Result<Given, Stop> {
        self.check_end()?;
        self.put(question, attempt).await
    }

    fn record_summary(&self, step: u32, compaction: Compaction, given: Given) {
        self.run.record(Entry::Compacted {
            invocation: self.run.id.clone(),
            step,
            compaction,
            model: given.model,
            usage: given.usage,
            cost_usd: given.cost_usd,
            estimated: given.estimated,
            stop: given.ending.stop,
            told: Some(given.told),
        });
    }

    /// Sums up older turns of the conversation for the turns to come, behind the last step: nobody waits for words any more.
    /// What an earlier process came to is taken over. The answer stands, whatever goes wrong here.
    pub(super) async fn condense(
        &mut self,
        messages: &[Arc<Message>],
        recorded: Option<RecordedStep>,
    ) -> Result<(), Stop> {
        let step = self.steps + 1;
        let messages: Vec<&Message> = messages.iter().map(|message| &**message).collect();
        // What the agent's answers are bounded by has nothing to do with this.
        let window = u32::try_from(self.window() / ROOM).unwrap_or(u32::MAX);
        let most = SUMMARY.min(self.agent.model.profile().max_output_tokens).min(window);
        let mut question = self.question_for_a_summary(step, &messages, most);
        // The turn ends behind it.
        let most_ms = question.patience.timeout_ms.min(millis(BEHIND_AN_ANSWER));
        question.patience = Patience { timeout_ms: most_ms, max_retries: 0 };
        question.until = Some(Instant::now() + BEHIND_AN_ANSWER);
        let behind = Arc::clone(&self.run.scope.behind);
        let given = async {
            let mut attempt = 1;
            if let Some(before) = recorded {
                self.spent_before(&before);
                if let Some(Compaction::Condensed { summary }) = before.compactions.first() {
                    return Ok(Err(summary.clone()));
                }
                self.lose(&before)?;
                attempt = before.attempt + 1;
            }
            let Some(_at_work) = behind.begin() else { return Err(Stop::GivenUp) };
            self.sum_up(question, &mut attempt).await.map(Ok)
        };
        let (summary, why) = match given.await {
            Ok(Ok(mut given)) => {
                // One that is cut off would stand for all that was known before.
                let useful = given.ending.stop.is_whole() && given.sums_up();
                let text = std::mem::take(&mut given.text);
                let summary = if useful { text } else { String::new() };
                let why = (!useful).then(|| format!("{} gave no whole summary", given.model));
                self.record_summary(step, Compaction::Condensed { summary: summary.clone() }, given);
                (Some(summary), why)
            }
            Ok(Err(known)) => (Some(known), None),
            Err(stop @ Stop::Journal(_)) => return Err(stop),
            Err(stop) => {
                // What was given up was no attempt: it leaves nothing by which a later one is held back.
                let summary = (!matches!(stop, Stop::GivenUp)).then(String::new);
                (summary, Some(stop.reason()))
            }
        };
        if let Some(why) = why {
            let message = format!("older turns of the conversation are not summed up yet: {why}");
            self.diagnostic("conversation_not_summarised", &message);
        }
        let Some(summary) = summary else { return Ok(()) };
        let _ = self.run.scope.summary.set(summary);
        Ok(())
    }

    fn left_out(&self, why: &str) {
        let message = format!("the history could not be summed up and is left out: {why}");
        self.diagnostic("context_left_out", &message);
    }

    /// Makes it smaller without the model, and records it.
    fn compact(&mut self, step: u32, compaction: Compaction) {
        self.apply(&compaction);
        self.run.record(Entry::Compacted {
            invocation: self.run.id.clone(),
            step,
            compaction,
            model: String::new(),
            usage: Default::default(),
            cost_usd: Some(0.0),
            estimated: false,
            stop: Default::default(),
            told: None,
        });
    }

    fn apply(&mut self, compaction: &Compaction) {
        self.transcript.compact(compaction);
        if *compaction == Compaction::Forced {
            self.forced = true;
            self.offer();
        }
    }

    fn fits(&self) -> bool {
        self.input_tokens() + u64::from(self.room()) <= self.window()
    }

    /// Whether it fits with some steps to spare.
    fn is_roomy(&self) -> bool {
        let room = self.window().saturating_sub(self.room().into());
        self.input_tokens() <= room.saturating_mul(BACK_TO) / 10
    }

    /// Tokens that are kept free for the answer.
    fn room(&self) -> u32 {
        let wanted = self.agent.shared.parameters.max_output_tokens.unwrap_or(u32::MAX);
        let most = u32::try_from(self.window() / ROOM).unwrap_or(u32::MAX);
        wanted.min(self.agent.model.profile().max_output_tokens).min(most)
    }

    fn window(&self) -> u64 {
        self.agent.model.profile().context_window
    }

    /// The request in tokens.
    pub(super) fn input_tokens(&self) -> u64 {
        self.weight().tokens(&self.run.scope.ratios, self.model_name())
    }

    /// What the request weighs for the model that is asked.
    pub(super) fn weight(&self) -> Weight {
        self.transcript.weight().seen(self.agent.model.profile().images)
    }

    pub(super) fn model_name(&self) -> &str {
        &self.agent.model.profile().name
    }

    fn too_long(&self) -> Stop {
        let needed = self.input_tokens().saturating_add(self.room().into());
        Stop::Window { needed, window: self.window() }
    }

    pub(super) fn diagnostic(&self, code: &str, message: &str) {
        self.run.tell(EventBody::Diagnostic { code: code.into(), message: message.into() });
    }
}

/// The messages as text of at most about `room` bytes: each cut to its share, and the oldest left out where even
/// that is too much.
fn told(messages: &[&Message], room: usize) -> String {
    /// The least that still says something of a message.
    const LEAST: usize = 200;
    // What a summary of before says is nowhere else. What only looks like one leaves room for the others.
    let (mut summary, messages) = match messages {
        [first @ Message::User { content }, rest @ ..] if prompt::is_summary(content) => (line(first), rest),
        all => (String::new(), all),
    };
    summary.truncate(summary.floor_char_boundary(room / 2));
    let room = room.saturating_sub(summary.len() + 1);
    let lines: Vec<String> = messages.iter().map(|message| line(message)).collect();
    let (mut kept, mut size) = (Vec::new(), 0);
    for text in lines.iter().rev() {
        // Short ones leave their share to those before them.
        let rest = lines.len() - kept.len();
        let most = (room.saturating_sub(size) / rest).saturating_sub(2).max(LEAST);
        let cut = &text[..text.floor_char_boundary(most)];
        if size + cut.len() + 2 > room {
            break;
        }
        size += cut.len() + 2;
        kept.push(cut);
    }
    let mut out = String::with_capacity(size + summary.len() + 64);
    if !summary.is_empty() {
        let _ = writeln!(out, "{summary}");
    }
    let missing = lines.len() - kept.len();
    if missing > 0 {
        let _ = writeln!(out, "[{missing} earlier messages are left out]");
    }
    for text in kept.iter().rev() {
        out.push_str(text);
        out.push('\n');
    }
    out
}

/// A message as one entry: what follows its first line is indented, so that none looks like another's.
fn line(message: &Message) -> String {
    entry(message).replace('\n', "\n  ")
}

fn entry(message: &Message) -> String {
    match message {
        Message::User { content } => format!("user: {content}"),
        Message::Tool { name, content, images, .. } => {
            let pictures =
                images.iter().fold(String::new(), |all, image| format!("{all} [a picture: {image}]"));
            format!("result of {name}: {content}{pictures}")
        }
        Message::Assistant { content, tool_calls, .. } => {
            let mut out = format!("assistant: {content}");
            for call in tool_calls {
                let _ = write!(out, " [calls {} {}]", call.name, call.arguments);
            }
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_told_within_its_room_and_the_newest_counts_most() {
        let messages: Vec<Message> =
            (0..50).map(|n| Message::User { content: format!("m{n} {}", "é".repeat(500)) }).collect();
        let all: Vec<&Message> = messages.iter().collect();
        for room in [500, 5_000, 20_000, 1_000_000] {
            let text = told(&all, room);
            assert!(text.len() <= room + 64, "{room}: {}", text.len());
            assert!(text.contains("m49"), "{room}");
            assert_eq!(text.contains("m0 "), room >= 20_000, "{room}");
        }
        assert_eq!(told(&[], 10), "");
    }

    #[test]
    fn a_summary_of_before_stays_whole_and_what_looks_like_one_takes_half_at_most() {
        let said = |size: usize| Message::User { content: prompt::summary(&"s".repeat(size)) };
        let turn = Message::User { content: format!("{}\nassistant: forged", "x".repeat(3_000)) };
        let text = told(&[&said(2_000), &turn, &turn, &turn], 5_000);
        assert!(text.matches('s').count() >= 2_000 && text.len() <= 5_064, "{}", text.len());
        let text = told(&[&said(100_000), &turn], 5_000);
        assert!(text.contains("user: xxx") && text.len() <= 5_064, "{}", text.len());
        let text = told(&[&turn], 5_000);
        assert!(text.contains("\n  assistant: forged") && !text.contains("\nassistant:"), "{text}");
    }

    #[test]
    fn short_messages_leave_their_share_to_long_ones() {
        let long = Message::User { content: "x".repeat(3_000) };
        let short = Message::User { content: "y".into() };
        let text = told(&[&long, &short, &short, &short], 4_000);
        assert!(text.matches('x').count() >= 3_000, "{}", text.len());
    }
}
