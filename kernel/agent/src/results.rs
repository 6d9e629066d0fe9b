//! How much of a tool's result is kept, and how much a model is shown.
//!
//! What a model sees follows from what was recorded, the bound and the call's id, and from nothing else: so a run
//! that goes on after a crash shows it the same bytes. It deliberately does not summarise.

use drupe_extension_api::EffectId;

/// Bytes of one result that a model is shown where nothing else is set: about 3,000 tokens.
pub const TOOL_RESPONSE_MAX_BYTES: usize = 12 * 1024;

/// Bytes of one result, or of a run's answer, that are kept. Beyond it a journal would be a file store.
pub const KEPT_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of a text that stand for the reason where a run says no other.
const REASON_MAX_BYTES: usize = 16 * 1024;

/// Why a run did not succeed, where its text alone says so. It stands in events, rows and what its caller is told.
pub(crate) fn reason(content: &str) -> String {
    let end = content.floor_char_boundary(REASON_MAX_BYTES);
    let rest = if end < content.len() { "…" } else { "" };
    format!("{}{rest}", &content[..end])
}

/// What stands at the end of a result that was cut, and the most bytes of the line.
const CUT: &str = " bytes were kept]";
const CUT_LINE: usize = 80;

/// The result as it is recorded: whole, or its first [`KEPT_MAX_BYTES`] and a line that says so. One that was cut so stays as it
/// is.
pub(crate) fn kept(mut content: String) -> String {
    let size = content.len();
    let was_cut = size <= KEPT_MAX_BYTES + CUT_LINE && content.ends_with(CUT);
    if size > KEPT_MAX_BYTES && !was_cut {
        content.truncate(content.floor_char_boundary(KEPT_MAX_BYTES));
        content.shrink_to_fit();
        content.push_str(&format!("\n[cut here: only {} of {size}{CUT}", content.len()));
    }
    content
}

/// The result as a model sees it: whole, or head and tail and the handle by which the rest can be read. At most
/// `most` bytes, unless those do not even hold the last line.
pub(crate) fn shown(content: String, most: usize, handle: &EffectId) -> String {
    const GAP: &str = "\n[…]\n";
    if content.len() <= most {
        return content;
    }
    // The offset has at most as many digits as the size.
    let size = content.len();
    let line = |offset: usize| {
        format!(
            "\n[the beginning and the end of {size} bytes; `read_output` with handle \"{handle}\" and offset {offset} \
             reads on]"
        )
    };
    let room = most.saturating_sub(line(size).len() + GAP.len());
    // Errors stand at the end of an output more often than at its beginning, but what it is about stands there.
    let head = content.floor_char_boundary(room * 2 / 3);
    let tail = content.ceil_char_boundary(size - (room - room * 2 / 3));
    format!("{}{GAP}{}{}", &content[..head], &content[tail..], line(head))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handle() -> EffectId {
        EffectId::new("e-1").expect("a valid id")
    }

    #[test]
    fn a_short_result_is_shown_as_it_is() {
        assert_eq!(shown("äöü".into(), 6, &handle()), "äöü");
    }

    #[test]
    fn a_long_result_shows_its_ends_its_size_and_its_handle() {
        let text = format!("first{}last", "x".repeat(1_000));
        let view = shown(text.clone(), 300, &handle());
        assert!(view.starts_with("first") && view.contains("xlast\n["), "{view}");
        assert!(view.contains("1009 bytes") && view.contains("\"e-1\""), "{view}");
        assert!(view.len() <= 300, "{}", view.len());
    }

    #[test]
    fn a_result_beyond_what_is_kept_says_so() {
        let text = kept("é".repeat(KEPT_MAX_BYTES / 2 + 1));
        assert!(text.ends_with(&format!("of {} bytes were kept]", KEPT_MAX_BYTES + 2)));
        assert!(text.len() < KEPT_MAX_BYTES + 100);
        assert_eq!(kept(text.clone()), text, "it is cut once");
        assert!(
            kept("x".repeat(KEPT_MAX_BYTES * 4)).capacity() < KEPT_MAX_BYTES * 3,
            "the rest is given back"
        );
        let whole = "x".repeat(KEPT_MAX_BYTES);
        assert_eq!(kept(whole.clone()), whole);
    }

    proptest! {
        #[test]
        fn a_view_is_bounded_and_cut_between_characters(text in "[aé🍑\n]{0,400}", most in 150usize..600) {
            let view = shown(text.clone(), most, &handle());
            prop_assert!(view.len() <= most);
            prop_assert_eq!(shown(text.clone(), most, &handle()), view);
        }
    }
}
