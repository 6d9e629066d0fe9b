//! A day of an assistant: it is told something, briefs its user in the morning, works in a repository, asks a server, plans the
//! evening; five kernels do it. What was asked, done, spent and remembered is told in the evening, and each thing was done once.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use crate::{
    attacks::{
        model::{self, order},
        scene::mcp_server,
    },
    harness::{Daemon, until},
};

const BRIEFING: &str = "
id: briefing
name: Morning briefing
description: Tells what the day brings.
agent: {model: default, instructions: Tell it., uses_tools: [memory/memory_search]}
schedules:
  - name: morning
    cron: 0 8 * * 1-5
    timezone: Europe/Berlin
    task: 'Tell what the day brings. DO memory_search {\"query\": \"tea\"}'
";

fn content(turn: &Value) -> String {
    turn["content"].as_str().unwrap_or_else(|| panic!("{turn}")).to_owned()
}

/// The call of a conversation that waits for a person.
fn question(daemon: &Daemon, session: &str) -> Value {
    let waits = || {
        let list = daemon.client().ask("approvals.list", json!({})).ok()?;
        let mut all = list.as_array()?.iter();
        all.find(|one| one["state"] == "pending" && one["call"]["session"] == session).cloned()
    };
    until("a question waits", waits).unwrap_or_else(|| panic!("{}", daemon.log()))
}

/// Has a model make a call that is asked about; the person agrees after what happens meanwhile.
fn agreed(daemon: &Daemon, session: &str, tool: &str, params: &Value, meanwhile: impl FnOnce()) -> Value {
    let turn = daemon.submit(session, &order(tool, params));
    let asked = question(daemon, session);
    meanwhile();
    daemon.says(&["approvals", "allow", asked["id"].as_str().expect("an id")]);
    daemon.wait(&turn)
}

fn restart(daemon: &Daemon) {
    let before = daemon.until_ready()["generation"].clone();
    daemon.says(&["restart"]);
    daemon.until_status("the next kernel", |now| now["state"] == "ready" && now["generation"] != before);
}

#[test]
fn a_day_of_an_assistant_over_five_kernels_is_told_in_the_evening() {
    let model = model::start();
    let (programs, program) = mcp_server("Looks at the tickets.");
    let extensions = json!({
        "shell": {"enabled": true},
        "memory": {"namespace": "shared"},
        "mcp": {"enabled": true, "servers": {"sh": {"command": program}}},
    });
    let rules =
        json!([{"tool": "shell_run", "params": {"command": "cat *"}, "tainted": true, "then": "allow"}]);
    let approvals = json!({"preauthorized": ["briefing"], "rules": rules});
    let mut daemon =
        Daemon::home(&format!("{}approvals: {approvals}\nextensions: {extensions}\n", model.config()));
    daemon.write("extensions/briefing/manifest.yaml", BRIEFING);
    daemon.write("workspace/notes/plan", "tidy up\n");
    daemon.variable("MCP_PROGRAM_FOLDER", &programs.path().display().to_string());
    daemon.run();

    // A person has looked at what the server says of its tools.
    let asks = json!({"id": "mcp", "ask": "servers", "params": {}});
    let offered = || {
        let said = daemon.client().ask("extensions.ask", asks.clone()).ok()?;
        (said["servers"][0]["tools"].as_array()?.len() == 2).then_some(())
    };
    until("its tools are known", offered).unwrap_or_else(|| panic!("{}", daemon.log()));
    daemon.says(&["mcp", "approve", "sh"]);

    // It is told something, and briefs in the morning.
    daemon.turn("desk", &order("memory_save", &json!({"text": "The user drinks green tea in the morning."})));
    daemon.says(&["schedule", "run", "briefing/morning"]);
    let told = || {
        let events = daemon.events("desk");
        let notice = events.iter().find(|event| event["data"]["code"] == "notice")?;
        notice["data"]["message"].as_str().map(str::to_owned)
    };
    let briefed = until("it briefs", told).unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(briefed.contains("green tea"), "{briefed}");
    daemon.kill_kernel();

    // It works in a repository. The kernel ends while it waits for an answer.
    daemon.turn("work", &order("files_edit", &json!({"path": "notes/plan", "old": "tidy", "new": "tidied"})));
    let append = json!({"command": "echo done >> notes/log"});
    let ran = agreed(&daemon, "work", "shell_run", &append, || {
        daemon.kill_kernel();
    });
    assert!(content(&ran).contains("status 0"), "{ran}");
    let read = daemon.turn("work", &order("shell_run", &json!({"command": "cat notes/plan notes/log"})));
    assert!(content(&read).contains("tidied up\ndone\n"), "a rule allows it: {read}");
    restart(&daemon);

    // It asks a server, which nobody trusts, and what comes then is looked at more closely.
    let looked = agreed(&daemon, "tickets", "sh__look", &json!({}), || ());
    assert!(content(&looked).contains("Nothing of importance."), "{looked}");
    let kept = json!({"text": "There are no tickets today."});
    let saved = agreed(&daemon, "tickets", "memory_save", &kept, || ());
    assert!(content(&saved).contains("kept as fact 2"), "{saved}");

    // It plans the evening, which another kernel knows.
    daemon.turn(
        "desk",
        &order("scheduler_add", &json!({"name": "evening", "when": "@yearly", "task": "Sum up."})),
    );
    restart(&daemon);
    let done = tells(&daemon);
    assert_eq!(fs::read_to_string(daemon.path().join("workspace/notes/log")).expect("a file"), "done\n");
    assert_eq!(daemon.until_ready()["restarts"], 4);
    assert_eq!(done.len(), 8, "{done:?}");
}

