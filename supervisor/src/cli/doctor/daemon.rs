//! The daemon of the home: whether it runs, is of this release, and what it says of itself.

use drupe_extension_api::control::{DaemonState, ExitRecord, Status, method};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::finding::Finding;
use crate::{
    cli::{
        Context,
        client::ClientError,
        figures::{amount, percent},
        status::state,
    },
    supervise::record::Record,
};

const DAEMON: &str = "daemon";
const LIMITS: &str = "limits";
const BACKUPS: &str = "backups";

/// How far back ends of kernels are told.
const LATELY: SignedDuration = SignedDuration::from_hours(24);

/// Hundredths of a limit from which on it is told.
const NEAR: u64 = 80;

/// What the daemon says; none where none answers.
pub fn look(context: &Context, now: Timestamp, findings: &mut Vec<Finding>) -> Option<Status> {
    let home = context.home();
    let status = match context.daemon().once::<Status>(method::STATUS, &Value::Null) {
        Ok(status) => status,
        Err(ClientError::Absent) if !home.is_held() => {
            findings.push(Finding::remark(DAEMON, "none runs").fix("`drupe run` starts one"));
            let record = Record::open(home);
            crashes(record.exits(), now, findings);
            return None;
        }
        Err(error) => {
            let process = home.holder().map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let message =
                format!("one holds the home{process}, and does not answer: {}", error.into_failure(home));
            findings.push(Finding::fault(DAEMON, message).fix(
                "wait a minute; then end that process, twice with SIGTERM if need be, and start it again",
            ));
            return None;
        }
    };
    let ours = env!("CARGO_PKG_VERSION");
    let before = findings.len();
    if status.version != ours {
        let message = format!("release {} runs, and this program is release {ours}", status.version);
        findings.push(Finding::warning(DAEMON, message).fix("`drupe stop`, then start it again"));
    }
    if status.safe_mode {
        let fault = Finding::fault(DAEMON, "it is in safe mode: extensions of the home are left out");
        findings
            .push(fault.fix("`drupe status` says what crashed; mend or remove that, then `drupe restart`"));
    }
    if let Some(why) = &status.config_refused {
        let fault = Finding::fault(DAEMON, format!("an earlier configuration is in force: {why}"));
        findings.push(fault.fix("mend the file; it takes effect by itself"));
    }
    findings.extend(status.notices.iter().map(|notice| Finding::warning(DAEMON, notice.clone())));
    if let Some(failed) = status.backup.as_ref().and_then(|backup| backup.failed.as_ref()) {
        let message = format!("none could be made since {}: {}", failed.since, failed.why);
        findings.push(Finding::warning(BACKUPS, message).fix(
            "mend what it says, or name another folder in `journal.backup.directory`; it is tried again by itself",
        ));
    }
    crashes(status.exits.clone(), now, findings);
    if status.state != DaemonState::Ready {
        findings.push(Finding::remark(DAEMON, format!("it is {}", state(status.state))));
    } else if findings.len() == before {
        let kernel = status.kernel_pid.map_or_else(String::new, |pid| format!(", kernel {pid}"));
        findings.push(Finding::fine(
            DAEMON,
            format!("it is ready: supervisor {}{kernel}", status.supervisor_pid),
        ));
    }
    for budget in status.budgets.iter().filter(|budget| percent(budget) >= NEAR) {
        let message = format!("{} % of `{}` are used: {}", percent(budget), budget.limit, amount(budget));
        let finding = match percent(budget) {
            100.. => Finding::fault(LIMITS, message),
            _ => Finding::warning(LIMITS, message),
        };
        findings.push(
            finding
                .fix(format!("`drupe why {0}` says when it begins anew; raise `{0}` to go on", budget.limit)),
        );
    }
    Some(status)
}

fn crashes(exits: Vec<ExitRecord>, now: Timestamp, findings: &mut Vec<Finding>) {
    let lately: Vec<_> =
        exits.into_iter().filter(|exit| exit.crash && now.duration_since(exit.time) < LATELY).collect();
    let Some(latest) = lately.iter().max_by_key(|exit| exit.time) else { return };
    let blamed: Vec<_> = latest.blamed.iter().map(|one| format!("`{}`", one.extension)).collect();
    let by = if blamed.is_empty() { String::new() } else { format!(", in code of {}", blamed.join(" or ")) };
    let often = match lately.len() {
        1 => "a kernel has crashed".to_owned(),
        many => format!("{many} kernels have crashed"),
    };
    let message = format!("{often} within a day, the last at {}: {}{by}", latest.time, latest.how);
    findings.push(
        Finding::warning(DAEMON, message).fix("`drupe status --json` has its last lines, under `exits`"),
    );
}
