//! What an extension brings that the operator must agree to first, and how that is done.

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, plugins::switch, text, until};

/// Nothing is agreed to beforehand.
const ASK: &str = "approvals: {preauthorized: []}\n";

fn asking(prepare: impl FnOnce(&Daemon)) -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&(server.config() + ASK));
    prepare(&daemon);
    daemon.run();
    (server, daemon)
}

fn approvals(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.client().ask("approvals.list", json!({})).expect("a list");
    list.as_array().expect("a list").clone()
}

/// The one that waits for an extension.
fn pending(daemon: &Daemon, id: &str) -> Value {
    let all = approvals(daemon);
    let one = all.iter().find(|a| a["extension"] == id && a["state"] == "pending");
    one.unwrap_or_else(|| panic!("nothing of `{id}` waits: {all:#?}")).clone()
}

fn answer(daemon: &Daemon, id: &Value, allow: bool) -> Result<Value, String> {
    let answered = daemon.client().ask("approvals.answer", json!({"id": id, "allow": allow}));
    answered.map_err(|error| format!("{error}\n{}", daemon.log()))
}

fn restart(daemon: &Daemon) {
    let before = daemon.until_ready();
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    daemon.until_status("the next kernel", |s| {
        s["state"] == "ready" && s["generation"] != before["generation"]
    });
}

fn variant(daemon: &Daemon) -> Value {
    daemon.turn("s", "torture_variant {}")["content"].clone()
}

#[test]
fn native_code_waits_for_the_operator_and_works_when_they_agree_without_a_restart() {
    let (_server, daemon) = asking(|d| d.plugin_in("process", "torture", "torture", ""));
    let before = daemon.until_ready();
    let (state, reason) = daemon.extension("torture");
    assert_eq!(state, "awaiting_approval", "{reason}");
    let approval = pending(&daemon, "torture");
    assert!(approval["needs"].to_string().contains("native code"), "{approval}");
    let id = approval["id"].as_str().expect("an id");
    assert!(reason.contains(&format!("drupe approvals allow {id}")), "{reason}");
    assert_ne!(variant(&daemon), "0", "nothing of it runs");
    let allowed = answer(&daemon, &approval["id"], true).expect("it is agreed");
    assert_eq!(allowed["state"], "allowed");
    daemon.until_extension("torture", "active");
    assert_eq!(variant(&daemon), "0");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
    restart(&daemon);
    assert_eq!(daemon.extension("torture").0, "active", "an agreement lasts");
    assert!(approvals(&daemon).iter().all(|a| a["state"] != "pending"));
}

#[test]
fn what_the_operator_refuses_stays_out_until_they_think_otherwise() {
    let (_server, daemon) = asking(|d| d.plugin_in("process", "torture", "torture", ""));
    let approval = pending(&daemon, "torture");
    assert_eq!(answer(&daemon, &approval["id"], false).expect("it is refused")["state"], "denied");
    let (state, reason) = daemon.extension("torture");
    assert!(state == "disabled" && reason.contains("did not agree"), "{state}: {reason}");
    restart(&daemon);
    assert_eq!(daemon.extension("torture").0, "disabled");
    answer(&daemon, &approval["id"], true).expect("it is agreed");
    daemon.until_extension("torture", "active");
}

#[test]
fn an_answer_is_changed_by_the_name_of_the_extension_too() {
    let (_server, daemon) = asking(|d| d.plugin_in("process", "torture", "torture", ""));
    let first = pending(&daemon, "torture");
    let said = |verb: &str| {
        let output = daemon.drupe(&["approvals", verb, "torture", "--json"]);
        assert!(output.status.success(), "{verb}: {}", text(&output.stderr));
        serde_json::from_str::<Value>(&text(&output.stdout)).expect("an approval")
    };
    assert_eq!(said("allow")["id"], first["id"]);
    daemon.until_extension("torture", "active");
    let denied = said("deny");
    assert_eq!((&denied["id"], &denied["state"]), (&first["id"], &json!("denied")));
    assert_eq!(daemon.extension("torture").0, "disabled");
    assert_eq!(said("allow")["id"], first["id"]);
    daemon.until_extension("torture", "active");

    // What was answered for other content is not what is meant.
    said("deny");
    switch(&daemon.library("torture"), "none", "never", "1");
    assert_ne!(said("allow")["id"], first["id"], "the new content waits");
}

#[test]
fn an_agreement_holds_for_one_content_alone() {
    let (_server, daemon) = asking(|d| d.plugin_in("process", "torture", "torture", ""));
    let first = pending(&daemon, "torture");
    answer(&daemon, &first["id"], true).expect("it is agreed");
    daemon.until_extension("torture", "active");
    switch(&daemon.library("torture"), "none", "any", "second");
    let second =
        until("it is asked again", || approvals(&daemon).into_iter().find(|a| a["state"] == "pending"))
            .unwrap_or_else(|| panic!("{:?}", daemon.extension("torture")));
    assert_ne!((&second["hash"], &second["id"]), (&first["hash"], &first["id"]));
    let (state, reason) = daemon.extension("torture");
    assert!(state == "active" && reason.contains("drupe approvals allow"), "{state}: {reason}");
    assert_eq!(variant(&daemon), "0", "what was agreed to goes on");
    restart(&daemon);
    assert_eq!(daemon.extension("torture").0, "awaiting_approval");
    assert_ne!(variant(&daemon), "second");
    // The old answer is no answer to the new question.
    let _ = answer(&daemon, &first["id"], true);
    assert_eq!(daemon.extension("torture").0, "awaiting_approval");
    answer(&daemon, &second["id"], true).expect("it is agreed");
    daemon.until_extension("torture", "active");
    assert_eq!(variant(&daemon), "second");
}

