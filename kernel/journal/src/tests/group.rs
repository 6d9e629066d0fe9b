//! Many requests at once: one wait for the disk, no fault that spreads.

use std::{
    collections::HashMap,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll, Waker},
};

use drupe_agent::Journal;
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};

use super::*;
use crate::writer::Survives;

type Request = BoxFuture<'static, Result<(), StoreError>>;

/// Holds the writer back until all requests wait, so that they come to it together; gives their answers.
async fn together(store: &Store, requests: Vec<Request>) -> Vec<Result<(), StoreError>> {
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let hold = store.write(Survives::Power, move |_| {
        held.send(()).unwrap();
        // An error means that the test has ended.
        let _ = released.recv();
        Ok(())
    });
    let mut hold = Box::pin(hold);
    assert!(poll(hold.as_mut()).is_pending());
    is_held.recv().unwrap();
    let mut all = Box::pin(join_all(requests));
    assert!(poll(all.as_mut()).is_pending());
    release.send(()).unwrap();
    hold.await.unwrap();
    all.await
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn accept(store: &Store, id: &str, text: &str) -> Request {
    let (store, inbound) = (store.clone(), message(id, id, text));
    Box::pin(async move { store.accept(inbound).await.map(|_| ()) })
}

/// Transactions in the write-ahead log: the last frame of each bears the size of the database.
fn transactions(home: &Home) -> usize {
    let log = std::fs::read(home.folder.path().join("journal.db-wal")).unwrap();
    let (header, frames) = log.split_at(32);
    let page = u32::from_be_bytes(header[8..12].try_into().unwrap()) as usize;
    // Frames of an earlier round of the log bear another salt.
    let of_this_round = |frame: &&[u8]| frame[8..16] == header[16..24];
    frames.chunks_exact(24 + page).take_while(of_this_round).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn sixty_four_sessions_share_one_commit() {
    let home = Home::new();
    let store = home.open();
    store.accept(message("first", "first", "opens the log")).await.unwrap();
    let before = transactions(&home);
    let requests = (0..64).map(|n| accept(&store, &format!("s-{n}"), "hello")).collect();
    assert!(together(&store, requests).await.iter().all(Result::is_ok));
    assert_eq!(store.counts().await.unwrap().queued_turns, 65);
    assert_eq!(transactions(&home) - before, 1);
}

#[tokio::test]
async fn what_waits_for_no_disk_shares_a_commit_too() {
    let home = Home::new();
    let store = home.open_as(&Storage::Process(home.path())).unwrap();
    store.accept(message("first", "first", "opens the log")).await.unwrap();
    let before = transactions(&home);
    let answers = join_all((0..64).map(|n| accept(&store, &format!("s-{n}"), "hello"))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(transactions(&home) - before, 1);
}

#[tokio::test]
async fn a_request_whose_maker_goes_away_is_carried_out() {
    let home = Home::new();
    for storage in [Storage::Memory, Storage::Process(home.path())] {
        let store = home.open_as(&storage).unwrap();
        let mut left = accept(&store, "s", "hello");
        assert!(poll(left.as_mut()).is_pending());
        drop(left);
        assert_eq!(store.counts().await.unwrap().queued_turns, 1);
    }
}

#[tokio::test]
async fn what_waits_when_the_journal_is_closed_is_carried_out_first() {
    let home = Home::new();
    let file = Storage::Process(home.path());
    for storage in [&Storage::Memory, &file] {
        let store = home.open_as(storage).unwrap();
        let mut waiting = accept(&store, "s", "hello");
        assert!(poll(waiting.as_mut()).is_pending());
        store.close().await.unwrap();
        waiting.await.unwrap();
    }
    assert_eq!(home.open_as(&file).unwrap().counts().await.unwrap().queued_turns, 1);
}

#[tokio::test]
async fn a_request_that_panics_ends_its_transaction_and_nothing_else() {
    let home = Home::new();
    for storage in [Storage::Memory, Storage::Full(home.path())] {
        let store = home.open_as(&storage).unwrap();
        let panics = store.clone();
        let panics: Request = Box::pin(async move {
            panics.write(Survives::Power, |_| -> Result<(), StoreError> { panic!("a request") }).await
        });
        let requests = vec![accept(&store, "a", "beside it"), panics, accept(&store, "b", "beside it")];
        let answers = match storage {
            Storage::Memory => join_all(requests).await,
            _ => together(&store, requests).await,
        };
        let lost =
            |a: &Result<(), _>| matches!(a, Err(StoreError::Database(why)) if why.contains("panicked"));
        assert!(answers.iter().all(lost), "{answers:?}");
        store.accept(message("c", "c", "after it")).await.unwrap();
        assert_eq!(store.counts().await.unwrap().queued_turns, 1);
    }
}

#[tokio::test]
async fn the_log_is_written_back_when_it_has_grown() {
    let home = Home::new();
    let store = home.open();
    let mut sizes = Vec::new();
    for round in 0..6 {
        let requests = (0..600).map(|n| accept(&store, &format!("s-{round}-{n}"), "hello")).collect();
        let answers = tokio::task::unconstrained(together(&store, requests)).await;
        assert!(answers.iter().all(Result::is_ok));
        sizes.push(std::fs::metadata(home.folder.path().join("journal.db-wal")).unwrap().len());
    }
    // Once it is written back, what is logged next stands where the old stood.
    assert!(sizes[5] < 3 * sizes[0], "{sizes:?}");
}

#[tokio::test]
async fn the_log_is_written_back_when_a_few_requests_have_filled_it() {
    const MIB: u64 = 1024 * 1024;
    let text = "x".repeat(MIB as usize);
    for waits_for_the_disk in [true, false] {
        let home = Home::new();
        let store = home.open();
        for n in 0..48 {
            if waits_for_the_disk {
                store.accept(message("s", &n.to_string(), &text)).await.unwrap();
            } else {
                store.record_events(session("s"), None, vec![remark(&text)]).await.unwrap();
            }
        }
        // What the thread was asked for before is done when this is; what comes next begins the log anew.
        store.accept(message("s", "last", "hello")).await.unwrap();
        store.record_events(session("s"), None, vec![remark("hello")]).await.unwrap();
        let size = std::fs::metadata(home.folder.path().join("journal.db-wal")).unwrap().len();
        assert!(size <= 17 * MIB, "{} MiB are in the log: {waits_for_the_disk}", size / MIB);
    }
}

#[tokio::test]
async fn a_request_that_fails_takes_nothing_along() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let finish = |answer: &'static str| -> Request {
        let (store, turn) = (store.clone(), turn.clone());
        Box::pin(async move { store.finish_turn(done(&turn, answer)).await.map(|_| ()) })
    };
    // The turn has its answer by then: a unique constraint fails after other rows were written.
    let (clash, answered) = (store.clone(), turn.clone());
    let clash: Request = Box::pin(async move {
        let clash = clash.write(Survives::Power, move |on| {
            crate::sessions::known_or_new(on, &session("never"))?;
            let message = Outbound { channel: "test".into(), address: None, text: "twice".into() };
            let turn = crate::turns::known(on, &answered)?;
            crate::outbox::queue_answer(on, &turn, &message).map(|_| ())
        });
        clash.await
    });
    let requests = vec![
        accept(&store, "a", "before"),
        finish("first"),
        clash,
        finish("second"),
        accept(&store, "b", "after"),
    ];
    let answers = together(&store, requests).await;

    assert!(matches!(answers[2], Err(StoreError::Database(_))), "{:?}", answers[2]);
    assert_eq!(answers[3], Err(StoreError::Finished(turn.clone())));
    assert_eq!([&answers[0], &answers[1], &answers[4]], [&Ok(()); 3]);
    let sessions = store.sessions().await.unwrap();
    assert!(sessions.iter().all(|s| s.id != session("never")), "{sessions:?}");
    assert_eq!(sessions.len(), 3);
    assert_eq!(store.due_deliveries().await.unwrap()[0].message.text, "first");
    assert_eq!(home.published(&session("s")), [1]);
    // Nothing of what was rolled back is remembered either.
    store.accept(message("never", "n", "new")).await.unwrap();
    assert!(store.session(&session("never"), 0, false).await.unwrap().is_some());
}

#[tokio::test]
async fn a_full_disk_refuses_what_does_not_fit_and_service_returns() {
    let home = Home::new();
    let store = home.open();
    store.accept(message("s", "1", "hello")).await.unwrap();
    let pages = |limit: u32| {
        store.write(Survives::Process, move |on| {
            on.db.pragma_update_and_check(None, "max_page_count", limit, |row| row.get::<_, u32>(0))?;
            Ok(())
        })
    };
    let in_use: u32 =
        store.read(|db| Ok(db.pragma_query_value(None, "page_count", |row| row.get(0))?)).await.unwrap();
    pages(in_use + 4).await.unwrap();

    let large = "x".repeat(100_000);
    let requests =
        vec![accept(&store, "a", "fits"), accept(&store, "b", &large), accept(&store, "c", "fits")];
    let answers = together(&store, requests).await;
    assert!(matches!(answers[1], Err(StoreError::Full(_))), "{:?}", answers[1]);
    assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
    assert_eq!(store.counts().await.unwrap().queued_turns, 3);

    pages(in_use + 1000).await.unwrap();
    assert!(!store.accept(message("b", "b", &large)).await.unwrap().duplicate);
}

#[tokio::test]
#[ignore = "takes two gigabytes of memory; alone: cargo test -p drupe-journal one_gibibyte -- --ignored"]
async fn a_journal_in_memory_refuses_beyond_one_gibibyte_and_goes_on() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    let large = "x".repeat(100_000_000);
    let mut taken = 0;
    while store.accept(message(&taken.to_string(), &taken.to_string(), &large)).await.is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 10);
    let refused = store.accept(message("large", "large", &large)).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    store.accept(message("small", "small", "hello")).await.unwrap();
    assert_eq!(store.counts().await.unwrap().queued_turns, 11);
}

