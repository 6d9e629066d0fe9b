//! The whole extension against servers on loopback that speak the protocols and have the faults of servers, and a kernel that takes everything.

mod files;
mod servers;

use std::time::Duration;

use drupe_extension_api::testing::Harness;
use serde_json::{Value, json};

use self::servers::{Authority, Letterbox, Mailbox, Trouble};
use super::*;

const LONG: Duration = Duration::from_secs(20);

/// The extension, between two servers.
fn setup(
    mailbox: &Mailbox,
    letterbox: &Letterbox,
    more: Value,
) -> drupe_extension_api::testing::Setup<Email> {
    let mut config = json!({
        "address": "plum@example.net", "imap": mailbox.address(), "smtp": letterbox.address(), "mailbox": "INBOX",
        "authserv_id": "mx.example.net", "own_received": 0, "idle_seconds": 2, "poll_seconds": 1, "answer_seconds": 2,
    });
    config.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    Harness::<Email>::setup().id("email").config(config).secret("EMAIL_PASSWORD", "pass \"word\\")
}

fn mail(id: &str, text: &str) -> Vec<u8> {
    format!(
        "Authentication-Results: mx.example.net; dmarc=pass header.from=example.org\r\nReceived: x\r\nFrom: ada@example.org\r\nTo: plum@example.net\r\n\
         Message-ID: <{id}@x>\r\nSubject: Hello\r\n\r\n{text}\r\n"
    )
    .into_bytes()
}

