//! What building and running a set of cells needs from the machine, and what of it is missing.

use std::path::Path;

use crate::matrix::{Cell, Dbms, SourceSpec, StorageEngine};
use crate::process::Program;

use super::flags::Compiler;
use super::installed::server_programs;
use super::{mysql, postgres};

/// One thing that must be there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A program on PATH.
    Program(String),
    /// A C header.
    Header(String),
    /// A file of a server that somebody else is to install.
    File(String),
    /// A program that only makes things faster.
    Helpful(String),
}

impl Need {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Program(name) | Self::Header(name) | Self::File(name) | Self::Helpful(name) => name,
        }
    }
}

/// What the cells need, each once.
#[must_use]
pub fn needs(cells: &[Cell]) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut add = |need: Need| {
        if !needs.contains(&need) {
            needs.push(need);
        }
    };
    for cell in cells {
        add(Need::Program("sysbench".to_owned()));
        if let SourceSpec::Installed { prefix } = &cell.source {
            installed(cell, prefix).into_iter().for_each(&mut add);
            continue;
        }
        let compiler = cell.axis("compiler");
        add(Need::Program(compiler.to_owned()));
        let (programs, headers): (&[&str], &[&str]) = match cell.dbms {
            Dbms::Postgres => (&postgres::PROGRAMS, &["stdio.h", "zlib.h", "lz4.h"]),
            Dbms::Mysql => (&mysql::PROGRAMS, &["stdio.h", "libaio.h", "curses.h", "openssl/ssl.h", "numa.h"]),
            Dbms::Myrocks => (&mysql::PROGRAMS, &["stdio.h", "libaio.h", "curses.h", "openssl/ssl.h", "numa.h", "lz4.h", "zstd.h", "snappy-c.h"]),
            Dbms::Mariadb => (&mysql::PROGRAMS, &["stdio.h", "libaio.h", "curses.h", "openssl/ssl.h", "zlib.h", "lz4.h", "zstd.h", "snappy-c.h"]),
        };
        for program in programs {
            add(Need::Program((*program).to_owned()));
        }
        for header in headers {
            add(Need::Header((*header).to_owned()));
        }
        if cell.dbms != Dbms::Postgres {
            add(Need::Program(Compiler::of(compiler).cxx));
        }
        if compiler.starts_with("clang") && cell.axis("lto") != "off" {
            let suffix = compiler.strip_prefix("clang").unwrap_or_default();
            add(Need::Program(format!("llvm-ar{suffix}")));
            add(Need::Program("ld.lld".to_owned()));
        }
        match &cell.source {
            SourceSpec::Git { .. } => add(Need::Program("git".to_owned())),
            SourceSpec::Debian { .. } => add(Need::Program("apt-get".to_owned())),
            SourceSpec::Path { .. } | SourceSpec::Installed { .. } => {}
        }
        add(Need::Helpful("ccache".to_owned()));
    }
    needs
}

/// Files of an installed server: its program, and MariaDB's plugin where the engine needs it.
fn installed(cell: &Cell, prefix: &Path) -> Vec<Need> {
    let programs = server_programs(cell.dbms);
    let program = programs.iter().find(|name| prefix.join(name).exists());
    // Distributions have MariaDB's server in sbin.
    let program = program.or(programs.get(1)).or(programs.first());
    let plugin = (cell.dbms == Dbms::Mariadb && cell.storage_engine() == Some(StorageEngine::Rocksdb)).then_some("lib/mysql/plugin/ha_rocksdb.so");
    program.copied().into_iter().chain(plugin).map(|name| Need::File(prefix.join(name).display().to_string())).collect()
}

/// Those that are not there.
#[must_use]
pub fn missing(needs: &[Need]) -> Vec<Need> {
    let there = |need: &Need| match need {
        Need::Program(name) | Need::Helpful(name) => which::which(name).is_ok(),
        Need::Header(name) => has_header(name),
        Need::File(name) => Path::new(name).exists(),
    };
    needs.iter().filter(|need| !there(need)).cloned().collect()
}

/// Asks a compiler for the header; without one, looks where headers usually are.
fn has_header(name: &str) -> bool {
    let Some(compiler) = ["cc", "gcc", "clang"].into_iter().find(|name| which::which(name).is_ok()) else {
        return Path::new("/usr/include").join(name).exists();
    };
    Program::new(compiler).args(["-E", "-x", "c", "-include", name, "/dev/null"]).output().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    fn of(axes: &str, source: &str) -> Vec<String> {
        let text = format!("[[target]]\ndbms = \"postgres\"\nversions = [\"15\"]\nsource = \"{source}\"\n[build]\n{axes}");
        let cells = Matrix::parse(&text, Path::new("t.toml"), &[]).unwrap().cells().unwrap();
        needs(&cells).iter().map(|need| need.name().to_owned()).collect()
    }

    #[test]
    fn needs_follow_source_compiler_and_lto() {
        let plain = of("", "debian");
        assert!(plain.contains(&"apt-get".to_owned()) && plain.contains(&"zlib.h".to_owned()) && !plain.contains(&"git".to_owned()));
        let clang = of("compiler = \"clang-14\"\nlto = \"thin\"", "git");
        for wanted in ["clang-14", "llvm-ar-14", "ld.lld", "git"] {
            assert!(clang.contains(&wanted.to_owned()), "{wanted} is missing from {clang:?}");
        }
    }

    #[test]
    fn an_installed_server_needs_its_files_and_no_compiler() {
        let text =
            "[[target]]\ndbms = \"mariadb\"\nversions = [\"10.11\"]\nsource = { kind = \"installed\", prefix = \"/no/such\" }\n[run]\nengine = \"rocksdb\"";
        let cells = Matrix::parse(text, Path::new("t.toml"), &[]).unwrap().cells().unwrap();
        let names: Vec<_> = needs(&cells).iter().map(|need| need.name().to_owned()).collect();
        assert_eq!(names, ["sysbench", "/no/such/sbin/mariadbd", "/no/such/lib/mysql/plugin/ha_rocksdb.so"]);
    }

    #[test]
    fn what_is_missing_is_found() {
        let needs = [
            Need::Program("no-such-program".to_owned()),
            Need::Header("no/such.h".to_owned()),
            Need::Program("sh".to_owned()),
            Need::Header("stdio.h".to_owned()),
        ];
        assert_eq!(missing(&needs), needs[..2]);
    }
}
