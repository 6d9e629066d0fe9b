//! Files that are cut off, changed, made by others, or of another release.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::symlink,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use rusqlite::Connection;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::*;
use crate::{check, restore};

/// Refused, and the home is as it was.
fn refused(place: &Place, why: &str) {
    place.write("drupe.yaml", "log: debug\n");
    let before = names(&place.home());
    let checked = check(&place.file(), None).map(drop);
    let error = restore(&place.home(), &place.file(), None).unwrap_err();
    if let Err(checked) = checked {
        assert_eq!(checked.to_string(), error.to_string());
    }
    assert!(error.to_string().contains(why), "{error}");
    assert_eq!(place.read("drupe.yaml").unwrap(), "log: debug\n");
    let after: Vec<_> = names(&place.home());
    assert_eq!(before, after);
}

fn plain(place: &Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(place.file()).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Every file of the archive, changed by `change`: a name with another content, or none any more.
fn rewritten(place: &Place, change: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>) {
    let bytes = plain(place);
    let mut out = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut archive = tar::Archive::new(&*bytes);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut header = entry.header().clone();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let Some(content) = change(&name, content) else { continue };
        header.set_size(content.len() as u64);
        out.append_data(&mut header, &name, &*content).unwrap();
    }
    fs::write(place.file(), out.into_inner().unwrap().finish().unwrap()).unwrap();
}

fn with_manifest(place: &Place, change: impl Fn(&mut Value)) {
    rewritten(place, |name, content| {
        if name != "drupe-backup.json" {
            return Some(content);
        }
        let mut manifest = serde_json::from_slice(&content).unwrap();
        change(&mut manifest);
        Some(serde_json::to_vec(&manifest).unwrap())
    });
}

fn place() -> Place {
    let place = Place::new();
    place.full();
    // Its folders, as every daemon's home has them.
    drupe_link::Home::create(place.home()).unwrap();
    place.made();
    place
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let place = place();
    let whole = fs::read(place.file()).unwrap();
    for part in [0, 1, 20, 200, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        fs::write(place.file(), &whole[..part]).unwrap();
        refused(&place, "is no backup that can be used");
    }
    // Also without a checksum around it, and at the edge of a file in it.
    let plain = {
        fs::write(place.file(), &whole).unwrap();
        plain(&place)
    };
    for part in (0..plain.len()).step_by(512 * 7) {
        fs::write(place.file(), &plain[..part]).unwrap();
        refused(&place, "is no backup that can be used");
    }
    fs::write(place.file(), plain).unwrap();
    check(&place.file(), None).unwrap();
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let place = place();
    let plain = plain(&place);
    for at in (300..plain.len()).step_by(9_973) {
        let mut bytes = plain.clone();
        bytes[at] ^= 0x20;
        fs::write(place.file(), bytes).unwrap();
        // What pads a file to the next block says nothing.
        if check(&place.file(), None).is_err() {
            refused(&place, "is no backup that can be used");
        }
    }
    rewritten(place_of(&plain, &place), |name, content| {
        Some(if name == "drupe.yaml" { b"log: trace\n".to_vec() } else { content })
    });
    refused(&place, "`drupe.yaml` is not what its manifest says");
}

fn place_of<'a>(plain: &[u8], place: &'a Place) -> &'a Place {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(plain).unwrap();
    fs::write(place.file(), packed.finish().unwrap()).unwrap();
    place
}

#[test]
fn what_is_missing_or_added_is_found() {
    let place = place();
    let plain = plain(&place);
    rewritten(&place, |name, content| (name != "data/words/kept.txt").then_some(content));
    refused(&place, "`data/words/kept.txt` is missing in it");
    rewritten(place_of(&plain, &place), |name, content| (name != "drupe-backup.json").then_some(content));
    refused(&place, "it has no manifest");
    with_manifest(place_of(&plain, &place), |manifest| {
        manifest["entries"].as_object_mut().unwrap().remove("drupe.yaml");
    });
    refused(&place, "its manifest says nothing");
    with_manifest(place_of(&plain, &place), |manifest| manifest["form"] = json!(2));
    refused(&place, "it was made by a newer drupe");
}

#[test]
fn a_backup_of_a_newer_journal_says_what_to_do() {
    let place = place();
    with_manifest(&place, |manifest| {
        manifest["journal"] = json!(4_000);
        manifest["drupe"] = json!("9.9.9");
    });
    refused(&place, "install drupe 9.9.9 or a later release");
}

