#!/usr/bin/env bash
# Everything that has to hold before a change lands. CONTRIBUTING.md says how the servers are started.
set -euo pipefail
cd "$(dirname "$0")"

# What this machine lacks, as Debian packages. Looks for the files themselves, so that other systems can satisfy it too.
missing_packages() {
    has() { command -v "$1" >/dev/null 2>&1 || compgen -G "$2" >/dev/null; }
    knows() { pkg-config --exists "$1" >/dev/null 2>&1; }
    has cc /none || echo gcc libc6-dev
    has pkg-config /none || echo pkg-config
    has pg_config /none || knows libpq || echo libpq-dev
    has mariadb_config /none || has mysql_config /none || knows libmariadb || knows mysqlclient || echo libmariadb-dev
    has faketime-library '/usr/lib/*/faketime/libfaketimeMT.so.1' || echo libfaketime
    [ -n "${QUEUEABLE_PG_URL:-}" ] || has postgres '/usr/lib/postgresql/*/bin/postgres' || echo postgresql
    [ -n "${QUEUEABLE_MYSQL_URL:-}" ] || has mariadbd /usr/sbin/mariadbd || echo mariadb-server
    # With which the tests copy a database.
    has sqlite3 /none || echo sqlite3
    # For the cluster of the chaos harness.
    has galera-library '/usr/lib*/galera*/libgalera_smm.so' || echo galera-4
    has rsync /none || echo rsync
}

install_packages() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
        echo "Please install first (Debian's names): $*" >&2
        exit 1
    fi
    # RUNLEVEL=1 keeps the packages from starting servers: the tests start their own.
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get --quiet --yes)
    "${apt[@]}" update
    "${apt[@]}" install --no-install-recommends "$@"
}

timings=()
step() {
    local title=$1 start=$SECONDS status=0
    shift
    printf '\n=== %s\n' "$title"
    "$@" || status=$?
    timings+=("$(printf '%5d s  %s' $((SECONDS - start)) "$title")")
    return $status
}

# Each alone, as an application would choose it, and only the libraries: the tests' own needs would add features.
lint_each_feature() {
    local feature
    for feature in '' postgres async-postgres mysql async-mysql sqlite bundled tokio time metrics; do
        echo "--- ${feature:-no feature}"
        cargo clippy --quiet -p queueable -p queueable-core --lib --no-default-features --features "$feature" -- -D warnings ||
            return
    done
}

# Cargo tells which programs it has built. What it keeps for the next incremental build takes three times as much room as
# everything else, so the first build of all goes without.
[ -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
build_tests() {
    cargo test --workspace --all-features --no-run 2>&1 | tee "$logs/programs"
}

# Tells whether there is plenty of memory for the tests' databases. On a disk, half of PostgreSQL's work is to create and
# remove their files, and most of the time of MariaDB and SQLite is spent waiting for the disk.
has_memory_for_databases() {
    [ -w /dev/shm ] && [ -r /proc/meminfo ] || return
    [ "$(df --output=avail --block-size=1M /dev/shm | tail -n 1)" -ge 4096 ] || return
    [ "$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)" -ge 8192 ]
}

# All test programs run although one has failed: a promise that breaks on one database only is worth knowing as such.
# Their tests mostly wait, for servers and for pollers, so there are twice as many threads as processors.
test_programs() {
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))} TMPDIR=$databases \
        cargo test --quiet --workspace --all-features --no-fail-fast "$@"
}

# The test programs in two parts that take about the same time, by cargo's own list: those of PostgreSQL and of
# diesel-async, and all the others.
run_part() {
    local part=$1 program programs=()
    for program in $(sed -n 's|^ *Executable tests/.*/\([a-z_]*\)-[0-9a-f]*)$|\1|p' "$logs/programs"); do
        case $program in
            postgres | async_*) [ "$part" = postgres ] || continue ;;
            *) [ "$part" = others ] || continue ;;
        esac
        programs+=(--test "$program")
    done
    [ "$part" = postgres ] || programs+=(--lib)
    test_programs "${programs[@]}"
}

# What reads the code or compiles it once more. The packages: as they would be published, without building them again.
check_code() {
    local status=0
    echo '--- examples of the documentation'
    # They are programs in the directory for temporary files, and memory may be mounted so that no program runs there.
    databases=${TMPDIR:-/tmp} test_programs --doc || status=1
    echo '--- lints'
    cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings || status=1
    lint_each_feature || status=1
    echo '--- documentation'
    RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --all-features --no-deps || status=1
    echo '--- packages'
    cargo package --quiet --workspace --exclude chaos --allow-dirty --no-verify || status=1
    # The bugs that chaos has to find still fit the library: a copy with all of them compiles.
    echo '--- planted bugs'
    "${CARGO_TARGET_DIR:-target}/debug/chaos" --planted --check || status=1
    return $status
}

# Tests and chaos wait more than they compute. What only computes runs beside them, with less right to the processor.
run_tests() {
    local part status=0
    local -A parts
    for part in postgres others; do
        run_part $part >"$logs/$part" 2>&1 &
        parts[$part]=$!
    done
    # Cargo locks the target directory until it has started the first program.
    until [ -s "$logs/postgres" ] && [ -s "$logs/others" ] || ! kill -0 "${parts[postgres]}" "${parts[others]}"; do
        sleep 1
    done
    (renice -n 19 $BASHPID && check_code) >"$logs/code" 2>&1 &
    code=$!
    for part in others postgres; do
        wait "${parts[$part]}" || { status=1; cat "$logs/$part"; }
    done
    return $status
}

# Waits for what began beside the tests.
end_check_of_code() {
    wait "$code" || { cat "$logs/code"; return 1; }
}

# The program that the tests have built. One seed, so that a red run is the same again.
run_chaos() {
    "${CARGO_TARGET_DIR:-target}/debug/chaos" --smoke --seed 20261121 >"$logs/chaos" || { grep '"passed":false' "$logs/chaos"; return 1; }
}

for tool in cargo 'cargo fmt' 'cargo clippy'; do
    $tool --version >/dev/null || { echo "Please install first: $tool, see https://rustup.rs" >&2; exit 1; }
done
logs=$(mktemp -d)
databases=${TMPDIR:-/tmp}
trap 'rm -rf "$logs"' EXIT
if [ -z "${TMPDIR:-}" ] && has_memory_for_databases; then
    databases=$(mktemp -d /dev/shm/queueable-XXXXXX)
    trap 'rm -rf "$logs" "$databases"' EXIT
    # The servers have accounts of their own.
    chmod 755 "$databases"
fi

read -r -d '' -a missing < <(missing_packages) || true
[ ${#missing[@]} = 0 ] || step "install ${missing[*]}" install_packages "${missing[@]}"
step 'format' cargo fmt --all --check
step 'build the tests' build_tests
# Each of these runs although another one has failed.
failed=()
step 'tests and examples' run_tests || failed+=(tests)
step 'chaos, a smoke run' run_chaos || failed+=(chaos)
step 'what is left of doc tests, lints, documentation, packages, planted bugs' end_check_of_code || failed+=(code)
[ ${#failed[@]} = 0 ] || { printf '\n=== failed: %s\n' "${failed[*]}"; exit 1; }

printf '\n=== all passed in %d s\n' "$SECONDS"
printf '%s\n' "${timings[@]}"
awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END { printf "%d tests passed, %d failed, %d ignored\n", passed, failed, ignored }' "$logs"/*
