//! The control socket: one line of JSON a request, one or many a reply.
//!
//! A connection must show a token first, which says who asks; it ends when that token is revoked. Requests of one connection are answered as they finish, not in order.

use std::{io, os::unix::net::UnixListener as StdListener, pin::pin, sync::Arc, time::Duration};

use drupe_extension_api::{
    Fault, FaultCode,
    control::{CONTROL_VERSION, Hello, Welcome, method},
};
use rustix::process::{Resource, getrlimit};
use serde_json::value::{RawValue, to_raw_value};
use tokio::{
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    sync::{Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    grants::Grant,
    lines::{Lines, REPLIES, Reply, ReplyBody, Request, write_all},
    panics,
    places::{Places, Taken},
    principal::Principal,
};

/// Connections at a time, besides those of the supervisor; each costs a few kilobytes.
const CONNECTIONS: u64 = 1024;

/// Requests of one connection that are worked on at once.
const REQUESTS: usize = 64;

/// Time for a new connection to say who it is.
const HELLO: Duration = Duration::from_secs(5);

/// Time for the last replies of a connection that ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What answers.
pub trait Answer: Clone + Send + Sync + 'static {
    /// Who shows this token; none where nobody was given it.
    fn admit(&self, token: &str) -> Option<Arc<Grant>>;

    /// Answers a request. What is more than one answer is sent to `replies` before.
    fn answer(
        &self,
        by: &Principal,
        request: &Request,
        replies: &mpsc::Sender<Reply>,
    ) -> impl Future<Output = Result<Box<RawValue>, Fault>> + Send;
}

/// The listening socket's side of it.
pub struct Door<A> {
    /// What answers.
    pub answer: A,
    /// The process that must be heard in any case: it asks whether this one serves, and ends one that does not answer.
    pub supervisor_pid: u32,
    /// Cancelled when nothing more is served.
    pub closing: CancellationToken,
    /// Where connections and requests have their tasks.
    pub tasks: TaskTracker,
}

impl<A: Answer> Door<A> {
    /// Serves until the end.
    pub async fn serve(self, listener: StdListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let door = Arc::new(self);
        let places = Places::new(connections());
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted,
                () = door.closing.cancelled() => return Ok(()),
            };
            let stream = match stream {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the control socket failed");
                    // Out of descriptors, most likely: trying again at once would only spin.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let leave = door.closing.child_token();
            let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
            let supervisor = peer.is_some_and(|pid| u32::try_from(pid) == Ok(door.supervisor_pid));
            let Some(place) = places.take(leave.clone(), supervisor) else {
                refuse(&stream);
                continue;
            };
            let serving = Arc::clone(&door);
            door.tasks.spawn(async move { serving.connection(stream, place, leave).await });
        }
    }

    async fn connection(self: Arc<Self>, stream: UnixStream, place: Taken, cancel: CancellationToken) {
        let (read, write) = stream.into_split();
        let (replies, waiting) = mpsc::channel(REPLIES);
        let _end = cancel.clone().drop_guard();
        let reading = self.read_all(read, replies, &place, &cancel);
        let writing = write_all(write, waiting);
        tokio::pin!(writing);
        // A client that leaves takes its requests along; what it submitted is in the journal.
        tokio::select! {
            () = reading => cancel.cancel(),
            () = &mut writing => return,
            () = cancel.cancelled() => {}
        }
        // What was said last, such as a refusal, still goes out.
        let _ = tokio::time::timeout(LAST_WORDS, writing).await;
    }

    /// Reads requests and has each answered, until the client leaves or breaks the rules.
    async fn read_all(
        &self,
        read: OwnedReadHalf,
        replies: mpsc::Sender<Reply>,
        place: &Taken,
        cancel: &CancellationToken,
    ) {
        let mut lines = Lines::new(read);
        let Ok(Ok(Some(first))) = tokio::time::timeout(HELLO, lines.next()).await else { return };
        let Some(grant) = self.welcome(&first, &replies).await else { return };
        let room = Arc::new(Semaphore::new(REQUESTS));
        loop {
            let request = tokio::select! {
                biased;
                () = grant.revoked.cancelled() => return,
                request = lines.next() => request,
            };
            let request = match request {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(fault) => {
                    let _ = replies.send(Reply { id: 0, body: ReplyBody::Error(fault) }).await;
                    return;
                }
            };
            // Beyond this many the client waits.
            let room = Arc::clone(&room).acquire_owned();
            let Some(Ok(room)) = grant.revoked.run_until_cancelled(room).await else { return };
            let working = place.work();
            let (answer, replies, cancel) = (self.answer.clone(), replies.clone(), cancel.clone());
            let by = Arc::clone(&grant);
            self.tasks.spawn(async move {
                let follows = method::STREAMING.contains(&request.method.as_str());
                let mut answering = pin!(one(&answer, &by.principal, &request, &replies));
                tokio::select! {
                    () = &mut answering => {}
                    () = cancel.cancelled() => {
                        // What asked for the end is told that it was heard; a subscription has nothing left to say.
                        if !follows {
                            let _ = tokio::time::timeout(LAST_WORDS, answering).await;
                        }
                    }
                }
                drop((room, working));
            });
        }
    }

    /// Finds out who makes the first request, and tells them whether they may go on.
    async fn welcome(&self, request: &Request, replies: &mpsc::Sender<Reply>) -> Option<Arc<Grant>> {
        let hello = serde_json::from_str::<Hello>(request.params().get())
            .ok()
            .filter(|_| request.method == method::HELLO);
        let newer = hello.as_ref().is_some_and(|hello| hello.version > CONTROL_VERSION);
        let grant = hello.filter(|_| !newer).and_then(|hello| self.answer.admit(&hello.token));
        let body = if grant.is_some() {
            let welcome = Welcome { version: CONTROL_VERSION, from: "kernel".into() };
            to_raw_value(&welcome)
                .map_or_else(|error| ReplyBody::Error(Fault::internal(error)), ReplyBody::Result)
        } else if newer {
            let fault = Fault::unsupported("a control API newer than the daemon");
            ReplyBody::Error(fault.help("restart the daemon after an upgrade"))
        } else {
            ReplyBody::Error(
                Fault::denied("the first request must be `hello` with a token of this home")
                    .help("the operator's is in the home's `run/token`; `drupe token new` makes others"),
            )
        };
        let told = replies.send(Reply { id: request.id, body }).await;
        grant.filter(|_| told.is_ok())
    }
}

