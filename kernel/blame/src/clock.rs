//! The clock that both sides of the page read.

/// Milliseconds of the system's monotonic clock, the same in every process of this boot.
///
/// The coarse clock lags by up to one tick (1 to 10 ms) and costs a few nanoseconds, which the precise one does not.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call cannot fail for this clock, and if it did, the zeros
    // above would stand.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let (seconds, nanoseconds) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.wrapping_mul(1000).wrapping_add(nanoseconds / 1_000_000)
}
