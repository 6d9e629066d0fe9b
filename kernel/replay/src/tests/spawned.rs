//! Agents that worked beside others, replayed each by itself.

use drupe_agent::{
    Answer, Decision, DetachedTask, Detaches, JournalFault, Need, Policy, PolicyCall, Question, ids,
    spawn_agent,
};
use drupe_extension_api::{Fault, InvocationId, Message, control::ApprovalState};
use tokio::sync::Notify;

use super::*;

/// Answers by whose run asks and by how often that was answered.
struct Plays(ModelProfile, fn(&str, &str, usize) -> Option<Vec<ModelEvent>>);

impl Model for Plays {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let answered = request.messages.iter().filter(|one| matches!(&***one, Message::Assistant { .. }));
        let task = request.messages.iter().find_map(|message| match &**message {
            Message::User { content } => Some(content.clone()),
            _ => None,
        });
        let answered = answered.count();
        match self.1(request.agent.id.as_str(), task.unwrap_or_default().trim(), answered) {
            Some(events) => stream::iter(events).boxed(),
            None => stream::pending().boxed(),
        }
    }
}

/// A tool that waits until the other one is called.
struct Door(Arc<ToolSpec>, Arc<Notify>);

impl Tool for Door {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn origin(&self) -> &str {
        "test"
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            match self.0.name.as_str() {
                "waits" => self.1.notified().await,
                _ => self.1.notify_one(),
            }
            Ok(ToolOutput::text("open"))
        })
    }
}

/// Asks a person about one agent, who agrees to the first call and to no other.
struct Asks(Mutex<u32>);

impl Policy for Asks {
    fn decide(&self, call: PolicyCall<'_>) -> Decision {
        match call.spec.name.as_str() {
            "agent_asked" => Decision::Ask(Need {
                why: "it costs".into(),
                patience_ms: 60_000,
                about: None,
                for_taint: false,
            }),
            _ => Decision::Allow { by: None },
        }
    }

    fn answer<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Result<Answer, JournalFault>> {
        let mut asked = self.0.lock().expect("no test panics here");
        *asked += 1;
        let answer = |state| Ok(Answer { state, by: Some("tester".into()), given: None });
        match *asked {
            1 => Box::pin(async move { answer(ApprovalState::Allowed) }),
            2 => Box::pin(async move { answer(ApprovalState::Denied) }),
            // The third question waits until whoever asked is closed.
            _ => Box::pin(std::future::pending()),
        }
    }
}

struct Elsewhere;

impl Detaches for Elsewhere {
    fn detach(&self, task: DetachedTask) -> BoxFuture<'_, Result<SessionId, Fault>> {
        Box::pin(async move {
            match task.task.as_str() {
                "far away" => Ok("s:a-1".parse().expect("an id")),
                _ => Err(Fault::invalid("the id of the session is too long")),
            }
        })
    }
}

/// The root's call at that place.
fn place(step: u32, index: u32) -> drupe_extension_api::EffectId {
    let turn = "t-1".parse().expect("an id");
    ids::effect(&turn, &ids::root_invocation(&turn), step, index)
}

/// The handle of what that call spawned.
fn handle(step: u32, index: u32) -> String {
    format!("a-{}", &ids::effect_of_effect(&place(step, index)).as_str()[2..12])
}

/// The run that answers what that call sent.
fn run_of(step: u32, index: u32) -> InvocationId {
    ids::child_of_effect(&ids::effect_of_effect(&place(step, index)))
}

fn spawn(agent: &str, task: &str) -> (&'static str, Value) {
    ("spawn_agent", json!({"agent": agent, "task": task}))
}

fn send(handle: &str, text: &str) -> (&'static str, Value) {
    ("send_input", json!({"handle": handle, "text": text}))
}

