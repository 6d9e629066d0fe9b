//! The ledger under virtual time.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

use drupe_link::{Down, Frame};
use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60;
const HOW: &str = "signal 11 (SIGSEGV)";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + seconds).unwrap()
}

fn culprit(extension: &str) -> Culprit {
    Culprit::new(extension, "h1", "tool.call", false).unwrap()
}

fn certain(extension: &str) -> Blame {
    Blame::Certain(culprit(extension))
}

fn possible(extensions: &[&str]) -> Blame {
    Blame::Possible(extensions.iter().map(|extension| culprit(extension)).collect())
}

fn process(extension: &str) -> Crashed {
    Crashed {
        extension: extension.into(),
        hash: "h1".into(),
        operation: "tool.call".into(),
        how: HOW.into(),
        loading: false,
    }
}

fn quarantined(ledger: &CrashLedger) -> Vec<String> {
    ledger.verdicts().quarantined.into_iter().map(|found| found.extension).collect()
}

fn suspects(ledger: &CrashLedger) -> Vec<String> {
    ledger.verdicts().suspects
}

/// Crashes at these seconds: whether the last of them led to quarantine.
fn crashes_at(seconds: &[i64]) -> (CrashLedger, bool) {
    let mut ledger = CrashLedger::default();
    let last = seconds.iter().map(|second| ledger.kernel_crashed(&certain("a"), HOW, at(*second)));
    let last = last.last().is_some_and(|consequence| consequence.quarantined);
    (ledger, last)
}

#[test]
fn three_crashes_within_ten_minutes_lead_to_quarantine() {
    for (seconds, expected) in [
        (&[0, 1][..], false),
        (&[0, 1, 2], true),
        (&[0, 300, 600], true),
        (&[0, 300, 601], false),
        (&[0, 301, 601, 602], true),
        // The clock was set back.
        (&[10_000, 0, 1], false),
        (&[10_000, 0, 1, 2], true),
    ] {
        let (ledger, last) = crashes_at(seconds);
        assert_eq!(last, expected, "{seconds:?}");
        assert_eq!(quarantined(&ledger), if expected { vec!["a"] } else { vec![] }, "{seconds:?}");
    }
}

#[test]
fn the_reason_tells_people_what_happened() {
    let (ledger, _) = crashes_at(&[0, 1, 2]);
    let found = &ledger.verdicts().quarantined[0];
    let expected =
        "crashed the kernel 3 times in 10 minutes, at last in `tool.call` with signal 11 (SIGSEGV)";
    assert_eq!(found.reason, expected);
    assert_eq!((found.hash.as_str(), found.since), ("h1", at(2)));

    let mut ledger = CrashLedger::default();
    for second in 0..3 {
        ledger.process_crashed(&process("a"), at(second));
    }
    let reason = &ledger.verdicts().quarantined[0].reason;
    assert!(reason.starts_with("crashed in a process of its own 3 times in 10 minutes"), "{reason}");

    let mut ledger = CrashLedger::default();
    let crashed = Crashed { how: "x\u{1b}[0m\n".repeat(500), ..process("a") };
    (0..2).for_each(|second| drop(ledger.process_crashed(&crashed, at(second))));
    ledger.kernel_crashed(&certain("a"), &"x".repeat(1_000), at(2));
    let reason = &ledger.verdicts().quarantined[0].reason;
    assert!(reason.starts_with("crashed 3 times") && reason.len() <= reason::LONGEST, "{reason}");
    assert!(!reason.contains(char::is_control));
}

#[test]
fn one_crash_while_it_loads_leads_to_quarantine() {
    let loading = Culprit::new("a", "h1", "initialize", true).unwrap();
    let mut ledger = CrashLedger::default();
    assert!(ledger.kernel_crashed(&Blame::Certain(loading), HOW, at(0)).quarantined);
    let reason = &ledger.verdicts().quarantined[0].reason;
    assert_eq!(reason, "crashed the kernel while it was loaded, in `initialize` with signal 11 (SIGSEGV)");

    let mut ledger = CrashLedger::default();
    let crashed = Crashed { loading: true, operation: "load".into(), ..process("a") };
    assert!(ledger.process_crashed(&crashed, at(0)).unwrap().quarantined);
}

