//! The state machine under virtual time.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{event::*, kernel::START_SILENCE, *};

mod ends;
mod extensions;
mod programs;
mod starts;

const PLAIN: Launch =
    Launch { safe_mode: false, good_config: false, good_extensions: false, own_program: false };
const SAFE: Launch = Launch { safe_mode: true, ..PLAIN };
const GOOD_CONFIG: Launch = Launch { good_config: true, ..PLAIN };

/// The end of a kernel in which no extension's code ran.
fn exited(exit: Exit) -> Event {
    Event::Exited { exit, named: false }
}

/// A restart that somebody wanted.
fn asked_for(reason: &str) -> Event {
    Event::Restart { reason: reason.into(), unasked: false }
}

/// A state machine with a clock of its own.
struct World {
    state: State,
    now: Instant,
    actions: Vec<Action>,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let (state, actions) = State::begin(false, false, 7, now);
        Self { state, now, actions }
    }

    fn on(&mut self, event: Event) -> &mut Self {
        let (state, actions) = self.state.clone().step(event, self.now);
        self.state = state;
        self.actions = actions;
        self
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self.on(Event::Tick)
    }

    fn ready(&mut self) -> &mut Self {
        self.on(Event::Ready {
            drain_timeout: Duration::from_secs(30),
            good_config: true,
            good_extensions: true,
        })
    }

    /// Waits for the next kernel, which must come; returns how long that took.
    fn next_kernel(&mut self) -> Duration {
        let Phase::Waiting { until } = self.state.phase else { panic!("{:?}", self.state.phase) };
        let wait = until - self.now;
        self.after(wait);
        self.launched();
        wait
    }

    fn crash(&mut self) -> &mut Self {
        self.on(exited(Exit::Signal(11)))
    }

    /// Lets the kernel beat for so long.
    fn beat_for(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds {
            self.after(Duration::from_secs(1)).on(Event::Beat);
        }
        self
    }

    /// How the end of a kernel was recorded, and whether as a crash.
    fn recorded(&self) -> (&str, bool) {
        let found = self.actions.iter().find_map(|action| match action {
            Action::Record(ending) => Some((ending.how.as_str(), ending.crash)),
            _ => None,
        });
        found.expect("an exit is recorded")
    }

    /// How the kernel that starts now is started.
    fn launched(&self) -> Launch {
        let found = self.actions.iter().find_map(|action| match action {
            Action::Spawn(launch) => Some(*launch),
            _ => None,
        });
        found.expect("a kernel is started")
    }
}

#[test]
fn a_clean_stop_needs_the_frame_and_status_0() {
    let mut world = World::new();
    world.ready().on(Event::Stopping).on(exited(Exit::Status(0)));
    assert_eq!(world.state.done(), Some(0));
    assert_eq!(world.recorded(), ("stopped", false));

    for (frame, status) in [(false, 0), (true, 1), (false, 3)] {
        let mut world = World::new();
        world.ready();
        if frame {
            world.on(Event::Stopping);
        }
        world.on(exited(Exit::Status(status)));
        assert!(world.recorded().1, "frame {frame}, status {status}");
        world.next_kernel();
    }
}

#[test]
fn a_requested_restart_is_immediate_and_no_crash() {
    let mut world = World::new();
    for _ in 0..100 {
        world.ready().on(Event::Draining).on(asked_for("new agent")).on(exited(Exit::Status(0)));
        assert_eq!(world.recorded(), ("restart: new agent", false));
        assert_eq!(world.launched(), PLAIN);
    }
    assert_eq!(world.state.history.restarts, 100);
}

#[test]
fn a_kernel_that_asks_for_restarts_before_it_is_ready_is_slowed_down() {
    let mut world = World::new();
    let mut waited = Duration::ZERO;
    for _ in 0..10 {
        world.on(asked_for("again")).on(exited(Exit::Status(0)));
        assert!(!world.recorded().1);
        waited += world.next_kernel();
    }
    assert!(waited > Duration::from_secs(30));
}

