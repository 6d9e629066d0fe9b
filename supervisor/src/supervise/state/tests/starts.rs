//! Starts that take long, and those that hang.

use super::*;

#[test]
fn a_kernel_has_longer_to_start_but_not_for_ever() {
    let mut world = World::new();
    world.after(Duration::from_secs(59));
    assert!(world.actions.is_empty());
    world.after(Duration::from_secs(1));
    assert_eq!(world.actions, [Action::Kill]);

    let mut world = World::new();
    world.on(Event::Hello).after(Duration::from_secs(59));
    assert!(world.actions.is_empty(), "to have begun is not to beat");

    let mut world = World::new();
    world.on(Event::Beat).after(Duration::from_millis(9_999));
    assert!(world.actions.is_empty());
    world.after(Duration::from_millis(1));
    assert_eq!(world.actions, [Action::Kill], "what has begun to beat goes on");

    let mut world = World::new();
    for _ in 0..299 {
        world.on(Event::Beat).after(Duration::from_secs(1));
        assert!(world.actions.is_empty());
    }
    world.on(Event::Beat).after(Duration::from_secs(1));
    assert_eq!(world.actions, [Action::Kill]);
}

/// A second in which the kernel beats and says how far it came.
fn works(world: &mut World, steps: u64) {
    world.on(Event::Beat).on(Event::Progress(steps)).after(Duration::from_secs(1));
}

#[test]
fn a_start_lasts_as_long_as_it_comes_further_and_ends_where_it_does_not() {
    let mut world = World::new();
    for second in 0..7_200 {
        works(&mut world, second + 1);
        assert!(world.actions.is_empty(), "after {second} s");
    }
    // It beats, and says the same again and again: it waits for something, or goes round.
    for second in 0..298 {
        works(&mut world, if second % 2 == 0 { 7_200 } else { 7_199 });
        assert!(world.actions.is_empty(), "{second} s after it came further");
    }
    works(&mut world, 7_200);
    assert_eq!(world.actions, [Action::Kill]);
    world.on(exited(Exit::Signal(9)));
    assert_eq!(
        world.recorded(),
        ("signal 9 (SIGKILL): it was not ready, and came no further for 5 minutes", true)
    );
}

#[test]
fn what_comes_further_must_beat_all_the_same() {
    let mut world = World::new();
    works(&mut world, 1);
    for steps in 2..11 {
        world.on(Event::Progress(steps)).after(Duration::from_secs(1));
    }
    assert_eq!(world.actions, [Action::Kill]);
}

#[test]
fn a_kernel_that_is_ready_gets_no_time_for_work_of_a_start() {
    let mut world = World::new();
    world.ready();
    for steps in 1..10 {
        world.on(Event::Progress(steps)).after(Duration::from_secs(1));
    }
    world.on(Event::Progress(10)).after(Duration::from_secs(1));
    assert_eq!(world.actions, [Action::Kill]);
}
