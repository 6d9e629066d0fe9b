//! How often a bot may do something.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The longest wait for room that is worth to hold up what goes elsewhere, and the least time between two attempts where there is none.
pub(crate) const WORTH: Duration = Duration::from_secs(3);
/// The longest that a service is believed to take nothing: what nobody would wait for is asked about again within the hour.
const LONGEST_HELD: u64 = 3600;
/// Places that are remembered; those of which nothing is to be waited for any more are forgotten beyond that.
const MOST: usize = 1000;

/// The pace of one bot, by the places at which its service counts.
#[derive(Default)]
pub(crate) struct ChannelPace(Mutex<Paces>);

#[derive(Default)]
struct Paces {
    places: HashMap<String, PlacePace>,
    /// From when on the service takes another change that nobody must get.
    changes: Option<Instant>,
    /// When something was turned away, by where it goes.
    turned_away: HashMap<String, Instant>,
}

/// What becomes of a message that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageRoom {
    /// It goes out after so long.
    After(Duration),
    /// It is told after this long that there is room in so many seconds, so that it is not tried again at once, and again.
    NotYet { tell_after: Duration, seconds: u64 },
}

#[derive(Clone, Copy)]
struct PlacePace {
    /// From when on a preview may change.
    preview: Instant,
    /// Until when the service takes nothing.
    held: Instant,
}

impl ChannelPace {
    /// Something was sent to a place or changed there, so a preview waits: so long there, and so long everywhere.
    pub fn sent(&self, place: &str, now: Instant, there: Duration, everywhere: Duration) {
        let mut known = self.lock();
        known.change(place, now, |known| known.preview = now + there);
        if !everywhere.is_zero() {
            let next = now + everywhere;
            known.changes = Some(known.changes.map_or(next, |before| before.max(next)));
        }
    }

    /// The service said that it takes nothing for so long at a place; of changes perhaps nowhere.
    pub fn hold(&self, place: &str, now: Instant, seconds: u64, everywhere: bool) {
        let until = now + Duration::from_secs(seconds.min(LONGEST_HELD));
        let mut known = self.lock();
        known.change(place, now, |known| known.held = until);
        if everywhere {
            known.changes = Some(until);
        }
    }

    /// Whether there is room for a message at a place. `address` is where there the message goes, each of which is tried by itself.
    pub fn room(&self, place: &str, address: &str, now: Instant) -> MessageRoom {
        let mut known = self.lock();
        let held = known.places.get(place).map(|known| known.held.saturating_duration_since(now));
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
    pub fn preview_waits(&self, place: &str, now: Instant) -> Duration {
        let known = self.lock();
        let there = known.places.get(place).map(|known| known.held.max(known.preview));
        there.max(known.changes).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn lock(&self) -> MutexGuard<'_, Paces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Paces {
    fn change(&mut self, place: &str, now: Instant, change: impl FnOnce(&mut PlacePace)) {
        if self.places.len() >= MOST {
            self.places.retain(|_, known| known.preview.max(known.held) > now);
        }
        change(self.places.entry(place.to_owned()).or_insert(PlacePace { preview: now, held: now }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: Duration = Duration::from_secs(1);
    const EVERYWHERE: Duration = Duration::from_millis(1_200);

    #[test]
    fn previews_wait_their_time_and_messages_only_where_the_service_says_so() {
        let (pace, now) = (ChannelPace::default(), Instant::now());
        let second = Duration::from_secs(1);
        let at_once = MessageRoom::After(Duration::ZERO);
        assert_eq!(pace.preview_waits("C1", now), Duration::ZERO);
        pace.sent("C1", now, THERE, Duration::ZERO);
        assert_eq!((pace.preview_waits("C1", now), pace.room("C1", "C1", now)), (THERE, at_once));
        assert_eq!(pace.preview_waits("C2", now), Duration::ZERO);
        pace.sent("C1", now, THERE, EVERYWHERE);
        assert_eq!((pace.preview_waits("C1", now), pace.preview_waits("C2", now)), (EVERYWHERE, EVERYWHERE));
        pace.hold("C1", now, 2, false);
        let waits = |place| (pace.preview_waits(place, now), pace.room(place, place, now));
        assert_eq!(waits("C1"), (2 * second, MessageRoom::After(2 * second)));
        assert_eq!(waits("C2"), (EVERYWHERE, at_once));
        pace.hold("C1", now, 7, true);
        assert_eq!(waits("C2"), (7 * second, at_once));
        assert_eq!(pace.room("C1", "C1", now + 8 * second), at_once);
    }

    #[test]
    fn what_has_no_room_is_turned_away_at_once_and_then_not_too_often() {
        let (pace, now) = (ChannelPace::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        pace.hold("C1", now, 30, false);
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
