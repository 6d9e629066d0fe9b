//! Real sockets on loopback; names and the way to public addresses are a fake's, so that nothing leaves the machine.

mod bounds;
mod hostile;
mod reading;
mod redirects;
mod searches;
mod support;
mod tls;
mod tools;
