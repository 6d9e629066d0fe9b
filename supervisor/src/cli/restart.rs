//! `drupe restart`: drains, restarts, and waits until the next kernel is ready.

use std::time::Duration;

use drupe_extension_api::control::{DaemonState, Restart as Ask, Status, method};
use serde::Serialize;
use serde_json::Value;

use super::{
    Context, Facts,
    client::{ClientError, Pauses},
    console::duration,
    failure::{Failure, status},
    wait::Wait,
};

/// How long the next kernel may take after running turns have had their time: the supervisor tries several times.
const PATIENCE: Duration = Duration::from_secs(300);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Arguments of `drupe restart`.
#[derive(Debug, clap::Args)]
pub struct Restart {
    /// Why, for the log and for sessions that wait
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    facts: Facts,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Done {
    generation: u64,
    kernel_pid: Option<u32>,
    elapsed_ms: u64,
    notices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_refused: Option<String>,
}

impl Restart {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let mut wait = Wait::new(context.console, Some(PATIENCE));
        let before = self.ask(context, &mut wait)?;
        let after = next(context, before.generation, &mut wait)?;
        let elapsed_ms = u64::try_from(wait.elapsed().as_millis()).unwrap_or(u64::MAX);
        drop(wait);
        for notice in after.notices.iter().filter(|notice| !before.notices.contains(notice)) {
            context.console.remark(&format!("notice: {notice}"));
        }
        // It serves, but not with all that it is to serve with.
        let fell = after.safe_mode && !before.safe_mode;
        if fell {
            context
                .console
                .remark("it is in safe mode, without third-party extensions: `drupe status` shows why");
        }
        let refused = after.config_refused.is_some();
        if self.facts.json {
            let Status { generation, kernel_pid, notices, config_refused, .. } = after;
            context.console.json(&Done { generation, kernel_pid, elapsed_ms, notices, config_refused })?;
        } else {
            let time = duration(elapsed_ms);
            context.console.print(&format!("kernel {} is ready after {time}", after.generation))?;
        }
        Ok(match (refused, fell) {
            (true, _) => status::CONFIG,
            (false, true) => status::FAILED,
            (false, false) => 0,
        })
    }

    /// Asks for it; the status before. A request whose answer is lost is not repeated unless the same kernel goes on:
    /// it would restart the next one.
    fn ask(&self, context: &Context, wait: &mut Wait) -> Result<Status, Failure> {
        let (daemon, mut pauses) = (context.daemon(), Pauses::default());
        let mut before: Option<Status> = None;
        let failed = |error: ClientError| error.into_failure(context.home());
        loop {
            let now = match daemon.once::<Status>(method::STATUS, &Value::Null) {
                Err(error) if error.passes() && !wait.over() => {
                    wait.pause("waiting for the kernel", pauses.next());
                    continue;
                }
                status => status.map_err(failed)?,
            };
            if let Some(before) = before.take_if(|before| before.generation < now.generation) {
                return Ok(before);
            }
            match daemon.once::<Value>(method::RESTART, &Ask { reason: self.reason.clone() }) {
                Ok(_) => return Ok(now),
                Err(error) if error.passes() && !wait.over() => {
                    // Only a lost connection leaves open whether it was heard.
                    before = matches!(error, ClientError::Lost(_)).then_some(now);
                    wait.pause("waiting for the kernel", pauses.next());
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Waits for a later kernel.
fn next(context: &Context, generation: u64, wait: &mut Wait) -> Result<Status, Failure> {
    loop {
        match context.daemon().once::<Status>(method::STATUS, &Value::Null) {
            Ok(now) if now.generation > generation && now.state == DaemonState::Ready => return Ok(now),
            Err(error) if !error.passes() => return Err(error.into_failure(context.home())),
            _ if wait.over() => {
                let message = format!("no kernel was ready within {} s", PATIENCE.as_secs());
                return Err(Failure::new(status::FAILED, message).help("`drupe status` shows why"));
            }
            Ok(now) if now.generation <= generation && now.state == DaemonState::Draining => {
                wait.pause("restarting after the running turns", LOOK);
            }
            _ => wait.pause("restarting", LOOK),
        }
    }
}
