//! Hostile manifests by the thousand: none is a crash, each costs little, and each refusal says where to look.
//!
//! The cases run on one thread, one after another, so that what is measured is theirs.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(clippy::print_stdout, reason = "figures are for whoever reads the output")]

mod allocator;
mod generate;
mod worst;

use std::{fs, path::PathBuf, time::Duration};

use drupe_config::{Config, Diagnostics, Severity, Sources, load_config, load_manifest};

/// What a case may take of memory, whatever the machine.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// What it may compute. A debug build needs many times as long, and what it needs varies.
const MAX_TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 100 });

struct Bench {
    root: tempfile::TempDir,
    config: Config,
    slowest: (Duration, String),
    largest: (usize, String),
    refused: usize,
    cases: usize,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("extensions/demo")).unwrap();
        fs::write(root.path().join("extensions/demo/large.md"), "x".repeat(1024 * 1024)).unwrap();
        for name in ["prompt.md", "prompt.jinja2", "facts.csv", "common.md"] {
            fs::write(root.path().join("extensions/demo").join(name), "You are a demo.").unwrap();
        }
        let config = load_config(&Sources { home: root.path().into(), ..Sources::default() }).unwrap().value;
        let none = || (Duration::ZERO, String::new());
        Self { root, config, slowest: none(), largest: (0, String::new()), refused: 0, cases: 0 }
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("extensions/demo")
    }

    /// Loads, merges and renders one manifest, as a start of the daemon would.
    fn run(&mut self, name: &str, text: &[u8]) {
        let folder = self.folder();
        fs::write(folder.join("manifest.yaml"), text).unwrap();
        let started = cpu_time();
        let (result, bytes) = allocator::peak_of(|| self.load());
        let time = cpu_time() - started;
        self.cases += 1;
        if time > self.slowest.0 {
            self.slowest = (time, name.to_owned());
        }
        if bytes > self.largest.0 {
            self.largest = (bytes, name.to_owned());
        }
        if time > Duration::from_millis(50) || bytes > MAX_BYTES / 2 {
            println!("{name}: {time:?}, {} KiB", bytes / 1024);
        }
        if let Err(faults) = result {
            self.refused += 1;
            names_its_place(name, &faults);
        }
        assert!(bytes < MAX_BYTES, "{name} takes {bytes} bytes");
        assert!(time < MAX_TIME, "{name} takes {time:?}");
    }

    fn load(&self) -> Result<(), Diagnostics> {
        let loaded = load_manifest(&self.folder(), self.root.path());
        let result = loaded.and_then(|loaded| {
            loaded.warnings.render(false);
            loaded.value.effective_config(&self.config)?;
            loaded.value.resolve_secrets(&self.config.overlay)?;
            Ok(())
        });
        if let Err(faults) = &result {
            assert!(!faults.render(true).is_empty());
            serde_json::to_string(faults).unwrap();
        }
        result
    }

    fn report(&self) {
        println!(
            "{} cases, {} refused; slowest {:?} ({}), largest {} KiB ({})",
            self.cases,
            self.refused,
            self.slowest.0,
            self.slowest.1,
            self.largest.0 / 1024,
            self.largest.1
        );
    }
}

/// What this thread has computed; how long it waited for its turn depends on the machine alone.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

/// A refusal names the file, and a line with its column or the field; only of a file that is too large there is no
/// more to say.
fn names_its_place(name: &str, faults: &Diagnostics) {
    assert!(faults.has_errors(), "{name}: refused without an error");
    for fault in faults.iter().filter(|fault| fault.severity == Severity::Error) {
        assert!(fault.file.ends_with("extensions/demo/manifest.yaml"), "{name}: {fault}");
        let placed = (fault.line > 0 && fault.column > 0) || fault.code == "too_large";
        assert!(placed, "{name}: {} {fault}", fault.code);
        assert!(!fault.message.is_empty() && fault.message.len() < 2_000, "{name}: {fault}");
        let whole = ["syntax", "empty", "too_large", "not_utf8"].contains(&fault.code);
        assert!(whole || !fault.field.is_empty() || fault.code == "wrong_type", "{name}: {fault}");
    }
}

/// Everything in one test: another one beside it would be counted, too.
#[test]
fn hostile_manifests_cost_little_and_are_refused_by_name() {
    let mut bench = Bench::new();
    for (name, text) in worst::all() {
        bench.run(name, text.as_bytes());
    }
    bench.report();
    // Unoptimized each takes as long as ten; the one below has all.
    generated(&mut bench, if cfg!(debug_assertions) { 2_500 } else { 10_000 }, 60);
    assert!(bench.refused < bench.cases, "some are still valid, or the rest of the way is never gone");
}

#[test]
#[ignore = "takes minutes; alone: cargo test --release -p drupe-config --test corpus -- --ignored --nocapture"]
fn very_many_large_hostile_manifests_cost_little_and_are_refused_by_name() {
    let mut bench = Bench::new();
    for scale in [60, 1_000, 10_000] {
        generated(&mut bench, 30_000, scale);
    }
}

fn generated(bench: &mut Bench, cases: u64, scale: usize) {
    for seed in 0..cases {
        let text = generate::manifest(&mut generate::Random::new(seed), scale);
        bench.run(&format!("manifest {seed} of scale {scale}"), &text);
    }
    bench.report();
}
