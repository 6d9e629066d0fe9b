//! How often the bot may do something in a chat.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The service takes about one message a second in a chat and twenty a minute in a group, edits included
/// (<https://core.telegram.org/bots/faq>, "My bot is hitting limits", read on 2026-11-27).
const PRIVATE: Duration = Duration::from_secs(1);
const GROUP: Duration = Duration::from_secs(3);
/// Chats that are remembered; those of which nothing is to be waited for any more are forgotten beyond that.
const MOST: usize = 1000;

#[derive(Default)]
pub struct ChatPace(Mutex<HashMap<i64, Chat>>);

#[derive(Clone, Copy)]
struct Chat {
    /// From when on a preview may change.
    edit: Instant,
    /// Until when the service takes nothing.
    held: Instant,
}

impl ChatPace {
    /// Something was sent to the chat.
    pub fn sent(&self, chat: i64, now: Instant) {
        // Groups have negative numbers.
        let gap = if chat < 0 { GROUP } else { PRIVATE };
        self.change(chat, now, |known| known.edit = now + gap);
    }

    /// The service said that it takes nothing for so long.
    pub fn hold(&self, chat: i64, now: Instant, seconds: u64) {
        // What nobody would wait for is asked about again within the hour.
        let until = now + Duration::from_secs(seconds.min(3600));
        self.change(chat, now, |known| known.held = until);
    }

    /// How long a message has to wait.
    pub fn message_waits(&self, chat: i64, now: Instant) -> Duration {
        self.get(chat).map_or(Duration::ZERO, |known| known.held.saturating_duration_since(now))
    }

    /// How long a preview has to wait.
    pub fn edit_waits(&self, chat: i64, now: Instant) -> Duration {
        self.get(chat)
            .map_or(Duration::ZERO, |known| known.held.max(known.edit).saturating_duration_since(now))
    }

    fn get(&self, chat: i64) -> Option<Chat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&chat).copied()
    }

    fn change(&self, chat: i64, now: Instant, change: impl FnOnce(&mut Chat)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain(|_, known| known.edit.max(known.held) > now);
        }
        change(all.entry(chat).or_insert(Chat { edit: now, held: now }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_wait_their_time_and_messages_only_where_the_service_says_so() {
        let (pace, now) = (ChatPace::default(), Instant::now());
        assert_eq!(pace.edit_waits(1, now), Duration::ZERO);
        pace.sent(1, now);
        pace.sent(-1, now);
        assert_eq!((pace.edit_waits(1, now), pace.message_waits(1, now)), (PRIVATE, Duration::ZERO));
        assert_eq!(pace.edit_waits(-1, now), GROUP);
        pace.hold(1, now, 5);
        assert_eq!(
            (pace.edit_waits(1, now), pace.message_waits(1, now)),
            (Duration::from_secs(5), Duration::from_secs(5))
        );
        assert_eq!(pace.message_waits(1, now + Duration::from_secs(6)), Duration::ZERO);
    }
}
