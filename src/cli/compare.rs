//! `dbisect compare`.

use crate::compare::{Comparison, Settings, Verdict, compare as judge};
use crate::matrix::{Cell, ConfigurationError, nearest, pairs_along};
use crate::measure::Metric;
use crate::report::{Format, comparison};
use crate::store::Store;

use super::arguments::{Compare, Global};
use super::exit::Exit;
use super::shop::chosen;

pub fn compare(global: &Global, arguments: &Compare) -> anyhow::Result<Exit> {
    let format: Format = if global.json { Format::Json } else { arguments.format.parse()? };
    let metrics = match arguments.metric.as_slice() {
        [] => vec![Metric::Qps, Metric::Cpupq],
        names => names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
    };
    if !(arguments.floor > 0.0 && arguments.floor < 100.0) {
        return Err(ConfigurationError::new(format!("--floor is {} and must be above 0 and below 100 per cent", arguments.floor)).into());
    }
    if !global.db.exists() {
        return Err(ConfigurationError::new(format!("there is no database {}; `dbisect run MATRIX` makes one", global.db.display())).into());
    }
    let store = Store::open(&global.db)?;
    let settings = Settings { floor: arguments.floor / 100.0, ..Settings::default() };
    let cells = chosen(store.cells()?, &arguments.cell)?;
    let mut found = between(&store, &cells, arguments.base.as_deref(), arguments.axis.as_deref(), &metrics, &settings)?;
    let hosts = store.hosts(&cells)?;
    if let [first, second, ..] = hosts.as_slice() {
        let differences = first.differences(second).join("; ");
        if !arguments.across_hosts {
            return Err(ConfigurationError::new(format!("the samples come from {} hosts, and differences between hosts are not differences between builds ({differences}); --across-hosts compares them all the same", hosts.len())).into());
        }
        found.left_out.push(format!("nothing, but samples of {} hosts are mixed: {differences}", hosts.len()));
    }
    let width = terminal_width();
    comparison(&found, format, width, global.colour_on_stdout(), &mut std::io::stdout().lock())?;
    let regressed = found.rows.iter().any(|row| row.verdict == Verdict::Regression);
    Ok(if arguments.fail_on.is_some() && regressed { Exit::Regression } else { Exit::Done })
}

/// Compares recorded cells with a base, or pairs along an axis; shared with `quickstart`.
pub fn between(store: &Store, cells: &[Cell], base: Option<&str>, axis: Option<&str>, metrics: &[Metric], settings: &Settings) -> anyhow::Result<Comparison> {
    let pairs: Vec<(String, String)> = match axis {
        Some(axis) => pairs_along(cells, axis, None)?.into_iter().map(|(one, other)| (one.name.clone(), other.name.clone())).collect(),
        None => {
            let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            let base = match base {
                Some(base) if !names.contains(&base) => {
                    let hint = nearest(base, names.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                    return Err(ConfigurationError::new(format!("there is no measured cell `{base}`{hint} (there are: {})", names.join(", "))).into());
                }
                Some(base) => base,
                None => names.first().copied().unwrap_or_default(),
            };
            names.iter().filter(|name| **name != base).map(|name| (base.to_owned(), (*name).to_owned())).collect()
        }
    };
    let mut series = Vec::new();
    for cell in cells {
        series.extend(store.series(cell, metrics)?);
    }
    let label = axis.map_or_else(
        || pairs.first().map_or_else(String::new, |(base, _)| base.clone()),
        |axis| format!("{axis}={}", cells.first().map_or("", |cell| cell.axis(axis))),
    );
    Ok(judge(&label, &pairs, &series, settings))
}

/// Columns of the terminal; wide enough for a whole row when there is none.
pub fn terminal_width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.or_else(|| comfy_table::Table::new().width()).unwrap_or(160)
}
