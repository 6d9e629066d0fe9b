//! The life of one extension, as a pure function: which step follows from what happened.

use drupe_extension_api::control::ExtensionState;

/// Where an extension is; what it holds is the driver's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Discovered,
    /// Its code is open, or its agent prepared.
    Loaded,
    Initialized,
    Active,
    Stopped,
    /// It failed while it worked, for this reason, and is tried again by itself.
    Degraded(String),
    /// It will not work until something changes.
    Out(Out),
}

/// Why an extension is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    Failed(String),
    /// It works by itself, but not together with the others: another one's change may mend it.
    Unwired(String),
    /// Something that it depends on is not there.
    Skipped(String),
    /// The operator or a missing configuration turned it off.
    Disabled(String),
    /// It brings something that the operator has not agreed to.
    AwaitingApproval(String),
    /// It brings something that the operator does not want.
    Denied(String),
    Quarantined(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The step that the last action named succeeded.
    Done,
    Failed(String),
    /// It worked, and does not any more: its process ended, its health or its service failed.
    Broke(String),
    /// It is not to be used.
    Rejected(Out),
    /// Something that it depends on went out.
    DependencyLost(String),
    /// It is tried again after a while.
    Retry,
    /// Something changed that may mend it: its files, a decision, what it depends on.
    Again,
    Stop,
}

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open its code, or prepare its agent.
    Load,
    Initialize,
    Start,
    /// Stop it, then drop its instance.
    Rollback,
    None,
}

impl State {
    /// Total: what cannot happen in a state changes nothing.
    pub fn step(self, event: Event) -> (Self, Action) {
        match (self, event) {
            (Self::Discovered, Event::Done) => (Self::Loaded, Action::Initialize),
            (Self::Loaded, Event::Done) => (Self::Initialized, Action::Start),
            (Self::Initialized, Event::Done) => (Self::Active, Action::None),
            (Self::Active, Event::Broke(why)) => (Self::Degraded(why), Action::Rollback),
            (Self::Out(Out::Failed(_)), Event::Broke(why)) => (Self::Degraded(why), Action::None),
            (Self::Degraded(_), Event::Retry) => (Self::Discovered, Action::Load),
            (Self::Degraded(_) | Self::Out(_), Event::Again) => (Self::Discovered, Action::Load),
            (Self::Degraded(_) | Self::Out(_), Event::Rejected(out)) => (Self::Out(out), Action::None),
            (from @ (Self::Discovered | Self::Loaded | Self::Initialized | Self::Active), event) => {
                // Code that was never opened has nothing to be rolled back.
                let action = if from == Self::Discovered { Action::None } else { Action::Rollback };
                match event {
                    Event::Failed(why) | Event::Broke(why) => (Self::Out(Out::Failed(why)), action),
                    Event::Rejected(out) => (Self::Out(out), action),
                    Event::DependencyLost(why) => (Self::Out(Out::Skipped(why)), action),
                    Event::Stop if from != Self::Discovered => (Self::Stopped, action),
                    _ => (from, Action::None),
                }
            }
            (state, _) => (state, Action::None),
        }
    }

    /// As clients see it, with the reason.
    pub fn shown(&self) -> (ExtensionState, Option<&str>) {
        match self {
            Self::Discovered => (ExtensionState::Discovered, None),
            Self::Loaded => (ExtensionState::Loaded, None),
            Self::Initialized => (ExtensionState::Initialized, None),
            Self::Active => (ExtensionState::Active, None),
            Self::Stopped => (ExtensionState::Stopped, None),
            Self::Degraded(why) => (ExtensionState::Degraded, Some(why)),
            Self::Out(Out::Failed(why) | Out::Unwired(why)) => (ExtensionState::Failed, Some(why)),
            Self::Out(Out::Skipped(why)) => (ExtensionState::Skipped, Some(why)),
            Self::Out(Out::Disabled(why) | Out::Denied(why)) => (ExtensionState::Disabled, Some(why)),
            Self::Out(Out::AwaitingApproval(why)) => (ExtensionState::AwaitingApproval, Some(why)),
            Self::Out(Out::Quarantined(why)) => (ExtensionState::Quarantined, Some(why)),
        }
    }

    /// Whether it has no part in the registry.
    pub fn is_out(&self) -> bool {
        matches!(self, Self::Out(_) | Self::Stopped | Self::Degraded(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_work_is_load_initialize_start() {
        let mut state = State::Discovered;
        let mut actions = Vec::new();
        for _ in 0..3 {
            let (next, action) = state.step(Event::Done);
            state = next;
            actions.push(action);
        }
        assert_eq!((state, actions), (State::Active, vec![Action::Initialize, Action::Start, Action::None]));
    }

    #[test]
    fn a_failure_after_loading_is_rolled_back_and_ends_it() {
        for from in [State::Loaded, State::Initialized, State::Active] {
            let (state, action) = from.step(Event::Failed("why".into()));
            assert_eq!((&state, action), (&State::Out(Out::Failed("why".into())), Action::Rollback));
            for event in [
                Event::Done,
                Event::Failed("again".into()),
                Event::DependencyLost("x".into()),
                Event::Stop,
                Event::Retry,
            ] {
                assert_eq!(state.clone().step(event), (state.clone(), Action::None));
            }
            assert_eq!(state.step(Event::Again), (State::Discovered, Action::Load));
        }
    }

    #[test]
    fn one_that_broke_while_it_worked_is_tried_again_and_one_that_never_worked_is_not() {
        let (state, action) = State::Active.step(Event::Broke("why".into()));
        assert_eq!((&state, action), (&State::Degraded("why".into()), Action::Rollback));
        assert_eq!(state.step(Event::Retry), (State::Discovered, Action::Load));
        let (state, _) = State::Initialized.step(Event::Broke("why".into()));
        assert_eq!(state, State::Out(Out::Failed("why".into())));
    }

    #[test]
    fn a_quarantine_reaches_one_that_waits_to_be_tried_again() {
        let out = Out::Quarantined("why".into());
        let (state, action) = State::Degraded("x".into()).step(Event::Rejected(out.clone()));
        assert_eq!((&state, action), (&State::Out(out), Action::None));
        assert_eq!(state.clone().step(Event::Retry), (state, Action::None));
    }

    #[test]
    fn code_that_was_never_opened_is_not_rolled_back() {
        let (state, action) = State::Discovered.step(Event::DependencyLost("dep".into()));
        assert_eq!((state, action), (State::Out(Out::Skipped("dep".into())), Action::None));
        assert_eq!(State::Discovered.step(Event::Stop), (State::Discovered, Action::None));
    }
}
