//! A Redis server of a test.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A server that keeps nothing on disk; killed when it is dropped.
pub struct Redis {
    port: u16,
    child: Option<Child>,
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Redis {
    /// On a port of its own.
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut redis = Self { port, child: None };
        redis.again();
        redis
    }

    /// Started again, with nothing in it, on the same port.
    pub fn again(&mut self) {
        let mut child = Command::new(program())
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.any(|line| line.unwrap().contains("Ready to accept connections"));
        assert!(ready, "Redis ended at once");
        // What it says from here on would otherwise stop it.
        std::thread::spawn(move || said.for_each(drop));
        self.child = Some(child);
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops it without an end: it answers nothing, and nobody hears of it.
    pub fn freeze(&self, frozen: bool) {
        let child = self.child.as_ref().unwrap();
        let signal = if frozen { "STOP" } else { "CONT" };
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn ask<T: ::redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = ::redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        let (name, arguments) = words.split_first().unwrap();
        ::redis::cmd(name).arg(arguments).query(&mut connection).unwrap()
    }

    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.sort();
        keys
    }
}

/// Where the server is; it may have to be fetched.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/redis");
        let found = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
        assert!(found.status.success(), "scripts/redis failed");
        String::from_utf8(found.stdout).unwrap().trim().to_owned()
    })
}
