//! Processes of a test: their output in files of its folder, shown if the test fails; killed at its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::until;

/// The ledger, in the folder of a test.
pub const LEDGER_FILE: &str = "ledger.jsonl";

#[derive(Clone, Copy)]
pub enum Program {
    Stock,
    Ledger,
}

pub struct Process {
    child: Child,
    what: String,
    out: PathBuf,
    err: PathBuf,
}

/// How a process ended; the exit code is none after a signal.
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// It ended with this exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Standard output as JSON, a value a line.
    pub fn json(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

impl Process {
    pub(super) fn spawn(program: Program, dir: &Path, variables: &[(String, String)], args: &[&str]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (dir.join(format!("{number}.out")), dir.join(format!("{number}.err")));
        let program = match program {
            Program::Stock => Path::new(env!("CARGO_BIN_EXE_turnmill")),
            Program::Ledger => ledger_program(),
        };
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            // The settings of whoever runs the tests are not ours.
            if name.to_string_lossy().starts_with("TURNMILL") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        let child = command
            .args(args)
            .arg("--config")
            .arg(dir.join("turnmill.toml"))
            .env("LEDGER", dir.join(LEDGER_FILE))
            .envs(variables.iter().cloned())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { child, what: format!("{number}: {}", args.join(" ")), out, err }
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Waits until it has logged this.
    pub fn wait_for_log(&mut self, text: &str) {
        until(&format!("{text:?} in the log of process {}", self.what), || {
            if self.log().contains(text) {
                return Some(());
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "process {} ended: {ended:?}", self.what);
            None
        });
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// `kill -9`, and it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Finished {
        let status = until(&format!("the end of process {}", self.what), || self.child.try_wait().unwrap());
        Finished {
            code: status.code(),
            stdout: fs::read_to_string(&self.out).unwrap(),
            stderr: fs::read_to_string(&self.err).unwrap(),
        }
    }

    /// SIGTERM, and its end.
    pub fn terminate(self) -> Finished {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            for path in [&self.out, &self.err] {
                let text = fs::read_to_string(path).unwrap_or_default();
                eprintln!("--- process {} {}\n{text}", self.what, path.display());
            }
        }
    }
}

/// The fixture, built if it is not as new as the rest: `cargo test --test broker` alone does not build it.
fn ledger_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let stock = Path::new(env!("CARGO_BIN_EXE_turnmill"));
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ledger.rs"));
        let program = stock.with_file_name("examples").join("ledger");
        let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
        if changed(&program) < changed(stock).max(changed(source)) {
            let profile = match stock.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
                Some("debug") | None => "dev",
                Some(name) => name,
            };
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--example", "ledger", "--profile", profile]);
            // What cargo told this test about its package would make it build dependencies again.
            for (name, _) in std::env::vars_os() {
                let name_text = name.to_string_lossy();
                if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
                    build.env_remove(&name);
                }
            }
            let built = build.status().expect("cargo runs");
            assert!(built.success(), "the fixture is not built: {built}");
        }
        program
    })
}
