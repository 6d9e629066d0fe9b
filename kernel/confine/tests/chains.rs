//! Processes that start each other without end. They use up all that the system has for a moment, so no other test runs beside
//! them.

use std::time::Duration;

use start::{narrow, prepared};

#[expect(dead_code, reason = "other tests ask more of what they start")]
mod start;

#[test]
fn chains_of_processes_that_start_each_other_are_all_ended() {
    let start = prepared(narrow(), &["chains", "16"]).deadline(Duration::from_millis(300));
    // Each of them holds the stream that is read to its end here.
    let outcome = start.run(1024).expect("it starts");
    assert!(outcome.timed_out);
}
