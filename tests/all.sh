#!/usr/bin/env bash
# Sets everything up and runs every test: formatting, lints, fast tests, and the end-to-end tests on
# a real Postgres and a real sysbench. Needs a Rust toolchain and, on Debian or Ubuntu, root or sudo
# without a password to install packages.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

step "formatting"
cargo fmt --check
step "lints"
cargo clippy --all-targets --quiet -- -D warnings
step "build"
cargo build --quiet
step "packages"
target/debug/dbisect doctor --fix
step "fast tests"
cargo test --quiet
step "end to end, on a real Postgres"
cargo test --test end_to_end -- --ignored --nocapture
step "all passed"
