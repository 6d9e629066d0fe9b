use std::{
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::PathBuf,
};

use super::*;

/// A folder of extensions with one that has a library beside it, as an installer leaves them.
struct Place(tempfile::TempDir);

const PARTS: [&str; 7] = [
    "extensions",
    "extensions/kv",
    "extensions/kv/manifest.yaml",
    "extensions/kv/prompts",
    "extensions/kv/prompts/.hidden.md",
    "lib",
    "lib/libkv.so",
];

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        for part in PARTS {
            match part.contains('.') {
                true => fs::write(place.path(part), "").expect("a file"),
                false => fs::create_dir(place.path(part)).expect("a folder"),
            }
            place.mode(part, if part.contains('.') { 0o644 } else { 0o755 });
        }
        place
    }

    fn path(&self, part: &str) -> PathBuf {
        self.0.path().join(part)
    }

    fn mode(&self, part: &str, mode: u32) {
        fs::set_permissions(self.path(part), PermissionsExt::from_mode(mode)).expect("it is ours");
    }

    fn found(&self) -> Found {
        Found {
            name: "kv".into(),
            folder: self.path("extensions/kv"),
            origin: Origin::Shipped,
            kind: Kind::Folder,
        }
    }

    fn doubt(&self, judge: &Judge) -> Option<String> {
        judge.doubt(&self.found(), Some(&self.path("lib/libkv.so")))
    }
}

/// The user who runs the tests, on a machine where nobody has a group for himself.
fn ours() -> Judge {
    Judge { user: geteuid().as_raw(), accounts: OnceCell::from(Accounts::default()) }
}

#[test]
fn what_root_or_the_user_alone_may_write_counts_as_shipped() {
    let place = Place::new();
    assert_eq!(place.doubt(&ours()), None);
    // What Cargo builds there is not read.
    fs::create_dir(place.path("extensions/kv/target")).expect("a folder");
    place.mode("extensions/kv/target", 0o777);
    assert_eq!(place.doubt(&ours()), None);
    // The folders above a place are anybody's, as `/tmp` is.
    place.mode("", 0o777);
    assert_eq!(place.doubt(&ours()), None);
}

#[test]
fn a_part_that_others_may_write_is_named_and_nothing_of_it_counts_as_shipped() {
    for part in PARTS {
        let place = Place::new();
        for (mode, said) in [(0o666, "everybody may write"), (0o777, "everybody"), (0o775, " may write")] {
            place.mode(part, mode);
            let why = place.doubt(&ours()).unwrap_or_else(|| panic!("{part} {mode:o}"));
            assert!(why.contains(said) && why.contains(&place.path(part).display().to_string()), "{why}");
        }
    }
}

#[test]
fn a_part_that_belongs_to_somebody_else_is_named() {
    const OTHER: u32 = 54_321;
    for part in PARTS {
        let place = Place::new();
        // Only root can give files away; anybody else is taken for a third user.
        let judge = match geteuid().is_root() {
            true => {
                chown(place.path(part), Some(OTHER), None).expect("root may");
                ours()
            }
            false => Judge { user: OTHER, ..ours() },
        };
        let why = place.doubt(&judge).unwrap_or_else(|| panic!("{part}"));
        assert!(why.contains("belongs to user"), "{why}");
        if geteuid().is_root() {
            assert!(why.contains(&place.path(part).display().to_string()), "{why}");
            assert_eq!(
                place.doubt(&Judge { user: OTHER, ..ours() }),
                None,
                "to him it is his own and root's"
            );
        }
    }
}

#[test]
fn a_link_counts_as_what_it_leads_to_and_leads_nowhere_else() {
    let place = Place::new();
    let link = place.path("extensions/kv/link");
    for to in ["prompts/.hidden.md", "manifest.yaml"] {
        symlink(to, &link).expect("a link");
        assert_eq!(place.doubt(&ours()), None, "{to}");
        fs::remove_file(&link).expect("it was there");
    }
    for to in ["/etc/passwd", "nothing", "../../lib/libkv.so"] {
        symlink(to, &link).expect("a link");
        assert!(place.doubt(&ours()).is_some_and(|why| why.contains("leads elsewhere")), "{to}");
        fs::remove_file(&link).expect("it was there");
    }
}

