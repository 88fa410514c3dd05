//! A bare mirror in the cache: fetched by the git program, read with libgit2.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use git2::{Oid, Repository};

use crate::matrix::{ConfigurationError, Dbms, Revision};
use crate::process::{Held, Program};

use super::history::{self, History};
use super::sources::Environment;
use super::submodule;
use super::tree::{SourceTree, open, open_or_make};

/// Longest time a fetch may take: the largest of these repositories have some gigabytes.
const FETCH_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// A remote and its mirror.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// Whose versions its tags are; `None` for a submodule.
    dbms: Option<Dbms>,
    remote: String,
    store: PathBuf,
}

/// Where the upstream of a dbms publishes its history.
const fn upstream(dbms: Dbms) -> &'static str {
    match dbms {
        Dbms::Mysql => "https://github.com/mysql/mysql-server",
        Dbms::Myrocks => "https://github.com/facebook/mysql-5.6",
        Dbms::Mariadb => "https://github.com/MariaDB/server",
        Dbms::Postgres => "https://git.postgresql.org/git/postgresql.git",
    }
}

impl Mirror {
    /// The mirror of a dbms' remote: the environment's, else the matrix', else the upstream.
    pub fn new(cache: &Path, dbms: Dbms, remote: Option<&str>, environment: &Environment) -> Self {
        Self::at(cache, Some(dbms), dbms.name(), environment.mirror(dbms.name()).or(remote).unwrap_or_else(|| upstream(dbms)))
    }

    /// The mirror of a submodule's remote: the environment's, else the one given.
    pub fn of_submodule(cache: &Path, name: &str, remote: &str, environment: &Environment) -> Self {
        Self::at(cache, None, name, environment.mirror(name).unwrap_or(remote))
    }

    fn at(cache: &Path, dbms: Option<Dbms>, name: &str, remote: &str) -> Self {
        let remote = remote.to_owned();
        // A local path means the same directory from wherever it is named.
        let remote = std::fs::canonicalize(&remote).map_or(remote, |path| path.to_string_lossy().into_owned());
        let digest = blake3::hash(remote.as_bytes()).to_hex();
        let store = cache.join("git").join(format!("{name}-{}.git", &digest[..8]));
        Self { dbms, remote, store }
    }

    /// Where it is fetched from.
    pub fn remote(&self) -> &str {
        &self.remote
    }

    /// Its git directory.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// A commit by its id, branch or tag, without asking the remote.
    pub fn commit(&self, name: &str) -> anyhow::Result<Resolved> {
        resolve_commit(&open_or_make(&self.store)?, name)
    }

    /// Version that a commit of RocksDB says it is.
    pub fn rocksdb_version(&self, commit: Oid) -> anyhow::Result<Option<String>> {
        submodule::rocksdb_version(&open(&self.store)?, commit)
    }

    /// The tree of a revision if the mirror has it.
    pub fn locate(&self, revision: &Revision) -> anyhow::Result<Option<SourceTree>> {
        if !self.store.join("HEAD").exists() {
            return Ok(None);
        }
        let repository = open(&self.store)?;
        match self.resolve(&repository, revision)? {
            Resolved::Commit(id) => self.tree(&repository, revision, id).map(Some),
            Resolved::Absent(_) => Ok(None),
        }
    }

    /// The tree of a revision, after a fetch when the mirror lacks it or it may have moved.
    pub fn obtain(&self, revision: &Revision, refresh: bool, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
        let repository = open_or_make(&self.store)?;
        let mut found = self.resolve(&repository, revision)?;
        if refresh || matches!(found, Resolved::Absent(_)) {
            self.fetch(say)?;
            found = self.resolve(&repository, revision)?;
        }
        match found {
            Resolved::Commit(id) => self.tree(&repository, revision, id),
            Resolved::Absent(sentence) => Err(ConfigurationError::new(format!("{sentence} in {}", self.remote)).into()),
        }
    }

