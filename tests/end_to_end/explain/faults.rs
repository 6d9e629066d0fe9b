//! Seeded faults in a whole daemon: of each, `drupe why` says the cause in a sentence and names the rows that say so.
//!
//! `cargo test -p drupe --test end_to_end explain::faults -- --nocapture` prints a line for each.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc::channel,
};

use serde_json::json;

use super::door::{Asked, Fault};
use crate::harness::{
    Daemon, PATIENCE,
    model_server::{Say, latest},
    until,
    wire::Wire,
};

const RAN: &[&str] = &["turns", "entries", "events"];

/// Fails that often as it looks on the wire, then answers.
fn failing(times: usize, wire: fn() -> Wire) -> Fault {
    let asked = AtomicUsize::new(0);
    Fault::new(move |_| match asked.fetch_add(1, Ordering::SeqCst) < times {
        true => Say::Fail(wire()),
        false => Say::Text("at last".into()),
    })
}

/// Always asks for a call, each time another one.
fn restless() -> Fault {
    let asked = AtomicUsize::new(0);
    Fault::new(move |_| {
        let n = asked.fetch_add(1, Ordering::SeqCst);
        Say::Call(vec![("faulty_echo".into(), json!({"n": n}))])
    })
}

/// Asks for calls once, then says that it is done.
fn calls(name: &'static str, parameters: serde_json::Value, times: usize) -> Fault {
    Fault::new(move |request| match latest(request).0.as_str() {
        "user" => Say::Call(vec![(name.to_owned(), parameters.clone()); times]),
        _ => Say::Text("done".into()),
    })
}

fn sub(daemon: &Daemon) {
    let manifest = "id: sub\nname: Sub\ndescription: Does things.\nagent:\n  model: default\n  \
                    instructions: You are sub.\n  uses_tools: [faulty]\n  limits: {max_turns: 1}\n";
    daemon.write("extensions/sub/manifest.yaml", manifest);
}

#[test]
fn a_wrong_key() {
    let asked = failing(99, || Wire::Status(401, "that key is not known")).ask("hello");
    asked.tells(
        "a wrong key",
        &["(class `auth`)", "401", "that key is not known", "check the provider's key"],
        RAN,
    );
    assert_eq!(asked.server.requests().len(), 1, "it is not tried again");
}

#[test]
fn a_model_that_the_provider_does_not_have() {
    let asked = failing(99, || Wire::Status(404, "there is no such model")).ask("hello");
    asked.tells("an unknown model", &["(class `config`)", "404", "there is no such model"], RAN);
}

#[test]
fn an_account_without_credit() {
    let asked = failing(99, || Wire::Status(402, "pay first")).ask("hello");
    asked.tells("no credit (402)", &["(class `rate_limit`)", "no more credit or quota"], RAN);
    assert_eq!(asked.server.requests().len(), 1, "it is not tried again");
}

#[test]
fn too_many_requests_and_then_an_answer() {
    let asked = failing(1, || Wire::Status(429, "slow down")).ask("hello");
    let said = ["`orchestrator` answered", "attempt 1)", "429", "slow down", "`local/test` was asked next"];
    asked.tells("429, then an answer", &said, RAN);
}

#[test]
fn a_provider_that_is_broken() {
    let asked = failing(99, || Wire::Status(500, "sorry")).ask("hello");
    asked.tells("500 for ever", &["`orchestrator` failed", "500", "attempt 1)", "attempt 3)"], RAN);
    assert_eq!(asked.server.requests().len(), 3);
}

#[test]
fn a_stream_that_stalls() {
    let asked =
        failing(1, || Wire::Stall("half an ans")).config("      stall_timeout_ms: 300\n").ask("hello");
    let said = ["`orchestrator` answered", "nothing came for 300 ms", "`local/test` was asked next"];
    asked.tells("a stalled stream", &said, RAN);
}

#[test]
fn a_stream_that_is_cut() {
    let asked = failing(1, || Wire::Cut("half an ans")).ask("hello");
    asked.tells("a cut stream", &["`orchestrator` answered", "the answer broke off", "was asked next"], RAN);
}

