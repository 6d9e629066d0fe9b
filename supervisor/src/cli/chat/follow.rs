//! Hears the events of a session, over restarts of the kernel, on a thread of its own.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use drupe_extension_api::{
    EffectId, EventBody, Fault, ResponseStatus, SessionId, TurnId,
    control::{
        Approval, CallPreview, EventsSubscribe, ItemArgument, ItemText, ReplyBody, TurnArgument, TurnResult,
        method,
    },
};
use drupe_link::Home;

use super::{
    render::{Fetch, Piece},
    screen::Screen,
};
use crate::cli::{
    client::{Client, ClientError, Pauses},
    console::Style,
    failure::{Failure, status},
};

/// How long a daemon may be gone: its operator may be starting it anew.
const GONE: Duration = Duration::from_secs(30);

/// What the thread tells, besides what it shows.
#[derive(Debug)]
pub enum TurnNews {
    /// A turn has ended, with success or not.
    Ended(TurnId, bool),
    /// The daemon is gone, or does not let the session be heard.
    Gone(Failure),
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Follower(Arc<AtomicBool>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What two threads draw on. A panic of one while it drew leaves nothing worse than a wrong line.
pub fn locked(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called when the daemon is gone for good.
pub type OnGone = Arc<dyn Fn() + Send + Sync>;

pub struct Heard {
    pub screen: Arc<Mutex<Screen>>,
    /// Gets the ends of turns.
    pub told: Sender<TurnNews>,
    /// Called when the daemon is gone for good.
    pub on_gone: Option<OnGone>,
}

/// Follows a session from a position on.
pub fn follow(home: Home, session: SessionId, after: u64, heard: Heard) -> Result<Follower, Failure> {
    let end = Arc::new(AtomicBool::new(false));
    let ask = EventsSubscribe { session, after, follow: true };
    let following = Following { home, ask, heard, end: Arc::clone(&end) };
    thread::Builder::new()
        .name("follow".into())
        .spawn(move || following.run())
        .map_err(|error| Failure::new(status::SYSTEM, format!("a thread cannot be started: {error}")))?;
    Ok(Follower(end))
}

struct Following {
    home: Home,
    ask: EventsSubscribe,
    heard: Heard,
    end: Arc<AtomicBool>,
}

impl Following {
    fn run(mut self) {
        let mut pauses = Pauses::default();
        let mut gone: Option<Instant> = None;
        while !self.ended() {
            let connected = Client::connect(&self.home).and_then(|client| {
                // The supervisor answers while there is no kernel, and has no events.
                if client.kernel { Ok(client) } else { Err(ClientError::Lost("no kernel".into())) }
            });
            let error = match connected {
                Ok(client) => {
                    (gone, pauses) = (None, Pauses::default());
                    self.hear(client)
                }
                Err(error) => error,
            };
            if self.ended() {
                return;
            }
            let wait = match &error {
                ClientError::Absent => gone.get_or_insert_with(Instant::now).elapsed() < GONE,
                error => error.passes(),
            };
            if !wait {
                // Without a listener the chat has ended.
                let _ = self.heard.told.send(TurnNews::Gone(error.into_failure(&self.home)));
                if let Some(on_gone) = &self.heard.on_gone {
                    on_gone();
                }
                return;
            }
            self.screen().lost();
            pauses.sleep();
        }
    }

    /// Hears on one connection, until it ends.
    fn hear(&mut self, mut client: Client) -> ClientError {
        if let Err(error) = client.send(method::EVENTS_SUBSCRIBE, &self.ask) {
            return error;
        }
        self.screen().back();
        while !self.ended() {
            let event = match client.receive() {
                Ok(None) => continue,
                Ok(Some(reply)) => match reply.body {
                    ReplyBody::Event(event) => event,
                    ReplyBody::Result(_) => return ClientError::Lost("the subscription ended".into()),
                    ReplyBody::Error(fault) => return ClientError::Fault(fault),
                },
                Err(error) => return error,
            };
            self.ask.after = self.ask.after.max(event.seq);
            let mut left = self.screen().event(&event);
            while let Some(Piece::Fetch(what)) = left.first().cloned() {
                self.fetch(&what);
                left = self.screen().show(left.split_off(1));
            }
            if let (EventBody::TurnCompleted { status, .. }, Some(turn)) = (&event.body, event.turn) {
                // Without a listener the chat has ended.
                let _ = self.heard.told.send(TurnNews::Ended(turn, *status == ResponseStatus::Success));
            }
        }
        ClientError::Fault(Fault::internal("the chat has ended"))
    }

    /// Shows a text that the events do not hold: it is longer than they are, or came too fast.
    fn fetch(&self, what: &Fetch) {
        if let Fetch::Change(call, depth) = what {
            // Where it cannot be told, `drupe approvals` can, as the line above says.
            if let Ok(Some(change)) = self.change(call) {
                self.screen().would_change(&change, *depth);
            }
            return;
        }
        let session = &self.ask.session;
        let text = Client::connect(&self.home).and_then(|mut client| match what {
            Fetch::Item(id, _) => {
                let item = ItemArgument { session: session.clone(), id: id.clone() };
                client.call::<ItemText>(method::ITEMS_SHOW, &item).map(|text| text.output)
            }
            Fetch::Answer(turn) => {
                let turn = TurnArgument::brief(turn.clone());
                client.call::<TurnResult>(method::TURN_WAIT, &turn).map(|result| Some(result.content))
            }
            Fetch::Change(..) => Ok(None),
        });
        match text {
            Ok(Some(text)) => self.screen().fetched(what, &text),
            Ok(None) | Err(_) => {
                let text = format!("the whole answer is in `drupe session show {session}`");
                self.screen().say(Style::Dim, &text);
            }
        }
    }

    /// What a call that is asked about would change.
    fn change(&self, call: &EffectId) -> Result<Option<CallPreview>, ClientError> {
        let list = Client::connect(&self.home)?.call::<Vec<Approval>>(method::APPROVALS_LIST, &())?;
        let asked = list.into_iter().find(|one| one.id == call.as_str());
        Ok(asked.and_then(|one| one.call).and_then(|call| call.preview))
    }

    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        locked(&self.heard.screen)
    }
}
