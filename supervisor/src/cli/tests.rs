//! Verbs as they are typed, against a daemon that answers as it should.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use drupe_extension_api::{
    Fault, FaultCode,
    control::{ReplyBody, method},
};
use serde_json::{Value, json};

use super::{
    fake::{Asked, Fake},
    *,
};

#[test]
fn the_command_line_is_sound() {
    CommandLine::command().debug_assert();
}

#[test]
fn the_home_is_named_before_or_after_the_verb() {
    for line in [["drupe", "--home", "/x", "status"], ["drupe", "status", "--home", "/x"]] {
        let read = CommandLine::try_parse_from(line).expect("it is sound");
        assert_eq!(read.global.home, Some(PathBuf::from("/x")));
        assert!(matches!(read.verb, Some(Verb::Status(_))));
    }
}

#[test]
fn a_verb_that_is_almost_right_is_named() {
    let error = CommandLine::try_parse_from(["drupe", "statsu"]).expect_err("there is no such verb");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("status"), "{error}");
}

#[test]
fn wrong_usage_is_refused() {
    let check = |line: &[&str]| {
        let line = ["drupe"].iter().chain(line);
        assert_eq!(CommandLine::try_parse_from(line).expect_err("it is wrong").exit_code(), 2);
    };
    check(&["ask"]);
    check(&["ask", "x", "--timeout", "0"]);
    check(&["ask", "x", "--agent", "Not An Id"]);
    check(&["ext"]);
    check(&["run", "--agent", "../x"]);
    check(&["completions", "cmd.exe"]);
    check(&["trace"]);
    check(&["trace", "s", "--turn", "0"]);
    check(&["trace", "s", "--turn", "last"]);
    check(&["trace", "s", "--turn", "1", "--all"]);
    check(&["usage", "--since", "yesterday"]);
    check(&["usage", "--by", "hour"]);
    check(&["why"]);
    check(&["bus"]);
    check(&["bus", "dead", "retry", "x"]);
    check(&["session", "export", "s", "--format", "pdf"]);
    check(&["session", "export", "s", "--force"]);
}

/// Runs a verb; its exit status.
fn run(fake: &Fake, line: &str) -> u8 {
    executed(fake, line).unwrap_or_else(|failure| failure.status)
}

/// Runs a verb that fails; how.
fn failed(fake: &Fake, line: &str) -> Failure {
    executed(fake, line).expect_err("it fails")
}

fn executed(fake: &Fake, line: &str) -> Result<u8, Failure> {
    let line =
        CommandLine::try_parse_from(["drupe"].into_iter().chain(line.split(' '))).expect("it is sound");
    let Context { home, named, home_named, config, environment, here, exe, console } = &fake.context;
    let context = Context {
        home: home.clone(),
        named: named.clone(),
        home_named: *home_named,
        config: config.clone(),
        environment: environment.clone(),
        here: here.clone(),
        exe: exe.clone(),
        console: *console,
    };
    execute(line.verb, line.keep, context)
}

fn answer(asked: &str, params: &Value) -> Vec<ReplyBody> {
    let moment = "2026-03-01T10:00:00Z";
    let turn = |id: &str| {
        json!({
            "session": "s", "turn": id, "input": "x", "status": "success", "content": "y", "spend": {},
            "invocations": [], "transcript": [], "diagnostics": [], "trace": "c",
        })
    };
    let result = match asked {
        method::STATUS => json!({
            "version": "0", "state": "ready", "supervisor_pid": 1, "generation": 1, "uptime_ms": 1, "restarts": 0,
            "safe_mode": false, "sessions": 0, "model": "openai/x",
        }),
        method::SESSIONS_SHOW if params["id"] == "gone" => {
            return vec![ReplyBody::Error(Fault::new(FaultCode::NotFound, "there is no session `gone`"))];
        }
        // A turn a page.
        method::SESSIONS_SHOW => {
            let (turns, next) = match params["after"].as_u64() {
                None => (turn("t-1"), json!(7)),
                Some(_) => (turn("t-2"), Value::Null),
            };
            json!({
                "id": "s", "created": moment, "updated": moment, "agent": null, "title": "", "turn_count": 2,
                "last_seq": 0, "turns": [turns], "next": next,
            })
        }
        method::TRACE_SHOW if params["id"] != "s" => json!([{
            "session": "s", "turn": params["id"], "accepted": moment, "status": "success", "spend": {}, "nodes": [],
        }]),
        method::SESSIONS_STOP if params["id"] == "gone" => json!(0),
        method::SESSIONS_STOP => json!(2),
        method::TRACE_SHOW | method::USAGE_SHOW | method::BUS_DEAD => json!([]),
        method::WHY => json!({"id": "x", "subject": "turn", "sentences": ["It was answered."], "cited": []}),
        method::TURN_SUBMIT => json!({"turn": "t", "duplicate": false}),
        method::TURN_WAIT => turn("t"),
        _ => Value::Null,
    };
    vec![ReplyBody::Result(result)]
}

