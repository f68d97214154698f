//! The stock program: every command, and no tools of its own.

/// A worker allocates on one thread and frees on another all the time, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    turnmill::App::new().main()
}
