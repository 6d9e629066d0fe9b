//! A kernel at rest holds little: after its start, and after each spell of work, it gives back what only that needed.

use std::sync::Arc;

use drupe_memory::Rest;

use crate::life::Life;

/// Looks until the kernel closes.
pub async fn watch(life: Arc<Life>) {
    let mut rest = Rest::begin();
    while life.closing.run_until_cancelled(tokio::time::sleep(Rest::LOOK)).await.is_some() {
        rest.look();
    }
}
