use std::path::Path;

use proptest::prelude::*;

use super::*;

const STEPS: [&str; 3] = ["point-query", "read-only", "insert"];

fn parse(text: &str) -> Result<Matrix, String> {
    Matrix::parse(text, Path::new("study.toml"), &STEPS).map_err(|error| error.to_string())
}

fn names(text: &str) -> Vec<String> {
    parse(text).unwrap().cells().unwrap().into_iter().map(|cell| cell.name).collect()
}

const TARGET: &str = "[[target]]\ndbms = \"postgres\"\nversions = [\"16.3\"]\nsource = \"git\"\n";

#[test]
fn cells_are_the_product_of_the_axes_with_names_of_the_field() {
    let text = format!("{TARGET}[build]\nbuild = [\"def\", \"o3_native\"]\nlto = [\"off\", \"full\"]\n[run]\nconfig = \"cx9a2a_small\"\nthreads = [1, 4]\n");
    assert_eq!(
        names(&text),
        [
            "pg163_def.cx9a2a_small.dop1",
            "pg163_def.cx9a2a_small.dop4",
            "pg163_def_lto.cx9a2a_small.dop1",
            "pg163_def_lto.cx9a2a_small.dop4",
            "pg163_o3_native.cx9a2a_small.dop1",
            "pg163_o3_native.cx9a2a_small.dop4",
            "pg163_o3_native_lto.cx9a2a_small.dop1",
            "pg163_o3_native_lto.cx9a2a_small.dop4",
        ]
    );
}

#[test]
fn a_configuration_that_implies_lto_is_the_same_cell_as_the_axis() {
    let implied = parse(&format!("{TARGET}[build]\nbuild = [\"o3_native\", \"o3_native_lto\"]\n")).unwrap().cells().unwrap();
    let spelled = parse(&format!("{TARGET}[build]\nbuild = \"o3_native\"\nlto = [false, true]\n")).unwrap().cells().unwrap();
    assert_eq!(implied, spelled);
    let pairs = pairs_along(&implied, "lto", None).unwrap();
    assert_eq!(
        pairs.iter().map(|(base, other)| (base.name.as_str(), other.name.as_str())).collect::<Vec<_>>(),
        [("pg163_o3_native.cx9a2a_small", "pg163_o3_native_lto.cx9a2a_small")]
    );
}

#[test]
fn every_mistake_is_told_at_once_with_line_and_key() {
    let text = "[[target]]\ndbms = \"postgress\"\nverions = [\"16.3\"]\nsource = \"git\"\n[build]\ncompiler = [\"gcc\", \"icc\"]\n[workload]\nsteps = [\"point-qery\"]\ntime = \"soon\"\n";
    let error = parse(text).unwrap_err();
    for wanted in [
        "line 2, `target[0].dbms`: there is no dbms `postgress`; did you mean `postgres`?",
        "line 3, `target[0].verions`: there is no such key; did you mean `versions`?",
        "line 6, `build.compiler`: `icc` is not a compiler",
        "line 8, `workload.steps`: there is no step `point-qery`; did you mean `point-query`?",
        "line 9, `workload.time`: wanted a whole number",
    ] {
        assert!(error.contains(wanted), "{wanted:?} is not in:\n{error}");
    }
}

#[test]
fn text_that_is_not_toml_is_told_by_line_only() {
    let error = parse("[[target]\ndbms = postgres").unwrap_err();
    assert!(error.contains("line 1:"), "{error}");
    assert!(!error.contains("names nothing to build"), "{error}");
}

#[test]
fn a_revision_that_could_be_an_option_is_refused() {
    for revision in ["--upload-pack=x", "a..b", "", "two words"] {
        let text = format!("[[target]]\ndbms = \"postgres\"\nrevisions = [\"{revision}\"]\nsource = \"git\"\n");
        assert!(parse(&text).is_err(), "{revision:?} was accepted");
    }
}

#[test]
fn exclude_takes_away_and_complains_when_it_does_not() {
    let axes = "[build]\ncompiler = [\"gcc\", \"clang\"]\nlto = [\"off\", \"thin\"]\n";
    let fine = format!("{TARGET}{axes}[[exclude]]\ncompiler = \"gcc\"\nlto = \"thin\"\n");
    assert_eq!(names(&fine), ["pg163_def.cx9a2a_small", "pg163_def_clang.cx9a2a_small", "pg163_def_thinlto_clang.cx9a2a_small"]);
    let missing = parse(&format!("{TARGET}{axes}")).unwrap().cells().unwrap_err().to_string();
    assert!(missing.contains("add [[exclude]]"), "{missing}");
    let useless = parse(&format!("{fine}[[exclude]]\ncompiler = \"gcc-13\"\n")).unwrap().cells().unwrap_err().to_string();
    assert!(useless.contains("exclude[1] matches no cell"), "{useless}");
}

