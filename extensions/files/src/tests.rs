use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use drupe_extension_api::{
    EffectClass, Fault, FaultCode, ItemKind,
    testing::{FakeProcess, Harness, block_on},
    wire::ProcessExit,
};
use serde_json::{Value, json};

use crate::{Files, lines, marks, patch};

mod previews;
mod undoing;

/// A workspace with a secret beside it.
struct House {
    files: Harness<Files>,
    root: tempfile::TempDir,
}

fn house(config: Value) -> House {
    let root = tempfile::tempdir().expect("a folder");
    let workspace = root.path().join("workspace");
    fs::create_dir_all(workspace.join("src")).expect("a folder");
    fs::write(root.path().join("secret.txt"), "secret").expect("a file");
    fs::write(workspace.join("poem.txt"), "one\ntwo\nthree\n").expect("a file");
    fs::write(workspace.join("src/main.rs"), "fn main() {}\n").expect("a file");
    let setup = Harness::setup().id("files").config(config).workspace(&workspace);
    House { files: block_on(setup.start()).expect("it starts"), root }
}

impl House {
    fn call(&self, tool: &str, params: Value) -> Result<String, Fault> {
        block_on(self.files.call(tool, params))
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.files.workspace().join(name)
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    fn outside(&self) -> std::path::PathBuf {
        self.root.path().join("secret.txt")
    }
}

fn refused(outcome: Result<String, Fault>, code: FaultCode, expected: &str) {
    let fault = outcome.expect_err("a fault");
    assert!(fault.code == code && fault.message.contains(expected), "{fault:?}");
}

#[test]
fn a_file_is_read_whole_or_in_parts() {
    let house = house(json!({}));
    let read = |offset: Option<usize>, limit: Option<usize>| {
        house.call("files_read", json!({"path": "poem.txt", "offset": offset, "limit": limit}))
    };
    assert_eq!(read(None, None), Ok("one\ntwo\nthree\n".to_owned()));
    assert_eq!(read(Some(2), Some(1)), Ok("two\n[lines 2 to 2 of 3; go on with offset 3]".to_owned()));
    assert_eq!(read(Some(3), None), Ok("three\n".to_owned()));
    refused(read(Some(4), None), FaultCode::Invalid, "the file has 3 lines");
    let absolute = house.path("poem.txt").display().to_string();
    assert!(house.call("files_read", json!({"path": absolute})).is_ok());
    refused(house.call("files_read", json!({"path": "none"})), FaultCode::NotFound, "there is no `none`");
    refused(house.call("files_read", json!({"path": "src"})), FaultCode::Invalid, "`src` is a folder");
}

#[test]
fn a_long_file_comes_in_parts_and_a_longer_one_not_at_all() {
    let house = house(json!({"max_file_bytes": 1000, "max_output_bytes": 300}));
    fs::write(house.path("long"), "0123456789\n".repeat(80)).expect("a file");
    let part = house.call("files_read", json!({"path": "long"})).expect("a part");
    assert!(part.len() < 360 && part.ends_with("[lines 1 to 27 of 80; go on with offset 28]"), "{part}");
    fs::write(house.path("long"), "x".repeat(1001)).expect("a file");
    refused(house.call("files_read", json!({"path": "long"})), FaultCode::Invalid, "limit of 1000 bytes");
    let write = house.call("files_write", json!({"path": "long", "content": "x".repeat(1001)}));
    refused(write, FaultCode::Invalid, "the limit is 1000");
}

#[test]
fn a_pdf_is_read_by_a_program_that_is_given_its_bytes_and_no_folder_but_an_empty_one() {
    let house = house(json!({}));
    let paper = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n";
    fs::write(house.path("paper.pdf"), paper).expect("a file");
    fs::write(house.path("letters.pdf"), "%PDF-1.4 of letters alone").expect("a file");
    fs::write(house.path("note.txt"), "names %PDF-1.4").expect("a file");
    for file in ["paper.pdf", "letters.pdf"] {
        let program = FakeProcess::ending(0).stdout("One.\n\u{c}Two.\n\u{c}".as_bytes());
        house.files.host().answer_open_process("pdftotext", Ok(program));
        let read = house.call("files_read", json!({"path": file})).expect("it is read");
        assert_eq!(read, "[page 1 of 2]\nOne.\n\n[page 2 of 2]\nTwo.\n");
    }
    for spec in house.files.host().opened_processes() {
        let folder = house.files.data_folder().join("pdf_text").display().to_string();
        assert_eq!(
            (spec.directory.as_str(), spec.folders.as_slice()),
            (folder.as_str(), &[folder.clone()][..])
        );
        assert!(!spec.network && !spec.workspace && spec.timeout_ms == Some(20_000), "{spec:?}");
    }
    let long = FakeProcess::ending(0).stdout(&b"x\n".repeat(drupe_pdf_text::MOST / 2 + 1));
    house.files.host().answer_open_process("pdftotext", Ok(long));
    let end = json!({"path": "paper.pdf", "offset": drupe_pdf_text::MOST / 2});
    let read = house.call("files_read", end).expect("its end");
    assert!(
        read.starts_with("x\n") && read.ends_with("only 8388608 bytes of its text are read]\n"),
        "{read}"
    );
    let late = ProcessExit { timed_out: true, ..ProcessExit::default() };
    house.files.host().answer_open_process("pdftotext", Ok(FakeProcess::ending(0).exit(late)));
    refused(house.call("files_read", json!({"path": "paper.pdf"})), FaultCode::Timeout, "within 20 s");
    let said = FakeProcess::ending(1).stderr(b"Syntax Error: Couldn't find trailer dictionary\n");
    house.files.host().answer_open_process("pdftotext", Ok(said));
    let read = house.call("files_read", json!({"path": "paper.pdf"}));
    refused(read, FaultCode::Invalid, "`paper.pdf` is a PDF: it cannot be read");
    assert_eq!(house.call("files_read", json!({"path": "note.txt"})).expect("a text"), "names %PDF-1.4");
}

#[test]
fn a_binary_file_is_named_as_such_and_not_changed() {
    let house = house(json!({}));
    fs::write(house.path("paper.pdf"), b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n").expect("a file");
    let edit = house.call("files_edit", json!({"path": "paper.pdf", "old": "a", "new": "b"}));
    refused(edit, FaultCode::Invalid, "`paper.pdf` is a binary file of 15 bytes (application/pdf)");
    for bytes in [&b"\x00\x01"[..], &b"\xff\xfe"[..]] {
        fs::write(house.path("blob"), bytes).expect("a file");
        let read = house.call("files_read", json!({"path": "blob"}));
        refused(read, FaultCode::Invalid, "`blob` is a binary file of 2 bytes");
        assert!(house.call("files_edit", json!({"path": "blob", "old": "a", "new": "b"})).is_err());
    }
}

/// A PNG as far as its head tells, and one of those sides.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    out.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
    out.extend(b"\x08\x06\0\0\0sum!\0\0\0\0IENDsum!");
    out
}

#[test]
fn a_picture_is_shown_and_known_by_its_content_whatever_its_name() {
    let house = house(json!({}));
    fs::write(house.path("plan.txt"), png(640, 480)).expect("a file");
    let read = |path: &str| block_on(house.files.calling().result("files_read", json!({"path": path})));
    let given = read("plan.txt").expect("a picture");
    assert_eq!(given.content, "`plan.txt` is a picture: image/png, 640x480 pixels, 45 bytes");
    let data = BASE64_STANDARD.decode(&given.images[0].data).expect("base64");
    assert_eq!((given.images.len(), data, given.untrusted), (1, png(640, 480), false));
    // A text stays one, whatever its name and its first word are.
    fs::write(house.path("text.png"), "GIF89a is how a GIF begins\n").expect("a file");
    let text = read("text.png").expect("a text");
    assert_eq!((text.content.as_str(), text.images.len()), ("GIF89a is how a GIF begins\n", 0));
    // One that strangers made says so.
    marks::mark(fs::File::open(house.path("plan.txt")).expect("a file")).expect("a mark");
    assert_eq!(
        read("plan.txt").expect("a picture").untrusted,
        marks::is_name_marked(&house.path("plan.txt"))
    );
}

#[test]
fn a_picture_that_models_cannot_see_is_refused_with_what_to_do() {
    let house = house(json!({}));
    let mut cut = png(640, 480);
    cut.truncate(40);
    for (bytes, expected, help) in [
        (png(9_000, 10), "it has 9000x10 pixels, and at most 8000 a side", "make it smaller"),
        (cut, "begins as image/png and is not whole", "save or fetch it again"),
    ] {
        fs::write(house.path("plan.png"), bytes).expect("a file");
        let fault = house.call("files_read", json!({"path": "plan.png"})).expect_err("a fault");
        assert!(fault.message.contains("`plan.png` is a picture that cannot be shown"), "{fault:?}");
        assert!(fault.message.contains(expected) && fault.help.is_some_and(|h| h.contains(help)));
    }
    fs::write(house.path("plan.png"), png(9, 9)).expect("a file");
    let part = house.call("files_read", json!({"path": "plan.png", "offset": 2}));
    refused(part, FaultCode::Invalid, "which has no lines");
    let edit = house.call("files_edit", json!({"path": "plan.png", "old": "a", "new": "b"}));
    refused(edit, FaultCode::Invalid, "is a binary file of 45 bytes (image/png)");
}

#[test]
fn writing_makes_folders_keeps_the_mode_and_leaves_nothing_beside() {
    let house = house(json!({}));
    let write = |path: &str| house.call("files_write", json!({"path": path, "content": "new\n"}));
    assert_eq!(write("a/b/c.txt"), Ok("created `a/b/c.txt`, 4 bytes".to_owned()));
    fs::set_permissions(house.path("poem.txt"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::write(house.path(".poem.txt.new"), "left by a crash").expect("a file");
    assert_eq!(write("poem.txt"), Ok("wrote `poem.txt`, 4 bytes".to_owned()));
    assert_eq!(house.content("poem.txt"), "new\n");
    let mode = fs::metadata(house.path("poem.txt")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!house.path(".poem.txt.new").exists());
}

#[test]
fn an_edit_replaces_what_stands_once() {
    let house = house(json!({}));
    let edit =
        |old: &str, new: &str| house.call("files_edit", json!({"path": "poem.txt", "old": old, "new": new}));
    assert_eq!(edit("two", "zwei\ndrei"), Ok("edited `poem.txt`: 1 lines became 2, from line 2".to_owned()));
    assert_eq!(house.content("poem.txt"), "one\nzwei\ndrei\nthree\n");
    refused(edit("e", ""), FaultCode::Invalid, "`old` is in the file 5 times");
    refused(edit("absent", ""), FaultCode::Invalid, "`old` is not in the file");
    refused(edit("", ""), FaultCode::Invalid, "`old` is empty");
    for params in [json!({"path": "poem.txt"}), json!({"path": "poem.txt", "old": "one", "patch": "x"})] {
        refused(house.call("files_edit", params), FaultCode::Invalid, "either `old` and `new`, or `patch`");
    }
}

#[test]
fn an_edit_by_patch_changes_the_file() {
    let house = house(json!({}));
    let patch = "--- a/poem.txt\n+++ b/poem.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n";
    assert!(house.call("files_edit", json!({"path": "poem.txt", "patch": patch})).is_ok());
    assert_eq!(house.content("poem.txt"), "one\nzwei\nthree\n");
}

fn patched(text: &str, diff: &str, expected: &str) {
    match patch::apply(text, diff) {
        Ok(result) => assert_eq!(result, expected, "{diff}"),
        Err(fault) => assert!(!expected.is_empty() && fault.message.contains(expected), "{fault}"),
    }
}

#[test]
fn a_patch_goes_where_its_lines_stand_or_is_refused() {
    let text = "a\nb\nc\nd\ne\n";
    patched(text, "@@ -2 +2 @@\n-b\n+B\n", "a\nB\nc\nd\ne\n");
    patched(text, "@@ -9,2 +9,2 @@\n c\n-d\n+D\n", "a\nb\nc\nD\ne\n");
    patched(text, "@@ -1,2 +1,1 @@\n-a\n b\n@@ -4,2 +3,3 @@\n d\n+x\n e\n", "b\nc\nd\nx\ne\n");
    patched(text, "@@ -0,0 +1,1 @@\n+first\n", "first\na\nb\nc\nd\ne\n");
    patched("a\n\nb\n", "@@ -1,3 +1,3 @@\n-a\n+A\n\n b\n", "A\n\nb\n");
    patched("a\nb", "@@ -2 +2,2 @@\n-b\n\\ No newline at end of file\n+b\n+c\n", "a\nb\nc\n");
    patched("a\nb\n", "@@ -2 +2 @@\n-b\n+b\n\\ No newline at end of file\n", "a\nb");
    patched(text, "@@ -1 +1 @@\n-x\n+y\n", "hunk 1 does not fit");
    patched("a\na\nb\n", "@@ -7 +7 @@\n-a\n+y\n", "hunk 1 fits in more than one place");
    patched(text, "@@ -1,2 +1,2 @@\n-a\n", "fewer lines than its header says");
    patched(text, "@@ -1,1 +1,1 @@\n-a\n-b\n+c\n", "more lines than its header says");
    patched(text, "@@ -1,1 +1,1 @@\n-a\n+b\n-c\n", "is no line of a unified diff");
    patched(text, "@@ -1,2 +1,2 @@\n-a\n*b\n", "begins with neither");
    patched(text, "@@ one @@\n", "is not the header of a hunk");
    patched(text, "rm -rf /\n", "is no line of a unified diff");
    patched(text, "", "`patch` holds no hunk");
}

#[test]
fn no_path_leaves_the_workspace() {
    let house = house(json!({}));
    symlink(house.outside(), house.path("link")).expect("a link");
    symlink(house.root.path(), house.path("up")).expect("a link");
    symlink("../../secret.txt", house.path("src/relative")).expect("a link");
    let absolute = house.outside().display().to_string();
    let ways = [
        "../secret.txt",
        "src/../../secret.txt",
        "link",
        "up/secret.txt",
        "src/relative",
        &absolute,
        "/etc/passwd",
    ];
    for path in ways {
        refused(house.call("files_read", json!({"path": path})), FaultCode::Denied, "");
        refused(
            house.call("files_edit", json!({"path": path, "old": "secret", "new": "x"})),
            FaultCode::Denied,
            "",
        );
        refused(house.call("files_write", json!({"path": path, "content": "x"})), FaultCode::Denied, "");
    }
    for path in ["..", "up", "/", "src/.."] {
        refused(house.call("files_list", json!({"path": path})), FaultCode::Denied, "");
        refused(
            house.call("files_search", json!({"path": path, "pattern": "secret"})),
            FaultCode::Denied,
            "",
        );
    }
    refused(house.call("files_write", json!({"path": "up/new.txt", "content": "x"})), FaultCode::Denied, "");
    assert_eq!(fs::read_to_string(house.outside()).expect("a file"), "secret");
    assert!(!house.root.path().join("new.txt").exists());
}

#[test]
fn a_second_name_of_a_file_elsewhere_is_not_written() {
    let house = house(json!({}));
    fs::hard_link(house.outside(), house.path("hard")).expect("a link");
    let write = house.call("files_write", json!({"path": "hard", "content": "x"}));
    refused(write, FaultCode::Denied, "`hard` has 2 names");
    let edit = house.call("files_edit", json!({"path": "hard", "old": "secret", "new": "x"}));
    refused(edit, FaultCode::Denied, "`hard` has 2 names");
    assert_eq!(fs::read_to_string(house.outside()).expect("a file"), "secret");
}

#[test]
fn a_link_within_the_workspace_is_read_and_not_written() {
    let house = house(json!({}));
    symlink("poem.txt", house.path("link")).expect("a link");
    assert!(house.call("files_read", json!({"path": "link"})).is_ok());
    let write = house.call("files_write", json!({"path": "link", "content": "x"}));
    refused(write, FaultCode::Denied, "`link` is a symbolic link");
}

#[test]
fn what_git_obeys_is_read_and_not_written() {
    let house = house(json!({}));
    fs::create_dir_all(house.path("clone/.git/hooks")).expect("a folder");
    fs::write(house.path("clone/.git/config"), "[core]\n").expect("a file");
    symlink("clone/.git", house.path("plain")).expect("a link");
    symlink("../clone/.git/hooks", house.path("src/hooks")).expect("a link");
    for path in [
        "clone/.git/config",
        "clone/.git/hooks/pre-commit",
        "new/.git",
        "new/.git/config",
        "plain/config",
        "src/hooks/pre-push",
    ] {
        let write = house.call("files_write", json!({"path": path, "content": "x"}));
        refused(write, FaultCode::Denied, "belongs to a git repository's own files");
    }
    let edit = house.call("files_edit", json!({"path": "plain/config", "old": "core", "new": "x"}));
    refused(edit, FaultCode::Denied, "belongs to a git repository's own files");
    assert_eq!(house.content("clone/.git/config"), "[core]\n");
    assert!(!house.path("new").exists() && !house.path("clone/.git/hooks/pre-commit").exists());
    assert!(house.call("files_read", json!({"path": "clone/.git/config"})).is_ok());
    assert!(house.call("files_write", json!({"path": "clone/.gitignore", "content": "x"})).is_ok());
}

#[test]
fn a_pipe_is_not_waited_for() {
    let house = house(json!({}));
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        house.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    );
    assert_eq!(made, Ok(()));
    refused(
        house.call("files_read", json!({"path": "pipe"})),
        FaultCode::Invalid,
        "`pipe` is a pipe, socket or device",
    );
    let write = house.call("files_write", json!({"path": "pipe", "content": "x"}));
    refused(write, FaultCode::Invalid, "`pipe` is a pipe, socket or device");
    assert_eq!(house.call("files_search", json!({"pattern": "zzz"})), Ok("no line matches".to_owned()));
}

#[test]
fn a_list_is_in_order_and_marks_what_is_no_file() {
    let house = house(json!({}));
    symlink(house.root.path(), house.path("up")).expect("a link");
    fs::create_dir_all(house.path(".git/objects")).expect("a folder");
    let list = |params| house.call("files_list", params).expect("a list");
    assert_eq!(list(json!({})), ".git/\npoem.txt\nsrc/\nup (symbolic link)");
    assert_eq!(list(json!({"depth": 5})), ".git/\npoem.txt\nsrc/\nsrc/main.rs\nup (symbolic link)");
    assert_eq!(list(json!({"path": "src"})), "main.rs");
    refused(house.call("files_list", json!({"path": "poem.txt"})), FaultCode::Other, "`poem.txt`");
}

#[test]
fn a_list_ends_at_its_bound() {
    let house = house(json!({}));
    for number in 0..1001 {
        fs::write(house.path(&format!("src/f{number:04}")), "").expect("a file");
    }
    let list = house.call("files_list", json!({"path": "src"})).expect("a list");
    assert_eq!(list.lines().count(), 1001);
    assert!(list.ends_with("[more than 1000 entries; list a folder below]"));
}

#[test]
fn a_search_gives_path_line_and_text_within_bounds() {
    let house = house(json!({}));
    let search = |params| house.call("files_search", params);
    let found = search(json!({"pattern": "^t"}));
    assert_eq!(found, Ok("poem.txt:2: two\npoem.txt:3: three".to_owned()));
    assert_eq!(
        search(json!({"pattern": "main", "path": "src"})),
        Ok("src/main.rs:1: fn main() {}".to_owned())
    );
    assert_eq!(search(json!({"pattern": "one", "path": "poem.txt"})), Ok("poem.txt:1: one".to_owned()));
    refused(search(json!({"pattern": "("})), FaultCode::Invalid, "`(` is not a regular expression");
    refused(search(json!({"pattern": "(a{1000}){1000}"})), FaultCode::Invalid, "is not a regular expression");
    fs::write(house.path("many"), format!("{}\n", "äx".repeat(200)).repeat(300)).expect("a file");
    fs::write(house.path("blob"), b"\x00x").expect("a file");
    let found = search(json!({"pattern": "x"})).expect("lines");
    assert_eq!(found.lines().count(), 202);
    assert!(found.lines().all(|line| line.len() < 320));
    assert!(
        found.contains("[there are more;")
            && found.ends_with("[1 files are binary, too long or not readable]")
    );
}

#[test]
fn relative_paths_begin_at_the_base_folder_of_the_call() {
    let house = house(json!({}));
    let base = house.path("src").display().to_string();
    let call = |base: &str, path: &str| {
        let calling = house.files.calling().base_folder(base);
        block_on(calling.call("files_read", json!({"path": path})))
    };
    assert_eq!(call(&base, "main.rs"), Ok("fn main() {}\n".to_owned()));
    let elsewhere = house.root.path().display().to_string();
    refused(call(&elsewhere, "secret.txt"), FaultCode::NotFound, "there is no `secret.txt`");
}

#[test]
fn a_workspace_that_is_not_there_is_a_matter_of_configuration() {
    let setup = Harness::<Files>::setup().workspace(Path::new("/nonexistent/workspace"));
    let files = block_on(setup.start()).expect("it starts");
    refused(
        block_on(files.call("files_list", json!({}))),
        FaultCode::NotConfigured,
        "/nonexistent/workspace",
    );
}

#[test]
fn the_lines_that_differ_are_counted() {
    assert_eq!(lines::difference("a\nb\n", "a\nb\n"), "0 lines became 0, from line 3");
    assert_eq!(lines::difference("a\na\n", "a\n"), "1 lines became 0, from line 2");
}

#[test]
fn reading_is_pure_writing_idempotent_and_editing_happens_once() {
    let tools = house(json!({})).files.describe().expect("a description").tools;
    let found: Vec<_> =
        tools.iter().map(|t| (t.name.as_str(), t.annotations.effect, t.annotations.item)).collect();
    assert_eq!(
        found,
        [
            ("files_read", EffectClass::Pure, ItemKind::ToolCall),
            ("files_write", EffectClass::Idempotent, ItemKind::FileChange),
            ("files_edit", EffectClass::Once, ItemKind::FileChange),
            ("files_delete", EffectClass::Once, ItemKind::FileChange),
            ("files_move", EffectClass::Once, ItemKind::FileChange),
            ("files_list", EffectClass::Pure, ItemKind::ToolCall),
            ("files_search", EffectClass::Pure, ItemKind::ToolCall),
            ("files_send", EffectClass::Idempotent, ItemKind::ToolCall),
            ("files_changes", EffectClass::Pure, ItemKind::ToolCall),
            ("files_undo", EffectClass::Once, ItemKind::FileChange),
        ]
    );
}

#[test]
fn what_was_written_where_strangers_were_read_says_so_to_whoever_reads_it() {
    let house = house(json!({}));
    let untrusted = |tool: &str, params: Value| {
        block_on(house.files.calling().result(tool, params)).expect("it works").untrusted
    };
    let page = json!({"path": "notes/page.txt", "content": "what a page says\n"});
    block_on(house.files.calling().tainted().call("files_write", page)).expect("it is written");
    assert!(untrusted("files_read", json!({"path": "notes/page.txt"})));
    assert!(untrusted("files_list", json!({"path": "notes"})), "names are text, too");
    assert!(untrusted("files_search", json!({"pattern": "page says"})));
    assert!(!untrusted("files_search", json!({"pattern": "three"})), "nothing of it is shown");
    assert!(!untrusted("files_read", json!({"path": "poem.txt"})));
    // It goes with the file, and stays while any of it does.
    fs::rename(house.path("notes/page.txt"), house.path("renamed.txt")).expect("a file");
    let edit = json!({"path": "renamed.txt", "old": "what", "new": "all that"});
    assert!(untrusted("files_edit", edit));
    assert!(untrusted("files_read", json!({"path": "renamed.txt"})));
    let edit = json!({"path": "poem.txt", "old": "two", "new": "a page"});
    block_on(house.files.calling().tainted().call("files_edit", edit)).expect("it is edited");
    assert!(untrusted("files_read", json!({"path": "poem.txt"})));
    house.call("files_write", json!({"path": "renamed.txt", "content": "anew"})).expect("it is written");
    assert!(!untrusted("files_read", json!({"path": "renamed.txt"})));
}
