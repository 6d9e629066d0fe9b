//! What the operator sees of extensions that are not as they should be, while everything else runs.

use serde_json::json;

use crate::harness::{Daemon, built, model_server::ModelServer};

/// A daemon with what `prepare` puts into its home, and a model that calls the tool that the user's message names.
fn with_tools(prepare: impl FnOnce(&Daemon)) -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let daemon = Daemon::home(&format!("{}approvals: {{preauthorized: all}}\n", server.config()));
    prepare(&daemon);
    let mut daemon = daemon;
    daemon.run();
    (server, daemon)
}

#[test]
fn a_panic_is_an_error_of_that_call_and_of_nothing_else() {
    let (_server, daemon) = with_tools(|d| d.plugin("faulty", "faulty", ""));
    let before = daemon.until_ready();
    for tool in ["faulty_panic", "faulty_panic_later"] {
        let turn = daemon.turn("s", &format!("{tool} {{}}"));
        let content = turn["content"].as_str().unwrap_or_default();
        assert!(content.contains("panicked") && content.contains(tool), "{turn}");
        assert!(content.contains("lib.rs:"), "the place is named: {turn}");
    }
    let spawned = daemon.turn("s", "faulty_panic_task {}");
    assert_eq!(spawned["content"], "spawned");
    crate::harness::until("the panic of the task is logged", || {
        daemon.log().contains("a task was told to panic").then_some(())
    })
    .expect("the panic of the task is logged");
    let echo = daemon.turn("s", r#"faulty_echo {"a": 1}"#);
    assert_eq!(echo["content"], r#"{"a":1}"#, "{echo}");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
}

#[test]
fn a_panic_while_a_cancelled_call_is_dropped_harms_nothing() {
    let (_server, daemon) = with_tools(|d| d.plugin("faulty", "faulty", ""));
    let before = daemon.until_ready();
    let turn = daemon.submit("s", "faulty_panic_drop {}");
    crate::harness::until("the call runs", || {
        let events = daemon.events("s");
        events
            .iter()
            .any(|e| {
                e["kind"] == "interaction.item.started" && e["data"]["item"]["name"] == "faulty_panic_drop"
            })
            .then_some(())
    })
    .expect("the call runs");
    daemon.client().ask("turn.stop", json!({"turn": turn})).expect("it is stopped");
    let ended = daemon.wait(&turn);
    assert_eq!((&ended["status"], &ended["class"]), (&json!("error"), &json!("cancelled")), "{ended}");
    let echo = daemon.turn("s", r#"faulty_echo {"a": 2}"#);
    assert_eq!(echo["content"], r#"{"a":2}"#, "{echo}");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
}

#[test]
fn a_file_that_is_no_sound_plugin_is_refused_with_a_sentence_and_the_rest_runs() {
    let (_server, daemon) = with_tools(|daemon| {
        for id in ["text", "truncated", "abort", "layout", "tables", "missing", "library"] {
            daemon.plugin(id, "faulty", "");
        }
        let file = |id: &str| daemon.path().join(format!("extensions/{id}/lib{id}.so"));
        let sound = std::fs::read(file("truncated")).expect("a library");
        std::fs::write(file("text"), "not a library").expect("a file");
        std::fs::write(file("truncated"), &sound[..64 * 1024]).expect("a file");
        std::fs::copy(built("ctor_abort"), file("abort")).expect("a file");
        std::fs::copy(built("other_layout"), file("layout")).expect("a file");
        std::fs::write(file("tables"), with_newer_tables()).expect("a file");
        std::fs::remove_file(file("missing")).expect("a file");
        let libc =
            ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"];
        let libm =
            libc.into_iter().find(|f| std::path::Path::new(f).exists()).expect("some library of the system");
        std::fs::copy(libm, file("library")).expect("a file");
        daemon.plugin("faulty", "faulty", "");
    });
    let expected = [
        ("text", "cannot be opened as a library"),
        ("truncated", "truncated?"),
        ("abort", "signal 6"),
        ("layout", "another layout"),
        ("tables", "its tables are of version 2.0.0, this kernel's of version 1.0.0; build it again"),
        ("missing", "no library"),
        ("library", "no drupe extension"),
    ];
    for (id, sentence) in expected {
        let (state, reason) = daemon.extension(id);
        println!("{id}: {state}: {reason}");
        assert_eq!(state, "failed", "{id}: {reason}");
        assert!(reason.contains(sentence) && reason.contains(&format!("lib{id}")), "{id}: {reason}");
        assert!(reason.lines().count() < 4, "{id}: {reason}");
    }
    assert_eq!(daemon.extension("faulty").0, "active");
    assert_eq!(daemon.turn("s", r#"faulty_echo {"a": 1}"#)["content"], r#"{"a":1}"#);
    let status = daemon.until_ready();
    assert_eq!(status["restarts"], 0, "{status}");
}

/// A sound library that says that its tables are of the next version of their crate.
fn with_newer_tables() -> Vec<u8> {
    let mut library = std::fs::read(built("older_payload")).expect("a library");
    let known = b"1.0.0";
    let places: Vec<usize> =
        (0..library.len() - known.len()).filter(|at| library[*at..].starts_with(known)).collect();
    assert!(!places.is_empty(), "it names its version");
    places.into_iter().for_each(|at| library[at] = b'2');
    library
}

#[test]
fn what_a_newer_plugin_asks_that_nobody_knows_is_unsupported_and_what_is_known_is_done() {
    let (_server, daemon) = with_tools(|daemon| daemon.plugin("newer", "newer_payload", ""));
    let ask = |session: &str, operation: &str, payload: serde_json::Value| -> serde_json::Value {
        let ask = json!({"ask": {"operation": operation, "payload": payload}});
        let turn = daemon.turn(session, &format!("newer_echo {ask}"));
        serde_json::from_str(turn["content"].as_str().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error}: {turn}"))
    };
    let unknown = ask("s", "minds.read", json!({"whose": "yours"}));
    assert_eq!(
        (&unknown["ok"], &unknown["said"]["code"]),
        (&json!(false), &json!("unsupported")),
        "{unknown}"
    );
    assert!(unknown["said"]["message"].to_string().contains("minds.read"), "{unknown}");
    // Fields of the future beside those that there are.
    let known =
        ask("s", "host.log", json!({"level": "info", "message": "from the future", "colour": "blue"}));
    assert_eq!(known["ok"], true, "{known}");
    assert!(daemon.log().contains("from the future"), "{}", daemon.log());
    assert_eq!(daemon.until_ready()["restarts"], 0);
}

#[test]
fn plugins_of_an_older_and_of_a_newer_payload_version_load_and_work() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.plugin("older", "older_payload", "");
        daemon.plugin("newer", "newer_payload", "");
    });
    assert_eq!(daemon.extension("older").0, "active", "{:?}", daemon.extension("older"));
    let (state, note) = daemon.extension("newer");
    assert_eq!(state, "active");
    assert!(note.contains("telepathy"), "{note}");
    for tool in ["older_echo", "newer_echo"] {
        let turn = daemon.turn("s", &format!(r#"{tool} {{"a": 1}}"#));
        assert_eq!(turn["content"], r#"{"a":1}"#, "{turn}");
    }
}

#[test]
fn a_stage_that_fails_is_rolled_back_and_takes_its_dependents_along() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.plugin("a-fault", "faulty", "config: {fail_start: true}\n");
        daemon.plugin("a-panic", "faulty", "config: {panic_initialize: true}\n");
        daemon.plugin("a-tools", "faulty", "config: {panic_describe_tools: true}\n");
        daemon.write("extensions/needs/manifest.yaml", "id: needs\nname: Needs\ndescription: Needs it.\ndepends_on: [a-panic]\nagent: {model: default, instructions: \"\"}\n");
        daemon.write("extensions/leans/manifest.yaml", "id: leans\nname: Leans\ndescription: Needs it.\ndepends_on: [a-fault]\nagent: {model: default, instructions: \"\"}\n");
        daemon.write("extensions/lost/manifest.yaml", "id: lost\nname: Lost\ndescription: Needs what is not there.\ndepends_on: [nowhere]\nagent: {model: default, instructions: \"\"}\n");
        for (id, other) in [("round", "about"), ("about", "round")] {
            daemon.write(
                &format!("extensions/{id}/manifest.yaml"),
                &format!("id: {id}\nname: {id}\ndescription: Goes round.\ndepends_on: [{other}]\nagent: {{model: default, instructions: \"\"}}\n"),
            );
        }
    });
    let expected = [
        ("a-fault", "failed", "fail_start"),
        ("a-panic", "failed", "panic_initialize"),
        ("a-tools", "failed", "panic_describe_tools"),
        ("needs", "skipped", "a-panic"),
        ("leans", "skipped", "a-fault"),
        ("lost", "failed", "nowhere"),
        ("round", "failed", "about → round"),
        ("about", "failed", "about → round"),
        ("kv", "active", ""),
    ];
    for (id, state, reason) in expected {
        let found = daemon.extension(id);
        assert!(found.0 == state && found.1.contains(reason), "{id}: {found:?}");
    }
}

#[test]
fn native_code_in_the_home_runs_in_a_process_of_its_own_unless_its_manifest_says_otherwise() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.plugin("inside", "faulty", "config: {prefix: inside}\n");
        daemon.plugin("apart", "faulty", "config: {prefix: apart}\n");
        let manifest = daemon.path().join("extensions/apart/manifest.yaml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest").replace("isolation: inproc\n", "");
        std::fs::write(manifest, text).expect("a manifest");
    });
    let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
    let of = |id: &str| {
        list.as_array().and_then(|l| l.iter().find(|e| e["id"] == id)).cloned().unwrap_or_default()
    };
    for (id, isolation) in [("inside", "inproc"), ("apart", "process"), ("kv", "inproc")] {
        assert_eq!((&of(id)["state"], &of(id)["isolation"]), (&json!("active"), &json!(isolation)), "{list}");
    }
}

