//! The `mainstay` binary.

/// Work is many small allocations on many threads, which glibc's allocator makes wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    mainstay_cli::run()
}
