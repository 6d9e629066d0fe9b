//! Messages of topics beside those of people.

use std::sync::{Mutex, mpsc::channel};

use super::*;
use crate::harness::PATIENCE;

#[test]
fn a_person_is_answered_while_messages_of_topics_have_all_the_room_that_they_get() {
    let (told, asked) = channel();
    let (go, held) = channel::<()>();
    let (told, held) = (Mutex::new(told), Mutex::new(held));
    let server = ModelServer::start(move |request| {
        if event(&latest(request).1).is_some() {
            let _ = told.lock().expect("one at a time").send(());
            // Ends when the test lets it.
            let _ = held.lock().expect("one at a time").recv();
        }
        model(request)
    });
    let mut daemon = Daemon::home(&(server.config() + "limits: {concurrency: {turns: 2}}\n"));
    daemon.plugin("press", "watcher", "config: {prefix: press}\n");
    for id in ["one", "two", "three"] {
        put(&daemon, id, &follower(id, &["press.note"], ""));
    }
    daemon.run();
    publish(&daemon, "note", &json!({"n": 1}));
    asked.recv_timeout(PATIENCE).expect("one of them is at work");
    daemon.until_status("the others wait or work", |s| s["queued_turns"] == 3 || s["sessions"] == 4);
    assert_eq!(daemon.turn("s", "hello")["content"], "seen");
    assert!(asked.try_recv().is_err(), "no other has begun");
    drop(go);
    for id in ["one", "two", "three"] {
        assert_eq!(until_turns(&daemon, id, 1)[0]["status"], "success");
    }
}
