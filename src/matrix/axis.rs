//! The axes a matrix can have. A new axis is a new row of [`AXES`] and touches no signature.

/// Whether another value needs another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisKind {
    /// Another value needs another build.
    Build,
    /// Another value needs only another run.
    Run,
}

/// One dimension of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Key in the matrix file.
    pub name: &'static str,
    /// Build or run.
    pub kind: AxisKind,
    /// Value of cells whose matrix does not mention the axis; empty where it depends on the dbms.
    pub default: &'static str,
    /// Turns what the user wrote into the one spelling that names and keys use, or says what is
    /// allowed.
    pub canonical: fn(&str) -> Result<String, String>,
}

/// Every axis.
pub const AXES: &[Axis] = &[
    Axis { name: "build", kind: AxisKind::Build, default: "", canonical: build_configuration },
    Axis { name: "compiler", kind: AxisKind::Build, default: "gcc", canonical: compiler },
    Axis { name: "lto", kind: AxisKind::Build, default: "off", canonical: lto },
    Axis { name: "patches", kind: AxisKind::Build, default: "none", canonical: patches },
    Axis { name: "rocksdb", kind: AxisKind::Build, default: "submodule", canonical: rocksdb },
    Axis { name: "march", kind: AxisKind::Build, default: "default", canonical: march },
    Axis { name: "frame_pointers", kind: AxisKind::Build, default: "default", canonical: frame_pointers },
    Axis { name: "cflags", kind: AxisKind::Build, default: "", canonical: words },
    Axis { name: "cxxflags", kind: AxisKind::Build, default: "", canonical: words },
    Axis { name: "ldflags", kind: AxisKind::Build, default: "", canonical: words },
    Axis { name: "configure", kind: AxisKind::Build, default: "", canonical: words },
    Axis { name: "cmake", kind: AxisKind::Build, default: "", canonical: cmake_options },
    Axis { name: "engine", kind: AxisKind::Run, default: "default", canonical: engine },
    Axis { name: "config", kind: AxisKind::Run, default: "", canonical: file_name },
    Axis { name: "threads", kind: AxisKind::Run, default: "1", canonical: count },
    Axis { name: "tables", kind: AxisKind::Run, default: "1", canonical: count },
    Axis { name: "rows", kind: AxisKind::Run, default: "100000", canonical: count },
];

/// The axis of that name.
#[must_use]
pub fn axis(name: &str) -> Option<&'static Axis> {
    AXES.iter().find(|axis| axis.name == name)
}

/// Whose build configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Postgres.
    Postgres,
    /// `MySQL`, FB `MySQL`, `MariaDB`.
    Mysql,
}

/// Named build configurations, `facts/builds.md` sections 3.2 to 3.4. A name with `_lto` behind it is
/// the same with the axis `lto` on. `nofp` stands for the flag's "no omit": frame pointers are kept.
pub const BUILD_CONFIGURATIONS: [(&str, Family); 14] = [
    ("def", Family::Postgres),
    ("o2nofp", Family::Postgres),
    ("o3", Family::Postgres),
    ("o3_nofp", Family::Postgres),
    ("o3_native", Family::Postgres),
    ("o3_native_nofp", Family::Postgres),
    ("rel", Family::Mysql),
    ("rel_o2", Family::Mysql),
    ("rel_o2nofp", Family::Mysql),
    ("rel_osnofp", Family::Mysql),
    ("rel_native", Family::Mysql),
    ("rel_less", Family::Mysql),
    ("rel_lessps", Family::Mysql),
    ("rel_withdbg", Family::Mysql),
];

/// What names say of servers that somebody else built; no matrix can ask for it.
pub const INSTALLED: &str = "installed";

fn build_configuration(value: &str) -> Result<String, String> {
    // The posts write o3_native_lto_nofp where the rest of the scheme would have it the other way.
    let plain = value.strip_suffix("_lto").unwrap_or(value);
    if BUILD_CONFIGURATIONS.iter().any(|(known, _)| *known == plain) {
        Ok(value.to_owned())
    } else if value == "o3_native_lto_nofp" {
        Ok("o3_native_nofp_lto".to_owned())
    } else {
        let known: Vec<_> = BUILD_CONFIGURATIONS.iter().map(|(known, _)| *known).collect();
        Err(format!("there is no build configuration `{value}`; known are {}, each also with _lto behind it", known.join(", ")))
    }
}

