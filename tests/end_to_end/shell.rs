//! Commands of the extension `shell`, run for real: what the system keeps them from, what a person is asked, and what is left of
//! them.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use drupe_link::Home;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::harness::{
    Daemon, copied::copy_program, model_server::ModelServer, unique, until,
    without_landlock::without_landlock,
};

/// A daemon with the shell turned on, whose model calls the tool that a message names.
struct Scene {
    daemon: Daemon,
    _server: ModelServer,
}

fn scene(settings: &str) -> Scene {
    scene_with(settings, "", |_| {})
}

fn scene_with(settings: &str, more: &str, prepare: impl FnOnce(&Daemon)) -> Scene {
    let server = ModelServer::obedient();
    let shell = format!("extensions: {{shell: {{enabled: true{settings}}}}}\n");
    let daemon = Daemon::home(&(server.config() + &shell + more));
    fs::create_dir_all(daemon.path().join("workspace/.git/hooks")).expect("a folder");
    daemon.write("workspace/.git/config", "its own");
    let mut scene = Scene { daemon, _server: server };
    prepare(&scene.daemon);
    scene.daemon.write(".env", "A_KEY=canary\n");
    let private = PermissionsExt::from_mode(0o600);
    fs::set_permissions(scene.daemon.path().join(".env"), private).expect("it was written");
    scene.daemon.run();
    scene
}

impl Scene {
    fn home(&self, within: &str) -> String {
        self.daemon.path().join(within).display().to_string()
    }

    fn asks(&self, session: &str, tool: &str, params: &Value) -> String {
        self.daemon.submit(session, &format!("{tool} {params}"))
    }

    /// Waits until a call of this session waits for a person.
    fn question(&self, session: &str) -> Value {
        let found = until("a question waits", || {
            let list = self.daemon.client().ask("approvals.list", json!({})).expect("a list");
            let mut all = list.as_array().expect("a list").iter();
            all.find(|one| one["state"] == "pending" && one["call"]["session"] == session).cloned()
        });
        found.unwrap_or_else(|| panic!("{}", self.daemon.log()))
    }

    fn answers(&self, question: &Value, allow: bool) {
        let answer = json!({"id": question["id"], "allow": allow});
        self.daemon.client().ask("approvals.answer", answer).expect("it is answered");
    }

    /// What a command gives that the operator allows.
    fn gives(&self, params: &Value) -> String {
        self.gives_to("", params)
    }

    /// The same of an agent's command, which is addressed as `@agent `.
    fn gives_to(&self, agent: &str, params: &Value) -> String {
        let session = unique();
        let turn = self.asks(&session, &format!("{agent}shell_run"), params);
        self.answers(&self.question(&session), true);
        self.daemon.wait(&turn)["content"].as_str().expect("text").to_owned()
    }

    /// Runs a command that must be told this.
    fn told(&self, command: &str, parts: &[&str]) -> String {
        let given = self.gives(&json!({"command": command, "timeout_s": 20}));
        let shown = command.replace(&self.home(""), "HOME/");
        println!("| `{shown}` | {} |", shown_of(&given.replace(&self.home(""), "HOME/")));
        for part in parts {
            assert!(given.contains(part), "{command}: {given}");
        }
        given
    }
}

/// The beginning of a text, on one line.
fn shown_of(text: &str) -> String {
    text.replace('\n', " ").chars().take(300).collect()
}

/// Whether a process with this argument runs.
fn runs(marker: &str) -> bool {
    let all = fs::read_dir("/proc").expect("a folder").flatten();
    all.filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes()))
}

/// An argument of `sleep` that no other test has.
fn marker() -> String {
    format!("{}.{}", 3000, u32::from_str_radix(&unique()[..7], 16).expect("digits"))
}

const PTRACE: u32 = if cfg!(target_arch = "aarch64") { 117 } else { 101 };

