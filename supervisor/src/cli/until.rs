//! `drupe wait`: for scripts and service managers, which go on once the daemon is ready, or gone.
//!
//! Ready is what the kernel says of itself: that the socket is there says nothing, since the supervisor listens before
//! there is a kernel, and while one ends.

use std::time::Duration;

use clap::ValueEnum;
use drupe_extension_api::control::{DaemonState, Status, method};
use serde::Serialize;
use serde_json::Value;

use super::{
    Context,
    client::{ClientError, RESTART},
    failure::{Failure, status},
    status::state,
    wait::Wait,
};

const LOOK: Duration = Duration::from_millis(25);

/// The least time that an answer is waited for, so that a single look is one.
const LEAST: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct WaitVerb {
    /// What the daemon is to be
    #[arg(value_enum)]
    what: What,
    /// Give up after so many seconds; 0 looks once
    #[arg(long, value_name = "SECONDS", default_value_t = RESTART.as_secs())]
    timeout: u64,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A kernel serves, with its extensions
    Ready,
    /// No daemon holds the home
    Stopped,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Reached,
    Absent,
    /// A daemon that is in the way of it, and what it does.
    Not {
        state: Option<DaemonState>,
        doing: String,
    },
    /// A daemon that does not say what it does.
    Silent(String),
}

/// What is printed for programs.
#[derive(Debug, Serialize)]
struct Report {
    reached: bool,
    waited_ms: u64,
    /// Of the daemon, where it says so.
    state: Option<DaemonState>,
    waits_for: Option<String>,
}

impl WaitVerb {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let most = Duration::from_secs(self.timeout);
        let mut wait = Wait::new(context.console, Some(most));
        loop {
            let left = most.saturating_sub(wait.elapsed()).max(LEAST);
            let seen = match self.what {
                What::Ready => ready(context, left)?,
                What::Stopped => stopped(context),
            };
            if seen == Seen::Reached || wait.over() {
                let waited_ms = u64::try_from(wait.elapsed().as_millis()).unwrap_or(u64::MAX);
                drop(wait);
                return self.end(&seen, waited_ms, context);
            }
            wait.pause(&seen.waits_for(), LOOK);
        }
    }

    fn end(&self, seen: &Seen, waited_ms: u64, context: &Context) -> Result<u8, Failure> {
        let reached = *seen == Seen::Reached;
        if self.json {
            let state = match (seen, self.what) {
                (Seen::Reached, What::Ready) => Some(DaemonState::Ready),
                (Seen::Not { state, .. }, _) => *state,
                (Seen::Reached | Seen::Absent | Seen::Silent(_), _) => None,
            };
            let waits_for = (!reached).then(|| seen.waits_for());
            context.console.json(&Report { reached, waited_ms, state, waits_for })?;
        }
        let seconds = self.timeout;
        match seen {
            Seen::Reached => Ok(0),
            Seen::Absent => Err(Failure::absent(context.home())),
            Seen::Not { doing, .. } => {
                let wanted = if self.what == What::Ready { "ready" } else { "gone" };
                let message = format!("after {seconds} s the daemon is not {wanted}: {doing}");
                Err(Failure::new(status::LATER, message)
                    .help("`drupe status` shows what it is doing; `--timeout` waits longer"))
            }
            Seen::Silent(why) => {
                let message = format!("after {seconds} s the daemon does not say that it is ready: {why}");
                Err(Failure::new(status::LATER, message).help("`drupe status` shows what it is doing"))
            }
        }
    }
}

impl Seen {
    fn waits_for(&self) -> String {
        match self {
            Self::Reached => String::new(),
            Self::Absent => "waiting for a daemon, which nobody has started".into(),
            Self::Not { doing, .. } => doing.clone(),
            Self::Silent(why) => format!("waiting for the daemon: {why}"),
        }
    }
}

/// Asks once. What no wait mends is a failure.
fn ready(context: &Context, patience: Duration) -> Result<Seen, Failure> {
    match context.daemon().within(patience).once::<Status>(method::STATUS, &Value::Null) {
        Ok(status) if status.state == DaemonState::Ready => Ok(Seen::Reached),
        Ok(status) => {
            let word = state(status.state);
            // What takes long before a kernel is ready stands first, else why there is none.
            let doing = match status.notices.first() {
                Some(notice) => format!("it is {word}: {notice}"),
                None => format!("it is {word}"),
            };
            Ok(Seen::Not { state: Some(status.state), doing })
        }
        Err(ClientError::Absent) => Ok(Seen::Absent),
        Err(ClientError::Lost(why)) => Ok(Seen::Silent(why)),
        Err(error) if error.passes() => Ok(Seen::Silent(error.into_failure(context.home()).to_string())),
        Err(error) => Err(error.into_failure(context.home())),
    }
}

fn stopped(context: &Context) -> Seen {
    if !context.home().path().is_dir() || !context.home().is_held() {
        return Seen::Reached;
    }
    let holder = context.home().holder().map(|pid| format!("process {pid} holds the home"));
    let doing = holder.unwrap_or_else(|| "a process holds the home".into());
    Seen::Not { state: None, doing }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use drupe_extension_api::control::ReplyBody;
    use drupe_link::HomeLock;
    use serde_json::json;

    use super::*;
    use crate::cli::fake::Fake;

    fn until(what: What, timeout: u64) -> WaitVerb {
        WaitVerb { what, timeout, json: false }
    }

    fn status_of(state: &str, notice: &str) -> Vec<ReplyBody> {
        vec![ReplyBody::Result(json!({
            "version": "0", "state": state, "supervisor_pid": 1, "generation": 1, "uptime_ms": 1, "restarts": 0,
            "safe_mode": false, "sessions": 0, "model": null, "notices": [notice],
        }))]
    }

    #[test]
    fn a_kernel_that_is_not_ready_is_told_from_no_daemon_and_what_it_does_is_named() {
        let fake = Fake::start(|_, _| status_of("starting", "kernel 1 checks the journal of 9 MB"));
        let failure = until(What::Ready, 0).execute(&fake.context).expect_err("it never is");
        assert_eq!(failure.status, 75);
        assert!(failure.to_string().contains("it is starting: kernel 1 checks the journal"), "{failure}");
        let absent = until(What::Ready, 0).execute(&Fake::absent().context).expect_err("nobody is there");
        assert_eq!(absent.status, 69);
    }

    #[test]
    fn the_socket_alone_is_not_enough_and_the_kernel_behind_it_is() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let fake = Fake::start_after(3, |_, _| match ASKED.fetch_add(1, Ordering::Relaxed) {
            0 => status_of("starting", "x"),
            _ => status_of("ready", "x"),
        });
        assert_eq!(until(What::Ready, 30).execute(&fake.context).expect("it becomes ready"), 0);
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_daemon_that_listens_and_says_nothing_is_not_waited_for_beyond_the_timeout() {
        let fake = Fake::start(|_, _| Vec::new());
        let began = std::time::Instant::now();
        assert_eq!(until(What::Ready, 1).execute(&fake.context).expect_err("silence").status, 75);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    #[test]
    fn what_is_held_is_not_stopped_and_what_never_was_is() {
        let fake = Fake::absent();
        let lock = HomeLock::take(fake.context.home()).expect("nobody has it");
        let failure = until(What::Stopped, 0).execute(&fake.context).expect_err("it is held");
        assert_eq!(failure.status, 75);
        assert!(failure.to_string().contains(&format!("process {}", std::process::id())), "{failure}");
        drop(lock);
        assert_eq!(until(What::Stopped, 0).execute(&fake.context).expect("nobody holds it"), 0);
    }
}
