//! `models.providers`: where models run.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{millis, read::Checks};
use crate::{
    Secret,
    agent_keys::MAX_MILLIS,
    catalogue::model_catalogue,
    declare::keys,
    fields::Field,
    files, forms,
    shape::{Shape, choices, each_its_own},
    source::{self, Links},
};

/// Servers of Chat Completions that are known to differ; `common` is the form that most of them read.
const DIALECTS: &[&str] = &[
    "common",
    "openai",
    "mistral",
    "deepseek",
    "moonshot",
    "openrouter",
    "groq",
    "xai",
    "ollama",
    "vllm",
    "llama_cpp",
];

keys! {
    /// A provider of models.
    #[derive(PartialEq, Eq)]
    pub struct ProviderConfig in PROVIDER("the provider") {
        /// The protocol it speaks.
        kind: ProviderKind = "offline" =>
            Shape::choice(&["openai", "openai_chat", "anthropic", "gemini", "offline", "scripted"]), required;
        /// Its address, up to the version such as `/v1`; `openai_chat` needs it, others have their own.
        base_url: Option<String> => Shape::Text(&forms::SETTING);
        /// How an `openai_chat` server speaks; without it its address says so.
        dialect: Option<String> => Shape::choice(DIALECTS);
        /// Its key, best as `${NAME}`.
        api_key: Option<Secret> => Shape::Text(&forms::SECRET);
        /// Further headers of each request.
        headers: BTreeMap<String, Secret> = each_its_own() =>
            Shape::Map { key: &forms::HEADER, value: &Shape::Text(&forms::SECRET) };
        /// PEM certificates trusted beside those of the system, relative to this file.
        ca_file (serialize_with = "files::shown_path"): Option<PathBuf> => Shape::Text(&forms::SETTING);
        /// Deadline of one request.
        // It only ends what nothing else does: a request has a bound of its own, `timeout_ms` of its parameters, and a
        // run has its time; a shorter one here would end long answers that both of them allow.
        timeout as "timeout_ms" (with = "millis"): Duration = 600_000 =>
            Shape::Integer { min: 1, max: MAX_MILLIS };
        /// A stream that is silent for so long is given up.
        stall_timeout as "stall_timeout_ms" (with = "millis"): Duration = 60_000 =>
            Shape::Integer { min: 1, max: MAX_MILLIS };
        /// Requests at the same time.
        concurrency: usize = 16 => Shape::Integer { min: 1, max: 1024 };
        /// The script of a `scripted` provider.
        file (serialize_with = "files::shown_path"): Option<PathBuf> => Shape::Text(&forms::SETTING);
        /// The model where only the provider is named.
        default_model: Option<String> => Shape::Text(&forms::SETTING);
    }
    beside {
        /// The models, in order of preference, of which one is taken where only the provider is named and nothing says
        /// which.
        #[serde(skip)]
        pub preferred: Vec<String>,
        /// Whether the catalogue's entries for this provider and its models apply. They do not where a variable leads to
        /// another server: a model of the same name may be a different one there.
        #[serde(skip)]
        pub catalogued: bool,
    }
}

/// The keys of a provider that is reached over HTTP; the last is for one kind only.
const HTTP: [&str; 8] =
    ["base_url", "api_key", "headers", "ca_file", "timeout_ms", "stall_timeout_ms", "concurrency", "dialect"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    Openai,
    /// Chat Completions, which many servers speak.
    OpenaiChat,
    Anthropic,
    Gemini,
    Offline,
    Scripted,
}

impl ProviderKind {
    /// The keys that mean something for it beside `kind` and `default_model`.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::OpenaiChat => &HTTP,
            Self::Openai | Self::Anthropic | Self::Gemini => &HTTP[..7],
            Self::Offline => &[],
            Self::Scripted => &["file", "timeout_ms", "stall_timeout_ms", "concurrency"],
        }
    }

    /// The key that it cannot do without.
    fn needs(self) -> Option<&'static str> {
        match self {
            Self::OpenaiChat => Some("base_url"),
            Self::Openai | Self::Anthropic | Self::Gemini | Self::Offline => None,
            Self::Scripted => Some("file"),
        }
    }
}

impl ProviderConfig {
    /// One that says nothing but its protocol.
    pub(super) fn new(kind: ProviderKind) -> Self {
        let defaults = Value::Object(PROVIDER.defaults(None));
        let provider: Self =
            serde_json::from_value(defaults).expect("declared defaults have the declared types");
        Self { kind, ..provider }.completed()
    }

