//! A cell's compiler and flags, the same for every dbms.

use crate::matrix::Cell;

use super::proof::{Lto, Proof};

/// Where paths of the workspace are mapped to in debug information and messages, so that the same
/// inputs give the same bytes in another workspace.
pub const PREFIX_MAP: &str = "-ffile-prefix-map={work}=/usr/src/dbisect";

/// A compiler and the programs that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// C compiler as called.
    pub cc: String,
    /// C++ compiler as called.
    pub cxx: String,
    /// clang rather than gcc.
    pub clang: bool,
    suffix: String,
}

impl Compiler {
    /// From the value of the axis: `gcc`, `clang-14`, or a path that ends in such a name.
    pub fn of(axis: &str) -> Self {
        let (dir, name) = axis.rsplit_once('/').map_or((String::new(), axis), |(dir, name)| (format!("{dir}/"), name));
        let suffix = name.split_once('-').map_or_else(String::new, |(_, version)| format!("-{version}"));
        let clang = name.starts_with("clang");
        let cxx = format!("{dir}{}{suffix}", if clang { "clang++" } else { "g++" });
        Self { cc: axis.to_owned(), cxx, clang, suffix }
    }

    /// `ar` cannot index objects that hold only intermediate code, unless its plugin is found; the
    /// compilers' own wrapper finds it.
    pub fn archiver(&self) -> String {
        format!("{}{}", if self.clang { "llvm-ar" } else { "gcc-ar" }, self.suffix)
    }

    /// As [`Self::archiver`].
    pub fn ranlib(&self) -> String {
        format!("{}{}", if self.clang { "llvm-ranlib" } else { "gcc-ranlib" }, self.suffix)
    }
}

/// Flags that the cell asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Optimisation level; `None` leaves it to the build system.
    pub level: Option<&'static str>,
    /// Processor to generate code for; `None` is any of this architecture.
    pub march: Option<String>,
    /// Frame pointers kept or omitted; `None` leaves it to the build system.
    pub frame_pointers: Option<bool>,
    /// Link-time optimisation.
    pub lto: Lto,
    /// The user's own flags, for C, for C++ and for linking.
    pub own: [String; 3],
}

impl Flags {
    /// Reads the axes. The named build configuration gives the level; `native` and `nofp` in its name
    /// are defaults that the axes `march` and `frame_pointers` overrule.
    pub fn of(cell: &Cell, level: Option<&'static str>) -> Self {
        let build = cell.axis("build");
        let march = match cell.axis("march") {
            "default" => build.contains("native").then(|| "native".to_owned()),
            named => Some(named.to_owned()),
        };
        let frame_pointers = match cell.axis("frame_pointers") {
            "keep" => Some(true),
            "omit" => Some(false),
            _ => build.ends_with("nofp").then_some(true),
        };
        let lto = match cell.axis("lto") {
            "full" => Lto::Full,
            "thin" => Lto::Thin,
            _ => Lto::Off,
        };
        Self { level, march, frame_pointers, lto, own: ["cflags", "cxxflags", "ldflags"].map(|axis| cell.axis(axis).to_owned()) }
    }

    /// Words common to C and C++, without level and LTO, which build systems spell in their own ways.
    pub fn code(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(march) = &self.march {
            words.push(format!("-march={march}"));
            if march == "native" {
                words.push("-mtune=native".to_owned());
            }
        }
        words.extend(self.frame_pointers.map(|keep| if keep { "-fno-omit-frame-pointer" } else { "-fomit-frame-pointer" }.to_owned()));
        words
    }

    /// What closes every list of flags: clang's record, the user's own flags, the mapped path.
    pub fn closing(&self, compiler: &Compiler, cxx: bool) -> Vec<String> {
        // Unlike gcc, clang records its flags in the debug information only when asked to.
        let record = compiler.clang.then(|| "-grecord-command-line".to_owned());
        let own = [&self.own[0], &self.own[1]].into_iter().take(if cxx { 2 } else { 1 }).filter(|own| !own.is_empty()).cloned();
        record.into_iter().chain(own).chain([PREFIX_MAP.to_owned()]).collect()
    }

    /// The flag that makes the compiler emit intermediate code.
    pub fn lto_flag(&self, compiler: &Compiler) -> Option<&'static str> {
        match (self.lto, compiler.clang) {
            (Lto::Off, _) => None,
            (Lto::Full, true) => Some("-flto=full"),
            (Lto::Full, false) => Some("-flto"),
            (Lto::Thin, _) => Some("-flto=thin"),
        }
    }

    /// Flags for linking; empty when there are none.
    pub fn link(&self, compiler: &Compiler) -> String {
        // GNU ld has no plugin for clang's bitcode on most distributions; lld reads it by itself.
        let lto = self.lto_flag(compiler).map(|flag| if compiler.clang { format!("{flag} -fuse-ld=lld") } else { "-flto=auto".to_owned() });
        lto.into_iter().chain(Some(self.own[2].clone()).filter(|own| !own.is_empty())).collect::<Vec<_>>().join(" ")
    }

    /// Whether code is generated for the processor of this machine.
    pub fn is_native(&self) -> bool {
        self.march.as_deref() == Some("native") || self.own.iter().any(|own| own.contains("=native"))
    }

    /// What the installed server must show.
    pub fn proof(&self, compiler: &Compiler, binary: &str) -> Proof {
        // Flags of the user's own may contradict the named configuration on purpose.
        let own = |flag: &str| self.own.iter().any(|own| own.split(' ').any(|word| word.starts_with(flag)));
        Proof {
            binary: binary.to_owned(),
            clang: compiler.clang,
            level: self.level.filter(|_| !own("-O")).map(str::to_owned),
            march: (!own("-march")).then(|| self.march.clone()),
            frame_pointers: self.frame_pointers.filter(|_| !own("-fomit") && !own("-fno-omit")),
            lto: self.lto,
        }
    }
}