#[tokio::test]
async fn a_read_only_journal_refuses_by_name() {
    let home = Home::new();
    let store = home.open();
    store.write(Survives::Process, |on| Ok(on.db.pragma_update(None, "query_only", true)?)).await.unwrap();
    let refused = store.accept(message("s", "1", "hello")).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert_eq!(store.counts().await.unwrap().queued_turns, 0);
}

#[tokio::test]
async fn intake_refuses_when_too_much_waits() {
    let home = Home::new();
    let store = home.open();
    let requests = (0..5000).map(|n| accept(&store, &format!("s-{n}"), "hello")).collect();
    let answers = tokio::task::unconstrained(together(&store, requests)).await;
    let refused = answers.iter().filter(|a| **a == Err(StoreError::Busy)).count();
    assert!(refused > 0 && refused < 5000, "{refused}");
    assert_eq!(store.counts().await.unwrap().queued_turns, 5000 - refused as u64);
    store.close().await.unwrap();

    // The same where nothing waits for the disk.
    let store = home.open_as(&Storage::Memory).unwrap();
    let answers = join_all((0..5000).map(|n| accept(&store, &format!("s-{n}"), "hello"))).await;
    let refused = answers.iter().filter(|a| **a == Err(StoreError::Busy)).count();
    assert!(refused > 0 && refused < 5000, "{refused}");
    assert_eq!(store.counts().await.unwrap().queued_turns, 5000 - refused as u64);
}

