//! A table: what the page said, how the process ended, who is blamed.

use drupe_blame::{Cause, Last, Operation};
use proptest::prelude::*;

use super::*;

const CRASH: Exit = Exit::Signal(11);
const KILL: Exit = Exit::Signal(9);

fn running(extension: &str, seconds: u64) -> Running {
    Running {
        extension: extension.into(),
        hash: "h1".into(),
        operation: Operation::ToolCall,
        since: Duration::from_secs(seconds),
        own_thread: false,
    }
}

fn thread(extension: &str) -> Running {
    Running { operation: Operation::Thread, own_thread: true, ..running(extension, 1_000) }
}

fn page(running: &[Running]) -> Reading {
    Reading { last: None, running: running.to_vec() }
}

/// `-`, `certain a`, or `a, b`.
fn check(reading: &Reading, exit: Exit, killed: Option<Killed>, expected: &str) {
    let blame = judge(reading, exit, killed);
    let names: Vec<_> = blame.culprits().iter().map(|culprit| culprit.extension.as_str()).collect();
    let found = match blame {
        Blame::Nobody => "-".to_owned(),
        Blame::Certain(_) => format!("certain {}", names.concat()),
        Blame::Possible(_) => names.join(", "),
    };
    assert_eq!(found, expected, "{reading:?} {exit:?} {killed:?}");
}

#[test]
fn the_thread_that_died_is_believed() {
    let last = |running| Some(Last { cause: Cause::Signal(11), running });
    let others = vec![running("b", 1), running("c", 100)];
    let named = Reading { last: last(Some(running("a", 0))), running: others.clone() };
    check(&named, CRASH, None, "certain a");
    // It called `exit`, and something else kept the process from ending.
    let hung = Reading {
        last: Some(Last { cause: Cause::Exit, running: Some(running("a", 0)) }),
        running: others.clone(),
    };
    check(&hung, KILL, Some(Killed::Silent), "certain a");
    let own = Reading { last: last(None), running: others };
    check(&own, CRASH, None, "-");
}

#[test]
fn a_death_without_a_word_is_laid_to_whoever_ran() {
    for exit in [CRASH, Exit::Signal(14), Exit::Status(0), Exit::Status(3)] {
        check(&page(&[]), exit, None, "-");
        check(&page(&[running("a", 0)]), exit, None, "certain a");
        check(&page(&[running("a", 0), running("b", 9)]), exit, None, "a, b");
        check(&page(&[running("a", 0), running("a", 9)]), exit, None, "certain a");
    }
}

#[test]
fn threads_of_extensions_are_blamed_only_where_nobody_else_ran() {
    check(&page(&[thread("a"), running("b", 0)]), CRASH, None, "certain b");
    check(&page(&[thread("a"), thread("a")]), CRASH, None, "certain a");
    check(&page(&[thread("a"), thread("b")]), CRASH, None, "a, b");
    check(&page(&[thread("a")]), KILL, Some(Killed::Silent), "-");
}

#[test]
fn silence_is_laid_to_code_that_holds_a_thread() {
    let reading = page(&[running("quick", 1), running("slow", 11), thread("idle")]);
    for killed in [Killed::Silent, Killed::Lifeless, Killed::Unready, Killed::Undrained] {
        check(&reading, KILL, Some(killed), "certain slow");
    }
    check(&page(&[running("a", 11), running("b", 12)]), KILL, Some(Killed::Silent), "a, b");
    check(&page(&[running("a", 4)]), KILL, Some(Killed::Silent), "-");
    // Its beats say that its threads were free.
    check(&reading, KILL, Some(Killed::Unserving), "-");
    // It died by itself at the very moment.
    check(&page(&[running("quick", 1)]), CRASH, Some(Killed::Silent), "certain quick");
}

#[test]
fn nobody_is_blamed_for_what_came_from_outside() {
    for signal in [9, 15, 2, 1, 3] {
        check(&page(&[running("a", 100), thread("b")]), Exit::Signal(signal), None, "-");
    }
}

#[test]
fn a_name_that_is_none_is_not_blamed() {
    let mut forged = running("../a", 1);
    check(&page(std::slice::from_ref(&forged)), CRASH, None, "-");
    forged = Running { hash: "\u{1b}[31m".into(), ..running("a", 1) };
    check(&page(std::slice::from_ref(&forged)), CRASH, None, "-");
    let last = Some(Last { cause: Cause::Exit, running: Some(forged) });
    check(&Reading { last, running: vec![] }, CRASH, None, "-");
}

#[test]
fn loading_is_remembered_where_one_extension_did_two_things() {
    let loading = Running { operation: Operation::Initialize, ..running("a", 1) };
    let Blame::Certain(culprit) = judge(&page(&[running("a", 1), loading]), CRASH, None) else {
        panic!("one")
    };
    assert!(culprit.loading);
    assert_eq!(culprit.operation, Operation::Initialize.name());
}

fn any_running() -> impl Strategy<Value = Running> {
    ("[a-c]|\\PC{0,60}", 0u64..20, any::<bool>())
        .prop_map(|(extension, seconds, own_thread)| Running { own_thread, ..running(&extension, seconds) })
}

proptest! {
    /// Whatever the page holds: each is named once, several means at least two, and only valid ids are named.
    #[test]
    fn any_page_gives_a_sound_answer(
        all in proptest::collection::vec(any_running(), 0..20),
        signal in 1i32..65,
        killed in prop_oneof![Just(None), Just(Some(Killed::Silent)), Just(Some(Killed::Unserving))],
    ) {
        let blame = judge(&page(&all), Exit::Signal(signal), killed);
        let mut names: Vec<_> = blame.culprits().iter().map(|culprit| culprit.extension.clone()).collect();
        let count = names.len();
        prop_assert!(names.iter().all(|name| ExtensionId::new(name).is_ok()));
        prop_assert!(names.iter().all(|name| all.iter().any(|running| running.extension == *name)));
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), count);
        let sound = match blame {
            Blame::Nobody => count == 0,
            Blame::Certain(_) => count == 1,
            Blame::Possible(_) => count > 1,
        };
        prop_assert!(sound);
    }
}
