//! What follows from a model's answer: tool calls, a repair, or the end.

use std::sync::Arc;

use drupe_extension_api::{AgentResponse, FailureClass, Format, Message, ToolCallRequest};

use super::{Progress, Stop, repeats::Repeated};
use crate::{
    dispatch,
    journal::{Entry, RecordedEffect},
    model::ModelFault,
    prompt, results,
};

impl Progress<'_> {
    /// Acts on an answer; the response, if it was the last. `effects` and `notes` are what an earlier process
    /// recorded after it.
    pub(super) async fn answered(
        &mut self,
        answer: Message,
        effects: &[RecordedEffect],
        notes: &[Message],
    ) -> Result<Option<AgentResponse>, Stop> {
        self.steps += 1;
        let answer = Arc::new(answer);
        self.add(Arc::clone(&answer));
        let Message::Assistant { content, tool_calls, .. } = &*answer else { return Ok(None) };
        if !content.is_empty() {
            self.last_text = Some(content.clone());
        }
        if tool_calls.is_empty() {
            return self.last_answer(content, notes);
        }
        let repeated = self.repeats.step(tool_calls);
        let ended = match &repeated {
            Repeated::End(reason) => Some(reason.as_str()),
            Repeated::Fine | Repeated::Warn(_) => None,
        };
        if let Some(refusal) = self.calls(tool_calls, effects, ended).await? {
            return Ok(Some(AgentResponse::refused(refusal)));
        }
        self.check_end()?;
        match repeated {
            Repeated::Fine => Ok(None),
            Repeated::Warn(warning) => {
                self.note(warning, notes);
                Ok(None)
            }
            Repeated::End(reason) => Err(Stop::Loop(reason)),
        }
    }

    /// Runs the calls of a step; the reason, if one of them refuses the whole task.
    async fn calls(
        &mut self,
        requests: &[ToolCallRequest],
        effects: &[RecordedEffect],
        ended: Option<&str>,
    ) -> Result<Option<String>, Stop> {
        self.tool_calls += requests.len();
        let (run, step) = (self.run, self.steps);
        let limits = &self.agent.definition.limits;
        let bounds = dispatch::Bounds { registry: &self.agent.registry, limits, ended };
        // While others work or decide for it, the run holds no share of the gate.
        let work = async {
            let calls = dispatch::plan(bounds, run, step, requests, effects).await?;
            if calls.iter().any(|c| matches!(c.plan, dispatch::Plan::Run { .. })) {
                run.commit().await?;
            }
            dispatch::run_all(bounds, run, step, calls).await
        };
        let answers = run.share.wait(work, run.over()).await?;
        let most = run.scope.tool_response_max_bytes;
        let mut refusal = None;
        for answer in answers {
            refusal = refusal.or(answer.refuse);
            let content = results::shown(&answer.content, most, &answer.effect).into_owned();
            self.add(Arc::new(Message::Tool {
                call_id: answer.request.call_id,
                name: answer.request.name,
                status: answer.status,
                content,
            }));
        }
        Ok(refusal)
    }

    /// Adds a message of the loop's own, and records it unless an earlier process did.
    fn note(&mut self, content: String, recorded: &[Message]) {
        let message = Message::User { content };
        if recorded.is_empty() {
            self.run.record(Entry::Note {
                invocation: self.run.id.clone(),
                step: self.steps,
                message: message.clone(),
            });
        }
        self.add(Arc::new(message));
    }

    /// An answer without tool calls is the last, unless it is JSON that needs one repair.
    fn last_answer(&mut self, content: &str, notes: &[Message]) -> Result<Option<AgentResponse>, Stop> {
        if content.trim().is_empty() {
            let message = format!("model `{}` gave an empty answer", self.agent.model.profile().name);
            return Err(Stop::Model(ModelFault::fatal(FailureClass::Model, message)));
        }
        let wants_json = self.agent.definition.output.as_ref().is_some_and(|o| o.format == Format::Json);
        if !wants_json {
            return Ok(Some(AgentResponse::success(content)));
        }
        match self.json(content) {
            Ok(json) => Ok(Some(AgentResponse::success(json))),
            Err(faults) if self.repaired => {
                let message =
                    format!("the answer is not the JSON that is needed, after one repair: {faults}");
                Err(Stop::Model(ModelFault::fatal(FailureClass::Model, message)))
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
        let faults: Vec<String> = schema.iter_errors(&value).take(3).map(|f| f.to_string()).collect();
        if faults.is_empty() { Ok(text.to_owned()) } else { Err(faults.join("; ")) }
    }
}
