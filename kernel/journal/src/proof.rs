//! Whether the journal is stuck, for whoever watches over the daemon.

use crate::{Store, StoreError, writer::Survives};

impl Store {
    /// Carries out a transaction that changes nothing, by the way that an accepted message takes: its queue, its thread, the
    /// lock of the file. With `on_disk` it changes a row, and waits for the disk as well.
    ///
    /// True where the journal answers. That it has no room is an answer: whoever writes is told so, and nothing but room
    /// mends it. It may never answer, where what it waits for never comes.
    pub async fn answers(&self, on_disk: bool) -> bool {
        let done = self.write(Survives::Power, move |on| {
            if on_disk {
                // The mark of an open file, whose value nobody reads. The same value would not be written.
                on.statement("UPDATE meta SET value = value + 1 WHERE key = 'open'")?.execute([])?;
            }
            Ok(())
        });
        match done.await {
            Ok(()) | Err(StoreError::Full(_) | StoreError::ReadOnly(_)) => true,
            Err(error) => {
                tracing::warn!(%error, "the journal cannot be written");
                false
            }
        }
    }
}
