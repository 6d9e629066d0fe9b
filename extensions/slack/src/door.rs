//! The service's requests over HTTP, in place of a socket of its own: what is told so is signed, taken in, and acknowledged.
//!
//! They come to a socket on this machine that the daemon opened, through a proxy with TLS that the operator has before it. Of a request nothing is
//! believed before its signature was compared over the body as it came. It is acknowledged with 200 when the daemon has on its disk what it told; with any other status, and
//! without one, the service tells of it again.
//!
//! Forms as in <https://docs.slack.dev/apis/events-api/using-http-request-urls>, <https://docs.slack.dev/reference/events/url_verification> and
//! <https://docs.slack.dev/interactivity/handling-user-interaction>, read on 2026-11-27 in copies of their texts.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::TcpListener as StdListener,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use drupe_channel::TakenIn;
use drupe_extension_api::prelude::*;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};

use crate::{
    ear::SlackEar,
    event::{self, App, SlackHeard},
    signature::{AnsweredRequests, RequestSignature, SHORTEST_SECRET, SigningSecret},
};

/// Where it is all told.
const PATH: &str = "/slack/events";
/// The longest body. What somebody wrote has at most 40,000 characters, and stands in it once as a text and once in blocks.
const LONGEST: usize = 1024 * 1024;
/// Bodies that are read at the same time, of whom nobody knows yet who they are.
const READ: usize = 16;
/// Connections at the same time; further ones wait.
const CONNECTIONS: usize = 64;
/// Time for the head of a request, and for its body.
const HEAD: Duration = Duration::from_secs(10);
const BODY: Duration = Duration::from_secs(5);
/// How long nobody is taken in after the system refused to give a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Where the service tells what was written.
pub struct EventsDoor {
    ear: SlackEar,
    secret: SigningSecret,
    socket: StdListener,
    /// Known once the service has said it.
    app: OnceLock<App>,
    read: Semaphore,
    answered: Mutex<AnsweredRequests>,
}

/// What was told, and who waits until it is taken in.
type Told = (SlackHeard, oneshot::Sender<Result<(), Fault>>);

/// Why a request is not acknowledged.
#[derive(Debug)]
struct Refused(StatusCode, String);

fn refused(status: StatusCode, why: impl Into<String>) -> Refused {
    Refused(status, why.into())
}

impl EventsDoor {
    /// A door at a socket, if it may be one there.
    pub fn new(ear: SlackEar, socket: StdListener, secret: Option<&str>) -> Result<Self, Fault> {
        let wrong =
            |message: String, help: &'static str| Fault::new(FaultCode::NotConfigured, message).help(help);
        let address = socket.local_addr()?;
        if !address.ip().is_loopback() {
            let message = format!(
                "it would listen on {address} without TLS, where others could read what people write"
            );
            return Err(wrong(message, "listen on 127.0.0.1, and have a proxy with TLS lead there"));
        }
        let secret = secret.and_then(SigningSecret::new).ok_or_else(|| {
            let message = format!("`signing_secret` has fewer than {SHORTEST_SECRET} characters");
            wrong(message, "copy it from *Basic Information* of the app at api.slack.com/apps")
        })?;
        socket.set_nonblocking(true)?;
        let (app, read) = (OnceLock::new(), Semaphore::new(READ));
        Ok(Self { ear, secret, socket, app, read, answered: Mutex::default() })
    }

    /// Serves for as long as it is asked to.
    pub async fn serve(self: &Arc<Self>) -> Result<(), Fault> {
        let socket = TcpListener::from_std(self.socket.try_clone()?)?;
        let (tell, told) = mpsc::channel(1);
        let host = &self.ear.channel.host;
        let known = async {
            if self.app.get().is_none() {
                let app = self.ear.until_known().await?;
                host.info(format!("hears as @{} at http://{}{PATH}", app.name, self.socket.local_addr()?));
                let _ = self.app.set(app);
            }
            std::future::pending().await
        };
        tokio::select! {
            ended = known => ended,
            () = self.let_in(socket, &tell) => Ok(()),
            () = take_in(self.ear.clone(), told) => Ok(()),
        }
    }

    async fn let_in(self: &Arc<Self>, socket: TcpListener, tell: &mpsc::Sender<Told>) {
        let (host, places) = (&self.ear.channel.host, Arc::new(Semaphore::new(CONNECTIONS)));
        // It is never closed.
        while let Ok(place) = places.clone().acquire_owned().await {
            let stream = match socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    host.warn(format!("no connection is taken in: {error}"));
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if let Err(fault) = host.spawn(self.clone().connection(stream, tell.clone(), place)) {
                host.warn(fault);
            }
        }
    }

