//! Whether clients find the daemon.
//!
//! What is in `HOME/run` may be deleted, the listener that kernels inherit may be shut down by code in their process, the
//! whole home may be moved. None of it is a fault that killing a kernel would mend: what can be made again is made again,
//! and a daemon without its home ends.

use std::time::{Duration, Instant};

use super::Driver;
use crate::supervise::{control::Lost, output::Output, state::Event};

/// Between two looks. A kernel at rest beats as often as every other look is due, a kernel at work as often as each is.
const INTERVAL: Duration = Duration::from_secs(2);

/// How much sooner it is looked where the supervisor is awake anyway, and how much later so that it is: a beat may come late.
const SOONER: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_millis(20);

/// Why a kernel is asked to make room for one that has the new listener.
pub const RESTART: &str = "clients did not find the control socket, and there is a new one";

/// What is known of it.
#[derive(Debug)]
pub struct Reach {
    next: Instant,
    /// The kernel has a listener that is not the home's any more.
    withheld: bool,
    /// What cannot be mended at the moment; said once.
    trouble: Option<String>,
    homeless: bool,
}

impl Reach {
    pub fn new(now: Instant) -> Self {
        Self { next: now + INTERVAL, withheld: false, trouble: None, homeless: false }
    }

    pub fn deadline(&self) -> Instant {
        self.next + LATER
    }

    /// Whether the kernel cannot be reached, through no fault of its own.
    pub fn is_withheld(&self) -> bool {
        self.withheld
    }

    /// A kernel is given the listener.
    pub fn handed_over(&mut self) {
        self.withheld = false;
    }
}

impl Driver {
    /// Whether a kernel that does not answer could be heard.
    pub(super) fn is_reachable(&mut self, now: Instant, output: &mut Output) -> bool {
        self.reach.next = now;
        self.look_after_reach(now, output);
        !self.reach.withheld && self.reach.trouble.is_none() && !self.reach.homeless
    }

    /// Looks, when it is time, and mends what can be mended.
    pub(super) fn look_after_reach(&mut self, now: Instant, output: &mut Output) {
        if now + SOONER < self.reach.next || self.reach.homeless {
            return;
        }
        self.reach.next = now + INTERVAL;
        if !self.lock.is_at(&self.home) {
            self.reach.homeless = true;
            let home = self.home.path().display();
            let text =
                format!("`{home}` was moved or deleted: the daemon ends; start it where its home is now");
            self.remark(&text, output);
            return self.events.push_back(Event::Homeless);
        }
        match self.mend(output) {
            Ok(()) => self.reach.trouble = None,
            Err(error) => {
                let folder = self.home.run();
                let text = format!(
                    "clients cannot reach the daemon, since `{}` cannot be mended: {error}",
                    folder.display()
                );
                if self.reach.trouble.as_ref() != Some(&text) {
                    self.note(text.clone(), output);
                    self.reach.trouble = Some(text);
                }
            }
        }
    }

    fn mend(&mut self, output: &mut Output) -> std::io::Result<()> {
        self.home.make_folders()?;
        if self.home.holder_written() != Some(std::process::id()) {
            self.lock.name_holder(&self.home)?;
        }
        self.control.keep_token(&self.home).map_err(std::io::Error::other)?;
        let Some(lost) = self.control.lost(&self.home) else { return Ok(()) };
        self.control.renew(&self.home)?;
        let what = match lost {
            Lost::Path => "its path was gone or led elsewhere",
            Lost::Shut => "code in the kernel's process had shut it down",
        };
        self.remark(&format!("the control socket was made anew: {what}"), output);
        if self.kernel.is_some() {
            self.reach.withheld = true;
            // Until there is another kernel, who comes is told to wait.
            self.control.serve(true);
            self.events.push_back(Event::Relisted { shut: lost == Lost::Shut });
        }
        Ok(())
    }
}
