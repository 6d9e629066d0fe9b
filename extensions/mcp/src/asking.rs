//! What a server asks a person in the middle of a call: it becomes a question of that call's conversation, which says who asks. The
//! call's time begins anew when it is answered.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{content::cut, definition::shown};

/// Bytes of what a server says to a person.
const MESSAGE: usize = 3_000;

/// What is asked where a server asks for nothing else.
const GO_ON: &str = "go_on";

/// The calls that go on over one connection, and how many questions of the server wait.
#[derive(Default)]
pub struct Asking {
    state: Mutex<State>,
    /// A question was asked, or answered.
    changed: Notify,
}

#[derive(Default)]
struct State {
    calls: Vec<(u64, Call)>,
    begun: u64,
    open: usize,
}

/// While this lives, the server may ask on behalf of the call.
pub struct During {
    asking: Arc<Asking>,
    nth: u64,
}

impl Drop for During {
    fn drop(&mut self) {
        self.asking.state().calls.retain(|(nth, _)| *nth != self.nth);
    }
}

struct Open<'a>(&'a Asking);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
        self.0.changed.notify_waiters();
    }
}

impl Asking {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of the server goes on.
    pub fn during(self: &Arc<Self>, call: &Call) -> During {
        let mut state = self.state();
        state.begun += 1;
        let nth = state.begun;
        state.calls.push((nth, call.clone()));
        During { asking: Arc::clone(self), nth }
    }

    /// The call on whose behalf a server asks: it does not say. Where calls of several conversations go on, nobody can know whom
    /// it means, and nobody is told what is another's.
    fn call(&self) -> Option<Call> {
        let state = self.state();
        let (_, last) = state.calls.last()?;
        state.calls.iter().all(|(_, call)| call.session == last.session).then(|| last.clone())
    }

    /// Asks whoever is there, and tells what they said.
    pub async fn ask(&self, server: &str, asked: ElicitRequestParams) -> ElicitResult {
        let cancel = ElicitResult::new(ElicitationAction::Cancel);
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = asked else {
            // We never said that it could send people to an address.
            return cancel;
        };
        let (Some(call), Ok(schema)) = (self.call(), serde_json::to_value(&requested_schema)) else {
            return cancel;
        };
        self.state().open += 1;
        let _open = Open(self);
        self.changed.notify_waiters();
        let message = cut(shown(&message), MESSAGE);
        let message = format!("The MCP server `{server}` asks, and gets what you fill in: {message}");
        let (schema, is_bare) = form(schema);
        let decline = ElicitResult::new(ElicitationAction::Decline);
        match call.request_input(&message, &schema).await {
            Ok(values) if is_bare && values.get(GO_ON) != Some(&Value::Bool(true)) => decline,
            Ok(values) => {
                let content = if is_bare { json!({}) } else { Value::Object(values) };
                ElicitResult::new(ElicitationAction::Accept).with_content(content)
            }
            Err(fault) if fault.code == FaultCode::Denied => decline,
            Err(_) => cancel,
        }
    }

    /// Ends when no question waits, or when one does.
    pub async fn until(&self, waits: bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look, so that a change after it is heard.
            changed.as_mut().enable();
            if (self.state().open > 0) == waits {
                return;
            }
            changed.await;
        }
    }
}

/// The form that a person is shown, and whether the server asks for nothing but whether to go on.
fn form(schema: Value) -> (Value, bool) {
    match schema["properties"].as_object() {
        Some(properties) if !properties.is_empty() => (schema, false),
        _ => {
            let whether = json!({GO_ON: {"type": "boolean", "title": "Go on?", "default": true}});
            (json!({"type": "object", "properties": whether}), true)
        }
    }
}