    /// The same with what its protocol has by itself: an address and preferred models.
    fn completed(mut self) -> Self {
        let own = model_catalogue().of_kind(self.kind);
        self.base_url = self.base_url.or_else(|| own.map(|own| own.base_url.clone()));
        self.preferred = own.map(|own| own.preferred.clone()).unwrap_or_default();
        self.catalogued = true;
        self
    }
}

impl Checks<'_> {
    pub(super) fn provider(&mut self, field: &Field<'_>, mut provider: ProviderConfig) -> ProviderConfig {
        if let (Some(field), Some(url)) = (field.get("base_url"), &provider.base_url) {
            provider.base_url = self.address(&field, url);
        }
        self.check_headers(field, &provider);
        for (key, file) in [("ca_file", &mut provider.ca_file), ("file", &mut provider.file)] {
            if let (Some(field), Some(path)) = (field.get(key), file) {
                *path = files::lexical(&self.folder.join(&*path));
                self.check_file(&field, path);
            }
        }
        let kind_is_known = |text: &&str| serde_json::from_value::<ProviderKind>((*text).into()).is_ok();
        if field.text("kind").filter(kind_is_known).is_some() {
            self.check_keys(field, provider.kind);
        }
        provider.completed()
    }

    /// A key that this kind of provider does not look at would be accepted and ignored.
    fn check_keys(&mut self, field: &Field<'_>, kind: ProviderKind) {
        let has = |key: &str| field.node.get(key).is_some_and(|node| !node.is_null());
        if let Some(key) = kind.needs().filter(|key| !has(key)) {
            let path = format!("{}.{key}", field.path);
            let help = match kind {
                ProviderKind::OpenaiChat => "add its address, such as `base_url: http://localhost:11434/v1`",
                _ => "name the script: `file: flow.yaml`",
            };
            let message = format!("`{path}` is missing: a provider of this kind needs it");
            self.faults.error("missing_key", &field.node.at, &path, message).help(help);
        }
        // A server of the operator's own, or a header, may do without.
        let own = model_catalogue().of_kind(kind);
        if let Some(own) = own.filter(|_| !["api_key", "base_url", "headers"].into_iter().any(has)) {
            let path = format!("{}.api_key", field.path);
            let message = format!("`{path}` is missing: nobody is answered without it at {}", own.base_url);
            self.faults
                .error("missing_key", &field.node.at, &path, message)
                .help(format!("add `api_key: ${{{}}}`", own.key));
        }
        let common = ["kind", "default_model"];
        for entry in field.node.entries() {
            let key = entry.key.as_str();
            if PROVIDER.key(key).is_none() || common.contains(&key) || kind.keys().contains(&key) {
                continue;
            }
            let path = format!("{}.{key}", field.path);
            let message = format!("`{path}` means nothing for a provider of this kind");
            let help = match kind.keys() {
                [] => "remove it".to_owned(),
                keys => format!("remove it; this kind knows {}", choices(keys).replace(" or ", " and ")),
            };
            self.faults.error("key_without_effect", &entry.key_at, &path, message).help(help);
        }
    }

    fn address(&mut self, field: &Field<'_>, url: &str) -> Option<String> {
        let address = address(url);
        if address.is_none() {
            let message =
                format!("`{}` is no address: expected `http://host/v1` or `https://host/v1`", field.path);
            self.faults
                .error("invalid_url", &field.node.at, &field.path, message)
                .help("a key belongs into `api_key`, not into the address");
        }
        address.map(|(address, _)| address)
    }

    fn check_headers(&mut self, field: &Field<'_>, provider: &ProviderConfig) {
        for (name, field) in field.entries("headers") {
            let value = provider.headers.get(name).map_or("", Secret::expose);
            if value.chars().any(char::is_control) {
                let message =
                    format!("`{}` holds a control character, which no header can carry", field.path);
                self.faults
                    .error("invalid_value", &field.node.at, &field.path, message)
                    .help("look for a line break at the end of the value");
            }
        }
    }

    /// Reports a file that cannot be read now. What it holds is left to whoever uses it.
    fn check_file(&mut self, field: &Field<'_>, path: &std::path::Path) {
        let mut reasons = crate::Diagnostics::default();
        if source::open(path, Links::Followed, &mut reasons).is_none() {
            for reason in reasons.iter() {
                let fault =
                    self.faults.error(reason.code, &field.node.at, &field.path, reason.message.clone());
                fault.help_if(reason.help.clone());
            }
        }
    }
}

/// Reads an address: without slashes at its end, with its host and port. Nothing if it is not one, or if it holds a key.
pub(super) fn address(text: &str) -> Option<(String, &str)> {
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let spaced = url.contains(|c: char| c.is_whitespace() || c.is_control());
    (!host.is_empty() && !host.contains('@') && !spaced).then(|| (url.to_owned(), host))
}
