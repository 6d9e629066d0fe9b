//! What is read out of the journal: sessions, results, transcripts.

use drupe_agent::Journal;
use drupe_extension_api::{FailureClass, ResponseStatus};

use super::*;

async fn commit(store: &Store, turn: &TurnId, entries: Vec<Entry>) {
    store.commit(batch_of(turn, entries)).await.unwrap();
}

/// An orchestrator calls two tools, the second of which is an agent; the second is done first.
async fn two_agents(store: &Store) -> TurnId {
    let turn = store.accept(message("s", "1", "hello\nsecond line")).await.unwrap().turn;
    commit(store, &turn, vec![begin("root", "main", None, "hello"), step("root", 1)]).await;
    commit(store, &turn, vec![answer("root", 1, "", &["slow", "agent_sub"])]).await;
    commit(
        store,
        &turn,
        vec![intent("root", 1, 0, EffectClass::Once), intent("root", 1, 1, EffectClass::Pure)],
    )
    .await;
    commit(store, &turn, vec![begin("sub", "sub", Some("root"), "part"), step("sub", 1)]).await;
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    let spend = Spend { usage, ..Spend::default() };
    let end = Entry::End {
        invocation: invocation("sub"),
        response: AgentResponse::refused("no"),
        spend,
        below: true,
    };
    commit(store, &turn, vec![answer("sub", 1, "no", &[]), end]).await;
    commit(store, &turn, vec![result("root", 1, 1, "no")]).await;
    commit(store, &turn, vec![result("root", 1, 0, "slow")]).await;
    let note = Message::User { content: "note".into() };
    commit(
        store,
        &turn,
        vec![Entry::Note { invocation: invocation("root"), step: 1, message: note, given_by: None }],
    )
    .await;
    commit(store, &turn, vec![step("root", 2), answer("root", 2, "done", &[])]).await;
    turn
}

