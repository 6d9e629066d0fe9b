//! `drupe acp` and `drupe mcp`: a pipe between the standard input and output and the daemon's door for programs.
//!
//! The protocol is spoken by the extension `http`; nothing of it is known here. Bytes go both ways as they are. When the kernel
//! ends the connection does, and the program with it: the turn goes on, and the editor loads the session again.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use drupe_extension_api::control::{
    ExtensionDetail, ExtensionState, Named, Power, TokenMade, TokenNew, TokenStatus, method,
};
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Context,
    client::{Pauses, TICK},
    failure::{Failure, status},
    open::PAGE,
    start,
    wait::Interrupt,
};

/// The longest head of an answer.
const MOST_HEAD: usize = 16 * 1024;

/// How long the door may take to open and to answer: an extension begins within seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// What names of tokens begin with that hold for one pipe; the number of its process follows.
const TOKENS: &str = "stdio-";

/// Arguments of `drupe acp` and `drupe mcp`.
#[derive(Debug, clap::Args)]
pub struct Stdio {
    /// A file whose content is the token to show; by default one of the operator's that is revoked at the end
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The extension that serves it
    #[arg(long, default_value = PAGE)]
    extension: String,
}

/// Whether an extension is in a state that it does not leave by itself.
fn never_listens(state: ExtensionState) -> bool {
    use ExtensionState::{AwaitingApproval, Disabled, Failed, Quarantined, Skipped};
    matches!(state, AwaitingApproval | Disabled | Failed | Quarantined | Skipped)
}

/// A token that is revoked when the pipe ends.
struct Lent<'a> {
    context: &'a Context,
    token: String,
    /// Of one that was made for the pipe.
    name: Option<String>,
}

impl Stdio {
    pub fn execute(self, protocol: &str, context: &Context) -> Result<u8, Failure> {
        let interrupt = Interrupt::take()?;
        drop(start::ensure(context, &interrupt, true)?);
        let address = self.address(context, &interrupt)?;
        let lent = self.token(context)?;
        let stream = connect(address, protocol, &lent.token)?;
        pass(stream, &interrupt)
    }

    /// Where the extension listens, as soon as it does.
    fn address(&self, context: &Context, interrupt: &Interrupt) -> Result<SocketAddr, Failure> {
        let (since, mut pauses) = (Instant::now(), Pauses::default());
        loop {
            let named = Named { id: self.extension.clone() };
            let detail: ExtensionDetail = context.daemon().call(method::EXTENSIONS_SHOW, &named)?;
            if let Some(address) = detail.listening.first() {
                return Ok(*address);
            }
            if interrupt.waits() {
                return Err(Failure::said(status::INTERRUPTED));
            }
            if never_listens(detail.status.state) || since.elapsed() > PATIENCE {
                let state = super::status::word(detail.status.state);
                let message = format!("extension `{}` does not listen, it is {state}", self.extension);
                return Err(Failure::new(status::FAILED, message)
                    .help(format!("`drupe ext show {}` says why", self.extension)));
            }
            pauses.sleep();
        }
    }

    fn token<'a>(&self, context: &'a Context) -> Result<Lent<'a>, Failure> {
        if let Some(file) = &self.token_file {
            let path = context.here.join(file);
            let token = fs::read_to_string(&path).map_err(|error| {
                Failure::new(status::NO_INPUT, format!("`{}` cannot be read: {error}", path.display()))
            })?;
            return Ok(Lent { context, token: token.trim().to_owned(), name: None });
        }
        sweep(context)?;
        let random = &Uuid::new_v4().simple().to_string()[..8];
        let name = format!("{TOKENS}{}-{random}", std::process::id());
        let ask = TokenNew {
            name: name.clone(),
            may: Power::ALL.into(),
            sessions: Some("*".into()),
            ..TokenNew::default()
        };
        let made: TokenMade = context.daemon().decide(method::TOKENS_NEW, &ask)?;
        Ok(Lent { context, token: made.token, name: Some(name) })
    }
}

