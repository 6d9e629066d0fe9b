//! The task that stands for a process in the kernel: reads what it sends, watches over it, tells its end.

use std::{sync::Arc, time::Duration};

use drupe_extension_abi::HostBox;
use drupe_extension_api::wire::host;
use tokio::{sync::watch, time::Instant};

use super::{
    Answer, Shared,
    answers::{Answers, Begun},
    spawn::Running,
    stderr::{Tail, follow},
};
use crate::{
    Ended,
    ended::OVERDUE,
    frame::{self, Frame},
    inbox::{Inbox, Lost},
    words::LOG_LINE,
};

/// How many useless frames a process may send in a second: unknown kinds, answers to nothing, calls beyond the bound.
const USELESS: usize = 10_000;

/// How many lines of the log a process may write in a second; what is beyond is dropped, and useless.
const LINES: usize = 1_000;

/// How many bytes of the log, of which a line counts as it is written there; what is beyond is dropped, and useless.
const LOG_BYTES: usize = 256 * 1024;

/// How long the last words of a process that is gone are waited for: they are in the pipe.
const LAST_WORDS: Duration = Duration::from_millis(200);

pub struct Driver {
    inbox: Inbox,
    running: Running,
    told: watch::Sender<Option<Ended>>,
    receiving: Receiving,
}

impl Driver {
    pub fn new(
        shared: Arc<Shared>,
        inbox: Inbox,
        host: HostBox,
        running: Running,
        told: watch::Sender<Option<Ended>>,
    ) -> Self {
        let answers = Answers::new(Arc::clone(&shared), host);
        Self {
            inbox,
            running,
            told,
            receiving: Receiving { shared, answers, useless: Rate::default(), log: Log::default() },
        }
    }

    /// Runs until the process is gone.
    pub async fn run(mut self) {
        let tail = Tail::default();
        let shared = Arc::clone(&self.receiving.shared);
        let stderr = self.running.stderr();
        let followed = async {
            if let Some(stream) = stderr {
                follow(&shared.redactor, shared.id.clone(), stream, tail.clone()).await;
            }
        };
        let end = async {
            let how = match self.serve().await {
                Some(why) => {
                    self.running.kill().await;
                    format!("killed: {why}")
                }
                None => self.running.left().await,
            };
            tail.over();
            how
        };
        let mut followed = std::pin::pin!(followed);
        let how = {
            let mut end = std::pin::pin!(end);
            tokio::select! {
                how = &mut end => {
                    let _ = tokio::time::timeout(LAST_WORDS, followed).await;
                    how
                }
                () = &mut followed => end.await,
            }
        };
        self.tell(how, tail.lines());
    }

    /// Reads until the process is gone (`None`) or must be killed (why).
    async fn serve(&mut self) -> Option<String> {
        let shared = Arc::clone(&self.receiving.shared);
        let mut killed = std::pin::pin!(shared.killed());
        let mut overdue = std::pin::pin!(shared.calls.overdue());
        loop {
            let next = async {
                // A process that does not read its answers is not asked what else it wants.
                shared.outbox.has_room().await;
                self.inbox.next().await
            };
            tokio::select! {
                biased;
                why = &mut killed => return Some(why),
                () = &mut overdue => return Some(OVERDUE.into()),
                () = self.receiving.answers.done() => {}
                frame = next => match frame {
                    Ok(frame) => if let Err(why) = self.receiving.take(frame) {
                        return Some(why);
                    },
                    Err(Lost::Closed) => return None,
                    Err(error) => return Some(error.to_string()),
                },
            }
        }
    }

    fn tell(mut self, how: String, stderr_tail: Vec<String>) {
        let shared = Arc::clone(&self.receiving.shared);
        shared.outbox.close();
        // What the instance had open in the kernel ends with it.
        self.receiving.answers.close();
        let operation = shared.calls.oldest().unwrap_or_else(|| Ended::without_call(&how)).to_owned();
        let ended = Ended { how, operation, stderr_tail };
        // First those who watch, of whom nobody may be left: callers may drop the instance, and this task with it.
        let _ = self.told.send(Some(ended.clone()));
        shared.calls.end_all(&ended);
    }
}

/// What frames are handed to.
struct Receiving {
    shared: Arc<Shared>,
    answers: Answers,
    useless: Rate,
    log: Log,
}

impl Receiving {
    /// Acts on a frame; why the process must be killed for it.
    fn take(&mut self, frame: Option<Frame<'_>>) -> Result<(), String> {
        match frame {
            Some(Frame::Reply(frame::Answer { id, status, body })) => {
                let answer = Answer { status, body: body.to_vec() };
                if self.shared.calls.answered(id, answer) { Ok(()) } else { self.useless() }
            }
            Some(Frame::Ended { id }) if self.shared.calls.gone(id) => Ok(()),
            Some(Frame::HostCall(call))
                if call.operation == host::LOG && !self.log.takes(Instant::now(), call.payload.len()) =>
            {
                self.useless()
            }
            Some(Frame::HostCall(call)) => match self.answers.begin(&call) {
                Begun::Running => Ok(()),
                Begun::Busy => self.useless(),
                Begun::Twice => Err("it gave two calls the same number".into()),
            },
            Some(Frame::HostCancel { id }) => {
                self.answers.cancel(id);
                Ok(())
            }
            Some(Frame::HostClose) => {
                self.answers.close();
                Ok(())
            }
            Some(Frame::Ended { .. }) | None => self.useless(),
            Some(
                Frame::Open { .. }
                | Frame::Describe { .. }
                | Frame::Call(_)
                | Frame::Cancel { .. }
                | Frame::Close
                | Frame::HostReply(_),
            ) => Err("it sent a frame that only the kernel sends".into()),
        }
    }

    /// A frame cost time and did nothing.
    fn useless(&mut self) -> Result<(), String> {
        if self.useless.within(Instant::now(), 1, USELESS) {
            return Ok(());
        }
        Err(format!("it flooded the kernel with more than {USELESS} useless frames in a second"))
    }
}

/// What a process writes into the log.
#[derive(Default)]
struct Log {
    lines: Rate,
    bytes: Rate,
}

impl Log {
    /// Whether a line of that length is taken in now.
    fn takes(&mut self, now: Instant, length: usize) -> bool {
        self.lines.within(now, 1, LINES) && self.bytes.within(now, length.min(LOG_LINE), LOG_BYTES)
    }
}

/// Counts what comes in a second.
#[derive(Default)]
struct Rate {
    count: usize,
    since: Option<Instant>,
}

impl Rate {
    /// So much more comes; whether it is within the bound.
    fn within(&mut self, now: Instant, more: usize, bound: usize) -> bool {
        if self.since.is_none_or(|since| now - since > Duration::from_secs(1)) {
            (self.count, self.since) = (0, Some(now));
        }
        self.count = self.count.saturating_add(more);
        self.count <= bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_takes_so_many_lines_and_so_many_bytes_in_a_second() {
        let (mut log, began) = (Log::default(), Instant::now());
        for (seconds, length, most) in
            [(0, 100, LINES), (2, LOG_LINE, LOG_BYTES / LOG_LINE), (4, 1 << 20, LOG_BYTES / LOG_LINE)]
        {
            let now = began + Duration::from_secs(seconds);
            assert_eq!((0..5000).filter(|_| log.takes(now, length)).count(), most, "{length}");
        }
    }
}
