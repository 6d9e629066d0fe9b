//! What has to be known after a restart: how far the mailbox was read, and which questions wait for an answer.

use drupe_channel::{KeptState, Recent};
use drupe_extension_api::prelude::*;

/// The file in the data folder that has it.
pub const FILE: &str = "email.json";

pub type MailKeeper = KeptState<MailRecord>;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MailRecord {
    pub mailbox: Option<ReadMailbox>,
    /// Questions about calls, by what their deliveries are called in the ids of mails.
    pub questions: Recent<AskedQuestion>,
}

/// A question that was asked by a mail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedQuestion {
    /// The id that an answer names.
    pub id: String,
    /// The conversation in which it was asked.
    pub session: SessionId,
}

/// How far a mailbox was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadMailbox {
    /// Which mailbox it is, by its server and its name there.
    pub place: String,
    /// The numbers of its mails hold as long as this does (RFC 9051, 2.3.1.1; read on 2026-11-27).
    pub validity: u32,
    /// The highest number that was looked at.
    pub done: u32,
    /// Mails from before are none of the assistant's: in seconds since 1970, and as the day that a search names.
    pub since: i64,
    pub since_day: String,
    /// The first number that is new since the mails were numbered anew; those before are looked at again where they are unread.
    #[serde(default)]
    pub again_below: u32,
    /// The mail that is being read, and how often that has begun: what ends this process ends it each time.
    #[serde(default)]
    reading: Option<(u32, u32)>,
}

impl ReadMailbox {
    /// A mailbox that is read from now on.
    pub fn new(place: String, validity: u32, done: u32, since: i64, since_day: String) -> Self {
        Self { place, validity, done, since, since_day, again_below: 0, reading: None }
    }

    /// The same mailbox whose mails have other numbers, of which `next` is that of the next one.
    pub fn numbered_anew(self, validity: u32, next: u32) -> Self {
        Self { validity, done: 0, again_below: next, reading: None, ..self }
    }

    /// Begins to read a mail; how often that has begun before and has not ended.
    pub fn begin(&mut self, uid: u32) -> u32 {
        let before = self.reading.filter(|(known, _)| *known == uid).map_or(0, |(_, times)| times);
        self.reading = Some((uid, before + 1));
        before
    }

    pub fn end(&mut self) {
        self.reading = None;
    }
}
