//! Golden renderings: `<…>` stands for a look, with the first letters of what it is made of.

use drupe_config::acts;
use proptest::prelude::*;

use super::{rows::Face, *};

const LOOK: Look = Look { colour: true, bare: false, columns: 24 };

/// A whole text at once.
fn render(text: &str, look: Look) -> String {
    let mut stream = Stream::default();
    let mut rows = stream.push(text, look);
    rows.extend(stream.finish(look));
    rows.iter().map(|row| row.paint(look) + "\n").collect()
}

fn shown(rows: &[Row]) -> Vec<String> {
    let name = |face: Face| {
        let all = [
            (face.bold, 'b'),
            (face.dim, 'd'),
            (face.italic, 'i'),
            (face.underlined, 'u'),
            (face.struck, 's'),
            (face.code, 'c'),
        ];
        all.iter().filter(|(on, _)| *on).map(|(_, letter)| *letter).collect::<String>()
    };
    let span = |span: &rows::Span| match name(span.face) {
        name if name.is_empty() => span.text.clone(),
        name => format!("<{name}:{}>", span.text),
    };
    rows.iter().map(|row| row.0.iter().map(span).collect()).collect()
}

fn check(text: &str, expected: &[&str]) {
    check_on(LOOK, text, expected);
}

fn check_on(look: Look, text: &str, expected: &[&str]) {
    let mut stream = Stream::default();
    let mut rows = stream.push(text, look);
    rows.extend(stream.finish(look));
    assert_eq!(shown(&rows), expected, "{text}");
}

#[test]
fn emphasis_headings_and_inline_code_are_looks() {
    check("# One *two*\n\n## Three\nfour", &["<bu:One ><biu:two>", "", "<b:Three>", "four"]);
    check("**b** *i* ~~s~~ `c*d*` ***bi***", &["<b:b> <i:i> <s:s> <c:c*d*> <bi:bi>"]);
}

#[test]
fn without_colours_the_marks_stay() {
    let look = Look { colour: false, ..LOOK };
    assert_eq!(render("# One\n**b** *i* ~~s~~ `c`", look), "# One\n**b** *i* ~~s~~ `c`\n");
    assert_eq!(render("> [b](c)\n- *x*\n\n|a|\n|-|", look), "│ b (c)\n• *x*\n\na\n─\n");
}

#[test]
fn prose_is_wrapped_at_words_and_wide_characters_count_twice() {
    check("one two three four five six", &["one two three four five", "six"]);
    check("漢字漢字漢字漢字漢字漢字漢字", &["漢字漢字漢字漢字漢字漢字", "漢字"]);
    check("a\nb  \nc", &["a", "b", "c"]);
    check("https://example.org/a/long/address x", &["https://example.org/a/long/address", "x"]);
}

#[test]
fn lists_have_their_marks_and_hang() {
    check("- one\n- two\n  - deep\n- three", &["<d:• >one", "<d:• >two", "<d:  ><d:• >deep", "<d:• >three"]);
    check("- one two three four five six", &["<d:• >one two three four", "<d:  >five six"]);
    check("7. a\n7. b\n7. c\n\nend", &["<d:7. >a", "<d:8. >b", "<d:9. >c", "", "end"]);
    check("- a\n\n  more\n\n- b\n-\n", &["<d:• >a", "<d:  >", "<d:  >more", "", "<d:• >b", "<d:• >"]);
    check("- [x] done\n- [ ] not", &["<d:• >[x] done", "<d:• >[ ] not"]);
}

#[test]
fn quotes_rules_and_code_are_told_apart() {
    check("> one\n> two\n\nthree", &["<d:│ >one", "<d:│ >two", "", "three"]);
    check("a\n\n---\nb", &["a", "", "<d:────────────────────────>", "b"]);
    check(
        "```rust\nfn  a() {}\n\n\tlet *x* = \"a line that is longer than the terminal\";\n```\nend",
        &[
            "<d:```rust>",
            "fn  a() {}",
            "",
            "    let *x* = \"a line that is longer than the terminal\";",
            "<d:```>",
            "end",
        ],
    );
    check("~~~~\n~~~\n~~~~\n", &["<d:~~~~>", "~~~", "<d:~~~~>"]);
    check("- a\n  ```\n  b\n  ```", &["<d:• >a", "<d:  ><d:```>", "<d:  >b", "<d:  ><d:```>"]);
    check("    a\n\n    b", &["    a", "", "    b"]);
}

#[test]
fn links_say_where_they_lead() {
    check("[a](b.c) <http://x.y>", &["<u:a><d: (b.c)> <u:http://x.y>"]);
    check("![](p.png) ![alt](q)", &["<u:p.png> <u:alt><d: (q)>"]);
    // What is defined later is not lost.
    check("see [a][1]\n\nb\n\n[1]: u.v\n", &["see [a][1]", "", "b", "", "[1]: u.v"]);
}