/// The exit status of a verb, and what it asked.
fn check(line: &str, status: u8, expected: &[(&str, Value)]) {
    let fake = Fake::start(answer);
    assert_eq!(run(&fake, line), status, "{line}");
    let expected: Asked =
        expected.iter().map(|(method, params)| ((*method).to_owned(), params.clone())).collect();
    assert_eq!(fake.asked(), expected, "{line}");
}

#[test]
fn verbs_ask_what_was_typed() {
    check("trace s", 0, &[(method::TRACE_SHOW, json!({"id": "s", "turn": -1}))]);
    check("trace s --turn 3", 0, &[(method::TRACE_SHOW, json!({"id": "s", "turn": 3}))]);
    check("trace s --all", 0, &[(method::TRACE_SHOW, json!({"id": "s"}))]);
    check("trace s --turn -1 --json", 0, &[(method::TRACE_SHOW, json!({"id": "s", "turn": -1}))]);
    check("usage", 0, &[(method::USAGE_SHOW, json!({"by": "day"}))]);
    let query = json!({"since": "2026-03-01", "by": "model", "session": "s"});
    let exists = |id: &str| (method::SESSIONS_SHOW, json!({"id": id, "brief": true}));
    check("usage --since 2026-03-01 --by model --session s", 0, &[(method::USAGE_SHOW, query), exists("s")]);
    let query = json!({"by": "day", "session": "gone"});
    check("usage --session gone", 1, &[(method::USAGE_SHOW, query), exists("gone")]);
    check("session stop gone", 1, &[(method::SESSIONS_STOP, json!({"id": "gone"})), exists("gone")]);
    check("why t-1", 0, &[(method::WHY, json!({"id": "t-1"}))]);
    check("session stop s", 0, &[(method::SESSIONS_STOP, json!({"id": "s"}))]);
    for line in ["bus dead", "bus dead list", "bus dead --json", "bus dead list --json"] {
        check(line, 0, &[(method::BUS_DEAD, Value::Null)]);
    }
    check("bus dead retry 7", 0, &[(method::BUS_RETRY, json!({"id": 7}))]);
    check("bus dead drop 7", 0, &[(method::BUS_DROP, json!({"id": 7}))]);
    check("session show gone", 1, &[(method::SESSIONS_SHOW, json!({"id": "gone"}))]);
}

/// A kernel that is ready and cannot write its journal.
fn full(asked: &str, params: &Value) -> Vec<ReplyBody> {
    match asked {
        method::TURN_SUBMIT | method::RESTART | method::SESSIONS_STOP | method::BUS_DROP => {
            vec![ReplyBody::Error(Fault::new(FaultCode::Unavailable, "the disk is full"))]
        }
        _ => answer(asked, params),
    }
}

/// The same that cannot read it either.
fn broken(asked: &str, params: &Value) -> Vec<ReplyBody> {
    match asked {
        method::TURN_WAIT => vec![ReplyBody::Error(Fault::new(FaultCode::Unavailable, "it is damaged"))],
        _ => answer(asked, params),
    }
}

#[test]
fn what_a_kernel_that_is_ready_refuses_is_said_at_once_and_not_asked_again() {
    for (line, refused, daemon) in [
        ("ask x", method::TURN_SUBMIT, full as super::fake::Answer),
        ("restart", method::RESTART, full),
        ("session stop s", method::SESSIONS_STOP, full),
        ("bus dead drop 1", method::BUS_DROP, full),
        ("ask x", method::TURN_WAIT, broken),
    ] {
        let fake = Fake::start(daemon);
        assert_eq!(run(&fake, line), 75, "{line}");
        assert_eq!(fake.asked().iter().filter(|(method, _)| method == refused).count(), 1, "{line}");
    }
}

