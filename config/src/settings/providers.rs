//! `models.providers`: where models run.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{keys::PROVIDER, read::Reader};
use crate::{
    Secret,
    catalogue::model_catalogue,
    fields::{Field, Fields},
    files,
    shape::choices,
    source::{self, Links},
};

/// A provider of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// The protocol.
    pub kind: ProviderKind,
    /// Address up to and with the version such as `/v1`, without a slash at the end; always present for a provider
    /// that is reached over HTTP.
    pub base_url: Option<String>,
    /// Sent in the way of the protocol, where there is one.
    pub api_key: Option<Secret>,
    /// Further headers of each request.
    pub headers: BTreeMap<String, Secret>,
    /// PEM certificates trusted beside those of the system, absolute.
    pub ca_file: Option<PathBuf>,
    /// Deadline of one request.
    pub timeout: Duration,
    /// A stream that is silent for so long is given up.
    pub stall_timeout: Duration,
    /// Requests at the same time.
    pub concurrency: usize,
    /// The script, absolute; always present for `scripted`.
    pub file: Option<PathBuf>,
    /// The model where only the provider is named.
    pub default_model: Option<String>,
    /// The models, in order of preference, of which one is taken where only the provider is named and nothing says which.
    pub preferred: Vec<String>,
    /// How a server of Chat Completions speaks, where its address does not say so.
    pub dialect: Option<String>,
    /// Whether what the catalogue says of the provider of this name, and of its models, holds here. It does not for one
    /// that a variable puts to somebody else's server: another model may bear the same name there.
    pub catalogued: bool,
}

/// Deadline of one request. It only ends what nothing else does: a request has a bound of its own, `timeout_ms` of its
/// parameters, and a run has its time; a shorter one here would end long answers that both of them allow.
const TIMEOUT: Duration = Duration::from_millis(600_000);

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// OpenAI's Responses.
    Openai,
    /// Chat Completions, which many servers speak.
    OpenaiChat,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// The built-in rules.
    Offline,
    /// A script, for tests.
    Scripted,
}

impl ProviderKind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "openai" => Some(Self::Openai),
            "anthropic" => Some(Self::Anthropic),
            "gemini" => Some(Self::Gemini),
            "openai_chat" => Some(Self::OpenaiChat),
            "offline" => Some(Self::Offline),
            "scripted" => Some(Self::Scripted),
            _ => None,
        }
    }

    /// The keys that mean something for it beside `kind` and `default_model`.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::OpenaiChat => &[
                "base_url",
                "dialect",
                "api_key",
                "headers",
                "ca_file",
                "timeout_ms",
                "stall_timeout_ms",
                "concurrency",
            ],
            Self::Openai | Self::Anthropic | Self::Gemini => &[
                "base_url",
                "api_key",
                "headers",
                "ca_file",
                "timeout_ms",
                "stall_timeout_ms",
                "concurrency",
            ],
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
    /// One that says nothing but its protocol: at the address, and with the default model, that the protocol has.
    pub(super) fn new(kind: ProviderKind) -> Self {
        let own = model_catalogue().of_kind(kind);
        Self {
            kind,
            base_url: own.map(|own| own.base_url.clone()),
            api_key: None,
            headers: BTreeMap::new(),
            ca_file: None,
            timeout: TIMEOUT,
            stall_timeout: Duration::from_millis(60_000),
            concurrency: 16,
            file: None,
            default_model: None,
            preferred: own.map(|own| own.preferred.clone()).unwrap_or_default(),
            dialect: None,
            catalogued: true,
        }
    }
}

impl Reader<'_> {
    pub(super) fn providers(&mut self, models: &Fields<'_>) -> BTreeMap<String, ProviderConfig> {
        let entries = models.entries("providers");
        entries.iter().filter_map(|(name, field)| Some(((*name).to_owned(), self.provider(field)?))).collect()
    }

    fn provider(&mut self, field: &Field<'_>) -> Option<ProviderConfig> {
        let fields = Fields::new(Some(field.node), &PROVIDER, &field.path);
        let kind = fields.text("kind").and_then(ProviderKind::parse);
        let base = ProviderConfig::new(kind.unwrap_or(ProviderKind::Offline));
        let provider = ProviderConfig {
            base_url: self.base_url(&fields).or(base.base_url),
            api_key: self.text(&fields, "api_key").map(Secret::new),
            headers: self.headers(&fields),
            ca_file: self.file(&fields, "ca_file"),
            timeout: fields.integer("timeout_ms").map_or(base.timeout, Duration::from_millis),
            stall_timeout: fields
                .integer("stall_timeout_ms")
                .map_or(base.stall_timeout, Duration::from_millis),
            concurrency: fields.integer("concurrency").unwrap_or(base.concurrency),
            file: self.file(&fields, "file"),
            default_model: self.text(&fields, "default_model"),
            dialect: fields.owned("dialect"),
            ..base
        };
        fields.done();
        self.check_keys(field, kind?);
        Some(provider)
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

    fn base_url(&mut self, fields: &Fields<'_>) -> Option<String> {
        let field = fields.get("base_url")?;
        let url = self.expanded(&field)?;
        let address = address(&url);
        if address.is_none() {
            let message =
                format!("`{}` is no address: expected `http://host/v1` or `https://host/v1`", field.path);
            self.faults
                .error("invalid_url", &field.node.at, &field.path, message)
                .help("a key belongs into `api_key`, not into the address");
        }
        address.map(|(address, _)| address)
    }

    fn headers(&mut self, fields: &Fields<'_>) -> BTreeMap<String, Secret> {
        let mut headers = BTreeMap::new();
        for (name, field) in fields.entries("headers") {
            let Some(value) = self.expanded(&field) else { continue };
            if value.chars().any(char::is_control) {
                let message =
                    format!("`{}` holds a control character, which no header can carry", field.path);
                self.faults
                    .error("invalid_value", &field.node.at, &field.path, message)
                    .help("look for a line break at the end of the value");
            }
            headers.insert(name.to_owned(), Secret::new(value));
        }
        headers
    }

    /// A file that can be read now. What it holds is left to whoever uses it.
    fn file(&mut self, fields: &Fields<'_>, key: &str) -> Option<PathBuf> {
        // An empty path was reported for its form, and would be the folder.
        let field =
            fields.get(key).filter(|field| field.node.text().is_some_and(|text| !text.trim().is_empty()))?;
        let path = files::lexical(&self.folder.join(self.expanded(&field)?));
        let mut reasons = crate::Diagnostics::default();
        if source::open(&path, Links::Followed, &mut reasons).is_none() {
            for reason in reasons.iter() {
                let help = reason.help.clone();
                self.faults
                    .error(reason.code, &field.node.at, &field.path, reason.message.clone())
                    .help_if(help);
            }
        }
        Some(path)
    }
}

/// An address without slashes at its end, and its host with the port; nothing where it is none, or where it holds a key.
pub(super) fn address(text: &str) -> Option<(String, &str)> {
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let spaced = url.contains(|c: char| c.is_whitespace() || c.is_control());
    (!host.is_empty() && !host.contains('@') && !spaced).then(|| (url.to_owned(), host))
}
