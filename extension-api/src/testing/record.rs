//! What a [`FakeHost`](super::FakeHost) has seen, and what it was told to answer.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde_json::Value;

use super::streams::{FakeProcess, Feed, Input};
use crate::{
    AgentResponse, Fault, SessionId, ToolName,
    wire::{
        Admission, InvokeAgent, Log, NotifyUser, OutwardRequest, OutwardResponse, ProcessOutput, ProcessSpec,
        RunAgent, RunProcess, Submit,
    },
};

#[derive(Default)]
pub(super) struct Record {
    pub(super) logs: Vec<Log>,
    pub(super) emitted: Vec<(String, Value)>,
    pub(super) submitted: Vec<Submit>,
    /// Conversations that were to end.
    pub(super) stopped: Vec<SessionId>,
    pub(super) notified: Vec<NotifyUser>,
    pub(super) progress: Vec<String>,
    pub(super) restarts: Vec<String>,
    /// Methods and parameters.
    pub(super) control: Vec<(String, Value)>,
    pub(super) tool_calls: Vec<(ToolName, Value)>,
    pub(super) agent_runs: Vec<RunAgent>,
    pub(super) own_tool_results: Vec<Result<String, Fault>>,
    pub(super) agent_calls: Vec<InvokeAgent>,
    pub(super) processes: Vec<RunProcess>,
    pub(super) opened: Vec<ProcessSpec>,
    /// The texts of each request for vectors.
    pub(super) embedded: Vec<Vec<String>>,
    pub(super) sent: Vec<OutwardRequest>,
    pub(super) tools_changed: u32,
    pub(super) closed: bool,
    /// Why an answer of the test's could not be made.
    pub(super) failed: Option<String>,
    pub(super) answers: Answers,
    /// Handles that are read, and those that are written to.
    pub(super) feeds: BTreeMap<u64, Feed>,
    pub(super) inputs: BTreeMap<u64, Input>,
    /// Tokens of the calls that live.
    pub(super) tokens: BTreeSet<String>,
    pub(super) next: u64,
}

/// Answers by what they answer, in the order in which they were given.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) control: HashMap<String, VecDeque<Prepared<Value, Value>>>,
    pub(super) tools: HashMap<String, VecDeque<Result<String, Fault>>>,
    pub(super) runs: VecDeque<ScriptedRun>,
    pub(super) agents: HashMap<String, VecDeque<AgentResponse>>,
    pub(super) processes: HashMap<String, VecDeque<Prepared<RunProcess, ProcessOutput>>>,
    pub(super) streams: HashMap<String, VecDeque<Result<Vec<Value>, Fault>>>,
    pub(super) opened: HashMap<String, VecDeque<Result<FakeProcess, Fault>>>,
    pub(super) embeddings: Option<MadeVectors>,
    pub(super) sent: VecDeque<Result<OutwardResponse, Fault>>,
    /// What everybody who writes is; known, where the test says nothing.
    pub(super) admission: Option<Admission>,
}

/// What makes vectors of texts in a test.
pub(super) type MadeVectors = Box<dyn FnMut(&[String]) -> Result<Vec<Vec<f32>>, Fault> + Send>;

/// An answer that is made when it is asked for.
pub(super) type Prepared<A, T> = Box<dyn FnOnce(&A) -> Result<T, Fault> + Send>;

/// What a run of the loop does: calls of the extension's own tools, then an answer.
pub(super) struct ScriptedRun {
    pub(super) calls: Vec<(String, Value)>,
    pub(super) response: AgentResponse,
}

/// The next answer that was given for `name`, else a fault that says how to give one.
pub(super) fn answer<T>(
    answers: &mut HashMap<String, VecDeque<T>>,
    name: &str,
    method: &str,
) -> Result<T, Fault> {
    let missing =
        || Fault::not_found(format!("the test has no answer for `{name}`: use `FakeHost::{method}`"));
    answers.get_mut(name).and_then(VecDeque::pop_front).ok_or_else(missing)
}

impl Record {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Fails unless the token belongs to a call that lives.
    pub(super) fn check(&self, token: &str) -> Result<(), Fault> {
        if self.tokens.contains(token) {
            return Ok(());
        }
        Err(Fault::denied("this is possible only while the call lives that it is made for"))
    }
}
