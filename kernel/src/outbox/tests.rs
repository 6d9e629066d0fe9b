//! What goes out to people: what an answer of a channel leads to, and which notices are taken.

use drupe_extension_api::{EventBody, wire::Submit};
use drupe_journal::{Inbound, Origin};

use super::*;
use crate::extension::{Roster, tests::roster};

fn outbox_of(roster: &Roster) -> Outbox {
    let (life, store, wired) = (roster.life.clone(), roster.store.clone(), Arc::clone(&roster.wired));
    Outbox::new(life, store, wired, Arc::clone(&roster.bus), OutgoingFiles::new(roster.base.home.outgoing()))
}

/// What becomes of a message that was tried so often, by what its channel says.
fn check(attempts: u32, said: Result<(), FaultCode>) -> &'static str {
    let said = said.map(|()| Delivery { remote_id: Some("m1\n2".into()) });
    match end(attempts, said.map_err(|code| Fault::new(code, "no"))) {
        Sent::Delivered { remote_id } => {
            assert_eq!(remote_id.as_deref(), Some("m1 2"), "a name is one line");
            "sent"
        }
        Sent::Again(_) => "again",
        Sent::Failed(_) => "failed",
        Sent::Uncertain(_) => "uncertain",
    }
}

#[test]
fn a_message_is_tried_again_only_where_it_surely_did_not_go_out() {
    assert_eq!(check(1, Ok(())), "sent");
    for code in [FaultCode::Unavailable, FaultCode::Busy, FaultCode::NotConfigured] {
        assert_eq!(check(1, Err(code)), "again");
        assert_eq!(check(ATTEMPTS - 1, Err(code)), "again");
        assert_eq!(check(ATTEMPTS, Err(code)), "failed");
    }
    for code in [FaultCode::Denied, FaultCode::NotFound] {
        assert_eq!(check(1, Err(code)), "failed");
    }
    for code in [FaultCode::Timeout, FaultCode::Crashed, FaultCode::Panicked, FaultCode::Other] {
        assert_eq!(check(1, Err(code)), "uncertain", "{code:?}");
    }
}

#[tokio::test]
async fn an_extension_shows_notices_in_its_own_sessions_and_where_it_was_called_so_many_a_minute() {
    let folder = tempfile::tempdir().expect("a folder");
    let roster = roster(folder.path());
    let outbox = outbox_of(&roster);
    let by: ExtensionId = "mail".parse().expect("an id");
    let notify = async |session: Option<&str>, text: &str| {
        let session = session.map(|id| id.parse().expect("an id"));
        outbox.notify(&by, session, text.to_owned()).await.map_err(|fault| fault.code)
    };
    assert_eq!(notify(None, "hello").await, Err(FaultCode::NotFound), "there is no session yet");
    assert_eq!(notify(Some("work"), "hello").await, Err(FaultCode::Denied));
    assert_eq!(notify(Some("mailer:1"), "hello").await, Err(FaultCode::Denied), "the name is another one's");
    assert_eq!(notify(Some("mail:1"), &"x".repeat(LONGEST_NOTICE + 1)).await, Err(FaultCode::Invalid));
    for n in 0..10 {
        assert_eq!(notify(Some("mail:1"), "hello").await, Ok(()), "{n}");
    }
    assert_eq!(notify(Some("mail:1"), "hello").await, Err(FaultCode::Busy));
}

#[tokio::test]
async fn a_notice_without_a_session_is_shown_where_a_person_wrote_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let roster = roster(folder.path());
    let outbox = outbox_of(&roster);
    let by: ExtensionId = "mail".parse().expect("an id");
    let written = |session: &str, channel: &str, origin| {
        let session: SessionId = session.parse().expect("an id");
        let ask = Submit { channel: channel.into(), ..Submit::new(session, "1", "hello") };
        roster.store.accept(Inbound::new(ask, origin))
    };
    let shown = async |session: &str| {
        outbox.notify(&by, None, "new mail".into()).await.expect("a person has written");
        let session = session.parse().expect("an id");
        let events = roster.store.events_after(&session, 0, 10).await.expect("it answers");
        events.iter().filter(|event| matches!(event.body, EventBody::Diagnostic { .. })).count()
    };
    let mail = Origin::Extension(by.clone());
    written("work", "", Origin::OPERATOR).await.expect("it is taken");
    written("mail:1", "", mail.clone()).await.expect("it is taken");
    assert_eq!(shown("work").await, 1, "its own message is no person's");
    written("mail:2", "mail", mail).await.expect("it is taken");
    assert_eq!(shown("mail:2").await, 1, "somebody wrote in its channel");
}

