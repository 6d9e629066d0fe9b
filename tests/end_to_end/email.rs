//! People who write mails: the real extension in a process of its own, a real mailbox (Dovecot), and a server that sends, which is a stand-in with
//! the faults of servers or a real one (aiosmtpd).

mod aiosmtpd;
mod crowd;
mod dovecot;
mod files;
mod relay;

use std::fs;

use serde_json::{Value, json};

use self::{
    aiosmtpd::Aiosmtpd,
    dovecot::Dovecot,
    relay::{Relay, SentMail, Trouble},
};
use crate::{
    chat::{Gate, WIDE_LIMITS, effects, obedient},
    harness::{
        Daemon,
        model_server::{ModelServer, Say, latest},
        unique, until,
    },
};

const ADA: &str = "ada@example.org";
const BEN: &str = "ben@example.com";
const PLUM: &str = "plum@example.net";
const PASSWORD: &str = "a pass\"word";

struct Scene {
    mailbox: Dovecot,
    relay: Relay,
    daemon: Daemon,
    server: ModelServer,
}

const BOTH: &str = "    allowed: [ada_at_example.org, ben_at_example.com]\n";

/// What a server of the operator writes above a mail that is from whom it says.
fn vouched(from: &str) -> String {
    let domain = from.split_once('@').expect("an address").1;
    format!(
        "Authentication-Results: mx.example.net;\r\n dmarc=pass (p=reject) header.from={domain}\r\nReceived: from a by mx.example.net; x\r\n"
    )
}

/// A mail as somebody sends it, and its id.
fn letter(from: &str, subject: &str, more: &str, text: &str) -> (String, String) {
    let id = format!("<{}@mail.example>", unique());
    let mail = format!(
        "From: Somebody <{from}>\r\nTo: {PLUM}\r\nSubject: {subject}\r\nMessage-ID: {id}\r\nDate: Fri, 27 Nov 2026 10:00:00 +0000\r\n{more}\r\n{text}\r\n"
    );
    (mail, id)
}

