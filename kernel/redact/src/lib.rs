//! Takes secrets out of texts before they are shown, kept or sent to a model.
//!
//! A [`Redactor`] knows every secret that this process has handed to somebody, and stands where texts come in: replies and
//! requests of extensions, messages of people, answers of models, lines of the log. What is past these is clean, so that nobody
//! further on has to think of it. A secret that the process never learned is not known here.

mod json;
mod mask;
mod named;
mod pieces;
mod writer;

use std::{
    borrow::Cow,
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::{Map, Value};

pub use self::{mask::Mask, named::names_a_secret, pieces::Pieces, writer::Writer};

/// All secrets that are known so far. Clones are the same.
///
/// It forgets nothing: a secret that was replaced may still stand in what an extension remembers.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    values: Vec<Box<str>>,
    /// For texts that are there as a whole.
    whole: Arc<Mask>,
    /// For texts that come piece by piece: in the encodings that programs write, each as a text of its own.
    piecewise: Arc<Mask>,
}

impl Redactor {
    /// From now on these are taken out of everything. One that is shorter than 8 bytes is no secret: taking it out of texts
    /// would make them unreadable.
    pub fn learn<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.values.len();
        for secret in secrets {
            // A header has a scheme before its key, and a file of a key a line break behind it.
            let secret = secret.trim();
            if secret.len() >= mask::SHORTEST_SECRET && !known.values.iter().any(|value| **value == *secret) {
                known.values.push(secret.into());
            }
        }
        if known.values.len() > before {
            known.whole = Arc::new(Mask::of(known.values.iter().map(|value| &**value)));
            let encoded: Vec<String> =
                known.values.iter().flat_map(|value| pieces::encodings(value)).collect();
            known.piecewise = Arc::new(Mask::of(encoded.iter().map(String::as_str)));
        }
    }

    /// The same for all texts of a configuration whose keys say that they hold a secret, and of all below such a key.
    pub fn learn_named(&self, configuration: &Map<String, Value>) {
        let mut found = Vec::new();
        for (name, value) in configuration {
            named::collect(value, names_a_secret(name), &mut found);
        }
        self.learn(found);
    }

    /// A text without what is secret in it, in whatever encoding.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.whole().apply(text)
    }

    /// The same for a text that is kept.
    pub fn owned(&self, text: String) -> String {
        match self.text(&text) {
            shown if shown == text => text,
            shown => shown.into_owned(),
        }
    }

    /// JSON with nothing secret in any of its texts and keys. What is no JSON is looked through as a text.
    pub fn json<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        json::apply(&self.whole(), body)
    }

    /// For a text that comes piece by piece, where a secret may begin in one piece and end in another.
    pub fn pieces(&self) -> Pieces {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Pieces::new(Arc::clone(&known.piecewise))
    }

    /// For a log: what is written at once is looked through as one text.
    pub fn writer<W: io::Write>(&self, to: W) -> Writer<W> {
        Writer::new(self.clone(), to)
    }

    /// Whether it knows none, so that nothing changes.
    pub fn is_empty(&self) -> bool {
        self.whole().is_empty()
    }

    fn whole(&self) -> Arc<Mask> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).whole)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Redactor({} secrets)", known.values.len())
    }
}

#[cfg(test)]
mod tests;
