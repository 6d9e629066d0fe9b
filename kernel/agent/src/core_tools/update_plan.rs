//! The tool by which a model writes down what it is going to do, and how far it is.
//!
//! People are shown it as one item of the run, which completes when the run does. That of a root is kept with the session, and
//! its agent is told it again in later turns, as long as a step of it is open.

use std::sync::{Arc, LazyLock};

use drupe_extension_api::{
    EffectClass, EffectId, ItemKind, ToolAnnotations, ToolName, ToolSpec,
    control::{PlanStatus, PlanStep},
};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use crate::{
    registry::Registered,
    run::Run,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The tool's name.
pub const NAME: &str = "update_plan";

/// Steps of a plan; one with more is no overview.
const STEPS: usize = 50;

/// Bytes of one step.
const STEP: usize = 200;

struct UpdatePlan(Arc<ToolSpec>);

#[derive(Deserialize, Serialize)]
struct Plan {
    items: Vec<PlanStep>,
}

/// The one instance of it.
pub fn tool() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let spec = ToolSpec {
            name: ToolName::new(NAME).expect("the name has the form of one"),
            description:
                "Shows the user your plan for a task of several steps, and how far you are. Give the whole \
                          plan each time."
                    .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "items": {
                        "type": "array", "minItems": 1, "maxItems": STEPS,
                        "items": {
                            "type": "object",
                            "properties": {
                                "step": {"type": "string", "minLength": 1, "maxLength": STEP},
                                "status": {"enum": ["pending", "in_progress", "done"]},
                            },
                            "required": ["step", "status"],
                            "additionalProperties": false,
                        },
                    },
                },
                "required": ["items"],
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                item: ItemKind::ToolCall,
                ..ToolAnnotations::default()
            },
        };
        Registered::core(Arc::new(UpdatePlan(Arc::new(spec)))).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

/// The plan, how it is shown, and what the model is told.
fn read(params: &str) -> Result<(Plan, String, String), ToolError> {
    let plan: Plan = serde_json::from_str(params).map_err(|error| ToolError::failed(error.to_string()))?;
    // The schema counts characters; what is shown is bounded in bytes.
    if let Some(long) = plan.items.iter().find(|item| item.step.len() > STEP) {
        let shown = &long.step[..long.step.floor_char_boundary(40)];
        return Err(ToolError::failed(format!(
            "the step `{shown}…` is longer than {STEP} bytes; say it in fewer words"
        )));
    }
    let done = plan.items.iter().filter(|item| item.status == PlanStatus::Done).count();
    let told = format!("the plan is shown: {done} of {} steps done", plan.items.len());
    let shown = serde_json::to_string(&plan).map_err(|error| ToolError::failed(error.to_string()))?;
    Ok((plan, shown, told))
}

impl Tool for UpdatePlan {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let (plan, shown, told) = read(params.get())?;
            context.run.show_plan(shown);
            context.run.leave_plan(plan.items);
            Ok(ToolOutput::text(told))
        })
    }

    fn replayed(&self, (params, _): (&str, &str), _: &EffectId, run: &Arc<Run>) {
        if let Ok((plan, shown, _)) = read(params) {
            run.keep_plan(shown);
            run.leave_plan(plan.items);
        }
    }
}
