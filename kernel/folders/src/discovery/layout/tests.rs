use std::os::unix::fs::symlink;

use super::*;

/// A user's folder with a program in `.local/bin`, and a home where what ships would be.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        place.file(".local/bin/drupe");
        place.folder(".local/lib/drupe/extensions");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("it is there").join(name)
    }

    fn folder(&self, name: &str) {
        fs::create_dir_all(self.path(name)).expect("a folder");
    }

    fn file(&self, name: &str) {
        fs::create_dir_all(self.path(name).parent().expect("a folder")).expect("a folder");
        fs::write(self.path(name), "").expect("a file");
    }

    fn link(&self, to: &str, name: &str) {
        fs::create_dir_all(self.path(name).parent().expect("a folder")).expect("a folder");
        symlink(self.path(to), self.path(name)).expect("a link");
    }

    fn shipped(&self, exe: &str, home: &str, listed: &[&str]) -> (Option<PathBuf>, Option<PassedOver>) {
        let listed: Vec<PathBuf> = listed.iter().map(|folder| self.path(folder)).collect();
        Layout::new(&self.path(exe), &self.path(home), &listed).shipped()
    }

    fn refused(&self, exe: &str, home: &str, listed: &[&str]) {
        let (shipped, refused) = self.shipped(exe, home, listed);
        assert_eq!(shipped, None, "{exe} {home} {listed:?}");
        let refused = refused.unwrap_or_else(|| panic!("nothing is said: {exe} {home} {listed:?}"));
        assert!(refused.reason.contains("needs your agreement"), "{refused:?}");
    }

    fn accepted(&self, exe: &str, home: &str, listed: &[&str], folder: &str) {
        assert_eq!(
            self.shipped(exe, home, listed),
            (Some(self.path(folder)), None),
            "{exe} {home} {listed:?}"
        );
    }
}

const EXE: &str = ".local/bin/drupe";
const HOME: &str = ".local/lib/drupe";

#[test]
fn the_extensions_of_a_home_are_not_shipped_where_the_program_lies_in_local_bin() {
    let place = Place::new();
    for home in [HOME, ".local/lib/drupe/", ".local/bin/../lib/drupe", ".local/lib/./drupe/extensions/.."] {
        for exe in [EXE, ".local/bin/../bin/drupe", ".local/./bin//drupe"] {
            place.refused(exe, home, &[]);
        }
    }
    // Those that ship have a place that the usual home does not have.
    place.accepted(EXE, ".local/share/drupe", &[], ".local/lib/drupe/extensions");
}

#[test]
fn links_on_either_way_do_not_hide_that_a_folder_is_the_home_s() {
    let place = Place::new();
    place.link(EXE, "bin/drupe");
    place.refused("bin/drupe", HOME, &[]);
    place.link(HOME, "home");
    place.refused(EXE, "home", &[]);
    place.link(".local/lib", "lib");
    place.refused(EXE, "lib/drupe", &[]);
    // The program elsewhere, and the lib folder beside it a link to the user's.
    place.file("opt/bin/drupe");
    place.link(".local/lib", "opt/lib");
    place.refused("opt/bin/drupe", HOME, &[]);
    // The home's own parts may be links to where the program is installed.
    place.file("usr/bin/drupe");
    place.folder("usr/lib/drupe/extensions");
    place.accepted("usr/bin/drupe", HOME, &[], "usr/lib/drupe/extensions");
    for part in WRITTEN {
        place.link("usr/lib/drupe", &format!("{part}-home/{part}"));
        place.refused("usr/bin/drupe", &format!("{part}-home"), &[]);
    }
}

#[test]
fn a_shipped_folder_neither_holds_nor_lies_in_what_others_write() {
    let place = Place::new();
    place.file("opt/bin/drupe");
    place.folder("opt/lib/drupe/extensions/mine");
    let (exe, shipped) = ("opt/bin/drupe", "opt/lib/drupe/extensions");
    place.accepted(exe, HOME, &["elsewhere"], shipped);
    for home in ["opt/lib/drupe/extensions", "opt/lib/drupe", "opt", "opt/lib/drupe/extensions/mine"] {
        place.refused(exe, home, &[]);
    }
    for listed in [shipped, "opt", "opt/lib/drupe/extensions/mine", "opt/lib/drupe/extensions/not/there/yet"]
    {
        place.refused(exe, HOME, &["elsewhere", listed]);
    }
}

