//! What goes out: answers, notices and questions, each as one mail of its thread.

use drupe_extension_api::prelude::*;

use crate::{
    digest::hash,
    kept::{AskedQuestion, MailKeeper},
    post::{Letter, LetterFile, Postman},
    thread::{OwnId, ReplyAddress, conversation_of, delivery_name, one_line, reply_subject},
};

/// The largest file that goes out, in bytes: written as text it has 25 MB, which is the most that many servers take with a mail.
const LARGEST: u64 = 18_000_000;

/// Sends what the daemon hands over. Clones are the same.
#[derive(Clone)]
pub struct MailOut {
    pub host: Host,
    pub keeper: MailKeeper,
    pub postman: Postman,
}

impl MailOut {
    pub async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        let OutboundMessage { delivery, kind, session, address, text, file } = message;
        let Some((to, reply)) = address.as_deref().and_then(ReplyAddress::read) else {
            return Err(Fault::denied("the message says no address that it goes to")
                .help("`address` of an entry of `copies` names one, such as `ada@example.org`"));
        };
        let file = match file {
            Some(file) => Some(self.read(file).await?),
            None => None,
        };
        let subject = match reply.references.is_empty() && reply.subject.is_empty() {
            true => title(&session),
            false => reply_subject(&reply.subject),
        };
        if kind == OutboundKind::Notice && is_question(&text, &delivery) {
            // Before it goes out: an answer may come before this returns.
            let name = delivery_name(&delivery);
            let asked = AskedQuestion { id: delivery.clone(), session: session.clone() };
            let noted = self.keeper.change(|kept| kept.questions.insert(&name, asked)).await;
            // Nothing went out so far.
            noted.map_err(|fault| Fault::new(FaultCode::Unavailable, fault.to_string()))?;
        }
        let own = OwnId::new(&conversation_of(&session), &subject, &delivery);
        let id = own.written(self.postman.account.address.domain());
        let letter = Letter {
            to,
            subject,
            text,
            id: id.clone(),
            references: reply.references,
            is_answer: kind != OutboundKind::Notice,
            file,
        };
        self.postman.post(&letter).await.map_err(crate::post::PostFailure::into_fault)?;
        Ok(Delivery { remote_id: Some(id) })
    }

    /// Reads a file that the daemon gave for this mail.
    async fn read(&self, file: OutboundFile) -> Result<LetterFile, Fault> {
        let OutboundFile { name, bytes, sha256, media_type, data_file } = file;
        if bytes > LARGEST {
            let (has, most) = (bytes.div_ceil(1_000_000), LARGEST / 1_000_000);
            return Err(Fault::denied(format!("it has {has} MB, and a mail takes {most} MB at most")));
        }
        let Some(path) = data_file.map(|path| self.host.data_folder().join(path)) else {
            return Err(Fault::denied("this daemon does not give the bytes of files"));
        };
        // Nothing went out so far.
        let gone = |error: std::io::Error| {
            Fault::new(FaultCode::Unavailable, format!("the file cannot be read: {error}"))
        };
        let read = self.host.blocking(move || std::fs::read(path).map_err(gone)).await;
        let bytes = read.map_err(|fault| Fault::new(FaultCode::Unavailable, fault.to_string()))?;
        // The daemon gave this mail up, and has put the file of another in its place.
        if hash(&bytes) != sha256 {
            return Err(Fault::new(FaultCode::Unavailable, "the file is another one by now"));
        }
        Ok(LetterFile { name, media_type, bytes })
    }
}

/// Whether a notice asks whether a call may run: it says by which words it is answered.
fn is_question(text: &str, id: &str) -> bool {
    let says = |answer: &str| text.contains(&format!("`{answer} {id}`"));
    says("allow") && says("deny")
}

/// What a mail is about that answers none: the schedule whose run it is of, or the session.
fn title(session: &SessionId) -> String {
    let run = session.as_str().strip_prefix("schedule:").and_then(|run| run.rsplit_once(':'));
    one_line(run.map_or(session.as_str(), |(schedule, _day)| schedule), 200)
}
