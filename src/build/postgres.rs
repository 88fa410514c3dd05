//! Postgres by configure and make, options after `facts/builds.md` section 3.4.
//!
//! Only what a server needs is built: the backend, its loadable modules, initdb and two small
//! programs. psql, the other client programs, ecpg, contrib and the tests are not, so neither
//! readline nor the documentation's sources are needed.

use std::collections::BTreeMap;

use crate::matrix::{Cell, ConfigurationError};

use super::failure::CONFIGURE;
use super::flags::{Compiler, Flags};
use super::proof::Lto;
use super::recipe::{NEUTRAL_PREFIX, Place, Recipe, Step, Tools};

/// Directories that are built and installed, in this order: the backend first, since the others
/// link with what it generates.
const INSTALLED: [&str; 8] = [
    "src/backend",
    "src/backend/utils/mb/conversion_procs",
    "src/backend/snowball",
    "src/timezone",
    "src/pl/plpgsql/src",
    "src/bin/initdb",
    "src/bin/pg_controldata",
    "src/bin/pg_ctl",
];

/// Trees that no part of the build above reads.
const LEFT_OUT: [&str; 4] = ["doc/", "contrib/", "src/test/", ".github/"];

/// The one part of ecpg that configure reads: templates of generated headers.
const ECPG_TEMPLATES: &str = "src/interfaces/ecpg/include/";

/// Programs that its configure and make call, besides the compiler's. configure asks pkg-config for
/// lz4 and refuses without it, from 14 on; it is asked for always, so that doctor need not know the
/// version of a commit.
pub const PROGRAMS: [&str; 5] = ["make", "bison", "flex", "perl", "pkg-config"];

/// Whether a file can matter to the server's build.
pub fn keeps(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ecpg = path.starts_with("src/interfaces/ecpg/") && !path.starts_with(ECPG_TEMPLATES);
    let prose = name.starts_with("README") || matches!(name, "HISTORY" | "COPYRIGHT" | "INSTALL");
    let translation = std::path::Path::new(name).extension().is_some_and(|extension| extension == "po");
    let meta = matches!(name, ".gitignore" | ".gitattributes" | ".git-blame-ignore-revs" | ".editorconfig" | ".dir-locals.el" | ".cirrus.yml");
    !(ecpg || prose || translation || meta || LEFT_OUT.iter().any(|tree| path.starts_with(tree)))
}

/// The recipe of one cell.
pub fn recipe(cell: &Cell, version: &str) -> Result<Recipe, ConfigurationError> {
    let major = major(version)
        .ok_or_else(|| ConfigurationError::new(format!("the tree of {} says that it is Postgres `{version}`, and 10 or later is wanted", cell.name)))?;
    let compiler = Compiler::of(cell.axis("compiler"));
    let flags = Flags::of(cell, Some(if cell.axis("build").starts_with("o3") { "-O3" } else { "-O2" }));
    let mut steps = vec![Step { name: CONFIGURE.to_owned(), argv: configure(cell, major, &compiler, &flags), place: Place::Build, refuses: None }];
    if major >= 11 {
        // The target exists since 11; without it a parallel make below src/backend compiles files
        // before the headers they include have been generated.
        steps.push(make("compile", "src/backend", &["generated-headers"]));
    }
    // The backend's makefile asks for these libraries to be made beside it, and a parallel make may
    // look for one before it is there.
    steps.extend(["src/port", "src/common", "src/backend"].map(|dir| make("compile", dir, &["all"])));
    steps.extend(INSTALLED.iter().map(|dir| make("install", dir, &["install", "DESTDIR={stage}"])));
    Ok(Recipe {
        steps,
        env: BTreeMap::from([("LC_ALL".to_owned(), "C".to_owned()), ("TZ".to_owned(), "UTC".to_owned()), ("SOURCE_DATE_EPOCH".to_owned(), "0".to_owned())]),
        tools: tools(major, &compiler, &flags),
        proof: flags.proof(&compiler, "bin/postgres"),
        archives: Vec::new(),
        compiled: ["src/backend", "src/common", "src/port", "src/timezone"].map(str::to_owned).to_vec(),
    })
}

/// The leading number of a version such as `16.3`, `17beta1` or `18devel`; `None` before 10, when
/// two numbers made a major version.
fn major(version: &str) -> Option<u32> {
    let digits = version.find(|c: char| !c.is_ascii_digit()).map_or(version, |end| &version[..end]);
    digits.parse().ok().filter(|major| *major >= 10)
}

fn make(name: &str, dir: &str, targets: &[&str]) -> Step {
    let mut argv = vec!["make".to_owned(), "-C".to_owned(), dir.to_owned()];
    argv.extend(targets.iter().map(|target| (*target).to_owned()));
    Step { name: name.to_owned(), argv, place: Place::Build, refuses: None }
}

