//! Asks the kernel through the real control socket whether it serves.
//!
//! A beat says that the kernel's loop turns. It may do so and serve nobody: out of descriptors, or with an accept loop
//! that has ended. So the supervisor is a client now and then.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use drupe_extension_api::control::{CONTROL_VERSION, Hello, Request, method};
use drupe_link::{ControlToken, Home};

/// Three failures in a row, each after the patience, are seen within 15 s of the fault: it begins just after an answer,
/// the next three questions are asked 4, 8 and 12 s later, and the last of them is given up at 15 s.
const INTERVAL: Duration = Duration::from_secs(4);
/// How much sooner it is asked where the supervisor is awake anyway: so a kernel at rest is asked when it has just sent a beat.
const SOONER: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Probe {
    home: Home,
    hello: Vec<u8>,
    next: Instant,
    asked: Option<(UnixStream, Instant)>,
    /// The connection of the last question. It is closed with the next one, so that the kernel does not wake for its end alone.
    answered: Option<UnixStream>,
}

impl Probe {
    /// A client of a home's socket, with its token.
    pub fn new(home: Home, token: &ControlToken) -> serde_json::Result<Self> {
        let hello = Hello { token: token.reveal().to_owned(), version: CONTROL_VERSION };
        let request = Request { id: 1, method: method::HELLO.into(), params: serde_json::to_value(hello)? };
        let mut hello = serde_json::to_vec(&request)?;
        hello.push(b'\n');
        Ok(Self { home, hello, next: Instant::now(), asked: None, answered: None })
    }

    /// Forgets a question and asks the next one in a while: another kernel serves, or none.
    pub fn reset(&mut self, now: Instant) {
        (self.asked, self.answered) = (None, None);
        self.next = now + INTERVAL;
    }

    /// When [`turn`](Self::turn) has something to do, if nothing comes.
    pub fn deadline(&self) -> Instant {
        self.asked.as_ref().map_or(self.next, |(_, asked)| *asked + PATIENCE)
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.asked.as_ref().map(|(stream, _)| stream.as_fd())
    }

    /// Asks when it is time; whether the kernel answered, once that is known.
    pub fn turn(&mut self, now: Instant) -> Option<bool> {
        let Some((stream, asked)) = &mut self.asked else {
            if now + SOONER < self.next {
                return None;
            }
            self.next = now + INTERVAL;
            return match self.ask() {
                Some(stream) => {
                    self.asked = Some((stream, now));
                    None
                }
                None => Some(false),
            };
        };
        // Any answer will do: it takes the kernel's accept loop, its runtime and its parser to give one.
        let answered = match stream.read(&mut [0; 256]) {
            Ok(length) => length > 0,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && now < *asked + PATIENCE => {
                return None;
            }
            Err(_) => false,
        };
        self.answered = self.asked.take().map(|(stream, _)| stream);
        Some(answered)
    }

    /// Connects without waiting: a full queue of connections is an answer, too.
    fn ask(&mut self) -> Option<UnixStream> {
        self.answered = None;
        let mut stream = self.home.connect_at_once().ok()?;
        stream.write_all(&self.hello).ok()?;
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use super::*;

    #[test]
    fn an_answer_in_time_is_told_from_none() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        let token = ControlToken::create(&home).unwrap();
        let mut probe = Probe::new(home.clone(), &token).unwrap();
        let now = Instant::now();
        assert_eq!(probe.turn(now), Some(false), "nobody listens");

        let listener = home.listen().unwrap();
        let later = now + INTERVAL;
        assert_eq!(probe.turn(later), None);
        let mut client = listener.accept().unwrap().0;
        assert_eq!(probe.turn(later + Duration::from_millis(1)), None);
        client.write_all(b"{\"id\":1,\"result\":null}\n").unwrap();
        assert_eq!(probe.turn(later + Duration::from_millis(2)), Some(true));

        let later = later + INTERVAL;
        assert_eq!(probe.turn(later), None);
        assert_eq!(probe.deadline(), later + PATIENCE);
        assert_eq!(probe.turn(later + PATIENCE), Some(false), "nobody answers");
    }
    #[test]
    fn a_kernel_that_serves_nobody_is_found_within_15_s_whenever_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        let token = ControlToken::create(&home).unwrap();
        let listener = home.listen().unwrap();
        let step = Duration::from_millis(100);
        // A question is answered at once until the fault, and none after it.
        for fault in (0..80).map(|tenth| step * tenth) {
            let mut probe = Probe::new(home.clone(), &token).unwrap();
            let begin = Instant::now();
            let mut clients = Vec::new();
            let (mut elapsed, mut failed) = (Duration::ZERO, 0);
            while failed < 3 {
                let asking = probe.asked.is_some();
                match probe.turn(begin + elapsed) {
                    Some(true) => failed = 0,
                    Some(false) => failed += 1,
                    None if !asking && probe.asked.is_some() => {
                        clients.push(listener.accept().unwrap().0);
                        if elapsed < fault {
                            clients.last_mut().unwrap().write_all(b"{}\n").unwrap();
                        }
                    }
                    None => {}
                }
                elapsed += step;
            }
            assert!(elapsed - step <= fault + Duration::from_secs(15), "{fault:?}: {elapsed:?}");
        }
    }
}
