#!/usr/bin/env bash
# Builds the benchmark and everybody in it, and runs it:
#
#     ./run.sh [workload ..] [--contestants a,b] [--backend postgres,mariadb,sqlite] [--quick] [--paired]
#
# `--help` lists what else it takes. The program starts the servers itself, on files of their own in the directory for
# temporary files: TMPDIR=/mnt/disk ./run.sh puts them elsewhere. docs/performance.md says how the numbers are to be read.
set -euo pipefail
cd "$(dirname "$0")"

# What this machine lacks, as Debian packages.
missing_packages() {
    has() { command -v "$1" >/dev/null 2>&1 || compgen -G "$2" >/dev/null; }
    has cc /none || echo gcc libc6-dev
    has pkg-config /none || echo pkg-config
    has pg_config /none || echo libpq-dev
    has mariadb_config /none || has mysql_config /none || echo libmariadb-dev
    has postgres '/usr/lib/postgresql/*/bin/postgres' || echo postgresql
    has mariadbd /usr/sbin/mariadbd || echo mariadb-server
}

install_packages() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
        echo "Please install first (Debian's names): $*" >&2
        exit 1
    fi
    # RUNLEVEL=1 keeps the packages from starting servers.
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get --quiet --yes)
    "${apt[@]}" update
    "${apt[@]}" install --no-install-recommends "$@"
}

command -v cargo >/dev/null || { echo "Please install first: cargo, see https://rustup.rs" >&2; exit 1; }
read -r -d '' -a missing < <(missing_packages) || true
[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"

# All programs into one directory: the benchmark looks for the others beside itself.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
# A build script of some frameworks asks cargo for all packages of the lock file, without the net.
cargo fetch
cargo fetch --manifest-path peers/Cargo.toml
cargo build --release
# A framework that does not build here is left out, and the benchmark says so.
cargo build --release --manifest-path peers/Cargo.toml --keep-going ||
    echo "not all other frameworks can be built here" >&2
exec "$CARGO_TARGET_DIR/release/bench" "$@"