#[test]
fn two_extensions_with_the_same_tool_are_not_both_wired_and_the_error_names_both() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.plugin("one", "faulty", "");
        daemon.plugin("two", "faulty", "");
    });
    let (one, two) = (daemon.extension("one"), daemon.extension("two"));
    assert_eq!((one.0.as_str(), two.0.as_str()), ("active", "failed"), "{one:?} {two:?}");
    assert!(two.1.contains("`one`") && two.1.contains("`two`"), "{two:?}");
}

#[test]
fn a_home_extension_does_not_replace_a_shipped_one_unless_it_says_so() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.write("extensions/code_reviewer/manifest.yaml", "id: code_reviewer\nname: Mine\ndescription: My own.\nagent: {model: default, instructions: \"\"}\n");
    });
    let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
    let of = |state: &str| {
        let all = list.as_array().into_iter().flatten();
        all.filter(|e| e["id"] == "code_reviewer" && e["state"] == state).cloned().collect::<Vec<_>>()
    };
    let (active, failed) = (of("active"), of("failed"));
    assert_eq!((active.len(), failed.len()), (1, 1), "the shipped one goes on: {list}");
    assert!(failed[0]["reason"].to_string().contains("overrides: true"), "{failed:?}");
    assert!(failed[0]["source"].to_string().contains("/extensions/code_reviewer"), "{failed:?}");
    daemon.write("extensions/code_reviewer/manifest.yaml", "id: code_reviewer\nname: Mine\ndescription: My own.\noverrides: true\nagent: {model: default, instructions: \"\"}\n");
    daemon.kill_kernel();
    assert_eq!(daemon.extension("code_reviewer").0, "active");
    let list = daemon.client().ask("agents.list", json!({})).expect("a list");
    assert!(list.as_array().expect("a list").iter().any(|a| a["name"] == "Mine"), "{list}");
}

