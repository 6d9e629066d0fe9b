//! Limits of how much goes on at the same time. Whether two things overlap is seen by one that waits for what the other
//! does: alone, it waits until its time is over.

use serde_json::{Value, json};

use super::{House, results, row};
use crate::harness::model_server::{ModelServer, Say, latest};

/// The calls: one that waits for a file, and one that makes it.
fn pair(house: &House) -> [Value; 2] {
    let file = |name: &str| house.daemon.path().join(name);
    [
        json!({"path": file("lines"), "nonce": "waits", "until": file("made")}),
        json!({"path": file("made"), "nonce": "makes"}),
    ]
}

/// What came of the call that waits.
fn waited(turn: &Value) -> bool {
    let results = results(turn);
    match results.iter().any(|(_, text)| text.contains("its time was over")) {
        true => false,
        false => {
            assert!(results.iter().any(|(_, text)| text.contains("appended waits")), "{turn}");
            true
        }
    }
}

const ONE: &str = "  uses_tools: [faulty]\n";

#[test]
fn calls_of_one_step_run_at_the_same_time_as_far_as_it_is_said() {
    for (parallel, expected) in [(1, false), (2, true)] {
        let agent = format!(
            "{ONE}  limits: {{parallel_tool_calls: {parallel}, tool_timeout_ms: {}}}\n",
            time(expected)
        );
        let house = House::build("", "", &[("one", &agent)], |request| {
            let (role, text) = latest(request);
            match serde_json::from_str::<Vec<Value>>(&text) {
                Ok(calls) if role == "user" => {
                    Say::Call(calls.into_iter().map(|c| ("faulty_effect_append".to_owned(), c)).collect())
                }
                _ => Say::Text("done".into()),
            }
        });
        let turn = house.daemon.turn("s", &format!("@one {}", json!(pair(&house))));
        row(
            &format!("parallel_tool_calls: {parallel}"),
            &turn,
            &format!("overlap: {expected}"),
            house.requests(),
        );
        assert_eq!(waited(&turn), expected, "{parallel}: {turn}");
    }
}

/// How long the call that waits may take: where the other cannot come meanwhile, that is waited for.
fn time(overlap: bool) -> u64 {
    if overlap { 30_000 } else { 600 }
}

#[test]
fn turns_of_all_sessions_wait_for_each_other_beyond_so_many() {
    for (turns, expected) in [(1, false), (2, true)] {
        let config = format!("limits: {{concurrency: {{turns: {turns}}}}}\n");
        let agent = format!("{ONE}  limits: {{tool_timeout_ms: {}}}\n", time(expected));
        let house = House::on(ModelServer::obedient(), "", &config, &[("one", &agent)]);
        let turn = two(&house, |call| format!("@one faulty_effect_append {call}"));
        row(
            &format!("limits.concurrency.turns: {turns}"),
            &turn,
            &format!("overlap: {expected}"),
            house.requests(),
        );
        assert_eq!(waited(&turn), expected, "{turns}: {turn}");
    }
}

#[test]
fn runs_of_one_agent_wait_for_each_other_beyond_so_many() {
    for (runs, expected) in [(1, false), (2, true)] {
        let config = format!("limits: {{concurrency: {{runs_of_one_agent: {runs}}}}}\n");
        let agent = format!("{ONE}  limits: {{tool_timeout_ms: {}}}\n", time(expected));
        let house = House::on(ModelServer::obedient(), "", &config, &[("one", &agent)]);
        let turn = two(&house, |call| {
            let task = format!("faulty_effect_append {call}");
            format!("agent_one {}", json!({"task": task}))
        });
        let name = format!("limits.concurrency.runs_of_one_agent: {runs}");
        row(&name, &turn, &format!("overlap: {expected}"), house.requests());
        assert_eq!(waited(&turn), expected, "{runs}: {turn}");
    }
}

/// Has one session wait for what the other one does; the turn that waited.
fn two(house: &House, message: impl Fn(&Value) -> String) -> Value {
    let [waits, makes] = pair(house);
    let waiting = house.daemon.submit("waits", &message(&waits));
    let lines = house.daemon.path().join("lines");
    crate::harness::until("the first call has begun", || lines.exists().then_some(())).expect("it begins");
    let making = house.daemon.submit("makes", &message(&makes));
    let turn = house.daemon.wait(&waiting);
    assert_eq!(house.daemon.wait(&making)["status"], "success", "it had to wait, and then ran");
    turn
}
