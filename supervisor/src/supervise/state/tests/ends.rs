//! Ends that are not what they look like, and those that come again and again.

use super::*;

#[test]
fn ten_failures_in_a_row_lead_to_safe_mode_however_long_each_of_them_takes() {
    type Failure = fn(&mut World);
    let failures: [Failure; 4] = [
        // It crashes now and then.
        |world| {
            world.ready().beat_for(15).crash();
        },
        // It does not serve.
        |world| {
            world.ready().beat_for(4).on(Event::Probe(false)).beat_for(4).on(Event::Probe(false));
            world.beat_for(4).on(Event::Probe(false)).on(exited(Exit::Signal(9)));
        },
        // It gives no sign of life.
        |world| {
            world.after(START_SILENCE).on(exited(Exit::Signal(9)));
        },
        // It is not ready.
        |world| {
            world.beat_for(LONGEST_START.as_secs()).on(exited(Exit::Signal(9)));
        },
    ];
    for fail in failures {
        let mut world = World::new();
        for failure in 1..=10 {
            fail(&mut world);
            assert_eq!(world.state.history.safe_mode, failure == 10, "after failure {failure}");
            world.next_kernel();
        }
        assert_eq!(world.launched(), SAFE);
    }
}

#[test]
fn no_status_of_a_kernel_that_served_or_in_which_an_extension_ran_ends_the_daemon() {
    for status in [0, 1, 69, 70, 74, 75, 76, 78] {
        for (ready, named) in [(true, false), (true, true), (false, true)] {
            let mut world = World::new();
            if ready {
                world.ready();
            }
            world.on(Event::Exited { exit: Exit::Status(status), named });
            assert!(world.recorded().1, "status {status} is a crash, ready {ready}, named {named}");
            world.next_kernel();
            assert_eq!(world.launched(), PLAIN);
        }
    }
}

#[test]
fn a_start_that_the_disk_refuses_is_tried_again_until_it_goes_and_leads_to_nothing_else() {
    let mut world = World::new();
    let mut waits = Vec::new();
    for _ in 0..100 {
        world.on(exited(Exit::Status(75)));
        assert_eq!(world.recorded(), ("exit status 75", false));
        assert!(world.actions.iter().any(|action| matches!(action, Action::Note(_))));
        waits.push(world.next_kernel());
        assert_eq!(world.launched(), PLAIN);
    }
    assert!(waits[0] < Duration::from_millis(126) && waits[99] > Duration::from_secs(25), "{waits:?}");
    // What came before does not count once it went.
    world.ready().crash();
    assert!(world.next_kernel() < Duration::from_millis(126));
}

#[test]
fn a_journal_that_cannot_be_used_ends_the_daemon_and_is_no_crash() {
    let mut world = World::new();
    world.on(exited(Exit::Status(74)));
    assert_eq!(world.recorded(), ("exit status 74", false));
    assert_eq!(world.state.done(), Some(74));
    // Also after kernels that served.
    let mut world = World::new();
    world.ready().crash().next_kernel();
    assert_eq!(world.on(exited(Exit::Status(74))).state.done(), Some(74));
}

#[test]
fn a_restart_that_nobody_asked_for_undoes_nothing_comes_at_once_and_waits_longer_where_it_repeats() {
    let unasked = |world: &mut World| {
        let event = Event::Restart { reason: "the journal is damaged".into(), unasked: true };
        world.ready().on(event).on(exited(Exit::Status(0)));
        assert_eq!(world.recorded(), ("restart: the journal is damaged", false));
    };
    let mut world = World::new();
    world.ready();
    for crash in 1..=5 {
        world.crash().next_kernel();
        assert!(!world.state.history.safe_mode, "after crash {crash}");
        world.ready();
    }
    unasked(&mut world);
    assert_eq!(world.launched(), PLAIN);
    // The five are not forgotten.
    world.ready().crash().next_kernel();
    assert_eq!(world.launched(), SAFE);
    unasked(&mut world);
    let mut waits = Vec::new();
    for _ in 0..12 {
        waits.push(world.next_kernel());
        assert_eq!(world.launched(), SAFE, "it is no way out");
        unasked(&mut world);
    }
    assert!(waits[0] < Duration::from_millis(126) && waits[11] > Duration::from_secs(25), "{waits:?}");
    // Where a kernel was healthy meanwhile it comes at once again.
    world.next_kernel();
    world.ready().beat_for(61);
    unasked(&mut world);
    assert_eq!(world.launched(), SAFE);
    // Nor did anybody ask for one where a socket was deleted.
    world
        .ready()
        .beat_for(61)
        .on(Event::Relisted { shut: false })
        .on(asked_for("r"))
        .on(exited(Exit::Status(0)));
    assert_eq!(world.launched(), SAFE);
    world.ready().on(asked_for("r")).on(exited(Exit::Status(0)));
    assert_eq!(world.launched(), PLAIN);
}

