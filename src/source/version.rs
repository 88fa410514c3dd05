//! The version that a source tree says it is.

use anyhow::Context;

use crate::matrix::Dbms;

use super::tree::SourceTree;

/// Version of a tree: `16.3`, `17beta1`, `8.0.37`.
///
/// # Errors
/// When the tree does not say, and so is not one of this dbms.
pub(super) fn version_of(dbms: Dbms, tree: &SourceTree) -> anyhow::Result<String> {
    let (file, found) = match dbms {
        Dbms::Postgres => ("configure", tree.read("configure")?.as_deref().and_then(postgres)),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => {
            // The file was renamed in 8.0, since C++20 has a header of the old name.
            let text = tree.read("MYSQL_VERSION")?.map_or_else(|| tree.read("VERSION"), |text| Ok(Some(text)))?;
            ("MYSQL_VERSION or VERSION", text.as_deref().and_then(mysql))
        }
    };
    found.with_context(|| format!("{} has no file {file} that says its version, so it is not a source tree of {dbms}", tree.described))
}

/// From `PACKAGE_VERSION` in the configure script.
fn postgres(configure: &str) -> Option<String> {
    configure.lines().find_map(|line| Some(line.strip_prefix("PACKAGE_VERSION='")?.strip_suffix('\'')?.to_owned()))
}

/// From three lines such as `MYSQL_VERSION_MAJOR=8`.
fn mysql(text: &str) -> Option<String> {
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("MYSQL_VERSION_{name}="))?.trim().parse::<u32>().ok());
    Some(format!("{}.{}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_files_of_each_dbms() {
        assert_eq!(postgres("PACKAGE_NAME='PostgreSQL'\nPACKAGE_VERSION='17beta1'\n").as_deref(), Some("17beta1"));
        let text = "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=37\nMYSQL_VERSION_EXTRA=\n";
        assert_eq!(mysql(text).as_deref(), Some("8.0.37"));
        assert_eq!((mysql("MYSQL_VERSION_MAJOR=8"), postgres("")), (None, None));
    }
}