async fn one(answer: &impl Answer, by: &Principal, request: &Request, replies: &mpsc::Sender<Reply>) {
    let result = panics::answered(answer.answer(by, request, replies)).await;
    let body = result.map_or_else(ReplyBody::Error, ReplyBody::Result);
    // The client may be gone.
    let _ = replies.send(Reply { id: request.id, body }).await;
}

/// Connections that there is room for. What else the kernel opens needs files, too.
fn connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(CONNECTIONS.min(files / 2)).unwrap_or(usize::MAX)
}

/// Tells a client that there is no room for it, if that can be told without waiting.
fn refuse(stream: &UnixStream) {
    let message = "there is no room for another client: each of those that are connected waits for an answer";
    let fault = Fault::new(FaultCode::Busy, message).help("try again later");
    if let Ok(mut line) = serde_json::to_vec(&Reply { id: 0, body: ReplyBody::Error(fault) }) {
        line.push(b'\n');
        let _ = stream.try_write(&line);
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::control;
    use drupe_link::Home;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;

    #[derive(Clone)]
    struct Fragile(Arc<Grant>);

    impl Answer for Fragile {
        fn admit(&self, token: &str) -> Option<Arc<Grant>> {
            (token == "known").then(|| Arc::clone(&self.0))
        }

        async fn answer(
            &self,
            _: &Principal,
            request: &Request,
            _: &mpsc::Sender<Reply>,
        ) -> Result<Box<RawValue>, Fault> {
            tokio::task::yield_now().await;
            assert!(request.method != "panic", "it was told to panic");
            Ok(RawValue::NULL.to_owned())
        }
    }

    #[tokio::test]
    async fn a_connection_outlives_a_handler_that_panics_and_ends_when_its_token_is_revoked() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::create(folder.path()).expect("a home");
        let grant = Grant::new(Principal::operator());
        let hello = json!({"token": "known", "version": CONTROL_VERSION});
        let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
        let door = Door { answer: Fragile(Arc::clone(&grant)), supervisor_pid: 0, closing, tasks };
        let (closing, tasks) = (door.closing.clone(), door.tasks.clone());
        let serving = tasks.spawn(door.serve(home.listen().expect("a socket")));
        let client = UnixStream::connect(home.socket()).await.expect("it listens");
        let (read, mut write) = client.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut replies = Vec::new();
        for (id, method, params) in
            [(1, "hello", hello), (2, "panic", Value::Null), (3, "other", Value::Null)]
        {
            let line = json!({"id": id, "method": method, "params": params}).to_string() + "\n";
            write.write_all(line.as_bytes()).await.expect("it is sent");
            let reply = lines.next_line().await.expect("it can be read").expect("the connection goes on");
            replies.push(serde_json::from_str::<control::Reply>(&reply).expect("a reply"));
        }
        assert_eq!(replies.iter().map(|reply| reply.id).collect::<Vec<_>>(), [1, 2, 3]);
        match &replies[1].body {
            control::ReplyBody::Error(fault) => assert_eq!(fault.code, FaultCode::Internal, "{fault}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(replies[2].body, control::ReplyBody::Result(Value::Null)), "{:?}", replies[2]);
        // What the client was given is taken back: the connection ends.
        grant.revoked.cancel();
        assert_eq!(lines.next_line().await.expect("it can be read"), None);
        closing.cancel();
        tasks.close();
        tasks.wait().await;
        serving.await.expect("it ends").expect("in order");
    }
}
