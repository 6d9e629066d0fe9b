//! Copies of files that go out, on a real file system.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::symlink,
};

use drupe_attachments::{LARGEST_SENT, LENT, MOST_WAITING, OutgoingFiles};
use drupe_extension_api::{Fault, FaultCode, wire::OutboundFile};

struct Scene {
    root: tempfile::TempDir,
    outgoing: OutgoingFiles,
}

fn scene() -> Scene {
    let root = tempfile::tempdir().expect("a folder");
    fs::create_dir(root.path().join("workspace")).expect("a folder");
    let outgoing = OutgoingFiles::new(root.path().join("outgoing"));
    Scene { root, outgoing }
}

impl Scene {
    fn write(&self, path: &str, content: &[u8]) {
        fs::write(self.root.path().join("workspace").join(path), content).expect("it is written");
    }

    fn keep(&self, path: &str, key: &str) -> Result<OutboundFile, Fault> {
        self.outgoing.keep(&self.root.path().join("workspace"), path, key)
    }

    fn kept(&self, key: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        self.outgoing.open(key).ok()?.read_to_end(&mut content).expect("it is read");
        Some(content)
    }
}

#[test]
fn what_is_sent_is_what_there_was_when_it_was_kept() {
    let scene = scene();
    scene.write("a.pdf", b"%PDF-1.7 first");
    let kept = scene.keep("a.pdf", "one").expect("it is kept");
    assert_eq!((kept.name.as_str(), kept.bytes, kept.media_type.as_str()), ("a.pdf", 14, "application/pdf"));
    // As `sha256sum` has it.
    assert_eq!(kept.sha256, "4916bb68e172d60c02899fb39b71b4f0fec1dc813dca22d4d364d4353365ca86");
    scene.write("a.pdf", b"%PDF-1.7 later");
    assert_eq!(scene.kept("one").as_deref(), Some(&b"%PDF-1.7 first"[..]));
    let later = scene.keep("./a.pdf", "two").expect("it is kept");
    assert_ne!(later.sha256, kept.sha256);
    scene.outgoing.sweep(["two"].into_iter());
    assert_eq!((scene.kept("one"), scene.kept("two").is_some()), (None, true));
    scene.outgoing.sweep([].into_iter());
    assert_eq!(scene.kept("two"), None);
}

#[test]
fn nothing_but_a_file_of_the_workspace_goes_out() {
    let scene = scene();
    fs::write(scene.root.path().join("secret"), "secret").expect("it is written");
    symlink("../secret", scene.root.path().join("workspace/link")).expect("a link");
    symlink("..", scene.root.path().join("workspace/up")).expect("a link");
    fs::create_dir(scene.root.path().join("workspace/folder")).expect("a folder");
    for path in ["../secret", "/etc/passwd", "link", "up/secret", "folder", "nothing", "", "a\0b"] {
        let fault = scene.keep(path, "k").expect_err("it is no file of the workspace");
        assert_eq!(fault.code, FaultCode::NotFound, "{path}");
    }
    scene.write("empty", b"");
    let refused = |path: &str| scene.keep(path, "k").expect_err("it is not sent").message;
    assert_eq!(refused("empty"), "`empty` is not sent: it is empty");
    let large = fs::File::create(scene.root.path().join("workspace/large")).expect("a file");
    large.set_len(LARGEST_SENT).expect("it has that length");
    scene.keep("large", "large").expect("it is kept");
    (&large).write_all(b"x").expect("it is written");
    large.set_len(LARGEST_SENT + 1).expect("it has that length");
    assert_eq!(refused("large"), "`large` is not sent: it has more than 50 MB, the most that is sent");
    assert_eq!(scene.kept("k"), None);
    assert_eq!(fs::read_dir(scene.root.path().join("outgoing")).expect("it is there").count(), 1);
}

#[test]
fn so_many_wait_and_one_that_waits_is_kept_anew() {
    let scene = scene();
    scene.write("a", b"a");
    for n in 0..MOST_WAITING {
        scene.keep("a", &n.to_string()).expect("it is kept");
    }
    assert_eq!(scene.keep("a", "more").expect_err("too many wait").code, FaultCode::Busy);
    scene.keep("a", "0").expect("it is there already");
}

#[test]
fn a_channel_has_a_copy_as_long_as_it_sends_and_changes_nothing_of_what_is_kept() {
    let scene = scene();
    let data = scene.root.path().join("mail");
    fs::create_dir(&data).expect("a folder");
    scene.write("a", b"words");
    scene.keep("a", "k").expect("it is kept");
    let lent = scene.outgoing.lend("k", "mail").expect("it is lent");
    assert_eq!(fs::read(data.join(LENT)).expect("it is there"), b"words");
    fs::write(data.join(LENT), b"other").expect("it is its own");
    assert_eq!(scene.kept("k").as_deref(), Some(&b"words"[..]));
    drop(lent);
    assert!(!data.join(LENT).exists());
    // What lies in its place is no way to a file elsewhere.
    fs::write(scene.root.path().join("other"), b"kept").expect("a file");
    symlink("../other", data.join(LENT)).expect("a link");
    let lent = scene.outgoing.lend("k", "mail").expect("it is lent");
    assert_eq!(fs::read(data.join(LENT)).expect("it is there"), b"words");
    assert_eq!(fs::read(scene.root.path().join("other")).expect("it is there"), b"kept");
    // One that a process left is taken back, or goes when the next is lent.
    std::mem::forget(lent);
    drop(scene.outgoing.lend("k", "mail").expect("it is lent"));
    assert!(!data.join(LENT).exists());
    std::mem::forget(scene.outgoing.lend("k", "mail").expect("it is lent"));
    scene.outgoing.take_back();
    assert!(!data.join(LENT).exists() && scene.kept("k").is_some());
    fs::create_dir(data.join(LENT)).expect("a folder");
    assert!(scene.outgoing.lend("k", "mail").is_err(), "nobody but the channel is hurt by that");
    assert!(scene.outgoing.lend("nothing", "mail").is_err());
}
