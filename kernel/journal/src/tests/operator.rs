//! What the operator sets and agrees to.

use std::collections::BTreeMap;

use drupe_extension_api::control::{Approval, ApprovalState};

use super::*;

async fn ask(store: &Store, extension: &str, hash: &str) -> Approval {
    store.ask_activation(extension.into(), hash.into(), vec!["native code".into()]).await.unwrap()
}

/// Ids with their states, in the order of the list.
async fn listed(store: &Store) -> Vec<(String, ApprovalState)> {
    store.activations().await.unwrap().into_iter().map(|a| (a.id, a.state)).collect()
}

fn expected(rows: &[(&str, ApprovalState)]) -> Vec<(String, ApprovalState)> {
    rows.iter().map(|(id, state)| ((*id).to_owned(), *state)).collect()
}

/// The audit: time, who, what, subject, hash, outcome.
async fn audit(store: &Store) -> Vec<(i64, [String; 5])> {
    store
        .read(|db| {
            let mut all =
                db.prepare("SELECT time_ms, who, what, subject, hash, outcome FROM audit ORDER BY number")?;
            let rows = all.query_map([], |row| {
                Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?]))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn an_extension_stays_turned_on_or_off_until_it_is_left_to_its_manifest() {
    let home = Home::new();
    let store = home.open();
    assert!(store.enabled().await.unwrap().is_empty());
    for (id, enabled) in
        [("kv", Some(false)), ("files", Some(true)), ("files", Some(false)), ("files", Some(true))]
    {
        store.set_enabled(id.into(), enabled).await.unwrap();
    }
    store.close().await.unwrap();

    let store = home.open();
    assert_eq!(
        store.enabled().await.unwrap(),
        BTreeMap::from([("files".into(), true), ("kv".into(), false)])
    );
    store.set_enabled("kv".into(), None).await.unwrap();
    store.set_enabled("unknown".into(), None).await.unwrap();
    assert_eq!(store.enabled().await.unwrap(), BTreeMap::from([("files".into(), true)]));
}

#[tokio::test]
async fn an_activation_is_asked_for_once_for_each_content() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(store.activation("kv", "h1").await.unwrap(), None);
    let first = ask(&store, "kv", "h1").await;
    assert_eq!((first.id.as_str(), first.extension.as_str(), first.hash.as_str()), ("a1", "kv", "h1"));
    assert_eq!((&first.needs, first.state), (&vec!["native code".to_owned()], ApprovalState::Pending));
    assert_eq!((first.asked.as_millisecond(), first.answered), (1_700_000_000_000, None));
    home.clock.advance(1000);
    assert_eq!(ask(&store, "kv", "h1").await, first);
    assert_eq!(store.activations().await.unwrap(), std::slice::from_ref(&first));
    for (allow, state) in [(false, ApprovalState::Denied), (true, ApprovalState::Allowed)] {
        let answered = store.answer_activation("a1", allow, None, "operator".into()).await.unwrap().unwrap();
        assert_eq!(ask(&store, "kv", "h1").await, answered);
        assert_eq!(store.activation("kv", "h1").await.unwrap(), Some(state));
    }
    assert_eq!(store.activation("kv", "h2").await.unwrap(), None);
    assert_eq!(store.activation("other", "h1").await.unwrap(), None);
    assert_eq!(ask(&store, "other", "h1").await.id, "a2");
}

#[tokio::test]
async fn what_changed_is_asked_for_anew_and_nothing_else_of_it_waits() {
    let home = Home::new();
    let store = home.open();
    ask(&store, "kv", "h1").await;
    ask(&store, "other", "h1").await;
    store.answer_activation("a1", true, None, "operator".into()).await.unwrap().unwrap();
    ask(&store, "kv", "h2").await;
    ask(&store, "kv", "h3").await;
    let (pending, allowed, withdrawn) =
        (ApprovalState::Pending, ApprovalState::Allowed, ApprovalState::Withdrawn);
    assert_eq!(
        listed(&store).await,
        expected(&[("a4", pending), ("a2", pending), ("a3", withdrawn), ("a1", allowed)])
    );

    home.clock.advance(1000);
    let again = ask(&store, "kv", "h2").await;
    assert_eq!((again.id.as_str(), again.state), ("a3", pending));
    assert_eq!(again.asked.as_millisecond(), 1_700_000_001_000);
    assert_eq!(
        listed(&store).await,
        expected(&[("a3", pending), ("a2", pending), ("a4", withdrawn), ("a1", allowed)])
    );

    // The content that was agreed to is back.
    assert_eq!(ask(&store, "kv", "h1").await.state, allowed);
    assert_eq!(
        listed(&store).await,
        expected(&[("a2", pending), ("a3", withdrawn), ("a4", withdrawn), ("a1", allowed)])
    );
}

#[tokio::test]
async fn one_that_waits_shows_what_is_needed_now_and_an_answered_one_what_was_seen() {
    let home = Home::new();
    let store = home.open();
    let needs = |needs: &'static [&'static str]| {
        let needs = needs.iter().map(|need| (*need).to_owned()).collect();
        let asked = store.ask_activation("kv".into(), "h1".into(), needs);
        async { asked.await.unwrap().needs }
    };
    assert_eq!(needs(&["native code"]).await, ["native code"]);
    assert_eq!(needs(&["native code", "secrets"]).await, ["native code", "secrets"]);
    store.withdraw_activation("kv").await.unwrap();
    assert_eq!(needs(&["the right control"]).await, ["the right control"]);
    store.answer_activation("kv", true, None, "operator".into()).await.unwrap().unwrap();
    assert_eq!(needs(&["native code"]).await, ["the right control"]);
    assert_eq!(store.activation("kv", "h1").await.unwrap(), Some(ApprovalState::Allowed));
}