#[test]
fn a_stream_that_is_no_json() {
    let asked = failing(1, || Wire::Malformed).ask("hello");
    asked.tells(
        "malformed JSON",
        &["`orchestrator` answered", "it sent an event that is not valid", "was asked next"],
        RAN,
    );
}

#[test]
fn a_tool_that_nobody_has() {
    let asked = calls("faulty_nothing", json!({}), 1).ask("hello");
    asked.tells("a forged tool name", &["`faulty_nothing` did not run (step 1 of `orchestrator`)"], RAN);
}

#[test]
fn parameters_that_do_not_fit() {
    let asked = calls("faulty_slow", json!({"ms": "soon"}), 1).ask("hello");
    asked.tells("bad parameters", &["`faulty_slow` did not run (step 1 of `orchestrator`)", "ms"], RAN);
}

#[test]
fn more_calls_than_a_step_may_have() {
    let limits = "orchestrator:\n  limits: {max_tool_calls_per_step: 1}\n";
    let asked = calls("faulty_echo", json!({}), 2).config(limits).ask("hello");
    asked.tells(
        "calls beyond the bound of a step",
        &["`faulty_echo` did not run", "at most 1 tool call"],
        RAN,
    );
}

#[test]
fn a_tool_that_fails() {
    let asked = calls("faulty_error", json!({}), 1).ask("hello");
    asked.tells(
        "a failing tool",
        &["`faulty_error` failed (step 1 of `orchestrator`)", "it was told to fail"],
        RAN,
    );
}

#[test]
fn a_tool_that_panics() {
    let asked = calls("faulty_panic", json!({}), 1).ask("hello");
    asked.tells("a panicking tool", &["`faulty_panic` failed (step 1 of `orchestrator`)", "panic"], RAN);
}

#[test]
fn a_tool_that_takes_too_long() {
    let limits = "orchestrator:\n  limits: {tool_timeout_ms: 200}\n";
    let asked = calls("faulty_hang", json!({}), 1).config(limits).ask("hello");
    asked.tells(
        "a tool's time",
        &["`faulty_hang` was stopped (step 1 of `orchestrator`)", "its time was over"],
        RAN,
    );
}

#[test]
fn a_sub_agent_that_refuses() {
    let message = r#"agent_sub {"task": "refuse {\"reason\": \"not my business\"}"}"#;
    let asked = Fault::obedient().prepare(sub).ask(message);
    asked.tells(
        "a refusal",
        &["`orchestrator` answered", "Sub-agent `sub` refused its task (class `refused`): not my business"],
        RAN,
    );
}

