//! Server configurations: files with the names of the posts, and lines for some versions only.

use std::path::Path;

use crate::matrix::{ConfigurationError, Dbms, StorageEngine};

/// A server configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Short name, such as `cx9a2a_small`.
    pub name: String,
    /// The file's text: for Postgres lines that are appended to initdb's own file, for the MySQL
    /// family a whole `my.cnf`.
    pub text: String,
    /// Storage engine of the benchmark's tables; `None` for Postgres, which has one.
    pub engine: Option<StorageEngine>,
}

impl ServerConfig {
    /// Reads the configuration `name` of a dbms from `configs`: `conf.diff.<name>` for Postgres,
    /// `my.cnf.<name>` for the MySQL family, as the posts name them.
    ///
    /// # Errors
    /// [`ConfigurationError`] that lists what there is.
    pub fn read(configs: &Path, dbms: Dbms, name: &str, engine: Option<StorageEngine>) -> Result<Self, ConfigurationError> {
        let prefix = if dbms == Dbms::Postgres { "conf.diff." } else { "my.cnf." };
        let path = configs.join(format!("{prefix}{name}"));
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let of_dbms = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix).map(str::to_owned);
            let mut names: Vec<_> = std::fs::read_dir(configs).map(|entries| entries.flatten().filter_map(of_dbms).collect()).unwrap_or_default();
            names.sort();
            ConfigurationError::new(format!("the server configuration {} cannot be read: {error}; for {dbms} there are: {}", path.display(), names.join(", ")))
        })?;
        Ok(Self { name: name.to_owned(), text, engine })
    }

    /// The settings for a server, whose version is given as its numbers (`[8, 0, 37]`). A line that
    /// begins with `#@>=8.0.30 ` counts from that version on, one with `#@<8.0.30 ` before it. A dbms
    /// before it (`#@mariadb `, `#@mysql>=8.0.30 `) makes it count there only; `mysql` is upstream and
    /// FB MySQL, whose versions mean the same. To the servers themselves all these are comments.
    ///
    /// # Errors
    /// [`ConfigurationError`] that names the line whose condition cannot be understood.
    pub(super) fn settings(&self, dbms: Dbms, version: &[u32]) -> Result<String, ConfigurationError> {
        let mut kept = String::new();
        for (index, line) in self.text.lines().enumerate() {
            let setting = match line.strip_prefix("#@") {
                None => Some(line),
                Some(conditional) => {
                    let (holds, setting) = condition(conditional, dbms, version).ok_or_else(|| {
                        ConfigurationError::new(format!(
                            "line {} of the server configuration {} is `{line}`; after `#@` a condition on the version and a setting are wanted, such as `#@>=16 name = value`, `#@mysql<8.0.30 name = value` or `#@mariadb name = value`",
                            index + 1,
                            self.name
                        ))
                    })?;
                    holds.then_some(setting)
                }
            };
            if let Some(setting) = setting {
                kept.push_str(setting);
                kept.push('\n');
            }
        }
        Ok(kept)
    }
}

