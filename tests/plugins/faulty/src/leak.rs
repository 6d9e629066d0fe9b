//! A tool that tells a text by one way or another. The text stands in the extension's folder, from its end to its beginning, so
//! that nobody who looks for it finds it there.

use std::{io::Write as _, time::Duration};

use drupe_extension_api::prelude::*;

use crate::Faulty;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Leak {
    by: By,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum By {
    Result,
    Fault,
    Panic,
    Thread,
    Log,
    Stderr,
    Progress,
    Notice,
    Topic,
}

impl Faulty {
    pub(crate) async fn leak(&self, input: Leak, call: Call) -> Result<String, Fault> {
        let reversed = std::fs::read_to_string(self.host.folder().join("told")).map_err(Fault::internal)?;
        let text: String = reversed.chars().rev().collect();
        match input.by {
            By::Result => return Ok(text),
            By::Fault => return Err(Fault::new(FaultCode::Other, &text).help(text)),
            By::Panic => panic!("{text}"),
            By::Thread => {
                let told = std::thread::spawn(move || panic!("{text}")).join();
                assert!(told.is_err(), "it panicked");
            }
            By::Log => self.host.warn(text),
            By::Stderr => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            By::Progress => {
                // Each in as many pieces as programs write: some are cut in the middle of a line.
                let letters: Vec<char> = text.chars().collect();
                for piece in letters.chunks(37) {
                    call.progress(piece.iter().collect::<String>()).await?;
                }
            }
            By::Notice => self.host.notify_user(text, None).await?,
            By::Topic => self.host.emit("interaction.leaked", &text).await?,
        }
        // What a thread or a stream tells arrives by another way than the result.
        self.host.sleep(Duration::from_millis(1)).await?;
        Ok("told".to_owned())
    }
}
