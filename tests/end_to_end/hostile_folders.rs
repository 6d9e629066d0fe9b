//! Folders of extensions that hold what nobody would put there on purpose: the daemon starts, says of each what is
//! wrong with it, and works.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::harness::{Daemon, PATIENCE, text};

/// More than the entries that are looked at in one folder.
const JUNK: usize = 5000;

fn agent(id: &str) -> String {
    format!("id: {id}\nname: {id}\ndescription: Works.\nagent: {{model: default, instructions: \"\"}}\n")
}

fn special(path: &Path, kind: FileType) -> bool {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    // 1:3 is the device that swallows everything.
    mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, rustix::fs::makedev(1, 3)).is_ok()
}

/// What a home says of its extensions: of those in the list, state and reason by id; and all remarks.
struct Told {
    list: Vec<Value>,
    notices: Vec<String>,
}

impl Told {
    fn by(daemon: &Daemon) -> Self {
        let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
        let status = daemon.until_ready();
        let notices = status["notices"].as_array().expect("remarks").iter();
        let notices = notices.filter_map(|n| n.as_str().map(str::to_owned)).collect();
        Self { list: list.as_array().expect("a list").clone(), notices }
    }

    /// Something of this name in the folder of extensions does not work, and `why` is in what is said of it.
    fn refuses(&self, name: &str, why: &str) {
        let folder = format!("extensions/{name}");
        let shown = format!("extensions/{}`", name.escape_debug());
        let remark = self.notices.iter().find(|n| n.contains(&shown));
        let listed = self.list.iter().find(|e| e["source"].as_str().is_some_and(|s| s.ends_with(&folder)));
        let said = match (remark, listed) {
            (Some(remark), _) => remark.clone(),
            (None, Some(listed)) => {
                assert_ne!(listed["state"], "active", "{listed}");
                listed["reason"].as_str().unwrap_or_default().to_owned()
            }
            (None, None) => panic!("nothing is said of `{name}`: {:#?}\n{:#?}", self.notices, self.list),
        };
        println!("| {} | {} |", name.escape_debug(), said.lines().next().unwrap_or_default().escape_debug());
        assert!(said.contains(why), "{name}: {said}");
    }

    fn works(&self, id: &str) {
        let one = self.list.iter().find(|e| e["id"] == id).unwrap_or_else(|| panic!("no `{id}`"));
        assert_eq!(one["state"], "active", "{one}");
    }
}

