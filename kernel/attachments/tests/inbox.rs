//! Files of strangers on a real file system.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use drupe_attachments::{
    FileKind, InboxFile, LARGEST_RECEIVED, OF_ALL, OF_CONVERSATION, OF_WRITER, Receiving, WorkspaceInbox,
};
use drupe_extension_api::{FaultCode, SessionId};
use jiff::{SignedDuration, Timestamp};

fn session() -> SessionId {
    "telegram:person.7".parse().expect("an id")
}

fn begin(workspace: &Path, message: &str, name: &str) -> Result<Receiving, InboxFile> {
    match WorkspaceInbox::new(workspace).begin(&session(), message, 0, name) {
        Ok(Err(receiving)) => Ok(receiving),
        Ok(Ok(there)) => Err(there),
        Err(error) => panic!("{error:?}"),
    }
}

fn take(workspace: &Path, message: &str, name: &str, content: &[u8]) -> InboxFile {
    match begin(workspace, message, name) {
        Ok(mut receiving) => {
            receiving.write(content).expect("it is written");
            receiving.finish().expect("it is kept")
        }
        Err(there) => there,
    }
}

fn names(workspace: &Path) -> Vec<String> {
    let folder = workspace.join("inbox/telegram+person.7");
    let found = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry").file_name());
    found.map(|name| name.into_string().expect("a name")).collect()
}

#[test]
fn a_file_is_there_whole_under_a_name_of_its_message_and_once() {
    let workspace = tempfile::tempdir().expect("a folder");
    let workspace = workspace.path();
    let kept = take(workspace, "1", "../../x", b"words of a stranger");
    assert!(kept.path.starts_with("inbox/telegram+person.7/") && kept.path.ends_with("-x"), "{kept:?}");
    assert_eq!((kept.bytes, kept.kind), (19, FileKind::Text));
    let path = workspace.join(&kept.path);
    assert_eq!(fs::read(&path).expect("it is there"), b"words of a stranger");
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(rustix::fs::lgetxattr_query(&path, "user.drupe.strangers").is_ok(), "it bears the mark");
    // The same message once more, and one that is another.
    assert_eq!(begin(workspace, "1", "../../x").err(), Some(kept.clone()));
    let other = take(workspace, "2", "x", b"other");
    assert_ne!(other.path, kept.path);
    assert_eq!(names(workspace).len(), 2);
}

#[test]
fn the_same_message_twice_at_once_is_one_file_that_is_not_written_over() {
    let workspace = tempfile::tempdir().expect("a folder");
    let workspace = workspace.path();
    let (mut one, mut two) = (begin(workspace, "1", "a").ok(), begin(workspace, "1", "a").ok());
    for (receiving, content) in [(&mut one, b"first"), (&mut two, b"later")] {
        receiving.as_mut().expect("it begins").write(content).expect("it is written");
    }
    let first = one.expect("it begins").finish().expect("it is kept");
    two.expect("it begins").finish().expect("it is kept");
    assert_eq!(fs::read(workspace.join(&first.path)).expect("it is there"), b"first");
    assert_eq!(names(workspace).len(), 1);
}

#[test]
fn what_does_not_come_whole_leaves_nothing() {
    let workspace = tempfile::tempdir().expect("a folder");
    let workspace = workspace.path();
    let mut receiving = begin(workspace, "1", "a").expect("it begins");
    receiving.write(b"half").expect("it is written");
    assert_eq!(names(workspace).len(), 1);
    drop(receiving);
    assert!(names(workspace).is_empty());
    // One that a process left which ended.
    std::mem::forget(begin(workspace, "1", "a").ok());
    take(workspace, "2", "b", b"whole");
    WorkspaceInbox::new(workspace).sweep();
    assert_eq!(names(workspace).len(), 1, "{:?}", names(workspace));
}

#[test]
fn what_is_too_large_or_too_much_is_refused() {
    let workspace = tempfile::tempdir().expect("a folder");
    let workspace = workspace.path();
    let mut receiving = begin(workspace, "1", "a").expect("it begins");
    let most = vec![0; usize::try_from(LARGEST_RECEIVED).expect("it fits")];
    receiving.write(&most).expect("it fits");
    let refused = receiving.write(b"x").expect_err("it is too large");
    assert_eq!((refused.code, refused.message.contains("20 MB")), (FaultCode::Invalid, true));
}

