//! The control socket: one line of JSON a request, one or many a reply.
//!
//! The listening socket belongs to the supervisor and outlives this process. A connection must show the home's token
//! first; requests of one connection are answered as they finish, not in order.

use std::{os::unix::net::UnixListener as StdListener, pin::pin, sync::Arc, time::Duration};

use drupe_bus::Watched;
use drupe_extension_api::{
    Event, EventBody, Fault, FaultCode, SessionId,
    control::{CONTROL_VERSION, EventsSubscribe, Hello, Welcome, method},
};
use drupe_link::ControlToken;
use drupe_surface::{
    lines::{Lines, REPLIES, Reply, ReplyBody, Request, write_all},
    places::{Places, Taken},
};
use rustix::process::{Resource, getrlimit};
use serde_json::value::{RawValue, to_raw_value};
use tokio::{
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

use super::methods::{self, Caller};
use crate::kernel::{Kernel, store_fault};

/// Connections at a time, besides those of the supervisor; each costs a few kilobytes.
const CONNECTIONS: u64 = 1024;

/// Requests of one connection that are worked on at once.
const REQUESTS: usize = 64;

/// Time for a new connection to say who it is.
const HELLO: Duration = Duration::from_secs(5);

/// Time for the last replies of a connection that ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Events that are read from the journal at once.
const PAGE: usize = 256;

/// Serves the control socket until the kernel ends.
pub async fn serve(kernel: Arc<Kernel>, listener: StdListener, token: ControlToken) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let token = Arc::new(token);
    let places = Places::new(connections());
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = kernel.closing.cancelled() => return Ok(()),
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
        let leave = kernel.closing.child_token();
        // It asks whether this kernel serves, and ends one that does not answer.
        let supervisor = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let supervisor = supervisor.is_some_and(|pid| u32::try_from(pid) == Ok(kernel.start.supervisor_pid));
        let Some(place) = places.take(leave.clone(), supervisor) else {
            refuse(&stream);
            continue;
        };
        let (kernel, token) = (Arc::clone(&kernel), Arc::clone(&token));
        kernel.clone().tasks.spawn(async move { connection(&kernel, stream, &token, place, leave).await });
    }
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

async fn connection(
    kernel: &Arc<Kernel>,
    stream: UnixStream,
    token: &ControlToken,
    place: Taken,
    cancel: CancellationToken,
) {
    let (read, write) = stream.into_split();
    let (replies, waiting) = mpsc::channel(REPLIES);
    let _end = cancel.clone().drop_guard();
    let reading = read_all(kernel, read, token, replies, &place, &cancel);
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
    kernel: &Arc<Kernel>,
    read: OwnedReadHalf,
    token: &ControlToken,
    replies: mpsc::Sender<Reply>,
    place: &Taken,
    cancel: &CancellationToken,
) {
    let mut lines = Lines::new(read);
    let Ok(Ok(Some(first))) = tokio::time::timeout(HELLO, lines.next()).await else { return };
    if !welcome(&first, token, &replies).await {
        return;
    }
    let room = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let request = match lines.next().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(fault) => {
                let _ = replies.send(Reply { id: 0, body: ReplyBody::Error(fault) }).await;
                return;
            }
        };
        // Beyond this many the client waits.
        let Ok(room) = Arc::clone(&room).acquire_owned().await else { return };
        let working = place.work();
        let (kernel, replies, cancel) = (Arc::clone(kernel), replies.clone(), cancel.clone());
        kernel.clone().tasks.spawn(async move {
            let follows = request.method == method::EVENTS_SUBSCRIBE;
            let mut answering = pin!(answer(&kernel, request, &replies));
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

/// Checks the token of the first request.
async fn welcome(request: &Request, token: &ControlToken, replies: &mpsc::Sender<Reply>) -> bool {
    let hello = serde_json::from_str::<Hello>(request.params().get())
        .ok()
        .filter(|_| request.method == method::HELLO);
    let newer = hello.as_ref().is_some_and(|hello| hello.version > CONTROL_VERSION);
    let good = hello.is_some_and(|hello| token.matches(&hello.token)) && !newer;
    let body = if good {
        let welcome = Welcome { version: CONTROL_VERSION, from: "kernel".into() };
        to_raw_value(&welcome)
            .map_or_else(|error| ReplyBody::Error(Fault::internal(error)), ReplyBody::Result)
    } else if newer {
        let fault = Fault::unsupported("a control API newer than the daemon");
        ReplyBody::Error(fault.help("restart the daemon after an upgrade"))
    } else {
        ReplyBody::Error(
            Fault::denied("the first request must be `hello` with the home's token")
                .help("read it from the home's `run/token`"),
        )
    };
    replies.send(Reply { id: request.id, body }).await.is_ok() && good
}

async fn answer(kernel: &Arc<Kernel>, request: Request, replies: &mpsc::Sender<Reply>) {
    let id = request.id;
    let result = if request.method == method::EVENTS_SUBSCRIBE {
        match serde_json::from_str(request.params().get()) {
            Ok(ask) => subscribe(kernel, id, ask, replies).await.map(|()| RawValue::NULL.to_owned()),
            Err(error) => Err(Fault::invalid(error.to_string())),
        }
    } else {
        methods::call(kernel, Caller::Operator, &request.method, request.params()).await
    };
    let body = result.map_or_else(ReplyBody::Error, ReplyBody::Result);
    // The client may be gone.
    let _ = replies.send(Reply { id, body }).await;
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