#[test]
fn events_are_published_in_the_order_of_their_positions() {
    let home = Home::new();
    let store = home.open();
    let names = ["a", "b", "c"];
    std::thread::scope(|threads| {
        for worker in 0..6 {
            let store = store.clone();
            threads.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for n in 0..40 {
                    let told = vec![remark(&format!("{worker}.{n}")), remark("more")];
                    runtime.block_on(store.record_events(session(names[n % 3]), None, told)).unwrap();
                }
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut counts = HashMap::new();
    for name in names {
        let positions: Vec<u64> = home.published(&session(name));
        assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>());
        let rows = runtime.block_on(store.events_after(&session(name), 0, 4096)).unwrap();
        assert_eq!(rows.iter().map(|e| e.seq).collect::<Vec<_>>(), positions);
        counts.insert(name, positions.len());
    }
    assert_eq!(counts.values().sum::<usize>(), 480);
}

async fn level(store: &Store, survives: Survives) -> u32 {
    let asked =
        store.write(survives, |on| Ok(on.db.pragma_query_value(None, "synchronous", |row| row.get(0))?));
    asked.await.unwrap()
}

#[tokio::test]
async fn only_what_was_promised_waits_for_the_disk() {
    let home = Home::new();
    let (off, normal, full) = (0, 1, 2);
    let store = home.open();
    let levels: [u32; 3] = [
        level(&store, Survives::Process).await,
        level(&store, Survives::Power).await,
        level(&store, Survives::Process).await,
    ];
    assert_eq!(levels, [normal, full, normal]);
    store.close().await.unwrap();

    let store = home.open_as(&Storage::Process(home.path())).unwrap();
    let levels: [u32; 2] = [level(&store, Survives::Process).await, level(&store, Survives::Power).await];
    assert_eq!(levels, [off, off]);
}

/// Whether a request makes the transaction that it is part of wait for the disk.
async fn check_waits(
    store: &Store,
    what: &str,
    waits: bool,
    request: impl Future<Output = ()> + Send + 'static,
) {
    let (probe, seen) = (store.clone(), Arc::new(Mutex::new(0)));
    let level_seen = Arc::clone(&seen);
    let probe: Request = Box::pin(async move {
        *level_seen.lock().unwrap() = level(&probe, Survives::Process).await;
        Ok(())
    });
    let request: Request = Box::pin(async move {
        request.await;
        Ok(())
    });
    together(store, vec![request, probe]).await;
    assert_eq!(*seen.lock().unwrap(), if waits { 2 } else { 1 }, "{what}");
}

/// The intent of a call that must not run twice and does not start yet.
fn waiting(id: &str, step: u32, index: u32) -> Entry {
    match intent(id, step, index, EffectClass::Once) {
        Entry::Intent { invocation, step, index, effect, tool, class, over_limit, kind, input, .. } => {
            Entry::Intent {
                invocation,
                step,
                index,
                effect,
                tool,
                class,
                over_limit,
                waits: true,
                kind,
                input,
                by: None,
            }
        }
        other => other,
    }
}

fn started(id: &str, step: u32, index: u32) -> Entry {
    Entry::Started { invocation: invocation(id), step, effect: effect(id, step, index) }
}

#[tokio::test]
async fn each_request_waits_for_the_disk_if_it_promised_something() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let accept = accept(&store, "a", "hello");
    check_waits(&store, "accept", true, async { accept.await.unwrap() }).await;

    let batches = [
        ("step", false, vec![step("r", 1)]),
        ("answer", false, vec![answer("r", 1, "", &["tool"])]),
        ("pure intent", false, vec![intent("r", 1, 0, EffectClass::Pure)]),
        ("idempotent intent", false, vec![intent("r", 1, 1, EffectClass::Idempotent)]),
        ("intent", true, vec![step("r", 1), intent("r", 1, 2, EffectClass::Once)]),
        ("intent that waits", false, vec![waiting("r", 1, 4)]),
        ("start", true, vec![started("r", 1, 4)]),
        ("refused call", false, vec![intent("r", 1, 3, EffectClass::Once), result("r", 1, 3, "refused")]),
        ("result", false, vec![result("r", 1, 2, "42")]),
    ];
    for (what, waits, entries) in batches {
        let (store, turn) = (store.clone(), turn.clone());
        let batch = batch_of(&turn, entries);
        let committing = store.clone();
        check_waits(&store, what, waits, async move { committing.commit(batch).await.unwrap() }).await;
    }

    let (one, id) = (store.clone(), crate::DeliveryId(1));
    check_waits(
        &store,
        "finish",
        true,
        async move { assert!(one.finish_turn(done(&turn, "hi")).await.is_ok()) },
    )
    .await;
    let one = store.clone();
    check_waits(&store, "sending", true, async move { one.sending(id).await.unwrap() }).await;
    let one = store.clone();
    check_waits(&store, "sent", true, async move {
        one.sent(id, Sent::Delivered { remote_id: None }).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn what_the_operator_answers_waits_for_the_disk() {
    let home = Home::new();
    let store = home.open();
    let one = store.clone();
    let asking = async move {
        one.ask_activation("kv".into(), "h1".into(), Vec::new()).await.unwrap();
    };
    check_waits(&store, "ask", true, asking).await;
    let one = store.clone();
    let answering = async move {
        one.answer_activation("kv", true, None, "operator".into()).await.unwrap().unwrap();
    };
    check_waits(&store, "answer", true, answering).await;
    let one = store.clone();
    let setting = async move { one.set_enabled("kv".into(), Some(false)).await.unwrap() };
    check_waits(&store, "set", true, setting).await;
    let one = store.clone();
    let withdrawing = async move { one.withdraw_activation("kv").await.unwrap() };
    check_waits(&store, "withdraw", false, withdrawing).await;
}

#[tokio::test]
async fn a_closed_journal_says_so_to_its_other_handles() {
    let home = Home::new();
    for storage in [Storage::Memory, Storage::Full(home.path())] {
        let store = home.open_as(&storage).unwrap();
        let other = store.clone();
        store.close().await.unwrap();
        assert_eq!(other.accept(message("s", "1", "hello")).await, Err(StoreError::Closed));
        assert_eq!(other.counts().await, Err(StoreError::Closed));
        assert_eq!(other.close().await, Err(StoreError::Closed));
    }
}

#[tokio::test]
async fn what_came_while_a_reading_panicked_is_carried_out() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    let request = Arc::new(Mutex::new(accept(&store, "s", "hello")));
    let wait = |request: &Mutex<Request>| poll(request.lock().unwrap().as_mut());
    let beside = Arc::clone(&request);
    let reading = store.read(move |_| -> Result<(), StoreError> {
        // Posted; then back from yielding, while the reading has the connection.
        assert!(wait(&beside).is_pending() && wait(&beside).is_pending());
        panic!("a reading");
    });
    assert!(AssertUnwindSafe(reading).catch_unwind().await.is_err());
    assert_eq!(wait(&request), Poll::Ready(Ok(())));
}
