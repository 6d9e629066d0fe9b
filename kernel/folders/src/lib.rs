//! The folders that hold extensions: found, hashed, kept, copied and watched.
//!
//! Deliberately absent: what an extension is. No manifest is read here, nothing is loaded, and nothing that a folder
//! holds is ever run. Whatever lies in a folder may be hostile: what is no regular file is never opened, links are
//! not followed out of where they lie, and every walk has a bound.

pub mod content;
pub mod copy;
pub mod discovery;
pub mod generation;
pub mod held;
mod regular;
pub mod watch;
