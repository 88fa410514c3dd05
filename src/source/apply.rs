//! A diff applied to a tree object, in memory, hunk by hunk.
//!
//! libgit2 applies a hunk only at the very line its header names, and says of a failure neither file
//! nor hunk. One patch serves several versions here, whose lines have moved, so hunks are placed as
//! `git apply` places them: whole context, at the nearest line where it fits.

use anyhow::{Context, bail, ensure};
use git2::build::TreeUpdateBuilder;
use git2::{Delta, Diff, DiffDelta, DiffLineType, ErrorCode, FileMode, ObjectType, Oid, Patch, Repository};

/// Applies every file of the diff and returns the id of the new tree.
///
/// # Errors
/// When the text is not a git diff, or a file or hunk of it does not fit the tree; the error names both.
pub(super) fn apply(repo: &Repository, tree: Oid, body: &[u8]) -> anyhow::Result<Oid> {
    let diff = Diff::from_buffer(body).context("it is not a diff that git can read; make it with `git diff` or `git format-patch`")?;
    let mut tree = tree;
    let mut hunks = 0;
    for (at, delta) in diff.deltas().enumerate() {
        let path = path_of(&delta)?;
        // Looked at before the hunks are asked for, which a binary change does not have.
        ensure!(!delta.flags().is_binary(), "its change of `{path}` is binary; patches change text only");
        let patch = Patch::from_diff(&diff, at)?.with_context(|| format!("its change of `{path}` is binary; patches change text only"))?;
        hunks += patch.num_hunks();
        tree = apply_file(repo, tree, &delta, &patch, &path)?;
    }
    // libgit2 passes over what has no `diff --git` line before it; a patch must not be applied in part.
    let written = body.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"@@ -")).count();
    ensure!(diff.deltas().len() > 0 && hunks == written, "only {hunks} of its {written} hunks follow a `diff --git` line; make it with `git diff`");
    Ok(tree)
}

fn path_of(delta: &DiffDelta<'_>) -> anyhow::Result<String> {
    let file = if delta.status() == Delta::Deleted { delta.old_file() } else { delta.new_file() };
    let path = file.path_bytes().context("it changes a file without a name")?;
    Ok(std::str::from_utf8(path).context("it changes a file whose name is not UTF-8")?.to_owned())
}

fn apply_file(repo: &Repository, tree: Oid, delta: &DiffDelta<'_>, patch: &Patch<'_>, path: &str) -> anyhow::Result<Oid> {
    let source = match delta.status() {
        Delta::Renamed | Delta::Copied => {
            let bytes = delta.old_file().path_bytes().context("it renames a file without a name")?;
            std::str::from_utf8(bytes).context("it renames a file whose name is not UTF-8")?.to_owned()
        }
        _ => path.to_owned(),
    };
    let existing = lookup(repo, tree, path)?;
    let (old, old_mode) = if delta.status() == Delta::Added {
        ensure!(existing.is_none(), "its file `{path}` is new and the tree has it already");
        (Vec::new(), FileMode::Blob)
    } else {
        ensure!(source == path || existing.is_none(), "its file `{path}` is new and the tree has it already");
        lookup(repo, tree, &source)?.with_context(|| format!("its file `{source}` is not in the tree"))?
    };
    let new = apply_hunks(&old, patch, path)?;
    let mut update = TreeUpdateBuilder::new();
    if delta.status() == Delta::Deleted {
        ensure!(new.is_empty(), "its file `{path}` is to be deleted and the tree's has other content");
        update.remove(path);
    } else {
        if delta.status() == Delta::Renamed {
            update.remove(source.as_str());
        }
        let mode = match delta.new_file().mode() {
            FileMode::Unreadable => old_mode,
            mode => mode,
        };
        update.upsert(path, repo.blob(&new)?, mode);
    }
    update.create_updated(repo, &repo.find_tree(tree)?).with_context(|| format!("its file `{path}` cannot be written into the tree"))
}

