//! Calls: what is offered as what, instances, and both revisions.

use std::time::Duration;

use drupe_extension_api::{
    EffectClass,
    testing::{FakeProcess, block_on},
};
use serde_json::json;

use super::played::*;
use crate::names;

#[test]
fn a_server_of_the_older_revision_is_asked_by_it_and_its_hints_give_its_tools_no_authority() {
    let setup = setup(json!({"a": {"command": "a", "args": ["x"], "env": {"K": "secret-value"}}}), json!({}));
    let (first, second) = (Played::new(), Played::new());
    let asked = second.asked();
    plays(&setup, "a", first.process());
    plays(&setup, "a", second.process());
    let harness = started(setup, &["a"]);
    let spec = spec(&harness, "a__say");
    assert_eq!(spec.description, "From the MCP server `a`: Says it.");
    let labels = &spec.annotations;
    assert!(labels.needs_approval && labels.outward && labels.reads_untrusted && !labels.read_only);
    assert_eq!((labels.effect, labels.approval_scope.is_none()), (EffectClass::Once, true));
    assert_eq!(calls(&harness, "s", "a__say", json!({"text": "hello"})).as_deref(), Ok("hello"));
    assert_eq!(state(&harness, "a")["revision"], "2025-11-25");
    let asked: Vec<String> = asked
        .lock()
        .expect("a lock")
        .iter()
        .map(|ask| ask["method"].as_str().unwrap_or("?").to_owned())
        .collect();
    // Which way it wants was learnt at the first start.
    assert_eq!(asked, ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
    let spec = harness.host().opened_processes().remove(0);
    let own = harness.data_folder().join("servers/a").display().to_string();
    assert_eq!((spec.directory.as_str(), spec.folders), (own.as_str(), vec![own.clone()]));
    assert!(!spec.workspace && !spec.network && spec.args == ["x"]);
    let names: Vec<&str> = spec.env.keys().map(String::as_str).collect();
    assert_eq!((names, spec.env["HOME"].as_str()), (vec!["HOME", "K", "TMPDIR"], own.as_str()));
}

#[test]
fn a_server_of_the_newer_revision_is_asked_by_that() {
    let setup = setup(json!({"a": {"command": "a", "share": true}}), json!({}));
    for _ in 0..2 {
        plays(&setup, "a", Played::newer().process());
    }
    let harness = started(setup, &["a"]);
    assert_eq!(calls(&harness, "s", "a__say", json!({})).as_deref(), Ok("new"));
    assert_eq!(state(&harness, "a")["revision"], "2026-07-28");
}

#[test]
fn one_that_ends_at_the_probe_is_started_again_and_initialised_the_old_way() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({}));
    plays(&setup, "a", FakeProcess::ending(1).stderr(b"unknown method\n"));
    plays(&setup, "a", Played::new().process());
    plays(&setup, "a", Played::new().process());
    let harness = started(setup, &["a"]);
    assert_eq!(calls(&harness, "s", "a__say", json!({"text": "x"})).as_deref(), Ok("x"));
    assert_eq!(harness.host().opened_processes().len(), 3, "the second start of it knows the way");
}

#[test]
fn one_that_says_nothing_to_the_probe_is_begun_with_in_the_old_way_when_the_time_of_its_start_is_over() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({"start_s": 40}));
    let silent = Played::new().on("server/discover", |_| None);
    let asked = silent.asked();
    plays(&setup, "a", silent.process());
    plays(&setup, "a", Played::new().process());
    let harness = block_on(setup.start()).expect("it starts");
    until("it is asked", || !asked.lock().expect("a lock").is_empty());
    let begun = || harness.host().opened_processes().len();
    // It is not given up earlier, however much the machine has to do.
    harness.host().advance(Duration::from_secs(39));
    assert_eq!((begun(), state(&harness, "a")["state"].as_str()), (1, Some("starting")));
    until("it is begun with anew", || {
        harness.host().advance(Duration::from_secs(1));
        begun() == 2 && state(&harness, "a")["state"] == "ready"
    });
    assert_eq!(state(&harness, "a")["revision"], "2025-11-25");
    assert_eq!(asked.lock().expect("a lock").len(), 1, "nothing else was said to the first");
    assert_eq!(harness.host().logs(), Vec::<String>::new(), "that is no failure");
}