#[test]
fn include_adds_one_cell_and_fills_in_first_values() {
    let text = format!("{TARGET}[build]\nbuild = \"o2nofp\"\n[[include]]\nbuild = \"o3_native\"\nlto = true\nversion = \"17beta1\"\n");
    assert_eq!(names(&text), ["pg163_o2nofp.cx9a2a_small", "pg17beta1_o3_native_lto.cx9a2a_small"]);
}

#[test]
fn contradictions_and_same_names_are_refused() {
    let error = parse(&format!("{TARGET}[build]\nbuild = \"o3_native_lto\"\nlto = \"off\"\n")).unwrap().cells().unwrap_err().to_string();
    assert!(error.contains("contradict"), "{error}");
    let text = format!("{TARGET}[[target]]\ndbms = \"postgres\"\nversions = [\"16.3\"]\nsource = {{ kind = \"git\", remote = \"elsewhere\" }}\n");
    let error = parse(&text).unwrap().cells().unwrap_err().to_string();
    assert!(error.contains("both named pg163_def.cx9a2a_small"), "{error}");
}

#[test]
fn a_matrix_that_explodes_is_refused_before_it_is_expanded() {
    let many = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let many = many.replacen('0', "1000", 1);
    let text = format!("{TARGET}[run]\nthreads = [{many}]\nrows = [{many}]\ntables = [{many}]\n");
    let error = parse(&text).unwrap().cells().unwrap_err().to_string();
    assert!(error.contains("at most 10000"), "{error}");
}

#[test]
fn files_that_are_no_matrix_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, bytes: Option<&[u8]>| {
        let path = dir.path().join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        Matrix::read(&path, &STEPS).unwrap_err().to_string()
    };
    assert!(read("missing.toml", None).contains("No such file"));
    assert!(read("empty.toml", Some(b"")).contains("names nothing to build"));
    assert!(read("binary.toml", Some(&[0x7f, b'E', b'L', b'F', 0xff, 0xfe])).contains("not UTF-8"));
    assert!(read("huge.toml", Some(&vec![b'#'; (1 << 20) + 1])).contains("at most 1048576"));
    assert!(Matrix::read(dir.path(), &STEPS).unwrap_err().to_string().contains("not a regular file"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_toml_like_text_makes_it_panic(keys in proptest::collection::vec(("[a-z_]{1,9}", "(1|true|\"[a-z.-]{0,6}\"|\\[\\]|\\[1, \"gcc\"\\]|\\{ kind = \"git\" \\})"), 0..12), head in "(|\\[build\\]|\\[\\[target\\]\\]|\\[run\\]|\\[workload\\]|\\[\\[include\\]\\])") {
        let text = keys.iter().fold(format!("{head}\n"), |text, (key, value)| text + &format!("{key} = {value}\n"));
        if let Ok(matrix) = parse(&text) {
            let _ = matrix.cells();
        }
    }

    #[test]
    fn names_are_distinct_and_every_axis_has_a_value(
        builds in proptest::sample::subsequence(vec!["def", "o2nofp", "o3", "o3_native"], 1..=4),
        compilers in proptest::sample::subsequence(vec!["gcc", "clang", "gcc-11", "clang-14"], 1..=4),
        lto in proptest::sample::subsequence(vec!["off", "full"], 1..=2),
        threads in proptest::sample::subsequence(vec![1, 2, 4], 1..=3),
    ) {
        let list = |values: &[&str]| values.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(", ");
        let text = format!("{TARGET}[build]\nbuild = [{}]\ncompiler = [{}]\nlto = [{}]\n[run]\nthreads = {threads:?}\n", list(&builds), list(&compilers), list(&lto));
        let cells = parse(&text).unwrap().cells().unwrap();
        prop_assert_eq!(cells.len(), builds.len() * compilers.len() * lto.len() * threads.len());
        let distinct: std::collections::BTreeSet<_> = cells.iter().map(|cell| &cell.name).collect();
        prop_assert_eq!(distinct.len(), cells.len());
        for cell in &cells {
            prop_assert_eq!(cell.axes.len(), AXES.len());
            prop_assert!(cell.name.starts_with(cell.build_name()) && cell.name.len() > cell.build_name().len());
        }
    }
}
