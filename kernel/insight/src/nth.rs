//! Turns of a session by their numbers.

use drupe_extension_api::{Fault, TurnId};

/// The turn of that number of the session `id`: from 1, or from the end where negative. The first `gone` of its turns are
/// not there any more; the others keep their numbers.
///
/// # Errors
/// What there is, where there is no such turn.
pub fn nth<'a>(id: &str, kept: &'a [TurnId], gone: u64, number: i64) -> Result<&'a TurnId, Fault> {
    let place = |from_one: u64| usize::try_from(from_one.checked_sub(1)?).ok();
    let found = if number > 0 {
        number.unsigned_abs().checked_sub(gone).and_then(place).and_then(|at| kept.get(at))
    } else {
        place(number.unsigned_abs()).and_then(|at| kept.iter().rev().nth(at))
    };
    let count = kept.len();
    found.ok_or_else(|| match gone {
        0 => {
            let turns = if count == 1 { "turn" } else { "turns" };
            Fault::not_found(format!("`{id}` has {count} {turns}, so there is no turn {number}"))
        }
        _ => Fault::invalid(format!(
            "of `{id}` the turns up to {gone} are deleted (`journal.retention`) and {count} are kept, so there is no turn \
             {number}"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_keep_their_numbers_when_the_first_are_gone() {
        let kept: Vec<TurnId> = ["c", "d", "e"].map(|id| id.parse().expect("an id")).into();
        let check = |gone, number, expected: Result<&str, &str>| {
            let found = nth("s", &kept, gone, number).map(TurnId::as_str);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{gone} {number}"),
                (Err(fault), Err(part)) => assert!(fault.message.contains(part), "{fault}"),
                (found, _) => panic!("{gone} {number}: {found:?}"),
            }
        };
        for (gone, number, expected) in [
            (0, 1, Ok("c")),
            (2, 3, Ok("c")),
            (2, 5, Ok("e")),
            (2, -1, Ok("e")),
            (2, -3, Ok("c")),
            (2, 2, Err("up to 2 are deleted")),
            (2, 6, Err("no turn 6")),
            (0, 4, Err("has 3 turns")),
            (0, 0, Err("no turn 0")),
            (2, -4, Err("no turn -4")),
            (0, i64::MIN, Err("no turn")),
        ] {
            check(gone, number, expected);
        }
    }
}
