//! The MySQL family by cmake and make, options after `facts/builds.md` sections 3.1 to 3.3.
//!
//! Only what a server needs is built: the server, its message files, the two small programs that the
//! scripts of older versions call, and the component without which newer ones do not start. The
//! client programs, tests, router, X plugin and embedded server are not.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::matrix::{Cell, ConfigurationError, Dbms};
use crate::source::Archive;

use super::failure::CONFIGURE;
use super::flags::{Compiler, Flags};
use super::proof::Lto;
use super::recipe::{DBISECT, NEUTRAL_PREFIX, Place, ReadFile, Recipe, Step, Tools};

/// Programs that its cmake and make call, besides the compiler's.
pub const PROGRAMS: [&str; 5] = ["cmake", "make", "bison", "perl", "pkg-config"];

/// Trees that no part of the build reads.
const LEFT_OUT: [&str; 9] =
    ["mysql-test/", "Docs/", "man/", "debian/", "rocksdb/java/", "rocksdb/docs/", "storage/rocksdb/rocksdb/java/", "storage/rocksdb/rocksdb/docs/", ".github/"];

/// Whether a file can matter to the server's build.
pub fn keeps(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let prose = name.starts_with("README") || matches!(name, "CONTRIBUTING.md" | ".gitignore" | ".gitattributes" | ".clang-format");
    // cmake visits the test directory and stops when its lists and its own few files are not there.
    let list =
        name == "CMakeLists.txt" || path.strip_prefix("mysql-test/").is_some_and(|inner| !inner.contains('/') || inner.starts_with("lib/My/SafeProcess/"));
    list || !(prose || LEFT_OUT.iter().any(|tree| path.starts_with(tree)))
}

/// A version as its three numbers.
type Version = (u32, u32, u32);

fn numbers(version: &str) -> Option<Version> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

/// The recipe of one cell.
pub fn recipe(cell: &Cell, version: &str, read: &ReadFile) -> anyhow::Result<Recipe> {
    let numbers = numbers(version).ok_or_else(|| {
        ConfigurationError::new(format!("the tree of {} says that it is {} `{version}`, and three numbers such as 8.0.37 are wanted", cell.name, cell.dbms))
    })?;
    if cell.dbms != Dbms::Mariadb && numbers < (5, 6, 0) {
        return Err(ConfigurationError::new(format!("the tree of {} is version {version}, and 5.6 or later is wanted", cell.name)).into());
    }
    if matches!(cell.axis("build"), "rel_less" | "rel_lessps") && (cell.dbms == Dbms::Mariadb || numbers < (8, 0, 0)) {
        return Err(ConfigurationError::new(format!(
            "the cell {} asks for {} of {} {version}, which only MySQL 8.0 and later have; exclude the pair",
            cell.name,
            cell.axis("build"),
            cell.dbms
        ))
        .into());
    }
    let compiler = Compiler::of(cell.axis("compiler"));
    let series = Series { cell, version: numbers, compiler: &compiler, flags: Flags::of(cell, level(cell)) };
    let options = series.options(read)?;
    let mut steps = vec![series.cmake(CONFIGURE, &options, &[])];
    steps.push(series.cmake("compile", &options, &series.targets()));
    steps.extend(series.install());
    let binary = if cell.dbms == Dbms::Mariadb { "bin/mariadbd" } else { "bin/mysqld" };
    let proof = series.flags.proof(&compiler, binary);
    Ok(Recipe {
        steps,
        env: BTreeMap::from([
            ("LC_ALL".to_owned(), "C".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
            ("SOURCE_DATE_EPOCH".to_owned(), "0".to_owned()),
            ("DESTDIR".to_owned(), "{stage}".to_owned()),
        ]),
        tools: series.tools(),
        proof,
        archives: series.boost(read)?.into_iter().collect(),
        compiled: ["sql", "storage/innobase", "storage/rocksdb", "rocksdb", "mysys", "strings", "vio"].map(str::to_owned).to_vec(),
    })
}

fn level(cell: &Cell) -> Option<&'static str> {
    match cell.axis("build") {
        "rel_o2" | "rel_o2nofp" => Some("-O2"),
        "rel_osnofp" => Some("-Os"),
        _ => None,
    }
}