fn configure(cell: &Cell, major: u32, compiler: &Compiler, flags: &Flags) -> Vec<String> {
    let mut argv = vec!["{src}/configure".to_owned(), format!("--prefix={NEUTRAL_PREFIX}"), "--enable-debug".to_owned(), "--without-readline".to_owned()];
    if major >= 14 {
        argv.push("--with-lz4".to_owned());
    }
    if major >= 16 {
        // On by default since 16; sysbench's tables use the C locale, so it would never be called.
        argv.push("--without-icu".to_owned());
    }
    argv.push(format!("CC={}", compiler.cc));
    let level = flags.level.map(str::to_owned);
    let lto = flags.lto_flag(compiler).map(str::to_owned);
    let words: Vec<_> = level.into_iter().chain(flags.code()).chain(lto).chain(flags.closing(compiler, false)).collect();
    argv.push(format!("CFLAGS={}", words.join(" ")));
    let link = flags.link(compiler);
    if !link.is_empty() {
        argv.push(format!("LDFLAGS={link}"));
    }
    if flags.lto != Lto::Off {
        argv.push(format!("AR={}", compiler.archiver()));
    }
    argv.extend(cell.axis("configure").split(' ').filter(|option| !option.is_empty()).map(str::to_owned));
    argv
}

fn tools(major: u32, compiler: &Compiler, flags: &Flags) -> Tools {
    let mut programs = PROGRAMS.map(str::to_owned).to_vec();
    programs.push(if flags.lto == Lto::Off { "ar".to_owned() } else { compiler.archiver() });
    if compiler.clang && flags.lto != Lto::Off {
        programs.push("ld.lld".to_owned());
    }
    let mut libraries = ["c", "m", "z"].map(str::to_owned).to_vec();
    let mut headers = [
        "stdio.h",
        "stdlib.h",
        "string.h",
        "math.h",
        "errno.h",
        "unistd.h",
        "sys/types.h",
        "sys/socket.h",
        "sys/mman.h",
        "netdb.h",
        "pwd.h",
        "time.h",
        "zlib.h",
    ]
    .map(str::to_owned)
    .to_vec();
    if major >= 14 {
        libraries.push("lz4".to_owned());
        headers.push("lz4.h".to_owned());
    }
    Tools { cc: compiler.cc.clone(), programs, libraries, headers, native: flags.is_native() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    fn argv(axes: &str, version: &str) -> Vec<String> {
        let text = format!("[[target]]\ndbms = \"postgres\"\nversions = [\"{version}\"]\nsource = \"git\"\n[build]\n{axes}");
        let cells = Matrix::parse(&text, std::path::Path::new("t.toml"), &[]).unwrap().cells().unwrap();
        recipe(&cells[0], version).unwrap().steps[0].argv.clone()
    }

    const MAP: &str = super::super::flags::PREFIX_MAP;

    #[test]
    fn named_configurations_have_the_flags_of_the_posts() {
        let cflags = |axes: &str| argv(axes, "16.3").into_iter().find_map(|arg| arg.strip_prefix("CFLAGS=").map(str::to_owned)).unwrap();
        assert_eq!(cflags("build = \"def\""), format!("-O2 {MAP}"));
        assert_eq!(cflags("build = \"o2nofp\""), format!("-O2 -fno-omit-frame-pointer {MAP}"));
        assert_eq!(cflags("build = \"o3_native\""), format!("-O3 -march=native -mtune=native {MAP}"));
        assert_eq!(cflags("build = \"o3_native_lto\""), format!("-O3 -march=native -mtune=native -flto {MAP}"));
        assert_eq!(cflags("compiler = \"clang-14\"\nlto = \"thin\""), format!("-O2 -flto=thin -grecord-command-line {MAP}"));
    }

    #[test]
    fn options_follow_the_version() {
        let has = |version: &str, option: &str| argv("build = \"def\"", version).iter().any(|arg| arg == option);
        assert!(!has("13.15", "--with-lz4") && has("14.12", "--with-lz4"));
        assert!(!has("15.7", "--without-icu") && has("16.3", "--without-icu") && has("17beta1", "--without-icu"));
    }

    #[test]
    fn lto_links_with_an_archiver_that_reads_intermediate_code() {
        let gcc = argv("lto = \"full\"\ncompiler = \"gcc-12\"", "16.3");
        assert!(gcc.contains(&"AR=gcc-ar-12".to_owned()) && gcc.contains(&"LDFLAGS=-flto=auto".to_owned()), "{gcc:?}");
        let clang = argv("lto = \"full\"\ncompiler = \"clang\"", "16.3");
        assert!(clang.contains(&"AR=llvm-ar".to_owned()) && clang.contains(&"LDFLAGS=-flto=full -fuse-ld=lld".to_owned()), "{clang:?}");
        assert!(!argv("lto = \"off\"", "16.3").iter().any(|arg| arg.starts_with("AR=") || arg.starts_with("LDFLAGS=")));
    }

    #[test]
    fn versions_before_ten_are_refused() {
        assert_eq!((major("17beta1"), major("18devel"), major("10.23"), major("9.6.24"), major("")), (Some(17), Some(18), Some(10), None, None));
    }

    #[test]
    fn what_the_build_does_not_read_is_left_out() {
        for path in [
            "doc/src/sgml/ref/select.sgml",
            "contrib/bloom/blutils.c",
            "src/test/regress/sql/join.sql",
            "src/backend/access/nbtree/README",
            "src/backend/po/de.po",
            "src/interfaces/ecpg/preproc/ecpg.c",
        ] {
            assert!(!keeps(path), "{path}");
        }
        for path in [
            "configure",
            "src/backend/executor/execMain.c",
            "src/include/c.h",
            "src/interfaces/ecpg/include/ecpg_config.h.in",
            "src/backend/po/LINGUAS",
            "src/timezone/data/tzdata.zi",
        ] {
            assert!(keeps(path), "{path}");
        }
    }
}
