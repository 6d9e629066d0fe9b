use rmcp::model::SkillFrontmatter;

use super::*;

const URI: &str = "skill://acme/billing/refunds/SKILL.md";

fn file(path: &str, size: u64) -> SkillResource {
    SkillResource::new(format!("skill://acme/billing/refunds/{path}"), format!("sha256:{:064x}", 1), size)
}

fn skill(files: Vec<SkillResource>) -> Skill {
    let head = SkillFrontmatter::new("refunds", "Gives money back.");
    Skill::new(URI, head, SkillResources::Files(files))
}

fn refused(skill: Skill) -> String {
    let NotOffered(why) = SkillEntry::new(skill).map(drop).expect_err("it is refused");
    assert!(why.len() < 400 && shown(&why) == why, "{why}");
    why
}

#[test]
fn an_entry_that_breaks_a_rule_is_refused_before_anything_is_asked_for() {
    let own = || file("SKILL.md", 10);
    let of = |change: &dyn Fn(&mut Skill)| {
        let mut skill = skill(vec![own()]);
        change(&mut skill);
        refused(skill)
    };
    let with = |more: Vec<SkillResource>| refused(skill([vec![own()], more].concat()));
    let elsewhere = |uri: &str| with(vec![SkillResource::new(uri, format!("sha256:{:064x}", 1), 1)]);
    let many = (0..FILES).map(|n| file(&format!("{n}.md"), 1)).collect();
    for (why, says) in [
        (of(&|skill| skill.resources = SkillResources::Dynamic), "made anew each time"),
        (of(&|skill| skill.frontmatter.name = "Refunds".into()), "invalid skill name"),
        (of(&|skill| skill.frontmatter.name = "re\u{1b}[2Jfunds".into()), "invalid skill name"),
        (of(&|skill| skill.frontmatter.name = "other".into()), "does not end in the frontmatter name"),
        (of(&|skill| skill.frontmatter.description = "\u{200b} ".into()), "a description of 1 characters"),
        (of(&|skill| skill.frontmatter.description = "x".repeat(1025)), "a description of 1025 characters"),
        (of(&|skill| drop(skill.frontmatter.extra.insert("x".into(), "y".repeat(70_000).into()))), "keys of"),
        (of(&|skill| skill.uri = format!("skill://{}/refunds/SKILL.md", "x".repeat(1100))), "an address"),
        (of(&|skill| skill.uri = "urn:refunds/SKILL.md".into()), "an address that cannot be used"),
        (
            of(&|skill| skill.uri = "skill://a;reboot/refunds/SKILL.md".into()),
            "an address that cannot be used",
        ),
        (
            of(&|skill| skill.uri = "skill://a\u{202e}b/refunds/SKILL.md".into()),
            "an address that cannot be used",
        ),
        (of(&|skill| skill.uri = "skill://acme/billing/refunds".into()), "does not end in /SKILL.md"),
        (refused(skill(vec![file("other.md", 1)])), "does not list its own SKILL.md"),
        (with(vec![file("../secret/SKILL.md", 1)]), "within the directory"),
        (with(vec![file("%2e%2e/secret.md", 1)]), "within the directory"),
        (with(vec![file("a/../../b.md", 1)]), "within the directory"),
        (with(vec![file("a\nb.md", 1)]), "a file with an address that cannot be used"),
        (elsewhere("file:///etc/passwd"), "within the directory"),
        (elsewhere("skill://acme/billing/refunds-too/a.md"), "within the directory"),
        (with(vec![own()]), "twice"),
        (with(vec![SkillResource::new(file("a.md", 1).uri, "md5:00", 1)]), "malformed digest"),
        (with(many), "has 513 files"),
        (with(vec![file("a.bin", u64::MAX), file("b.bin", 9)]), "a skill may have 16777216"),
        (refused(skill(vec![file("SKILL.md", FILE + 1)])), "has instructions of 262145 bytes"),
    ] {
        assert!(why.contains(says), "{says}: {why}");
    }
    let largest = (1..FILES as u64).map(|n| file(&format!("{n}.bin"), (WHOLE - FILE) / FILES as u64));
    let largest = skill(largest.chain([file("SKILL.md", FILE)]).collect());
    assert!(SkillEntry::new(largest).is_ok(), "what every host must take");
}

#[test]
fn what_stands_for_an_entry_changes_with_each_part_of_it_and_with_nothing_else() {
    let digest = |skill: Skill| SkillEntry::new(skill).expect("it is sound").text.digest;
    let (one, two) = (file("a.md", 1), file("SKILL.md", 2));
    let first = digest(skill(vec![one.clone(), two.clone()]));
    assert_eq!(first, digest(skill(vec![two.clone(), one.clone()])), "their order says nothing");
    let mut keys = skill(vec![one.clone(), two.clone()]);
    keys.frontmatter.extra.insert("license".into(), "MIT".into());
    let other = SkillResource::new(one.uri.clone(), format!("sha256:{:064x}", 2), 1);
    for changed in [skill(vec![two.clone()]), skill(vec![other, two.clone()]), keys] {
        assert_ne!(first, digest(changed));
    }
}

