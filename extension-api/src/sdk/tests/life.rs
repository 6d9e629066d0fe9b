//! From `describe` before `initialize` to `close`.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use drupe_extension_abi::{CallHeader, ExtensionBox, Reply};
use serde_json::json;

use super::{message, poll_once, started};
use crate::{
    prelude::*,
    sdk::export,
    testing::{FakeHost, Harness, block_on},
    wire::{Description, Initialize, PAYLOAD_VERSION, op},
};

/// Everything at once.
struct Whole {
    host: Host,
    stopped: AtomicBool,
    generation: AtomicU32,
    _held: Option<Arc<()>>,
}

impl Extension for Whole {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        host.info("initialized");
        Ok(Whole { host, stopped: false.into(), generation: 0.into(), _held: None })
    }

    async fn stop(&self) -> Result<(), Fault> {
        self.stopped.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn health(&self) -> Result<(), Fault> {
        match self.stopped.load(Ordering::Relaxed) {
            true => Err(Fault::new(FaultCode::Unavailable, "stopped")),
            false => Ok(()),
        }
    }
}

impl ToolProvider for Whole {
    fn tools(&self) -> Vec<Tool<Self>> {
        let generation = self.generation.load(Ordering::Relaxed);
        assert!(generation < 2, "no more tools");
        vec![Tool::new(format!("whole_{generation}"), "Moves on.", Whole::move_on).idempotent().weight(3)]
    }
}

impl Channel for Whole {
    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        Ok(Delivery { remote_id: Some(format!("remote-{}", message.delivery)) })
    }
}

impl Service for Whole {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        shutdown.await;
        self.host.info("the service ends");
        Ok(())
    }
}

impl Scheduler for Whole {
    fn schedules(&self) -> Vec<Schedule> {
        vec![Schedule::new("daily", "0 8 * * *")]
    }

    async fn execute(&self, name: String) -> Result<Option<String>, Fault> {
        Ok((name == "daily").then(|| "good morning".to_owned()))
    }
}

impl AgentProvider for Whole {
    fn descriptor(&self) -> AgentDescriptor {
        AgentDescriptor {
            id: AgentId::from(self.host.id().clone()),
            name: "Whole".to_owned(),
            description: "Echoes.".to_owned(),
            integration_mode: IntegrationMode::Tool,
        }
    }

    async fn invoke(&self, task: String, _: AgentInvocationContext, _: Call) -> AgentResponse {
        AgentResponse::success(task)
    }
}

impl ContextProvider for Whole {
    async fn context(&self, turn: Turn) -> Result<Option<ContextText>, Fault> {
        Ok(Some(ContextText { text: format!("heard: {}", turn.message), priority: 1, untrusted: false }))
    }
}

impl Hook for Whole {
    fn points(&self) -> Vec<HookPoint> {
        vec![HookPoint::BeforeTool]
    }

    async fn on(&self, call: HookCall) -> Result<HookVerdict, Fault> {
        Ok(match call.facts["tool"] == "forbidden" {
            true => HookVerdict::Block { reason: "forbidden".to_owned() },
            false => HookVerdict::Continue,
        })
    }
}

crate::abilities!(Whole: Tool, Channel, Service, Scheduler, Agent, Context, Hook);

impl Whole {
    async fn move_on(&self, _: NoInput, _: Call) -> Result<u32, Fault> {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        self.host.tools_changed().await?;
        Ok(generation)
    }
}

/// Has nothing but a life.
struct Bare;

impl Extension for Bare {
    async fn initialize(_: Host) -> Result<Self, Fault> {
        Ok(Bare)
    }
}

impl Service for Bare {
    async fn run(&self, _: Shutdown) -> Result<(), Fault> {
        Ok(())
    }
}

crate::abilities!(Bare: Service);

fn raw(extension: &ExtensionBox, operation: &str, payload: &[u8]) -> Result<(), Fault> {
    let header = CallHeader { call_id: 1, deadline_ms: 0, parent_token: "".into(), trace: "".into() };
    let reply = block_on(extension.call(header, operation.into(), payload.to_vec().into()));
    match reply.status {
        Reply::OK => Ok(()),
        _ => Err(serde_json::from_slice(&reply.body).expect("a fault")),
    }
}

