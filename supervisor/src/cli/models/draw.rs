//! What `drupe models` found out, for people.

use serde_json::Value;

use super::{
    super::{
        console::{Style, plain, table},
        figures::{count, many},
    },
    report::{Checked, Configured, Found, Model, Name, Presence, Row},
};

pub fn configured(report: &Configured, colour: bool) -> String {
    let providers = report.providers.iter().map(|provider| {
        let own = provider.default_model.as_ref().map(|model| format!("default model {model}"));
        let preferred = || format!("the first that it has of {}", provider.preferred.join(", "));
        let said = own.or_else(|| (!provider.preferred.is_empty()).then(preferred));
        let address = provider.base_url.as_ref().and_then(Value::as_str).unwrap_or_default();
        let kind = serde_json::to_value(provider.kind).unwrap_or_default();
        row([&provider.name, kind.as_str().unwrap_or_default(), address, &said.unwrap_or_default()])
    });
    let mut text = titled("providers", &table(&providers.collect::<Vec<_>>()), colour);
    text.push_str(&titled("names", &names(report.names.iter()), colour));
    for model in &report.models {
        text.push_str(&one(model, colour));
    }
    text.push_str(&format!("the shipped catalogue was last looked up on {}\n", report.looked_up));
    text
}

pub fn checked(report: &Checked, colour: bool) -> String {
    let providers = report.providers.iter().map(|asked| {
        let said = match (asked.answers, asked.listed) {
            (false, _) => "does not answer".to_owned(),
            (true, None) => "has no list of models".to_owned(),
            (true, Some(listed)) => format!("lists {}", many(listed as u64, "model", "models")),
        };
        let chosen = asked.chooses.as_ref().map(|model| format!("chooses {model} where nobody says which"));
        let rest = asked.fault.clone().or(chosen);
        (row([&asked.name, &said, &rest.unwrap_or_default()]), asked.fault.is_some())
    });
    let mut text = painted("providers", providers.collect(), colour);
    let models = report.models.iter().map(|model| {
        let named = model.named_by.join(", ");
        (row([&model.name, &presence(model), &named]), model.presence == Presence::Missing)
    });
    text.push_str(&painted("models", models.collect(), colour));
    let lost = report.names.iter().filter(|name| name.fault.is_some());
    text.push_str(&titled("names that lead nowhere", &names(lost), colour));
    text
}

fn presence(model: &Found) -> String {
    let mut said = match (model.presence, &model.listed_as) {
        (Presence::Listed, None) => "is there".to_owned(),
        (Presence::Listed, Some(name)) => format!("is there as {name}"),
        (Presence::Missing, _) => "is not in the provider's list".to_owned(),
        (Presence::Unknown, _) => "is not known to be there".to_owned(),
        (Presence::RunsHere, _) => "runs here".to_owned(),
    };
    if let Some(day) = &model.retires {
        said.push_str(&format!(", retires on {day}"));
    }
    said
}

fn names<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    let rows = names.map(|name| {
        let leads = name.fault.clone().unwrap_or_else(|| name.leads_to.join(", "));
        row([&name.key, &leads])
    });
    table(&rows.collect::<Vec<_>>())
}

/// A model with its figures, each with who says so.
fn one(model: &Model, colour: bool) -> String {
    let priced = model.figures.iter().any(|figure| figure.name == "input_usd" && figure.value.is_some());
    let mut rows: Vec<_> =
        model.figures.iter().filter_map(|figure| drawn(figure, &model.name, priced)).collect();
    rows.extend(model.retires.as_ref().map(|day| row(["retires", day, "catalogue"])));
    let mut text = titled(&cell(&model.name), &table(&rows), colour);
    text.push_str(&format!("  named by {}\n", cell(&model.named_by.join(", "))));
    for source in &model.sources {
        text.push_str(&Style::Dim.paint(&format!("  catalogue: {}, {}\n", source.of, source.day), colour));
    }
    text
}

fn drawn(figure: &Row, model: &str, priced: bool) -> Option<Vec<String>> {
    let said = match (&figure.value, figure.name) {
        (Some(value), name) => (shown(name, value), figure.from.clone().unwrap_or_default()),
        (None, "long_prompts") => return None,
        (None, "cached_usd" | "cache_write_usd") if priced => ("–".to_owned(), "as input_usd".to_owned()),
        (None, name) => {
            let assumed = figure.assumed.map(|taken| format!(", taken for {}", count(taken)));
            let cure = format!("set `models.profiles.{model}.{name}`");
            ("?".to_owned(), format!("not known{}: {cure}", assumed.unwrap_or_default()))
        }
    };
    Some(row([figure.name, &said.0, &said.1]))
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Object(long) => {
            let part = |key: &str| long.get(key).map(Value::to_string).unwrap_or_default();
            let above = count(long.get("above").and_then(Value::as_u64).unwrap_or_default());
            format!("above {above}: input × {}, output × {}", part("input"), part("output"))
        }
        value if name.ends_with("_usd") => format!("${value}"),
        value => value.as_u64().map_or_else(|| value.to_string(), count),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    let mut row: Vec<_> = cells.into_iter().map(cell).collect();
    row[0].insert_str(0, "  ");
    row
}

/// On one line, without what a terminal would obey: providers say what their models are called.
fn cell(text: &str) -> String {
    plain(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn titled(title: &str, lines: &str, colour: bool) -> String {
    if lines.is_empty() { String::new() } else { format!("{}\n{lines}", Style::Bold.paint(title, colour)) }
}

/// The same, where some of the rows went wrong.
fn painted(title: &str, rows: Vec<(Vec<String>, bool)>, colour: bool) -> String {
    let (rows, wrong): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let lines = table(&rows);
    let painted = lines.lines().zip(wrong).map(|(line, wrong)| {
        let style = if wrong { Style::Bad } else { Style::Plain };
        style.paint(line, colour) + "\n"
    });
    titled(title, &painted.collect::<String>(), colour)
}