/// One cell of the family, with what its options depend on.
struct Series<'a> {
    cell: &'a Cell,
    version: Version,
    compiler: &'a Compiler,
    flags: Flags,
}

impl Series<'_> {
    fn cmake(&self, name: &str, options: &[String], targets: &[&str]) -> Step {
        let mut argv = vec![DBISECT.to_owned(), "cmake-call".to_owned(), "--source={src}".to_owned(), "--out={work}".to_owned()];
        argv.extend(targets.iter().map(|target| format!("--target={target}")));
        argv.push("--".to_owned());
        argv.extend(options.iter().cloned());
        // cmake only warns of options that the tree does not know, and then a build is not what it says.
        let refuses = (name == CONFIGURE).then(|| "Manually-specified variables were not used by the project".to_owned());
        Step { name: name.to_owned(), argv, place: Place::Work, refuses }
    }

    fn is_before(&self, version: Version) -> bool {
        self.cell.dbms != Dbms::Mariadb && self.version < version
    }

    fn options(&self, read: &ReadFile) -> anyhow::Result<Vec<String>> {
        let build = self.cell.axis("build");
        let build_type = if build == "rel_withdbg" { "RelWithDebInfo" } else { "Release" };
        let mut options: BTreeMap<String, String> = BTreeMap::new();
        let mut set = |name: &str, value: &str| drop(options.insert(name.to_owned(), value.to_owned()));
        set("CMAKE_BUILD_TYPE", build_type);
        set("CMAKE_INSTALL_PREFIX", NEUTRAL_PREFIX);
        set("CMAKE_C_COMPILER", &self.compiler.cc);
        set("CMAKE_CXX_COMPILER", &self.compiler.cxx);
        set("CMAKE_C_FLAGS", &self.compile(false));
        set("CMAKE_CXX_FLAGS", &self.compile(true));
        if let Some(level) = self.flags.level {
            set("CMAKE_C_FLAGS_RELEASE", &format!("{level} -DNDEBUG"));
            set("CMAKE_CXX_FLAGS_RELEASE", &format!("{level} -DNDEBUG"));
        }
        set("WITH_UNIT_TESTS", "OFF");
        set("MYSQL_MAINTAINER_MODE", if self.cell.dbms == Dbms::Mariadb { "OFF" } else { "0" });
        set("ENABLED_LOCAL_INFILE", "1");
        if self.cell.dbms == Dbms::Mariadb {
            for name in ["CONNECT", "MROONGA", "OQGRAPH", "SPHINX", "SPIDER", "COLUMNSTORE", "S3"] {
                set(&format!("PLUGIN_{name}"), "NO");
            }
            set("WITH_WSREP", "OFF");
            set("WITH_SSL", "system");
            set("WITH_ZLIB", "system");
            set("WITH_PCRE", "auto");
            set("WITH_DBUG_TRACE", "OFF");
        } else {
            self.mysql_options(read, &mut set)?;
        }
        if self.flags.lto != Lto::Off {
            // Only the tree's own switch where it has one, so that rel and rel_lto differ in it alone.
            if self.has_lto_switch() {
                set("WITH_LTO", "ON");
            }
            set("CMAKE_AR", &format!("/usr/bin/{}", self.compiler.archiver()));
            set("CMAKE_RANLIB", &format!("/usr/bin/{}", self.compiler.ranlib()));
        }
        let link = self.link();
        if !link.is_empty() {
            for kind in ["EXE", "SHARED", "MODULE"] {
                set(&format!("CMAKE_{kind}_LINKER_FLAGS"), &link);
            }
        }
        for own in self.cell.axis("cmake").split(' ').filter_map(|word| word.strip_prefix("-D")?.split_once('=')) {
            set(own.0, own.1);
        }
        Ok(options.iter().map(|(name, value)| format!("-D{name}={value}")).collect())
    }

    fn mysql_options(&self, read: &ReadFile, set: &mut dyn FnMut(&str, &str)) -> anyhow::Result<()> {
        let build = self.cell.axis("build");
        set("WITH_ZLIB", "bundled");
        set("WITH_SSL", &self.tls(read)?);
        if self.is_before((5, 7, 0)) {
            set("WITH_EMBEDDED_SERVER", "0");
            set("ENABLE_DTRACE", "0");
            if self.cell.dbms == Dbms::Mysql {
                set("WITH_PERFSCHEMA_STORAGE_ENGINE", "0");
            }
        } else {
            set("WITH_NUMA", "ON");
            if let Some(boost) = self.boost(read)? {
                set("WITH_BOOST", &format!("{{work}}/archives/{}", boost.name));
            }
        }
        if self.is_before((8, 0, 0)) {
            self.facebook_options(set);
            return Ok(());
        }
        set("WITH_ROUTER", "OFF");
        set("WITH_MYSQLX", "OFF");
        // Later trees do not know it any more, although the posts went on giving it.
        if self.is_before((8, 0, 12)) {
            set("WITH_RAPID", "OFF");
        }
        match build {
            "rel_less" if self.is_before((8, 0, 39)) => set("ENABLED_PROFILING", "OFF"),
            "rel_less" => {
                for (name, value) in [("OPTIMIZER_TRACE", "OFF"), ("WITH_CLIENT_PROTOCOL_TRACING", "OFF")] {
                    set(name, value);
                }
                for engine in ["ARCHIVE", "BLACKHOLE", "CSV", "MRG_MYISAM"] {
                    set(&format!("WITH_{engine}_STORAGE_ENGINE"), "0");
                }
            }
            "rel_lessps" => {
                for instrument in INSTRUMENTS {
                    set(&format!("DISABLE_PSI_{instrument}"), "1");
                }
                set("DISABLE_TLS_CHANNEL", "1");
                set("ENABLED_PROFILING", "0");
            }
            _ => {}
        }
        self.facebook_options(set);
        Ok(())
    }

    /// Compression libraries of FB MySQL; the posts leave them out of the portable builds, but
    /// RocksDB's bottommost level is compressed with LZ4, so here all builds have them.
    fn facebook_options(&self, set: &mut dyn FnMut(&str, &str)) {
        if self.cell.dbms == Dbms::Myrocks {
            set("WITH_LZ4", "system");
            set("WITH_ZSTD", "system");
            set("WITH_SNAPPY", "/usr/lib/x86_64-linux-gnu");
        }
    }

    /// Which TLS library: the bundled one where the tree has it, else the system's; TLS is never used
    /// in a measurement, so it does not influence results.
    fn tls(&self, read: &ReadFile) -> anyhow::Result<String> {
        if read("extra/yassl/CMakeLists.txt")?.is_some() {
            return Ok("bundled".to_owned());
        }
        let own = self.cell.axis("cmake").contains("-DWITH_SSL=");
        if self.cell.dbms == Dbms::Mysql && self.is_before((8, 0, 30)) && !own {
            let (major, minor, patch) = self.version;
            return Err(ConfigurationError::new(format!(
                "MySQL {major}.{minor}.{patch} builds with OpenSSL {} only, and systems have 3 today; build one into a prefix of its own and name it: cmake = \"-DWITH_SSL=/that/prefix\"",
                if self.is_before((8, 0, 4)) && !self.is_before((8, 0, 0)) || self.version < (5, 6, 46) { "1.0.2" } else { "1.1.1" }
            ))
            .into());
        }
        Ok("system".to_owned())
    }

    /// The archive with boost, unless the tree or the user has one.
    fn boost(&self, read: &ReadFile) -> anyhow::Result<Option<Archive>> {
        let own = self.cell.axis("cmake").contains("-DWITH_BOOST=");
        if own || self.cell.dbms == Dbms::Mariadb || self.is_before((5, 7, 0)) { Ok(None) } else { boost(read) }
    }

    fn has_lto_switch(&self) -> bool {
        !self.is_before((8, 0, 0)) && self.cell.dbms != Dbms::Mariadb
    }

    fn compile(&self, cxx: bool) -> String {
        let mut words = Vec::new();
        if self.is_before((5, 7, 0)) && self.cell.dbms == Dbms::Mysql {
            // Written before C++11: literals run into macros, and tentative definitions are repeated.
            words.extend(if cxx { ["-std=gnu++98", "-fpermissive"].map(str::to_owned).to_vec() } else { vec!["-fcommon".to_owned()] });
            words.push("-w".to_owned());
        }
        // The trees' Release builds have no debug information, and without it nothing could be proved.
        if self.cell.axis("build") != "rel_withdbg" {
            words.push("-g1".to_owned());
        }
        words.extend(self.flags.code());
        if self.cell.dbms == Dbms::Myrocks && self.is_before((8, 0, 0)) {
            words.push("-DNDEBUG".to_owned());
        }
        if !self.has_lto_switch() {
            words.extend(self.flags.lto_flag(self.compiler).map(str::to_owned));
        }
        words.extend(self.flags.closing(self.compiler, cxx));
        words.join(" ")
    }

    fn link(&self) -> String {
        let flags = if self.has_lto_switch() { Flags { lto: Lto::Off, ..self.flags.clone() } } else { self.flags.clone() };
        flags.link(self.compiler)
    }

    fn targets(&self) -> Vec<&'static str> {
        match self.cell.dbms {
            Dbms::Mariadb => vec!["mariadbd", "mariadb-tzinfo-to-sql", "my_print_defaults", "resolveip", "rocksdb"],
            _ if self.is_before((5, 7, 0)) => vec!["mysqld", "my_print_defaults", "resolveip"],
            _ if self.is_before((8, 0, 23)) => vec!["mysqld"],
            _ => vec!["mysqld", "component_reference_cache"],
        }
    }

    /// Steps that put the few files into place. The trees' own `install` wants everything built.
    fn install(&self) -> Vec<Step> {
        let step = |argv: Vec<String>| Step { name: "install".to_owned(), argv, place: Place::Work, refuses: None };
        let file = |from: &str, to: &str, mode: &str| {
            step(vec![
                "install".to_owned(),
                "-D".to_owned(),
                format!("--mode={mode}"),
                format!("{{work}}/build/{from}"),
                format!("{{stage}}{NEUTRAL_PREFIX}/{to}"),
            ])
        };
        let subtree = |dir: &str| step(vec!["cmake".to_owned(), "--install".to_owned(), format!("{{work}}/build/{dir}")]);
        let mut steps = Vec::new();
        match self.cell.dbms {
            Dbms::Mariadb => {
                steps.push(file("sql/mariadbd", "bin/mariadbd", "755"));
                steps.push(file("storage/rocksdb/ha_rocksdb.so", "lib/plugin/ha_rocksdb.so", "755"));
                steps.extend(["my_print_defaults", "resolveip"].map(|name| file(&format!("extra/{name}"), &format!("bin/{name}"), "755")));
                steps.extend(["sql/share", "scripts"].map(subtree));
            }
            _ if self.is_before((5, 7, 0)) => {
                steps.push(file("sql/mysqld", "bin/mysqld", "755"));
                // The script that makes data directories looks for it.
                steps.push(file("support-files/my-default.cnf", "share/my-default.cnf", "644"));
                steps.extend(["my_print_defaults", "resolveip"].map(|name| file(&format!("extra/{name}"), &format!("bin/{name}"), "755")));
                steps.extend(["sql/share", "scripts"].map(subtree));
            }
            _ => {
                let program = if self.is_before((8, 0, 0)) { "sql/mysqld" } else { "runtime_output_directory/mysqld" };
                steps.push(file(program, "bin/mysqld", "755"));
                if !self.is_before((8, 0, 23)) {
                    steps.push(file("plugin_output_directory/component_reference_cache.so", "lib/plugin/component_reference_cache.so", "755"));
                }
                steps.push(subtree(if self.is_before((8, 0, 0)) { "sql/share" } else { "share" }));
            }
        }
        steps
    }

    fn tools(&self) -> Tools {
        let mut programs = PROGRAMS.map(str::to_owned).to_vec();
        programs.push(self.compiler.cxx.clone());
        programs.push(if self.flags.lto == Lto::Off { "ar".to_owned() } else { self.compiler.archiver() });
        if self.compiler.clang && self.flags.lto != Lto::Off {
            programs.push("ld.lld".to_owned());
        }
        let mut libraries = ["c", "m", "stdc++", "aio", "crypt", "ssl", "crypto"].map(str::to_owned).to_vec();
        let mut headers = ["stdio.h", "stdlib.h", "string.h", "math.h", "unistd.h", "sys/mman.h", "netdb.h", "time.h", "libaio.h", "openssl/ssl.h", "curses.h"]
            .map(str::to_owned)
            .to_vec();
        if !self.is_before((5, 7, 0)) && self.cell.dbms != Dbms::Mariadb {
            libraries.push("numa".to_owned());
            headers.push("numa.h".to_owned());
        }
        if self.cell.dbms == Dbms::Mariadb {
            libraries.push("z".to_owned());
            headers.push("zlib.h".to_owned());
        }
        if self.cell.dbms != Dbms::Mysql {
            libraries.extend(["lz4", "zstd", "snappy"].map(str::to_owned));
            headers.extend(["lz4.h", "zstd.h", "snappy-c.h"].map(str::to_owned));
        }
        Tools { cc: self.compiler.cc.clone(), programs, libraries, headers, native: self.flags.is_native() }
    }
}

