//! What the control socket answers, and the events that it sends.
//!
//! The listening socket belongs to the supervisor and outlives this process.

use std::{os::unix::net::UnixListener, sync::Arc};

use drupe_extension_api::{Fault, FaultCode, control::method};
use drupe_handles::{Credit, Given};
use drupe_link::ControlToken;
use drupe_surface::{
    door::{Answer, Door},
    grants::Grant,
    lines::{Reply, ReplyBody, Request},
    principal::Principal,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::{methods, streams};
use crate::kernel::Kernel;

/// What is taken from a stream at once, on its way to the replies of a connection, which have a bound of their own.
const CREDIT: Credit = Credit { items: 32, bytes: 64 * 1024 };

/// Serves the control socket until the kernel ends.
pub async fn serve(kernel: Arc<Kernel>, listener: UnixListener, token: ControlToken) -> std::io::Result<()> {
    let (closing, tasks) = (kernel.life.closing.clone(), kernel.life.tasks.clone());
    let supervisor_pid = kernel.base.start.supervisor_pid;
    let operator = Grant::new(Principal::operator());
    let answer = Methods { kernel, token, operator };
    Door { answer, supervisor_pid, closing, tasks }.serve(listener).await
}

/// The kernel, to whoever shows a token.
#[derive(Clone)]
struct Methods {
    kernel: Arc<Kernel>,
    /// That of the home, and what its bearer has.
    token: ControlToken,
    operator: Arc<Grant>,
}

impl Answer for Methods {
    fn admit(&self, token: &str) -> Option<Arc<Grant>> {
        match self.token.matches(token) {
            true => Some(Arc::clone(&self.operator)),
            false => self.kernel.grants.admit(token),
        }
    }

    async fn answer(
        &self,
        by: &Principal,
        request: &Request,
        replies: &mpsc::Sender<Reply>,
    ) -> Result<Box<RawValue>, Fault> {
        if !method::STREAMING.contains(&request.method.as_str()) {
            return methods::call(&self.kernel, by, &request.method, request.params()).await;
        }
        let mut stream = streams::open(&self.kernel, by, &request.method, request.params())?;
        loop {
            let given = stream.next(CREDIT).await?;
            if given.is_end() {
                return Ok(RawValue::NULL.to_owned());
            }
            let Given::Items(items) = given else {
                return Err(Fault::internal("a stream of bytes has no form on the control socket"));
            };
            for item in items {
                let reply = Reply { id: request.id, body: ReplyBody::Item(item) };
                let gone = |_| Fault::new(FaultCode::Cancelled, "the client is gone");
                replies.send(reply).await.map_err(gone)?;
            }
        }
    }
}