#[tokio::test]
async fn an_answer_finds_its_approval_by_id_or_by_the_extension_that_waits() {
    let home = Home::new();
    let store = home.open();
    ask(&store, "kv", "h1").await;
    ask(&store, "kv", "h2").await;
    ask(&store, "files", "h1").await;
    let by_extension = store.answer_activation("kv", true, None, "operator".into()).await.unwrap().unwrap();
    assert_eq!((by_extension.id.as_str(), by_extension.hash.as_str()), ("a2", "h2"));
    let other = store.answer_activation("a3", true, Some("h2".into()), "operator".into()).await;
    assert_eq!(other.unwrap_err(), StoreError::NotAsShown("a3".into()), "it is not what was shown");
    let by_id = store.answer_activation("a3", false, None, "operator".into()).await.unwrap().unwrap();
    assert_eq!((by_id.extension.as_str(), by_id.state), ("files", ApprovalState::Denied));
    for name in ["kv", "files", "unknown", "a4", "a03", "a+3", "3", "A3", "a", ""] {
        let refused = store.answer_activation(name, true, None, "operator".into()).await;
        assert_eq!(refused, Ok(None), "{name}");
    }
    assert_eq!(audit(&store).await.len(), 2);
}

#[tokio::test]
async fn an_answer_is_for_one_content_of_one_extension() {
    let home = Home::new();
    let store = home.open();
    for (extension, hash) in [("kv", "h1"), ("files", "h2"), ("kv", "h2")] {
        ask(&store, extension, hash).await;
    }
    store.answer_activation("kv", true, None, "operator".into()).await.unwrap().unwrap();
    store.withdraw_activation("kv").await.unwrap();
    for (extension, hash, state) in [
        ("kv", "h1", ApprovalState::Withdrawn),
        ("files", "h2", ApprovalState::Pending),
        ("kv", "h2", ApprovalState::Allowed),
    ] {
        assert_eq!(store.activation(extension, hash).await.unwrap(), Some(state), "{extension} {hash}");
    }
    assert_eq!(store.activation("files", "h1").await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_holds_until_it_is_given_anew_and_each_is_audited() {
    let home = Home::new();
    let store = home.open();
    ask(&store, "kv", "h1").await;
    home.clock.advance(1000);
    let denied = store.answer_activation("kv", false, None, "ann".into()).await.unwrap().unwrap();
    assert_eq!(denied.answered.unwrap().as_millisecond(), 1_700_000_001_000);
    home.clock.advance(1000);
    let allowed = store.answer_activation("a1", true, None, "ben".into()).await.unwrap().unwrap();
    assert_eq!(allowed.answered.unwrap().as_millisecond(), 1_700_000_002_000);
    store.withdraw_activation("kv").await.unwrap();
    store.close().await.unwrap();

    let store = home.open();
    assert_eq!(store.activations().await.unwrap(), [allowed]);
    let row = |who: &str, outcome: &str| [who, "extension.activate", "kv", "h1", outcome].map(str::to_owned);
    assert_eq!(
        audit(&store).await,
        [(1_700_000_001_000, row("ann", "denied")), (1_700_000_002_000, row("ben", "allowed"))]
    );
}

#[tokio::test]
async fn what_was_withdrawn_cannot_be_answered() {
    let home = Home::new();
    let store = home.open();
    ask(&store, "kv", "h1").await;
    ask(&store, "other", "h1").await;
    store.withdraw_activation("kv").await.unwrap();
    assert_eq!(
        listed(&store).await,
        expected(&[("a2", ApprovalState::Pending), ("a1", ApprovalState::Withdrawn)])
    );
    let refused = store.answer_activation("a1", true, None, "operator".into()).await;
    assert_eq!(refused, Err(StoreError::Withdrawn { approval: "a1".into(), extension: "kv".into() }));
    let refused = store.answer_activation("kv", true, None, "operator".into()).await;
    assert_eq!(refused, Ok(None));
    assert_eq!(store.activation("kv", "h1").await.unwrap(), Some(ApprovalState::Withdrawn));
    assert!(audit(&store).await.is_empty());
}

#[tokio::test]
async fn an_extension_that_is_called_like_an_approval_gets_no_answer_that_was_meant_for_another() {
    let home = Home::new();
    let store = home.open();
    ask(&store, "kv", "h1").await;
    ask(&store, "a1", "h1").await;
    let refused = store.answer_activation("a1", true, None, "operator".into()).await;
    assert_eq!(refused, Err(StoreError::AmbiguousApproval("a1".into())));
    assert!(audit(&store).await.is_empty());
    store.answer_activation("a2", false, None, "operator".into()).await.unwrap().unwrap();
    assert_eq!(
        store.answer_activation("a1", true, None, "operator".into()).await.unwrap().unwrap().extension,
        "kv"
    );

    ask(&store, "a3", "h1").await;
    assert_eq!(
        store.answer_activation("a3", true, None, "operator".into()).await.unwrap().unwrap().extension,
        "a3"
    );
}

#[tokio::test]
async fn an_answer_whose_audit_cannot_be_written_is_not_given() {
    let home = Home::new();
    let store = home.open();
    ask(&store, "kv", "h1").await;
    let break_audit = store.write(crate::writer::Survives::Process, |on| {
        on.db.execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'refused'); END",
        )?;
        Ok(())
    });
    break_audit.await.unwrap();
    assert!(store.answer_activation("kv", true, None, "operator".into()).await.is_err());
    assert_eq!(store.activation("kv", "h1").await.unwrap(), Some(ApprovalState::Pending));
}