#[test]
fn a_journal_whose_pages_are_damaged_is_not_put_back() {
    let place = place();
    // With a manifest that fits what is damaged, as a backup of it by other means would have.
    rewritten(&place, |name, mut content| {
        if name == "journal.db" {
            let middle = 4096 * 3;
            content[middle..middle + 4096].fill(0xa5);
        }
        Some(content)
    });
    let bytes = plain(&place);
    let mut archive = tar::Archive::new(&*bytes);
    let journal = archive
        .entries()
        .unwrap()
        .map(Result::unwrap)
        .find(|entry| entry.path().unwrap().to_str() == Some("journal.db"));
    let mut content = Vec::new();
    journal.unwrap().read_to_end(&mut content).unwrap();
    let (_, sha256) = crate::files::copy_hashed(&mut &*content, &mut std::io::sink(), u64::MAX).unwrap();
    with_manifest(&place, |manifest| manifest["entries"]["journal.db"]["sha256"] = json!(sha256));
    check(&place.file(), None).unwrap();
    refused(&place, "the journal is damaged");
}

fn archive_of(place: &Place, write: impl Fn(&mut Builder<GzEncoder<Vec<u8>>>)) {
    let mut out = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    write(&mut out);
    fs::write(place.file(), out.into_inner().unwrap().finish().unwrap()).unwrap();
}

#[test]
fn paths_that_lead_out_of_the_home_write_nothing() {
    let place = place();
    for name in ["../outside.txt", "/outside.txt", "data/../../outside.txt"] {
        archive_of(&place, |out| {
            let mut header = Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o644);
            header.set_size(1);
            header.set_cksum();
            out.append(&header, &b"x"[..]).unwrap();
        });
        refused(&place, "leads out of the home");
        assert!(!place.folder.path().join("outside.txt").exists());
    }
    for name in ["run/token", ".restore/list.json", "journal.db-wal", "before-restore-x/y"] {
        archive_of(&place, |out| {
            let mut header = Header::new_gnu();
            header.set_size(1);
            out.append_data(&mut header, name, &b"x"[..]).unwrap();
        });
        refused(&place, "no part of a backup");
    }
}

#[test]
fn a_link_in_a_backup_lets_nothing_be_written_elsewhere() {
    let place = place();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    archive_of(&place, |out| {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        out.append_link(&mut header, "data", &outside).unwrap();
        let mut header = Header::new_gnu();
        header.set_size(1);
        out.append_data(&mut header, "data/x", &b"x"[..]).unwrap();
    });
    refused(&place, "it has no manifest");
    assert_eq!(names(&outside), [""; 0]);
}

#[test]
fn what_is_no_backup_is_refused() {
    let place = place();
    for content in [&b"a text"[..], &b"\x1f\x8b not gzip"[..], b""] {
        fs::write(place.file(), content).unwrap();
        refused(&place, "is no backup that can be used");
    }
    fs::write(place.file(), "age-encryption.org/v1\n-> X25519 x\n").unwrap();
    refused(&place, "--identity");
    fs::remove_file(place.file()).unwrap();
    let home = place.home().with_file_name("none");
    assert!(restore(&home, &place.file(), None).is_err());
    assert!(!home.exists(), "a wrong file makes no home");
}

#[test]
fn a_damaged_journal_is_not_backed_up_as_a_whole_one() {
    let place = Place::new();
    place.full();
    let journal = place.home().join("journal.db");
    let mut bytes = fs::read(&journal).unwrap();
    let half = bytes.len() / 2 / 4096 * 4096;
    bytes[half..half + 8192].fill(0xa5);
    fs::write(&journal, bytes).unwrap();
    let error = make(&place.order()).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("damaged"), "{error}");
    assert_eq!(names(place.folder.path()), ["home"]);
}

#[test]
fn a_damaged_database_of_an_extension_does_not_keep_the_journal_from_being_backed_up() {
    let place = Place::new();
    place.full();
    let path = place.home().join("data/words/facts.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE facts (text)").unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..400].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let made = place.made();
    assert!(made.remarks.iter().any(|remark| remark.contains("data/words/facts.db")), "{:?}", made.remarks);
    let other = Place::new();
    restore(&other.home(), &place.file(), None).unwrap();
    assert_eq!(fs::read(other.home().join("data/words/facts.db")).unwrap(), bytes);
}

#[test]
fn links_out_of_the_home_are_kept_as_links() {
    let place = Place::new();
    place.full();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "outside").unwrap();
    symlink(&outside, place.home().join("data/words/link")).unwrap();
    place.made();
    let manifest = check(&place.file(), None).unwrap();
    assert!(!manifest.entries.keys().any(|name| name.ends_with("link/file")));
}
