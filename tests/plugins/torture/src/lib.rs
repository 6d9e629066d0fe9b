//! Ends, blocks or starves whatever runs it, where and how the caller asks: for tests of what contains an extension.
//!
//! Every way of failing is an `Act`, and every place where code of an extension runs has a switch for one: the
//! library's constructor (a text in the file, `constructor`), `initialize`, `start`, `stop` and a thread of its own
//! (configuration), a call and a thread of a call (tools). What happened before a failure is left in the data folder,
//! so that a test sees what was lost and what was done twice. `torture_try` does one thing that a confined process must
//! not, and says which error the system gave.

mod act;
mod attempt;
mod constructor;
mod record;

use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use drupe_extension_api::prelude::*;

use crate::act::Act;

/// How often a call looks whether the thread that it waits for has ended.
const LOOK: Duration = Duration::from_millis(5);

struct Torture {
    host: Host,
    config: Config,
    health: Mutex<HealthSwitch>,
    /// Makes the thread of its own act.
    trigger: Mutex<Sender<()>>,
}

/// Nothing fails without configuration.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Done in `initialize`.
    initialize: Act,
    /// Done in `start`.
    start: Act,
    /// Done in `stop`.
    stop: Act,
    /// Done when the instance is dropped.
    drop: Act,
    /// Done by a thread that `initialize` starts, when `torture_trigger` is called.
    thread: Act,
    /// How it says that it is.
    health: HealthSwitch,
    /// Whether `initialize` waits until there is a file `go` in the data folder. It leaves a file `waits` there.
    waits: bool,
    /// What the names of its tools begin with, in place of `torture`.
    prefix: Option<String>,
}

/// What `health` answers.
#[derive(Deserialize, JsonSchema, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum HealthSwitch {
    /// That it is well.
    #[default]
    Ok,
    /// That it is not.
    Sick,
    /// Nothing, ever.
    Hang,
    /// Nothing: it ends its process.
    Abort,
}

impl Drop for Torture {
    fn drop(&mut self) {
        self.config.drop.perform();
    }
}

impl Extension for Torture {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let config: Config = host.config()?;
        let (trigger, triggered) = channel();
        let act = config.thread;
        thread::Builder::new().name("torture-own".into()).spawn(move || wait_and_act(&triggered, act))?;
        config.initialize.perform();
        if config.waits {
            std::fs::write(host.data_folder().join("waits"), "")?;
            while !host.data_folder().join("go").exists() {
                host.sleep(LOOK).await?;
            }
        }
        Ok(Self { health: Mutex::new(config.health), trigger: Mutex::new(trigger), host, config })
    }

    async fn start(&self) -> Result<(), Fault> {
        self.config.start.perform();
        Ok(())
    }

    async fn stop(&self) -> Result<(), Fault> {
        self.config.stop.perform();
        Ok(())
    }

    async fn health(&self) -> Result<(), Fault> {
        let health = *self.health.lock().unwrap_or_else(PoisonError::into_inner);
        match health {
            HealthSwitch::Ok => Ok(()),
            HealthSwitch::Sick => Err(Fault::new(FaultCode::Unavailable, "it was told to be sick")),
            HealthSwitch::Hang => std::future::pending().await,
            HealthSwitch::Abort => std::process::abort(),
        }
    }
}

/// The thread of its own: acts at each word, ends with the extension.
fn wait_and_act(triggered: &Receiver<()>, act: Act) {
    while triggered.recv().is_ok() {
        act.perform();
    }
}

impl ToolProvider for Torture {
    fn tools(&self) -> Vec<Tool<Self>> {
        let prefix = self.config.prefix.as_deref().unwrap_or("torture");
        let name = |what: &str| format!("{prefix}_{what}");
        vec![
            Tool::new(name("do"), "Fails in the way that is named.", Torture::act).once(),
            Tool::new(name("pure"), "Fails the first time, works the second.", Torture::pure).read_only(),
            Tool::new(name("wait"), "Takes some time.", Torture::wait).read_only(),
            Tool::new(name("thread"), "Fails in a thread that the call starts.", Torture::in_thread).once(),
            Tool::new(name("trigger"), "Makes the thread of its own act.", Torture::trigger).once(),
            Tool::new(name("append"), "Appends a line to a file.", Torture::append).once(),
            Tool::new(name("try"), "Tries one thing that may be forbidden.", Torture::attempt).once(),
            Tool::new(name("variant"), "Tells which build of it this is.", Torture::variant).read_only(),
            Tool::new(name("control"), "Asks the control API.", Torture::control).once(),
            Tool::new(name("control_all"), "Asks the control API for each path.", Torture::control_all)
                .once(),
            Tool::new(name("hold"), "Fails when it is cancelled.", Torture::hold).read_only(),
            Tool::new(name("answer"), "Answers with what is hard to take.", Torture::answer).read_only(),
            Tool::new(name("notify"), "Shows a text to the user.", Torture::notify).once(),
            Tool::new(name("health"), "Sets what health says.", Torture::set_health).idempotent(),
        ]
    }
}

export!(Torture: Tool);

#[derive(Deserialize, JsonSchema)]
struct Do {
    /// What to do.
    act: Act,
}

/// Acts when it is dropped.
struct Dropped(Act);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.perform();
    }
}