/// Prints what the verbs say of the day; gives the calls that were made.
fn tells(daemon: &Daemon) -> Vec<String> {
    let list = daemon.client().ask("approvals.list", json!({})).expect("a list");
    let asked: Vec<_> =
        list.as_array().expect("a list").iter().filter(|one| one["call"].is_object()).collect();
    println!("Asked:");
    for one in &asked {
        println!(
            "  {} {}: {} ({})",
            one["call"]["session"], one["call"]["tool"], one["state"], one["needs"][0]
        );
    }
    let allowed =
        asked.iter().filter(|one| one["state"] == "allowed" && one["call"]["by"] == "operator").count();
    assert_eq!((asked.len(), allowed), (3, 3), "{asked:?}");

    println!("Done:");
    let mut done = Vec::new();
    let sessions = daemon.json(&["session", "list", "--json"]);
    let mut names: Vec<&str> =
        sessions.as_array().expect("a list").iter().filter_map(|one| one["id"].as_str()).collect();
    names.sort_unstable();
    for session in &names {
        let mut why = BTreeMap::new();
        for event in
            daemon.events(session).iter().filter(|event| event["kind"] == "interaction.item.completed")
        {
            let item = &event["data"]["item"];
            if let (Some(name), Some(id)) = (item["name"].as_str(), item["id"].as_str()) {
                // What went on in the next kernel ended there as well.
                why.insert(id.to_owned(), name.to_owned());
            }
        }
        let told: Vec<String> = why.keys().map(|id| daemon.says(&["why", id])).collect();
        println!("  {session}:\n    {}", told.concat().trim_end().replace('\n', "\n    "));
        done.extend(why.into_values());
    }
    let spent = daemon.says(&["usage", "--by", "session"]);
    println!("Spent:\n{spent}");
    assert!(names.iter().all(|session| spent.contains(session)), "{names:?} {spent}");
    let planned = daemon.says(&["schedule"]);
    println!("Planned:\n{planned}");
    assert!(planned.contains("briefing/morning") && planned.contains("evening"), "{planned}");
    let remembered = daemon.says(&["memory"]);
    println!("Remembered:\n{remembered}");
    assert!(
        remembered.contains("green tea") && remembered.contains("There are no tickets today."),
        "{remembered}"
    );
    done
}
