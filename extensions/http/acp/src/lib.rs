//! The Agent Client Protocol, version 1, for an editor at the other end of a stream: sessions of the daemon as an editor shows
//! them (<https://agentclientprotocol.com/protocol/v1/overview>, looked up 2026-11-24).
//!
//! Nothing of a conversation is kept here. Sessions, turns and questions are the daemon's, under the token of whoever
//! connected; what an editor is shown is made of the events of a session, live and again. So an editor that goes leaves
//! its turns at work, and one that comes back loads what it missed.
//!
//! It deliberately asks nothing of the editor but permissions: no file and no terminal of it is used, because an agent has the
//! same tools whoever asks it.

mod calls;
mod connection;
mod daemon;
mod following;
mod methods;
mod permission;
mod prompt;
mod rpc;
mod session;
mod translation;
mod updates;

use drupe_extension_api::{control::Whoami, sdk::Host};
use tokio::io::{AsyncRead, AsyncWrite};

use self::{connection::EditorConnection, daemon::BearersDaemon};

/// Who is at the other end of a stream.
pub struct EditorClient {
    pub token: String,
    pub who: Whoami,
    /// By what the editor is known should it connect once more: a prompt that it repeats then is the same message.
    pub key: Option<String>,
}

/// Serves an editor until its stream ends. Whoever calls this ends it when the server stops.
pub async fn serve(host: Host, editor: EditorClient, stream: impl AsyncRead + AsyncWrite + Send + Unpin) {
    let daemon = BearersDaemon::new(host, &editor.token, editor.who);
    EditorConnection::serve(daemon, editor.key, stream).await;
}
