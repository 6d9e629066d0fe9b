//! The builder makes extensions in Rust: written, compiled, tested and taken in, or taken back, while the daemon runs.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{
    Client, Daemon,
    model_server::{ModelServer, Say, latest, offered},
};

/// A build of everything that an extension needs, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(900);

// What a build says may come from strangers, so each build behind the first would be asked about.
const CONFIG: &str =
    "approvals: {preauthorized: all, taint: false}\norchestrator: {limits: {time_budget_ms: 1800000}}\n";

/// A tool that shouts; `initialize` is what the case needs.
fn source(initialize: &str, body: &str) -> String {
    format!(
        r#"//! Shouts. Provides tool `ID_shout`; needs nothing.

use drupe_extension_api::prelude::*;

struct Loud;

impl Extension for Loud {{
    async fn initialize(_host: Host) -> Result<Self, Fault> {{
        {initialize}
    }}
}}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shout {{
    /// What is shouted.
    text: String,
}}

impl ToolProvider for Loud {{
    fn tools(&self) -> Vec<Tool<Self>> {{
        vec![Tool::new("ID_shout", "Shouts a text.", Loud::shout).read_only()]
    }}
}}

impl Loud {{
    async fn shout(&self, input: Shout, _call: Call) -> Result<String, Fault> {{
        {body}
    }}
}}

export!(Loud: Tool);
"#
    )
}

/// What the builder's model does, step by step.
fn builds(step: usize) -> Say {
    let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
    let write = |source: String| {
        let content = source.replace("ID", "loud");
        call("builder_write", json!({"id": "loud", "file": "src/lib.rs", "content": content}))
    };
    let id = json!({"id": "loud"});
    let (sound, begins) = ("Ok(input.text.to_uppercase())", "Ok(Loud)");
    match step {
        0 => call("builder_draft_native", id),
        // The first draft does not compile, and the second never gets ready.
        1 => write(source(begins, "Ok(input.text.to_upper())")),
        3 => write(source("std::future::pending().await", sound)),
        6 => write(source(begins, sound)),
        2 | 4 | 7 => call("builder_compile", id),
        5 | 8 => call("builder_activate", id),
        _ => Say::Text("That is all.".into()),
    }
}

/// A model that makes an extension and uses it. It notes whether what never got ready is there when it is to be mended.
fn model(place: &Arc<OnceLock<PathBuf>>, left: &Arc<OnceLock<bool>>) -> ModelServer {
    let (place, left) = (Arc::clone(place), Arc::clone(left));
    ModelServer::start(move |request| {
        let messages = request["messages"].as_array().expect("messages");
        let steps =
            messages.iter().filter(|m| m["role"] == "assistant" && !m["tool_calls"].is_null()).count();
        let (role, text) = latest(request);
        if offered(request).iter().any(|tool| tool == "builder_draft_native") {
            if steps == 6 {
                let _ = left.set(place.get().is_some_and(|place| place.exists()));
            }
            return builds(steps);
        }
        if role == "tool" {
            return Say::Text(text);
        }
        let shout = text.strip_prefix("shout ").map(str::to_owned);
        Say::Call(vec![match shout {
            Some(text) => ("loud_shout".into(), json!({ "text": text })),
            None => ("agent_builder_agent".into(), json!({ "task": text })),
        }])
    })
}

/// A turn that takes minutes.
fn long_turn(daemon: &Daemon, session: &str, text: &str) -> Value {
    let turn = daemon.submit(session, text);
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let asked =
            Client::connect(daemon.path()).and_then(|mut c| c.ask("turn.wait", json!({"turn": turn})));
        if let Ok(ended) = asked {
            println!("{text}: {:.1} s", began.elapsed().as_secs_f64());
            return ended;
        }
    }
    panic!("{text}: no end\n{}", daemon.log());
}

/// What the builder's tools answered in a turn.
fn results(turn: &Value) -> Vec<String> {
    let entries = turn["transcript"].as_array().expect("a transcript");
    let of_builder = entries.iter().filter(|e| e["agent"] == "builder_agent" && e["role"] == "tool");
    of_builder.map(|e| e["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_builder_mends_what_does_not_compile_and_what_never_gets_ready_is_taken_back() {
    let (place, left) = <(Arc<OnceLock<PathBuf>>, Arc<OnceLock<bool>>)>::default();
    let server = model(&place, &left);
    let mut daemon = Daemon::home(&format!("{}{CONFIG}", server.config()));
    // The daemon finds the operator's toolchain by these.
    for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME"] {
        if let Ok(value) = std::env::var(name) {
            daemon.variable(name, &value);
        }
    }
    place.set(daemon.path().join("extensions/loud")).expect("it is set once");
    daemon.run();
    let before = daemon.until_ready();

    let made = long_turn(&daemon, "make", "make an extension called loud that shouts");
    let said = results(&made);
    println!("{said:#?}");
    assert!(said.len() == 9, "{made:#}\n{}", daemon.log());
    assert!(
        said[2].contains("to_upper") && said[2].contains("src/lib.rs"),
        "the compiler's words: {}",
        said[2]
    );
    assert!(said[5].contains("did not finish `initialize`"), "the builder is told why: {said:#?}");
    assert_eq!(left.get(), Some(&false), "what never got ready is taken back");
    assert_eq!(daemon.extension("loud"), ("active".into(), String::new()), "{said:#?}");
    assert_eq!(daemon.turn("use", "shout hello")["content"], "HELLO");
    assert_eq!(daemon.until_ready()["kernel_pid"], before["kernel_pid"], "no restart was needed");
}
