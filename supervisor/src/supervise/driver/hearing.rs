//! What a kernel says, as events.

use std::{
    io,
    time::{Duration, Instant},
};

use drupe_link::{Received, Up};

use super::{Driver, Known};
use crate::supervise::{output::Output, state::Event};

/// A longer drain timeout is taken for a mistake of the kernel.
const LONGEST_DRAIN: Duration = Duration::from_secs(24 * 3_600);

impl Driver {
    /// Reads at most `most` frames; how many there were, garbage included.
    pub(super) fn read_link(&mut self, most: usize, output: &mut Output) -> usize {
        for read in 0..most {
            let Some(kernel) = &self.kernel else { return read };
            match kernel.link.try_recv() {
                Ok(Received::Frame(frame)) => self.hear(frame, output),
                Ok(Received::Ignored) => self.strange(output),
                Ok(Received::Closed) => {
                    self.deaf = true;
                    return read;
                }
                Err(error) => {
                    self.deaf = error.kind() != io::ErrorKind::WouldBlock;
                    return read;
                }
            }
        }
        most
    }

    fn hear(&mut self, frame: Up, output: &mut Output) {
        let event = match frame {
            Up::Hello { .. } => Event::Hello,
            Up::Beat => Event::Beat,
            Up::Proof => {
                self.known.proven = Some(Instant::now());
                return;
            }
            Up::Progress { doing, steps } => {
                self.starting(doing, output);
                Event::Progress(steps)
            }
            Up::Ready { drain_timeout_ms, config, model, notices, extensions, config_refused } => {
                self.known.model = model;
                self.known.config_refused = config_refused;
                self.known.notices = notices;
                let kept =
                    if config.is_empty() { Ok(()) } else { self.record.keep_config(&self.home, &config) };
                let good_config = !config.is_empty() && kept.is_ok();
                self.remembered(kept, output);
                let good_extensions = self.keep_extensions(extensions, output);
                // From here on it mostly waits; the start passed through much that it will not need again.
                drupe_memory::give_back();
                let drain_timeout = Duration::from_millis(drain_timeout_ms).min(LONGEST_DRAIN);
                Event::Ready { drain_timeout, good_config, good_extensions }
            }
            Up::Status { sessions, queued_turns, extensions, unlisted } => {
                self.known =
                    Known { sessions, queued_turns, extensions, unlisted, ..std::mem::take(&mut self.known) };
                return;
            }
            Up::Crashed(crashed) => return self.process_crashed(&crashed, output),
            Up::Released { extension, reason } => return self.released(&extension, &reason, output),
            Up::Log { file } => return output.set_file(self.home.state(), file),
            Up::StopAgreed => Event::StopAgreed,
            Up::Draining => Event::Draining,
            Up::Stopping => Event::Stopping,
            Up::Restart { reason, unasked } => Event::Restart { reason, unasked },
        };
        self.events.push_back(event);
    }

    /// Says once that a kernel says what this release does not know, and goes on without that.
    fn strange(&mut self, output: &mut Output) {
        let Some(kernel) = self.kernel.as_ref().filter(|_| !self.known.strange) else { return };
        self.known.strange = true;
        let text = format!(
            "kernel {} says what this supervisor does not know, since it is of another release: restart the service to have both of one",
            kernel.generation
        );
        self.note(text, output);
    }
}
