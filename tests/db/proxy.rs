//! A proxy before a server: its connections can fall silent, end, or be far away.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::suite::bank::Bank;

/// A proxy whose connections, and new ones, can fall silent: it takes all bytes and passes none on.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    links: Mutex<Vec<Link>>,
    /// Whether new connections are silent.
    is_silent: AtomicBool,
    /// After how many sends of the client a new connection falls silent. 0: it does not.
    sends: AtomicU64,
    /// How long bytes take, in milliseconds.
    delay: AtomicU64,
    has_ended: AtomicBool,
}

struct Link {
    is_silent: Arc<AtomicBool>,
    ends: [TcpStream; 2],
}

impl Proxy {
    /// Starts one before the server of the bank.
    pub(crate) fn before(bank: &Bank) -> Self {
        let server = host_and_port(bank.database.url()).to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(ProxyState::default());
        let accepting = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                accepting.link(client, TcpStream::connect(&server).unwrap());
            }
        });
        Proxy { port, state }
    }

    pub(crate) fn url(&self, bank: &Bank) -> String {
        let url = bank.database.url();
        url.replacen(host_and_port(url), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Returns what counts the connections that were opened since the last reset.
    pub(crate) fn links(&self) -> impl Fn() -> usize + use<> {
        let state = self.state.clone();
        move || state.links.lock().unwrap().len()
    }

    /// Silences the connections that are open.
    pub(crate) fn silence(&self) {
        self.state.links.lock().unwrap().iter().for_each(|link| link.is_silent.store(true, Ordering::SeqCst));
    }

    /// Ends the connections that are open.
    pub(crate) fn reset(&self) {
        let ends = |link: &Link| link.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        self.state.links.lock().unwrap().drain(..).for_each(|link| ends(&link));
    }

    /// Has new connections fall silent after so many sends of the client. 0: they do not.
    pub(crate) fn silence_after(&self, sends: u64) {
        self.state.sends.store(sends, Ordering::SeqCst);
    }

    /// Delays all bytes.
    pub(crate) fn delay(&self, by: Duration) {
        self.state.delay.store(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Sets whether new connections are silent from their beginning.
    pub(crate) fn accept_only(&self, accepts_only: bool) {
        self.state.is_silent.store(accepts_only, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        for link in self.state.links.lock().unwrap().iter() {
            link.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }
}

impl ProxyState {
    fn link(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let is_silent = Arc::new(AtomicBool::new(self.is_silent.load(Ordering::SeqCst)));
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
        }
        let mut left = Some(self.sends.load(Ordering::SeqCst)).filter(|sends| *sends > 0);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let mut left = left.take();
            let (mut from, mut to, is_silent) = (from.try_clone().unwrap(), to.try_clone().unwrap(), is_silent.clone());
            let state = self.clone();
            thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                while let Ok(length) = from.read(&mut buffer) {
                    if length == 0 {
                        break;
                    }
                    // The distance that the proxy stands for.
                    thread::sleep(Duration::from_millis(state.delay.load(Ordering::SeqCst)));
                    if let Some(left) = &mut left {
                        is_silent.fetch_or(*left == 0, Ordering::SeqCst);
                        *left = left.saturating_sub(1);
                    }
                    if !is_silent.load(Ordering::SeqCst) && to.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                if !is_silent.load(Ordering::SeqCst) {
                    let _ = to.shutdown(Shutdown::Both);
                }
            });
        }
        self.links.lock().unwrap().push(Link { is_silent, ends: [client, server] });
    }
}

/// The host and the port of a URL.
fn host_and_port(url: &str) -> &str {
    let address = url.split_once("://").expect("a URL").1;
    let address = address.split(['/', '?']).next().expect("there is a first part");
    address.rsplit('@').next().expect("there is a last part")
}
