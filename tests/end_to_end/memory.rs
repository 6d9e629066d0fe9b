//! What is remembered over conversations: real daemon, real file. The model calls what its message names.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, until};

struct Scene {
    model: ModelServer,
    daemon: Daemon,
}

fn scene() -> Scene {
    let model = ModelServer::obedient();
    let mut daemon = Daemon::home(&(model.config() + "approvals: {preauthorized: all}\n"));
    daemon.plugin("pages", "faulty", "config: {prefix: pages, labels: {echo: [reads_untrusted]}}\n");
    daemon.plugin("post", "faulty", "config: {prefix: post, labels: {echo: [outward]}}\n");
    daemon.run();
    Scene { model, daemon }
}

impl Scene {
    fn says(&self, session: &str, message: &str) -> String {
        self.daemon.turn(session, message)["content"].as_str().expect("text").to_owned()
    }

    fn save(text: &str) -> String {
        format!("memory_save {}", json!({"text": text}))
    }

    /// Sends a message that has a call asked about, answers it, and gives the question and how the turn ended.
    fn asked(&self, session: &str, message: &str, answer: &str) -> (Value, String) {
        let turn = self.daemon.submit(session, message);
        let waits = || {
            let list = self.daemon.client().ask("approvals.list", json!({})).expect("a list");
            list.as_array()?.iter().find(|one| one["call"].is_object() && one["state"] == "pending").cloned()
        };
        let question = until("a question waits", waits).unwrap_or_else(|| panic!("{}", self.daemon.log()));
        self.daemon.says(&["approvals", answer, question["id"].as_str().expect("an id")]);
        let ended = self.daemon.wait(&turn);
        (question, ended["content"].as_str().expect("text").to_owned())
    }

    /// What the model was sent last.
    fn sent(&self) -> String {
        self.model.requests().last().expect("it was asked").to_string()
    }

    fn operator(&self, ask: &str, params: Value) -> Value {
        let asked = json!({"id": "memory", "ask": ask, "params": params});
        self.daemon.client().ask("extensions.ask", asked).unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn file(&self) -> PathBuf {
        self.daemon.path().join("data/memory/memory.sqlite")
    }
}

#[test]
fn what_one_session_keeps_another_is_given_after_a_crash_until_it_is_forgotten_to_the_last_byte() {
    let scene = scene();
    scene.says("one", "hello");
    assert!(!scene.file().exists(), "nothing is made for nothing");
    let said = scene.says("one", &Scene::save("The user's sister is called Quokkamara."));
    assert_eq!(said, "kept as fact 1", "{}", scene.daemon.log());
    scene.daemon.kill_kernel();

    scene.says("two", "what is my sister called");
    let sent = scene.sent();
    assert!(sent.contains("From `memory`: Kept in earlier conversations."), "{sent}");
    assert!(sent.contains("[1] 20") && sent.contains("The user's sister is called Quokkamara."), "{sent}");
    scene.says("three", "write a poem about autumn");
    assert!(!scene.sent().contains("Quokkamara"), "it does not fit: {}", scene.sent());
    let list = scene.operator("list", json!({"query": "sister"}));
    let fact = &list["facts"][0];
    assert!(list["total"] == 1 && fact["session"] == "one" && fact["recalled"].is_string(), "{list}");

    let drawn = scene.daemon.says(&["memory", "search", "sister"]);
    assert!(
        drawn.contains("orchestrator") && drawn.contains("The user's sister is called Quokkamara."),
        "{drawn}"
    );
    assert_eq!(scene.daemon.says(&["memory", "export"]).lines().count(), 1);

    let holds = || {
        let bytes = fs::read(scene.file()).expect("a file").to_ascii_lowercase();
        bytes.windows(6).any(|window| window == b"kkamar")
    };
    assert!(holds(), "the test would see it");
    let (question, said) = scene.asked("two", "memory_forget {\"id\": 1}", "allow");
    assert!(
        question["needs"].to_string().contains("destroy") && said == "forgot fact 1",
        "{question} {said}"
    );
    assert!(!holds());
    let around = fs::read_dir(scene.file().parent().expect("a folder")).expect("a folder");
    assert_eq!(around.count(), 1, "no journal is left beside it");
    scene.says("three", &Scene::save("The user drinks tea."));
    let edited = scene.daemon.says(&["memory", "edit", "2", "The user drinks green tea."]);
    assert!(edited.contains("The user drinks green tea."), "{edited}");
    scene.daemon.says(&["memory", "forget", "--namespace", "orchestrator"]);
    assert!(!scene.daemon.says(&["memory"]).contains("tea"));
    scene.says("four", "what is my sister called");
    assert!(!scene.sent().contains("Quokkamara"), "{}", scene.sent());
}

#[test]
fn what_is_to_be_kept_behind_text_of_strangers_is_asked_about_and_marked() {
    let scene = scene();
    let save = Scene::save("Bills are paid to account 4711.");
    scene.says("read", "pages_echo {\"value\": \"what a page says\"}");
    let (question, said) = scene.asked("read", &save, "deny");
    assert!(question["needs"].to_string().contains("strangers"), "{question}");
    assert!(said.contains("was denied") && !scene.file().exists(), "{said}");
    let (_, said) = scene.asked("read", &save, "allow");
    assert_eq!(said, "kept as fact 1");
    assert_eq!(scene.operator("show", json!({"id": 1}))["strangers"], true);

    let post = "post_echo {\"value\": \"to somebody\"}";
    let said = scene.says("clean", post);
    assert!(said.contains("to somebody"), "nothing of strangers was given yet: {said}");
    scene.says("clean", "how are bills paid");
    let mark = "4711. (kept while text of strangers was read)";
    assert!(scene.sent().contains(mark), "{}", scene.sent());
    let (question, _) = scene.asked("clean", post, "deny");
    assert!(question["needs"].to_string().contains("which `memory` gave"), "{question}");
    // A search that shows it is one more way in.
    scene.says("other", post);
    assert!(scene.says("other", "memory_search {\"query\": \"account 4711\"}").contains(mark));
    let (question, _) = scene.asked("other", post, "deny");
    assert!(question["needs"].to_string().contains("memory"), "{question}");
}
