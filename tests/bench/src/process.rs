//! Processes: building what is measured, starting helpers, and what the system says that a process used.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Builds drupe with its extensions as `cargo build --release` at the root does, then the plugins that are measured: in
/// two steps, so that the features which the plugins need are not turned on in the product.
pub fn build() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for only in [&[][..], &["-p", "drupe-test-faulty", "-p", "drupe-test-bench-tools"]] {
        let status = command(Path::new(env!("CARGO")))
            .args(["build", "--release", "--quiet"])
            .args(only)
            .current_dir(&root)
            .status()
            .context("cargo")?;
        ensure!(status.success(), "cargo build {}: {status}", only.join(" "));
    }
    Ok(())
}

/// A file that the build put beside this program.
pub fn built(name: &str) -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let file = exe.parent().context("a program is in a folder")?.join(name);
    ensure!(file.is_file(), "`{}` is not there", file.display());
    Ok(file)
}

/// A command that knows nothing of the surrounding environment but where programs are found.
#[expect(clippy::disallowed_methods, reason = "it starts the processes that it measures")]
pub fn command(program: &Path) -> Command {
    Command::new(program)
}

/// This program in another role; it ends with this value.
pub struct Role {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Role {
    /// Starts it there.
    pub fn start(cores: Cores, arguments: &[&str]) -> Result<Self> {
        let _held = cores.hold()?;
        let mut child = command(&std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(child.stdout.take().context("its standard output is a pipe")?);
        Ok(Self { child, out })
    }

    /// The next line that it says.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.out.read_line(&mut line)? == 0 {
            bail!("a process of the measurement ended: {}", self.child.wait()?);
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where threads and processes run that are started from now on by this thread, and this thread itself.
///
/// A floor that shares a core with its model takes a third of the time of one that does not, and the system decides
/// which it is: comparing needs a core for the model and whoever asks, and one for what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    /// On any that this program may use.
    Any,
    /// On the first: the model, and clients.
    Beside,
    /// On the second: what is measured.
    Measured,
}

impl Cores {
    /// Keeps to them until the value is dropped. With fewer than two cores there is nothing to choose.
    pub fn hold(self) -> Result<Held> {
        // The first call finds this thread as the program was started.
        static ALL: OnceLock<CpuSet> = OnceLock::new();
        let before = sched_getaffinity(None)?;
        let all = ALL.get_or_init(|| before);
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let chosen = match (self, cores.next(), cores.next()) {
            (Self::Beside, Some(first), Some(_)) => only(first),
            (Self::Measured, Some(_), Some(second)) => only(second),
            _ => *all,
        };
        sched_setaffinity(None, &chosen)?;
        Ok(Held(before))
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// Gives the cores from before back.
pub struct Held(CpuSet);

impl Drop for Held {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// A process and its descendants that live.
pub fn tree(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        // One that has ended since has no parent any more.
        if let Some(stat) = Stat::of(pid) {
            parents.push((pid, stat.parent));
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    Ok(found)
}

/// Processor time of a process tree so far, in milliseconds; of those that were waited for, too.
pub fn cpu_ms(root: u32) -> Result<f64> {
    let mut ticks = 0;
    for pid in tree(root)? {
        ticks += Stat::of(pid).map_or(0, |stat| stat.ticks);
    }
    Ok(milliseconds(ticks))
}

/// Processor time of this process so far, in milliseconds: to the nanosecond, as a floor takes few ticks.
#[expect(clippy::cast_precision_loss, reason = "minutes at most")]
pub fn own_cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "ticks of minutes at most")]
fn milliseconds(ticks: u64) -> f64 {
    ticks as f64 * 1e3 / rustix::param::clock_ticks_per_second() as f64
}

/// What the system keeps of a process.
pub struct Stat {
    pub parent: u32,
    ticks: u64,
}

impl Stat {
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `proc_pid_stat(5)`; the name in parentheses may hold anything, so what follows is counted from its end.
    fn parse(line: &str) -> Option<Self> {
        let after: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| after.get(number - 3)?.parse::<u64>().ok();
        let ticks = (14..=17).map(field).sum::<Option<u64>>()?;
        Some(Self { parent: u32::try_from(field(4)?).ok()?, ticks })
    }
}

/// Memory of a process in megabytes: its own pages, and of shared ones its part.
pub fn pss_mb(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .context("drupe's processes show this to root alone: measure as root")?;
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).context("smaps_rollup without Pss")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// How long the disk takes to keep a page, in milliseconds: the median of some.
pub fn fsync_ms(folder: &Path) -> Result<f64> {
    let mut file = fs::File::create(folder.join("fsync"))?;
    let mut times = Vec::new();
    for _ in 0..50 {
        file.write_all(&[7; 4096])?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(crate::report::median(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_read_over() {
        let stat =
            Stat::parse("7 (a b) c) S 3 7 7 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7").expect("a line");
        assert_eq!((stat.parent, stat.ticks), (3, 100));
        assert!(Stat::parse("7 (a) S 3").is_none());
    }

    #[test]
    fn this_process_is_the_root_of_its_tree_and_uses_memory() {
        let own = std::process::id();
        assert_eq!(tree(own).expect("a tree").first(), Some(&own));
        assert!(pss_mb(own).expect("memory") > 0.0);
    }

    #[test]
    fn one_core_is_held_and_the_others_are_given_back() {
        let now = || sched_getaffinity(None).expect("cores");
        let before = now();
        {
            let _beside = Cores::Beside.hold().expect("a core");
            let _measured = Cores::Measured.hold().expect("a core");
            assert_eq!(now().count(), 1);
        }
        assert_eq!(now(), before);
    }
}
