//! `drupe init`: what a new home needs before a model answers, and nothing else: which provider, its key, a first chat service if one is
//! wanted, the time zone. The key and the secrets of the service are tried before anything is kept, and what a day may cost at most is said.
//!
//! It makes files and changes none: the configuration is the operator's from its first line on.

mod channel;

use std::{
    fs::{self, OpenOptions},
    io::{self, IsTerminal as _, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use drupe_config::{Config, EnvFile, Manifest, Sources, load_config, model_catalogue};
use drupe_kernel::{ListedModel, Models, beginning};
use drupe_link::Home;
use drupe_prompts::Day;
use jiff::Timestamp;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::{
    Context, config,
    failure::{Failure, status},
    fill,
    restore::not_half_restored,
    secret,
};

/// A server of this machine, as Ollama's documentation gives its address
/// (<https://docs.ollama.com/api/openai-compatibility>, read on 2026-11-27).
const OLLAMA: &str = "http://127.0.0.1:11434/v1";

/// The variable that holds the key of a server that nobody has a name for.
const OWN_KEY: &str = "OWN_API_KEY";

const OFFLINE: &str = "offline";

/// Arguments of `drupe init`; what is not given is asked for.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// Who answers: openai, anthropic, gemini, ollama, own (another server that speaks Chat Completions), or offline
    #[arg(long)]
    provider: Option<Provider>,
    /// The address of the server, up to its `/v1`; for ollama and own
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model that answers; by default the first of those known to be good that the provider has
    #[arg(long)]
    model: Option<String>,
    /// A chat service that is turned on, such as telegram, or none; its secrets are asked for
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// The time zone of schedules and of what agents are told; by default the system's
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// What a day may cost at most, in US dollars, of models whose price is known
    #[arg(long, value_name = "USD")]
    max_cost_per_day: Option<f64>,
    /// Keep what is given without asking the provider, or the chat service, whether it takes it
    #[arg(long)]
    untried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Provider {
    Openai,
    Anthropic,
    Gemini,
    Ollama,
    Own,
    Offline,
}

impl Provider {
    /// Its name, as it stands before the slash of a model.
    fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Own => "own",
            Self::Offline => OFFLINE,
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = <Self as clap::ValueEnum>::value_variants();
        all.iter().copied().find(|provider| provider.name() == name)
    }

    /// Whether a server has to be named, and which it is by default.
    fn address(self) -> Option<Option<&'static str>> {
        match self {
            Self::Ollama => Some(Some(OLLAMA)),
            Self::Own => Some(None),
            _ => None,
        }
    }
}

/// What is to be kept, once it is known to work.
struct Plan {
    provider: Provider,
    /// The file, as it is to be.
    text: String,
    /// Variables of `.env` and their values.
    keys: Vec<(String, String)>,
    channel: Option<Manifest>,
}

/// Secrets that are needed: which are there, and which were asked for.
struct Keys<'a> {
    context: &'a Context,
    kept: EnvFile,
    given: Vec<(String, String)>,
}

impl<'a> Keys<'a> {
    fn new(context: &'a Context) -> Result<Self, Failure> {
        Ok(Self { context, kept: EnvFile::of(context.home().path())?, given: Vec::new() })
    }

    /// Sees to it that one of these is there: where none is, the first is asked for.
    fn need(&mut self, names: &[&str]) -> Result<(), Failure> {
        let there = |name: &&&str| {
            self.kept.names().iter().any(|kept| kept == **name)
                || self.context.environment.text.get(**name).is_some_and(|value| !value.is_empty())
        };
        if let Some(name) = names.iter().find(there) {
            self.context.console.remark(&format!("`{name}` is there already and is used"));
            return Ok(());
        }
        let name = names[0];
        // Standard input that is no terminal is one value, from its beginning to its end.
        if !self.given.is_empty() && !io::stdin().is_terminal() {
            return Err(Failure::new(
                status::FAILED,
                format!("`{name}` is needed as well, and standard input holds one value"),
            )
            .help(format!("keep it before: `drupe secret set {name} < file`")));
        }
        let value = secret::value(name)?;
        EnvFile::fits(name, &value)?;
        self.given.push((name.to_owned(), value));
        Ok(())
    }
}

