//! The calls of a service, and what goes wrong with them.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// What happens to a call of a method in place of what should.
#[derive(Clone, Copy, PartialEq)]
pub enum Trouble {
    /// It is to be made again after so many seconds.
    TooMany(u64),
    /// It is done, and the connection ends before it is said.
    DoneAndCut,
    /// The connection ends before it is done.
    Cut,
    /// It is refused with this status, where the service has such, and these words.
    Refused(u16, &'static str),
    /// Whoever stands between answers.
    Gateway,
    /// Nobody answers, and the connection stays.
    Silence,
    /// It is done once the test lets it.
    Held,
}

/// Waits until something is so, which takes no time but on a machine that has much to do.
pub fn until_so(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never is so");
        thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Default)]
pub struct Calls {
    made: Vec<(Instant, String, Value)>,
    /// Of a method, for a text or for any.
    troubles: Vec<(&'static str, Option<&'static str>, Trouble)>,
    /// Of so many calls that send something, one goes wrong in each of two ways.
    one_of: Option<u64>,
    /// Whether what is shown of an answer before it is whole is refused.
    refuses_previews: bool,
}

impl Calls {
    /// The next call of that method, with this text or with any, goes wrong.
    pub fn trouble(&mut self, method: &'static str, text: Option<&'static str>, trouble: Trouble) {
        self.troubles.push((method, text, trouble));
    }

    /// Of so many messages and changes one is refused for a second, and one is done although its connection is cut.
    pub fn go_wrong(&mut self, one_of: u64) {
        self.one_of = Some(one_of);
    }

    /// Answers are not shown before they are whole.
    pub fn refuse_previews(&mut self) {
        self.refuses_previews = true;
    }

    /// Those of a method so far, each with its time.
    pub fn of(&self, method: &str) -> Vec<(Instant, Value)> {
        let of_it = self.made.iter().filter(|(_, called, _)| called == method);
        of_it.map(|(at, _, params)| (*at, params.clone())).collect()
    }

    /// Notes a call, and says what goes wrong with it. `sends` is whether it sends or changes a message, `posts` whether that is a new one.
    pub fn note(&mut self, method: &str, params: &Value, sends: bool, posts: bool) -> Option<Trouble> {
        self.made.push((Instant::now(), method.to_owned(), params.clone()));
        let text = params["text"].as_str().unwrap_or_default();
        let meant = |(of, with, _): &(&str, Option<&str>, Trouble)| {
            *of == method && with.is_none_or(|with| with == text)
        };
        if let Some(at) = self.troubles.iter().position(meant) {
            return Some(self.troubles.remove(at).2);
        }
        if self.refuses_previews && posts && text.ends_with('…') {
            return Some(Trouble::Refused(400, "restricted_action"));
        }
        match self.made.len() as u64 % self.one_of.filter(|_| sends)? {
            0 => Some(Trouble::TooMany(1)),
            1 => Some(Trouble::DoneAndCut),
            _ => None,
        }
    }
}
