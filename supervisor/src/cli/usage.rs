//! `drupe usage`: tokens and cost, summed up.

use drupe_extension_api::{
    SessionId, Usage as Tokens,
    control::{UsageBy, UsageQuery, UsageRow, method},
};
use jiff::civil::Date;
use serde_json::Value;

use super::{
    Context, Facts,
    console::{Style, figures, plain},
    failure::Failure,
    figures::{cost, count},
    session,
};

/// Arguments of `drupe usage`.
#[derive(Debug, clap::Args)]
pub struct Usage {
    /// The first day (UTC) that counts, as 2026-03-01; all by default
    #[arg(long, value_name = "DAY", value_parser = day)]
    since: Option<String>,
    /// By what it is summed up
    #[arg(long, value_enum, default_value = "day")]
    by: By,
    /// Only this session
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Agent,
    Model,
    Session,
    Day,
}

impl From<By> for UsageBy {
    fn from(by: By) -> Self {
        match by {
            By::Agent => Self::Agent,
            By::Model => Self::Model,
            By::Session => Self::Session,
            By::Day => Self::Day,
        }
    }
}

fn day(text: &str) -> Result<String, &'static str> {
    text.parse::<Date>().map(|day| day.to_string()).map_err(|_| "a day is expected, such as 2026-03-01")
}

impl Usage {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let query = UsageQuery { since: self.since, by: self.by.into(), session: self.session };
        let said: Value = context.daemon().call(method::USAGE_SHOW, &query)?;
        if let (Some(session), true) = (&query.session, said.as_array().is_some_and(Vec::is_empty)) {
            session::exists(&context.daemon(), session.as_str())?;
        }
        if self.facts.json {
            return context.console.json(&said).map(|()| 0);
        }
        let rows: Vec<UsageRow> = serde_json::from_value(said)?;
        match rows.is_empty() {
            true => context.console.remark("nothing was used"),
            false => context.console.draw(&render(&rows, query.by, context.console.colour))?,
        }
        Ok(0)
    }
}

/// A table with a row for each key, and the sums where there are several.
pub fn render(rows: &[UsageRow], by: UsageBy, colour: bool) -> String {
    let title = match by {
        UsageBy::Agent => "agent",
        UsageBy::Model => "model",
        UsageBy::Session => "session",
        UsageBy::Day => "day (UTC)",
    };
    let lost = rows.iter().any(|row| row.lost_tokens > 0);
    let mut head: Vec<String> =
        [title, "runs", "calls", "input", "cached", "output", "reasoning"].map(str::to_owned).into();
    if lost {
        head.push("lost".into());
    }
    head.push("cost".into());
    let figure_columns = 1..head.len();
    let mut table = vec![head];
    table.extend(rows.iter().map(|row| cells(row, lost)));
    if rows.len() > 1 {
        table.push(cells(&total(rows), lost));
    }
    let lines = figures(&table, figure_columns);
    let last = table.len() - 1;
    let painted = lines.lines().enumerate().map(|(at, line)| {
        let style = match at {
            0 => Style::Dim,
            at if at == last && rows.len() > 1 => Style::Bold,
            _ => Style::Plain,
        };
        style.paint(line, colour) + "\n"
    });
    let mut text: String = painted.collect();
    let unpriced: u64 = rows.iter().map(|row| row.unpriced_tokens).sum();
    if unpriced > 0 {
        let remark = format!("?: the price of {} tokens is unknown", count(unpriced));
        text.push_str(&format!("{}\n", Style::Dim.paint(&remark, colour)));
    }
    if lost {
        let remark = "lost: tokens of calls whose end was never seen; they count against limits";
        text.push_str(&format!("{}\n", Style::Dim.paint(remark, colour)));
    }
    text
}

fn cells(row: &UsageRow, lost: bool) -> Vec<String> {
    let Tokens { input_tokens, cached_tokens, output_tokens, reasoning_tokens, .. } = row.usage;
    let numbers = [row.invocations, row.calls, input_tokens, cached_tokens, output_tokens, reasoning_tokens];
    let mut cells = vec![plain(&row.key).replace('\n', " ")];
    cells.extend(numbers.map(count));
    if lost {
        cells.push(count(row.lost_tokens));
    }
    cells.push(cost(row.cost_usd, row.unpriced_tokens));
    cells
}

fn total(rows: &[UsageRow]) -> UsageRow {
    let mut total = UsageRow {
        key: "total".into(),
        invocations: 0,
        calls: 0,
        usage: Tokens::default(),
        lost_tokens: 0,
        cost_usd: 0.0,
        unpriced_tokens: 0,
    };
    for row in rows {
        total.invocations += row.invocations;
        total.calls += row.calls;
        total.usage += row.usage;
        total.lost_tokens += row.lost_tokens;
        total.cost_usd += row.cost_usd;
        total.unpriced_tokens += row.unpriced_tokens;
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(key: &str, tokens: u64, cost_usd: f64, unpriced: u64, lost: u64) -> UsageRow {
        let usage =
            json!({"input_tokens": tokens, "cached_tokens": 10, "output_tokens": 20, "reasoning_tokens": 5});
        let row = json!({"key": key, "invocations": 2, "calls": 3, "usage": usage, "lost_tokens": lost,
                         "cost_usd": cost_usd, "unpriced_tokens": unpriced});
        serde_json::from_value(row).expect("a row")
    }

    fn check(rows: &[UsageRow], by: UsageBy, expected: &str) {
        let rendered = render(rows, by, false);
        assert_eq!(rendered, expected, "\n{rendered}");
    }

    #[test]
    fn rows_are_summed_up_and_an_unknown_price_is_a_question() {
        let expected = "\
model            runs  calls  input  cached  output  reasoning         cost
openai/gpt-5        2      3  1,200      10      20          5      $0.0123
offline/offline     2      3    300      10      20          5            ?
total               4      6  1,500      20      40         10  $0.0123 + ?
?: the price of 320 tokens is unknown
";
        let rows = [row("openai/gpt-5", 1200, 0.0123, 0, 0), row("offline/offline", 300, 0.0, 320, 0)];
        check(&rows, UsageBy::Model, expected);
    }

    #[test]
    fn one_row_needs_no_sum_and_lost_tokens_are_explained() {
        let expected = "\
day (UTC)   runs  calls  input  cached  output  reasoning   lost  cost
2026-03-01     2      3      7      10      20          5  4,096    $0
lost: tokens of calls whose end was never seen; they count against limits
";
        check(&[row("2026-03-01", 7, 0.0, 0, 4096)], UsageBy::Day, expected);
    }

    #[test]
    fn a_day_is_a_day() {
        assert_eq!(day("2026-03-01"), Ok("2026-03-01".into()));
        for wrong in ["", "yesterday", "2026-13-01", "2026-02-30", "1"] {
            assert!(day(wrong).is_err(), "{wrong}");
        }
    }
}
