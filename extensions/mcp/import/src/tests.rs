use super::*;

fn text(given: Value) -> Value {
    import(&given).expect("it is read")
}

#[test]
fn what_most_assistants_have_becomes_a_text_without_a_secret_in_it() {
    let given = json!({"mcpServers": {
        "GitHub Server": {
            "command": "npx", "args": ["-y", "server-github", "--api-key", "hunter2", "--token=abc", "${workspaceFolder}"],
            "env": {"GITHUB_TOKEN": "ghp_abcdefghijklmnop", "LEVEL": "info", "HOST_URL": "postgres://u:pw@h/db"},
            "autoApprove": ["x"]},
        "web": {"type": "http", "url": "https://example.org/mcp?apiKey=q1w2&v=2",
            "headers": {"Authorization": "Bearer sk-123456789", "X-Team": "${env:TEAM}"}, "disabled": true},
    }});
    let read = text(given);
    let yaml = read["yaml"].as_str().expect("a text");
    let expected = r#"extensions:
  mcp:
    enabled: true
    servers:
      "GitHub_Server":
        command: "npx"
        args: ["-y", "server-github", "--api-key", "${API_KEY}", "--token=${TOKEN}", "$${workspaceFolder}"]
        env:
          "GITHUB_TOKEN": "${GITHUB_TOKEN}"
          "HOST_URL": "${HOST_URL}"
          "LEVEL": "info"
      "web":
        url: "https://example.org/mcp?apiKey=${APIKEY}&v=2"
        headers:
          "Authorization": "Bearer ${AUTHORIZATION}"
          "X-Team": "${TEAM}"
        enabled: false
"#;
    // The order of keys is that of the JSON library.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(yaml), sorted(expected), "{yaml}");
    for secret in ["hunter2", "abc", "ghp_", "pw@h", "q1w2", "sk-1"] {
        assert!(!read.to_string().contains(secret), "{secret}");
    }
    let names: Vec<&str> =
        read["secrets"].as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(
        names,
        ["API_KEY", "APIKEY", "AUTHORIZATION", "GITHUB_TOKEN", "HOST_URL", "TEAM", "TOKEN"]
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    let notes = read["notes"].to_string();
    for note in ["is named `GitHub_Server`", "`autoApprove`", "network: true", "workspaceFolder"] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
}

#[test]
fn the_other_shapes_are_read_as_well() {
    for given in [
        json!({"servers": {"a": {"type": "stdio", "command": "prog", "args": ["x"], "env": {"K": "v"}}}, "inputs": []}),
        json!({"context_servers": {"a": {"command": {"path": "prog", "args": ["x"], "env": {"K": "v"}}}}}),
        json!({"mcp": {"a": {"type": "local", "command": ["prog", "x"], "environment": {"K": "v"}}}}),
    ] {
        let yaml = text(given)["yaml"].to_string();
        for part in [r#"command: \"prog\""#, r#"args: [\"x\"]"#, r#"\"K\": \"v\""#] {
            assert!(yaml.contains(part), "{part}: {yaml}");
        }
    }
    let remote = text(json!({"mcpServers": {"a": {"serverUrl": "https://x.example/mcp"}}}));
    assert!(remote["yaml"].to_string().contains("url: \\\"https://x.example/mcp\\\""), "{remote}");
}

#[test]
fn names_are_made_to_fit_and_stay_apart_and_nonsense_is_refused() {
    let two = text(
        json!({"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "y"}, "🙂": {"command": "z"}, "agent": {"command": "z"}}}),
    );
    let names: Vec<String> = serde_json::from_value(two["servers"].clone()).expect("a list");
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!((names.len(), unique.len()), (4, 4), "{names:?}");
    for not in [json!({}), json!("{"), json!({"mcpServers": {}}), json!({"mcpServers": {"a": {}}})] {
        assert!(import(&not).is_err(), "{not}");
    }
    let same = text(
        json!({"mcpServers": {"a": {"command": "x", "env": {"KEY": "1"}}, "b": {"command": "x", "env": {"KEY": "2"}}}}),
    );
    assert_eq!(same["secrets"].as_array().map(Vec::len), Some(2), "{same}");
}

#[test]
fn keys_and_references_of_each_assistant_become_ours() {
    let codex = read_one(json!({"mcp_servers": {"a": {
        "url": "https://x.example/mcp", "bearer_token_env_var": "DOCS_TOKEN", "http_headers": {"X-Region": "eu"},
        "env_http_headers": {"X-Team": "TEAM"}, "enabled_tools": ["find"], "disabled_tools": ["drop"],
        "tool_timeout_sec": 12.5, "startup_timeout_sec": 3}}}));
    let expected = json!({
        "url": "https://x.example/mcp",
        "headers": {"Authorization": "Bearer ${DOCS_TOKEN}", "X-Region": "${X_REGION}", "X-Team": "${TEAM}"},
        "tools": {"allow": ["find"], "deny": ["drop"]}, "timeout_s": 13});
    assert_eq!(Value::from(codex.settings), expected);
    assert!(codex.notes.concat().contains("`startup_timeout_sec`"), "{:?}", codex.notes);
    let program =
        read_one(json!({"mcp_servers": {"a": {"command": "x", "env_vars": ["HOME_ID", {"name": "B"}]}}}));
    assert_eq!(program.settings["env"], json!({"HOME_ID": "${HOME_ID}", "B": "${B}"}));
    let second =
        read_one(json!({"mcp": {"servers": {"a": {"type": "local", "command": ["x", "{env:PLACE}"]}}}}));
    assert_eq!(second.settings["args"], json!(["${PLACE}"]));
    for (given, taken) in [
        ("$API_ID", "${API_ID}"),
        ("${API_ID:-none}", "${API_ID}"),
        ("${{ secrets.API_ID }}", "${API_ID}"),
        ("${workspaceFolder}/x", "$${workspaceFolder}/x"),
        ("{env:API_ID}", "${API_ID}"),
        ("a ${ b", "a $${ b"),
    ] {
        let one = read_one(json!({"mcpServers": {"a": {"command": "x", "env": {"ID": given}}}}));
        assert_eq!(one.settings["env"]["ID"], taken, "{given}");
    }
    let all = read_one(json!({"mcpServers": {"a": {"command": "x", "tools": ["*"], "timeout": 30000}}}));
    assert_eq!(Value::from(all.settings), json!({"command": "x", "timeout_s": 30}));
    let unclear = read_one(
        json!({"mcpServers": {"a": {"command": "x", "tools": {"a": 1}, "timeout": 30, "trust": true}}}),
    );
    let said = unclear.notes.concat();
    assert!(["`tools`", "time of a call", "`trust`"].iter().all(|part| said.contains(part)), "{said}");
}

fn read_one(given: Value) -> TakenServer {
    super::read(&given).expect("a list").servers.remove(0)
}
