//! A message of the bus that waits for its subscriber, or was given up.

use drupe_extension_api::control::Explanation;
use drupe_journal::{DueMessage, MessageRow};
use jiff::Timestamp;

use crate::{
    told::{Told, cited},
    words::{between, count, excerpt, lasting, sentence},
};

/// Why a message was given up, or has not been delivered at `now`.
pub fn why_message(row: &MessageRow, now: Timestamp) -> Explanation {
    let DueMessage { id, topic, subscriber, attempts, published, chain, correlation, .. } = &row.message;
    let mut told = Told::of("message", id);
    let why = row.why.as_deref().map(|why| format!(": {}", excerpt(why))).unwrap_or_default();
    let tries = count((*attempts).into(), "attempt");
    let state = if row.dead { "dead" } else { "waiting" };
    let cite = || cited("deliveries", id, format!("{topic} for {subscriber}, {state} after {tries}{why}"));
    if row.dead {
        let text = format!("the message on `{topic}` was given up for `{subscriber}` after {tries}{why}");
        told.say(sentence(&text), [cite()]);
        told.remedy(format!(
            "mend what it names, then `drupe bus dead retry {id}`; `drupe bus dead drop {id}` forgets it"
        ));
    } else {
        let text = format!("the message on `{topic}` waits for `{subscriber}`, after {tries}{why}");
        told.say(sentence(&text), [cite()]);
        let text = if row.due > now {
            format!("It is tried again at {}.", row.due)
        } else {
            format!("It has been due since {}.", row.due)
        };
        told.say(text, [cite()]);
    }
    told.say(
        format!("It was published at {published}, {} ago.", lasting(between(*published, now))),
        [cite()],
    );
    if chain.hops > 0 {
        let agents: Vec<_> = chain.ancestors.iter().map(|agent| format!("`{agent}`")).collect();
        let text = format!(
            "{} of events led to it, with {} at work.",
            count(chain.hops.into(), "link"),
            agents.join(", ")
        );
        told.say(text, [cite()]);
    }
    if let Some(correlation) = correlation {
        told.say(format!("What set it off bears the correlation id {correlation}."), [cite()]);
    }
    told.done()
}