    /// Answers the requests of a connection. One that breaks off has nobody to be told.
    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        tell: mpsc::Sender<Told>,
        _place: OwnedSemaphorePermit,
    ) {
        let _ = stream.set_nodelay(true);
        let answer = service_fn(|request: Request<Incoming>| {
            let (door, tell) = (self.clone(), tell.clone());
            async move { Ok::<_, Infallible>(door.answer(request, &tell).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), answer);
        let _ = connection.await;
    }

    async fn answer(&self, request: Request<Incoming>, tell: &mpsc::Sender<Told>) -> Response<Full<Bytes>> {
        let (status, said) = match self.acknowledged(request, tell).await {
            Ok(said) => (StatusCode::OK, said),
            Err(Refused(status, why)) => {
                self.ear.channel.host.debug(format!("a request is answered with {status}: {why}"));
                (status, why)
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(said)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }

    /// Takes in what a request tells; what is said with its acknowledgement.
    async fn acknowledged(
        &self,
        request: Request<Incoming>,
        tell: &mpsc::Sender<Told>,
    ) -> Result<String, Refused> {
        let (head, body) = request.into_parts();
        if head.uri.path() != PATH {
            return Err(refused(StatusCode::NOT_FOUND, format!("requests of Slack come to {PATH}")));
        }
        if head.method != Method::POST {
            return Err(refused(StatusCode::METHOD_NOT_ALLOWED, "requests of Slack are POST"));
        }
        // Before anything of it is read.
        let signature = signature(&head.headers)
            .ok_or_else(|| refused(StatusCode::UNAUTHORIZED, "it bears no signature of Slack"))?;
        let body = self.read(body).await?;
        self.check(&signature, &body, SystemTime::now())?;
        let said = self.take(&head.headers, &body, tell).await?;
        self.lock().note(&signature, SystemTime::now());
        Ok(said)
    }

    /// The body of a request, as long as it may be and in its time.
    async fn read(&self, body: Incoming) -> Result<Bytes, Refused> {
        let long = || refused(StatusCode::PAYLOAD_TOO_LARGE, format!("it is longer than {LONGEST} bytes"));
        // As long as it says that it is.
        if body.size_hint().lower() > LONGEST as u64 {
            return Err(long());
        }
        let reading = async {
            let _place = self.read.acquire().await;
            Limited::new(body, LONGEST).collect().await
        };
        match tokio::time::timeout(BODY, reading).await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(long()),
            Ok(Err(_)) => Err(refused(StatusCode::BAD_REQUEST, "it did not come whole")),
            Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "it did not come in time")),
        }
    }

    fn check(&self, signature: &RequestSignature, body: &[u8], now: SystemTime) -> Result<(), Refused> {
        if !self.secret.signed(signature, body) {
            return Err(refused(
                StatusCode::UNAUTHORIZED,
                "it is not signed with the signing secret of the app",
            ));
        }
        if let Some(off) = signature.off(now) {
            let host = &self.ear.channel.host;
            host.warn(format!(
                "a request of Slack is {off} seconds off, and not taken: set the clock of this machine"
            ));
            return Err(refused(StatusCode::UNAUTHORIZED, format!("it is {off} seconds off")));
        }
        match self.lock().has(signature) {
            true => Err(refused(StatusCode::CONFLICT, "it was answered before")),
            false => Ok(()),
        }
    }

    async fn take(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        tell: &mpsc::Sender<Told>,
    ) -> Result<String, Refused> {
        let odd = |what: &str| refused(StatusCode::BAD_REQUEST, what);
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_form = match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "application/json" => false,
            "application/x-www-form-urlencoded" => true,
            _ => return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "it is neither JSON nor a form")),
        };
        let payload = match is_form {
            false => serde_json::from_slice::<Value>(body).map_err(|_| odd("its body is no JSON"))?,
            // Without one it is a command or a look whether anybody is here, and neither is for the assistant.
            true => match form_urlencoded::parse(body).find(|(name, _)| name == "payload") {
                Some((_, payload)) => {
                    serde_json::from_str(&payload).map_err(|_| odd("its payload is no JSON"))?
                }
                None => return Ok(String::new()),
            },
        };
        if !is_form && payload["type"] == "url_verification" {
            let challenge = payload["challenge"].as_str().ok_or_else(|| odd("it has no challenge"))?;
            return Ok(challenge.to_owned());
        }
        let app = self
            .app
            .get()
            .ok_or_else(|| refused(StatusCode::SERVICE_UNAVAILABLE, "it is not known yet who the bot is"))?;
        let extension = self.ear.channel.host.id();
        let heard = match is_form {
            true => event::pressed(&payload, app, extension),
            false if payload["type"] != "event_callback" => None,
            // Of another workspace in which the app is installed there is no token here.
            false if !event::is_of(&payload, app) => {
                self.ear.channel.host.debug("an event is of a workspace for which there is no token here");
                None
            }
            false => event::event(&payload, app, extension),
        };
        let Some(heard) = heard else { return Ok(String::new()) };
        let busy = |_| refused(StatusCode::SERVICE_UNAVAILABLE, "it is taken in later");
        let (answer, taken) = oneshot::channel();
        tell.send((heard, answer)).await.map_err(|_| busy(()))?;
        match taken.await {
            Ok(Ok(())) => Ok(String::new()),
            Ok(Err(fault)) => {
                self.ear.channel.host.warn(format!("a message is taken in later: {fault}"));
                Err(busy(()))
            }
            Err(_) => Err(busy(())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, AnsweredRequests> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signature(headers: &HeaderMap) -> Option<RequestSignature> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    RequestSignature::read(text("x-slack-signature")?, text("x-slack-request-timestamp")?)
}

/// Takes in what is told, of one conversation one thing after another.
async fn take_in(ear: SlackEar, mut told: mpsc::Receiver<Told>) {
    let (mut taking, mut waiting, mut number) = (ear.taking(), HashMap::new(), 0_u64);
    loop {
        tokio::select! {
            Some((heard, answer)) = told.recv(), if taking.has_room() => {
                number += 1;
                waiting.insert(number, answer);
                taking.begin(heard.heard.conversation.clone(), number, heard);
            }
            Some(TakenIn { id, outcome, behind, .. }) = taking.next() => {
                // Whoever is told nothing hears that it is taken in later.
                behind.iter().for_each(|id| drop(waiting.remove(id)));
                // Whoever told it may have had enough; it is told again, and known by then.
                let _ = waiting.remove(&id).map(|answer: oneshot::Sender<_>| answer.send(outcome));
            }
            else => return,
        }
    }
}
