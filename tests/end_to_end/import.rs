//! `drupe import` and `drupe ext new agent --file`: what other assistants have comes over as it was planned, and nothing else.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::harness::{Daemon, model_server::ModelServer, text};

/// A folder of a project, of which each assistant has a part.
struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("drupe-project").tempdir().expect("a folder"))
    }

    fn with(self, file: &str, content: &str) -> Self {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
        self
    }

    fn path(&self) -> &str {
        self.0.path().to_str().expect("text")
    }
}

fn agent(keys: &str) -> String {
    format!("---\n{keys}---\n\nYou do what you are told.\n")
}

fn skill(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Works on {name}.\n---\n\nRead it.\n")
}

/// A project in which every assistant has an agent, a skill where it has those, and a server.
fn everything() -> Project {
    Project::new()
        .with(
            ".claude/agents/Mender.md",
            &agent("name: code-mender\ndescription: Mends code.\ntools: Read, Edit, Bash\nmodel: sonnet\nmaxTurns: 9\n"),
        )
        .with(".claude/skills/pdf/SKILL.md", &skill("pdf"))
        .with(".claude/skills/pdf/scripts/open.sh", "echo open")
        .with(".mcp.json", r#"{"mcpServers": {"time": {"command": "mcp-time", "args": ["--utc"]}}}"#)
        .with(
            ".codex/agents/explorer.toml",
            "name = \"pr_explorer\"\ndescription = \"Explores.\"\nsandbox_mode = \"read-only\"\n\
             developer_instructions = \"\"\"\nStay here.\n\"\"\"\n",
        )
        .with(".codex/config.toml", "[mcp_servers.docs]\nurl = \"https://docs.example.org/mcp\"\nenabled_tools = [\"find\"]\n")
        .with(
            ".github/agents/notes.agent.md",
            &agent("description: Writes notes.\ntools: [read, agent]\nagents: [code-mender, Gone]\n"),
        )
        .with(".github/skills/notes/SKILL.md", &skill("notes"))
        .with(
            ".vscode/mcp.json",
            "{\n  // one\n  \"servers\": {\"play\": {\"type\": \"stdio\", \"command\": \"play\", \"env\": {\"KEY\": \"sk-hidden-0123456789\"}},},\n}",
        )
        .with(".opencode/agents/guide.md", &agent("description: Guides.\nmode: primary\ntools: {read: true, write: false}\n"))
        .with(
            "opencode.json",
            r#"{"mcp": {"time": {"type": "local", "command": ["mcp-time", "--utc"]}},
               "agent": {"docs-writer": {"description": "Writes.", "prompt": "{file:./prompts/docs.txt}",
                         "permission": {"read": "allow", "edit": "ask"}}},
               "agents": {"second": {"description": "Reads.", "system": "You read.", "disabled": false,
                          "permissions": [{"action": "*", "resource": "*", "effect": "deny"},
                                          {"action": "read", "resource": "*", "effect": "allow"}]}}}"#,
        )
        .with("prompts/docs.txt", "You write documents.\n")
        .with(".gemini/agents/auditor.md", &agent("name: auditor\ndescription: Audits.\ntools: [read_file]\ntimeout_mins: 2\n"))
        .with(".gemini/settings.json", r#"{"mcpServers": {"web": {"httpUrl": "https://web.example/mcp", "trust": true}}}"#)
        .with(".agents/skills/csv/SKILL.md", &skill("csv"))
}

/// Every file of a home with what it holds.
fn files(home: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![home.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push((path.clone(), fs::read(path).expect("a file"))),
            }
        }
    }
    found.sort();
    found
}

fn plan(daemon: &Daemon, source: &str, apply: bool) -> (Value, Option<i32>) {
    let more: &[&str] = if apply { &["--apply"] } else { &[] };
    let output = daemon.drupe(&[&["import", source, "--json"], more].concat());
    let report = serde_json::from_slice(&output.stdout);
    (report.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr))), output.status.code())
}

fn items(report: &Value) -> &Vec<Value> {
    report["items"].as_array().expect("a list")
}

fn item<'a>(report: &'a Value, from: &str) -> &'a Value {
    items(report)
        .iter()
        .find(|item| item["from"] == from)
        .unwrap_or_else(|| panic!("no `{from}`: {report:#}"))
}

