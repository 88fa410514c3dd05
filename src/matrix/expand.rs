//! A matrix to its cells: the product of the axes, less what is excluded, plus what is included.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{AXES, AxisKind, BUILD_CONFIGURATIONS, Family, INSTALLED, axis};
use super::cell::{Cell, Dbms, Revision, SourceSpec, StorageEngine};
use super::file::{Matrix, Rule, Target};
use super::mistake::ConfigurationError;
use super::name::Name;

/// Most cells a matrix may have. The largest published study has a few hundred; beyond this a
/// slip of the keyboard is far more likely than a plan.
const MOST_CELLS: usize = 10_000;

impl Matrix {
    /// The cells in the order of the file: targets, then revisions, then axes, the last one fastest.
    ///
    /// # Errors
    /// [`ConfigurationError`] for rules that match nothing, values that contradict each other, and
    /// names that are not distinct.
    pub fn cells(&self) -> Result<Vec<Cell>, ConfigurationError> {
        let mut cells = self.product()?;
        for rule in &self.exclude {
            let before = cells.len();
            cells.retain(|cell| !matches(rule, cell));
            if cells.len() == before {
                return Err(self.error(&format!("{} matches no cell, so it excludes nothing; check its values: {}", rule.place, terms(rule))));
            }
        }
        for rule in &self.include {
            let added = self.included(rule)?;
            cells.extend(added);
        }
        let cells = cells.into_iter().map(|cell| self.finish(cell)).collect::<Result<Vec<_>, _>>()?;
        let cells = distinct(cells).map_err(|sentence| self.error(&sentence))?;
        if cells.is_empty() {
            return Err(self.error("every cell is excluded, so there is nothing to build"));
        }
        Ok(cells)
    }

    /// A cell for another revision of the same target and the same axes: `bisect` walks along these.
    ///
    /// # Errors
    /// As [`Self::cells`].
    pub fn cell_at(&self, cell: &Cell, revision: Revision) -> Result<Cell, ConfigurationError> {
        self.finish(Cell { revision, ..cell.clone() })
    }

    fn error(&self, sentence: &str) -> ConfigurationError {
        ConfigurationError::new(format!("the matrix file {}: {sentence}", self.path.display()))
    }

    fn product(&self) -> Result<Vec<Cell>, ConfigurationError> {
        let size = self.targets.iter().fold(0_usize, |sum, target| {
            let size = self.values(target).iter().try_fold(target.revisions.len(), |size, (_, values)| size.checked_mul(values.len()));
            sum.saturating_add(size.unwrap_or(usize::MAX))
        });
        if size > MOST_CELLS {
            return Err(self.error(&format!("it has {size} cells and at most {MOST_CELLS} are built; take values away or split it")));
        }
        let mut cells = Vec::with_capacity(size);
        for target in &self.targets {
            for revision in &target.revisions {
                for axes in combinations(&self.values(target)) {
                    cells.push(blank(target, revision, axes));
                }
            }
        }
        Ok(cells)
    }

