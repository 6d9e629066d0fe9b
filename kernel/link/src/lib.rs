//! What supervisor and kernel say to each other, and where they and their clients meet.
//!
//! [`Up`] and [`Down`] are the frames, [`Link`] carries them over an inherited socket pair, [`Home`] names the
//! files of a home that both sides and the command line need, and [`ControlToken`] is what a client of the
//! control socket presents. Nothing here decides: when a kernel is started, stopped or blamed is the
//! supervisor's, and no byte that arrives here is trusted.

mod frame;
mod home;
mod lock;
mod token;
mod transport;

pub use frame::{Crashed, Down, Frame, LogFileSpec, MAX_FRAME, Quarantined, Up, VERSION, Verdicts};
pub use home::Home;
pub use lock::{HomeLock, LockError};
pub use token::{ControlToken, TokenError, is_named_token, named_token};
pub use transport::{BeginError, KernelLink, Link, LinkError, Received, SupervisorLink, pair};
