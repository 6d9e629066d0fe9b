//! `drupe mcp login` and `logout`: a person signs in to an MCP server with a browser. What the browser brings back is taken
//! here, by a socket of this machine or pasted, and handed to the extension, which has the tokens; this sees none.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use drupe_extension_api::control::method;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::{
    Context, Facts,
    client::TICK,
    console::{plain, short},
    failure::{Failure, status},
    mcp::{asked, decide},
    wait::Interrupt,
};

/// How long somebody may take to sign in; the extension waits no longer either.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How long one browser may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(5);

/// Bytes of a request, and of what is pasted.
const LONGEST: u64 = 32 << 10;

/// Characters of a fault that are shown.
const SHOWN: usize = 400;

#[derive(Debug, clap::Args)]
pub struct McpLogin {
    /// The server, as `drupe mcp servers` lists it
    server: String,
    /// Paste the address that the browser was led to, where the browser is on another machine
    #[arg(long)]
    paste: bool,
    /// The port that the browser is led back to; any free one without it
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Scopes to ask for beside those that the server wants
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
pub struct McpLogout {
    /// The server that was signed in to
    server: String,
    #[command(flatten)]
    facts: Facts,
}

impl McpLogin {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let unheard = |error: io::Error| {
            Failure::new(
                status::SYSTEM,
                format!("port {} of this machine cannot be listened at: {error}", self.port),
            )
        };
        // It is bound with `--paste` too: nobody else is to get what the browser brings.
        let listener = TcpListener::bind(("127.0.0.1", self.port)).map_err(unheard)?;
        let address = listener.local_addr().map_err(unheard)?;
        let redirect = format!("http://{address}/callback");
        let params = json!({"server": self.server, "redirect": redirect, "scopes": self.scopes});
        let begun: Value = decide(context, "login", params)?;
        let visit = plain(begun["address"].as_str().unwrap_or_default());
        let by = plain(begun["issuer"].as_str().unwrap_or_default());
        context.console.remark(&format!("`{by}` signs people in for `{}`; visit", plain(&self.server)));
        let _ = writeln!(io::stderr(), "\n{visit}\n");
        let response = if self.paste {
            context.console.remark(
                "the page that it leads to at last cannot be shown; paste its address here, from `http://` to its end",
            );
            pasted()?
        } else {
            heard(&listener, &begun)?
        };
        let params = json!({"server": self.server, "response": response});
        let told: Value = decide(context, "login_response", params)?;
        if self.facts.json {
            return context.console.json(&told).map(|()| 0);
        }
        let scopes: Vec<_> =
            told["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain).collect();
        let with = if scopes.is_empty() { String::new() } else { format!(", for {}", scopes.join(" ")) };
        context.console.remark(&format!("you are signed in to `{}`{with}", plain(&self.server)));
        if let Some(error) = told["error"].as_str() {
            return Err(Failure::new(
                status::FAILED,
                format!("it does not work all the same: {}", short(error, SHOWN)),
            ));
        }
        Ok(0)
    }
}

impl McpLogout {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let params = asked("logout", json!({"server": self.server}));
        let told: Value = context.daemon().decide(method::EXTENSIONS_ASK, &params)?;
        if self.facts.json {
            return context.console.json(&told).map(|()| 0);
        }
        let name = plain(&self.server);
        context.console.remark(&match (told["signed_in"] == true, told["revoked"] == true) {
            (false, _) => format!("nobody was signed in to `{name}`"),
            (true, true) => format!("`{name}` is signed out of, and what it was used with is worth nothing any more"),
            (true, false) => format!(
                "what `{name}` was used with is deleted here; whoever made it did not say that it is worth nothing now, so \
                 take it back there"
            ),
        });
        Ok(0)
    }
}

/// What somebody pastes: one line.
fn pasted() -> Result<String, Failure> {
    let mut line = String::new();
    let read = io::stdin().lock().take(LONGEST).read_line(&mut line)?;
    if read == 0 || line.trim().is_empty() {
        return Err(Failure::new(status::FAILED, "no address was pasted"));
    }
    Ok(line.trim().to_owned())
}

/// What a browser brings back to our socket. Whatever else comes there is answered and ends nothing.
fn heard(listener: &TcpListener, begun: &Value) -> Result<String, Failure> {
    let interrupt = Interrupt::take()?;
    let state = begun["address"].as_str().and_then(|address| parameter(address, "state")).unwrap_or_default();
    let began = Instant::now();
    while !interrupt.waits() {
        if began.elapsed() > PATIENCE {
            let message = "nobody signed in within 10 minutes";
            return Err(
                Failure::new(status::LATER, message).help("begin anew; `--paste` is for a browser elsewhere")
            );
        }
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        if let Some(response) = answer(stream, &state) {
            return Ok(response);
        }
    }
    Err(Failure::said(status::INTERRUPTED))
}

/// Answers one request; what it brought, where that is of our sign-in.
fn answer(mut stream: TcpStream, state: &str) -> Option<String> {
    stream.set_read_timeout(Some(REQUEST)).and_then(|()| stream.set_write_timeout(Some(REQUEST))).ok()?;
    let mut head = String::new();
    BufReader::new((&stream).take(LONGEST)).read_line(&mut head).ok()?;
    let target = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let ours = target.starts_with("/callback?") && parameter(target, "state").as_deref() == Some(state);
    let (status, text) = match ours {
        true => (
            "200 OK",
            "drupe has what it needs, and says at the terminal what became of it. You can close this page.",
        ),
        false => ("404 Not Found", "This is no answer of a sign-in that drupe waits for."),
    };
    let body = format!("<!doctype html><meta charset=utf-8><title>drupe</title><p>{text}");
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    ours.then(|| target.to_owned())
}

/// A parameter of an address, as it stands there: what we made needs no decoding.
fn parameter(address: &str, name: &str) -> Option<String> {
    let (_, query) = address.split_once('?')?;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn only_what_belongs_to_the_sign_in_is_taken_from_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let begun = json!({"address": "https://a.example/authorize?client_id=x&state=abc_-1&scope=y"});
        let browser = thread::spawn(move || {
            let mut answers = Vec::new();
            for line in [
                "GET /favicon.ico HTTP/1.1",
                "GET /callback?code=evil&state=guessed HTTP/1.1",
                "POST /callback?code=evil&state=abc_-1 HTTP/1.1",
                "nonsense",
                "GET /callback?code=c%20d&state=abc_-1&iss=i HTTP/1.1",
            ] {
                let mut stream = TcpStream::connect(address).expect("it listens");
                write!(stream, "{line}\r\n\r\n").expect("it reads");
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer);
                answers.push(answer);
            }
            answers
        });
        assert_eq!(heard(&listener, &begun).expect("it comes"), "/callback?code=c%20d&state=abc_-1&iss=i");
        let answers = browser.join().expect("answers");
        assert!(answers[..4].iter().all(|answer| !answer.starts_with("HTTP/1.1 200")), "{answers:?}");
        assert!(answers[4].contains("close this page") && !answers[4].contains("c%20d"));
    }
}
