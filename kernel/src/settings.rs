//! From the operator's configuration to what the parts of the kernel take.

use drupe_config::{Config, Diagnostics, Durability, ScopeLimitsConfig, Sources, default_file, load_config};
use drupe_host::home::Folders;
use drupe_journal::Storage;
use drupe_limits::{Counted, Gates, QuotaLimits, Quotas, ScopeLimits};
use drupe_link::Home;

/// Reads the configuration again, from the same sources.
pub fn reread(sources: &Sources) -> Result<Config, Diagnostics> {
    // A file that was written since counts, and goes before the copy that stands in for one with faults.
    let copy = Home::new(&sources.home).ok().map(|home| home.good_config());
    let named = sources.file.clone().filter(|file| Some(file) != copy.as_ref());
    let sources = Sources { file: named.or_else(|| default_file(&sources.home)), ..sources.clone() };
    load_config(&sources).map(|loaded| loaded.value)
}

/// Where the journal is, and what it survives.
pub fn storage(config: &Config, home: &Folders) -> Storage {
    match config.journal.durability {
        Durability::Full => Storage::Full(home.journal()),
        Durability::Process => Storage::Process(home.journal()),
        Durability::Memory => Storage::Memory,
    }
}

/// What may be spent and how much may run at once, with nothing counted yet.
pub fn limits(config: &Config) -> (Quotas, Gates) {
    let scope = |from: &ScopeLimitsConfig| ScopeLimits {
        max_tokens: from.max_tokens,
        max_cost_usd: Some(from.max_cost_usd),
        max_invocations: from.max_invocations,
    };
    let limits = &config.limits;
    let quotas = QuotaLimits {
        day: scope(&limits.day),
        session: scope(&limits.session),
        agent: scope(&limits.agent),
        warn_at: limits.warn_at,
    };
    let gates = Gates::new(limits.concurrency.turns, limits.concurrency.runs_of_one_agent);
    (Quotas::new(quotas), gates)
}

/// What the journal counted, as quotas take it.
pub fn counted(used: drupe_journal::Counted) -> Counted {
    let drupe_journal::Counted { tokens, cost_usd, invocations } = used;
    Counted { tokens, cost_usd, invocations }
}
