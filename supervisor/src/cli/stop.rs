//! `drupe stop`: ends the daemon after its running turns, and waits until it is gone.

use std::{fs, io, time::Duration};

use drupe_extension_api::control::method;
use drupe_link::Home;
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
    let pid = context.home().lock_holder();
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
    while !gone(context.home()) {
        wait.pause("stopping after the running turns", LOOK);
    }
    drop(wait);
    context.console.print(&match pid {
        Some(pid) => format!("the daemon (process {pid}) has stopped"),
        None => "the daemon has stopped".into(),
    })?;
    Ok(0)
}

/// Whether no daemon holds the home: the lock says so, whatever became of process and socket.
fn gone(home: &Home) -> bool {
    match fs::File::open(home.lock()) {
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_held_as_long_as_its_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::create(folder.path()).expect("a home");
        assert!(gone(&home));
        let lock = fs::File::create(home.lock()).expect("a file");
        lock.try_lock().expect("it is free");
        assert!(!gone(&home));
        drop(lock);
        assert!(gone(&home));
    }
}
