//! The program that the tests of this crate have stand for drupe: it has the verb that starts others confined.

use std::env;

fn main() {
    let mut args = env::args_os().skip(1);
    match args.next() {
        Some(verb) if verb == drupe_confine::VERB => drupe_confine::main(args),
        _ => std::process::exit(2),
    }
}
