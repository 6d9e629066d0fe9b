//! What the tools ask of the kernel and what they tell, with programs that a test plays. That the system holds what is asked
//! is tested with real ones, in `tests/end_to_end/shell.rs`.

use std::time::{Duration, Instant};

use drupe_extension_api::{
    EffectClass,
    testing::{FakeHost, FakeProcess, Harness, block_on},
    wire::{ProcessExit, TerminalSize},
};
use futures_util::future::join;
use serde_json::json;

use super::*;

fn setup(config: Value) -> Harness<Shell> {
    let setup = Harness::<Shell>::setup().config(config).program_folder("/u/.cargo/bin").program_folder("");
    setup.host().answer_process("/bin/sh", Ok(FakeHost::ended(0, "", "")));
    block_on(setup.start()).expect("it starts")
}

fn shell() -> Harness<Shell> {
    setup(json!({}))
}

fn run(shell: &Harness<Shell>, played: FakeProcess, params: Value) -> String {
    shell.host().answer_open_process("/bin/sh", Ok(played));
    block_on(shell.call("shell_run", params)).expect("it runs")
}

fn refused(result: Result<String, Fault>, code: FaultCode, part: &str) {
    let fault = result.expect_err("it is refused");
    assert!(fault.code == code && fault.to_string().contains(part), "{fault}");
}

#[test]
fn what_runs_is_what_was_shown_with_no_more_than_was_asked_for() {
    let shell = shell();
    std::fs::create_dir(shell.workspace().join("sub")).expect("a folder");
    let wrote = FakeProcess::ending(3).stdout("grüße\n".as_bytes());
    let said = run(&shell, wrote, json!({"command": "a | b", "cwd": "sub", "timeout_s": 7}));
    assert!(said.starts_with("The command ended with status 3 after 0."), "{said}");
    assert!(said.ends_with("s. It wrote 8 bytes:\n\ngrüße\n"), "{said}");
    let spec = shell.host().opened_processes().remove(0);
    assert_eq!((spec.program.as_str(), spec.args.last().map(String::as_str)), ("/bin/sh", Some("a | b")));
    let place = |within: &str| shell.workspace().join(within).display().to_string();
    assert_eq!((spec.directory, spec.keep), (place("sub"), vec![place(".git")]));
    assert!(spec.workspace && spec.skills && !spec.network);
    assert_eq!((spec.timeout_ms, spec.memory_mb, spec.tasks), (Some(7000), Some(2048), Some(512)));
    assert_eq!(spec.folders, [shell.data_folder().join("home").display().to_string()]);
    assert_eq!((spec.read, spec.path), (vec!["/u/.cargo/bin".to_owned()], vec!["/u/.cargo/bin".to_owned()]));
    let said = run(&shell, FakeProcess::ending(0), json!({"command": "true"}));
    assert!(said.ends_with("It wrote nothing."), "{said}");
    assert_eq!(shell.host().open_handles(), 0, "nothing of it is left");
}

