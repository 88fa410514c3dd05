//! `dbisect completions` and `dbisect man`.

use clap::CommandFactory;

use crate::matrix::ConfigurationError;

use super::arguments::{Cli, Completions, Man};
use super::exit::Exit;

#[expect(clippy::unnecessary_wraps, reason = "all commands have one shape")]
pub fn completions(arguments: &Completions) -> anyhow::Result<Exit> {
    clap_complete::generate(arguments.shell, &mut Cli::command(), "dbisect", &mut std::io::stdout().lock());
    Ok(Exit::Done)
}

pub fn man(arguments: &Man) -> anyhow::Result<Exit> {
    let mut command = Cli::command();
    command.build();
    let page = match &arguments.command {
        None => command,
        Some(name) => command.find_subcommand(name).cloned().ok_or_else(|| ConfigurationError::new(format!("there is no command `{name}`")))?,
    };
    clap_mangen::Man::new(page).render(&mut std::io::stdout().lock())?;
    Ok(Exit::Done)
}
