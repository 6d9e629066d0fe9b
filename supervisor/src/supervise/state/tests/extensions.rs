//! What crashes of extensions, and sets of extensions that do not start, lead to.

use super::*;

/// Starts a daemon of a home in which a set of extensions was kept.
fn with_good_extensions() -> World {
    let mut world = World::new();
    world.state.history.good_extensions = true;
    world
}

#[test]
fn two_starts_that_nobody_explains_lead_back_to_the_last_good_extensions() {
    let mut world = with_good_extensions();
    world.crash();
    world.next_kernel();
    assert!(!world.launched().good_extensions);
    world.crash();
    world.next_kernel();
    assert!(world.launched().good_extensions);
    assert!(matches!(&world.actions[..], [Action::Note(_), Action::Spawn(_)]), "{:?}", world.actions);
    // It stays so over crashes, and a restart that somebody asks for tries the present ones again.
    world.ready().crash();
    world.next_kernel();
    assert_eq!(world.actions.len(), 1, "it is said once: {:?}", world.actions);
    assert!(world.launched().good_extensions);
    world.ready().on(asked_for("mended")).on(exited(Exit::Status(0)));
    assert!(!world.launched().good_extensions);
    world.crash();
    world.next_kernel();
    assert!(!world.launched().good_extensions, "two are counted anew");
}

#[test]
fn the_last_good_extensions_are_not_asked_for_without_need() {
    // Nothing was kept.
    let mut world = World::new();
    for _ in 0..3 {
        world.crash();
        world.next_kernel();
        assert!(!world.launched().good_extensions);
    }
    // A start that becomes ready in between, or whose crash is one extension's fault, is no sign against the others.
    for explained in [false, true] {
        let mut world = with_good_extensions();
        for _ in 0..4 {
            world.crash();
            if explained {
                world.on(Event::Convicted { quarantined: false });
                world.next_kernel();
            } else {
                world.next_kernel();
                world.ready().crash();
                world.next_kernel();
            }
            assert!(!world.launched().good_extensions, "explained: {explained}");
        }
    }
}

#[test]
fn safe_mode_comes_when_the_last_good_extensions_do_not_help() {
    let mut world = with_good_extensions();
    for _ in 0..6 {
        world.crash();
        world.next_kernel();
    }
    assert_eq!(world.launched(), SAFE);
}

#[test]
fn a_crash_whose_culprit_is_left_out_is_followed_by_a_start_at_once() {
    let mut world = World::new();
    for crash in 1..=4 {
        world.ready();
        for _ in 0..5 {
            world.after(Duration::from_secs(9)).on(Event::Beat);
        }
        world.crash();
        if crash == 4 {
            world.on(Event::Convicted { quarantined: true });
            assert_eq!(world.next_kernel(), Duration::from_millis(100));
            // What follows has another cause.
            world.ready().crash();
            assert!(world.next_kernel() < Duration::from_millis(126));
        } else {
            world.on(Event::Convicted { quarantined: false });
            assert!(world.next_kernel() >= Duration::from_millis(50 << crash));
        }
    }
    // By whatever cause, too many of them lead to safe mode.
    let mut world = World::new();
    for crash in 1..=6 {
        world.ready().crash().on(Event::Convicted { quarantined: true });
        assert_eq!(world.state.history.safe_mode, crash > 5);
        world.next_kernel();
    }
}
