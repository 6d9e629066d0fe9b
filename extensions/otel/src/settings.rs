use drupe_extension_api::prelude::*;

#[derive(Debug, Clone, Deserialize)]
pub struct OtelSettings {
    pub endpoint: String,
    #[serde(default)]
    pub header: Option<String>,
    pub service_name: String,
    pub content: bool,
    pub backlog: usize,
}