#[test]
fn each_conversation_has_an_instance_of_its_own_unless_it_is_shared() {
    for (share, processes) in [(false, 3), (true, 2)] {
        let setup = setup(json!({"a": {"command": "a", "share": share}}), json!({}));
        for _ in 0..processes {
            plays(&setup, "a", Played::new().process());
        }
        let harness = started(setup, &["a"]);
        for session in ["one", "two", "one"] {
            assert_eq!(calls(&harness, session, "a__say", json!({"text": "x"})).as_deref(), Ok("x"));
        }
        assert_eq!(harness.host().opened_processes().len(), processes);
        assert_eq!(state(&harness, "a")["instances"], processes - 1);
    }
}

#[test]
fn the_one_that_was_idle_for_the_longest_makes_room_and_what_is_idle_ends_after_a_while() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({"instances": 2, "idle_minutes": 1}));
    for _ in 0..5 {
        plays(&setup, "a", Played::new().process());
    }
    let harness = started(setup, &["a"]);
    for session in ["one", "two", "one", "three", "one"] {
        calls(&harness, session, "a__say", json!({})).expect("it answers");
    }
    // One for the list of tools, and three for the conversations: `one` was never the oldest.
    assert_eq!(harness.host().opened_processes().len(), 4);
    assert_eq!(state(&harness, "a")["instances"], 2);
    let minute = Duration::from_secs(60);
    until("they end", || {
        harness.host().advance(minute);
        state(&harness, "a")["instances"] == 0
    });
    // Those that were told to end have a moment for it, which does not pass by itself here.
    until("the programs are gone", || {
        harness.host().advance(minute);
        harness.host().open_handles() == 0
    });
    assert_eq!(calls(&harness, "one", "a__say", json!({"text": "x"})).as_deref(), Ok("x"));
}

#[test]
fn what_was_learnt_is_offered_at_the_next_start_without_a_server() {
    let folder = tempfile();
    let servers = json!({"a": {"command": "a", "tools": {"read_only": ["sa*"]}}});
    let first = setup(servers.clone(), json!({})).data_folder(&folder);
    plays(&first, "a", Played::new().process());
    drop(started(first, &["a"]));
    let second = setup(servers, json!({})).data_folder(&folder);
    plays(&second, "a", Played::new().process());
    let harness = started(second, &["a"]);
    assert_eq!(offered(&harness), ["a__say"]);
    assert!(harness.host().opened_processes().is_empty(), "nothing was started");
    let labels = spec(&harness, "a__say").annotations;
    // The operator answers for it, and without the network nothing leaves the machine.
    assert!(labels.read_only && !labels.needs_approval && !labels.outward && labels.reads_untrusted);
    assert_eq!(labels.effect, EffectClass::Pure);
    assert_eq!(calls(&harness, "s", "a__say", json!({"text": "x"})).as_deref(), Ok("x"));
    std::fs::remove_dir_all(folder).expect("it is ours");
}

fn tempfile() -> std::path::PathBuf {
    let name = names::hash(
        format!("{:?}{:?}", std::thread::current().id(), std::time::SystemTime::now()).as_bytes(),
    );
    let folder = std::env::temp_dir().join(format!("drupe-mcp-{name}"));
    std::fs::create_dir(&folder).expect("a folder");
    folder
}

