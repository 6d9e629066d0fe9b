//! Sessions that go on after something of what they have made use of has changed: what is told of each change.

mod later_calls;

use std::{io::Write as _, process::Stdio};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
};

fn manifest(more: &str) -> String {
    format!(
        "id: poet\nname: Poet\ndescription: Writes verses.\nagent:\n  model: default\n  instructions: You are the poet.\n{more}"
    )
}

const SKILL: &str = "---\nname: pdf\ndescription: Works on files.\n---\n\nOpen it with care.\n";

/// Calls what the user's message names, and then says so.
fn model(request: &Value) -> Say {
    let (role, text) = latest(request);
    let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned();
    let call = task.split_once(' ').and_then(|(tool, parameters)| {
        let parameters: Value = serde_json::from_str(parameters).ok()?;
        (role == "user" && parameters.is_object()).then(|| (tool.to_owned(), parameters))
    });
    call.map_or(Say::Text(task), |call| Say::Call(vec![call]))
}

/// What a turn was told of changes.
fn changes(turn: &Value) -> Vec<String> {
    let remarks = turn["diagnostics"].as_array().expect("a list").iter().filter_map(Value::as_str);
    remarks.filter_map(|remark| remark.strip_prefix("changed: ")).map(str::to_owned).collect()
}

struct House {
    daemon: Daemon,
    server: ModelServer,
}

/// How what changed comes to the daemon.
#[derive(Debug, Clone, Copy)]
enum By {
    Restart,
    Itself,
}

impl House {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        let server = ModelServer::start(model);
        let mut daemon = Daemon::home(&(server.config() + settings));
        daemon.write("extensions/poet/manifest.yaml", &manifest("  uses_tools: [kv]\n"));
        daemon.write("skills/pdf/SKILL.md", SKILL);
        daemon.run();
        let house = Self { daemon, server };
        for text in [r#"agent_poet {"task": "rust"}"#, r#"load_skill {"name": "pdf"}"#] {
            assert_eq!(changes(&house.daemon.turn("s", text)), Vec::<String>::new(), "{text}");
        }
        assert_eq!(changes(&house.daemon.turn("s", "hello")), Vec::<String>::new(), "nothing has changed");
        house
    }

    fn restart(&self) {
        self.daemon.says(&["restart"]);
        self.daemon.until_ready();
    }

    /// Changes the poet, and waits until it is so.
    fn poet(&self, more: &str, by: By) {
        let before = self.daemon.json(&["agent", "show", "poet", "--json"]);
        self.daemon.write("extensions/poet/manifest.yaml", &manifest(more));
        match by {
            By::Restart => self.restart(),
            By::Itself => until("it is taken in", || {
                (self.daemon.json(&["agent", "show", "poet", "--json"]) != before).then_some(())
            })
            .unwrap_or_else(|| panic!("{}", self.daemon.log())),
        }
    }

    /// What the session is told of changes with its next message, once.
    fn told(&self) -> Vec<String> {
        let turn = self.daemon.turn("s", "hello");
        assert_eq!(turn["content"], "hello", "it goes on with what is there");
        let again = changes(&self.daemon.turn("s", "hello"));
        assert_eq!(again, Vec::<String>::new(), "it is told once: {turn}");
        assert_eq!(changes(&self.daemon.turn("new", "hello")), Vec::<String>::new());
        changes(&turn)
    }

    fn snapshot(&self, session: &str) -> Value {
        self.daemon.json(&["session", "show", session, "--json"])["snapshot"].clone()
    }
}

#[test]
fn each_kind_of_change_is_told_once_by_name() {
    let house = House::new();
    for (by, more, told) in [
        (By::Restart, "  uses_tools: []\n", "the tools `kv_delete`, `kv_get`, `kv_list`, `kv_set` are gone"),
        (By::Itself, "  uses_tools: [kv/kv_get]\n", "the tool `kv_get` is new"),
        (By::Restart, "  uses_tools: [kv]\n", "the tools `kv_delete`, `kv_list`, `kv_set` are new"),
        (By::Itself, "  uses_tools: [kv/kv_set]\n", "the tools `kv_delete`, `kv_get`, `kv_list` are gone"),
        (By::Itself, "  uses_tools: [kv/kv_set]\n  limits: {max_turns: 3}\n", "its limits changed"),
        (
            By::Restart,
            "  uses_tools: [kv/kv_set]\n  limits: {max_turns: 3}\n  parameters: {temperature: 0.5}\n",
            "the parameters of its model changed",
        ),
        (
            By::Itself,
            "  uses_tools: [kv/kv_set]\n  limits: {max_turns: 3}\n  output: {format: markdown}\n",
            "the parameters of its model changed; the form of its answer changed",
        ),
        (
            By::Restart,
            "  uses_tools: [kv/kv_set]\n  limits: {max_turns: 3}\n  context: more\n",
            "the form of its answer changed; the texts that it begins with changed",
        ),
    ] {
        house.poet(more, by);
        let told = format!("`poet` is not what it was in this conversation: {told}");
        assert_eq!(house.told(), [told], "{by:?} {more}");
    }
}