/// A kernel that decides; what it is asked to change works then.
fn deciding(asked: &str, params: &Value) -> Vec<ReplyBody> {
    let moment = "2026-03-01T10:00:00Z";
    let approval = |hash: &str, state: &str| {
        json!({"id": format!("a-{hash}"), "extension": "x", "hash": hash, "needs": [], "asked": moment, "state": state,
               "answered": moment})
    };
    let mut now = json!({
        "id": "x", "version": null, "state": "active", "capabilities": [], "isolation": null, "source": "x",
        "since": moment,
    });
    let result = match asked {
        method::APPROVALS_ANSWER if params["id"] == "x" => {
            return vec![ReplyBody::Error(Fault::not_found("nothing of `x` waits for an answer"))];
        }
        method::APPROVALS_ANSWER => approval("now", "denied"),
        method::APPROVALS_LIST => json!([approval("later", "denied"), approval("now", "allowed")]),
        method::EXTENSIONS_LIST => json!([now]),
        method::EXTENSIONS_SHOW => {
            for (key, value) in [
                ("name", json!("x")),
                ("summary", json!("")),
                ("description", json!("")),
                ("tools", json!([])),
                ("depends_on", json!([])),
                ("rights", json!([])),
                ("history", json!([])),
                ("content", json!("now")),
            ] {
                now[key] = value;
            }
            now
        }
        method::EXTENSIONS_DISABLE => {
            now["state"] = json!("disabled");
            now
        }
        method::EXTENSIONS_ENABLE | method::EXTENSIONS_RELEASE | method::EXTENSIONS_ADD => now,
        _ => return answer(asked, params),
    };
    vec![ReplyBody::Result(result)]
}

#[test]
fn a_decision_waits_for_the_kernel_and_is_then_asked_for_once() {
    for (line, method) in [
        ("approvals allow a1", method::APPROVALS_LIST),
        ("approvals deny a1", method::APPROVALS_LIST),
        ("ext enable x", method::EXTENSIONS_ENABLE),
        ("ext disable x", method::EXTENSIONS_DISABLE),
        ("ext release x", method::EXTENSIONS_RELEASE),
        ("ext add .", method::EXTENSIONS_ADD),
    ] {
        let fake = Fake::start_after(3, deciding);
        assert_eq!(run(&fake, line), 0, "{line}");
        let decided = fake.asked().iter().filter(|(asked, _)| asked == method).count();
        assert_eq!(decided, 4, "{line}: three times the supervisor said that there is no kernel");
        let answered = fake.asked().iter().filter(|(asked, _)| asked == method::APPROVALS_ANSWER).count();
        assert_eq!(answered, usize::from(line.starts_with("approvals")), "{line}");
    }
}

/// A kernel that is ready and cannot keep what was decided.
fn forgetful(asked: &str, params: &Value) -> Vec<ReplyBody> {
    match asked {
        method::EXTENSIONS_ENABLE => {
            vec![ReplyBody::Error(Fault::new(FaultCode::Unavailable, "the disk is full"))]
        }
        _ => deciding(asked, params),
    }
}

#[test]
fn what_a_kernel_says_to_a_decision_holds() {
    let fake = Fake::start_after(1, forgetful);
    assert_eq!(run(&fake, "ext enable x"), 75);
    assert_eq!(fake.asked().len(), 2, "{:?}", fake.asked());
}

#[test]
fn an_answer_is_changed_by_the_name_of_the_extension_where_it_was_given_for_what_is_there() {
    let fake = Fake::start(deciding);
    assert_eq!(run(&fake, "approvals deny x"), 0);
    let answers: Vec<_> =
        fake.asked().into_iter().filter(|(asked, _)| asked == method::APPROVALS_ANSWER).collect();
    let given = |params| (method::APPROVALS_ANSWER.to_owned(), params);
    let now = json!({"id": "a-now", "allow": false, "for_session": false, "hash": "now"});
    assert_eq!(answers, [given(json!({"id": "x", "allow": false, "for_session": false})), given(now)]);
}

