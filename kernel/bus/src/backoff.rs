//! When a message is tried again. Pure.

/// How often a message is tried before it is given up: with the waits below over some two minutes.
pub(crate) const ATTEMPTS: u32 = 8;

/// The first wait, in milliseconds.
const FIRST_MS: u64 = 1_000;

/// The longest wait, in milliseconds.
const LONGEST_MS: u64 = 5 * 60 * 1_000;

/// Milliseconds to wait after the `tried`-th attempt of a message failed, from 1: doubling, and up to a quarter more, so
/// that what failed at the same moment is not tried again at the same moment. The message and the attempt decide how
/// much more; chance would add nothing to that.
pub(crate) fn wait_ms(message: u64, tried: u32) -> i64 {
    let doubled = FIRST_MS.saturating_mul(1_u64.checked_shl(tried.saturating_sub(1)).unwrap_or(u64::MAX));
    let bounded = doubled.min(LONGEST_MS);
    let spread = mixed(message ^ u64::from(tried).rotate_left(32)) % (bounded / 4 + 1);
    i64::try_from((bounded + spread).min(LONGEST_MS)).unwrap_or(i64::MAX)
}

/// Spreads neighbouring numbers over all (the finaliser of splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_with_some_spread_up_to_five_minutes() {
        for message in 0..200 {
            for (tried, base) in [(1, 1_000), (2, 2_000), (3, 4_000), (7, 64_000), (9, 256_000)] {
                let wait = wait_ms(message, tried);
                assert!((base..=(base + base / 4).min(300_000)).contains(&wait), "{message} {tried}: {wait}");
            }
            for tried in [10, 64, 65, u32::MAX] {
                assert_eq!(wait_ms(message, tried), 300_000);
            }
        }
    }

    #[test]
    fn messages_that_fail_together_are_not_tried_again_together() {
        let waits: std::collections::BTreeSet<i64> = (0..100).map(|message| wait_ms(message, 1)).collect();
        assert!(waits.len() > 50, "{waits:?}");
    }
}
