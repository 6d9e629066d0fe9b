//! `drupe stop`: ends the daemon after its running turns, and waits until it is gone.

use std::time::Duration;

use drupe_extension_api::control::method;
use serde_json::Value;

use super::{
    Context,
    client::{ClientError, Pauses},
    failure::Failure,
    wait::Wait,
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);

/// Stops it.
pub fn execute(context: &Context) -> Result<u8, Failure> {
    let pid = context.home().holder();
    let mut wait = Wait::new(context.console, None);
    let mut pauses = Pauses::default();
    // Whether there was a daemon at all.
    let mut heard = false;
    loop {
        match context.daemon().once::<Value>(method::STOP, &Value::Null) {
            Ok(_) => break,
            // A stop that went unheard is asked for again; one that was heard makes the daemon go.
            Err(error) if error.passes() => {
                heard = true;
                wait.pause("the kernel is restarting", pauses.next());
            }
            // Somebody else stopped it meanwhile.
            Err(ClientError::Absent) if heard => break,
            Err(error) => return Err(error.into_failure(context.home())),
        }
    }
    while context.home().is_held() {
        wait.pause("stopping after the running turns", LOOK);
    }
    drop(wait);
    context.console.print(&match pid {
        Some(pid) => format!("the daemon (process {pid}) has stopped"),
        None => "the daemon has stopped".into(),
    })?;
    Ok(0)
}