#[test]
fn an_answer_says_what_was_read_and_is_not_given_to_anything_else() {
    for (line, status, given) in [
        ("approvals deny a-now", 0, 1),
        ("approvals deny a-now:n", 0, 1),
        ("approvals deny a-now:later", 1, 0),
        ("approvals deny nothing:now", 1, 0),
    ] {
        let fake = Fake::start(deciding);
        assert_eq!(run(&fake, line), status, "{line}");
        let asked = fake.asked().into_iter();
        let answers: Vec<_> = asked.filter(|(asked, _)| asked == method::APPROVALS_ANSWER).collect();
        assert_eq!(answers.len(), given, "{line}");
        assert!(answers.iter().all(|(_, params)| params["hash"] == "now"), "{answers:?}");
    }
}

#[test]
fn ask_wants_the_whole_turn_only_for_the_object() {
    for (line, brief) in
        [("ask x", true), ("ask x --format json", false), ("ask x --format json --transcript", false)]
    {
        let fake = Fake::start(answer);
        assert_eq!(run(&fake, line), 0, "{line}");
        let asked = fake.asked();
        let waited = asked.iter().find(|(method, _)| method == method::TURN_WAIT).map(|(_, params)| params);
        assert_eq!(waited, Some(&json!({"turn": "t", "brief": brief})), "{line}");
    }
}

/// A turn whose content says that another one took its message in, as an event says, too.
fn steered(asked: &str, params: &Value) -> Vec<ReplyBody> {
    let turn = |id: &str, status: &str, content: &str| {
        ReplyBody::Result(json!({
            "session": "s", "turn": id, "input": "x", "status": status, "content": content, "spend": {},
            "invocations": [], "transcript": [], "diagnostics": [], "trace": "c",
        }))
    };
    match asked {
        method::TURN_WAIT if params["turn"] == "t" => {
            vec![turn("t", "success", "turn `t-1` took this message in while it ran")]
        }
        method::TURN_WAIT => vec![turn("t-1", "error", "")],
        method::EVENTS_SUBSCRIBE => {
            let event = json!({
                "seq": 1, "time": "2026-03-01T10:00:00Z", "session": "s", "turn": "t-1",
                "kind": "interaction.turn.steered",
                "data": {"input": {"text": "x", "bytes": 1}, "from": "t"},
            });
            let event = serde_json::from_value(event).expect("an event");
            vec![ReplyBody::Event(Box::new(event)), ReplyBody::Result(Value::Null)]
        }
        _ => answer(asked, params),
    }
}

/// The same words, said by a model: no event speaks of it.
fn spoofed(asked: &str, params: &Value) -> Vec<ReplyBody> {
    match asked {
        method::EVENTS_SUBSCRIBE => vec![ReplyBody::Result(Value::Null)],
        _ => steered(asked, params),
    }
}

#[test]
fn ask_ends_as_the_turn_that_took_its_message_in() {
    let waited = |fake: &Fake| {
        let asked = fake.asked().into_iter().filter(|(method, _)| method == method::TURN_WAIT);
        asked.map(|(_, params)| params["turn"].clone()).collect::<Vec<_>>()
    };
    let fake = Fake::start(steered);
    assert_eq!(run(&fake, "ask x"), 1, "that turn failed");
    assert_eq!(waited(&fake), ["t", "t-1"]);
    let fake = Fake::start(spoofed);
    assert_eq!(run(&fake, "ask x"), 0);
    assert_eq!(waited(&fake), ["t"]);
}

