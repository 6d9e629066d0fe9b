//! Sockets that the daemon opens for extensions: one that has no right to the network can serve a port all the same, and
//! nothing else.
//!
//! A socket stays open as long as some instance of its extension has it. So one that takes another's place serves the same
//! socket, and whoever connects meanwhile waits in its queue and is not refused.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use drupe_extension_api::ExtensionId;

/// The sockets that are open, by who has them and the address that was asked for.
#[derive(Debug, Default)]
pub struct Listeners(Mutex<HashMap<(ExtensionId, SocketAddr), Weak<TcpListener>>>);

impl Listeners {
    /// The socket of an extension at an address, opened where it is not open.
    pub fn open(&self, extension: &ExtensionId, address: SocketAddr) -> io::Result<Arc<TcpListener>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, socket| socket.strong_count() > 0);
        let key = (extension.clone(), address);
        if let Some(socket) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(socket);
        }
        let socket = Arc::new(TcpListener::bind(address)?);
        open.insert(key, Arc::downgrade(&socket));
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_shared_by_the_instances_of_one_extension_and_closed_with_the_last() {
        let (listeners, any) = (Listeners::default(), "127.0.0.1:0".parse().expect("an address"));
        let (http, other) = ("http".parse().expect("an id"), "other".parse().expect("an id"));
        let first = listeners.open(&http, any).expect("it opens");
        let address = first.local_addr().expect("it is open");
        let second = listeners.open(&http, any).expect("it is open");
        assert!(Arc::ptr_eq(&first, &second));
        assert_ne!(listeners.open(&other, any).expect("it opens").local_addr().expect("it is open"), address);
        assert_eq!(
            listeners.open(&other, address).expect_err("it is taken").kind(),
            io::ErrorKind::AddrInUse
        );
        drop((first, second));
        assert_eq!(
            listeners.open(&other, address).expect("it is free").local_addr().expect("it is open"),
            address
        );
    }
}
