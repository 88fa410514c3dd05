//! A matrix to its cells: the product of the axes, less what is excluded, plus what is included.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{AXES, axis};
use super::cell::{Cell, Revision, SourceSpec};
use super::file::{Matrix, Rule, Target};
use super::mistake::ConfigurationError;

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
        let values: Vec<(&str, &[String])> = AXES.iter().filter_map(|axis| Some((axis.name, self.axes.get(axis.name)?.as_slice()))).collect();
        let revisions: usize = self.targets.iter().map(|target| target.revisions.len()).sum();
        let size = values.iter().try_fold(revisions, |size, (_, values)| size.checked_mul(values.len())).unwrap_or(usize::MAX);
        if size > MOST_CELLS {
            return Err(self.error(&format!("it has {size} cells and at most {MOST_CELLS} are built; take values away or split it")));
        }
        let mut cells = Vec::with_capacity(size);
        for target in &self.targets {
            for revision in &target.revisions {
                for axes in combinations(&values) {
                    cells.push(blank(target, revision, axes));
                }
            }
        }
        Ok(cells)
    }

    /// The cells an `[[include]]` adds: axes it does not name take the matrix' first value.
    fn included(&self, rule: &Rule) -> Result<Vec<Cell>, ConfigurationError> {
        let mut axes: BTreeMap<String, String> = self.axes.iter().filter_map(|(name, values)| Some(((*name).to_owned(), values.first()?.clone()))).collect();
        axes.extend(rule.terms.iter().filter(|(name, _)| axis(name).is_some()).map(|(name, value)| (name.clone(), value.clone())));
        let wanted = rule.terms.get("version").map(|text| Revision::Version(text.clone()));
        let wanted = wanted.or_else(|| rule.terms.get("revision").map(|text| Revision::Commit(text.clone())));
        let mut cells = Vec::new();
        for target in self.targets.iter().filter(|target| rule.terms.get("dbms").is_none_or(|name| name == target.dbms.name())) {
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
        for axis in AXES {
            cell.axes.entry(axis.name.to_owned()).or_insert_with(|| axis.default.to_owned());
        }
        cell.patches = match cell.axis("patches") {
            "none" => Vec::new(),
            list => list.split('+').map(str::to_owned).collect(),
        };
        cell.name = self.name_of(&cell);
        Ok(cell)
    }

    /// `<dbms><version>_<build>[_lto][_<compiler>][_<patches>][_<flags>].<config>[.<run axes>]`,
    /// after `facts/builds.md` section 6.1. A run axis shows only where the matrix varies it.
    fn name_of(&self, cell: &Cell) -> String {
        let mut name = match &cell.revision {
            Revision::Version(version) => format!("{}{}_{}", cell.dbms.prefix(), version.replace('.', ""), cell.axis("build")),
            Revision::Commit(commit) => format!("{}_{}_{}", cell.dbms.prefix(), cell.axis("build"), short(commit)),
        };
        match cell.axis("lto") {
            "full" => name.push_str("_lto"),
            "thin" => name.push_str("_thinlto"),
            _ => {}
        }
        if cell.axis("compiler") != "gcc" {
            name.push('_');
            name.push_str(&cell.axis("compiler").replace('-', ""));
        }
        for patch in &cell.patches {
            name.push('_');
            name.push_str(patch);
        }
        let flags = format!("{}\n{}", cell.axis("cflags"), cell.axis("configure"));
        if flags.len() > 1 {
            name.push_str("_x");
            name.push_str(&blake3::hash(flags.as_bytes()).to_hex()[..6]);
        }
        name.push('.');
        name.push_str(cell.axis("config"));
        for (axis, mark) in [("threads", "dop"), ("tables", "tabs"), ("rows", "rows")] {
            if self.axes.get(axis).is_some_and(|values| values.len() > 1) {
                name.push_str(&format!(".{mark}{}", cell.axis(axis)));
            }
        }
        name
    }
}

fn blank(target: &Target, revision: &Revision, axes: BTreeMap<String, String>) -> Cell {
    let source = target.source.of(revision);
    Cell { name: String::new(), dbms: target.dbms, revision: revision.clone(), source, patches: Vec::new(), axes }
}

/// A commit's id as ten digits, any other name with what a file name cannot hold replaced.
fn short(commit: &str) -> String {
    let hex = commit.len() >= 10 && commit.bytes().all(|c| c.is_ascii_hexdigit());
    let text = if hex { &commit[..10] } else { commit };
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
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
        SourceSpec::Path { path } => path.display().to_string(),
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
