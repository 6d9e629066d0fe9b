//! Which folders a program may use that an extension runs.

use std::{fs, os::unix::fs::symlink};

use drupe_extension_api::{FaultCode, wire::ProcessSpec};

use crate::{
    copied::copy_program,
    home::{Home, SECRETS},
};

#[tokio::test]
async fn a_program_that_is_given_one_draft_neither_changes_nor_reads_another() {
    let home = Home::new();
    let script = "echo mine > made && cat made && echo t > \"$TMPDIR/t\" && echo written; \
                  echo bad > ../other/source; cat ../other/source; mv ../other ../gone; ln -s x ../link; mkdir ../new; ls ..";
    let output = home.sh_in(script, &["data/one"]).await.unwrap();
    assert_eq!(output.stdout, "mine\nwritten\n", "{output:?}");
    assert_eq!(fs::read_to_string(home.path("data/other/source")).unwrap(), "its own");
    let mut left: Vec<_> =
        fs::read_dir(home.path("data")).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["one", "other", "tmp"]);
}

#[tokio::test]
async fn a_program_that_is_given_no_folder_has_the_whole_data_folder() {
    let home = Home::new();
    let output = home.sh_in("cat ../other/source && echo new > ../other/source", &[]).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.status), ("its own", Some(0)), "{output:?}");
    assert_eq!(fs::read_to_string(home.path("data/other/source")).unwrap(), "new\n");
}

#[tokio::test]
async fn the_workspace_is_given_where_it_is_asked_for_and_what_is_to_stay_in_it_stays() {
    let home = Home::new();
    fs::create_dir_all(home.path("workspace/.git/hooks")).unwrap();
    fs::create_dir_all(home.path("workspace/sub")).unwrap();
    let script = "echo made > file; cat ../data/other/source ../run/token; echo x > ../data/other/source; \
                  echo x > .git/config && echo changed; mv .git gone; ls -A";
    let folders = vec![home.path("data/one")];
    let within = ProcessSpec { directory: home.path("workspace"), folders, ..home.shell(script) };
    assert_eq!(home.run(within.clone()).await.unwrap_err().code, FaultCode::Denied, "it was not asked for");
    let within = ProcessSpec { workspace: true, ..within };
    // Where this system lets users have mounts. Where it does not, nothing may start that asks for one.
    let keep = vec![home.path("workspace/.git"), home.path("workspace/not there")];
    match home.run(ProcessSpec { keep, ..within.clone() }).await {
        Ok(output) => assert_eq!(output.stdout, ".git\nfile\nsub\n", "{output:?}"),
        Err(fault) => assert!(fault.message.contains("what is to stay as it is would stay open"), "{fault}"),
    }
    let output = home.run(within.clone()).await.unwrap();
    assert_eq!(output.stdout, "changed\nfile\ngone\nsub\n", "{output:?}");
    assert_eq!(fs::read_to_string(home.path("data/other/source")).unwrap(), "its own");
    let below = ProcessSpec { directory: home.path("workspace/sub"), ..within.clone() };
    assert_eq!(home.run(below).await.unwrap().stdout, "file\n");
    for directory in ["run", "workspace/../run", "data/../state"] {
        let asks = ProcessSpec { directory: home.path(directory), ..within.clone() };
        assert_eq!(home.run(asks).await.unwrap_err().code, FaultCode::Denied, "{directory}");
    }
    symlink("sub", home.path("workspace/link")).unwrap();
    for kept in ["workspace/link", "run/token", "workspace/../run", "."] {
        let asks = ProcessSpec { keep: vec![home.path(kept)], ..within.clone() };
        let fault = home.run(asks).await.unwrap_err();
        assert!(fault.code == FaultCode::Denied, "{kept}: {fault}");
    }
}

#[tokio::test]
async fn a_workspace_that_is_a_link_leads_out_of_the_home_and_to_nothing_that_holds_it() {
    let home = Home::new();
    let asks = ProcessSpec { workspace: true, ..home.shell("true") };
    assert_eq!(home.run(asks.clone()).await.unwrap_err().code, FaultCode::NotFound);
    for (target, given) in
        [("../operator", true), ("data/other", false), ("run", false), ("", false), ("..", false)]
    {
        symlink(home.path(target), home.path("workspace")).unwrap();
        let ran = home.run(asks.clone()).await;
        assert_eq!(ran.is_ok(), given, "{target}: {ran:?}");
        fs::remove_file(home.path("workspace")).unwrap();
    }
}

