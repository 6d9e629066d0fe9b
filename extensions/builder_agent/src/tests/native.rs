//! Drafts with code.

use drupe_extension_api::wire::ProcessOutput;

use super::*;

fn compile(builder: &Harness<Builder>) -> Result<String, Fault> {
    call(builder, "builder_compile", json!({"id": "words"}))
}

fn test(builder: &Harness<Builder>) -> Result<String, Fault> {
    call(builder, "builder_test", json!({"id": "words"}))
}

#[test]
fn without_a_toolchain_the_tools_say_so_and_nothing_is_made() {
    let builder = builder();
    let draft_native = || call(&builder, "builder_draft_native", json!({"id": "words"}));
    builder.host().answer_process("cargo", Err(Fault::not_found("there is no program `cargo`")));
    let said = refused(draft_native(), FaultCode::NotConfigured);
    assert!(said.contains("no program `cargo`") && said.contains("builder_draft"), "{said}");
    builder.host().answer_process("cargo", Ok(FakeHost::ended(1, "", "error: no default toolchain\nmore")));
    let said = refused(draft_native(), FaultCode::NotConfigured);
    assert!(said.contains("no default toolchain") && !said.contains("more"), "{said}");
    assert!(!draft(&builder, "words").exists() && builder.host().control_calls().is_empty());

    // A draft that is there from before: compiling and testing say the same.
    assert!(write(&builder, "words", "Cargo.toml", "x").is_ok());
    for tool in ["builder_compile", "builder_test"] {
        builder.host().answer_process("cargo", Err(Fault::not_found("none")));
        refused(call(&builder, tool, json!({"id": "words"})), FaultCode::NotConfigured);
    }
    // It is asked again each time: someone may have installed it.
    builder.host().answer_process("cargo", Ok(FakeHost::ended(0, "cargo 1.95.0", "")));
    builds(&builder);
    assert!(compile(&builder).is_ok());
}

#[test]
fn a_draft_begins_from_the_template_and_is_not_overwritten_unasked() {
    let builder = native();
    let asked = &builder.host().control_calls()[0].1;
    assert_eq!(*asked, json!({"id": "words", "path": draft(&builder, "words")}));
    let again =
        |replace: bool| call(&builder, "builder_draft_native", json!({"id": "words", "replace": replace}));
    assert!(refused(again(false), FaultCode::Invalid).contains("replace"));
    builder.host().answer_control("extensions.scaffold", Err(Fault::internal("the disk is full")));
    assert!(refused(again(true), FaultCode::Internal).contains("disk"));
    assert!(!draft(&builder, "words").exists(), "the old one was given up");
}

#[test]
fn a_build_runs_beneath_the_data_folder_and_its_library_joins_the_draft() {
    let builder = native();
    builds(&builder);
    assert_eq!(compile(&builder), Ok(format!("compiled `{}`, 1 KiB", library("words"))));
    let taken = fs::read_to_string(draft(&builder, "words").join(library("words")));
    assert_eq!(taken.expect("the library"), "a library");

    let runs = builder.host().processes();
    let [version, build] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((version.spec.args.as_slice(), version.spec.network), (&["--version".to_owned()][..], false));
    assert_eq!(build.spec.args[..2], ["build", "--release"]);
    assert_eq!(build.spec.directory, draft(&builder, "words").display().to_string());
    assert_eq!(
        build.spec.env["CARGO_TARGET_DIR"],
        builder.data_folder().join("target").display().to_string()
    );
    assert!(build.spec.network && build.spec.timeout_ms == Some(600_000));
    let target = build.spec.env["CARGO_TARGET_DIR"].clone();
    let cargo_home = builder.data_folder().join("cargo").display().to_string();
    assert_eq!(version.spec.folders, [target.clone(), cargo_home.clone()]);
    assert_eq!(build.spec.path, ["/o/cargo/bin"]);
    assert_eq!(build.spec.read, ["/o/cargo/bin", "/o/rustup"], "what the manifest names, and no more");
    let env = |name: &str| build.spec.env[name].as_str();
    assert_eq!((env("CARGO_HOME"), env("RUSTUP_HOME")), (cargo_home.as_str(), "/o/rustup"));
    assert_eq!(
        build.spec.folders,
        [target, cargo_home.clone(), build.spec.directory.clone()],
        "no other draft, and nothing that is handed over"
    );
}

