# What `test.sh` and `.ci/nightly` share: both source this file, from the repository's root. CONTRIBUTING.md says how the
# servers of the tests are started.

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
    has pgbouncer /usr/sbin/pgbouncer || echo pgbouncer
    # A browser, and the driver through which the tests of the page use it.
    has chromium /none || echo chromium
    has chromedriver /none || echo chromium-driver
    # With which the tests copy a database.
    has sqlite3 /none || echo sqlite3
    # For the cluster of the chaos harness, which only a whole smoke run starts.
    [ "$1" = all ] || return 0
    has galera-library '/usr/lib*/galera*/libgalera_smm.so' || echo galera-4
    has rsync /none || echo rsync
}

install_packages() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
        echo "Please install first (Debian's names): $*" >&2
        return 1
    fi
    # RUNLEVEL=1 keeps the packages from starting servers: the tests start their own.
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get --quiet --yes)
    "${apt[@]}" update || echo 'some lists of packages are old' >&2
    "${apt[@]}" install --no-install-recommends "$@"
}

# Tells whether there is plenty of memory for the tests' databases. On a disk, half of PostgreSQL's work is to create and
# remove their files, and most of the time of MariaDB and SQLite is spent waiting for the disk.
has_memory_for_databases() {
    [ -w /dev/shm ] && [ -r /proc/meminfo ] || return
    [ "$(df --output=avail --block-size=1M /dev/shm | tail -n 1)" -ge 4096 ] || return
    [ "$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)" -ge 8192 ]
}

# Runs a step: one line when it ends, and what it has printed if it has failed. Later steps run although one has failed: a
# promise that breaks on one database only is worth knowing as such.
failed=()
step() {
    local title=$1 log="$logs/step-$((++steps))" start=$SECONDS status=0
    shift
    "$@" >"$log" 2>&1 || status=$?
    [ $status = 0 ] || { failed+=("$title"); cat "$log"; }
    printf '%5d s  %s%s\n' $((SECONDS - start)) "$title" "$([ $status = 0 ] || echo ': FAILED')"
}
steps=0

# What stops the whole run if it fails.
required_step() {
    step "$@"
    [ ${#failed[@]} = 0 ] || exit 1
}

prepare() {
    local tool
    for tool in cargo 'cargo fmt' 'cargo clippy'; do
        $tool --version >/dev/null || { echo "Please install first: $tool, see https://rustup.rs" >&2; exit 1; }
    done
    logs=$(mktemp -d)
    databases=${TMPDIR:-/tmp}
    # A process that is just ending may still write there, and `rm` fails then.
    trap 'rm -rf "$logs" || true' EXIT
    if [ -z "${TMPDIR:-}" ] && has_memory_for_databases; then
        databases=$(mktemp -d /dev/shm/queueable-XXXXXX)
        trap 'rm -rf "$logs" "$databases" || true' EXIT
        # The servers have accounts of their own.
        chmod 755 "$databases"
    fi
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    # What cargo keeps for the next incremental build takes three times as much room as everything else, so the first build of
    # all goes without.
    [ -d "$target/debug/incremental" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
    local missing
    read -r -d '' -a missing < <(missing_packages "$1") || true
    [ ${#missing[@]} = 0 ] || required_step "install ${missing[*]}" install_packages "${missing[@]}"
}

# Builds test programs, and lists them in the file `programs`: the target, the package's directory, the program.
build_programs() {
    cargo test --all-features --no-run --message-format json-render-diagnostics "$@" >"$logs/built" || return
    sed -n '/"reason":"compiler-artifact"/!d; s/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"name":"\([^"]*\)".*"test":true},.*"executable":"\([^"]*\)".*/\2 \1 \3/p' \
        "$logs/built" >"$logs/programs"
    [ -s "$logs/programs" ]
}

# The compiler with clippy's lints: the tests are built and linted at once. Cargo counts the warnings of each program, also of those
# that it has built before.
build_and_lint() {
    local status=0
    CARGO_TERM_COLOR=never RUSTC_WORKSPACE_WRAPPER=clippy-driver build_programs "$@" 2>"$logs/diagnostics" || status=$?
    cat "$logs/diagnostics"
    [ $status = 0 ] && ! grep -q 'generated [0-9]* warning' "$logs/diagnostics"
}

# Through the same compiler, so that the libraries need not be built once more.
documented_examples() {
    RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --quiet --workspace --all-features --doc
}

# Runs one test program as cargo does, from its package's directory. `--report-time` shows how long each test takes; the standard
# library's test runner has it behind this variable. The tests of compile errors go without: the variable changes the errors.
run_program() {
    local name=$1 directory=$2 program=$3 timed=(-Zunstable-options --report-time)
    cd "$directory"
    export RUST_TEST_THREADS=$threads TMPDIR=$databases CARGO_MANIFEST_DIR=$directory
    if [ "$name" = ui ]; then timed=(); else export RUSTC_BOOTSTRAP=1; fi
    "$program" "${timed[@]}" $skipped >"$logs/test-$name" 2>&1 || touch "$logs/failed-$name"
}
export -f run_program

# Three programs at a time, the longest first. Their tests often wait, for servers and for pollers, so each has twice as many
# threads as there are processors.
run_programs() {
    export logs databases skipped=$*
    export threads=${RUST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))} LD_LIBRARY_PATH
    # The tests of a procedural macro need the compiler's own libraries.
    LD_LIBRARY_PATH=$(rustc --print target-libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    local longest='suite_postgres suite_mysql suite_async_postgres suite_async_mysql suite_page_postgres suite_page_mysql'
    longest+=' page_sqlite postgres mysql sqlite async_mysql async_postgres console_mysql console_postgres console_sqlite ui examples harness'
    awk -v longest=" $longest " '{ place = index(longest, " " $1 " ") }
        { print (place ? place : 999), $0 }' "$logs/programs" | sort -n | cut -d ' ' -f 2- |
        xargs -P 3 -L 1 bash -c 'run_program "$@"' run
    # Without its own count: `conclude` counts the program's tests.
    ! compgen -G "$logs/failed-*" >/dev/null ||
        { cat $(compgen -G "$logs/failed-*" | sed 's/failed-/test-/') | sed '/^test result:/d'; return 1; }
}

# Runs one of the programs on the server that a variable names, after `run_programs`.
on_server() { # VARIABLE URL PROGRAM NAME SKIPPED..
    local variable=$1 url=$2 root=$3 name=$3-on-$4 directory program
    shift 4
    read -r _ directory program < <(grep "^$root " "$logs/programs")
    (export "$variable=$url" skipped=${*/#/--skip } && run_program "$name" "$directory" "$program")
    [ ! -e "$logs/failed-$name" ] || { cat "$logs/test-$name"; return 1; }
}

# Runs the chaos harness where the tests' databases are.
run_chaos() {
    TMPDIR=$databases "$target/debug/chaos" "$@"
}

# Prints the twenty tests that took longest, and how many there were.
conclude() {
    printf '\nThe slowest tests, in seconds:\n'
    for log in "$logs"/test-*; do
        sed -nE "s/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 ${log##*/test-} \1/p" "$log"
    done | sort -rn | sed -n 1,20p
    [ ${#failed[@]} = 0 ] || printf '\nfailed: %s\n' "${failed[*]}"
    printf '\n%d s in all\n' "$SECONDS"
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
        END { printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored }' "$logs"/test-* "$logs"/step-*
    [ ${#failed[@]} = 0 ]
}