#[tokio::test]
async fn what_starts_more_and_more_ends_by_the_bound_that_was_asked_for() {
    let home = Home::new();
    // It ends by itself after some two hundred: what the test is about must not be all that stands between it and the machine.
    let bomb = "bomb() { [ $1 = 0 ] || { bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; }; sleep 20; }; bomb 7";
    let spec = ProcessSpec { tasks: Some(64), ..home.shell(bomb) };
    let output = home.run(spec).await.unwrap();
    assert!(output.stderr.contains("had more than 64 processes and threads"), "{output:?}");
    for tasks in [0, 8193] {
        let asks = ProcessSpec { tasks: Some(tasks), ..home.shell("true") };
        assert_eq!(home.run(asks).await.unwrap_err().code, FaultCode::Invalid);
    }
}

#[tokio::test]
async fn no_folder_outside_the_data_folder_is_given() {
    let home = Home::new();
    symlink(home.path("sdk"), home.path("data/link")).unwrap();
    for (folder, code) in
        [("sdk", FaultCode::Denied), ("data/link", FaultCode::Denied), ("data/../sdk", FaultCode::Denied)]
    {
        let fault = home.sh_in("true", &["data/one", folder]).await.unwrap_err();
        assert_eq!(fault.code, code, "{folder}: {fault}");
        assert!(fault.message.contains(folder), "{fault}");
    }
}

#[tokio::test]
async fn a_program_sees_nothing_of_the_home_of_the_operator_or_of_their_environment() {
    let home = Home::new();
    for secret in SECRETS {
        let script = format!("cat '{0}'; ls $(dirname '{0}'); echo x >> '{0}'; env", home.path(secret));
        let output = home.run(home.shell(&script)).await.unwrap();
        assert!(
            !output.stdout.contains("canary") && !output.stdout.contains("A_KEY"),
            "{secret}: {output:?}"
        );
        assert_eq!(fs::read_to_string(home.path(secret)).unwrap(), "canary", "{secret}");
    }
    let names = home.run(home.shell("env | cut -d= -f1 | sort")).await.unwrap();
    assert_eq!(names.stdout, "HOME\nPATH\nPWD\nTMPDIR\n", "{names:?}");
}

#[tokio::test]
async fn what_its_manifest_does_not_name_cannot_even_be_asked_for() {
    let mut home = Home::new();
    symlink(home.path("run"), home.path("../operator/.tool/run")).unwrap();
    // A manifest that names more than anybody may have gives no more.
    let operator = fs::canonicalize(home.path("../operator")).unwrap().display().to_string();
    let within = |rest: &str| format!("{operator}/{rest}");
    for folders in [vec![], vec!["~/.tool".to_owned()], vec!["/".to_owned(), "~".to_owned()]] {
        let all = folders.len() == 2;
        home.folders = folders;
        for (read, held) in [
            (home.path("run"), true),
            (home.path("run/token"), true),
            (home.path(""), true),
            ("/".to_owned(), true),
            (within(".tool/run"), true),
            (within(".tool/../.netrc"), true),
            (within(".netrc"), !all),
            ("relative".to_owned(), true),
        ] {
            let spec = ProcessSpec { read: vec![read.clone()], ..home.shell("true") };
            let asked = home.run(spec).await;
            assert_eq!(asked.is_err(), held, "{read} of {:?}: {asked:?}", home.folders);
            assert!(asked.is_ok() || asked.unwrap_err().code == FaultCode::Denied, "{read}");
        }
    }
}

#[tokio::test]
async fn what_its_manifest_names_is_read_run_and_found_where_it_is_asked_for_and_changed_by_nobody() {
    let home = Home::new();
    let tool = fs::canonicalize(home.path("../operator/.tool")).unwrap();
    copy_program("/bin/echo", tool.join("bin/greet"));
    fs::write(tool.join("text"), "readable").unwrap();
    let tool = tool.display().to_string();
    let script = format!("cat {tool}/text; greet hello; echo bad > {tool}/text");
    let unasked = home.run(home.shell(&script)).await.unwrap();
    assert_eq!(unasked.stdout, "", "{unasked:?}");
    let (bin, missing) = (format!("{tool}/bin"), format!("{tool}/missing"));
    let asks = ProcessSpec {
        read: vec![tool.clone(), missing.clone()],
        path: vec![bin.clone(), missing],
        ..home.shell(&script)
    };
    let output = home.run(asks.clone()).await.unwrap();
    assert_eq!(output.stdout, "readablehello\n", "{output:?}");
    assert_eq!(fs::read_to_string(format!("{tool}/text")).unwrap(), "readable");
    let by_name = ProcessSpec { program: "greet".into(), args: vec!["hi".into()], ..asks.clone() };
    assert_eq!(home.run(by_name).await.unwrap().stdout, "hi\n");
    let unread = ProcessSpec { read: Vec::new(), ..asks };
    assert_eq!(
        home.run(unread).await.unwrap_err().code,
        FaultCode::Denied,
        "a place to look must be readable"
    );
}

