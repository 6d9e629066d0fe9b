//! `sd_notify`: what systemd is told. Datagrams, sent and forgotten; nothing here may hold the supervisor up.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::{Duration, Instant},
};

/// By how much each message extends the time that systemd allows for the start. Between two messages a kernel may end,
/// the wait after that may pass and the next kernel may begin.
const LONGER: Duration = Duration::from_secs(120);

/// What the supervisor itself needs to end, after its kernel.
const STOPPED_LATE: Duration = Duration::from_secs(10);

/// Where systemd listens, and how often it wants to hear that the supervisor lives.
#[derive(Debug)]
pub struct Notify {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Whether systemd waits for the start no more.
    started: bool,
    /// Half of what systemd allows.
    interval: Option<Duration>,
    next: Instant,
}

impl Notify {
    /// From the values of `NOTIFY_SOCKET` and `WATCHDOG_USEC`, which the entry point reads.
    pub fn new(socket: &OsString, watchdog_usec: Option<u64>) -> io::Result<Self> {
        let name = socket.as_bytes();
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(socket)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let interval = watchdog_usec.filter(|usec| *usec > 0).map(|usec| Duration::from_micros(usec / 2));
        Ok(Self { socket, address, started: false, interval, next: Instant::now() })
    }

    pub fn ready(&mut self, status: &str) {
        self.started = true;
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The kernel starts, which may take long. systemd waits for as long as it gets this message again and again
    /// (`EXTEND_TIMEOUT_USEC`, systemd/systemd#7214, read on 2026-11-23).
    pub fn starting(&self, status: &str) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS={status}", LONGER.as_micros()));
    }

    /// There is no kernel, and another one will follow. Until the first one was ready systemd is to wait longer: where the disk
    /// is full, the next start tells so again.
    pub fn waiting(&self, status: &str) {
        match self.started {
            true => self.status(status),
            false => self.starting(status),
        }
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        self.send("RELOADING=1\nSTATUS=reading the configuration");
    }

    /// The daemon ends, which may take so long. The unit allows what a usual configuration does.
    pub fn stopping(&self, most: Duration) {
        let longer = (most + STOPPED_LATE).as_micros();
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={longer}\nSTATUS=letting turns end"));
    }

    /// What is going on, for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    /// How long systemd waits for a sign of life, if it wants any.
    pub fn patience(&self) -> Option<Duration> {
        self.interval.map(|interval| interval * 2)
    }

    /// When [`beat`](Self::beat) is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }

    /// The daemon lives, if it does; sent when it is due. The kernel has a watchdog of its own.
    pub fn beat(&mut self, now: Instant, lives: bool) {
        if let Some(interval) = self.interval
            && self.next <= now
        {
            if lives {
                self.send("WATCHDOG=1");
            }
            self.next = now + interval;
        }
    }

    fn send(&self, text: &str) {
        // systemd may be restarting itself; it asks nobody to wait for it.
        let _ = self.socket.send_to_addr(text.as_bytes(), &self.address);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use super::*;

    #[test]
    fn states_and_beats_arrive_as_systemd_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let mut notify = Notify::new(&path.into(), Some(2_000_000)).unwrap();
        let received = || {
            let mut buffer = [0; 256];
            let length = systemd.recv(&mut buffer).ok()?;
            String::from_utf8(buffer[..length].to_vec()).ok()
        };
        notify.waiting("no room");
        assert_eq!(received().unwrap(), "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=no room");
        notify.ready("kernel 1");
        assert_eq!(received().unwrap(), "READY=1\nSTATUS=kernel 1");
        notify.waiting("no room");
        assert_eq!(received().unwrap(), "STATUS=no room");
        notify.starting("kernel 1 checks the journal");
        assert_eq!(received().unwrap(), "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=kernel 1 checks the journal");
        let now = Instant::now();
        notify.beat(now, true);
        assert_eq!(received().unwrap(), "WATCHDOG=1");
        notify.beat(now + Duration::from_millis(999), true);
        assert_eq!(received(), None);
        notify.beat(now + Duration::from_secs(1), false);
        assert_eq!(received(), None, "it does not live");
        assert_eq!(
            notify.deadline(),
            Some(now + Duration::from_secs(2)),
            "and is asked again when it is due"
        );
        notify.beat(now + Duration::from_secs(2), true);
        assert_eq!(received().unwrap(), "WATCHDOG=1");
    }

    #[test]
    fn nobody_listening_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let notify = Notify::new(&folder.path().join("gone").into(), None).unwrap();
        notify.stopping(Duration::from_secs(1));
        assert_eq!(notify.deadline(), None);
    }
}