/// Instruments of the performance schema that `rel_lessps` compiles out.
const INSTRUMENTS: [&str; 19] = [
    "COND",
    "DATA_LOCK",
    "ERROR",
    "FILE",
    "IDLE",
    "MEMORY",
    "METADATA",
    "MUTEX",
    "PS",
    "RWLOCK",
    "SERVER_TELEMETRY_TRACES",
    "SOCKET",
    "SP",
    "STAGE",
    "STATEMENT",
    "STATEMENT_DIGEST",
    "TABLE",
    "THREAD",
    "TRANSACTION",
];

/// The boost that a tree wants, unless it holds one itself, as trees do since 8.1. The check of the
/// trees is for the exact version; the hashes are those that boost.org publishes.
fn boost(read: &ReadFile) -> anyhow::Result<Option<Archive>> {
    let Some(text) = read("cmake/boost.cmake")? else { return Ok(None) };
    if text.contains("extra/boost") || text.contains("BUNDLED_BOOST") {
        return Ok(None);
    }
    let name = boost_name(&text).context("cmake/boost.cmake does not say which boost it wants (BOOST_PACKAGE_NAME)")?;
    let (_, sha256) = BOOSTS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known: Vec<_> = BOOSTS.iter().map(|(known, _)| *known).collect();
        ConfigurationError::new(format!(
            "the tree wants {name}, whose hash dbisect does not know (known: {}); unpack it yourself and name it: cmake = \"-DWITH_BOOST=/that/directory\"",
            known.join(", ")
        ))
    })?;
    let version = name.trim_start_matches("boost_").replace('_', ".");
    Ok(Some(Archive {
        name: name.to_owned(),
        file: format!("{name}.tar.bz2"),
        sha256: (*sha256).to_owned(),
        url: format!("https://archives.boost.io/release/{version}/source/{name}.tar.bz2"),
        part: "boost/".to_owned(),
    }))
}

/// Versions that trees from 5.7 to 8.0 want, and the SHA-256 of their `.tar.bz2`.
const BOOSTS: [(&str, &str); 4] = [
    ("boost_1_59_0", "727a932322d94287b62abb1bd2d41723eec4356a7728909e38adb65ca25241ca"),
    ("boost_1_72_0", "59c9b274bc451cf91a9ba1dd2c7fdcaf5d60b1b3aa83f2c9fa143417cc660722"),
    ("boost_1_73_0", "4eb3b8d442b426dc35346235c8733b5ae35ba431690e38c6a8263dce9fcbb402"),
    ("boost_1_77_0", "fc9f85fc030e233142908241af7a846e60630aa7388de9a5fafb1f3a26840854"),
];

/// `boost_1_77_0` from `SET(BOOST_PACKAGE_NAME "boost_1_77_0")`.
fn boost_name(text: &str) -> Option<&str> {
    let rest = &text[text.find("BOOST_PACKAGE_NAME \"")? + "BOOST_PACKAGE_NAME \"".len()..];
    rest.split_once('"').map(|(name, _)| name).filter(|name| name.starts_with("boost_"))
}

#[cfg(test)]
mod tests;
