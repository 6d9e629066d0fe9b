//! What a first build has to compile, and what of it is in the program. Nobody notices one library more; whoever builds on a
//! small machine notices fifty.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::harness::DRUPE;

/// Packages that a build of the program compiles, ours and procedural macros included. The dearest is `jsonschema`, then the
/// HTTP client with its TLS, and SQLite. The latest is ours, which keeps files that come and go through
/// channels. What adds one names in `docs/decisions/dependencies.md` what it is for.
const PACKAGES: usize = 327;

/// Packages that some extensions add to these.
const ADDED: &[(&str, usize)] = &[
    // Axum, what reads and cleans markdown, our own parts of it, thirteen for WebSockets, of which most are older versions of what hashes and
    // draws random numbers, twelve for the MCP server, and three for signatures of webhooks and of visitors.
    ("http", 64),
    // What parses pages and finds their main text, with the selectors of styles that it finds it by, what reads feeds, what decompresses,
    // and our own that has PDFs read.
    ("web", 38),
    // The SDK of the protocol, what it reads streams of events and compares names with, and schemas of the inputs of our own tools.
    ("mcp", 13),
    // Itself, the library that keeps its file, and the four for schemas that each native extension has: what it writes is JSON, and the daemon
    // sends it.
    ("otel", 6),
    // Three for signatures, and what these stand on.
    ("webhook", 8),
    // What speaks WebSocket, of which most are older versions of what hashes and draws random numbers, the library of channels, schemas of the
    // inputs of our own tools, three for signatures, and dates of a server's answers.
    ("slack", 22),
    // The clients of three protocols and forms: what waits and what reads answers for IMAP, what writes mails and sends them, what reads whatever
    // comes; and schemas of the inputs of our own tools, which each native extension has.
    ("email", 33),
];

/// Mebibytes of the program that are loaded, as tests build it, without what is there for debuggers. That is about twice the
/// size of a release, and grows with the code as that does. Room for a few thousand lines of ours, not for another engine.
const LOADED: u64 = 84;

#[test]
fn a_build_compiles_no_more_packages_than_there_is_a_reason_for() {
    let program = packages("drupe");
    assert!(program.len() > 100, "cargo lists none");
    let added = ADDED.iter().map(|(id, most)| {
        let of = format!("drupe-ext-{id}");
        let counted = packages(&of).difference(&program).count();
        assert!(counted > 0, "cargo does not list `{of}` itself");
        (of, counted, *most)
    });
    for (of, counted, most) in std::iter::once(("drupe".to_owned(), program.len(), PACKAGES)).chain(added) {
        println!("{counted} packages of `{of}`");
        assert!(
            counted <= most,
            "a build of `{of}` compiles {counted} packages; {most} have a reason. `cargo tree -i NAME` tells who wants one"
        );
    }
}

/// Those that a build of a package of ours compiles.
fn packages(of: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal,build", "--package", of])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    let tree = String::from_utf8(output.stdout).expect("names are text");
    // The name and version; a path, and whether it was listed before, come after them.
    tree.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_program_holds_no_more_than_there_is_a_reason_for() {
    let loaded = loaded(&fs::read(DRUPE).expect("the program can be read")) >> 20;
    println!("{loaded} MiB are loaded");
    assert!(loaded > 10, "that is no program");
    assert!(loaded <= LOADED, "{loaded} MiB of the program are loaded; {LOADED} have a reason");
}

/// Bytes of the file that are loaded, by its program headers: those of ELF with 64 bits in this machine's byte order, as the
/// manual page elf(5) lays them out.
fn loaded(file: &[u8]) -> u64 {
    const LOAD: u32 = 1;
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| usize::from(u16::from_ne_bytes([file[at], file[at + 1]]));
    let (first, size, count) = (usize::try_from(word(32)).expect("an offset"), half(54), half(56));
    (0..count)
        .map(|index| first + index * size)
        .filter(|at| file[*at..at + 4] == LOAD.to_ne_bytes())
        .map(|at| word(at + 32))
        .sum()
}