#[tokio::test]
async fn an_outbox_without_anything_to_send_ends_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let roster = roster(folder.path());
    let outbox = outbox_of(&roster);
    let outbox = Arc::new(outbox);
    assert!(!outbox.carries("mail") && !outbox.carries("no id"));
    tokio::join!(send_until_the_end(Arc::clone(&outbox)), outbox.finish());
}

#[tokio::test]
async fn what_people_are_told_is_copied_by_the_rules_for_its_session_and_nothing_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let roster = roster(folder.path());
    let outbox = outbox_of(&roster);
    let rule = |session: &str, channel: &str, address: Option<&str>| CopyRule {
        session: session.into(),
        channel: channel.parse().expect("an id"),
        address: address.map(Into::into),
    };
    let outbox = outbox.copying(vec![rule("main", "push", None), rule("*", "hook", Some("a"))]);
    let places = |session: &str, text: &str| -> Vec<(String, Option<String>)> {
        let copies = outbox.copies(&session.parse().expect("an id"), text);
        copies.into_iter().map(|copy| (copy.channel, copy.address)).collect()
    };
    let hook = ("hook".to_owned(), Some("a".to_owned()));
    assert_eq!(places("main", "hello"), [("push".to_owned(), None), hook.clone()]);
    assert_eq!(places("other", "hello"), [hook]);
    assert_eq!(places("main", " \n"), []);
}

#[tokio::test]
async fn what_another_session_has_said_is_not_copied_once_more_to_where_its_own_copy_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let roster = roster(folder.path());
    let rule = |session: &str, channel: &str| CopyRule {
        session: session.into(),
        channel: channel.parse().expect("an id"),
        address: None,
    };
    let outbox =
        outbox_of(&roster).copying(vec![rule("*", "hook"), rule("main", "push"), rule("main", "hook")]);
    let session = |id: &str| id.parse::<SessionId>().expect("an id");
    let channels = async || {
        let due = roster.store.due_deliveries().await.expect("they are there");
        due.into_iter().map(|due| due.message.channel).collect::<Vec<_>>()
    };
    outbox
        .tell_again(Some(session("main")), Some(&session("schedule:a:1")), "again".into())
        .await
        .expect("told");
    assert_eq!(channels().await, ["push"]);
    outbox.tell(Some(session("main")), "the first time".into()).await.expect("told");
    assert_eq!(channels().await, ["push", "hook", "push"], "one for each place");
}

#[tokio::test]
async fn where_a_file_is_is_told_once_for_a_call_however_often_that_is_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let roster = roster(folder.path());
    let outbox = Arc::new(outbox_of(&roster));
    let workspace = folder.path().join("files");
    std::fs::create_dir_all(&workspace).expect("a folder");
    std::fs::create_dir_all(folder.path().join("data")).expect("a folder");
    std::fs::write(workspace.join("a.txt"), "here").expect("it is written");
    let session: SessionId = "work".parse().expect("an id");
    let asked = Inbound::new(Submit::new(session.clone(), "1", "hello"), Origin::OPERATOR);
    let turn = roster.store.accept(asked).await.expect("it is taken").turn;
    let send = |effect: &str| {
        let ask = SendFile {
            effect_id: effect.parse().expect("an id"),
            path: "a.txt".into(),
            text: "look".into(),
            sha256: None,
        };
        let (outbox, of) = (Arc::clone(&outbox), (turn.clone(), session.clone()));
        let (key, workspace) = (format!("file:files:{effect}"), workspace.clone());
        async move { outbox.send_file(of, key, workspace, ask).await }
    };
    // Two at once, and one after a crash, when the file is another one, or gone.
    let (one, two) = tokio::join!(send("x-1"), send("x-1"));
    assert_eq!((one, two), (Ok(FileSent::Told), Ok(FileSent::Told)));
    std::fs::remove_file(workspace.join("a.txt")).expect("it goes");
    assert_eq!(send("x-1").await, Ok(FileSent::Told));
    assert_eq!(send("x-2").await.map_err(|fault| fault.code), Err(FaultCode::NotFound));
    let told = async || {
        let events = roster.store.events_after(&session, 0, 99).await.expect("it answers");
        events.iter().filter(|event| matches!(event.body, EventBody::Diagnostic { .. })).count()
    };
    assert_eq!(told().await, 1);
    std::fs::write(workspace.join("a.txt"), "another").expect("it is written");
    assert_eq!(send("x-2").await, Ok(FileSent::Told));
    assert_eq!(told().await, 2, "it is another call");
    let kept = std::fs::read_dir(roster.base.home.outgoing()).expect("it is there").count();
    assert_eq!(kept, 0, "nothing of it waits");
}
