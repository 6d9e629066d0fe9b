//! Files that come with mails and go out with them: byte for byte, once, and with the truth about what became of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{
    ADA, BEN, BOTH, PASSWORD, PLUM, Scene,
    aiosmtpd::Aiosmtpd,
    dovecot::Dovecot,
    relay::{SentMail, Trouble},
};
use crate::{
    chat::{Gate, sending},
    harness::{model_server::latest, until},
};

/// Bytes that no coding leaves as they are.
fn bytes(count: u32) -> Vec<u8> {
    (0..count).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What stands in a mail with these files, below its head: that of a program that writes them as all do.
fn attached(words: &str, files: &[(&str, &[u8])]) -> (String, String) {
    let mut body = format!("--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{words}\r\n");
    for (name, content) in files {
        let text = STANDARD.encode(content);
        let lines: String = text
            .as_bytes()
            .chunks(76)
            .map(|line| String::from_utf8_lossy(line).into_owned() + "\r\n")
            .collect();
        body += &format!(
            "--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment;\r\n filename*=utf-8''{name}\r\nContent-Transfer-Encoding: base64\r\n\r\n{lines}"
        );
    }
    ("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n".to_owned(), body + "--b--")
}

impl Scene {
    fn writes_with(&self, from: &str, words: &str, files: &[(&str, &[u8])]) {
        let (head, body) = attached(words, files);
        self.writes(from, "Files", &head, &body);
    }

    /// The files of the workspace's inbox, by their names there.
    fn inbox(&self) -> Vec<PathBuf> {
        fn below(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => below(&path, found),
                    path => found.push(path),
                }
            }
        }
        let mut found = Vec::new();
        below(&self.daemon.path().join("workspace/inbox"), &mut found);
        found.sort();
        found
    }

    fn own(&self, path: &str) -> PathBuf {
        self.daemon.path().join("data/email").join(path)
    }

    fn sends(&self, path: &str, content: &[u8]) {
        fs::write(self.daemon.path().join("workspace").join(path), content).expect("it is written");
        let call = json!({"path": path, "text": "as you wished"});
        self.writes(ADA, "Send it", "", &format!("files_send {call}"));
    }

    fn files_sent(&self) -> Vec<(String, Vec<u8>)> {
        self.relay.mails().iter().filter_map(SentMail::file).collect()
    }

    fn until_file_sent(&self) -> SentMail {
        let sent = || self.relay.mails().into_iter().find(|mail| mail.file().is_some());
        until("a file is sent", sent)
            .unwrap_or_else(|| panic!("{:?}\n{}", self.relay.mails(), self.daemon.log()))
    }

    /// Neither the daemon nor the extension has anything left of what went out or came in.
    fn until_nothing_is_left(&self) {
        let none = || {
            let waits = fs::read_dir(self.daemon.path().join("data/.outgoing")).map_or(0, Iterator::count);
            (waits == 0 && !self.own(".outgoing").exists() && !self.own("incoming").exists()).then_some(())
        };
        assert!(until("nothing is left", none).is_some(), "{}", self.daemon.log());
    }
}

#[test]
fn files_of_a_mail_are_in_the_workspace_byte_for_byte() {
    let Some(scene) = Scene::new(BOTH, "", sending) else { return };
    let large = bytes(3_000_000);
    scene.writes_with(
        ADA,
        "look",
        &[("notes.txt", b"the words of a note"), ("..%2F..%2FBericht%20M%C3%A4rz.bin", &large)],
    );
    let answer = scene.until_sent("done: the words of a note");
    assert_eq!(answer.to, ADA);
    let asked = scene.server.requests().iter().map(|request| latest(request).1).collect::<Vec<_>>();
    let told = asked.iter().find(|text| text.starts_with("look")).expect("the words are there");
    assert!(
        told.contains("-notes.txt` of the workspace, a text, 19 bytes]") && told.contains("3000000 bytes]"),
        "{told}"
    );
    let found = scene.inbox();
    let named = |end: &str| found.iter().find(|path| path.display().to_string().ends_with(end));
    assert!(
        fs::read(named("-Bericht März.bin").expect("it is there")).expect("it is read") == large,
        "{found:?}"
    );
    assert_eq!(found.len(), 2);
    // One that is nothing but a file is a message as well, and what is too large is told.
    scene.writes_with(BEN, "", &[("alone.txt", b"nothing but this")]);
    scene.until_sent("done: nothing but this");
    scene.writes_with(BEN, "much", &[("20%20MB.bin", &bytes(20_000_001))]);
    scene.until_sent("`20 MB.bin`, and was not taken: it has more than 20 MB");
    // Of those who are not known nothing is kept.
    scene.writes_with("eve@evil.example", "take it", &[("evil.txt", b"evil"), ("more.bin", &large)]);
    scene.settle(ADA);
    assert_eq!(scene.inbox().len(), 3, "{:?}", scene.inbox());
    scene.until_nothing_is_left();
}

