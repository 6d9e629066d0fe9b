//! Explanations of what is no whole turn: sessions, extensions, limits, messages, deliveries, turns that wait.

use drupe_agent::{Chain, Entry, ids};
use drupe_extension_api::{
    AgentRef, AgentResponse, BudgetUse, EventBody, FailureClass, LimitScope, SessionId,
    control::{ConfigValue, Explanation, ExtensionDetail, SessionStatus},
};
use drupe_journal::{DeliveryRow, DueMessage, MessageRow, Origin, TurnRows};
use jiff::Timestamp;
use serde_json::json;

use super::{door::holds, fakes::agent_id, trees::Rows};
use crate::{
    LimitUse, taken_in_by, why_extension, why_limit, why_message, why_session, why_turn, with_taker,
};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn check(told: &Explanation, sentences: &[&str], remedy: Option<&str>, cited: &[(&str, &str)]) {
    assert_eq!(told.sentences, sentences);
    assert_eq!(told.remedy.as_deref(), remedy);
    let rows: Vec<_> = told.cited.iter().map(|row| (row.table.as_str(), row.key.as_str())).collect();
    assert_eq!(rows, cited);
}

/// A turn without runs, at noon.
fn turn(change: impl FnOnce(&mut TurnRows)) -> Explanation {
    let mut rows = Rows::new().0;
    rows.accepted = at("2026-03-01T12:00:00Z");
    rows.started = Some(at("2026-03-01T12:00:02.500Z"));
    change(&mut rows);
    let told = why_turn(&rows, at("2026-03-01T12:01:00Z"));
    holds(&rows, &told);
    told
}

#[test]
fn a_turn_that_waits_says_for_how_long() {
    let told = turn(|rows| (rows.started, rows.starts) = (None, 0));
    check(&told, &["It has not begun: it has waited for 1 min 0 s."], None, &[("turns", "t")]);
}

#[test]
fn a_turn_that_failed_before_anything_ran_says_why() {
    let told = turn(|rows| {
        rows.finished = rows.started;
        rows.response = Some(AgentResponse::error(FailureClass::Config, "there is no agent `haikus`"));
    });
    let said = [
        "It failed before any agent ran: there is no agent `haikus`.",
        "It waited for 2.5 s before it began.",
    ];
    check(
        &told,
        &said,
        Some("correct the configuration or the name that the message gives"),
        &[("turns", "t"); 2],
    );
}

#[test]
fn a_turn_that_was_taken_in_by_another_says_so() {
    let told = turn(|rows| {
        (rows.started, rows.finished) = (None, Some(rows.accepted));
        rows.response = Some(AgentResponse::success("turn t1 took the message in"));
    });
    check(&told, &["No agent ran for it: turn t1 took the message in."], None, &[("turns", "t")]);
}

#[test]
fn what_became_of_a_message_that_was_taken_in_is_what_became_of_the_turn_that_took_it() {
    let mut rows = Rows::new().0;
    assert_eq!(taken_in_by(&rows), None);
    let content = "turn `t-1` took this message in while it ran";
    rows.response = Some(AgentResponse::success(content));
    assert_eq!(taken_in_by(&rows).as_ref().map(|turn| turn.as_str()), Some("t-1"));
    let now = at("2026-03-01T12:01:00Z");
    let mut by = Rows::new().0;
    by.finished = by.started;
    by.response = Some(AgentResponse::error(FailureClass::Model, "the provider refused it"));
    let alone = why_turn(&rows, now);
    let told = with_taker(alone.clone(), &by, now);
    let (before, after) = told.sentences.split_at(alone.sentences.len());
    assert_eq!(before, alone.sentences);
    assert_eq!(after[0], format!("What became of turn `{}`:", by.turn));
    assert!(after[1].contains("the provider refused it"), "{told:#?}");
    assert_eq!(told.remedy.as_deref(), Some(FailureClass::Model.remedy()));
    assert!(told.cited.len() > alone.cited.len());
}

#[test]
fn a_turn_that_a_topic_set_off_names_its_chain() {
    let told = turn(|rows| {
        rows.inbound.origin = Origin::Topic { follower: agent_id("main") };
        rows.inbound.chain = Chain { hops: 2, ancestors: vec![agent_id("a"), agent_id("b")] };
    });
    let said = [
        "It has been running for 57.5 s: so far 0 steps, 0 tokens.",
        "A message on a topic set it off (2 links in its chain, after `a`, `b`).",
        "It waited for 2.5 s before it began.",
    ];
    check(&told, &said, None, &[("turns", "t"); 3]);
}

