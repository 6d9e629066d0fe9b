//! The tools that the loop itself brings. They are tools like all others; whoever builds a registry adds them, but
//! for `search_tools`, which a registry with deferred tools brings by itself.

pub mod client_tool;
pub mod hand_over;
pub mod load_skill;
pub mod read_output;
pub mod refuse;
pub mod request_input;
pub mod search_tools;
pub mod session_search;
pub mod spawn_agent;
pub mod update_plan;
