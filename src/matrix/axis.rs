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
    /// Value of cells whose matrix does not mention the axis.
    pub default: &'static str,
    /// Turns what the user wrote into the one spelling that names and keys use, or says what is
    /// allowed.
    pub canonical: fn(&str) -> Result<String, String>,
}

/// Every axis.
pub const AXES: &[Axis] = &[
    Axis { name: "build", kind: AxisKind::Build, default: "def", canonical: build_configuration },
    Axis { name: "compiler", kind: AxisKind::Build, default: "gcc", canonical: compiler },
    Axis { name: "lto", kind: AxisKind::Build, default: "off", canonical: lto },
    Axis { name: "patches", kind: AxisKind::Build, default: "none", canonical: patches },
    Axis { name: "cflags", kind: AxisKind::Build, default: "", canonical: words },
    Axis { name: "configure", kind: AxisKind::Build, default: "", canonical: words },
    Axis { name: "config", kind: AxisKind::Run, default: "cx9a2a_small", canonical: file_name },
    Axis { name: "threads", kind: AxisKind::Run, default: "1", canonical: count },
    Axis { name: "tables", kind: AxisKind::Run, default: "1", canonical: count },
    Axis { name: "rows", kind: AxisKind::Run, default: "100000", canonical: count },
];

/// The axis of that name.
#[must_use]
pub fn axis(name: &str) -> Option<&'static Axis> {
    AXES.iter().find(|axis| axis.name == name)
}

/// Named build configurations of Postgres, `facts/builds.md` section 3.4.
const BUILD_CONFIGURATIONS: [&str; 5] = ["def", "o2nofp", "o3", "o3_native", "o3_native_lto"];

fn build_configuration(value: &str) -> Result<String, String> {
    if BUILD_CONFIGURATIONS.contains(&value) {
        Ok(value.to_owned())
    } else {
        Err(format!("there is no build configuration `{value}`; known are {}", BUILD_CONFIGURATIONS.join(", ")))
    }
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

/// A patch set: `none`, one patch, or several joined by `+` in the order of application.
fn patches(value: &str) -> Result<String, String> {
    let fine = |name: &str| !name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    if value == "none" || value.split('+').all(fine) {
        Ok(value.to_owned())
    } else {
        Err(format!("`{value}` is not a patch set; write none, a patch's name (small letters, digits, `_`), or several joined by `+`"))
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
