//! `drupe open`: the link to the page.

use drupe_extension_api::control::{ExtensionDetail, Named, Power, TokenNew, TokenPromised, method};
use uuid::Uuid;

use super::{
    Context,
    client::Daemon,
    failure::{Failure, status},
};

/// The extension that serves the page, unless another one is named.
pub const PAGE: &str = "http";

/// Arguments of `drupe open`.
#[derive(Debug, clap::Args)]
pub struct Open {
    /// The extension that serves the page
    #[arg(long, default_value = PAGE)]
    extension: String,
}

impl Open {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        context.console.draw(&format!("{}\n", link(&context.daemon(), &self.extension)?))?;
        Ok(0)
    }
}

/// A link that signs a browser in as the operator, once.
pub fn link(daemon: &Daemon<'_>, extension: &str) -> Result<String, Failure> {
    let named = Named { id: extension.to_owned() };
    let detail: ExtensionDetail = daemon.call(method::EXTENSIONS_SHOW, &named)?;
    let Some(address) = detail.listening.first() else {
        let state = super::status::word(detail.status.state);
        let why = detail.status.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        return Err(Failure::new(
            status::FAILED,
            format!("extension `{extension}` does not listen, it is {state}{why}"),
        ));
    };
    let name = format!("page-{}", &Uuid::new_v4().simple().to_string()[..8]);
    let ask = TokenNew { name, may: Power::ALL.into(), sessions: Some("*".into()), ..TokenNew::default() };
    let promised: TokenPromised = daemon.decide(method::TOKENS_PROMISE, &ask)?;
    Ok(format!("http://{address}/sign-in?code={}", promised.code))
}
