//! `drupe chat`.

use drupe_extension_api::{AgentId, SessionId};

use super::{Context, failure::Failure};

/// Arguments of `drupe chat`.
#[derive(Debug, clap::Args)]
pub struct Chat {
    /// The conversation
    #[arg(long, value_name = "ID", default_value = "main")]
    session: SessionId,
    /// The agent that shall answer
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
}

impl Chat {
    pub fn execute(self, _context: &Context) -> Result<u8, Failure> {
        let _ = (self.session, self.agent);
        Ok(0)
    }
}

pub fn with_daemon(_keep: bool, _context: &Context) -> Result<u8, Failure> {
    Ok(0)
}
