//! Ways to die while the code of an extension runs, noted in the page as the real kernel notes it.

use std::{process::exit, sync::mpsc::channel, thread};

use drupe_blame::{Operation, Who, enter, register};
use serde::Deserialize;
use signal_hook::{
    consts::{SIGALRM, SIGSEGV},
    low_level::raise,
};

/// What a test asks for.
#[derive(Debug, Deserialize)]
pub struct Death {
    /// `extension operation`, each on a thread of its own; the content's hash is `h1`.
    running: Vec<String>,
    how: How,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum How {
    /// A fault on the thread of the first one.
    Fault,
    /// An end with this status on the thread of the first one.
    Exit(i32),
    /// A signal that no handler notes.
    Wordless,
    /// A signal that it sends itself.
    Raise(i32),
    /// No end at all; the loop that beats waits for it.
    Hang,
}

impl Death {
    /// A fault in an operation of `extension`.
    pub fn in_operation(extension: &str, operation: &str) -> Self {
        Self { running: vec![format!("{extension} {operation}")], how: How::Fault }
    }

    /// Dies.
    pub fn die(self) -> ! {
        let (inside, all_inside) = channel();
        let count = self.running.len();
        let mut threads = self.running.into_iter();
        // The first one comes last, so that the others are where they should be.
        let first = threads.next();
        for running in threads {
            let inside = inside.clone();
            thread::spawn(move || {
                let (who, operation) = parse(&running);
                let _entered = enter(who, operation);
                let _ = inside.send(());
                wait()
            });
        }
        for _ in 1..count {
            let _ = all_inside.recv();
        }
        let (who, operation) = first.map_or((Who::NOBODY, Operation::Other), |first| parse(&first));
        let _entered = enter(who, operation);
        match self.how {
            How::Fault => drop(raise(SIGSEGV)),
            How::Exit(status) => exit(status),
            How::Wordless => drop(raise(SIGALRM)),
            How::Raise(signal) => drop(raise(signal)),
            How::Hang => {}
        }
        wait()
    }
}

fn parse(text: &str) -> (Who, Operation) {
    let (extension, operation) = text.split_once(' ').unwrap_or((text, "tool.call"));
    (register(extension, "h1"), Operation::named(operation))
}

fn wait() -> ! {
    loop {
        thread::park();
    }
}
