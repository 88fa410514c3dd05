use super::*;
use crate::matrix::Matrix;

/// The recipe of a cell whose tree has the files given.
fn of(dbms: &str, version: &str, axes: &str, files: &[(&str, &str)]) -> anyhow::Result<Recipe> {
    let source = match dbms {
        "myrocks" => format!("revisions = [\"59f03d5a\"]\nrelease = \"{version}\""),
        _ => format!("versions = [\"{version}\"]"),
    };
    let text = format!("[[target]]\ndbms = \"{dbms}\"\n{source}\nsource = \"git\"\n[build]\n{axes}\n");
    let cell = Matrix::parse(&text, std::path::Path::new("t.toml"), &[]).unwrap().cells().unwrap().remove(0);
    recipe(&cell, version, &|path| Ok(files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())))
}

const BOOST: &[(&str, &str)] = &[("cmake/boost.cmake", "SET(BOOST_PACKAGE_NAME \"boost_1_77_0\")")];
const YASSL: &[(&str, &str)] = &[("extra/yassl/CMakeLists.txt", "")];

fn options(recipe: &Recipe) -> Vec<String> {
    recipe.steps[0].argv.iter().skip_while(|arg| *arg != "--").skip(1).cloned().collect()
}

fn only_in(one: &Recipe, other: &Recipe) -> Vec<String> {
    let other = options(other);
    options(one).into_iter().filter(|option| !other.contains(option)).collect()
}

#[test]
fn argument_vectors_of_the_posts() {
    let mut text = String::new();
    for (dbms, version, axes, files) in [
        ("mysql", "5.6.35", "build = \"rel\"", YASSL),
        ("mysql", "5.7.44", "build = \"rel\"\ncmake = \"-DWITH_SSL=/opt/openssl-1.1.1\"", BOOST),
        ("mysql", "8.0.37", "build = \"rel\"", BOOST),
        ("mysql", "8.0.37", "build = \"rel_native\"\nlto = \"full\"", BOOST),
        ("mysql", "8.0.37", "build = \"rel_o2nofp\"\ncompiler = \"clang-14\"", BOOST),
        ("mysql", "8.0.37", "build = \"rel_lessps\"", BOOST),
        ("mysql", "9.4.0", "build = \"rel\"", &[("cmake/boost.cmake", "extra/boost")]),
        ("myrocks", "5.6.35", "build = \"rel\"\nlto = \"full\"", YASSL),
        ("myrocks", "8.0.32", "build = \"rel\"", BOOST),
        ("mariadb", "10.11.19", "build = \"rel\"\nlto = \"full\"", &[]),
    ] {
        let recipe = of(dbms, version, axes, files).unwrap();
        text.push_str(&format!("# {dbms} {version}, {}\n", axes.replace('\n', ", ")));
        for step in &recipe.steps {
            text.push_str(&format!("{}: {}\n", step.name, step.argv.join("\n    ")));
        }
        text.push('\n');
    }
    insta::assert_snapshot!(text);
}

#[test]
fn rel_and_rel_lto_differ_in_the_switch_alone() {
    let [rel, lto] = ["off", "full"].map(|lto| of("mysql", "8.0.37", &format!("lto = \"{lto}\""), BOOST).unwrap());
    assert_eq!(only_in(&lto, &rel), ["-DCMAKE_AR=/usr/bin/gcc-ar", "-DCMAKE_RANLIB=/usr/bin/gcc-ranlib", "-DWITH_LTO=ON"]);
    assert!(only_in(&rel, &lto).is_empty());
    // Before 8.0 there is no switch, and the flags say it.
    let [rel, lto] = ["off", "full"].map(|lto| of("mysql", "5.6.35", &format!("lto = \"{lto}\""), YASSL).unwrap());
    assert!(only_in(&lto, &rel).iter().any(|option| option.starts_with("-DCMAKE_CXX_FLAGS=") && option.contains(" -flto ")));
    assert!(only_in(&lto, &rel).contains(&"-DCMAKE_EXE_LINKER_FLAGS=-flto=auto".to_owned()));
    assert!(!options(&lto).iter().any(|option| option.starts_with("-DWITH_LTO")));
}

#[test]
fn the_tls_library_follows_the_version() {
    let error = of("mysql", "8.0.28", "", BOOST).unwrap_err().to_string();
    assert!(error.contains("OpenSSL 1.1.1") && error.contains("-DWITH_SSL="), "{error}");
    assert!(of("mysql", "8.0.2", "", BOOST).unwrap_err().to_string().contains("OpenSSL 1.0.2"));
    let has = |recipe: Recipe, option: &str| options(&recipe).iter().any(|found| found == option);
    assert!(has(of("mysql", "8.0.31", "", BOOST).unwrap(), "-DWITH_SSL=system"));
    assert!(has(of("mysql", "5.6.35", "", YASSL).unwrap(), "-DWITH_SSL=bundled"));
    assert!(has(of("mysql", "8.0.28", "cmake = \"-DWITH_SSL=/opt/ssl\"", BOOST).unwrap(), "-DWITH_SSL=/opt/ssl"));
}

#[test]
fn what_the_build_does_not_read_is_left_out() {
    for path in ["mysql-test/suite/rpl/t/a.test", "Docs/INFO_SRC", "rocksdb/java/src/A.java", "README.md", "man/mysqld.8"] {
        assert!(!keeps(path), "{path}");
    }
    for path in ["sql/mysqld.cc", "CMakeLists.txt", "mysql-test/CMakeLists.txt", "mysql-test/mtr.out-of-source", "rocksdb/src.mk", "man/CMakeLists.txt"] {
        assert!(keeps(path), "{path}");
    }
}

#[test]
fn boost_is_the_one_that_the_tree_names() {
    assert_eq!(boost_name("SET(BOOST_PACKAGE_NAME \"boost_1_73_0\")\n"), Some("boost_1_73_0"));
    assert_eq!(boost_name("SET(BOOST_PACKAGE_NAME)"), None);
}

#[test]
fn a_configuration_that_would_change_nothing_is_refused() {
    for (dbms, version) in [("mysql", "5.6.35"), ("mariadb", "10.11.19")] {
        let error = of(dbms, version, "build = \"rel_lessps\"", YASSL).unwrap_err().to_string();
        assert!(error.contains("rel_lessps") && error.contains("8.0 and later"), "{error}");
    }
    assert!(of("mysql", "8.0.37", "build = \"rel_less\"", BOOST).is_ok());
}
