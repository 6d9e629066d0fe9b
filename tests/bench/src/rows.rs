//! What is measured, in the order of the table.

mod boot;
mod boundary;
mod bytes;
mod cpu;
mod fanout;
mod growth;
mod http;
mod journal;
mod live;
mod memory;
mod sessions;
mod stream;

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
    ("stream", stream::measure),
    ("sessions", sessions::measure),
    ("live", live::measure),
    ("journal", journal::measure),
    ("growth", growth::measure),
    ("http", http::measure),
];
