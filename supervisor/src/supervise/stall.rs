//! Why a kernel that says nothing may not be to blame, nor whose code it runs: the system did not let it.
//!
//! Code that loops uses a processor, and code that waits for ever is not ready to run. A kernel that is ready to run all the time
//! and yet hardly runs shares its machine with too much else.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, thread,
    time::{Duration, Instant},
};

/// How often a kernel that hangs is looked at, and when again: what the disk holds up for longer is no passing wait.
const LOOKS: u32 = 4;
const LOOK: Duration = Duration::from_millis(10);
/// Silence from which on it is measured how much a kernel runs: a beat is missing even of one at rest.
const SILENT: Duration = Duration::from_secs(5);
/// What is measured over less says little.
const SHORTEST: Duration = Duration::from_secs(2);

/// Measures a kernel from when it begins to be silent.
#[derive(Debug, Default)]
pub struct Stall {
    begun: Option<Times>,
}

impl Stall {
    /// Looks at a process that has been silent for so long.
    pub fn look(&mut self, pid: u32, silence: Duration, now: Instant) {
        if silence < SILENT {
            self.begun = None;
        } else if self.begun.is_none() {
            self.begun = Some(Times::of(pid, now));
        }
    }

    /// Why the system kept it from going on, if it did.
    pub fn why(&self, pid: u32, now: Instant) -> Option<&'static str> {
        if stands_still(pid) {
            return Some("threads of it were stopped, or waited for a disk");
        }
        let starved = self.begun.as_ref().is_some_and(|begun| begun.starved(&Times::of(pid, now)));
        starved.then_some("it was ready to run, and got hardly any time of a processor")
    }
}

/// How long the threads of a process have run, and waited for a processor, by a moment.
#[derive(Debug)]
struct Times {
    at: Instant,
    threads: BTreeMap<OsString, Thread>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    ran: Duration,
    waited: Duration,
}

impl Times {
    fn of(pid: u32, at: Instant) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let times = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), Thread::read(&text)?))
        };
        Self { at, threads: threads.filter_map(times).collect() }
    }

    /// Whether one of its threads waited for a processor for most of the time since then, while all of them together had
    /// little of one. Where they had much, one of them took it from the others.
    fn starved(&self, now: &Self) -> bool {
        let time = now.at.saturating_duration_since(self.at);
        let since = now.threads.iter().map(|(thread, times)| {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            (times.ran.saturating_sub(before.ran), times.waited.saturating_sub(before.waited))
        });
        let (ran, longest) = since
            .fold((Duration::ZERO, Duration::ZERO), |(ran, longest), (more, waited)| {
                (ran + more, longest.max(waited))
            });
        time >= SHORTEST && longest >= time / 2 && ran <= time / 4
    }
}

impl Thread {
    /// From the file `schedstat`: nanoseconds on a processor, nanoseconds ready without one, and how often it got one.
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok().map(Duration::from_nanos));
        Some(Self { ran: numbers.next()??, waited: numbers.next()?? })
    }
}

/// Whether a thread of a process is stopped, or waits for a disk, whenever it is looked at.
fn stands_still(pid: u32) -> bool {
    let mut still = held(pid);
    for _ in 1..LOOKS {
        if still.is_empty() {
            return false;
        }
        thread::sleep(LOOK);
        let now = held(pid);
        still.retain(|thread| now.contains(thread));
    }
    !still.is_empty()
}

/// Its threads that the system does not let run.
fn held(pid: u32) -> Vec<OsString> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let is_held = |thread: &fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may hold anything.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('D' | 'T' | 't'))
    };
    threads.filter(is_held).map(|thread| thread.file_name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads by what they ran and waited, in milliseconds, after so many of them.
    fn times(begin: Instant, at: u64, threads: &[(&str, u64, u64)]) -> Times {
        let ms = Duration::from_millis;
        let threads = threads
            .iter()
            .map(|(name, ran, waited)| (OsString::from(name), Thread { ran: ms(*ran), waited: ms(*waited) }));
        Times { at: begin + ms(at), threads: threads.collect() }
    }

    #[test]
    fn only_a_process_that_is_ready_and_hardly_runs_is_starved() {
        let begin = Instant::now();
        let before = times(begin, 0, &[("1", 5_000, 9_000), ("2", 100, 8_000)]);
        let check = |what: &str, at: u64, now: &[(&str, u64, u64)], expected: bool| {
            assert_eq!(before.starved(&times(begin, at, now)), expected, "{what}");
        };
        check("it got a tenth", 7_000, &[("1", 5_700, 15_300), ("2", 110, 8_100)], true);
        check("a thread that came later got nothing", 7_000, &[("1", 5_000, 9_000), ("3", 1, 6_900)], true);
        check("code that loops", 7_000, &[("1", 11_900, 9_100), ("2", 100, 8_000)], false);
        check("code that waits for ever", 7_000, &[("1", 5_000, 9_000), ("2", 100, 8_000)], false);
        check(
            "one thread takes it from the other",
            7_000,
            &[("1", 8_500, 12_500), ("2", 200, 14_800)],
            false,
        );
        check("a passing wait", 7_000, &[("1", 5_100, 11_000), ("2", 100, 8_000)], false);
        check("too short to tell", 1_900, &[("1", 5_000, 10_900)], false);
        check("a process that is gone", 7_000, &[], false);
    }

    #[test]
    fn a_thread_of_this_process_is_measured_as_it_runs() {
        let pid = std::process::id();
        let before = Times::of(pid, Instant::now());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {
            std::hint::black_box(());
        }
        let now = Times::of(pid, Instant::now());
        // Threads of tests beside this one come and go.
        let lasting = before.threads.keys().filter(|name| now.threads.contains_key(*name));
        let ran = |times: &Times| lasting.clone().map(|name| times.threads[name].ran).sum::<Duration>();
        // A system that keeps no such figures has none to show.
        assert!(now.threads.is_empty() || ran(&now) > ran(&before), "{before:?} {now:?}");
        assert!(Times::of(u32::MAX, Instant::now()).threads.is_empty());
    }

    #[test]
    fn what_is_no_such_file_is_no_time() {
        assert!(Thread::read("").is_none() && Thread::read("1").is_none() && Thread::read("a b c").is_none());
        let read = Thread::read("7000000 5000000 3\n").expect("two times");
        assert_eq!((read.ran, read.waited), (Duration::from_millis(7), Duration::from_millis(5)));
    }

    #[test]
    fn it_is_measured_from_the_fifth_second_of_silence_on_and_anew_after_a_sign_of_life() {
        let (mut stall, now, pid) = (Stall::default(), Instant::now(), std::process::id());
        let second = Duration::from_secs(1);
        stall.look(pid, second * 4, now);
        assert!(stall.begun.is_none());
        stall.look(pid, second * 5, now);
        stall.look(pid, second * 9, now + second * 4);
        assert_eq!(stall.begun.as_ref().map(|begun| begun.at), Some(now));
        stall.look(pid, Duration::ZERO, now + second * 7);
        assert!(stall.begun.is_none());
    }
}
