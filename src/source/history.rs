//! The commits between two revisions, along first parents.

use std::collections::HashSet;

use anyhow::Context;
use git2::{DiffOptions, Oid, Repository};
use serde::{Deserialize, Serialize};

use crate::matrix::ConfigurationError;

/// One commit on the way from good to bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Full id.
    pub id: String,
    /// First line of the message.
    pub subject: String,
    /// Committer's time, seconds since 1970.
    pub time: i64,
    /// Files changed against the first parent.
    pub paths: Vec<String>,
}

/// The commits that a search can blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Oldest first; the first one is the good end, the last one the bad end.
    pub commits: Vec<Commit>,
    /// Commits between the ends when merged branches are counted too.
    pub all: usize,
    /// What the user should know about the range.
    pub note: Option<String>,
}

/// Commits from `good` to `bad` along first parents. Ends are given as written and resolved.
pub(super) fn between(repository: &Repository, good: (&str, Oid), bad: (&str, Oid)) -> anyhow::Result<History> {
    let wrong = |sentence: String| -> anyhow::Error { ConfigurationError::new(sentence).into() };
    if good.1 == bad.1 {
        return Err(wrong(format!("good `{}` and bad `{}` are the same commit {}, so nothing lies between them", good.0, bad.0, short(good.1))));
    }
    if repository.graph_descendant_of(good.1, bad.1)? {
        return Err(wrong(format!(
            "good `{}` comes after bad `{}`; the ends are swapped: try --good {} --bad {}, or --expect improvement",
            good.0, bad.0, bad.0, good.0
        )));
    }
    let (start, note) = if repository.graph_descendant_of(bad.1, good.1)? {
        (good.1, None)
    } else {
        let base = repository
            .merge_base(good.1, bad.1)
            .map_err(|_| wrong(format!("good `{}` and bad `{}` have no common history, so no commit between them can be named", good.0, bad.0)))?;
        let note = format!(
            "{} is not an ancestor of {}: they are on different branches, so the search begins at their merge base {}, which stands in for the good end",
            good.0,
            bad.0,
            short(base)
        );
        (base, Some(note))
    };
    let mut walk = repository.revwalk()?;
    walk.push(bad.1)?;
    walk.hide(start)?;
    let between = walk.collect::<Result<HashSet<_>, _>>()?;
    let mut ids = Vec::new();
    let mut at = bad.1;
    // Where `start` was merged in from the side, the first-parent path passes it by; it then ends at
    // the last commit that does not contain `start`, and `start` stands for what came before.
    while between.contains(&at) {
        ids.push(at);
        let Ok(parent) = repository.find_commit(at)?.parent_id(0) else { break };
        at = parent;
    }
    ids.push(start);
    ids.reverse();
    let commits = ids.iter().map(|id| describe(repository, *id)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(History { commits, all: between.len(), note })
}

fn describe(repository: &Repository, id: Oid) -> anyhow::Result<Commit> {
    let commit = repository.find_commit(id).with_context(|| format!("the commit {id} is missing from the mirror"))?;
    let parent = commit.parent(0).ok().map(|parent| parent.tree()).transpose()?;
    let diff = repository.diff_tree_to_tree(parent.as_ref(), Some(&commit.tree()?), Some(DiffOptions::new().skip_binary_check(true)))?;
    let mut paths: Vec<_> =
        diff.deltas().filter_map(|delta| delta.new_file().path().or_else(|| delta.old_file().path()).map(|path| path.to_string_lossy().into_owned())).collect();
    paths.sort();
    Ok(Commit {
        id: id.to_string(),
        subject: String::from_utf8_lossy(commit.summary_bytes().unwrap_or_default()).into_owned(),
        time: commit.time().seconds(),
        paths,
    })
}

fn short(id: Oid) -> String {
    id.to_string()[..12].to_owned()
}
