//! Frames from another process: those of an extension's host, and those between supervisor and kernel.

#![no_main]

use drupe_link::{Down, Frame, Up};
use host_frame::{Decoded, decode, encode};
use libfuzzer_sys::fuzz_target;

// The module alone: it needs nothing of its crate, whose own `pthread_create` the sanitizer does not survive.
#[path = "../../../kernel/host/src/frame.rs"]
#[expect(dead_code, reason = "only reading is of interest here")]
mod host_frame;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Decoded::Complete(frame, used)) = decode(rest) {
        assert!(used > 0 && used <= rest.len());
        if let Some(frame) = frame {
            let again = encode(&frame).expect("it went through once");
            assert_eq!(decode(&again), Ok(Decoded::Complete(Some(frame), again.len())));
        }
        rest = &rest[used..];
    }
    // What is read can be sent on, and is read as the same again.
    if let Some(frame) = Up::decode(bytes) {
        assert!(frame.encode().is_some_and(|again| Up::decode(&again).is_some()));
    }
    if let Some(frame) = Down::decode(bytes) {
        assert!(frame.encode().is_some_and(|again| Down::decode(&again).is_some()));
    }
});
