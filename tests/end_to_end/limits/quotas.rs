//! The limits of days, sessions and agents: they stop work, say which and when it begins anew, and no crash refunds
//! anything.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{House, TOKENS, field, row, spread};
use crate::harness::{
    Daemon, PATIENCE,
    model_server::{ModelServer, Say},
};

const PRICED: &str = "input_usd: 100, cached_usd: 100, output_usd: 100";
const SMALL: &str = "  parameters: {max_output_tokens: 10}\n";

/// Turns after which every limit here must have been met.
const MOST: usize = 20;

/// Asks `one` in a session until a limit of that scope stops it.
fn check(scope: &str, unit: &str, allowed: &str) {
    let limit = format!("limits.{scope}.{unit}");
    let config = format!("limits: {{{scope}: {{{unit}: {allowed}}}}}\n");
    let house =
        House::build(PRICED, &config, &[("one", SMALL), ("two", SMALL)], |_| Say::Text("done".into()));
    // Turns of the same size, as no session has a history, except where the session is what is limited.
    let session = |turn: usize| if scope == "session" { "s".to_owned() } else { format!("s{turn}") };
    let (done, stopped) = until_stopped(&house.daemon, session);
    row(&limit, &stopped, &field(&stopped, "error"), house.requests());
    assert!(done > 0, "the first turn is within it: {stopped}");
    assert_eq!(house.requests(), done, "the turn that was stopped asked no model: {stopped}");
    assert_eq!((&stopped["class"], super::tokens(&stopped)), (&json!("budget"), 0), "{stopped}");

    let told = house.exceeded(&session(done));
    assert_eq!(told.len(), 1, "{told:?}");
    let done = done as u64;
    let used = match unit {
        "max_tokens" => TOKENS * done,
        "max_cost_usd" => TOKENS * done * 100,
        _ => done,
    };
    assert_eq!((&told[0]["limit"], &told[0]["used"]), (&json!(limit), &json!(used)), "{told:?}");
    assert!(told[0]["used"].as_u64() <= told[0]["allowed"].as_u64(), "{told:?}");

    let error = field(&stopped, "error");
    assert!(error.contains(&format!("`{limit}`")), "{error}");
    let resets = told[0]["resets"].as_str();
    match scope {
        "session" => assert!(resets.is_none() && error.contains("start a new session"), "{error} {told:?}"),
        _ => {
            let at = resets.expect("it begins anew");
            assert!(at.ends_with("T00:00:00Z") && error.contains(at), "{error} {told:?}");
        }
    }
    // Whose budget it is not goes on.
    let goes_on = |message: &str| house.daemon.turn("other", message)["status"] == "success";
    assert_eq!(goes_on("@two go"), scope != "day", "another agent elsewhere");
    assert_eq!(goes_on("@one go"), scope == "session", "the same agent elsewhere");
}

/// How many turns were answered, and the first one that was not.
fn until_stopped(daemon: &Daemon, session: impl Fn(usize) -> String) -> (usize, Value) {
    for done in 0..MOST {
        let turn = daemon.turn(&session(done), "@one go");
        if turn["status"] != "success" {
            return (done, turn);
        }
    }
    panic!("nothing stopped it in {MOST} turns")
}

#[test]
fn a_day_a_session_and_an_agent_have_so_many_tokens() {
    for scope in ["day", "session", "agent"] {
        check(scope, "max_tokens", "1500");
    }
}

#[test]
fn a_day_a_session_and_an_agent_cost_so_much() {
    for scope in ["day", "session", "agent"] {
        check(scope, "max_cost_usd", "0.15");
    }
}

#[test]
fn a_day_a_session_and_an_agent_have_so_many_runs() {
    for scope in ["day", "session", "agent"] {
        check(scope, "max_invocations", "3");
    }
}

#[test]
fn what_is_used_is_told_once_before_it_is_used_up() {
    for (at, used) in [("0.5", 2), ("0.75", 3)] {
        let config = format!("limits: {{warn_at: {at}, day: {{max_invocations: 4}}}}\n");
        let house = House::build("", &config, &[("one", "")], |_| Say::Text("done".into()));
        let (done, stopped) = until_stopped(&house.daemon, |_| "s".into());
        let told = house.told("s", "interaction.budget.warning");
        row("limits.warn_at", &stopped, &format!("at {at}: {}", json!(told)), house.requests());
        let about: Vec<&Value> = told.iter().filter(|w| w["limit"] == "limits.day.max_invocations").collect();
        assert_eq!((done, about.len()), (4, 1), "{told:?}");
        assert_eq!((&about[0]["used"], &about[0]["allowed"]), (&json!(used), &json!(4)), "{told:?}");
    }
}

#[test]
fn a_sub_agent_that_meets_a_limit_does_not_run_and_the_rest_goes_on() {
    let house = House::build(
        "",
        "limits: {agent: {max_invocations: 1}}\n",
        &[("one", "  uses_agents: [two]\n"), ("two", "")],
        |request| spread(request, 2),
    );
    let turn = house.daemon.turn("s", "@one go");
    assert_eq!((turn["content"].as_str(), house.requests()), (Some("done"), 3), "{turn}");
    let results = super::results(&turn);
    assert!(results.iter().any(|(_, text)| text.contains("`limits.agent.max_invocations`")), "{results:?}");
}

