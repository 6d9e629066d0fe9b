//! What a [`FakeHost`](super::FakeHost) has seen, and what it was told to answer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    task::Waker,
};

use serde_json::Value;

use crate::{
    AgentResponse, Fault, ToolName,
    wire::{
        BusMessage, ControlCall, InvokeAgent, Log, NotifyUser, ProcessOutput, RunAgent, RunProcess, Submit,
    },
};

#[derive(Default)]
pub(super) struct Record {
    pub(super) logs: Vec<Log>,
    pub(super) emitted: Vec<(String, Value)>,
    pub(super) submitted: Vec<Submit>,
    pub(super) notified: Vec<NotifyUser>,
    pub(super) progress: Vec<String>,
    pub(super) restarts: Vec<String>,
    pub(super) control: Vec<ControlCall>,
    pub(super) tool_calls: Vec<(ToolName, Value)>,
    pub(super) agent_runs: Vec<RunAgent>,
    pub(super) own_tool_results: Vec<Result<String, Fault>>,
    pub(super) agent_calls: Vec<InvokeAgent>,
    pub(super) processes: Vec<RunProcess>,
    pub(super) tools_changed: u32,
    pub(super) closed: bool,
    /// Why an answer of the test's could not be made.
    pub(super) failed: Option<String>,
    pub(super) answers: Answers,
    pub(super) subscriptions: BTreeMap<u64, Reader>,
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
}

/// An answer that is made when it is asked for.
pub(super) type Prepared<A, T> = Box<dyn FnOnce(&A) -> Result<T, Fault> + Send>;

/// What a run of the loop does: calls of the extension's own tools, then an answer.
pub(super) struct ScriptedRun {
    pub(super) calls: Vec<(String, Value)>,
    pub(super) response: AgentResponse,
}

/// The reading end of a subscription.
pub(super) struct Reader {
    pub(super) topic: String,
    pub(super) ready: VecDeque<BusMessage>,
    pub(super) ended: bool,
    pub(super) waker: Option<Waker>,
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

    pub(super) fn publish(&mut self, topic: &str, payload: Value) -> Vec<Waker> {
        let mut woken = Vec::new();
        for reader in self.subscriptions.values_mut().filter(|reader| reader.topic == topic && !reader.ended)
        {
            reader.ready.push_back(BusMessage {
                topic: topic.to_owned(),
                payload: payload.clone(),
                correlation_id: None,
                id: None,
                skipped: 0,
            });
            woken.extend(reader.waker.take());
        }
        woken
    }
}
