//! The terminal of a program: what it writes and what is typed are two streams of one open file.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use drupe_confine::{EndKey, Terminal};
use drupe_extension_api::Fault;
use drupe_handles::{Credit, Given, Sink, Source};
use futures_util::{FutureExt, future::BoxFuture};

use crate::pipes::{self, Place};

/// How often the end of the input is typed when there is no more. Each reader takes one, and who is not told goes on.
const ENDS: usize = 16;

/// How often the key is sent to a program that reads each key: one that takes it for something else, and writes whenever it
/// gets one, must come to rest.
const KEYS: u8 = 16;

/// Opens the two streams of a terminal.
pub(crate) fn streams(terminal: Terminal, place: &Place) -> io::Result<(Input, Output)> {
    let file = || terminal.nonblocking();
    let written = pipes::Output::terminal(file()?, place)?;
    let typed = pipes::Input::terminal(file()?, place)?;
    let line = Arc::new(Line { terminal, input_over: AtomicBool::new(false), keys: AtomicU8::new(KEYS) });
    Ok((Input { typed, line: Arc::clone(&line) }, Output { written, line }))
}

struct Line {
    terminal: Terminal,
    /// Nobody will type any more.
    input_over: AtomicBool,
    /// How often the key may still be sent to a program that reads each key.
    keys: AtomicU8,
}

impl Line {
    /// Types the end of the input, so often where the terminal takes it as that. What does not fit is left out: then nobody
    /// reads.
    fn type_end(&self, times: usize) {
        let Ok(EndKey { byte: byte @ 1.., ends }) = self.terminal.end_key() else {
            // It has no such key, or is gone.
            return;
        };
        let one_less = |keys: u8| keys.checked_sub(1);
        if ends || self.keys.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok() {
            let _ = self.terminal.write(&vec![byte; if ends { times } else { 1 }]);
        }
    }
}

/// What a program writes to its terminal.
pub(crate) struct Output {
    written: pipes::Output,
    line: Arc<Line>,
}

impl Source for Output {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        async move {
            let given = self.written.next(credit).await?;
            // A question, most likely, which ends with no line. Who asks for a password throws away what was typed before.
            if matches!(&given, Given::Bytes(bytes) if !matches!(bytes.last(), None | Some(b'\n')))
                && self.line.input_over.load(Ordering::Acquire)
            {
                self.line.type_end(1);
            }
            Ok(given)
        }
        .boxed()
    }
}

/// What is typed at the terminal of a program. A terminal has no end but the one that is typed, which one reader takes and
/// the next has not seen. So when this is dropped it is typed more than once, and again where the program asks something later.
pub(crate) struct Input {
    typed: pipes::Input,
    line: Arc<Line>,
}

impl Drop for Input {
    fn drop(&mut self) {
        self.line.input_over.store(true, Ordering::Release);
        self.line.type_end(ENDS);
    }
}

impl Sink for Input {
    fn put(&mut self, content: Vec<u8>) -> BoxFuture<'_, Result<(), Fault>> {
        self.typed.put(content)
    }
}
