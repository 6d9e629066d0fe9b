//! Frames from another process: those of an extension's host, and those between supervisor and kernel.

#![no_main]

use drupe_host::frame::{Decoded, decode};
use drupe_link::{Down, Frame, Up};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Decoded::Complete(_, used)) = decode(rest) {
        assert!(used > 0 && used <= rest.len());
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
