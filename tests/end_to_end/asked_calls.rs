//! Calls of tools that need approval: the question is there for whoever can answer, over the death of the kernel.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

/// A daemon whose model calls two tools that must not run twice, the first of which needs approval, and then repeats what
/// they gave.
struct Scene {
    server: ModelServer,
    daemon: Daemon,
}

fn scene() -> Scene {
    scene_with("")
}

fn scene_with(settings: &str) -> Scene {
    let effects = std::env::temp_dir().join(format!("asked-{}", crate::harness::unique()));
    fs::create_dir_all(&effects).expect("a folder");
    let to = |name: &str, nonce: &str| {
        (format!("{name}_effect_append"), json!({"path": effects.join(name), "nonce": nonce}))
    };
    let calls = vec![to("careful", "a\u{202e}b"), to("plain", "c")];
    let server = ModelServer::start(move |request| match latest(request).0.as_str() {
        "tool" => Say::Text(answers(request)),
        _ => Say::Call(calls.clone()),
    });
    let mut daemon = Daemon::home(&(server.config() + settings));
    daemon.write("effects", effects.to_str().expect("a path"));
    daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
    daemon.plugin("plain", "faulty", "config: {prefix: plain}\n");
    daemon.run();
    Scene { server, daemon }
}

/// What the tools gave, by a request.
fn answers(request: &Value) -> String {
    let messages = request["messages"].as_array().expect("messages").iter();
    let results = messages.filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str());
    results.collect::<Vec<_>>().join(" and ")
}

impl Scene {
    /// Lines that a tool has appended.
    fn ran(&self, name: &str) -> usize {
        let folder = fs::read_to_string(self.daemon.path().join("effects")).expect("it is noted");
        fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default().lines().count()
    }

    fn questions(&self) -> Vec<Value> {
        let list = self.daemon.client().ask("approvals.list", json!({})).expect("a list");
        list.as_array().expect("a list").iter().filter(|one| one["call"].is_object()).cloned().collect()
    }

    /// Waits until the question is there and the tool beside it has ended; the question.
    fn waits(&self) -> Value {
        let asked = || {
            let ended = |e: &&Value| {
                e["kind"] == "interaction.item.completed"
                    && e["data"]["item"]["name"] == "plain_effect_append"
            };
            self.daemon.events("s").iter().find(ended)?;
            self.questions().into_iter().find(|one| one["state"] == "pending")
        };
        until("a question waits", asked).unwrap_or_else(|| panic!("{}", self.daemon.log()))
    }

    /// What was told of questions.
    fn told(&self) -> Vec<String> {
        let events = self.daemon.events("s");
        let of = events.iter().filter(|e| e["kind"].as_str().is_some_and(|k| k.contains(".approval.")));
        of.map(|e| e["data"]["state"].as_str().unwrap_or("requested").to_owned()).collect()
    }
}

