//! A model whose answers wait until a test lets them go, so that a test sees what is shown meanwhile.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use crate::harness::{
    PATIENCE,
    model_server::{ModelServer, Say, latest},
    wire::Wire,
};

/// How many answers may still be given of those that wait.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<usize>, Condvar)>);

impl Gate {
    /// Lets the next answer that waits, or that comes to wait, go.
    pub fn open(&self) {
        *self.0.0.lock().expect("no test panics while it holds this") += 1;
        self.0.1.notify_all();
    }

    /// Waits for that.
    pub fn pass(&self) {
        let held = self.0.0.lock().expect("no test panics while it holds this");
        let waited = self.0.1.wait_timeout_while(held, PATIENCE, |open| *open == 0);
        let mut held = waited.expect("no test panics while it holds this").0;
        *held = held.saturating_sub(1);
    }
}

/// What the user or the calling agent asks for at last, and whether it is that and no result of a tool.
pub fn task(request: &Value) -> (bool, String) {
    let (role, text) = latest(request);
    let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned();
    (role == "user", task)
}

/// A model that does as it is told, a line each: `CALL name {…}` calls a tool, all of them at once; `SAY text` is the answer once they
/// came back, or at once. `\n` in a text is a line break. `WAIT` has the answer wait at the gate, `STALL text` begins one that
/// never ends, and `FAIL` is a model that is ill the first time that it is asked this.
pub fn staged(gate: &Gate) -> ModelServer {
    let (gate, failed) = (gate.clone(), Mutex::new(Vec::new()));
    ModelServer::start(move |request| {
        let (asked, latest) = task(request);
        let script = if asked { latest } else { script(request) };
        let of = |word: &str| script.lines().filter_map(|line| line.strip_prefix(word)).collect::<Vec<_>>();
        let broken = |text: &str| text.replace("\\n", "\n");
        if asked && script.lines().any(|line| line == "FAIL") {
            let mut failed = failed.lock().expect("no test panics while it holds this");
            if !failed.contains(&script) {
                failed.push(script);
                return Say::Fail(Wire::Status(503, "overloaded"));
            }
        }
        if asked && script.lines().any(|line| line == "WAIT") {
            gate.pass();
        }
        let calls: Vec<(String, Value)> = of("CALL ")
            .iter()
            .filter_map(|call| {
                let (name, parameters) = call.split_once(' ')?;
                Some((name.to_owned(), serde_json::from_str(parameters).ok()?))
            })
            .collect();
        match (asked && !calls.is_empty(), of("STALL ").into_iter().next()) {
            (true, _) => Say::Call(calls),
            (false, Some(text)) => Say::Fail(Wire::Stall(broken(text).leak())),
            (false, None) => Say::Text(broken(&of("SAY ").join("\n"))),
        }
    })
}

/// The message that a request goes on from.
fn script(request: &Value) -> String {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let user = messages.iter().rev().find(|message| message["role"] == "user");
    let text = user.and_then(|message| message["content"].as_str()).unwrap_or_default();
    text.rsplit_once("\n\nTask:\n").map_or(text, |(_, task)| task).to_owned()
}
