//! How long a provider asks to wait.

use jiff::{
    Timestamp,
    fmt::{rfc2822, strtime::BrokenDownTime},
};
use reqwest::header::HeaderMap;

/// Waits that a provider may ask for; a longer one is a mistake of clocks.
const LONGEST_MS: u64 = 24 * 3_600_000;

/// The providers' headers in milliseconds, or `retry-after` in seconds or as a date.
pub(super) fn of_headers(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let in_ms = ["retry-after-ms", "x-ms-retry-after-ms"];
    if let Some(ms) = in_ms.iter().find_map(|name| text(name)?.parse::<f64>().ok()) {
        return Some(bounded(ms));
    }
    let value = text("retry-after")?;
    let ms = match value.parse::<f64>() {
        Ok(seconds) => seconds * 1000.0,
        Err(_) => until(value, now)?,
    };
    Some(bounded(ms))
}

/// Milliseconds from now to a date.
fn until(date: &str, now: Timestamp) -> Option<f64> {
    if let Ok(date) = rfc2822::parse(date) {
        return Some((date.timestamp().as_millisecond() - now.as_millisecond()) as f64);
    }
    // The last day that can be written is what is sent for "never", and is beyond what a timestamp holds.
    let (date, _) = BrokenDownTime::parse_prefix("%a, %d %b %Y %H:%M:%S ", date).ok()?;
    (date.to_date().ok()?.year() == 9999).then_some(f64::INFINITY)
}

/// Seconds with an `s` behind them, as Google writes them.
pub(super) fn duration(text: &str) -> Option<u64> {
    text.strip_suffix('s')?.parse::<f64>().ok().map(|seconds| bounded(seconds * 1000.0))
}

/// The cast saturates, and takes what is not a number to 0.
fn bounded(ms: f64) -> u64 {
    (ms.ceil() as u64).min(LONGEST_MS)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_wait_is_read_in_all_its_forms() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (name, value, ms) in [
            ("retry-after", "2", Some(2_000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT", Some(30_000)),
            ("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT", Some(0)),
            ("retry-after", "-5", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "1e300", Some(LONGEST_MS)),
            ("retry-after", "99999999999999999999", Some(LONGEST_MS)),
            ("retry-after", "inf", Some(LONGEST_MS)),
            ("retry-after", "NaN", Some(0)),
            ("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT", Some(LONGEST_MS)),
            ("retry-after", "Thu, 30 Dec 9999 22:00:00 GMT", Some(LONGEST_MS)),
            ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT", Some(LONGEST_MS)),
            ("retry-after", "Fri, 31 Dec 9999 23:59:59 +0000", Some(LONGEST_MS)),
            ("retry-after", "Fri, 31 Dec 99999 23:59:59 GMT", None),
            ("retry-after-ms", "1500", Some(1_500)),
            ("x-ms-retry-after-ms", "20", Some(20)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(of_headers(&headers, now), ms, "{name}: {value}");
        }
        assert_eq!(duration("34.5s"), Some(34_500));
        assert_eq!(duration("soon"), None);
    }
}