#[test]
fn a_stop_that_a_client_was_promised_holds_however_the_kernel_ends() {
    let ends = [0, 1, 69, 70, 74, 75, 78].map(Exit::Status).into_iter().chain([6, 9, 11].map(Exit::Signal));
    for (exit, ready, named, safe_mode) in ends.flat_map(|exit| {
        [
            (exit, true, false, false),
            (exit, true, true, false),
            (exit, false, false, false),
            (exit, true, false, true),
        ]
    }) {
        let mut world = World::new();
        if safe_mode {
            for _ in 0..6 {
                world.crash().next_kernel();
            }
            assert_eq!(world.launched(), SAFE);
        }
        if ready {
            world.ready();
        }
        world.on(Event::StopAgreed).on(Event::Draining).on(Event::Exited { exit, named });
        assert_eq!(
            world.state.done(),
            Some(1),
            "{exit:?}, ready {ready}, named {named}, safe mode {safe_mode}"
        );
    }
    // A restart that drains already gives way to it, and one that hangs is ended.
    let mut world = World::new();
    world.ready().on(Event::Draining).on(Event::StopAgreed).after(Duration::from_secs(10));
    assert_eq!(world.actions, [Action::Kill]);
    assert_eq!(world.on(exited(Exit::Signal(9))).state.done(), Some(1));
    let mut world = World::new();
    world.ready().on(Event::StopAgreed).on(Event::Stopping).on(exited(Exit::Status(0)));
    assert_eq!(world.state.done(), Some(0));
}

#[test]
fn the_first_signal_after_a_stop_that_a_client_asked_for_is_no_impatience() {
    let mut world = World::new();
    world.ready().on(Event::StopAgreed);
    assert_eq!(world.actions, [Action::TellStopping, Action::SendStop]);
    assert!(world.on(Event::StopAgreed).actions.is_empty(), "another client asks for what happens already");
    assert!(world.on(Event::Terminate).actions.is_empty());
    assert_eq!(world.on(Event::Terminate).actions, [Action::Kill]);
}

#[test]
fn a_new_listener_is_handed_over_by_a_restart_that_is_no_crash() {
    for ready in [true, false] {
        let mut world = World::new();
        if ready {
            world.ready();
        }
        world.on(Event::Relisted { shut: false });
        assert_eq!(world.actions, [Action::SendRestart]);
        world.on(Event::Draining).on(asked_for("r")).on(exited(Exit::Status(0)));
        assert_eq!(world.recorded(), ("restart: r", false));
    }
    let mut world = World::new();
    world.ready().on(Event::Terminate).on(Event::Relisted { shut: false });
    assert!(world.actions.is_empty(), "it ends anyway");
}

#[test]
fn kernels_that_shut_their_listener_down_again_and_again_lead_to_safe_mode() {
    let mut world = World::new();
    for _ in 0..6 {
        world.ready().on(Event::Relisted { shut: true });
        assert_eq!(world.actions, [Action::SendRestart]);
        world.on(asked_for("r")).on(exited(Exit::Status(0)));
        assert_eq!(world.recorded(), ("restart: r", true));
        world.next_kernel();
    }
    assert_eq!(world.launched(), SAFE);
}

#[test]
fn a_daemon_whose_home_is_gone_ends_in_order_and_says_so_by_its_status() {
    let mut world = World::new();
    world.ready().on(Event::Homeless);
    assert_eq!(world.actions, [Action::TellStopping, Action::SendStop]);
    assert!(world.on(Event::Homeless).actions.is_empty(), "it is no second stop");
    world.on(Event::Stopping).on(exited(Exit::Status(0)));
    assert_eq!(world.state.done(), Some(73));
    assert_eq!(World::new().crash().on(Event::Homeless).state.done(), Some(73));
}

#[test]
fn a_journal_that_cannot_be_used_ends_the_daemon_at_the_start_and_at_no_other_time() {
    let mut world = World::new();
    world.on(Event::Hello).on(exited(Exit::Status(74)));
    assert_eq!(world.state.done(), Some(74), "no start mends it");
    assert!(
        world
            .actions
            .iter()
            .any(|action| matches!(action, Action::Note(text) if text.contains("drupe doctor")))
    );

    let mut world = World::new();
    world.ready().on(exited(Exit::Status(74)));
    assert_eq!(world.state.done(), None, "any code in its process may have chosen that status");
    assert!(world.recorded().1);
    world.next_kernel();
    world.on(Event::Exited { exit: Exit::Status(74), named: true });
    assert_eq!(world.state.done(), None, "an extension's code ran");
}
