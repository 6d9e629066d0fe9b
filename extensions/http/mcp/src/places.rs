//! Places of which there are so many. One token has no more than its share of them, so that nobody takes those of all others.

use std::{collections::HashMap, sync::Arc};

use drupe_extension_api::{Fault, FaultCode};
use parking_lot::Mutex;

/// The part of all places that one token has at most.
const SHARE: usize = 4;

pub struct Places {
    most: usize,
    /// What holds one, for whoever is told that there are no more.
    what: &'static str,
    held: Held,
}

/// How many each owner holds.
type Held = Arc<Mutex<HashMap<String, usize>>>;

/// One of the places. It is free again when this is dropped.
pub struct Place {
    owner: String,
    held: Held,
}

impl Places {
    pub fn new(most: usize, what: &'static str) -> Self {
        Self { most, what, held: Arc::default() }
    }

    pub fn take(&self, owner: &str) -> Result<Place, Fault> {
        let busy = |number: usize, whose: &str| {
            let what = self.what;
            Err(Fault::new(FaultCode::Busy, format!("{number} {what}{whose}; no more are taken in")))
        };
        let mut held = self.held.lock();
        if held.values().sum::<usize>() >= self.most {
            return busy(self.most, "");
        }
        let share = self.most / SHARE;
        if held.get(owner).is_some_and(|own| *own >= share) {
            return busy(share, " with this token");
        }
        *held.entry(owner.to_owned()).or_default() += 1;
        Ok(Place { owner: owner.to_owned(), held: Arc::clone(&self.held) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(own) = held.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_has_its_share_and_all_together_have_no_more_than_there_are() {
        let places = Places::new(8, "things are held");
        let said = |refused: Result<Place, Fault>| refused.err().map(|fault| (fault.code, fault.message));
        let full = |words: &str| Some((FaultCode::Busy, format!("{words}; no more are taken in")));
        let mut held: Vec<_> = (0..2).map(|_| places.take("a").expect("it is free")).collect();
        assert_eq!(said(places.take("a")), full("2 things are held with this token"));
        held.extend(["b", "b", "c", "c", "d", "d"].map(|owner| places.take(owner).expect("it is free")));
        assert_eq!(said(places.take("e")), full("8 things are held"));
        held.remove(0);
        held.push(places.take("a").expect("it is free again"));
        drop(held);
        assert!(places.held.lock().is_empty(), "whoever holds none is forgotten");
    }
}
