//! Every matrix of the repository: it can be read, its cells have distinct names in the field's
//! scheme, and what it names is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dbisect::matrix::{Cell, Matrix, Name};
use dbisect::server::ServerConfig;
use dbisect::workload::step_names;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices")
}

fn all() -> Vec<(String, Vec<Cell>)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(top()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    let cells = |path: &PathBuf| Matrix::read(path, &step_names()).unwrap().cells().unwrap();
    paths.iter().map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), cells(path))).collect()
}

#[test]
fn each_has_the_cells_that_its_post_has() {
    let counts: Vec<(String, usize)> = all().into_iter().map(|(name, cells)| (name, cells.len())).collect();
    let wanted = [
        ("ibench-low-concurrency", 20),
        ("ibench-myrocks-innodb-cached", 18),
        ("ibench-myrocks-innodb-io-bound", 18),
        ("ibench-myrocks-large-server", 6),
        ("ibench-postgres", 9),
        ("installed", 3),
        ("lto-sysbench", 4),
        ("mysql-ladder", 15),
        ("postgres-ladder", 12),
        ("quickstart", 2),
        ("sysbench-io-bound-2017", 8),
        ("sysbench-myrocks-innodb", 9),
    ];
    assert_eq!(counts, wanted.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn names_are_distinct_and_read_back() {
    for (matrix, cells) in all() {
        let names: BTreeSet<_> = cells.iter().map(|cell| &cell.name).collect();
        assert_eq!(names.len(), cells.len(), "{matrix}");
        for cell in &cells {
            let name: Name = cell.name.parse().unwrap();
            assert_eq!(name.to_string(), cell.name, "{matrix}");
            assert_eq!((name.dbms, name.build.as_str(), name.config.as_str()), (cell.dbms, cell.axis("build"), cell.axis("config")), "{matrix}");
            assert_eq!(name.patches, cell.patches, "{matrix}");
        }
    }
}

#[test]
fn the_posts_own_names_are_among_them() {
    let all: BTreeSet<String> = all().into_iter().flat_map(|(_, cells)| cells).map(|cell| cell.name).collect();
    for wanted in [
        "my8037_rel.cz11a_bee",
        "my5651_rel.cz11a_c8r32",
        "fbmy5635_rel_240606_4f3a57a1.cza1_bee",
        "fbmy8028_rel_240606_c6c83b18.cza1_c8r32",
        "pg17beta1_def_hack100.cx9a2a_c32r128",
        "pg1023_def.cx9a2a_c32r128",
        "pg163_def.cx9a2a_c32r128",
    ] {
        assert!(all.contains(wanted), "{wanted}");
    }
    // The posts leave RocksDB out of this name where it is not the submodule's; two builds that differ
    // in it alone must not have one name.
    assert!(all.contains("fbmy8032_rel_240606_59f03d5a_931.cza1_bee"));
}

#[test]
fn every_configuration_is_there() {
    for (matrix, cells) in all() {
        for cell in cells {
            ServerConfig::read(&top().join("configs"), cell.dbms, cell.axis("config"), cell.storage_engine())
                .unwrap_or_else(|error| panic!("{matrix}: {error}"));
        }
    }
}
