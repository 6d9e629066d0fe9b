//! Who runs: a page of memory that outlives the kernel and tells whose code a thread was in when it died.
//!
//! The supervisor creates a [`Page`] and hands its descriptor to the kernel, which installs it ([`install()`]). From then on every
//! thread of the kernel that runs an extension's code has a slot in the page: [`enter`] notes which extension, which
//! [`Operation`] and since when, and dropping the guard restores what was there before. When the kernel is gone, the
//! supervisor [reads](Page::read) the page.
//!
//! # What is written when
//!
//! | when | what |
//! |---|---|
//! | [`register`] | the extension's id and content hash, once for each pair |
//! | [`enter`], [`leave`] and the drop of their guard | the slot of this thread: one atomic store |
//! | a thread is created while its creator is in an extension's code | a slot of the new thread that says so for the thread's whole life; the same for the threads that it creates |
//! | a signal that kills (`SEGV BUS ABRT ILL FPE SYS TRAP`) | the signal, the dying thread and what it ran; the first one wins; then the process dies by the same signal |
//! | `exit` or the return of `main`, unless [`disarm`] was called | the same, with [`Cause::Exit`] |
//!
//! # What cannot be known
//!
//! - `SIGKILL` (also out of memory), `_exit`, `quick_exit` and `exec` leave no note: [`Reading::last`] is `None`, and
//!   [`Reading::running`] lists whoever ran at that moment.
//! - A plugin may replace the signal handlers, block these signals, or write over the page. The page is evidence, no
//!   proof; the reader skips what makes no sense.
//! - Threads that come to be without `pthread_create` (`thrd_create`, a bare `clone`, timers that notify by thread), and
//!   all threads where the program does not export its own `pthread_create` ([`sees_threads`]), belong to nobody.
//! - A stack overflow is noted on threads that have an alternate signal stack: all that run an extension's code, unless the
//!   system refuses the memory for one.
//! - There are slots for 1024 threads at a time, of which extensions' own threads take at most 768. A thread without one is
//!   named if it is the one that dies; it is not listed among those that ran.
//! - A process that a plugin forks off notes nothing here.
//!
//! This crate judges nobody: how many deaths make a quarantine is decided by its reader.

mod alternate_stack;
mod clock;
mod death;
mod install;
mod layout;
mod operation;
mod own_threads;
mod page;
mod reading;
mod slot;
mod table;

pub use install::{disarm, install, sees_threads};
pub use operation::Operation;
pub use page::Page;
pub use reading::{Cause, Last, Reading, Running};
pub use slot::{Entered, enter, leave, overdue};
pub use table::{Who, register};
