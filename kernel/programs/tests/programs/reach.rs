//! Which folders a program may use that an extension runs.

use std::fs;

use drupe_extension_api::FaultCode;

use crate::home::Home;

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
async fn no_folder_outside_the_data_folder_is_given() {
    let home = Home::new();
    std::os::unix::fs::symlink(home.path("sdk"), home.path("data/link")).unwrap();
    for (folder, code) in
        [("sdk", FaultCode::Denied), ("data/link", FaultCode::Denied), ("data/../sdk", FaultCode::Denied)]
    {
        let fault = home.sh_in("true", &["data/one", folder]).await.unwrap_err();
        assert_eq!(fault.code, code, "{folder}: {fault}");
        assert!(fault.message.contains(folder), "{fault}");
    }
}
