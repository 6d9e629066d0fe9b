//! What becomes untrue by itself: a catalogue that nobody has looked at for long, and models that retire.

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::{Models, Target};

/// Days after which prices and windows are likely to have changed.
const OLD: i32 = 180;
/// Days before a model's end in which it is said.
const SOON: i32 = 30;

impl Models {
    /// What the operator should know today: that the figures of models are old, and which of the models that are named
    /// retire. `named` are keys of the configuration, each with the names that stand there.
    pub fn notices(&self, named: &[(String, Vec<String>)], now_ms: i64) -> Vec<String> {
        let Ok(now) = Timestamp::from_millisecond(now_ms) else { return Vec::new() };
        let today = now.to_zoned(TimeZone::UTC).date();
        // Nobody pays, or waits, for the figures of what runs here.
        let old = self.configured().then(|| old_catalogue(self.looked_up(), today)).flatten();
        let mut notices = Vec::from_iter(old);
        let mut seen = Vec::new();
        for (key, names) in named {
            for target in self.targets(names).map(|(targets, _)| targets).unwrap_or_default() {
                let Target::Model { provider, model } = &target else { continue };
                let name = target.to_string();
                if seen.contains(&name) {
                    continue;
                }
                let end = self.retires(provider, model);
                notices.extend(end.and_then(|end| retirement(&name, key, end, today)));
                seen.push(name);
            }
        }
        notices
    }
}

/// That the catalogue of the day `looked_up` is too old to be relied on.
pub fn old_catalogue(looked_up: &str, today: Date) -> Option<String> {
    let days = days(looked_up, today)?;
    (days > OLD).then(|| {
        format!(
            "the shipped figures of models are of {looked_up}, {days} days ago: sizes and prices may have changed since; \
             a newer release has newer ones, and `models.profiles` sets them one by one"
        )
    })
}

/// That a model, which `key` leads to, has retired on the day `end` or is about to.
pub fn retirement(name: &str, key: &str, end: &str, today: Date) -> Option<String> {
    let over = days(end, today)?;
    let when = match over {
        0 => "retires today".to_owned(),
        1.. => format!("has retired on {end}"),
        -1 => format!("retires tomorrow, on {end}"),
        _ if -over <= SOON => format!("retires on {end}, in {} days", -over),
        _ => return None,
    };
    Some(format!("model `{name}` {when}; `{key}` leads to it: name another one"))
}

/// Days from `day` until `today`, which is negative where it is still to come.
fn days(day: &str, today: Date) -> Option<i32> {
    let day: Date = day.parse().ok()?;
    Some(today.since(day).ok()?.get_days())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::{CatalogueEntry, Endpoint, ModelsSettings, ProviderKind, ProviderSettings};

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    #[test]
    fn a_catalogue_is_old_after_half_a_year() {
        for (looked_up, today, said) in [
            ("2026-11-23", "2026-11-23", None),
            ("2026-11-23", "2027-05-22", None),
            ("2026-11-23", "2027-05-23", Some("181 days ago")),
            ("2026-11-23", "2029-01-01", Some("770 days ago")),
            ("2026-11-23", "2020-01-01", None),
            ("some day", "2027-05-23", None),
        ] {
            let told = old_catalogue(looked_up, day(today));
            assert_eq!(told.is_some(), said.is_some(), "{today}: {told:?}");
            assert!(told.unwrap_or_default().contains(said.unwrap_or_default()), "{today}");
        }
    }

    #[test]
    fn a_model_that_retires_is_told_of_from_a_month_before_on() {
        for (today, said) in [
            ("2026-10-31", None),
            ("2026-11-01", Some("retires on 2026-12-01, in 30 days")),
            ("2026-11-29", Some("retires on 2026-12-01, in 2 days")),
            ("2026-11-30", Some("retires tomorrow, on 2026-12-01")),
            ("2026-12-01", Some("retires today")),
            ("2026-12-02", Some("has retired on 2026-12-01")),
            ("2028-02-29", Some("has retired on 2026-12-01")),
        ] {
            let told = retirement("p/m", "models.aliases.fast", "2026-12-01", day(today));
            let expected = said.map(|said| {
                format!("model `p/m` {said}; `models.aliases.fast` leads to it: name another one")
            });
            assert_eq!(told, expected, "{today}");
        }
        assert_eq!(retirement("p/m", "k", "soon", day("2026-12-01")), None);
    }

    #[test]
    fn what_is_named_is_found_through_aliases_and_told_once() {
        let endpoint = Endpoint { base_url: "http://127.0.0.1:9/v1".to_owned(), ..Endpoint::default() };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let entry = CatalogueEntry {
            provider: "p".to_owned(),
            retires: Some("2026-12-01".to_owned()),
            ..CatalogueEntry::default()
        };
        let settings = ModelsSettings {
            providers: vec![ProviderSettings::new("p", ProviderKind::OpenAiChat(endpoint))],
            aliases: [("fast".to_owned(), names(&["p/old-001", "p/other"]))].into(),
            catalogue: [("old".to_owned(), entry)].into(),
            looked_up: "2026-01-01".to_owned(),
            ..ModelsSettings::default()
        };
        let named = [("a".to_owned(), names(&["fast"])), ("b".to_owned(), names(&["p/old-001", "nobody"]))];
        let ms = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        let models = Models::new(settings).unwrap();
        assert_eq!(models.notices(&named, ms("2026-06-01T12:00:00Z")), Vec::<String>::new());
        let told = models.notices(&named, ms("2026-11-30T23:59:59Z"));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("2026-01-01, 333 days ago"), "{told:?}");
        assert!(
            told[1].starts_with("model `p/old-001` retires tomorrow") && told[1].contains("`a`"),
            "{told:?}"
        );
        let rules = ModelsSettings { looked_up: "2026-01-01".to_owned(), ..ModelsSettings::default() };
        assert!(Models::new(rules).unwrap().notices(&named, ms("2026-11-30T12:00:00Z")).is_empty());
    }
}