#[test]
fn what_became_of_an_answer_is_told() {
    let of = |state: &str, attempts: u32, why: Option<&str>, remote_id: Option<&str>| {
        let told = turn(|rows| {
            rows.deliveries = vec![DeliveryRow {
                number: 7,
                channel: "mail".into(),
                state: state.into(),
                attempts,
                why: why.map(Into::into),
                remote_id: remote_id.map(Into::into),
            }];
        });
        assert!(told.cited.iter().any(|row| (row.table.as_str(), row.key.as_str()) == ("outbox", "7")));
        (told.sentences.last().cloned().expect("it says something"), told.remedy)
    };
    let said = |text: &str| (text.to_owned(), None);
    assert_eq!(
        of("sent", 1, None, Some("m-1")),
        said("The answer was sent through `mail` (there it is `m-1`).")
    );
    assert_eq!(of("due", 0, None, None), said("The answer waits to be sent through `mail`."));
    assert_eq!(
        of("due", 2, Some("no route"), None),
        said("The answer waits to be sent again through `mail`, after 2 attempts: no route.")
    );
    assert_eq!(
        of("sending", 1, None, None),
        said("The answer is being sent through `mail`; whether it arrived is not known yet.")
    );
    let (uncertain, remedy) = of("uncertain", 1, Some("drupe ended"), None);
    assert_eq!(uncertain, "The answer may not have reached `mail`, and is not sent again: drupe ended.");
    assert!(remedy.is_some_and(|remedy| remedy.contains("look into `mail`")));
}

#[test]
fn a_session_tells_of_its_latest_turns() {
    let status = SessionStatus {
        handoff: None,
        id: SessionId::new("s").expect("a valid id"),
        created: at("2026-03-01T11:00:00Z"),
        updated: at("2026-03-01T12:00:00Z"),
        turn_count: 3,
        agent: Some(agent_id("haiku")),
        title: "rust".into(),
    };
    let mut rows = Rows::new().0;
    rows.finished = rows.started;
    rows.response = Some(AgentResponse::error(FailureClass::Auth, "no key"));
    let told = why_session(&status, &[rows], at("2026-03-01T12:00:30Z"));
    let said = [
        "The session has 3 turns; something happened in it last 30.0 s ago.",
        "Turn t: It failed before any agent ran: no key.",
        "`haiku` was chosen to answer in it.",
    ];
    check(&told, &said, Some("check the provider's key"), &[("sessions", "s"), ("turns", "t")]);
}

#[test]
fn an_extension_tells_its_state_its_way_there_and_the_way_out() {
    let of = |state: &str, reason: Option<&str>| {
        let detail: ExtensionDetail = serde_json::from_value(json!({
            "id": "words", "version": "0.1.0", "state": state, "reason": reason, "capabilities": [],
            "isolation": null, "source": "/x", "since": "2026-03-01T12:00:00Z", "name": "", "summary": "",
            "description": "", "tools": [], "depends_on": ["base"], "rights": [], "setup_instructions": null,
            "history": [{"time": "2026-03-01T11:00:00Z", "state": "active"},
                        {"time": "2026-03-01T12:00:00Z", "state": state, "reason": reason}],
        }))
        .expect("a detail");
        why_extension(&detail)
    };
    check(
        &of("quarantined", Some("crashed 3 times in `tool.call`")),
        &[
            "`words` is in quarantine since 2026-03-01T12:00:00Z: crashed 3 times in `tool.call`.",
            "At 2026-03-01T12:00:00Z it became quarantined: crashed 3 times in `tool.call`.",
            "At 2026-03-01T11:00:00Z it became active.",
        ],
        Some("replace it, or try it again with `drupe ext release words`"),
        &[
            ("kernel", "extensions/words"),
            ("extension_states", "words/2026-03-01T12:00:00Z"),
            ("extension_states", "words/2026-03-01T11:00:00Z"),
        ],
    );
    assert_eq!(of("skipped", None).sentences[1], "It depends on `base`.");
    for (state, remedy) in [
        ("awaiting_approval", Some("`drupe approvals allow words` lets it work")),
        ("disabled", Some("`drupe ext enable words` turns it on")),
        ("active", None),
    ] {
        assert_eq!(of(state, None).remedy.as_deref(), remedy);
    }
}

