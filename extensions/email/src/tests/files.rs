//! Files of mails: as programs send them, in pieces of any length, and hostile ones; and files that go out.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use drupe_extension_api::{testing::Harness, wire::MOST_FILES};
use mail_parser::{MessageParser, MimeHeaders};
use proptest::prelude::*;
use serde_json::json;

use super::{
    logged, outgoing, run_beside,
    servers::{Letterbox, Mailbox, Trouble},
    setup, until,
};
use crate::{
    Email,
    address::MailAddress,
    mail::{self, HeardMail, IgnoredMail},
    results::OwnResults,
    spool::{self, MailSpool},
};
use drupe_extension_api::prelude::*;

const HEAD: &str = "Authentication-Results: mx.example.net; dmarc=pass header.from=example.org\r\nReceived: x\r\nFrom: Ada <ada@example.org>\r\n\
     To: plum@example.net\r\nMessage-ID: <1@x>\r\nSubject: Hello\r\nMIME-Version: 1.0\r\n";

/// As programs write a file: in lines of 76 letters.
fn coded(content: &[u8]) -> String {
    let text = STANDARD.encode(content);
    text.as_bytes().chunks(76).map(|line| format!("{}\r\n", String::from_utf8_lossy(line))).collect()
}

/// Bytes of all kinds, as no text has them.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap_or_default()).collect()
}

fn heard(text: &[u8], is_whole: bool) -> Result<HeardMail, IgnoredMail> {
    let own = MailAddress::read("plum@example.net").expect("an address");
    mail::read(text, is_whole, &own, &OwnResults { authserv_id: "mx.example.net".into(), received_above: 0 })
}

/// What becomes of a mail that comes in pieces of that length: its words, and its files.
fn received(mail: &str, piece: usize) -> (String, Vec<(String, Vec<u8>)>) {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("incoming");
    let mut spool = MailSpool::new(folder.clone());
    for piece in mail.as_bytes().chunks(piece) {
        spool.take(piece).expect("it is kept");
    }
    spool.end().expect("it is kept");
    let mail = heard(spool.text(), !spool.is_full()).expect("it is somebody's");
    let files = mail.files.iter().enumerate().map(|(nth, file)| {
        spool.write(file, &nth.to_string()).expect("it is written");
        (file.name.clone(), std::fs::read(folder.join(nth.to_string())).expect("it is there"))
    });
    let files = files.collect();
    spool::clear(&folder).expect("it goes");
    assert!(!folder.exists());
    (mail.text, files)
}

#[track_caller]
fn check(mail: &str, words: &str, files: &[(&str, &[u8])]) {
    for piece in [1, 77, 1 << 20] {
        let (text, found) = received(&format!("{HEAD}{mail}"), piece);
        assert_eq!(text, words);
        let found: Vec<_> = found.iter().map(|(name, content)| (name.as_str(), &content[..])).collect();
        assert_eq!(found, files);
    }
}