#[test]
fn on_failure_runs_commands_unasked_and_asks_about_the_network() {
    let scene = scene_with(", network: ask", "approvals: {mode: on-failure}\n", |_| {});
    let session = unique();
    let gives = |params: Value| {
        let turn = scene.asks(&session, "shell_run", &params);
        scene.daemon.wait(&turn)["content"].as_str().expect("text").to_owned()
    };
    let made = gives(json!({"command": "echo two > made; cat made"}));
    assert!(made.contains("status 0") && made.ends_with("two\n"), "{made}");
    // The conversation holds the output of a command by now, which strangers may have written.
    let denied = gives(json!({"command": "echo x > .git/config; bash -c 'echo > /dev/tcp/127.0.0.1/9'"}));
    assert!(denied.contains("It had no network; where it needs one, ask for `network`."), "{denied}");
    assert_eq!(fs::read_to_string(scene.home("workspace/.git/config")).expect("it is there"), "its own");
    let asked = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
    assert_eq!(asked, json!([]), "nobody was asked");
    let turn = scene.asks(&session, "shell_run", &json!({"command": "echo > net", "network": true}));
    let question = scene.question(&session);
    assert_eq!(question["call"]["tool"], "shell_run", "{question}");
    scene.answers(&question, false);
    scene.daemon.wait(&turn);
    assert!(!scene.daemon.path().join("workspace/net").exists());
}

#[test]
fn what_a_command_must_not_do_is_denied_by_the_system() {
    let scene = scene(", max_output_mb: 8, tasks: 64");
    let kernel = scene.daemon.until_ready()["kernel_pid"].to_string();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let socket = Home::new(scene.daemon.path()).expect("a home").socket().display().to_string();
    println!("| command | what it was told |\n|---|---|");
    // First that it does what it is for.
    scene.told("echo one >&2; echo two > made; cat made; pwd", &["status 0", "one\ntwo\n", "/workspace"]);
    let secrets = ["drupe.yaml", ".env", "run/token", "journal.db", "state/supervisor.log", "extensions"];
    for within in secrets {
        let given = scene.told(&format!("cat {0} || ls {0}", scene.home(within)), &["Permission denied"]);
        assert!(!given.contains("canary"), "{given}");
    }
    let denied = "Permission denied";
    let outside = std::env::temp_dir().join(unique());
    scene.told(&format!("echo x > {}", outside.display()), &["cannot create"]);
    scene.told(&format!("echo x > {}", scene.home("extensions/new")), &["cannot create"]);
    scene.told(&format!("mv {} .", scene.home("drupe.yaml")), &["mv: cannot"]);
    scene.told(&format!("ln {} stolen; cat stolen", scene.home("run/token")), &["failed to create"]);
    scene.told(&format!("bash -c 'echo > /dev/tcp/127.0.0.1/{port}'"), &[denied]);
    scene.told(
        &format!("perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) or die $!; connect(S, sockaddr_un(\"{socket}\"))'"),
        &[denied],
    );
    for file in ["mem", "environ", "fd", "root"] {
        scene.told(&format!("cat /proc/{kernel}/{file} || ls /proc/{kernel}/{file}/"), &[denied]);
    }
    scene.told(&format!("kill -9 {kernel}"), &["not permitted"]);
    scene.told(
        &format!("perl -e 'syscall({PTRACE}, 16, {kernel}, 0, 0) == -1 and die $!'"),
        &["not permitted"],
    );
    scene.told("env", &["HOME=", "TMPDIR="]);
    assert!(!scene.told("env; set", &[]).contains("canary"));
    // Links, also in the place of a folder that is named.
    symlink(scene.home("run"), scene.home("workspace/link")).expect("a link");
    scene.told("cat link/token", &[denied]);
    let within = scene.gives(&json!({"command": "cat token", "cwd": "link"}));
    assert!(within.contains("is not beneath the data folder"), "{within}");
    // A file that would give the rights of another user.
    let setuid = scene.home("workspace/setuid");
    copy_program("/usr/bin/id", &setuid);
    if chown(&setuid, Some(65534), None).is_ok() {
        fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755)).expect("it is ours");
        let own = rustix::process::geteuid().as_raw().to_string();
        scene.told("./setuid -u", &[&format!("\n\n{own}\n")]);
    }
    // What uses up what the daemon needs. This one ends by itself, should nothing else end it.
    let bomb = "bomb() { [ $1 = 0 ] || { bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; }; sleep 20; }; bomb 7";
    scene.told(bomb, &["was stopped: its processes had more than 64 processes and threads"]);
    let told = scene.told("yes | head -c 10000000000", &["was stopped because it wrote more than 8 MiB"]);
    assert!(told.len() < 12 * 1024 && told.contains("bytes are left out here"), "{}", told.len());
    // Who does not hear and who hides.
    let marker = marker();
    let deaf = format!(
        "trap '' TERM INT HUP; (setsid sh -c \"trap '' TERM; sleep {marker} & sleep {marker}\" &) ; sleep {marker}"
    );
    let given = scene.gives(&json!({"command": deaf, "timeout_s": 1}));
    assert!(given.contains("was stopped because its 1 s were over"), "{given}");
    assert!(until("nothing is left", || (!runs(&marker)).then_some(())).is_some(), "{marker} runs");
    // The folder of git, where this system lets users have mounts.
    let kept = !scene.daemon.log().contains("commands can change `.git`");
    let expected = if kept { "Read-only file system" } else { "status 0" };
    // Nor are modes and times of what lies outside changed by these mounts, which no other mechanism binds to a folder.
    scene.told(&format!("chmod 644 {}", scene.home(".env")), &[expected]);
    scene.told(&format!("touch -d 2001-01-01 {}", scene.home("journal.db")), &[expected]);
    scene.told("echo true > script; chmod +x script; ./script", &["status 0"]);
    scene.told("echo x >> .git/hooks/pre-commit", &[expected]);
    scene.told("cd .git && echo x >> config", &[expected]);
    let within = scene.gives(&json!({"command": "echo x >> config", "cwd": ".git"}));
    assert!(within.contains(expected), "{within}");
    assert_eq!(
        fs::read_to_string(scene.home("workspace/.git/config")).expect("it is left") == "its own",
        kept
    );
    // All this time it was one kernel.
    assert_eq!(scene.daemon.until_ready()["kernel_pid"].to_string(), kernel);
    assert!(!outside.exists());
}