#[test]
fn a_sub_agent_that_uses_its_limit_up() {
    let asked = Fault::obedient().prepare(sub).ask(r#"agent_sub {"task": "faulty_echo {}"}"#);
    let said =
        ["Sub-agent `sub` failed (class `budget`)", "`max_turns`: used 1 of 1 step", "raise `max_turns`"];
    asked.tells("a sub-agent's steps", &said, RAN);
}

#[test]
fn an_agent_that_nobody_knows() {
    let asked = Fault::obedient().prepare(sub).ask("@sup hello");
    let said = ["It failed before any agent ran", "did you mean `sub`", "correct the configuration"];
    asked.tells("an unknown agent", &said, &["turns"]);
}

#[test]
fn steps_that_are_used_up() {
    let asked = restless().config("orchestrator:\n  limits: {max_turns: 2}\n").ask("hello");
    asked.tells(
        "max_turns",
        &["(class `budget`)", "`max_turns`: used 2 of 2 steps", "raise `max_turns`"],
        RAN,
    );
}

#[test]
fn tokens_that_do_not_suffice() {
    let asked = restless().config("orchestrator:\n  limits: {max_tokens_per_invocation: 100}\n").ask("hello");
    asked.tells(
        "max_tokens_per_invocation",
        &["(class `budget`)", "`max_tokens_per_invocation`", "100 tokens"],
        RAN,
    );
    assert!(asked.server.requests().is_empty());
}

#[test]
fn money_that_does_not_suffice() {
    let config = "  profiles:\n    local/test: {input_usd: 100, cached_usd: 100, output_usd: 100}\n\
                  orchestrator:\n  limits: {max_cost_usd: 0.0001}\n";
    let asked = restless().config(config).ask("hello");
    asked.tells("max_cost_usd", &["(class `budget`)", "`max_cost_usd`", "of $0.000100"], RAN);
    assert!(asked.server.requests().is_empty());
}

#[test]
fn a_price_that_nobody_knows() {
    let config = "  profiles:\n    local/test: {input_usd: 0, output_usd: 0}\norchestrator:\n  limits: {max_cost_usd: 1}\n";
    let unknown = |daemon: &Daemon| {
        let manifest = "id: sub\nname: Sub\ndescription: Does things.\nagent:\n  model: local/other\n  \
                        instructions: You are sub.\n";
        daemon.write("extensions/sub/manifest.yaml", manifest);
    };
    let asked = calls("agent_sub", json!({"task": "go"}), 1).config(config).prepare(unknown).ask("hello");
    asked.tells("an unknown price", &["the model's price is unknown", "allow_unknown_price: true"], RAN);
}

#[test]
fn time_that_is_over_while_a_tool_runs() {
    let limits = "orchestrator:\n  limits: {time_budget_ms: 400}\n";
    let asked = calls("faulty_hang", json!({}), 1).config(limits).ask("hello");
    let said = [
        "(class `timeout`)",
        "`time_budget_ms`: used",
        "`faulty_hang` was stopped",
        "raise `time_budget_ms`",
    ];
    asked.tells("time_budget_ms, in a tool", &said, RAN);
}

#[test]
fn time_that_is_over_while_the_model_answers() {
    // The server's threads end with the test program.
    let slow = Fault::new(|_| {
        std::thread::sleep(PATIENCE);
        Say::Text("too late".into())
    });
    let asked = slow.config("orchestrator:\n  limits: {time_budget_ms: 400}\n").ask("hello");
    let said = ["(class `timeout`)", "gave no answer (step 1 of `orchestrator`, attempt 1)", "raise "];
    asked.tells("time_budget_ms, in the model", &said, RAN);
}

#[test]
fn the_same_call_over_and_over() {
    let asked = Fault::new(|_| Say::Call(vec![("faulty_echo".into(), json!({"a": 1}))])).ask("hello");
    asked.tells("a loop", &["(class `loop`)", "5 times in a row", "After step 3 drupe told"], RAN);
}

#[test]
fn an_answer_that_was_cut_at_its_length() {
    let asked = Fault::new(|_| Say::Length("and then".into())).ask("hello");
    asked.tells("an answer cut at its length", &["was cut off at its bound on tokens (step 1"], RAN);
}

#[test]
fn an_answer_that_is_empty() {
    let asked = Fault::new(|_| Say::Text(String::new())).ask("hello");
    asked.explains("an empty answer", &["(class `model`)", "its answer is empty", "attempt 3)"], RAN);
}

#[test]
fn a_days_limit() {
    let asked = Fault::obedient().config("limits:\n  day: {max_invocations: 1}\n").ask("hello");
    let asked = asked.again("hello again");
    let said = ["before any agent ran", "`limits.day.max_invocations`", "it begins anew at"];
    asked.tells("the day's limit", &said, &["turns"]);
    let why = asked.daemon.json(&["why", "limits.day.max_invocations", "--json"]);
    assert!(why["sentences"][0].as_str().is_some_and(|s| s.contains("It stops work for the day")), "{why}");
    assert_eq!(why["cited"][0]["table"], "usage", "{why}");
}

#[test]
fn a_turn_that_the_operator_stopped() {
    let (told, asked) = channel();
    let told = Mutex::new(told);
    let scene = Fault::new(move |_| {
        let _ = told.lock().expect("one at a time").send(());
        std::thread::sleep(PATIENCE);
        Say::Text("too late".into())
    });
    let (server, daemon, answered) = scene.start();
    let turn = daemon.submit("s", "hello");
    asked.recv_timeout(PATIENCE).expect("the model is asked");
    daemon.client().ask("turn.stop", json!({"turn": turn})).expect("it is stopped");
    daemon.wait(&turn);
    let asked = Asked { server, daemon, turn, answered };
    asked.tells("stopped by the operator", &["(class `cancelled`)", "gave no answer (step 1"], RAN);
}

#[test]
fn a_call_whose_outcome_nobody_knows() {
    let (server, daemon, answered) = Fault::obedient().start();
    let (effects, go) = (daemon.path().join("effects"), daemon.path().join("go"));
    let parameters = json!({"path": effects, "nonce": "one", "until": go});
    let turn = daemon.submit("s", &format!("faulty_effect_append {parameters}"));
    until("the effect happened", || effects.exists().then_some(())).expect("the effect happened");
    daemon.kill_kernel();
    daemon.wait(&turn);
    let asked = Asked { server, daemon, turn, answered };
    let said = ["`faulty_effect_append`", "unknown", "It was begun 2 times: drupe ended in the middle of it"];
    let why = asked.tells("an outcome that nobody knows", &said, RAN);
    // The call itself can be asked about, too.
    let trace = asked.daemon.json(&["trace", &asked.turn, "--json"]);
    let call =
        super::door::nodes(&trace[0]["nodes"]).into_iter().find(|n| n["kind"] == "tool").expect("a call");
    let call = asked.daemon.json(&["why", call["id"].as_str().expect("an id"), "--json"]);
    assert_eq!(call["subject"], "tool_call", "{call} {why}");
    assert!(call["sentences"].to_string().contains("must not run twice"), "{call}");
}

#[test]
fn a_run_that_would_set_itself_off() {
    let clerk = |daemon: &Daemon| {
        let manifest = "id: clerk\nname: Clerk\ndescription: Follows.\nsubscribe: [{topic: agent_result, task: Look.}]\n\
                        agent: {model: default, instructions: You are clerk.}\n";
        daemon.write("extensions/clerk/manifest.yaml", manifest);
    };
    let asked = Fault::obedient().prepare(clerk).ask("hello");
    let dead = || {
        let dead = asked.daemon.json(&["bus", "dead", "list", "--json"]);
        dead.as_array().and_then(|all| all.first()).cloned()
    };
    let dead = until("it was given up", dead).unwrap_or_else(|| panic!("{}", asked.daemon.log()));
    let why = asked.daemon.json(&["why", &dead["id"].to_string(), "--json"]);
    let said = why["sentences"].to_string();
    let expected =
        ["was given up for `agent:clerk`", "comes back to agent `clerk`", "1 attempt", "2 links of events"];
    assert!(expected.iter().all(|part| said.contains(part)), "{why:#}");
    assert_eq!(why["cited"][0]["table"], "deliveries", "{why:#}");
    println!("a circle of events | {} | deliveries", why["sentences"][0].as_str().unwrap_or_default());
    // The turn that was set off says what set it off.
    let session = crate::topics::session_of(&asked.daemon, "clerk");
    let session = asked.daemon.client().ask("sessions.show", json!({"id": session})).expect("the session");
    let why = asked.daemon.says(&["why", session["turns"][0]["turn"].as_str().expect("a turn")]);
    assert!(
        why.contains("A message on a topic set it off (1 link in its chain, after `orchestrator`)"),
        "{why}"
    );
}

#[test]
fn an_extension_that_cannot_start() {
    let fails =
        |daemon: &Daemon| daemon.plugin("broken", "faulty", "config: {prefix: broken, fail_start: true}\n");
    let (_server, daemon, _) = Fault::obedient().prepare(fails).start();
    let why = daemon.json(&["why", "broken", "--json"]);
    let said = why["sentences"].to_string();
    assert!(why["subject"] == "extension" && said.contains("the configuration says `fail_start`"), "{why:#}");
    let tables: Vec<&str> =
        why["cited"].as_array().expect("rows").iter().filter_map(|row| row["table"].as_str()).collect();
    assert!(tables.contains(&"kernel") && tables.contains(&"extension_states"), "{why:#}");
    println!(
        "an extension that cannot start | {} | kernel, extension_states",
        why["sentences"][0].as_str().unwrap_or_default()
    );
    // What there is not is an error, with what could be asked about.
    let nothing = daemon.drupe(&["why", "nothing-of-that-name"]);
    let err = crate::harness::text(&nothing.stderr);
    assert!(nothing.status.code() == Some(1) && err.contains("give the id of a session"), "{err}");
}