#[test]
fn files_are_found_as_gmail_sends_them() {
    let (pdf, csv) = (bytes(10_000), b"a;b\r\n1;2\r\n");
    let mail = format!(
        "Content-Type: multipart/mixed; boundary=\"000000000000a1b2c3060f1e2d3c\"\r\n\r\n--000000000000a1b2c3060f1e2d3c\r\n\
         Content-Type: multipart/alternative; boundary=\"000000000000a1b2c1060f1e2d3a\"\r\n\r\n--000000000000a1b2c1060f1e2d3a\r\n\
         Content-Type: text/plain; charset=\"UTF-8\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe\r\n\r\n\
         --000000000000a1b2c1060f1e2d3a\r\nContent-Type: text/html; charset=\"UTF-8\"\r\n\r\n<div dir=\"ltr\">Gr\r\n</div>\r\n\r\n\
         --000000000000a1b2c1060f1e2d3a--\r\n--000000000000a1b2c3060f1e2d3c\r\n\
         Content-Type: application/pdf; name=\"=?UTF-8?Q?Bericht_M=C3=A4rz=2Epdf?=\"\r\n\
         Content-Disposition: attachment; filename=\"=?UTF-8?Q?Bericht_M=C3=A4rz=2Epdf?=\"\r\nContent-Transfer-Encoding: base64\r\n\
         Content-ID: <f_m3x1y2z30>\r\nX-Attachment-Id: f_m3x1y2z30\r\n\r\n{}--000000000000a1b2c3060f1e2d3c\r\n\
         Content-Type: text/csv; charset=\"US-ASCII\"; name=\"a.csv\"\r\nContent-Disposition: attachment; filename=\"a.csv\"\r\n\
         Content-Transfer-Encoding: base64\r\nContent-ID: <f_m3x1y2z31>\r\nX-Attachment-Id: f_m3x1y2z31\r\n\r\n{}--000000000000a1b2c3060f1e2d3c--\r\n",
        coded(&pdf),
        coded(csv)
    );
    check(&mail, "Grüße", &[("Bericht März.pdf", &pdf), ("a.csv", csv)]);
}

