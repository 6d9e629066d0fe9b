//! Streams of extensions: events of the control API, and programs that run beside them.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, until};

/// Both places in which an extension's code can run.
const BOTH: [(&str, &str); 2] = [("inside", "inproc"), ("apart", "process")];

const RIGHTS: &str = "rights: [control, processes]\n";

/// A daemon with the plugin `streams` in both places, with these rights.
fn daemon(rights: &str) -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    for name in ["GIVEN", "A_TOKEN"] {
        daemon.variable(name, "canary");
    }
    for (id, isolation) in BOTH {
        daemon.plugin_in(isolation, id, "streams", &format!("config: {{prefix: {id}}}\n{rights}"));
    }
    daemon.run();
    for (id, _) in BOTH {
        daemon.until_extension(id, "active");
    }
    (server, daemon)
}

/// Calls a tool of the plugin; what it said.
fn call(daemon: &Daemon, id: &str, tool: &str, params: &Value) -> String {
    let ended = daemon.turn(&format!("by-{id}"), &format!("{id}_{tool} {params}"));
    ended["content"].as_str().unwrap_or_else(|| panic!("{ended}\n{}", daemon.log())).to_owned()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_extension_sees_the_events_that_the_control_socket_gives_and_is_told_how_to_open_them() {
    let (_server, daemon) = daemon(RIGHTS);
    daemon.turn("seen", r#"kv_set {"key": "a", "value": "1"}"#);
    let kept = daemon.events("seen");
    assert!(kept.len() > 5, "{kept:?}");
    for (id, _) in BOTH {
        let seen = call(&daemon, id, "events", &json!({"session": "seen", "events": kept.len()}));
        assert_eq!(value(&seen), Value::from(kept.clone()), "{id}");
        let refused = call(&daemon, id, "call", &json!({"session": "seen"}));
        assert!(refused.contains("control.open"), "{refused}");
    }
    // What happens while it follows comes as well.
    let params = json!({"session": "next", "events": 6});
    let following = daemon.submit("by-inside", &format!("inside_events {params}"));
    daemon.turn("next", r#"kv_set {"key": "b", "value": "2"}"#);
    let seen = daemon.wait(&following);
    let seen = value(seen["content"].as_str().expect("events"));
    assert_eq!(seen, Value::from(daemon.events("next")[..6].to_vec()));
}

#[test]
fn a_thousand_streams_of_one_extension_go_on_beside_a_slow_one_and_more_than_the_most_are_refused() {
    let (_server, daemon) = daemon(RIGHTS);
    daemon.turn("seen", r#"kv_set {"key": "a", "value": "1"}"#);
    let kept = daemon.events("seen").len();
    for (id, _) in BOTH {
        let many = json!({"session": "seen", "streams": 1000, "events": kept + 5});
        let reading = daemon.submit(&format!("by-{id}"), &format!("{id}_many {many}"));
        daemon.turn("seen", r#"kv_set {"key": "b", "value": "2"}"#);
        let read = daemon.wait(&reading);
        let read = value(read["content"].as_str().expect("what it read"));
        let expected = daemon.events("seen")[..kept + 5].to_vec();
        assert_eq!(read, json!({"streams": 1000, "same": true, "events": expected}), "{id}");
        let filled = call(&daemon, id, "fill", &json!({"session": "seen"}));
        assert!(
            filled.starts_with("2048 streams, then:") && filled.contains("2048 are the most"),
            "{filled}"
        );
    }
}

#[test]
fn what_an_extension_has_no_right_to_is_not_opened() {
    let (_server, daemon) = daemon("rights: []\n");
    for (id, _) in BOTH {
        for (tool, params, right) in
            [("events", json!({"session": "s"}), "control"), ("run", json!({"script": "true"}), "processes")]
        {
            let refused = call(&daemon, id, tool, &params);
            assert!(refused.contains(&format!("rights: [{right}]")), "{id} {tool}: {refused}");
        }
    }
}

#[test]
fn a_program_is_fed_and_read_and_its_end_is_told() {
    let (_server, daemon) = daemon(RIGHTS);
    for (id, _) in BOTH {
        let run = |params: Value| value(&call(&daemon, id, "run", &params));
        let cat = run(json!({"script": "cat; echo bad >&2; exit 3", "input": "fed"}));
        assert_eq!((&cat["out"], &cat["err"]), (&json!("fed"), &json!("bad\n")), "{id}: {cat}");
        assert_eq!((&cat["exit"]["status"], &cat["exit"]["signal"]), (&json!(3), &Value::Null));
        let killed = run(json!({"script": "kill -TERM $$"}));
        assert_eq!((&killed["exit"]["status"], &killed["exit"]["signal"]), (&Value::Null, &json!(15)));
        // Far more than any pipe holds, to a reader that lets it wait.
        let flood = run(json!({"script": "yes x | head -c 20000000", "first": 1}));
        assert_eq!((&flood["bytes"], &flood["exit"]["status"]), (&json!(20_000_000), &json!(0)), "{id}");
    }
}

#[test]
fn a_program_gets_no_more_than_the_manifest_allows_and_nothing_of_the_home() {
    let (_server, daemon) =
        daemon("secrets: [GIVEN]\nrights: [processes]\nprogram_folders: [~/, /usr/share]\n");
    let home = daemon.path().display().to_string();
    let script =
        format!("cat {home}/run/token {home}/journal.db {home}/state/* {home}/drupe.yaml {home}/.env; env");
    for (id, _) in BOTH {
        let seen = value(&call(&daemon, id, "run", &json!({"script": script, "read": ["/usr/share"]})));
        assert!(seen["bytes"].as_u64().expect("a number") < 1_000, "{seen}");
        for secret in ["canary", "GIVEN", "TOKEN", "PROVIDER"] {
            assert!(!seen["out"].as_str().expect("a text").contains(secret), "{seen}");
        }
        for (params, why) in [
            (json!({"script": "true", "read": [home]}), "may read"),
            (json!({"script": "true", "read": [format!("{home}/run/token")]}), "may read"),
            (json!({"script": "true", "read": ["/etc"]}), "program_folders"),
            (json!({"script": "true", "folders": [format!("{home}/run")]}), "data folder"),
            (json!({"script": "true", "folders": [format!("{home}/data")]}), "data folder"),
            (json!({"script": "true", "network": true}), "rights: [network]"),
        ] {
            let refused = call(&daemon, id, "run", &params);
            assert!(refused.contains(why), "{id} {params}: {refused}");
        }
    }
}

#[test]
fn a_program_ends_with_the_instance_that_opened_it() {
    let (_server, mut daemon) = daemon(RIGHTS);
    let alive = |pid: &str| fs::exists(format!("/proc/{pid}")).expect("it can be told");
    let script = json!({"script": "setsid sleep 1000 & echo $!; exec sleep 1000"});
    let gone = |daemon: &Daemon, pid: &str, how: &str| {
        until("the program is gone", || (!alive(pid)).then_some(()))
            .unwrap_or_else(|| panic!("{how}: {}", daemon.log()));
    };
    for (id, _) in BOTH {
        let pid = call(&daemon, id, "leave", &script);
        assert!(alive(&pid), "{pid}");
        daemon.client().ask("extensions.disable", json!({"id": id})).expect("it is turned off");
        gone(&daemon, &pid, id);
        daemon.client().ask("extensions.enable", json!({"id": id})).expect("it is turned on");
        daemon.until_extension(id, "active");
    }
    // Another kernel takes the place of this one, with other instances.
    let pid = call(&daemon, "apart", "leave", &script);
    daemon.says(&["restart"]);
    gone(&daemon, &pid, "restarted");
    daemon.until_extension("apart", "active");
    // The process of its code is killed.
    let pid = call(&daemon, "apart", "leave", &script);
    let host = host_of(&daemon, "apart");
    Daemon::signal(host, rustix::process::Signal::KILL);
    gone(&daemon, &pid, "killed");
    // The kernel is killed.
    let pid = call(&daemon, "inside", "leave", &script);
    daemon.kill_kernel();
    gone(&daemon, &pid, "the kernel is gone");
    // It ends in order.
    daemon.until_extension("inside", "active");
    let pid = call(&daemon, "inside", "leave", &script);
    Daemon::signal(daemon.supervisor_pid(), rustix::process::Signal::TERM);
    daemon.ended();
    gone(&daemon, &pid, "stopped");
}

/// The process that runs the code of an extension.
fn host_of(daemon: &Daemon, id: &str) -> u32 {
    let home = daemon.path().display().to_string();
    let found = fs::read_dir("/proc").expect("a list of processes").flatten().find_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let its = line.contains("ext-host") && line.contains(&format!("--id {id}")) && line.contains(&home);
        its.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    });
    found.expect("it runs in a process of its own")
}

/// Figures: `cargo test -p drupe --test end_to_end streams::figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn figures_of_many_streams() {
    let (_server, daemon) = daemon(RIGHTS);
    let pid = daemon.until_ready()["kernel_pid"].as_u64().expect("a process");
    let held = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("what it holds");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
    };
    daemon.turn("seen", r#"kv_set {"key": "a", "value": "1"}"#);
    for (id, isolation) in BOTH {
        let kept = daemon.events("seen").len();
        let before = held();
        let many = json!({"session": "seen", "streams": 1000, "events": kept + 20});
        let reading = daemon.submit(&format!("by-{id}"), &format!("{id}_many {many}"));
        let began = std::time::Instant::now();
        for number in 0..4 {
            daemon.turn("seen", &format!(r#"kv_set {{"key": "b", "value": "{number}"}}"#));
        }
        let while_open = held();
        daemon.wait(&reading);
        println!(
            "{isolation}: 1,000 streams, one of them slow, {} events each: {:.1} s; the kernel held {} MiB before, {} MiB while they were open, {} MiB after",
            kept + 20,
            began.elapsed().as_secs_f64(),
            before / 1024,
            while_open / 1024,
            held() / 1024,
        );
        let before = held();
        let began = std::time::Instant::now();
        let flood = json!({"script": "yes x | head -c 67000000", "first": 1});
        let flood = value(&call(&daemon, id, "run", &flood));
        println!(
            "{isolation}: {} MB of a program's output, whose reader let it wait: {:.1} s; the kernel held {} MiB before, {} MiB after",
            flood["bytes"].as_u64().unwrap_or_default() / 1_000_000,
            began.elapsed().as_secs_f64(),
            before / 1024,
            held() / 1024,
        );
    }
}
