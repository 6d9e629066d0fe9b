//! What comes in: each mail of the mailbox is looked at once, in order, and handed in where it is somebody's.
//!
//! A mail is marked as read, and counted as done, when the daemon has taken it in: whatever ends before, it is looked at again, and the
//! daemon knows its id.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use drupe_extension_api::prelude::*;

use crate::{
    digest::hex,
    inbox::{FetchedMail, OpenMailbox, PIECE},
    kept::{AskedQuestion, MailKeeper, ReadMailbox},
    mail::{self, HeardMail, IgnoredMail},
    out::MailOut,
    post::Letter,
    settings::MailAccount,
    spool::{self, MailSpool},
    thread::{OwnId, ReplyAddress, reply_subject},
};

/// The first pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A connection that held so long ended as connections do.
const HELD: Duration = Duration::from_secs(60);
/// How often a mail is asked for behind which the connection ends.
const TRIES: u32 = 5;
/// How often this process may end while a mail is read.
const ENDS: u32 = 2;
/// The folder in that of the extension for what of a mail that is taken in has no room in memory, and for its files until the daemon has them.
pub const INCOMING: &str = "incoming";
/// What is asked for of a mail, in bytes: the largest file that is taken in, as it is sent, and words beside it.
const LARGEST: usize = 28 * 1024 * 1024;
/// What a mail gets that cannot be had or read.
const LEFT_OUT: &str = "\\Seen \\Flagged";

/// Reads the mailbox. Clones are the same.
#[derive(Clone)]
pub struct MailEar {
    pub host: Host,
    pub account: Arc<MailAccount>,
    pub keeper: MailKeeper,
    pub out: MailOut,
    pub left: Arc<AtomicU64>,
}

/// An answer to a question about a call.
struct Verdict {
    /// The conversation in which it was asked.
    session: SessionId,
    /// As the daemon reads it.
    words: String,
    /// What stands below it in the mail.
    rest: String,
}

/// The mail that is asked for, and how often it was.
#[derive(Default)]
struct Asked {
    uid: u32,
    times: u32,
}

impl MailEar {
    /// Reads until it is told to end.
    pub async fn hear(&self, shutdown: Shutdown) -> Result<(), Fault> {
        tokio::select! {
            () = shutdown => Ok(()),
            ended = self.listen() => ended,
        }
    }

