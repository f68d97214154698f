//! A broker of our own, so that its restarts disturb no other test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/kafka");

pub struct Broker {
    pub address: String,
    /// Where our broker lives; none where somebody else's is used.
    home: Option<PathBuf>,
    /// Held as long as the broker is ours.
    _lock: Option<File>,
}

impl Broker {
    /// The cluster of `KAFKA_BOOTSTRAP_SERVERS`, which is never restarted, or a new broker with its data in `home`.
    pub fn up(home: &Path) -> Self {
        if let Ok(address) = std::env::var("KAFKA_BOOTSTRAP_SERVERS") {
            return Self { address, home: None, _lock: None };
        }
        fs::create_dir_all(home).unwrap();
        let lock = File::create(home.join("chaos.lock")).unwrap();
        // Another chaos test is waited for.
        lock.lock().unwrap();
        script(home, "down");
        let address = script(home, "up");
        Self { address, home: Some(home.to_owned()), _lock: Some(lock) }
    }

    /// Ends the broker and brings it up again with its data; None: it is not ours.
    pub fn restart(&self) -> Option<impl FnOnce(&str) + Send + 'static> {
        let home = self.home.clone()?;
        Some(move |signal: &str| {
            let pid = fs::read_to_string(home.join("broker.pid")).unwrap().trim().to_owned();
            crate::fleet::signal(&pid, signal);
            let deadline = Instant::now() + Duration::from_secs(60);
            while Path::new("/proc").join(&pid).exists() {
                assert!(Instant::now() < deadline, "the broker does not end");
                sleep(Duration::from_millis(50));
            }
            script(&home, "up");
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            script(home, "down");
        }
    }
}

fn script(home: &Path, command: &str) -> String {
    let log = File::options().append(true).create(true).open(home.join("script.log")).unwrap();
    let mut script = Command::new(SCRIPT);
    script.arg(command).env("KAFKA_HOME_DIR", home).stdin(Stdio::null()).stderr(log);
    let done = script.output().unwrap();
    assert!(done.status.success(), "scripts/kafka {command}: see {}", home.join("script.log").display());
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}
