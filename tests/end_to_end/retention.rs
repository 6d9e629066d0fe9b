//! What the journal is told to let go, as the operator of a daemon meets it.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
};

use drupe_agent::{Batch, Clock, Entry, ManualClock, SystemClock, ids};
use drupe_extension_api::{AgentResponse, Message, Spend, TurnId, Usage, wire::Submit};
use drupe_journal::{Inbound, Origin, Outbound, Storage, Store, TurnDone};

use crate::harness::{Daemon, text};

const DAY_MS: i64 = 86_400_000;

/// What a future gives that needs no runtime.
pub fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// The journal of a home whose daemon does not run.
struct Past {
    store: Store,
    clock: Arc<ManualClock>,
}

impl Past {
    fn of(daemon: &Daemon) -> Self {
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
        let storage = Storage::Full(daemon.path().join("journal.db"));
        let store = Store::open(&storage, clock.clone(), Arc::new(|_| ())).expect("a journal");
        Self { store, clock }
    }

    /// A turn that ended so many days ago; its answer still has to go to a channel, unless that is empty.
    fn turn(&self, session: &str, days_ago: i64, channel: &str) -> TurnId {
        let now = self.clock.now_ms();
        self.clock.advance(-days_ago * DAY_MS);
        let (id, text) =
            (format!("{session}-{days_ago}-{channel}"), format!("a question {days_ago} days ago"));
        let ask = Submit::new(session.parse().expect("an id"), id, text);
        let ask = Submit { channel: channel.into(), ..ask };
        let turn = wait(self.store.accept(Inbound::new(ask, Origin::OPERATOR))).expect("accepted").turn;
        let root = ids::root_invocation(&turn);
        let message = Message::Assistant {
            content: "an answer".into(),
            reasoning: None,
            tool_calls: Vec::new(),
            provider_items: None,
        };
        let begin = Entry::Begin {
            invocation: root.clone(),
            agent: "orchestrator".parse().expect("an id"),
            parent: None,
            depth: 0,
            task: "a question".into(),
            recipe: None,
        };
        let answer = Entry::Answer {
            invocation: root,
            step: 1,
            message,
            model: "local/old".into(),
            usage: Usage { input_tokens: 1_000, ..Usage::default() },
            cost_usd: None,
            estimated: false,
            stop: Default::default(),
            said: String::new(),
            told: None,
        };
        let to = Outbound { channel: channel.into(), address: None, text: "an answer".into() };
        let done = TurnDone {
            conversation: None,
            snapshot: None,
            summary: None,
            response: AgentResponse::success("an answer"),
            spend: Spend::default(),
            diagnostics: Vec::new(),
            outbox: (!channel.is_empty()).then_some(to),
            copies: Vec::new(),
            last: Batch {
                entries: vec![begin, answer],
                ..Batch::empty("s".parse().expect("an id"), turn.clone())
            },
            events: Vec::new(),
            start: None,
            ratios: Vec::new(),
        };
        wait(self.store.finish_turn(done)).expect("finished");
        self.clock.advance(now - self.clock.now_ms());
        turn
    }

    fn close(self) {
        wait(self.store.close()).expect("closed");
    }
}

fn refused(daemon: &Daemon, args: &[&str]) -> String {
    let output = daemon.drupe(args);
    assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn turns_that_ended_too_long_ago_are_deleted_after_the_start_and_it_is_said_wherever_they_are_asked_for() {
    let mut daemon = Daemon::home("journal: {retention: {max_age_days: 30}}\n");
    let past = Past::of(&daemon);
    let gone = [past.turn("s", 50, ""), past.turn("s", 40, ""), past.turn("other", 31, "")];
    let kept = [past.turn("s", 40, "nowhere"), past.turn("s", 29, ""), past.turn("young", 0, "")];
    past.close();
    daemon.run();
    let told = |status: &serde_json::Value| status["notices"].to_string().contains("3 turns");
    let status = daemon.until_status("what went is told", told);
    assert!(status["notices"].to_string().contains("journal.retention"), "{status:#}");
    for turn in &kept {
        assert_eq!(daemon.json(&["trace", turn.as_str(), "--json"])[0]["turn"], turn.as_str());
    }
    for turn in &gone {
        for asked in [["trace", turn.as_str()], ["why", turn.as_str()]] {
            let said = refused(&daemon, &asked);
            assert!(said.contains("journal.retention") && said.contains(turn.as_str()), "{said}");
        }
        for asked in ["turn.wait", "turn.stop"] {
            let said = daemon.client().ask(asked, serde_json::json!({"turn": turn}));
            assert!(said.as_ref().is_err_and(|why| why.contains("journal.retention")), "{asked}: {said:?}");
        }
    }
    let shown = daemon.says(&["session", "show", "s"]);
    assert!(shown.contains("its first 2 turns are deleted") && shown.contains("29 days ago"), "{shown}");
    let exported = daemon.says(&["session", "export", "s", "--format", "markdown"]);
    assert!(exported.contains("first 2 turns are deleted") && exported.contains("## Turn 3"), "{exported}");
    let said = refused(&daemon, &["trace", "s", "--turn", "2"]);
    assert!(said.contains("up to 2 are deleted"), "{said}");
    assert_eq!(daemon.json(&["trace", "s", "--turn", "4", "--json"])[0]["turn"], kept[1].as_str());
    let used = daemon.json(&["usage", "--by", "model", "--json"]);
    let old = used.as_array().expect("rows").iter().find(|row| row.to_string().contains("local/old"));
    assert!(old.is_some_and(|row| row.to_string().contains("6000")), "sums stay: {used:#}");
    // A new turn of the same session goes on as ever.
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
}

#[test]
fn without_the_keys_everything_is_kept() {
    let mut daemon = Daemon::home("");
    let past = Past::of(&daemon);
    let old = [past.turn("s", 4_000, ""), past.turn("s", 1, "")];
    past.close();
    daemon.run();
    for turn in &old {
        assert_eq!(daemon.json(&["trace", turn.as_str(), "--json"])[0]["turn"], turn.as_str());
    }
    assert!(!daemon.says(&["status"]).contains("journal.retention"));
}

#[test]
fn what_is_let_go_is_archived_first_and_shown_as_that() {
    let mut daemon = Daemon::home("journal: {retention: {max_age_days: 30, archive: old turns}}\n");
    let past = Past::of(&daemon);
    past.turn("s", 50, "");
    past.turn("s", 40, "");
    past.turn("s", 1, "");
    past.close();
    daemon.run();
    daemon.until_status("they went", |status| status["notices"].to_string().contains("2 turns"));
    let shown = daemon.says(&["session", "show", "s"]);
    assert!(shown.contains("its first 2 turns are archived, in"), "{shown}");
    assert!(shown.contains("old turns/s.jsonl"), "{shown}");
    assert!(shown.contains("› a question 50 days ago (archived)"), "{shown}");
    assert!(shown.contains("› a question 1 days ago\n"), "{shown}");
    let places: Vec<_> = ["50 days", "40 days", "1 days"].iter().map(|day| shown.find(day)).collect();
    assert!(places.is_sorted() && places[0].is_some(), "in their order: {shown}");
    let shown = daemon.json(&["session", "show", "s", "--json"]);
    assert_eq!(shown["archived_turns"].as_array().map(Vec::len), Some(2), "{shown}");
    assert_eq!(shown["turns"].as_array().map(Vec::len), Some(1));
}
