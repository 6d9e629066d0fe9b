//! The HTTP door of a measured daemon, and a client of it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::{
    daemon::{self, Daemon},
    turns::Work,
};

/// The extension that serves HTTP.
const EXTENSION: &str = "http";

/// A client that keeps its connections.
#[derive(Clone)]
pub struct Door {
    client: Client,
    address: SocketAddr,
    token: String,
}

impl Door {
    /// The door of a daemon, with a token that may do what a program needs.
    pub fn open(daemon: &Daemon) -> Result<Self> {
        let mut control = daemon.client()?;
        let detail = control.ask("extensions.show", &json!({"id": EXTENSION}))?;
        let address = detail["listening"][0].as_str().context("the door does not listen")?.parse()?;
        let wanted = json!({"name": "bench", "may": ["read", "submit"], "sessions": "*"});
        let token = control.ask("tokens.new", &wanted)?["token"].as_str().context("a token")?.to_owned();
        // There is no TLS on loopback, but the client wants to know how it would be done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { client: Client::builder().no_proxy().build()?, address, token })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The processes that serve it: the extension's own and those below the supervisor that belong to it.
    pub fn processes(daemon: &Daemon) -> Result<Vec<u32>> {
        let (root, kernel) = (daemon.supervisor()?, daemon.kernel()?);
        Ok(crate::process::tree(root)?.into_iter().filter(|pid| ![root, kernel].contains(pid)).collect())
    }

    /// One turn in a new conversation; how long it took until the whole result was there.
    pub async fn turn(&self, work: Work) -> Result<Duration> {
        let asked = self.ask(Method::POST, "/v1/agents/drupe/run").json(&json!({"task": work.text()}));
        let began = Instant::now();
        let result: Value = answered(asked).await?.json().await?;
        let took = began.elapsed();
        daemon::check_turn(&result, work)?;
        Ok(took)
    }

    /// How long it takes until the first piece of an answer is there that is streamed to a client of OpenAI.
    pub async fn first_piece(&self, work: Work) -> Result<Duration> {
        let message = json!({"role": "user", "content": work.text()});
        let body = json!({"model": "drupe", "stream": true, "messages": [message]});
        let began = Instant::now();
        let mut answer = answered(self.ask(Method::POST, "/v1/chat/completions").json(&body)).await?;
        let (mut text, mut took) = (String::new(), None);
        while let Some(bytes) = answer.chunk().await? {
            text.push_str(std::str::from_utf8(&bytes)?);
            if took.is_none() && said_something(&text) {
                took = Some(began.elapsed());
            }
        }
        ensure!(text.contains("[DONE]"), "an answer broke off: {text}");
        took.with_context(|| format!("an answer without a piece: {text}"))
    }

    /// The events of a session, which are held open and not read.
    pub async fn follow(&self, session: &str) -> Result<Response> {
        answered(self.ask(Method::GET, &format!("/v1/sessions/{session}/events"))).await
    }

    fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address)).bearer_auth(&self.token)
    }
}

/// Whether a piece of the answer has text; the first one says with an empty one who speaks.
fn said_something(text: &str) -> bool {
    text.split("\"content\":\"").skip(1).any(|after| !after.starts_with('"'))
}

async fn answered(request: RequestBuilder) -> Result<Response> {
    let answer = request.send().await?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    anyhow::bail!("the door answered {status}: {}", answer.text().await?)
}