    async fn listen(&self) -> Result<(), Fault> {
        let (mut pause, mut told, mut asked) = (PAUSE, String::new(), Asked::default());
        loop {
            let mut opened = None;
            let fault = match self.follow(&mut opened, &mut told, &mut asked, &mut pause).await {
                Ok(never) => match never {},
                Err(fault) => fault,
            };
            if opened.is_some_and(|at: Instant| at.elapsed() > HELD) {
                pause = PAUSE;
            }
            let said = fault.to_string();
            // One that holds most of the time is nothing to tell of; what lasts is told once.
            if said != told && (pause > PAUSE || opened.is_none()) {
                self.host.warn(format!("the mailbox is not read, and is tried again: {said}"));
                told = said;
            }
            self.host.sleep(pause).await?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reads over one connection, until that ends.
    async fn follow(
        &self,
        opened: &mut Option<Instant>,
        told: &mut String,
        asked: &mut Asked,
        pause: &mut Duration,
    ) -> Result<std::convert::Infallible, Fault> {
        let mut inbox = OpenMailbox::open(&self.account, &self.out.postman.trusted).await?;
        *opened = Some(Instant::now());
        self.begin(&inbox).await?;
        if !std::mem::take(told).is_empty() {
            self.host.info("the mailbox is read again");
        }
        loop {
            for uid in self.new_mails(&mut inbox).await? {
                if let Err(fault) = self.take(&mut inbox, uid, asked).await {
                    inbox.close().await;
                    return Err(fault);
                }
                // Over this connection something was done: the next is not put off for its end.
                *pause = PAUSE;
            }
            inbox = inbox.wait(self.account.idle, self.account.poll).await?;
        }
    }

    /// Compares the mailbox with what is known of it.
    async fn begin(&self, inbox: &OpenMailbox) -> Result<(), Fault> {
        let place = self.account.place();
        let known = self.keeper.look(|kept| kept.mailbox.clone()).filter(|known| known.place == place);
        let read = match known {
            Some(known) if known.validity == inbox.validity => return Ok(()),
            Some(known) => {
                self.host.warn("the server has numbered the mails anew; what is unread is looked at again, and what was taken is known");
                known.numbered_anew(inbox.validity, inbox.next)
            }
            None => {
                self.host.info(format!(
                    "reads `{}` as {}; what lies there already stays as it is",
                    self.account.mailbox, self.account.address
                ));
                let now = self.host.now();
                let day = now.strftime("%d-%b-%Y").to_string();
                ReadMailbox::new(place, inbox.validity, inbox.next.saturating_sub(1), now.as_second(), day)
            }
        };
        self.keeper.change(|kept| kept.mailbox = Some(read)).await
    }

    async fn new_mails(&self, inbox: &mut OpenMailbox) -> Result<Vec<u32>, Fault> {
        let Some(read) = self.keeper.look(|kept| kept.mailbox.clone()) else { return Ok(Vec::new()) };
        let first = read.done.saturating_add(1);
        let mut all = inbox.unread(first, read.again_below, &read.since_day).await?;
        all.extend(inbox.from(first.max(read.again_below)).await?);
        Ok(all)
    }

    /// Looks at one mail. A fault is of the server or of the daemon, and passes.
    async fn take(&self, inbox: &mut OpenMailbox, uid: u32, asked: &mut Asked) -> Result<(), Fault> {
        *asked =
            if asked.uid == uid { Asked { uid, times: asked.times + 1 } } else { Asked { uid, times: 1 } };
        let fetched = match asked.times > TRIES {
            true => FetchedMail::Refused("the connection ends behind it".to_owned()),
            false => inbox.fetch(uid, 0).await?,
        };
        let marks = match fetched {
            FetchedMail::Gone => None,
            FetchedMail::Refused(why) => {
                self.host.warn(format!(
                    "mail {uid} cannot be had and is left out: {}",
                    crate::thread::one_line(&why, 300)
                ));
                Some(LEFT_OUT)
            }
            FetchedMail::There { came, .. } if self.is_from_before(uid, came) => None,
            FetchedMail::There { bytes, size, .. } => {
                let looked_at = self.look_at(inbox, uid, bytes, size).await;
                let folder = self.incoming();
                let cleared = self.host.blocking(move || spool::clear(&folder).map_err(unwritten)).await;
                let looked_at = looked_at.and_then(|marks| cleared.map(|()| marks));
                if looked_at.as_ref().is_err_and(|fault| fault.code == FaultCode::Busy) {
                    // It was had, and is taken in as soon as there is room.
                    asked.times = 0;
                }
                looked_at?
            }
        };
        if let Some(marks) = marks {
            inbox.mark(uid, marks).await?;
        }
        self.of_mailbox(|read| read.done = uid).await
    }

    /// Looks at a mail whose beginning came: reads it, and hands it in where it is somebody's. Gives the marks that it gets.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] where the daemon or the disk does not take it now, and what the server does.
    async fn look_at(
        &self,
        inbox: &mut OpenMailbox,
        uid: u32,
        beginning: Vec<u8>,
        size: usize,
    ) -> Result<Option<&'static str>, Fault> {
        let mut read = beginning.len();
        let mut is_whole = read < PIECE || read >= size;
        let mut is_all = is_whole;
        let mut spool = self.spooled(MailSpool::new(self.incoming()), beginning, is_whole).await?;
        loop {
            let heard = match self.read(uid, spool, is_whole).await {
                Ok((heard, back)) => {
                    spool = back;
                    heard
                }
                Err(fault) if fault.code == FaultCode::Busy => return Err(fault),
                Err(fault) => {
                    self.host.warn(format!("mail {uid} cannot be read and is left out: {fault}"));
                    return Ok(Some(LEFT_OUT));
                }
            };
            let mail = match heard {
                Ok(mail) => mail,
                Err(IgnoredMail(why)) => {
                    let count = self.left.fetch_add(1, Ordering::Relaxed) + 1;
                    self.host.warn(format!("mail {uid} is not taken: {why} ({count} since the start)"));
                    return Ok(None);
                }
            };
            if is_all {
                let files = self.written(&mail, spool).await?;
                return Ok(self.hand_in(&mail, files).await?.then_some("\\Seen"));
            }
            // Of somebody who is not answered no more is asked for.
            match self.host.admit(&self.sender(&mail)).await.map_err(busy)? {
                Admission::Known { .. } => {}
                other => return self.meet(&mail, other).map(|()| None),
            }
            while !is_whole && !spool.is_full() && read < LARGEST {
                let FetchedMail::There { bytes, .. } = inbox.fetch(uid, read).await? else { break };
                read += bytes.len();
                is_whole = bytes.len() < PIECE || read >= size;
                spool = self.spooled(spool, bytes, is_whole).await?;
            }
            is_whole &= !spool.is_full();
            is_all = true;
        }
    }

    fn incoming(&self) -> std::path::PathBuf {
        self.host.data_folder().join(INCOMING)
    }

    async fn spooled(&self, mut spool: MailSpool, piece: Vec<u8>, is_last: bool) -> Result<MailSpool, Fault> {
        let take = move || {
            spool.take(&piece)?;
            if is_last {
                spool.end()?;
            }
            Ok(spool)
        };
        self.host.blocking(move || take().map_err(unwritten)).await
    }

    /// Writes the files of a mail down where the daemon gets them.
    async fn written(&self, mail: &HeardMail, mut spool: MailSpool) -> Result<Vec<InboundFile>, Fault> {
        let files = mail.files.clone();
        let written = self.host.blocking(move || {
            let each = files.into_iter().enumerate().map(|(nth, file)| {
                spool.write(&file, &nth.to_string()).map_err(unwritten)?;
                let source = FileSource::DataFile(format!("{INCOMING}/{nth}"));
                Ok(InboundFile { name: file.name, source })
            });
            each.collect()
        });
        written.await
    }

    /// Whether a mail of those that were numbered anew was there before this channel was.
    fn is_from_before(&self, uid: u32, came: Option<i64>) -> bool {
        self.keeper.look(|kept| {
            let read = kept.mailbox.as_ref();
            read.is_some_and(|read| uid < read.again_below && came.is_none_or(|came| came < read.since))
        })
    }

    /// Reads a mail on a thread where nobody waits for it, and where what breaks its reader breaks nothing else. One that ends this process is
    /// not read for ever.
    async fn read(
        &self,
        uid: u32,
        spool: MailSpool,
        is_whole: bool,
    ) -> Result<(Result<HeardMail, IgnoredMail>, MailSpool), Fault> {
        let begun = self.of_mailbox(|read| read.begin(uid)).await;
        if begun.is_err() {
            // It did not begin, and will not count as a time that it did.
            let _ = self.of_mailbox(ReadMailbox::end).await;
        }
        if begun? >= ENDS {
            return Err(Fault::internal("what read it has ended with it"));
        }
        let account = self.account.clone();
        let read = self
            .host
            .blocking(move || {
                Ok((mail::read(spool.text(), is_whole, &account.address, &account.results), spool))
            })
            .await;
        self.of_mailbox(ReadMailbox::end).await?;
        read
    }

    /// Changes what is known of the mailbox, which is there once it was opened.
    async fn of_mailbox<T>(&self, change: impl FnOnce(&mut ReadMailbox) -> T) -> Result<T, Fault> {
        let changed = self.keeper.change(|kept| kept.mailbox.as_mut().map(change)).await;
        // The file could not be written.
        let changed = changed.map_err(|fault| Fault { code: FaultCode::Busy, ..fault })?;
        changed.ok_or_else(|| Fault::internal("no mailbox was opened"))
    }

    /// Hands a mail in; false where the daemon does not take it, now or later.
    async fn hand_in(&self, mail: &HeardMail, files: Vec<InboundFile>) -> Result<bool, Fault> {
        let fault = match self.wants(mail, files).await {
            Ok(()) => return Ok(true),
            Err(fault) => fault,
        };
        match fault.code {
            FaultCode::Unauthenticated => {
                let met = self.host.admit(&self.sender(mail)).await.map_err(busy)?;
                self.meet(mail, met).map(|()| false)
            }
            FaultCode::Invalid | FaultCode::Denied | FaultCode::NotFound => {
                self.host.warn(format!("a mail is not taken in: {fault}"));
                self.say(mail, format!("This is not taken in: {}", fault.message))?;
                Ok(false)
            }
            _ => Err(busy(fault)),
        }
    }

    /// Tells whoever the operator's server knows to be who they say how they are let in.
    fn meet(&self, mail: &HeardMail, met: Admission) -> Result<(), Fault> {
        match met {
            Admission::Waiting { text, .. } => self.say(mail, text),
            Admission::Known { .. } | Admission::Unknown => Ok(()),
        }
    }

    async fn wants(&self, mail: &HeardMail, files: Vec<InboundFile>) -> Result<(), Fault> {
        let sender = self.sender(mail);
        let own = format!("{}:person.{}", self.host.id(), sender.id);
        let answered = self.verdict(mail, &own);
        // An answer to a question belongs to where it was asked, whatever the subject says by then.
        let session = match &answered {
            Some(answered) => answered.session.clone(),
            None => SessionId::new(format!("{own}:{}", mail.thread.conversation))?,
        };
        let address =
            ReplyAddress::new(&mail.from, &mail.subject, mail.thread.references.clone()).written()?;
        let hand_in = async |external_id: &str, text: &str, files: Vec<InboundFile>| {
            let submit = Submit {
                address: Some(address.clone()),
                agent: self.account.agent.clone(),
                sender: Some(sender.clone()),
                files,
                ..Submit::new(session.clone(), external_id, text)
            };
            self.host.submit(submit).await.map(drop)
        };
        if let Some(Verdict { words, rest, .. }) = answered {
            hand_in(&format!("{}/answer", mail.external_id), &words, Vec::new()).await?;
            // A picture below a signature is no message.
            return match rest.is_empty() && mail.files.iter().all(|file| file.is_shown) {
                true => Ok(()),
                false => hand_in(&mail.external_id, &rest, files).await,
            };
        }
        if mail.text.trim().eq_ignore_ascii_case("stop") {
            let text = match self.host.stop_session(session, Some(sender)).await? {
                0 => "Nothing runs.".to_owned(),
                1 => "It is stopped.".to_owned(),
                turns => format!("All {turns} are stopped."),
            };
            return self.say(mail, text);
        }
        hand_in(&mail.external_id, &mail.text, files).await
    }

    /// The answer to a question with which a mail begins. A question is answered by a mail that answers the one with the question, so its id need
    /// not be written; and by those whose conversation it was asked in, whose sessions begin with `own`.
    fn verdict(&self, mail: &HeardMail, own: &str) -> Option<Verdict> {
        let answers = mail.thread.answers.as_ref()?;
        let AskedQuestion { id, session } =
            self.keeper.look(|kept| kept.questions.get(&answers.delivery).cloned())?;
        session.below(own)?;
        let (first, rest) = mail.text.split_once('\n').unwrap_or((&mail.text, ""));
        let first = first.trim().trim_end_matches(['.', '!', ',']).to_ascii_lowercase();
        let mut words: Vec<&str> = first.split_whitespace().collect();
        if words.get(1).is_some_and(|word| *word == id.to_ascii_lowercase()) {
            words.remove(1);
        }
        let words = match words[..] {
            ["allow"] => format!("allow {id}"),
            ["allow", "session"] => format!("allow {id} session"),
            ["deny"] => format!("deny {id}"),
            _ => return None,
        };
        Some(Verdict { session, words, rest: rest.trim().to_owned() })
    }

    fn sender(&self, mail: &HeardMail) -> Sender {
        mail.from.sender(mail.name.as_deref())
    }

    /// Says something about a mail that nobody must get, beside what goes on.
    fn say(&self, mail: &HeardMail, text: String) -> Result<(), Fault> {
        let subject = reply_subject(&mail.subject);
        let own =
            OwnId::new(&mail.thread.conversation, &subject, &hex(&["said", &mail.external_id, &text], 40));
        let letter = Letter {
            to: mail.from.clone(),
            id: own.written(self.account.address.domain()),
            subject,
            text,
            references: mail.thread.references.clone(),
            is_answer: true,
            file: None,
        };
        let (host, postman) = (self.host.clone(), self.out.postman.clone());
        self.host.spawn(async move {
            if let Err(failure) = postman.post(&letter).await {
                host.warn(format!("a reply was not sent: {}", failure.into_fault()));
            }
        })
    }
}

/// What the daemon does not take now, as what the disk does not, says nothing of the mail.
fn busy(fault: Fault) -> Fault {
    if fault.retriable { Fault { code: FaultCode::Busy, ..fault } } else { fault }
}

fn unwritten(error: std::io::Error) -> Fault {
    Fault::new(FaultCode::Busy, format!("a mail cannot be kept until it is read: {error}"))
}
