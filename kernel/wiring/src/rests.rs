//! Extensions that are asked in each turn and answer late are left alone for a while: a second at each point of each turn
//! is too much to wait for an answer that does not come.

use std::{collections::HashMap, time::Duration};

use drupe_extension_api::{ExtensionId, Fault, FaultCode, wire::HookPoint};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Late answers in a row that are borne.
const LATE: u32 = 3;

/// How long the first rest is; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(60);

/// How long a rest is at most.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What of an extension is asked: its hook at a point, or its context.
pub(crate) type Asked = Option<HookPoint>;

#[derive(Debug, Default)]
pub struct Rests(Mutex<HashMap<(ExtensionId, Asked), Rest>>);

#[derive(Debug, Default)]
struct Rest {
    late: u32,
    rests: u32,
    until: Option<Instant>,
}

impl Rests {
    /// How much longer an extension rests, if it does.
    pub(crate) fn left(&self, id: &ExtensionId, asked: Asked) -> Option<Duration> {
        let until = self.0.lock().get(&(id.clone(), asked))?.until?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// It answered in time, or it did not. After a rest one late answer is enough for the next.
    pub(crate) fn answered(&self, id: &ExtensionId, asked: Asked, late: bool) {
        let mut all = self.0.lock();
        if !late {
            all.remove(&(id.clone(), asked));
            return;
        }
        let rest = all.entry((id.clone(), asked)).or_default();
        rest.late += 1;
        if rest.late >= LATE {
            let length = FIRST.saturating_mul(1 << rest.rests.min(10)).min(LONGEST);
            rest.until = Some(Instant::now() + length);
            rest.rests += 1;
        }
    }

    /// A new instance of it has been late never.
    pub(crate) fn forget(&self, id: &ExtensionId) {
        self.0.lock().retain(|(of, _), _| of != id);
    }
}

/// Whether an answer was waited for in vain.
pub(crate) fn is_late<T>(answer: &Result<T, Fault>) -> bool {
    answer.as_ref().is_err_and(|fault| fault.code == FaultCode::Timeout)
}

pub(crate) fn not_asked(what: &str, id: &ExtensionId, left: Duration) -> String {
    format!(
        "{what} of `{id}` was not asked: it was late {LATE} times in a row and rests for {} s",
        left.as_secs().max(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_late_three_times_in_a_row_rests_and_each_time_longer() {
        let (rests, id) = (Rests::default(), ExtensionId::new("slow").expect("an id"));
        for late in [true, true, false, true, true] {
            rests.answered(&id, None, late);
            assert_eq!(rests.left(&id, None), None);
        }
        rests.answered(&id, None, true);
        assert_eq!(rests.left(&id, None), Some(FIRST));
        assert_eq!(rests.left(&id, Some(HookPoint::BeforeTool)), None);
        tokio::time::advance(FIRST).await;
        assert_eq!(rests.left(&id, None), None);
        rests.answered(&id, None, true);
        assert_eq!(rests.left(&id, None), Some(FIRST * 2));
        for _ in 0..40 {
            rests.answered(&id, None, true);
        }
        assert_eq!(rests.left(&id, None), Some(LONGEST));
        rests.answered(&id, None, false);
        assert_eq!(rests.left(&id, None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_instance_is_asked_at_once() {
        let (rests, id) = (Rests::default(), ExtensionId::new("slow").expect("an id"));
        for _ in 0..3 {
            rests.answered(&id, None, true);
        }
        assert!(rests.left(&id, None).is_some());
        rests.forget(&id);
        assert_eq!(rests.left(&id, None), None);
    }
}