#[test]
fn a_list_of_models_is_told_as_it_was_and_as_it_is() {
    let house = House::new();
    let two = house.server.config().replace("{default: local/test}", "{default: [local/test, local/other]}");
    house.daemon.write("drupe.yaml", &two);
    house
        .daemon
        .until_status("the next kernel", |status| status["state"] == "ready" && status["generation"] == 2);
    let told = |agent: &str| {
        format!(
            "`{agent}` is not what it was in this conversation: its models were local/test and are local/test, local/other"
        )
    };
    assert_eq!(house.told(), [told("orchestrator"), told("poet")]);
    let kept = house.snapshot("s");
    assert_eq!(kept["models"]["poet"], json!(["local/test", "local/other"]), "{kept}");
}

#[test]
fn an_agreement_that_was_taken_back_is_told() {
    for by in [By::Restart, By::Itself] {
        let house = House::with("approvals: {preauthorized: all, rules: [{tool: kv_set, then: ask}]}\n");
        let call = r#"kv_set {"key": "a", "value": "1"}"#;
        let turn = house.daemon.submit("s", call);
        let asked = until("it is asked", || {
            let list = house.daemon.client().ask("approvals.list", json!({})).expect("a list");
            let mut all = list.as_array().expect("a list").iter();
            Some(all.find(|one| one["state"] == "pending")?["id"].as_str()?.to_owned())
        });
        house.daemon.says(&["approvals", "allow", &asked.expect("it is asked"), "--session"]);
        assert_eq!(house.daemon.wait(&turn)["status"], "success");
        assert_eq!(house.snapshot("s")["agreements"], json!({"orchestrator": ["kv_set"]}));
        assert_eq!(house.told(), Vec::<String>::new(), "it holds");
        let grants = house.daemon.client().ask("approvals.grants", json!({})).expect("a list");
        house.daemon.says(&["approvals", "revoke", grants[0]["id"].as_str().expect("an id")]);
        if let By::Restart = by {
            house.restart();
        }
        assert_eq!(
            house.told(),
            ["`orchestrator` was allowed `kv_set` for the rest of this conversation, and is not any more"],
            "{by:?}"
        );
        assert_eq!(house.snapshot("s")["agreements"], Value::Null);
    }
}

/// A call of the tool for plans.
fn plan(one: &str, two: &str) -> String {
    let items = json!([{"step": "read the file", "status": one}, {"step": "write the other", "status": two}]);
    format!("update_plan {}", json!({"items": items}))
}

#[test]
fn a_plan_comes_back_until_its_steps_are_done() {
    let house = House::new();
    let asked = || house.server.requests().last().expect("it was asked").to_string();
    house.daemon.turn("s", &plan("done", "in_progress"));
    for by in [By::Itself, By::Restart] {
        if let By::Restart = by {
            house.restart();
        }
        house.daemon.turn("s", "more");
        let asked = asked();
        assert!(
            asked.contains("Your plan from an earlier turn of this conversation, 1 of 2 steps done"),
            "{asked}"
        );
        assert!(
            asked.contains("[done] read the file") && asked.contains("[in_progress] write the other"),
            "{asked}"
        );
    }
    house.daemon.turn("s", "@poet hello");
    assert!(!asked().contains("Your plan"), "the plan of another is none of an agent's");
    house.daemon.turn("new", "hello");
    assert!(!asked().contains("Your plan"), "nor is that of another conversation");
    let mut chat = house.daemon.command(&["chat", "--session", "s"]);
    let mut chat =
        chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    chat.stdin.take().expect("a pipe").write_all(b"/plan\n").expect("it reads");
    let output = chat.wait_with_output().expect("it ends");
    let shown = text(&output.stdout) + &text(&output.stderr);
    assert!(shown.contains("plan: 1 of 2 done") && shown.contains("✓ read the file"), "{shown}");
    house.daemon.turn("s", &plan("done", "done"));
    house.daemon.turn("s", "hello");
    assert!(!asked().contains("Your plan"), "one that is done is not told");
    assert_eq!(house.snapshot("s")["plans"]["orchestrator"]["items"][1]["status"], "done");
}

