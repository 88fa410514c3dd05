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
target/debug/dbisect doctor matrices/installed.toml --fix
step "fast tests"
cargo test --quiet
step "end to end, on a real Postgres"
# One after the other: a measurement beside another test would be worth nothing.
cargo test --test end_to_end -- --ignored --nocapture --test-threads=1
step "servers that start, stop, hang, crash and are killed"
# The tests' servers run under another account, which may not be able to reach the checkout.
prefix=$(mktemp -d /var/tmp/dbisect-test-XXXXXX)
trap 'rm -rf "$prefix"' EXIT
chmod 755 "$prefix"
cp -a "$(find target/tmp/end-to-end/cache/v1/builds -mindepth 3 -maxdepth 3 -name install | head -n 1)/." "$prefix"
DBISECT_TEST_PG_PREFIX=$prefix cargo test --test real_server -- --ignored --test-threads=1
step "all passed"
