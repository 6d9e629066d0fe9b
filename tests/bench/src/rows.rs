//! What is measured, in the order of the table.

mod boot;
mod boundary;
mod bytes;
mod cpu;
mod fanout;
mod memory;
mod sessions;

use anyhow::Result;

use crate::report::Row;

/// One group of the table.
type Measure = fn() -> Result<Vec<Row>>;

/// All groups, by the name with which one is chosen.
pub const ALL: &[(&str, Measure)] = &[
    ("boundary", boundary::measure),
    ("fanout", fanout::measure),
    ("memory", memory::measure),
    ("boot", boot::measure),
    ("bytes", bytes::measure),
    ("cpu", cpu::measure),
    ("sessions", sessions::measure),
];
