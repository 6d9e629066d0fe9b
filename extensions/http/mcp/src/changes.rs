//! What clients are told without having asked: that lists are others now, and that something happened in a session that
//! they follow.
//!
//! One follower of the daemon's topics serves all clients. It begins with the first of them.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    future::Future,
    hash::{Hash, Hasher},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{
    Event, EventBody, Fault, FaultCode, SessionId,
    control::{EventsSubscribe, SessionDetail, SessionShow, Whoami, method},
    sdk::{Host, Subscription},
    wire::BusMessage,
};
use rmcp::{
    Peer, RoleServer,
    model::{ResourceUpdatedNotificationParam, SubscriptionFilter},
    service::SubscriptionSink,
};
use serde_json::Value;
use tokio::{
    sync::{Mutex, broadcast},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    McpCaller,
    places::{Place, Places},
    sessions::sees,
};

/// Changes that wait for a slow client; one that lags further behind is told of both lists.
const WAITING: usize = 64;

/// How long further changes are awaited, so that many at once are told as one.
const TOGETHER: Duration = Duration::from_millis(250);

/// When the agents are compared once more after an extension changed: the daemon may take that long to take it in.
const LATER: Duration = Duration::from_secs(2);

/// Sessions that all clients together follow. Each takes one of the 2048 handles that the daemon gives an extension.
const FOLLOWED: usize = 512;

/// What changed, as the daemon tells it to everybody.
#[derive(Debug, Clone)]
pub enum Change {
    /// Which agents there are, or what one of them is.
    Agents,
    /// A session came to be.
    Session(SessionId),
}

/// The one follower of the daemon's topics, which all clients share.
pub struct ListChanges {
    host: Host,
    told: broadcast::Sender<Change>,
    begun: AtomicBool,
    room: Places,
}

impl ListChanges {
    pub fn new(host: Host) -> Arc<Self> {
        let (told, _) = broadcast::channel(WAITING);
        let room = Places::new(FOLLOWED, "sessions are followed");
        Arc::new(Self { host, told, begun: AtomicBool::new(false), room })
    }

    /// What changes from now on.
    pub fn follow(self: &Arc<Self>) -> broadcast::Receiver<Change> {
        let changes = self.told.subscribe();
        if !self.begun.swap(true, Ordering::AcqRel) {
            let own = Arc::clone(self);
            let watch = async move {
                if let Err(fault) = own.watch().await {
                    own.host.warn(format!("MCP clients are not told of changes: {fault}"));
                }
                // The next client tries again.
                own.begun.store(false, Ordering::Release);
            };
            // Where nothing can be begun any more, everything ends.
            let _ = self.host.spawn(watch);
        }
        changes
    }

    async fn watch(&self) -> Result<(), Fault> {
        let mut extensions = self.host.subscribe("kernel.extension").await?;
        let mut runs = self.host.subscribe("agent_invoked").await?;
        let mut agents = self.agents().await?;
        let mut look: Vec<Instant> = Vec::new();
        loop {
            let next = look.first().copied();
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = next_of(&mut extensions) => {
                    message?;
                    let now = Instant::now();
                    look = vec![now + TOGETHER, now + LATER];
                }
                message = next_of(&mut runs) => self.began(message?).await,
                () = due => {
                    look.remove(0);
                    let now = self.agents().await?;
                    if now != agents {
                        agents = now;
                        // Nobody may be there to hear it.
                        let _ = self.told.send(Change::Agents);
                    }
                }
            }
        }
    }

    /// What the agents are, in one number.
    async fn agents(&self) -> Result<u64, Fault> {
        let all: Value = self.host.control(method::AGENTS_LIST, ()).await?;
        let mut hasher = DefaultHasher::new();
        all.to_string().hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// A run began: where it is the first of a session, the session is new.
    async fn began(&self, message: BusMessage) {
        let root = message.payload["depth"] == 0;
        let session = message.payload["session"].as_str().and_then(|id| SessionId::new(id).ok());
        let Some(session) = session.filter(|_| root) else { return };
        let ask = SessionShow { id: session.to_string(), after: Some(SessionShow::BEHIND_ALL), brief: true };
        let detail: Result<SessionDetail, Fault> = self.host.control(method::SESSIONS_SHOW, ask).await;
        if detail.is_ok_and(|detail| detail.status.turn_count <= 1) {
            let _ = self.told.send(Change::Session(session));
        }
    }
}