/// Why nothing more is taken in for a conversation; none where it is.
fn full(workspace: &Path, session: &str) -> Option<String> {
    let session = session.parse().expect("an id");
    let begun = WorkspaceInbox::new(workspace).begin(&session, "new", 0, "a");
    let fault = begun.err()?;
    assert_eq!(fault.code, FaultCode::Invalid);
    Some(fault.message)
}

fn fill(workspace: &Path, folder: &str, files: usize) {
    let folder = workspace.join("inbox").join(folder);
    fs::create_dir_all(&folder).expect("a folder");
    (0..files).for_each(|file| fs::write(folder.join(file.to_string()), "").expect("it is written"));
}

#[test]
fn a_conversation_a_person_and_all_together_have_so_many_files_and_bytes() {
    let workspace = tempfile::tempdir().expect("a folder");
    let workspace = workspace.path();
    let says = |session: &str, what: &str| {
        let said = full(workspace, session).expect("it is full");
        assert!(said.contains(what), "{said}");
    };
    fill(workspace, "telegram+person.7", OF_CONVERSATION.0);
    says("telegram:person.7", "of this conversation at most 500 files of 1000 MB");
    // Whoever begins anew has another conversation, and the same room.
    assert_eq!(full(workspace, "telegram:person.7:x"), None);
    fill(workspace, "telegram+person.7+1", OF_CONVERSATION.0 - 1);
    assert_eq!(full(workspace, "telegram:person.7:x"), None);
    fill(workspace, "telegram+person.7+2", OF_WRITER.0 - 2 * OF_CONVERSATION.0 + 1);
    says("telegram:person.7:x", "of all conversations with whoever writes here at most 1000 files");
    for other in ["telegram:person.77", "slack:person.7", "telegram:group.7"] {
        assert_eq!(full(workspace, other), None, "{other}");
    }
    for other in 0..(OF_ALL.0 - OF_WRITER.0) / OF_CONVERSATION.0 {
        fill(workspace, &format!("telegram+group.{other}"), OF_CONVERSATION.0);
    }
    says("slack:person.7", "of all conversations at most 10000 files of 20000 MB");
    fs::remove_dir_all(workspace.join("inbox")).expect("it goes");
    // Nothing is written of these: a file may be long and take no room.
    let sparse = |session: &str, bytes| {
        fill(workspace, session, 1);
        let file = fs::File::create(workspace.join("inbox").join(session).join("0")).expect("a file");
        file.set_len(bytes).expect("it has that length");
    };
    sparse("telegram+person.7", OF_CONVERSATION.1);
    says("telegram:person.7", "of this conversation");
    sparse("telegram+person.7+1", OF_WRITER.1 - OF_CONVERSATION.1);
    says("telegram:person.7:x", "whoever writes here");
    sparse("telegram+person.8", OF_ALL.1);
    says("slack:person.7", "of all conversations at most");
}

