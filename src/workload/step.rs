//! The steps: microbenchmarks with the field's names and groups (`facts/workloads.md` section 1.3).

use crate::matrix::{ConfigurationError, nearest};

/// The five groups of microbenchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Point queries, part 1.
    Point1,
    /// Point queries, part 2: lists of random ids.
    Point2,
    /// Range queries without aggregation.
    Range1,
    /// Range queries with aggregation.
    Range2,
    /// Statements that write.
    Writes,
}

impl Group {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Point1 => "point-1",
            Self::Point2 => "point-2",
            Self::Range1 => "range-1",
            Self::Range2 => "range-2",
            Self::Writes => "writes",
        }
    }
}

/// Where a step's Lua script comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Installed with sysbench.
    Stock(&'static str),
    /// Ours: file name and text.
    Own(&'static str, &'static str),
}

/// One microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The field's name for it.
    pub name: &'static str,
    /// Its group.
    pub group: Group,
    /// What sysbench runs.
    pub script: Script,
    /// Options besides those that all steps have.
    pub options: &'static [&'static str],
}

const IN_LIST: Script = Script::Own("dbisect_in_list.lua", include_str!("lua/in_list.lua"));
const PK_RANGE: Script = Script::Own("dbisect_pk_range.lua", include_str!("lua/pk_range.lua"));

/// Every step, in the order of execution: reads before writes, as in the posts.
pub const STEPS: &[Step] = &[
    Step { name: "point-query", group: Group::Point1, script: Script::Stock("oltp_point_select"), options: &[] },
    Step { name: "random-points", group: Group::Point2, script: IN_LIST, options: &["--random-points=100"] },
    Step { name: "read-only", group: Group::Range2, script: Script::Stock("oltp_read_only"), options: &["--range-size=100"] },
    Step { name: "range-notcovered-pk", group: Group::Range1, script: PK_RANGE, options: &["--range-size=100"] },
    Step { name: "update-index", group: Group::Writes, script: Script::Stock("oltp_update_index"), options: &[] },
    Step { name: "update-nonindex", group: Group::Writes, script: Script::Stock("oltp_update_non_index"), options: &[] },
    Step { name: "insert", group: Group::Writes, script: Script::Stock("oltp_insert"), options: &[] },
    Step { name: "read-write", group: Group::Writes, script: Script::Stock("oltp_read_write"), options: &["--range-size=100"] },
];

/// The step of that name.
///
/// # Errors
/// [`ConfigurationError`] with the nearest name.
pub fn step(name: &str) -> Result<&'static Step, ConfigurationError> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let hint = nearest(name, step_names()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        ConfigurationError::new(format!("there is no step `{name}`{hint} (known: {})", step_names().join(", ")))
    })
}

/// Names of all steps, in the order of execution.
#[must_use]
pub fn step_names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_step_is_found_by_its_name_and_only_once() {
        for known in STEPS {
            assert_eq!(step(known.name).unwrap(), known);
        }
        let names: std::collections::BTreeSet<_> = step_names().into_iter().collect();
        assert_eq!(names.len(), STEPS.len());
    }

    #[test]
    fn a_slip_of_the_keyboard_gets_a_hint() {
        let error = step("point-qury").unwrap_err().to_string();
        assert!(error.contains("did you mean `point-query`?"), "{error}");
    }

    #[test]
    fn groups_are_those_of_the_posts() {
        let of = |name| step(name).unwrap().group.name();
        assert_eq!((of("point-query"), of("random-points"), of("range-notcovered-pk")), ("point-1", "point-2", "range-1"));
        assert_eq!((of("read-only"), of("read-write"), of("insert")), ("range-2", "writes", "writes"));
    }

    proptest! {
        #[test]
        fn an_unknown_name_is_an_error_that_lists_the_known_ones(name in "[a-z-]{0,12}") {
            prop_assume!(!step_names().contains(&name.as_str()));
            let error = step(&name).unwrap_err().to_string();
            prop_assert!(error.contains(&name) && STEPS.iter().all(|step| error.contains(step.name)));
        }
    }
}
