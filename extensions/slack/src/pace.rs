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
/// The longest wait for room that is worth to hold up what goes elsewhere, and the least time between two attempts where there is none.
pub const WORTH: Duration = Duration::from_secs(3);
/// Channels that are remembered; those of which nothing is to be waited for any more are forgotten beyond that.
const MOST: usize = 1000;

#[derive(Default)]
pub struct WorkspacePace(Mutex<Known>);

#[derive(Default)]
struct Known {
    channels: HashMap<String, ChannelPace>,
    /// From when on the service takes another change that nobody must get.
    changes: Option<Instant>,
    /// When something was turned away, by where it goes.
    turned_away: HashMap<String, Instant>,
}

/// What becomes of a message that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageRoom {
    /// It goes out after so long.
    After(Duration),
    /// It is told after this long that there is room in so many seconds, so that it is not tried again at once, and again.
    NotYet { tell_after: Duration, seconds: u64 },
}

#[derive(Clone, Copy)]
struct ChannelPace {
    /// From when on a preview may change.
    preview: Instant,
    /// Until when the service takes nothing.
    held: Instant,
}

impl WorkspacePace {
    /// Something was sent to the channel, so a preview there waits.
    pub fn sent(&self, channel: &str, now: Instant) {
        self.lock().change(channel, now, |known| known.preview = now + CHANNEL);
    }

    /// A message was changed, so previews wait in all channels.
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

    /// Whether there is room for a message in a channel. `address` is where in it the message goes, each of which is tried by itself.
    pub fn room(&self, channel: &str, address: &str, now: Instant) -> MessageRoom {
        let mut known = self.lock();
        let held = known.channels.get(channel).map(|known| known.held.saturating_duration_since(now));
        let held = held.unwrap_or_default();
        if held <= WORTH {
            return MessageRoom::After(held);
        }
        known.turned_away.retain(|_, at| now.saturating_duration_since(*at) < WORTH);
        let before = known.turned_away.get(address);
        let tell_after = before.map_or(Duration::ZERO, |at| (*at + WORTH).saturating_duration_since(now));
        known.turned_away.insert(address.to_owned(), now + tell_after);
        // In whole seconds, of which the last one counts as well.
        MessageRoom::NotYet { tell_after, seconds: held.as_secs() + 1 }
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
        let second = Duration::from_secs(1);
        let at_once = MessageRoom::After(Duration::ZERO);
        assert_eq!(pace.preview_waits("C1", now), Duration::ZERO);
        pace.sent("C1", now);
        assert_eq!((pace.preview_waits("C1", now), pace.room("C1", "C1", now)), (CHANNEL, at_once));
        assert_eq!(pace.preview_waits("C2", now), Duration::ZERO);
        // Of changes the workspace takes so many, wherever they are.
        pace.changed("C1", now);
        assert_eq!((pace.preview_waits("C1", now), pace.preview_waits("C2", now)), (CHANGES, CHANGES));
        pace.hold("C1", false, now, 2);
        let waits = |channel| (pace.preview_waits(channel, now), pace.room(channel, channel, now));
        assert_eq!(waits("C1"), (2 * second, MessageRoom::After(2 * second)));
        assert_eq!(waits("C2"), (CHANGES, at_once));
        pace.hold("C1", true, now, 7);
        assert_eq!(waits("C2"), (7 * second, at_once));
        assert_eq!(pace.room("C1", "C1", now + 8 * second), at_once);
    }

    #[test]
    fn what_has_no_room_is_turned_away_at_once_and_then_not_too_often() {
        let (pace, now) = (WorkspacePace::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        pace.hold("C1", false, now, 30);
        let told_after = |address, ms| match pace.room("C1", address, at(ms)) {
            MessageRoom::NotYet { tell_after, seconds } if seconds > 20 => tell_after,
            other => panic!("{other:?}"),
        };
        assert_eq!((told_after("C1/1", 0), told_after("C1/2", 0)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(told_after("C1/1", 1_000), Duration::from_secs(2));
        assert_eq!(
            told_after("C1/1", 3_500),
            Duration::from_millis(2_500),
            "it was told at the third second"
        );
        assert_eq!(told_after("C1/2", 3_500), Duration::ZERO);
    }
}
