//! The world outside: an HTTP server that writes down every call of a tool, with its key and arguments.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rng::Rng;

/// One run of a tool. Their order is the order in which they came.
#[derive(Debug, Clone)]
pub struct Call {
    pub key: String,
    pub tool: String,
    pub arguments: Value,
    /// What the caller was answered: another for each run.
    pub nonce: String,
    pub at: Duration,
}

impl Call {
    pub fn json(&self) -> Value {
        let Self { key, tool, arguments, nonce, at } = self;
        json!({"key": key, "tool": tool, "arguments": arguments, "nonce": nonce, "ms": at.as_millis()})
    }
}

pub struct Ledger {
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
}

struct Book {
    calls: Arc<Mutex<Vec<Call>>>,
    nonces: Mutex<Rng>,
    since: Instant,
}

impl Ledger {
    /// Listens on loopback, until the process ends.
    pub fn open(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::default();
        let book = Arc::new(Book {
            calls: Arc::clone(&calls),
            nonces: Mutex::new(Rng::new(seed)),
            since: Instant::now(),
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = Arc::clone(&book);
                // A caller that is killed in the middle of a request is no matter.
                std::thread::spawn(move || drop(book.serve(stream)));
            }
        });
        Self { address, calls }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

impl Book {
    /// One request after the other, until the caller hangs up.
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let tool = line.split(['/', ' ']).nth(2).unwrap_or_default().to_owned();
            let (mut key, mut length) = (None, 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let Some((name, value)) = line.split_once(':') else {
                    break;
                };
                match name.to_ascii_lowercase().as_str() {
                    "idempotency-key" => key = Some(value.trim().to_owned()),
                    "content-length" => length = value.trim().parse().unwrap_or(0),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let arguments = serde_json::from_slice(&body)?;
            let nonce = self.enter(key.unwrap_or_default(), tool, arguments);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{nonce}", nonce.len())?;
        }
    }

    fn enter(&self, key: String, tool: String, arguments: Value) -> String {
        let nonce = format!("{:016x}", self.nonces.lock().unwrap().next());
        let at = self.since.elapsed();
        self.calls.lock().unwrap().push(Call { key, tool, arguments, nonce: nonce.clone(), at });
        nonce
    }
}
