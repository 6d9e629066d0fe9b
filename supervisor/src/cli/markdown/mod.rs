//! Markdown of others as styled rows for a terminal. Pure.
//!
//! What models write is shown as it is meant: no row holds a character that a terminal would obey, not even one that was
//! written as an entity. Without colours the marks of emphasis stay, so that nothing is lost.

mod blocks;
mod rows;
mod stream;
mod table;

pub use rows::{Look, Row};
pub use stream::Stream;

#[cfg(test)]
mod tests;
