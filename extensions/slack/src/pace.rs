//! How often the bot may do something.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The service takes about one message a second in a channel (<https://docs.slack.dev/apis/web-api/rate-limits>, "Posting messages"), and of changes
/// more than fifty a minute in the whole workspace (`chat.update` is of tier 3), both read on 2026-11-27.
const CHANNEL: Duration = Duration::from_secs(1);
const CHANGES: Duration = Duration::from_millis(1_200);
/// Channels that are remembered; those of which nothing is to be waited for any more are forgotten beyond that.
const MOST: usize = 1000;

#[derive(Default)]
pub struct WorkspacePace(Mutex<Known>);

#[derive(Default)]
struct Known {
    channels: HashMap<String, ChannelPace>,
    /// From when on the service takes another change that nobody must get.
    changes: Option<Instant>,
}

#[derive(Clone, Copy)]
struct ChannelPace {
    /// From when on a preview may change.
    preview: Instant,
    /// Until when the service takes nothing.
    held: Instant,
}

impl WorkspacePace {
    /// Something was sent to the channel.
    pub fn sent(&self, channel: &str, now: Instant) {
        self.lock().change(channel, now, |known| known.preview = now + CHANNEL);
    }

    /// A message was changed.
    pub fn changed(&self, channel: &str, now: Instant) {
        let mut known = self.lock();
        known.change(channel, now, |known| known.preview = now + CHANNEL);
        let next = now + CHANGES;
        known.changes = Some(known.changes.map_or(next, |before| before.max(next)));
    }

    /// The service said that it takes nothing for so long: in a channel, and of changes in any.
    pub fn hold(&self, channel: &str, is_change: bool, now: Instant, seconds: u64) {
        // What nobody would wait for is asked about again within the hour.
        let until = now + Duration::from_secs(seconds.min(3600));
        let mut known = self.lock();
        known.change(channel, now, |known| known.held = until);
        if is_change {
            known.changes = Some(until);
        }
    }

    /// How long a message has to wait.
    pub fn message_waits(&self, channel: &str, now: Instant) -> Duration {
        self.lock()
            .channels
            .get(channel)
            .map_or(Duration::ZERO, |known| known.held.saturating_duration_since(now))
    }

    /// How long a preview has to wait.
    pub fn preview_waits(&self, channel: &str, now: Instant) -> Duration {
        let known = self.lock();
        let of_channel = known.channels.get(channel).map(|known| known.held.max(known.preview));
        of_channel.max(known.changes).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn change(&mut self, channel: &str, now: Instant, change: impl FnOnce(&mut ChannelPace)) {
        if self.channels.len() >= MOST {
            self.channels.retain(|_, known| known.preview.max(known.held) > now);
        }
        change(self.channels.entry(channel.to_owned()).or_insert(ChannelPace { preview: now, held: now }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_wait_their_time_and_messages_only_where_the_service_says_so() {
        let (pace, now) = (WorkspacePace::default(), Instant::now());
        assert_eq!(pace.preview_waits("C1", now), Duration::ZERO);
        pace.sent("C1", now);
        assert_eq!((pace.preview_waits("C1", now), pace.message_waits("C1", now)), (CHANNEL, Duration::ZERO));
        assert_eq!(pace.preview_waits("C2", now), Duration::ZERO);
        // Of changes the workspace takes so many, wherever they are.
        pace.changed("C1", now);
        assert_eq!((pace.preview_waits("C1", now), pace.preview_waits("C2", now)), (CHANGES, CHANGES));
        pace.hold("C1", false, now, 5);
        let waits = |channel| (pace.preview_waits(channel, now), pace.message_waits(channel, now));
        assert_eq!(waits("C1"), (Duration::from_secs(5), Duration::from_secs(5)));
        assert_eq!(waits("C2"), (CHANGES, Duration::ZERO));
        pace.hold("C1", true, now, 7);
        assert_eq!(waits("C2"), (Duration::from_secs(7), Duration::ZERO));
        assert_eq!(pace.message_waits("C1", now + Duration::from_secs(8)), Duration::ZERO);
    }
}
