//! What a program and everything that it started are and use, seen from their reaper.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use rustix::process::{Pid, Signal, getpid, getuid, kill_process};

use crate::Limits;

/// How often it is looked for more to stop. Each round finds what was started during the one before.
const ROUNDS: usize = 64;

/// The children of this process. None without `/proc`.
pub fn children() -> Option<Vec<Pid>> {
    let own = getpid().as_raw_pid();
    let found = listed(own, own).or_else(|| scan(own))?;
    Some(found.into_iter().filter_map(Pid::from_raw).collect())
}

/// A bound that is broken, as the end of a sentence.
pub struct Excess(pub String);

/// Which bound all descendants of this process together are beyond, and how many they are where they are beyond none. What cannot be read, since it has just ended, is not counted.
pub fn count(limits: &Limits) -> Result<usize, Excess> {
    let most_tasks = limits.tree_tasks.unwrap_or(u64::MAX);
    let most_memory = limits.tree_memory.unwrap_or(u64::MAX);
    let own = getpid().as_raw_pid();
    let (mut left, mut processes, mut tasks, mut memory) = (descend(own, 1), 0, 0, 0);
    while let Some(process) = left.pop() {
        let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else { continue };
        let threads = field(&status, "Threads:");
        processes += 1;
        tasks += threads.max(1);
        memory += held(&status);
        if tasks > most_tasks {
            return Err(Excess(format!("had more than {most_tasks} processes and threads")));
        }
        if memory > most_memory {
            return Err(Excess(format!("held more than {} MiB of memory together", most_memory >> 20)));
        }
        left.extend(descend(process, threads));
    }
    Ok(processes)
}

/// Stops all descendants of this process, parents before children: who is stopped neither starts others nor buries those
/// that it has started, so that their numbers stay theirs. What was being started meanwhile is found by another round.
pub fn stop_descendants() {
    let own = getpid().as_raw_pid();
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS {
        let before = stopped.len();
        let mut left = descend(own, 1);
        while let Some(process) = left.pop() {
            if stopped.insert(process)
                && let Some(pid) = Pid::from_raw(process)
            {
                // It may have ended; then there is nothing to stop.
                let _ = kill_process(pid, Signal::STOP);
            }
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            left.extend(descend(process, field(&status, "Threads:")));
        }
        if stopped.len() == before {
            return;
        }
    }
}

/// Processes and threads of the user of this process, those outside included.
pub fn tasks_of_user() -> u64 {
    let user = getuid().as_raw().to_string();
    let statuses = fs::read_dir("/proc").into_iter().flatten().flatten();
    let statuses = statuses.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let of_user = |status: &String| {
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        users.and_then(|users| users.split_whitespace().next()) == Some(&user)
    };
    statuses.filter(of_user).map(|status| field(&status, "Threads:")).sum()
}

/// CPU time of a process with all its threads, in user and system mode.
pub fn cpu_time(process: u32) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is valid while it is called.
    let read = unsafe { libc::clock_gettime(clock(i32::try_from(process).ok()?), &mut time) };
    (read == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

/// The number of the clock that runs while a process does, as the C library makes it (`clock_getcpuclockid`).
pub fn clock(process: i32) -> libc::clockid_t {
    (!process << 3) | 2
}

/// Bytes that a process holds and that the system could not take back: what it has written, or shares without a file,
/// in memory or swapped out, and the tables for it. Pages of files are not among them.
fn held(status: &str) -> u64 {
    ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"].map(|name| field(status, name) * 1024).iter().sum()
}

/// A number of the list that the system keeps of a process; 0 if it is not in it.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// The children of a process with so many threads: each thread has a list of those that it started.
fn descend(process: i32, threads: u64) -> Vec<i32> {
    let of_the_first = listed(process, process);
    if threads <= 1 {
        return of_the_first.or_else(|| scan(process)).unwrap_or_default();
    }
    if of_the_first.is_none() {
        return scan(process).unwrap_or_default();
    }
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let tasks = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tasks.filter_map(|task| listed(process, task)).flatten().collect()
}

/// What one thread has started, from the list that most kernels keep.
fn listed(process: i32, task: i32) -> Option<Vec<i32>> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{task}/children")).ok()?;
    Some(list.split_whitespace().filter_map(|child| child.parse().ok()).collect())
}

/// The same for a whole process, from a look at every process.
fn scan(parent: i32) -> Option<Vec<i32>> {
    Some(parents()?.into_iter().filter(|(_, of)| *of == parent).map(|(process, _)| process).collect())
}

/// The parent of every process.
fn parents() -> Option<BTreeMap<i32, i32>> {
    let parent_of = |process: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name in parentheses may hold anything; the state and the parent follow it.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(all.filter_map(|process| Some((process, parent_of(process)?))).collect())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test starts the process that it looks for")]

    use std::process::Command;

    use super::*;

    #[test]
    fn a_look_at_every_process_finds_the_children() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
        let (own, pid) = (getpid().as_raw_pid(), child.id() as i32);
        assert!(scan(own).expect("proc is mounted").contains(&pid));
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(!scan(own).expect("proc is mounted").contains(&pid));
    }

    #[test]
    fn memory_is_what_was_written_or_shared_without_a_file_and_its_tables() {
        let status = "Name:\ta\nVmPTE:\t    2 kB\nRssAnon:\t   10 kB\nRssFile:\t  999 kB\nRssShmem:\t   20 kB\n\
                      VmSwap:\t    5 kB\nThreads:\t7\n";
        assert_eq!((held(status), field(status, "Threads:")), (37 * 1024, 7));
        assert_eq!(held("Name:\tzombie\n"), 0);
    }

    #[test]
    fn cpu_time_grows_while_a_process_runs_and_is_none_once_it_is_gone() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("it exists");
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while cpu_time(busy.id()).expect("it runs") < Duration::from_millis(20) {
            assert!(std::time::Instant::now() < end, "its clock stands still");
            std::thread::yield_now();
        }
        busy.kill().expect("it runs");
        busy.wait().expect("it was killed");
        assert_eq!(cpu_time(busy.id()), None);
    }

    #[test]
    fn what_a_thread_has_started_is_counted() {
        let mut child = std::thread::spawn(|| Command::new("sleep").arg("1000").spawn())
            .join()
            .expect("it does not panic")
            .expect("sleep exists");
        // The thread is gone, and what it started belongs to another one of this process.
        assert!(descend(getpid().as_raw_pid(), 2).contains(&(child.id() as i32)));
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
    }
}
