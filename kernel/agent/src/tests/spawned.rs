//! Agents that work beside the run that spawned them.

mod faults;
mod models;

use std::{sync::Arc, time::Duration};

use drupe_extension_api::{EffectClass, Message, ToolStatus, TurnId};
use serde_json::{Value, json};

use super::*;
use crate::*;

/// The handle of what the root spawns in that step with that call.
fn handle(step: u32, index: u32) -> String {
    let turn = TurnId::new("s").expect("valid");
    crate::spawned::handle(&ids::effect(&turn, &ids::root_invocation(&turn), step, index))
}

fn spawn(agent: &str, task: &str) -> (&'static str, String) {
    ("spawn_agent", json!({"agent": agent, "task": task}).to_string())
}

fn wait(handles: &[String]) -> (&'static str, String) {
    ("wait_agent", json!({"handles": handles}).to_string())
}

fn send(handle: &str, text: &str) -> (&'static str, String) {
    ("send_input", json!({"handle": handle, "text": text}).to_string())
}

fn close(handle: &str) -> (&'static str, String) {
    ("close_agent", json!({"handle": handle}).to_string())
}

fn calls(all: &[(&str, String)]) -> Reply {
    let all: Vec<(&str, &str)> = all.iter().map(|(name, params)| (*name, params.as_str())).collect();
    call(&all)
}