fn skill(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Works on {name}.\n---\n\nRun `scripts/fill.sh`.\n")
}

/// A skill with a script that reads what lies beside it.
fn write_skill(daemon: &Daemon, folder: &str, name: &str) {
    daemon.write(&format!("{folder}/{name}/SKILL.md"), &skill(name));
    daemon.write(&format!("{folder}/{name}/assets/form.txt"), &format!("the form of {name}\n"));
    let script = format!("{folder}/{name}/scripts/fill.sh");
    daemon.write(&script, "#!/bin/sh\ncat \"$(dirname \"$0\")/../assets/form.txt\" && pwd\n");
    let executable = PermissionsExt::from_mode(0o755);
    fs::set_permissions(daemon.path().join(script), executable).expect("it was written");
}

#[test]
fn scripts_of_skills_run_where_they_lie_and_nothing_else_of_the_home_is_reached() {
    let scene = scene_with("", "skills: {directories: [more], disabled: [off]}\n", |daemon| {
        for (folder, name) in [("skills", "pdf-forms"), ("skills", "off"), ("more", "csv")] {
            write_skill(daemon, folder, name);
        }
        daemon.write("skills/notes.txt", "canary");
        for (link, target) in
            [("token", "run/token"), ("journal", "journal.db"), ("up", ""), ("deep", "state")]
        {
            let link = daemon.path().join("skills/pdf-forms").join(link);
            symlink(daemon.path().join(target), link).expect("a link");
        }
    });
    for (name, within) in [("pdf-forms", "skills/pdf-forms"), ("csv", "more/csv")] {
        // The path that a model is told.
        let loaded = scene.daemon.turn(&unique(), &format!("load_skill {}", json!({"name": name})));
        let loaded = loaded["content"].as_str().expect("text");
        let (_, rest) = loaded.split_once(&format!("The skill `{name}` in ")).expect(loaded);
        let (folder, _) = rest.split_once(":\n").expect(loaded);
        assert_eq!(folder, scene.home(within));
        assert!(loaded.contains("scripts/fill.sh"), "{loaded}");
        let form = format!("the form of {name}\n");
        scene.told(&format!("{folder}/scripts/fill.sh"), &["status 0", &form, "/workspace"]);
        scene.told(&format!("cd {folder} && sh scripts/fill.sh"), &["status 0", &form]);
        for change in [
            "echo x >> scripts/fill.sh",
            "echo x > new",
            "mv scripts gone",
            "rm assets/form.txt",
            "ln assets/form.txt new",
        ] {
            let given = scene.told(&format!("cd {folder} && {change}"), &[]);
            assert!(!given.contains("status 0"), "{change}: {given}");
        }
        scene.told(&format!("{folder}/scripts/fill.sh"), &["status 0", &form]);
    }
    let denied = "Permission denied";
    let folder = scene.home("skills/pdf-forms");
    let links =
        ["token", "journal", "up/drupe.yaml", "up/.env", "up/extensions", "deep/supervisor.log", "deep"];
    let near =
        ["../notes.txt", "..", "../off/SKILL.md", "../../drupe.yaml", "../../run/token", "../../extensions"];
    for path in links.iter().chain(&near) {
        let given = scene.told(&format!("cd {folder} && (cat {path} || ls {path}/)"), &[denied]);
        assert!(!given.contains("canary") && !given.contains("status 0"), "{path}: {given}");
    }
}

