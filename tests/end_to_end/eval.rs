//! `drupe eval`: what is asked, what is compared, and what becomes of cases.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text,
};

const CASES: &str = "\
agent: haiku
judge: critic
cases:
  - {name: three lines, message: rust, expect: {matches: '(?s)^.+ / .+ / .+$', contains: rust, agents: [haiku], no_tools: kv_set}}
  - {name: keeps, message: keep this, agent: keeper, expect: {tools: kv_set, max_tokens: 1000}}
  - {name: judged, message: rust, expect: {judge: Is it about rust?}}
  - {name: broken on purpose, message: rust, expect: {contains: python}}
";

fn model(request: &Value) -> Say {
    let messages = request["messages"].as_array().expect("messages");
    let system = messages[0]["content"].as_str().expect("a system prompt").to_owned();
    let (role, said) = latest(request);
    let named = request["model"].as_str().unwrap_or_default().to_owned();
    match system {
        _ if system.contains("You judge.") => {
            Say::Text(json!({"pass": said.contains("rust / "), "reason": "it says so"}).to_string())
        }
        _ if system.contains("You keep.") && role == "user" => {
            Say::Call(vec![("kv_set".into(), json!({"key": "a", "value": "b"}))])
        }
        // Another model has another opinion.
        _ if named.contains("other") => Say::Text("two / lines".into()),
        _ => Say::Text("old rust / on iron / sleeps".into()),
    }
}

fn scene() -> (ModelServer, Daemon) {
    let server = ModelServer::start(model);
    let mut daemon = Daemon::home(&server.config());
    let agents = [
        ("haiku", "You write.", ""),
        ("critic", "You judge.", ""),
        ("keeper", "You keep.", "  uses_tools: [kv]\n"),
    ];
    for (id, prompt, more) in agents {
        daemon.write(
            &format!("extensions/{id}/manifest.yaml"),
            &format!("id: {id}\nname: {id}\ndescription: Works.\nagent:\n  model: default\n  instructions: {prompt}\n{more}"),
        );
    }
    daemon.write("cases.yaml", CASES);
    daemon.run();
    (server, daemon)
}

#[test]
fn cases_pass_or_say_what_is_amiss_for_people_programs_and_build_servers() {
    let (_server, daemon) = scene();
    let output = daemon.drupe(&["eval", "cases.yaml", "--junit", "report.xml"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}\n{}", text(&output.stderr));
    assert!(
        shown.contains("3 passed, 1 failed") && shown.contains("the answer does not hold `python`"),
        "{shown}"
    );
    let xml = std::fs::read_to_string(daemon.path().join("report.xml")).expect("it was written");
    assert!(
        xml.contains("tests=\"4\" failures=\"1\"") && xml.contains("name=\"three lines\" time="),
        "{xml}"
    );
    // The same with two models beside each other: the second writes no haiku.
    let compared = [
        "eval",
        "cases.yaml",
        "--json",
        "--model",
        "local/test",
        "--model",
        "local/other",
        "--parallel",
        "8",
    ];
    let output = daemon.drupe(&compared);
    let all: Vec<Value> = serde_json::from_str(&text(&output.stdout)).expect("a list");
    let of = |case: &str, model: &str| {
        let one = all.iter().find(|one| one["case"] == case && one["model"] == model).expect("it was asked");
        one["passed"].as_bool().expect("a verdict")
    };
    assert_eq!(all.len(), 8);
    for (case, first, second) in [
        ("three lines", true, false),
        ("keeps", true, true),
        ("judged", true, false),
        ("broken on purpose", false, false),
    ] {
        assert_eq!((of(case, "local/test"), of(case, "local/other")), (first, second), "{case}");
    }
    let turn = all[0]["turn"].as_str().expect("a turn");
    assert!(daemon.says(&["why", turn]).contains("answered after"));
}

#[test]
fn without_a_key_the_shipped_agents_are_asked_and_a_file_that_is_none_asks_nobody() {
    let daemon = Daemon::home("");
    daemon.write("cases.yaml", "cases:\n  - {name: help, message: help, expect: {contains: kv_set}}\n");
    // It starts a daemon for the time of the call.
    let output = daemon.drupe(&["eval", "cases.yaml"]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    for (cases, part) in [
        ("cases:\n  - {name: a, message: x, expects: {}}\n", "unknown field"),
        ("cases:\n  - {name: a, message: x, expect: {matches: '('}}\n", "case `a`: `matches`"),
    ] {
        daemon.write("cases.yaml", cases);
        let output = daemon.drupe(&["eval", "cases.yaml"]);
        assert_eq!(output.status.code(), Some(65));
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}