#[test]
fn what_extensions_may_not_use_is_refused() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.write("extensions/secretive/manifest.yaml", "id: secretive\nname: S\ndescription: Wants a key.\nsecrets: [NO_SUCH_KEY]\nagent: {model: default, instructions: \"\"}\n");
        daemon.write("extensions/leaving/manifest.yaml", "id: leaving\nname: L\ndescription: Reads outside.\nagent: {model: default, instructions: ../../../etc/passwd.md}\n");
        daemon.write("extensions/served/manifest.yaml", "id: served\nname: L\ndescription: Has servers.\nmcp_servers: {a: {command: b}}\nagent: {model: default, instructions: \"\"}\n");
    });
    for (id, becomes, needle) in [
        ("secretive", "failed", "NO_SUCH_KEY"),
        ("leaving", "failed", "passwd"),
        ("served", "skipped", "`extensions.mcp.enabled: true`"),
    ] {
        let (state, reason) = daemon.extension(id);
        assert!(state == becomes && reason.contains(needle), "{id}: {state}: {reason}");
    }
}

#[test]
fn a_tool_shows_its_output_while_it_runs_and_what_was_shown_is_not_kept() {
    let (_server, daemon) = with_tools(|d| d.plugin("faulty", "faulty", ""));
    let mut watcher = daemon.client();
    watcher
        .send("events.subscribe", json!({"session": "s", "after": 0, "follow": true}))
        .expect("it is sent");
    daemon.turn("s", "faulty_progress {}");
    let mut shown = Vec::new();
    loop {
        let event = watcher.reply().expect("a reply")["event"].take();
        match event["kind"].as_str().expect("a kind") {
            "interaction.item.updated" if event["data"]["item"] == "tool_call" => {
                shown.push(event["data"]["delta"].as_str().expect("a text").to_owned());
            }
            "interaction.turn.completed" => break,
            _ => {}
        }
    }
    assert_eq!(shown, ["one", "two", "three"]);
    assert!(daemon.events("s").iter().all(|e| e["kind"] != "interaction.item.updated"));
}

