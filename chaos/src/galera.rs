//! A Galera cluster of MariaDB servers on loopback.

use std::path::Path;
use std::process::{self, Command};

use anyhow::{Result, ensure};

use crate::db::mysql::{self, PrivateServer};

/// The number of nodes: when one is killed, the others are a majority.
const NODES: usize = 3;
/// Where packages install Galera's library.
const LIBRARIES: &[&str] = &[
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib/galera-4/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/local/lib/galera/libgalera_smm.so",
];

/// The nodes, in the order of their names. They end with this value.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<PrivateServer>,
}

impl Cluster {
    /// Fails if something is not installed, and names it.
    pub(crate) fn can_start() -> Result<()> {
        let has_rsync = Command::new("rsync").arg("--version").output().is_ok_and(|output| output.status.success());
        ensure!(
            library().is_some() && has_rsync,
            "a Galera cluster needs the library {} and rsync: install the Debian packages galera-4, rsync and mariadb-server",
            LIBRARIES[0],
        );
        Ok(())
    }

    /// Starts a first node, has the others join it, and waits until all answer.
    pub(crate) fn start() -> Self {
        // For each node three ports: for the group's messages, for changes that it missed, and for a copy of everything.
        let ports: Vec<u16> = mysql::free_ports().take(3 * NODES).collect();
        let ports: Vec<[u16; 3]> = ports.chunks(3).map(|three| [three[0], three[1], three[2]]).collect();
        let group: Vec<_> = ports.iter().map(|[group, ..]| format!("127.0.0.1:{group}")).collect();
        let arguments = |number: usize| arguments(number, ports[number], &group.join(","));
        let mut founding = arguments(0);
        founding.push("--wsrep-new-cluster".to_owned());
        let first = PrivateServer::start_with(mysql::initialize, founding);
        first.set_arguments(arguments(0));
        let others = (1..NODES).map(|number| PrivateServer::start_with(empty, arguments(number)));
        let nodes = std::iter::once(first).chain(others).collect();
        Cluster { nodes }
    }

    /// The address of a database on one of the nodes.
    pub(crate) fn url(&self, node: usize, database_url: &str) -> String {
        let database = database_url.rsplit_once('/').map_or("", |(_, database)| database);
        format!("mysql://root@127.0.0.1:{}/{database}", self.nodes[node].port())
    }
}

impl Drop for Cluster {
    /// Kills the nodes: in an orderly shutdown each would take its time to leave the cluster.
    fn drop(&mut self) {
        for node in &self.nodes {
            node.kill();
        }
    }
}

fn library() -> Option<&'static str> {
    LIBRARIES.iter().copied().find(|file| Path::new(file).is_file())
}

/// A node that joins copies all its files from another one.
fn empty(data: &Path) -> Command {
    let mut command = Command::new("mkdir");
    command.arg(data);
    command
}

fn arguments(number: usize, [group, changes, copies]: [u16; 3], cluster: &str) -> Vec<String> {
    // The nodes give a dead one up after two seconds instead of five, so that more of the run happens afterwards. With a
    // shorter limit, living nodes on a busy machine would give each other up.
    let provider = format!(
        "base_host=127.0.0.1;base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{changes};\
         evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.2S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT5S;\
         evs.install_timeout=PT5S;gcache.size=32M;pc.recovery=no"
    );
    let options = [
        ("on", "ON"),
        ("provider", library().unwrap_or(LIBRARIES[0])),
        ("provider-options", &provider),
        ("cluster-name", &format!("queueable-{}", process::id())),
        ("cluster-address", &format!("gcomm://{cluster}")),
        ("node-name", &format!("node-{number}")),
        ("node-address", "127.0.0.1"),
        ("sst-method", "rsync"),
        ("sst-receive-address", &format!("127.0.0.1:{copies}")),
    ];
    let options = options.map(|(name, value)| format!("--wsrep-{name}={value}"));
    let others = ["--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-log-file-size=16M"];
    options.into_iter().chain(others.map(str::to_owned)).collect()
}
