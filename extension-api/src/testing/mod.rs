//! Runs one extension in a test: no kernel, no network, no async runtime.
//!
//! A [`Harness`] holds the extension behind the same table and the same bytes as a kernel does, without a
//! library file. A [`FakeHost`] stands for the kernel: it records what the extension tells it and answers as
//! the test says. It is not a kernel: it checks of schemas what those of this SDK hold, checks no right, and keeps no
//! journal.
//!
//! ```
//! use drupe_extension_api::{prelude::*, testing::{Harness, block_on}};
//! use serde_json::json;
//! # struct Words;
//! # impl Extension for Words { async fn initialize(_: Host) -> Result<Self, Fault> { Ok(Words) } }
//! # #[derive(Deserialize, JsonSchema)] struct Count { text: String }
//! # impl ToolProvider for Words {
//! #     fn tools(&self) -> Vec<Tool<Self>> {
//! #         vec![Tool::new("words_count", "Counts the words of a text.", Words::count).read_only()]
//! #     }
//! # }
//! # impl Words { async fn count(&self, i: Count, _: Call) -> Result<usize, Fault> { Ok(i.text.split(' ').count()) } }
//! # drupe_extension_api::abilities!(Words: Tool);
//!
//! let counted = block_on(async {
//!     let words = Harness::<Words>::start(json!({})).await?;
//!     words.call("words_count", json!({"text": "one two three"})).await
//! });
//! assert_eq!(counted, Ok("3".to_owned()));
//! ```

mod answers;
mod clock;
mod fake_host;
mod harness;
mod record;
mod schema;
mod streams;

pub use fake_host::FakeHost;
pub use harness::{Calling, Harness, Setup};
pub use streams::FakeProcess;

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

/// Runs a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            // A wake-up before this is kept by the thread, so that none is lost.
            Poll::Pending => thread::park(),
        }
    }
}