#[test]
fn many_tools_are_searched_for_and_called_by_name() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({"search_above": 2}));
    let tools = [tool("say", "Says it."), tool("sum", "Adds numbers."), tool("sort", "Sorts lines.")];
    for _ in 0..2 {
        plays(&setup, "a", Played::new().tools(&tools).process());
    }
    let harness = started(setup, &["a"]);
    assert_eq!(offered(&harness), [names::FIND, names::CALL]);
    let call = spec(&harness, names::CALL).annotations;
    assert!(
        call.needs_approval && call.outward && call.approval_scope.is_some_and(|scope| scope.param == "tool")
    );
    let found = calls(&harness, "s", names::FIND, json!({"query": "add numbers"})).expect("it finds");
    assert!(found.starts_with("{") && found.contains("\"a__sum\"") && !found.contains("a__sort"), "{found}");
    let params = json!({"tool": "a__say", "arguments": {"text": "x"}});
    assert_eq!(calls(&harness, "s", names::CALL, params).as_deref(), Ok("x"));
    let none = calls(&harness, "s", names::CALL, json!({"tool": "a__none"})).expect_err("there is none");
    assert!(none.message.contains("a__none"), "{none}");
}

#[test]
fn resources_and_prompts_are_offered_where_a_server_has_them() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({}));
    let with = || {
        Played::new()
            .on("initialize", |_| {
                Some(Ok(
                    json!({"protocolVersion": "2025-06-18", "capabilities": {"resources": {}, "prompts": {}},
                    "serverInfo": {"name": "played", "version": "1"}}),
                ))
            })
            .on("resources/list", |_| {
                Some(Ok(json!({"resources": [{"uri": "note:1", "name": "first", "mimeType": "text/plain"}]})))
            })
            .on("resources/read", |ask| {
                Some(Ok(json!({"contents": [{"uri": ask["params"]["uri"], "text": "inside"}]})))
            })
            .on("prompts/list", |_| {
                Some(Ok(
                    json!({"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": true}]}]}),
                ))
            })
            .on("prompts/get", |ask| {
                let text = format!("Greet {}.", ask["params"]["arguments"]["who"].as_str().unwrap_or("?"));
                Some(Ok(json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})))
            })
    };
    plays(&setup, "a", with().process());
    plays(&setup, "a", with().process());
    let harness = started(setup, &["a"]);
    assert_eq!(offered(&harness), [names::RESOURCES, names::PROMPTS]);
    assert!(spec(&harness, names::RESOURCES).annotations.needs_approval);
    for (tool, params, given) in [
        (names::RESOURCES, json!({"server": "a"}), "note:1 (first), text/plain"),
        (names::RESOURCES, json!({"server": "a", "uri": "note:1"}), "note:1:\ninside"),
        (names::PROMPTS, json!({"server": "a"}), "greet(who (required))"),
        (
            names::PROMPTS,
            json!({"server": "a", "name": "greet", "arguments": {"who": "Ada"}}),
            "user: Greet Ada.",
        ),
    ] {
        assert_eq!(calls(&harness, "s", tool, params).as_deref(), Ok(given));
    }
    assert!(calls(&harness, "s", names::RESOURCES, json!({"server": "b"})).is_err());
}

#[test]
fn one_that_is_kept_runs_from_the_start_and_is_begun_with_again_when_it_ends() {
    let setup =
        setup(json!({"a": {"command": "a", "share": true, "preconnect": true}}), json!({"instances": 1}));
    plays(&setup, "a", Played::new().raw(vec![b'x'; crate::process::MESSAGE + 1]).process());
    plays(&setup, "a", Played::new().process());
    let harness = started(setup, &["a"]);
    let running = || state(&harness, "a")["instances"] == 1;
    assert!(running());
    calls(&harness, "s", "a__say", json!({})).expect_err("it breaks off");
    until("it runs again", || {
        harness.host().advance(Duration::from_secs(10));
        harness.host().opened_processes().len() == 2 && running()
    });
    // Nobody asks it for anything for an hour.
    harness.host().advance(Duration::from_secs(3600));
    assert_eq!(calls(&harness, "s", "a__say", json!({"text": "x"})).as_deref(), Ok("x"));
    assert_eq!(harness.host().opened_processes().len(), 2);
}
