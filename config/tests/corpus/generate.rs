//! Manifests that nobody would write, made from those that somebody did, the same ones at every run.

/// The valid manifests that mutations begin with.
const VALID: [&str; 4] = [
    include_str!("../cases/manifest_complete_agent.yaml"),
    include_str!("../cases/manifest_minimal_native.yaml"),
    include_str!("../cases/manifest_process_isolation.yaml"),
    include_str!("../../../extensions/builder_agent/manifest.yaml"),
];

/// Words that mean something to the parser or to a reader behind it.
const WORDS: &[&str] = &[
    ": ",
    "- ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "!x ",
    "| ",
    ">-\n",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "# ",
    "'",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    "\r\n",
    "\t",
    "~",
    "null",
    "true",
    "yes",
    ".inf",
    ".nan",
    "-0",
    "0x7fffffffffffffffffffffff",
    "1e400",
    "99999999999999999999999999999999999999999",
    "${",
    "${A}",
    "$${",
    "{{",
    "{{task}}",
    "../..",
    "/dev/zero",
    "prompt.md",
    "(?P<a>",
    "(((((",
    "\\",
    "\\p{L}{200}",
    "\u{0}",
    "\u{7}",
    "\u{1b}[31m",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{202e}",
    "\u{fffd}",
    "e\u{301}",
    "\u{1f469}\u{200d}\u{1f4bb}",
    "id",
    "all",
    "paths",
    "demo",
    "agent:\n",
    "$ref: '#'",
];

/// Keys of a manifest at any level.
const KEYS: &[&str] = &[
    "api",
    "id",
    "name",
    "version",
    "summary",
    "description",
    "entrypoint",
    "isolation",
    "depends_on",
    "secrets",
    "config",
    "config_schema",
    "setup_instructions",
    "scope",
    "rights",
    "program_folders",
    "listen",
    "enabled",
    "overrides",
    "agent",
    "subscribe",
    "topic",
    "task",
    "schedules",
    "skills",
    "integration_mode",
    "model",
    "instructions",
    "context",
    "parameters",
    "uses_tools",
    "uses_agents",
    "input",
    "output",
    "usage",
    "tool_name",
    "infer",
    "limits",
    "offline",
    "format",
    "schema",
    "when",
    "after",
    "call",
    "with",
    "say",
    "max_turns",
    "temperature",
    "seed",
    "stop",
    "extra",
    "type",
    "properties",
    "items",
    "anyOf",
    "$ref",
    "pattern",
];

/// A small generator of numbers, so that a case is known by its number alone.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// One manifest; `scale` is the number of repetitions that those with many have at most.
pub fn manifest(random: &mut Random, scale: usize) -> Vec<u8> {
    match random.below(10) {
        0..=3 => mutated(random),
        4 => truncated(random),
        5 => nested(random, scale).into_bytes(),
        6 => wide(random, scale).into_bytes(),
        7 => aliased(random).into_bytes(),
        8 => huge(random, scale).into_bytes(),
        _ => mistyped(random).into_bytes(),
    }
}

fn mutated(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.of(&VALID).as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let end = (at + random.below(40)).min(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            3 => duplicate_line(&mut bytes, at),
            _ => drop(bytes.splice(at..at, random.of(WORDS).bytes())),
        }
        if bytes.is_empty() {
            bytes.push(b'x');
        }
    }
    bytes
}

fn duplicate_line(bytes: &mut Vec<u8>, at: usize) {
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let end =
        bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |newline| at + newline + 1);
    let line = bytes[start..end].to_vec();
    bytes.splice(start..start, line);
}

fn truncated(random: &mut Random) -> Vec<u8> {
    let bytes = random.of(&VALID).as_bytes();
    bytes[..random.below(bytes.len())].to_vec()
}

fn nested(random: &mut Random, scale: usize) -> String {
    let levels = if random.below(2) == 0 { random.below(80) } else { random.below(scale) };
    let (open, close) =
        random.of(&[("[", "]"), ("{a: ", "}"), ("[{a: ", "}]"), ("- ", ""), ("? ", ""), ("{? [", "]}")]);
    let close = if random.below(3) == 0 { "" } else { close };
    let head = random.of(&["config: ", "config_schema: ", "id: demo\nconfig: {a: ", "agent: ", ""]);
    format!("{head}{}{}{}", open.repeat(levels), random.of(WORDS), close.repeat(levels))
}

fn wide(random: &mut Random, scale: usize) -> String {
    let mut text = "id: demo\nname: Demo\nentrypoint: x\n".to_owned();
    let within = random.of(&["", "config:\n", "config_schema:\n", "agent:\n", "agent:\n  offline:\n"]);
    text.push_str(within);
    let same = random.below(3) == 0;
    for number in 0..random.below(scale) {
        let key = if same { random.of(KEYS).to_owned() } else { format!("{}{number}", random.of(KEYS)) };
        let indent = if within.is_empty() { "" } else { "   " };
        text.push_str(&format!("{indent}{key}: {}\n", value(random, 1)));
    }
    text
}

fn aliased(random: &mut Random) -> String {
    let mut text = "config:\n  a0: &a0 x\n".to_owned();
    for number in 1..=random.below(40) {
        let parts: Vec<_> =
            (0..=random.below(12)).map(|_| format!("*a{}", random.below(number + 1))).collect();
        text.push_str(&format!("  a{number}: &a{number} [{}]\n", parts.join(", ")));
    }
    text
}

fn huge(random: &mut Random, scale: usize) -> String {
    let word = random.of(WORDS).repeat(random.below(scale));
    let key = random.of(KEYS);
    match random.below(4) {
        0 => format!("{key}: {word}"),
        1 => format!("{key}: '{}'", word.replace('\'', "''")),
        2 => format!("? {word}\n: x"),
        _ => format!(
            "id: demo\nname: D\nentrypoint: x\nagent:\n  {key}: |\n    {}\n",
            word.replace('\n', "\n    ")
        ),
    }
}

/// Known keys with values of any kind.
fn mistyped(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..=random.below(12) {
        text.push_str(&format!("{}: {}\n", random.of(KEYS), value(random, 4)));
    }
    text
}

fn value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 4 } else { 7 }) {
        0 => random.of(WORDS).to_owned(),
        1 => format!("'{}'", random.of(WORDS).replace('\'', "''")),
        2 => random.next().to_string(),
        3 => random.of(KEYS).to_owned(),
        4 => {
            let items: Vec<_> = (0..random.below(5)).map(|_| value(random, depth - 1)).collect();
            format!("[{}]", items.join(", "))
        }
        _ => {
            let entries: Vec<_> = (0..random.below(5))
                .map(|_| format!("{}: {}", random.of(KEYS), value(random, depth - 1)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}