impl Scene {
    /// None where there is no Dovecot.
    fn new(
        more: &str,
        settings: &str,
        model: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Option<Self> {
        let mailbox = Dovecot::start(PLUM, PASSWORD)?;
        Some(Self::with(mailbox, more, settings, model))
    }

    fn with(
        mailbox: Dovecot,
        more: &str,
        settings: &str,
        model: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::sending(mailbox, None, more, settings, model)
    }

    /// With another server that sends than the stand-in.
    fn sending(
        mailbox: Dovecot,
        address: Option<String>,
        more: &str,
        settings: &str,
        model: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Self {
        let (relay, server) = (Relay::start(), ModelServer::start(model));
        let config = format!(
            "extensions:\n  email:\n    enabled: true\n    address: {PLUM}\n    name: Plum\n    imap: imap+plain://127.0.0.1:{}\n    smtp: smtp+plain://{}\n    authserv_id: mx.example.net\n    idle_seconds: 5\n{more}",
            mailbox.port,
            address.unwrap_or_else(|| relay.address.clone())
        );
        let approvals = "approvals: {preauthorized: all, people: [email/ada_at_example.org]}\n";
        let mut daemon = Daemon::home(&(server.config() + WIDE_LIMITS + approvals + settings + &config));
        daemon.variable("EMAIL_PASSWORD", PASSWORD);
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.run();
        let scene = Self { mailbox, relay, daemon, server };
        scene.until_logged("reads `INBOX` as plum@example.net");
        scene
    }

    fn of_known() -> Option<Self> {
        Self::new(BOTH, "", obedient(&effects()))
    }

    fn until_logged(&self, part: &str) {
        let logged = || self.daemon.log().contains(part).then_some(());
        assert!(until("it is logged", logged).is_some(), "{part}\n{}", self.daemon.log());
    }

    /// Somebody writes, and their server vouches for them; the id of the mail.
    fn writes(&self, from: &str, subject: &str, more: &str, text: &str) -> String {
        let (mail, id) = letter(from, subject, more, text);
        self.mailbox.deliver(&(vouched(from) + &mail));
        id
    }

    /// Somebody answers a mail of the assistant.
    fn answers(&self, from: &str, mail: &SentMail, text: &str) -> String {
        let id = mail.header("message-id");
        let quoted: String = mail.text().lines().map(|line| format!("> {line}\r\n")).collect();
        let more = format!("In-Reply-To: {id}\r\nReferences: {} {id}\r\n", mail.header("references"));
        let text = format!("{text}\r\n\r\nOn Fri, 27 Nov 2026, Plum <{PLUM}> wrote:\r\n{quoted}");
        self.writes(from, &mail.header("subject"), &more, &text)
    }

    /// Waits until a mail was sent whose text has that part.
    fn until_sent(&self, part: &str) -> SentMail {
        let sent = || self.relay.mails().into_iter().find(|mail| mail.text().contains(part));
        until("it is sent", sent).unwrap_or_else(|| {
            panic!("{part}: {:?}\n{}\n{}", self.relay.mails(), self.daemon.log(), self.mailbox.log())
        })
    }

    /// Whatever was written before is answered by then.
    fn settle(&self, who: &str) {
        let mark = unique();
        self.writes(who, &mark, "", &mark);
        self.until_sent(&format!("you said {mark}"));
    }

    fn count(&self, text: &str) -> usize {
        self.relay.mails().iter().filter(|mail| mail.text() == text).count()
    }

    fn told(&self, session: &str, code: &str) -> usize {
        self.daemon.events(session).iter().filter(|event| event["data"]["code"] == code).count()
    }

    fn session(&self, mail: &SentMail, id: &str) -> String {
        let conversation = mail.header("message-id").split('.').nth(1).expect("its conversation").to_owned();
        format!("email:person.{id}:{conversation}")
    }
}

#[test]
fn a_stranger_gets_a_code_and_is_answered_in_the_thread_once_they_are_let_in() {
    let Some(scene) = Scene::new("", "", obedient(&effects())) else { return };
    let asked = scene.writes(ADA, "Hello", "", "a first word");
    let code_mail = scene.until_sent("tell the code");
    assert_eq!((code_mail.to.as_str(), code_mail.header("in-reply-to")), (ADA, asked));
    let list = scene.daemon.json(&["pair", "--json"]);
    let code = list[0]["code"].as_str().expect("somebody waits").to_owned();
    assert!(code_mail.text().contains(&code), "{}", code_mail.text());
    assert_eq!(
        (&list[0]["id"], &list[0]["name"]),
        (&json!("email/ada_at_example.org"), &json!("ada@example.org (Somebody)"))
    );
    scene.daemon.says(&["pair", "allow", &code]);
    let first = scene.writes(ADA, "Hello", "", "good morning");
    let answer = scene.until_sent("you said good morning");
    assert_eq!(answer.to, ADA);
    for (name, value) in [
        ("from", format!("Plum <{PLUM}>")),
        ("to", ADA.to_owned()),
        ("subject", "Re: Hello".to_owned()),
        ("in-reply-to", first.clone()),
        ("references", first.clone()),
        ("auto-submitted", "auto-replied".to_owned()),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    // What is answered goes on, without what it quotes.
    scene.answers(ADA, &answer, "and good night");
    let second = scene.until_sent("you said and good night");
    assert_eq!(second.text(), "you said and good night");
    let last = scene.server.requests().last().expect("the model was asked").to_string();
    assert!(last.contains("good morning") && !last.contains("a first word"), "{last}");
    let of = |mail: &SentMail| scene.session(mail, "ada_at_example.org");
    assert_eq!(of(&answer), of(&second));
    assert!(scene.daemon.events(&of(&answer)).len() > 2);
    // What was taken is marked, and nothing that was not.
    let marked = || (scene.mailbox.seen() == 2).then_some(());
    assert!(until("they are marked", marked).is_some(), "{}", scene.mailbox.seen());
    let kept =
        fs::read_to_string(scene.daemon.path().join("data/email/email.json")).expect("it keeps something");
    for hidden in [PASSWORD, "good morning"] {
        assert!(!scene.daemon.log().contains(hidden) && !kept.contains(hidden), "{hidden}: {kept}");
    }
}

#[test]
fn nobody_is_answered_who_only_says_who_they_are_and_no_program_is() {
    let Some(scene) = Scene::of_known() else { return };
    let forged = |more: &str| letter(ADA, "Hello", more, "forged").0;
    let received = "Received: from evil.example by mx.example.net; x\r\n";
    let of_another = vouched(ADA).replace("mx.example.net;", "mx.evil.example;");
    let mails = [
        forged(""),
        format!("{received}{}{}", vouched(ADA), forged("")),
        of_another + &forged(""),
        vouched(BEN) + &forged(""),
        vouched(ADA) + &forged(&format!("From: {ADA}\r\n")),
        vouched(ADA) + &forged("").replace(ADA, &format!("{BEN}>, <{ADA}")),
        vouched(ADA) + &forged("").replace(&format!("To: {PLUM}"), &format!("To: {BEN}")),
        vouched(ADA) + &forged("Auto-Submitted: auto-replied\r\n"),
        vouched(ADA) + &forged("List-Id: <all.example.org>\r\n"),
        vouched(ADA) + &forged("Precedence: bulk\r\n"),
        format!("Return-Path: <>\r\n{}{}", vouched(ADA), forged("")),
        vouched(ADA) + &forged("Content-Type: multipart/report; boundary=b\r\n"),
        vouched("mailer-daemon@example.org") + &letter("mailer-daemon@example.org", "Hello", "", "forged").0,
        vouched(PLUM) + &letter(PLUM, "Hello", "", "forged").0,
    ];
    for mail in &mails {
        scene.mailbox.deliver(mail);
    }
    // Somebody is who they say and is not one of those who are answered.
    scene.writes("eve@evil.example", "Hello", "", "forged");
    scene.settle(ADA);
    scene.until_logged(&format!("({} since the start)", mails.len()));
    assert_eq!(scene.relay.mails().len(), 1, "{:?}", scene.relay.mails());
    let asked = scene.server.requests();
    assert!(!asked.iter().any(|request| request.to_string().contains("forged")), "nothing of theirs is read");
    assert_eq!(scene.mailbox.seen(), 1, "what is not taken stays unread");
}

#[test]
fn a_mail_that_is_delivered_again_is_one_turn() {
    let Some(mut scene) = Scene::of_known() else { return };
    let (mail, _) = letter(ADA, "Hello", "", "once");
    let mail = vouched(ADA) + &mail;
    scene.mailbox.deliver(&mail);
    scene.mailbox.deliver(&format!("X-Again: 1\r\n{mail}"));
    scene.settle(ADA);
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    scene.mailbox.deliver(&mail);
    // What came while nobody was there is read, and two mails of one thread are in order.
    scene.writes(BEN, "Meanwhile", "", "meanwhile");
    scene.daemon.run();
    scene.until_sent("you said meanwhile");
    scene.settle(ADA);
    assert_eq!(scene.count("you said once"), 1, "{:?}", scene.relay.mails());
}

#[test]
fn a_thread_is_a_conversation_of_whoever_writes_in_it() {
    let Some(scene) = Scene::of_known() else { return };
    scene.writes(ADA, "Lunch", "", "a secret word");
    let answer = scene.until_sent("you said a secret word");
    let last = || scene.server.requests().last().expect("the model was asked").to_string();
    // Somebody to whom it was forwarded answers it.
    scene.answers(BEN, &answer, "what is this?");
    let other = scene.until_sent("you said what is this?");
    assert_eq!(other.to, BEN);
    assert!(!last().contains("a secret word"), "{}", last());
    assert_ne!(scene.session(&answer, "ada_at_example.org"), scene.session(&other, "ben_at_example.com"));
    // Another subject is another conversation, also as an answer.
    let id = answer.header("message-id");
    scene.writes(ADA, "Dinner", &format!("In-Reply-To: {id}\r\nReferences: {id}\r\n"), "elsewhere");
    let elsewhere = scene.until_sent("you said elsewhere");
    assert!(!last().contains("a secret word"), "{}", last());
    assert_eq!(elsewhere.header("subject"), "Re: Dinner");
    // It goes on, whatever programs put before its subject.
    scene.writes(
        ADA,
        "AW: [extern] Re: Lunch",
        &format!("In-Reply-To: {id}\r\nReferences: {id}\r\n"),
        "and then?",
    );
    scene.until_sent("you said and then?");
    assert!(last().contains("a secret word"), "{}", last());
}

#[test]
fn nothing_is_lost_or_doubled_when_the_kernel_dies_in_the_middle() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new(BOTH, "", move |request| {
        let (_, text) = latest(request);
        if text == "slow" {
            held.wait();
        }
        Say::Text(format!("you said {text}"))
    });
    let Some(scene) = scene else { return };
    scene.writes(ADA, "One", "", "first");
    scene.until_sent("you said first");
    scene.writes(ADA, "Two", "", "slow");
    until("the model is asked", || (scene.server.requests().len() >= 2).then_some(()));
    scene.writes(BEN, "Three", "", "third");
    scene.daemon.kill_kernel();
    gate.open();
    for text in ["slow", "third"] {
        scene.until_sent(&format!("you said {text}"));
    }
    scene.settle(ADA);
    let answers = ["first", "slow", "third"].map(|text| scene.count(&format!("you said {text}")));
    assert_eq!(answers, [1; 3], "{:?}\n{}", scene.relay.mails(), scene.daemon.log());
}

#[test]
fn what_may_have_gone_out_is_told_and_never_sent_again() {
    let Some(scene) = Scene::of_known() else { return };
    scene.relay.trouble(&[Trouble::TakenAndCut]);
    scene.writes(ADA, "One", "", "doubtful");
    let mail = scene.until_sent("you said doubtful");
    let session = scene.session(&mail, "ada_at_example.org");
    let told = || (scene.told(&session, "delivery.uncertain") == 1).then_some(());
    assert!(until("it is told", told).is_some(), "{}", scene.daemon.log());
    // What is never taken is told, and what is not taken now is sent later; it holds up nobody else.
    scene.relay.trouble(&[Trouble::Refused, Trouble::LaterBehind]);
    scene.writes(ADA, "Two", "", "refused");
    scene.until_logged("nobody is called so");
    scene.writes(ADA, "Three", "", "later");
    scene.until_logged("no room at the moment");
    scene.settle(BEN);
    let later = scene.until_sent("you said later");
    assert_eq!(later.header("subject"), "Re: Three");
    let counts = ["doubtful", "refused", "later"].map(|text| scene.count(&format!("you said {text}")));
    assert_eq!(counts, [1, 0, 1], "{:?}", scene.relay.mails());
}

#[test]
fn a_question_is_a_mail_and_its_answer_an_answer_to_it() {
    let effects = effects();
    let Some(scene) = Scene::new(BOTH, "", obedient(&effects)) else { return };
    scene.writes(ADA, "A task", "", "go");
    let question = scene.until_sent("asks whether it may call `careful_effect_append`");
    assert_eq!((question.to.as_str(), question.header("auto-submitted").as_str()), (ADA, "auto-generated"));
    // An answer of somebody else to it counts nothing, wherever they got it from.
    scene.answers(BEN, &question, "allow");
    scene.until_sent("you said allow");
    assert!(fs::read_to_string(&effects).is_err());
    scene.answers(ADA, &question, "Allow.\r\n\r\nAnd thank you");
    let done = scene.until_sent("done: ");
    assert_eq!(done.to, ADA);
    assert!(fs::read_to_string(&effects).is_ok(), "{}", scene.daemon.log());
    scene.until_sent("you said And thank you");
    // Of somebody whose answers do not count the operator is asked.
    scene.writes(BEN, "A task", "", "go");
    let asked = || {
        let is_it = |mail: &SentMail| mail.to == BEN && mail.text().contains("drupe approvals allow");
        scene.relay.mails().into_iter().find(is_it)
    };
    let asked = until("the operator is asked", asked).unwrap_or_else(|| panic!("{:?}", scene.relay.mails()));
    scene.answers(BEN, &asked, "allow");
    scene.answers(BEN, &asked, "Stop");
    scene.until_sent("All 2 are stopped.");
    assert_eq!(fs::read_to_string(&effects).expect("a file").lines().count(), 1, "{}", scene.daemon.log());
}

#[test]
fn what_people_are_told_elsewhere_goes_out_by_mail_as_well() {
    let copies = "copies: [{ session: main, channel: email, address: ops@example.com }]\n";
    let Some(scene) = Scene::new(BOTH, copies, obedient(&effects())) else { return };
    scene.daemon.turn("main", "hällo\nBcc: eve@evil.example");
    let mail = scene.until_sent("you said hällo");
    assert_eq!(
        (mail.to.as_str(), mail.header("subject").as_str(), mail.header("in-reply-to").as_str()),
        ("ops@example.com", "main", "")
    );
    assert_eq!(mail.header("bcc"), "");
}

#[test]
fn mails_from_before_stay_and_new_numbers_double_nothing() {
    let Some(mailbox) = Dovecot::start(PLUM, PASSWORD) else { return };
    mailbox.deliver_old(&(vouched(ADA) + &letter(ADA, "Old", "", "long ago").0));
    let mut scene = Scene::with(mailbox, BOTH, "", obedient(&effects()));
    scene.writes(ADA, "One", "", "one");
    scene.until_sent("you said one");
    scene.mailbox.end();
    scene.until_logged("the mailbox is not read, and is tried again");
    scene.writes(ADA, "Two", "", "two");
    scene.mailbox.forget_numbers();
    assert!(scene.mailbox.run(), "{}", scene.mailbox.log());
    scene.until_sent("you said two");
    scene.until_logged("numbered the mails anew");
    scene.settle(ADA);
    let counts = ["long ago", "one", "two"].map(|text| scene.count(&format!("you said {text}")));
    assert_eq!(counts, [0, 1, 1], "{:?}\n{}", scene.relay.mails(), scene.daemon.log());
    let log = scene.daemon.log();
    assert_eq!(log.matches("the mailbox is not read").count(), 1, "{log}");
    assert_eq!(log.matches("the mailbox is read again").count(), 1, "{log}");
}

#[test]
fn a_server_that_is_not_ours_takes_what_is_sent() {
    let Some(server) = Aiosmtpd::start() else { return };
    let Some(mailbox) = Dovecot::start(PLUM, PASSWORD) else { return };
    let scene = Scene::sending(mailbox, Some(server.address.clone()), BOTH, "", obedient(&effects()));
    let text = format!(".\r\n..\r\nGrüße{}", " and more".repeat(300));
    let id = scene.writes(
        ADA,
        "=?utf-8?q?Gr=C3=BC=C3=9Fe?=",
        "Content-Type: text/plain; charset=utf-8\r\n",
        &text,
    );
    let mail =
        until("it is taken", || server.mails().pop()).unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    assert_eq!((mail.header("in-reply-to"), mail.header("x-rcptto")), (id, ADA.to_owned()));
    assert_eq!(mail.text(), format!("you said {}", text.replace("\r\n", "\n")));
}