    /// The commits between two revisions.
    pub fn history(&self, good: &str, bad: &str, refresh: bool, say: &dyn Fn(&str)) -> anyhow::Result<History> {
        let repository = open_or_make(&self.store)?;
        let mut fetched = false;
        let mut end = |text: &str| -> anyhow::Result<Oid> {
            let revision = self.guess(text)?;
            let mut found = self.resolve(&repository, &revision)?;
            if !fetched && (refresh || matches!(found, Resolved::Absent(_))) {
                self.fetch(say)?;
                fetched = true;
                found = self.resolve(&repository, &revision)?;
            }
            match found {
                Resolved::Commit(id) => Ok(id),
                Resolved::Absent(sentence) => Err(ConfigurationError::new(format!("{sentence} in {}", self.remote)).into()),
            }
        };
        let (good_id, bad_id) = (end(good)?, end(bad)?);
        history::between(&repository, (good, good_id), (bad, bad_id))
    }

    /// Fetches all branches and tags.
    pub fn fetch(&self, say: &dyn Fn(&str)) -> anyhow::Result<()> {
        let lock = self.store.with_extension("lock");
        let _held = Held::take(&lock, &format!("fetching {}", self.remote), &|holder| say(&format!("waiting for {}", holder.0)))?;
        say(&format!("fetching {}", self.remote));
        let mut git = Program::new("git")
            .args(["-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "fetch.unpackLimit=1", "--git-dir"])
            .arg(&self.store)
            .args(["fetch", "--no-write-fetch-head", "--force", "--quiet", "--"])
            .arg(&self.remote)
            .args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
            .env("GIT_TERMINAL_PROMPT", "0")
            .deadline(FETCH_LIMIT);
        // Inherited variables such as GIT_DIR would point git at another repository.
        for name in
            ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_COMMON_DIR"]
        {
            git = git.without_env(name);
        }
        git.output()
            .with_context(|| format!("cannot fetch {}; a local mirror can be named in the matrix (remote) or in DBISECT_MIRROR_<DBMS>", self.remote))?;
        Ok(())
    }

    /// A word of the command line as a revision: what looks like a version and is no commit id is one.
    fn guess(&self, text: &str) -> Result<Revision, ConfigurationError> {
        let plausible = !text.is_empty() && text.len() <= 200 && !text.starts_with('-') && text.chars().all(|c| c.is_ascii_graphic()) && !text.contains("..");
        if !plausible {
            return Err(ConfigurationError::new(format!("`{text}` is neither a version nor the name of a commit")));
        }
        let version = text.contains('.') || text.contains("beta") || text.contains("rc") || text.len() <= 3;
        Ok(if version && self.tag_of(text).is_some() { Revision::Version(text.to_owned()) } else { Revision::Commit(text.to_owned()) })
    }

    /// The tag of a released version; `None` when it is no version of this dbms.
    fn tag_of(&self, version: &str) -> Option<String> {
        match self.dbms? {
            Dbms::Postgres => tag_of(version),
            Dbms::Mysql => dotted(version).then(|| format!("mysql-{version}")),
            Dbms::Mariadb => dotted(version).then(|| format!("mariadb-{version}")),
            Dbms::Myrocks => None,
        }
    }

    fn resolve(&self, repository: &Repository, revision: &Revision) -> anyhow::Result<Resolved> {
        match (revision, self.dbms) {
            (Revision::Commit(text), _) => resolve_commit(repository, text),
            (Revision::Version(version), Some(Dbms::Postgres)) => resolve_version(repository, version),
            (Revision::Version(version), dbms) => {
                let name = dbms.map_or("a submodule", Dbms::name);
                let tag = self.tag_of(version).ok_or_else(|| {
                    let hint = if dbms == Some(Dbms::Myrocks) {
                        "FB MySQL has no releases; write revisions = [\"59f03d5a\"] with release = \"8.0.32\""
                    } else {
                        "a commit, branch or tag goes into `revisions`"
                    };
                    ConfigurationError::new(format!("`{version}` is not a released version of {name}; {hint}"))
                })?;
                match repository.find_reference(&format!("refs/tags/{tag}")) {
                    Ok(reference) => Ok(Resolved::Commit(reference.peel_to_commit()?.id())),
                    Err(_) => Ok(Resolved::Absent(format!("there is no tag {tag}{}", near_tags(repository, &tag)))),
                }
            }
        }
    }

    fn tree(&self, repository: &Repository, revision: &Revision, id: Oid) -> anyhow::Result<SourceTree> {
        let commit = repository.find_commit(id)?;
        let tree = commit.tree()?;
        let mut submodules = std::collections::BTreeMap::new();
        tree.walk(git2::TreeWalkMode::PreOrder, |dir, entry| {
            if entry.kind() == Some(git2::ObjectType::Commit) {
                let name = String::from_utf8_lossy(entry.name_bytes());
                submodules.insert(format!("{}{name}", dir), entry.id().to_string());
            }
            git2::TreeWalkResult::Ok
        })?;
        let version = match revision {
            Revision::Version(version) => Some(version.clone()),
            Revision::Commit(_) => None,
        };
        Ok(SourceTree {
            store: self.store.clone(),
            tree: tree.id().to_string(),
            commit: Some(id.to_string()),
            version,
            described: format!("{revision} ({}) of {}", &id.to_string()[..12], self.remote),
            patches: Vec::new(),
            submodules,
        })
    }
}

/// What a mirror knows of a revision.
pub enum Resolved {
    /// Here.
    Commit(Oid),
    /// Not here; the sentence says what was looked for and what is near it.
    Absent(String),
}

/// Three numbers with dots between them.
fn dotted(version: &str) -> bool {
    version.split('.').count() == 3 && version.split('.').all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()))
}