/// A root that has `sub` as an agent, and the tools by which it spawns; and what was seen.
fn with_sub(root: &[Reply], sub: &[Reply], tools: Vec<Arc<Registered>>) -> Case {
    let model = Arc::new(Plays::new(&[("main", root), ("sub", sub), ("main-inline", sub)]));
    let agent = looping(definition("sub"), &model, tools.clone());
    let own = spawn_agent::tools().into_iter().chain([as_tool(&agent)]).chain(tools);
    Case::new(looping(definition("main"), &model, own), &model)
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

#[tokio::test(start_paused = true)]
async fn those_that_are_spawned_work_at_the_same_time_and_are_waited_for() {
    let sleeps = Fake::new("sleeps", Does::Sleeps(10_000)).registered();
    let root = [
        calls(&[spawn("sub", "one"), spawn("sub", "two")]),
        calls(&[wait(&[handle(1, 0), handle(1, 1)])]),
        say("done"),
    ];
    let sub = [call(&[("sleeps", "{}")]), say("a part")];
    let seen = with_sub(&root, &sub, vec![sleeps]).run().await;
    assert_eq!(seen.response.content, "done");
    assert!(seen.elapsed < Duration::from_secs(11), "{:?}", seen.elapsed);
    let told = seen.told();
    assert_eq!(read(&told[0]), json!({"handle": handle(1, 0), "agent": "sub"}));
    let agents = read(&told[2])["agents"].clone();
    for at in [0, 1] {
        assert_eq!((&agents[at]["state"], &agents[at]["status"]), (&json!("done"), &json!("ok")), "{agents}");
        assert_eq!(agents[at]["result"]["content"], "a part", "{agents}");
    }
    // Both calls of the tool, those of the two agents, and the three of the root.
    assert_eq!((seen.spend.invocations, seen.spend.tool_calls, seen.spend.turns), (3, 7, 7));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_any_goes_on_with_the_first_and_a_wait_has_an_end() {
    let sleeps = Fake::new("sleeps", Does::Sleeps(10_000)).registered();
    let both = [handle(1, 0), handle(1, 1)];
    let any = ("wait_agent", json!({"handles": both, "mode": "any"}).to_string());
    let short = ("wait_agent", json!({"handles": [handle(1, 0)], "timeout_ms": 50}).to_string());
    let quick = ("spawn_agent", json!({"instructions": "x", "task": "quick"}).to_string());
    let root = [calls(&[spawn("sub", "slow"), quick]), calls(&[any]), calls(&[short]), say("done")];
    let model = Arc::new(Plays::new(&[
        ("main", &root),
        ("sub", &[call(&[("sleeps", "{}")]), say("slow")]),
        ("main-inline", &[say("quick")]),
    ]));
    let agent = looping(definition("sub"), &model, [sleeps]);
    let own = spawn_agent::tools().into_iter().chain([as_tool(&agent)]);
    let seen = Case::new(looping(definition("main"), &model, own), &model).run().await;
    let told = seen.told();
    let states = |text: &str| {
        read(text)["agents"]
            .as_array()
            .expect("agents")
            .iter()
            .map(|a| a["state"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(states(&told[2]), ["working", "done"]);
    assert_eq!((states(&told[3]), &read(&told[3])["timed_out"]), (vec![json!("working")], &json!(true)));
    // What it has not waited for is cancelled when it answers.
    assert!(seen.elapsed < Duration::from_secs(2), "{:?}", seen.elapsed);
    let cancelled = seen.entries.iter().any(|entry| {
        matches!(entry, Entry::End { response, below: true, .. }
            if response.class == Some(drupe_extension_api::FailureClass::Cancelled))
    });
    assert!(cancelled, "the slow one has an end");
}

#[tokio::test]
async fn whoever_may_not_be_spawned_is_refused_by_a_code() {
    let tools = || Fake::says("own").registered();
    let root = [
        calls(&[
            spawn("nobody", "x"),
            ("spawn_agent", json!({"task": "x"}).to_string()),
            ("spawn_agent", json!({"instructions": "x", "tools": ["foreign"], "task": "x"}).to_string()),
            ("spawn_agent", json!({"instructions": "x", "tools": ["spawn_agent"], "task": "x"}).to_string()),
            ("spawn_agent", json!({"instructions": "x", "detach": true, "task": "x"}).to_string()),
            ("spawn_agent", json!({"agent": "sub", "detach": true, "task": "x"}).to_string()),
            send("a-none", "x"),
            wait(&["a-none".into()]),
        ]),
        calls(&[
            spawn("sub", "1"),
            spawn("sub", "2"),
            spawn("sub", "3"),
            spawn("sub", "4"),
            spawn("sub", "5"),
        ]),
        calls(&[close(&handle(2, 0))]),
        calls(&[send(&handle(2, 0), "more")]),
        say("done"),
    ];
    let hangs = Reply::Hangs(vec![]);
    let seen = with_sub(&root, &[hangs], vec![tools()]).run().await;
    let told = seen.told();
    let begins = [
        "agent_not_found: there is no agent `nobody` for you; yours are sub",
        "give either `agent` or `instructions`",
        "you have no tool `foreign`",
        "you have no tool `spawn_agent`",
        "an agent with `instructions` lives in this turn alone",
        "no agent can outlive this turn",
        "agent_not_found: no agent has the handle `a-none`",
        "agent_not_found: no agent has the handle `a-none`",
    ];
    for (told, begins) in told.iter().zip(begins) {
        assert!(told.starts_with(begins), "{told}");
    }
    let refused: Vec<&String> =
        told[8..13].iter().filter(|told| told.starts_with("limit_reached: 4")).collect();
    assert_eq!(refused.len(), 1, "{told:?}");
    assert_eq!(read(&told[13])["state"], "closed");
    assert!(told[14].starts_with("closed: "), "{}", told[14]);
}

#[tokio::test]
async fn an_agent_that_is_described_has_its_callers_model_and_no_more_than_its_tools() {
    let spawned = json!({"instructions": "Only this.", "tools": ["own"], "task": "x", "context": "known"});
    let root = [calls(&[("spawn_agent", spawned.to_string())]), calls(&[wait(&[handle(1, 0)])]), say("done")];
    let sub = [call(&[("own", "{}"), ("other", "{}"), ("agent_sub", "{}")]), say("inline is done")];
    let tools = vec![Fake::says("own").registered(), Fake::says("other").registered()];
    let seen = with_sub(&root, &sub, tools).run().await;
    let requests = seen.model.requests();
    let asked: Vec<_> = requests.iter().filter(|r| r.agent.id.as_str() == "main-inline").collect();
    let tools: Vec<&str> = asked[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["own", "read_output", "refuse", "update_plan"]);
    assert!(asked[0].system.starts_with("Only this."), "{}", asked[0].system);
    let statuses = asked[1].messages.iter().filter_map(|message| match &**message {
        Message::Tool { status, .. } => Some(*status),
        _ => None,
    });
    let (ok, refused) = (ToolStatus::Ok, ToolStatus::Refused);
    assert_eq!(statuses.collect::<Vec<_>>(), [ok, refused, refused]);
    assert!(seen.told()[1].contains("inline is done"), "{:?}", seen.told());
}

/// What the agent's model was told, of each of its requests the last text of a user.
fn asked(seen: &Seen, agent: &str) -> Vec<String> {
    let requests = seen.model.requests();
    let of = requests.iter().filter(|request| request.agent.id.as_str() == agent);
    let last = |request: &ModelRequest| {
        request.messages.iter().rev().find_map(|message| match &**message {
            Message::User { content } => Some(content.clone()),
            _ => None,
        })
    };
    of.filter_map(last).collect()
}

#[tokio::test(start_paused = true)]
async fn one_that_works_is_told_more_between_two_steps_and_one_that_has_answered_begins_anew() {
    let sleeps = Fake::new("sleeps", Does::Sleeps(1_000)).registered();
    let one = handle(1, 0);
    let root = [
        calls(&[spawn("sub", "count")]),
        calls(&[send(&one, "in French")]),
        calls(&[wait(std::slice::from_ref(&one))]),
        calls(&[send(&one, "and backwards")]),
        calls(&[wait(std::slice::from_ref(&one))]),
        say("done"),
    ];
    let sub = [call(&[("sleeps", "{}")]), say("un, deux")];
    let seen = with_sub(&root, &sub, vec![sleeps]).run().await;
    assert_eq!(seen.response.content, "done");
    let asked = asked(&seen, "sub");
    assert_eq!(asked.len(), 4, "{asked:?}");
    assert_eq!(asked[1], "in French");
    assert_eq!(prompt::task_of(&asked[2]), "and backwards");
    assert!(asked[2].contains("You were asked: count\nYou answered: un, deux"), "{}", asked[2]);
    assert_eq!(seen.spend.invocations, 3);
}

#[tokio::test]
async fn one_that_another_agent_spawned_is_not_ones_own() {
    // The root's first call is `agent_sub`, whose first call spawns.
    let root = [
        calls(&[spawn("sub", "x")]),
        calls(&[("agent_mid", r#"{"task": "touch it"}"#.to_owned())]),
        say("done"),
    ];
    let mid = [calls(&[close(&handle(1, 0))]), say("mid")];
    let model = Arc::new(Plays::new(&[("main", &root), ("mid", &mid), ("sub", &[say("x")])]));
    let sub = looping(definition("sub"), &model, []);
    let mid = looping(definition("mid"), &model, spawn_agent::tools());
    let own = spawn_agent::tools().into_iter().chain([as_tool(&sub), as_tool(&mid)]);
    let seen = Case::new(looping(definition("main"), &model, own), &model).run().await;
    let requests = seen.model.requests();
    let told =
        requests.iter().rfind(|r| r.agent.id.as_str() == "mid").expect("it was asked").messages.clone();
    let refused = |message: &Arc<Message>| matches!(&**message, Message::Tool { content, .. } if content.starts_with("not_yours: "));
    assert!(told.iter().any(refused), "{told:?}");
}

/// A turn with agents that work at the same time, one told more while it works and after, and one closed.
fn whole(world: &Arc<World>, journal: &Arc<MemoryJournal>) -> Case {
    let once = Fake::says("once").class(EffectClass::Once).counted(world, journal).registered();
    let (one, two) = (handle(1, 0), handle(1, 1));
    let root = [
        calls(&[spawn("sub", "one"), spawn("other", "two")]),
        calls(&[send(&one, "more")]),
        calls(&[wait(&[one.clone(), two.clone()])]),
        calls(&[send(&one, "again")]),
        calls(&[wait(std::slice::from_ref(&one)), close(&two)]),
        say("done"),
    ];
    let sub = [call(&[("once", "{}")]), say("a part")];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &sub), ("other", &sub)]));
    let agents = ["sub", "other"].map(|id| as_tool(&looping(definition(id), &model, [once.clone()])));
    let own = spawn_agent::tools().into_iter().chain(agents);
    Case { journal: Arc::clone(journal), ..Case::new(looping(definition("main"), &model, own), &model) }
}

#[tokio::test]
async fn a_crash_after_any_commit_goes_on_with_those_that_worked() {
    let journal = Arc::new(MemoryJournal::default());
    let seen = whole(&Arc::default(), &journal).run().await;
    assert_eq!((seen.response.content.as_str(), seen.spend.invocations), ("done", 4), "{:?}", seen.told());
    let commits = journal.batches().len();
    assert!(commits > 8, "{commits}");
    for (at, checkpoint) in (0..commits).flat_map(|at| [(at, false), (at, true)]) {
        let world = Arc::<World>::default();
        let cut = crashed(&journal, at).await;
        let before: Vec<_> = cut.batches().iter().flat_map(|b| b.entries.clone()).collect();
        let case = whole(&world, &cut);
        let seen = Case { resumed: true, checkpoint, ..case }.run().await;
        assert_eq!(seen.response.content, "done", "after {at} commits: {:?}", seen.told());
        assert_eq!(seen.spend.invocations, 4, "after {at} commits ({checkpoint})");
        // A call of class `once` that may have run is not run again.
        let intended = before.iter().filter_map(|entry| match entry {
            Entry::Intent { effect, class: EffectClass::Once, .. } => Some(effect),
            _ => None,
        });
        let ran = world.runs();
        for effect in intended {
            assert!(ran.iter().all(|(again, _)| again != effect), "after {at} commits: {effect} ran again");
        }
        // Whoever had answered is not asked again.
        let answered = before.iter().filter(|entry| matches!(entry, Entry::Answer { .. })).count();
        assert!(seen.model.requests().len() + answered >= 12, "after {at} commits");
        assert!(seen.model.requests().len() + answered <= 12 + 3, "after {at} commits: {answered}");
    }
}
