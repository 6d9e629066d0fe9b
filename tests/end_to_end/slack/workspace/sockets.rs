//! The sockets of Socket Mode: what is told goes through one that is open, and again where it was not acknowledged.

use std::{
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tungstenite::{Error, Message, WebSocket};

use super::{State, Workspace};

/// How long the service waits before it tells again what nobody acknowledged; each time twice as long.
const AGAIN: Duration = Duration::from_secs(3);
/// How long one look at a socket lasts.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// What is told until it is acknowledged.
pub(super) struct Told {
    kind: &'static str,
    payload: Value,
    /// Through which socket it was told last, and when.
    last: Option<(u64, Instant)>,
    /// Under which ids it was told, each of which may be acknowledged.
    ids: Vec<String>,
}

/// What a socket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Open,
    /// It is still read, and nothing more is told through it.
    Leaving,
    /// Nothing is read and nothing said, and the connection stays.
    Silent,
    Cut,
}

impl Workspace {
    pub(super) fn tell(&self, kind: &'static str, payload: Value) {
        self.state().told.push_back(Told { kind, payload, last: None, ids: Vec::new() });
    }

    /// How much is not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.state().told.len()
    }

    /// How long it took until something was acknowledged that was told once, the shortest time first.
    pub fn acknowledged_after(&self) -> Vec<Duration> {
        let mut times = self.state().acknowledged_after.clone();
        times.sort();
        times
    }

    /// Sockets that are open.
    pub fn open(&self) -> Vec<u64> {
        let state = self.state();
        state
            .sockets
            .iter()
            .filter(|(_, does)| **does == Behaviour::Open)
            .map(|(socket, _)| *socket)
            .collect()
    }

    /// From now on all sockets that are open do that.
    pub fn sockets_are(&self, behaviour: Behaviour) {
        self.state()
            .sockets
            .values_mut()
            .filter(|does| **does == Behaviour::Open)
            .for_each(|does| *does = behaviour);
    }

    /// What waits is told in the wrong order.
    pub fn reverse(&self) {
        self.state().told.make_contiguous().reverse();
    }

    /// Everything that is told now is told twice.
    pub fn tell_again(&self) {
        let mut state = self.state();
        let again: Vec<_> = state.told.iter().map(|told| (told.kind, told.payload.clone())).collect();
        let again =
            again.into_iter().map(|(kind, payload)| Told { kind, payload, last: None, ids: Vec::new() });
        state.told.extend(again);
    }
}

pub(super) fn serve(workspace: Workspace, listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let workspace = workspace.clone();
            thread::spawn(move || workspace.socket(stream));
        }
    });
}

impl Workspace {
    fn socket(&self, stream: TcpStream) {
        let Ok(()) = stream.set_nodelay(true) else { return };
        let Ok(mut peer) = tungstenite::accept(stream) else { return };
        if peer.get_mut().set_read_timeout(Some(LOOK)).is_err() {
            return;
        }
        let number = self.number();
        let hello = json!({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0APP"},
            "debug_info": {"host": "applink", "approximate_connection_time": 18060}});
        if peer.send(Message::text(hello.to_string())).is_err() {
            return;
        }
        self.state().sockets.insert(number, Behaviour::Open);
        self.talk(number, &mut peer);
        self.state().sockets.remove(&number);
    }

    fn talk(&self, number: u64, peer: &mut WebSocket<TcpStream>) {
        let mut announced = false;
        loop {
            let does = self.state().sockets.get(&number).copied();
            match does {
                None | Some(Behaviour::Cut) => return,
                Some(Behaviour::Silent) => {
                    thread::sleep(LOOK);
                    continue;
                }
                Some(Behaviour::Leaving) if !announced => {
                    announced = true;
                    let leaving =
                        json!({"type": "disconnect", "reason": "refresh_requested", "debug_info": {}});
                    if peer.send(Message::text(leaving.to_string())).is_err() {
                        return;
                    }
                }
                Some(Behaviour::Leaving) => {}
                Some(Behaviour::Open) => {
                    let next = next_for(number, &mut self.state());
                    if let Some(envelope) = next
                        && peer.send(Message::text(envelope.to_string())).is_err()
                    {
                        return;
                    }
                }
            }
            match peer.read() {
                Ok(Message::Text(text)) => {
                    let said: Value = serde_json::from_str(&text).expect("JSON");
                    let id = said["envelope_id"].as_str().expect("an id");
                    acknowledge(id, &mut self.state());
                }
                Ok(_) => {}
                Err(Error::Io(error))
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => return,
            }
        }
    }
}

/// The envelope that goes through a socket next.
pub(super) fn next_for(socket: u64, state: &mut State) -> Option<Value> {
    let alive: Vec<u64> = state.sockets.keys().copied().collect();
    let now = Instant::now();
    let waits = |told: &Told| match &told.last {
        None => true,
        Some((through, at)) => {
            let times = u32::try_from(told.ids.len()).unwrap_or(u32::MAX).min(8);
            !alive.contains(through) || now - *at >= AGAIN * 2_u32.pow(times - 1)
        }
    };
    let place = state.told.iter().position(waits)?;
    state.next += 1;
    let id = format!("envelope-{}", state.next);
    let told = &mut state.told[place];
    let mut envelope = json!({"type": told.kind, "envelope_id": id, "payload": told.payload,
        "accepts_response_payload": told.kind != "events_api"});
    if !told.ids.is_empty() {
        envelope["retry_attempt"] = told.ids.len().into();
        envelope["retry_reason"] = "timeout".into();
    }
    told.last = Some((socket, now));
    told.ids.push(id);
    Some(envelope)
}

pub(super) fn acknowledge(id: &str, state: &mut State) {
    let Some(place) = state.told.iter().position(|told| told.ids.iter().any(|known| known == id)) else {
        return;
    };
    let Some(Told { last: Some((_, at)), ids, .. }) = state.told.remove(place) else { return };
    if ids.len() == 1 {
        state.acknowledged_after.push(at.elapsed());
    }
}
