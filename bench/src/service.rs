//! A service on this machine that answers each HTTP request after 200 milliseconds, and what calls it.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// How many calls are in flight at most.
pub(crate) const IN_FLIGHT: usize = 1000;

const ANSWERS_AFTER: Duration = Duration::from_millis(200);

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The running service.
pub(crate) struct Service {
    pub(crate) port: u16,
    _runtime: Runtime,
}

impl Service {
    pub(crate) fn start() -> Result<Self> {
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        Ok(Service { port, _runtime: runtime })
    }
}

/// A runtime with one thread of its own, for the service and for each contestant.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Answers the requests of one connection.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    loop {
        if !read_until_end(&mut stream, b"\r\n\r\n").await? {
            return Ok(());
        }
        tokio::time::sleep(ANSWERS_AFTER).await;
        stream.write_all(ANSWER).await?;
    }
}

/// Reads a text that ends so. `false`: the other side has closed the connection.
async fn read_until_end(stream: &mut TcpStream, end: &[u8]) -> io::Result<bool> {
    let (mut text, mut length) = ([0; 512], 0);
    while !text[..length].ends_with(end) {
        match stream.read(&mut text[length..]).await? {
            0 => return Ok(false),
            read => length += read,
        }
    }
    Ok(true)
}

/// What a contestant calls the service with. It keeps its connections.
pub(crate) struct Client {
    port: u16,
    idle: Mutex<Vec<TcpStream>>,
}

impl Client {
    pub(crate) fn new(port: u16) -> Self {
        Client { port, idle: Mutex::default() }
    }

    /// Posts a message's number and waits for the answer.
    pub(crate) async fn post(&self, number: i64) -> io::Result<()> {
        let kept = self.idle.lock().expect("nobody panics while holding the connections").pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => TcpStream::connect(("127.0.0.1", self.port)).await?,
        };
        stream.write_all(format!("POST /payments/{number} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        if !read_until_end(&mut stream, b"ok").await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.idle.lock().expect("nobody panics while holding the connections").push(stream);
        Ok(())
    }
}