/// Revokes what pipes have left behind that were killed.
fn sweep(context: &Context) -> Result<(), Failure> {
    let tokens: Vec<TokenStatus> = context.daemon().get(method::TOKENS_LIST)?;
    for TokenStatus { name, .. } in tokens {
        let process = name.strip_prefix(TOKENS).and_then(|rest| rest.split('-').next());
        let process = process.and_then(|number| Pid::from_raw(number.parse().ok()?));
        if process.is_some_and(|process| test_kill_process(process).is_err()) {
            // Another pipe may be faster.
            let _ = context.daemon().decided::<Value>(method::TOKENS_REVOKE, &Named { id: name })?;
        }
    }
    Ok(())
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(id) = self.name.take() else { return };
        // A daemon that has ended has nobody who could show it; the next pipe revokes it.
        let _ = self.context.daemon().once::<Value>(method::TOKENS_REVOKE, &Named { id });
    }
}

/// Opens a connection that carries the protocol from here on.
fn connect(address: SocketAddr, protocol: &str, token: &str) -> Result<TcpStream, Failure> {
    let lost =
        |error: io::Error| Failure::new(status::LATER, format!("{address} cannot be reached: {error}"));
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) || token.is_empty() {
        return Err(Failure::new(status::FAILED, "the token is no line of printable characters"));
    }
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(lost)?;
    let _ = stream.set_nodelay(true);
    stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    let request = format!(
        "GET /stdio/{protocol} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Connection: Upgrade\r\nUpgrade: drupe-stdio\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(lost)?;
    let head = head(&mut stream).map_err(lost)?;
    let line = head.lines().next().unwrap_or_default().to_owned();
    if line.split(' ').nth(1) != Some("101") {
        let mut body = String::new();
        let _ = (&stream).take(MOST_HEAD as u64).read_to_string(&mut body);
        return Err(refused(&line, &body));
    }
    // So that a signal is heeded.
    stream.set_read_timeout(Some(TICK)).map_err(lost)?;
    Ok(stream)
}

/// The head of an answer, and nothing of what comes after it.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MOST_HEAD {
            return Err(io::Error::other("the head of its answer has no end"));
        }
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

/// What the door says of why it lets nobody in.
fn refused(line: &str, body: &str) -> Failure {
    let body = body.find('{').map(|at| &body[at..]).unwrap_or_default();
    let mut values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
    let error = values.next().and_then(Result::ok).map(|value| value["error"].clone()).unwrap_or_default();
    let why = error["message"].as_str().unwrap_or(line);
    let failure = Failure::new(status::FAILED, format!("the daemon does not let the client in: {why}"));
    match error["help"].as_str() {
        Some(help) => failure.help(help.to_owned()),
        None => failure,
    }
}

/// Passes bytes on in both directions, until the connection ends or nobody writes any more.
fn pass(mut stream: TcpStream, interrupt: &Interrupt) -> Result<u8, Failure> {
    let mut there = stream.try_clone()?;
    let all_said = Arc::new(AtomicBool::new(false));
    let said = Arc::clone(&all_said);
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let whole = io::copy(&mut io::stdin().lock(), &mut there).is_ok();
        // Before the door hears of it, which then ends as well.
        said.store(whole, Ordering::SeqCst);
        let _ = there.shutdown(Shutdown::Write);
    })?;
    let (mut out, mut bytes) = (io::stdout().lock(), vec![0; 64 * 1024]);
    loop {
        let read = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                if interrupt.came() || interrupt.leaving() {
                    return Ok(status::INTERRUPTED);
                }
                continue;
            }
            Err(_) => break,
        };
        if out.write_all(&bytes[..read]).and_then(|()| out.flush()).is_err() {
            // Nobody reads any more.
            return Ok(0);
        }
    }
    // The door ends last, unless its process does.
    if all_said.load(Ordering::SeqCst) {
        return Ok(0);
    }
    Err(Failure::new(status::LATER, "the daemon ended the connection: its kernel ends or restarts")
        .help("start it again and load the session; what it was doing goes on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_door() {
        let body =
            "2c\r\n{\"error\": {\"message\": \"nobody was given this token\", \"help\": \"ask\"}}\r\n0\r\n";
        let failure = refused("HTTP/1.1 401 Unauthorized", body).to_string();
        assert!(failure.contains("nobody was given this token"), "{failure}");
        let bare = refused("HTTP/1.1 404 Not Found", "").to_string();
        assert!(bare.contains("404"), "{bare}");
    }
}