fn root(answered: usize) -> Vec<ModelEvent> {
    let all = [handle(1, 0), handle(1, 1), handle(1, 2), handle(1, 3)];
    match answered {
        0 => calls(&[
            spawn("worker", "first"),
            spawn("asked", "the same"),
            spawn("asked", "the same"),
            ("spawn_agent", json!({"instructions": "Be brief.", "tools": ["alpha"], "task": "short"})),
            spawn("worker", "forever"),
            ("spawn_agent", json!({"agent": "worker", "task": "far away", "detach": true})),
            ("spawn_agent", json!({"agent": "worker", "task": "nowhere", "detach": true})),
            spawn("nobody", "x"),
        ]),
        // The worker waits within its first step.
        1 => calls(&[send(&all[0], "in French"), send(&all[0], "and in verse")]),
        2 => calls(&[("opens", Value::Null)]),
        3 => calls(&[("wait_agent", json!({"handles": all}))]),
        4 => calls(&[send(&all[0], "once more")]),
        5 => calls(&[("wait_agent", json!({"handles": [all[0]]})), spawn("asked", "unanswered")]),
        6 => calls(&[("close_agent", json!({"handle": handle(1, 4)}))]),
        7 => calls(&[("close_agent", json!({"handle": handle(6, 1)}))]),
        // One that nobody waits for ends with the run.
        8 => calls(&[spawn("worker", "forever too"), ("alpha", json!({"n": 1}))]),
        9 => calls(&[("wait_agent", json!({"handles": [handle(9, 0)], "timeout_ms": 20}))]),
        _ => say("done"),
    }
}

fn play(agent: &str, task: &str, answered: usize) -> Option<Vec<ModelEvent>> {
    Some(match (agent, answered) {
        ("main", answered) => root(answered),
        ("worker", _) if task.contains("forever") && answered == 1 => return None,
        ("worker", 0) if task.ends_with("first") => calls(&[("waits", Value::Null)]),
        ("worker", 0) => calls(&[("alpha", json!({"n": 7}))]),
        ("main-inline", 0) => calls(&[("alpha", json!({"n": 2}))]),
        _ => say("a part"),
    })
}

/// A turn whose root has all kinds of agents working beside it.
async fn busy() -> Recorded {
    let (door, model) = (Arc::new(Notify::new()), || Plays(profile(), play));
    let opening = |name: &str| {
        let spec = json!({
            "name": name, "description": "A door.", "annotations": {},
            "input_schema": {"type": "object", "additionalProperties": false},
        });
        let spec: ToolSpec = serde_json::from_value(spec).expect("a tool");
        Registered::new(Arc::new(Door(Arc::new(spec), Arc::clone(&door)))).expect("the schema is valid")
    };
    let agent = |id: &str, tools: Vec<Arc<Registered>>| -> Arc<dyn Agent> {
        let mut builder = RegistryBuilder::default();
        tools.into_iter().for_each(|tool| builder.add(tool).expect("names are unique"));
        Arc::new(LoopAgent::new(
            definition(id, json!({"limits": {"max_active_children": 8, "max_turns": 20}})),
            Arc::new(builder.build()),
            Arc::new(model()),
            id == "main",
        ))
    };
    let as_tool = |id: &str| {
        let below = agent(id, vec![echo("alpha", 1, json!({})), opening("waits")]);
        let name = format!("agent_{id}").parse().expect("a name");
        let tool = AgentTool::new(below, name, "Does a part.".into(), None);
        Registered::new(Arc::new(tool)).expect("the schema is valid")
    };
    let own = [as_tool("worker"), as_tool("asked"), echo("alpha", 1, json!({})), opening("opens")];
    let main = agent("main", spawn_agent::tools().into_iter().chain(own).collect());
    let scope = |scope: &mut TurnScope| {
        scope.policy = Arc::new(Asks(Mutex::default()));
        scope.detaches = Some(Arc::new(Elsewhere));
    };
    recorded(&main, scope, CancellationToken::new()).await
}

