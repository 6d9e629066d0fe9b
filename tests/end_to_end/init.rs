//! `drupe init`, as a script and as somebody at a pipe meets it: what is kept works, and what does not work is not kept.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Output, Stdio},
    thread,
};

use crate::harness::{Daemon, text};

const KEY: &str = "key-of-the-operator-1";
const TOKEN: &str = "123:of-a-bot";
/// Where the chat service is asked.
const API: &str = "DRUPE_EXTENSIONS__TELEGRAM__API";

/// A provider that has one model, for whoever has the key.
fn provider() -> String {
    serve(answer) + "/v1"
}

/// A chat service with one bot, for whoever has its token; forms as in <https://core.telegram.org/bots/api#making-requests>.
fn bot() -> String {
    serve(|stream| {
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        match head.first().is_some_and(|line| line.starts_with(&format!("GET /bot{TOKEN}/getMe "))) {
            true => reply(
                &stream,
                "200 OK",
                r#"{"ok":true,"result":{"id":123,"is_bot":true,"first_name":"Plum"}}"#,
            ),
            false => reply(
                &stream,
                "401 Unauthorized",
                r#"{"ok":false,"error_code":401,"description":"Unauthorized"}"#,
            ),
        }
    })
}

/// Answers each connection so; the address.
fn serve(answer: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || answer(stream))))
    });
    address
}

fn reply(mut stream: &TcpStream, status: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
}

fn answer(stream: TcpStream) {
    let head: Vec<_> =
        BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let asked = head.first().is_some_and(|line| line.starts_with("GET /v1/models "));
    let bears = head.iter().any(|line| line.eq_ignore_ascii_case(&format!("authorization: Bearer {KEY}")));
    let (status, body) = match (asked, bears) {
        (true, true) => (
            "200 OK",
            r#"{"object": "list", "data": [{"id": "small-1", "object": "model", "created": 1, "owned_by": "us"}]}"#,
        ),
        (true, false) => {
            ("401 Unauthorized", r#"{"error": {"message": "no such key", "type": "auth", "code": null}}"#)
        }
        (false, _) => ("404 Not Found", "{}"),
    };
    reply(&stream, status, body);
}

/// Runs it with something on its standard input.
fn init(daemon: &Daemon, options: &[&str], input: &str) -> Output {
    let mut command = daemon.command(&[&["init"], options].concat());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("drupe starts");
    // It may end without reading what nobody needs.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("drupe ends")
}

fn kept(daemon: &Daemon) -> Vec<&'static str> {
    ["drupe.yaml", ".env"].into_iter().filter(|name| daemon.path().join(name).exists()).collect()
}

