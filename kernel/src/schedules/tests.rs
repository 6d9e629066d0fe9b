//! What becomes of slots and of runs, by a clock that the tests have in their hands.

use drupe_extension_api::FaultCode;

use super::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

/// A schedule that is due each minute.
fn minutely(policy: MisfirePolicy, queues: bool) -> Scheduled {
    Scheduled {
        id: "tea".into(),
        owner: None,
        name: "tea".into(),
        timing: Timing::new("* * * * *", "UTC").expect("a time"),
        timezone: "UTC".into(),
        misfire: Misfire { policy, grace: Duration::from_hours(12) },
        queues,
        task: Some("drink tea".into()),
        only_if: None,
        notify: true,
    }
}

fn row(through: Timestamp) -> ScheduleRow {
    ScheduleRow {
        id: "tea".into(),
        definition: None,
        timing: "* * * * * UTC".into(),
        through,
        failures: 0,
        held_until: None,
        paused: None,
    }
}

fn run(slot: Timestamp, state: State) -> ScheduleRun {
    ScheduleRun { slot, last_slot: None, slots: 1, state, turn: None, detail: None, changed: slot }
}

/// How many of the slots that came in so many minutes wait, and why the others do not.
fn settled(what: &Scheduled, minutes: i32, goes_on: &GoesOn) -> (usize, Vec<String>) {
    let begin = at("2026-11-25T08:00:30Z");
    let now = begin.checked_add(MINUTE * minutes).expect("a time");
    let entries = due(what, &row(begin), goes_on, now).expect("some came");
    let waiting = entries.iter().filter(|entry| entry.state == State::Waiting).count();
    (waiting, entries.into_iter().filter_map(|entry| entry.detail).collect())
}

const NOTHING: GoesOn = GoesOn { running: false, waiting: 0 };

#[test]
fn all_that_was_missed_is_made_up_for_although_each_waits_for_the_one_before() {
    let all = MisfirePolicy::All { max: 100 };
    assert_eq!(settled(&minutely(all, false), 40, &NOTHING), (40, vec![]));
    // What waited before them is another matter: only a queue goes on behind it.
    let behind = GoesOn { running: false, waiting: 1 };
    let (waiting, why) = settled(&minutely(all, false), 3, &behind);
    assert_eq!((waiting, why), (0, vec!["the run before still waited".to_owned(); 3]));
    assert_eq!(settled(&minutely(all, true), 3, &behind), (3, vec![]));
    let running = GoesOn { running: true, waiting: 0 };
    let (waiting, why) = settled(&minutely(all, false), 1, &running);
    assert_eq!((waiting, why), (0, vec!["the run before still went on".to_owned()]));
}

#[test]
fn a_queue_has_a_hundred_places_and_says_who_found_none() {
    let queue = minutely(MisfirePolicy::All { max: 100 }, true);
    assert_eq!(settled(&queue, 3, &GoesOn { running: true, waiting: 97 }), (3, vec![]));
    let full = "100 runs of it waited already".to_owned();
    assert_eq!(settled(&queue, 3, &GoesOn { running: true, waiting: 98 }), (2, vec![full.clone()]));
    assert_eq!(settled(&queue, 2, &GoesOn { running: true, waiting: 100 }), (0, vec![full.clone(), full]));
}

#[test]
fn people_are_told_once_each_time_that_a_clock_was_set_back() {
    let what = minutely(MisfirePolicy::Once, false);
    let through = at("2026-11-25T12:00:00Z");
    let mut told = BTreeSet::new();
    let mut says = |now: &str| set_back(&mut told, &what, &row(through), at(now));
    assert_eq!(says("2026-11-25T11:50:00Z"), None, "clocks are set by a little all the time");
    let text = says("2026-11-25T11:49:59Z").expect("it is told");
    assert!(text.contains("the clock was set back: nothing is done before 2026-11-25 12:00"), "{text}");
    assert!(text.contains("`drupe schedule resume tea`"), "{text}");
    assert_eq!(says("2026-11-25T10:00:00Z"), None, "they know");
    assert_eq!(says("2026-11-25T12:00:00Z"), None);
    assert!(says("2026-11-25T09:00:00Z").is_some(), "it happened again");
}

/// Two schedules, one place, and a clock.
struct Stage {
    places: RunPlaces,
    began: Instant,
    now: Timestamp,
    seconds: u32,
}

impl Stage {
    fn new() -> Self {
        let now = at("2026-11-25T08:00:00Z");
        Self { places: RunPlaces::default(), began: Instant::now(), now, seconds: 0 }
    }

    fn times(&self) -> (Timestamp, Instant) {
        let seconds = SignedDuration::from_secs(self.seconds.into());
        (
            self.now.checked_add(seconds).expect("a time"),
            self.began + Duration::from_secs(self.seconds.into()),
        )
    }

    fn step(&mut self, id: &str, run: &ScheduleRun) -> RunStep {
        self.places.step(id, run, false, 1, self.times())
    }
}

#[test]
fn a_run_that_cannot_go_on_gives_up_its_place_and_is_tried_again_later() {
    let mut stage = Stage::new();
    let waits = run(stage.now, State::Waiting);
    let key = |id: &str| (id.to_owned(), waits.slot);
    assert_eq!(stage.step("stuck", &waits), RunStep::Begin);
    assert!(stage.places.follow(key("stuck")));
    assert!(!stage.places.follow(key("stuck")), "one follows it");
    assert_eq!(stage.step("other", &waits), RunStep::Leave, "there is one place");
    // It cannot begin: its extension does not work now.
    let fault = Fault::new(FaultCode::Unavailable, "the extension of `stuck` does not work now");
    let rest = rest_after(&fault, LOOK).expect("that may pass");
    let until = stage.times().1 + rest;
    stage.places.put_off("stuck", until);
    stage.places.leave(&key("stuck"));
    assert!(stage.places.has_put_off());
    assert_eq!(stage.step("stuck", &waits), RunStep::Leave);
    assert_eq!(stage.step("other", &waits), RunStep::Begin, "the place is free");
    stage.seconds = u32::try_from(LOOK.as_secs()).expect("seconds");
    assert_eq!(stage.step("stuck", &waits), RunStep::Begin);
    assert!(!stage.places.has_put_off());
    // One that an earlier kernel began is followed wherever there is no place.
    stage.places.follow(key("other"));
    assert_eq!(stage.step("begun", &run(stage.now, State::Running)), RunStep::GoOn);
    let wrong = Fault::invalid("the session cannot be");
    assert_eq!(rest_after(&wrong, LOOK), None, "it fails the same way each time");
}

#[test]
fn a_run_that_has_waited_for_six_hours_is_missed() {
    let mut stage = Stage::new();
    let waits = run(stage.now, State::Waiting);
    let running = run(stage.now, State::Running);
    stage.seconds = 6 * 3600;
    assert_eq!(stage.step("tea", &waits), RunStep::Begin);
    stage.seconds += 1;
    assert_eq!(stage.step("tea", &waits), RunStep::Miss);
    assert_eq!(stage.step("tea", &running), RunStep::GoOn, "what was begun goes on");
    let times = stage.times();
    assert_eq!(stage.places.step("tea", &waits, true, 1, times), RunStep::Leave, "it is paused");
}

#[test]
fn what_is_made_up_for_long_after_its_time_has_its_six_hours_from_then_on() {
    let mut stage = Stage::new();
    let yesterday = stage.now.checked_sub(SignedDuration::from_hours(20)).expect("a time");
    let waits = ScheduleRun { changed: stage.now, ..run(yesterday, State::Waiting) };
    assert_eq!(stage.step("once", &waits), RunStep::Begin);
}
