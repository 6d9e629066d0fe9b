//! The process that runs one extension: `drupe ext-host --fd N --library PATH --id ID`.
//!
//! It is started confined, with a socket as its one link to the kernel, and does what the frames there say. It decides
//! nothing and defends nothing: whatever the extension's code does to it, the kernel on the other side notices.

mod host_table;
mod running;

use std::{
    ffi::OsString,
    io,
    os::{fd::RawFd, unix::net::UnixStream as StdStream},
    path::PathBuf,
    sync::Arc,
};

use drupe_extension_abi::{ExtensionBox, Reply};
use drupe_extension_api::Fault;
use drupe_memory::Rest;
use tokio::{
    net::{UnixStream, unix::OwnedWriteHalf},
    runtime::{Builder, Handle},
    sync::Notify,
};

use self::{host_table::Link, running::Running};
use crate::{
    PluginLibrary,
    frame::{self, Answer, Frame},
    inbox::Inbox,
    outbox::Outbox,
};

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "ext-host";

/// Threads that run the extension's futures: one that blocks leaves one.
const THREADS: usize = 2;

/// What the process was started with.
#[derive(Debug, Default)]
struct Args {
    fd: Option<RawFd>,
    library: Option<PathBuf>,
    id: Option<String>,
}

/// Runs the verb; `args` are those after it. Returns the status to exit with, when the kernel said so or is gone. The
/// process must have opened nothing before.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    drupe_confine::take_name();
    match run(args) {
        Ok(()) => 0,
        Err(error) => {
            // The kernel keeps the last lines of this stream, and there is no other place to tell it.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
            1
        }
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let Args { fd: Some(fd), library: Some(library), id: Some(id) } = parse(args) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "usage: ext-host --fd N --library PATH --id ID; the kernel starts it",
        ));
    };
    // SAFETY: this process has just begun and owns nothing yet.
    let socket = StdStream::from(unsafe { drupe_confine::inherited(fd) }?);
    socket.set_nonblocking(true)?;
    // The socket has a thread of its own: the extension's code may hold every other one, and the kernel must be heard.
    let listening = Builder::new_current_thread().enable_all().build()?;
    let working = Builder::new_multi_thread().worker_threads(THREADS).thread_name(id).enable_all().build()?;
    let runtime = working.handle().clone();
    let served = listening.block_on(async {
        let (reading, writing) = UnixStream::from_std(socket)?.into_split();
        serve(library, Inbox::new(reading), writing, runtime).await;
        Ok(())
    });
    // Threads that the extension holds would be waited for without end.
    working.shutdown_background();
    listening.shutdown_background();
    served
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Args {
    let mut parsed = Args::default();
    let mut args = args.into_iter();
    while let (Some(name), Some(value)) = (args.next(), args.next()) {
        match name.to_str() {
            Some("--fd") => parsed.fd = value.to_str().and_then(|number| number.parse().ok()),
            Some("--library") => parsed.library = Some(value.into()),
            Some("--id") => parsed.id = value.into_string().ok(),
            _ => return Args::default(),
        }
    }
    parsed
}

/// Does what the kernel says until it says `Close` or is gone; `runtime` runs the extension's futures.
async fn serve(library: PathBuf, mut inbox: Inbox, writing: OwnedWriteHalf, runtime: Handle) {
    let link = Arc::new(Link::new(Outbox::new(writing)));
    let writer = Arc::clone(&link);
    Handle::current().spawn(async move { writer.outbox.run().await });
    let heard = Arc::new(Notify::new());
    Handle::current().spawn(rest(Arc::clone(&heard)));
    let mut running: Option<Running> = None;
    // An error is the end of the kernel, or of its patience: there is nobody to tell.
    while let Ok(frame) = inbox.next().await {
        heard.notify_one();
        match (frame, &running) {
            (Some(Frame::Open { id, about }), None) => {
                link.set_about(about);
                let opened = open(library.clone(), &link).await;
                let (status, body) = match &opened {
                    Ok(_) => (Reply::OK, b"null".to_vec()),
                    Err(fault) => (Reply::FAULT, fault_body(fault)),
                };
                running = opened.ok().map(|table| Running::new(table, Arc::clone(&link), runtime.clone()));
                reply(&link.outbox, id, status, &body).await;
            }
            (Some(Frame::Describe { id }), Some(running)) => running.describe(id),
            (Some(Frame::Call(call)), Some(running)) => running.call(&call),
            (Some(Frame::Cancel { id }), Some(running)) => running.cancel(id),
            (Some(Frame::HostReply(answer)), _) => link.answered(&answer),
            (Some(Frame::Close), running) => {
                if let Some(running) = running {
                    running.close().await;
                }
                link.outbox.flushed().await;
                return;
            }
            _ => {}
        }
    }
}

/// Gives back what only a spell of work needed. It goes on while the process lives. Once that rests it waits for a frame before which there was
/// work that is worth it: if for nothing else, one comes to ask how the extension is, which alone is no reason to wake once more.
async fn rest(heard: Arc<Notify>) {
    let mut rest = Rest::begin();
    loop {
        tokio::time::sleep(Rest::LOOK).await;
        if !rest.look() {
            continue;
        }
        heard.notified().await;
        while !rest.is_worth_it() {
            heard.notified().await;
        }
    }
}

/// Opens the library on a thread where it holds nobody up.
async fn open(library: PathBuf, link: &Arc<Link>) -> Result<ExtensionBox, Fault> {
    let host = host_table::table(link);
    let opened = tokio::task::spawn_blocking(move || Ok(PluginLibrary::open(&library)?.instance(host))).await;
    let opened = opened.map_err(|_| Fault::internal("the library panicked while it was opened"))?;
    opened.map_err(|error: crate::LibraryError| Fault::invalid(error.to_string()))
}

/// Sends a result; one that is too long becomes a fault.
async fn reply(outbox: &Outbox, id: u64, status: u32, body: &[u8]) {
    let bytes = frame::encode(&Frame::Reply(Answer { id, status, body })).or_else(|error| {
        let body = fault_body(&Fault::invalid(format!("the result of the call cannot be sent: {error}")));
        frame::encode(&Frame::Reply(Answer { id, status: Reply::FAULT, body: &body }))
    });
    if let Ok(bytes) = bytes {
        // Where the kernel is gone, nobody waits.
        let _ = outbox.send(bytes).await;
    }
}

fn fault_body(fault: &Fault) -> Vec<u8> {
    // A fault is plain text; it always has a form in JSON.
    serde_json::to_vec(fault).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_command_line_is_taken() {
        let parse = |text: &str| {
            let parsed = parse(text.split_whitespace().map(OsString::from));
            (parsed.fd, parsed.library.is_some(), parsed.id.is_some())
        };
        assert_eq!(parse("--fd 3 --library /a.so --id a"), (Some(3), true, true));
        assert_eq!(parse("--fd x --library /a.so --id a"), (None, true, true));
        assert_eq!(parse("--fd 3 --other 4"), (None, false, false));
        assert_eq!(main(["--fd".into(), "3".into()]), 1);
    }
}