async fn next_of(topic: &mut Subscription) -> Result<BusMessage, Fault> {
    let ended = || Fault::new(FaultCode::Unavailable, "a topic of the daemon ended");
    topic.next().await?.ok_or_else(ended)
}

/// Whom changes are told: all of a session of the older revision, or what one request of the newer one asked for.
#[derive(Clone)]
pub enum Listener {
    Session(Peer<RoleServer>),
    Request(SubscriptionSink),
}

impl Listener {
    /// Whether the client could be told.
    async fn tools_and_prompts(&self, wanted: &SubscriptionFilter) -> bool {
        match self {
            Self::Session(peer) => {
                peer.notify_tool_list_changed().await.is_ok()
                    && peer.notify_prompt_list_changed().await.is_ok()
            }
            Self::Request(sink) => {
                (wanted.tools_list_changed != Some(true) || sink.notify_tool_list_changed().await.is_ok())
                    && (wanted.prompts_list_changed != Some(true)
                        || sink.notify_prompt_list_changed().await.is_ok())
            }
        }
    }

    async fn resources(&self, wanted: &SubscriptionFilter) -> bool {
        match self {
            Self::Session(peer) => peer.notify_resource_list_changed().await.is_ok(),
            Self::Request(sink) => {
                wanted.resources_list_changed != Some(true)
                    || sink.notify_resource_list_changed().await.is_ok()
            }
        }
    }

    async fn updated(&self, uri: &str) -> bool {
        match self {
            Self::Session(peer) => {
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok()
            }
            Self::Request(sink) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }
}

/// Tells a client of changed lists, until it is gone or its token is revoked.
pub async fn tell(
    host: Host,
    caller: McpCaller,
    mut changes: broadcast::Receiver<Change>,
    listener: Listener,
    wanted: SubscriptionFilter,
) {
    loop {
        let mut due = Due::default();
        match changes.recv().await {
            Ok(change) => due.add(&change, &caller.who),
            Err(broadcast::error::RecvError::Lagged(_)) => due = Due::ALL,
            Err(broadcast::error::RecvError::Closed) => return,
        }
        sleep(TOGETHER).await;
        loop {
            match changes.try_recv() {
                Ok(change) => due.add(&change, &caller.who),
                Err(broadcast::error::TryRecvError::Lagged(_)) => due = Due::ALL,
                Err(_) => break,
            }
        }
        if due == Due::default() {
            continue;
        }
        let known = host.control_for::<Whoami>(Some(&caller.token), method::WHOAMI, ()).await;
        if known.is_err_and(|fault| fault.code == FaultCode::Unauthenticated) {
            return;
        }
        let heard = (!due.agents || listener.tools_and_prompts(&wanted).await)
            && (!due.sessions || listener.resources(&wanted).await);
        if !heard {
            return;
        }
    }
}

/// What is to be told.
#[derive(Debug, Default, PartialEq)]
struct Due {
    agents: bool,
    sessions: bool,
}

impl Due {
    const ALL: Self = Self { agents: true, sessions: true };