#[test]
fn a_checkout_keeps_its_layout() {
    let place = Place::new();
    for folder in ["c/extension-api", "c/extensions", "c/sandbox", "c/target/debug"] {
        place.folder(folder);
    }
    place.file("c/target/release/drupe");
    place.accepted("c/target/release/drupe", "c/sandbox", &[], "c/extensions");
    place.accepted("c/target/release/drupe", HOME, &[], "c/extensions");
    place.link("c/target/release/drupe", "bin/drupe");
    place.accepted("bin/drupe", HOME, &[], "c/extensions");
    // Who works on the checkout through the file tools writes what runs inside the kernel.
    place.link("c", "other/workspace");
    place.refused("c/target/release/drupe", "other", &[]);
}

#[test]
fn of_two_origins_of_one_folder_the_less_trusted_holds() {
    let place = Place::new();
    place.link(".local/lib/drupe/extensions", "again");
    for listed in ["again", ".local/lib/drupe/extensions", ".local/lib/drupe/extensions/"] {
        let (roots, _) = Layout::new(&place.path(EXE), &place.path(HOME), &[place.path(listed)]).roots();
        assert_eq!(roots, [(Origin::Listed, place.path(listed))]);
    }
    place.file("opt/bin/drupe");
    place.folder("opt/lib/drupe/extensions");
    let layout = Layout::new(
        &place.path("opt/bin/drupe"),
        &place.path(HOME),
        &[place.path("opt/lib/drupe/extensions")],
    );
    let origins: Vec<Origin> = layout.roots().0.into_iter().map(|(origin, _)| origin).collect();
    assert_eq!(origins, [Origin::Home, Origin::Listed]);
}

#[test]
fn a_library_that_lies_where_others_write_does_not_ship() {
    let place = Place::new();
    place.file("opt/bin/drupe");
    place.folder("opt/lib/drupe/extensions/kv");
    place.file(".local/lib/drupe/workspace/libkv.so");
    let found = crate::discovery::Found {
        name: "kv".into(),
        folder: place.path("opt/lib/drupe/extensions/kv"),
        origin: Origin::Shipped,
        kind: crate::discovery::Kind::Folder,
    };
    let library = |home: &str| {
        Layout::new(&place.path("opt/bin/drupe"), &place.path(home), &[]).library(&found, "libkv")
    };
    // A link in the place of one that ships.
    place.link(".local/lib/drupe/workspace/libkv.so", "opt/bin/libkv.so");
    assert!(library(HOME).is_err());
    fs::remove_file(place.path("opt/bin/libkv.so")).expect("it was there");
    // The place for libraries is the home's.
    place.link(".local/lib/drupe/workspace", "opt/bin/deps");
    let refused = library(HOME).expect_err("others write there");
    assert!(refused.to_string().contains("where others write"), "{refused}");
    place.file("opt/lib/drupe/libkv.so");
    fs::remove_file(place.path("opt/bin/deps")).expect("it was there");
    assert_eq!(library(HOME), Ok(place.path("opt/lib/drupe/libkv.so")));
}

#[test]
fn the_usual_home_beside_a_program_in_local_bin_is_shipped_for_no_other_home() {
    let place = Place::new();
    place.folder(".local/share/drupe/extensions/mine");
    for home in [".local/share/drupe", "another", ".local/share"] {
        let (shipped, refused) = place.shipped(".local/bin/drupe", home, &[]);
        assert_ne!(shipped, Some(place.path(".local/share/drupe/extensions")), "{home}");
        assert!(refused.is_none_or(|r| !r.path.ends_with("share/drupe/extensions")), "{home}");
    }
}