#[test]
fn how_a_command_ended_is_told() {
    let shell = shell();
    let ended =
        |exit| run(&shell, FakeProcess::ending(0).exit(exit), json!({"command": "x", "timeout_s": 5}));
    let none = ProcessExit::default();
    for (exit, told) in [
        (ProcessExit { signal: Some(9), ..none.clone() }, "was ended by signal 9 (SIGKILL) after"),
        (ProcessExit { timed_out: true, ..none.clone() }, "was stopped because its 5 s were over after"),
        (
            ProcessExit { exceeded: Some("had too many".into()), ..none },
            "was stopped: its processes had too many after",
        ),
    ] {
        let said = ended(exit);
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn of_much_output_the_beginning_and_the_end_are_given_and_what_writes_without_end_is_stopped() {
    let shell = setup(json!({"output_kb": 1, "max_output_mb": 1}));
    let much = [b"begin ".as_slice(), &vec![b'x'; 100_000], b" end"].concat();
    let said = run(&shell, FakeProcess::ending(0).stdout(&much), json!({"command": "x"}));
    assert!(said.contains("It wrote 100010 bytes") && said.contains("\n\nbegin xxx"), "{said}");
    assert!(said.contains("98986 bytes are left out here") && said.ends_with("xxx end") && said.len() < 1300);
    let said = run(&shell, FakeProcess::ending(0).stdout(&vec![b'y'; 2 << 20]), json!({"command": "x"}));
    assert!(said.contains("was stopped because it wrote more than 1 MiB"), "{said}");
    assert_eq!(shell.host().open_handles(), 0, "it was closed");
}

#[test]
fn what_cannot_be_run_as_it_is_shown_is_refused() {
    let shell = shell();
    let call = |params| block_on(shell.call("shell_run", params));
    for (command, part) in [("", "empty"), (" \n", "empty"), ("a\0b", "no command can hold")] {
        refused(call(json!({"command": command})), FaultCode::Invalid, part);
    }
    refused(call(json!({"command": "x".repeat(40_000)})), FaultCode::Invalid, "longer than");
    for cwd in ["..", "a/../..", "/etc", "/"] {
        refused(call(json!({"command": "x", "cwd": cwd})), FaultCode::Denied, "outside of the workspace");
    }
    refused(call(json!({"command": "x", "timeout_s": 0})), FaultCode::Invalid, "");
    refused(call(json!({"command": "x", "timeout_s": 1801})), FaultCode::Invalid, "");
    refused(call(json!({"command": "x", "network": true})), FaultCode::Invalid, "network");
    refused(call(json!({"command": "x", "shell": "bash"})), FaultCode::Invalid, "shell");
    assert!(shell.host().opened_processes().is_empty(), "nothing was started");
    for keep in ["../x", "/etc", ".", ""] {
        let setup = Harness::<Shell>::setup().config(json!({"keep": [keep]}));
        assert!(block_on(setup.start()).is_err(), "{keep}");
    }
}

#[test]
fn the_network_and_the_background_are_offered_where_the_configuration_lets_them() {
    let of = |shell: &Harness<Shell>| {
        let tools = shell.describe().expect("a description").tools;
        let properties = tools[0].input_schema["properties"].as_object().cloned().expect("properties");
        (tools.len(), properties.keys().cloned().collect::<Vec<_>>().join(" "), tools[0].annotations.clone())
    };
    let usual = shell();
    let (count, offered, annotations) = of(&usual);
    assert_eq!((count, offered.as_str()), (5, "background command cwd terminal timeout_s"));
    assert!(annotations.needs_approval && annotations.destructive && !annotations.outward);
    assert_eq!((annotations.effect, annotations.timeout_ms), (EffectClass::Once, Some(1_830_000)));
    let open = setup(json!({"network": "ask", "background": 0}));
    let (count, offered, annotations) = of(&open);
    assert_eq!((count, offered.as_str()), (1, "command cwd network terminal timeout_s"));
    assert!(annotations.outward);
    run(&open, FakeProcess::ending(0), json!({"command": "x"}));
    run(&open, FakeProcess::ending(0), json!({"command": "x", "network": true}));
    let asked: Vec<bool> = open.host().opened_processes().iter().map(|spec| spec.network).collect();
    assert_eq!(asked, [false, true], "only where it was asked for");
    refused(
        block_on(open.call("shell_run", json!({"command": "x", "background": true}))),
        FaultCode::Invalid,
        "",
    );
}

#[test]
fn in_a_terminal_a_command_is_told_of_one_and_its_output_is_given_as_text() {
    let shell = shell();
    let written = b"\x1b[32mgr\xc3\xbcn\x1b[0m\r\n 10%\r 20%\r\nAgain? ";
    let wrote = || FakeProcess::ending(0).stdout(written);
    let said = run(&shell, wrote(), json!({"command": "x", "terminal": true}));
    assert!(said.contains("It ran in a terminal") && said.ends_with(":\n\ngrün\n 20%\nAgain?"), "{said}");
    for params in [json!({"command": "x"}), json!({"command": "x", "terminal": false})] {
        let said = run(&shell, wrote(), params);
        assert!(!said.contains("terminal") && said.as_bytes().ends_with(written), "{said}");
    }
    let specs = shell.host().opened_processes();
    let asked: Vec<_> =
        specs.iter().map(|spec| (spec.terminal.is_some(), spec.env["TERM"].as_str())).collect();
    assert_eq!(asked, [(true, "xterm-256color"), (false, "dumb"), (false, "dumb")]);
    assert_eq!(specs[0].terminal, Some(TerminalSize::default()));
    shell.host().answer_open_process("/bin/sh", Ok(wrote()));
    beside(&shell, async {
        let params = json!({"command": "x", "terminal": true, "background": true});
        shell.call("shell_run", params).await.expect("it begins");
        let waited = shell.call("shell_wait", json!({"id": "c1"})).await.expect("it is waited for");
        assert!(waited.contains("It ran in a terminal") && waited.ends_with("\n 20%\nAgain?"), "{waited}");
    });
}

#[test]
fn a_grant_for_a_session_is_about_the_terminal_as_well() {
    let tools = shell().describe().expect("a description").tools;
    let scope = tools[0].annotations.approval_scope.clone().expect("it has one");
    assert_eq!(scope.same, ["cwd", "network", "terminal"]);
    assert_eq!(tools[0].annotations.confined_without, Some(vec!["network".to_owned()]));
}

#[test]
fn where_nothing_can_be_confined_it_does_not_start_and_where_nothing_can_be_kept_it_says_so() {
    let cannot = |message: &str| Err(Fault::new(FaultCode::Unavailable, message));
    let setup = Harness::<Shell>::setup();
    setup.host().answer_process("/bin/sh", cannot("this kernel cannot"));
    setup.host().answer_process("/bin/sh", cannot("this kernel cannot"));
    let fault = block_on(setup.start()).map(|_| ()).expect_err("it does not start");
    assert!(fault.code == FaultCode::NotConfigured && fault.to_string().contains("Landlock"), "{fault}");
    for answers in
        [vec![cannot("no mounts"), Ok(FakeHost::ended(3, "", ""))], vec![Ok(FakeHost::ended(3, "", ""))]]
    {
        let setup = Harness::<Shell>::setup();
        for answer in answers {
            setup.host().answer_process("/bin/sh", answer);
        }
        let shell = block_on(setup.start()).expect("it starts");
        run(&shell, FakeProcess::ending(0), json!({"command": "x"}));
        assert!(shell.host().opened_processes()[0].keep.is_empty());
        let tool = shell.describe().expect("a description").tools.remove(0);
        assert!(!tool.description.contains(".git"), "{}", tool.description);
        assert_eq!(tool.annotations.confined_without, None, "what is not kept is not confined");
    }
}

/// Runs `work` beside the service that reads commands in the background.
fn beside<T>(shell: &Harness<Shell>, work: impl Future<Output = T>) -> T {
    let work = async {
        let done = work.await;
        shell.stop().await.expect("it stops");
        done
    };
    let (served, done) = block_on(join(shell.run_service(), work));
    served.expect("it served");
    done
}

#[test]
fn a_command_in_the_background_is_waited_for_read_listed_and_stopped_by_its_session_alone() {
    let shell = shell();
    let host = shell.host();
    host.answer_open_process("/bin/sh", Ok(FakeProcess::ending(4).stdout(b"one two")));
    // It ends when its input does, which is closed at once.
    host.answer_open_process("/bin/sh", Ok(FakeProcess::ending(0).answers(|_| Vec::new()).stdout(b"late")));
    beside(&shell, async {
        let call = |tool: &'static str, params| shell.call(tool, params);
        let begun =
            call("shell_run", json!({"command": "make\nmore", "background": true})).await.expect("it begins");
        assert!(begun.contains("in the background as `c1`, for at most 1800 s"), "{begun}");
        let waited = call("shell_wait", json!({"id": "c1"})).await.expect("it is waited for");
        assert!(waited.starts_with("The command c1 ended with status 4 after"), "{waited}");
        assert!(waited.ends_with("It wrote 7 bytes; bytes 0 to 7:\n\none two"), "{waited}");
        let read = call("shell_read", json!({"id": "c1", "from": 4})).await.expect("it is read");
        assert!(read.ends_with("bytes 4 to 7:\n\ntwo"), "{read}");
        let read = call("shell_read", json!({"id": "c1", "from": 7})).await.expect("it is read");
        assert!(read.ends_with("no more from byte 7 on."), "{read}");
        call("shell_run", json!({"command": "b", "background": true})).await.expect("it begins");
        let stopped = call("shell_stop", json!({"id": "c2"})).await.expect("it is stopped");
        assert!(stopped.starts_with("The command c2 "), "{stopped}");
        let list = call("shell_list", json!({})).await.expect("a list");
        assert!(list.starts_with("c1 ended with status 4") && list.contains(": make …\nc2 "), "{list}");
        let other = || shell.calling().session("other");
        assert_eq!(
            other().call("shell_list", json!({})).await.as_deref(),
            Ok("no command runs in the background")
        );
        for tool in ["shell_read", "shell_wait", "shell_stop"] {
            refused(other().call(tool, json!({"id": "c1"})).await, FaultCode::NotFound, "`c1`");
        }
        refused(call("shell_read", json!({"id": "x"})).await, FaultCode::NotFound, "`x`");
    });
}

#[test]
fn no_session_has_more_commands_in_the_background_than_it_may() {
    let shell = setup(json!({"background": 1}));
    for _ in 0..2 {
        shell.host().answer_open_process("/bin/sh", Ok(FakeProcess::ending(0)));
    }
    // Nobody reads them: the service does not run.
    let begin = |session: &str| {
        let params = json!({"command": "x", "background": true});
        block_on(shell.calling().session(session).call("shell_run", params))
    };
    begin("one").expect("it begins");
    refused(begin("one"), FaultCode::Busy, "which is the most");
    begin("two").expect("it begins");
    assert_eq!(shell.host().opened_processes().len(), 2);
}

#[test]
fn what_is_shown_while_it_runs_is_bounded_and_says_what_is_missing() {
    let began = Instant::now();
    let mut live = LiveOutput::new();
    assert_eq!(live.pieces("aä".as_bytes(), began), ["aä"]);
    assert_eq!(live.pieces(b"b\xc3", began), ["b"]);
    assert_eq!(live.pieces(b"\xa4", began), ["ä"], "a character is not cut");
    let shown: usize =
        (0..100).flat_map(|_| live.pieces(&[b'x'; 65536], began)).map(|piece| piece.len()).sum();
    assert!(shown < 33_000, "{shown}");
    let later = live.pieces(b"end", began + Duration::from_secs(2));
    assert!(later.concat().contains("bytes are not shown while it runs") && later.concat().ends_with("end"));
}