/// Content and mode of a file of the tree.
fn lookup(repo: &Repository, tree: Oid, path: &str) -> anyhow::Result<Option<(Vec<u8>, FileMode)>> {
    let entry = match repo.find_tree(tree)?.get_path(std::path::Path::new(path)) {
        Ok(entry) => entry,
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot look for `{path}` in the tree")),
    };
    ensure!(entry.kind() == Some(ObjectType::Blob), "its file `{path}` is a directory or a submodule in the tree");
    let mode = match entry.filemode() {
        0o100_755 => FileMode::BlobExecutable,
        0o120_000 => FileMode::Link,
        _ => FileMode::Blob,
    };
    Ok(Some((repo.find_blob(entry.id())?.content().to_vec(), mode)))
}

/// One hunk: the lines it expects and the lines it leaves, with their line ends.
#[derive(Default)]
struct Hunk {
    header: String,
    /// Line of the old file at which it was made, counted from zero.
    start: usize,
    old: Vec<Vec<u8>>,
    new: Vec<Vec<u8>>,
    /// Context lines after the last change.
    trailing: usize,
}

fn apply_hunks(old: &[u8], patch: &Patch<'_>, path: &str) -> anyhow::Result<Vec<u8>> {
    let lines = old.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
    let mut new = Vec::with_capacity(old.len());
    let mut done = 0;
    let mut shift = 0_isize;
    for number in 0..patch.num_hunks() {
        let hunk = read_hunk(patch, number)?;
        let expected = hunk.start.saturating_add_signed(shift);
        let Some(at) = place(&lines, &hunk, expected, done) else {
            bail!("hunk {} of {} in `{path}` ({}) does not fit: its context is not in the tree's file", number + 1, patch.num_hunks(), hunk.header);
        };
        new.extend(lines.iter().take(at).skip(done).flat_map(|line| line.iter().copied()));
        new.extend(hunk.new.iter().flatten().copied());
        done = at + hunk.old.len();
        // Later hunks have most likely moved as far as this one.
        shift = at.cast_signed() - hunk.start.cast_signed();
    }
    new.extend(lines.iter().skip(done).flat_map(|line| line.iter().copied()));
    Ok(new)
}

fn read_hunk(patch: &Patch<'_>, number: usize) -> anyhow::Result<Hunk> {
    let (header, length) = patch.hunk(number)?;
    let mut hunk = Hunk { header: String::from_utf8_lossy(header.header()).trim_end().to_owned(), ..Hunk::default() };
    // A hunk without old lines names the line after which it goes, any other the line at which it begins.
    hunk.start = (header.old_start() as usize).saturating_sub(usize::from(header.old_lines() > 0));
    let mut last = DiffLineType::Context;
    for at in 0..length {
        let line = patch.line_in_hunk(number, at)?;
        let content = line.content().to_vec();
        match line.origin_value() {
            DiffLineType::Context => {
                hunk.old.push(content.clone());
                hunk.new.push(content);
                hunk.trailing += 1;
            }
            DiffLineType::Deletion => {
                hunk.old.push(content);
                hunk.trailing = 0;
            }
            DiffLineType::Addition => {
                hunk.new.push(content);
                hunk.trailing = 0;
            }
            // `\ No newline at end of file` speaks of the line before it.
            DiffLineType::ContextEOFNL | DiffLineType::AddEOFNL | DiffLineType::DeleteEOFNL => {
                if last != DiffLineType::Addition {
                    strip_line_end(hunk.old.last_mut());
                }
                if last != DiffLineType::Deletion {
                    strip_line_end(hunk.new.last_mut());
                }
                continue;
            }
            other => bail!("the hunk {} has a line of unknown kind {other:?}", hunk.header),
        }
        last = line.origin_value();
    }
    Ok(hunk)
}

fn strip_line_end(line: Option<&mut Vec<u8>>) {
    if let Some(line) = line {
        line.pop_if(|byte| *byte == b'\n');
    }
}

/// The line nearest to `expected`, not before `from`, at which all old lines of the hunk are found.
/// A hunk that was made at the very start or end of a file fits only there, as in git.
fn place(lines: &[&[u8]], hunk: &Hunk, expected: usize, from: usize) -> Option<usize> {
    let last = lines.len().checked_sub(hunk.old.len())?;
    let at_start = hunk.start == 0;
    let at_end = hunk.trailing == 0;
    let fits = |at: usize| {
        (!at_start || at == 0) && (!at_end || at == last) && lines.iter().skip(at).zip(&hunk.old).all(|(line, old)| *line == old.as_slice())
    };
    (from..=last).filter(|at| fits(*at)).min_by_key(|at| at.abs_diff(expected))
}
