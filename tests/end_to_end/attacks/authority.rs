//! Whoever sets a turn off, it has no more than they have, and where nobody is there what would be asked about does not run.

use serde_json::{Value, json};

use super::{
    of_agent,
    scene::{HELD, Scene},
};
use crate::{
    harness::{Client, unique, until},
    http::hooks,
};

/// The revision of the Model Context Protocol without sessions.
const REVISION: &str = "2026-07-28";

/// A schedule, a webhook, a call over the Model Context Protocol, a sub-agent, and a command that a person agreed to.
pub fn each_way_in_has_no_more_than_whoever_is_behind_it(scene: &Scene) {
    let asked = scene.person.questions().len();
    let touch = |who: &str| json!({"command": format!("touch came-{who}")});
    let mut told = vec![
        ("a schedule", by_schedule(scene, &touch("schedule"))),
        ("a webhook", by_webhook(scene, &touch("webhook"))),
    ];
    for (who, text) in &told {
        assert!(
            text.contains("needs approval") && text.contains("nobody is there to be asked"),
            "{who}: {text}"
        );
    }
    assert_eq!(scene.person.questions().len(), asked, "nobody was asked");
    let by_mcp = by_mcp(scene, &touch("mcp"));
    assert!(by_mcp.contains("was denied by operator"), "{by_mcp}");
    told.push(("a call of `/mcp`", by_mcp));
    let absent = scene.does("agent_reader", &json!({"task": super::order("shell_run", &touch("reader"))}));
    let absent = absent["content"].as_str().expect("text").to_owned();
    assert!(absent.contains("there is no tool `shell_run` for you"), "{absent}");
    told.push(("a sub-agent without the tool", absent));
    let denied = scene.does("agent_clerk", &json!({"task": super::order("shell_run", &touch("clerk"))}));
    let denied = denied["content"].as_str().expect("text").to_owned();
    assert!(denied.contains("was denied by operator"), "{denied}");
    told.push(("a sub-agent with it", denied));
    for (who, text) in told {
        println!("| {who} | {} |", text.lines().next().unwrap_or_default());
    }
    let came: Vec<_> = std::fs::read_dir(scene.home("workspace")).expect("a folder").flatten().collect();
    assert!(came.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("came-")), "{came:?}");
    a_command_answers_nothing(scene);
}

fn by_schedule(scene: &Scene, params: &Value) -> String {
    let task = super::order("shell_run", params);
    scene.daemon.says(&["schedule", "add", "unattended", "@yearly", &task]);
    scene.daemon.says(&["schedule", "run", "unattended"]);
    let turn = until("it ran", || {
        let shown = scene.daemon.client().ask("schedules.show", json!({"id": "unattended"})).ok()?;
        let run = &shown["runs"][0];
        (run["state"] == "done").then(|| run["turn"].as_str().expect("a turn").to_owned())
    });
    let turn = turn.unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    scene.daemon.wait(&turn)["content"].as_str().expect("text").to_owned()
}

fn by_webhook(scene: &Scene, params: &Value) -> String {
    let body = json!({"text": super::order("shell_run", params)}).to_string();
    let taken = hooks::push(scene.door(), "push", &unique(), &body, &body);
    let turn = taken.json()["turn"].as_str().unwrap_or_else(|| panic!("{taken:?}")).to_owned();
    scene.daemon.wait(&turn)["content"].as_str().expect("text").to_owned()
}

/// The bearer of a token asks an agent; the question is the operator's, and the bearer cannot answer it.
fn by_mcp(scene: &Scene, params: &Value) -> String {
    let token = scene.daemon.says(&["token", "new", "ci"]).trim().to_owned();
    let home = drupe_link::Home::new(scene.daemon.path()).expect("a home");
    let mut bearer = Client::with_token(&home, &token).expect("it is let in");
    let answer = json!({"id": "e-", "allow": true});
    let refused = bearer.ask("approvals.answer", answer).expect_err("it may not");
    assert!(refused.contains("may not") || refused.contains("denied"), "{refused}");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({"task": super::order("shell_run", params)});
    let params = json!({"name": "clerk", "arguments": arguments, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", REVISION),
        ("mcp-method", "tools/call"),
        ("mcp-name", "clerk"),
    ];
    let answer = scene.door().send("POST", "/mcp", &headers, &call.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let lines = answer.body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
    let messages: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let result = messages.iter().rfind(|message| message["id"] == 7).unwrap_or_else(|| panic!("{answer:?}"));
    result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// A command runs that a person agreed to; while it does, a question waits that it would like to answer itself.
fn a_command_answers_nothing(scene: &Scene) {
    let session = format!("{HELD}-{}", unique());
    let held = scene
        .daemon
        .submit(&session, &of_agent("clerk", "shell_run", &json!({"command": "touch came-held"})));
    let question = || {
        let list = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
        let mut all = list.as_array().expect("a list").iter();
        all.find(|one| one["state"] == "pending" && one["call"]["session"] == session).cloned()
    };
    let waits = until("it is asked about", question).unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    let socket = drupe_link::Home::new(scene.daemon.path()).expect("a home").socket();
    let command = format!(
        "cat {0}/run/token || ls {0}/run; perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) or die $!; connect(S, \
         sockaddr_un(\"{1}\")) or die $!; print S \"hello\"'; {2} approvals allow {3} --home {0}",
        scene.daemon.path().display(),
        socket.display(),
        crate::harness::DRUPE,
        waits["id"].as_str().expect("an id"),
    );
    let params = json!({ "command": command });
    scene.person.agrees_to("shell_run", &params);
    let told = scene.does("shell_run", &params);
    let told = told["content"].as_str().expect("text");
    println!("| a command that was agreed to | {} |", told.replace('\n', " "));
    assert!(told.matches("ermission denied").count() >= 3 && told.contains("It wrote"), "{told}");
    assert_eq!(question().map(|one| one["id"].clone()), Some(waits["id"].clone()), "it waits still");
    let answer = json!({"id": waits["id"], "allow": false});
    scene.daemon.client().ask("approvals.answer", answer).expect("a person may");
    scene.daemon.wait(&held);
    assert!(!scene.home("workspace/came-held").exists());
}
