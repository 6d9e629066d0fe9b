//! What it costs to look a text through, with ten secrets known.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::{hint::black_box, time::Instant};

use drupe_redact::Redactor;

/// How often each text is looked through.
const TIMES: u32 = 20;

fn main() {
    let redactor = Redactor::default();
    let secrets: Vec<String> =
        (0..10).map(|n| format!("sk-{n}f9a7C42e-Ab{n}_D3{n}-xY8z-{n}Qw3rTy{n}")).collect();
    redactor.learn(secrets.iter().map(String::as_str));
    let prose =
        "The request was refused, since the model is busy; see https://example.com/a?b=%20c for more. ";
    println!("| text | bytes | µs | MB in a second | passes of reading it |");
    println!("|---|---|---|---|---|");
    for (name, text) in [
        ("a line", prose.to_owned()),
        ("a page", prose.repeat(100)),
        ("a long output", prose.repeat(10_000)),
        ("hexadecimal digits", "00ff7a3b9c".repeat(10_000)),
    ] {
        let time = |work: &dyn Fn()| {
            let began = Instant::now();
            (0..TIMES).for_each(|_| work());
            began.elapsed().as_secs_f64() / f64::from(TIMES)
        };
        let looked = time(&|| drop(black_box(redactor.text(black_box(&text)))));
        let read = time(&|| {
            black_box(black_box(text.bytes()).fold(0_u8, |sum, byte| black_box(sum ^ byte)));
        });
        let (bytes, rate) = (text.len(), text.len() as f64 / looked / 1e6);
        println!("| {name} | {bytes} | {:.0} | {rate:.1} | {:.0} |", looked * 1e6, looked / read);
    }
}