#[test]
fn configuration_and_home_faults_are_not_retried_at_a_cold_start() {
    for status in [69, 78] {
        let mut world = World::new();
        world.on(exited(Exit::Status(status)));
        assert_eq!(world.state.done().map(i32::from), Some(status));
        assert!(!world.recorded().1);
    }
}

#[test]
fn a_bad_configuration_never_takes_a_running_daemon_down() {
    let mut world = World::new();
    world.ready().on(asked_for("r")).on(exited(Exit::Status(0)));
    world.on(exited(Exit::Status(78)));
    assert_eq!(world.launched(), GOOD_CONFIG);
    assert!(world.actions.iter().any(|action| matches!(action, Action::Note(_))));
    // A crash keeps the good one, a requested restart tries the operator's again.
    world.ready().crash();
    world.next_kernel();
    assert_eq!(world.actions, [Action::Spawn(GOOD_CONFIG)]);
    world.ready().on(asked_for("mended")).on(exited(Exit::Status(0)));
    assert_eq!(world.launched(), PLAIN);
    // Where not even the good one is accepted, it ends.
    world.on(exited(Exit::Status(78))).on(exited(Exit::Status(78)));
    assert_eq!(world.state.done(), Some(78));
}

#[test]
fn a_home_in_use_is_never_retried() {
    let mut world = World::new();
    world.ready().crash();
    world.next_kernel();
    world.on(exited(Exit::Status(69)));
    assert_eq!(world.state.done(), Some(69));
}

#[test]
fn five_crashes_in_a_minute_do_not_lead_to_safe_mode_and_six_do() {
    let mut world = World::new();
    for crash in 1..=6 {
        world.ready().crash();
        assert_eq!(world.state.history.safe_mode, crash > 5, "after crash {crash}");
        world.next_kernel();
    }
    assert_eq!(world.actions, [Action::Spawn(SAFE)]);
}

#[test]
fn crashes_with_a_healthy_minute_between_them_never_lead_to_safe_mode() {
    let mut world = World::new();
    for _ in 0..50 {
        world.ready().beat_for(60).crash();
        world.next_kernel();
    }
    assert!(!world.state.history.safe_mode);
}

#[test]
fn three_failures_of_safe_mode_end_it() {
    let mut world = World::new();
    for _ in 0..6 {
        world.crash();
        world.next_kernel();
    }
    world.ready().crash();
    world.next_kernel();
    world.crash();
    world.next_kernel();
    assert_eq!(world.state.done(), None);
    world.crash();
    assert_eq!(world.state.done(), Some(70));
}

#[test]
fn a_requested_restart_leaves_safe_mode() {
    let mut world = World::new();
    for _ in 0..6 {
        world.crash();
        world.next_kernel();
    }
    world.ready().on(asked_for("mended")).on(exited(Exit::Status(0)));
    assert_eq!(world.launched(), PLAIN);
}

#[test]
fn waits_grow_to_30_s_and_start_over_after_a_healthy_minute() {
    let mut world = World::new();
    let mut waits = Vec::new();
    for _ in 0..9 {
        // Far enough apart that safe mode stays out of it, too ill to be healthy.
        world.ready().beat_for(45).crash();
        waits.push(world.next_kernel());
    }
    assert!(waits[0] >= Duration::from_millis(100) && waits[0] < Duration::from_millis(126));
    assert!(waits.windows(2).all(|pair| pair[1] >= pair[0] || pair[0] > Duration::from_secs(25)));
    assert!(waits[8] > Duration::from_secs(25) && waits[8] <= Duration::from_secs(30));
    world.ready().beat_for(61).crash();
    assert!(world.next_kernel() < Duration::from_millis(126));
}

#[test]
fn a_silent_kernel_is_killed_and_recorded_as_such() {
    let mut world = World::new();
    world.ready().after(Duration::from_millis(9_900));
    assert!(world.actions.is_empty());
    world.on(Event::Beat).after(Duration::from_millis(9_900));
    assert!(world.actions.is_empty());
    world.after(Duration::from_millis(100));
    assert_eq!(world.actions, [Action::Kill]);
    world.after(Duration::from_secs(60));
    assert!(world.actions.is_empty(), "once is enough");
    world.on(exited(Exit::Signal(9)));
    assert_eq!(world.recorded(), ("signal 9 (SIGKILL): no beat for 10 s", true));
    world.next_kernel();
}

