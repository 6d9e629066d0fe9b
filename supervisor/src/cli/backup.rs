//! `drupe backup`: asks no daemon, so it works whether one runs or not.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use drupe_backup::{BackupError, FOLDER, MadeBackup, Omitted, Order, check, make};
use drupe_config::{BackupConfig, load_config};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::{
    Context, Facts, config,
    console::table,
    failure::{Failure, status},
    figures::many,
};

/// What `drupe backup` is told.
#[derive(Debug, clap::Args)]
pub struct Backup {
    /// The file to make, or the folder to make it in; by default `journal.backup.directory`, or `backups` in the home
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Encrypt it for this recipient by the program `age`, secrets included; may be repeated. A key, or a file of keys; by default
    /// those of `journal.backup.recipients`
    #[arg(long, value_name = "RECIPIENT")]
    encrypt: Vec<String>,
    /// Do not encrypt it, whoever the recipients of `journal.backup.recipients` are
    #[arg(long, conflicts_with = "encrypt")]
    plain: bool,
    /// Take secrets along, readable for whoever has the file
    #[arg(long)]
    with_secrets: bool,
    /// Take the workspace along, too
    #[arg(long)]
    with_workspace: bool,
    #[command(flatten)]
    facts: Facts,
}

impl Backup {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let configured = configured(context);
        let usual = folder(context, configured.as_ref());
        let encrypt = match (self.encrypt, configured) {
            _ if self.plain => Vec::new(),
            (named, _) if !named.is_empty() => named,
            (_, Some(configured)) => configured.recipients,
            (_, None) => return Err(unknown_recipients()),
        };
        let encrypted = !encrypt.is_empty();
        let ending = if encrypted { "tar.gz.age" } else { "tar.gz" };
        let name = format!("drupe-{}.{ending}", Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ"));
        let file = match self.file.map(|file| context.here.join(file)) {
            None => {
                make_folder(&usual)?;
                usual.join(name)
            }
            Some(folder) if folder.is_dir() => folder.join(name),
            Some(file) => file,
        };
        let made = make(&Order {
            home: context.home().path().to_owned(),
            file,
            encrypt,
            secrets: self.with_secrets,
            workspace: self.with_workspace,
            except: vec![usual],
        })?;
        if self.facts.json {
            context.console.json(&made)?;
        } else {
            context.console.print(&made.file.display().to_string())?;
            made.remarks.iter().for_each(|remark| context.console.remark(remark));
            context.console.remark(&told(&made, encrypted));
            left_out(context, &made.left_out);
        }
        Ok(0)
    }
}

/// What the configuration says of backups; nothing where it has a fault.
pub fn configured(context: &Context) -> Option<BackupConfig> {
    load_config(&config::sources(context)).ok().map(|loaded| loaded.value.journal.backup)
}

/// Where backups are where none is named: what the configuration says, or the home's own folder.
pub fn folder(context: &Context, configured: Option<&BackupConfig>) -> PathBuf {
    let named = configured.and_then(|configured| configured.directory.clone());
    named.unwrap_or_else(|| context.home().path().join(FOLDER))
}

/// A backup that the operator wants to be encrypted must not become one that everybody reads.
fn unknown_recipients() -> Failure {
    let message = "the configuration has a fault, so it is not known for whom a backup is encrypted";
    Failure::new(status::CONFIG, message)
        .help("`drupe config show` says where; `--encrypt RECIPIENT` and `--plain` need no configuration")
}

fn make_folder(folder: &PathBuf) -> Result<(), Failure> {
    let mut private = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
    private
        .recursive(true)
        .create(folder)
        .map_err(|error| Failure::unmade(&error, format!("`{}` cannot be made: {error}", folder.display())))
}

fn told(made: &MadeBackup, encrypted: bool) -> String {
    let journal = made.journal.map_or("no journal".into(), |version| format!("journal of version {version}"));
    let checked = match encrypted {
        true => "encrypted; what is in it was checked before",
        false => "checked; not encrypted",
    };
    format!("{}, {}, {journal}; {checked}", size(made.bytes), many(made.files, "file", "files"))
}

pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Says what is not in a backup.
pub fn left_out(context: &Context, left_out: &[Omitted]) {
    if left_out.is_empty() {
        return;
    }
    let rows: Vec<_> =
        left_out.iter().map(|left| vec![format!("  {}", left.path), left.why.clone()]).collect();
    context.console.remark(&format!("left out:\n{}", table(&rows).trim_end()));
}

/// What a kernel has a process do.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Asked {
    Make(Order),
    /// Which of these is the first that could be restored.
    Whole(Vec<PathBuf>),
}

/// The process that a kernel starts: reads what it is to do from its standard input, and says what came of it. Gives the
/// status to exit with.
pub fn make_backup() -> u8 {
    let said = match serde_json::from_reader(io::stdin().lock()) {
        Ok(Asked::Make(order)) => match make(&order) {
            Ok(made) => json!({"made": {"bytes": made.bytes}}),
            Err(error) => json!({"failed": error.to_string()}),
        },
        Ok(Asked::Whole(files)) => json!({"whole": files.iter().find(|file| check(file, None).is_ok())}),
        Err(error) => json!({"failed": format!("it was asked for something else: {error}")}),
    };
    u8::from(writeln!(io::stdout(), "{said}").is_err())
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let code = match &error {
            error if error.passes() => status::LATER,
            BackupError::Exists(_) | BackupError::NoHome(_) => status::CANNOT_CREATE,
            BackupError::Held { .. } => status::ABSENT,
            BackupError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => status::NO_INPUT,
            BackupError::Unusable { .. } | BackupError::Newer { .. } | BackupError::NewerJournal { .. } => {
                status::WRONG_INPUT
            }
            error if error.is_damage() => status::IO,
            _ => status::FAILED,
        };
        Self::new(code, error.to_string())
    }
}
