//! Libraries that are looked at before they are opened.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use drupe_host::probe::{Caches, Checked, Judgement, checked, hash, judge, sweep};

use crate::{
    copied::copy_program,
    setup::{exe, library},
    without_landlock::without_landlock,
};

fn caches(folder: &Path) -> Caches {
    let (verdicts_file, copies) = (folder.join("state/probes.json"), folder.join("copies"));
    Caches { verdicts_file, copies, exe: exe(), strict: true }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_library_is_copied_under_its_hash_and_looked_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let original = folder.path().join("libfaulty.so");
    fs::copy(library("faulty"), &original).unwrap();
    let Checked { file, hash: found } = checked(&caches, &original, true).await.unwrap();
    assert_eq!(file, caches.copies.join(format!("{found}.so")));
    assert_eq!((hash(&file).unwrap(), found.len()), (found.clone(), 64));
    // The same file again is not looked at: no verdict is written.
    let verdicts = fs::metadata(&caches.verdicts_file).unwrap().modified().unwrap();
    assert_eq!(checked(&caches, &original, true).await.unwrap().hash, found);
    assert_eq!(fs::metadata(&caches.verdicts_file).unwrap().modified().unwrap(), verdicts);
    // Without a copy the file itself is opened, and its hash is known as well.
    let own = checked(&caches, &original, false).await.unwrap();
    assert_eq!((own.file, own.hash), (original, found));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_not_what_its_name_says_is_made_again_and_whoever_has_it_open_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let original = folder.path().join("libfaulty.so");
    fs::copy(library("faulty"), &original).unwrap();
    let Checked { file, hash: found } = checked(&caches, &original, true).await.unwrap();
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&[][..], &whole[..64 * 1024], &flipped] {
        fs::write(&file, damaged).unwrap();
        let mut open = fs::File::open(&file).unwrap();
        let again = checked(&caches, &original, true).await.unwrap();
        assert_eq!((again.file.as_path(), &again.hash), (file.as_path(), &found));
        assert_eq!(hash(&file).unwrap(), found);
        let mut kept = Vec::new();
        std::io::Read::read_to_end(&mut open, &mut kept).unwrap();
        assert_eq!(kept, damaged);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(checked(&caches, &original, true).await.unwrap().file, file);
    assert_eq!(hash(&file).unwrap(), found);
    assert_eq!(fs::read_dir(&caches.copies).unwrap().count(), 1, "no part of a copy is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_read_once_in_each_boot_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let original = folder.path().join("libfaulty.so");
    fs::copy(library("faulty"), &original).unwrap();
    let Checked { file, hash: found } = checked(&caches, &original, true).await.unwrap();
    // A copy that is another now and bears the times that were written down, as after a loss of power.
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let meta = fs::metadata(&file).unwrap();
    let ns = |seconds: i64, nanos: i64| seconds * 1_000_000_000 + nanos;
    let written_down = |boot: Option<&str>| {
        let text = fs::read_to_string(&caches.verdicts_file).unwrap();
        let mut all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let copy = &mut all[original.to_str().unwrap()]["copy"];
        copy["identity"] = serde_json::json!({
            "size": meta.len(), "inode": meta.ino(),
            "modified_ns": ns(meta.mtime(), meta.mtime_nsec()), "changed_ns": ns(meta.ctime(), meta.ctime_nsec()),
        });
        if let Some(boot) = boot {
            copy["boot"] = boot.into();
        }
        fs::write(&caches.verdicts_file, all.to_string()).unwrap();
    };
    written_down(None);
    checked(&caches, &original, true).await.unwrap();
    assert_ne!(hash(&file).unwrap(), found, "it is not read again in this boot");
    written_down(Some("another"));
    checked(&caches, &original, true).await.unwrap();
    assert_eq!(hash(&file).unwrap(), found, "it is made anew");
}

#[test]
fn where_the_system_cannot_confine_a_strict_look_runs_no_constructor_and_is_made_another_time() {
    let folder = tempfile::tempdir().unwrap();
    let strict = caches(folder.path());
    let open = Caches { strict: false, ..strict.clone() };
    let aborts = library("ctor_abort");
    let (refused, ran, checked_then) = without_landlock(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let checked_then = runtime.block_on(checked(&strict, &library("faulty"), false));
        (judge(&strict, &aborts, &aborts), judge(&open, &aborts, &aborts), checked_then)
    });
    let said = |judgement: &Judgement| format!("{judgement:?}");
    assert!(matches!(refused, Judgement::Unknown(_)), "{refused:?}");
    assert!(said(&refused).contains("Landlock is missing"), "{refused:?}");
    assert!(said(&refused).contains("allow_unconfined"), "{refused:?}");
    assert!(said(&ran).contains("SIGABRT"), "the constructor ran: {ran:?}");
    assert!(checked_then.unwrap_err().contains("Landlock is missing"));
    assert!(!strict.verdicts_file.exists(), "nothing was found out about the library");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_could_not_be_made_is_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let sound = caches(folder.path());
    let mut broken = sound.clone();
    broken.exe = folder.path().join("program");
    fs::write(&broken.exe, "#!/nowhere\n").unwrap();
    let original = library("faulty");
    let refused = checked(&broken, &original, false).await.unwrap_err();
    assert!(refused.contains("could not be looked at"), "{refused}");
    assert!(!sound.verdicts_file.exists());
    fs::remove_file(&broken.exe).unwrap();
    copy_program(exe(), &broken.exe);
    checked(&broken, &original, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_library_is_looked_at_again_and_its_old_copy_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let original = folder.path().join("lib.so");
    fs::copy(library("faulty"), &original).unwrap();
    let old = checked(&caches, &original, true).await.unwrap();
    fs::remove_file(&original).unwrap();
    fs::copy(library("crashing"), &original).unwrap();
    let new = checked(&caches, &original, true).await.unwrap();
    assert_ne!(old.hash, new.hash);
    sweep(&caches);
    assert!(!old.file.exists() && new.file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_release_of_the_program_looks_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut caches = caches(folder.path());
    let original = folder.path().join("lib.so");
    fs::write(&original, "no library").unwrap();
    let refused = checked(&caches, &original, false).await.unwrap_err();
    assert!(refused.contains("cannot be opened as a library"), "{refused}");
    let kept = |caches: &Caches| fs::read_to_string(&caches.verdicts_file).unwrap();
    let before = kept(&caches);
    checked(&caches, &original, false).await.unwrap_err();
    assert_eq!(kept(&caches), before);
    caches.exe = folder.path().join("program");
    copy_program(exe(), &caches.exe);
    checked(&caches, &original, false).await.unwrap_err();
    assert_ne!(kept(&caches), before);
}

#[test]
fn a_library_that_kills_hangs_or_is_none_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let truncated = folder.path().join("libtruncated.so");
    let whole = fs::read(library("faulty")).unwrap();
    fs::write(&truncated, &whole[..64 * 1024]).unwrap();
    let foreign = folder.path().join("libforeign.so");
    // Where the header names the machine.
    fs::write(&foreign, [&whole[..18], &243_u16.to_le_bytes(), &whole[20..]].concat()).unwrap();
    for (file, expected) in [
        (library("ctor_abort"), "is refused: opening it crashed the process with signal 6 (SIGABRT)"),
        (library("other_layout"), "has another layout of the tables"),
        ("/lib/x86_64-linux-gnu/libm.so.6".into(), "is a library but no drupe extension"),
        (truncated, "libtruncated.so"),
        (foreign, "it was built for RISC-V, and this machine is"),
    ] {
        let Judgement::Refused(refused) = judge(&caches, &file, &file) else { panic!("{file:?}") };
        assert!(refused.contains(expected), "{refused}");
        assert!(refused.contains(file.to_str().unwrap()), "{refused}");
    }
    assert_eq!(judge(&caches, &library("faulty"), &library("faulty")), Judgement::Sound);
}