fn outgoing(delivery: &str, text: &str) -> OutboundMessage {
    OutboundMessage {
        kind: OutboundKind::Answer,
        delivery: delivery.into(),
        session: "email:person.ada_at_example.org:aaaaaaaaaaaaaaaaaaaaaaaa".parse().expect("a session"),
        address: Some(r#"{"to":"ada@example.org","subject":"Hello","references":["<1@x>"]}"#.into()),
        text: text.into(),
        file: None,
    }
}

/// Waits until something is so.
async fn until(what: &str, harness: &Harness<Email>, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    assert!(waited.is_ok(), "{what}: {:?}", harness.host().logs());
}

/// Runs the service of the extension until the test is done.
async fn run_beside(harness: &Harness<Email>, test: impl Future<Output = ()>) {
    tokio::select! {
        ended = harness.run_service() => panic!("it ended: {ended:?}, {:?}", harness.host().logs()),
        () = test => {}
    }
    harness.stop().await.expect("it stops");
}

fn logged(harness: &Harness<Email>, part: &str) -> bool {
    harness.host().logs().iter().any(|line| line.contains(part))
}

fn texts(harness: &Harness<Email>) -> Vec<String> {
    harness.host().submitted().into_iter().map(|submit| submit.text).collect()
}

#[tokio::test]
async fn a_mail_is_handed_in_and_then_marked_over_encrypted_ways() {
    let authority = Authority::new();
    let mailbox = Mailbox::start(Some(&authority)).await;
    let letterbox = Letterbox::start(Some(&authority), false).await;
    let harness =
        setup(&mailbox, &letterbox, json!({"authority": authority.pem})).start().await.expect("it starts");
    mailbox.put(7, mail("old", "from before"));
    let beside = async {
        until("it reads", &harness, || logged(&harness, "reads `INBOX`")).await;
        mailbox.put(8, mail("new", "good day"));
        until("it is marked", &harness, || mailbox.marks(8) == "\\Seen").await;
        let submitted = harness.host().submitted();
        assert_eq!(submitted.len(), 1, "{submitted:?}");
        assert_eq!(submitted[0].text, "good day");
        assert_eq!(submitted[0].sender.as_ref().map(|sender| sender.id.as_str()), Some("ada_at_example.org"));
        let answer = OutboundMessage {
            address: submitted[0].address.clone(),
            ..outgoing("d1", "a\r.\n.\nb\u{1b}[2Jä")
        };
        harness.channel_send(answer).await.expect("it is sent");
        let sent = letterbox.mails();
        assert!(
            sent[0].contains("In-Reply-To: <new@x>") && sent[0].contains("Auto-Submitted: auto-replied"),
            "{sent:?}"
        );
        assert!(!sent[0].contains('\u{1b}'), "{sent:?}");
        assert_eq!(letterbox.signed_in(), 1);
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_server_that_is_not_the_one_it_says_is_told_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mailbox = Mailbox::start(Some(&other)).await;
    let letterbox = Letterbox::start(Some(&other), false).await;
    let harness =
        setup(&mailbox, &letterbox, json!({"authority": authority.pem})).start().await.expect("it starts");
    let beside = async {
        until("it says so", &harness, || logged(&harness, "the mailbox is not read")).await;
        let fault = harness.channel_send(outgoing("d1", "x")).await.expect_err("it is not sent");
        assert_eq!(fault.code, FaultCode::Unavailable, "{fault}");
        assert!(mailbox.commands().is_empty() && letterbox.mails().is_empty() && letterbox.signed_in() == 0);
    };
    run_beside(&harness, beside).await;
    // Neither is one that takes the command for encryption away.
    let letterbox = Letterbox::start(None, true).await;
    let harness =
        setup(&mailbox, &letterbox, json!({"authority": authority.pem})).start().await.expect("it starts");
    let fault = harness.channel_send(outgoing("d1", "x")).await.expect_err("it is not sent");
    assert_eq!(fault.code, FaultCode::Unavailable, "{fault}");
    assert!(letterbox.mails().is_empty() && letterbox.signed_in() == 0);
}

#[tokio::test]
async fn encryption_is_begun_before_anything_is_said() {
    let authority = Authority::new();
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(Some(&authority), true).await;
    let harness =
        setup(&mailbox, &letterbox, json!({"authority": authority.pem})).start().await.expect("it starts");
    harness.channel_send(outgoing("d1", "x")).await.expect("it is sent");
    assert_eq!((letterbox.mails().len(), letterbox.signed_in()), (1, 1));
}

#[tokio::test]
async fn what_became_of_a_mail_is_as_the_server_says() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    for (trouble, code, arrived) in [
        (Trouble::Says("RCPT", "451 later"), FaultCode::Busy, 0),
        (Trouble::Says("RCPT", "550 nobody"), FaultCode::Denied, 0),
        (Trouble::Says("MAIL", "421 bye"), FaultCode::Unavailable, 0),
        (Trouble::Says("DATA", "554 no"), FaultCode::Denied, 0),
        (Trouble::Says(".", "452 full"), FaultCode::Busy, 0),
        (Trouble::Says(".", "554 spam"), FaultCode::Denied, 0),
        (Trouble::Says(".", "what?"), FaultCode::OutcomeUnknown, 0),
        (Trouble::Cut("EHLO"), FaultCode::Unavailable, 0),
        (Trouble::Cut("RCPT"), FaultCode::Unavailable, 0),
        (Trouble::Cut("DATA"), FaultCode::Unavailable, 0),
        (Trouble::Cut("."), FaultCode::OutcomeUnknown, 1),
        (Trouble::Hangs("."), FaultCode::OutcomeUnknown, 1),
        (Trouble::Hangs("MAIL"), FaultCode::Unavailable, 0),
    ] {
        let before = letterbox.mails().len();
        letterbox.trouble(trouble);
        let fault = harness.channel_send(outgoing("d1", "x")).await.expect_err("it is not sent");
        assert_eq!(fault.code, code, "{trouble:?}: {fault}");
        assert_eq!(letterbox.mails().len() - before, arrived, "{trouble:?}");
    }
    // The id of a mail follows from its delivery, and nothing gets into its head.
    for (delivery, subject) in [("d1", "Hello"), ("d1", "Hello"), ("d2", "Hi\\r\\nBcc: eve@evil.example")] {
        let address = format!(r#"{{"to":"ada@example.org","subject":"{subject}","references":["<1@x>"]}}"#);
        harness
            .channel_send(OutboundMessage { address: Some(address), ..outgoing(delivery, "y") })
            .await
            .expect("it is sent");
    }
    let ids: Vec<_> = letterbox.mails().iter().rev().take(3).map(|mail| head(mail, "Message-ID:")).collect();
    assert!(ids[1] == ids[2] && ids[0] != ids[1], "{ids:?}");
    assert!(!letterbox.mails().iter().any(|mail| mail.lines().any(|line| line.starts_with("Bcc"))));
    for address in [None, Some("x".to_owned()), Some("a@b\r\nRCPT TO:<eve@evil.example>".to_owned())] {
        let fault = harness
            .channel_send(OutboundMessage { address, ..outgoing("d3", "z") })
            .await
            .expect_err("it is not sent");
        assert_eq!(fault.code, FaultCode::Denied, "{fault}");
    }
}

fn head(mail: &str, name: &str) -> String {
    mail.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_mail_that_cannot_be_had_or_read_holds_up_none() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    let beside = async {
        until("it reads", &harness, || logged(&harness, "reads `INBOX`")).await;
        mailbox.put(1, b"REFUSE".to_vec());
        mailbox.put(2, b"CUT".to_vec());
        mailbox.put(3, b"GARBAGE".to_vec());
        mailbox.put(4, vec![0xff; 5000]);
        mailbox.put(5, mail("good", "good day"));
        until("the last is read", &harness, || mailbox.marks(5) == "\\Seen").await;
        assert_eq!(texts(&harness), ["good day"]);
        for uid in [1, 2, 3] {
            assert_eq!(mailbox.marks(uid), "\\Seen \\Flagged", "{uid}");
        }
        assert!(logged(&harness, "mail 1 cannot be had") && logged(&harness, "mail 2 cannot be had"));
        assert!(logged(&harness, "mail 4 is not taken"));
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left_and_one_that_cannot_wait_is_asked() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    let beside = async {
        until("it waits", &harness, || mailbox.commands().iter().any(|command| command == "IDLE")).await;
        // The server takes no word any more, as one behind a connection that was forgotten.
        mailbox.hang();
        until("another is opened", &harness, || mailbox.connections() >= 2).await;
        mailbox.forget_idle();
        mailbox.put(1, mail("one", "one"));
        until("it is read", &harness, || texts(&harness) == ["one"]).await;
        mailbox.cut();
        until("it is asked", &harness, || mailbox.commands().iter().any(|command| command == "NOOP")).await;
        mailbox.put(2, mail("two", "two"));
        until("it is read", &harness, || texts(&harness) == ["one", "two"]).await;
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_stranger_is_told_how_they_are_let_in_and_nobody_else_is() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    harness.host().answer_admission(Admission::Unknown);
    let beside = async {
        until("it reads", &harness, || logged(&harness, "reads `INBOX`")).await;
        mailbox.put(1, mail("one", "one"));
        mailbox.put(2, mail("two", "two"));
        until("both are looked at", &harness, || {
            mailbox.commands().iter().any(|command| command.starts_with("UID FETCH 2"))
        })
        .await;
        until("it waits", &harness, || mailbox.commands().last().is_some_and(|command| command == "IDLE"))
            .await;
        assert!(letterbox.mails().is_empty(), "{:?}", letterbox.mails());
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_mail_with_which_its_reader_ends_is_left_out_in_the_end() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    mailbox.put(1, mail("one", "one"));
    mailbox.put(2, mail("two", "two"));
    mailbox.put(3, mail("three", "three"));
    let place = format!("plum@example.net@{}/INBOX", mailbox.address().split_once("//").expect("a place").1);
    let kept = json!({"mailbox": {"place": place, "validity": 1, "done": 1, "since": 0, "since_day": "01-Jan-2026", "reading": [2, 2]}});
    std::fs::write(folder.path().join("email.json"), kept.to_string()).expect("a file");
    let harness =
        setup(&mailbox, &letterbox, json!({})).data_folder(folder.path()).start().await.expect("it starts");
    let beside = async {
        let kept = || std::fs::read_to_string(folder.path().join("email.json")).unwrap_or_default();
        let is_done = || kept().contains("\"done\":3") && kept().contains("\"reading\":null");
        until("the last is done", &harness, is_done).await;
        assert_eq!(texts(&harness), ["three"]);
        assert_eq!(mailbox.marks(2), "\\Seen \\Flagged");
        assert!(logged(&harness, "mail 2 cannot be read"), "{:?}", harness.host().logs());
    };
    run_beside(&harness, beside).await;
}
