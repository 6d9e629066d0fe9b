//! Deliveries, restarts, and the lives of extensions.

use drupe_extension_api::{
    control::{ExtensionState, StateChange},
    wire::{FileSent, OutboundFile},
};
use jiff::Timestamp;

use super::*;
use crate::{Delivery, DeliveryId, FileMessage, FileOnTheWay, RestartVerdict, told_of};

async fn finished(store: &Store, external_id: &str) -> DeliveryId {
    let turn = store.accept(message("s", external_id, "hello")).await.unwrap().turn;
    store.finish_turn(done(&turn, external_id)).await.unwrap().unwrap()
}

async fn due(store: &Store) -> Vec<(DeliveryId, u32)> {
    store.due_deliveries().await.unwrap().iter().map(|d| (d.id, d.attempts)).collect()
}

#[tokio::test]
async fn a_delivery_is_sent_once() {
    let home = Home::new();
    let store = home.open();
    let id = finished(&store, "1").await;
    let waiting = store.due_deliveries().await.unwrap().remove(0);
    assert_eq!((waiting.id, waiting.session.as_str(), waiting.message.text.as_str()), (id, "s", "1"));
    assert_eq!(waiting.message.address.as_deref(), Some("room"));

    let out_of_order = store.sent(id, Sent::Delivered { remote_id: None }).await;
    assert_eq!(out_of_order, Err(StoreError::Delivery { delivery: id, needed: "sending" }));
    store.sending(id).await.unwrap();
    assert_eq!(store.sending(id).await, Err(StoreError::Delivery { delivery: id, needed: "due" }));
    assert!(due(&store).await.is_empty());

    store.sent(id, Sent::Again("no connection".into())).await.unwrap();
    assert_eq!(due(&store).await, [(id, 1)]);
    store.sending(id).await.unwrap();
    store.sent(id, Sent::Delivered { remote_id: Some("remote".into()) }).await.unwrap();
    assert!(due(&store).await.is_empty());
    assert!(store.sent(id, Sent::Again("late".into())).await.is_err());
}

#[tokio::test]
async fn a_delivery_that_was_cut_off_becomes_uncertain_and_its_session_learns_of_it() {
    let home = Home::new();
    let store = home.open();
    let (cut_off, waiting, asked) =
        (finished(&store, "1").await, finished(&store, "2").await, finished(&store, "3").await);
    store.sending(cut_off).await.unwrap();
    store.sending(asked).await.unwrap();
    store.sent(asked, Sent::Uncertain("the channel timed out".into())).await.unwrap();
    store.close().await.unwrap();

    let store = home.open();
    assert_eq!(due(&store).await, [(waiting, 0)]);
    assert!(store.sending(cut_off).await.is_err());
    let events = store.events_after(&session("s"), 3, 9).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|event| match &event.body {
            EventBody::Diagnostic { code, message } => (code.as_str(), message.contains("`test`")),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [("delivery.uncertain", true); 2]);
}

#[tokio::test]
async fn a_delivery_that_failed_is_not_tried_again_and_its_session_learns_of_it() {
    let home = Home::new();
    let store = home.open();
    let id = finished(&store, "1").await;
    store.sending(id).await.unwrap();
    store.sent(id, Sent::Failed("no such room".into())).await.unwrap();
    assert!(due(&store).await.is_empty() && store.sending(id).await.is_err());
    let last = store.events_after(&session("s"), 0, 9).await.unwrap().pop().unwrap();
    let EventBody::Diagnostic { code, message } = last.body else { panic!("{last:?}") };
    assert_eq!(code, "delivery.failed");
    assert_eq!(message, "an answer did not reach `test`, and is given up: no such room");
}

#[tokio::test]
async fn a_notice_goes_to_where_the_latest_message_of_its_session_came_from() {
    let home = Home::new();
    let store = home.open();
    let from = |session: &str, n: &str, channel: &str, address: &str| {
        let mut message = message(session, n, "hello");
        (message.ask.channel, message.ask.address) = (channel.into(), Some(address.into()));
        store.accept(message)
    };
    from("s", "1", "mail", "a").await.unwrap();
    from("s", "2", "chat", "b").await.unwrap();
    // The terminal of an operator has no channel, and takes nothing over.
    from("s", "3", "", "").await.unwrap();
    from("quiet", "4", "", "").await.unwrap();
    assert!(store.notice(session("s"), None, "done".into(), Vec::new()).await.unwrap());
    assert!(!store.notice(session("quiet"), None, "done".into(), Vec::new()).await.unwrap());
    let waiting = store.due_deliveries().await.unwrap();
    let [notice] = waiting.as_slice() else { panic!("{waiting:?}") };
    assert_eq!((notice.kind, notice.session.as_str()), (OutboundKind::Notice, "s"));
    let there = Outbound { channel: "chat".into(), address: Some("b".into()), text: "done".into() };
    assert_eq!(notice.message, there);
    for told in ["s", "quiet"] {
        let events = store.events_after(&session(told), 0, 9).await.unwrap();
        assert!(matches!(&events[0].body, EventBody::Diagnostic { code, .. } if code == "notice"), "{told}");
    }
    // It is tried, and told of, like an answer.
    store.sending(notice.id).await.unwrap();
    store.close().await.unwrap();
    let events = home.open().events_after(&session("s"), 1, 9).await.unwrap();
    let EventBody::Diagnostic { message, .. } = &events[0].body else { panic!("{events:?}") };
    assert!(message.starts_with("a notice may not have reached `chat`"), "{message}");
}