/// Tags of the same series, for a message.
fn near_tags(repository: &Repository, tag: &str) -> String {
    let series = tag.rsplit_once('.').map_or(tag, |(series, _)| series);
    let names = repository.tag_names(Some(&format!("{series}.*"))).ok();
    let mut near: Vec<String> = names.iter().flat_map(|names| names.iter()).flatten().flatten().map(str::to_owned).collect();
    near.sort_by_key(|name| minor(name));
    if near.is_empty() { String::new() } else { format!(" (there are: {})", near.join(", ")) }
}

/// Postgres' tag of a version: `16.3` is `REL_16_3`, `17beta1` is `REL_17_BETA1`, `9.6.24` is
/// `REL9_6_24`. `None` when it is no version.
fn tag_of(version: &str) -> Option<String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    for (word, mark) in [("beta", "BETA"), ("rc", "RC")] {
        if let Some((major, number)) = version.split_once(word) {
            return (digits(major) && digits(number)).then(|| format!("REL_{major}_{mark}{number}"));
        }
    }
    let parts: Vec<_> = version.split('.').collect();
    if !parts.iter().all(|part| digits(part)) {
        return None;
    }
    match parts.as_slice() {
        ["6" | "7" | "8" | "9", _, _] => Some(format!("REL{}", parts.join("_"))),
        [_] | [_, _] => Some(format!("REL_{}", parts.join("_"))),
        _ => None,
    }
}

fn resolve_version(repository: &Repository, version: &str) -> anyhow::Result<Resolved> {
    let Some(tag) = tag_of(version) else {
        return Err(
            ConfigurationError::new(format!("`{version}` is not a version such as 16.3 or 17beta1; a commit, branch or tag goes into `revisions`")).into()
        );
    };
    if let Ok(reference) = repository.find_reference(&format!("refs/tags/{tag}")) {
        return Ok(Resolved::Commit(reference.peel_to_commit()?.id()));
    }
    let series = !version.contains('.') && version.bytes().all(|c| c.is_ascii_digit());
    if series && let Some(id) = newest_of_series(repository, version)? {
        return Ok(Resolved::Commit(id));
    }
    let stamps = stamps(repository)?;
    if let Some((_, id)) = stamps.iter().find(|(stamped, _)| stamped == version) {
        return Ok(Resolved::Commit(*id));
    }
    if series
        && let Some((_, id)) = stamps
            .iter()
            .filter(|(stamped, _)| stamped.strip_prefix(version).is_some_and(|rest| rest.starts_with('.')))
            .max_by_key(|(stamped, _)| minor(stamped))
    {
        return Ok(Resolved::Commit(*id));
    }
    let major = version.split(['.', 'b', 'r']).next().unwrap_or(version);
    let mut near: Vec<_> = stamps.into_iter().map(|(stamped, _)| stamped).filter(|stamped| stamped.starts_with(major)).collect();
    near.sort_by_key(|stamped| minor(stamped));
    let known = if near.is_empty() { String::new() } else { format!(" (of {major} there are: {})", near.join(", ")) };
    Ok(Resolved::Absent(format!("there is neither a tag {tag} nor a commit \"Stamp {version}.\" for Postgres {version}{known}")))
}