#[derive(Deserialize, JsonSchema)]
struct Answer {
    /// How many bytes it has.
    bytes: usize,
    /// Whether they are no text.
    #[serde(default)]
    garbled: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Pure {
    /// What to do the first time.
    act: Act,
    /// Name of the file in the data folder that tells the first time from the second; by default `pure`.
    #[serde(default)]
    marker_file: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// How long.
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct InThread {
    /// What the thread does.
    act: Act,
    /// How long the call waits for it, in milliseconds; by default until it ends.
    #[serde(default)]
    ms: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Append {
    /// What is appended, after the id of the effect.
    text: String,
    /// What to do when it is written, before the call ends.
    #[serde(default)]
    then: Act,
}

#[derive(Deserialize, JsonSchema)]
struct Control {
    /// The method.
    method: String,
    /// Its parameters.
    #[serde(default)]
    params: serde_json::Map<String, serde_json::Value>,
    /// The token of whom it asks for.
    #[serde(default)]
    bearer: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ControlAll {
    /// The method.
    method: String,
    /// What it is asked for, one after another.
    paths: Vec<String>,
    /// What no answer may hold.
    secret: String,
}

#[derive(Deserialize, JsonSchema)]
struct Notify {
    /// The text.
    text: String,
    /// How often it stands there.
    times: usize,
    /// The session; by default where the user was last.
    #[serde(default)]
    session: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Health {
    /// What it says from now on.
    health: HealthSwitch,
}

impl Torture {
    async fn act(&self, input: Do, _: Call) -> Result<&'static str, Fault> {
        input.act.perform();
        Ok("nothing happened")
    }

    async fn pure(&self, input: Pure, _: Call) -> Result<&'static str, Fault> {
        let marker = self.host.data_folder().join(input.marker_file.as_deref().unwrap_or("pure"));
        if record::first(&marker)? {
            input.act.perform();
            return Ok("worked the first time");
        }
        Ok("worked the second time")
    }

    async fn wait(&self, input: Wait, _: Call) -> Result<&'static str, Fault> {
        self.host.sleep(Duration::from_millis(input.ms)).await?;
        Ok("waited")
    }

    async fn in_thread(&self, input: InThread, _: Call) -> Result<&'static str, Fault> {
        let act = input.act;
        let thread = thread::Builder::new().name("torture-call".into()).spawn(move || act.perform())?;
        let mut left = input.ms.map(Duration::from_millis);
        while !thread.is_finished() {
            if left.is_some_and(|left| left.is_zero()) {
                return Ok("the thread goes on");
            }
            self.host.sleep(LOOK).await?;
            left = left.map(|left| left.saturating_sub(LOOK));
        }
        Ok(if thread.join().is_ok() { "the thread has ended" } else { "the thread panicked" })
    }

    async fn trigger(&self, _: NoInput, _: Call) -> Result<&'static str, Fault> {
        let told = self.trigger.lock().unwrap_or_else(PoisonError::into_inner).send(());
        Ok(if told.is_ok() { "told" } else { "the thread has gone" })
    }

    async fn append(&self, input: Append, call: Call) -> Result<&'static str, Fault> {
        let line = format!("{} {}", call.effect_id, input.text);
        record::append(&self.host.data_folder().join("appended"), &line)?;
        input.then.perform();
        Ok("appended")
    }

    async fn attempt(&self, input: attempt::Attempt, _: Call) -> Result<String, Fault> {
        Ok(input.outcome())
    }

    async fn hold(&self, input: Do, call: Call) -> Result<&'static str, Fault> {
        let _acts = Dropped(input.act);
        record::append(&self.host.data_folder().join("appended"), &format!("{} held", call.effect_id))?;
        std::future::pending().await
    }

    async fn answer(&self, input: Answer, _: Call) -> Result<String, Fault> {
        if !input.garbled {
            return Ok("x".repeat(input.bytes));
        }
        // SAFETY: none: a foreign library may send anything, and this is what was asked for.
        Ok(unsafe { String::from_utf8_unchecked(vec![0xff; input.bytes]) })
    }

    async fn variant(&self, _: NoInput, _: Call) -> Result<String, Fault> {
        Ok(constructor::variant())
    }

    async fn control(&self, input: Control, _: Call) -> Result<serde_json::Value, Fault> {
        let params = serde_json::Value::Object(input.params);
        self.host.control_for(input.bearer.as_deref(), &input.method, params).await
    }

    /// How many were granted and how many were refused, and how many answers held the secret.
    async fn control_all(&self, input: ControlAll, _: Call) -> Result<String, Fault> {
        let (mut granted, mut refused, mut told) = (0, 0, 0);
        for path in input.paths {
            let answer = self
                .host
                .control::<serde_json::Value>(&input.method, serde_json::json!({"path": path}))
                .await;
            let text = match answer {
                Ok(answer) => {
                    granted += 1;
                    answer.to_string()
                }
                Err(fault) => {
                    refused += 1;
                    fault.to_string()
                }
            };
            told += usize::from(text.contains(&input.secret));
        }
        Ok(format!("{granted} {refused} {told}"))
    }

    async fn notify(&self, input: Notify, _: Call) -> Result<(), Fault> {
        let session = input.session.map(SessionId::new).transpose()?;
        self.host.notify_user(input.text.repeat(input.times), session).await
    }

    async fn set_health(&self, input: Health, _: Call) -> Result<(), Fault> {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = input.health;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
