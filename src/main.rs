//! The stock program: every command, and no tools of its own.

fn main() -> std::process::ExitCode {
    turnmill::App::new().main()
}
