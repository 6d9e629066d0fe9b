//! `drupe status`: what the daemon is doing.

use drupe_extension_api::{
    BudgetUse,
    control::{BackupStatus, DaemonState, ExtensionState, ExtensionStatus, Status, method},
};
use serde_json::Value;

use super::{
    Context, Facts,
    backup::size,
    client::{ClientError, Pauses},
    console::{Style, duration, figures, plain, table},
    failure::Failure,
    figures::{amount, many, moment, percent},
};

/// Hundredths of a limit from which on it deserves a look.
const MOST: u64 = 80;

/// Exits that are shown: enough to see a pattern.
const EXITS: usize = 3;

/// Attempts over a connection that ends, as it does where a kernel takes over from the supervisor.
const ATTEMPTS: u32 = 20;

/// Shows it. The supervisor answers where no kernel does, so there is nothing to wait for.
pub fn execute(facts: &Facts, context: &Context) -> Result<u8, Failure> {
    let status = ask(context)?;
    match facts.json {
        true => context.console.json(&status)?,
        false => context.console.draw(&render(&status, context))?,
    }
    Ok(0)
}

pub fn ask(context: &Context) -> Result<Status, Failure> {
    let mut pauses = Pauses::default();
    let mut attempt = 1;
    loop {
        match context.daemon().once(method::STATUS, &Value::Null) {
            Err(ClientError::Lost(_)) if attempt < ATTEMPTS => pauses.sleep(),
            answer => return answer.map_err(|error| error.into_failure(context.home())),
        }
        attempt += 1;
    }
}

pub fn state(state: DaemonState) -> &'static str {
    match state {
        DaemonState::Starting => "starting",
        DaemonState::Ready => "ready",
        DaemonState::Draining => "draining",
        DaemonState::Restarting => "restarting",
        DaemonState::Stopped => "stopped",
    }
}

fn render(status: &Status, context: &Context) -> String {
    let colour = context.console.colour;
    let word = state(status.state);
    let style = if status.state == DaemonState::Ready { Style::Good } else { Style::Warning };
    let mut text = format!("drupe {} is {}\n", status.version, style.paint(word, colour));
    let kernel = status.kernel_pid.map_or("no kernel".into(), |pid| {
        let up = duration(status.uptime_ms);
        format!("kernel {pid} (generation {}, up {up}, restarts: {})", status.generation, status.restarts)
    });
    let row = |name: &str, value: String| vec![format!("  {name}"), value];
    let mut rows = vec![
        row("home", context.home().path().display().to_string()),
        row("processes", format!("supervisor {}, {kernel}", status.supervisor_pid)),
        row("model", status.model.clone().unwrap_or_else(|| "not known yet".into())),
        row(
            "sessions",
            format!("{}, {}", status.sessions, many(status.queued_turns, "turn waits", "turns wait")),
        ),
    ];
    if status.summing_up > 0 {
        let turns =
            many(status.summing_up, "turn has its answer and sums", "turns have their answers and sum");
        rows.push(row("summaries", format!("{turns} older ones up")));
    }
    if let Some(backup) = &status.backup {
        rows.push(row("last backup", backup_line(backup)));
    }
    if status.safe_mode {
        rows.push(row("safe mode", "extensions of the home are left out".into()));
    }
    text.push_str(&table(&rows));
    if !status.budgets.is_empty() {
        text.push_str(&format!("{}\n", Style::Bold.paint("used of the limits", colour)));
        text.push_str(&budgets(&status.budgets, colour));
    }
    if !status.extensions.is_empty() {
        text.push_str(&format!("{}\n", Style::Bold.paint("extensions", colour)));
        text.push_str(&extensions(&status.extensions, colour));
    }
    let titled = |text: &mut String, title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&format!("{}\n  {}\n", Style::Bold.paint(title, colour), lines.join("\n  ")));
        }
    };
    titled(&mut text, "notices", status.notices.iter().map(|notice| plain(notice)).collect());
    let exits = status.exits.iter().take(EXITS).map(|exit| {
        let line = format!("{}  generation {}: {}", exit.time, exit.generation, plain(&exit.how));
        let style = if exit.crash { Style::Bad } else { Style::Plain };
        style.paint(&line, colour)
    });
    titled(&mut text, "last ends of kernels", exits.collect());
    text
}

/// The last backup that is whole, and what keeps a newer one from being made.
fn backup_line(backup: &BackupStatus) -> String {
    let last = match &backup.last {
        Some(last) => format!("{}, {} ({})", last.made, plain(&last.file), size(last.bytes)),
        None => "none yet".to_owned(),
    };
    match (&backup.failed, backup.next) {
        (Some(failed), _) => {
            format!(
                "{last}; failed since {}, tried again at {}: {}",
                failed.since,
                failed.again,
                plain(&failed.why)
            )
        }
        (None, Some(next)) => format!("{last}; the next at {next}"),
        (None, None) => last,
    }
}