#[tokio::test]
async fn a_restart_is_found_once_and_too_many_unattended_ones_are_refused() {
    let home = Home::new();
    let store = home.open();
    let ask = |reason: &str, unattended| {
        store.request_restart(reason.into(), Some(session("s")), TurnId::new("t").ok(), unattended)
    };
    for reason in ["1", "2", "3"] {
        assert_eq!(ask(reason, true).await.unwrap(), RestartVerdict::Accepted);
    }
    let refused = RestartVerdict::TooMany { count: 3, window_ms: 600_000 };
    assert_eq!(ask("4", true).await.unwrap(), refused);
    assert_eq!(ask("watched", false).await.unwrap(), RestartVerdict::Accepted);
    home.clock.advance(599_999);
    assert_eq!(ask("5", true).await.unwrap(), refused);
    home.clock.advance(1);
    assert_eq!(ask("6", true).await.unwrap(), RestartVerdict::Accepted);
    store.close().await.unwrap();

    let store = home.open();
    let mut found = Vec::new();
    while let Some(row) = store.take_restart().await.unwrap() {
        assert_eq!((row.session, row.turn), (Some(session("s")), TurnId::new("t").ok()));
        found.push((row.reason, row.unattended));
    }
    let found: Vec<_> = found.iter().map(|(reason, unattended)| (reason.as_str(), *unattended)).collect();
    assert_eq!(found, [("1", true), ("2", true), ("3", true), ("watched", false), ("6", true)]);
    store.close().await.unwrap();
    assert_eq!(home.open().take_restart().await.unwrap(), None);
}

#[tokio::test]
async fn the_latest_steps_of_an_extension_are_kept_and_the_last_few_shown() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    let change = |n: i64, state| StateChange {
        time: Timestamp::from_millisecond(n).unwrap(),
        state,
        reason: Some(n.to_string()),
    };
    store.record_extension("other".into(), change(0, ExtensionState::Failed)).await.unwrap();
    for n in 0..200 {
        store.record_extension("kv".into(), change(n, ExtensionState::Active)).await.unwrap();
    }
    let shown = store.extension_history("kv").await.unwrap();
    assert_eq!((shown.len(), shown[0].time.as_millisecond()), (20, 180));
    assert_eq!(shown[19].reason.as_deref(), Some("199"));
    let kept = store.read(|db| {
        let sql = "SELECT count(*), min(time_ms) FROM extension_states WHERE extension = 'kv'";
        Ok(db.query_row(sql, [], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?)))?)
    });
    assert_eq!(kept.await.unwrap(), (128, 72));
    let other = store.extension_history("other").await.unwrap();
    assert_eq!((other.len(), other[0].state), (1, ExtensionState::Failed));
}

#[tokio::test]
async fn a_copy_is_a_message_of_its_own_that_goes_where_nothing_else_of_it_goes() {
    let home = Home::new();
    let store = home.open();
    let to = |channel: &str, address: Option<&str>| Outbound {
        channel: channel.into(),
        address: address.map(Into::into),
        text: "done".into(),
    };
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    // The answer goes to that very place by itself, and two rules may say the same.
    let copies = vec![to("push", None), to("test", Some("room")), to("test", Some("hall")), to("push", None)];
    store.finish_turn(TurnDone { copies: copies.clone(), ..done(&turn, "done") }).await.unwrap();
    let places = |due: &[Delivery]| -> Vec<_> {
        due.iter().map(|one| (one.message.channel.clone(), one.message.address.clone())).collect()
    };
    let place = |channel: &str, address: Option<&str>| (channel.to_owned(), address.map(str::to_owned));
    let waiting = store.due_deliveries().await.unwrap();
    assert_eq!(
        places(&waiting),
        [place("test", Some("room")), place("push", None), place("test", Some("hall"))]
    );
    assert!(waiting.iter().all(|one| one.kind == OutboundKind::Answer && one.session.as_str() == "s"));
    assert_eq!(waiting[1].key, format!("{turn}>push"));
    // A notice of a session without a channel goes out as its copies alone.
    assert!(store.notice(session("quiet"), None, "done".into(), copies).await.unwrap());
    let waiting = store.due_deliveries().await.unwrap();
    assert_eq!(
        places(&waiting[3..]),
        [place("push", None), place("test", Some("room")), place("test", Some("hall"))]
    );
    assert_eq!(waiting[3].kind, OutboundKind::Notice);
}

