//! A Redis server of a test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A server that keeps nothing on disk; killed when it is dropped.
pub struct Redis {
    port: u16,
    /// What it is started with beside its port.
    options: Vec<String>,
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
        Self::with("--port", &[])
    }

    /// The same behind TLS, as 127.0.0.1; who is to trust it finds its authority in `ca.pem` of the folder.
    pub fn with_tls(folder: &Path) -> Self {
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        fs::write(file("ca.pem"), authority.pem()).unwrap();
        fs::write(file("redis.pem"), names.signed_by(&key, &authority).unwrap().pem()).unwrap();
        fs::write(file("redis.key"), key.serialize_pem()).unwrap();
        let files = [("cert", "redis.pem"), ("key", "redis.key"), ("ca-cert", "ca.pem")];
        let mut options = ["--port", "0", "--tls-auth-clients", "no"].map(String::from).to_vec();
        options.extend(files.into_iter().flat_map(|(what, name)| [format!("--tls-{what}-file"), file(name)]));
        Self::with("--tls-port", &options)
    }

    fn with(port_option: &str, options: &[String]) -> Self {
        let common = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(String::from);
        let options = [&common, options, &[port_option.to_owned()]].concat();
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut redis = Self { port, options: options.clone(), child: None };
            // Somebody else may have taken the port since.
            if redis.is_up() {
                return redis;
            }
        }
    }

    /// Started again, with nothing in it, on the same port.
    pub fn again(&mut self) {
        assert!(self.is_up(), "Redis ended at once");
    }

    fn is_up(&mut self) -> bool {
        let mut command = Command::new(program());
        command.args(&self.options).arg(self.port.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        self.child = Some(child);
        let ready = said.any(|line| line.unwrap().contains("Ready to accept connections"));
        // What it says from here on would otherwise stop it.
        std::thread::spawn(move || said.for_each(drop));
        ready
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
