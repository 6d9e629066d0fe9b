//! What tests of chat services share: what their stand-ins have in common, a model that does what it is told, and a crowd that writes much.

pub mod calls;
pub mod crowd;
pub mod http;

use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use crate::harness::{
    model_server::{Say, latest},
    unique,
};

/// Repeats what it is told, and calls a tool that asks first where it is told to go.
pub fn obedient(effects: &str) -> impl Fn(&Value) -> Say + Send + Sync + 'static + use<> {
    let call = json!({"path": effects, "nonce": "n"});
    move |request| match latest(request) {
        (role, text) if role == "tool" => Say::Text(format!("done: {text}")),
        (_, text) if text == "go" => Say::Call(vec![("careful_effect_append".to_owned(), call.clone())]),
        (_, text) => Say::Text(format!("you said {text}")),
    }
}

/// Calls the tool that a message names, or reads the file that came with it, and says what came of it.
pub fn sending(request: &Value) -> Say {
    let (role, text) = latest(request);
    let called = text.split_once(' ').filter(|(tool, _)| role == "user" && tool.starts_with("files_"));
    let call = called.and_then(|(tool, params)| Some((tool.to_owned(), serde_json::from_str(params).ok()?)));
    let came = text.split('`').find(|part| role == "user" && part.starts_with("inbox/"));
    match (call, came) {
        (Some(call), _) => Say::Call(vec![call]),
        (None, Some(path)) => Say::Call(vec![("files_read".to_owned(), json!({"path": path}))]),
        (None, None) if role == "tool" => Say::Text(format!("done: {text}")),
        (None, None) => Say::Text(format!("you said {text}")),
    }
}

/// What a day may cost where ten thousand messages are answered.
pub const WIDE_LIMITS: &str = "limits:
  day: {max_tokens: 1000000000, max_invocations: 100000}
  agent: {max_tokens: 1000000000, max_invocations: 100000}
";

/// A file for effects that nobody else writes.
pub fn effects() -> String {
    std::env::temp_dir().join(format!("chat-{}", unique())).display().to_string()
}

/// Holds a model back until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn wait(&self) {
        let open = self.0.0.lock().expect("nobody panics");
        drop(self.0.1.wait_while(open, |open| !*open).expect("nobody panics"));
    }

    pub fn open(&self) {
        *self.0.0.lock().expect("nobody panics") = true;
        self.0.1.notify_all();
    }
}