fn minor(version: &str) -> u32 {
    version.rsplit('.').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn newest_of_series(repository: &Repository, major: &str) -> anyhow::Result<Option<Oid>> {
    let mut newest: Option<(u32, Oid)> = None;
    for reference in repository.references_glob(&format!("refs/tags/REL_{major}_*"))? {
        let reference = reference?;
        let number = reference.name().ok().and_then(|name| name.rsplit('_').next()?.parse::<u32>().ok());
        if let Some(number) = number.filter(|number| newest.is_none_or(|(best, _)| best < *number)) {
            newest = Some((number, reference.peel_to_commit()?.id()));
        }
    }
    Ok(newest.map(|(_, id)| id))
}

/// The commits of a mirror whose subject is `Stamp <version>.`, on any branch. They are kept in a
/// file beside the refs, since a walk over a hundred thousand commits takes seconds, and looked for
/// again when a ref has moved.
fn stamps(repository: &Repository) -> anyhow::Result<Vec<(String, Oid)>> {
    let mut tips: Vec<String> = repository.references()?.flatten().filter_map(|reference| Some(reference.target()?.to_string())).collect();
    tips.sort();
    tips.dedup();
    let state = blake3::hash(tips.join("\n").as_bytes()).to_hex().to_string();
    let file = repository.path().join("dbisect-stamps.json");
    let kept = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str::<(String, Vec<(String, String)>)>(&text).ok());
    if let Some((_, list)) = kept.filter(|(of, _)| *of == state) {
        return list.into_iter().map(|(version, id)| Ok((version, Oid::from_str(&id)?))).collect();
    }
    let mut walk = repository.revwalk()?;
    walk.set_sorting(git2::Sort::TIME)?;
    for tip in &tips {
        // A ref may point at a tag or a blob; those that lead to no commit have no history.
        if repository.find_object(Oid::from_str(tip)?, None).is_ok_and(|object| object.peel_to_commit().is_ok()) {
            walk.push(Oid::from_str(tip)?)?;
        }
    }
    let mut found: Vec<(String, Oid)> = Vec::new();
    for id in walk {
        let id = id?;
        let commit = repository.find_commit(id)?;
        let version =
            commit.summary_bytes().and_then(|subject| std::str::from_utf8(subject).ok()).and_then(|subject| subject.strip_prefix("Stamp ")?.strip_suffix('.'));
        if let Some(version) = version.filter(|version| tag_of(version).is_some() && !found.iter().any(|(known, _)| known == version)) {
            found.push((version.to_owned(), id));
        }
    }
    let list: Vec<_> = found.iter().map(|(version, id)| (version.clone(), id.to_string())).collect();
    std::fs::write(&file, serde_json::to_string(&(state, list))?).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(found)
}

fn resolve_commit(repository: &Repository, text: &str) -> anyhow::Result<Resolved> {
    let hex = text.len() >= 4 && text.len() <= 40 && text.bytes().all(|c| c.is_ascii_hexdigit());
    // Names first: a branch called `cafe` is what its author meant.
    for prefix in ["refs/heads/", "refs/tags/"] {
        if let Ok(reference) = repository.find_reference(&format!("{prefix}{text}")) {
            return Ok(Resolved::Commit(reference.peel_to_commit()?.id()));
        }
    }
    match repository.revparse_single(text) {
        Ok(object) => match object.peel_to_commit() {
            Ok(commit) => Ok(Resolved::Commit(commit.id())),
            Err(_) => {
                Err(ConfigurationError::new(format!("`{text}` is a {}, and a commit is wanted", object.kind().map_or("strange object", |kind| kind.str())))
                    .into())
            }
        },
        Err(error) if error.code() == git2::ErrorCode::Ambiguous && hex => {
            let all = candidates(repository, text)?;
            Err(ConfigurationError::new(format!("`{text}` is short for {} commits; write more digits: {}", all.len(), all.join("; "))).into())
        }
        Err(_) => Ok(Resolved::Absent(format!("there is no commit, branch or tag `{text}`"))),
    }
}

/// The commits whose id begins with `prefix`, each with its subject.
fn candidates(repository: &Repository, prefix: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let prefix = prefix.to_lowercase();
    repository.odb()?.foreach(|id| {
        if id.to_string().starts_with(&prefix) {
            found.push(*id);
        }
        true
    })?;
    let describe = |id: &Oid| {
        repository
            .find_commit(*id)
            .ok()
            .map(|commit| format!("{} \"{}\"", &id.to_string()[..16], String::from_utf8_lossy(commit.summary_bytes().unwrap_or_default())))
    };
    Ok(found.iter().filter_map(describe).collect())
}
