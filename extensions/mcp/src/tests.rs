//! Servers that a test plays, behind the same streams as real ones. That real programs are confined, killed and started again is
//! tested with a real daemon, in `tests/end_to_end/mcp_client.rs`.

mod asks;
mod calls;
mod hostile;
mod issuer;
mod oauth;
mod of_agents;
mod over_http;
mod played;
mod skills;
