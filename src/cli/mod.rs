//! Arguments in, one call, rendering out: one file per subcommand.
//!
//! Takes the command line. Gives text or JSON on standard output, progress and messages on standard
//! error, and an [`Exit`] code. Never measures or decides by itself.

mod arguments;
mod bisect;
mod build;
mod cache;
mod compare;
mod doctor;
mod exit;
mod expand;
mod meta;
mod progress;
mod quickstart;
mod run;
mod shop;

pub use arguments::{Cli, without_cargo};
pub use exit::{Exit, explain};

use crate::build::CmakeCall;
use arguments::Command;

/// Sets up logging, signals and file modes.
pub fn prepare(cli: &Cli) {
    let level = match (cli.global.quiet, cli.global.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("DBISECT_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("dbisect={level}")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .with_ansi(cli.global.colour_on_stderr())
        .init();
    // Servers run under another account and must be able to read what is built here.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    if let Err(error) = crate::process::catch_interrupts() {
        tracing::warn!("Ctrl-C will end dbisect at once, without saving: {error}");
    }
}

/// Runs the command.
///
/// # Errors
/// What went wrong; [`explain`] prints it and finds the exit code.
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    let global = &cli.global;
    match &cli.command {
        Command::Quickstart(arguments) => quickstart::quickstart(global, arguments),
        Command::Doctor(arguments) => doctor::doctor(global, arguments),
        Command::Expand(arguments) => expand::expand(global, arguments),
        Command::Build(arguments) => build::build(global, arguments),
        Command::Run(arguments) => run::run(global, arguments),
        Command::Compare(arguments) => compare::compare(global, arguments),
        Command::Bisect(arguments) => bisect::bisect(global, arguments),
        Command::Cache(arguments) => cache::cache(global, arguments),
        Command::CmakeCall(arguments) => {
            let call = CmakeCall {
                source: arguments.source.clone(),
                out: arguments.out.clone(),
                options: arguments.options.clone(),
                targets: arguments.target.clone(),
            };
            call.run().map(|()| Exit::Done)
        }
        Command::Completions(arguments) => meta::completions(arguments),
        Command::Man(arguments) => meta::man(arguments),
    }
}