#[test]
fn the_scripts_of_an_agents_own_skills_run_for_that_agent_as_they_were_agreed_to_or_not_at_all() {
    // What changes is not taken in: it is what a command meets that comes before.
    let scene = scene_with("", "reload: {declarative: false}\n", |daemon| {
        write_skill(daemon, "extensions/clerk/skills", "csv");
        let manifest = "id: clerk\nname: clerk\ndescription: Works.\nskills: [skills/csv]\n\
                        agent: {model: default, instructions: You work., uses_tools: [shell]}\n";
        daemon.write("extensions/clerk/manifest.yaml", manifest);
        write_skill(daemon, "skills", "pdf-forms");
    });
    let list = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
    let asked = list.as_array().expect("a list").iter().find(|one| one["extension"] == "clerk");
    let answer = json!({"id": asked.expect("it brings a shell")["id"], "allow": true});
    scene.daemon.client().ask("approvals.answer", answer).expect("it is agreed to");
    scene.daemon.until_extension("clerk", "active");
    let folder = scene.home("extensions/clerk/skills/csv");
    let run = json!({"command": format!("{folder}/scripts/fill.sh"), "timeout_s": 20});
    assert!(scene.gives(&run).contains("Permission denied"), "it is the agent's alone");
    let runs = || scene.gives_to("@clerk ", &run);
    let given = runs();
    assert!(given.contains("status 0") && given.contains("the form of csv"), "{given}");
    let operators = json!({"command": scene.home("skills/pdf-forms/scripts/fill.sh"), "timeout_s": 20});
    assert!(scene.gives_to("@clerk ", &operators).contains("the form of pdf-forms"), "so are the operator's");
    let manifest = json!({"command": format!("cat {folder}/../../manifest.yaml"), "timeout_s": 20});
    assert!(scene.gives_to("@clerk ", &manifest).contains("Permission denied"));
    let script = scene.home("extensions/clerk/skills/csv/scripts/fill.sh");
    let agreed = fs::read(&script).expect("it is there");
    let changed = || {
        let given = runs();
        assert!(
            given.contains("of the skill `csv` is not what it was when the extension was loaded"),
            "{given}"
        );
        assert!(!given.contains("exchanged") && !given.contains("status 0"), "{given}");
    };
    fs::write(&script, "#!/bin/sh\necho exchanged\n").expect("it is written");
    changed();
    fs::write(&script, agreed).expect("it is written");
    assert!(runs().contains("status 0"), "it is what it was");
    let added = scene.home("extensions/clerk/skills/csv/scripts/.more");
    fs::write(&added, "exchanged").expect("it is written");
    changed();
    fs::remove_file(&added).expect("it is there");
    fs::remove_dir_all(scene.home("extensions/clerk/skills/csv/assets")).expect("it is there");
    changed();
}