impl Init {
    pub fn execute(&self, context: &Context) -> Result<u8, Failure> {
        let file = context.config.clone().unwrap_or_else(|| context.home().path().join("drupe.yaml"));
        if file.symlink_metadata().is_ok() {
            let message =
                format!("`{}` is there already, and it is yours: nothing is changed in it", file.display());
            return Err(Failure::new(status::FAILED, message)
                .help("`drupe config show` says what holds, `drupe secret set NAME` keeps a key, `drupe doctor` looks at all of it"));
        }
        not_half_restored(context.home().path())?;
        Home::create(context.home().path()).map_err(|error| {
            Failure::unmade(&error, format!("`{}` cannot be made: {error}", context.home().path().display()))
        })?;
        let plan = self.plan(context)?;
        let draft = Draft::write(&file, &plan.text)?;
        let config = read(context, &draft.path, &plan.keys)?;
        let answers = match plan.provider {
            Provider::Offline => {
                "the offline model answers, which follows rules and is no language model".into()
            }
            _ if self.untried => {
                "the provider was not asked whether it takes the key: `drupe models check` does".into()
            }
            provider => try_it(&config, provider, self.model.as_deref())?,
        };
        let answers = match &plan.channel {
            Some(channel) if self.untried => {
                format!(
                    "{answers}\n{} was not asked whether it takes its secrets: `drupe doctor` does",
                    channel.name
                )
            }
            Some(channel) => format!("{answers}\n{}", channel::tried(channel, &config)?.trim_end()),
            None => answers,
        };
        let secrets = EnvFile::of(context.home().path())?;
        for (name, value) in &plan.keys {
            secrets.set(name, Some(value))?;
        }
        draft.keep(&file)?;
        let day = config.limits.day;
        let keys: String = plan
            .keys
            .iter()
            .map(|(name, _)| format!("`{name}` is kept in `{}`\n", secrets.path().display()))
            .collect();
        let channel = plan.channel.map(|channel| {
            format!(
                "{} is on: write to it there, and `drupe pair allow CODE` lets in whom it shows a code\n",
                channel.name
            )
        });
        context.console.print(&format!(
            "{answers}\na day costs at most ${:.2} (`limits.day.max_cost_usd`) where the price of the model is known, and takes {} tokens \
             (`limits.day.max_tokens`)\n`{}` is written\n{keys}{}next: `drupe` to chat, `drupe run` for a daemon that stays",
            day.max_cost_usd,
            super::figures::count(day.max_tokens),
            file.display(),
            channel.unwrap_or_default(),
        ))?;
        Ok(0)
    }

    fn plan(&self, context: &Context) -> Result<Plan, Failure> {
        let provider = match self.provider {
            Some(provider) => provider,
            None => asked_provider()?,
        };
        let address = self.address(provider)?;
        let model = match (&self.model, provider.address()) {
            (Some(model), _) => Some(model.clone()),
            // Nobody knows which models such a server has.
            (None, Some(_)) => {
                Some(text("model", json!({"type": "string", "title": "Name of the model"}), "--model NAME")?)
            }
            (None, None) => None,
        };
        let mut keys = Keys::new(context)?;
        key(provider, &mut keys)?;
        let channel = channel::chosen(self.channel.as_deref(), context)?;
        if let Some(channel) = &channel {
            channel::secrets(channel, &mut keys)?;
        }
        let zone = match &self.timezone {
            Some(zone) => zone.clone(),
            None => text(
                "timezone",
                json!({"type": "string", "title": "Time zone", "default": "system"}),
                "--timezone ZONE",
            )?,
        };
        let own_key = (provider == Provider::Own).then_some(OWN_KEY);
        let text = configuration(
            provider,
            (address.as_deref(), own_key),
            model.as_deref(),
            &zone,
            self.max_cost_per_day,
            channel.as_ref(),
        );
        Ok(Plan { provider, text, keys: keys.given, channel })
    }

