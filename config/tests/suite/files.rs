//! Files that are no files, wherever one is named: a diagnostic each, at once, and never a wait.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::mpsc,
    time::Duration,
};

use drupe_config::{Diagnostics, load_agent_file, load_manifest, read_text_file};

use crate::home::Home;

type Make = fn(&Path);

/// What may stand where a file should.
const ODD: [(&str, Make); 8] = [
    ("a pipe", |path| mkfifo(path)),
    ("a folder", |path| fs::create_dir(path).unwrap()),
    ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
    ("a link to a device without end", |path| symlink("/dev/zero", path).unwrap()),
    ("a link to nothing", |path| symlink("nowhere", path).unwrap()),
    ("a link to itself", |path| symlink(path.file_name().unwrap(), path).unwrap()),
    ("ten sparse gigabytes", |path| fs::File::create(path).unwrap().set_len(10 << 30).unwrap()),
    ("bytes that are no text", |path| fs::write(path, b"a: \xff\n").unwrap()),
];

fn mkfifo(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Puts each odd thing at `name` of a home, and expects `load` to refuse it with `code` at least.
fn check(name: &str, load: fn(&Home) -> Diagnostics) {
    for (what, make) in ODD {
        let home = Home::new();
        let path = home.path().join(name);
        let _ = fs::remove_file(&path);
        make(&path);
        // Sockets and links keep their permissions; where others could read a sidecar file, that is told instead.
        if path.symlink_metadata().unwrap().is_file() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (done, answer) = mpsc::channel();
        let worker = std::thread::spawn(move || done.send(load(&home)));
        let faults =
            answer.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{what} as {name} hangs"));
        worker.join().unwrap().unwrap();
        let codes: Vec<_> = faults.iter().map(|fault| fault.code).collect();
        let known = [
            "not_a_file",
            "unreadable",
            "symlink",
            "broken_link",
            "too_large",
            "not_utf8",
            "file_not_found",
            "path_escapes",
            "readable_secrets",
        ];
        assert!(codes.iter().any(|code| known.contains(code)), "{what} as {name}: {codes:?}");
        assert!(faults.has_errors() && !faults.render(false).is_empty(), "{what} as {name}");
    }
}

const AGENT: &str =
    "id: demo\nname: D\ndescription: d\nagent: {model: m, instructions: odd.md, context: [prompt.md]}\n";

#[test]
fn a_manifest_that_is_no_file_is_refused() {
    check("extensions/demo/manifest.yaml", |home| load_manifest(&home.demo(), home.path()).unwrap_err());
}

#[test]
fn a_prompt_that_is_no_file_is_refused() {
    check("extensions/demo/odd.md", |home| home.manifest(AGENT).unwrap_err());
}

#[test]
fn a_context_that_is_no_file_is_refused() {
    let swapped = |home: &Home| {
        home.manifest(AGENT.replace("odd.md", "''").replace("[prompt.md]", "[odd.md, prompt.md]"))
            .unwrap_err()
    };
    check("extensions/demo/odd.md", swapped);
}

#[test]
fn an_agent_that_is_no_file_is_refused() {
    check("extensions/demo.md", |home| {
        load_agent_file(&home.path().join("extensions/demo.md"), home.path()).unwrap_err()
    });
}

#[test]
fn a_configuration_that_is_no_file_is_refused() {
    check("drupe.yaml", |home| {
        let sources = drupe_config::Sources {
            file: Some(home.path().join("drupe.yaml")),
            home: home.path().into(),
            ..Default::default()
        };
        drupe_config::load_config(&sources).unwrap_err()
    });
}

#[test]
fn a_sidecar_that_is_no_file_is_refused() {
    check(".env", |home| home.config("").unwrap_err());
}

#[test]
fn a_named_text_that_is_no_file_is_refused_when_it_is_read() {
    check("common.md", |home| read_text_file(&home.path().join("common.md")).unwrap_err());
    let home = Home::new();
    assert_eq!(read_text_file(&home.path().join("common.md")).unwrap(), "Shared by all.");
}