    /// Values of the axes of one target: its own, else the matrix'.
    fn values<'m>(&'m self, target: &'m Target) -> Vec<(&'static str, &'m [String])> {
        let of = |name| target.axes.get(name).or_else(|| self.axes.get(name));
        AXES.iter().filter_map(|axis| Some((axis.name, of(axis.name)?.as_slice()))).collect()
    }

    /// The cells an `[[include]]` adds: axes it does not name take the matrix' first value.
    fn included(&self, rule: &Rule) -> Result<Vec<Cell>, ConfigurationError> {
        let wanted = rule.terms.get("version").map(|text| Revision::Version(text.clone()));
        let wanted = wanted.or_else(|| rule.terms.get("revision").map(|text| Revision::Commit(text.clone())));
        let mut cells = Vec::new();
        for target in self.targets.iter().filter(|target| rule.terms.get("dbms").is_none_or(|name| name == target.dbms.name())) {
            let mut axes: BTreeMap<String, String> =
                self.values(target).into_iter().filter_map(|(name, values)| Some((name.to_owned(), values.first()?.clone()))).collect();
            axes.extend(rule.terms.iter().filter(|(name, _)| axis(name).is_some()).map(|(name, value)| (name.clone(), value.clone())));
            let revisions = wanted.clone().map_or_else(|| target.revisions.clone(), |revision| vec![revision]);
            cells.extend(revisions.iter().map(|revision| blank(target, revision, axes.clone())));
        }
        if cells.is_empty() {
            return Err(self.error(&format!("{} names a dbms that no [[target]] has: {}", rule.place, terms(rule))));
        }
        Ok(cells)
    }

    /// Resolves values that imply others, refuses contradictions, and gives the cell its name.
    fn finish(&self, mut cell: Cell) -> Result<Cell, ConfigurationError> {
        if let Some(base) = cell.axis("build").strip_suffix("_lto").map(str::to_owned) {
            if cell.axes.get("lto").is_some_and(|lto| lto == "off") {
                return Err(
                    self.error(&format!("build = \"{base}_lto\" with lto = \"off\" contradict each other; write build = \"{base}\" or exclude the pair"))
                );
            }
            cell.axes.insert("build".to_owned(), base);
            cell.axes.entry("lto".to_owned()).or_insert_with(|| "full".to_owned());
        }
        if cell.axis("lto") == "thin" && !cell.axis("compiler").starts_with("clang") {
            return Err(self.error(&format!(
                "thin LTO needs clang, and a cell has compiler = \"{}\" with lto = \"thin\"; add [[exclude]] with these two values",
                cell.axis("compiler")
            )));
        }
        let family = if cell.dbms == Dbms::Postgres { Family::Postgres } else { Family::Mysql };
        let mut default = |name: &str, value: &str| {
            let entry = cell.axes.entry(name.to_owned()).or_default();
            if entry.is_empty() {
                value.clone_into(entry);
            }
        };
        default("build", if family == Family::Postgres { "def" } else { "rel" });
        for axis in AXES.iter().filter(|axis| !axis.default.is_empty()) {
            default(axis.name, axis.default);
        }
        let config = match (cell.dbms, cell.storage_engine()) {
            (Dbms::Postgres, _) => "cx9a2a_small",
            (_, Some(StorageEngine::Rocksdb)) => "cza1_small",
            _ => "cz11a_small",
        };
        cell.axes.entry("config".to_owned()).or_insert_with(|| config.to_owned());
        for axis in AXES {
            cell.axes.entry(axis.name.to_owned()).or_default();
        }
        self.agree(&cell, family)?;
        if matches!(cell.source, SourceSpec::Installed { .. }) {
            cell.axes.insert("build".to_owned(), INSTALLED.to_owned());
        }
        cell.patches = match cell.axis("patches") {
            "none" => Vec::new(),
            list => list.split('+').map(str::to_owned).collect(),
        };
        cell.name = self.name_of(&cell).to_string();
        Ok(cell)
    }

    /// Refuses values that the cell's dbms or source cannot have.
    fn agree(&self, cell: &Cell, family: Family) -> Result<(), ConfigurationError> {
        let refuse = |sentence: String| Err(self.error(&sentence));
        let build = cell.axis("build");
        if BUILD_CONFIGURATIONS.iter().any(|(name, of)| *name == build && *of != family) {
            let known: Vec<_> = BUILD_CONFIGURATIONS.iter().filter(|(_, of)| *of == family).map(|(name, _)| *name).collect();
            return refuse(format!("`{build}` is not a build configuration of {}; it has {}", cell.dbms, known.join(", ")));
        }
        if cell.dbms == Dbms::Postgres && cell.axis("engine") != "default" {
            return refuse("postgres has one storage engine; take `engine` out of its target, or give the axis to the other targets only".to_owned());
        }
        if cell.dbms == Dbms::Mysql && cell.axis("engine") == "rocksdb" {
            return refuse("upstream MySQL has no RocksDB; use dbms = \"myrocks\" or \"mariadb\"".to_owned());
        }
        if cell.dbms != Dbms::Myrocks && cell.axis("rocksdb") != "submodule" {
            return refuse(format!("`rocksdb` replaces the submodule of FB MySQL, and {} has none; take it out", cell.dbms));
        }
        let unused = if family == Family::Postgres { "cmake" } else { "configure" };
        if !cell.axis(unused).is_empty() {
            return refuse(format!("{} is not built with {unused}, so its options in the axis `{unused}` would do nothing", cell.dbms));
        }
        let changed =
            AXES.iter().filter(|axis| axis.kind == AxisKind::Build && !matches!(axis.name, "build")).find(|axis| cell.axis(axis.name) != axis.default);
        match (&cell.source, changed) {
            (SourceSpec::Installed { prefix }, Some(axis)) => {
                refuse(format!("the server in {} is built already, so `{}` = \"{}\" cannot be asked of it", prefix.display(), axis.name, cell.axis(axis.name)))
            }
            _ => Ok(()),
        }
    }

    /// The cell's name; a run axis shows only where the matrix varies it.
    fn name_of(&self, cell: &Cell) -> Name {
        let varies = |axis: &str| {
            let own = self.targets.iter().filter_map(|target| target.axes.get(axis));
            own.chain(self.axes.get(axis)).any(|values| values.len() > 1)
        };
        let mut marks = Vec::new();
        if cell.axis("engine") != "default" {
            marks.push(cell.axis("engine").to_owned());
        }
        for (axis, mark) in [("threads", "dop"), ("tables", "tabs"), ("rows", "rows")] {
            if varies(axis) {
                marks.push(format!("{mark}{}", cell.axis(axis)));
            }
        }
        let (version, commit) = match &cell.revision {
            Revision::Version(version) => (version.clone(), None),
            Revision::Commit(commit) => (cell.release.clone().unwrap_or_default(), Some(Name::commit_mark(commit))),
        };
        let free = ["march", "frame_pointers", "cflags", "cxxflags", "ldflags", "configure", "cmake"];
        let flags: Vec<_> = free
            .iter()
            .filter(|name| axis(name).is_some_and(|axis| axis.default != cell.axis(name)))
            .map(|name| format!("{name}={}", cell.axis(name)))
            .collect();
        Name {
            dbms: cell.dbms,
            version,
            build: cell.axis("build").to_owned(),
            lto: Some(cell.axis("lto")).filter(|lto| *lto != "off").unwrap_or_default().to_owned(),
            compiler: Some(cell.axis("compiler")).filter(|compiler| *compiler != "gcc").unwrap_or_default().replace('-', ""),
            date: cell.date.clone(),
            commit,
            rocksdb: Some(cell.axis("rocksdb")).filter(|rocksdb| *rocksdb != "submodule").map(Name::rocksdb_mark),
            patches: cell.patches.clone(),
            flags: (!flags.is_empty()).then(|| blake3::hash(flags.join("\n").as_bytes()).to_hex()[..6].to_owned()),
            config: cell.axis("config").to_owned(),
            marks,
        }
    }
}