#[test]
fn a_command_runs_once_when_it_is_allowed_not_when_it_is_denied_and_ends_with_its_kernel() {
    let scene = scene("");
    let append = json!({"command": "echo ran >> log", "cwd": "sub"});
    fs::create_dir(scene.home("workspace/sub")).expect("a folder");
    let ran = || fs::read_to_string(scene.home("workspace/sub/log")).unwrap_or_default().lines().count();
    let turn = scene.asks("denied", "shell_run", &append);
    let question = scene.question("denied");
    let shown = scene.daemon.says(&["approvals"]);
    for part in ["shell_run", "echo ran >> log", "sub", "session `denied`"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(ran(), 0, "nothing runs before it was answered");
    scene.answers(&question, false);
    let content = scene.daemon.wait(&turn)["content"].to_string();
    assert!(content.contains("was denied by operator") && ran() == 0, "{content}");
    assert!(scene.gives(&append).contains("ended with status 0"));
    assert_eq!(ran(), 1);
    // One that runs beside the conversation, and one that a call waits for.
    let markers = [marker(), marker()];
    let begun = scene.gives(&json!({"command": format!("sleep {}", markers[0]), "background": true}));
    assert!(begun.contains("in the background as `c1`"), "{begun}");
    let others = scene.daemon.turn("others", "shell_list {}");
    assert_eq!(others["content"], "no command runs in the background", "another session has none of it");
    let command = format!("echo begun; (setsid sleep {0} &); sleep {0}", markers[1]);
    let turn = scene.asks("waits", "shell_run", &json!({"command": command}));
    scene.answers(&scene.question("waits"), true);
    for marker in &markers {
        assert!(until("it runs", || runs(marker).then_some(())).is_some(), "{}", scene.daemon.log());
    }
    scene.daemon.kill_kernel();
    let began = std::time::Instant::now();
    let gone = until("they are gone", || (!markers.iter().any(|marker| runs(marker))).then_some(()));
    assert!(gone.is_some() && began.elapsed().as_secs() < 2, "{markers:?} after {:?}", began.elapsed());
    // It is not run again: nobody knows how far it came.
    let content = scene.daemon.wait(&turn)["content"].to_string();
    assert!(content.contains("outcome unknown"), "{content}");
    assert!(!runs(&markers[1]));
}

#[test]
fn what_is_allowed_for_a_session_is_the_same_plain_command_and_never_one_that_begins_so() {
    let scene = scene("");
    let (plain, more) = (json!({"command": "echo a"}), json!({"command": "echo a; echo b"}));
    // What a command writes may be strangers' text, so the second time the same is asked with that in view.
    for for_taint in [false, true] {
        let turn = scene.asks("plain", "shell_run", &plain);
        let question = scene.question("plain");
        let call = &question["call"];
        assert_eq!((&call["about"], &call["for_taint"]), (&json!("shell_run echo a"), &json!(for_taint)));
        let answer = json!({"id": question["id"], "allow": true, "for_session": true});
        scene.daemon.client().ask("approvals.answer", answer).expect("it is answered");
        scene.daemon.wait(&turn);
    }
    let content = scene.daemon.turn("plain", &format!("shell_run {plain}"))["content"].to_string();
    assert!(content.contains("ended with status 0"), "nobody is asked: {content}");
    let turn = scene.asks("plain", "shell_run", &more);
    let question = scene.question("plain");
    assert!(question["call"]["about"].is_null(), "{question}");
    let lasting = json!({"id": question["id"], "allow": true, "for_session": true});
    let refused = scene.daemon.client().ask("approvals.answer", lasting);
    assert!(refused.as_ref().is_err_and(|error| error.contains("this one call alone")), "{refused:?}");
    scene.answers(&question, false);
    scene.daemon.wait(&turn);
}

#[test]
fn a_terminal_is_the_commands_own_and_reaches_nobody() {
    let scene = scene("");
    let given = |command: &str| {
        let given = scene.gives(&json!({"command": command, "timeout_s": 20, "terminal": true}));
        println!("{command}: {}", shown_of(&given));
        given
    };
    let said =
        given("test -t 0 && test -t 1 && tty; stty size; printf '\\033[31mred\\033[0m\\n'; echo $TERM");
    let text = said.split_once("\n\n").expect("a head and a text").1;
    let lines: Vec<&str> = text.lines().collect();
    assert!(said.contains("It ran in a terminal") && lines[0].starts_with("/dev/pts/"), "{said}");
    assert_eq!(lines[1..4], ["40 120", "red", "xterm-256color"], "{said}");
    // No path leads to a terminal, this one or another of the same user.
    let operators = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    unlockpt(&operators).expect("it is ours");
    let other = ptsname(&operators, Vec::new()).expect("it has a name").into_string().expect("text");
    assert!(fs::File::open(&other).is_ok(), "who is not confined opens it");
    for path in ["/dev/tty", "/dev/ptmx", "$(tty)", "/dev/console", &other] {
        let said = given(&format!("(: < {path}); (: > {path})"));
        assert_eq!(said.matches("cannot").count(), 2, "{path}: {said}");
    }
    // Nothing is typed in the name of anybody, nor at its own for what comes after it.
    let typed =
        format!("perl -e 'my $c = \"x\"; syscall({IOCTL}, 0, {TIOCSTI}, $c) == -1 and die $!'; cat; echo $?");
    let said = given(&typed);
    assert!(said.contains("not permitted") && said.ends_with("\n0\n"), "{said}");
    // A question is not waited for.
    let said = given("printf 'Sure? '; read answer || echo none");
    assert!(said.contains("ended with status 0") && said.ends_with("Sure? none\n"), "{said}");
    // Who holds the terminal when the command has ended or must end.
    let markers = [marker(), marker()];
    let held = given(&format!("(setsid sleep {0} &); trap '' HUP; sleep {0} & echo begun", markers[0]));
    assert!(held.contains("ended with status 0") && !runs(&markers[0]), "{held}");
    let deaf = format!("trap '' HUP TERM INT; (setsid sleep {0} &); sleep {0}", markers[1]);
    let said = scene.gives(&json!({"command": deaf, "timeout_s": 1, "terminal": true}));
    assert!(said.contains("was stopped because its 1 s were over"), "{said}");
    assert!(until("nothing is left", || (!runs(&markers[1])).then_some(())).is_some());
    // It is shown, and a grant for the plain command is none for one in a terminal.
    let params = [json!({"command": "echo a", "terminal": true}), json!({"command": "echo a"})];
    let turn = scene.asks("granted", "shell_run", &params[0]);
    let question = scene.question("granted");
    let shown = scene.daemon.says(&["approvals"]);
    assert!(shown.contains("terminal") && shown.contains("true"), "{shown}");
    let answer = json!({"id": question["id"], "allow": true, "for_session": true});
    scene.daemon.client().ask("approvals.answer", answer).expect("it is answered");
    scene.daemon.wait(&turn);
    let turn = scene.asks("granted", "shell_run", &params[1]);
    scene.answers(&scene.question("granted"), true);
    scene.daemon.wait(&turn);
}

const IOCTL: u32 = if cfg!(target_arch = "aarch64") { 29 } else { 16 };

const TIOCSTI: u32 = 0x5412;

#[test]
fn it_is_there_where_the_operator_turns_it_on_and_the_system_can_confine() {
    let daemon = Daemon::start("");
    let (state, reason) = daemon.extension("shell");
    assert!(state == "disabled", "{state}: {reason}");
    drop(daemon);
    let daemon = without_landlock(|| Daemon::start("extensions: {shell: {enabled: true}}\n"));
    let (state, reason) = daemon.extension("shell");
    assert!(
        state == "disabled" && reason.contains("Landlock is missing")
            || reason.contains("Landlock version 0"),
        "{state}: {reason}"
    );
}
