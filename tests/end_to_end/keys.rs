//! Each key of a manifest and of the configuration does what it says: a small case a key, through one door.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
};

/// A model that says what it last heard, unless the message names a tool to call.
struct House {
    server: ModelServer,
    daemon: Daemon,
}

/// A running daemon with this configuration beside the model's, and these agents: an id with what follows `agent:`.
fn house(config: &str, agents: &[(&str, &str)]) -> House {
    with(config, agents, |_| {})
}

fn with(config: &str, agents: &[(&str, &str)], prepare: impl FnOnce(&mut Daemon)) -> House {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&format!("{}approvals: {{preauthorized: all}}\n{config}", server.config()));
    for (id, agent) in agents {
        daemon.write(
            &format!("extensions/{id}/manifest.yaml"),
            &format!("id: {id}\nname: {id}\ndescription: The agent {id}.\nagent:\n  model: default\n{agent}"),
        );
    }
    prepare(&mut daemon);
    daemon.run();
    House { server, daemon }
}

impl House {
    /// The body of the first request of a turn.
    fn request(&self, message: &str) -> Value {
        let before = self.server.requests().len();
        let turn = self.daemon.turn(&crate::harness::unique(), message);
        let requests = self.server.requests();
        requests
            .get(before)
            .cloned()
            .unwrap_or_else(|| panic!("no model was asked: {turn}\n{}", self.daemon.log()))
    }

