//! cmake through the `cmake` crate, in a process of its own: the crate is made for build scripts,
//! prints to the standard output and panics when something fails.

use std::path::PathBuf;

use anyhow::{Context, ensure};

/// One call of cmake: configure, or build one target after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmakeCall {
    /// Top of the source tree.
    pub source: PathBuf,
    /// Directory that holds `build`.
    pub out: PathBuf,
    /// `-DNAME=VALUE` options.
    pub options: Vec<String>,
    /// Targets to build; none means to configure only.
    pub targets: Vec<String>,
}

impl CmakeCall {
    /// Runs it. What cmake and the compiler print goes to the standard output and error.
    ///
    /// # Errors
    /// When an option is not of the form `-DNAME=VALUE`. A failure of cmake is a panic of the crate,
    /// and so ends the process with a status that is not zero.
    pub fn run(&self) -> anyhow::Result<()> {
        let options: Vec<(&str, &str)> = self
            .options
            .iter()
            .map(|option| {
                option.strip_prefix("-D").and_then(|option| option.split_once('=')).with_context(|| format!("`{option}` is not of the form -DNAME=VALUE"))
            })
            .collect::<anyhow::Result<_>>()?;
        ensure!(!options.is_empty(), "cmake needs to be told at least its build type");
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        // `help` lists the targets and builds nothing, so that only the configuration is left to do.
        let configure = ["help".to_owned()];
        for target in if self.targets.is_empty() { &configure[..] } else { &self.targets } {
            let mut config = cmake::Config::new(&self.source);
            config
                .host(&triple)
                .target(&triple)
                .out_dir(&self.out)
                .generator("Unix Makefiles")
                .no_default_flags(true)
                // The options decide; the crate only wants to know what a cargo profile would say.
                .profile(options.iter().find(|(name, _)| *name == "CMAKE_BUILD_TYPE").map_or("Release", |(_, value)| value))
                .always_configure(self.targets.is_empty())
                .build_target(target);
            for (name, value) in &options {
                config.define(name, value);
            }
            config.build();
        }
        Ok(())
    }
}
