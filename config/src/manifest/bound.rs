//! `bound_secrets`: secrets that an extension is never handed, and the hosts to which they go.

use std::collections::{BTreeMap, BTreeSet};

use super::read::Reader;
use crate::{
    declare::keys,
    fields::Field,
    forms,
    shape::{EMPTY, Shape, each_its_own},
};

/// The operator reads each of them before they agree.
const MAX_HOSTS: usize = 16;

keys! {
    /// A secret that is filled into requests on their way out.
    #[derive(PartialEq, Eq)]
    pub struct BoundSecret in BOUND_SECRET("the bound secret") {
        /// The variable that has its value.
        name: String = "" => Shape::Text(&forms::VARIABLE), required;
        /// The hosts that it goes to, each as `host` or `host:port`.
        hosts: Vec<String> = EMPTY =>
            Shape::AtMost(MAX_HOSTS, &Shape::List(&Shape::Text(&forms::HOST))), required;
        /// Keys of its configuration, each an address to whose host it goes as well.
        addresses: Vec<String> = EMPTY =>
            Shape::AtMost(MAX_HOSTS, &Shape::List(&Shape::Text(&forms::VARIABLE)));
        /// Whether it works without a value. Requests that name no secret go to the hosts all the same.
        optional: bool = false => Shape::Bool;
        /// A request that changes nothing, by which it is found out whether the service takes a value.
        trial (skip_serializing_if = "Option::is_none"): Option<SecretTrial> => Shape::Record(&SECRET_TRIAL);
    }
}

keys! {
    /// A request with the secret in it, and what in its answer says that the secret is taken.
    #[derive(PartialEq, Eq)]
    pub struct SecretTrial in SECRET_TRIAL("the trial") {
        /// The address. `{KEY}` at its beginning stands for a key of `addresses`, `${NAME}` in its path for the secret.
        url: String = "" => Shape::Text(&forms::NON_EMPTY), required;
        /// The method; neither sends a body.
        method: String = "GET" => Shape::choice(&["GET", "POST"]);
        /// Headers, with `${NAME}` for the secret.
        headers: BTreeMap<String, String> = each_its_own() =>
            Shape::Map { key: &forms::HEADER, value: &Shape::Text(&forms::ANY) };
        /// Where an answer in JSON has `true` if the secret is taken, as a JSON pointer; without it a status of success says so.
        good (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::NON_EMPTY);
        /// Where it says why the secret is not taken.
        fault (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::NON_EMPTY);
    }
}

impl Reader<'_> {
    /// A secret is either handed over or bound, and bound once.
    pub(super) fn check_bound_secrets(&mut self, manifest: &Field<'_>) {
        if let (Some(field), None) = (manifest.get("bound_secrets"), manifest.get("entrypoint"))
            && !manifest.items("bound_secrets").is_empty()
        {
            let message = "`bound_secrets` are for requests of code, and there is no `entrypoint`";
            self.faults
                .error("bound_without_code", &field.node.at, "bound_secrets", message)
                .help("take them out, or name the native library");
        }
        let handed = manifest.items("secrets");
        let mut names: BTreeSet<&str> = handed.iter().filter_map(|field| field.node.text()).collect();
        let handed: BTreeSet<&str> = names.clone();
        for bound in manifest.items("bound_secrets") {
            if bound.get("hosts").is_some() && bound.items("hosts").is_empty() {
                let message = format!("`{}` names no host, so the secret goes nowhere", bound.path);
                self.faults
                    .error("no_hosts", &bound.node.at, &bound.path, message)
                    .help("name the hosts that it goes to, such as `hosts: [api.example.org]`");
            }
            let Some(name) = bound.get("name") else { continue };
            let Some(text) = name.node.text() else { continue };
            if handed.contains(text) {
                let message = format!("`{text}` stands in `secrets` too, so the extension would hold it");
                self.faults
                    .error("bound_twice", &name.node.at, &name.path, message)
                    .help("take it out of `secrets`");
            } else if !names.insert(text) {
                let message = format!("`{text}` is bound twice");
                self.faults
                    .error("bound_twice", &name.node.at, &name.path, message)
                    .help("name all of its hosts in one entry");
            }
        }
    }

    /// Whether the manifest binds a secret of that name.
    pub(super) fn binds(&self, name: &str) -> bool {
        let bound = Field::root(self.node).items("bound_secrets");
        bound.iter().any(|one| one.get("name").and_then(|field| field.node.text()) == Some(name))
    }
}
