//! How a server is begun with: by the probe of the newer revision, or in the way of the older ones.
//!
//! The library could try both, and would give the probe ten seconds (`DEFAULT_AUTO_DISCOVER_TIMEOUT` of rmcp 3.11.0, read on 2026-11-27). A
//! program may need longer before it reads anything, on a busy machine or where it is downloaded first. It would count as one of an older
//! revision, which has no skills, and that would be remembered. Here the probe may take as long as the start.

use rmcp::{
    RoleClient,
    model::{ErrorCode, ProtocolVersion},
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService, RxJsonRpcMessage,
        TxJsonRpcMessage,
    },
    transport::{IntoTransport, Transport},
};
use tokio::sync::oneshot;

use crate::client::McpClient;

/// How a server is begun with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Probe,
    Initialize,
}

/// Begins. A server that answers the probe with an error is one of an older revision, whatever the error is
/// (<https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio>, "Backward Compatibility", read on 2026-11-27), and is
/// begun with over the same connection.
pub async fn begin<T, E, A>(
    client: McpClient,
    transport: T,
    way: Way,
) -> Result<RunningService<RoleClient, McpClient>, Box<ClientInitializeError>>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let mut transport = transport.into_transport();
    if way == Way::Probe {
        let (lent, mut back) = Lent::new(transport);
        let probe = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
        let probed = client.clone().serve_with_lifecycle(lent, probe).await;
        transport = match (probed, back.try_recv()) {
            (Err(ClientInitializeError::JsonRpcError(error)), Ok(transport)) if !is_newer(error.code) => {
                transport
            }
            (probed, _) => return probed.map_err(Box::new),
        };
    }
    client.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await.map_err(Box::new)
}

/// Whether only servers of the newer revision answer with this error.
fn is_newer(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH)
}

/// A transport that comes back from the library when that is done with it.
struct Lent<T> {
    /// There until it is dropped.
    transport: Option<T>,
    back: Option<oneshot::Sender<T>>,
}

impl<T> Lent<T> {
    fn new(transport: T) -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self { transport: Some(transport), back: Some(sender) }, receiver)
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let (Some(transport), Some(back)) = (self.transport.take(), self.back.take()) {
            // Where nobody waits for it any more, it ends here.
            drop(back.send(transport));
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Lent<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sending = self.transport.as_mut().map(|transport| transport.send(item));
        async move {
            match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.transport.as_mut()?.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        match &mut self.transport {
            Some(transport) => transport.close().await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rmcp::transport::async_rw::AsyncRwTransport;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, split};

    use super::*;

    /// Begins with a program that reads nothing for so long and answers the probe with that; the revision that is spoken then.
    async fn revision(silent: Duration, probed: Value) -> String {
        let (near, far) = tokio::io::duplex(64 << 10);
        let serving = async move {
            let (read, mut write) = split(far);
            tokio::time::sleep(silent).await;
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let ask: Value = serde_json::from_str(&line).expect("JSON");
                let Some(id) = ask.get("id") else { continue };
                let mut answer = json!({"jsonrpc": "2.0", "id": id});
                match ask["method"].as_str().expect("a method") {
                    "server/discover" => answer
                        .as_object_mut()
                        .expect("an object")
                        .extend(probed.as_object().expect("an object").clone()),
                    _ => {
                        answer["result"] = json!({"protocolVersion": ask["params"]["protocolVersion"], "capabilities": {},
                            "serverInfo": {"name": "late", "version": "1"}});
                    }
                }
                write.write_all(format!("{answer}\n").as_bytes()).await.expect("it is read");
            }
        };
        let client = McpClient {
            name: "late".to_owned(),
            root: None,
            skills: true,
            changed: Arc::new(|| {}),
            asking: Arc::default(),
        };
        let (read, write) = split(near);
        let service = tokio::select! {
            begun = begin(client, AsyncRwTransport::new(read, write), Way::Probe) => begun.expect("it begins"),
            () = serving => panic!("it is not spoken to any more"),
        };
        service.peer_info().map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// Longer than the library would wait.
    #[tokio::test(start_paused = true)]
    async fn a_program_that_begins_late_is_asked_by_the_revision_that_it_knows() {
        let newer = json!({"result": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
            "serverInfo": {"name": "late", "version": "1"}, "ttlMs": 0, "cacheScope": "private"}});
        let late = Duration::from_secs(29);
        assert_eq!(revision(late, newer).await, "2026-07-28");
        for code in [-32_601, -32_602, -32_600, 0] {
            let older = json!({"error": {"code": code, "message": "what?"}});
            assert_eq!(revision(late, older).await, "2025-11-25", "{code}");
        }
    }
}