    fn address(&self, provider: Provider) -> Result<Option<String>, Failure> {
        match (&self.base_url, provider.address()) {
            (Some(_), None) => Err(Failure::new(
                status::FAILED,
                format!("`--base-url` is for ollama and own; {} has an address of its own", provider.name()),
            )),
            (Some(address), Some(_)) => Ok(Some(address.clone())),
            (None, Some(Some(usual))) => Ok(Some(usual.into())),
            (None, Some(None)) => text(
                "base_url",
                json!({"type": "string", "title": "Address of the server, up to its /v1"}),
                "--base-url URL",
            )
            .map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// The key, where the provider needs one.
fn key(provider: Provider, keys: &mut Keys<'_>) -> Result<(), Failure> {
    match model_catalogue().provider(provider.name()) {
        Some(known) => {
            let names: Vec<_> =
                std::iter::once(known.key.as_str()).chain(known.other_key.as_deref()).collect();
            keys.need(&names)
        }
        None if provider == Provider::Own => keys.need(&[OWN_KEY]),
        None => Ok(()),
    }
}

fn asked_provider() -> Result<Provider, Failure> {
    let names: Vec<_> =
        <Provider as clap::ValueEnum>::value_variants().iter().map(|provider| provider.name()).collect();
    let name = text(
        "provider",
        json!({"type": "string", "title": "Who answers", "enum": names}),
        "--provider NAME",
    )?;
    Provider::named(&name)
        .ok_or_else(|| Failure::new(status::FAILED, format!("`{name}` is none of {}", names.join(", "))))
}

fn text(name: &str, property: serde_json::Value, option: &str) -> Result<String, Failure> {
    let value = fill::needed(name, &property, option)?;
    Ok(value.as_str().unwrap_or_default().trim().to_owned())
}

/// The file: only what differs from the defaults, with where to read of the rest.
fn configuration(
    provider: Provider,
    (address, own_key): (Option<&str>, Option<&str>),
    model: Option<&str>,
    zone: &str,
    max_cost: Option<f64>,
    channel: Option<&Manifest>,
) -> String {
    // JSON is YAML, so a text of any content stands as it is.
    let quoted = |text: &str| json!(text).to_string();
    let mut file = "# Made by `drupe init`, and yours from here on. `drupe config template` prints every key with its default,\n\
                    # `drupe config show` what holds.\n"
        .to_owned();
    let name = provider.name();
    // A provider that is named alone is asked for the first model known to be good that it has.
    let default = model.map_or_else(|| name.to_owned(), |model| format!("{name}/{model}"));
    file += &format!("models:\n  aliases:\n    default: {}\n", quoted(&default));
    if let Some(address) = address {
        let key = own_key.map_or_else(|| quoted("none"), |key| format!("\"${{{key}}}\""));
        file += &format!(
            "  providers:\n    {name}:\n      kind: openai_chat\n      base_url: {}\n      api_key: {key}\n",
            quoted(address)
        );
    }
    if zone != "system" {
        file += &format!("schedules:\n  timezone: {}\n", quoted(zone));
    }
    if let Some(cost) = max_cost {
        file += &format!("limits:\n  day:\n    max_cost_usd: {cost}\n");
    }
    if let Some(channel) = channel {
        file += &format!("extensions:\n  {}:\n    enabled: true\n", channel.id);
    }
    file
}

/// What a kernel would make of the file.
fn read(context: &Context, file: &Path, keys: &[(String, String)]) -> Result<Config, Failure> {
    let mut environment = context.environment.text.clone();
    environment.extend(keys.iter().cloned());
    let sources = Sources { file: Some(file.to_owned()), environment, ..config::sources(context) };
    let loaded = load_config(&sources).map_err(|faults| {
        context.console.remark_drawn(faults.render(context.console.colour_err).trim_end());
        Failure::said(status::CONFIG)
    })?;
    let day = Day::of(Timestamp::now().as_millisecond());
    beginning::begin(&loaded.value, context.home().path(), day, &[]).map_err(|why| {
        Failure::new(status::CONFIG, format!("no kernel could begin with this, so nothing is kept: {why}"))
    })?;
    Ok(loaded.value)
}

/// Asks the provider for the list of its models, which costs nothing and needs the key; says which model answers.
fn try_it(config: &Config, provider: Provider, model: Option<&str>) -> Result<String, Failure> {
    let name = provider.name();
    let known = Models::new(drupe_kernel::models(config))
        .map_err(|error| Failure::new(status::CONFIG, error.to_string()))?;
    let refused = |why: &str| {
        Failure::new(
            status::FAILED,
            format!("{name} does not answer as it should, so nothing is kept: {why}"),
        )
        .help("mend it and try again; `--untried` keeps it all the same")
    };
    let mut lists = known.ask_lists()?;
    let list = lists.remove(name).unwrap_or(Ok(None)).map_err(|why| refused(&why))?;
    let chosen = match (model, list.as_deref()) {
        (Some(model), list) => match list.and_then(|list| missing(list, model)) {
            Some(why) => return Err(refused(&why)),
            None => model.to_owned(),
        },
        (None, list) => match known.choice(name, list) {
            Some(chosen) => {
                chosen.map_err(|why| refused(&why))?.trim_start_matches(&format!("{name}/")).to_owned()
            }
            None => return Ok(format!("{name} answers and takes the key")),
        },
    };
    Ok(format!("{name} answers and takes the key; `{chosen}` is asked"))
}

/// Why a model cannot be asked that the provider's list does not have.
fn missing(list: &[ListedModel], model: &str) -> Option<String> {
    if Models::listed(list, model).is_some() {
        return None;
    }
    let names: Vec<_> = list.iter().take(20).map(|listed| format!("`{}`", listed.name)).collect();
    let more = if list.len() > names.len() { ", …" } else { "" };
    Some(format!("it has no model `{model}`; it has {}{more}", names.join(", ")))
}

/// The file under another name, which is gone again unless it is kept.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(file: &Path, text: &str) -> Result<Self, Failure> {
        let path = file.with_extension(format!("init-{}", std::process::id()));
        let unmade = |error: io::Error| {
            Failure::unmade(&error, format!("`{}` cannot be written: {error}", path.display()))
        };
        let mut made =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(unmade)?;
        let draft = Self { path: path.clone() };
        made.write_all(text.as_bytes()).and_then(|()| made.sync_all()).map_err(unmade)?;
        Ok(draft)
    }

    /// Gives it its name, unless somebody else has taken that meanwhile.
    fn keep(self, file: &Path) -> Result<(), Failure> {
        renameat_with(CWD, &self.path, CWD, file, RenameFlags::NOREPLACE).map_err(|error| {
            Failure::new(status::CANNOT_CREATE, format!("`{}` cannot be made: {error}", file.display()))
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It has its name by now, or is of no use.
        let _ = fs::remove_file(&self.path);
    }
}
