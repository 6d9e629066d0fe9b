//! Work that computes for as long as its input says.

use tokio::runtime::{Handle, RuntimeFlavor};

/// What is shorter is matched in less time than it takes to make room for others.
const SHORT: usize = 4 * 1024;

/// Does something that may take long over a text of this many bytes. The other tasks of this thread go on elsewhere: an
/// expression, or a schema with patterns, takes time by the length of the text, and whoever wrote it was not asked.
pub fn over<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let many = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    if bytes > SHORT && Handle::try_current().is_ok_and(many) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn others_go_on_while_a_thread_is_held() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (done, waits) = mpsc::channel();
        let ended = runtime.spawn(async move {
            // The only worker is here: the other task needs it.
            Handle::current().spawn(async move { done.send(()) });
            over(SHORT + 1, || waits.recv_timeout(Duration::from_secs(30)))
        });
        assert_eq!(runtime.block_on(ended).expect("it ends"), Ok(()));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_there() {
        assert_eq!(over(usize::MAX, || 1), 1);
    }
}
