//! Sockets that an extension is handed.

use std::{net::TcpListener, os::fd::BorrowedFd};

use super::Host;
use crate::{Fault, FaultCode};

impl Host {
    /// The socket that the daemon opened at the address under this key of the configuration. The manifest names the key under
    /// `listen`. Each call gives another handle of the same socket, which connections go on reaching where the extension
    /// is loaded anew.
    ///
    /// ```
    /// # use drupe_extension_api::prelude::*;
    /// # fn example(host: Host) -> Result<(), Fault> {
    /// let socket = host.listener("address")?;
    /// host.info(format!("listening on {}", socket.local_addr()?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn listener(&self, key: &str) -> Result<TcpListener, Fault> {
        let given = self.listening().iter().find(|one| one.key == key);
        let given = given.ok_or_else(|| {
            Fault::new(FaultCode::NotConfigured, format!("`{}` was handed no socket for `{key}`", self.id()))
                .help(format!("its manifest needs `listen: [{key}]`"))
        })?;
        // SAFETY: the daemon keeps the descriptor open as long as this instance lives, and it is copied here.
        let socket = unsafe { BorrowedFd::borrow_raw(given.descriptor) };
        Ok(TcpListener::from(socket.try_clone_to_owned()?))
    }
}
