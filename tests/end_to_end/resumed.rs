//! Sessions that go on after something of what they have made use of has changed: what is told of each change.

mod later_calls;

use serde_json::Value;

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
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
    _server: ModelServer,
}

impl House {
    fn new() -> Self {
        let server = ModelServer::start(model);
        let mut daemon = Daemon::home(&server.config());
        daemon.write("extensions/poet/manifest.yaml", &manifest("  uses_tools: [kv]\n"));
        daemon.write("skills/pdf/SKILL.md", SKILL);
        daemon.run();
        let house = Self { daemon, _server: server };
        for text in [r#"agent_poet {"task": "rust"}"#, r#"load_skill {"name": "pdf"}"#] {
            assert_eq!(changes(&house.daemon.turn("s", text)), Vec::<String>::new(), "{text}");
        }
        assert_eq!(changes(&house.daemon.turn("s", "hello")), Vec::<String>::new(), "nothing has changed");
        house
    }

    /// Changes the poet, and waits until it is so.
    fn poet(&self, more: &str) {
        self.daemon.write("extensions/poet/manifest.yaml", &manifest(more));
        self.daemon.says(&["restart"]);
        self.daemon.until_ready();
    }
}

#[test]
fn each_kind_of_change_is_told_once_by_name() {
    for (more, told) in [
        (
            "  uses_tools: []\n",
            "`poet` is not what it was in this conversation: the tool `kv_delete` is gone; the tool `kv_get` is gone;",
        ),
        ("  uses_tools: [kv]\n  limits: {max_turns: 3}\n", "in this conversation: its limits changed"),
        ("  uses_tools: [kv]\n  parameters: {temperature: 0.5}\n", "the parameters of its model changed"),
        ("  uses_tools: [kv]\n  output: {format: markdown}\n", "the form of its answer changed"),
        ("  uses_tools: [kv]\n  context: more\n", "the texts that it begins with changed"),
    ] {
        let house = House::new();
        house.poet(more);
        let turn = house.daemon.turn("s", "hello");
        let found = changes(&turn);
        assert_eq!(found.len(), 1, "{more}: {turn}");
        assert!(found[0].contains(told), "{more}: {found:?}");
        assert_eq!(turn["content"], "hello", "it goes on with what is there");
        assert_eq!(
            changes(&house.daemon.turn("s", "hello")),
            Vec::<String>::new(),
            "{more}: it is told once"
        );
        assert_eq!(changes(&house.daemon.turn("new", "hello")), Vec::<String>::new(), "{more}");
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
    let shown = || house.daemon.json(&["session", "show", "s", "--json"])["snapshot"].clone();
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
    assert!(found.iter().any(|one| one.contains("the tool `agent_poet` is gone")), "{found:?}");
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
