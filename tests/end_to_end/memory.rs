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

#[test]
fn what_is_found_by_meaning_is_charged_to_the_turn_that_asks() {
    let model = ModelServer::obedient();
    let more =
        "approvals: {preauthorized: all}\norchestrator: {limits: {max_tokens_per_invocation: 10000000}}\n";
    let mut daemon = Daemon::home(&(model.config_with_vectors() + more));
    for (id, rights) in [("with", "rights: [embed]\n"), ("without", "")] {
        daemon.plugin(id, "faulty", &format!("config: {{prefix: {id}}}\n{rights}"));
    }
    daemon.run();
    let scene = Scene { model, daemon };
    for text in ["Rex is a terrier.", "Tea is at four.", "The cello is in the hall.", "Ida was born in May."]
    {
        scene.says("one", &Scene::save(text));
    }
    // The fact and the question share no word.
    scene.says("two", "how old is the puppy");
    assert!(scene.sent().contains("Rex is a terrier."), "{}", scene.sent());
    scene.says("three", "and now a poem about autumn");
    assert!(!scene.sent().contains("Kept in earlier"), "nothing stands out: {}", scene.sent());
    let asked = |scene: &Scene| {
        let requests = scene.model.requests().into_iter();
        requests.filter_map(|request| Some(request["input"].as_array()?.len() as u64)).collect::<Vec<_>>()
    };
    let before: Vec<u64> = asked(&scene);
    assert!(before.contains(&1) && before.iter().sum::<u64>() >= 4, "each fact is sent once: {before:?}");
    let found = scene.says("four", r#"memory_search {"query": "dog"}"#);
    assert!(found.contains("Rex"), "{found}");

    let by_model = scene.daemon.client().ask("usage.show", json!({"by": "model"})).expect("rows");
    let row = |rows: &Value| {
        let row = rows.as_array()?.iter().find(|row| row["key"] == "local/vectors")?;
        Some((row["calls"].as_u64()?, row["usage"]["input_tokens"].as_u64()?, row["cost_usd"].as_f64()?))
    };
    let (calls, tokens, cost) = row(&by_model).unwrap_or_else(|| panic!("{by_model}"));
    let asked_now = asked(&scene);
    assert_eq!((calls, tokens), (asked_now.len() as u64, asked_now.iter().sum()), "{by_model}");
    assert!((cost - tokens as f64 / 1000.0).abs() < 1e-9, "{by_model}");
    let turn = scene.daemon.turn("five", r#"memory_search {"query": "vehicle"}"#);
    // Of the message and of the search, a token each, beside two answers.
    assert_eq!(turn["spend"]["usage"]["input_tokens"], 2 * 50 + 2, "{turn}");
    let trace = scene.daemon.says(&["trace", turn["turn"].as_str().expect("a turn")]);
    assert!(trace.contains("local/vectors"), "{trace}");

    let said = scene.says("six", r#"with_embed {"texts": ["a dog", "tea"]}"#);
    assert_eq!(said, "2 of 4 numbers", "{}", scene.daemon.log());
    let refused = scene.says("six", r#"without_embed {"texts": ["a dog"]}"#);
    assert!(refused.contains("embed"), "{refused}");
    for (texts, why) in [
        (json!([]), "1 to 64 texts"),
        (json!(vec!["x"; 65]), "1 to 64 texts"),
        (json!(["x".repeat(300_000)]), "262144 bytes"),
        (json!(["x", " "]), "an empty text has no vector"),
    ] {
        let said = scene.says("six", &format!("with_embed {}", json!({"texts": texts})));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn what_a_limit_has_no_room_for_is_found_by_words_alone() {
    let model = ModelServer::obedient();
    let limits = "approvals: {preauthorized: all}\norchestrator: {limits: {max_cost_usd: 0.0005}}\n";
    let profiles = "    local/test: {input_usd: 0, output_usd: 0}\n";
    let config = model.config()
        + "  embedding: local/vectors\n  profiles:\n    local/vectors: {input_usd: 1000}\n"
        + profiles
        + limits;
    let mut daemon = Daemon::home(&config);
    daemon.run();
    let scene = Scene { model, daemon };
    scene.says("one", &Scene::save("Rex is a terrier."));
    let found = scene.says("two", r#"memory_search {"query": "terrier"}"#);
    assert!(found.contains("Rex"), "{found}");
    assert!(
        scene.model.requests().iter().all(|request| request["input"].is_null()),
        "the model was not asked"
    );
}