fn extensions(daemon: &Daemon) -> PathBuf {
    let folder = daemon.path().join("extensions");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Starts it, and sees that it works all the same.
fn runs(daemon: &mut Daemon) -> Told {
    let began = Instant::now();
    daemon.run();
    println!("ready after {} ms", began.elapsed().as_millis());
    let told = Told::by(daemon);
    told.works("kv");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    for command in [["ext", "list"].as_slice(), &["status"]] {
        let began = Instant::now();
        daemon.says(command);
        assert!(began.elapsed() < PATIENCE / 3, "{command:?} takes {:?}", began.elapsed());
    }
    told
}

#[test]
fn what_is_no_file_is_passed_over_and_never_opened() {
    let mut daemon = Daemon::home("");
    let folder = extensions(&daemon);
    daemon.write("extensions/good/manifest.yaml", &agent("good"));
    assert!(special(&folder.join("fifo"), FileType::Fifo));
    assert!(special(&folder.join("fifo-agent.md"), FileType::Fifo));
    assert!(special(&folder.join("pipe/manifest.yaml"), FileType::Fifo));
    fs::create_dir_all(folder.join("nested/manifest.yaml")).expect("a folder");
    let _socket = UnixListener::bind(folder.join("socket")).expect("a socket");
    let device = special(&folder.join("device/manifest.yaml"), FileType::CharacterDevice);
    // Files that a sound manifest names.
    for (id, key) in
        [("pipe-instructions", "instructions: p.md"), ("pipe-context", "instructions: \"\", context: [p.md]")]
    {
        let manifest = agent(id).replace("instructions: \"\"", key);
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
        assert!(special(&folder.join(id).join("p.md"), FileType::Fifo));
    }
    daemon.write("extensions/pipe-content/manifest.yaml", &agent("pipe-content"));
    assert!(special(&folder.join("pipe-content/strange"), FileType::Fifo));
    daemon.plugin("pipe-library", "torture", "");
    fs::remove_file(daemon.library("pipe-library")).expect("it is there");
    assert!(special(&daemon.library("pipe-library"), FileType::Fifo));

    let told = runs(&mut daemon);
    told.works("good");
    for (name, why) in [
        ("fifo", "pipe"),
        ("fifo-agent.md", "pipe"),
        ("pipe", "pipe"),
        ("nested", "folder"),
        ("socket", "socket"),
        ("pipe-instructions", "p.md"),
        ("pipe-context", "p.md"),
        ("pipe-library", "libpipe-library"),
    ] {
        told.refuses(name, why);
    }
    if device {
        told.refuses("device", "device");
    } else {
        println!("| device | not tried: only root can make one |");
    }
    // Dropped into a running daemon they hold nobody up either.
    assert!(special(&folder.join("late/manifest.yaml"), FileType::Fifo));
    daemon.write("extensions/later/manifest.yaml", &agent("later"));
    daemon.until_extension("later", "active");
}

#[test]
fn links_that_leave_the_folder_or_lead_nowhere_are_not_followed() {
    let mut daemon = Daemon::home("");
    let folder = extensions(&daemon);
    daemon.write("elsewhere/away/manifest.yaml", &agent("away"));
    daemon.write("secret.md", "canary");
    symlink("nowhere", folder.join("dangling")).expect("a link");
    symlink("round", folder.join("round")).expect("a link");
    symlink(daemon.path().join("elsewhere/away"), folder.join("away")).expect("a link");
    symlink("/etc", folder.join("etc")).expect("a link");
    symlink("../secret.md", folder.join("linked.md")).expect("a link");
    for (id, target) in [("lead", "../../drupe.yaml"), ("lost", "nothing")] {
        fs::create_dir_all(folder.join(id)).expect("a folder");
        symlink(target, folder.join(id).join("manifest.yaml")).expect("a link");
    }
    let manifest = agent("words").replace("instructions: \"\"", "instructions: w.md");
    daemon.write("extensions/words/manifest.yaml", &manifest);
    symlink("/etc/passwd", folder.join("words/w.md")).expect("a link");
    daemon.plugin("library", "torture", "");
    fs::remove_file(daemon.library("library")).expect("it is there");
    symlink("/etc/passwd", daemon.library("library")).expect("a link");
    // One that stays within is followed.
    daemon.write("extensions/inner/manifest.yaml", &agent("inner").replace("\"\"", "x.md"));
    daemon.write("extensions/inner/real.md", "words");
    symlink("real.md", folder.join("inner/x.md")).expect("a link");

    let told = runs(&mut daemon);
    told.works("inner");
    for name in ["dangling", "round", "away", "etc", "linked.md", "lead", "lost"] {
        told.refuses(name, "symbolic link");
    }
    told.refuses("words", "w.md");
    told.refuses("library", "liblibrary");
}

#[test]
fn names_that_are_no_ids_are_passed_over_and_shown_for_what_they_are() {
    let mut daemon = Daemon::home("");
    let folder = extensions(&daemon);
    let long = "a".repeat(49);
    // A Cyrillic letter, full width, an accent of its own, the other direction, a line break, an escape, spaces.
    let names = [
        "Kv",
        "KV",
        "kv\u{430}",
        "\u{ff4b}\u{ff56}",
        "kv\u{301}",
        "kv\u{202e}gnp",
        "kv\nkv",
        "kv\u{1b}[31m",
        "k v",
        "-kv",
        "_kv",
        "kv.",
        long.as_str(),
    ];
    for name in names {
        daemon.write(&format!("extensions/{name}/manifest.yaml"), &agent("kv"));
    }
    let bytes = folder.join(OsStr::from_bytes(b"kv\xff"));
    fs::create_dir_all(&bytes).expect("a folder");
    fs::write(bytes.join("manifest.yaml"), agent("kv")).expect("a file");
    daemon.write("extensions/named/manifest.yaml", &agent("other"));
    daemon.write("extensions/CASE.md", "---\nname: x\ndescription: x\n---\nx\n");

    let told = runs(&mut daemon);
    for name in names {
        told.refuses(name, "gives no id");
    }
    told.refuses("CASE.md", "gives no id");
    told.refuses("named", "named");
    assert!(told.notices.iter().any(|n| n.contains("\\xff")), "{:#?}", told.notices);
    // What a person reads has nothing in it that draws on a terminal, or that looks like something else.
    for command in [["ext", "list"].as_slice(), &["status"]] {
        let shown = text(&daemon.drupe(command).stdout);
        let draws = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        assert!(!shown.contains(draws), "{command:?}: {shown:?}");
    }
}

#[test]
fn manifests_that_are_too_large_or_nonsense_cost_little_and_are_named() {
    let mut daemon = Daemon::home("");
    let folder = extensions(&daemon);
    daemon.write("extensions/good/manifest.yaml", &agent("good"));
    for (id, file, size) in [
        ("sparse", "manifest.yaml", 1_u64 << 40),
        ("large", "manifest.yaml", 2 << 20),
        ("sparse-file.md", "", 1 << 40),
        ("sparse-library", "libsparse-library.so", 1 << 40),
        ("sparse-words", "w.md", 1 << 40),
        ("sparse-content", "strange", 1 << 40),
    ] {
        let path = if file.is_empty() { folder.join(id) } else { folder.join(id).join(file) };
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        File::create(path).and_then(|f| f.set_len(size)).expect("a file system with holes");
    }
    let native = "id: sparse-library\nname: x\nentrypoint: libsparse-library\nisolation: inproc\n";
    daemon.write("extensions/sparse-library/manifest.yaml", native);
    let words = agent("sparse-words").replace("instructions: \"\"", "instructions: w.md");
    daemon.write("extensions/sparse-words/manifest.yaml", &words);
    daemon.write("extensions/sparse-content/manifest.yaml", &agent("sparse-content"));
    let bomb: String = (0..60)
        .map(|n| {
            format!("a{n}: &a{n} [{0}, {0}, {0}]\n", if n == 0 { "x".into() } else { format!("*a{}", n - 1) })
        })
        .collect();
    let nonsense: [(&str, Vec<u8>); 8] = [
        ("empty", Vec::new()),
        ("binary", (0..=255).cycle().take(10_000).collect()),
        ("deep", format!("id: {}", "[".repeat(100_000)).into_bytes()),
        ("bomb", bomb.into_bytes()),
        ("list", b"- a\n- b\n".to_vec()),
        ("twice", b"id: twice\nid: twice\n".to_vec()),
        ("tag", b"!!python/object/apply:os.system [id]\n".to_vec()),
        ("half", b"id: half\nname: \"no end\n".to_vec()),
    ];
    for (id, bytes) in &nonsense {
        fs::create_dir_all(folder.join(id)).expect("a folder");
        fs::write(folder.join(id).join("manifest.yaml"), bytes).expect("a file");
    }

    daemon.write("drupe.yaml", "approvals: {preauthorized: all}\n");
    let told = runs(&mut daemon);
    told.works("good");
    for (name, why) in [
        ("sparse", "manifest.yaml"),
        ("large", "manifest.yaml"),
        ("sparse-file.md", "sparse-file.md"),
        ("sparse-library", "sparse-library"),
        ("sparse-words", "w.md"),
        ("sparse-content", "512 MiB"),
    ] {
        told.refuses(name, why);
    }
    for (id, _) in &nonsense {
        told.refuses(id, "manifest.yaml");
    }
}

#[test]
fn what_cannot_be_read_is_said_and_keeps_nothing_else_from_working() {
    if rustix::process::geteuid().is_root() {
        println!("not tried: root reads everything");
        return;
    }
    let mut daemon = Daemon::home("");
    let folder = extensions(&daemon);
    daemon.write("extensions/closed/manifest.yaml", &agent("closed"));
    daemon.write("extensions/shut/manifest.yaml", &agent("shut"));
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    mode(&folder.join("closed"), 0);
    mode(&folder.join("shut/manifest.yaml"), 0);
    let told = runs(&mut daemon);
    told.refuses("closed", "ermission");
    told.refuses("shut", "ermission");
    mode(&folder.join("closed"), 0o700);
}

#[test]
fn five_thousand_folders_of_junk_do_not_keep_the_others_from_working() {
    let mut daemon = Daemon::home("");
    let folder = extensions(&daemon);
    daemon.write("extensions/good/manifest.yaml", &agent("good"));
    for n in 0..JUNK {
        fs::create_dir(folder.join(format!("junk-{n:05}"))).expect("a folder");
    }
    let told = runs(&mut daemon);
    told.works("good");
    told.refuses("junk-00000", "manifest.yaml");
    assert!(told.notices.iter().any(|n| n.contains("more than 4096 entries")), "{}", told.notices.len());
    // Changes are still noticed.
    daemon.write("extensions/better/manifest.yaml", &agent("better"));
    daemon.until_extension("better", "active");
}
