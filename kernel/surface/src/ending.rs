//! Whether and why the kernel is to end. A restart that a turn asked for waits for that turn.

use drupe_extension_api::TurnId;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Why it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The operator, or the supervisor, ends the daemon.
    Stop,
    /// A new kernel follows.
    Restart {
        /// For the log.
        reason: String,
    },
}

/// What was asked for so far.
pub struct Ending {
    decided: watch::Sender<Option<Why>>,
    /// Restarts that wait for the turns that asked for them.
    waiting: Mutex<Vec<(TurnId, Why)>>,
}

impl Default for Ending {
    fn default() -> Self {
        Self { decided: watch::channel(None).0, waiting: Mutex::default() }
    }
}

impl Ending {
    /// Ends at once, or when `after` has ended. The first reason stands, but a stop goes before a restart.
    pub fn request(&self, why: Why, after: Option<TurnId>) {
        match after {
            Some(turn) => self.waiting.lock().push((turn, why)),
            None => {
                self.decided.send_if_modified(|decided| {
                    let changes = decided.is_none() || (why == Why::Stop && *decided != Some(Why::Stop));
                    if changes {
                        *decided = Some(why);
                    }
                    changes
                });
            }
        }
    }

    /// A turn has ended: what waited for it happens.
    pub fn turn_ended(&self, turn: &TurnId) {
        let why = {
            let mut waiting = self.waiting.lock();
            waiting.iter().position(|(of, _)| of == turn).map(|at| waiting.remove(at).1)
        };
        if let Some(why) = why {
            self.request(why, None);
        }
    }

    /// What is decided.
    pub fn decided(&self) -> Option<Why> {
        self.decided.borrow().clone()
    }

    /// Waits until it is decided.
    pub async fn wait(&self) -> Why {
        let mut decided = self.decided.subscribe();
        loop {
            if let Some(why) = decided.borrow_and_update().clone() {
                return why;
            }
            if decided.changed().await.is_err() {
                return Why::Stop;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_waits_for_the_turn_that_asked_for_it() {
        let ending = Ending::default();
        let (mine, other) = (TurnId::new("t1").expect("valid"), TurnId::new("t2").expect("valid"));
        ending.request(Why::Restart { reason: "r".into() }, Some(mine.clone()));
        ending.turn_ended(&other);
        assert_eq!(ending.decided(), None);
        ending.turn_ended(&mine);
        assert_eq!(ending.decided(), Some(Why::Restart { reason: "r".into() }));
        ending.request(Why::Stop, None);
        assert_eq!(ending.decided(), Some(Why::Stop));
        ending.request(Why::Restart { reason: "late".into() }, None);
        assert_eq!(ending.decided(), Some(Why::Stop));
    }
}
