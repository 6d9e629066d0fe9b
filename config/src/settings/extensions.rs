//! `extensions`: folders to search, and the configuration of each extension.

use std::{collections::BTreeMap, path::PathBuf};

use drupe_extension_api::ExtensionId;
use serde_json::{Map, Value};

use crate::{
    declare::keys,
    files, forms,
    shape::{EMPTY, Shape},
    tree::Node,
};

keys! {
    /// Folders to search, and overrides for each extension.
    pub struct ExtensionsConfig in EXTENSIONS("`extensions`") {
        /// Further folders to search for extensions, relative to this file.
        paths (serialize_with = "files::shown_paths"): Vec<PathBuf> = EMPTY => Shape::List(&Shape::Text(&forms::SETTING));
    }
    rest (&forms::ID, &Shape::Record(&OVERRIDE))
    beside {
        #[serde(flatten)]
        pub overrides: BTreeMap<ExtensionId, ExtensionOverride>,
    }
}

keys! {
    /// What `drupe.yaml` says about one extension.
    #[derive(Default)]
    pub struct ExtensionOverride in OVERRIDE("") {
        /// Whether it is loaded; wins over the manifest's.
        enabled (skip_serializing_if = "Option::is_none"): Option<bool> => Shape::Bool;
    }
    rest (&forms::ANY, &Shape::Any)
    beside {
        /// Keys over those of the manifest's `config`, placeholders unresolved.
        #[serde(flatten)]
        pub config: Map<String, Value>,
        /// The same with places, for faults that show later.
        #[serde(skip)]
        pub(crate) node: Option<Node>,
    }
}
