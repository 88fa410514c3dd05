//! `dbisect`: parses arguments, runs, and maps the result to an exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // `cargo dbisect run ...` starts `cargo-dbisect dbisect run ...` when installed as a subcommand.
    let arguments = dbisect::cli::without_cargo(std::env::args_os());
    let cli = dbisect::cli::Cli::parse_from(arguments);
    dbisect::cli::prepare(&cli);
    match dbisect::cli::run(&cli) {
        Ok(code) => code.into(),
        Err(error) => dbisect::cli::explain(&error).into(),
    }
}
