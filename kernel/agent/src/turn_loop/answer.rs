//! What follows from a model's answer: tool calls, a repair, a further message of the user, or the end.

use std::sync::Arc;

use drupe_extension_api::{
    AgentResponse, ControlTransfer, FailureClass, Format, Image, Message, ToolCallRequest, ToolStatus,
};

use super::{Progress, Stop, ending::Ending, repeats::Repeated};
use crate::{
    dispatch,
    journal::{Entry, RecordedStep},
    long_work,
    model::ModelFault,
    prompt, results,
    spawned::Input,
    told::is_blank,
    tool::RunEnd,
};

/// How calls ended their run.
enum Over {
    Refused(String),
    /// With what its client is to run.
    Left(Vec<ToolCallRequest>),
    /// Somebody else talks with the user, after these words.
    Transferred(ControlTransfer, String),
}

/// What a run says that ends with a transfer and without words to the user.
fn told_of(transfer: &ControlTransfer) -> String {
    match transfer {
        ControlTransfer::HandOver { to, .. } => format!("`{to}` has the conversation"),
        ControlTransfer::Return { summary, .. } => summary.clone(),
    }
}

impl Progress<'_> {
    /// Acts on an answer; the response, if it was the last. `recorded` is what an earlier process recorded of the
    /// step; `last`, unless a further step is recorded.
    pub(super) async fn answered(
        &mut self,
        answer: Message,
        ending: Ending,
        recorded: Option<&RecordedStep>,
        last: bool,
    ) -> Result<Option<AgentResponse>, Stop> {
        self.steps += 1;
        self.asked = self.steps;
        let answer = Arc::new(answer);
        let Message::Assistant { content, tool_calls, .. } = &*answer else { return Ok(None) };
        // A provider refuses a message without anything in it.
        if ending.stop.is_whole() || !content.is_empty() {
            self.transcript.add(self.steps, Arc::clone(&answer));
        }
        if !content.is_empty() {
            self.last_text = Some(content.clone());
        }
        let notes = recorded.map(|r| &r.notes[..]).unwrap_or_default();
        if tool_calls.is_empty() {
            let response = match ending.stop.is_whole() {
                true => self.last_answer(content, notes)?,
                false => self.not_whole(content, ending, notes)?,
            };
            match &response {
                // What comes now is a turn of its own, which knows this answer.
                Some(_) if self.run.talks_with_the_user() => self.run.scope.steering.refuse(),
                Some(_) => {}
                None => self.steer(recorded, last).await?,
            }
            return Ok(response);
        }
        self.begun = None;
        let repeated = self.repeats.step(tool_calls);
        let ended = match &repeated {
            Repeated::End(reason) => Some(reason.as_str()),
            Repeated::Fine | Repeated::Warn(_) if self.forced => {
                Some("no tools are offered any more: answer")
            }
            Repeated::Fine | Repeated::Warn(_) => None,
        };
        match self.calls(tool_calls, recorded, ended).await? {
            Some(Over::Refused(reason)) => return Ok(Some(AgentResponse::refused(reason))),
            Some(Over::Left(client_calls)) => {
                self.run.scope.steering.refuse();
                let content = prompt::left_to_client(content, &client_calls);
                return Ok(Some(AgentResponse { client_calls, ..AgentResponse::success(content) }));
            }
            // What comes meanwhile is taken in by whoever talks then.
            Some(Over::Transferred(transfer, words)) => {
                let content = if words.is_empty() { told_of(&transfer) } else { words };
                return Ok(Some(AgentResponse {
                    transfer: Some(transfer),
                    ..AgentResponse::success(content)
                }));
            }
            None => {}
        }
        self.check_end()?;
        match repeated {
            Repeated::Fine => {}
            Repeated::Warn(warning) => self.note(warning, notes),
            Repeated::End(reason) => return Err(Stop::Loop(reason)),
        }
        self.steer(recorded, last).await?;
        Ok(None)
    }

    /// Runs the calls of a step; how the run is over, if one of them ends it.
    async fn calls(
        &mut self,
        requests: &[ToolCallRequest],
        recorded: Option<&RecordedStep>,
        ended: Option<&str>,
    ) -> Result<Option<Over>, Stop> {
        let (run, step) = (self.run, self.steps);
        let effects = recorded.map(|r| &r.effects[..]).unwrap_or_default();
        let limits = &self.agent.definition.limits;
        let bounds = dispatch::Bounds { registry: &self.agent.registry, limits, ended };
        // While others work or decide for it, the run holds no share of the gate.
        let work = async {
            let mut calls = dispatch::plan(bounds, run, step, requests, effects).await;
            if calls.has_work() {
                run.commit().await?;
            }
            let exceeded = calls.exceeded.take();
            Ok::<_, Stop>((dispatch::run_all(bounds, run, step, calls).await?, exceeded))
        };
        let (answers, exceeded) = run.share.wait(work, run.over()).await?;
        let most = run.scope.tool_response_max_bytes;
        let (mut refusal, mut left, mut transferred) = (None, Vec::new(), None);
        for answer in answers {
            *(if answer.status == ToolStatus::Refused { &mut self.refused } else { &mut self.ran }) += 1;
            match answer.ends {
                Some(RunEnd::Refused(reason)) => refusal = refusal.or(Some(reason)),
                Some(RunEnd::LeftToClient) => left.push(answer.request.clone()),
                Some(RunEnd::Transfer { transfer, content }) => {
                    transferred = transferred.or(Some(Over::Transferred(transfer, content)));
                }
                None => {}
            }
            let known = effects.iter().find(|known| known.effect == answer.effect);
            let size = known.and_then(|known| known.size).unwrap_or(answer.content.len());
            let message = Message::Tool {
                call_id: answer.request.call_id,
                name: answer.request.name,
                status: answer.status,
                content: results::shown(answer.content, most, &answer.effect),
                images: self.at_hand(answer.images).await?,
            };
            self.transcript.add_result(step, answer.effect, size, Arc::new(message));
        }
        match (refusal, exceeded) {
            (Some(reason), _) => Ok(Some(Over::Refused(reason))),
            (None, _) if transferred.is_some() => Ok(transferred),
            (None, _) if !left.is_empty() => Ok(Some(Over::Left(left))),
            (None, Some(exceeded)) => Err(exceeded.into()),
            (None, None) => Ok(None),
        }
    }

    /// The pictures with their bytes. One whose bytes are gone stays without them.
    async fn at_hand(&self, mut images: Vec<Image>) -> Result<Vec<Image>, Stop> {
        for image in images.iter_mut().filter(|image| image.data.is_none()) {
            image.data = self.run.scope.journal.image(image.hash.clone()).await?.map(Arc::from);
        }
        Ok(images)
    }

    /// Takes in what came meanwhile, between two steps: further messages of the user, of the root, and what whoever spawned
    /// the run sends it. That is what an earlier process took in here, or else what waits.
    async fn steer(&mut self, recorded: Option<&RecordedStep>, last: bool) -> Result<(), Stop> {
        let steered = recorded.iter().flat_map(|recorded| &recorded.steered).map(|(_, message)| message);
        let taken: Vec<_> =
            steered.chain(recorded.iter().flat_map(|recorded| &recorded.given)).cloned().collect();
        // What the records go on after was decided by then. Without a further step nobody could answer.
        let open = last && taken.is_empty() && self.run.budget.may_step(self.steps).is_ok();
        for message in taken {
            self.transcript.add(self.steps, Arc::new(message));
        }
        if !open {
            return Ok(());
        }
        if !self.run.talks_with_the_user() {
            return self.take_inputs().await;
        }
        for steered in self.run.scope.steering.take() {
            if let Some(source) = &steered.strangers {
                self.run.tainted_by(source);
            }
            let message = Message::User { content: steered.text };
            self.run.record(Entry::Steered {
                invocation: self.run.id.clone(),
                step: self.steps,
                turn: steered.turn,
                message: message.clone(),
            });
            self.transcript.add(self.steps, Arc::new(message));
        }
        Ok(())
    }

    /// Takes in what whoever spawned the run sends it, and what people tell it. These hear that it was read once it is kept.
    async fn take_inputs(&mut self) -> Result<(), Stop> {
        let (run, mut of_people) = (self.run, Vec::new());
        for Input { effect, text, by_a_person, .. } in run.scope.spawned.take_inputs(&run.id) {
            let message = Message::User { content: text };
            of_people.extend(by_a_person.then(|| effect.clone()));
            run.record(Entry::Note {
                invocation: run.id.clone(),
                step: self.steps,
                message: message.clone(),
                given_by: Some(effect),
            });
            self.transcript.add(self.steps, Arc::new(message));
        }
        if !of_people.is_empty() {
            run.commit().await?;
            run.scope.spawned.have_read(&run.id, of_people.into_iter());
        }
        Ok(())
    }

    /// Adds a message of the loop's own, and records it unless an earlier process did.
    pub(super) fn note(&mut self, content: String, recorded: &[Message]) {
        let message = Message::User { content };
        if recorded.is_empty() {
            self.run.record(Entry::Note {
                invocation: self.run.id.clone(),
                step: self.steps,
                message: message.clone(),
                given_by: None,
            });
        }
        self.transcript.add(self.steps, Arc::new(message));
    }

    /// An answer without tool calls is the last, unless it is JSON that needs one repair.
    fn last_answer(&mut self, content: &str, notes: &[Message]) -> Result<Option<AgentResponse>, Stop> {
        if is_blank(content) {
            let message = format!("model `{}` gave an empty answer", self.agent.model.profile().name);
            return Err(Stop::Model(ModelFault::fatal(FailureClass::Model, message)));
        }
        let joined = self.begun.take().map(|begun| begun.joined(content));
        let content = joined.as_deref().unwrap_or(content);
        let wants_json = self.agent.definition.output.as_ref().is_some_and(|o| o.format == Format::Json);
        if !wants_json {
            return Ok(Some(AgentResponse::success(content)));
        }
        match self.json(content) {
            Ok(json) => Ok(Some(AgentResponse::success(json))),
            Err(faults) if self.repaired => {
                let message =
                    format!("the answer is not the JSON that is needed, after one repair: {faults}");
                Err(Stop::Model(ModelFault::fatal(FailureClass::Output, message)))
            }
            Err(faults) => {
                self.repaired = true;
                self.note(prompt::repair(&faults), notes);
                Ok(None)
            }
        }
    }

    /// The JSON of an answer, without the fence that models like to put around it.
    fn json(&self, content: &str) -> Result<String, String> {
        let text = content.trim();
        let text = text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).unwrap_or(text);
        let text = text.strip_suffix("```").unwrap_or(text).trim();
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Some(schema) = &self.agent.shared.output_schema else { return Ok(text.to_owned()) };
        long_work::over(text.len(), || schema.refusal(&value)).map_or_else(|| Ok(text.to_owned()), Err)
    }
}
