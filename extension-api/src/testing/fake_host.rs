//! The kernel's side of the boundary, played by a test.

use std::{
    future::ready,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use drupe_extension_abi::{
    self as abi, CallHeader, ExtensionBox, HostBox, Reply,
    abi_stable::{
        sabi_trait::TD_Opaque,
        std_types::{RString, RVec},
    },
    async_ffi::{FfiFuture, FutureExt as _},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    clock::Clock,
    harness,
    record::{Record, ScriptedRun, answer},
};
use crate::{
    AgentResponse, Fault, FaultCode, SessionId, ToolName, ToolResult, TurnId,
    wire::{
        Admission, CallTool, Emit, InvokeAgent, Log, NotifyUser, Progress, RestartRequest, RunAgent, Sender,
        StopConversation, Submit, Submitted, host,
    },
};

/// A kernel that records and answers. Clones are the same host.
#[derive(Clone, Default)]
pub struct FakeHost {
    world: Arc<World>,
}

#[derive(Default)]
struct World {
    record: Mutex<Record>,
    clock: Clock,
    /// The extension, for runs that call its own tools.
    extension: OnceLock<Weak<ExtensionBox>>,
}

/// What the extension did.
impl FakeHost {
    /// The lines of its log, as `level: message`.
    pub fn logs(&self) -> Vec<String> {
        self.record().logs.iter().map(|log| format!("{}: {}", log.level, log.message)).collect()
    }

    /// What it emitted: topics as the extension named them, and messages.
    pub fn emitted(&self) -> Vec<(String, Value)> {
        self.record().emitted.clone()
    }

    /// The inbound messages that it handed over.
    pub fn submitted(&self) -> Vec<Submit> {
        self.record().submitted.clone()
    }

    /// The texts that it showed to the user.
    pub fn notified(&self) -> Vec<String> {
        self.record().notified.iter().map(|notify| notify.text.clone()).collect()
    }

    /// The parts of their output that its calls showed while they went on.
    pub fn progress(&self) -> Vec<String> {
        self.record().progress.clone()
    }

    /// The reasons for which it asked for a restart.
    pub fn restarts(&self) -> Vec<String> {
        self.record().restarts.clone()
    }

    /// Its calls of other extensions' tools.
    pub fn tool_calls(&self) -> Vec<(ToolName, Value)> {
        self.record().tool_calls.clone()
    }

    /// The runs of the loop that it asked for.
    pub fn agent_runs(&self) -> Vec<RunAgent> {
        self.record().agent_runs.clone()
    }

    /// What its own tools gave to scripted runs, in order.
    pub fn own_tool_results(&self) -> Vec<Result<String, Fault>> {
        self.record().own_tool_results.clone()
    }

    /// Its calls of other agents.
    pub fn agent_calls(&self) -> Vec<InvokeAgent> {
        self.record().agent_calls.clone()
    }

    /// How often it said that its tools changed.
    pub fn tools_changed(&self) -> u32 {
        self.record().tools_changed
    }

    /// The conversations that it had end.
    pub fn stopped_sessions(&self) -> Vec<SessionId> {
        self.record().stopped.clone()
    }

    /// Whether it gave the kernel back.
    pub fn is_closed(&self) -> bool {
        self.record().closed
    }

    /// How much time has passed for it.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.world.clock.now())
    }
}

/// What the test says.
impl FakeHost {
    /// Answers the next call of another extension's tool that has no answer yet.
    pub fn answer_tool(&self, name: &str, answer: Result<&str, Fault>) -> &Self {
        let answer = answer.map(str::to_owned);
        self.record().answers.tools.entry(name.to_owned()).or_default().push_back(answer);
        self
    }

    /// Answers the next `run_agent` that has no answer yet.
    pub fn answer_run(&self, response: AgentResponse) -> &Self {
        self.script_run([], response)
    }

    /// Lets the next `run_agent` that has no answer yet call tools of the extension's own, as a model would,
    /// and then answer. A tool that the run was not given is refused.
    pub fn script_run<'a>(
        &self,
        calls: impl IntoIterator<Item = (&'a str, Value)>,
        response: AgentResponse,
    ) -> &Self {
        let calls = calls.into_iter().map(|(tool, params)| (tool.to_owned(), params)).collect();
        self.record().answers.runs.push_back(ScriptedRun { calls, response });
        self
    }

