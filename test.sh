#!/usr/bin/env bash
# Every promise once, on each database that can break it in its own way. `.ci/nightly` runs everything there is.
set -euo pipefail
cd "$(dirname "$0")"
. .ci/steps.sh

# The compiler with clippy's lints: the tests are built and linted at once. Cargo counts the warnings of each program, also of those
# that it has built before.
build_and_lint() {
    local status=0
    CARGO_TERM_COLOR=never RUSTC_WORKSPACE_WRAPPER=clippy-driver build_programs --workspace 2>"$logs/diagnostics" || status=$?
    cat "$logs/diagnostics"
    [ $status = 0 ] && ! grep -q 'generated [0-9]* warning' "$logs/diagnostics"
}

prepare quick
required_step 'format' cargo fmt --all --check
required_step 'build and lint' build_and_lint
step 'tests' run_programs --skip suite::readme --skip testing_page
# Through the same compiler, so that the libraries need not be built once more.
step 'examples of the documentation' env RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --quiet --workspace --all-features --doc
step 'chaos, in brief' "$target/debug/chaos" --brief --seed 20261121
conclude