#[test]
fn a_key_that_works_is_kept_with_a_configuration_that_a_daemon_takes() {
    let address = provider();
    let mut daemon = Daemon::home("");
    let options =
        ["--provider", "own", "--base-url", &address, "--model", "small-1", "--timezone", "Europe/Lisbon"];
    let output = init(&daemon, &options, &format!("{KEY}\n"));
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}\n{}", text(&output.stderr));
    for wanted in [
        "own answers and takes the key; `small-1` is asked",
        "at most $50.00",
        "`OWN_API_KEY` is kept",
        "next: `drupe`",
    ] {
        assert!(out.contains(wanted), "no {wanted:?} in {out}");
    }
    assert!(!out.contains(KEY), "{out}");
    let written = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("the configuration");
    assert!(written.contains("timezone: \"Europe/Lisbon\"") && !written.contains(KEY), "{written}");
    for file in kept(&daemon) {
        let mode = fs::metadata(daemon.path().join(file)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
    daemon.run();
    assert_eq!(daemon.until_ready()["model"], "own/small-1");
    let checked = daemon.drupe(&["models", "check"]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));

    // What is there is the operator's.
    let output = init(&daemon, &options, &format!("{KEY}\n"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is there already, and it is yours"), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(daemon.path().join("drupe.yaml")).expect("the configuration"), written);
}

#[test]
fn what_does_not_work_is_named_and_nothing_is_kept() {
    let address = provider();
    let own: [&str; 8] =
        ["--provider", "own", "--base-url", &address, "--model", "small-1", "--timezone", "system"];
    let with = |place: usize, value: &'static str| {
        let mut options = own.map(str::to_owned);
        options[place] = value.into();
        options
    };
    for (options, input, says) in [
        (own.map(str::to_owned), "another key", "so nothing is kept"),
        (own.map(str::to_owned), "", "needs a value"),
        (with(5, "big-2"), KEY, "it has no model `big-2`; it has `small-1`"),
        (with(7, "Europe/Nowhere"), KEY, "Europe/Nowhere"),
        (with(3, "ftp://example.test"), KEY, "base_url"),
        (
            own.map(|option| {
                if option == "--timezone" {
                    "--max-cost-per-day"
                } else if option == "system" {
                    "1"
                } else {
                    option
                }
                .to_owned()
            }),
            KEY,
            "the price of model",
        ),
    ] {
        let daemon = Daemon::home("");
        let output = init(&daemon, &options.each_ref().map(String::as_str), input);
        let err = text(&output.stderr);
        assert!(!output.status.success() && err.contains(says), "{options:?}: {err}");
        assert!(!err.contains(KEY), "{err}");
        assert_eq!(kept(&daemon), Vec::<&str>::new(), "{options:?}");
        assert!(
            fs::read_dir(daemon.path())
                .expect("the home")
                .flatten()
                .all(|entry| !entry.file_name().to_string_lossy().contains("init-"))
        );
    }
    let daemon = Daemon::home("");
    let output = init(&daemon, &["--timezone", "system"], "");
    assert!(text(&output.stderr).contains("give `--provider NAME`"), "{}", text(&output.stderr));
    let output = init(&daemon, &["--provider", "openai", "--base-url", "http://127.0.0.1:1/v1"], "");
    assert!(text(&output.stderr).contains("an address of its own"), "{}", text(&output.stderr));
}

#[test]
fn a_key_that_is_there_is_used_and_the_offline_model_needs_none() {
    let address = provider();
    let mut daemon = Daemon::home("");
    daemon.variable("OWN_API_KEY", KEY);
    let options = ["--provider", "own", "--base-url", &address, "--model", "small-1", "--timezone", "system"];
    let output = init(&daemon, &options, "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("`OWN_API_KEY` is there already"), "{}", text(&output.stderr));
    assert_eq!(kept(&daemon), ["drupe.yaml"]);

    let mut daemon = Daemon::home("");
    let output = init(&daemon, &["--provider", "offline", "--timezone", "system"], "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    daemon.run();
    assert!(daemon.until_ready()["model"].as_str().is_some_and(|model| model.starts_with("offline")));

    // What nobody tried is kept where that is asked for, and said.
    let daemon = Daemon::home("");
    let output = init(
        &daemon,
        &["--provider", "openai", "--timezone", "system", "--untried", "--max-cost-per-day", "2.5"],
        "sk-some-key",
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    for wanted in ["was not asked", "at most $2.50"] {
        assert!(text(&output.stdout).contains(wanted), "{}", text(&output.stdout));
    }
    assert_eq!(daemon.says(&["secret", "list"]).trim(), "OPENAI_API_KEY");
    assert!(daemon.says(&["models", "list"]).contains("openai/"));
}

#[test]
fn a_chat_service_that_ships_is_turned_on_with_its_secret_and_none_that_does_not() {
    let address = provider();
    let own = ["--provider", "own", "--base-url", &address, "--model", "small-1", "--channel", "telegram"];
    let mut daemon = Daemon::home("");
    daemon.variable(API, &bot());
    let output = init(&daemon, &own, &format!("{KEY}\n"));
    let err = text(&output.stderr);
    assert!(
        !output.status.success() && err.contains("`drupe secret set TELEGRAM_BOT_TOKEN < file`"),
        "{err}"
    );
    assert_eq!(kept(&daemon), Vec::<&str>::new());

    let secrets = daemon.path().join(".env");
    fs::write(&secrets, format!("TELEGRAM_BOT_TOKEN={TOKEN}\n")).expect("a secret");
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).expect("the operator's alone");
    let output = init(&daemon, &own, &format!("{KEY}\n"));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("Telegram is on: write to it there"), "{out}\n{err}");
    let written = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("the configuration");
    assert!(written.ends_with("extensions:\n  telegram:\n    enabled: true\n"), "{written}");

    let daemon = Daemon::home("");
    let output = init(&daemon, &["--provider", "offline", "--channel", "terminal"], "");
    let err = text(&output.stderr);
    assert!(
        err.contains("there is no chat service `terminal`; choose one of none, ") && err.contains("telegram"),
        "{err}"
    );
}

#[test]
fn a_secret_that_its_service_refuses_is_not_kept_and_one_that_was_not_tried_only_where_that_is_wanted() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    let with = |api: &str, more: &[&str], token: &str| {
        let mut daemon = Daemon::home("");
        daemon.variable(API, api);
        let options = ["--provider", "offline", "--channel", "telegram", "--timezone", "system"];
        let output = init(&daemon, &[&options, more].concat(), token);
        (daemon, output)
    };
    for (api, token, says) in [
        (
            bot(),
            "456:of-another-bot",
            "Telegram does not take `TELEGRAM_BOT_TOKEN`, so nothing is kept: it says: Unauthorized",
        ),
        (
            nobody.clone(),
            TOKEN,
            "Telegram cannot be asked whether it takes `TELEGRAM_BOT_TOKEN`, so nothing is kept",
        ),
    ] {
        let (daemon, output) = with(&api, &[], token);
        let err = text(&output.stderr);
        assert!(!output.status.success() && err.contains(says) && err.contains("`--untried`"), "{err}");
        assert!(!err.contains(token), "{err}");
        assert_eq!(kept(&daemon), Vec::<&str>::new());
    }
    let (daemon, output) = with(&nobody, &["--untried"], TOKEN);
    let out = text(&output.stdout);
    assert!(
        output.status.success() && out.contains("Telegram was not asked whether it takes its secrets"),
        "{out}"
    );
    assert_eq!(kept(&daemon), ["drupe.yaml", ".env"]);

    let (daemon, output) = with(&bot(), &[], TOKEN);
    let out = text(&output.stdout);
    assert!(
        output.status.success() && out.contains("Telegram takes `TELEGRAM_BOT_TOKEN`"),
        "{out}{}",
        text(&output.stderr)
    );
    assert!(!out.contains(TOKEN));
    assert_eq!(kept(&daemon), ["drupe.yaml", ".env"]);
    // The same is looked at later.
    let refused = "the service of `telegram` does not take `TELEGRAM_BOT_TOKEN`: it says: Unauthorized";
    assert!(!text(&daemon.drupe(&["doctor"]).stdout).contains(refused));
    fs::write(daemon.path().join(".env"), "TELEGRAM_BOT_TOKEN=456:of-another-bot\n").expect("a secret");
    let found = daemon.drupe(&["doctor"]);
    assert_eq!(found.status.code(), Some(1));
    assert!(text(&found.stdout).contains(refused), "{}", text(&found.stdout));
    assert!(!text(&daemon.drupe(&["doctor", "--offline"]).stdout).contains(refused));
}
