//! People of channels: who is given a code, how often, and what is kept of them.

use drupe_extension_api::{
    control::{Allowance, PersonAnswer, PersonState},
    wire::Sender,
};

use super::*;
use crate::Asked;

const MINUTE: i64 = 60_000;

async fn ask(store: &Store, who: &str, fresh: &str) -> Asked {
    let sender = Sender { id: who.to_owned(), name: Some(format!("Name of {who}")) };
    store.ask_about("chat".into(), sender, fresh.into()).await.unwrap()
}

/// The code that somebody is shown; none where they are shown nothing.
async fn code(store: &Store, who: &str, fresh: &str) -> Option<(String, bool)> {
    match ask(store, who, fresh).await {
        Asked::Waiting { code, is_new, .. } => Some((code, is_new)),
        Asked::Unknown => None,
        Asked::Known { .. } => panic!("they are known"),
    }
}

fn shown(code: &str, is_new: bool) -> Option<(String, bool)> {
    Some((code.to_owned(), is_new))
}

fn answer(code: &str, allow: bool) -> PersonAnswer {
    let per_day = Allowance { max_tokens: Some(5), ..Allowance::default() };
    PersonAnswer { code: code.into(), allow, may_approve: allow, per_day }
}

#[tokio::test]
async fn a_code_is_shown_so_often_and_holds_for_an_hour_and_so_many_are_given_in_a_day() {
    let home = Home::new();
    let store = home.open();
    for (n, is_new) in [(0, true), (1, false), (2, false)] {
        assert_eq!(code(&store, "7", &format!("NEW-{n}")).await, shown("NEW-0", is_new));
    }
    assert_eq!(code(&store, "7", "NEW-3").await, None);
    home.clock.advance(59 * MINUTE);
    assert_eq!(code(&store, "7", "NEW-4").await, None);
    home.clock.advance(MINUTE);
    assert_eq!(store.answer_person(answer("NEW-0", true), "operator".into()).await.unwrap(), None);
    assert_eq!(code(&store, "7", "NEW-5").await, shown("NEW-5", true));
    home.clock.advance(60 * MINUTE);
    assert_eq!(code(&store, "7", "NEW-6").await, shown("NEW-6", true));
    home.clock.advance(60 * MINUTE);
    assert_eq!(code(&store, "7", "NEW-7").await, None, "three in a day");
    home.clock.advance(24 * 60 * MINUTE);
    assert_eq!(code(&store, "7", "NEW-8").await, shown("NEW-8", true));
}

#[tokio::test]
async fn so_many_wait_and_whoever_else_writes_leaves_nothing() {
    let home = Home::new();
    let store = home.open();
    for who in ["1", "2", "3"] {
        assert_eq!(code(&store, who, who).await, shown(who, true));
    }
    for who in 4..1000 {
        assert_eq!(code(&store, &who.to_string(), "x").await, None);
    }
    let rows =
        store.read(|db| Ok(db.query_row("SELECT count(*) FROM people", [], |row| row.get::<_, i64>(0))?));
    assert_eq!(rows.await.unwrap(), 3);
    let now = |home: &Home| drupe_agent::Clock::now_ms(&*home.clock);
    assert_eq!(store.people(now(&home)).await.unwrap().len(), 3);
    home.clock.advance(60 * MINUTE);
    assert_eq!(store.people(now(&home)).await.unwrap().len(), 0);
    assert_eq!(code(&store, "5", "five").await, shown("five", true));
}

#[tokio::test]
async fn what_the_operator_said_of_somebody_is_kept_until_it_is_revoked() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(code(&store, "7", "A").await, shown("A", true));
    assert_eq!(code(&store, "8", "B").await, shown("B", true));
    let allowed = store.answer_person(answer("A", true), "operator".into()).await.unwrap().unwrap();
    assert_eq!(
        (allowed.id.as_str(), allowed.state, allowed.may_approve),
        ("chat/7", PersonState::Allowed, true)
    );
    assert_eq!((allowed.code, allowed.per_day.max_tokens), (None, Some(5)));
    assert_eq!(store.answer_person(answer("A", true), "operator".into()).await.unwrap(), None, "once");
    let denied = store.answer_person(answer("B", false), "operator".into()).await.unwrap().unwrap();
    assert_eq!((denied.state, denied.may_approve), (PersonState::Denied, false));
    store.close().await.unwrap();

    let store = home.open();
    home.clock.advance(48 * 60 * MINUTE);
    assert_eq!(ask(&store, "7", "C").await, Asked::Known { may_approve: true });
    assert_eq!(ask(&store, "8", "D").await, Asked::Unknown);
    assert!(store.person("other".into(), "7".into()).await.unwrap().is_none(), "each channel has its own");
    let was = store.revoke_person("chat".into(), "7".into(), "operator".into()).await.unwrap();
    assert_eq!(was.map(|was| was.state), Some(PersonState::Allowed));
    assert_eq!(store.revoke_person("chat".into(), "7".into(), "operator".into()).await.unwrap(), None);
    assert_eq!(code(&store, "7", "E").await, shown("E", true));
    let audit = store.read(|db| {
        let mut all =
            db.prepare("SELECT subject || ' ' || outcome FROM audit WHERE what = 'person' ORDER BY number")?;
        Ok(all.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?)
    });
    assert_eq!(audit.await.unwrap(), ["chat/7 allowed", "chat/8 denied", "chat/7 revoked"]);
}
