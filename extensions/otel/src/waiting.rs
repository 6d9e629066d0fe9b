//! Which turns wait to be sent, and which were sent of late. One small file, replaced as a whole.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;
use tokio::sync::Notify;

const FILE: &str = "otel.json";

/// Turns that are known to be sent. A message of the daemon comes again where the last process ended before it was done with it, which are
/// some dozens at most, and a turn that goes from one agent to another is told of by each.
const SENT: usize = 500;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Turns {
    waiting: VecDeque<TurnId>,
    sent: VecDeque<TurnId>,
}

/// What becomes of a turn that is told of.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnAdded {
    /// It waits, or was sent before.
    Known,
    New,
    /// It waits now, and the oldest does not any more.
    InPlaceOf(TurnId),
}

impl Turns {
    fn add(&mut self, turn: TurnId, most: usize) -> TurnAdded {
        if self.waiting.contains(&turn) || self.sent.contains(&turn) {
            return TurnAdded::Known;
        }
        self.waiting.push_back(turn);
        match self.waiting.len() > most {
            true => self.waiting.pop_front().map_or(TurnAdded::New, TurnAdded::InPlaceOf),
            false => TurnAdded::New,
        }
    }

    fn done(&mut self, turn: &TurnId) {
        self.waiting.retain(|waits| waits != turn);
        self.sent.push_back(turn.clone());
        while self.sent.len() > SENT {
            self.sent.pop_front();
        }
    }
}

/// The file, and what it holds. Clones are the same.
#[derive(Clone)]
pub struct TurnQueue {
    host: Host,
    turns: Arc<Mutex<Turns>>,
    /// Held while the file is written, so that the newest content is the last.
    writing: Arc<tokio::sync::Mutex<()>>,
    path: PathBuf,
    most: usize,
    pub added: Arc<Notify>,
}

impl TurnQueue {
    pub fn open(host: Host, most: usize) -> Result<Self, Fault> {
        let path = host.data_folder().join(FILE);
        let turns = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                host.warn(format!(
                    "`{}` cannot be read, so what waited is not sent: {error}",
                    path.display()
                ));
                Turns::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Turns::default(),
            Err(error) => return Err(error.into()),
        };
        let turns = Arc::new(Mutex::new(turns));
        Ok(Self { host, turns, writing: Arc::default(), path, most, added: Arc::default() })
    }

    /// All that wait, the oldest first.
    pub fn all(&self) -> Vec<TurnId> {
        self.lock().waiting.iter().cloned().collect()
    }

    /// Has a turn wait. Once this returns it does so after a restart as well.
    pub async fn add(&self, turn: TurnId) -> Result<TurnAdded, Fault> {
        let added = self.lock().add(turn, self.most);
        if added != TurnAdded::Known {
            self.write().await?;
            self.added.notify_one();
        }
        Ok(added)
    }

    /// A turn was sent, or never can be.
    pub async fn done(&self, turn: &TurnId) -> Result<(), Fault> {
        self.lock().done(turn);
        self.write().await
    }

    async fn write(&self) -> Result<(), Fault> {
        let _writing = self.writing.lock().await;
        let content = serde_json::to_vec(&*self.lock())?;
        let path = self.path.clone();
        self.host
            .blocking(move || {
                let next = path.with_extension("new");
                let mut file = File::create(&next)?;
                file.write_all(&content)?;
                file.sync_all()?;
                Ok(fs::rename(next, path)?)
            })
            .await
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_waits_once_and_the_oldest_goes_where_there_is_no_room() {
        let turn = |id: &str| TurnId::new(id).expect("an id");
        let mut turns = Turns::default();
        assert_eq!(turns.add(turn("a"), 2), TurnAdded::New);
        assert_eq!(turns.add(turn("a"), 2), TurnAdded::Known);
        assert_eq!(turns.add(turn("b"), 2), TurnAdded::New);
        assert_eq!(turns.add(turn("c"), 2), TurnAdded::InPlaceOf(turn("a")));
        turns.done(&turn("b"));
        assert_eq!(turns.add(turn("b"), 2), TurnAdded::Known, "it was sent");
        assert_eq!(turns.waiting, [turn("c")]);
        for n in 0..2 * SENT {
            turns.done(&turn(&n.to_string()));
        }
        assert_eq!(turns.sent.len(), SENT);
    }
}
