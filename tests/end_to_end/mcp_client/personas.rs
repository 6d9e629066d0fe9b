//! Agents of one session with tools of servers that the operator named: which they get, and what they cannot bring.

use std::{io::Write, process::Stdio};

use serde_json::{Value, json};

use super::{Scene, scene};
use crate::harness::text;

fn give(scene: &Scene, session: &str, more: Value) -> Result<Value, String> {
    let mut persona = json!({"name": "looker", "prompt": "You look around."});
    persona.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    scene.daemon.client().ask("session.personas", json!({"session": session, "personas": [persona]}))
}

/// The tools that a persona is offered, but for those of the loop.
fn offered_to(scene: &Scene, session: &str) -> Vec<String> {
    scene.daemon.turn(session, "@looker hello");
    let mut offered = scene.offers();
    offered.retain(|tool| !["read_output", "refuse", "update_plan"].contains(&tool.as_str()));
    offered
}

#[test]
fn a_persona_has_all_tools_of_the_servers_that_it_names() {
    let scene = scene(&json!({"tools": {"read_only": ["*"]}}));
    scene.is_ready();
    let of_the_server = ["sh__ask", "sh__hang", "sh__probe"];
    give(&scene, "alone", json!({"mcp_servers": ["sh"]})).expect("it is given");
    assert_eq!(offered_to(&scene, "alone"), of_the_server);
    give(&scene, "both", json!({"mcp_servers": ["sh"], "tools": ["kv_get", "sh__ask"]}))
        .expect("it is given");
    assert_eq!(offered_to(&scene, "both"), ["kv_get", of_the_server[0], of_the_server[1], of_the_server[2]]);
    // It works, confined as for everybody, and what it gives is that of strangers.
    let answer = scene.daemon.turn("alone", "@looker sh__probe {}");
    assert!(answer["content"].as_str().is_some_and(|said| said.contains("network denied")), "{answer}");
    let shown = scene.daemon.json(&["session", "show", "both", "--json"]);
    assert_eq!(shown["personas"][0]["mcp_servers"], json!(["sh"]), "{shown}");
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.is_ready();
    assert_eq!(offered_to(&scene, "alone"), of_the_server);
    // What is gone is missing, and said so.
    assert!(scene.daemon.drupe(&["ext", "disable", "mcp"]).status.success());
    let turn = scene.daemon.turn("alone", "@looker hello");
    assert!(!scene.offers().iter().any(|tool| tool.starts_with("sh__")), "{:?}", scene.offers());
    assert!(turn["diagnostics"].to_string().contains("`sh__probe` are gone"), "{turn}");
}

#[test]
fn a_chat_takes_names_of_servers_from_a_file_and_nothing_that_could_be_started() {
    let scene = scene(&json!({"tools": {"read_only": ["*"]}}));
    scene.is_ready();
    let chat = |team: &str| {
        scene.daemon.write(
            "team.yaml",
            &format!("- name: looker\n  prompt: You look around.\n  mcp_servers: {team}\n"),
        );
        let file = scene.daemon.path().join("team.yaml");
        let mut child = scene
            .daemon
            .command(&["chat", "--personas", file.to_str().expect("text")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // One that refuses the file reads nothing.
        let _ = child.stdin.take().expect("a pipe").write_all(b"@looker sh__probe {}\n");
        let said = child.wait_with_output().expect("it ends");
        (said.status.code(), text(&said.stdout) + &text(&said.stderr))
    };
    let (_, told) = chat("[sh]");
    assert!(told.contains("network denied"), "{told}");
    let (status, told) = chat("[sx]");
    assert!(status != Some(0) && told.contains("did you mean `sh`?"), "{status:?} {told}");
    let (status, told) = chat("{own: {command: sh}}");
    assert!(status == Some(78) && told.contains("these are names of servers of yours"), "{status:?} {told}");
}

#[test]
fn what_no_server_of_the_operator_is_is_refused_by_name() {
    let scene = scene(&json!({"tools": {"read_only": ["*"]}}));
    scene.is_ready();
    let starts = scene.starts();
    for (servers, why) in [
        (
            json!(["sj"]),
            "persona `looker`: the orchestrator has no tools of an MCP server `sj`; did you mean `sh`?",
        ),
        (
            json!(["sh", "weather"]),
            "no tools of an MCP server `weather`; it has those of `sh`: `drupe mcp servers`",
        ),
        (json!([""]), "no tools of an MCP server ``"),
        (json!(["sh__probe"]), "no tools of an MCP server `sh__probe`; it has those of `sh`"),
        // It brings no program and no address.
        (
            json!({"own": {"command": "sh", "args": ["-c", "touch /tmp/x"]}}),
            "invalid type: map, expected a sequence",
        ),
        (json!([{"url": "http://127.0.0.1:1/"}]), "invalid type: map, expected a string"),
    ] {
        let refused = give(&scene, "s", json!({"mcp_servers": servers})).expect_err(why);
        assert!(refused.contains(why), "{why}: {refused}");
    }
    assert_eq!(scene.starts(), starts, "nothing was started for it");
}
