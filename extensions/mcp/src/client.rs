//! What a server may ask of us: where it may work, and a person who waits for its call to fill something in.
#![expect(
    deprecated,
    reason = "roots are deprecated by the newer revision, and the older one has nothing in their place"
)]

use std::sync::Arc;

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCapability,
        FormElicitationCapability, Implementation, JsonObject, ListRootsResult, ProtocolVersion, Root,
        SKILLS_EXTENSION_ID,
    },
    service::{NotificationContext, RequestContext},
};

use crate::asking::Asking;

/// Our side of a connection. That a server gets no work of a model is the library's default: whoever pays for it could not see
/// what it is for.
#[derive(Clone)]
pub struct McpClient {
    /// What the operator calls the server.
    pub name: String,
    /// The folder that it may work in, as an address.
    pub root: Option<String>,
    /// Whether we want its skills, where it has any.
    pub skills: bool,
    /// Called when it says that its tools are others now, or the files of its skills.
    pub changed: Arc<dyn Fn() + Send + Sync>,
    /// The calls on whose behalf it may ask people.
    pub asking: Arc<Asking>,
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.root.is_some() {
            capabilities.roots = Some(Default::default());
        }
        // Addresses to which people are sent are not among it: what they fill in there nobody could show them before.
        let forms = FormElicitationCapability::default();
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(forms));
        // Servers may leave out what nobody says they understand.
        if self.skills {
            capabilities.extensions = Some([(SKILLS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
        }
        // The newer revision has no `initialize` in which this would be told.
        ClientConfig::new(capabilities, Implementation::new("drupe", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.root.iter().map(Root::new).collect()))
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.asking.ask(&self.name, asked).await)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        (self.changed)();
    }

    /// The extension has no notification of its own; the files of skills are resources.
    async fn on_resource_list_changed(&self, context: NotificationContext<RoleClient>) {
        let info = context.peer.peer_info();
        if self.skills && info.is_some_and(|info| info.capabilities.supports_skills()) {
            (self.changed)();
        }
    }
}