fn blank(target: &Target, revision: &Revision, axes: BTreeMap<String, String>) -> Cell {
    Cell {
        name: String::new(),
        dbms: target.dbms,
        revision: revision.clone(),
        source: target.source.of(target.dbms, revision),
        release: target.release.clone(),
        date: target.date.clone(),
        patches: Vec::new(),
        axes,
    }
}

fn combinations(values: &[(&str, &[String])]) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    for (name, values) in values {
        all = all
            .into_iter()
            .flat_map(|partial: BTreeMap<String, String>| {
                values.iter().map(move |value| {
                    let mut next = partial.clone();
                    next.insert((*name).to_owned(), value.clone());
                    next
                })
            })
            .collect();
    }
    all
}

fn matches(rule: &Rule, cell: &Cell) -> bool {
    rule.terms.iter().all(|(key, wanted)| match key.as_str() {
        "dbms" => cell.dbms.name() == wanted,
        "version" => matches!(&cell.revision, Revision::Version(text) if text == wanted),
        "revision" => matches!(&cell.revision, Revision::Commit(text) if text == wanted),
        name => cell.axis(name) == wanted,
    })
}

fn terms(rule: &Rule) -> String {
    rule.terms.iter().map(|(key, value)| format!("{key} = \"{value}\"")).collect::<Vec<_>>().join(", ")
}

/// Drops repeated cells; refuses different cells with one name.
fn distinct(cells: Vec<Cell>) -> Result<Vec<Cell>, String> {
    let mut kept: Vec<Cell> = Vec::with_capacity(cells.len());
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for cell in cells {
        match seen.get(&cell.name) {
            None => {
                seen.insert(cell.name.clone(), kept.len());
                kept.push(cell);
            }
            Some(index) if kept[*index] == cell => {}
            Some(index) => {
                let other = &kept[*index];
                return Err(format!("two different cells are both named {}: {} and {}", cell.name, describe(other), describe(&cell)));
            }
        }
    }
    Ok(kept)
}

fn describe(cell: &Cell) -> String {
    let source = match &cell.source {
        SourceSpec::Git { remote } => remote.clone().unwrap_or_else(|| "git".to_owned()),
        SourceSpec::Debian { package, .. } => package.clone(),
        SourceSpec::Path { path } | SourceSpec::Installed { prefix: path } => path.display().to_string(),
    };
    format!("{} {} from {source}", cell.dbms, cell.revision)
}

/// Pairs of cells that differ in one axis only: the first of a pair has the axis' base value, which
/// is `base` or else the value of the first cell.
///
/// # Errors
/// [`ConfigurationError`] when the axis does not exist or the cells do not vary in it.
pub fn pairs_along<'c>(cells: &'c [Cell], along: &str, base: Option<&str>) -> Result<Vec<(&'c Cell, &'c Cell)>, ConfigurationError> {
    let Some(found) = axis(along) else {
        let known = AXES.iter().map(|axis| axis.name).collect::<Vec<_>>().join(", ");
        return Err(ConfigurationError::new(format!("there is no axis `{along}` (known: {known})")));
    };
    let values: BTreeSet<&str> = cells.iter().map(|cell| cell.axis(found.name)).collect();
    let Some(first) = base.or_else(|| cells.first().map(|cell| cell.axis(found.name))) else { return Ok(Vec::new()) };
    if values.len() < 2 || !values.contains(first) {
        let values = values.into_iter().collect::<Vec<_>>().join(", ");
        return Err(ConfigurationError::new(format!("the recorded cells do not vary in `{along}` (they have: {values}), so there is nothing to pair")));
    }
    let mut pairs = Vec::new();
    for one in cells.iter().filter(|cell| cell.axis(found.name) == first) {
        pairs.extend(cells.iter().filter(|other| other.axis(found.name) != first && same_but(one, other, found.name)).map(|other| (one, other)));
    }
    Ok(pairs)
}

fn same_but(one: &Cell, other: &Cell, along: &str) -> bool {
    let rest = |cell: &Cell| AXES.iter().filter(|axis| axis.name != along).map(|axis| cell.axis(axis.name).to_owned()).collect::<Vec<_>>();
    one.dbms == other.dbms && one.revision == other.revision && one.source == other.source && rest(one) == rest(other)
}