#[test]
fn a_question_whose_extension_is_gone_is_withdrawn() {
    let (_server, daemon) = asking(|d| d.plugin_in("process", "torture", "torture", ""));
    let approval = pending(&daemon, "torture");
    std::fs::remove_dir_all(daemon.path().join("extensions/torture")).expect("it is there");
    let withdrawn =
        until("it is withdrawn", || approvals(&daemon).iter().all(|a| a["state"] != "pending").then_some(()));
    assert!(withdrawn.is_some(), "{:#?}", approvals(&daemon));
    assert!(answer(&daemon, &approval["id"], true).is_err());
}

#[test]
fn each_thing_that_needs_agreement_is_named_and_what_is_modest_needs_none() {
    let agent = |id: &str, keys: &str, more: &str| {
        format!(
            "id: {id}\nname: {id}\ndescription: Wants something.\n{keys}agent: {{model: default, instructions: \"\"{more}}}\n"
        )
    };
    let cases = [
        ("secret", "secrets: [A_KEY]\n", "", "A_KEY"),
        ("right", "rights: [control]\n", "", "control"),
        ("timed", "schedules: [{name: a, cron: '0 8 * * *', task: x}]\n", "", "0 8 * * *"),
        ("code_reviewer", "overrides: true\n", "", "shipped"),
        ("tools", "", ", uses_tools: [terminal]", "terminal"),
        ("agents", "", ", uses_agents: [builder_agent]", "builder_agent"),
        ("named", "", ", tool_name: anything", "tool name"),
        ("outside", "", ", context: [notes.md]", "notes.md"),
        ("greedy", "", ", limits: {max_turns: 1000}", "limits"),
    ];
    let (_server, daemon) = asking(|daemon| {
        daemon.write(".env", "A_KEY=x\n");
        let env = daemon.path().join(".env");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(env, private).expect("it was written");
        daemon.write("notes.md", "for everybody");
        for (id, keys, more, _) in cases {
            daemon.write(&format!("extensions/{id}/manifest.yaml"), &agent(id, keys, more));
        }
        let modest = agent("modest", "", ", uses_tools: [kv, files/files_read]");
        daemon.write("extensions/modest/manifest.yaml", &modest);
    });
    assert_eq!(daemon.extension("modest").0, "active", "{:?}", daemon.extension("modest"));
    for (id, _, _, named) in cases {
        let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
        let waits = list.as_array().expect("a list").iter().any(|e| {
            e["id"] == id
                && e["state"] == "awaiting_approval"
                && e["reason"].to_string().to_lowercase().contains(&named.to_lowercase())
        });
        assert!(waits, "`{id}` waits: {list:#}");
        let needs = pending(&daemon, id)["needs"].clone();
        assert!(needs.as_array().is_some_and(|n| n.len() == 1), "{id}: {needs}");
        assert!(needs.to_string().to_lowercase().contains(&named.to_lowercase()), "{id}: {needs}");
    }
}

#[test]
fn only_those_that_the_configuration_lists_are_agreed_to_beforehand() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&(server.config() + "approvals: {preauthorized: [trusted]}\n"));
    daemon.plugin_in("process", "trusted", "torture", "config: {prefix: trusted}\n");
    daemon.plugin_in("process", "torture", "torture", "");
    daemon.run();
    assert_eq!(daemon.extension("trusted").0, "active", "{:?}", daemon.extension("trusted"));
    assert_eq!(daemon.extension("torture").0, "awaiting_approval");
}

#[test]
fn no_extension_answers_for_the_operator_whatever_its_rights() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&(server.config() + "approvals: {preauthorized: [torture]}\n"));
    daemon.plugin_in("process", "torture", "torture", "rights: [control]\n");
    daemon.plugin_in("process", "other", "torture", "config: {prefix: other}\n");
    daemon.run();
    let approval = pending(&daemon, "other");
    let listed = daemon.turn("s", r#"torture_control {"method": "approvals.list"}"#);
    assert!(listed["content"].to_string().contains("native code"), "it may look: {listed}");
    for (method, params) in [
        ("approvals.answer", json!({"id": approval["id"], "allow": true})),
        ("extensions.release", json!({"id": "other"})),
        ("extensions.enable", json!({"id": "other"})),
        ("extensions.disable", json!({"id": "kv"})),
    ] {
        let asked = json!({"method": method, "params": params});
        let turn = daemon.turn("s", &format!("torture_control {asked}"));
        println!("{method}: {}", turn["content"]);
        let refused = format!("may not use `{method}`");
        assert!(turn["content"].to_string().contains(&refused), "{method}: {turn}");
    }
    assert_eq!(daemon.extension("other").0, "awaiting_approval");
    assert_eq!(daemon.extension("kv").0, "active");
}

#[test]
fn an_answer_to_nothing_is_refused() {
    let (_server, daemon) = asking(|d| d.plugin_in("process", "torture", "torture", ""));
    let error = answer(&daemon, &json!("nowhere"), true).expect_err("it is refused");
    assert!(error.contains("nowhere"), "{error}");
    let by_name = answer(&daemon, &json!("torture"), true).expect("the extension names what waits");
    assert_eq!(by_name["extension"], "torture");
    daemon.until_extension("torture", "active");
}
