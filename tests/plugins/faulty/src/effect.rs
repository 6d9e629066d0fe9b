//! An effect that can be counted from outside, and interrupted between its happening and its result.

use std::{fs::OpenOptions, io::Write as _, path::PathBuf, time::Duration};

use drupe_extension_api::prelude::*;

use crate::Faulty;

#[derive(Deserialize, JsonSchema)]
pub struct Append {
    /// The file that gets a line `<effect id> <nonce>`.
    path: PathBuf,
    /// Tells this line from others.
    nonce: String,
    /// The call ends when this file exists; without it, at once.
    #[serde(default)]
    until: Option<PathBuf>,
}

/// Appends the line durably, then waits.
pub async fn append(faulty: &Faulty, input: Append, call: Call) -> Result<String, Fault> {
    let mut file = OpenOptions::new().create(true).append(true).open(&input.path)?;
    writeln!(file, "{} {}", call.effect_id, input.nonce)?;
    file.sync_all()?;
    while input.until.as_ref().is_some_and(|until| !until.exists()) {
        faulty.host.sleep(Duration::from_millis(5)).await?;
    }
    Ok(format!("appended {}", input.nonce))
}