#[test]
fn runs_and_tokens_that_were_used_stay_used_when_the_kernel_is_killed() {
    let config = "limits: {day: {max_invocations: 3}, session: {max_tokens: 100000}}\n";
    let mut house = House::build(PRICED, config, &[("one", SMALL)], |_| Say::Text("done".into()));
    house.daemon.turn("s", "@one go");
    house.daemon.kill_kernel();
    house.daemon.turn("s", "@one go");
    // An orderly end as well.
    Daemon::signal(house.daemon.supervisor_pid(), rustix::process::Signal::TERM);
    house.daemon.ended();
    house.daemon.run();
    house.daemon.turn("s", "@one go");
    house.daemon.kill_kernel();
    let stopped = house.daemon.turn("s", "@one go");
    row("limits.day.max_invocations, over kill -9", &stopped, &field(&stopped, "error"), house.requests());
    assert!(field(&stopped, "error").contains("3 of 3 runs"), "{stopped}");
    assert_eq!(house.requests(), 3);
}

#[test]
fn a_model_call_that_a_crash_cut_off_counts_with_all_that_was_set_aside() {
    let (asked, told) = std::sync::mpsc::channel::<()>();
    let (asked, first) = (std::sync::Mutex::new(asked), AtomicBool::new(true));
    let server = ModelServer::start(move |_| {
        if first.swap(false, Ordering::SeqCst) {
            let _ = asked.lock().expect("one at a time").send(());
            // The kernel is killed meanwhile, and nobody reads the answer.
            std::thread::sleep(PATIENCE);
        }
        Say::Text("done".into())
    });
    let agent = "  parameters: {max_output_tokens: 500}\n";
    let house = House::on(server, PRICED, "limits: {day: {max_tokens: 3000}}\n", &[("one", agent)]);
    let turn = house.daemon.submit("s", "@one go");
    told.recv_timeout(PATIENCE).expect("the model is asked");
    house.daemon.kill_kernel();
    let ended = house.daemon.wait(&turn);
    assert_eq!(ended["content"], "done", "it was asked again: {ended}");
    let (done, stopped) = until_stopped(&house.daemon, |_| "s".into());
    let used = house.exceeded("s")[0]["used"].as_u64().expect("a number");
    row("limits.day.max_tokens, kill -9 in a call", &stopped, &field(&stopped, "error"), house.requests());
    let answered = TOKENS * (1 + done as u64);
    // At least the answer that was bounded to 500 tokens, which nobody saw.
    assert!(used >= answered + 500, "{used} of {answered} that were answered: {stopped}");
    // And it is the same to a kernel that reads it from the journal.
    house.daemon.kill_kernel();
    house.daemon.turn("s", "@one go");
    assert_eq!(house.exceeded("s")[1]["used"], json!(used));
}

#[test]
fn what_several_turns_had_set_aside_when_the_kernel_was_killed_counts_before_any_of_them_goes_on() {
    const TURNS: usize = 4;
    let (asked, told) = std::sync::mpsc::channel::<()>();
    let asked = std::sync::Mutex::new(asked);
    // It never answers: whoever asks has gone by then.
    let server = ModelServer::start(move |_| {
        let _ = asked.lock().expect("one at a time").send(());
        std::thread::sleep(PATIENCE);
        Say::Text("done".into())
    });
    // Four worst cases have room in the day, and no fifth.
    let profile = "max_output_tokens: 20000, context_window: 100000";
    let agent = "  parameters: {max_output_tokens: 20000}\n";
    let config = "limits: {day: {max_tokens: 100000}}\n";
    let house = House::on(server, profile, config, &[("one", agent)]);
    let turns: Vec<_> = (0..TURNS).map(|n| house.daemon.submit(&format!("s{n}"), "@one go")).collect();
    for _ in 0..TURNS {
        told.recv_timeout(PATIENCE).expect("the model is asked");
    }
    house.daemon.kill_kernel();
    let used = |session: &str| house.exceeded(session)[0]["used"].as_u64().expect("a number");
    for (n, turn) in turns.iter().enumerate() {
        let ended = house.daemon.wait(turn);
        assert_eq!(ended["class"], "budget", "{ended}");
        assert_eq!(used(&format!("s{n}")), used("s0"), "all of it counts once, from the start on");
    }
    assert_eq!(house.requests(), TURNS, "none of them asked again");
    assert!((80_000..=100_000).contains(&used("s0")), "{}", used("s0"));
    // And it is the same to a kernel that reads it from the journal.
    house.daemon.kill_kernel();
    let stopped = house.daemon.turn("later", "@one go");
    row(
        "limits.day.max_tokens, kill -9 in four calls",
        &stopped,
        &field(&stopped, "error"),
        house.requests(),
    );
    assert_eq!((used("later"), house.requests()), (used("s0"), TURNS), "{stopped}");
}

#[test]
fn sub_agents_at_the_same_time_cannot_pass_a_limit_together() {
    const ALLOWED: u64 = 8000;
    // Each answer takes all that was set aside for it.
    let server = ModelServer::measuring(|request| match spread(request, 16) {
        Say::Text(_) => Say::Text("word".repeat(400)),
        calls => calls,
    });
    let config = format!("limits: {{day: {{max_tokens: {ALLOWED}}}}}\n");
    let agents = [
        ("one", "  uses_agents: [two]\n  parameters: {max_output_tokens: 500}\n"),
        ("two", "  parameters: {max_output_tokens: 400}\n"),
    ];
    let house = House::on(server, "", &config, &agents);
    let turn = house.daemon.turn("s", "@one go");
    let spent = super::tokens(&turn);
    row("limits.day.max_tokens, 16 at once", &turn, &field(&turn, "error"), house.requests());
    assert!(!house.exceeded("s").is_empty(), "it was met: {turn}");
    assert!((ALLOWED / 2..=ALLOWED).contains(&spent), "{spent}: {turn}");
}
