//! From the operator's configuration to what the parts of the kernel take.

use drupe_config::{Config, Durability, LogFileConfig, ScopeLimitsConfig};
use drupe_extension_api::control::Allowance;
use drupe_host::home::Folders;
use drupe_journal::Storage;
use drupe_limits::{Counted, Gates, QuotaLimits, Quotas, ScopeLimits};
use drupe_link::LogFileSpec;

/// Where the journal is, and what it survives.
pub fn storage(config: &Config, home: &Folders) -> Storage {
    match config.journal.durability {
        Durability::Full => Storage::Full(home.journal()),
        Durability::Process => Storage::Process(home.journal()),
        Durability::Memory => Storage::Memory,
    }
}

/// Where the log goes beside the standard error stream.
pub fn log_file(config: &Config) -> Option<LogFileSpec> {
    let LogFileConfig { enabled, max_mb, keep } = config.log_file;
    enabled.then_some(LogFileSpec { max_bytes: u64::from(max_mb) << 20, keep })
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

/// What a token may use, as quotas take it.
pub fn allowance(allowance: &Allowance) -> ScopeLimits {
    let Allowance { max_tokens, max_cost_usd, max_invocations } = *allowance;
    ScopeLimits {
        max_tokens: max_tokens.unwrap_or(u64::MAX),
        max_cost_usd,
        max_invocations: max_invocations.unwrap_or(u64::MAX),
    }
}

/// What the journal counted, as quotas take it.
pub fn counted(used: drupe_journal::Counted) -> Counted {
    let drupe_journal::Counted { tokens, cost_usd, invocations } = used;
    Counted { tokens, cost_usd, invocations }
}
