//! The nano-kernel: finds extensions, loads and wires them, and answers messages through the one loop.
//!
//! It knows no feature by name. What it can do besides talking to a model lives in extensions; what lasts lives in the
//! journal; whether it runs at all is the supervisor's business. One process is one kernel: it serves until its
//! supervisor or the operator ends it, drains, and says how it ended.

mod main_loop;
mod opening;
pub use main_loop::{Arguments, main};

mod boot;
mod host;
mod topics;

mod control;
mod kernel;
mod people;
mod questions;

mod schedules;

mod intake;
mod turn;

pub mod backups;
mod outbox;

mod draft;
mod extension;

mod base;
mod life;
mod supervision;

pub use drupe_gate::{beginning, check, printable::one_a_line};
pub use drupe_journal::{
    StoreError, disk, examine, kept_beside, schema::version as journal_version, shell_word, way_back,
};
pub use drupe_models::{Figure, FigureOrigin, ListedModel, Lists, Models, Target};
pub use drupe_wiring::{kept_id, models};

pub mod forecast;
mod settings;