#[test]
fn crashes_are_counted_by_extension_and_by_content() {
    let mut ledger = CrashLedger::default();
    for hash in ["h1", "h2", "h3"] {
        let blame = Blame::Certain(Culprit::new("a", hash, "tool.call", false).unwrap());
        assert!(!ledger.kernel_crashed(&blame, HOW, at(0)).quarantined);
    }
    for extension in ["b", "c", "d"] {
        assert!(!ledger.kernel_crashed(&certain(extension), HOW, at(0)).quarantined);
    }
    // Once it is left out for one content, another is counted from the beginning and takes its place.
    (0..2).for_each(|_| drop(ledger.kernel_crashed(&certain("a"), HOW, at(1))));
    assert_eq!(quarantined(&ledger), ["a"]);
    let newer = Blame::Certain(Culprit::new("a", "h2", "load", true).unwrap());
    assert!(ledger.kernel_crashed(&newer, HOW, at(2)).quarantined);
    let found = ledger.verdicts().quarantined;
    assert_eq!((found.len(), found[0].hash.as_str()), (1, "h2"));
}

#[test]
fn who_is_released_counts_as_new() {
    let (mut ledger, _) = crashes_at(&[0, 1, 2]);
    ledger.kernel_crashed(&possible(&["a", "b"]), HOW, at(3));
    assert!(ledger.released("c", "nothing is known of it").is_none());
    let note = ledger.released("a", "the operator\nreleased it").unwrap().notes;
    assert_eq!(note, ["`a` counts as new: the operator released it"]);
    assert_eq!(quarantined(&ledger), Vec::<String>::new());
    assert_eq!(suspects(&ledger), ["b"]);
    assert!(!ledger.kernel_crashed(&certain("a"), HOW, at(4)).quarantined);
    assert!(!ledger.kernel_crashed(&certain("a"), HOW, at(5)).quarantined);
    assert!(ledger.kernel_crashed(&certain("a"), HOW, at(6)).quarantined);
}

#[test]
fn a_conviction_clears_those_who_were_suspected_with_it() {
    let mut ledger = CrashLedger::default();
    let consequence = ledger.kernel_crashed(&possible(&["b", "a"]), HOW, at(0));
    assert!(!consequence.quarantined);
    let expected =
        "one of `b`, `a` ended the kernel: they run in processes of their own until it is known which";
    assert_eq!(consequence.notes, [expected]);
    assert!(ledger.kernel_crashed(&possible(&["b", "a"]), HOW, at(1)).notes.is_empty(), "it is said once");
    ledger.kernel_crashed(&possible(&["c", "d"]), HOW, at(2));
    assert_eq!(suspects(&ledger), ["a", "b", "c", "d"]);

    // One who was never suspected settles nothing.
    ledger.process_crashed(&process("e"), at(3));
    assert_eq!(suspects(&ledger), ["a", "b", "c", "d"]);

    let consequence = ledger.process_crashed(&process("a"), at(4)).unwrap();
    assert_eq!(consequence.notes, ["it was `a`, which stays in a process of its own; `b` is cleared"]);
    assert_eq!(suspects(&ledger), ["a", "c", "d"]);
    assert!(!consequence.quarantined, "one crash is one crash");
    ledger.process_crashed(&process("a"), at(5));
    assert!(ledger.process_crashed(&process("a"), at(6)).unwrap().quarantined);
    assert_eq!(
        suspects(&ledger),
        ["a", "c", "d"],
        "it would end the kernel again when it is released otherwise"
    );

    // So does a crash of the kernel whose culprit is certain.
    ledger.kernel_crashed(&certain("d"), HOW, at(7));
    assert_eq!(suspects(&ledger), ["a", "d"]);
}

