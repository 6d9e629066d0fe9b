//! A pseudo-terminal for a confined program, seen from who started it.
//!
//! The program gets the other side as its three standard streams, already open: it can open no terminal by a path, neither
//! this one nor another, and no way leads from its side to this one.

use std::{io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize},
};

/// The side of a terminal at which somebody would sit. When it is closed, the program hears that its terminal is gone
/// (SIGHUP).
#[derive(Debug)]
pub struct Terminal(OwnedFd);

/// What a key does by which people end their input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndKey {
    /// The byte to write for it; Ctrl-D where the program has chosen no other.
    pub byte: u8,
    /// Whether the terminal takes it as the end of the input. Else the program reads each key, and may take it for anything.
    pub ends: bool,
}

impl Terminal {
    /// Opens one of this size, with the side for the program. That is asked of the terminal and not looked up by its name,
    /// which another terminal may have where file systems are mounted in unusual ways.
    pub(crate) fn open(columns: u16, rows: u16) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let own = openpt(flags)?;
        grantpt(&own)?;
        unlockpt(&own)?;
        let theirs = ioctl_tiocgptpeer(&own, flags)?;
        tcsetwinsize(&own, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        Ok((Self(own), theirs))
    }

    /// The same open file once more. From now on reading and writing give `WouldBlock` where they would wait, on all of
    /// them.
    pub fn nonblocking(&self) -> io::Result<OwnedFd> {
        rustix::io::ioctl_fionbio(&self.0, true)?;
        self.0.try_clone()
    }

    /// Types these bytes, as far as they fit.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    /// The key that ends the input, as the program has it by now.
    pub fn end_key(&self) -> io::Result<EndKey> {
        let modes = tcgetattr(&self.0)?;
        let ends = modes.local_modes.contains(LocalModes::ICANON);
        Ok(EndKey { byte: modes.special_codes[SpecialCodeIndex::VEOF], ends })
    }
}

impl io::Read for Terminal {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.0, bytes).map_err(io::Error::from) {
            Err(error) if is_hung_up(&error) => Ok(0),
            read => read,
        }
    }
}

/// Whether this is what reading and writing a terminal gives when nobody has the other side open any more: its end.
pub fn is_hung_up(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}