    /// Answers the next call of an agent that has no answer yet.
    pub fn answer_agent(&self, agent: &str, response: AgentResponse) -> &Self {
        self.record().answers.agents.entry(agent.to_owned()).or_default().push_back(response);
        self
    }

    /// Says whether those who write are answered.
    pub fn answer_admission(&self, admission: Admission) -> &Self {
        self.record().answers.admission = Some(admission);
        self
    }

    /// Stops the clock: sleeping takes until [`advance`](Self::advance). Otherwise a sleep ends as soon as
    /// others have run, and turns the clock.
    pub fn hold_clock(&self) {
        self.world.clock.hold();
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.world.clock.advance(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }
}

impl FakeHost {
    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.world.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table that an extension is opened with, for tests that open a library themselves.
    pub fn table(&self) -> HostBox {
        abi::Host_TO::from_value(self.clone(), TD_Opaque)
    }

    pub(super) fn attach(&self, extension: &Arc<ExtensionBox>) {
        // A host that already serves an extension keeps it: a harness opens one.
        let _ = self.world.extension.set(Arc::downgrade(extension));
    }

    /// Operations that answer at once.
    fn answer(&self, token: &str, operation: &str, payload: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut record = self.record();
        match operation {
            host::LOG => record.logs.push(read::<Log>(payload)?),
            host::EMIT => {
                let Emit { topic, payload } = read(payload)?;
                record.emitted.push((topic, payload));
            }
            host::NOTIFY => record.notified.push(read::<NotifyUser>(payload)?),
            host::RESTART => record.restarts.push(read::<RestartRequest>(payload)?.reason),
            host::TOOLS_CHANGED => record.tools_changed += 1,
            host::SUBSCRIBE => return write(&record.subscribe(read(payload)?)),
            host::CONTROL_OPEN => return write(&record.open_stream(&read(payload)?)?),
            host::PROCESS_OPEN => return write(&record.open_process(read(payload)?)?),
            host::SUBMIT => return submit(&mut record, read(payload)?),
            host::PEOPLE_ADMIT => {
                read::<Sender>(payload)?;
                let known = Admission::Known { may_approve: false };
                return write(&record.answers.admission.clone().unwrap_or(known));
            }
            host::SESSION_STOP => {
                record.stopped.push(read::<StopConversation>(payload)?.session);
                return write(&1_u64);
            }
            host::PROGRESS => {
                record.check(token)?;
                let Progress { effect_id: _, text } = read(payload)?;
                record.progress.push(text);
            }
            host::TOOL_CALL => {
                record.check(token)?;
                let CallTool { name, params } = read(payload)?;
                let content = answer(&mut record.answers.tools, name.as_str(), "answer_tool");
                record.tool_calls.push((name, read(params.get().as_bytes())?));
                return write(&ToolResult { content: content??, ..ToolResult::default() });
            }
            host::AGENT_INVOKE => {
                record.check(token)?;
                let call: InvokeAgent = read(payload)?;
                let response =
                    record.answers.agents.get_mut(call.agent.as_str()).and_then(|all| all.pop_front());
                let missing =
                    format!("the test has no answer for `{}`: use `FakeHost::answer_agent`", call.agent);
                record.agent_calls.push(call);
                return write(&response.ok_or_else(|| Fault::not_found(missing))?);
            }
            _ => return Err(Fault::unsupported(operation)),
        }
        write(&())
    }

    /// A run of the loop, as scripted.
    async fn run(&self, token: String, run: RunAgent) -> Result<Vec<u8>, Fault> {
        let script = {
            let mut record = self.record();
            record.check(&token)?;
            record.agent_runs.push(run.clone());
            record.answers.runs.pop_front()
        };
        let missing = "the test has no answer for `run_agent`: use `FakeHost::answer_run`";
        let ScriptedRun { calls, response } = script.ok_or_else(|| Fault::not_found(missing))?;
        for (tool, params) in calls {
            let result = self.own_tool(&run, &tool, params).await;
            self.record().own_tool_results.push(result);
        }
        write(&response)
    }

