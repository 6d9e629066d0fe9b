//! What happens when the library is opened, before anything of it can be asked.
//!
//! There is no configuration then, so the switch is a text of fixed length in the file, which a test overwrites in its
//! copy: `torture constructor=` with an act in eight bytes, `when=` with the verb of the program that shall suffer it
//! in eight (`any`, `probe`, `kernel`, `ext-host`), and `variant=` with eight that mean nothing. Each text makes another
//! content of the library.

use std::{
    ffi::{CStr, c_char, c_int},
    ptr,
};

use crate::act::Act;

/// The switch as it is built: nothing happens.
#[used]
static SWITCH: [u8; 59] = *b"torture constructor=none     when=any      variant=0       ";

extern "C" fn constructor(count: c_int, arguments: *const *const c_char, _: *const *const c_char) {
    let switch = read();
    let verb = if count > 1 { argument(arguments, 1) } else { String::new() };
    if let Some(act) = decide(&switch, &verb) {
        act.perform();
    }
}

// SAFETY: the section holds pointers to functions, which the loader calls with the count and the addresses of the
// program's arguments and of its environment.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// What tells this library from others.
pub fn variant() -> String {
    value(&read(), "variant=").unwrap_or_default().to_owned()
}

/// The switch as it is in the file, which the compiler must not take for what it was built with.
fn read() -> String {
    // SAFETY: a static that nobody writes while the process runs.
    let bytes = unsafe { ptr::read_volatile(&raw const SWITCH) };
    String::from_utf8_lossy(&bytes).into_owned()
}

fn argument(arguments: *const *const c_char, at: usize) -> String {
    // SAFETY: the loader passes the program's arguments, which live as long as the process, and `at` is one of them.
    let text = unsafe { CStr::from_ptr(*arguments.add(at)) };
    text.to_string_lossy().into_owned()
}

/// What is to be done in a program that was called with `verb`.
fn decide(switch: &str, verb: &str) -> Option<Act> {
    let (act, when) = (value(switch, "constructor=")?, value(switch, "when=")?);
    let (_, act) = Act::ALL.into_iter().find(|(name, _)| *name == act)?;
    (when == "any" || when == verb).then_some(act)
}

fn value<'a>(switch: &'a str, name: &str) -> Option<&'a str> {
    switch.split_once(name).and_then(|(_, rest)| rest.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_that_is_built_does_nothing_and_can_be_overwritten() {
        let built = read();
        assert_eq!(decide(&built, "kernel"), Some(Act::None));
        let act = built.replace("constructor=none    ", "constructor=segfault");
        let act = act.replace("when=any     ", "when=ext-host");
        assert_eq!(act.len(), built.len());
        assert_eq!(decide(&act, "ext-host"), Some(Act::Segfault));
        assert_eq!(decide(&act, "probe"), None);
        assert_eq!(decide("torn", "kernel"), None);
        assert_eq!(variant(), "0");
    }
}