fn given() -> Vec<u8> {
    let given = json!({"id": "bare", "data_folder": "/d", "folder": "/f", "workspace": "/w", "later": 1});
    assert!(serde_json::from_value::<Initialize>(given.clone()).is_ok());
    given.to_string().into_bytes()
}

#[test]
fn before_initialize_it_describes_what_the_code_can_do_and_does_nothing() {
    let host = FakeHost::default();
    let extension = export::open::<Whole>(host.table());
    let description: Description = serde_json::from_slice(&extension.describe()).expect("a description");
    assert_eq!(
        description.capabilities,
        ["tool", "channel", "service", "scheduler", "agent", "context", "hook"]
    );
    assert_eq!(description.payload_version, PAYLOAD_VERSION);
    assert!(description.tools.is_empty() && description.agent.is_none());
    for operation in [op::START, op::STOP, op::HEALTH, op::CHANNEL_START, op::SERVICE_RUN] {
        message(raw(&extension, operation, b"null"), FaultCode::Unavailable);
    }
    assert!(host.logs().is_empty());
}

#[test]
fn after_initialize_it_describes_tools_agent_schedules_and_hooks() {
    let description = started::<Whole>().describe().expect("a description");
    assert_eq!(description.tools.len(), 1);
    assert_eq!(description.tools[0].name.as_str(), "whole_0");
    assert_eq!(description.tools[0].annotations.weight, 3);
    assert_eq!(description.agent.map(|agent| agent.id.to_string()), Some("test".to_owned()));
    assert_eq!(description.schedules[0].name, "daily");
    assert_eq!(description.hooks, [HookPoint::BeforeTool]);
}

#[test]
fn an_unknown_operation_or_a_missing_capability_is_unsupported() {
    let host = FakeHost::default();
    let extension = export::open::<Bare>(host.table());
    message(raw(&extension, "telepathy.read", b"null"), FaultCode::Unsupported);
    raw(&extension, op::INITIALIZE, &given()).expect("it initializes");
    for operation in [
        op::TOOL_CALL,
        op::TOOL_LOOKUP,
        op::CHANNEL_START,
        op::CHANNEL_SEND,
        op::SCHEDULER_EXECUTE,
        op::AGENT_INVOKE,
        op::CONTEXT_GET,
        op::HOOK_ON,
    ] {
        message(raw(&extension, operation, b"null"), FaultCode::Unsupported);
    }
    raw(&extension, op::SERVICE_RUN, b"null").expect("it has a service");
}

#[test]
fn a_payload_that_cannot_be_read_is_invalid_and_initialize_happens_once() {
    let host = FakeHost::default();
    let extension = export::open::<Bare>(host.table());
    assert!(message(raw(&extension, op::INITIALIZE, b"{"), FaultCode::Invalid).contains("`initialize`"));
    raw(&extension, op::INITIALIZE, &given()).expect("it initializes");
    assert!(message(raw(&extension, op::INITIALIZE, &given()), FaultCode::Invalid).contains("`bare`"));
}

#[test]
fn each_capability_reaches_its_trait() {
    let whole = started::<Whole>();
    block_on(async {
        let part = || ChannelStream {
            session: SessionId::new("s").expect("an id"),
            address: None,
            message: None,
            part: StreamPart::Begin,
        };
        let sent = OutboundMessage {
            kind: OutboundKind::Notice,
            delivery: "d1".to_owned(),
            session: part().session,
            address: None,
            text: "hello".to_owned(),
            file: None,
        };
        assert_eq!(whole.channel_start().await, Ok(()));
        let delivery = whole.channel_send(sent).await.expect("a delivery");
        assert_eq!(delivery.remote_id.as_deref(), Some("remote-d1"));
        message(whole.channel_stream(part()).await, FaultCode::Unsupported);
        assert_eq!(whole.execute("daily").await, Ok(Some("good morning".to_owned())));
        assert_eq!(whole.execute("other").await, Ok(None));
        assert_eq!(whole.invoke("hello").await, Ok(AgentResponse::success("hello")));
        let context = whole.context_for("hi").await.expect("a context");
        assert_eq!(context.map(|context| context.text).as_deref(), Some("heard: hi"));
        let ask = |tool| HookCall { point: HookPoint::BeforeTool, facts: json!({ "tool": tool }) };
        assert_eq!(whole.hook(ask("kv_get")).await, Ok(HookVerdict::Continue));
        assert!(matches!(whole.hook(ask("forbidden")).await, Ok(HookVerdict::Block { .. })));
    });
}