#[tokio::test]
async fn a_transcript_shows_each_run_as_its_model_saw_it() {
    let home = Home::new();
    let store = home.open();
    let turn = two_agents(&store).await;
    let result = store.turn_result(&turn, false).await.unwrap().unwrap();
    let lines: Vec<_> = result
        .transcript
        .iter()
        .map(|entry| match &entry.message {
            Message::User { content } => format!("{} user {content}", entry.agent),
            Message::Assistant { content, tool_calls, .. } => {
                format!("{} assistant {content}{}", entry.agent, tool_calls.len())
            }
            Message::Tool { call_id, name, content, .. } => {
                format!("{} {call_id} {name} {content}", entry.agent)
            }
        })
        .collect();
    let expected = [
        "main user hello",
        "main assistant 2",
        "sub user part",
        "sub assistant no0",
        "main call-slow slow slow",
        "main call-agent_sub agent_sub no",
        "main user note",
        "main assistant done0",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn runs_form_a_tree_in_which_tokens_are_summed_once() {
    let home = Home::new();
    let store = home.open();
    let turn = two_agents(&store).await;
    let runs = store.turn_result(&turn, false).await.unwrap().unwrap().invocations;
    let seen: Vec<_> = runs
        .iter()
        .map(|r| (r.agent.as_str(), r.parent.as_ref().map(|p| p.as_str()), r.depth, r.status, r.tokens_used))
        .collect();
    let root = invocation("root");
    let expected =
        [("main", None, 0, None, 45), ("sub", Some(root.as_str()), 1, Some(ResponseStatus::Refused), 15)];
    assert_eq!(seen, expected);
    assert_eq!((runs[0].turns_used, runs[0].usage.total()), (2, 30));
}

#[tokio::test]
async fn a_result_tells_how_the_turn_ended() {
    let home = Home::new();
    let store = home.open();
    let turn = two_agents(&store).await;
    let running = store.turn_result(&turn, false).await.unwrap().unwrap();
    assert_eq!(
        (running.status, running.content.as_str(), running.input.as_str()),
        (None, "", "hello\nsecond line")
    );

    let spend = Spend { tool_calls: 2, invocations: 2, cost_usd: Some(0.1 + 0.2), ..Spend::default() };
    let response = AgentResponse::error(FailureClass::Budget, "no tokens left");
    let end = Entry::End { invocation: invocation("root"), response: response.clone(), spend, below: false };
    let diagnostics = vec!["a remark".to_owned()];
    let done = TurnDone {
        response,
        spend,
        diagnostics,
        outbox: None,
        copies: Vec::new(),
        last: batch_of(&turn, vec![end]),
        ..done(&turn, "")
    };
    assert_eq!(store.finish_turn(done).await.unwrap(), None);

    let result = store.turn_result(&turn, false).await.unwrap().unwrap();
    assert_eq!((result.status, result.class), (Some(ResponseStatus::Error), Some(FailureClass::Budget)));
    assert_eq!(
        (result.content.as_str(), result.error.as_deref()),
        ("no tokens left", Some("no tokens left"))
    );
    assert_eq!((result.spend, result.diagnostics), (spend, vec!["a remark".to_owned()]));
    assert_eq!(result.invocations[0].status, Some(ResponseStatus::Error));
    assert_eq!(result.trace, turn.to_string());
    assert!(store.due_deliveries().await.unwrap().is_empty());
    assert!(store.turn_result(&TurnId::new("unknown").unwrap(), false).await.unwrap().is_none());
}

#[tokio::test]
async fn sessions_are_listed_by_their_latest_change() {
    let home = Home::new();
    let store = home.open();
    for (id, external_id, text) in [("a", "1", "first\nmore"), ("b", "2", "second"), ("a", "3", "third")] {
        home.clock.advance(1000);
        store.accept(message(id, external_id, text)).await.unwrap();
    }
    let listed = store.sessions().await.unwrap();
    let seen: Vec<_> = listed.iter().map(|s| (s.id.as_str(), s.turn_count, s.title.as_str())).collect();
    assert_eq!(seen, [("a", 2, "first"), ("b", 1, "second")]);
    assert_eq!(listed[0].updated.duration_since(listed[0].created).as_secs(), 2);

    home.clock.advance(1000);
    store.select_agent(&session("b"), Some("helper".parse().unwrap())).await.unwrap();
    store.select_agent(&session("new"), Some("helper".parse().unwrap())).await.unwrap();
    assert!(store.select_agent(&session("new"), None).await.unwrap());
    assert!(
        !store.select_agent(&session("nowhere"), None).await.unwrap(),
        "nothing is made to be given back"
    );
    let listed = store.sessions().await.unwrap();
    let seen: Vec<_> = listed.iter().map(|s| (s.id.as_str(), s.agent.as_ref().map(|a| a.as_str()))).collect();
    assert_eq!(seen, [("new", None), ("b", Some("helper")), ("a", None)]);

    let detail = store.session(&session("a"), 0, false).await.unwrap().unwrap();
    assert_eq!(detail.turns.iter().map(|t| t.input.as_str()).collect::<Vec<_>>(), ["first\nmore", "third"]);
    assert_eq!(detail.last_seq, 0);
    assert!(store.session(&session("unknown"), 0, false).await.unwrap().is_none());
}

#[tokio::test]
async fn a_conversation_is_the_latest_finished_turns() {
    let home = Home::new();
    let store = home.open();
    let mut turns = Vec::new();
    for n in ["1", "2", "3"] {
        let turn = store.accept(message("s", n, &format!("question {n}"))).await.unwrap().turn;
        turns.push(turn.clone());
        home.clock.advance(1);
        let begun = Some(start(&turn, "s", Vec::new()));
        store.finish_turn(TurnDone { start: begun, ..done(&turn, &format!("answer {n}")) }).await.unwrap();
    }
    store.accept(message("s", "4", "question 4")).await.unwrap();
    store.accept(message("t", "5", "elsewhere")).await.unwrap();
    let pair = |n: &str| (format!("question {n}"), format!("answer {n}"));
    let told = async |s: &str, before: Option<&TurnId>, most| {
        let which = ToldTurns { before: before.cloned(), most, ..ToldTurns::default() };
        let told = store.conversation(&session(s), which).await.unwrap();
        told.into_iter().map(|turn| (turn.said, turn.answered)).collect::<Vec<_>>()
    };
    assert_eq!(told("s", None, 2).await, [pair("2"), pair("3")]);
    assert_eq!(told("s", None, 9).await.len(), 3);
    assert!(told("t", None, 9).await.is_empty());
    assert_eq!(told("s", Some(&turns[2]), 9).await, [pair("1"), pair("2")], "as it was when the third began");
    assert!(told("s", Some(&turns[0]), 9).await.is_empty());
}

/// The first answer comes from memory, the second is read.
#[tokio::test]
async fn a_result_that_is_remembered_is_the_one_that_is_read() {
    let home = Home::new();
    let store = home.open();
    let turn = two_agents(&store).await;
    let spend = Spend { tool_calls: 2, cost_usd: Some(0.1 + 0.2), ..Spend::default() };
    let diagnostics = vec!["a remark".to_owned()];
    store.finish_turn(TurnDone { spend, diagnostics, ..done(&turn, "hi") }).await.unwrap();
    let ask = async |brief| serde_json::to_value(store.turn_result(&turn, brief).await.unwrap()).unwrap();
    let (brief, remembered) = (ask(true).await, ask(false).await);
    assert_eq!(remembered["transcript"].as_array().map(Vec::len), Some(8));
    assert_eq!((ask(false).await, ask(true).await), (remembered, brief));
}

/// What is remembered of a turn that waits is what a kernel reads that knows nothing of it.
#[tokio::test]
async fn a_turn_that_waits_is_remembered_as_it_is() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let check = async |what: &str| {
        let of_turn = turn.clone();
        let read = store.read(move |db| crate::turns::queued(db, &of_turn)).await.unwrap();
        assert_eq!(store.queued(&turn).await.unwrap(), read, "{what}");
    };
    check("accepted").await;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    check("begun").await;
    store.select_agent(&session("s"), Some("helper".parse().unwrap())).await.unwrap();
    check("another agent is chosen").await;
    store.finish_turn(done(&turn, "hi")).await.unwrap();
    check("finished").await;
}
