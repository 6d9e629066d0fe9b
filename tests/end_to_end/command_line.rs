//! The command line, as an operator or a script uses it.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{Daemon, built, text};

/// A command of the program that is told no home, with nothing in its environment that could choose one.
fn bare(daemon: &Daemon, args: &[&str]) -> Command {
    let mut command = Command::new(daemon.command(&[]).get_program());
    command.args(args).current_dir(daemon.path()).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

#[test]
fn ask_starts_a_daemon_for_the_call_and_prints_the_answer_alone() {
    let daemon = Daemon::home("");
    let output = daemon.drupe(&["ask", "what can you do?"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("kv_set") && out.contains("builder_agent"), "{out}");
    assert!(err.contains("offline model"), "{err}");
    // It was started for the call, and ended with it.
    assert_eq!(daemon.drupe(&["status"]).status.code(), Some(69));
}

#[test]
fn ask_in_json_has_the_documented_shape() {
    let daemon = Daemon::start("");
    let answer =
        daemon.json(&["ask", "kv_set key=a value=1", "--format", "json", "--session", "s", "--transcript"]);
    for field in [
        "status",
        "content",
        "tokens_used",
        "turns_used",
        "session",
        "turn",
        "usage",
        "invocations",
        "diagnostics",
        "trace",
        "transcript",
    ] {
        assert!(answer.get(field).is_some(), "`{field}` is missing: {answer}");
    }
    let run = &answer["invocations"][0];
    for field in ["id", "agent", "parent", "depth", "status", "tokens_used", "turns_used"] {
        assert!(run.get(field).is_some(), "`{field}` is missing: {run}");
    }
    let plain = daemon.json(&["ask", "kv_get key=a", "--format", "json", "--session", "s"]);
    assert!(plain.get("transcript").is_none(), "{plain}");
    assert!(plain["content"].as_str().is_some_and(|c| c.contains('1')), "{plain}");
    let sessions = daemon.json(&["session", "list", "--json"]);
    assert_eq!((&sessions[0]["id"], &sessions[0]["turn_count"]), (&json!("s"), &json!(2)), "{sessions}");
    let session = daemon.json(&["session", "show", "s", "--json"]);
    assert_eq!(session["turns"].as_array().map(Vec::len), Some(2), "{session}");
}

#[test]
fn ask_reads_a_task_from_stdin_and_a_script_as_model_and_tells_failure_by_its_status() {
    let daemon = Daemon::start("");
    daemon.write("flow.yaml", "- expect: {contains: from a pipe}\n  text: heard\n- fault: {class: model, message: it broke, retriable: false}\n");
    let mut child = daemon
        .command(&["ask", "-", "--model", "scripted:flow.yaml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("drupe runs");
    child.stdin.take().expect("a pipe").write_all(b"from a pipe\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout).trim(), "heard", "{}", text(&output.stderr));
    let failed = daemon.drupe(&["ask", "anything", "--model", "scripted:flow.yaml"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("it broke"), "{}", text(&failed.stderr));
    assert_eq!(daemon.drupe(&["ask"]).status.code(), Some(2));
}

#[test]
fn the_main_job_works_through_a_chat_over_a_pipe() {
    let daemon = Daemon::start("");
    let mut child = daemon
        .command(&["chat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("drupe runs");
    let lines = b"create an agent called haiku that writes haikus\n@haiku rust\n";
    child.stdin.take().expect("a pipe").write_all(lines).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}\n{}", text(&output.stderr));
    assert!(out.contains("`haiku` is made") && out.contains("rust"), "{out}\n{}", text(&output.stderr));
    assert!(!daemon.log().contains("panicked"));
}

#[test]
fn status_restart_and_stop_do_what_they_say() {
    let mut daemon = Daemon::start("");
    let status = daemon.json(&["status", "--json"]);
    for field in [
        "version",
        "state",
        "supervisor_pid",
        "kernel_pid",
        "generation",
        "uptime_ms",
        "restarts",
        "safe_mode",
        "model",
        "sessions",
        "extensions",
    ] {
        assert!(status.get(field).is_some(), "`{field}` is missing: {status}");
    }
    let extension = &status["extensions"][0];
    for field in ["id", "version", "state", "capabilities", "isolation", "source"] {
        assert!(extension.get(field).is_some(), "`{field}` is missing: {extension}");
    }
    let shown = daemon.says(&["status"]);
    assert!(shown.contains("ready") && shown.contains("builder_agent"), "{shown}");
    daemon.says(&["restart", "--reason", "a test"]);
    let after = daemon.json(&["status", "--json"]);
    assert_eq!((&after["state"], &after["restarts"]), (&json!("ready"), &json!(1)), "{after}");
    assert!(after["exits"][0]["how"].as_str().is_some_and(|h| h.contains("a test")), "{after}");
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0));
    assert_eq!(daemon.drupe(&["status"]).status.code(), Some(69));
}

#[test]
fn extensions_are_listed_shown_checked_and_made() {
    let daemon = Daemon::home("");
    daemon.says(&["ext", "new", "agent", "poet"]);
    let again = daemon.drupe(&["ext", "new", "agent", "poet"]);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    let checked = daemon.json(&["ext", "check", "--json"]);
    assert_eq!((&checked["ok"], &checked["diagnostics"]), (&json!(true), &json!([])), "{checked}");
    let mut daemon = daemon;
    daemon.run();
    let answer = daemon.says(&["ask", "@poet hello"]);
    assert!(answer.contains("hello"), "{answer}");
    let list = daemon.json(&["ext", "list", "--json"]);
    let poet = list.as_array().expect("a list").iter().find(|e| e["id"] == "poet").expect("it is listed");
    assert_eq!((&poet["state"], &poet["capabilities"]), (&json!("active"), &json!(["agent"])), "{poet}");
    assert!(daemon.says(&["ext", "show", "kv"]).contains("kv_get"));
    assert_eq!(daemon.drupe(&["ext", "show", "nothing"]).status.code(), Some(1));
    let agents = daemon.json(&["agent", "list", "--json"]);
    let poet = agents.as_array().expect("a list").iter().find(|a| a["id"] == "poet").expect("it is listed");
    for field in ["id", "name", "description", "mode", "model", "tools", "infer"] {
        assert!(poet.get(field).is_some(), "`{field}` is missing: {poet}");
    }
    let detail = daemon.json(&["agent", "show", "poet", "--json"]);
    let excluded = detail["excluded"].as_array().expect("a list");
    assert!(
        excluded
            .iter()
            .any(|e| e["tool"] == "kv_set" && e["reason"].as_str().is_some_and(|r| r.contains("uses_tools"))),
        "{detail}"
    );
}

#[test]
fn every_fault_of_a_manifest_is_told_with_its_place() {
    let daemon = Daemon::home("");
    daemon.write(
        "bad/manifest.yaml",
        "id: wrong\nname: 5\nversion: one\nsummery: x\nscope: everyone\nrights: [fly]\ndepends_on: [wrong]\nenabled: perhaps\n\
         agent:\n  model: \"\"\n  instructions: ../../outside.md\n  integration_mode: telepathy\n  limits: {max_turns: 0, max_turns2: 1}\n\
         \x20 parameters: {temperature: 9}\n",
    );
    let output = daemon.drupe(&["ext", "check", "bad", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let diagnostics = report["diagnostics"].as_array().expect("a list");
    let errors = diagnostics.iter().filter(|d| d["severity"] == "error");
    assert!(errors.clone().count() >= 12, "{report:#}");
    for one in errors {
        assert!(one["line"].as_u64() > Some(0) && one["column"].as_u64() > Some(0), "{one}");
        assert!(
            !one["message"].as_str().unwrap_or_default().is_empty()
                && one["file"].as_str().is_some_and(|f| f.ends_with("manifest.yaml")),
            "{one}"
        );
    }
    let shown = text(&daemon.drupe(&["ext", "check", "bad"]).stdout)
        + &text(&daemon.drupe(&["ext", "check", "bad"]).stderr);
    assert!(shown.contains("summery") && shown.contains("did you mean"), "{shown}");
}

#[test]
fn a_manifest_that_holds_description_twice_loads_with_a_warning() {
    let daemon = Daemon::home("");
    daemon.write(
        "extensions/twice/manifest.yaml",
        "id: twice\nname: Twice\ndescription: Short.\ndescription: For the model that routes.\nagent: {model: default, instructions: \"\", usage: x, output: {format: text}}\n",
    );
    let output = daemon.drupe(&["ext", "check"]);
    let shown = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && shown.contains("description"), "{shown}");
    let mut daemon = daemon;
    daemon.run();
    let agents = daemon.json(&["agent", "show", "twice", "--json"]);
    assert_eq!(agents["description"], "For the model that routes.", "{agents}");
}

#[test]
fn the_configuration_is_shown_with_origins_and_without_secrets() {
    let mut daemon = Daemon::home(
        "orchestrator: {name: Ada}\nmodels: {aliases: {default: own/some}, providers: {own: {kind: openai_chat, base_url: \"http://127.0.0.1:9/v1\", api_key: \"${OWN_KEY}\"}}}\n",
    );
    daemon.variable("OWN_KEY", "sk-very-secret");
    let shown = daemon.says(&["config", "show", "--json"]);
    assert!(!shown.contains("very-secret"), "{shown}");
    let values: Value = serde_json::from_str(&shown).expect("JSON");
    let name = values
        .as_array()
        .expect("a list")
        .iter()
        .find(|v| v["key"] == "orchestrator.name")
        .expect("it is there");
    assert!(
        name["value"] == "Ada" && name["origin"].as_str().is_some_and(|o| o.ends_with("drupe.yaml:1")),
        "{name}"
    );
    assert!(daemon.says(&["config", "path"]).contains("drupe.yaml"));
    let schema: Value = serde_json::from_str(&daemon.says(&["config", "schema"])).expect("JSON");
    assert!(schema["properties"]["orchestrator"].is_object(), "{schema}");
    daemon.write("drupe.yaml", "orchestrater: {}\n");
    assert_eq!(daemon.drupe(&["config", "show"]).status.code(), Some(78));
}

#[test]
fn completions_and_the_manual_are_printed() {
    let daemon = Daemon::home("");
    assert!(daemon.says(&["completions", "bash"]).contains("_drupe"));
    assert!(daemon.says(&["man"]).contains(".TH"));
}

#[test]
fn extensions_are_added_turned_off_and_on_and_agreed_to_by_their_verbs() {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let write = |id: &str, more: &str| {
        let folder = elsewhere.path().join(id);
        std::fs::create_dir_all(&folder).expect("a folder");
        let manifest = format!(
            "id: {id}\nname: {id}\ndescription: Says what it is.\n{more}agent:\n  model: default\n  instructions: x\n  usage: x\n  \
             output: {{format: text}}\n  offline: [{{when: '.*', say: I am {id}}}]\n"
        );
        std::fs::write(folder.join("manifest.yaml"), manifest).expect("a file");
        folder.display().to_string()
    };
    let daemon = Daemon::start("");
    let before = daemon.until_ready();
    let added = daemon.json(&["ext", "add", &write("modest", ""), "--json"]);
    assert_eq!((&added["id"], &added["state"]), (&json!("modest"), &json!("active")), "{added}");
    assert_eq!(daemon.turn("s", "@modest x")["content"], "I am modest");
    let twice = daemon.drupe(&["ext", "add", &write("modest", "")]);
    assert!(!twice.status.success() && text(&twice.stderr).contains("already"), "{}", text(&twice.stderr));

    assert_eq!(daemon.json(&["ext", "disable", "modest", "--json"])["state"], "disabled");
    assert_eq!(daemon.turn("s", "@modest x")["status"], "error");
    daemon.says(&["restart"]);
    assert_eq!(daemon.extension("modest").0, "disabled", "it is remembered");
    assert_eq!(daemon.json(&["ext", "enable", "modest", "--json"])["state"], "active");

    let asks = daemon.json(&["ext", "add", &write("mighty", "rights: [control]\n"), "--json"]);
    assert_eq!(asks["state"], "awaiting_approval", "{asks}");
    let waiting = daemon.json(&["approvals", "--json"]);
    assert_eq!((&waiting[0]["extension"], &waiting[0]["state"]), (&json!("mighty"), &json!("pending")));
    assert_eq!(daemon.json(&["approvals", "deny", "mighty", "--json"])["state"], "denied");
    assert_eq!(daemon.extension("mighty").0, "disabled");
    let id = waiting[0]["id"].as_str().expect("an id");
    assert_eq!(daemon.json(&["approvals", "allow", id, "--json"])["state"], "allowed");
    assert_eq!(daemon.extension("mighty").0, "active");
    assert!(daemon.says(&["approvals"]).contains("the rights control"));

    let unknown = daemon.drupe(&["ext", "release", "nobody"]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("no extension `nobody`"));
    assert_eq!(daemon.json(&["ext", "release", "modest", "--json"])["state"], "active");
    assert_eq!(daemon.until_ready()["restarts"], json!(1), "{before}");
}

#[test]
fn a_native_extension_is_asked_about_once_and_only_when_it_has_a_library() {
    let mut daemon = Daemon::home("approvals: {preauthorized: []}\n");
    let made = daemon.json(&["ext", "new", "native", "words", "--json"]);
    assert!(made["files"].to_string().contains("src/lib.rs"), "{made}");
    let twice = daemon.drupe(&["ext", "new", "native", "words"]);
    assert!(!twice.status.success() && text(&twice.stderr).contains("already"));
    let kept = daemon.drupe(&["ext", "new", "native", "core"]);
    assert!(!kept.status.success() && text(&kept.stderr).contains("kernel's own"), "{}", text(&kept.stderr));
    assert!(!daemon.path().join("extensions/core").exists());

    daemon.run();
    let check = |daemon: &Daemon| -> Value {
        serde_json::from_slice(&daemon.drupe(&["ext", "check", "--json"]).stdout).expect("JSON")
    };
    let unbuilt = daemon.until_extension("words", "failed");
    assert!(unbuilt.contains("no library `libwords.so`"), "{unbuilt}");
    assert_eq!(check(&daemon)["diagnostics"], json!([]), "nothing but the library is missing");
    assert_eq!(daemon.json(&["approvals", "list", "--json"]), json!([]));
    let early = daemon.drupe(&["approvals", "allow", "words"]);
    let said = text(&early.stderr);
    assert!(early.status.code() == Some(1) && said.contains("nothing of `words` waits"), "{said}");
    assert!(said.contains("build it"), "{said}");

    let target = daemon.path().join("extensions/words/target/release");
    std::fs::create_dir_all(&target).expect("a folder");
    std::fs::copy(built("torture"), target.join("libwords.so")).expect("the plugin is built with the tests");
    assert_eq!(check(&daemon)["ok"], true);
    // No look at what waits is needed before the answer.
    let agreed = daemon.drupe(&["approvals", "allow", "words"]);
    assert_eq!(agreed.status.code(), Some(0), "{}", text(&agreed.stderr));
    assert_eq!(daemon.extension("words").0, "active");
    let asked = daemon.json(&["approvals", "list", "--json"]);
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "{asked:#}");
}

#[test]
fn a_verb_about_an_extension_succeeds_only_where_the_wanted_state_was_reached() {
    let mut daemon = Daemon::home("approvals: {preauthorized: [unset, broken, hangs]}\n");
    let plugin = |id: &str, stage: &str, more: &str| {
        let config = format!("config: {{prefix: {id}, {stage}: true}}\n{more}");
        daemon.plugin_in("process", id, "faulty", &config);
    };
    plugin("unset", "fail_initialize", "");
    plugin("broken", "fail_start", "");
    plugin("hangs", "hang_initialize", "enabled: false\n");
    plugin("asked", "fail_start", "");
    daemon.write(
        "off/off/manifest.yaml",
        "id: off\nname: Off\ndescription: x\nenabled: false\nagent: {model: default, instructions: x}\n",
    );
    daemon.run();
    let ends = |args: &[&str]| {
        let output = daemon.drupe(args);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    daemon.until_extension("asked", "awaiting_approval");
    let off = daemon.path().join("off/off").display().to_string();
    for (args, status, state) in [
        (["ext", "release", "unset"], 1, "disabled"),
        (["ext", "enable", "broken"], 1, "failed"),
        (["ext", "release", "asked"], 0, "awaiting approval"),
        (["approvals", "allow", "asked"], 1, "failed"),
        (["ext", "add", off.as_str()], 1, "disabled"),
        (["ext", "disable", "broken"], 0, "disabled"),
    ] {
        let (ended, said) = ends(&args);
        assert!(ended == Some(status) && said.contains(state), "{args:?}: {ended:?}: {said}");
    }

    // One that takes long to begin is waited for, whoever decides what about it.
    let mut enabling = daemon.command(&["ext", "enable", "hangs"]);
    let enabling = enabling.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    daemon.until_extension("hangs", "loaded");
    let (ended, said) = ends(&["ext", "disable", "hangs"]);
    assert!(ended == Some(0) && said.contains("disabled"), "{ended:?}: {said}");
    let enabled = enabling.wait_with_output().expect("it ends");
    let said = text(&enabled.stdout);
    assert!(enabled.status.code() == Some(1) && said.contains("disabled"), "{:?}: {said}", enabled.status);
}

#[test]
fn a_home_whose_path_is_not_utf8_is_used_and_what_would_be_ignored_is_refused_by_name() {
    let daemon = Daemon::home("");
    let strange = OsStr::from_bytes(b"caf\xe9");
    let home = daemon.path().join(strange);
    for (name, value) in
        [("DRUPE_HOME", home.clone()), ("XDG_DATA_HOME", home.clone()), ("HOME", home.clone())]
    {
        let mut command = bare(&daemon, &["config", "path", "--json"]);
        let output = command.env(name, value).output().expect("drupe runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains("caf\u{fffd}"), "{name}: {said}");
    }
    let mut command = daemon.command(&["config", "path"]);
    let output = command.env("DRUPE_ORCHESTRATOR__MODEL", strange).output().expect("drupe runs");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(78) && said.contains("`DRUPE_ORCHESTRATOR__MODEL` is not UTF-8"),
        "{said}"
    );
    let mut asks = bare(&daemon, &["ask", "hello"]);
    let output = asks.env("DRUPE_HOME", &home).output().expect("drupe runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(home.join("journal.db").exists());
}
