//! Programs that are exchanged on the disk, wholly or half, while the supervisor runs.

use super::*;

const OWN: Launch = Launch { own_program: true, ..PLAIN };

fn unstarted() -> Event {
    Event::SpawnFailed("`/bin/drupe`: Text file busy".into())
}

#[test]
fn a_program_that_cannot_be_started_is_passed_over_for_the_supervisors_own_at_once_and_counts_as_no_crash() {
    let mut world = World::new();
    for _ in 0..100 {
        world.ready().on(asked_for("r")).on(exited(Exit::Status(0))).on(unstarted());
        assert_eq!(world.launched(), OWN);
        let [Action::Note(note), Action::Spawn(_)] = &world.actions[..] else {
            panic!("{:?}", world.actions)
        };
        assert!(note.contains("/bin/drupe") && note.contains("`drupe restart`"), "{note}");
    }
    // The file is tried again whenever a kernel is started.
    world.ready().crash();
    assert!(world.next_kernel() < Duration::from_millis(126), "it is the first crash");
    assert_eq!(world.launched(), PLAIN);
}

#[test]
fn an_exchanged_program_that_ends_before_its_first_word_is_passed_over_for_the_supervisors_own() {
    for exit in [Exit::Signal(11), Exit::Status(0), Exit::Status(2), Exit::Status(69), Exit::Status(78)] {
        let mut world = World::new();
        for _ in 0..100 {
            world.ready().on(asked_for("r")).on(exited(Exit::Status(0)));
            world.on(Event::Exchanged).on(exited(exit));
            assert_eq!((world.recorded().1, world.launched()), (false, OWN), "{exit:?}");
            assert!(world.actions.iter().any(|action| matches!(action, Action::Note(_))));
        }
    }
    // One that never says a word and is killed for it has ended so, too.
    let mut world = World::new();
    world.on(Event::Exchanged).after(START_SILENCE).on(exited(Exit::Signal(9)));
    assert_eq!(world.launched(), OWN);
}

#[test]
fn an_exchanged_program_of_another_version_is_passed_over_for_the_supervisors_own_and_said_so() {
    let mut world = World::new();
    for _ in 0..100 {
        world.ready().on(asked_for("r")).on(exited(Exit::Status(0)));
        world.on(Event::Exchanged).on(Event::Hello).on(exited(Exit::Status(76)));
        assert_eq!(
            (world.recorded(), world.launched()),
            (("exit status 76, of another version", false), OWN)
        );
        let [_, Action::Note(note), Action::Spawn(_)] = &world.actions[..] else {
            panic!("{:?}", world.actions)
        };
        assert!(note.contains("`drupe stop`"), "{note}");
    }
    // Where an extension's code may have chosen the status it is a crash, and its own program is no stranger.
    let mut world = World::new();
    world.on(Event::Exchanged).on(Event::Hello).on(Event::Exited { exit: Exit::Status(76), named: true });
    assert!(world.recorded().1);
    let mut world = World::new();
    assert_eq!(world.on(exited(Exit::Status(76))).state.done(), Some(76));
}

#[test]
fn what_ends_after_its_first_word_or_is_the_supervisors_own_program_crashes_as_ever() {
    let mut world = World::new();
    world.on(Event::Exchanged).on(Event::Hello).crash();
    assert!(world.recorded().1, "it spoke");
    let mut world = World::new();
    world.crash();
    assert!(world.recorded().1, "it was not exchanged");
    let mut world = World::new();
    world.on(unstarted()).crash();
    assert!(world.recorded().1, "it was the supervisor's own");
}

#[test]
fn an_exchanged_program_that_ends_without_a_word_while_the_daemon_stops_is_not_replaced() {
    let mut world = World::new();
    world.on(Event::Exchanged).on(Event::Terminate).crash();
    assert_eq!(world.state.done(), Some(1));
    let mut world = World::new();
    world.on(Event::Terminate).on(unstarted());
    assert_eq!(world.state.done(), Some(1));
}

#[test]
fn a_system_that_starts_no_process_at_all_is_asked_again_for_ever_and_leads_to_no_safe_mode() {
    let mut world = World::new();
    let mut waits = Vec::new();
    for _ in 0..100 {
        world.on(unstarted()).on(Event::SpawnFailed("no more processes".into()));
        assert!(!world.recorded().1);
        waits.push(world.next_kernel());
        assert_eq!(world.launched(), PLAIN);
    }
    assert!(waits[0] < Duration::from_millis(126) && waits[99] > Duration::from_secs(25), "{waits:?}");
}

#[test]
fn the_supervisors_own_program_is_started_with_what_is_in_force() {
    let mut world = World::new();
    for _ in 0..6 {
        world.crash().next_kernel();
    }
    world.on(unstarted());
    assert_eq!(world.launched(), Launch { own_program: true, ..SAFE });
}