    async fn own_tool(&self, run: &RunAgent, tool: &str, params: Value) -> Result<String, Fault> {
        if !run.own_tools.iter().any(|own| own.as_str() == tool) {
            return Err(Fault::denied(format!("the run was not given `{tool}`")));
        }
        let Some(extension) = self.world.extension.get().and_then(Weak::upgrade) else {
            return Err(Fault::internal("the extension is gone"));
        };
        let mut context = harness::context();
        context.agent = run.definition.id.clone();
        harness::call_tool(&extension, self, context, tool, &params).await.map(|result| result.content)
    }
}

fn submit(record: &mut Record, message: Submit) -> Result<Vec<u8>, Fault> {
    if let Some(Admission::Waiting { .. } | Admission::Unknown) = record.answers.admission {
        return Err(Fault::new(FaultCode::Unauthenticated, "the test says that nobody is known"));
    }
    let known = record.submitted.iter().position(|m| m.external_id == message.external_id);
    let position = known.unwrap_or(record.submitted.len());
    if known.is_none() {
        record.submitted.push(message);
    }
    let turn = TurnId::new(format!("turn-{}", position + 1))?;
    write(&Submitted { turn, duplicate: known.is_some() })
}

fn read<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, Fault> {
    Ok(serde_json::from_slice(payload)?)
}

fn write(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    Ok(serde_json::to_vec(value)?)
}

fn reply(outcome: Result<Vec<u8>, Fault>) -> Reply {
    match outcome {
        Ok(body) => Reply { status: Reply::OK, body: body.into() },
        Err(fault) => {
            Reply { status: Reply::FAULT, body: serde_json::to_vec(&fault).unwrap_or_default().into() }
        }
    }
}

impl abi::Host for FakeHost {
    fn describe(&self) -> RVec<u8> {
        br#"{"kernel":"fake"}"#.to_vec().into()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let (this, token) = (self.clone(), header.parent_token.into_string());
        match operation.as_str() {
            host::SLEEP => match read::<u64>(&payload) {
                Ok(milliseconds) => {
                    let sleep = self.world.clock.sleep(milliseconds);
                    async move {
                        sleep.await;
                        reply(write(&()))
                    }
                    .into_ffi()
                }
                Err(fault) => ready(reply(Err(fault))).into_ffi(),
            },
            host::HANDLE_NEXT => match read(&payload) {
                Ok(next) => async move { reply(this.next(next).await) }.into_ffi(),
                Err(fault) => ready(reply(Err(fault))).into_ffi(),
            },
            host::HANDLE_PUT => ready(reply(self.put(&payload).and_then(|()| write(&())))).into_ffi(),
            host::HANDLE_CLOSE => {
                let closed = read(&payload).map(|handle| self.close_handle(handle));
                ready(reply(closed.and_then(|()| write(&())))).into_ffi()
            }
            host::AGENT_RUN => match read(&payload) {
                Ok(run) => async move { reply(this.run(token, run).await) }.into_ffi(),
                Err(fault) => ready(reply(Err(fault))).into_ffi(),
            },
            host::CONTROL => {
                ready(reply(read(&payload).and_then(|call| write(&self.control(call)?)))).into_ffi()
            }
            host::HTTP_SEND => {
                ready(reply(read(&payload).and_then(|request| write(&self.send(request)?)))).into_ffi()
            }
            host::EMBED => {
                ready(reply(read(&payload).and_then(|asked| write(&self.embed(&token, asked)?)))).into_ffi()
            }
            host::PROCESS_RUN => {
                ready(reply(read(&payload).and_then(|run| write(&self.run_process(run)?)))).into_ffi()
            }
            operation => ready(reply(self.answer(&token, operation, &payload))).into_ffi(),
        }
    }

    fn close(&self) {
        self.record().closed = true;
    }
}

impl std::fmt::Debug for FakeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeHost").field("logs", &self.logs()).finish_non_exhaustive()
    }
}