    fn add(&mut self, change: &Change, who: &Whoami) {
        match change {
            Change::Agents => self.agents = true,
            Change::Session(session) => self.sessions |= sees(who, session),
        }
    }
}

/// The sessions that one client follows. One request after another changes them, so that what one finds still holds when it is done.
#[derive(Default)]
pub struct FollowedSessions(Arc<Followed>);

/// By its address, what stops to follow a session when it is dropped.
type Followed = Mutex<HashMap<String, DropGuard>>;

/// Sessions that one client follows at the same time.
const OF_ONE: usize = 64;

impl FollowedSessions {
    /// Tells the client each time that a turn of a session begins or ends.
    pub async fn add(
        &self,
        changes: &ListChanges,
        caller: &McpCaller,
        uri: &str,
        session: &str,
        listener: Listener,
    ) -> Result<(), Fault> {
        let mut followed = self.0.lock().await;
        if followed.contains_key(uri) {
            return Ok(());
        }
        if followed.len() >= OF_ONE {
            let busy = Fault::new(FaultCode::Busy, format!("{OF_ONE} resources are followed"));
            return Err(busy.help("let go of some"));
        }
        let room = changes.room.take(caller.shares())?;
        let token = Some(caller.token.as_str());
        let ask = SessionShow { id: session.to_owned(), after: Some(SessionShow::BEHIND_ALL), brief: true };
        let detail: SessionDetail = changes.host.control_for(token, method::SESSIONS_SHOW, ask).await?;
        let ask = EventsSubscribe { session: detail.status.id, after: detail.last_seq, follow: true };
        let events = changes.host.open_for(token, method::EVENTS_SUBSCRIBE, ask).await?;
        let stop = CancellationToken::new();
        let follow = follow(events, uri.to_owned(), listener, room);
        changes.host.spawn(until_it_ends(Arc::downgrade(&self.0), uri.to_owned(), stop.clone(), follow))?;
        followed.insert(uri.to_owned(), stop.drop_guard());
        Ok(())
    }

    pub async fn remove(&self, uri: &str) {
        self.0.lock().await.remove(uri);
    }
}

/// Follows a session until that is stopped. Where it ends by itself, the session is followed no more, so that the client can
/// follow it again.
async fn until_it_ends(
    all: Weak<Followed>,
    uri: String,
    stop: CancellationToken,
    follow: impl Future<Output = ()>,
) {
    if stop.run_until_cancelled(follow).await.is_none() {
        return;
    }
    let Some(all) = all.upgrade() else { return };
    let mut followed = all.lock().await;
    // Meanwhile the client may have let go of it, and followed it again.
    if !stop.is_cancelled() {
        followed.remove(&uri);
    }
}

async fn follow(
    mut events: drupe_extension_api::sdk::Items<Event>,
    uri: String,
    listener: Listener,
    _room: Place,
) {
    // It ends with the token, too.
    while let Ok(Some(event)) = events.next().await {
        let told = matches!(event.body, EventBody::TurnStarted { .. } | EventBody::TurnCompleted { .. });
        if told && !listener.updated(&uri).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_is_told_of_sessions_that_one_reaches() {
        let who = |sessions: Option<&str>| {
            let who = json!({"name": "ci", "may": [], "sessions": sessions, "agents": []});
            serde_json::from_value::<Whoami>(who).expect("somebody")
        };
        for (sessions, session, told) in [
            (None, "main", true),
            (Some("token.ci"), "token.ci", true),
            (Some("token.ci"), "token.ci:1", true),
            (Some("token.ci"), "token.cider", false),
            (Some("token.ci"), "main", false),
        ] {
            let mut due = Due::default();
            due.add(&Change::Session(SessionId::new(session).expect("an id")), &who(sessions));
            assert_eq!((due.sessions, due.agents), (told, false), "{session} of {sessions:?}");
        }
    }

    #[tokio::test]
    async fn what_ends_by_itself_is_followed_no_more_and_takes_nothing_else_with_it() {
        let own = FollowedSessions::default();
        let (ended, stopped) = (CancellationToken::new(), CancellationToken::new());
        own.0.lock().await.insert("a".to_owned(), ended.clone().drop_guard());
        until_it_ends(Arc::downgrade(&own.0), "a".to_owned(), ended, async {}).await;
        assert!(own.0.lock().await.is_empty());

        // One ends by itself just as the client lets go of it and follows it again.
        let mut followed = own.0.lock().await;
        followed.insert("a".to_owned(), stopped.clone().drop_guard());
        let old = until_it_ends(Arc::downgrade(&own.0), "a".to_owned(), stopped, async {});
        let mut old = std::pin::pin!(old);
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(old.as_mut().poll(cx))).await.is_pending());
        let new = CancellationToken::new();
        followed.insert("a".to_owned(), new.clone().drop_guard());
        drop(followed);
        old.await;
        assert!(own.0.lock().await.contains_key("a") && !new.is_cancelled());
        let never = until_it_ends(Arc::downgrade(&own.0), "a".to_owned(), new, std::future::pending());
        // What follows does not keep its client's session.
        drop(own);
        never.await;
    }
}
