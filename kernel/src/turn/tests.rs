//! Which crashes count against a turn.

use drupe_extension_api::control::Blamed;

use super::*;

fn exit(crash: bool, blamed: &[&str]) -> ExitRecord {
    let blamed = blamed.iter().map(|id| Blamed { extension: (*id).into(), operation: "service.run".into() });
    ExitRecord {
        time: jiff::Timestamp::UNIX_EPOCH,
        pid: 1,
        generation: 1,
        how: "signal 6 (SIGABRT)".into(),
        crash,
        last_lines: Vec::new(),
        blamed: blamed.collect(),
    }
}

#[test]
fn a_turn_is_given_up_after_three_crashes_that_nobody_else_is_blamed_for() {
    let unexplained = || exit(true, &[]);
    let exits = [unexplained(), unexplained(), unexplained()];
    assert!(kills(&exits, 4));
    assert!(!kills(&exits, 3), "one of the crashes was before it");
    let suspects = [exit(true, &["a", "b"]), unexplained(), unexplained()];
    assert!(kills(&suspects, 4), "nobody is certain to have done it");
}

#[test]
fn crashes_that_are_certainly_an_extensions_do_not_count_against_a_turn() {
    let exits = [exit(true, &["a"]), exit(true, &["a"]), exit(true, &["a"])];
    assert!(!kills(&exits, 4));
    let mixed = [exit(true, &["a"]), exit(true, &[]), exit(true, &["a"]), exit(true, &[]), exit(true, &[])];
    assert!(!kills(&mixed, 6), "what ended the last kernel is known");
    assert!(kills(&mixed[1..], 5));
}

#[test]
fn a_turn_with_which_an_extension_crashes_without_end_is_given_up() {
    let exits: Vec<ExitRecord> = (0..10).map(|_| exit(true, &["a"])).collect();
    assert!(!kills(&exits, 10));
    assert!(kills(&exits, 11));
}

#[test]
fn a_turn_that_is_given_up_says_whose_crashes_these_were_and_what_can_be_done() {
    let told = |exits: &[ExitRecord]| {
        let response = hopeless(exits, 4);
        (response.class, response.error.unwrap_or_default())
    };
    let (class, error) = told(&[exit(true, &["a"])]);
    assert_eq!(class, Some(FailureClass::Tool), "it is no fault of drupe");
    assert!(error.contains("begun 4 times, and extension `a` crashed the daemon"), "{error}");
    for unexplained in [exit(true, &[]), exit(true, &["a", "b"])] {
        let (class, error) = told(&[unexplained]);
        assert_eq!(class, Some(FailureClass::Internal));
        assert!(
            error.contains("begun 4 times, and the daemon crashed") && error.contains("sent anew"),
            "{error}"
        );
    }
}

#[test]
fn restarts_in_order_do_not_count_against_a_turn() {
    let exits = [exit(true, &[]), exit(false, &[]), exit(false, &[]), exit(false, &[])];
    assert!(!kills(&exits, 5));
}
