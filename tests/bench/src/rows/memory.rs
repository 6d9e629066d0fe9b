//! Memory of a daemon that waits.

use std::{thread, time::Duration};

use anyhow::Result;

use crate::{
    daemon::Daemon,
    model::Model,
    process::{pss_mb, tree},
    report::{Row, Unit, median},
    settings::{Settings, Shipped},
};

/// What start-up needed is given back by then.
const SETTLE: Duration = Duration::from_secs(2);
const STARTS: usize = 3;

/// Agents without code: enough that one of them is more than what is read by chance.
const AGENTS: u32 = 1000;

/// Extensions with code, in process or a process each.
const NATIVE: u32 = 20;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let bare = idle(&model, Shipped::None, |_| Ok(()))?;
    let shipped = idle(&model, Shipped::All, |_| Ok(()))?;
    let agents = idle(&model, Shipped::All, |daemon| each(AGENTS, |at| daemon.agent(&format!("agent{at}"))))?;
    let native = |isolation| {
        idle(&model, Shipped::All, |daemon| {
            each(NATIVE, |at| daemon.native(&format!("native{at}"), isolation))
        })
    };
    let (inproc, apart) = (native("inproc")?, native("process")?);
    let one = |with: &Used, count: f64| (with.kernel - shipped.kernel) / count;
    let kernels_side = format!("and {} of the kernel for each", kilobytes(one(&apart, f64::from(NATIVE))));
    Ok(vec![
        Row::most("idle memory (PSS) of the supervisor", shipped.supervisor, Unit::Megabytes, 5.0),
        Row::most("with the kernel, no extension", bare.whole(), Unit::Megabytes, 12.0),
        Row::most("with the kernel and all shipped extensions", shipped.whole(), Unit::Megabytes, 30.0)
            .beside(format!("the kernel {}", Unit::Megabytes.show(shipped.kernel))),
        Row::most(
            format!("of the kernel, an agent without code, over {AGENTS}"),
            one(&agents, f64::from(AGENTS)) * 1e3,
            Unit::Kilobytes,
            10.0,
        ),
        Row::plain(
            format!("of the kernel, a native extension in process, over {NATIVE}"),
            one(&inproc, f64::from(NATIVE)) * 1e3,
            Unit::Kilobytes,
        )
        .beside("a library of 16 tools with a runtime of its own"),
        Row::plain(
            format!("a native extension in a process of its own, with its reaper, over {NATIVE}"),
            apart.others / f64::from(NATIVE),
            Unit::Megabytes,
        )
        .beside(kernels_side),
    ])
}

fn kilobytes(megabytes: f64) -> String {
    Unit::Kilobytes.show(megabytes * 1e3)
}

fn each(count: u32, put: impl Fn(u32) -> Result<()>) -> Result<()> {
    (0..count).try_for_each(put)
}

/// Megabytes of the processes.
#[derive(Default)]
struct Used {
    supervisor: f64,
    kernel: f64,
    /// Everything else that the supervisor is above of.
    others: f64,
}

impl Used {
    fn whole(&self) -> f64 {
        self.supervisor + self.kernel + self.others
    }
}

/// Medians over some starts of a home with what `put` puts into it.
fn idle(model: &Model, shipped: Shipped, put: impl Fn(&Daemon) -> Result<()>) -> Result<Used> {
    let daemon = Daemon::home(model.address(), Settings { shipped, ..Settings::default() })?;
    put(&daemon)?;
    let (mut supervisors, mut kernels, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        daemon.start_whole()?;
        thread::sleep(SETTLE);
        let (root, kernel) = (daemon.supervisor()?, daemon.kernel()?);
        supervisors.push(pss_mb(root)?);
        kernels.push(pss_mb(kernel)?);
        let rest = tree(root)?.into_iter().filter(|pid| ![root, kernel].contains(pid));
        others.push(rest.map(pss_mb).sum::<Result<f64>>()?);
        daemon.stop()?;
    }
    Ok(Used { supervisor: median(supervisors), kernel: median(kernels), others: median(others) })
}