#[test]
fn tables_line_up_or_give_way() {
    let table = "| a | bb |\n|--|-:|\n| 漢字 | 1 |\n| `x` | 222 |";
    check(table, &["<b:a>   <d: │ > <b:bb>", "<d:─────┼────>", "漢字<d: │ >  1", "<c:x>   <d: │ >222"]);
    let wide = "| key | what it means |\n|-|-|\n| one | a text of many words here |";
    check(
        wide,
        &[
            "<b:key><d: │ ><b:what it means>",
            "<d:────┼───────────────────>",
            "one<d: │ >a text of many",
            "   <d: │ >words here",
        ],
    );
    let narrow = Look { columns: 10, ..LOOK };
    check_on(
        narrow,
        "|key|long name|\n|-|-|\n|one thing|two|",
        &["<b:key>: one", "thing", "<b:long name>:", "two"],
    );
}

#[test]
fn a_terminal_without_utf_8_gets_signs_that_it_has() {
    let look = Look { bare: true, colour: false, columns: 24 };
    assert_eq!(render("- a\n\n> b\n\n---\n", look), "- a\n\n> b\n\n------------------------\n");
    assert_eq!(render("|a|b|\n|-|-|\n|1|2|", look), "a | b\n--+--\n1 | 2\n");
}

#[test]
fn nothing_reaches_the_terminal_that_it_would_obey() {
    let orders = "&#27;[2J &#x9b;1m \u{1b}]0;t\u{7} &#x202e; a&#10;b";
    for text in [
        orders.to_owned(),
        format!("# {orders}"),
        format!("[{orders}](<{orders}>)"),
        format!("```{orders}\n{orders}\n```"),
        format!("| {orders} |\n|--|\n| {orders} |"),
        format!("- ```{orders}\n  {orders}\n"),
        format!("<p>{orders}\n\n[x]: {orders}\n"),
    ] {
        let mut stream = Stream::default();
        let mut rows = stream.push(&text, LOOK);
        rows.extend(stream.live(LOOK));
        rows.extend(stream.finish(LOOK));
        let bad = rows.iter().flat_map(|row| &row.0).find(|span| span.text.contains(acts));
        assert_eq!(bad, None, "{text}");
    }
}

#[test]
fn the_last_block_is_shown_as_it_stands_and_settled_when_the_next_one_begins() {
    let mut stream = Stream::default();
    let mut steps = Vec::new();
    for piece in ["a **b", "** c\n", "\nnext\n- x\n", "- y", "\n```sh\nls", "\n```\n"] {
        let settled = shown(&stream.push(piece, LOOK));
        steps.push((settled.join("/"), shown(&stream.live(LOOK)).join("/")));
    }
    let steps: Vec<(&str, &str)> = steps.iter().map(|(one, two)| (one.as_str(), two.as_str())).collect();
    assert_eq!(
        steps,
        [
            ("", "a **b"),
            ("", "a <b:b> c"),
            ("a <b:b> c//next", "<d:• >x"),
            ("", "<d:• >x/<d:• >y"),
            ("<d:• >x/<d:• >y/<d:```sh>", "ls"),
            ("ls/<d:```>", ""),
        ]
    );
}

#[test]
fn what_is_held_back_is_bounded_and_shown_in_rows_that_fit() {
    let mut stream = Stream::default();
    for _ in 0..4000 {
        stream.push("word [*", LOOK);
        assert!(stream.live(LOOK).iter().map(|row| row.width()).max() <= Some(LOOK.columns));
        if stream.live(LOOK).len() > 8 * 1024 / 4 {
            panic!("more is held back than a screen shows");
        }
        if stream.live(LOOK).is_empty() {
            return;
        }
    }
    panic!("nothing was ever given");
}

proptest! {
    #[test]
    fn the_pieces_in_which_a_text_comes_make_no_difference(
        text in "([-*`>|#1.~\\[\\]():_ ab\n漢&;\t]|\n\n|```|\\| a |\n|-+\\|-|  ){0,120}",
        cuts in prop::collection::vec(0_usize..200, 0..12),
    ) {
        let whole = render(&text, LOOK);
        let mut stream = Stream::default();
        let (mut rows, mut from) = (Vec::new(), 0);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(*cut)).collect();
        cuts.sort_unstable();
        for cut in cuts {
            rows.extend(stream.push(&text[from..cut], LOOK));
            stream.live(LOOK);
            from = cut;
        }
        rows.extend(stream.push(&text[from..], LOOK));
        rows.extend(stream.finish(LOOK));
        let pieces: String = rows.iter().map(|row| row.paint(LOOK) + "\n").collect();
        prop_assert_eq!(&pieces, &whole);
        // No letter is lost, but in cells that are more than the table has columns.
        let letters = |text: &str| text.chars().filter(|c| matches!(c, 'a' | 'b' | '漢')).count();
        prop_assert!(text.contains('|') || letters(&whole) >= letters(&text), "{}", whole);
    }
}
