//! `drupe models`, without a daemon, against a provider that has a list of models.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use serde_json::{Value, json};

use crate::harness::{Daemon, text};

/// A provider that answers each request for its list so; its address.
fn provider(status: &'static str, list: impl ToString) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let body = list.to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let asked = head.first().is_some_and(|line| line.starts_with("GET /v1/models "));
            let keyed =
                head.iter().any(|line| line.eq_ignore_ascii_case("authorization: Bearer sk-very-secret"));
            let status = if asked && keyed { status } else { "400 Bad Request" };
            let head = format!(
                "content-type: application/json\r\nconnection: close\r\ncontent-length: {}",
                body.len()
            );
            // Who has gone needs no answer.
            let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}");
        }
    });
    address
}

fn home(address: &str) -> Daemon {
    let mut daemon = Daemon::home(&format!(
        "models:\n  aliases: {{default: own/big, fast: own/small}}\n  providers:\n    own: {{kind: openai_chat, base_url: \"{address}\", api_key: \"${{OWN_KEY}}\"}}\n  profiles: {{own/big: {{context_window: 8192}}}}\n"
    ));
    daemon.variable("OWN_KEY", "sk-very-secret");
    daemon
}

fn presence(report: &Value, model: &str) -> Value {
    let models = report["models"].as_array().expect("a list");
    let found = models.iter().find(|entry| entry["name"] == model);
    found.unwrap_or_else(|| panic!("no `{model}` in {report:#}"))["presence"].clone()
}

#[test]
fn what_is_configured_is_listed_without_asking_anybody() {
    let daemon = home("http://127.0.0.1:9/v1");
    let output = daemon.drupe(&["models", "list"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for part in ["models.aliases.fast", "own/small", "8,192", "models.profiles.own/big", "last looked up on"]
    {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let report = daemon.json(&["models", "list", "--json"]);
    assert!(report["models"][0]["figures"][0]["from"] == "models.profiles.own/big", "{report:#}");
    assert!(!out.contains("very-secret") && !report.to_string().contains("very-secret"), "{report:#}");
}

#[test]
fn the_providers_list_decides_whether_the_check_fails() {
    let both = json!({"object": "list", "data": [{"id": "big"}, {"id": "small"}, {"id": "sk-very-secret"}]});
    let daemon = home(&provider("200 OK", both));
    let report = daemon.json(&["models", "check", "--json"]);
    assert_eq!((&report["ok"], &report["providers"][0]["listed"]), (&json!(true), &json!(3)), "{report:#}");

    let daemon = home(&provider("200 OK", json!({"data": [{"id": "big"}]})));
    let output = daemon.drupe(&["models", "check", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!(
        (presence(&report, "own/big"), presence(&report, "own/small")),
        (json!("listed"), json!("missing"))
    );
}

#[test]
fn a_provider_that_refuses_or_is_not_there_fails_the_check_without_showing_its_key() {
    let refusal = json!({"error": {"message": "wrong key sk-very-secret", "type": "auth", "code": null}});
    for (address, said) in [
        (provider("401 Unauthorized", refusal), "wrong key [secret]"),
        (provider("200 OK", json!({"error": {"message": "no such account"}})), "no such account"),
        (provider("200 OK", json!({"status": "sk-very-secret is wrong"})), "[secret] is wrong"),
        (provider("200 OK", "<html><title>Sign in</title></html>"), "a page in HTML, \"Sign in\""),
        ("http://127.0.0.1:9/v1".to_owned(), "own"),
    ] {
        let output = home(&address).drupe(&["models", "check"]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
        assert!(out.contains("does not answer") && out.contains(said), "{out}\n{err}");
        assert!(!format!("{out}{err}").contains("very-secret"), "{out}\n{err}");
    }
}

#[test]
fn models_that_manifests_name_count_as_configured() {
    let daemon = home(&provider("200 OK", json!({"data": [{"id": "big"}, {"id": "small"}]})));
    let agent = |id: &str, model: &str, keys: &str| {
        let manifest = format!(
            "id: {id}\nname: x\ndescription: x\n{keys}agent: {{model: [{model}], instructions: x, usage: x}}\n"
        );
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
    };
    agent("poet", "own/rare, default", "");
    agent("usual", "fast", "");
    agent("off", "own/never", "enabled: false\n");
    let output = daemon.drupe(&["models", "check", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!(presence(&report, "own/rare"), "missing");
    let names = report["names"].to_string();
    assert!(names.contains("extension `poet`") && !names.contains("`usual`"), "{names}");
    assert!(!report["models"].to_string().contains("own/never"), "{report:#}");
}
