#!/usr/bin/env bash
# Builds the benchmark and everybody in it, and runs it: ./run.sh [workload ..] [--contestants a,b] [--backend ..] [--quick]
# `--help` lists what else it takes. The servers are started by the program itself, on files of their own.
set -euo pipefail
cd "$(dirname "$0")"
cargo build --release --quiet
exec "${CARGO_TARGET_DIR:-target}/release/bench" "$@"