#[test]
fn a_limit_tells_who_uses_how_much_of_it_and_when_it_begins_anew() {
    let key = "limits.agent.max_tokens";
    let set = ConfigValue { key: key.into(), value: json!(1_000), origin: "drupe.yaml".into() };
    let of = |agent: &str, used: u64| LimitUse {
        whose: format!("agent `{agent}`"),
        counted: format!("2026-03-01/{agent}"),
        used: BudgetUse {
            limit: key.into(),
            scope: LimitScope::Agent,
            used,
            allowed: 1_000,
            resets: Some(at("2026-03-02T00:00:00Z")),
        },
    };
    let told = why_limit(key, &set, &[of("a", 10), of("b", 1_000)]);
    let anew = "begins anew at 2026-03-02T00:00:00Z";
    let used =
        |number: &str| format!("`{key}`: used {number} of 1,000 tokens by the agent in the day; it {anew}.");
    check(
        &told,
        &[
            &format!("It stops work for agent `b`: {}", used("1,000")),
            &format!("It does not stop work for agent `a`: {}", used("10")),
            &format!("`{key}` is 1,000 tokens, as set by drupe.yaml."),
        ],
        Some(&format!("raise `{key}`, or wait until 2026-03-02T00:00:00Z")),
        &[("usage", "2026-03-01/b"), ("usage", "2026-03-01/a"), ("kernel", &format!("config/{key}"))],
    );
    let unused = why_limit(key, &set, &[]);
    assert_eq!((unused.sentences.len(), unused.remedy), (2, None));
    assert_eq!(unused.sentences[1], "Nothing is counted against it now.");
}

#[test]
fn what_is_no_limit_of_an_amount_says_what_it_does() {
    let of = |key: &str, value: serde_json::Value, said: &str| {
        let set = ConfigValue { key: key.into(), value: value.clone(), origin: "default".into() };
        let is = format!("`{key}` is {value}, as set by default.");
        check(&why_limit(key, &set, &[]), &[&is, said], None, &[("kernel", &format!("config/{key}"))]);
    };
    of(
        "limits.concurrency.turns",
        json!(64),
        "It stops no work: of the turns of all sessions, so many run at the same time; further ones wait.",
    );
    of(
        "limits.concurrency.runs_of_one_agent",
        json!(16),
        "It stops no work: of the runs of any one agent, so many go on at the same time; further ones wait.",
    );
    of(
        "limits.warn_at",
        json!(0.8),
        "It stops no work: when this part of a limit of the day, of a session or of an agent is used, that is told.",
    );
}

#[test]
fn a_message_tells_how_often_it_was_tried_and_what_to_do() {
    let message = DueMessage {
        id: 4,
        subscriber: "agent:poet".into(),
        topic: "notes.added".into(),
        payload: json!({}),
        chain: Chain { hops: 1, ancestors: vec![agent_id("a")] },
        correlation: None,
        attempts: 8,
        published: at("2026-03-01T12:00:00Z"),
    };
    let why = Some("the agent is not there".to_owned());
    let row = MessageRow { message, dead: true, why, due: at("2026-03-01T12:11:00Z") };
    let now = at("2026-03-01T12:10:00Z");
    check(
        &why_message(&row, now),
        &[
            "The message on `notes.added` was given up for `agent:poet` after 8 attempts: the agent is not there.",
            "It was published at 2026-03-01T12:00:00Z, 10 min 0 s ago.",
            "1 link of events led to it, with `a` at work.",
        ],
        Some("mend what it names, then `drupe bus dead retry 4`; `drupe bus dead drop 4` forgets it"),
        &[("deliveries", "4")],
    );
    let told = why_message(&MessageRow { dead: false, ..row.clone() }, now);
    assert_eq!(
        told.sentences[..2],
        [
            "The message on `notes.added` waits for `agent:poet`, after 8 attempts: the agent is not there.",
            "It is tried again at 2026-03-01T12:11:00Z.",
        ]
    );
    assert_eq!(told.remedy, None);
    let overdue = MessageRow { dead: false, due: at("2026-03-01T12:09:00Z"), ..row };
    assert_eq!(why_message(&overdue, now).sentences[1], "It has been due since 2026-03-01T12:09:00Z.");
}

#[test]
fn a_turn_with_a_thousand_remarks_stays_readable() {
    let mut rows = Rows::new();
    let id = ids::root_invocation(&rows.0.turn);
    rows.entry(Entry::Begin {
        invocation: id.clone(),
        agent: agent_id("main"),
        parent: None,
        depth: 0,
        task: "go".into(),
        recipe: None,
    });
    let place = AgentRef { id: agent_id("main"), invocation: id, parent: None, depth: 0 };
    for _ in 0..1_000 {
        let body = EventBody::Diagnostic { code: "notice".into(), message: "the moon is full".into() };
        rows.event(Some(place.clone()), body);
    }
    let told = why_turn(&rows.0, at("2026-03-01T12:00:00Z"));
    holds(&rows.0, &told);
    assert!(told.sentences.len() < 20, "{}", told.sentences.len());
    assert!(
        told.sentences.contains(&"There are 992 more remarks like that.".to_owned()),
        "{:#?}",
        told.sentences
    );
}
