//! The `mainstay` binary.

fn main() -> std::process::ExitCode {
    mainstay_cli::run()
}