#[test]
fn a_folder_without_end_is_not_looked_through() {
    let place = Place::new();
    let deep = "a/".repeat(DEPTH + 1);
    fs::create_dir_all(place.path("extensions/kv").join(deep)).expect("folders");
    assert!(place.doubt(&ours()).is_some_and(|why| why.contains("nested deeper")));
}

#[test]
fn what_ships_nothing_is_not_asked_about() {
    let place = Place::new();
    place.mode("extensions/kv", 0o777);
    for origin in [Origin::Home, Origin::Listed] {
        assert_eq!(ours().doubt(&Found { origin, ..place.found() }, None), None);
    }
}

#[test]
fn a_group_may_write_where_it_is_the_owner_s_own_and_he_is_alone_in_it() {
    let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nben:x:1001:1001:::\n";
    let groups = "root:x:0:\nann:x:1000:\nben:x:1001:ben\nstaff:x:50:\n";
    let alone = |users: &str, groups: &str, user, group| {
        Accounts { users: users.into(), groups: groups.into() }.alone(user, group)
    };
    for (user, group) in [(0, 0), (1000, 1000), (1001, 1001)] {
        assert!(alone(users, groups, user, group), "{user} {group}");
    }
    // Somebody else's, nobody's first one, and one that is not known.
    for (user, group) in [(1000, 1001), (1000, 0), (1000, 50), (1000, 100), (7, 7)] {
        assert!(!alone(users, groups, user, group), "{user} {group}");
    }
    let more = |more: &str| format!("{users}{more}\n");
    assert!(!alone(&more("eve:x:1002:1000:::"), groups, 1000, 1000), "another one's first group");
    assert!(!alone(&more("+::::::"), groups, 1000, 1000), "others come from the network");
    for strange in ["ann:x:1000:eve", "ann:x:1000:ann,eve", "people:x:1000:", "ann:x:1000:\neve:x:1000:"] {
        assert!(!alone(users, &groups.replace("ann:x:1000:", strange), 1000, 1000), "{strange}");
    }
    assert!(!alone("", "", 0, 0), "where no accounts can be read nobody is alone");
}

#[test]
fn a_checkout_of_one_who_works_in_a_group_of_his_own_is_his_alone() {
    let place = Place::new();
    let owner = fs::metadata(place.path("lib")).expect("it is there");
    let (user, group) = (owner.uid(), owner.gid());
    for part in PARTS {
        place.mode(part, if part.contains('.') { 0o664 } else { 0o775 });
    }
    let judge = |members: &str| {
        let accounts = Accounts {
            users: format!("ann:x:{user}:{group}:::\n"),
            groups: format!("ann:x:{group}:{members}\n"),
        };
        Judge { user, accounts: OnceCell::from(accounts) }
    };
    assert_eq!(place.doubt(&judge("")), None);
    assert!(place.doubt(&judge("eve")).is_some_and(|why| why.contains(&format!("group {group} may write"))));
}

#[test]
fn an_access_list_that_lets_others_write_is_no_group_of_the_owner_s_own() {
    let place = Place::new();
    let file = place.path("extensions/kv/manifest.yaml");
    let owner = fs::metadata(&file).expect("it is there");
    let (user, group) = (owner.uid(), owner.gid());
    let accounts = Accounts { users: format!("ann:x:{user}:{group}:::"), groups: format!("ann:x:{group}:") };
    let judge = Judge { user, accounts: OnceCell::from(accounts) };
    // Version 2; owner, one user by number, group, the most that both may, everybody: who, what he may, his number.
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (who, may, number) in [(1, 6, -1), (2, 6, 54_321), (4, 4, -1), (16, 6, -1), (32, 4, -1_i32)] {
        list.extend([u16::to_le_bytes(who), u16::to_le_bytes(may)].concat());
        list.extend(number.to_le_bytes());
    }
    let name = "system.posix_acl_access";
    match rustix::fs::lsetxattr(&file, name, &list, rustix::fs::XattrFlags::empty()) {
        Ok(()) => {}
        // Such a file system has none that could let others write.
        Err(Errno::OPNOTSUPP) => return,
        Err(error) => panic!("{error}"),
    }
    assert!(place.doubt(&judge).is_some_and(|why| why.contains("access list")));
}
