use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_secs(300);

fn timing(text: &str) -> Timing {
    Timing::new(text, "Europe/Berlin").expect("a time")
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn planned(text: &str, policy: MisfirePolicy, through: &str, now: &str) -> (Vec<String>, u32) {
    let plan =
        plan(&timing(text), Misfire { policy, grace: GRACE }, at(through), at(now)).unwrap_or_default();
    (plan.fire.iter().map(ToString::to_string).collect(), plan.missed.map_or(0, |missed| missed.count))
}

#[test]
fn late_slots_are_done_as_the_policy_says_and_the_others_are_counted() {
    let all = MisfirePolicy::All { max: 3 };
    for (policy, now, fire, missed) in [
        (MisfirePolicy::Skip, "2026-11-24T07:00:10Z", &["2026-11-24T07:00:00Z"][..], 0),
        (MisfirePolicy::Skip, "2026-11-24T07:00:40Z", &[], 1),
        (MisfirePolicy::Once, "2026-11-24T07:04:30Z", &["2026-11-24T07:04:00Z"], 4),
        (
            all,
            "2026-11-24T07:04:30Z",
            &["2026-11-24T07:02:00Z", "2026-11-24T07:03:00Z", "2026-11-24T07:04:00Z"],
            2,
        ),
        (MisfirePolicy::Once, "2026-11-24T06:59:59Z", &[], 0),
    ] {
        let (fired, count) = planned("* 8 * * *", policy, "2026-11-24T06:59:00Z", now);
        assert_eq!(
            (fired.as_slice(), count),
            (&fire.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..], missed)
        );
    }
    // A day later the last one is out of the grace.
    assert_eq!(
        planned("0 8 * * *", MisfirePolicy::Once, "2026-11-23T07:00:00Z", "2026-11-24T07:05:01Z"),
        (vec![], 1)
    );
}

#[test]
fn a_week_asleep_is_counted_as_far_as_it_is_worth_it_and_its_end_is_known() {
    let through = at("2026-11-17T00:00:00Z");
    let now = at("2026-11-24T00:00:00.5Z");
    let misfire = Misfire { policy: MisfirePolicy::Once, grace: GRACE };
    let found = plan(&timing("@every 1s"), misfire, through, now).expect("slots");
    assert_eq!(found.fire, [at("2026-11-24T00:00:00Z")]);
    let missed = found.missed.expect("missed ones");
    assert_eq!((missed.count, missed.more), (COUNTED, true));
    assert_eq!((missed.first, missed.last), (at("2026-11-17T00:00:01Z"), at("2026-11-23T23:59:59Z")));
}

#[test]
fn where_clocks_change_each_day_has_its_slot_once() {
    let daily = timing("30 2 * * *");
    for (day, slot) in [
        // The half hour does not exist: it is due when the gap ends.
        ("2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        // It comes twice: the first one counts.
        ("2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
    ] {
        assert_eq!(daily.after(at(day)), Some(at(slot)));
    }
    assert_eq!(daily.after(at("2026-10-25T00:30:00Z")), Some(at("2026-10-26T01:30:00Z")));
    let steps = timing("*/30 * * * *");
    let mut instant = at("2026-10-24T22:00:00Z");
    for _ in 0..10 {
        let next = steps.after(instant).expect("a slot");
        assert_eq!(next.duration_since(instant), SignedDuration::from_mins(30), "{next}");
        instant = next;
    }
}

#[test]
fn what_is_no_time_is_refused_with_what_to_write() {
    for (text, zone, says) in [
        ("whenever", "UTC", "`@every 30m`"),
        ("in 20m", "UTC", "`@every 30m`"),
        ("0 0 30 2 *", "UTC", "never comes"),
        ("@every 0s", "UTC", "1s to 366d"),
        ("@every 99999999999999999999d", "UTC", "1s to 366d"),
        ("@every 5", "UTC", "1s to 366d"),
        ("2026-13-01 08:00", "UTC", "2026-12-24 18:00"),
        ("0 8 * * *", "Europe/Atlantis", "Europe/Berlin"),
        (&"0,".repeat(200), "UTC", "128 bytes"),
    ] {
        let error = Timing::new(text, zone).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    // What looks like a date at first is cron.
    assert_eq!(timing("30 9-17 * * 1-5").after(at("2026-11-24T07:00:00Z")), Some(at("2026-11-24T08:30:00Z")));
    let now = at("2026-11-24T07:00:00.25Z");
    let later = Timing::relative("in 20m", now).expect("it is relative").expect("a time");
    assert_eq!(timing(&later).after(now), Some(at("2026-11-24T07:20:00Z")));
    assert!(Timing::relative("in a while", now).expect("it is relative").is_err());
    let once = timing("2026-12-24 18:00");
    assert_eq!(once.after(at("2026-11-24T00:00:00Z")), Some(at("2026-12-24T17:00:00Z")));
    assert_eq!(once.after(at("2026-12-24T17:00:00Z")), None);
}

/// A kernel that looks at its clock at odd times, is killed before or after it has settled what it found, and whose clock jumps.
#[derive(Debug, Clone)]
enum Happens {
    /// Seconds pass, and it looks.
    Looks(u32),
    /// It is killed before what it found is recorded.
    DiesBefore(u32),
    /// The clock jumps by so much.
    Jumps(i32),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..4_000_u32).prop_map(Happens::Looks),
        2 => (0..4_000_u32).prop_map(Happens::DiesBefore),
        1 => prop_oneof![Just(3_600), Just(-3_600), Just(86_400), Just(-86_400), Just(604_800)].prop_map(Happens::Jumps),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_slot_is_done_twice_and_none_is_passed_over_in_silence(
        which in prop::sample::select(vec!["*/20 * * * *", "30 2 * * *", "@every 17m", "5 4 3 * * *", "0 0 * * *"]),
        policy in prop_oneof![Just(MisfirePolicy::Skip), Just(MisfirePolicy::Once), (1..9_u32).prop_map(|max| MisfirePolicy::All { max })],
        begins in prop::sample::select(vec!["2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-06-01T00:00:00Z"]),
        steps in prop::collection::vec(happens(), 1..60),
    ) {
        let timing = timing(which);
        let misfire = Misfire { policy, grace: GRACE };
        let begin = at(begins);
        let (mut now, mut through) = (begin, begin);
        let (mut done, mut settled) = (BTreeSet::new(), 0_u32);
        for step in steps {
            let (seconds, is_recorded) = match step {
                Happens::Looks(seconds) => (i64::from(seconds), true),
                Happens::DiesBefore(seconds) => (i64::from(seconds), false),
                Happens::Jumps(seconds) => (i64::from(seconds), true),
            };
            now = now.checked_add(SignedDuration::from_secs(seconds)).expect("a time");
            let Some(found) = plan(&timing, misfire, through, now).filter(|_| is_recorded) else { continue };
            for slot in &found.fire {
                prop_assert!(done.insert(*slot), "{slot} twice");
                prop_assert!(*slot > through && *slot <= now);
                settled += 1;
            }
            settled += found.missed.map_or(0, |missed| missed.count);
            prop_assert!(found.missed.is_none_or(|missed| !missed.more));
            through = now;
        }
        let mut all = 0;
        let mut slot = begin;
        while let Some(next) = timing.after(slot).filter(|next| *next <= through) {
            (slot, all) = (next, all + 1);
        }
        prop_assert_eq!(settled, all);
    }
}