#[test]
fn a_mail_with_a_file_is_one_turn_and_one_file_over_a_kernel_that_dies() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new(BOTH, "", move |request| {
        if latest(request).1.starts_with("slow") {
            held.wait();
        }
        sending(request)
    });
    let Some(scene) = scene else { return };
    scene.writes_with(ADA, "slow", &[("a.txt", b"after all")]);
    until("the model is asked", || (!scene.server.requests().is_empty()).then_some(()));
    // As a process leaves them that ends in the middle.
    fs::create_dir_all(scene.own("incoming")).expect("a folder");
    for left in [".outgoing", "incoming/0"] {
        fs::write(scene.own(left), "left").expect("a file");
    }
    scene.daemon.kill_kernel();
    gate.open();
    scene.until_sent("done: after all");
    scene.settle(ADA);
    assert_eq!((scene.count("done: after all"), scene.inbox().len()), (1, 1), "{:?}", scene.inbox());
    scene.until_nothing_is_left();
}

#[test]
fn an_agent_sends_a_file_and_whoever_wrote_gets_its_bytes() {
    let Some(scene) = Scene::new(BOTH, "", sending) else { return };
    let content = bytes(1_000_000);
    scene.sends("Bericht März.bin", &content);
    scene.until_sent("(1000000 bytes) is on its way through `email` as a file");
    let sent = scene.until_file_sent();
    assert_eq!((sent.to.as_str(), sent.header("subject").as_str()), (ADA, "Re: Send it"));
    assert!(sent.header("in-reply-to").ends_with("@mail.example>") && sent.text().contains("as you wished"));
    let (name, got) = sent.file().expect("a file");
    assert!(got == content && name.contains("Bericht%20M%C3%A4rz.bin"), "{name}");
    scene.until_nothing_is_left();
    // What no mail takes is told where it is awaited.
    scene.sends("large.bin", &vec![b'x'; 18_000_001]);
    scene.until_sent("the file `large.bin` could not be sent: it has 19 MB, and a mail takes 18 MB at most");
    scene.until_nothing_is_left();
    assert_eq!(scene.files_sent().len(), 1);
}

#[test]
fn a_file_is_sent_once_over_a_kernel_that_dies() {
    let Some(scene) = Scene::new(BOTH, "", sending) else { return };
    // What is not taken now is sent as it was by the kernel that goes on.
    scene.relay.trouble_files(&[Trouble::LaterBehind]);
    scene.sends("a.txt", b"as it was");
    scene.until_logged("no room at the moment");
    scene.settle(BEN);
    fs::write(scene.daemon.path().join("workspace/a.txt"), "as it is by now").expect("a file");
    scene.daemon.kill_kernel();
    assert_eq!(scene.until_file_sent().file().expect("a file").1, b"as it was");
    scene.until_nothing_is_left();
    // What may have gone out is told, and never sent again.
    scene.relay.trouble_files(&[Trouble::TakenAndCut]);
    scene.sends("b.txt", b"once");
    let doubted = || scene.files_sent().iter().any(|(_, content)| content == b"once").then_some(());
    assert!(until("it went out", doubted).is_some(), "{}", scene.daemon.log());
    scene.until_logged("nobody knows whether a message arrived");
    scene.until_nothing_is_left();
    scene.daemon.kill_kernel();
    scene.settle(ADA);
    let sent: Vec<_> = scene.files_sent().into_iter().map(|(_, content)| content).collect();
    assert_eq!(sent, [&b"as it was"[..], b"once"]);
}

#[test]
fn a_server_that_is_not_ours_takes_a_file() {
    let Some(server) = Aiosmtpd::start() else { return };
    let Some(mailbox) = Dovecot::start(PLUM, PASSWORD) else { return };
    let scene = Scene::sending(mailbox, Some(server.address.clone()), BOTH, "", sending);
    let content = bytes(2_000_000);
    scene.sends("a.bin", &content);
    let sent = || server.mails().iter().find_map(SentMail::file);
    let (name, got) = until("it is taken", sent).unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    assert!(got == content && name == "filename=\"a.bin\"", "{name}");
}