#[test]
fn files_are_found_as_outlook_sends_them_with_the_picture_of_a_signature() {
    let (logo, docx, inner) =
        (bytes(300), bytes(2_000), "From: Ben <ben@example.com>\r\nSubject: Inner\r\n\r\nwords within\r\n");
    let mail = format!(
        "Content-Language: en-US\r\nX-MS-Has-Attach: yes\r\nContent-Type: multipart/mixed;\r\n\tboundary=\"_006_DB9P\"\r\n\r\n--_006_DB9P\r\n\
         Content-Type: multipart/related;\r\n\tboundary=\"_005_DB9P\";\r\n\ttype=\"multipart/alternative\"\r\n\r\n--_005_DB9P\r\n\
         Content-Type: multipart/alternative;\r\n\tboundary=\"_000_DB9P\"\r\n\r\n--_000_DB9P\r\nContent-Type: text/plain; charset=\"iso-8859-1\"\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\nSee =FCber.\r\n\r\n--_000_DB9P\r\nContent-Type: text/html; charset=\"iso-8859-1\"\r\n\r\n\
         <html><img src=\"cid:image001.png@01DB40C2.A1B2C3D0\"></html>\r\n\r\n--_000_DB9P--\r\n\r\n--_005_DB9P\r\nContent-Type: image/png; name=\"image001.png\"\r\n\
         Content-Description: image001.png\r\nContent-Disposition: inline; filename=\"image001.png\"; size=300;\r\n\tcreation-date=\"Fri, 27 Nov 2026 09:00:00 GMT\"\r\n\
         Content-ID: <image001.png@01DB40C2.A1B2C3D0>\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n--_005_DB9P--\r\n\r\n--_006_DB9P\r\n\
         Content-Type: application/vnd.openxmlformats-officedocument.wordprocessingml.document;\r\n\tname=\"=?iso-8859-1?Q?=DCber_uns.docx?=\"\r\n\
         Content-Disposition: attachment;\r\n\tfilename=\"=?iso-8859-1?Q?=DCber_uns.docx?=\"; size=2000\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n\
         --_006_DB9P\r\nContent-Type: message/rfc822\r\nContent-Disposition: attachment\r\n\r\n{inner}\r\n--_006_DB9P--\r\n",
        coded(&logo),
        coded(&docx)
    );
    check(
        &mail,
        "See über.",
        &[("image001.png", &logo), ("Über uns.docx", &docx), ("mail.eml", inner.as_bytes())],
    );
    // Whoever answers a question with it has said no more than that.
    let mail = heard(format!("{HEAD}{mail}").as_bytes(), true).expect("it is somebody's");
    assert_eq!(mail.files.iter().map(|file| file.is_shown).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn files_are_found_as_apple_mail_sends_them_between_its_words() {
    let (pdf, photo) = (bytes(700), bytes(900));
    let mail = format!(
        "Content-Type: multipart/mixed;\r\n\tboundary=\"Apple-Mail=_0A1B2C3D\"\r\nX-Mailer: Apple Mail (2.3774.600.62)\r\n\r\n\r\n--Apple-Mail=_0A1B2C3D\r\n\
         Content-Transfer-Encoding: 7bit\r\nContent-Type: text/plain;\r\n\tcharset=us-ascii\r\n\r\nbefore\r\n\r\n--Apple-Mail=_0A1B2C3D\r\n\
         Content-Disposition: inline;\r\n\tfilename*=utf-8''Gr%C3%BC%C3%9Fe.pdf\r\nContent-Type: application/pdf;\r\n\tx-unix-mode=0644;\r\n\
         \tname=\"=?utf-8?Q?Gr=C3=BC=C3=9Fe=2Epdf?=\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n--Apple-Mail=_0A1B2C3D\r\n\
         Content-Transfer-Encoding: 7bit\r\nContent-Type: text/plain;\r\n\tcharset=us-ascii\r\n\r\nbetween\r\n\r\n--Apple-Mail=_0A1B2C3D\r\n\
         Content-Type: image/jpeg;\r\n\tname=IMG_0001.jpeg;\r\n\tx-apple-part-url=A1B2\r\nContent-Disposition: inline;\r\n\tfilename=IMG_0001.jpeg\r\n\
         Content-Transfer-Encoding: base64\r\nContent-Id: <A1B2>\r\n\r\n{}\r\n--Apple-Mail=_0A1B2C3D\r\nContent-Disposition: attachment;\r\n\
         \tfilename*0=a-name-that-is-cut-since-it-is-long-;\r\n\tfilename*1=for-a-line.txt\r\nContent-Type: text/plain;\r\n\tx-unix-mode=0644;\r\n\tname=\"x.txt\"\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\n=E4 soft=\r\n break\r\n\r\n--Apple-Mail=_0A1B2C3D--\r\n",
        coded(&pdf),
        coded(&photo)
    );
    let long = "a-name-that-is-cut-since-it-is-long-for-a-line.txt";
    check(
        &mail,
        "before\n\n\nbetween",
        &[("Grüße.pdf", &pdf), ("IMG_0001.jpeg", &photo), (long, b"\xe4 soft break\r\n")],
    );
}

#[test]
fn what_proves_something_is_no_file_and_neither_is_another_form_of_the_words() {
    let key = bytes(40);
    let mail = format!(
        "Content-Type: multipart/signed; micalg=pgp-sha256; protocol=\"application/pgp-signature\"; boundary=\"s\"\r\n\r\nThis is signed.\r\n--s\r\n\
         Content-Type: multipart/mixed; boundary=\"m\"\r\n\r\n--m\r\nContent-Type: multipart/alternative; boundary=\"a\"\r\n\r\n--a\r\n\
         Content-Type: text/plain; charset=UTF-8; format=flowed\r\n\r\nsigned words\r\n--a\r\nContent-Type: text/x-amp-html\r\n\r\n<html amp4email>\r\n--a\r\n\
         Content-Type: text/html\r\n\r\n<p>signed words</p><img src=\"cid:dot\">\r\n--a--\r\n--m\r\nContent-Type: image/gif\r\nContent-ID: <dot>\r\n\
         Content-Transfer-Encoding: base64\r\n\r\nR0lGODlh\r\n--m\r\nContent-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN:VCALENDAR\r\n--m\r\n\
         Content-Type: application/pgp-keys; name=\"key.asc\"\r\nContent-Disposition: attachment; filename=\"key.asc\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}--m--\r\n--s\r\n\
         Content-Type: application/pgp-signature; name=\"OpenPGP_signature.asc\"\r\nContent-Disposition: attachment; filename=\"OpenPGP_signature.asc\"\r\n\r\n\
         -----BEGIN PGP SIGNATURE-----\r\n--s--\r\n",
        coded(&key)
    );
    check(&mail, "signed words", &[("calendar.ics", b"BEGIN:VCALENDAR"), ("key.asc", &key)]);
    let smime = "Content-Type: multipart/signed; protocol=\"application/pkcs7-signature\"; boundary=\"s\"\r\n\r\n--s\r\nContent-Type: text/plain\r\n\r\nwords\r\n\
         --s\r\nContent-Type: application/pkcs7-signature; name=\"smime.p7s\"\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--s\r\n\
         Content-Type: application/octet-stream; name=\"SMIME.P7S\"\r\n\r\nAAAA\r\n--s--\r\n";
    check(smime, "words", &[]);
}

#[test]
fn a_mail_that_is_nothing_but_a_file_is_a_message() {
    let photo = bytes(200);
    let part = format!(
        "Content-Type: image/jpeg; name=\"a.jpg\"\r\nContent-Disposition: attachment; filename=\"a.jpg\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
        coded(&photo)
    );
    check(&part, "Hello", &[("a.jpg", &photo)]);
    // Some leave out the signs that its end is short, and some give the words a name.
    check(part.trim_end_matches(['=', '\r', '\n']), "Hello", &[("a.jpg", &photo)]);
    check(
        "Content-Type: text/plain; name=\"mail.txt\"\r\nContent-Disposition: inline\r\n\r\nwords",
        "words",
        &[],
    );
    let without = format!("{HEAD}{part}").replace("Subject: Hello\r\n", "");
    assert_eq!(received(&without, 100), (String::new(), vec![("a.jpg".to_owned(), photo)]));
}

#[test]
fn whatever_a_file_is_called_it_is_one_line_that_is_not_too_long() {
    for (given, name) in [
        ("../../x", "../../x".to_owned()),
        ("/etc/passwd", "/etc/passwd".to_owned()),
        ("=?utf-8?Q?a=0D=0AX:_b=00?=", "a X: b".to_owned()),
        ("", "file".to_owned()),
        (&"x".repeat(2_000), "x".repeat(500)),
    ] {
        let mail = format!(
            "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee\r\n--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=\"{given}\"\r\n\r\nx\r\n--b--\r\n"
        );
        check(&mail, "see", &[(&name, b"x")]);
    }
}

#[test]
fn so_many_files_come_with_a_mail_and_the_others_are_named() {
    let part = |nth: usize| format!("--b\r\nContent-Type: application/x; name=\"f{nth}\"\r\n\r\n{nth}\r\n");
    let mail = |count: usize| {
        let parts: String = (0..count).map(part).collect();
        format!("{HEAD}Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee\r\n{parts}--b--\r\n")
    };
    assert_eq!(received(&mail(MOST_FILES), 1 << 20).0, "see");
    let (text, files) = received(&mail(MOST_FILES + 1), 1 << 20);
    assert_eq!(files.len(), MOST_FILES);
    assert_eq!(
        text,
        "see\n\n[Of the files of this mail these were not taken, since a message has at most 10: \"f10\"]"
    );
    let text = received(&mail(3_000), 1 << 20).0;
    assert!(text.ends_with("\"f18\", \"f19\", 2980 more]") && text.len() < 500, "{text}");
}

#[test]
fn a_mail_that_is_cut_has_no_file_whose_end_is_missing() {
    let whole = bytes(5_000);
    let part = |name: &str| {
        let head = format!(
            "--b\r\nContent-Type: application/x; name=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        );
        head + &coded(&whole)
    };
    let mail = format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee\r\n{}{}--b--\r\n",
        part("one"),
        part("two")
    );
    let cut = heard(&mail.as_bytes()[..mail.len() - 3_000], false).expect("it is somebody's");
    assert_eq!(cut.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["one"]);
    assert!(
        cut.text.contains("\"two\", and was not taken: its end is missing]")
            && cut.text.contains("too large to be read whole"),
        "{}",
        cut.text
    );
    // A program that forgets the last boundary sends it whole all the same.
    let open = mail.strip_suffix("--b--\r\n").expect("its end");
    let (_, files) = received(open, 1 << 20);
    assert_eq!(files, [("one".to_owned(), whole.clone()), ("two".to_owned(), whole)]);
}

#[test]
fn large_files_lie_on_the_disk_and_what_is_read_stays_small() {
    let (one, two, table) = (bytes(57 * 50_000), bytes(2_500_000), "0123456789abcdef".repeat(4) + "\r\n");
    let table = table.repeat(5_000);
    let mail = format!(
        "{HEAD}Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee\r\n--b\r\nContent-Type: application/x; name=\"one\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\
         --b\r\nContent-Type: text/plain; name=\"table\"\r\nContent-Disposition: attachment\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{table}\r\n--b\r\n\
         Content-Type: message/rfc822\r\n\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/x; name=\"two\"\r\nContent-Transfer-Encoding: BASE64\r\n\r\n{}--c--\r\n--b--\r\n",
        coded(&one),
        coded(&two)
    );
    let mut spool = MailSpool::new(tempfile::tempdir().expect("a folder").path().join("in"));
    spool.take(mail.as_bytes()).expect("it is kept");
    assert!(spool.text().len() < 450_000, "{}", spool.text().len());
    for piece in [5_003, 1 << 20] {
        let (text, files) = received(&mail, piece);
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((text.as_str(), &names[..]), ("see", &["one", "table", "mail.eml"][..]));
        assert!(files[0].1 == one && files[1].1 == table.as_bytes());
        let within = MessageParser::default().parse(&files[2].1).expect("a mail");
        let part = within.attachments().next().expect("a file");
        assert!(part.attachment_name() == Some("two") && part.contents() == two);
    }
    // A text of that length is read as far as it is handed on.
    let text = coded("many words ".repeat(50_000).as_bytes());
    let (text, _) = received(
        &format!("{HEAD}Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\n{text}"),
        1 << 20,
    );
    assert!(text.starts_with(&"many words ".repeat(5_900)), "{}", text.len());
}

#[test]
fn more_words_than_there_is_room_for_are_left_out_and_it_says_so() {
    let mut spool = MailSpool::new(tempfile::tempdir().expect("a folder").path().join("in"));
    for _ in 0..300 {
        spool.take(&b"no base64, so it stays\r\n".repeat(1_000)).expect("it is kept");
    }
    assert!(spool.is_full() && spool.text().len() <= 4 << 20, "{}", spool.text().len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn whatever_comes_in_whatever_pieces_is_all_there(
        runs in prop::collection::vec((0_usize..4_000, 58_usize..80, ".{0,90}"), 1..6), piece in 1_usize..50_000
    ) {
        let lines = runs.iter().map(|(count, length, text)| format!("{}\r\n", "A".repeat(*length)).repeat(*count) + text + "\n");
        let content: String = lines.collect();
        let root = tempfile::tempdir().expect("a folder");
        let mut spool = MailSpool::new(root.path().to_owned());
        for piece in content.as_bytes().chunks(piece) {
            spool.take(piece).expect("it is kept");
        }
        spool.end().expect("it is kept");
        let file = crate::files::MailFile { name: String::new(), body: 0..spool.text().len(), coding: crate::files::Coding::Plain, is_shown: false };
        spool.write(&file, "all").expect("it is written");
        prop_assert!(std::fs::read(root.path().join("all")).expect("it is there") == content.as_bytes());
    }
}

fn with_file(id: &str, content: &[u8]) -> Vec<u8> {
    let head = HEAD.replace("<1@x>", &format!("<{id}@x>"));
    format!(
        "{head}Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee\r\n--b\r\nContent-Type: application/x; name=\"a.bin\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}--b--\r\n",
        coded(content)
    )
    .into_bytes()
}

#[tokio::test]
async fn a_large_mail_is_read_in_pieces_and_its_file_is_named_where_it_lies() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("incoming")).expect("a folder");
    std::fs::write(folder.path().join("incoming/7"), "left").expect("a file");
    let harness =
        setup(&mailbox, &letterbox, json!({})).data_folder(folder.path()).start().await.expect("it starts");
    assert!(!folder.path().join("incoming").exists(), "what was left is gone");
    let beside = async {
        until("it reads", &harness, || logged(&harness, "reads `INBOX`")).await;
        mailbox.put(1, with_file("one", &bytes(3_000_000)));
        until("it is marked", &harness, || mailbox.marks(1) == "\\Seen").await;
        let submit = harness.host().submitted().remove(0);
        let file = InboundFile { name: "a.bin".into(), source: FileSource::DataFile("incoming/0".into()) };
        assert_eq!((submit.text.as_str(), &submit.files[..]), ("see", &[file][..]));
        let asked = || mailbox.commands().iter().filter(|command| command.starts_with("UID FETCH")).count();
        assert_eq!(asked(), 4);
        assert!(!folder.path().join("incoming").exists(), "what the daemon has is gone");
        // Of somebody who is not known no more than the beginning is asked for.
        let text = "say the code ABC".to_owned();
        harness.host().answer_admission(Admission::Waiting {
            code: "ABC".into(),
            expires: jiff::Timestamp::UNIX_EPOCH,
            text,
        });
        mailbox.put(2, with_file("two", &bytes(3_000_000)));
        until("they are told", &harness, || {
            letterbox.mails().iter().any(|mail| mail.contains("the code ABC"))
        })
        .await;
        until("it waits", &harness, || mailbox.commands().last().is_some_and(|command| command == "IDLE"))
            .await;
        assert_eq!((asked(), harness.host().submitted().len(), mailbox.marks(2).as_str()), (5, 1, ""));
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_mail_is_not_given_up_since_the_disk_has_no_room() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    let beside = async {
        until("it reads", &harness, || logged(&harness, "reads `INBOX`")).await;
        // Where a folder should be made there is none to make.
        let place = harness.data_folder().join("incoming");
        std::fs::write(&place, "in the way").expect("a file");
        harness.host().hold_clock();
        mailbox.put(1, with_file("one", &bytes(1_000)));
        until("it is tried often", &harness, || {
            harness.host().advance(std::time::Duration::from_secs(300));
            mailbox.commands().iter().filter(|command| command.starts_with("UID FETCH 1 ")).count() > 8
        })
        .await;
        assert_eq!((harness.host().submitted().len(), mailbox.marks(1).as_str()), (0, ""));
        std::fs::remove_file(place).expect("it goes");
        until("it is handed in", &harness, || {
            harness.host().advance(std::time::Duration::from_secs(300));
            mailbox.marks(1) == "\\Seen"
        })
        .await;
        assert_eq!(harness.host().submitted()[0].files.len(), 1);
    };
    run_beside(&harness, beside).await;
}

#[tokio::test]
async fn a_picture_below_a_signature_is_no_message_beside_an_answer_to_a_question() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    let text = "`allow e1` or `deny e1`";
    let question = OutboundMessage { kind: OutboundKind::Notice, ..outgoing("e1", text) };
    let asked = harness.channel_send(question).await.expect("it is asked").remote_id.expect("an id");
    let answer = |id: &str, shown: &str| {
        let head = HEAD.replace("<1@x>", &format!("<{id}@x>"));
        format!(
            "{head}In-Reply-To: {asked}\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\n\r\nAllow\r\n--b\r\nContent-Type: image/png; name=\"logo.png\"\r\n{shown}\r\n\r\nx\r\n--b--\r\n"
        )
        .into_bytes()
    };
    let beside = async {
        until("it reads", &harness, || logged(&harness, "reads `INBOX`")).await;
        mailbox.put(1, answer("one", "Content-ID: <logo>"));
        mailbox.put(2, answer("two", "Content-Disposition: attachment"));
        until("both are marked", &harness, || mailbox.marks(2) == "\\Seen").await;
        let submitted = harness.host().submitted();
        let said: Vec<_> = submitted.iter().map(|one| (one.text.as_str(), one.files.len())).collect();
        assert_eq!(said, [("allow e1", 0), ("allow e1", 0), ("", 1)]);
    };
    run_beside(&harness, beside).await;
}

/// A file that goes out, as the daemon gives it.
async fn send_file(
    harness: &Harness<Email>,
    name: &str,
    content: &[u8],
    text: &str,
) -> Result<Delivery, Fault> {
    std::fs::write(harness.data_folder().join("given"), content).expect("a file");
    let file = OutboundFile {
        name: name.to_owned(),
        bytes: content.len() as u64,
        sha256: crate::digest::hash(content),
        media_type: "application/pdf".to_owned(),
        data_file: Some("given".to_owned()),
    };
    let message = OutboundMessage { kind: OutboundKind::File, file: Some(file), ..outgoing("file:1", text) };
    harness.channel_send(message).await
}

#[tokio::test]
async fn a_file_goes_out_byte_for_byte_beside_its_words() {
    let mailbox = Mailbox::start(None).await;
    let letterbox = Letterbox::start(None, false).await;
    let harness = setup(&mailbox, &letterbox, json!({})).start().await.expect("it starts");
    for (name, read, size, text) in [
        ("report.pdf", "report.pdf", 200_000, "the report (file) you wanted"),
        (
            "Bericht \"März\"\r\nBcc: eve@evil.example.pdf",
            "Bericht \"März\" Bcc: eve@evil.example.pdf",
            1,
            "",
        ),
        (&("ä".repeat(60) + ".pdf"), &("ä".repeat(60) + ".pdf"), 57 * 1024, "ü\n.\n(file)"),
    ] {
        let content = bytes(size);
        send_file(&harness, name, &content, text).await.expect("it is sent");
        let sent = letterbox.mails().pop().expect("a mail");
        assert!(sent.lines().all(|line| line.len() < 998 && !line.starts_with("Bcc")), "{name}");
        let mail = MessageParser::default().parse(sent.as_bytes()).expect("a mail");
        assert!(mail.is_content_type("multipart", "mixed") && sent.contains("In-Reply-To: <1@x>"));
        let file = mail.attachments().next().expect("a file");
        assert_eq!((file.attachment_name(), mail.attachment_count()), (Some(read), 1));
        assert!(file.contents() == content, "{name}");
        assert_eq!(mail.body_text(0).unwrap_or_default().replace("\r\n", "\n").trim_end(), text);
    }
    // What became of one with a file is told like of others.
    for (trouble, code) in [
        (Trouble::Says("RCPT", "451 later"), FaultCode::Busy),
        (Trouble::Says(".", "552 5.3.4 too big"), FaultCode::Denied),
        (Trouble::Cut("."), FaultCode::OutcomeUnknown),
    ] {
        letterbox.trouble(trouble);
        assert_eq!(send_file(&harness, "a", b"x", "").await.expect_err("not sent").code, code, "{trouble:?}");
    }
    let before = letterbox.mails().len();
    let fault = send_file(&harness, "a", &vec![0; 18_000_001], "").await.expect_err("not sent");
    assert_eq!(
        (fault.code, fault.message.as_str()),
        (FaultCode::Denied, "it has 19 MB, and a mail takes 18 MB at most")
    );
    // Neither goes one that is not there, or that another message is given by now.
    std::fs::write(harness.data_folder().join("other"), "y").expect("a file");
    for data_file in ["nothing", "other"] {
        let file = OutboundFile {
            name: "a".into(),
            bytes: 1,
            sha256: crate::digest::hash(b"x"),
            media_type: "x".into(),
            data_file: Some(data_file.into()),
        };
        let message =
            OutboundMessage { kind: OutboundKind::File, file: Some(file), ..outgoing("file:2", "") };
        let fault = harness.channel_send(message).await.expect_err("not sent");
        assert_eq!(fault.code, FaultCode::Unavailable, "{data_file}: {fault}");
    }
    assert_eq!(letterbox.mails().len(), before);
}
