//! What the control socket answers, and the events that it sends.
//!
//! The listening socket belongs to the supervisor and outlives this process.

use std::{os::unix::net::UnixListener, sync::Arc};

use drupe_bus::Watched;
use drupe_extension_api::{
    Event, EventBody, Fault, FaultCode, SessionId,
    control::{EventsSubscribe, Power, method},
};
use drupe_link::ControlToken;
use drupe_surface::{
    door::{Answer, Door},
    grants::Grant,
    lines::{Reply, ReplyBody, Request},
    principal::Principal,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::methods;
use crate::kernel::{Kernel, store_fault};

/// Events that are read from the journal at once.
const PAGE: usize = 256;

/// Serves the control socket until the kernel ends.
pub async fn serve(kernel: Arc<Kernel>, listener: UnixListener, token: ControlToken) -> std::io::Result<()> {
    let (closing, tasks) = (kernel.closing.clone(), kernel.tasks.clone());
    let supervisor_pid = kernel.start.supervisor_pid;
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
        if request.method != method::EVENTS_SUBSCRIBE {
            return methods::call(&self.kernel, by, &request.method, request.params()).await;
        }
        let ask = serde_json::from_str(request.params().get());
        let ask: EventsSubscribe = ask.map_err(|error| Fault::invalid(error.to_string()))?;
        by.needs(Power::Read, method::EVENTS_SUBSCRIBE)?;
        by.reaches(&ask.session)?;
        subscribe(&self.kernel, request.id, ask, replies).await.map(|()| RawValue::NULL.to_owned())
    }
}

/// Sends the kept events after a position, then those that happen. A reader that is too slow for live ones reads the
/// kept ones again, and so misses deltas only.
async fn subscribe(
    kernel: &Arc<Kernel>,
    id: u64,
    ask: EventsSubscribe,
    replies: &mpsc::Sender<Reply>,
) -> Result<(), Fault> {
    let mut live = kernel.bus.watch(&ask.session);
    let mut after = ask.after;
    let gone = |_| Fault::new(FaultCode::Cancelled, "the client is gone");
    let send = async |event: Arc<Event>| {
        let body = ReplyBody::Event(event);
        replies.send(Reply { id, body }).await.map_err(gone)
    };
    'kept: loop {
        loop {
            let page = kernel.store.events_after(&ask.session, after, PAGE).await.map_err(store_fault)?;
            let whole = page.len() < PAGE;
            for event in page {
                after = event.seq;
                send(Arc::new(event)).await?;
            }
            if whole {
                break;
            }
        }
        if !ask.follow {
            return Ok(());
        }
        loop {
            match live.recv().await {
                Watched::Event(event) if event.seq == 0 => send(event).await?,
                Watched::Event(event) if event.seq > after => {
                    after = event.seq;
                    send(event).await?;
                }
                Watched::Event(_) => {}
                Watched::Skipped => {
                    send(Arc::new(skipped(kernel, &ask.session))).await?;
                    continue 'kept;
                }
            }
        }
    }
}

/// Tells a reader that it was too slow for what is not kept.
fn skipped(kernel: &Kernel, session: &SessionId) -> Event {
    let time = jiff::Timestamp::from_millisecond(kernel.clock.now_ms()).unwrap_or_default();
    let session = session.clone();
    Event {
        seq: 0,
        time,
        session,
        turn: None,
        correlation_id: None,
        agent: None,
        body: EventBody::StreamSkipped,
    }
}