#[test]
fn a_kernel_that_does_not_serve_is_killed_after_three_probes() {
    let mut world = World::new();
    world.ready();
    for answered in [false, false, true, false, false] {
        world.on(Event::Probe(answered));
        assert!(world.actions.is_empty());
    }
    world.on(Event::Probe(false));
    assert_eq!(world.actions, [Action::Kill]);
}

#[test]
fn a_stop_drains_and_a_second_one_ends_at_once() {
    let mut world = World::new();
    world.ready().on(Event::Terminate);
    assert_eq!(world.actions, [Action::TellStopping, Action::SendStop]);
    world.on(Event::Terminate);
    assert_eq!(world.actions, [Action::Kill]);
    world.on(exited(Exit::Signal(9)));
    assert!(!world.recorded().1);
    assert_eq!(world.state.done(), Some(1));
}

#[test]
fn a_drain_that_takes_too_long_is_ended() {
    for event in [Event::Terminate, Event::Draining] {
        let mut world = World::new();
        world.ready().on(event).beat_for(47).after(Duration::from_millis(999));
        assert!(world.actions.is_empty());
        world.after(Duration::from_millis(1));
        assert_eq!(world.actions, [Action::Kill]);
    }
}

#[test]
fn a_kernel_that_hangs_while_it_drains_is_ended_as_soon_as_one_that_works() {
    for event in [Event::Terminate, Event::Draining] {
        let mut world = World::new();
        world.ready().on(Event::Beat).on(event.clone()).beat_for(2).after(Duration::from_millis(9_999));
        assert!(world.actions.is_empty());
        assert_eq!(world.state.deadline(), Some(world.now + Duration::from_millis(1)));
        world.after(Duration::from_millis(1));
        assert_eq!(world.actions, [Action::Kill]);
        // One that has said its last words ends in its own time.
        let mut world = World::new();
        world.ready().on(Event::Beat).on(event).on(asked_for("r"));
        world.after(Duration::from_secs(15));
        assert!(world.actions.is_empty());
    }
}

#[test]
fn a_stop_between_kernels_ends_at_once() {
    let mut world = World::new();
    world.crash().on(Event::Terminate);
    assert_eq!(world.state.done(), Some(0));
}

#[test]
fn a_restart_that_ends_during_a_stop_does_not_start_another_kernel() {
    let mut world = World::new();
    world.ready().on(Event::Terminate).on(asked_for("r")).on(exited(Exit::Status(0)));
    assert_eq!(world.state.done(), Some(0));
}

#[test]
fn a_reload_is_told_until_it_is_answered() {
    let mut world = World::new();
    world.ready().on(Event::Reload);
    assert_eq!(world.actions, [Action::TellReloading, Action::SendReload]);
    world.ready();
    assert_eq!(world.actions, [Action::TellReady]);
    world.on(Event::Reload);
    world.after(Duration::from_secs(9)).on(Event::Beat).after(Duration::from_secs(1));
    assert_eq!(world.actions, [Action::TellReady]);
}

#[test]
fn a_supervisor_that_was_stopped_does_not_blame_the_kernel() {
    let mut world = World::new();
    world.ready();
    world.now += Duration::from_secs(3_600);
    world.on(Event::Overslept(Duration::from_secs(3_600))).on(Event::Tick);
    assert!(world.actions.is_empty());
    world.after(Duration::from_secs(10));
    assert_eq!(world.actions, [Action::Kill]);
}

