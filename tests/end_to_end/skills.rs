//! Skills: which a model is told of, what it reads of them, and which tools they leave it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
    text, until,
    wire::Wire,
};

fn skill(name: &str, more: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Works on {name} files. Use it for them.\n{more}---\n\nOpen the {name} with care.\n"
    )
}

/// Calls that the user's message lists, one after another, each with its own step.
fn script(request: &Value) -> Say {
    let messages = request["messages"].as_array().expect("messages");
    let asked = messages.iter().rfind(|message| message["role"] == "user").expect("a message");
    let text = asked["content"].as_str().expect("text");
    let task = text.rsplit_once("\n\nTask:\n").map_or(text, |(_, task)| task);
    let calls: Vec<Value> = serde_json::from_str(task).unwrap_or_default();
    let done = messages.iter().rev().take_while(|message| message["role"] != "user");
    match calls.get(done.filter(|message| message["role"] == "assistant").count()) {
        Some(call) => Say::Call(vec![(call[0].as_str().expect("a tool").to_owned(), call[1].clone())]),
        None => Say::Text(latest(request).1),
    }
}

fn load(name: &str) -> Value {
    json!(["load_skill", {"name": name}])
}

/// What the calls of a message gave, in their order.
fn results(turn: &Value) -> Vec<String> {
    let entries =
        turn["transcript"].as_array().expect("a list").iter().filter(|entry| entry["role"] == "tool");
    entries.map(|entry| entry["content"].as_str().expect("text").to_owned()).collect()
}

fn system(request: &Value) -> &str {
    request["messages"][0]["content"].as_str().expect("a system prompt")
}

#[test]
fn a_model_knows_which_there_are_and_reads_one_with_its_files_when_it_needs_it() {
    let server = ModelServer::start(script);
    let mut daemon = Daemon::home(&(server.config() + "skills: {directories: [more], disabled: [off]}\n"));
    daemon.write("skills/pdf/SKILL.md", &skill("pdf", "license: MIT\n"));
    daemon.write("skills/pdf/references/forms.md", "how forms are filled in");
    daemon.write("skills/off/SKILL.md", &skill("off", ""));
    daemon.write("skills/broken/SKILL.md", "---\nname: broken\n---\n\nx\n");
    daemon.write("more/csv/SKILL.md", &skill("csv", ""));
    daemon.write("more/pdf/SKILL.md", &skill("pdf", ""));
    daemon.run();
    let calls = json!([load("pdf"), ["load_skill", {"name": "pdf", "file": "references/forms.md"}],
        ["load_skill", {"name": "pdf", "file": "../../drupe.yaml"}], load("off")]);
    let turn = daemon.turn("s", &calls.to_string());
    let results = results(&turn);
    assert!(results[0].contains("Open the pdf with care."), "{results:?}");
    assert!(results[0].contains("references/forms.md"), "{results:?}");
    assert_eq!(results[1], "how forms are filled in");
    assert!(results[2].contains("is no path beneath its folder"), "{results:?}");
    assert!(results[3].contains("there is no skill `off`; there are csv, pdf"), "{results:?}");
    let requests = server.requests();
    let told = system(&requests[0]);
    assert!(
        told.contains("- csv: Works on csv files.") && told.contains("- pdf: Works on pdf files."),
        "{told}"
    );
    assert!(!told.contains("off files") && !told.contains("with care"), "{told}");
    let listed = || daemon.json(&["skill", "list", "--json"]);
    assert_eq!(listed()[1]["name"], "pdf");
    // One that is added while it runs is told of with the next message.
    daemon.write("skills/zip/SKILL.md", &skill("zip", ""));
    until("it is noticed", || (listed()[2]["name"] == "zip").then_some(()));
    let zipped = daemon.turn("s", &json!([load("zip")]).to_string());
    assert!(self::results(&zipped)[0].contains("Open the zip with care."), "{zipped}");
    // How people are shown one, and what is wrong with what says it.
    daemon.write(
        "skills/zip/agents/openai.yaml",
        "interface: {display_name: Archives, short_description: Packs}\n",
    );
    daemon.write("skills/pdf/SKILL.toml", "[interface]\ndisplay_name = 3\n");
    until("it is noticed", || (listed()[2]["display_name"] == "Archives").then_some(()));
    let shown = daemon.says(&["skill", "list"]);
    assert!(
        shown.contains("zip (Archives)") && shown.contains("Packs") && !shown.contains("zip files"),
        "{shown}"
    );
    let about = "`interface.display_name` is no text";
    let said = until("it is said", || daemon.says(&["status"]).contains(about).then_some(()));
    assert!(said.is_some(), "{}", daemon.says(&["status"]));
    assert!(listed()[1]["display_name"].is_null(), "it is there all the same");
    let checked = daemon.drupe(&["skill", "check", "skills/pdf"]);
    assert!(checked.status.success() && text(&checked.stderr).contains(about));
    let folder = daemon.path().join("skills/broken");
    let checked = daemon.drupe(&["skill", "check", folder.to_str().expect("text")]);
    assert!(!checked.status.success() && text(&checked.stderr).contains("`description` is missing"));
    assert!(daemon.says(&["skill", "check", "skills/pdf"]).contains("`pdf` is a skill"));
    let status = daemon.says(&["status"]);
    for part in ["`description` is missing", "has the same name and goes before it"] {
        assert!(status.contains(part), "{part}: {status}");
    }
}

