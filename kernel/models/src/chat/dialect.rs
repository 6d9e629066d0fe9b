//! Where servers that speak Chat Completions part ways, by the host that is asked.
//!
//! A server that nobody knows gets the form that most of them read.

use reqwest::Url;

/// A way of speaking Chat Completions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI itself and Azure: the newer names.
    OpenAi,
    /// Mistral: its own name for the seed, no fields that it does not know.
    Mistral,
    /// DeepSeek and Moonshot: the reasoning of a tool call goes back with it, and JSON has no schema.
    DeepSeek,
    /// Ollama, llama.cpp, vLLM, LM Studio, OpenRouter, Groq and the rest.
    #[default]
    Common,
}

impl Dialect {
    pub(crate) fn of(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let ends = |names: &[&str]| {
            names.iter().any(|n| host == *n || host.strip_suffix(n).is_some_and(|rest| rest.ends_with('.')))
        };
        if ends(&["openai.com", "openai.azure.com"]) {
            Self::OpenAi
        } else if ends(&["mistral.ai"]) {
            Self::Mistral
        } else if ends(&["deepseek.com", "moonshot.ai", "moonshot.cn"]) {
            Self::DeepSeek
        } else {
            Self::Common
        }
    }

    /// OpenAI refuses `max_tokens` for models that reason; the others know nothing else.
    pub(crate) fn max_tokens(self) -> &'static str {
        match self {
            Self::OpenAi => "max_completion_tokens",
            _ => "max_tokens",
        }
    }

    pub(crate) fn seed(self) -> &'static str {
        match self {
            Self::Mistral => "random_seed",
            _ => "seed",
        }
    }

    /// Whether the count of tokens has to be asked for. Mistral counts unasked, and refuses to be asked.
    pub(crate) fn asks_for_usage(self) -> bool {
        self != Self::Mistral
    }

    /// Whether the model's reasoning is sent back as part of its answer.
    pub(crate) fn returns_reasoning(self) -> bool {
        self == Self::DeepSeek
    }

    /// Whether a JSON answer can be bound to a schema.
    pub(crate) fn json_schema(self) -> bool {
        self != Self::DeepSeek
    }

    /// The most stop texts, where that is known.
    pub(crate) fn max_stops(self) -> usize {
        match self {
            Self::OpenAi => 4,
            Self::DeepSeek => 16,
            Self::Mistral | Self::Common => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_decides_and_not_a_name_that_resembles_it() {
        for (url, dialect) in [
            ("https://api.openai.com/v1", Dialect::OpenAi),
            ("https://me.openai.azure.com/openai/v1", Dialect::OpenAi),
            ("https://api.mistral.ai/v1", Dialect::Mistral),
            ("https://api.deepseek.com", Dialect::DeepSeek),
            ("https://notopenai.com/v1", Dialect::Common),
            ("http://127.0.0.1:11434/v1", Dialect::Common),
        ] {
            assert_eq!(Url::parse(url).map(|u| Dialect::of(&u)), Ok(dialect), "{url}");
        }
    }
}