#[test]
fn a_kill_that_nobody_here_sent_is_recorded_as_such() {
    let mut world = World::new();
    world.ready().on(exited(Exit::Signal(9)));
    let how = "signal 9 (SIGKILL) of another process, or of the system for want of memory";
    assert_eq!(world.recorded(), (how, true));
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<bool>(), any::<bool>()).prop_map(|(good_config, good_extensions)| Event::Ready {
            drain_timeout: Duration::from_secs(30),
            good_config,
            good_extensions,
        }),
        Just(Event::Ready { drain_timeout: Duration::ZERO, good_config: false, good_extensions: false }),
        Just(Event::Hello),
        Just(Event::Exchanged),
        any::<bool>().prop_map(|quarantined| Event::Convicted { quarantined }),
        Just(Event::Beat),
        (0u64..4).prop_map(Event::Progress),
        Just(Event::StopAgreed),
        Just(Event::Draining),
        Just(Event::Stopping),
        Just(asked_for("r")),
        prop_oneof![Just(0), Just(1), Just(69), Just(78)].prop_map(|status| exited(Exit::Status(status))),
        Just(exited(Exit::Signal(9))),
        Just(Event::SpawnFailed("no file".into())),
        any::<bool>().prop_map(Event::Probe),
        any::<bool>().prop_map(|shut| Event::Relisted { shut }),
        Just(Event::Homeless),
        Just(Event::Reload),
        (0u64..100_000).prop_map(|ms| Event::Overslept(Duration::from_millis(ms))),
        Just(Event::Tick),
        Just(Event::Tick),
    ]
}

proptest! {
    /// Whatever happens in whatever order: never two kernels at once, every kernel's end is recorded once, a wait is
    /// bounded, nothing follows the end, a kernel that never answers is always ended, and none is told to return to a
    /// set of extensions that nobody has kept.
    #[test]
    fn any_history_keeps_the_promises(
        history in proptest::collection::vec((event(), 0u64..40_000), 1..200),
        terminate_at in 0usize..200,
        safe_mode in any::<bool>(),
        mut good_extensions in any::<bool>(),
    ) {
        let mut now = Instant::now();
        let (mut state, actions) = State::begin(safe_mode, good_extensions, 1, now);
        let mut alive = actions.iter().filter(|action| matches!(action, Action::Spawn(_))).count();
        prop_assert_eq!(alive, 1);
        for (index, (event, ms)) in history.into_iter().enumerate() {
            now += Duration::from_millis(ms);
            let event = if index == terminate_at { Event::Terminate } else { event };
            let ends = matches!(event, Event::Exited { .. } | Event::SpawnFailed(_));
            good_extensions |= matches!(event, Event::Ready { good_extensions: true, .. });
            // The driver reports an end only of a kernel that it has.
            if (ends && alive == 0) || state.done().is_some() {
                continue;
            }
            let (next, actions) = state.step(event, now);
            state = next;
            let count = |wanted: fn(&Action) -> bool| actions.iter().filter(|action| wanted(action)).count();
            if ends {
                alive -= 1;
            }
            alive += count(|action| matches!(action, Action::Spawn(_)));
            prop_assert!(alive <= 1);
            for action in &actions {
                if let Action::Spawn(launch) = action {
                    prop_assert!(!launch.good_extensions || (good_extensions && !launch.safe_mode));
                    prop_assert_eq!(launch.safe_mode, state.history.safe_mode);
                }
            }
            prop_assert!(count(|action| matches!(action, Action::Record(_))) <= usize::from(ends));
            prop_assert!(count(|action| matches!(action, Action::Kill)) <= alive);
            let has_kernel = !matches!(state.phase, Phase::Waiting { .. } | Phase::Done { .. });
            prop_assert_eq!(has_kernel, alive == 1);
            if let Phase::Waiting { until } = state.phase {
                prop_assert!(until <= now + Duration::from_secs(30));
            }
        }
        // From here on the kernel says nothing: it is killed in bounded time, or the end is reached.
        for _ in 0..1_000 {
            if state.done().is_some() {
                break;
            }
            match state.deadline() {
                Some(deadline) => {
                    now = now.max(deadline);
                    state = state.step(Event::Tick, now).0;
                }
                None => state = state.step(exited(Exit::Signal(9)), now).0,
            }
        }
        // Without a stop it goes on for ever, or gives up; with one it ends.
        if state.done().is_none() {
            state = state.step(Event::Terminate, now).0;
            state = state.step(Event::Terminate, now).0;
            state = state.step(exited(Exit::Signal(9)), now).0;
        }
        prop_assert!(state.done().is_some());
    }
}
