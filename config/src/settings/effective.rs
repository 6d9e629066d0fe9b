//! The effective configuration, for people: every value with who set it, and no secret.

use serde_json::{Map, Value, json};

use super::{Config, EffectiveValue, Origin, ProviderConfig};
use crate::{ModelProfile, ToolSelector, tree::join};

impl Config {
    /// Every value by its dotted key, sorted. Lists are one value each.
    pub fn effective(&self) -> Vec<EffectiveValue> {
        let mut values = Vec::new();
        self.flatten("", self.to_value(), &mut values);
        values.sort_by(|a, b| a.key.cmp(&b.key));
        values
    }

    fn flatten(&self, path: &str, value: Value, out: &mut Vec<EffectiveValue>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    self.flatten(&join(path, &key), value, out);
                }
            }
            Value::Null => {}
            value => {
                // What was written with placeholders may resolve to a secret; masked values stay masked.
                let masked = value == json!("***");
                let value = match self.written.get(path) {
                    Some(written) if !masked => written.clone(),
                    _ => value,
                };
                let origin = self.origins.get(path).cloned().unwrap_or(Origin::Default);
                out.push(EffectiveValue { key: path.to_owned(), value, origin });
            }
        }
    }

    /// The shape of `drupe.yaml`, with everything filled in.
    fn to_value(&self) -> Value {
        json!({
            "log": self.log,
            "env": self.masked_env(),
            "drain_timeout_ms": self.drain_timeout.as_millis() as u64,
            "health_interval_ms": self.health_interval.as_millis() as u64,
            "tool_response_max_bytes": self.tool_response_max_bytes,
            "orchestrator": {
                "name": self.orchestrator.name,
                "model": self.orchestrator.models,
                "instructions": self.orchestrator.instructions.as_ref().map(instructions),
                "parameters": self.orchestrator.parameters,
                "limits": self.orchestrator.limits,
                "uses_tools": self.orchestrator.uses_tools.as_ref().map(|list| {
                    list.iter().map(ToolSelector::to_string).collect::<Vec<_>>()
                }),
                "context": self.orchestrator.context.iter().map(context).collect::<Vec<_>>(),
                "context_tokens": self.orchestrator.context_tokens,
                "builder_may_use": self.orchestrator.builder_may_use,
            },
            "agents": {"defaults": {
                "model": self.agents_defaults.models,
                "parameters": self.agents_defaults.parameters,
                "limits": self.agents_defaults.limits.over(&Default::default()),
            }},
            "models": {
                "aliases": self.models.aliases,
                "fallback": self.models.fallback,
                "providers": map(&self.models.providers, provider),
                "profiles": map(&self.models.profiles, profile),
            },
            "extensions": self.extensions_value(),
            "journal": self.journal,
            "approvals": self.approvals,
            "reload": self.reload,
            "sandbox": self.sandbox,
            "limits": self.limits,
            "inbox": self.inbox,
            "tool_search": self.tool_search,
        })
    }

    /// Only what `env:` sets: the whole environment is nobody's configuration.
    fn masked_env(&self) -> Map<String, Value> {
        let names = self.origins.keys().filter_map(|key| key.strip_prefix("env."));
        names.map(|name| (name.to_owned(), json!("***"))).collect()
    }

    fn extensions_value(&self) -> Value {
        let mut value = Map::new();
        value.insert("paths".into(), json!(self.extensions.paths));
        for (id, entry) in &self.extensions.overrides {
            let mut config = entry.config.clone();
            if let Some(enabled) = entry.enabled {
                config.insert("enabled".into(), json!(enabled));
            }
            value.insert(id.to_string(), Value::Object(config));
        }
        Value::Object(value)
    }
}

fn map<T>(entries: &std::collections::BTreeMap<String, T>, value: fn(&T) -> Value) -> Map<String, Value> {
    entries.iter().map(|(name, entry)| (name.clone(), value(entry))).collect()
}

fn instructions(value: &crate::Instructions) -> Value {
    match value {
        crate::Instructions::Inline(text) | crate::Instructions::Template(text) => json!(text),
        crate::Instructions::File { path, .. } => json!(path),
    }
}

fn context(value: &crate::ContextSource) -> Value {
    match value {
        crate::ContextSource::Inline(text) => json!(text),
        crate::ContextSource::File(path) => json!(path),
    }
}

fn provider(provider: &ProviderConfig) -> Value {
    json!({
        "kind": provider.kind,
        "base_url": provider.base_url,
        "api_key": provider.api_key,
        "headers": provider.headers,
        "ca_file": provider.ca_file,
        "timeout_ms": provider.timeout.as_millis() as u64,
        "stall_timeout_ms": provider.stall_timeout.as_millis() as u64,
        "concurrency": provider.concurrency,
        "file": provider.file,
        "default_model": provider.default_model,
        "dialect": provider.dialect,
    })
}

fn profile(profile: &ModelProfile) -> Value {
    json!(profile)
}
