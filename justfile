# Everyday commands. `just` lists them.

_default:
    @just --list

# Build everything, start the daemon and chat with it.
run *ARGS:
    cargo run --release -- {{ARGS}}

# All tests.
test:
    cargo test --workspace

# What CI checks.
ci:
    bash .ci/run

# Format.
fmt:
    cargo fmt --all

# Lints with warnings denied.
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Regenerate the JSON Schemas and golden files.
bless:
    DRUPE_BLESS=1 cargo test -p drupe-config

# The API documentation.
doc:
    cargo doc --workspace --no-deps --open

# Measure: boundary calls, fan-out, memory, boot, turns.
bench *ARGS:
    cargo run --release -p drupe-bench -- {{ARGS}}

# Licences, advisories, duplicates (needs cargo-deny).
deny:
    cargo deny check