/// `submodule`, a released version, or a commit.
fn rocksdb(value: &str) -> Result<String, String> {
    let version = value.split('.').count() == 3 && value.split('.').all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()));
    let commit = (7..=40).contains(&value.len()) && value.bytes().all(|c| c.is_ascii_hexdigit());
    if value == "submodule" || version || commit {
        Ok(value.to_ascii_lowercase())
    } else {
        Err(format!("`{value}` is no RocksDB; write submodule, a version such as 9.3.1, or at least seven digits of a commit"))
    }
}

fn march(value: &str) -> Result<String, String> {
    if !value.is_empty() && value.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_')) {
        Ok(value.to_owned())
    } else {
        Err(format!("`{value}` is not a processor; write default, native, or a name that the compiler's -march knows, such as x86-64-v3"))
    }
}

fn frame_pointers(value: &str) -> Result<String, String> {
    match value {
        "default" | "keep" | "omit" => Ok(value.to_owned()),
        _ => Err(format!("`{value}` says nothing about frame pointers; write keep, omit, or default for what the build configuration does")),
    }
}

/// `-DNAME=VALUE` options, without what dbisect itself decides.
fn cmake_options(value: &str) -> Result<String, String> {
    for word in value.split_whitespace() {
        let name = word.strip_prefix("-D").and_then(|option| option.split_once('=')).map(|(name, _)| name.split(':').next().unwrap_or(name));
        match name {
            None | Some("") => return Err(format!("`{word}` is not a cmake option; write -DNAME=VALUE")),
            Some(name @ ("CMAKE_INSTALL_PREFIX" | "CMAKE_C_COMPILER" | "CMAKE_CXX_COMPILER" | "CMAKE_BUILD_TYPE" | "WITH_LTO")) => {
                return Err(format!("`{name}` is decided by the axes (compiler, build, lto) and the cache; take it out"));
            }
            Some(_) => {}
        }
    }
    words(value)
}

fn compiler(value: &str) -> Result<String, String> {
    let (family, version) = value.split_once('-').unwrap_or((value, "0"));
    if matches!(family, "gcc" | "clang") && !version.is_empty() && version.bytes().all(|c| c.is_ascii_digit()) {
        Ok(value.to_owned())
    } else {
        Err(format!("`{value}` is not a compiler; write gcc, clang, or one version such as gcc-12 or clang-14"))
    }
}

fn lto(value: &str) -> Result<String, String> {
    match value {
        "off" | "false" => Ok("off".to_owned()),
        "full" | "on" | "true" => Ok("full".to_owned()),
        "thin" => Ok("thin".to_owned()),
        _ => Err(format!("`{value}` is not an LTO mode; write off, full, or thin (clang only)")),
    }
}

fn engine(value: &str) -> Result<String, String> {
    match value.to_ascii_lowercase().as_str() {
        known @ ("default" | "innodb" | "rocksdb") => Ok(known.to_owned()),
        _ => Err(format!("`{value}` is not a storage engine; write innodb, rocksdb, or default for what the dbms is known for")),
    }
}

/// A patch set: `none`, one patch, or several joined by `+` in the order of application.
fn patches(value: &str) -> Result<String, String> {
    // Small letters and digits, so that names of cells can be taken apart at each `_`.
    let fine =
        |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    if value == "none" || value.split('+').all(fine) {
        Ok(value.to_owned())
    } else {
        Err(format!("`{value}` is not a patch set; write none, a patch's name (small letters, digits, `-`), or several joined by `+`"))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all canonical functions have one shape")]
fn words(value: &str) -> Result<String, String> {
    Ok(value.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn file_name(value: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if value.starts_with('c') && value.len() > 1 && value.chars().all(fine) {
        Ok(value.to_owned())
    } else {
        Err(format!("`{value}` is not a config name; they begin with c and have letters, digits, `_` and `-`, such as cx9a2a_small"))
    }
}

fn count(value: &str) -> Result<String, String> {
    match value.parse::<u64>() {
        Ok(number) if number > 0 => Ok(number.to_string()),
        _ => Err(format!("`{value}` is not a count; write a whole number above zero")),
    }
}
