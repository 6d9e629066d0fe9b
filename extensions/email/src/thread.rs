//! Which conversation a mail belongs to, and where the answer to it goes. Pure.
//!
//! A mail of the assistant has an id that says which conversation it is of, what it is about and which delivery it was. So an answer to it is
//! known without a table, whatever became of this machine. Nobody gets into the conversation of somebody else by such an id: the session
//! bears the name of whoever writes.

use drupe_extension_api::prelude::*;

use crate::{address::MailAddress, digest::hex};

const CONVERSATION: usize = 24;
const TOPIC: usize = 8;
const DELIVERY: usize = 24;
/// What ids begin with that are the assistant's.
const OWN: &str = "drupe";

/// The longest id of a mail that is named in an answer, and how many of them are: programs find a thread by the first and the last.
const LONGEST_ID: usize = 250;
const MOST_IDS: usize = 8;
/// What the daemon keeps of an address, in bytes.
const LONGEST_ADDRESS: usize = 1024;
const LONGEST_SUBJECT: usize = 200;

/// What is known of the id of a mail that the assistant sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnId {
    pub conversation: String,
    topic: String,
    pub delivery: String,
}

impl OwnId {
    /// The id of a mail. The same delivery has the same, however often it is tried.
    pub fn new(conversation: &str, subject: &str, delivery: &str) -> Self {
        let (topic, delivery) = (topic(subject), delivery_name(delivery));
        Self { conversation: conversation.to_owned(), topic, delivery }
    }

    pub fn written(&self, domain: &str) -> String {
        format!("<{OWN}.{}.{}.{}@{domain}>", self.conversation, self.topic, self.delivery)
    }

    /// Reads an id, where it is one of the assistant's.
    pub fn read(id: &str, domain: &str) -> Option<Self> {
        let (local, at) = id.strip_prefix('<')?.strip_suffix('>')?.split_once('@')?;
        let mut parts = local.split('.');
        let (own, conversation, topic, delivery) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, digits| {
            text.len() == digits && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
        };
        let is_own = own == OWN
            && at.eq_ignore_ascii_case(domain)
            && parts.next().is_none()
            && is_hex(conversation, CONVERSATION)
            && is_hex(topic, TOPIC)
            && is_hex(delivery, DELIVERY);
        is_own.then(|| Self {
            conversation: conversation.to_owned(),
            topic: topic.to_owned(),
            delivery: delivery.to_owned(),
        })
    }
}

/// What a delivery is called in the id of its mail.
pub fn delivery_name(delivery: &str) -> String {
    hex(&["delivery", delivery], DELIVERY)
}

/// The ids that a header names, in their order.
pub fn ids(value: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((id, behind)) = after.split_once('>') else { break };
        if !id.is_empty()
            && id.len() <= LONGEST_ID
            && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'<')
        {
            let begin = value.len() - rest.len() + rest.find('<').unwrap_or_default();
            found.push(&value[begin..begin + id.len() + 2]);
        }
        rest = behind;
    }
    found
}