#[test]
fn what_every_assistant_has_is_planned_then_made_and_answers() {
    let server = ModelServer::obedient();
    let config = format!("# mine\n{}extensions:\n  # kept\n  kv: {{enabled: true}}\n", server.config());
    let mut daemon = Daemon::home(&config);
    daemon.write("workspace/a.txt", "a text");
    let project = everything();
    let before = files(daemon.path());
    let (planned, status) = plan(&daemon, project.path(), false);
    assert_eq!((files(daemon.path()), status), (before, Some(0)), "a plan writes nothing");
    for (from, id, system) in [
        (".claude/agents/Mender.md", "code-mender", "claude-code"),
        (".codex/agents/explorer.toml", "pr_explorer", "codex"),
        (".github/agents/notes.agent.md", "notes", "copilot"),
        (".opencode/agents/guide.md", "guide", "opencode"),
        ("opencode.json#agent.docs-writer", "docs-writer", "opencode"),
        ("opencode.json#agents.second", "second", "opencode"),
        (".gemini/agents/auditor.md", "auditor", "gemini"),
        (".claude/skills/pdf", "pdf", "claude-code"),
        (".github/skills/notes", "notes", "copilot"),
        (".agents/skills/csv", "csv", "agents"),
        (".mcp.json#time", "time", "claude-code"),
        (".codex/config.toml#docs", "docs", "codex"),
        (".gemini/settings.json#web", "web", "gemini"),
    ] {
        let item = item(&planned, from);
        assert_eq!(
            (&item["id"], &item["system"], &item["state"]),
            (&id.into(), &system.into(), &"new".into()),
            "{item:#}"
        );
    }
    assert_eq!(item(&planned, "opencode.json#time")["state"], "there", "two have the same server");
    let play = item(&planned, ".vscode/mcp.json#play");
    assert!(play["why"].as_str().is_some_and(|why| why.contains("drupe secret set KEY")), "{play:#}");
    for (from, key, why) in [
        (".claude/agents/Mender.md", "model", "`sonnet`"),
        (".claude/agents/Mender.md", "tools", "`shell/shell_run`"),
        (".github/agents/notes.agent.md", "uses_agents", "`gone`"),
        (".gemini/settings.json#web", "mcp_servers", "`trust`"),
    ] {
        let left = item(&planned, from)["left_out"].as_array().expect("a list").iter();
        let named = left
            .clone()
            .any(|one| one["key"] == key && one["why"].as_str().is_some_and(|given| given.contains(why)));
        assert!(named, "{from} {key}: {:#}", item(&planned, from));
    }
    let said = daemon.says(&["import", project.path()]);
    assert!(said.contains("→") && said.contains("left out `model`"), "{said}");

    let (made, status) = plan(&daemon, project.path(), true);
    assert_eq!(status, Some(1), "one server cannot come over");
    for item in items(&made) {
        let expected = match item["from"].as_str() {
            Some("opencode.json#time") => "there",
            Some(".vscode/mcp.json#play") => "refused",
            _ => "made",
        };
        assert_eq!(item["state"], expected, "{item:#}");
    }
    assert!(
        !files(daemon.path()).iter().any(|(_, held)| text(held).contains("sk-hidden")),
        "no secret is copied"
    );
    let written = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("a file");
    assert!(
        written.contains("# mine")
            && written.contains("# kept")
            && written.matches("enabled: false").count() == 3,
        "{written}"
    );
    let private =
        |file: &str| fs::metadata(daemon.path().join(file)).expect("a file").permissions().mode() & 0o777;
    assert_eq!(private("extensions/guide.md"), 0o600);

    daemon.run();
    // It may call another agent, which is more than the usual.
    daemon.until_extension("notes", "awaiting_approval");
    daemon.until_extension("pr_explorer", "active");
    let turn = daemon.turn("s", "@pr_explorer files_read {\"path\": \"a.txt\"}");
    assert!(turn["content"].as_str().is_some_and(|answer| answer.contains("a text")), "{turn}");
    assert_eq!(daemon.extension("mcp").0, "disabled", "no server starts by itself");
    let skills = daemon.json(&["skill", "list", "--json"]);
    let skills: Vec<&str> =
        skills.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(skills, ["csv", "notes", "pdf"]);

    let before = files(&daemon.path().join("extensions"));
    let (again, _) = plan(&daemon, project.path(), true);
    assert!(items(&again).iter().all(|item| item["state"] == "there" || item["id"] == "play"), "{again:#}");
    assert_eq!(files(&daemon.path().join("extensions")), before);
    // The secret has a value now.
    daemon.write(".env", "KEY=value\n");
    fs::set_permissions(daemon.path().join(".env"), PermissionsExt::from_mode(0o600)).expect("it is ours");
    let (last, status) = plan(&daemon, project.path(), true);
    assert_eq!((&item(&last, ".vscode/mcp.json#play")["state"], status), (&"made".into(), Some(0)));
    let said = daemon.drupe(&["import", project.path()]);
    assert!(text(&said.stderr).contains("everything is there already"), "{}", text(&said.stderr));
    let written = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("a file");
    assert!(written.contains("\"KEY\": \"${KEY}\"") && !written.contains("sk-hidden"), "{written}");
    daemon.says(&["config", "show"]);
}