#[test]
fn of_two_that_claim_a_name_the_shipped_one_stays() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.plugin("aaa", "faulty", "config: {prefix: kv}\n");
        daemon.write(
            "extensions/aab/manifest.yaml",
            "id: aab\nname: A\ndescription: Wants another's name.\nagent: {model: default, instructions: \"\", tool_name: agent_builder_agent}\n",
        );
    });
    // Both shipped ones keep their names; `kv` has no `kv_echo`, so that `aaa` collides with nobody.
    assert_eq!(daemon.extension("builder_agent").0, "active");
    let (state, reason) = daemon.extension("aab");
    assert!(state == "failed" && reason.contains("builder_agent"), "{state}: {reason}");
    assert_eq!((daemon.extension("kv").0.as_str(), daemon.extension("aaa").0.as_str()), ("active", "active"));
}

#[test]
fn what_is_private_in_the_home_is_in_no_prompt() {
    let (_server, daemon) = with_tools(|daemon| {
        daemon.write("notes.md", "for everybody");
        for (id, file) in
            [("token", "run/token"), ("keys", ".env"), ("other", "data/other/x.md"), ("fine", "notes.md")]
        {
            daemon.write(file, "canary");
            daemon.write(
                &format!("extensions/{id}/manifest.yaml"),
                &format!("id: {id}\nname: {id}\ndescription: Reads.\nagent: {{model: default, instructions: \"\", context: [{file}]}}\n"),
            );
        }
        std::fs::remove_file(daemon.path().join(".env")).expect("it was written");
    });
    for id in ["token", "keys", "other"] {
        let (state, reason) = daemon.extension(id);
        assert!(
            state == "failed" && (reason.contains("no agent may be shown") || reason.contains("no file")),
            "{id}: {state}: {reason}"
        );
    }
    assert_eq!(daemon.extension("fine").0, "active");
}
