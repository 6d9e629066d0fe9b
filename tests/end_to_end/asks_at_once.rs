//! Several `drupe ask` at once in a home without a daemon: one of them starts it, and none ends it under the others.

use std::{
    collections::BTreeSet,
    process::{Child, Output, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
};

/// Texts whose answers were asked for, and those that may come.
#[derive(Default)]
struct Held {
    asked: Mutex<BTreeSet<String>>,
    released: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

impl Held {
    fn answer(&self, asked: &str) -> Say {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(asked.to_owned());
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(released, |released| !released.contains(asked)));
        Say::Text(format!("answer to {asked}"))
    }

    fn release(&self, text: &str) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
        self.changed.notify_all();
    }

    fn until_asked(&self, text: &str) {
        let asked = || self.asked.lock().unwrap_or_else(PoisonError::into_inner).contains(text).then_some(());
        until("the model is asked", asked).unwrap_or_else(|| panic!("nobody asked for `{text}`"));
    }
}

fn ask(daemon: &Daemon, text: &str) -> Child {
    let mut command = daemon.command(&["ask", text]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn answered(asking: Child, to: &str) {
    let Output { status, stdout, stderr } = asking.wait_with_output().expect("it ends");
    assert!(status.success(), "`{to}`: {status}: {}", text(&stderr));
    assert_eq!(text(&stdout).trim(), format!("answer to {to}"));
}

#[test]
fn each_gets_its_answer_and_the_last_ends_the_daemon() {
    let held = Arc::new(Held::default());
    let server = {
        let held = Arc::clone(&held);
        ModelServer::start(move |request| {
            let (_, asked) = latest(request);
            let known = ["first", "second", "third"].into_iter().find(|known| asked.contains(known));
            held.answer(known.unwrap_or("something else"))
        })
    };
    let daemon = Daemon::home(&(server.config() + "drain_timeout_ms: 1000\n"));
    let first = ask(&daemon, "first");
    held.until_asked("first");
    let second = ask(&daemon, "second");
    held.until_asked("second");
    held.release("first");
    // The first has its answer now, and the second has none.
    until("the first turn has ended", || {
        let status = daemon.client().ask("status", serde_json::json!({})).expect("a status");
        (status["running_turns"] == 1).then_some(())
    })
    .expect("it ends");
    let third = ask(&daemon, "third");
    held.until_asked("third");
    held.release("third");
    answered(third, "third");
    held.release("second");
    answered(second, "second");
    answered(first, "first");
    assert_eq!(daemon.drupe(&["status"]).status.code(), Some(69), "it was there for them alone");
}