    fn system(&self, message: &str) -> String {
        self.request(message)["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
    }
}

const PLAIN: &str = "  instructions: You are plain.\n";

#[test]
fn instructions_come_from_a_file_a_template_or_the_text_itself() {
    let house = with(
        "",
        &[
            ("inline", PLAIN),
            ("file", "  instructions: prompt.md\n"),
            ("template", "  instructions: p.j2\n  uses_tools: [kv]\n"),
        ],
        |d| {
            d.write("extensions/file/prompt.md", "From {{ nothing }} a file.");
            d.write("extensions/template/p.j2", "I am {{ agent.name }} with {% for t in tools %}{{ t.name }} {% endfor %}and {{ config | length }}.");
        },
    );
    assert_eq!(house.system("@inline x"), "You are plain.");
    assert_eq!(house.system("@file x"), "From {{ nothing }} a file.");
    assert_eq!(house.system("@template x"), "I am template with kv_delete kv_get kv_list kv_set and 0.");
}

#[test]
fn context_parameters_and_models_reach_the_provider() {
    let agent = "  instructions: x\n  context: The sky is green.\n  parameters: {temperature: 0.25, seed: 7, max_output_tokens: 99, stop: [\"END\"], extra: {own: 1}}\n";
    let house = house("", &[("one", agent)]);
    let request = house.request("@one hello");
    assert!(request["messages"].to_string().contains("The sky is green."), "{request}");
    assert_eq!(
        (&request["temperature"], &request["seed"], &request["stop"], &request["own"]),
        (&json!(0.25), &json!(7), &json!(["END"]), &json!(1)),
        "{request}"
    );
    assert!(request["max_tokens"] == 99 || request["max_completion_tokens"] == 99, "{request}");
    assert_eq!(request["model"], "test");
}

#[test]
fn an_allowlist_can_name_one_tool_and_agents_that_may_be_called() {
    let house = house(
        "",
        &[
            ("one", "  instructions: x\n  uses_tools: [kv/kv_get]\n  uses_agents: [two]\n"),
            ("two", "  instructions: x\n  tool_name: ask.two\n"),
        ],
    );
    let tools = offered(&house.request("@one hello"));
    assert!(tools.contains(&"kv_get".to_owned()) && !tools.contains(&"kv_set".to_owned()), "{tools:?}");
    assert!(tools.iter().any(|t| t.starts_with("ask") && t.ends_with("two")), "{tools:?}");
}

#[test]
fn an_agent_with_infer_false_is_reached_by_explicit_choice_only() {
    let house = house("", &[("hidden", "  instructions: x\n  infer: false\n"), ("shown", PLAIN)]);
    let tools = offered(&house.request("hello"));
    assert!(
        tools.contains(&"agent_shown".to_owned()) && !tools.contains(&"agent_hidden".to_owned()),
        "{tools:?}"
    );
    assert_eq!(house.daemon.turn("s", "@hidden hello")["content"], "hello");
}

#[test]
fn an_input_schema_is_the_tools_and_an_output_schema_is_kept() {
    let agent = "  instructions: x\n  input: {format: json, schema: {type: object, required: [city], properties: {city: {type: string}}}}\n  output: {format: json, schema: {type: object, required: [answer]}}\n";
    let house = house("", &[("weather", agent)]);
    let bad = house.daemon.turn("s", r#"agent_weather {"town": "x"}"#);
    assert!(bad["content"].as_str().is_some_and(|c| c.contains("city")), "{bad}");
    assert_eq!(bad["invocations"].as_array().map(Vec::len), Some(1), "it did not run: {bad}");
    // The obedient model repeats its task, which is no answer of that form: one repair, then an error.
    let wrong = house.daemon.turn("s", r#"agent_weather {"city": "Ulm"}"#);
    let weather = &wrong["invocations"][1];
    assert_eq!((&weather["status"], &weather["turns_used"]), (&json!("error"), &json!(2)), "{wrong}");
}

#[test]
fn limits_stop_work_and_say_which() {
    let limited = |limits: &str| {
        let agent = format!("  instructions: x\n  uses_tools: [faulty]\n  limits: {limits}\n");
        with("", &[("one", &agent)], |d| d.plugin("faulty", "faulty", ""))
    };
    let cases = [
        ("{max_turns: 1}", "faulty_echo {}", "max_turns"),
        ("{max_tokens_per_invocation: 100}", "hello", "max_tokens_per_invocation"),
        ("{time_budget_ms: 300}", "faulty_hang {}", "time_budget_ms"),
    ];
    for (limits, message, named) in cases {
        let house = limited(limits);
        let turn = house.daemon.turn("s", &format!("@one {message}"));
        assert_eq!(turn["status"], "error", "{limits}: {turn}");
        assert!(turn["error"].as_str().is_some_and(|e| e.contains(named)), "{limits}: {turn}");
    }
    let house = limited("{tool_timeout_ms: 200}");
    let turn = house.daemon.turn("s", "@one faulty_hang {}");
    assert!(turn["content"].as_str().is_some_and(|c| c.contains("its time was over")), "{turn}");
}

#[test]
fn a_configuration_reaches_the_extension_merged_and_checked() {
    let schema =
        "config: {prefix: mine}\nconfig_schema: {type: object, properties: {prefix: {type: string}}}\n";
    let merged =
        with("extensions: {faulty: {prefix: theirs}}\n", &[], |d| d.plugin("faulty", "faulty", schema));
    // With its schema or, where there are many, by its name.
    assert!(merged.request("hello").to_string().contains("theirs_echo"));
    let wrong = with("extensions: {faulty: {prefix: 5}}\n", &[], |d| d.plugin("faulty", "faulty", schema));
    let (state, reason) = wrong.daemon.extension("faulty");
    assert!(state == "failed" && reason.contains("prefix"), "{state}: {reason}");
}

#[test]
fn extensions_are_turned_off_and_on_by_manifest_and_configuration() {
    let house = with("extensions: {two: {enabled: true}, kv: {enabled: false}}\n", &[("one", PLAIN)], |d| {
        for id in ["two", "three"] {
            d.write(&format!("extensions/{id}/manifest.yaml"), &format!("id: {id}\nname: {id}\ndescription: x\nenabled: false\nagent: {{model: default, instructions: \"\"}}\n"));
        }
    });
    let states: Vec<String> = ["one", "two", "three", "kv"].map(|id| house.daemon.extension(id).0).into();
    assert_eq!(states, ["active", "active", "disabled", "disabled"]);
}

#[test]
fn what_a_manifest_has_no_right_to_is_refused() {
    let house = with("", &[], |d| d.plugin("faulty", "faulty", ""));
    let before = house.daemon.until_ready();
    let turn = house.daemon.turn("s", "faulty_restart {}");
    assert!(turn["content"].as_str().is_some_and(|c| c.contains("rights: [restart]")), "{turn}");
    assert_eq!(house.daemon.until_ready()["generation"], before["generation"]);
}

#[test]
fn secrets_are_given_to_who_names_them_and_shown_to_nobody() {
    let mut house = with("env: {FROM_FILE: from-drupe-yaml}\n", &[], |d| {
        d.variable("A_SECRET", "canary-4711");
        d.write("extensions/holder/manifest.yaml", "id: holder\nname: H\ndescription: x\nsecrets: [A_SECRET, FROM_FILE]\nconfig: {key: \"${A_SECRET}\"}\nagent: {model: default, instructions: t.j2}\n");
        d.write("extensions/holder/t.j2", "{{ config.key | length }}");
    });
    assert_eq!(house.daemon.extension("holder").0, "active", "{:?}", house.daemon.extension("holder"));
    assert_eq!(house.system("@holder x"), "11");
    let shown = house.daemon.client().ask("config.show", json!({})).expect("it is shown").to_string();
    assert!(!shown.contains("canary-4711") && !house.daemon.log().contains("canary-4711"));
    let _ = &mut house;
}

#[test]
fn the_orchestrators_keys_shape_its_requests() {
    let config = "orchestrator:\n  name: Ada\n  instructions: \"I am {{ name }}. {{ capabilities }}\"\n  context: It is Tuesday.\n  parameters: {temperature: 0.5}\n  uses_tools: [kv/kv_get]\n  limits: {max_turns: 1}\n";
    let house = house(config, &[("one", PLAIN)]);
    let request = house.request("hello");
    let system = request["messages"][0]["content"].as_str().unwrap_or_default();
    assert!(
        system.starts_with("I am Ada.")
            && system.contains("Available tools:\n- ")
            && system.contains("\n- kv_get:")
            && system.contains("Available agents:\n- "),
        "{system}"
    );
    assert!(request["messages"].to_string().contains("It is Tuesday."), "{request}");
    assert_eq!(request["temperature"], 0.5);
    let tools = offered(&request);
    assert!(
        tools.contains(&"kv_get".to_owned())
            && !tools.contains(&"kv_set".to_owned())
            && tools.contains(&"agent_one".to_owned()),
        "{tools:?}"
    );
    let stopped = house.daemon.turn("s", "kv_get {\"key\": \"a\"}");
    assert!(stopped["error"].as_str().is_some_and(|e| e.contains("max_turns")), "{stopped}");
}

#[test]
fn defaults_hold_for_agents_that_say_nothing_else() {
    let house = house(
        "agents: {defaults: {parameters: {temperature: 0.75}, limits: {max_turns: 1}}}\n",
        &[
            ("one", "  instructions: x\n  uses_tools: [kv]\n"),
            ("two", "  instructions: x\n  parameters: {temperature: 0.1}\n"),
        ],
    );
    assert_eq!(house.request("@one hello")["temperature"], 0.75);
    assert_eq!(house.request("@two hello")["temperature"], 0.1);
    assert!(
        house.daemon.turn("s", "@one kv_list {}")["error"].as_str().is_some_and(|e| e.contains("max_turns"))
    );
}

#[test]
fn a_further_folder_of_extensions_is_searched() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("far")).expect("a folder");
    std::fs::write(
        folder.path().join("far/manifest.yaml"),
        "id: far\nname: Far\ndescription: x\nagent: {model: default, instructions: \"\"}\n",
    )
    .expect("a file");
    let house = house(&format!("extensions: {{paths: [{}]}}\n", folder.path().display()), &[]);
    assert_eq!(house.daemon.extension("far").0, "active");
}

#[test]
fn a_journal_in_memory_leaves_no_file() {
    let house = house("journal: {durability: memory}\n", &[]);
    assert_eq!(house.daemon.turn("s", "hello")["content"], "hello");
    assert!(!house.daemon.path().join("journal.db").exists());
}

#[test]
fn a_long_result_is_shown_in_part_and_read_on_by_its_handle() {
    let server = ModelServer::start(|request| {
        let (role, text) = latest(request);
        let answers = request["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        match (role.as_str(), answers) {
            ("user", _) => Say::Call(vec![("faulty_big".into(), json!({"bytes": 50_000}))]),
            ("tool", 1) => {
                let handle = text
                    .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
                    .find(|w| w.starts_with("e-"))
                    .unwrap_or_default();
                Say::Call(vec![("read_output".into(), json!({"handle": handle, "offset": 1000}))])
            }
            _ => Say::Text(text.len().to_string()),
        }
    });
    let mut daemon = Daemon::home(&format!("{}tool_response_max_bytes: 2048\n", server.config()));
    daemon.plugin("faulty", "faulty", "");
    daemon.run();
    let turn = daemon.turn("s", "go");
    let tools: Vec<&str> = turn["transcript"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|e| e["role"] == "tool")
        .filter_map(|e| e["content"].as_str())
        .collect();
    let seen: Vec<Value> = server.requests().last().expect("asked")["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|m| m["role"] == "tool")
        .cloned()
        .collect();
    assert!(seen.iter().all(|m| m["content"].as_str().is_some_and(|c| c.len() < 4096)), "{seen:?}");
    assert!(tools.len() == 2 && tools[1].contains("xxx"), "{turn}");
}

#[test]
fn aliases_lists_and_a_fallback_lead_to_a_model() {
    let server = ModelServer::obedient();
    let config = server.config().replace(
        "aliases: {default: local/test}",
        "aliases: {default: local/test, fast: [local/quick]}\n  fallback: local/spare",
    );
    let mut daemon = Daemon::home(&config);
    for (id, model) in [("one", "fast"), ("two", "nowhere/at-all"), ("three", "[gpt-4o, local/third]")] {
        daemon.write(
            &format!("extensions/{id}/manifest.yaml"),
            &format!("id: {id}\nname: {id}\ndescription: x\nagent: {{model: {model}, instructions: \"\"}}\n"),
        );
    }
    daemon.run();
    let house = House { server, daemon };
    let models: Vec<Value> =
        ["@one x", "@two x", "@three x"].map(|m| house.request(m)["model"].clone()).into();
    assert_eq!(models, ["quick", "spare", "third"]);
}
