//! What has to be known after a restart: which words of people were done, which conversation is whose, and which messages of the bot may
//! still change. One small file, replaced as a whole.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;

use crate::event::ChannelPlace;

const FILE: &str = "slack.json";

/// What was heard and is no turn, so that it is not done twice: the service tells of it again for some minutes, and of turns the daemon knows.
const DONE: usize = 500;
/// Questions whose buttons may still stand somewhere, and answers of which a part was sent. Of those before only a repetition would be noticed.
const MOST: usize = 500;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AppRecord {
    done: VecDeque<String>,
    /// Conversations that were begun anew, by those in whose place they are.
    conversations: BTreeMap<String, String>,
    /// Messages that show an answer which is being made, by session.
    pub drafts: BTreeMap<String, PostedMessage>,
    /// Messages that show a question, by the id that an answer names.
    pub cards: Recent<QuestionCard>,
    /// How many parts of a message went out, by delivery.
    pub parts: Recent<usize>,
}

/// The newest of what bears a name, so many of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recent<T>(VecDeque<(String, T)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Recent<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub fn insert(&mut self, name: &str, value: T) {
        self.remove(name);
        self.0.push_back((name.to_owned(), value));
        while self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}

/// A message of the bot, by which it can be changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PostedMessage {
    pub channel: String,
    pub ts: String,
}

/// A message of the bot that shows a question, with buttons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionCard {
    #[serde(flatten)]
    pub message: PostedMessage,
    /// The place to which an answer to it is handed in.
    pub place: ChannelPlace,
    /// The conversation in which it is asked.
    pub session: String,
    pub text: String,
}

impl AppRecord {
    pub fn was_done(&self, external_id: &str) -> bool {
        self.done.iter().any(|done| done == external_id)
    }

    pub fn do_once(&mut self, external_id: &str) {
        self.done.push_back(external_id.to_owned());
        while self.done.len() > DONE {
            self.done.pop_front();
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
}

/// The file, and what it holds. Clones are the same.
#[derive(Clone)]
pub struct AppKeeper {
    host: Host,
    kept: Arc<Mutex<AppRecord>>,
    /// Held while the file is written, so that the newest content is the last.
    writing: Arc<tokio::sync::Mutex<()>>,
    path: PathBuf,
}

impl AppKeeper {
    pub fn open(host: Host) -> Result<Self, Fault> {
        let path = host.data_folder().join(FILE);
        let kept = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                // The daemon knows messages that come again; what is lost is which of the bot's messages may change.
                host.warn(format!("`{}` cannot be read and is begun anew: {error}", path.display()));
                AppRecord::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => AppRecord::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { host, kept: Arc::new(Mutex::new(kept)), writing: Arc::default(), path })
    }

    pub fn look<T>(&self, look: impl FnOnce(&AppRecord) -> T) -> T {
        look(&self.lock())
    }

    /// Changes what is kept; once this returns it is in the file.
    pub async fn change<T>(&self, change: impl FnOnce(&mut AppRecord) -> T) -> Result<T, Fault> {
        let changed = change(&mut self.lock());
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

    fn lock(&self) -> MutexGuard<'_, AppRecord> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_known_for_a_while_and_no_longer() {
        let mut kept = AppRecord::default();
        kept.do_once("C1:1.1");
        assert!(kept.was_done("C1:1.1") && !kept.was_done("C1:1.2"));
        for number in 0..DONE {
            kept.do_once(&number.to_string());
        }
        assert!(!kept.was_done("C1:1.1") && kept.done.len() == DONE);
        kept.begin_anew("slack:person.U7".to_owned(), "1.1");
        assert_eq!(kept.conversation("slack:person.U7"), "slack:person.U7:1.1");
        assert_eq!(kept.conversation("slack:person.U8"), "slack:person.U8");
    }

    #[test]
    fn the_newest_are_kept_whatever_they_are_called() {
        let mut parts = Recent::default();
        for number in (0..2 * MOST).rev() {
            parts.insert(&number.to_string(), number);
        }
        assert_eq!((parts.get("0"), parts.get("999"), parts.values().count()), (Some(&0), None, MOST));
        parts.insert("0", 7);
        assert_eq!((parts.get("0"), parts.values().count()), (Some(&7), MOST));
        parts.remove("0");
        assert_eq!(parts.get("0"), None);
    }
}