#[test]
fn what_a_skill_names_is_all_that_it_leaves_a_run_and_that_holds_after_a_crash() {
    let stalls = Arc::new(AtomicBool::new(false));
    let stall = Arc::clone(&stalls);
    let server = ModelServer::start(move |request| {
        let loaded = latest(request).1.contains("Open the notes");
        match loaded && stall.swap(false, Ordering::SeqCst) {
            true => Say::Fail(Wire::Stall("a half")),
            false => script(request),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.write("skills/notes/SKILL.md", &skill("notes", "allowed-tools: Read kv_get Bash(git *)\n"));
    daemon.write("skills/free/SKILL.md", &skill("free", ""));
    daemon.write("workspace/a.txt", "a text");
    daemon.run();
    let set = json!(["kv_set", {"key": "a", "value": "b"}]);
    let calls =
        json!([load("free"), set, load("notes"), set, ["files_read", {"path": "a.txt"}], load("free"), set]);
    let turn = daemon.turn("s", &calls.to_string());
    let given = results(&turn);
    let refused = "the skill `notes` leaves you files_read, kv_get, shell_run";
    assert!(!given[1].contains("leaves you"), "one that names no tools leaves all: {given:?}");
    assert!(
        given[3].contains(refused) && given[4].contains("a text") && given[6].contains(refused),
        "{given:?}"
    );
    // Another message is another run.
    let turn = daemon.turn("s", &json!([set]).to_string());
    assert!(!results(&turn)[0].contains("leaves you"), "{turn}");
    stalls.store(true, Ordering::SeqCst);
    let turn = daemon.submit("t", &json!([load("notes"), set]).to_string());
    until("the skill is loaded", || (!stalls.load(Ordering::SeqCst)).then_some(()));
    daemon.kill_kernel();
    daemon.until_ready();
    let turn = daemon.wait(&turn);
    assert!(results(&turn).last().expect("a result").contains(refused), "{turn}");
}

#[test]
fn an_agent_has_those_of_its_own_folder_alone_and_one_without_its_skill_is_no_agent() {
    let server = ModelServer::start(script);
    let mut daemon = Daemon::home(&server.config());
    let manifest = |id: &str, more: &str| {
        format!(
            "id: {id}\nname: {id}\ndescription: Works.\nagent: {{model: default, instructions: You work.}}\n{more}"
        )
    };
    daemon.write("skills/general/SKILL.md", &skill("general", ""));
    daemon.write("extensions/clerk/manifest.yaml", &manifest("clerk", "skills: [skills/csv]\n"));
    daemon.write("extensions/clerk/skills/csv/SKILL.md", &skill("csv", ""));
    daemon.write("extensions/lost/manifest.yaml", &manifest("lost", "skills: [skills/gone]\n"));
    daemon.write("extensions/plain/manifest.yaml", &manifest("plain", ""));
    daemon.run();
    let turn = daemon.turn("s", &format!("@clerk {}", json!([load("csv"), load("general")])));
    let given = results(&turn);
    assert!(given[0].contains("Open the csv with care."), "{given:?}");
    assert!(given[1].contains("there is no skill `general`; there are csv"), "{given:?}");
    daemon.turn("s", "@plain []");
    assert!(!offered(server.requests().last().expect("one")).contains(&"load_skill".to_owned()));
    let reason = daemon.until_extension("lost", "failed");
    assert!(reason.contains("skills/gone"), "{reason}");
}
