//! Finds the place of each hunk of a diff in the files at hand.
//!
//! Minor versions move code by a few lines without changing it. A hunk is moved only to the one
//! place where all of its old lines stand exactly; with none, or with several, it does not apply.

use anyhow::{Context, bail};

/// Rewrites the line numbers of a diff for the files that `read` gives.
///
/// # Errors
/// A sentence that names the first hunk that has no place, or no single one.
pub(super) fn relocate(diff: &str, read: &dyn Fn(&str) -> anyhow::Result<Option<String>>) -> anyhow::Result<String> {
    let all = diff.lines().filter(|line| line.starts_with("@@ ")).count();
    let mut out = String::with_capacity(diff.len());
    let mut file = File::default();
    let mut number = 0;
    let mut lines = diff.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("diff --git ") {
            file = File::default();
        } else if let Some(path) = line.strip_prefix("--- ") {
            // A new file has no old lines to look for.
            file.old = path.strip_prefix("a/").map(|path| read(path)?.with_context(|| format!("the file {path} is not there"))).transpose()?.map(Content::of);
            path.clone_into(&mut file.name);
        }
        if !line.starts_with("@@ ") {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        number += 1;
        let mut body = Vec::new();
        while let Some(next) = lines.next_if(|next| next.is_empty() || next.starts_with([' ', '+', '-', '\\'])) {
            body.push(next);
        }
        let header = file.place(line, &body).with_context(|| {
            let path = file.name.strip_prefix("a/").unwrap_or(&file.name);
            format!("hunk {number} of {all} does not apply: {path}: {line}")
        })?;
        out.push_str(&header);
        out.push('\n');
        for line in body {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

#[derive(Default)]
struct File {
    name: String,
    old: Option<Content>,
    /// Lines added less lines removed by the hunks so far.
    grown: i64,
}

struct Content(Vec<String>);

impl Content {
    fn of(text: String) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }
}

impl File {
    fn place(&mut self, header: &str, body: &[&str]) -> anyhow::Result<String> {
        let stated = start(header).with_context(|| format!("`{header}` is not the beginning of a hunk"))?;
        let old: Vec<&str> = body.iter().filter(|line| !line.starts_with(['+', '\\'])).map(|line| line.get(1..).unwrap_or_default()).collect();
        let added = body.iter().filter(|line| line.starts_with('+')).count();
        let removed = body.iter().filter(|line| line.starts_with('-')).count();
        let at = match &self.old {
            Some(content) if !old.is_empty() => content.find(&old, stated)?,
            _ => return Ok(header.to_owned()),
        };
        let new = i64::try_from(at)? + self.grown;
        self.grown += i64::try_from(added)? - i64::try_from(removed)?;
        Ok(format!("@@ -{at},{} +{new},{} @@", old.len(), old.len() + added - removed))
    }
}

impl Content {
    /// Number of the line, from 1, at which `wanted` stands.
    fn find(&self, wanted: &[&str], stated: usize) -> anyhow::Result<usize> {
        let fits = |at: usize| self.0.get(at..at + wanted.len()).is_some_and(|lines| lines == wanted);
        if stated > 0 && fits(stated - 1) {
            return Ok(stated);
        }
        let found: Vec<usize> = (0..self.0.len()).filter(|at| fits(*at)).map(|at| at + 1).collect();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => bail!("its old lines are nowhere in the file"),
            many => bail!("its old lines are in {} places (lines {})", many.len(), many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// First old line of `@@ -12,3 +12,4 @@`.
fn start(header: &str) -> Option<usize> {
    let rest = header.strip_prefix("@@ -")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -2,2 +2,3 @@ fn\n two\n+new\n three\n@@ -5,2 +6,1 @@\n-five\n six\n";

    fn moved(text: &str) -> anyhow::Result<String> {
        relocate(DIFF, &|path| Ok((path == "f").then(|| text.to_owned())))
    }

    #[test]
    fn hunks_go_to_the_one_place_where_their_lines_stand() {
        assert!(moved("one\ntwo\nthree\nfour\nfive\nsix\n").unwrap().contains("@@ -2,2 +2,3 @@\n two\n+new\n three\n@@ -5,2 +6,1 @@\n"));
        let far = moved("0\n0\n0\none\ntwo\nthree\nfour\n4\nfive\nsix\n").unwrap();
        assert!(far.contains("@@ -5,2 +5,3 @@") && far.contains("@@ -9,2 +10,1 @@"), "{far}");
    }

    #[test]
    fn no_place_and_two_places_are_refused() {
        let error = format!("{:#}", moved("one\ntwo\nthree\nfour\n").unwrap_err());
        assert!(error.contains("hunk 2 of 2 does not apply: f: @@ -5,2") && error.contains("nowhere"), "{error}");
        let error = format!("{:#}", moved("0\ntwo\n0\ntwo\nthree\ntwo\nthree\nfive\nsix\n").unwrap_err());
        assert!(error.contains("hunk 1 of 2") && error.contains("2 places (lines 4, 6)"), "{error}");
        assert!(format!("{:#}", relocate(DIFF, &|_| Ok(None)).unwrap_err()).contains("the file f is not there"));
    }

    #[test]
    fn a_new_file_stays_as_it_is() {
        let text = "diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+one\n+two\n";
        assert_eq!(relocate(text, &|_| Ok(None)).unwrap(), text);
    }
}