#[test]
fn a_suspect_of_two_crashes_is_cleared_of_one() {
    let mut ledger = CrashLedger::default();
    ledger.kernel_crashed(&possible(&["a", "b"]), HOW, at(0));
    ledger.kernel_crashed(&possible(&["b", "c"]), HOW, at(1));
    let notes = ledger.process_crashed(&process("a"), at(2)).unwrap().notes;
    assert_eq!(notes, ["`a` crashed in a process of its own, where it stays"]);
    assert_eq!(suspects(&ledger), ["a", "b", "c"]);
}

#[test]
fn what_was_written_is_read_and_what_is_damaged_is_not() {
    let (mut ledger, _) = crashes_at(&[0, 1, 2]);
    ledger.kernel_crashed(&possible(&["b", "c"]), HOW, at(3));
    let bytes = ledger.to_bytes().unwrap();
    assert_eq!(CrashLedger::read(&bytes), Some(ledger));
    let long = format!("{{}}{}", " ".repeat(FILE)).into_bytes();
    for damaged in [&b""[..], b"null", b"{\"crashes\":3}", &bytes[..bytes.len() / 2], &long] {
        assert_eq!(CrashLedger::read(damaged), None);
    }
    let empty = br#"{"from a later release":1}"#;
    assert_eq!(CrashLedger::read(empty), Some(CrashLedger::default()));
    let forged = br#"{"suspects":{"suspicions":[["../a","b"]],"convicted":["\u001b"]},
        "quarantined":[{"extension":"A B","hash":"","reason":"","since":"2026-01-01T00:00:00Z"}]}"#;
    let ledger = CrashLedger::read(forged).unwrap();
    assert_eq!(ledger.verdicts().suspects, ["b"]);
    assert!(ledger.verdicts().quarantined.is_empty());
}

#[test]
fn a_kernel_that_invents_crashes_fills_nothing() {
    let mut ledger = CrashLedger::default();
    ledger.kernel_crashed(&Blame::Certain(Culprit::new("real", "h1", "load", true).unwrap()), HOW, at(0));
    let mut believed = 0;
    for number in 0..10_000 {
        let extension = format!("invented-{number}");
        let crashed = Crashed { loading: number % 2 == 0, extension, ..process("") };
        believed += usize::from(ledger.process_crashed(&crashed, at(number / 5_000)).is_some());
    }
    assert_eq!(believed, MOST_AT_ONCE);
    assert!(quarantined(&ledger).contains(&"real".to_owned()));
    assert!(
        ledger.process_crashed(&Crashed { extension: "No Id".into(), ..process("") }, at(1_000)).is_none()
    );
}

#[test]
fn the_largest_ledger_fits_a_frame_and_its_file() {
    let mut ledger = CrashLedger::default();
    let name = |kind: &str, number: usize| format!("{kind}{number:0>47}");
    for number in 0..200 {
        let crashed = Crashed {
            extension: name("q", number),
            hash: "f".repeat(64),
            operation: "\"".repeat(1_000),
            how: "\\".repeat(1_000),
            loading: true,
        };
        ledger.process_crashed(&crashed, at(number as i64));
        let group = (0..100).map(|member| culprit(&name("s", number * 1_000 + member))).collect();
        ledger.kernel_crashed(&Blame::Possible(group), HOW, at(number as i64));
        if let Some(suspect) = suspects(&ledger).last().cloned() {
            ledger.kernel_crashed(&certain(&suspect), HOW, at(number as i64));
        }
    }
    let verdicts = ledger.verdicts();
    assert_eq!(verdicts.quarantined.len(), QUARANTINED);
    let bytes = Down::Verdicts(verdicts.clone()).encode().unwrap();
    let Some(Down::Verdicts(read)) = Down::decode(&bytes) else { panic!("the frame") };
    assert_eq!(read.suspects, verdicts.suspects);
    assert_eq!(read.quarantined.len(), QUARANTINED);
    assert!(ledger.to_bytes().unwrap().len() < FILE / 2);
}