/// One line a limit: how much is used, and when it begins anew.
fn budgets(list: &[BudgetUse], colour: bool) -> String {
    let row = |budget: &BudgetUse| {
        let anew = budget.resets.map(|time| format!("anew at {}", moment(time))).unwrap_or_default();
        vec![format!("  {}", plain(&budget.limit)), format!("{} %", percent(budget)), amount(budget), anew]
    };
    let lines = figures(&list.iter().map(row).collect::<Vec<_>>(), 1..2);
    let painted = lines.lines().zip(list).map(|(line, budget)| {
        let style = match percent(budget) {
            100.. => Style::Bad,
            MOST.. => Style::Warning,
            _ => Style::Plain,
        };
        style.paint(line, colour) + "\n"
    });
    painted.collect()
}

/// One line an extension: state, name, abilities, and why, where there is a reason.
pub fn extensions(list: &[ExtensionStatus], colour: bool) -> String {
    let rows: Vec<Vec<String>> = list
        .iter()
        .map(|extension| {
            let version = extension.version.as_deref().unwrap_or_default();
            let reason = extension.reason.as_deref().map(|reason| plain(&reason.replace('\n', " ")));
            vec![
                format!("  {}", word(extension.state)),
                plain(&extension.id),
                plain(version),
                reason.unwrap_or_else(|| extension.capabilities.join(", ")),
            ]
        })
        .collect();
    // Painted by line: colours within would count as width.
    let lines = table(&rows);
    let painted = lines.lines().zip(list).map(|(line, extension)| {
        let style = match extension.state {
            ExtensionState::Failed | ExtensionState::Quarantined => Style::Bad,
            ExtensionState::Skipped | ExtensionState::Degraded | ExtensionState::AwaitingApproval => {
                Style::Warning
            }
            ExtensionState::Disabled | ExtensionState::Stopped => Style::Dim,
            _ => Style::Plain,
        };
        style.paint(line, colour) + "\n"
    });
    painted.collect()
}

pub fn word(state: ExtensionState) -> &'static str {
    match state {
        ExtensionState::Discovered => "discovered",
        ExtensionState::Loaded => "loaded",
        ExtensionState::Initialized => "initialized",
        ExtensionState::Active => "active",
        ExtensionState::AwaitingApproval => "awaiting approval",
        ExtensionState::Degraded => "degraded",
        ExtensionState::Quarantined => "quarantined",
        ExtensionState::Failed => "failed",
        ExtensionState::Skipped => "skipped",
        ExtensionState::Disabled => "disabled",
        ExtensionState::Stopped => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_a_line_with_its_reason_or_its_abilities() {
        let extension = |id: &str, state: &str, reason: Option<&str>| {
            serde_json::json!({
                "id": id, "version": "1.0.0", "state": state, "reason": reason, "capabilities": ["tool", "agent"],
                "isolation": null, "source": "/x", "since": "2026-01-01T00:00:00Z",
            })
        };
        let list = serde_json::json!([
            extension("kv", "active", None),
            extension("slack", "failed", Some("no\nkey"))
        ]);
        let list: Vec<ExtensionStatus> = serde_json::from_value(list).expect("a list");
        let lines = extensions(&list, false);
        assert_eq!(lines, "  active  kv     1.0.0  tool, agent\n  failed  slack  1.0.0  no key\n");
        assert!(extensions(&list, true).contains("\x1b[31m"));
    }

    #[test]
    fn a_limit_is_a_line_that_stands_out_when_most_of_it_is_used() {
        let limit = |limit: &str, used: u64, rest: Value| {
            let mut budget =
                serde_json::json!({"limit": limit, "used": used, "allowed": 20_000, "scope": "day"});
            if !rest.is_null() {
                budget["resets"] = rest;
            }
            serde_json::from_value(budget).expect("it is one")
        };
        let list = [
            limit("limits.day.max_tokens", 16_000, "2026-03-02T00:00:00Z".into()),
            limit("limits.session.max_invocations", 5, Value::Null),
        ];
        let expected =
            "  limits.day.max_tokens           80 %  16,000 of 20,000 tokens  anew at 2026-03-02 00:00 UTC
  limits.session.max_invocations   0 %  5 of 20,000 runs
";
        assert_eq!(budgets(&list, false), expected);
        let lines = budgets(&list, true);
        assert_eq!(lines.lines().map(|line| line.contains("\x1b[33m")).collect::<Vec<_>>(), [true, false]);
    }
}
