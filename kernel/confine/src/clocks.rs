//! Tells reapers that their programs have run.
//!
//! A reaper whose program is alone and at rest sleeps: what does not run takes no memory and starts no process. A timer on
//! the program's clock tells when it has worked, but the system looks at that only now and then, and a program may know
//! when. So the clocks are read as well, once a second, exactly, and by one thread for all: a process each that wakes for
//! it would take most of what a daemon at rest takes.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::tree;

/// Between two looks at the clocks.
const LOOK: Duration = Duration::from_secs(1);

/// The programs whose clocks are read. The thread that does is there as long as there are any.
static PROGRAMS: Mutex<Vec<Program>> = Mutex::new(Vec::new());

struct Program {
    process: u32,
    used: Option<Duration>,
    reaper: OwnedFd,
}

/// Has a reaper told that its program has run, as long as there is this reaper. It must not be buried yet.
pub fn watch(process: u32, reaper: u32) -> io::Result<()> {
    let reaper = Pid::from_raw(reaper as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let reaper = pidfd_open(reaper, PidfdFlags::empty())?;
    let mut programs = lock();
    if programs.is_empty() {
        thread::Builder::new().name("clocks".into()).stack_size(64 * 1024).spawn(read)?;
    }
    programs.push(Program { process, used: None, reaper });
    Ok(())
}

fn lock() -> MutexGuard<'static, Vec<Program>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read() {
    loop {
        thread::sleep(LOOK);
        let mut programs = lock();
        programs.retain_mut(Program::look);
        if programs.is_empty() {
            return;
        }
    }
}

impl Program {
    /// Whether there is somebody to tell.
    fn look(&mut self) -> bool {
        let used = tree::cpu_time(self.process);
        let rests = used.is_some() && used == std::mem::replace(&mut self.used, used);
        rests || pidfd_send_signal(&self.reaper, Signal::PROF).is_ok()
    }
}