#[tokio::test]
async fn all_that_works_beside_a_run_is_replayed_and_gives_the_same_again() {
    let Recorded { entries, mut recording } = busy().await;
    // When one is closed that waits for a person is no more the same than any time.
    let closed = recording.entries.iter_mut().find_map(|entry| match entry {
        Entry::Result { step: 0, content, .. } if content.starts_with("cancelled after ") => Some(content),
        _ => None,
    });
    *closed.expect("one is closed that way") = "cancelled after 12345 ms".into();
    let given: Vec<_> =
        entries.iter().filter(|entry| matches!(entry, Entry::Note { given_by: Some(_), .. })).collect();
    assert_eq!(given.len(), 2, "{}", kinds(&entries));
    let replayed = replay(recording).await;
    assert_eq!(replayed.difference, None, "{}", kinds(&entries));
    // The root; the worker that was asked twice; one that a person agreed to, the described one, and those that were ended.
    assert_eq!(replayed.runs, 7, "{replayed:?}\n{}", kinds(&entries));
    let remarks = replayed.remarks.join("\n");
    assert!(remarks.contains("`worker` is replayed up to where it was closed"), "{remarks}");
    assert!(!remarks.contains("code"), "{remarks}");
}

#[tokio::test]
async fn what_differs_in_a_run_beside_another_is_named_in_that_run() {
    /// What is altered, in whose run, and what differs then.
    type Case = (InvocationId, &'static str, fn(&mut Entry) -> bool, &'static str);
    let result: fn(&mut Entry) -> bool = |entry| match entry {
        Entry::Result { content, step: 1, .. } => {
            *content = "other".into();
            true
        }
        _ => false,
    };
    let text: fn(&mut Entry) -> bool = |entry| match entry {
        Entry::Note { message: Message::User { content }, given_by: Some(_), .. } => {
            *content = "in German".into();
            true
        }
        _ => false,
    };
    let task: fn(&mut Entry) -> bool = |entry| match entry {
        Entry::Begin { task, .. } => {
            *task = "another".into();
            true
        }
        _ => false,
    };
    let answer: fn(&mut Entry) -> bool = |entry| match entry {
        Entry::End { response, .. } => {
            response.content = "well".into();
            true
        }
        _ => false,
    };
    let asked: fn(&mut Entry) -> bool = |entry| match entry {
        Entry::Intent { step: 0, input: Some(input), .. } if input.text.contains("once more") => {
            input.text = "{}".into();
            true
        }
        _ => false,
    };
    let cases: [Case; 7] = [
        (run_of(1, 0), "worker", result, "the request to the model"),
        (run_of(1, 0), "worker", text, "the note"),
        (run_of(1, 0), "worker", task, "the beginning, `task`"),
        (run_of(5, 0), "worker", result, "the request to the model"),
        (run_of(1, 3), "main-inline", result, "the request to the model"),
        (run_of(1, 3), "main-inline", answer, "the end, `response.content`"),
        (ids::root_invocation(&"t-1".parse().expect("an id")), "main", asked, "the tool call, `input"),
    ];
    for (run, agent, change, what) in cases {
        let Recorded { entries, mut recording } = busy().await;
        let changed = recording.entries.iter_mut().filter(|entry| *entry.invocation() == run).any(change);
        assert!(changed, "{agent}, {what}: {}", kinds(&entries));
        let found = replay(recording).await.difference.unwrap_or_else(|| panic!("{agent}: {what}"));
        assert_eq!((&found.run, found.agent.as_str()), (&run, agent), "{what}: {found:?}");
        assert!(found.what.starts_with(what), "{what}: {found:?}");
    }
}

/// The tokens that a turn may use in which what works beside others uses nearly all.
const MOST: u64 = 20_000;

/// Answers so many milliseconds later.
struct Slow(Plays, u64);

impl Model for Slow {
    fn profile(&self) -> &ModelProfile {
        self.0.profile()
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let later = tokio::time::sleep(std::time::Duration::from_millis(self.1));
        let events = self.0.stream(request);
        stream::once(later).flat_map(move |()| stream::empty()).chain(events).boxed()
    }
}

