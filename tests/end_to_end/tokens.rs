//! Named tokens: what their bearers reach, on the socket and through an extension, and when they end.

use drupe_link::Home;
use serde_json::{Value, json};

use crate::harness::{Client, Daemon, model_server::ModelServer, unique, until};

fn daemon() -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("torture", "torture", "rights: [control, submit]\n");
    for id in ["haiku", "other"] {
        let manifest = format!(
            "id: {id}\nname: Agent\ndescription: Answers.\nagent: {{model: default, instructions: \"Answer.\"}}\n"
        );
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
    }
    daemon.run();
    (server, daemon)
}

/// Makes a token with the command line.
fn new(daemon: &Daemon, args: &[&str]) -> String {
    let out = daemon.drupe(&[&["token", "new"], args].concat());
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("a text").trim().to_owned()
}

fn bearer(daemon: &Daemon, token: &str) -> Client {
    let home = Home::new(daemon.path()).expect("a home");
    until("it is let in", || Client::with_token(&home, token).ok())
        .unwrap_or_else(|| panic!("{}", daemon.log()))
}

fn submit(client: &mut Client, session: &str, text: &str) -> Result<String, String> {
    let ask = json!({"external_id": unique(), "session": session, "text": text});
    client.ask("turn.submit", ask).map(|said| said["turn"].as_str().expect("a turn").to_owned())
}

fn denied(what: &str, said: Result<Value, String>) {
    let error = said.expect_err(what);
    assert!(error.contains("\"denied\""), "{what}: {error}");
}

#[test]
fn the_bearer_of_a_token_reaches_its_own_sessions_and_does_what_the_token_says() {
    let (_server, daemon) = daemon();
    let theirs = daemon.turn("s", "hello");
    let turn = theirs["turn"].as_str().expect("a turn");
    let ci = new(&daemon, &["ci", "--may", "read,submit"]);
    let mut ci = bearer(&daemon, &ci);
    let own = submit(&mut ci, "token.ci:1", "hello").expect("its own session");
    assert_eq!(ci.ask("turn.wait", json!({"turn": own})).expect("its own turn")["status"], "success");
    let sessions = ci.ask("sessions.list", json!({})).expect("it may read");
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    for (method, params) in [
        ("sessions.show", json!({"id": "s"})),
        ("turn.wait", json!({"turn": turn})),
        ("trace.show", json!({"id": turn})),
        ("trace.show", json!({"id": "s"})),
        ("why", json!({"id": turn})),
        ("why", json!({"id": "s"})),
        ("why", json!({"id": "torture"})),
        ("why", json!({"id": "limits.session.max_tokens"})),
        ("items.show", json!({"session": "s", "id": turn})),
        ("events.subscribe", json!({"session": "s"})),
        ("turn.submit", json!({"session": "s", "external_id": "1", "text": "hello"})),
        (
            "turn.submit",
            json!({"session": "token.ci", "external_id": "1", "text": "x", "channel": "torture"}),
        ),
        // What needs more than it has, in its own session too.
        ("turn.stop", json!({"turn": own})),
        ("sessions.stop", json!({"id": "token.ci:1"})),
        ("session.select", json!({"session": "token.ci:1", "agent": "haiku"})),
        ("status", json!({})),
        ("extensions.list", json!({})),
        ("config.show", json!({})),
        ("usage.show", json!({})),
        ("extensions.add", json!({"path": "/tmp/x"})),
        ("stop", json!({})),
        ("approvals.answer", json!({"id": "a1", "allow": true})),
        ("tokens.list", json!({})),
        ("tokens.new", json!({"name": "more", "may": ["operate"]})),
        // To stop what runs is more than to say something.
        (
            "turn.submit",
            json!({"session": "token.ci:1", "external_id": "2", "text": "x", "queue": "interrupt"}),
        ),
    ] {
        let said = ci.ask(method, params.clone());
        // What is not reached by its id is answered as what is not there.
        let named = params["id"].as_str().or(params["turn"].as_str()).unwrap_or_default();
        let hidden =
            said.as_ref().is_err_and(|error| error.contains("\"not_found\"") && !error.contains("session"));
        if ["why", "trace.show"].contains(&method) {
            let absent = ci.ask(method, json!({"id": "nowhere"})).expect_err("it is not there");
            assert_eq!(
                said.map_err(|error| error.replace(&format!("`{named}`"), "`nowhere`")),
                Err(absent),
                "{method} {named}"
            );
        } else if !hidden {
            denied(method, said);
        }
    }
    // The same id of another asker is another message, and of the same one the same message.
    let once = json!({"session": "token.ci", "external_id": "the same", "text": "hello"});
    let mut turns = [&mut ci, &mut daemon.client()]
        .map(|client| client.ask("turn.submit", once.clone()).expect("taken in"));
    assert!(
        turns.iter().all(|said| said["duplicate"] == false) && turns[0]["turn"] != turns[1]["turn"],
        "{turns:?}"
    );
    turns[1] = ci.ask("turn.submit", once).expect("taken in");
    assert_eq!((&turns[1]["turn"], &turns[1]["duplicate"]), (&turns[0]["turn"], &json!(true)));
}