#[test]
fn a_plan_survives_the_kernel_that_was_at_work_on_it() {
    let server = ModelServer::start(|request| {
        let (role, text) = latest(request);
        match role == "tool" && text.contains("the plan is shown") {
            // Never within this test: the daemon is killed meanwhile.
            true if !request.to_string().contains("again") => {
                std::thread::sleep(std::time::Duration::from_secs(3));
                Say::Text("late".into())
            }
            _ => model(request),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    let turn = daemon.submit("s", &plan("pending", "pending"));
    until("its model is asked again", || (server.requests().len() > 1).then_some(())).expect("it is");
    daemon.kill_all();
    daemon.wait(&turn);
    daemon.turn("s", "again");
    let asked = server.requests().last().expect("it was asked").to_string();
    assert!(asked.contains("[pending] write the other"), "{asked}");
}

#[test]
fn the_same_makes_the_same_bytes() {
    let of_one = || {
        let house = House::new();
        house.daemon.turn("s", &plan("done", "pending"));
        house.daemon.turn("s", "hello");
        let (shown, home) = (house.snapshot("s").to_string(), house.daemon.path().display().to_string());
        let exported = house.daemon.json(&["session", "export", "s"]).to_string();
        assert!(exported.contains(&shown), "an export has the same: {exported}");
        shown.replace(&home, "HOME")
    };
    let one = of_one();
    assert_eq!(one, of_one());
    for part in ["agents", "tools", "models", "skills", "skill_folders", "plans"] {
        assert!(one.contains(&format!("\"{part}\":{{\"")), "{part}: {one}");
    }
}

#[test]
fn instructions_that_are_others_and_agents_and_skills_that_are_gone_are_told() {
    let house = House::new();
    house.daemon.write(
        "extensions/poet/manifest.yaml",
        &manifest("  uses_tools: [kv]\n").replace("You are the poet.", "You are another poet."),
    );
    house.daemon.says(&["restart"]);
    house.daemon.until_ready();
    let found = changes(&house.daemon.turn("s", "hello"));
    assert_eq!(found, ["`poet` is not what it was in this conversation: its instructions are others"]);
    house.daemon.write("skills/pdf/SKILL.md", &SKILL.replace("care", "great care"));
    let found = changes(&house.daemon.turn("s", "hello"));
    assert_eq!(found, ["the skill `pdf` is not what it was when this conversation loaded it"]);
    let shown = || house.snapshot("s");
    let kept = shown();
    assert!(kept["agents"]["orchestrator"].as_str().is_some_and(|hash| hash.len() == 64), "{kept}");
    assert!(kept["skills"]["pdf"].as_str().is_some_and(|hash| hash.len() == 64), "{kept}");
    let listed = house.daemon.json(&["skill", "list", "--json"]);
    assert_eq!(listed[0]["hash"].as_str().map(str::len), Some(64), "{listed}");
    house.daemon.turn("s", "hello");
    assert_eq!(shown().to_string(), kept.to_string(), "the same makes the same bytes");
    std::fs::remove_dir_all(house.daemon.path().join("skills/pdf")).expect("it goes");
    std::fs::remove_dir_all(house.daemon.path().join("extensions/poet")).expect("it goes");
    house.daemon.says(&["restart"]);
    house.daemon.until_ready();
    let found = changes(&house.daemon.turn("s", "hello"));
    assert!(
        found.contains(&"the agent `poet`, which worked in this conversation, is not there any more".into()),
        "{found:?}"
    );
    assert!(
        found.contains(&"the skill `pdf`, which this conversation has used, is not there any more".into()),
        "{found:?}"
    );
    assert!(
        found.iter().any(|one| one.contains("the tools `agent_poet`, `load_skill` are gone")),
        "{found:?}"
    );
    let events = house.daemon.events("s");
    let told = events.iter().filter(|event| event["data"]["code"] == "changed").count();
    assert_eq!(told, 2 + found.len(), "each stands in the session's events");
}

#[test]
fn a_run_that_goes_on_tells_what_of_its_agent_changed_meanwhile() {
    let server = ModelServer::start(|request| {
        let (_, text) = latest(request);
        match text.contains("slow") {
            // Never within this test: the daemon is killed meanwhile.
            true if text.contains("wait") => {
                std::thread::sleep(std::time::Duration::from_secs(3));
                Say::Text("late".into())
            }
            _ => Say::Text("said".into()),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.write("extensions/poet/manifest.yaml", &manifest(""));
    daemon.run();
    let turn = daemon.submit("s", "@poet slow wait");
    until("its model is asked", || (!server.requests().is_empty()).then_some(())).expect("it is");
    daemon.write("extensions/poet/manifest.yaml", &manifest("  limits: {max_turns: 4}\n"));
    daemon.kill_all();
    let ended = daemon.wait(&turn);
    let found = changes(&ended);
    assert_eq!(
        found,
        ["`poet` is not what it was when the restart interrupted it: its limits changed"],
        "{ended}"
    );
    assert_eq!(ended["status"], "success", "{ended}");
}
