//! A session: where it stands, and how its latest turns went.

use drupe_extension_api::control::{Explanation, SessionStatus};
use drupe_journal::TurnRows;
use jiff::Timestamp;

use super::turn::why_turn;
use crate::{
    told::{Told, cited},
    words::{between, count, excerpt, lasting},
};

/// How a session stands at `now`. `latest` are its latest turns, oldest first; of each the first sentence is told.
pub fn why_session(status: &SessionStatus, latest: &[TurnRows], now: Timestamp) -> Explanation {
    let mut told = Told::of("session", &status.id);
    let row = || cited("sessions", &status.id, format!("{}: {}", status.id, excerpt(&status.title)));
    let turns = count(status.turn_count, "turn");
    let since = lasting(between(status.updated, now));
    told.say(format!("The session has {turns}; something happened in it last {since} ago."), [row()]);
    for turn in latest.iter().rev() {
        let Explanation { sentences, remedy, cited, .. } = why_turn(turn, now);
        let Some(first) = sentences.into_iter().next() else { continue };
        let mut rows = cited.into_iter();
        if let Some(because) = rows.next() {
            told.say(format!("Turn {}: {first}", turn.turn), [because]);
        }
        // What is to be done is what the latest turn needs.
        if let (Some(remedy), true) = (remedy, Some(&turn.turn) == latest.last().map(|last| &last.turn)) {
            told.remedy(remedy);
        }
    }
    if let Some(agent) = &status.agent {
        told.say(format!("`{agent}` was chosen to answer in it."), [row()]);
    }
    told.done()
}
