//! Who has a place at the control socket. When there is no room for one more, whoever has been idle longest leaves.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The places, and who has them.
pub struct Places {
    most: usize,
    taken: Mutex<Vec<Arc<Place>>>,
}

/// What is known of one connection.
struct Place {
    /// Cancelled when it must leave.
    leave: CancellationToken,
    work: Mutex<Work>,
}

struct Work {
    /// Requests that are worked on.
    requests: usize,
    /// When the last one ended, or the connection began.
    since: Instant,
}

/// A place of a connection, for as long as that lasts.
pub struct Taken {
    places: Arc<Places>,
    place: Arc<Place>,
}

/// A request of a connection that is worked on.
pub struct Working(Arc<Place>);

impl Places {
    /// So many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes a place for a connection that ends with `leave`. None where each connection that has one is at work, except
    /// for one that must be heard in any case.
    pub fn take(self: &Arc<Self>, leave: CancellationToken, in_any_case: bool) -> Option<Taken> {
        let mut taken = self.taken.lock();
        if taken.len() >= self.most {
            let idle = taken.iter().enumerate().filter_map(|(at, place)| Some((place.idle_since()?, at)));
            match idle.min() {
                Some((_, longest)) => taken.swap_remove(longest).leave.cancel(),
                None if in_any_case => {}
                None => return None,
            }
        }
        let work = Mutex::new(Work { requests: 0, since: Instant::now() });
        let place = Arc::new(Place { leave, work });
        taken.push(Arc::clone(&place));
        drop(taken);
        Some(Taken { places: Arc::clone(self), place })
    }
}

impl Place {
    /// Since when nothing is worked on for it; none while something is.
    fn idle_since(&self) -> Option<Instant> {
        let work = self.work.lock();
        (work.requests == 0).then_some(work.since)
    }
}

impl Taken {
    /// A request is worked on from now on.
    pub fn work(&self) -> Working {
        self.place.work.lock().requests += 1;
        Working(Arc::clone(&self.place))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.taken.lock().retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut work = self.0.work.lock();
        work.requests -= 1;
        work.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<Places>, in_any_case: bool) -> Option<(Taken, CancellationToken)> {
        let leave = CancellationToken::new();
        places.take(leave.clone(), in_any_case).map(|taken| (taken, leave))
    }

    fn open(places: &Arc<Places>) -> (Taken, CancellationToken) {
        take(places, false).expect("there is room")
    }

    #[test]
    fn the_connection_that_has_been_idle_longest_leaves_for_a_new_one() {
        let places = Places::new(3);
        let [first, second, third] = [open(&places), open(&places), open(&places)];
        let working = first.0.work();
        drop(second.0.work());
        let _fourth = open(&places);
        let left = [&first, &second, &third].map(|(_, leave)| leave.is_cancelled());
        assert_eq!(left, [false, false, true], "one works, one has worked since");
        drop(working);
        drop(open(&places));
        assert!(second.1.is_cancelled() && !first.1.is_cancelled());
    }

    #[test]
    fn nobody_who_is_at_work_leaves_and_the_supervisor_gets_a_place_all_the_same() {
        let places = Places::new(2);
        let [first, second] = [open(&places), open(&places)];
        let working = [first.0.work(), second.0.work()];
        assert!(take(&places, false).is_none());
        let probe = take(&places, true).expect("it is heard in any case");
        assert!(!first.1.is_cancelled() && !second.1.is_cancelled());
        drop((probe, working));
        drop(first);
        assert!(take(&places, false).is_some(), "who leaves gives its place back");
    }
}
