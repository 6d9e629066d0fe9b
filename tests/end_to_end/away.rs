//! Extensions that broke and come back by themselves: who misses them is told so, and not that there is nothing.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

/// Calls the tool that the message names as often as it is asked, offered or not.
fn obstinate(request: &Value) -> Say {
    let (role, text) = latest(request);
    let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task);
    match task.split_once(' ').filter(|_| role == "user") {
        Some((tool, parameters)) => {
            Say::Call(vec![(tool.to_owned(), serde_json::from_str(parameters).unwrap_or_else(|_| json!({})))])
        }
        None => Say::Text(task.to_owned()),
    }
}

#[test]
fn tools_of_an_extension_that_is_started_again_are_missed_with_the_reason() {
    let server = ModelServer::start(obstinate);
    let mut daemon = Daemon::home(&format!(
        "{}health_interval_ms: 100\napprovals: {{preauthorized: all}}\n",
        server.config()
    ));
    daemon.plugin("faulty", "faulty", "");
    daemon.write(
        "extensions/user/manifest.yaml",
        "id: user\nname: User\ndescription: Uses it.\nagent: {model: default, instructions: x, uses_tools: [faulty]}\n",
    );
    daemon.run();
    // Each time it is away for longer: 0.1 s, 1 s, 2 s, 5 s, 15 s.
    let breaks = || {
        let shown = daemon.client().ask("extensions.show", json!({"id": "faulty"})).ok()?;
        Some(shown["history"].as_array()?.iter().filter(|change| change["state"] == "degraded").count())
    };
    for n in 1..=5 {
        daemon.until_extension("faulty", "active");
        let told = daemon.turn("s", r#"faulty_set_health {"ok": false}"#);
        assert_eq!(told["status"], "success", "{told}");
        until("it broke", || breaks().filter(|breaks| *breaks >= n)).expect("it broke");
    }
    let reason = daemon.until_extension("faulty", "degraded");
    assert!(reason.contains("it is started again at"), "{reason}");
    // A turn that begins before its tools are taken away still has them.
    let turn = until("its tools are gone", || {
        let turn = daemon.turn("other", "faulty_echo {}");
        turn["content"].as_str().is_some_and(|c| c.contains("`faulty_echo` is not there")).then_some(turn)
    });
    let turn = turn.expect("its tools are gone");
    assert!(turn["content"].as_str().is_some_and(|c| c.contains("started again at")), "{turn}");
    let diagnostics = turn["diagnostics"].to_string();
    assert!(diagnostics.contains("unavailable: `faulty`"), "{turn}");
    let asked = server.requests().last().expect("it was asked").to_string();
    assert!(asked.contains("Tools that are not there for the moment"), "{asked}");
    let turn = daemon.turn("other", "@user hello");
    let error = turn["error"].as_str().unwrap_or_default();
    assert!(error.contains("`user`") && error.contains("faulty") && error.contains("skipped"), "{turn}");
}
