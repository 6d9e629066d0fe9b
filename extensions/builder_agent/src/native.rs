//! Drafts with code: from the template, compiled and tested.

use drupe_extension_api::{
    control::{Scaffold, method},
    prelude::*,
};

use crate::{
    Builder, Named,
    compiler::{self, Build, excerpt},
    toolchain::Toolchain,
};

/// What is shown of a test that passed, in bytes.
const PASSED: usize = 2 * 1024;

/// The files of the template that a model goes on from.
const SHOWN: [&str; 3] = ["manifest.yaml", "Cargo.toml", "src/lib.rs"];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DraftNative {
    /// Id of the new extension: lower-case letters, digits, `_` and `-`.
    id: String,
    /// Whether to give up the draft of that id, if there is one.
    #[serde(default)]
    replace: bool,
}

impl Builder {
    pub async fn draft_native(&self, input: DraftNative, _: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        self.toolchain.check(&self.host).await?;
        if input.replace {
            self.staging.forget(&id)?;
        }
        let Some(folder) = self.staging.vacant(&id)? else {
            return Err(Fault::invalid(format!("there is a draft of `{id}` already"))
                .help("go on with it, or give it up with `replace: true`"));
        };
        let scaffold = Scaffold { id: id.clone(), path: folder.display().to_string() };
        self.host.control::<()>(method::EXTENSIONS_SCAFFOLD, scaffold).await?;
        let shown = SHOWN.iter().map(|name| Ok(format!("--- {name}\n{}", self.staging.read(&id, name)?)));
        shown.collect()
    }

    pub async fn compile(&self, input: Named, _: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        let folder = self.native(&id)?;
        let _running = self.floor.program()?;
        let args = ["build", "--release", "--quiet", "--message-format=json"];
        let output = self.toolchain.cargo(&self.host, &folder, &args).await?;
        // Cargo names its files without links on the way, where the data folder's path may have some.
        let build = Build::read(&output.stdout, &folder.canonicalize()?);
        if output.status != Some(0) {
            return Err(Fault::invalid(format!("it does not compile:\n{}", build.errors(&output.stderr))));
        }
        let Some(library) = build.library() else {
            return Err(Fault::invalid("it compiles, but there is no library that drupe could load")
                .help("`Cargo.toml` needs `crate-type = [\"cdylib\", \"rlib\"]` under `[lib]`"));
        };
        let (staging, name) = (self.staging.clone(), library.to_owned());
        let work = move || staging.take_library(&id, &Toolchain::release(), &name);
        let size = self.host.blocking(work).await?;
        let done = format!("compiled `{library}`, {} KiB", size.div_ceil(1024));
        Ok(match build.warnings() {
            none if none.is_empty() => done,
            warnings => format!("{done}, with warnings:\n{warnings}"),
        })
    }

    pub async fn test(&self, input: Named, _: Call) -> Result<String, Fault> {
        let folder = self.native(&ExtensionId::new(&input.id)?)?;
        let _running = self.floor.program()?;
        // As a release, because what it depends on is compiled for that already.
        let output = self.toolchain.cargo(&self.host, &folder, &["test", "--release", "--quiet"]).await?;
        let (stdout, stderr) = (output.stdout.trim(), output.stderr.trim());
        match output.status {
            Some(0) => Ok(excerpt(stdout, PASSED)),
            _ if stdout.is_empty() => Err(Fault::invalid(format!(
                "its tests do not compile:\n{}",
                excerpt(stderr, compiler::SHOWN)
            ))),
            _ => Err(Fault::invalid(format!("its tests fail:\n{}", excerpt(stdout, compiler::SHOWN)))),
        }
    }

    /// The folder of a draft that has code.
    fn native(&self, id: &ExtensionId) -> Result<std::path::PathBuf, Fault> {
        match self.staging.is_native(id)? {
            true => self.staging.folder(id),
            false => Err(Fault::invalid(format!("the draft of `{id}` has no code to compile"))
                .help("an agent without code needs `builder_check` alone")),
        }
    }
}