/// A subject without the words that programs put before it, in whatever language, and without what companies and lists add in brackets.
fn bare(subject: &str) -> String {
    let mut rest = subject.trim();
    loop {
        let word = rest.find([':', '：']).filter(|at| rest[..*at].chars().count() <= 8);
        let is_word = |word: &str| {
            let letters = word.trim_end_matches(|letter: char| "[]()0123456789 ".contains(letter));
            !letters.is_empty() && letters.chars().all(char::is_alphabetic)
        };
        rest = if let Some(at) = word.filter(|at| is_word(&rest[..*at])) {
            rest[at..].trim_start_matches([':', '：']).trim_start()
        } else if let Some((_, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            behind.trim_start()
        } else {
            break;
        };
    }
    rest.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

fn topic(subject: &str) -> String {
    hex(&["topic", &bare(subject)], TOPIC)
}

/// Where a mail belongs, and what of the assistant it answers.
#[derive(Debug, PartialEq)]
pub struct MailThread {
    pub conversation: String,
    /// The mail of the assistant that it answers.
    pub answers: Option<OwnId>,
    /// What an answer to it names, its own id last.
    pub references: Vec<String>,
}

/// Finds out where a mail belongs. Of one that answers none of the assistant's, the first mail of its thread and its subject decide.
pub fn thread(id: &str, in_reply_to: &str, references: &str, subject: &str, domain: &str) -> MailThread {
    let (replied, named) = (ids(in_reply_to), ids(references));
    let own = |id: &&str| OwnId::read(id, domain);
    let answers = replied.iter().find_map(own).or_else(|| named.iter().rev().find_map(own));
    let of_subject = |root: &str| hex(&["conversation", root, &bare(subject)], CONVERSATION);
    let conversation = match &answers {
        Some(own) if own.topic == topic(subject) => own.conversation.clone(),
        Some(_) => of_subject(id),
        None => of_subject(named.first().or(replied.first()).copied().unwrap_or(id)),
    };
    let before = if named.is_empty() { replied } else { named };
    let mut all: Vec<String> = before.into_iter().map(str::to_owned).collect();
    all.extend(ids(id).into_iter().map(str::to_owned));
    while all.len() > MOST_IDS {
        all.remove(1);
    }
    MailThread { conversation, answers, references: all }
}

/// The conversation that answers to a mail of a session go to, where that session is none of this channel's.
pub fn conversation_of(session: &SessionId) -> String {
    let last = session.as_str().rsplit(':').next().unwrap_or_default();
    let is_one = last.len() == CONVERSATION && last.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
    if is_one { last.to_owned() } else { hex(&["session", session.as_str()], CONVERSATION) }
}

/// Where an answer goes, as the daemon keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplyAddress {
    pub to: String,
    #[serde(default)]
    pub subject: String,
    /// What the answer names, the mail that it answers last.
    #[serde(default)]
    pub references: Vec<String>,
}

impl ReplyAddress {
    pub fn new(to: &MailAddress, subject: &str, references: Vec<String>) -> Self {
        let subject = one_line(subject, LONGEST_SUBJECT);
        Self { to: to.to_string(), subject, references }
    }

    /// As the daemon keeps it, within what it takes: what is left out first are ids in the middle.
    pub fn written(mut self) -> Result<String, Fault> {
        loop {
            let text = serde_json::to_string(&self)?;
            if text.len() <= LONGEST_ADDRESS {
                return Ok(text);
            }
            match self.references.len() {
                0 => self.subject.clear(),
                1 => self.references.clear(),
                2 => drop(self.references.remove(0)),
                _ => drop(self.references.remove(1)),
            }
        }
    }

    /// Reads what the daemon kept, or an address that the operator wrote into `copies`.
    pub fn read(text: &str) -> Option<(MailAddress, Self)> {
        let read = match serde_json::from_str::<Self>(text) {
            Ok(reply) => reply,
            Err(_) => Self { to: text.trim().to_owned(), subject: String::new(), references: Vec::new() },
        };
        let references = read.references.into_iter().filter(|id| ids(id) == [id.as_str()]).collect();
        Some((MailAddress::read(&read.to)?, Self { references, ..read }))
    }
}

/// The subject of an answer.
pub fn reply_subject(subject: &str) -> String {
    let subject = subject.trim();
    let is_reply = subject.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("re:"));
    if is_reply { subject.to_owned() } else { format!("Re: {subject}").trim().to_owned() }
}

