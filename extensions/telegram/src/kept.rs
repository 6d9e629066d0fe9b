//! What has to be known after a restart: how far the service's updates were heard, which conversation is whose, and which messages of the
//! bot may still change. One small file, replaced as a whole.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;

const FILE: &str = "telegram.json";

/// Updates that are known by their numbers, so that none is heard twice; the service tells again of those alone that were not confirmed.
const HEARD: usize = 500;
/// Questions whose buttons may still stand somewhere, and answers of which a part was sent.
const MOST: usize = 500;
/// After a week without an update the service begins to number at random (<https://core.telegram.org/bots/api#update>, read on 2026-11-27):
/// an offset from before would skip what came since.
const OFFSET_HOLDS_MS: i64 = 6 * 24 * 60 * 60 * 1000;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BotRecord {
    /// The number after that of the last update that was heard, and when that was.
    offset: Option<(i64, i64)>,
    heard: VecDeque<i64>,
    /// Conversations that were begun anew, by those in whose place they are.
    conversations: BTreeMap<String, String>,
    /// Messages that show an answer which is being made, by session.
    pub drafts: BTreeMap<String, i64>,
    /// Messages that show a question, by the id that an answer names.
    pub cards: BTreeMap<String, Card>,
    /// How many parts of a message went out, by delivery.
    pub parts: BTreeMap<String, usize>,
}

/// A message of the bot that shows a question, with buttons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    pub chat: i64,
    pub message: i64,
    /// The conversation in which it is asked.
    pub session: String,
    pub text: String,
}

impl BotRecord {
    pub fn offset(&self, now_ms: i64) -> Option<i64> {
        self.offset.filter(|(_, at)| now_ms - at < OFFSET_HOLDS_MS).map(|(offset, _)| offset)
    }

    pub fn was_heard(&self, update: i64) -> bool {
        self.heard.contains(&update)
    }

    /// An update was heard: the next request confirms it.
    pub fn hear(&mut self, update: i64, now_ms: i64) {
        self.offset = Some((update + 1, now_ms));
        self.heard.push_back(update);
        while self.heard.len() > HEARD {
            self.heard.pop_front();
        }
    }

    /// The conversation that goes on in place of another.
    pub fn conversation(&self, base: &str) -> String {
        self.conversations.get(base).cloned().unwrap_or_else(|| base.to_owned())
    }

    /// Begins a conversation anew; the same `name` twice is one.
    pub fn begin_anew(&mut self, base: String, name: &str) {
        let session = format!("{base}:{name}");
        self.conversations.insert(base, session);
    }

    fn bound(&mut self) {
        // The smallest keys are the oldest deliveries or arbitrary questions; of either only a repetition would be noticed.
        while self.cards.len() > MOST {
            self.cards.pop_first();
        }
        while self.parts.len() > MOST {
            self.parts.pop_first();
        }
    }
}

/// The file, and what it holds. Clones are the same.
#[derive(Clone)]
pub struct Keeper {
    host: Host,
    kept: Arc<Mutex<BotRecord>>,
    /// Held while the file is written, so that the newest content is the last.
    writing: Arc<tokio::sync::Mutex<()>>,
    path: PathBuf,
}

impl Keeper {
    pub fn open(host: Host) -> Result<Self, Fault> {
        let path = host.data_folder().join(FILE);
        let kept = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                // The daemon knows messages that come again; what is lost is which of its messages may change.
                host.warn(format!("`{}` cannot be read and is begun anew: {error}", path.display()));
                BotRecord::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BotRecord::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { host, kept: Arc::new(Mutex::new(kept)), writing: Arc::default(), path })
    }

    pub fn look<T>(&self, look: impl FnOnce(&BotRecord) -> T) -> T {
        look(&self.lock())
    }

    /// Changes what is kept; once this returns it is in the file.
    pub async fn change<T>(&self, change: impl FnOnce(&mut BotRecord) -> T) -> Result<T, Fault> {
        let changed = {
            let mut kept = self.lock();
            let changed = change(&mut kept);
            kept.bound();
            changed
        };
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
            .await?;
        Ok(changed)
    }

    fn lock(&self) -> MutexGuard<'_, BotRecord> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_is_too_old_would_skip_updates_and_is_not_used() {
        let mut kept = BotRecord::default();
        assert_eq!(kept.offset(0), None);
        kept.hear(41, 1_000);
        assert_eq!(kept.offset(2_000), Some(42));
        assert_eq!(kept.offset(1_000 + OFFSET_HOLDS_MS), None);
        assert!(kept.was_heard(41) && !kept.was_heard(42));
        for update in 0..2 * HEARD as i64 {
            kept.hear(update, 0);
        }
        assert!(!kept.was_heard(41) && kept.heard.len() == HEARD);
    }
}
