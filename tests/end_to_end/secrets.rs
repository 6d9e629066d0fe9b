//! Secrets that an extension was given, and tells: no model, no row, no event, no log and no client gets them.

use std::{fs::Permissions, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use serde_json::{Value, json};

use crate::{
    encodings::encodings,
    harness::{
        Daemon,
        model_server::{ModelServer, Say, latest},
        text, until,
    },
};

/// As vendors make them, and as people do.
const SECRETS: [(&str, &str); 10] = [
    ("GITHUB", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("ACCESS", "AKIAIOSFODNN7EXAMPLE"),
    ("SIGNING", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("SLACK", "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzqqgy"),
    ("JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"),
    ("HEX", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ("UUID", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    ("PASSWORD", "Tr0ub4dor&3-\"quoted\"<>"),
    ("PHRASE", "correct horse battery staple"),
    ("SHORT", "hunter2!"),
];

const WAYS: [&str; 9] =
    ["result", "fault", "panic", "thread", "log", "stderr", "progress", "notice", "topic"];

/// The encodings that are looked for. Letters with something between them are where they are many and digits are among them:
/// words of a language stand in many texts.
fn looked_for(value: &str) -> Vec<String> {
    let mut all = encodings(value);
    let letters = value.chars().filter(char::is_ascii_alphanumeric).count();
    if letters < 8 || !value.contains(|c: char| c.is_ascii_digit()) {
        all.pop();
    }
    all
}

/// All secrets in all encodings, with words between them.
fn everything() -> String {
    let all = SECRETS.iter().flat_map(|(name, value)| {
        looked_for(value)
            .into_iter()
            .enumerate()
            .map(move |(n, encoded)| format!("{name} in form {n}: {encoded};\n"))
    });
    all.collect()
}

/// Parts of the encoded secrets that are of use to somebody, also as JSON writes them.
fn needles() -> Vec<String> {
    let parts = SECRETS.iter().flat_map(|(_, value)| looked_for(value)).flat_map(|encoded| {
        let most = encoded.len() * 4 / 5;
        [encoded[..most].to_owned(), encoded[encoded.len() - most..].to_owned()]
    });
    let both = parts.flat_map(|part| {
        let written = json!(part).to_string();
        [part.clone(), written[1..written.len() - 1].to_owned()]
    });
    both.collect()
}

fn nothing_of_them_in(place: &str, text: &str) {
    for needle in needles() {
        let at = text.find(&needle);
        let around = at.map(|at| {
            let (from, to) = (at.saturating_sub(120), (at + needle.len() + 60).min(text.len()));
            String::from_utf8_lossy(&text.as_bytes()[from..to]).into_owned()
        });
        assert!(at.is_none(), "`{needle}` in {place}: {}", around.unwrap_or_default());
    }
}

fn is_library(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "so")
}

/// What is kept in the home, but for the files in which the operator wrote the secrets.
fn kept(daemon: &Daemon) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![daemon.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name() != ".env" && !is_library(&entry.path()) {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                found
                    .push((entry.path().display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
    found
}

/// One that calls the tool in each way, and then says by heart what it was told, in the encodings that are looked for in
/// what comes piece by piece.
fn careless() -> ModelServer {
    let forms = |value: &str| {
        let all = encodings(value);
        [0, 1, 2, 3, 6, 7, 8].map(|form| format!("{};\n", all[form])).concat()
    };
    let told = SECRETS.iter().map(|(_, value)| forms(value)).collect::<String>();
    ModelServer::start(move |request| match latest(request) {
        (role, prefix) if role == "user" && prefix.starts_with("leak ") => {
            let tool = format!("{}_leak", &prefix["leak ".len()..]);
            // Where code runs in the kernel's own process, nobody stands between it and the standard error stream.
            let ways = WAYS.iter().filter(|by| **by != "stderr" || tool.starts_with("process"));
            let calls = ways.map(|by| (tool.clone(), json!({"by": by})));
            Say::Call(calls.collect())
        }
        _ => Say::Text(format!("by heart: {told}")),
    })
}

#[test]
fn secrets_reach_no_model_no_row_no_event_no_log_and_no_client() {
    let server = careless();
    let mut daemon = Daemon::home(&server.config());
    let quoted = |value: &str| format!("'{value}'");
    let file: String = SECRETS.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect();
    daemon.write(".env", &file);
    std::fs::set_permissions(daemon.path().join(".env"), Permissions::from_mode(0o600)).expect("it is ours");
    let names: Vec<_> = SECRETS.iter().map(|(name, _)| *name).collect();
    let more = |prefix: &str| format!("secrets: [{}]\nconfig: {{prefix: {prefix}}}\n", names.join(", "));
    for isolation in ["inproc", "process"] {
        daemon.plugin_in(isolation, isolation, "faulty", &more(isolation));
        let reversed: String = everything().chars().rev().collect();
        daemon.write(&format!("extensions/{isolation}/told"), &reversed);
    }
    daemon.run();
    let mut shown = String::new();
    for isolation in ["inproc", "process"] {
        daemon.until_extension(isolation, "active");
        let turn = daemon.turn(isolation, &format!("leak {isolation}"));
        assert_eq!(turn["status"], "success", "{turn}");
        shown += &turn.to_string();
        shown += &Value::from(daemon.events(isolation)).to_string();
        shown += &daemon.says(&["session", "export", isolation]);
        shown += &daemon.says(&["why", turn["turn"].as_str().expect("an id")]);
    }
    // A person's words, too: whoever pastes one by mistake has told nobody.
    let pasted = daemon.turn("pasted", &format!("use {} please", SECRETS[0].1));
    shown += &pasted.to_string();
    // The standard error stream of a process arrives by itself.
    until("it is logged", || daemon.log().contains("SHORT in form 20").then_some(()));
    nothing_of_them_in("what clients are shown", &shown);
    nothing_of_them_in("requests to the model", &Value::from(server.requests()).to_string());
    nothing_of_them_in("the log", &daemon.log());
    for (file, text) in kept(&daemon) {
        nothing_of_them_in(&file, &text);
    }
    // It was told all of it, and what is no secret is left.
    assert!(shown.contains("[secret]") && shown.contains("SHORT in form 20"), "{shown}");
    let results = Value::from(server.requests()).to_string();
    assert!(results.contains("GITHUB in form 0: [secret];"), "{results}");
}

/// Runs the verb with this on its standard input.
fn set(daemon: &Daemon, name: &str, value: &str) -> (bool, String) {
    let mut command = daemon.command(&["secret", "set", name]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("drupe runs");
    // One that refuses the name reads nothing.
    let _ = child.stdin.take().expect("a pipe").write_all(value.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn a_secret_that_is_set_by_the_verb_reaches_the_extension_that_names_it() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    let token = "two words \"and\" more #1";
    let (kept, said) = set(&daemon, "TOKEN", &format!("{token}\n"));
    assert!(kept && !said.contains("two words"), "{said}");
    assert!(set(&daemon, "OTHER", "x").0);
    let file = daemon.path().join(".env");
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(daemon.says(&["secret", "list"]).trim(), "OTHER\nTOKEN");
    assert!(daemon.drupe(&["secret", "remove", "OTHER"]).status.success());
    for (name, value) in [("NO-NAME", "x"), ("EMPTY", ""), ("LONG", &*"x".repeat(70_000))] {
        let (kept, said) = set(&daemon, name, value);
        assert!(!kept && said.contains(name), "{said}");
    }
    assert!(!daemon.drupe(&["secret", "remove", "OTHER"]).status.success(), "it is gone");
    // What the manager of the service hands in stands beside it.
    let credentials = daemon.path().join("credentials");
    std::fs::create_dir(&credentials).expect("a folder");
    std::fs::write(credentials.join("FROM_SERVICE"), "handed-in-by-systemd\n").expect("a file");
    daemon.variable("CREDENTIALS_DIRECTORY", credentials.to_str().expect("a path"));
    daemon.plugin("faulty", "faulty", "secrets: [TOKEN, FROM_SERVICE]\n");
    daemon.run();
    daemon.until_extension("faulty", "active");
    // Both are known now, and taken out of what anybody writes.
    let turn = daemon.turn("s", &format!("is it {token} or handed-in-by-systemd?"));
    assert_eq!(turn["content"], "is it [secret] or [secret]?", "{turn}");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("it is ours");
    let (kept, said) = set(&daemon, "TOKEN", "x");
    assert!(!kept && said.contains("chmod 600"), "{said}");
}