#[test]
fn what_does_not_compile_is_told_as_the_compiler_says_it() {
    let builder = native();
    let message = |level: &str, text: &str| {
        json!({"reason": "compiler-message", "message": {"level": level, "rendered": text}}).to_string()
    };
    let lines =
        [message("warning", "unused"), message("error", "error[E0425]: cannot find `x`\n --> src/lib.rs")];
    builder.host().answer_process("cargo", Ok(FakeHost::ended(101, &lines.join("\n"), "could not compile")));
    let said = refused(compile(&builder), FaultCode::Invalid);
    assert_eq!(said, "it does not compile:\nerror[E0425]: cannot find `x`\n --> src/lib.rs");

    // Cargo's own errors are no lines of the compiler's.
    builder
        .host()
        .answer_process("cargo", Ok(FakeHost::ended(101, "", "error: no matching package `nix`\n")));
    assert!(refused(compile(&builder), FaultCode::Invalid).ends_with("no matching package `nix`"));
}

#[test]
fn a_build_that_hangs_dies_or_gives_no_library_is_a_fault() {
    let builder = native();
    let ended = |status, timed_out| ProcessOutput { status, timed_out, ..FakeHost::ended(0, "", "") };
    builder.host().answer_process("cargo", Ok(ended(None, true)));
    assert!(refused(compile(&builder), FaultCode::Timeout).contains("10 minutes"));
    builder.host().answer_process("cargo", Ok(ended(None, false)));
    assert!(refused(compile(&builder), FaultCode::Other).contains("signal"));
    builder.host().answer_process("cargo", Ok(ended(Some(0), false)));
    assert!(refused(compile(&builder), FaultCode::Invalid).contains("cdylib"));
}

/// What runs at build time could write cargo's lines itself.
#[test]
fn no_library_is_taken_from_elsewhere() {
    let builder = native();
    let outside = tempfile::tempdir().expect("a folder");
    let theirs = outside.path().join(library("theirs"));
    fs::write(&theirs, "theirs").expect("a file");
    let named = theirs.display().to_string();
    builder
        .host()
        .answer_process_with("cargo", move |build| Ok(FakeHost::ended(0, &artifact(build, &named), "")));
    refused(compile(&builder), FaultCode::Internal);

    // Nor through a link, outside or to another file of the data folder.
    for link in [theirs, PathBuf::from("../../staging/words/Cargo.toml")] {
        builder.host().answer_process_with("cargo", move |build| {
            let release = PathBuf::from(&build.spec.env["CARGO_TARGET_DIR"]).join("release");
            fs::create_dir_all(&release)?;
            let place = release.join(library("theirs"));
            if place.symlink_metadata().is_ok() {
                fs::remove_file(&place)?;
            }
            std::os::unix::fs::symlink(&link, place)?;
            Ok(FakeHost::ended(0, &artifact(build, &library("theirs")), ""))
        });
        refused(compile(&builder), FaultCode::Internal);
    }
    assert!(!draft(&builder, "words").join(library("theirs")).exists());
}

#[test]
fn tests_pass_or_tell_what_failed() {
    let builder = native();
    builder.host().answer_process("cargo", Ok(FakeHost::ended(0, "\ntest result: ok. 2 passed", "")));
    assert_eq!(test(&builder), Ok("test result: ok. 2 passed".to_owned()));
    builder
        .host()
        .answer_process("cargo", Ok(FakeHost::ended(101, "---- tests::counts ----", "error: test failed")));
    assert_eq!(refused(test(&builder), FaultCode::Invalid), "its tests fail:\n---- tests::counts ----");
    builder.host().answer_process("cargo", Ok(FakeHost::ended(101, "", "error[E0425]")));
    assert_eq!(refused(test(&builder), FaultCode::Invalid), "its tests do not compile:\nerror[E0425]");
    let long = "x".repeat(100_000);
    builder.host().answer_process("cargo", Ok(FakeHost::ended(101, &long, "")));
    assert!(refused(test(&builder), FaultCode::Invalid).len() < 9000);
}

#[test]
fn a_draft_without_code_is_not_compiled() {
    let builder = builder();
    assert!(write(&builder, "words", "manifest.yaml", "x").is_ok());
    for outcome in [compile(&builder), test(&builder)] {
        assert!(refused(outcome, FaultCode::Invalid).contains("no code"));
    }
    assert!(builder.host().processes().is_empty());
}