#[test]
fn what_somebody_made_of_the_folders_is_refused_and_no_link_leads_out_of_the_workspace() {
    let (workspace, elsewhere) =
        (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let workspace = workspace.path();
    let says = |what: &str| {
        let said = full(workspace, "telegram:person.7").expect("it is refused");
        assert!(said.contains("`inbox` of the workspace cannot be used"), "{what}: {said}");
    };
    symlink(elsewhere.path(), workspace.join("inbox")).expect("a link");
    says("a link in place of the inbox");
    fs::remove_file(workspace.join("inbox")).expect("it goes");
    fs::write(workspace.join("inbox"), "").expect("it is written");
    says("a file in its place");
    fs::remove_file(workspace.join("inbox")).expect("it goes");
    fs::create_dir(workspace.join("inbox")).expect("a folder");
    symlink(elsewhere.path(), workspace.join("inbox/telegram+person.7")).expect("a link");
    says("a link in place of a conversation");
    assert_eq!(fs::read_dir(elsewhere.path()).expect("it is there").count(), 0, "nothing was written there");
    fs::remove_file(workspace.join("inbox/telegram+person.7")).expect("it goes");
    // A folder in place of a file is none that came, and holds nobody's messages up.
    let kept = take(workspace, "new", "a", b"came");
    fs::remove_file(workspace.join(&kept.path)).expect("it goes");
    fs::create_dir(workspace.join(&kept.path)).expect("a folder");
    says("a folder in place of a file");
}

#[test]
fn what_is_old_goes_and_what_belongs_to_a_conversation_goes_with_it() {
    let workspace = tempfile::tempdir().expect("a folder");
    let (workspace, inbox) = (workspace.path(), WorkspaceInbox::new(workspace.path()));
    let (old, new) = (take(workspace, "1", "old", b"old"), take(workspace, "2", "new", b"new"));
    let file = fs::File::options().write(true).open(workspace.join(&old.path)).expect("it is there");
    file.set_modified(SystemTime::now() - Duration::from_secs(100)).expect("it is old");
    fs::write(workspace.join("mine.txt"), "mine").expect("it is written");
    symlink("../../mine.txt", workspace.join("inbox/telegram+person.7/link")).expect("a link");
    inbox.let_go(Timestamp::now() - SignedDuration::from_secs(50));
    assert!(!workspace.join(&old.path).exists() && workspace.join(&new.path).exists());
    inbox.forget(&"telegram:person.8".parse().expect("an id"));
    assert!(workspace.join(&new.path).exists());
    inbox.forget(&session());
    assert!(!workspace.join(&new.path).exists() && workspace.join("mine.txt").exists());
    fs::remove_file(workspace.join("inbox/telegram+person.7/link")).expect("it stays");
    inbox.sweep();
    assert!(!workspace.join("inbox/telegram+person.7").exists());
}

#[test]
fn what_a_channel_has_is_copied_from_its_folder_and_from_nowhere_else() {
    let root = tempfile::tempdir().expect("a folder");
    let (workspace, data) = (root.path().join("workspace"), root.path().join("data"));
    for folder in [&workspace, &data, &data.join("in"), &data.join("folder")] {
        fs::create_dir(folder).expect("a folder");
    }
    fs::write(data.join("in/0"), b"%PDF-1.7 words").expect("a file");
    fs::write(root.path().join("secret"), "secret").expect("a file");
    symlink("in/0", data.join("link")).expect("a link");
    symlink("../secret", data.join("out")).expect("a link");
    symlink("in", data.join("to-in")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, data.join("pipe"), rustix::fs::Mode::RWXU).expect("a pipe");
    let mut receiving = begin(&workspace, "1", "a.pdf").expect("it begins");
    receiving.copy(&data, "in/0").expect("it is copied");
    // What becomes of it from now on changes nothing.
    fs::write(data.join("in/0"), b"later").expect("a file");
    let kept = receiving.finish().expect("it is kept");
    assert_eq!((kept.bytes, kept.kind), (14, FileKind::Pdf));
    assert_eq!(fs::read(workspace.join(&kept.path)).expect("it is there"), b"%PDF-1.7 words");
    let secret = root.path().join("secret");
    for path in ["link", "out", "to-in/0", "pipe", "folder", "../secret", secret.to_str().expect("a path")] {
        let mut receiving = begin(&workspace, "2", "b").expect("it begins");
        let fault = receiving.copy(&data, path).expect_err("it is no file of the channel");
        assert_eq!(fault.code, FaultCode::Invalid, "{path}: {fault}");
    }
    let mut receiving = begin(&workspace, "2", "b").expect("it begins");
    assert_eq!(receiving.copy(&data, "in/1").expect_err("nothing").code, FaultCode::Unavailable);
    drop(receiving);
    assert_eq!(names(&workspace).len(), 1);
}

#[test]
fn what_a_channel_has_is_taken_up_to_the_bound_also_where_it_grows() {
    let root = tempfile::tempdir().expect("a folder");
    let (workspace, data) = (root.path().join("workspace"), root.path().join("data"));
    fs::create_dir(&workspace).expect("a folder");
    fs::create_dir(&data).expect("a folder");
    let file = fs::File::create(data.join("0")).expect("a file");
    file.set_len(LARGEST_RECEIVED).expect("it has that length");
    let mut receiving = begin(&workspace, "1", "a").expect("it begins");
    receiving.copy(&data, "0").expect("it is copied");
    receiving.finish().expect("it is kept");
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let grows = scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(data.join("0")).expect("a file");
            let begun = std::time::Instant::now();
            while !end.load(std::sync::atomic::Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(20)
            {
                file.write_all(&[b'x'; 4096]).expect("it grows");
            }
        });
        while file.metadata().expect("it is there").len() <= LARGEST_RECEIVED {}
        let mut receiving = begin(&workspace, "2", "a").expect("it begins");
        let fault = receiving.copy(&data, "0").expect_err("it is too large");
        end.store(true, std::sync::atomic::Ordering::Relaxed);
        grows.join().expect("it ends");
        assert!(fault.code == FaultCode::Invalid && fault.message.contains("more than 20 MB"), "{fault}");
    });
    assert_eq!(names(&workspace).len(), 1);
}
