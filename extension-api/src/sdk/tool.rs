//! Tools: a name, a schema that comes from the input's type, and an async function.

use std::{any::Any, fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::{Call, guard::BoxFuture};
use crate::{
    ApprovalScope, EffectClass, EffectId, Fault, ItemKind, ScopeKind, ToolAnnotations, ToolName, ToolPreview,
    ToolResult, ToolSpec, wire::LookupResult,
};

/// An async function that does a tool's work: `async fn(&S, I, Call) -> Result<O, Fault>`.
///
/// Implemented for every such function; a closure cannot give a future that borrows `&S`, a method can.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the function of a tool",
    label = "expected `async fn(&Self, Input, Call) -> Result<Output, Fault>`",
    note = "`Input` needs `Deserialize` and `JsonSchema`, `Output` needs `Serialize`, and the future must be `Send`"
)]
pub trait ToolFn<'a, S: 'a, I, O>: Send + Sync + 'static {
    /// What the function returns.
    type Future: Future<Output = Result<O, Fault>> + Send + 'a;

    /// Calls the function.
    fn call(&self, state: &'a S, input: I, call: Call) -> Self::Future;
}

impl<'a, S, I, O, F, R> ToolFn<'a, S, I, O> for F
where
    S: 'a,
    F: Fn(&'a S, I, Call) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, Fault>> + Send + 'a,
{
    type Future = R;

    fn call(&self, state: &'a S, input: I, call: Call) -> R {
        self(state, input, call)
    }
}

/// An async function that says what became of an earlier call:
/// `async fn(&S, EffectId) -> Result<LookupResult, Fault>`.
pub trait LookupFn<'a, S: 'a>: Send + Sync + 'static {
    /// What the function returns.
    type Future: Future<Output = Result<LookupResult, Fault>> + Send + 'a;

    /// Calls the function.
    fn call(&self, state: &'a S, effect: EffectId) -> Self::Future;
}

impl<'a, S, F, R> LookupFn<'a, S> for F
where
    S: 'a,
    F: Fn(&'a S, EffectId) -> R + Send + Sync + 'static,
    R: Future<Output = Result<LookupResult, Fault>> + Send + 'a,
{
    type Future = R;

    fn call(&self, state: &'a S, effect: EffectId) -> R {
        self(state, effect)
    }
}

/// The input of a tool that takes no parameters.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct NoInput {}

pub(crate) trait Handler<S>: Send + Sync {
    fn call(
        self: Arc<Self>,
        state: Arc<S>,
        params: Box<RawValue>,
        call: Call,
    ) -> BoxFuture<'static, Result<ToolResult, Fault>>;
}

pub(crate) trait Lookup<S>: Send + Sync {
    fn call(
        self: Arc<Self>,
        state: Arc<S>,
        effect: EffectId,
    ) -> BoxFuture<'static, Result<LookupResult, Fault>>;
}

/// One tool of an extension of type `S`.
pub struct Tool<S> {
    name: String,
    description: String,
    input_schema: Value,
    instructions: Option<String>,
    annotations: ToolAnnotations,
    pub(crate) handler: Arc<dyn Handler<S>>,
    pub(crate) lookup: Option<Arc<dyn Lookup<S>>>,
    pub(crate) preview: Option<Arc<dyn Handler<S>>>,
}

impl<S: Send + Sync + 'static> Tool<S> {
    /// A tool whose input schema comes from the type of the function's input. Doc comments on its fields
    /// are what the model reads; the name is by custom `<extension>_<verb>`.
    ///
    /// A result that serialises to a string reaches the model as that text, anything else as JSON. Without
    /// further methods a tool is assumed to have an effect that must not happen twice.
    pub fn new<I, O, F>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + Send + 'static,
        F: for<'a> ToolFn<'a, S, I, O>,
    {
        let handler = Arc::new(Typed { function, types: PhantomData::<fn(I) -> O> });
        Self {
            name: name.into(),
            description: description.into(),
            input_schema: schema_of::<I>(),
            instructions: None,
            annotations: ToolAnnotations::default(),
            handler,
            lookup: None,
            preview: None,
        }
    }

    /// A tool whose schema is known only at run time. [`Call::tool`] tells the function which one was called.
    ///
    /// ```
    /// # use drupe_extension_api::prelude::*;
    /// # struct Proxy { remote: Vec<ToolSpec> }
    /// # impl Extension for Proxy { async fn initialize(_: Host) -> Result<Self, Fault> { Ok(Proxy { remote: vec![] }) } }
    /// impl ToolProvider for Proxy {
    ///     fn tools(&self) -> Vec<Tool<Self>> {
    ///         self.remote.iter().map(|spec| Tool::dynamic(spec.clone(), Proxy::forward)).collect()
    ///     }
    /// }
    ///
    /// impl Proxy {
    ///     async fn forward(&self, params: serde_json::Value, call: Call) -> Result<String, Fault> {
    ///         Ok(format!("{:?} was called with {params}", call.tool()))
    ///     }
    /// }
    /// ```
    pub fn dynamic<O, F>(spec: ToolSpec, function: F) -> Self
    where
        O: Serialize + Send + 'static,
        F: for<'a> ToolFn<'a, S, Value, O>,
    {
        let handler = Arc::new(Typed { function, types: PhantomData::<fn(Value) -> O> });
        Self {
            name: spec.name.as_str().to_owned(),
            description: spec.description,
            input_schema: spec.input_schema,
            instructions: spec.instructions,
            annotations: spec.annotations,
            handler,
            lookup: None,
            preview: None,
        }
    }

    /// Says what became of a call whose result was lost, so that a [`once`](Self::once) tool need not end as
    /// "outcome unknown".
    pub fn lookup<F: for<'a> LookupFn<'a, S>>(mut self, function: F) -> Self {
        self.lookup = Some(Arc::new(Looked { function }));
        self
    }

    /// Says what a call would change, to the person who is asked whether it may run. The function gets the same input as the
    /// tool's own and must not change anything, however often it is called: what it says may be refused, or never read. It
    /// cannot call anything on behalf of the call, and is given up after two seconds; the question is asked all the same.
    ///
    /// A call that was agreed to has the [seal](ToolPreview::seal) in [`shown`](crate::wire::CallContext::shown): where the
    /// preview would have another one by now, it must fail and not do what nobody was shown.
    pub fn preview<I, F>(mut self, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        F: for<'a> ToolFn<'a, S, I, ToolPreview>,
    {
        self.preview = Some(Arc::new(Typed { function, types: PhantomData::<fn(I) -> ToolPreview> }));
        self
    }
}

/// How the kernel may run it.
impl<S> Tool<S> {
    /// Changes nothing; may be repeated at will.
    pub fn read_only(mut self) -> Self {
        self.annotations.read_only = true;
        self.annotations.effect = EffectClass::Pure;
        self
    }

    /// Running twice is the same as once.
    pub fn idempotent(mut self) -> Self {
        self.annotations.effect = EffectClass::Idempotent;
        self
    }

    /// Must not run twice; the default.
    pub fn once(mut self) -> Self {
        self.annotations.effect = EffectClass::Once;
        self
    }

    /// May destroy what cannot be restored.
    pub fn destructive(mut self) -> Self {
        self.annotations.destructive = true;
        self
    }

    /// Reaches beyond this machine.
    pub fn outward(mut self) -> Self {
        self.annotations.outward = true;
        self
    }

    /// Its results may hold text written by strangers.
    pub fn reads_untrusted(mut self) -> Self {
        self.annotations.reads_untrusted = true;
        self
    }

    /// What it keeps is given to models in other conversations. In one that holds text of strangers each call is asked about.
    pub fn remembers(mut self) -> Self {
        self.annotations.remembers = true;
        self
    }

    /// Runs alone within its step.
    pub fn exclusive(mut self) -> Self {
        self.annotations.exclusive = true;
        self
    }

    /// How much of the session's gate of 16 a running call takes; 1 to 16.
    pub fn weight(mut self, weight: u32) -> Self {
        self.annotations.weight = weight;
        self
    }

    /// How a call is shown in events.
    pub fn item(mut self, kind: ItemKind) -> Self {
        self.annotations.item = kind;
        self
    }

    /// The operator must agree to every call.
    pub fn needs_approval(mut self) -> Self {
        self.annotations.needs_approval = true;
        self
    }

    /// A person must fill in something before each call, as the [input](ToolPreview::input) of its preview says.
    pub fn needs_input(mut self) -> Self {
        self.annotations.needs_input = true;
        self
    }

    /// The system confines each call that leaves `params` out, or false: it changes nothing but the workspace, and has no
    /// network. An operator who chose the mode `on-failure` is not asked about such calls.
    pub fn confined_without(mut self, params: &[&str]) -> Self {
        self.annotations.confined_without = Some(params.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// What an agreement for the rest of a conversation is about: calls whose `param`, read as `kind`, is alike, and whose
    /// parameters in `same` are equal. Without it, it is about all calls of the tool.
    pub fn approval_scope(mut self, param: impl Into<String>, kind: ScopeKind, same: &[&str]) -> Self {
        let same = same.iter().map(|name| (*name).to_owned()).collect();
        self.annotations.approval_scope = Some(ApprovalScope { param: param.into(), kind, same });
        self
    }

    /// Deadline of one call, in place of the agent's.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.annotations.timeout_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Text added to the instructions of an agent that has this tool.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// As data; a fault names what is wrong with it.
    pub(crate) fn spec(&self) -> Result<ToolSpec, Fault> {
        let name = ToolName::new(&self.name)?;
        if !(1..=16).contains(&self.annotations.weight) {
            return Err(Fault::invalid(format!(
                "tool `{name}` has a weight of {}, not 1 to 16",
                self.annotations.weight
            )));
        }
        let other = self.input_schema.get("type").is_some_and(|kind| kind != "object");
        if other || !self.input_schema.is_object() {
            return Err(Fault::invalid(format!("the input of tool `{name}` is not an object: use a struct")));
        }
        if self.annotations.needs_input && self.preview.is_none() {
            return Err(Fault::invalid(format!(
                "tool `{name}` needs input, and has no preview that asks for it"
            )));
        }
        // A request that holds such a tool is refused as a whole.
        if let Some(key) =
            ["oneOf", "anyOf", "allOf"].into_iter().find(|k| self.input_schema.get(*k).is_some())
        {
            return Err(Fault::invalid(format!(
                "the input of tool `{name}` has `{key}` at its top, which providers refuse"
            ))
            .help("use a struct, and put the choice into a field of it"));
        }
        Ok(ToolSpec {
            name,
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            instructions: self.instructions.clone(),
            annotations: ToolAnnotations { previews: self.preview.is_some(), ..self.annotations.clone() },
        })
    }
}

impl<S> fmt::Debug for Tool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Subschemas are written in place, as far as they are not recursive: some model providers know no `$ref`.
fn schema_of<I: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<I>();
    // The name of a Rust type tells a model nothing.
    schema.remove("title");
    schema.to_value()
}

struct Typed<F, I, O> {
    function: F,
    types: PhantomData<fn(I) -> O>,
}

impl<S, F, I, O> Handler<S> for Typed<F, I, O>
where
    S: Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    F: for<'a> ToolFn<'a, S, I, O>,
{
    fn call(
        self: Arc<Self>,
        state: Arc<S>,
        params: Box<RawValue>,
        call: Call,
    ) -> BoxFuture<'static, Result<ToolResult, Fault>> {
        Box::pin(async move {
            let input = serde_json::from_str::<I>(params.get())
                .map_err(|e| Fault::invalid(format!("the parameters do not fit: {e}")))?;
            drop(params);
            let output = self.function.call(&state, input, call.clone()).await?;
            let (untrusted, images) = (call.has_read_untrusted(), call.shown_images());
            Ok(ToolResult { content: content(output)?, untrusted, images })
        })
    }
}

/// Text stays text, everything else is JSON.
fn content<O: Serialize + 'static>(output: O) -> Result<String, Fault> {
    let mut output = Some(output);
    // A `String` is moved, not quoted and read back.
    if let Some(text) = (&mut output as &mut dyn Any).downcast_mut::<Option<String>>() {
        return Ok(text.take().unwrap_or_default());
    }
    let json = serde_json::to_string(&output)
        .map_err(|e| Fault::internal(format!("the result cannot be written as JSON: {e}")))?;
    match json.as_bytes().first() {
        Some(b'"') => Ok(serde_json::from_str(&json)?),
        _ => Ok(json),
    }
}

struct Looked<F> {
    function: F,
}

impl<S, F> Lookup<S> for Looked<F>
where
    S: Send + Sync + 'static,
    F: for<'a> LookupFn<'a, S>,
{
    fn call(
        self: Arc<Self>,
        state: Arc<S>,
        effect: EffectId,
    ) -> BoxFuture<'static, Result<LookupResult, Fault>> {
        Box::pin(async move { self.function.call(&state, effect).await })
    }
}