#[test]
fn a_question_outlives_the_kernel_and_its_answer_lets_the_call_run_once() {
    let scene = scene();
    let turn = scene.daemon.submit("s", "go");
    let before = scene.waits();
    assert_eq!((scene.ran("careful"), scene.ran("plain")), (0, 1), "the neighbour has ended");
    scene.daemon.kill_kernel();
    let again = scene.waits();
    assert_eq!(again["id"], before["id"]);
    let id = again["id"].as_str().expect("an id");
    let shown = scene.daemon.says(&["approvals"]);
    for part in
        [id, "waits", "careful_effect_append", r#""nonce": "a\u202eb""#, "orchestrator", "session `s`"]
    {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let why = scene.daemon.says(&["why", &turn]);
    assert!(why.contains("`careful_effect_append` has waited for approval") && why.contains(id), "{why}");
    // Nor does an orderly restart wait for it.
    scene.daemon.client().ask("restart", json!({})).expect("it is agreed");
    scene.daemon.until_status("the third kernel", |s| s["state"] == "ready" && s["generation"] == 3);
    assert!(!scene.daemon.log().contains("did not end in time"), "{}", scene.daemon.log());
    assert_eq!(scene.waits()["id"], before["id"]);
    // Other sessions and this one's status are served meanwhile; the beginning of the id is enough.
    scene.daemon.says(&["status"]);
    let other = scene.daemon.drupe(&["approvals", "allow", &format!("{id}:0000000000000000")]);
    assert!(crate::harness::text(&other.stderr).contains("waits with other content"), "{other:?}");
    let other = json!({"id": id, "allow": true, "hash": "another"});
    let refused = scene.daemon.client().ask("approvals.answer", other);
    assert!(refused.as_ref().is_err_and(|error| error.contains("is not what was shown")), "{refused:?}");
    let said = scene.daemon.says(&["approvals", "allow", &id[..10]]);
    assert!(said.contains("allowed"), "{said}");
    let ended = scene.daemon.wait(&turn);
    let content = ended["content"].as_str().expect("text");
    assert!(content.contains("appended a\u{202e}b") && content.contains("appended c"), "{ended:#}");
    assert_eq!((scene.ran("careful"), scene.ran("plain")), (1, 1));
    assert_eq!(scene.server.requests().len(), 2, "the model was asked once for each step");
    assert_eq!(scene.told(), ["requested", "requested", "requested", "allowed"], "by each kernel once");
    let second = scene.daemon.drupe(&["approvals", "deny", id]);
    assert!(crate::harness::text(&second.stderr).contains("`allowed` already"), "{second:?}");
    let trace = scene.daemon.says(&["trace", "s"]);
    assert!(trace.contains("approval_requested") && trace.contains("is allowed by operator"), "{trace}");
    let why = scene.daemon.says(&["why", id]);
    assert!(why.contains("was allowed by operator"), "{why}");
}

#[test]
fn a_turn_that_waits_for_a_person_leaves_its_place_to_others() {
    let scene = scene_with("limits: {concurrency: {turns: 1}}\n");
    let first = scene.daemon.submit("s", "go");
    scene.waits();
    let second = scene.daemon.submit("other", "go");
    let both = || {
        let ids: Vec<_> = scene.questions().iter().map(|one| one["id"].clone()).collect();
        (ids.len() == 2).then_some(ids)
    };
    let ids = until("two questions wait", both).unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    for id in ids {
        scene.daemon.says(&["approvals", "allow", id.as_str().expect("an id")]);
    }
    for turn in [first, second] {
        assert_eq!(scene.daemon.wait(&turn)["status"], "success");
    }
    assert_eq!((scene.ran("careful"), scene.ran("plain")), (2, 2));
}

#[test]
fn what_is_denied_does_not_run_and_what_is_stopped_is_not_asked_any_more() {
    let scene = scene();
    let turn = scene.daemon.submit("s", "go");
    let id = scene.waits()["id"].as_str().expect("an id").to_owned();
    scene.daemon.says(&["approvals", "deny", &id]);
    let ended = scene.daemon.wait(&turn);
    assert!(ended["content"].as_str().is_some_and(|c| c.contains("was denied by operator")), "{ended:#}");
    let next = scene.daemon.submit("s", "go");
    let id = scene.waits()["id"].clone();
    scene.daemon.client().ask("turn.stop", json!({"turn": next})).expect("it is stopped");
    assert_eq!(scene.daemon.wait(&next)["class"], "cancelled");
    let of = |id: &Value| scene.questions().into_iter().find(|one| one["id"] == *id).expect("it is kept");
    assert_eq!(of(&id)["state"], "withdrawn");
    let late = scene.daemon.client().ask("approvals.answer", json!({"id": id, "allow": true}));
    assert!(late.as_ref().is_err_and(|error| error.contains("`withdrawn` already")), "{late:?}");
    // One that is stopped while no kernel is there to hear of it.
    let last = scene.daemon.submit("s", "go");
    let id = scene.waits()["id"].clone();
    scene.daemon.client().ask("turn.stop", json!({"turn": last})).expect("it is recorded");
    scene.daemon.kill_kernel();
    scene.daemon.wait(&last);
    assert_eq!(of(&id)["state"], "withdrawn");
    assert_eq!(scene.ran("careful"), 0);
}