#[test]
fn every_list_has_a_bound() {
    let mut ledger = CrashLedger::default();
    for number in 0..1_000 {
        ledger.kernel_crashed(&certain("a"), HOW, at(0));
        ledger.kernel_crashed(&possible(&[&format!("x{number}"), "y"]), HOW, at(0));
    }
    assert_eq!(ledger.crashes.len(), CRASHES);
    assert_eq!(suspects(&ledger), ["x996", "x997", "x998", "x999", "y"]);
    for number in 0..1_000 {
        let suspect = format!("z{number}");
        ledger.kernel_crashed(&possible(&[&suspect, "y"]), HOW, at(0));
        ledger.kernel_crashed(&certain(&suspect), HOW, at(0));
    }
    assert!(suspects(&ledger).len() < 100, "{:?}", suspects(&ledger));
    let crowd: Vec<String> = (0..1_000).map(|number| format!("w{number}")).collect();
    ledger.kernel_crashed(&possible(&crowd.iter().map(String::as_str).collect::<Vec<_>>()), HOW, at(0));
    assert!(suspects(&ledger).len() < 200, "{:?}", suspects(&ledger));
}

#[derive(Debug, Clone)]
enum Happening {
    Kernel(Vec<u8>, bool),
    Process(u8, bool),
    Released(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (proptest::collection::vec(0u8..6, 0..4), any::<bool>())
            .prop_map(|(who, loading)| Happening::Kernel(who, loading)),
        (0u8..6, any::<bool>()).prop_map(|(who, loading)| Happening::Process(who, loading)),
        (0u8..6).prop_map(Happening::Released),
    ]
}

proptest! {
    /// Whatever happens in whatever order: who was released has nothing against it, who is quarantined has crashed
    /// while loading or three times in ten minutes, nobody is quarantined on a suspicion, and the file brings it back.
    #[test]
    fn any_history_keeps_the_promises(
        history in proptest::collection::vec((happening(), 0i64..4 * MINUTE), 1..60),
    ) {
        let name = |who: u8| format!("x{who}");
        let mut ledger = CrashLedger::default();
        let mut time = 0;
        // For each extension the crashes since its release that are certainly its own, and whether it was loading.
        let mut known: Vec<Vec<(i64, bool)>> = vec![Vec::new(); 6];
        for (happening, later) in history {
            time += later;
            match happening {
                Happening::Kernel(mut who, loading) => {
                    who.sort_unstable();
                    who.dedup();
                    let culprit = |who: &u8| Culprit::new(&name(*who), "h", "start", loading).unwrap();
                    let blame = match &who[..] {
                        [] => Blame::Nobody,
                        [one] => {
                            known[usize::from(*one)].push((time, loading));
                            Blame::Certain(culprit(one))
                        }
                        several => Blame::Possible(several.iter().map(culprit).collect()),
                    };
                    let consequence = ledger.kernel_crashed(&blame, HOW, at(time));
                    if who.len() != 1 {
                        prop_assert!(!consequence.quarantined);
                    }
                    if who.len() > 1 {
                        let suspects = suspects(&ledger);
                        prop_assert!(who.iter().all(|who| suspects.contains(&name(*who))));
                    }
                }
                Happening::Process(who, loading) => {
                    let crashed = Crashed { hash: "h".into(), loading, ..process(&name(who)) };
                    if ledger.process_crashed(&crashed, at(time)).is_some() {
                        known[usize::from(who)].push((time, loading));
                    }
                }
                Happening::Released(who) => {
                    ledger.released(&name(who), "");
                    known[usize::from(who)].clear();
                    prop_assert!(!suspects(&ledger).contains(&name(who)));
                }
            }
            for (who, crashes) in (0u8..).zip(&known) {
                let deserved = crashes.iter().any(|(_, loading)| *loading)
                    || crashes.windows(3).any(|three| three[2].0 - three[0].0 <= 10 * MINUTE);
                prop_assert_eq!(quarantined(&ledger).contains(&name(who)), deserved, "{} {:?}", who, crashes);
            }
            prop_assert_eq!(CrashLedger::read(&ledger.to_bytes().unwrap()), Some(ledger.clone()));
        }
    }

    #[test]
    fn no_bytes_upset_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = CrashLedger::read(&bytes);
    }
}
