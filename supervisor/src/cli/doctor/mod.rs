//! `drupe doctor`: what is wrong with a home, its machine and its daemon, each with what to do about it.
//!
//! It looks from outside, whether or not a daemon runs, and writes nothing: least of all into a journal that is in use. With
//! `--fix` it makes right what cannot do harm, such as a file that others may read. With `--report` it prints what somebody who
//! helps needs to know, without secrets and without a word of any conversation.

mod backups;
mod daemon;
mod finding;
mod home;
mod journal;
mod machine;
mod report;
mod settings;

use std::collections::{HashMap, hash_map::Entry};

use drupe_config::Config;
use drupe_extension_api::control::Status;
use drupe_kernel::forecast::forecast;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    Context, Facts,
    backup::{configured, folder},
    ext::check::quarantined,
    failure::{Failure, status},
};
use finding::{Finding, Gravity};

/// Arguments of `drupe doctor`, which has no sub-verbs.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Make right what is safe to make right, and say what was done
    #[arg(long)]
    fix: bool,
    /// Ask no provider whether it answers and still offers the models that are configured, and no service whether it takes its secrets
    #[arg(long)]
    offline: bool,
    /// Print a report for somebody who helps: the findings, the system, the configuration and the last ends of kernels; no
    /// secrets, and nothing of conversations
    #[arg(long, conflicts_with = "json")]
    report: bool,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, Serialize)]
struct Examination<'a> {
    /// Whether no finding is a fault.
    ok: bool,
    findings: &'a [Finding],
}

impl Doctor {
    /// Looks at everything; ends with 1 where something is a fault.
    pub fn execute(&self, context: &Context) -> Result<u8, Failure> {
        let now = Timestamp::now();
        let mut seen = self.look(context, now);
        if self.fix {
            seen.findings.iter_mut().for_each(Finding::mend);
            let mended = |finding: &Finding| finding.mended.is_some();
            // What was wrong may have been seen from several sides.
            if seen.findings.iter().any(|finding| mended(finding) && finding.level == Gravity::Fine) {
                let done: Vec<_> = seen.findings.extract_if(.., |finding| mended(finding)).collect();
                seen = self.look(context, now);
                seen.findings.retain(|finding| done.iter().all(|done| done.message != finding.message));
                seen.findings.extend(done);
            }
        }
        if self.report {
            let known = (seen.config.as_ref(), seen.status.as_ref());
            let report = report::write(context, known, now, &seen.findings);
            context.console.print(&report)?;
            return Ok(end(&seen.findings));
        }
        let findings = &seen.findings;
        match self.facts.json {
            true => context.console.json(&Examination { ok: end(findings) == 0, findings })?,
            false => context.console.draw(&finding::render(findings, context.console.colour))?,
        }
        Ok(end(findings))
    }

    fn look(&self, context: &Context, now: Timestamp) -> Seen {
        let mut findings = home::look(context.home(), &context.exe);
        // A folder that is not there, or is none, is all that there is to say.
        if findings.iter().any(|finding| finding.ends) {
            return Seen { findings, config: None, status: None };
        }
        let config = settings::look(context, &mut findings);
        let status = daemon::look(context, now, &mut findings);
        let places = (context.home(), &*folder(context, configured(context).as_ref()));
        let journal = journal::look(places, status.is_some(), now, &mut findings);
        if let Some(config) = &config {
            let failed = status.as_ref().and_then(|status| status.backup.as_ref()?.failed.as_ref());
            backups::look(context.home(), config, failed.is_some(), now, &mut findings);
        }
        machine::look(config.as_ref(), journal.as_ref(), now, &mut findings);
        if let Some(config) = &config {
            let home = context.home().path();
            let seen = forecast((home, &context.exe), config, None, quarantined(home));
            settings::extensions(config, &seen, status.as_ref(), &mut findings);
            if !self.offline {
                settings::secrets(config, &seen, &mut findings);
            }
            settings::models(config, &seen, self.offline, &mut findings);
        }
        once(&mut findings);
        Seen { findings, config, status }
    }
}

/// What was looked at.
struct Seen {
    findings: Vec<Finding>,
    config: Option<Config>,
    status: Option<Status>,
}

/// What the daemon says is what was found without it as well, in the same words: that stands there once, with its fix.
fn once(findings: &mut Vec<Finding>) {
    let mut told: HashMap<String, usize> = HashMap::new();
    for (place, finding) in findings.iter().enumerate() {
        match told.entry(finding.message.clone()) {
            Entry::Occupied(other) if finding.fix.is_none() && findings[*other.get()].fix.is_some() => {}
            entry => drop(entry.insert_entry(place)),
        }
    }
    let mut place = 0..;
    findings.retain(|finding| place.next() == told.get(&finding.message).copied());
}

fn end(findings: &[Finding]) -> u8 {
    match findings.iter().any(|finding| finding.level == Gravity::Fault) {
        true => status::FAILED,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_twice_stands_once_with_its_fix_and_its_gravity() {
        let found = || Finding::fault("home", "the disk is full").fix("free some space");
        let told = || Finding::warning("daemon", "the disk is full");
        for mut findings in [vec![found(), told()], vec![told(), found()]] {
            once(&mut findings);
            assert_eq!(findings, [found()]);
        }
        let mut alike = vec![told(), Finding::remark("models", "the disk is full")];
        once(&mut alike);
        assert_eq!(
            alike,
            [Finding::remark("models", "the disk is full")],
            "what was looked at last is nearest to it"
        );
    }
}
