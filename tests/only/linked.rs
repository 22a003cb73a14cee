//! What an application links with its choice of features.

use std::env;
use std::process::Command;

/// Returns the packages that a user of these features builds, one a line.
fn packages(features: &str) -> String {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--package", "queueable", "--edges", "normal,build", "--prefix", "none"])
        .args(["--no-default-features", "--features", features, "--format", "{p}"])
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

fn has(packages: &str, name: &str) -> bool {
    packages.lines().any(|line| line.split(' ').next() == Some(name))
}

#[test]
fn the_async_connection_needs_no_libpq() {
    let packages = packages("async-postgres");
    assert!(has(&packages, "tokio-postgres") && has(&packages, "diesel-async"));
    assert!(!has(&packages, "pq-sys") && !has(&packages, "mysql_async"), "{packages}");
}

#[test]
fn the_async_connection_needs_no_client_library_of_mysql() {
    let packages = packages("async-mysql");
    assert!(has(&packages, "mysql_async") && has(&packages, "diesel-async"));
    assert!(!has(&packages, "mysqlclient-sys") && !has(&packages, "tokio-postgres"), "{packages}");
}

#[test]
fn the_synchronous_connections_need_no_tokio() {
    let packages = packages("postgres,mysql,bundled,time,metrics");
    assert!(has(&packages, "pq-sys") && has(&packages, "libsqlite3-sys"));
    for name in ["tokio", "tokio-postgres", "mysql_async", "diesel-async", "futures-util"] {
        assert!(!has(&packages, name), "{name} is among {packages}");
    }
}

#[test]
fn async_calls_on_a_synchronous_connection_need_tokios_tasks_and_nothing_else() {
    let packages = packages("bundled,tokio");
    assert!(has(&packages, "tokio"));
    for name in ["tokio-postgres", "diesel-async", "futures-util", "mio", "socket2", "pq-sys"] {
        assert!(!has(&packages, name), "{name} is among {packages}");
    }
}
