//! `drupe stop`: ends the daemon after its running turns, and waits until it is gone.

use std::time::Duration;

use drupe_extension_api::control::method;
use serde_json::Value;

use super::{
    Context,
    client::{ClientError, Pauses, RESTART},
    failure::Failure,
    wait::Wait,
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);

/// After this the running turns have had the time that they get by default: what is waited for is told in full.
const LONG: Duration = Duration::from_secs(45);

pub fn execute(context: &Context) -> Result<u8, Failure> {
    let pid = context.home().holder();
    ask(context, Wait::new(context.console, Some(RESTART)))?;
    let mut wait = Wait::new(context.console, None);
    // Another daemon that somebody starts meanwhile is not waited for.
    while context.home().is_held() && !another(pid, context.home().holder()) {
        wait.pause(&doing(wait.elapsed(), pid), LOOK);
    }
    drop(wait);
    context.console.print(&match pid {
        Some(pid) => format!("the daemon (process {pid}) has stopped"),
        None => "the daemon has stopped".into(),
    })?;
    Ok(0)
}

/// Has the daemon agree to it. Supervisor or kernel answers at any time, so that one that does not is in trouble.
fn ask(context: &Context, mut wait: Wait) -> Result<(), Failure> {
    let mut pauses = Pauses::default();
    // Whether there was a daemon at all.
    let mut heard = false;
    loop {
        match context.daemon().once::<Value>(method::STOP, &Value::Null) {
            Ok(_) => return Ok(()),
            // A stop that went unheard is asked for again; one that was heard makes the daemon go.
            Err(error) if error.passes() && !wait.over() => {
                heard = true;
                wait.pause("the kernel is restarting", pauses.next());
            }
            // Somebody else stopped it meanwhile.
            Err(ClientError::Absent) if heard => return Ok(()),
            // Whoever wants no daemon there has none.
            Err(ClientError::Impossible(_)) => return Err(Failure::absent(context.home())),
            Err(error) => return Err(error.into_failure(context.home())),
        }
    }
}

/// Whether somebody else holds the home by now.
fn another(before: Option<u32>, now: Option<u32>) -> bool {
    matches!((before, now), (Some(before), Some(now)) if before != now)
}

fn doing(elapsed: Duration, pid: Option<u32>) -> String {
    let process = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    match elapsed < LONG {
        true => "stopping after the running turns".into(),
        false => format!(
            "still waiting for the end of the daemon{process}: its turns get `drain_timeout_ms`, and it 18 s more to end; two \
             SIGTERM to that process end it at once"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use drupe_link::{Home, HomeLock};

    use super::*;
    use crate::cli::fake::Fake;

    #[test]
    fn where_no_home_can_be_there_is_nothing_to_stop() {
        let mut fake = Fake::absent();
        let file = fake.context.here.join("file");
        fs::write(&file, "").expect("a file");
        for path in [file.join("home"), file] {
            fake.context.home = Home::new(path).expect("a path");
            assert_eq!(execute(&fake.context).expect_err("there is no daemon").status, 69);
        }
    }

    #[test]
    fn a_daemon_that_never_answers_is_not_asked_for_ever() {
        let fake = Fake::absent();
        let _lock = HomeLock::take(fake.context.home()).expect("nobody has it");
        let wait = Wait::new(fake.context.console, Some(Duration::ZERO));
        let failure = ask(&fake.context, wait).expect_err("nobody listens");
        assert_eq!(failure.status, 75);
        assert!(failure.to_string().contains("does not answer"), "{failure}");
    }

    #[test]
    fn another_daemon_is_not_waited_for_and_a_lost_process_id_is_no_other_daemon() {
        assert!(another(Some(1), Some(2)));
        for (before, now) in [(Some(1), Some(1)), (Some(1), None), (None, Some(2)), (None, None)] {
            assert!(!another(before, now), "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_long_wait_for_the_end_says_what_it_waits_for() {
        assert_eq!(doing(Duration::ZERO, Some(7)), "stopping after the running turns");
        let long = doing(LONG, Some(7));
        assert!(long.contains("process 7") && long.contains("drain_timeout_ms"), "{long}");
    }
}
