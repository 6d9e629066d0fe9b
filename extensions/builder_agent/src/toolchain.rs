//! Runs cargo, confined, on drafts that have code.
//!
//! What cargo is, where it lies, what it reads and what it keeps is known here and nowhere else. The kernel starts it as it
//! starts any program, and says what programs of this extension may touch. A toolchain may come or go while drupe runs, so that
//! only its presence is remembered.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use drupe_extension_api::{
    prelude::*,
    wire::{ProcessOutput, ProcessSpec, RunProcess},
};

use crate::cargo_home;

/// How long a build or a test may take: the first one of a home compiles what the API needs, on slow machines too.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How long telling its version may take.
const VERSION_PATIENCE: Duration = Duration::from_secs(30);

/// The most that is kept of an output stream, in bytes. A build of a hundred crates says some 200 KB.
const KEPT: u64 = 1024 * 1024;

/// What cargo compiles into, beneath the data folder. All drafts share it, so that only the first one waits for the
/// API.
const TARGET: &str = "target";

/// Where cargo keeps what it fetched, beneath the data folder. The operator's own is never shared: cargo does not look at the
/// checksums of what it finds unpacked there, and a draft's build may write to it.
const CARGO_HOME: &str = "cargo";

/// Cargo, if there is one.
#[derive(Default)]
pub struct Toolchain {
    present: AtomicBool,
}

impl Toolchain {
    /// Fails with a sentence where there is no toolchain.
    pub async fn check(&self, host: &Host) -> Result<(), Fault> {
        if self.present.load(Ordering::Relaxed) {
            return Ok(());
        }
        let version = run(host, host.data_folder(), &["--version"], false, VERSION_PATIENCE).await;
        let why = match version {
            Ok(output) if output.status == Some(0) => {
                self.present.store(true, Ordering::Relaxed);
                return Ok(());
            }
            Ok(output) => output.stderr.lines().next().unwrap_or("it does not tell its version").to_owned(),
            Err(fault) => fault.message,
        };
        Err(Fault::new(
            FaultCode::NotConfigured,
            format!("there is no Rust toolchain for native extensions here: {why}"),
        )
        .help("make an agent without code (`builder_draft`), or tell the user that `cargo` is needed"))
    }

    /// Runs cargo in a folder beneath the data folder. It may use the network, since crates may have to be fetched.
    pub async fn cargo(&self, host: &Host, folder: &Path, args: &[&str]) -> Result<ProcessOutput, Fault> {
        self.check(host).await?;
        let output = run(host, folder, args, true, PATIENCE).await?;
        let command = args.first().copied().unwrap_or_default();
        if output.timed_out {
            let message = format!("`cargo {command}` was ended after {} minutes", PATIENCE.as_secs() / 60);
            return Err(Fault::new(FaultCode::Timeout, message)
                .help("what was compiled is kept: try again, or depend on fewer crates"));
        }
        match output.status {
            Some(_) => Ok(output),
            None => Err(Fault::new(FaultCode::Other, format!("a signal ended `cargo {command}`"))),
        }
    }

    /// Where release builds come to lie, from the data folder.
    pub fn release() -> PathBuf {
        Path::new(TARGET).join("release")
    }
}

async fn run(
    host: &Host,
    folder: &Path,
    args: &[&str],
    network: bool,
    patience: Duration,
) -> Result<ProcessOutput, Fault> {
    let (target, cargo_home) = (host.data_folder().join(TARGET), host.data_folder().join(CARGO_HOME));
    // The manifest names them in this order. What is nowhere is left out: cargo may be among the system's programs.
    let mut named = host.program_folders().iter().cloned();
    let mut next = || named.next().filter(|folder| !folder.is_empty());
    let (bin, rustup) = (next(), next());
    if let Some(of) = bin.as_deref().and_then(|bin| Path::new(bin).parent()) {
        let (of, own) = (of.to_owned(), cargo_home.clone());
        host.blocking(move || cargo_home::seed(&of, &own)).await?;
    }
    std::fs::create_dir_all(&cargo_home)?;
    std::fs::create_dir_all(&target)?;
    let text = |path: &Path| path.display().to_string();
    let mut env = vec![
        ("CARGO_HOME", text(&cargo_home)),
        ("CARGO_TARGET_DIR", text(&target)),
        ("CARGO_TERM_COLOR", "never".to_owned()),
    ];
    env.extend(rustup.clone().map(|rustup| ("RUSTUP_HOME", rustup)));
    // What runs is a draft's own code, too. It changes its draft and what is compiled, and no other draft.
    let mut folders = vec![text(&target), text(&cargo_home)];
    if folder != host.data_folder() {
        folders.push(text(folder));
    }
    let spec = ProcessSpec {
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        path: bin.iter().cloned().collect(),
        read: bin.into_iter().chain(rustup).collect(),
        folders,
        network,
        timeout_ms: u64::try_from(patience.as_millis()).ok(),
        ..ProcessSpec::new("cargo", folder)
    };
    host.run_process(&RunProcess { spec, max_output: KEPT }).await
}