/// A text on one line, of at most so many bytes, without anything that is no letter.
pub fn one_line(text: &str, longest: usize) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    line[..line.floor_char_boundary(longest)].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DOMAIN: &str = "example.net";

    fn found(id: &str, in_reply_to: &str, references: &str, subject: &str) -> MailThread {
        thread(id, in_reply_to, references, subject, DOMAIN)
    }

    #[test]
    fn an_answer_to_a_mail_of_the_assistant_goes_on_and_a_new_subject_begins_anew() {
        let first = found("<1@x>", "", "", "Lunch");
        let own = OwnId::new(&first.conversation, "Re: Lunch", "t>email/a");
        let id = own.written(DOMAIN);
        assert_eq!(OwnId::read(&id, DOMAIN), Some(own.clone()));
        for subject in ["Re: Lunch", "AW: [extern] Re: lunch", "RE[2]: Fwd: Lunch", "回复：Lunch"] {
            let next = found("<2@x>", &id, &format!("<1@x> {id}"), subject);
            assert_eq!(
                (&next.conversation, next.answers.as_ref()),
                (&first.conversation, Some(&own)),
                "{subject}"
            );
            assert_eq!(next.references, ["<1@x>".to_owned(), id.clone(), "<2@x>".to_owned()]);
        }
        let other = found("<3@x>", &id, &id, "Dinner");
        assert_ne!(other.conversation, first.conversation);
        assert_eq!(other.answers, Some(own));
        // Two mails of a thread that the assistant is not in yet are one conversation.
        let early = found("<4@x>", "<1@x>", "<1@x>", "Re: Lunch");
        assert_eq!((early.conversation, early.answers), (first.conversation, None));
        assert_ne!(found("<5@x>", "", "", "Lunch").conversation, other.conversation);
    }

    #[test]
    fn an_id_of_another_server_is_none_of_the_assistants() {
        let id = OwnId::new(&"a".repeat(24), "x", "d").written(DOMAIN);
        assert!(OwnId::read(&id, DOMAIN).is_some());
        for other in [
            id.replace(DOMAIN, "evil.example"),
            id.replace("drupe.", "drupe.x."),
            id.replace('a', "A"),
            id.replace('<', ""),
            "<drupe.@example.net>".to_owned(),
        ] {
            assert_eq!(OwnId::read(&other, DOMAIN), None, "{other}");
        }
    }

    #[test]
    fn an_address_fits_whatever_a_mail_names_and_is_read_again() {
        let to = MailAddress::read("ada@example.org").expect("an address");
        let ids: Vec<String> = (0..8).map(|at| format!("<{at}{}@x>", "y".repeat(240))).collect();
        let written =
            ReplyAddress::new(&to, &"ä\r\nBcc: x".repeat(90), ids.clone()).written().expect("an address");
        assert!(written.len() <= LONGEST_ADDRESS && !written.contains("\\r"), "{written}");
        let (read, reply) = ReplyAddress::read(&written).expect("an address");
        assert_eq!((read, reply.references.last()), (to, ids.last()));
        assert!(
            ReplyAddress::read("ops@example.org").is_some_and(|(to, _)| to.as_str() == "ops@example.org")
        );
        let odd = r#"{"to":"a@b","references":["<1@x>\r\nBcc: c@d","<2@x>","3","<4@x> <5@x>"]}"#;
        assert_eq!(ReplyAddress::read(odd).expect("an address").1.references, ["<2@x>"]);
        for odd in ["", "ops", "{\"to\":\"a\\r\\nb@example.org\"}", "a@b c", "{}"] {
            assert!(ReplyAddress::read(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn subjects_of_answers_say_so_once() {
        assert_eq!(reply_subject("Lunch"), "Re: Lunch");
        assert_eq!(reply_subject("RE: Lunch"), "RE: Lunch");
        assert_eq!(reply_subject(""), "Re:");
        assert_eq!(one_line("a\r\nBcc: b\u{0}  c", 100), "a Bcc: b c");
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(id in ".{0,40}", named in "[<>a@. ä\\x00-\\x20]{0,60}", subject in ".{0,40}") {
            let found = thread(&id, &named, &named, &subject, DOMAIN);
            prop_assert_eq!(found.conversation.len(), CONVERSATION);
        }
    }
}
