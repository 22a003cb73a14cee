#!/usr/bin/env bash
# Every promise once, on each database that can break it in its own way. `.ci/nightly` runs everything there is.
set -euo pipefail
cd "$(dirname "$0")"
. .ci/steps.sh

prepare quick
required_step 'format' cargo fmt --all --check
required_step 'build and lint' build_and_lint --workspace
step 'tests' run_programs --skip suite::readme --skip testing_page
step 'examples of the documentation' documented_examples
step 'chaos, in brief' run_chaos --brief --seed 20261121
conclude
