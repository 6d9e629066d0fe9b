//! The requests of one client that are not answered yet.
//!
//! The library lets go of a request as soon as its client takes it back, while what serves it goes on. So that nobody has more
//! served than is bounded here, requests are taken back here and not by the library: what serves one is told to stop, and the
//! request counts until that has ended and its answer, which nobody wants any more, is thrown away in place of being written.

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rmcp::{
    ErrorData, RoleServer, Service,
    model::{ClientNotification, ClientRequest, ProtocolVersion, RequestId, ServerConfig, ServerResult},
    service::{NotificationContext, RequestContext},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Requests of one client that are not answered yet.
pub const UNANSWERED: usize = 64;

pub struct Requests {
    open: Mutex<HashMap<RequestId, Asked>>,
    /// When the client said something last.
    said: Mutex<Instant>,
}

#[derive(Default)]
struct Asked {
    is_taken_back: bool,
    /// Stops what serves it, once something does.
    stop: Option<CancellationToken>,
}

impl Requests {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), said: Mutex::new(Instant::now()) })
    }

    /// The client said something.
    pub fn heard(&self) {
        *self.said.lock() = Instant::now();
    }

    /// Whether the client has said nothing for so long, and waits for nothing.
    pub fn is_idle(&self, long: Duration) -> bool {
        self.open.lock().is_empty() && self.said.lock().elapsed() >= long
    }

    pub fn begin(&self, id: &RequestId) -> Result<(), ErrorData> {
        let mut open = self.open.lock();
        if open.len() >= UNANSWERED {
            let why = format!("{UNANSWERED} requests are not answered yet; wait for one of them");
            return Err(ErrorData::internal_error(why, None));
        }
        if open.contains_key(id) {
            return Err(ErrorData::invalid_request("a request with this id is not answered yet", None));
        }
        open.insert(id.clone(), Asked::default());
        Ok(())
    }

    /// The client does not want the answer any more. One that is there already is thrown away.
    pub fn take_back(&self, id: &RequestId) {
        if let Some(asked) = self.open.lock().get_mut(id) {
            asked.is_taken_back = true;
            asked.stop.as_ref().inspect(|stop| stop.cancel());
        }
    }

    /// Something serves a request from now on.
    fn is_served(&self, id: &RequestId, stop: &CancellationToken) {
        if let Some(asked) = self.open.lock().get_mut(id) {
            asked.stop = Some(stop.clone());
            if asked.is_taken_back {
                stop.cancel();
            }
        }
    }

    /// An answer is there: whether the client wants it.
    pub fn end(&self, id: &RequestId) -> bool {
        !self.open.lock().remove(id).is_some_and(|asked| asked.is_taken_back)
    }
}

/// A server whose requests are stopped when they are taken back.
pub struct Counted<S> {
    pub server: S,
    pub requests: Arc<Requests>,
}

impl<S: Service<RoleServer>> Service<RoleServer> for Counted<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        self.requests.is_served(&context.id, &context.ct);
        self.server.handle_request(request, context).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.server.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.server.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.server.supported_protocol_versions()
    }
}
