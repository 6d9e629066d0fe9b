//! `drupe ext check --load`: opens libraries as a daemon would, each in a confined process, and says what is in them.
//!
//! Whoever asks for it agrees that the code runs once, confined: without network, without secrets, and with nothing to
//! write but a folder that is gone afterwards.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use drupe_config::{Config, Manifest};
use drupe_extension_api::{control::ToolSize, wire::Initialize};
use drupe_folders::discovery::Layout;
use drupe_host::{
    Bounds, Code, HostProcess, own_program,
    probe::{self, Caches, Judgement, Said},
};
use drupe_kernel::forecast::Expected;
use drupe_redact::Redactor;
use serde::Serialize;

use crate::cli::{
    Context,
    console::{plain, table},
    figures::count,
};

/// What a library turned out to be.
#[derive(Debug, Serialize)]
pub struct Loaded {
    id: String,
    library: PathBuf,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_release: Option<String>,
    capabilities: Vec<String>,
    tools: Vec<ToolSize>,
    asks: Vec<String>,
    /// Why it would not work, or why no more can be said of it here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A folder that is gone when this is.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left lies among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Scratch {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("drupe-load-{}", uuid::Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&path)?;
        path.canonicalize().map(Self)
    }
}

/// Loads one; none where there is no library to be loaded.
pub fn load(one: &Expected, config: &Config, context: &Context) -> Option<Loaded> {
    let looked = &one.looked;
    let manifest = looked.manifest.as_ref()?;
    let layout = Layout::new(&context.exe, context.home().path(), &config.extensions.paths);
    let library = layout.library(&looked.found, manifest.entrypoint.as_ref()?).ok()?;
    let said = open(&library, manifest, looked.hash(), config, context);
    let (open, (tools, fault)) = match said {
        Err(fault) => (None, (Vec::new(), Some(fault))),
        Ok(Said { open, initialized: Err(fault) }) => (Some(open), (Vec::new(), Some(fault))),
        Ok(Said { open, initialized: Ok(described) }) => (Some(open), one.brings(described)),
    };
    Some(Loaded {
        id: one.id.clone(),
        bytes: fs::metadata(&library).map_or(0, |meta| meta.len()),
        library,
        api_release: open.as_ref().map(|open| open.api_release.clone()),
        capabilities: open.map(|open| open.capabilities).unwrap_or_default(),
        tools,
        asks: looked.ask.as_ref().map(|ask| ask.needs.clone()).unwrap_or_default(),
        fault,
    })
}

fn open(
    library: &Path,
    manifest: &Manifest,
    hash: &str,
    config: &Config,
    context: &Context,
) -> Result<Said, String> {
    let cannot = |error: io::Error| format!("it cannot be loaded here: {error}");
    let scratch = Scratch::new().map_err(cannot)?;
    let (exe, strict) = (own_program(&context.exe), !config.sandbox.allow_unconfined);
    let caches = Caches {
        verdicts_file: scratch.0.join("verdicts"),
        copies: scratch.0.clone(),
        exe: exe.clone(),
        strict,
    };
    match probe::judge(&caches, library, library) {
        Judgement::Sound => {}
        Judgement::Refused(why) | Judgement::Unknown(why) => return Err(why),
    }
    let text = |path: &Path| path.display().to_string();
    let config_of = manifest.effective_config(config).map_err(|faults| faults.render(false))?;
    let given = Initialize {
        id: manifest.id.clone(),
        config: config_of,
        secrets: serde_json::Map::new(),
        data_folder: text(&scratch.0),
        folder: text(&manifest.folder),
        workspace: text(&scratch.0),
        agent: None,
        resolved_tools: Vec::new(),
        program_folders: Vec::new(),
        embedding_model: None,
        listening: Vec::new(),
    };
    let place = HostProcess::confined(&Bounds {
        exe: &exe,
        read: &[&manifest.folder, library, &exe],
        write: &[&scratch.0],
        memory: u64::from(config.sandbox.hosts.memory_mb) * 1024 * 1024,
        network: false,
        sockets: false,
        strict,
    });
    let code = Code {
        id: manifest.id.clone(),
        file: library.to_owned(),
        hash: hash.to_owned(),
        listening: Vec::new(),
        // It is run without any.
        redactor: Redactor::default(),
    };
    probe::look(code, place, &given)
}

pub fn render(all: &[Loaded]) -> String {
    let mut rows = Vec::new();
    for one in all {
        let mut row = |name: &str, value: String| rows.push(vec![format!("  {name}"), plain(&value)]);
        row(&one.id, format!("{} ({} bytes)", one.library.display(), count(one.bytes)));
        if let Some(release) = &one.api_release {
            row("", format!("its layout fits; built with release {release} of the extension API"));
            row("", format!("can be: {}", one.capabilities.join(", ")));
        }
        for tool in &one.tools {
            row(
                "",
                format!("tool {}: {} bytes to each request that offers it", tool.tool, count(tool.bytes)),
            );
        }
        if !one.asks.is_empty() {
            row("", format!("asks for: {}", one.asks.join(", ")));
        }
        if let Some(fault) = &one.fault {
            row("", format!("fault: {fault}"));
        }
    }
    table(&rows)
}
