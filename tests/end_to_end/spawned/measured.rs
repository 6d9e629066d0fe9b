//! What takes minutes, and is run by hand: kills at any moment, and how fifty agents share one budget.
//! `cargo test -p drupe --test end_to_end spawned::measured -- --ignored --nocapture`

use std::time::Instant;

use super::*;

/// The turns of a session.
fn turns(daemon: &Daemon, session: &str) -> Vec<Value> {
    let shown = daemon.client().ask("sessions.show", json!({"id": session})).expect("it is there");
    shown["turns"].as_array().expect("a list").clone()
}

#[test]
#[ignore = "it takes minutes"]
fn two_hundred_kills_at_any_moment_lose_no_message_no_part_and_no_report() {
    let mut house = house("  uses_tools: [kv]\n", "");
    house.go();
    let (mut lost, mut otherwise, mut detached) = (0, 0, 0);
    for kill in 0..200_u64 {
        let session = format!("s{}", kill / 20);
        let (text, parts) = match kill % 4 {
            0 => (format!("spawn one {kill},two {kill}"), vec![format!("one {kill}"), format!("two {kill}")]),
            1 => (format!("spawn tool {kill}"), vec!["stored `a`".to_owned()]),
            2 => (format!("detach errand {kill}"), Vec::new()),
            _ => (format!("hello {kill}"), Vec::new()),
        };
        let turn = house.daemon.submit(&session, &text);
        std::thread::sleep(Duration::from_millis(kill * 7 % 90));
        house.daemon.kill_all();
        let ended = house.daemon.wait(&turn);
        lost += u32::from(ended["status"].is_null());
        let content = ended["content"].as_str().unwrap_or_default();
        let good = match kill % 4 {
            0 | 1 => parts.iter().all(|part| content.matches(&format!("worked on {part}\"")).count() == 1),
            2 => content.contains("detached"),
            _ => content == format!("main: hello {kill}"),
        };
        detached += u32::from(kill % 4 == 2);
        otherwise += u32::from(!good);
        if !good {
            println!("{session} {text}: {content}");
        }
    }
    let sessions: Vec<String> = (0..10).map(|n| format!("s{n}")).collect();
    let reports = || -> Vec<Value> {
        let all = sessions.iter().flat_map(|session| turns(&house.daemon, session));
        all.filter(|turn| {
            turn["input"].as_str().is_some_and(|input| input.starts_with("(This is no message"))
        })
        .collect()
    };
    let done = until("all reports are answered", || {
        let reports = reports();
        (reports.len() >= detached as usize && reports.iter().all(|turn| !turn["status"].is_null()))
            .then_some(reports)
    })
    .expect("they are");
    println!(
        "200 kills: {lost} lost, {otherwise} answered otherwise; {detached} agents outlived their turns, {} reports; {} requests",
        done.len(),
        house.server.requests().len()
    );
    assert_eq!((lost, otherwise, done.len()), (0, 0, detached as usize));
    let all = house.daemon.client().ask("sessions.list", json!({"limit": 1000})).expect("a list");
    let all = all.as_array().expect("a list").iter().filter_map(|session| session["id"].as_str());
    let differs: Vec<String> = all
        .map(|session| house.daemon.drupe(&["replay", session]))
        .filter(|replayed| !replayed.status.success())
        .map(|replayed| text(&replayed.stdout) + &text(&replayed.stderr))
        .collect();
    assert!(differs.is_empty(), "{}", differs.join("\n"));
}

/// A turn of fifty agents, spawned or called one after another, and how long it took.
fn fifty(spawned: bool, tokens: u64) -> (Value, Duration, usize) {
    let limits = format!(
        "orchestrator:\n  limits: {{max_active_children: 64, max_invocations: 64, max_tool_calls: 500, max_tool_calls_per_step: 64, \
         parallel_tool_calls: 1, max_tokens_per_invocation: {tokens}}}\n"
    );
    let server = ModelServer::start(move |request| {
        let (role, text) = latest(request);
        if is_worker(request) {
            std::thread::sleep(Duration::from_millis(100));
            return Say::Text("a part".into());
        }
        match (role.as_str(), spawned) {
            ("user", true) => Say::Call((0..50).map(|n| super::spawn(&format!("part {n}"), false)).collect()),
            ("user", false) => {
                let call = |n| ("agent_worker".to_owned(), json!({"task": format!("part {n}")}));
                Say::Call((0..50).map(call).collect())
            }
            _ if spawned && !text.contains(r#""agents""#) => {
                Say::Call(vec![("wait_agent".into(), json!({"handles": handles(request)}))])
            }
            _ => Say::Text(text),
        }
    });
    let mut daemon = Daemon::home(&(server.config() + &limits));
    daemon.write("extensions/worker/manifest.yaml", &manifest(""));
    daemon.run();
    let began = Instant::now();
    let turn = daemon.turn("s", "go");
    let elapsed = began.elapsed();
    let replayed = daemon.drupe(&["replay", "s"]);
    assert!(replayed.status.success(), "{}{}", text(&replayed.stdout), text(&replayed.stderr));
    let asked = server.requests().iter().filter(|one| is_worker(one)).count();
    (turn, elapsed, asked)
}

#[test]
#[ignore = "it measures"]
fn fifty_agents_under_one_budget() {
    let (turn, beside, asked) = fifty(true, 10_000_000);
    assert_eq!((turn["status"].as_str(), asked), (Some("success"), 50), "{turn}");
    let (_, after, asked) = fifty(false, 10_000_000);
    assert_eq!(asked, 50);
    println!("fifty agents of 100 ms each: {beside:?} beside each other, {after:?} one after another");
    for limit in [40_000, 12_000] {
        let (turn, _, asked) = fifty(true, limit);
        let spent = &turn["spend"]["usage"];
        println!(
            "of {limit} tokens: {} and {} used, {asked} of 50 asked their model; the turn: {} {}",
            spent["input_tokens"], spent["output_tokens"], turn["status"], turn["error"]
        );
        let total =
            spent["input_tokens"].as_u64().unwrap_or(0) + spent["output_tokens"].as_u64().unwrap_or(0);
        assert!(total <= limit, "{turn}");
    }
}