#[test]
fn what_is_hostile_is_named_and_nothing_of_it_comes_over() {
    let mut daemon = Daemon::home("");
    daemon.write("apart/x", "");
    fs::remove_file(daemon.path().join("apart/x")).expect("it was written");
    let apart = daemon.path().join("apart").display().to_string();
    daemon.variable("TMPDIR", &apart);
    let bomb = (0..9).fold("k0: &k0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
        text + &format!("k{}: &k{} [{}]\n", n + 1, n + 1, vec![format!("*k{n}"); 9].join(", "))
    });
    let project = Project::new()
        .with(".claude/agents/bomb.md", &agent(&format!("description: d\n{bomb}")))
        .with(".claude/agents/up.md", &agent("name: ../../up\ndescription: Leads up.\nid: ../up\n"))
        .with(".claude/agents/One.md", &agent("name: One\ndescription: d\n"))
        .with(".claude/agents/one.md", &agent("name: one\ndescription: another\n"))
        .with(
            ".claude/agents/kv.md",
            &agent("name: kv\ndescription: Takes a shipped one's place.\noverrides: true\n"),
        )
        .with(".claude/agents/none.md", "no keys at all")
        .with(
            ".claude/agents/needy.md",
            &agent("name: needy\ndescription: d\nmcpServers: [{gh: {command: gh, env: {GH_TOKEN: ghp_0123456789abcdef}}}]\n"),
        )
        .with(".claude/agents/dots.md", &agent("name: '..'\ndescription: d\n"))
        .with(".claude/agents/signs.md", &agent("name: signs\ndescription: \"\\e[2J\\u202Ehidden\"\n"))
        .with(".claude/skills/Up/SKILL.md", &skill("Up"))
        .with(".claude/skills/linked/SKILL.md", &skill("linked"))
        .with(".claude/skills/other/SKILL.md", &skill("another"))
        .with(".mcp.json", "{\"mcpServers\": {\"a\": 7, \"b\": {}}}")
        .with(".gemini/settings.json", "{")
        .with(".codex/config.toml", "[mcp_servers")
        .with(
            "opencode.json",
            r#"{"agent": {"out": {"description": "d", "prompt": "{file:../../etc/passwd}"}}}"#,
        );
    let at = |file: &str| project.0.path().join(file);
    symlink("/etc/passwd", at(".claude/agents/passwd.md")).expect("a link");
    symlink("/etc/passwd", at(".claude/skills/linked/passwd")).expect("a link");
    symlink("/etc", at(".agents")).expect("a link");
    fs::write(at(".claude/agents/bytes.md"), b"---\n\xff\xfe\n---\n").expect("a file");
    fs::File::create(at(".claude/agents/large.md")).and_then(|file| file.set_len(100 << 20)).expect("a file");
    rustix::fs::mkfifoat(rustix::fs::CWD, at(".claude/agents/pipe.md"), rustix::fs::Mode::from(0o600))
        .expect("a pipe");
    let (made, status) = plan(&daemon, project.path(), true);
    assert_eq!(status, Some(1));
    for (from, why) in [
        (".claude/agents/bomb.md", "anchors and aliases"),
        (".claude/agents/kv.md", "there is an extension `kv` already"),
        (".claude/agents/one.md", "another agent of this plan is `one` already"),
        (".claude/agents/none.md", "the first line is not `---`"),
        (".claude/agents/passwd.md", "symbolic link"),
        (".claude/agents/bytes.md", "not valid UTF-8"),
        (".claude/agents/large.md", "larger than 1024 KiB"),
        (".claude/agents/pipe.md", "pipe"),
        (".claude/skills/Up", "lower-case letters"),
        (".claude/skills/linked", "symbolic link"),
        (".claude/skills/other", "its folder is not"),
        (".mcp.json", "`a` is no server"),
        (".gemini/settings.json", "it is no JSON"),
        (".codex/config.toml", "it is no TOML"),
        (".agents/skills", "symbolic link"),
        (".claude/agents/needy.md", "drupe secret set GH_TOKEN"),
        ("opencode.json#agent.out", "not beneath the settings"),
    ] {
        let item = item(&made, from);
        let said = item["why"].as_str().unwrap_or_default();
        assert!(item["state"] == "refused" && said.contains(why), "{from}: {item:#}");
    }
    let ids: Vec<&Value> =
        items(&made).iter().filter(|item| item["state"] == "made").map(|item| &item["id"]).collect();
    assert_eq!(ids, ["one", "dots", "signs", "up"]);
    let mut names: Vec<String> = fs::read_dir(daemon.path().join("extensions"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["dots.md", "one.md", "signs.md", "up.md"]);
    assert!(!daemon.path().join("skills").exists() && !daemon.path().join("drupe.yaml").exists());
    let shown = text(&daemon.drupe(&["import", project.path()]).stdout);
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    let apart = fs::read_dir(daemon.path().join("apart")).expect("a folder");
    assert_eq!(apart.count(), 0, "where agents are looked at nothing is left");
}

