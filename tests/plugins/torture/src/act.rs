//! The ways to fail. Each returns only where what runs the extension lets it.

mod crash;
mod hostile;

use std::{
    hint::black_box,
    ptr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;

/// Bytes that [`Act::Allocate`] takes: more than a process of an extension may have.
const MUCH: usize = 4 << 30;
/// It is taken in parts, each of which is written to: memory that nobody touches costs nothing.
const PART: usize = 16 << 20;
/// Between two looks for a descriptor that has become free.
const PAUSE: Duration = Duration::from_millis(1);

/// A way to fail.
#[derive(Debug, Deserialize, JsonSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Works.
    #[default]
    None,
    /// Panics.
    Panic,
    /// Ends the process by `SIGABRT`.
    Abort,
    /// Writes where there is no memory.
    Segfault,
    /// Calls itself until the stack is full.
    Overflow,
    /// Ends the process as if all were well.
    Exit,
    /// Computes without end.
    Loop,
    /// Takes 4 GiB of memory, uses it and gives it back.
    Allocate,
    /// Waits without end for a lock that it holds.
    Deadlock,
    /// Opens files as long as the system gives any, in a thread that never ends.
    Descriptors,
    /// Panics while a panic ends it.
    DoublePanic,
    /// Ends the process with status 3, without anything that is done at an orderly end.
    ExitNow,
    /// Ends the thread below everything that runs on it.
    EndThread,
    /// Gives memory back twice.
    DoubleFree,
    /// Sends itself `SIGKILL`.
    Kill,
    /// Sends itself `SIGTERM`.
    Terminate,
    /// Sends itself `SIGSTOP`.
    Pause,
    /// Sends `SIGKILL` to its parent.
    KillParent,
    /// Sends `SIGSTOP` to its parent.
    PauseParent,
    /// Starts fifty processes that leave its session, and whose parents end.
    Fork,
    /// Starts threads as long as it can, at most 20,000.
    Threads,
    /// Closes every descriptor.
    Close,
    /// Puts another file in the place of every descriptor.
    Redirect,
    /// Ends every connection.
    Disconnect,
    /// Writes what nobody expects to every descriptor.
    Garble,
    /// Writes 100 MB to both output streams, in a thread.
    Noise,
    /// Ignores signals, and changes the mask for new files, the folder and the environment.
    Unsettle,
}

impl Act {
    /// All of them, with the words that stand for them.
    pub const ALL: [(&'static str, Self); 27] = [
        ("none", Self::None),
        ("panic", Self::Panic),
        ("abort", Self::Abort),
        ("segfault", Self::Segfault),
        ("overflow", Self::Overflow),
        ("exit", Self::Exit),
        ("loop", Self::Loop),
        ("allocate", Self::Allocate),
        ("deadlock", Self::Deadlock),
        ("descriptors", Self::Descriptors),
        ("double_panic", Self::DoublePanic),
        ("exit_now", Self::ExitNow),
        ("end_thread", Self::EndThread),
        ("double_free", Self::DoubleFree),
        ("kill", Self::Kill),
        ("terminate", Self::Terminate),
        ("pause", Self::Pause),
        ("kill_parent", Self::KillParent),
        ("pause_parent", Self::PauseParent),
        ("fork", Self::Fork),
        ("threads", Self::Threads),
        ("close", Self::Close),
        ("redirect", Self::Redirect),
        ("disconnect", Self::Disconnect),
        ("garble", Self::Garble),
        ("noise", Self::Noise),
        ("unsettle", Self::Unsettle),
    ];

    /// Does it.
    pub fn perform(self) {
        match self {
            Self::None => {}
            Self::Panic => panic!("it was told to panic"),
            Self::Abort => std::process::abort(),
            Self::Segfault => segfault(),
            Self::Overflow => {
                overflow(0);
            }
            Self::Exit => std::process::exit(0),
            Self::Loop => spin(),
            Self::Allocate => allocate(),
            Self::Deadlock => deadlock(),
            Self::Descriptors => descriptors(),
            Self::DoublePanic => crash::double_panic(),
            Self::ExitNow => crash::exit_now(),
            Self::EndThread => crash::end_thread(),
            Self::DoubleFree => crash::double_free(),
            Self::Kill => crash::signal_itself(libc::SIGKILL),
            Self::Terminate => crash::signal_itself(libc::SIGTERM),
            Self::Pause => crash::signal_itself(libc::SIGSTOP),
            Self::KillParent => hostile::signal_parent(libc::SIGKILL),
            Self::PauseParent => hostile::signal_parent(libc::SIGSTOP),
            Self::Fork => hostile::fork(),
            Self::Threads => hostile::threads(),
            Self::Close => hostile::close(),
            Self::Redirect => hostile::redirect(),
            Self::Disconnect => hostile::disconnect(),
            Self::Garble => hostile::garble(),
            Self::Noise => hostile::noise(),
            Self::Unsettle => hostile::unsettle(),
        }
    }
}

fn segfault() {
    let nowhere: *mut u64 = ptr::with_exposed_provenance_mut(4096 - size_of::<u64>());
    // SAFETY: none: the first page is never mapped, and the signal that follows is what was asked for.
    unsafe { ptr::write_volatile(nowhere, 1) };
}

#[expect(unconditional_recursion, reason = "it is the point")]
fn overflow(depth: u64) -> u64 {
    let used = black_box([depth; 512]);
    overflow(black_box(depth + 1)) + used[511]
}

fn spin() {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn allocate() {
    let mut parts = Vec::new();
    for _ in 0..MUCH / PART {
        parts.push(black_box(vec![1_u8; PART]));
    }
    drop(black_box(parts));
}

fn deadlock() {
    let lock = Mutex::new(());
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let again = lock.lock().unwrap_or_else(PoisonError::into_inner);
    drop((again, held));
}

/// Takes each that becomes free as well, or the process would live on what it gives back.
fn descriptors() {
    let take = || {
        let mut open = Vec::new();
        loop {
            match std::fs::File::open("/dev/null") {
                Ok(file) => open.push(file),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    };
    let _ = std::thread::Builder::new().name("torture-files".into()).spawn(take);
}
