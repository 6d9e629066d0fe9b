//! Names that strangers give to files, made fit to be names of ours. Pure.

/// The longest name, in bytes: with what stands before it, one fits on every file system.
const LONGEST: usize = 100;
/// The longest ending that stays where a name is cut.
const LONGEST_ENDING: usize = 16;
/// What one is called of whose name nothing is left.
const NAMELESS: &str = "file";

/// What a file is called that somebody calls so: the last part of a path alone, of letters and digits of any script and a few signs, in one
/// line, without a dot or a dash at its beginning, and of at most 100 bytes, of which the ending stays.
pub fn safe_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = |letter: char| letter.is_alphanumeric() || " ._-()+,=@".contains(letter);
    let name: String = last.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    let name = name.trim_matches(|letter: char| letter == '.' || letter == '-' || letter.is_whitespace());
    match name.chars().any(char::is_alphanumeric) {
        true => cut(name),
        false => NAMELESS.to_owned(),
    }
}

fn cut(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let ending = name.rfind('.').map(|dot| &name[dot..]).filter(|ending| ending.len() <= LONGEST_ENDING);
    let ending = ending.unwrap_or_default();
    let end = name.floor_char_boundary(LONGEST - ending.len());
    format!("{}{ending}", name[..end].trim_end_matches(['.', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_stranger_calls_a_file_is_one_name_beneath_its_folder() {
        for (given, name) in [
            ("report.pdf", "report.pdf"),
            ("Über uns (2).pdf", "Über uns (2).pdf"),
            ("報告.pdf", "報告.pdf"),
            ("../../x", "x"),
            ("/etc/passwd", "passwd"),
            ("C:\\temp\\a.txt", "a.txt"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("..", "file"),
            ("a/..", "file"),
            ("", "file"),
            ("\0\n\r", "file"),
            ("a\0b\nc`d\u{202e}fdp.exe", "a_b_c_d_fdp.exe"),
            ("$(rm -rf x);.sh", "_(rm -rf x)_.sh"),
            ("   spaced .txt  ", "spaced .txt"),
            ("___", "file"),
        ] {
            assert_eq!(safe_name(given), name, "{given:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_and_keeps_its_ending() {
        for long in ["x".repeat(300), "ä".repeat(300), format!("x.{}", "y".repeat(300))] {
            for ending in ["", ".pdf"] {
                let name = safe_name(&format!("{long}{ending}"));
                assert!((80..=LONGEST).contains(&name.len()) && name.ends_with(ending), "{name}");
            }
        }
    }
}