/// A turn of a root that answers slowly, and of a worker that does not.
async fn bounded(play: fn(&str, &str, usize) -> Option<Vec<ModelEvent>>) -> Recorded {
    let agent = |id: &str, ms, tools: Vec<Arc<Registered>>| -> Arc<dyn Agent> {
        let mut builder = RegistryBuilder::default();
        tools.into_iter().for_each(|tool| builder.add(tool).expect("names are unique"));
        let limits = json!({"limits": {"max_tokens_per_invocation": MOST, "max_cost_usd": 0.2}});
        let model = Arc::new(Slow(Plays(profile(), play), ms));
        Arc::new(LoopAgent::new(definition(id, limits), Arc::new(builder.build()), model, id == "main"))
    };
    let worker = agent("worker", 0, vec![]);
    let tool = AgentTool::new(worker, "agent_worker".parse().expect("a name"), "Works.".into(), None);
    let tool = Registered::new(Arc::new(tool)).expect("the schema is valid");
    let main = agent("main", 120, spawn_agent::tools().into_iter().chain([tool]).collect());
    recorded(&main, |_| {}, CancellationToken::new()).await
}

fn spent(text: &str, tokens: u64) -> Vec<ModelEvent> {
    vec![ModelEvent::Text(text.into()), done(StopReason::End, tokens, 10)]
}

#[tokio::test]
async fn what_one_spent_beside_a_request_does_not_leave_less_room_for_that_request() {
    fn play(agent: &str, _: &str, answered: usize) -> Option<Vec<ModelEvent>> {
        Some(match (agent, answered) {
            ("main", 0) => calls(&[spawn("worker", &"much to read ".repeat(100))]),
            // It uses nearly all there is, when the worker has its answer.
            ("main", _) => spent("done", MOST - 300),
            _ => spent("read", 20),
        })
    }
    let Recorded { entries, recording } = bounded(play).await;
    let ended = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::End { response, .. } if response.error.is_none()));
    assert_eq!(ended.count(), 2, "{}", kinds(&entries));
    assert_eq!(replay(recording).await.difference, None, "{}", kinds(&entries));
}

#[tokio::test]
async fn a_run_for_which_others_left_no_room_ends_in_a_replay_where_it_ended() {
    fn play(agent: &str, _: &str, answered: usize) -> Option<Vec<ModelEvent>> {
        let wait = ("wait_agent", json!({"handles": [handle(1, 0), handle(1, 1)]}));
        Some(match (agent, answered) {
            ("main", 0) => calls(&[spawn("worker", "all"), spawn("worker", "little")]),
            ("main", _) => calls(&[wait]),
            _ => spent("read", MOST / 2),
        })
    }
    let Recorded { entries, recording } = bounded(play).await;
    let budget = entries.iter().any(|entry| {
        matches!(entry, Entry::End { response, below: false, .. } if response.class == Some(FailureClass::Budget))
    });
    assert!(budget, "{}", kinds(&entries));
    let replayed = replay(recording).await;
    assert_eq!(replayed.difference, None, "{}", kinds(&entries));
    let remarks = replayed.remarks.join("\n");
    assert!(remarks.contains("`max_tokens_per_invocation` left no room"), "{remarks}");
}

/// A turn of a root that has a boss working beside it, which has workers beside itself; it is cancelled after so long.
async fn nested(
    play: fn(&str, &str, usize) -> Option<Vec<ModelEvent>>,
    cancelled_ms: Option<u64>,
) -> Recorded {
    let agent = |id: &str, tools: Vec<Arc<Registered>>| -> Arc<dyn Agent> {
        let mut builder = RegistryBuilder::default();
        tools.into_iter().for_each(|tool| builder.add(tool).expect("names are unique"));
        let (registry, model) = (Arc::new(builder.build()), Arc::new(Plays(profile(), play)));
        Arc::new(LoopAgent::new(definition(id, json!({})), registry, model, id == "main"))
    };
    let as_tool = |agent: Arc<dyn Agent>| {
        let name = format!("agent_{}", agent.id()).parse().expect("a name");
        Registered::new(Arc::new(AgentTool::new(agent, name, "Works.".into(), None)))
            .expect("the schema is valid")
    };
    let with = |own: Vec<Arc<Registered>>| {
        spawn_agent::tools().into_iter().chain(own).chain([refuse::tool()]).collect()
    };
    let worker = agent("worker", vec![echo("alpha", 1, json!({}))]);
    let boss = agent("boss", with(vec![as_tool(worker)]));
    let main = agent("main", with(vec![as_tool(boss)]));
    let cancel = CancellationToken::new();
    let stops = cancel.clone();
    let cancelling = async move {
        match cancelled_ms {
            Some(ms) => tokio::time::sleep(std::time::Duration::from_millis(ms)).await,
            None => std::future::pending().await,
        }
        stops.cancel();
        std::future::pending().await
    };
    tokio::select! {
        recorded = recorded(&main, |_| {}, cancel) => recorded,
        () = cancelling => unreachable!("it never ends"),
    }
}