#[test]
fn who_makes_tokens_gives_no_more_than_they_have() {
    let (_server, daemon) = daemon();
    let maker = new(&daemon, &["maker", "--may", "operate,inspect,read", "--agent", "haiku"]);
    let mut maker = bearer(&daemon, &maker);
    for (agents, sessions, may) in [
        (json!(["haiku"]), json!("*"), "read"),
        (json!(["haiku"]), json!("s"), "read"),
        (json!(["haiku"]), Value::Null, "read"),
        (json!([]), json!("token.maker:x"), "read"),
        (json!(["other"]), json!("token.maker:x"), "read"),
        (json!(["haiku"]), json!("token.maker:x"), "submit"),
    ] {
        let ask = json!({"name": "wider", "may": [may], "sessions": sessions, "agents": agents});
        denied("wider", maker.ask("tokens.new", ask));
    }
    let ask = json!({"name": "within", "may": ["read"], "sessions": "token.maker:x", "agents": ["haiku"]});
    maker.ask("tokens.new", ask).expect("it has all of that");
    for ask in [json!({}), json!({"by": "session"}), json!({"session": "s"})] {
        denied("usage", maker.ask("usage.show", ask));
    }
    maker.ask("usage.show", json!({"session": "token.maker"})).expect("its own");
    daemon.turn("token.maker", "hello");
    let select = json!({"session": "token.maker", "agent": null});
    let directs = new(&daemon, &["directs", "--may", "direct", "--agent", "haiku", "--sessions", "*"]);
    denied("the orchestrator", bearer(&daemon, &directs).ask("session.select", select));
}

#[test]
fn a_token_for_some_agents_leads_to_those_alone() {
    let (server, daemon) = daemon();
    let token = new(&daemon, &["poet", "--may", "read,submit,direct", "--agent", "haiku"]);
    let mut poet = bearer(&daemon, &token);
    let agents = poet.ask("agents.list", json!({})).expect("it may read");
    assert_eq!(agents.as_array().map(Vec::len), Some(1), "{agents}");
    denied("another agent", submit(&mut poet, "token.poet", "@other hello").map(Value::from));
    denied("another agent", poet.ask("session.select", json!({"session": "token.poet", "agent": "other"})));
    denied("another agent", poet.ask("agents.show", json!({"id": "other"})));
    // The operator gave the session to another agent: whom the bearer reaches does not change.
    let select = json!({"session": "token.poet", "agent": "other"});
    daemon.client().ask("session.select", select).expect("the operator chooses");
    for text in ["hello", "@haiku hello"] {
        let turn = submit(&mut poet, "token.poet", text).expect("its agent");
        let ended = poet.ask("turn.wait", json!({"turn": turn})).expect("its turn");
        assert_eq!(ended["invocations"][0]["agent"], "haiku", "{text}: {ended}");
    }
    // Paths of the machine are the operator's, whatever else somebody may do with extensions.
    let extend = new(&daemon, &["extend", "--may", "extend,inspect"]);
    for method in ["extensions.check", "extensions.add", "extensions.scaffold"] {
        let path = json!({"path": daemon.path().join("extensions/haiku"), "id": "made"});
        denied(method, bearer(&daemon, &extend).ask(method, path));
    }
    let two = new(&daemon, &["two", "--agent", "haiku", "--agent", "other", "--sessions", "*"]);
    let refused = submit(&mut bearer(&daemon, &two), "s", "hello").expect_err("it names none");
    assert!(refused.contains("names no agent") && refused.contains("`other`"), "{refused}");
    drop(server);
}

