//! The file of `drupe chat --personas`.

use std::path::Path;

use drupe_extension_api::control::Persona;

use crate::cli::failure::{Failure, status};

/// The most bytes of the file.
const LONGEST: u64 = 1024 * 1024;

/// The agents that a file describes.
///
/// # Errors
/// What is wrong with it, with the place.
pub fn read(file: &Path) -> Result<Vec<Persona>, Failure> {
    let shown = file.display();
    let fault = |why: String| Failure::new(status::CONFIG, format!("`{shown}`: {why}"));
    let size = std::fs::metadata(file).map_err(|error| fault(error.to_string()))?.len();
    if size > LONGEST {
        return Err(fault(format!("it has {size} bytes, and may have {LONGEST}")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
    let read: Vec<Persona> = serde_yaml::from_str(&text).map_err(|error| {
        let more = match error.to_string().contains("mcp_servers") {
            true => {
                "; these are names of servers of yours, as `extensions.mcp.servers` of drupe.yaml has them"
            }
            false => "",
        };
        fault(format!("{error}{more}"))
    })?;
    match read.is_empty() {
        true => Err(fault("it describes no persona".into())),
        false => Ok(read),
    }
}