#[test]
fn an_export_is_written_once_unless_it_is_forced() {
    let fake = Fake::start(answer);
    let file = fake.context.here.join("out.md");
    assert_eq!(run(&fake, "session export s --format markdown --output out.md"), 0);
    assert!(fs::read_to_string(&file).is_ok_and(|text| text.starts_with("# Session s\n")));
    let asked = fake.asked();
    let show = |asked| (method::SESSIONS_SHOW.to_owned(), asked);
    let pages = [json!({"id": "s"}), json!({"id": "s", "after": 7})].map(show);
    let trace = |turn: &str| (method::TRACE_SHOW.to_owned(), json!({"id": turn}));
    let traces = [trace("t-1"), trace("t-2")];
    let asked_for = [pages, traces].concat();
    assert_eq!(asked, asked_for, "page by page, then turn by turn");
    assert_eq!(run(&fake, "session export s --output out.md"), 73);
    assert_eq!(fake.asked().len(), 4, "nothing is asked in vain");
    assert_eq!(run(&fake, "session export s --output out.md --force"), 0);
    assert!(fs::read_to_string(&file).is_ok_and(|text| text.starts_with('{')));
    let events = json!({"session": "s", "after": 0, "follow": false});
    let events = (method::EVENTS_SUBSCRIBE.to_owned(), events);
    assert_eq!(fake.asked()[4..], [asked_for, vec![events]].concat(), "events come last");
    // What cannot be read leaves no file.
    assert_eq!(run(&fake, "session export gone --output gone.json"), 1);
    assert!(!fake.context.here.join("gone.json").exists());
}

/// A kernel that goes away after the first event, and is another one when it is asked for the rest.
fn cut(_: &str, params: &Value) -> Vec<ReplyBody> {
    let event = |seq: u64| {
        let event = json!({
            "seq": seq, "time": "2026-03-01T10:00:00Z", "session": "s", "kind": "interaction.turn.started",
            "data": {"input": {"text": "x", "bytes": 1}},
        });
        ReplyBody::Event(serde_json::from_value(event).expect("an event"))
    };
    match params["after"].as_u64() {
        Some(0) => vec![event(1), ReplyBody::Error(Fault::new(FaultCode::Unavailable, "it restarts"))],
        _ => vec![event(2), ReplyBody::Result(Value::Null)],
    }
}

#[test]
fn events_go_on_where_a_kernel_left_off() {
    let fake = Fake::start(cut);
    let events = fake.context.daemon().events(&"s".parse().expect("an id"));
    let events = events.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2], "each once");
    let after: Vec<_> = fake.asked().iter().map(|(_, params)| params["after"].clone()).collect();
    assert_eq!(after, [0, 1]);
}

#[test]
fn a_verb_that_needs_a_daemon_says_that_there_is_none() {
    let fake = Fake::absent();
    let lines = [
        "status",
        "trace s",
        "usage",
        "why t",
        "session list",
        "session stop s",
        "session export s",
        "bus dead",
        "bus dead retry 1",
        "bus dead drop 1",
    ];
    for line in lines {
        assert_eq!(run(&fake, line), 69, "{line}");
    }
}

#[test]
fn a_daemon_for_an_agent_that_is_not_there_does_not_begin() {
    let fake = Fake::absent();
    for line in ["run --agent nobody", "run --agent plain --agent nobody"] {
        let plain = fake.context.home.path().join("extensions/plain");
        fs::create_dir_all(&plain).expect("a folder");
        let manifest = "id: plain\nname: x\ndescription: x\nagent: {instructions: x, usage: x}\n";
        fs::write(plain.join("manifest.yaml"), manifest).expect("a file");
        let failure = failed(&fake, line);
        assert_eq!(failure.status, 1, "{failure}");
        assert!(failure.render(false).contains("no agent `nobody`"), "{failure}");
        assert!(failure.render(false).contains("`plain`"), "what is there is named: {failure}");
        assert!(!fake.context.home.is_held(), "no daemon began");
    }
}

/// A daemon whose next kernel is in safe mode.
fn falls(asked: &str, _: &Value) -> Vec<ReplyBody> {
    static RESTARTED: AtomicBool = AtomicBool::new(false);
    let now = match asked {
        method::RESTART => RESTARTED.fetch_or(true, Ordering::Relaxed),
        _ => RESTARTED.load(Ordering::Relaxed),
    };
    let status = json!({
        "version": "0", "state": "ready", "supervisor_pid": 1, "generation": 1 + u64::from(now), "uptime_ms": 1,
        "restarts": 0, "safe_mode": now, "sessions": 0,
    });
    vec![ReplyBody::Result(if asked == method::STATUS { status } else { Value::Null })]
}

#[test]
fn a_restart_that_ends_in_safe_mode_is_no_success() {
    assert_eq!(run(&Fake::start(falls), "restart"), 1);
}