#[test]
fn stop_fires_the_shutdown_signal_and_ends_the_service() {
    let whole = started::<Whole>();
    let mut service = pin!(whole.run_service());
    assert!(poll_once(service.as_mut()).is_pending());
    block_on(whole.stop()).expect("it stops");
    assert_eq!(block_on(service), Ok(()));
    let health = block_on(whole.health()).expect("a health");
    assert_eq!((health.ok, health.detail.as_deref()), (false, Some("stopped")));
}

#[test]
fn tools_that_changed_are_described_anew_and_a_panic_keeps_those_of_before() {
    let whole = started::<Whole>();
    let names = || -> Vec<String> {
        let described = whole.describe().expect("a description");
        described.tools.iter().map(|tool| tool.name.to_string()).collect()
    };
    assert_eq!(block_on(whole.call("whole_0", json!({}))), Ok("0".to_owned()));
    assert_eq!((names(), whole.host().tools_changed()), (vec!["whole_1".to_owned()], 1));
    message(block_on(whole.call("whole_9", json!({}))), FaultCode::NotFound);
    assert_eq!(block_on(whole.call("whole_1", json!({}))), Ok("1".to_owned()));
    assert_eq!(names(), ["whole_1"]);
    // A turn that was offered it goes on.
    assert_eq!(block_on(whole.call("whole_0", json!({}))), Ok("2".to_owned()));
    assert!(whole.host().logs().iter().any(|line| line.contains("the tools stay as they were")));
}

/// Tells by a count whether its state lives, and waits in a task.
struct Held {
    _state: Counted,
}

struct Counted(Host);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.info("state dropped");
    }
}

impl Extension for Held {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let counted = Counted(host.clone());
        host.spawn(async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            counted.0.info("never");
        })?;
        Ok(Held { _state: Counted(host) })
    }
}

impl ToolProvider for Held {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![Tool::new("held_wait", "Waits on tokio's clock.", Held::wait).read_only()]
    }
}

impl Held {
    async fn wait(&self, _: NoInput, _: Call) -> Result<&'static str, Fault> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok("waited")
    }
}

crate::abilities!(Held: Tool);

#[test]
fn tokio_works_wherever_the_kernel_polls() {
    assert_eq!(block_on(started::<Held>().call("held_wait", json!({}))), Ok("waited".to_owned()));
}

#[test]
fn close_drops_the_state_gives_the_kernel_back_and_refuses_what_comes_after() {
    let held = started::<Held>();
    held.close();
    assert_eq!(held.host().logs(), ["info: state dropped"]);
    assert!(held.host().is_closed());
    message(block_on(held.call("held_wait", json!({}))), FaultCode::Unavailable);
    held.close();
}

#[test]
fn close_wakes_whoever_waits_for_the_shutdown_signal() {
    let whole = started::<Whole>();
    let mut service = pin!(whole.run_service());
    assert!(poll_once(service.as_mut()).is_pending());
    whole.close();
    assert_eq!(block_on(service), Ok(()));
}

/// An agent that calls itself otherwise, with tools that cannot be.
struct Wrong;

impl Extension for Wrong {
    async fn initialize(_: Host) -> Result<Self, Fault> {
        Ok(Wrong)
    }
}

impl AgentProvider for Wrong {
    fn descriptor(&self) -> AgentDescriptor {
        AgentDescriptor {
            id: AgentId::new("somebody_else").expect("an id"),
            name: String::new(),
            description: String::new(),
            integration_mode: IntegrationMode::Tool,
        }
    }

    async fn invoke(&self, _: String, _: AgentInvocationContext, _: Call) -> AgentResponse {
        AgentResponse::refused("no")
    }
}

crate::abilities!(Wrong: Agent);

#[test]
fn an_agent_bears_the_id_of_its_extension() {
    let said = message(block_on(Harness::<Wrong>::start(json!({}))), FaultCode::Invalid);
    assert!(said.contains("`somebody_else`") && said.contains("`test`"), "{said}");
}
