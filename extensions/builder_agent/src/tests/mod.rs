//! The tools, through the table that a kernel uses, with a host that the tests play.

mod activation;
mod drafts;
mod eval;
mod native;

use std::{env::consts::DLL_SUFFIX, fs, path::PathBuf};

use drupe_extension_api::{
    Fault, FaultCode,
    testing::{FakeHost, Harness, block_on},
    wire::RunProcess,
};
use serde_json::{Value, json};

use crate::Builder;

fn builder() -> Harness<Builder> {
    block_on(
        Harness::setup()
            .id("builder_agent")
            .program_folder("/o/cargo/bin")
            .program_folder("/o/rustup")
            .start(),
    )
    .expect("it starts")
}

fn call(builder: &Harness<Builder>, tool: &str, params: Value) -> Result<String, Fault> {
    block_on(builder.call(tool, params))
}

fn write(builder: &Harness<Builder>, id: &str, file: &str, content: &str) -> Result<String, Fault> {
    call(builder, "builder_write", json!({"id": id, "file": file, "content": content}))
}

/// The message and help of a fault of that code.
fn refused(outcome: Result<String, Fault>, code: FaultCode) -> String {
    let fault = outcome.expect_err("a fault");
    assert_eq!(fault.code, code, "{fault}");
    fault.to_string()
}

fn draft(builder: &Harness<Builder>, id: &str) -> PathBuf {
    builder.data_folder().join("staging").join(id)
}

fn library(name: &str) -> String {
    format!("lib{name}{DLL_SUFFIX}")
}

/// A builder where there is a toolchain, with a native draft `words`.
fn native() -> Harness<Builder> {
    let builder = builder();
    builder.host().answer_process("cargo", Ok(FakeHost::ended(0, "cargo 1.95.0", "")));
    builder.host().answer_control_with("extensions.scaffold", |asked| {
        let folder = PathBuf::from(asked["path"].as_str().expect("a path"));
        fs::create_dir_all(folder.join("src"))?;
        for file in ["manifest.yaml", "Cargo.toml", "Cargo.lock", "src/lib.rs", ".gitignore"] {
            fs::write(folder.join(file), format!("the template's {file} of {}", asked["id"]))?;
        }
        Ok(Value::Null)
    });
    let shown = call(&builder, "builder_draft_native", json!({"id": "words"})).expect("a draft");
    assert!(shown.contains("--- src/lib.rs\nthe template's src/lib.rs of \"words\""), "{shown}");
    builder
}

/// Lets the next build of `words` succeed, as cargo would: with a library, and lines that name it.
fn builds(builder: &Harness<Builder>) {
    builder.host().answer_process_with("cargo", |build| {
        let release = PathBuf::from(&build.spec.env["CARGO_TARGET_DIR"]).join("release");
        fs::create_dir_all(&release)?;
        fs::write(release.join(library("words")), "a library")?;
        Ok(FakeHost::ended(0, &artifact(build, &release.join(library("words")).display().to_string()), ""))
    });
}

fn artifact(build: &RunProcess, file: &str) -> String {
    let manifest = format!("{}/Cargo.toml", build.spec.directory);
    json!({"reason": "compiler-artifact", "manifest_path": manifest, "filenames": [file]}).to_string()
}

/// What `extensions.add` answers.
fn status(state: &str, reason: Option<&str>) -> Value {
    json!({
        "id": "words", "version": "0.1.0", "state": state, "reason": reason, "capabilities": [], "isolation": null,
        "source": "/home/extensions/words", "since": "2026-01-01T00:00:00Z",
    })
}

/// What `extensions.check` answers where there is no fault.
fn sound(agent: bool) -> Value {
    json!({"ok": true, "diagnostics": [], "rendered": "", "agent": agent})
}

/// What `extensions.try` answers.
fn tried(content: &str, tools: &[&str], by_language_model: bool) -> Value {
    let usage = json!({"input_tokens": 5, "output_tokens": 2});
    json!({
        "status": "success", "content": content, "tools": tools, "usage": usage,
        "by_language_model": by_language_model,
    })
}