/// The run of the boss.
fn boss() -> InvocationId {
    run_of(1, 0)
}

/// The handle of what the boss spawns in its first step, at that place.
fn handle_of_boss(index: u32) -> String {
    let effect = ids::effect(&"t-1".parse().expect("an id"), &boss(), 1, index);
    format!("a-{}", &ids::effect_of_effect(&effect).as_str()[2..12])
}

fn work(agent: &str, task: &str, answered: usize) -> Option<Vec<ModelEvent>> {
    Some(match (agent, answered) {
        ("boss", 0) => calls(&[spawn("worker", "quick"), spawn("worker", "forever")]),
        ("boss", 1) => calls(&[("wait_agent", json!({"handles": [handle_of_boss(0)], "mode": "any"}))]),
        ("boss", _) => say("led"),
        (_, 0) => calls(&[("alpha", json!({"n": 3}))]),
        _ if task.ends_with("forever") => return None,
        _ => say("worked"),
    })
}

fn waits_for_the_boss(agent: &str, task: &str, answered: usize) -> Option<Vec<ModelEvent>> {
    match (agent, answered) {
        ("main", 0) => Some(calls(&[spawn("boss", "lead")])),
        ("main", 1) => Some(calls(&[("wait_agent", json!({"handles": [handle(1, 0)]}))])),
        ("main", _) => Some(say("done")),
        _ => work(agent, task, answered),
    }
}

fn is_cancelled(agent: &str, task: &str, answered: usize) -> Option<Vec<ModelEvent>> {
    match (agent, answered) {
        ("boss", 2) => None,
        _ => waits_for_the_boss(agent, task, answered),
    }
}

fn closes_the_boss(agent: &str, task: &str, answered: usize) -> Option<Vec<ModelEvent>> {
    match (agent, answered) {
        ("main", 1) => Some(calls(&[("wait_agent", json!({"handles": [handle(1, 0)], "timeout_ms": 50}))])),
        ("main", 2) => Some(calls(&[("close_agent", json!({"handle": handle(1, 0)}))])),
        _ => is_cancelled(agent, task, answered),
    }
}

fn refuses(agent: &str, task: &str, answered: usize) -> Option<Vec<ModelEvent>> {
    match (agent, answered) {
        ("main", 2) => Some(calls(&[("refuse", json!({"reason": "not mine"}))])),
        _ => closes_the_boss(agent, task, answered),
    }
}

#[tokio::test]
async fn agents_beside_agents_end_in_a_replay_where_they_ended() {
    type Case = (&'static str, fn(&str, &str, usize) -> Option<Vec<ModelEvent>>, Option<u64>);
    let cases: [Case; 4] = [
        ("it waits", waits_for_the_boss, None),
        ("it is cancelled", is_cancelled, Some(60)),
        ("it closes", closes_the_boss, None),
        ("it refuses", refuses, None),
    ];
    for (what, play, cancelled) in cases {
        let Recorded { entries, mut recording } = nested(play, cancelled).await;
        let replayed = replay(recording.clone()).await;
        assert_eq!(replayed.difference, None, "{what}: {}", kinds(&entries));
        assert_eq!(replayed.runs, 4, "{what}: {replayed:?}\n{}", kinds(&entries));
        let mut altered = None;
        for entry in &mut recording.entries {
            if let Entry::Result { tool, content, invocation, .. } = entry
                && tool == "alpha"
            {
                *content = "other".into();
                altered.get_or_insert(invocation.clone());
            }
        }
        let found = replay(recording).await.difference.unwrap_or_else(|| panic!("{what}: nothing differs"));
        assert_eq!((Some(found.run), found.agent.as_str()), (altered, "worker"), "{what}");
    }
}