#[test]
fn a_folder_without_anything_or_that_cannot_be_read_is_an_error_that_says_what_was_looked_for() {
    let mut daemon = Daemon::home("");
    let project = Project::new().with("README.md", "nothing");
    let refused = |daemon: &Daemon, source: &str, words: &str| {
        let output = daemon.drupe(&["import", source]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(66), "{said}");
        assert!(said.contains(words), "{words}: {said}");
    };
    refused(&daemon, project.path(), ".claude/agents, .claude/skills");
    refused(&daemon, &format!("{}/gone", project.path()), "cannot be read");
    refused(&daemon, &format!("{}/README.md", project.path()), "cannot be read as a folder");
    refused(&daemon, "codex", ".codex/agents");
    let closed = Project::new().with(".claude/agents/x.md", "");
    let folder = closed.0.path().join(".claude/agents");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o000)).expect("it is ours");
    if fs::read_dir(&folder).is_err() {
        let (planned, _) = plan(&daemon, closed.path(), false);
        assert!(
            item(&planned, ".claude/agents")["why"]
                .as_str()
                .is_some_and(|why| why.contains("cannot be read"))
        );
    }
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("it is ours");
    // What one assistant has for a user, by its name; its own folder alone, by its path.
    let user = everything();
    daemon.variable("HOME", user.path());
    let (codex, _) = plan(&daemon, "codex", false);
    let found: Vec<&Value> = items(&codex).iter().map(|item| &item["from"]).collect();
    assert_eq!(found, [".codex/agents/explorer.toml", ".codex/config.toml#docs", ".agents/skills/csv"]);
    let (gemini, _) = plan(&daemon, &format!("{}/.gemini", user.path()), false);
    assert_eq!(items(&gemini).len(), 2, "{gemini:#}");
}

#[test]
fn an_agent_is_made_from_one_file_and_says_what_it_lacks() {
    let mut daemon = Daemon::start("");
    let project = everything();
    let file = |name: &str| format!("{}/{name}", project.path());
    let new = |daemon: &Daemon, more: &[&str]| daemon.drupe(&[&["ext", "new", "agent"], more].concat());
    let made = new(&daemon, &["--file", &file(".claude/agents/Mender.md")]);
    let said = text(&made.stderr);
    assert!(
        made.status.success() && text(&made.stdout).trim().ends_with("extensions/code-mender.md"),
        "{said}"
    );
    for part in ["left out `model`", "left out `tools`", "`Bash` is `shell/shell_run`", "@code-mender"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    daemon.until_extension("code-mender", "active");
    assert_eq!(daemon.turn("s", "@code-mender hello")["status"], "success");
    let again = new(&daemon, &["--file", &file(".claude/agents/Mender.md")]);
    assert!(
        !again.status.success()
            && text(&again.stderr).contains("there is an extension `code-mender` already")
    );
    let toml = new(&daemon, &["--file", &file(".codex/agents/explorer.toml"), "--id", "explorer", "--json"]);
    let report: Value = serde_json::from_slice(&toml.stdout).expect("JSON");
    assert_eq!(report["id"], "explorer");
    let kept = fs::read_to_string(daemon.path().join("extensions/explorer.md")).expect("a file");
    assert!(kept.contains("uses_tools: [files/files_read") && kept.ends_with("---\nStay here.\n"), "{kept}");
    daemon.write("bad.md", &agent("description: d\ntools: 3\n"));
    daemon.write("far.md", &agent("kind: remote\nname: far\n"));
    daemon.write("like.md", &agent("name: code-reviewer\ndescription: Looks like one that ships.\n"));
    for (given, words) in [
        (&["--file", "bad.md"][..], "expected names"),
        (&["--file", "far.md"], "runs elsewhere"),
        (&["--file", "like.md"], "looks like `agent_code_reviewer`"),
        (&["--file", "gone.md"], "does not exist"),
        (&["--file", "like.md", "--id", "kv"], "there is an extension `kv` already"),
        (&["--file", "like.md", "--id", "../x"], "invalid value"),
        (&["x", "--file", "like.md", "--id", "y"], "cannot be used with"),
        (&[], "required"),
    ] {
        let output = new(&daemon, given);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{given:?}: {said}");
    }
    daemon.until_status("nothing else was made", |status| {
        status["extensions"].as_array().is_some_and(|all| !all.iter().any(|one| one["id"] == "like"))
    });
    daemon.kill_all();
    daemon.until_extension("explorer", "active");
}
