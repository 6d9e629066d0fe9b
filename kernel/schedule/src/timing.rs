//! The instants at which a job is due: cron expressions, intervals and single times, in a time zone.

use std::fmt;

use croner::{
    Cron,
    parser::{CronParser, Seconds},
};
use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};

/// The longest text of a time, in bytes.
const LONGEST: usize = 128;

/// What an interval begins with.
const EVERY: &str = "@every ";

/// The shortest and the longest interval.
const SHORTEST_EVERY: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_EVERY: SignedDuration = SignedDuration::from_hours(24 * 366);

/// When something is due, as people write it:
///
/// | text | due |
/// |---|---|
/// | `0 8 * * 1-5` | as cron has it: minute, hour, day of month, month, weekday; with seconds before these where there are six |
/// | `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` | at the beginning of each |
/// | `@every 90m` | at multiples of it since 1970 (UTC), so that restarts shift nothing; units `s`, `m`, `h`, `d` |
/// | `2026-12-24 18:00`, `2026-12-24T18:00:00+01:00` | once |
///
/// Where clocks go forward, a cron time that does not exist is due when the gap ends, unless its minutes or hours are
/// ranges or steps: then nothing is missing. Where they go back, a fixed time is due at the first of the two, and ranges and
/// steps at both.
#[derive(Clone)]
pub struct Timing {
    text: String,
    zone: TimeZone,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Cron(Box<Cron>),
    Every(SignedDuration),
    Once(Timestamp),
}

/// A text that says no time, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnfitTiming(String);

impl Timing {
    /// Reads `text` in the time zone of that name (`Europe/Berlin`); `system` is that of this machine.
    pub fn new(text: &str, zone: &str) -> Result<Self, UnfitTiming> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(UnfitTiming(format!("a time has at most {LONGEST} bytes")));
        }
        let zone = zone_of(zone)?;
        let form = match text.strip_prefix(EVERY) {
            Some(interval) => Form::Every(interval_of(interval.trim())?),
            None if is_date(text) => Form::Once(instant_of(text, &zone)?),
            None => {
                let parser = CronParser::builder();
                let cron = parser.seconds(Seconds::Optional).build().parse(text);
                let cron = cron.map_err(|error| {
                    let error = error.to_string();
                    let error = error.trim_end_matches('.');
                    UnfitTiming(format!(
                        "`{text}` is no time: {error}; write cron (`0 8 * * 1-5`), `@every 30m`, or a date (`2026-12-24 18:00`)"
                    ))
                })?;
                Form::Cron(Box::new(cron))
            }
        };
        let timing = Self { text: text.to_owned(), zone, form };
        match (&timing.form, timing.after(Timestamp::UNIX_EPOCH)) {
            (Form::Cron(_), None) => Err(UnfitTiming(format!("`{text}` never comes"))),
            _ => Ok(timing),
        }
    }

    /// The first slot behind `instant`; none where there is none any more.
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        match &self.form {
            Form::Once(at) => (*at > instant).then_some(*at),
            Form::Every(interval) => {
                let (interval, now) = (interval.as_secs(), instant.as_second());
                Timestamp::from_second((now.div_euclid(interval) + 1).checked_mul(interval)?).ok()
            }
            Form::Cron(cron) => {
                let mut from = instant.to_zoned(self.zone.clone());
                // The library may give the same instant again where clocks change.
                for _ in 0..4 {
                    let next = cron.find_next_occurrence(&from, false).ok()?;
                    if next.timestamp() > instant {
                        return Some(next.timestamp());
                    }
                    from = next.checked_add(SignedDuration::from_secs(1)).ok()?;
                }
                None
            }
        }
    }

    /// The last slot that is not behind `instant`; none where there was none.
    pub fn latest(&self, instant: Timestamp) -> Option<Timestamp> {
        match &self.form {
            Form::Once(at) => (*at <= instant).then_some(*at),
            Form::Every(interval) => {
                let interval = interval.as_secs();
                Timestamp::from_second(instant.as_second().div_euclid(interval) * interval).ok()
            }
            Form::Cron(cron) => {
                let from = instant.to_zoned(self.zone.clone());
                let found = cron.find_previous_occurrence(&from, true).ok()?.timestamp();
                (found <= instant).then_some(found)
            }
        }
    }

    /// Whether it is due but once.
    pub fn is_once(&self) -> bool {
        matches!(self.form, Form::Once(_))
    }

    /// The text for the instant that `after` (`in 20m`) leads to from `now`; none for a text that is not of this form.
    pub fn relative(text: &str, now: Timestamp) -> Option<Result<String, UnfitTiming>> {
        let interval = text.trim().strip_prefix("in ")?;
        let later = interval_of(interval.trim()).and_then(|interval| {
            now.checked_add(interval)
                .map_err(|error| UnfitTiming(format!("`{text}` is too far away: {error}")))
        });
        Some(later.map(|instant| format!("{:.0}", instant)))
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An instant as people in its time zone write it.
    pub fn shown(&self, instant: Timestamp) -> String {
        instant.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }
}

impl fmt::Debug for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timing({})", self.text)
    }
}

/// Whether a text begins as a date does.
fn is_date(text: &str) -> bool {
    text.split_once('-').is_some_and(|(year, _)| year.len() == 4 && year.bytes().all(|b| b.is_ascii_digit()))
}

fn zone_of(name: &str) -> Result<TimeZone, UnfitTiming> {
    if name == "system" {
        return TimeZone::try_system().map_err(|error| {
            UnfitTiming(format!(
                "the time zone of this machine is not known: {error}; name one, such as `Europe/Berlin`"
            ))
        });
    }
    TimeZone::get(name).map_err(|_| {
        UnfitTiming(format!(
            "`{name}` is no time zone that is known here; write one such as `Europe/Berlin`, or `UTC`"
        ))
    })
}

/// The time that a text such as `90m` stands for.
fn interval_of(text: &str) -> Result<SignedDuration, UnfitTiming> {
    let unfit = || {
        UnfitTiming(format!("`{text}` is no interval: write a number of `s`, `m`, `h` or `d`, 1s to 366d"))
    };
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(unfit()),
    };
    let count: i64 = number.parse().map_err(|_| unfit())?;
    let interval = SignedDuration::from_secs(count.checked_mul(seconds).ok_or_else(unfit)?);
    match (SHORTEST_EVERY..=LONGEST_EVERY).contains(&interval) {
        true => Ok(interval),
        false => Err(unfit()),
    }
}

fn instant_of(text: &str, zone: &TimeZone) -> Result<Timestamp, UnfitTiming> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    let unfit = |error: jiff::Error| {
        UnfitTiming(format!("`{text}` is no date and time: {error}; write `2026-12-24 18:00`"))
    };
    let civil: DateTime = text.parse().map_err(unfit)?;
    civil.to_zoned(zone.clone()).map(|zoned| zoned.timestamp()).map_err(unfit)
}