#[test]
fn files_are_those_of_the_entry_and_what_it_says_of_them() {
    let bytes = b"Be kind.";
    let good = SkillResource::from_bytes("skill://acme/billing/refunds/refs/a.md", bytes);
    let (spaced, big) = (file("refs/b%20c.md", 3), file("big.md", FILE + 1));
    let entry = SkillEntry::new(skill(vec![file("SKILL.md", 1), good.clone(), spaced.clone(), big]));
    let entry = entry.expect("it is sound");
    for path in ["refs/a.md", "./refs/a.md"] {
        assert_eq!(entry.file(Some(path)), Ok(&good));
    }
    for path in ["refs/b%20c.md", "refs/b c.md"] {
        assert_eq!(entry.file(Some(path)), Ok(&spaced));
    }
    for path in ["refs/b.md", "../refunds/refs/a.md", "/etc/passwd", "", &good.uri, "refs"] {
        assert!(entry.file(Some(path)).is_err_and(|fault| fault.message.contains("has no file")), "{path}");
    }
    assert!(entry.file(Some("big.md")).is_err_and(|fault| fault.message.contains("at most 262144")));
    assert_eq!(
        entry.listed(),
        "\n\nIts files, which `file` gives:\n- big.md (262145 bytes)\n- refs/a.md (8 bytes)\n- refs/b%20c.md (3 bytes)"
    );
    let read = |contents: Value| {
        let result = serde_json::from_value(json!({"contents": contents})).expect("a result");
        verified(result, &good).map_err(|fault| fault.message)
    };
    let text = |uri: &str, text: &str| json!({"uri": uri, "text": text});
    assert_eq!(read(json!([text(&good.uri, "Be kind.")])).as_deref(), Ok(&bytes[..]));
    assert_eq!(read(json!([{"uri": good.uri, "blob": STANDARD.encode(bytes)}])).as_deref(), Ok(&bytes[..]));
    let both = json!([text("skill://other", "x"), text(&good.uri, "Be kind.")]);
    assert_eq!(read(both).as_deref(), Ok(&bytes[..]));
    for (contents, says) in [
        (json!([text(&good.uri, "Be cruel")]), "has digest"),
        (json!([text(&good.uri, "Be kind. And more")]), "is 17 bytes"),
        (json!([]), "not one file"),
        (json!([text(&good.uri, "Be kind."), text(&good.uri, "x")]), "not one file"),
        (json!([{"uri": good.uri, "blob": "?"}]), "no Base64"),
    ] {
        assert!(read(contents).is_err_and(|why| why.contains(says)), "{says}");
    }
}

#[test]
fn the_text_of_the_tool_is_bounded_and_names_that_two_have_are_told_apart() {
    let text = |name: &str, length: usize| SkillText {
        name: name.to_owned(),
        description: "x\ny ".repeat(length / 4),
        digest: String::new(),
    };
    let known = |skills: Vec<(String, SkillText)>| {
        let seen: BTreeMap<_, _> = skills.into_iter().collect();
        KnownSkills { agreed: seen.clone(), seen, ..KnownSkills::default() }
    };
    let few = known(vec![
        ("skill://a/refunds/SKILL.md".into(), text("refunds", 8)),
        ("skill://b/refunds/SKILL.md".into(), text("refunds", 8)),
        ("skill://c/SKILL.md".into(), text("c", 4)),
    ]);
    let told = described("s", &few);
    let lines =
        "There are:\n- skill://a/refunds/SKILL.md: x y x y\n- skill://b/refunds/SKILL.md: x y x y\n- c: x y";
    assert!(told.ends_with(lines), "{told}");
    assert!(
        resolve(&few, "refunds").is_err_and(|fault| fault.to_string().contains("skill://b/refunds/SKILL.md"))
    );
    assert_eq!(resolve(&few, "c"), Ok(Some("skill://c/SKILL.md".into())));
    assert_eq!(resolve(&few, "d"), Ok(None));
    let many = |length| {
        known(
            (0..SKILLS).map(|n| (format!("skill://s{n}/SKILL.md"), text(&format!("s{n}"), length))).collect(),
        )
    };
    let names = described("s", &many(1000));
    assert!(names.len() < 8 << 10 && names.contains("\n- s99") && !names.contains("s99:"), "{names}");
    let mut long = many(8);
    for (uri, text) in &mut long.seen {
        text.name = format!("{}-{}", text.name, "x".repeat(60));
        long.agreed.insert(uri.clone(), text.clone());
    }
    let cut = described("s", &long);
    assert!(cut.len() < 8 << 10 && cut.contains("\n- and "), "{cut}");
}

#[test]
fn a_list_without_end_is_taken_up_to_its_bounds() {
    let mut list = SkillList::default();
    for n in 0..2 * SKILLS {
        let mut one = skill(vec![]);
        one.uri = format!("skill://s{n}/SKILL.md");
        one.frontmatter = SkillFrontmatter::new(format!("s{n}"), "x".repeat(1024));
        one.resources =
            SkillResources::Files(vec![SkillResource::new(&*one.uri, format!("sha256:{:064x}", 1), 1)]);
        list.take(one.clone(), n == 0);
        list.take(one, false);
    }
    assert!(list.skills.len() <= SKILLS && list.bytes <= ALL && list.unfit.len() <= SKILLS);
    assert!(list.unfit["skill://s1/SKILL.md"].contains("twice"));
    assert!(list.skills.contains_key("skill://s0/SKILL.md"), "the second of them repeats nothing");
}