#[test]
fn a_token_holds_over_a_restart_and_ends_with_all_its_connections_when_it_is_revoked() {
    let (_server, daemon) = daemon();
    let token = new(&daemon, &["ci", "--may", "read", "--sessions", "*"]);
    assert!(!daemon.log().contains(&token), "{}", daemon.log());
    daemon.kill_kernel();
    let mut ci = bearer(&daemon, &token);
    daemon.turn("s", "hello");
    let id = ci.send("events.subscribe", json!({"session": "s", "follow": true})).expect("it is sent");
    assert_eq!(ci.reply().expect("an event")["id"], id);
    // As many requests as a connection may have, and more that wait.
    for _ in 0..80 {
        ci.send("events.subscribe", json!({"session": "s", "follow": true})).expect("it is sent");
    }
    let list = daemon.drupe(&["token", "list"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(
        list.contains("ci") && list.contains("may read in all sessions") && !list.contains(&token),
        "{list}"
    );
    let again = daemon.drupe(&["token", "new", "ci"]);
    assert!(!again.status.success(), "{again:?}");
    assert!(daemon.drupe(&["token", "revoke", "ci"]).status.success());
    assert!(until("it ends", || ci.reply().err()).is_some());
    let home = Home::new(daemon.path()).expect("a home");
    let refused = Client::with_token(&home, &token).err().expect("nobody has it");
    assert!(refused.contains("denied"), "{refused}");
    assert!(!daemon.drupe(&["token", "revoke", "ci"]).status.success());
    // Sessions and turns go by the name, so no other bearer is given it, by this kernel or the next one.
    for _ in 0..2 {
        let again = daemon.drupe(&["token", "new", "ci"]);
        assert!(crate::harness::text(&again.stderr).contains("one that is revoked"), "{again:?}");
        assert!(daemon.client().ask("tokens.list", json!({})).is_ok_and(|list| list == json!([])));
        daemon.kill_kernel();
    }
    // Nothing that is written down lets anybody in.
    let journal = std::fs::read(daemon.path().join("journal.db")).expect("a journal");
    assert!(!journal.windows(token.len()).any(|part| part == token.as_bytes()));
}

#[test]
fn an_extension_that_asks_for_the_bearer_of_a_token_does_what_both_may() {
    let (_server, daemon) = daemon();
    daemon.turn("mine", "hello");
    let reader = new(&daemon, &["reader", "--may", "read", "--sessions", "mine"]);
    let root = new(&daemon, &["root", "--may", "read,inspect,operate", "--sessions", "*"]);
    let ask = |token: Option<&str>, method: &str, params: Value| {
        let call = json!({"method": method, "params": params, "bearer": token});
        daemon.turn("s", &format!("torture_control {call}"))["content"].to_string()
    };
    for (token, method, params, good) in [
        (Some(&*reader), "sessions.show", json!({"id": "mine"}), true),
        (Some(&reader), "sessions.show", json!({"id": "s"}), false),
        (Some(&reader), "extensions.list", json!({}), false),
        (None, "extensions.list", json!({}), true),
        (Some(&root), "extensions.list", json!({}), true),
        // The token may, the extension may not.
        (Some(&root), "tokens.list", json!({}), false),
        (Some(&root), "stop", json!({}), false),
        (Some("drupe_unknown"), "sessions.list", json!({}), false),
        (Some(""), "sessions.list", json!({}), false),
    ] {
        let said = ask(token, method, params.clone());
        let refused =
            ["may not use", "does not reach", "nobody was given"].iter().any(|why| said.contains(why));
        assert_eq!(refused, !good, "{method} {params}: {said}");
    }
}

#[test]
fn what_an_extension_hands_in_for_somebody_is_a_link_of_the_chain_that_it_works_on() {
    let (_server, daemon) = daemon();
    let token = new(&daemon, &["talker", "--may", "read,submit", "--sessions", "*"]);
    let send = |session: &str, text: &str| {
        let params = json!({"session": session, "external_id": "1", "text": text});
        format!("torture_control {}", json!({"method": "turn.submit", "params": params, "bearer": token}))
    };
    let turn = daemon.turn("s", &send("near", &send("far", "hello")));
    assert_eq!(turn["status"], "success", "{turn}");
    let ended = || {
        let near = daemon.client().ask("sessions.show", json!({"id": "near"})).ok()?;
        near["turns"].as_array()?.iter().find(|turn| !turn["status"].is_null()).cloned()
    };
    let near = until("it ends", ended).unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(near.to_string().contains("already working on this"), "{near:#}");
    assert!(daemon.client().ask("sessions.show", json!({"id": "far"})).is_err());
}

#[test]
fn the_right_to_pass_on_what_an_operator_may_gives_an_extension_nothing_by_itself() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("torture", "torture", "rights: [control, operate]\n");
    daemon.run();
    let all = new(&daemon, &["all", "--may", "operate", "--sessions", "*"]);
    let ask = |bearer: Value| {
        let call = json!({"method": "tokens.list", "params": {}, "bearer": bearer});
        daemon.turn("s", &format!("torture_control {call}"))["content"].to_string()
    };
    let (own, passed) = (ask(Value::Null), ask(json!(all)));
    assert!(own.contains("may not use `tokens.list`"), "{own}");
    assert!(passed.contains("created"), "{passed}");
}

#[test]
fn what_is_used_in_the_sessions_of_a_token_is_bounded_for_all_and_for_each_name_behind_it() {
    let (_server, daemon) = daemon();
    let shop = new(&daemon, &["shop", "--per-day", "4runs", "--per-day-each", "2runs,1usd"]);
    let list = daemon.says(&["token", "list"]);
    let bounds = "at most 4 runs a day, at most $1, 2 runs a day for each name behind it";
    assert!(list.contains(bounds), "{list}");
    let ended = |name: &str, session: &str| {
        let mut client = bearer(&daemon, &format!("{shop}{name}"));
        let turn = submit(&mut client, session, "hello").expect("its own session");
        client.ask("turn.wait", json!({"turn": turn})).expect("its own turn")
    };
    for session in ["token.shop:ann:1", "token.shop:ann:2"] {
        assert_eq!(ended("/ann", session)["status"], "success");
    }
    // A crash gives nothing back, and neither do other sessions, nor the operator's asking in them.
    daemon.kill_kernel();
    for refused in [ended("/ann", "token.shop:ann:3"), daemon.turn("token.shop:ann:4", "hello")] {
        assert_eq!((&refused["status"], &refused["class"]), (&json!("error"), &json!("budget")), "{refused}");
        let error = refused["error"].as_str().expect("a reason");
        assert!(error.contains("token `shop/ann`") && error.contains("2 of 2 runs"), "{error}");
    }
    for name in ["/bob", ""] {
        assert_eq!(ended(name, "token.shop:bob")["status"], "success");
    }
    let refused = ended("/cid", "token.shop:cid");
    assert!(refused["error"].as_str().is_some_and(|why| why.contains("token `shop`'s budget")), "{refused}");
    assert_eq!(daemon.turn("s", "hello")["status"], "success", "others have their own");
    let all = daemon.drupe(&["token", "new", "all", "--sessions", "*", "--per-day", "1usd"]);
    assert!(crate::harness::text(&all.stderr).contains("name those that its bearer is to reach"), "{all:?}");
}

#[test]
fn a_name_behind_a_token_has_sessions_of_its_own_and_decides_nothing() {
    let (_server, daemon) = daemon();
    let token = new(&daemon, &["many", "--may", "read,submit,inspect,operate", "--sessions", "*"]);
    let mut ann = bearer(&daemon, &format!("{token}/ann"));
    let who = ann.ask("whoami", json!({})).expect("it is known");
    assert_eq!(who["name"], "token `many/ann`");
    assert_eq!((&who["sessions"], &who["may"]), (&json!("token.many:ann"), &json!(["read", "submit"])));
    let turn = submit(&mut ann, "token.many:ann:1", "hello").expect("its own session");
    ann.ask("turn.wait", json!({"turn": turn})).expect("its own turn");
    let mut bob = bearer(&daemon, &format!("{token}/bob"));
    assert_eq!(bob.ask("sessions.list", json!({})), Ok(json!([])));
    assert!(bob.ask("turn.wait", json!({"turn": turn})).expect_err("another's").contains("not_found"));
    denied("another's session", submit(&mut bob, "token.many:ann:1", "hello").map(Value::from));
    denied("operate", bob.ask("tokens.list", json!({})));
    // The same id of two of them is two messages.
    for client in [&mut ann, &mut bob] {
        let session = client.ask("whoami", json!({})).expect("it is known")["sessions"].clone();
        let once = json!({"session": session, "external_id": "the same", "text": "hello"});
        assert_eq!(client.ask("turn.submit", once).expect("taken in")["duplicate"], false);
    }
    let home = Home::new(daemon.path()).expect("a home");
    for wrong in ["/", "/a:b", "/a/b", "/a b"] {
        assert!(Client::with_token(&home, &format!("{token}{wrong}")).is_err(), "{wrong}");
    }
    assert!(daemon.drupe(&["token", "revoke", "many"]).status.success());
    assert!(until("it ends", || bob.ask("whoami", json!({})).err()).is_some());
}
