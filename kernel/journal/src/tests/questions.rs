//! Questions about tool calls: asked with the commit that holds them, settled once.

use drupe_agent::{Answer, Journal, Question};
use drupe_extension_api::{
    control::{ApprovalState, CallPreview},
    wire::Carried,
};

use super::*;
use crate::{Retention, Says, SessionStanding};

const PARAMS: &str = "{\"path\": \"a\u{202e}b\"}";

fn question(index: u32) -> Question {
    Question {
        effect: effect("a", 1, index),
        session: session("s"),
        turn: TurnId::new("t").unwrap(),
        invocation: invocation("a"),
        agent: "agent".parse().unwrap(),
        tool: "tool".into(),
        params: PARAMS.into(),
        need: "it says so".into(),
        about: (index == 0).then(|| "tool notes/".to_owned()),
        for_taint: false,
        preview: (index == 0).then(|| CallPreview { text: "-a\n+b\n".into(), failed: false, input: None }),
        seal: None,
        digest: format!("digest {index}"),
        asked_ms: 1_700_000_000_000,
        expires_ms: 1_700_000_600_000,
    }
}

/// A turn in which so many questions wait.
async fn asked(store: &Store, questions: u32) -> TurnId {
    let turn = store.accept(message("s", "1", "go")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let asked = (0..questions).map(|index| Entry::Asked {
        step: 1,
        index,
        class: EffectClass::Once,
        kind: ItemKind::default(),
        question: question(index).into(),
    });
    commit(store, &turn, [begin("a", "agent", None, "go")].into_iter().chain(asked).collect()).await;
    turn
}

async fn commit(store: &Store, turn: &TurnId, entries: Vec<Entry>) {
    store.commit(batch_of(turn, entries)).await.unwrap();
}

async fn stands(store: &Store, index: u32) -> ApprovalState {
    let Question { effect, digest, .. } = question(index);
    store.question(&effect, &digest).await.unwrap().unwrap().state
}

#[tokio::test]
async fn a_question_survives_with_the_whole_action_and_its_first_answer_holds() {
    let home = Home::new();
    let store = home.open();
    asked(&store, 1).await;
    store.close().await.unwrap();
    let store = home.open();
    let id = effect("a", 1, 0);
    let waits = store.questions().await.unwrap().remove(0);
    let call = waits.call.unwrap();
    assert_eq!((waits.id.as_str(), waits.state), (id.as_str(), ApprovalState::Pending));
    assert_eq!((call.tool.as_str(), call.params.as_str(), call.session.as_str()), ("tool", PARAMS, "s"));
    assert_eq!(call.preview, question(0).preview);
    let allowed =
        store.answer_question(id.as_str(), Says::Yes, None, "operator".into()).await.unwrap().unwrap();
    assert_eq!(allowed.approval.state, ApprovalState::Allowed);
    let settled = store.questions().await.unwrap().remove(0).call.unwrap();
    assert_eq!((settled.params.as_str(), settled.preview), ("", None), "nothing waits any more");
    let second = store.answer_question(id.as_str(), Says::No, None, "somebody".into()).await;
    let settled = StoreError::Settled { approval: id.to_string(), state: "allowed".into() };
    assert_eq!(second.unwrap_err(), settled);
    assert_eq!(store.expire_question(&id).await.unwrap(), ApprovalState::Allowed, "time is over too late");
    let answer = store.question(&id, "digest 0").await.unwrap();
    assert_eq!(
        answer,
        Some(Answer { state: ApprovalState::Allowed, by: Some("operator".into()), given: None })
    );
    assert_eq!(store.question(&id, "another").await.unwrap(), None, "it holds for what was asked about");
    let audited: String = store
        .read(|db| {
            let sql = "SELECT who || ' ' || what || ' ' || hash || ' ' || outcome FROM audit";
            Ok(db.query_row(sql, [], |row| row.get(0))?)
        })
        .await
        .unwrap();
    assert_eq!(audited, "operator tool.call digest 0 allowed");
}

#[tokio::test]
async fn an_answer_is_not_given_to_another_call_than_the_one_that_was_shown() {
    let home = Home::new();
    let store = home.open();
    asked(&store, 1).await;
    let id = effect("a", 1, 0);
    let answer =
        |shown: &str| store.answer_question(id.as_str(), Says::Yes, Some(shown.into()), "operator".into());
    // What was read was lost with the power, and the model wants another call in its place.
    assert_eq!(answer("digest of what was read").await.unwrap_err(), StoreError::NotAsShown(id.to_string()));
    assert_eq!(stands(&store, 0).await, ApprovalState::Pending);
    assert_eq!(answer("digest 0").await.unwrap().unwrap().approval.state, ApprovalState::Allowed);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_refused() {
    let home = Home::new();
    let store = home.open();
    asked(&store, 2).await;
    home.clock.advance(600_000);
    let late = store.answer_question(effect("a", 1, 0).as_str(), Says::Yes, None, "operator".into()).await;
    assert!(matches!(&late, Err(StoreError::Settled { state, .. }) if state == "expired"), "{late:?}");
    assert_eq!(store.expire_question(&effect("a", 1, 1)).await.unwrap(), ApprovalState::Expired);
    assert_eq!(stands(&store, 1).await, ApprovalState::Expired);
}

#[tokio::test]
async fn the_end_of_a_call_withdraws_its_question_and_no_answer_that_was_given() {
    let home = Home::new();
    let store = home.open();
    let turn = asked(&store, 2).await;
    store.answer_question(effect("a", 1, 1).as_str(), Says::No, None, "operator".into()).await.unwrap();
    let withdrawn = |index| Entry::Decided {
        invocation: invocation("a"),
        effect: effect("a", 1, index),
        tool: "tool".into(),
        state: ApprovalState::Withdrawn,
        by: None,
    };
    // One of them with the end of its turn.
    commit(&store, &turn, vec![withdrawn(1)]).await;
    store
        .finish_turn(TurnDone { last: batch_of(&turn, vec![withdrawn(0)]), ..done(&turn, "done") })
        .await
        .unwrap();
    let listed = store.questions().await.unwrap();
    let params: Vec<_> = listed.iter().map(|one| one.call.as_ref().unwrap().params.as_str()).collect();
    assert_eq!(params, ["", ""], "what is settled is not listed whole");
    assert_eq!(stands(&store, 0).await, ApprovalState::Withdrawn);
    assert_eq!(stands(&store, 1).await, ApprovalState::Denied);
    let refused = store.answer_question(effect("a", 1, 0).as_str(), Says::Yes, None, "operator".into()).await;
    assert!(matches!(&refused, Err(StoreError::Settled { state, .. }) if state == "withdrawn"));
}

#[tokio::test]
async fn the_beginning_of_an_id_names_the_only_question_that_begins_so() {
    let home = Home::new();
    let store = home.open();
    asked(&store, 2).await;
    let id = effect("a", 1, 0);
    let common = &id.as_str()[..8];
    let both = store.answer_question(common, Says::Yes, None, "operator".into()).await;
    assert_eq!(both.unwrap_err(), StoreError::AmbiguousQuestion(common.into()));
    store.answer_question(id.as_str(), Says::Yes, None, "operator".into()).await.unwrap().unwrap();
    // One that is settled is still what a person may have read.
    let again = store.answer_question(common, Says::No, None, "operator".into()).await;
    assert_eq!(again.unwrap_err(), StoreError::AmbiguousQuestion(common.into()));
    let other = effect("a", 1, 1);
    let other =
        store.answer_question(other.as_str(), Says::No, None, "operator".into()).await.unwrap().unwrap();
    assert_eq!(other.approval.state, ApprovalState::Denied);
    for nothing in ["e-", "e-00", "e-ffffffff", "a1", "tool", "e-%"] {
        assert_eq!(
            store.answer_question(nothing, Says::Yes, None, "operator".into()).await.unwrap(),
            None,
            "{nothing}"
        );
    }
}

#[tokio::test]
async fn questions_go_with_their_turn() {
    let home = Home::new();
    let store = home.open();
    let turn = asked(&store, 1).await;
    store.finish_turn(TurnDone { outbox: None, ..done(&turn, "done") }).await.unwrap();
    let later = store.accept(message("s", "2", "more")).await.unwrap().turn;
    store.start_turn(start(&later, "s", Vec::new())).await.unwrap();
    home.clock.advance(7_200_000);
    let keep = Retention { max_age_ms: Some(3_600_000), ..Retention::default() };
    while store.let_go(keep).await.unwrap().more {}
    assert_eq!(store.questions().await.unwrap(), []);
    let left: i64 =
        store.read(|db| Ok(db.query_row("SELECT count(*) FROM questions", [], |r| r.get(0))?)).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_is_allowed_for_the_rest_of_a_session_stays_until_it_is_taken_back() {
    let home = Home::new();
    let store = home.open();
    asked(&store, 2).await;
    let give = |index, says| {
        let (store, id) = (store.clone(), effect("a", 1, index));
        async move { store.answer_question(id.as_str(), says, None, "operator".into()).await }
    };
    let refused = give(1, Says::YesForSession).await;
    assert_eq!(
        refused.unwrap_err(),
        StoreError::NoGrant(effect("a", 1, 1).to_string()),
        "it is one call alone"
    );
    let waits = store.question(&effect("a", 1, 1), "digest 1").await.unwrap().unwrap();
    assert_eq!(waits.state, ApprovalState::Pending, "nothing of an answer that is refused is kept");
    let given = give(0, Says::YesForSession).await.unwrap().unwrap().grant.unwrap();
    assert_eq!(
        (given.about.as_str(), given.agent.as_str(), given.by.as_str()),
        ("tool notes/", "agent", "operator")
    );
    store.close().await.unwrap();

    let store = home.open();
    assert_eq!(store.standing(&session("s")).await.unwrap().grants, std::slice::from_ref(&given));
    assert_eq!(store.standing(&session("other")).await.unwrap(), SessionStanding::default());
    for nothing in ["g-99", "g-", "1", ""] {
        assert_eq!(store.revoke_grant(nothing, "somebody".into()).await.unwrap(), None, "{nothing}");
    }
    assert_eq!(store.revoke_grant(&given.id, "somebody".into()).await.unwrap(), Some(given.clone()));
    assert_eq!(store.revoke_grant(&given.id, "somebody".into()).await.unwrap(), None, "once");
    assert_eq!(store.grants().await.unwrap(), []);
    let audited = store
        .read(|db| {
            let mut all = db.prepare("SELECT what FROM audit WHERE what LIKE 'grant.%' ORDER BY rowid")?;
            let rows = all.query_map([], |row| row.get::<_, String>(0))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .await;
    assert_eq!(audited.unwrap(), ["grant.given", "grant.revoked"]);
}

#[tokio::test]
async fn text_of_strangers_is_known_of_a_session_from_the_commit_that_holds_it() {
    let home = Home::new();
    let store = home.open();
    let turn = asked(&store, 1).await;
    let tainted = |tool: &str| Entry::Tainted { invocation: invocation("a"), tool: tool.to_owned() };
    commit(&store, &turn, vec![tainted("web_fetch"), tainted("mail_read")]).await;
    let by = async |store: &Store, name: &str| store.standing(&session(name)).await.unwrap().tainted_by;
    assert_eq!(by(&store, "s").await.as_deref(), Some("web_fetch"), "what came first");
    let of = |name: &str, id: &str, untrusted| {
        let mut message = message(name, id, "go");
        message.ask.carried = Some(Carried { untrusted, ..Carried::default() });
        message
    };
    store.accept(of("own", "2", false)).await.unwrap();
    assert_eq!(by(&store, "own").await, None);
    store.accept(of("own", "3", true)).await.unwrap();
    store.close().await.unwrap();
    assert!(by(&home.open(), "own").await.is_some(), "whoever hands it in says that strangers wrote it");
}
