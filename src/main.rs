//! The `leafgate` program: arguments to exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(leafgate::cli::run(std::env::args_os()))
}
