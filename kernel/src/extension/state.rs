//! The life of one extension, as a pure function: which step follows from what happened.

use drupe_extension_api::control::ExtensionState;

/// Where an extension is; what it holds is the driver's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its manifest is read.
    Discovered,
    /// Its code is open, or its agent prepared.
    Loaded,
    /// It has its context.
    Initialized,
    /// It works.
    Active,
    /// It ended in order.
    Stopped,
    /// It will not work until something changes.
    Out(Out),
}

/// Why an extension is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// A step of its own failed.
    Failed(String),
    /// Something that it depends on is not there.
    Skipped(String),
    /// The operator or a missing configuration turned it off.
    Disabled(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The step that the last action named succeeded.
    Done,
    /// It failed, for this reason.
    Failed(String),
    /// It is not to be used, before it has begun to work.
    Rejected(Out),
    /// Something that it depends on went out.
    DependencyLost(String),
    /// The kernel ends.
    Stop,
}

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Open its code, or prepare its agent.
    Load,
    /// Give it its context.
    Initialize,
    /// Let it work.
    Start,
    /// Stop it, then drop its instance.
    Rollback,
    /// Nothing.
    None,
}

impl State {
    /// Total: what cannot happen in a state changes nothing.
    pub fn step(self, event: Event) -> (Self, Action) {
        match (self, event) {
            (Self::Discovered, Event::Rejected(out)) => (Self::Out(out), Action::None),
            (Self::Discovered, Event::DependencyLost(why)) => (Self::Out(Out::Skipped(why)), Action::None),
            (Self::Discovered, Event::Failed(why)) => (Self::Out(Out::Failed(why)), Action::None),
            (Self::Discovered, Event::Done) => (Self::Loaded, Action::Initialize),
            (Self::Loaded, Event::Done) => (Self::Initialized, Action::Start),
            (Self::Initialized, Event::Done) => (Self::Active, Action::None),
            (Self::Loaded, Event::Rejected(out)) => (Self::Out(out), Action::Rollback),
            (Self::Loaded | Self::Initialized | Self::Active, Event::Failed(why)) => {
                (Self::Out(Out::Failed(why)), Action::Rollback)
            }
            (Self::Loaded | Self::Initialized | Self::Active, Event::DependencyLost(why)) => {
                (Self::Out(Out::Skipped(why)), Action::Rollback)
            }
            (Self::Loaded | Self::Initialized | Self::Active, Event::Stop) => {
                (Self::Stopped, Action::Rollback)
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
            Self::Out(Out::Failed(why)) => (ExtensionState::Failed, Some(why)),
            Self::Out(Out::Skipped(why)) => (ExtensionState::Skipped, Some(why)),
            Self::Out(Out::Disabled(why)) => (ExtensionState::Disabled, Some(why)),
        }
    }

    /// Whether it has, or may come to have, a part in the registry.
    pub fn is_out(&self) -> bool {
        matches!(self, Self::Out(_) | Self::Stopped)
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
            for event in
                [Event::Done, Event::Failed("again".into()), Event::DependencyLost("x".into()), Event::Stop]
            {
                assert_eq!(state.clone().step(event), (state.clone(), Action::None));
            }
        }
    }

    #[test]
    fn code_that_was_never_opened_is_not_rolled_back() {
        let (state, action) = State::Discovered.step(Event::DependencyLost("dep".into()));
        assert_eq!((state, action), (State::Out(Out::Skipped("dep".into())), Action::None));
    }
}
