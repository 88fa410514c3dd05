//! What a recipe is built with, by content: the bytes of compiler, assembler, linker, archiver,
//! generators, libraries, and the text of the system's headers. Paths and file times are not part of
//! it, so the same toolchain elsewhere is the same, and an upgraded one in the same place is not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::process::Program;

use super::recipe::Tools;

/// The identity of a toolchain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// First line of the compiler's `--version`, for people.
    pub compiler: String,
    /// Part to BLAKE3 of its content. Shared libraries of the programs are parts of their own.
    pub parts: BTreeMap<String, String>,
}

/// Programs that a gcc driver calls; clang has all but the linker built in.
const GCC_PARTS: [&str; 5] = ["cc1", "lto1", "collect2", "as", "ld"];
/// Files that the compiler links into every program.
const START_FILES: [&str; 5] = ["Scrt1.o", "crti.o", "crtbeginS.o", "libgcc.a", "libgcc_s.so.1"];

impl Toolchain {
    /// Identifies the toolchain of a recipe on this machine.
    ///
    /// # Errors
    /// When a program is missing (named, with the remedy) or a file cannot be read.
    pub fn identify(tools: &Tools) -> anyhow::Result<Self> {
        let cc = find(&tools.cc)?;
        let compiler = Program::new(&cc).arg("--version").output()?.output.lines().next().unwrap_or_default().to_owned();
        let mut programs: BTreeMap<String, PathBuf> = BTreeMap::from([("cc".to_owned(), cc.clone())]);
        for name in &tools.programs {
            programs.insert(name.clone(), find(name)?);
        }
        for part in GCC_PARTS {
            if let Some(path) = asked(&cc, &format!("-print-prog-name={part}"))? {
                programs.insert(part.to_owned(), path);
            }
        }
        let mut parts = BTreeMap::new();
        for (name, path) in &programs {
            parts.insert(format!("program:{name}"), hash(path)?);
        }
        for library in shared_libraries(programs.values())? {
            let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
            parts.insert(format!("shared:{name}"), hash(&library)?);
        }
        let linked = tools.libraries.iter().map(|name| format!("lib{name}.so"));
        for name in linked.chain(START_FILES.map(str::to_owned)) {
            if let Some(path) = asked(&cc, &format!("-print-file-name={name}"))? {
                parts.insert(format!("linked:{name}"), hash(&path)?);
            }
        }
        // libc.so is a linker script; the code is in the library that it names.
        if let Some(path) = asked(&cc, "-print-file-name=libc.so.6")? {
            parts.insert("linked:libc.so.6".to_owned(), hash(&path)?);
        }
        parts.insert("headers".to_owned(), headers(&cc, &tools.headers)?);
        if tools.native {
            parts.insert("processor".to_owned(), processor(&cc)?);
        }
        Ok(Self { compiler, parts })
    }
}

/// A program by its name, past the directories in which ccache stands in for compilers.
fn find(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).filter(|dir| !dir.ends_with("ccache"));
    let path = std::env::join_paths(dirs).context("PATH has a directory that cannot be named in it")?;
    which::which_in(name, Some(path), "/")
        .with_context(|| format!("the program `{name}` is needed to build and was not found on PATH; `dbisect doctor` says which package has it"))
}

/// Where the compiler says one of its files is; `None` when it has none, in which case it repeats
/// the bare name.
fn asked(cc: &Path, question: &str) -> anyhow::Result<Option<PathBuf>> {
    let answer = Program::new(cc).arg(question).output()?.output;
    let answer = Path::new(answer.trim());
    if answer.is_absolute() {
        return Ok(answer.exists().then(|| answer.to_owned()));
    }
    let is_program = question.starts_with("-print-prog-name");
    Ok(if is_program { which::which(answer).ok() } else { None })
}

pub(super) fn hash(path: &Path) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap_rayon(path).with_context(|| format!("cannot read {} to identify the toolchain", path.display()))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Shared libraries that the programs load, as the loader itself resolves them. Scripts and static
/// programs have none.
pub(super) fn shared_libraries<'a>(programs: impl Iterator<Item = &'a PathBuf>) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for program in programs {
        // ldd fails for what is not a dynamic program, and then there is nothing to find.
        let Ok(answer) = Program::new("ldd").arg(program).output() else { continue };
        for word in answer.output.split_whitespace().filter(|word| word.starts_with('/')) {
            let path = Path::new(word);
            if path.is_file() {
                found.insert(path.to_owned());
            }
        }
    }
    Ok(found)
}

/// Text of the system's headers after preprocessing, with all macros. Line markers are left out,
/// since they hold paths.
fn headers(cc: &Path, names: &[String]) -> anyhow::Result<String> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let file = dir.path().join("headers.c");
    let text: String = names.iter().map(|name| format!("#if __has_include(<{name}>)\n#include <{name}>\n#endif\n")).collect();
    std::fs::write(&file, text).context("cannot write a temporary file")?;
    let output = Program::new(cc).args(["-E", "-P", "-dD"]).arg(&file).output()?.output;
    Ok(blake3::hash(output.as_bytes()).to_hex().to_string())
}

/// What `-march=native` means on this machine: the macros it defines and the flags it expands to.
fn processor(cc: &Path) -> anyhow::Result<String> {
    let macros = Program::new(cc).args(["-march=native", "-mtune=native", "-dM", "-E", "-x", "c", "/dev/null"]).output()?.output;
    let expanded = Program::new(cc).args(["-march=native", "-mtune=native", "-###", "-E", "-x", "c", "/dev/null"]).output()?.output;
    let flags: Vec<_> = expanded
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .filter(|word| word.starts_with("-m") || word.starts_with("--param") || word.contains("cache"))
        .collect();
    Ok(blake3::hash(format!("{macros}\n{}", flags.join(" ")).as_bytes()).to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        Tools {
            cc: "gcc".to_owned(),
            programs: vec!["make".to_owned()],
            libraries: vec!["c".to_owned(), "m".to_owned()],
            headers: vec!["stdio.h".to_owned()],
            native: false,
        }
    }

    #[test]
    fn the_same_machine_gives_the_same_identity() {
        let one = Toolchain::identify(&tools()).unwrap();
        assert_eq!(one, Toolchain::identify(&tools()).unwrap());
        for part in ["program:cc", "program:cc1", "program:ld", "program:make", "linked:libc.so.6", "headers"] {
            assert!(one.parts.contains_key(part), "{part} is missing from {:?}", one.parts.keys());
        }
    }

    #[test]
    fn headers_and_processor_are_part_of_it() {
        let plain = Toolchain::identify(&tools()).unwrap();
        let more = Toolchain::identify(&Tools { headers: vec!["stdio.h".to_owned(), "math.h".to_owned()], ..tools() }).unwrap();
        assert_ne!(plain.parts["headers"], more.parts["headers"]);
        let native = Toolchain::identify(&Tools { native: true, ..tools() }).unwrap();
        assert!(native.parts.contains_key("processor") && !plain.parts.contains_key("processor"));
    }

    #[test]
    fn a_missing_compiler_is_named() {
        let error = Toolchain::identify(&Tools { cc: "gcc-999".to_owned(), ..tools() }).unwrap_err().to_string();
        assert!(error.contains("`gcc-999`") && error.contains("doctor"), "{error}");
    }
}