#[tokio::test]
async fn skills_are_read_and_run_where_it_is_asked_for_and_changed_by_nobody() {
    let mut home = Home::new();
    for within in ["skills/pdf/scripts", "skills/other"] {
        fs::create_dir_all(home.path(within)).unwrap();
    }
    copy_program("/bin/echo", home.path("skills/pdf/scripts/fill"));
    fs::write(home.path("skills/pdf/text"), "readable").unwrap();
    fs::write(home.path("skills/other/text"), "canary").unwrap();
    symlink(home.path("run/token"), home.path("skills/pdf/token")).unwrap();
    symlink("../..", home.path("skills/pdf/up")).unwrap();
    home.skills = vec![home.path("skills/pdf").into(), home.path("skills/gone").into()];
    let pdf = home.path("skills/pdf");
    let script = format!(
        "cd {pdf} && cat text && scripts/fill -n ' filled'; cat token up/.env up/journal.db ../other/text ../../.env; \
         echo bad > text; echo bad > new; mv text gone; rm -r scripts; chmod 777 text; ls ..; ls ../.."
    );
    let unasked = home.run(home.shell(&script)).await.unwrap();
    assert_eq!(unasked.stdout, "", "{unasked:?}");
    let asks = ProcessSpec { skills: true, ..home.shell(&script) };
    let output = home.run(asks).await.unwrap();
    assert_eq!(output.stdout, "readable filled", "{output:?}");
    assert_eq!(fs::read_to_string(home.path("skills/pdf/text")).unwrap(), "readable");
    let mut left: Vec<_> = fs::read_dir(&pdf).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["scripts", "text", "token", "up"]);
}

#[tokio::test]
async fn no_skill_gives_what_is_nobodys_or_what_a_program_could_have_put_in_its_place() {
    let mut home = Home::new();
    for within in ["workspace", "skills"] {
        fs::create_dir_all(home.path(within)).unwrap();
    }
    let operators = home.path("../operator");
    fs::write(home.path("../operator/secret"), "canary").unwrap();
    for link in ["workspace/exchanged", "data/one/exchanged", "skills/linked"] {
        symlink(&operators, home.path(link)).unwrap();
    }
    symlink(home.path("workspace"), home.path("../operator/way")).unwrap();
    let all = SECRETS.map(|secret| home.path(secret)).join(" ");
    let script = format!("cat {all} {operators}/secret");
    for (skill, given) in [
        ("", ""),
        ("..", ""),
        ("run", ""),
        ("state", ""),
        ("data", ""),
        ("data/other", ""),
        ("workspace/exchanged", ""),
        ("data/one/exchanged", ""),
        ("../operator/way/exchanged", ""),
        // A link where no program can put one is the operator's.
        ("skills/linked", "canarycanary"),
    ] {
        home.skills = vec![home.path(skill).into()];
        for workspace in [false, true] {
            let output =
                home.run(ProcessSpec { skills: true, workspace, ..home.shell(&script) }).await.unwrap();
            assert_eq!(output.stdout, given, "{skill}: {output:?}");
        }
    }
}

#[tokio::test]
async fn no_program_has_the_network_where_the_manifest_does_not() {
    let mut home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = |home: &Home, network| ProcessSpec {
        program: "/bin/bash".into(),
        args: vec!["-c".into(), format!("echo > /dev/tcp/127.0.0.1/{port} && echo connected")],
        network,
        ..home.shell("")
    };
    let refused = home.run(connect(&home, true)).await.unwrap_err();
    assert!(
        refused.code == FaultCode::Denied && refused.to_string().contains("rights: [network]"),
        "{refused}"
    );
    assert_eq!(home.run(connect(&home, false)).await.unwrap().stdout, "");
    home.network = true;
    assert_eq!(home.run(connect(&home, false)).await.unwrap().stdout, "", "it did not ask");
    assert_eq!(home.run(connect(&home, true)).await.unwrap().stdout, "connected\n");
}

#[tokio::test]
async fn a_folder_that_is_exchanged_for_a_link_lets_no_program_out() {
    let home = Home::new();
    // The folder for temporary files is granted unasked. What lies in its place leads to the home.
    symlink(home.path(""), home.path("data/tmp")).unwrap();
    let script = format!("cat {0}; echo bad > {0}; cat \"$TMPDIR/run/token\"", home.path("run/token"));
    let outcome = home.sh_in(&script, &["data/one"]).await;
    assert!(outcome.is_err_and(|fault| fault.message.contains("data/tmp")), "it is not started");
    assert_eq!(fs::read_to_string(home.path("run/token")).unwrap(), "canary");
}
