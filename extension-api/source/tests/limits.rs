//! `docs/reference/limits.md` says what the code says.

use std::{fs, path::Path};

#[test]
fn each_limit_of_the_page_is_the_one_in_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reference/limits.md")).expect("the page");
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with('|') && line.contains(".rs`: ")) {
        let place = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().expect("a row has columns");
        let (file, constant) = place.split_once(": ").expect("a file and a constant");
        let (name, value) = constant.trim_matches('`').split_once(" = ").expect("a name and a value");
        let source = fs::read_to_string(root.join(file.trim_matches('`'))).expect(file);
        let found = source.lines().find(|line| {
            line.trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ")
                .starts_with(&format!("const {name}:"))
        });
        assert!(
            found.is_some_and(|line| line.ends_with(&format!(" = {value};"))),
            "{row}\nthe code: {found:?}"
        );
        rows += 1;
    }
    assert!(rows > 30, "only {rows} limits were found in the page");
}
