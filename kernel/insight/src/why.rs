//! Why something ended as it did, in sentences.
//!
//! Each says what rows say and names them; what no row holds is not said, and nothing is guessed from what is
//! missing.

mod call;
mod extension;
mod limit;
mod message;
mod parts;
mod run;
mod session;
mod turn;

pub use call::why_call;
pub use extension::why_extension;
pub use limit::{LimitUse, why_limit};
pub use message::why_message;
pub use run::why_run;
pub use session::why_session;
pub use turn::{taken_in_by, why_turn, with_taker};