#[tokio::test]
async fn a_channel_that_takes_nothing_has_so_many_copies_waiting_and_no_more() {
    let home = Home::new();
    let store = home.open();
    let copy = Outbound { channel: "push".into(), address: None, text: "done".into() };
    for _ in 0..1_000 {
        assert!(store.notice(session("s"), None, "done".into(), vec![copy.clone()]).await.unwrap());
    }
    assert!(!store.notice(session("s"), None, "done".into(), vec![copy]).await.unwrap());
    assert_eq!(store.due_deliveries().await.unwrap().len(), 1_000);
    let last = store.events_after(&session("s"), 1_000, 9).await.unwrap().pop().unwrap();
    let EventBody::Diagnostic { code, message } = last.body else { panic!("{last:?}") };
    assert_eq!(code, "delivery.failed");
    assert_eq!(message, "a copy for `push` is left out: 1000 messages wait for it");
}

#[tokio::test]
async fn a_file_has_the_ends_of_a_text_and_whoever_waits_for_it_hears_of_the_worst() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    assert_eq!(store.channel_of(&turn).await.unwrap().as_deref(), Some("test"));
    let file = OutboundFile {
        name: "a.txt".into(),
        bytes: 3,
        sha256: "ab".into(),
        media_type: "text/plain".into(),
        data_file: None,
    };
    let sent = FileMessage { text: "look".into(), path: "out/a.txt".into(), file: file.clone() };
    store.queue_file("file:1".into(), turn, sent).await.unwrap();
    let on_its_way = FileSent::OnItsWay { channel: "test".into() };
    assert_eq!(store.file_sent("file:1".into()).await.unwrap(), Some(on_its_way));
    assert_eq!(store.file_sent("file:2".into()).await.unwrap(), None);
    let on_the_way = async || store.files_on_the_way().await.unwrap();
    let waiting = FileOnTheWay {
        key: "file:1".into(),
        channel: "test".into(),
        is_being_sent: false,
        file: file.clone(),
    };
    assert_eq!(on_the_way().await, std::slice::from_ref(&waiting), "nobody sends it yet");
    let due = store.due_deliveries().await.unwrap().remove(0);
    assert_eq!(due.message.address.as_deref(), Some("room"));
    assert_eq!(
        (due.kind, due.message.text.as_str(), due.file),
        (OutboundKind::File, "look", Some(file.clone()))
    );
    store.sending(due.id).await.unwrap();
    assert_eq!(on_the_way().await, [FileOnTheWay { is_being_sent: true, ..waiting }]);
    store.sent(due.id, Sent::Failed("it is too large".into())).await.unwrap();
    assert_eq!(on_the_way().await, []);
    let told = store.due_deliveries().await.unwrap().remove(0);
    assert_eq!(told.message.text, "the file `out/a.txt` could not be sent: it is too large");
    assert_eq!((told.kind, told.message.address.as_deref()), (OutboundKind::Notice, Some("room")));
}

#[tokio::test]
async fn what_is_told_in_place_of_a_file_is_told_once_whether_it_goes_out_or_not() {
    let home = Home::new();
    let store = home.open();
    store.accept(message("s", "1", "hello")).await.unwrap();
    let copy = Outbound { channel: "push".into(), address: None, text: "here".into() };
    for (of, waiting) in [("s", 2), ("quiet", 1)] {
        let file = format!("file:{of}");
        let tell = || {
            let key = Some(told_of(&file));
            store.notice(session(of), key, "here".into(), vec![copy.clone()])
        };
        assert_eq!(store.file_sent(file.clone()).await.unwrap(), None);
        assert!(tell().await.unwrap());
        assert!(!tell().await.unwrap(), "{of}: nothing more goes out");
        assert_eq!(store.file_sent(file.clone()).await.unwrap(), Some(FileSent::Told));
        let due = store.due_deliveries().await.unwrap();
        assert_eq!(due.iter().filter(|due| due.session.as_str() == of).count(), waiting, "{due:?}");
        let events = store.events_after(&session(of), 0, 9).await.unwrap();
        assert_eq!(events.len(), 1, "{events:?}");
    }
    assert_eq!(store.files_on_the_way().await.unwrap(), []);
}

#[tokio::test]
async fn a_message_is_known_by_what_set_it_off_its_channel_and_its_id() {
    let home = Home::new();
    let store = home.open();
    let inbound = message("s", "1", "hello");
    let (origin, channel) = (inbound.origin.clone(), inbound.ask.channel.clone());
    let turn = store.accept(inbound).await.unwrap().turn;
    let known = async |channel: &str, id: &str| {
        store.turn_of_message(origin.clone(), channel.into(), id.into()).await.unwrap()
    };
    assert_eq!(known(&channel, "1").await, Some(turn));
    assert_eq!((known(&channel, "2").await, known("other", "1").await), (None, None));
}
