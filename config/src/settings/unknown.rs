//! Ids of extensions that the configuration names and no extension has. No fault: it may be on its way.

use drupe_extension_api::ExtensionId;

use super::{Config, Preauthorized};
use crate::shape::suggestion;

impl Config {
    /// A remark for each id that is not among `known`, with where it stands and the nearest of those that are.
    pub fn unknown_extensions(&self, known: &[String]) -> Vec<String> {
        let mut remarks: Vec<String> = Vec::new();
        let mut look = |key: String, id: &ExtensionId| {
            if known.iter().any(|known| known == id.as_str()) {
                return;
            }
            let of_key = |set: &str| {
                set.strip_prefix(&key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let origin =
                self.origins.iter().find(|(set, _)| of_key(set)).map(|(_, origin)| format!(" ({origin})"));
            let near = suggestion(id.as_str(), known.iter().map(String::as_str));
            let near = near.unwrap_or_else(|| "`drupe ext list` shows those that are there".into());
            let origin = origin.unwrap_or_default();
            remarks.push(format!("`{key}`{origin}: no extension has the id `{id}`: {near}"));
        };
        for id in self.extensions.overrides.keys() {
            look(format!("extensions.{id}"), id);
        }
        if let Preauthorized::Listed(ids) = &self.approvals.preauthorized {
            ids.iter().for_each(|id| look("approvals.preauthorized".into(), id));
        }
        self.approvals.channels.iter().for_each(|id| look("approvals.channels".into(), id));
        let people = self.approvals.people.iter().filter_map(|person| person.split_once('/'));
        let theirs: Vec<_> = people.filter_map(|(channel, _)| ExtensionId::new(channel).ok()).collect();
        theirs.iter().for_each(|id| look("approvals.people".into(), id));
        self.copies.iter().for_each(|copy| look("copies".into(), &copy.channel));
        // What ships may be left out of an installation: only what the operator wrote is looked at.
        if self.origins.contains_key("orchestrator.builder_may_use") {
            let ids = self.orchestrator.builder_may_use.iter();
            ids.for_each(|id| look("orchestrator.builder_may_use".into(), id));
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use crate::{Sources, load_config};

    /// The remarks on a configuration of these values, where two extensions are there.
    fn remarks(set: &[(&str, &str)]) -> Vec<String> {
        let overrides = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let sources = Sources { home: "/nonexistent".into(), overrides, ..Sources::default() };
        let config = load_config(&sources).unwrap_or_else(|faults| panic!("{}", faults.render(false))).value;
        config.unknown_extensions(&["builder_agent".to_owned(), "kv".to_owned()])
    }

    #[test]
    fn an_id_that_no_extension_has_is_told_with_its_place_and_the_nearest_one() {
        assert_eq!(
            remarks(&[("extensions.builder_agent.enabled", "false"), ("extensions.kv.own", "1")]),
            [""; 0]
        );
        assert_eq!(
            remarks(&[("extensions.builder_agnt.enabled", "false")]),
            [
                "`extensions.builder_agnt` (command line): no extension has the id `builder_agnt`: did you mean `builder_agent`?"
            ]
        );
        assert_eq!(
            remarks(&[
                ("approvals.preauthorized", "[weather]"),
                ("approvals.channels", "[kvv]"),
                ("approvals.people", "[kv/1, kvv/2]"),
                ("copies", "[{session: main, channel: kvv}]"),
                ("orchestrator.builder_may_use", "[kw, kv]")
            ]),
            [
                "`approvals.preauthorized` (command line): no extension has the id `weather`: `drupe ext list` shows those \
                 that are there",
                "`approvals.channels` (command line): no extension has the id `kvv`: did you mean `kv`?",
                "`approvals.people` (command line): no extension has the id `kvv`: did you mean `kv`?",
                "`copies` (command line): no extension has the id `kvv`: did you mean `kv`?",
                "`orchestrator.builder_may_use` (command line): no extension has the id `kw`: did you mean `kv`?",
            ]
        );
    }
}