/// Whether the condition at the beginning holds, and the setting behind it.
fn condition<'t>(text: &'t str, dbms: Dbms, version: &[u32]) -> Option<(bool, &'t str)> {
    let (condition, setting) = text.split_once(' ')?;
    let (of, bound) = condition.split_at(condition.find(['<', '>']).unwrap_or(condition.len()));
    let of_this = match of {
        "" => !bound.is_empty(),
        "mysql" => matches!(dbms, Dbms::Mysql | Dbms::Myrocks),
        "mariadb" => dbms == Dbms::Mariadb,
        _ => return None,
    };
    let holds = match (bound.strip_prefix(">="), bound.strip_prefix('<')) {
        (Some(from), _) => !is_before(version, &numbers(from)?),
        (None, Some(before)) => is_before(version, &numbers(before)?),
        (None, None) if of.is_empty() => return None,
        (None, None) => true,
    };
    setting.contains('=').then_some((holds && of_this, setting.trim()))
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// Numbers that are not given count as zero: 16 is 16.0.
fn is_before(version: &[u32], bound: &[u32]) -> bool {
    let at = |numbers: &[u32], index: usize| numbers.get(index).copied().unwrap_or(0);
    (0..version.len().max(bound.len())).map(|index| at(version, index).cmp(&at(bound, index))).find(|order| order.is_ne()).is_some_and(|order| order.is_lt())
}

/// The numbers that a version such as `16.3`, `17beta1` or `10.11.19-MariaDB` begins with.
pub(super) fn leading_numbers(version: &str) -> Option<Vec<u32>> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    numbers(version[..end].trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ServerConfig {
        ServerConfig { name: "cx_test".to_owned(), text: text.to_owned(), engine: None }
    }

    #[test]
    fn settings_follow_the_version() {
        let text = config("shared_buffers = 1GB\n#@>=13 autovacuum_vacuum_insert_scale_factor = 0.05\n#@<13 old = 1\n# a remark");
        assert_eq!(text.settings(Dbms::Postgres, &[12, 19]).unwrap(), "shared_buffers = 1GB\nold = 1\n# a remark\n");
        assert_eq!(text.settings(Dbms::Postgres, &[13]).unwrap(), "shared_buffers = 1GB\nautovacuum_vacuum_insert_scale_factor = 0.05\n# a remark\n");
        let redo = config("#@>=8.0.30 innodb_redo_log_capacity = 1G\n#@<8.0.30 innodb_log_file_size = 512M");
        assert_eq!(redo.settings(Dbms::Mysql, &[8, 0, 28]).unwrap(), "innodb_log_file_size = 512M\n");
        assert_eq!(redo.settings(Dbms::Mysql, &[8, 0, 30]).unwrap(), "innodb_redo_log_capacity = 1G\n");
        let both = config("#@mysql>=8.0.30 a = 1\n#@mysql<8.0.30 b = 1\n#@mariadb c = 1");
        let of = |dbms, version: &[u32]| both.settings(dbms, version).unwrap();
        assert_eq!((of(Dbms::Mysql, &[8, 0, 37]), of(Dbms::Myrocks, &[8, 0, 28])), ("a = 1\n".to_owned(), "b = 1\n".to_owned()));
        assert_eq!(of(Dbms::Mariadb, &[10, 11, 19]), "c = 1\n");
        assert_eq!(redo.settings(Dbms::Mysql, &[9, 7]).unwrap(), "innodb_redo_log_capacity = 1G\n");
        assert_eq!(redo.settings(Dbms::Mysql, &[5, 6, 51]).unwrap(), "innodb_log_file_size = 512M\n");
    }

    #[test]
    fn a_condition_that_cannot_be_meant_is_refused_with_its_line() {
        for line in ["#@16 a = 1", "#@>=x a = 1", "#@>=16", "#@>=16 a", "#@> 16 a = 1", "#@>=8..1 a = 1", "#@oracle a = 1", "#@mysql a", "#@"] {
            let error = config(&format!("a = 1\n{line}")).settings(Dbms::Postgres, &[16]).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains("cx_test") && error.contains(line), "{error}");
        }
    }

    #[test]
    fn versions_begin_with_numbers() {
        assert_eq!(leading_numbers("17beta1"), Some(vec![17]));
        assert_eq!(leading_numbers("10.11.19-MariaDB-0+deb12u1"), Some(vec![10, 11, 19]));
        assert_eq!(leading_numbers("16.3"), Some(vec![16, 3]));
        assert_eq!(leading_numbers("devel"), None);
    }

    #[test]
    fn a_configuration_is_read_by_the_name_of_the_posts() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices/configs");
        let found = ServerConfig::read(&configs, Dbms::Postgres, "cx9a2a_small", None).unwrap();
        assert!(found.text.contains("synchronous_commit = off"));
        let error = ServerConfig::read(&configs, Dbms::Postgres, "cx9a2a_smal", None).unwrap_err().to_string();
        assert!(error.contains("conf.diff.cx9a2a_smal") && error.contains("cx9a2a_small"), "{error}");
    }
}
