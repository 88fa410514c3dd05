//! `dbisect expand`.

use std::io::Write;

use comfy_table::{ContentArrangement, Table};
use serde_json::{Value, json};

use crate::matrix::Cell;
use crate::pipeline::Workshop;

use super::arguments::{Expand, ExpandFormat, Global};
use super::exit::Exit;
use super::shop::{chosen, read_matrix, workshop};

pub fn expand(global: &Global, arguments: &Expand) -> anyhow::Result<Exit> {
    let cells = chosen(read_matrix(&arguments.matrix)?.cells()?, &arguments.cell)?;
    let workshop = workshop(global, Some(&arguments.matrix))?;
    let views = cells.iter().map(|cell| view(&workshop, cell)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut out = std::io::stdout().lock();
    let format = if global.json { ExpandFormat::Json } else { arguments.format };
    match format {
        ExpandFormat::Json => writeln!(out, "{}", json!({"schema": 1, "cells": views}))?,
        ExpandFormat::Github => {
            let include: Vec<_> = views.iter().map(|view| json!({"cell": view["name"], "cached": view["cached"]})).collect();
            writeln!(out, "{}", json!({"include": include}))?;
        }
        ExpandFormat::Table => writeln!(out, "{}", table(&views))?,
    }
    Ok(Exit::Done)
}

/// One cell in the shape of the contract. The key is null while the source is not there, or the
/// toolchain is not: then nobody can know it.
fn view(workshop: &Workshop, cell: &Cell) -> anyhow::Result<Value> {
    let mut why = None;
    let planned = match workshop.plan_offline(cell) {
        Ok(planned) => planned,
        Err(error) if error.chain().any(|cause| cause.is::<crate::matrix::ConfigurationError>()) => return Err(error),
        Err(error) => {
            why = Some(format!("{error:#}"));
            None
        }
    };
    let cached = match &planned {
        Some(planned) => workshop.ready(planned)?.is_some(),
        None => false,
    };
    Ok(json!({
        "name": cell.name,
        "dbms": cell.dbms,
        "revision": cell.revision.text(),
        "axes": cell.axes,
        "build_key": planned.as_ref().map(|planned| planned.key.to_string()),
        "cached": cached,
        "source": planned.as_ref().map(|planned| planned.tree.described.clone()),
        "patches": planned.as_ref().map(|planned| planned.tree.patches.iter().map(|patch| patch.name.clone()).collect::<Vec<_>>()),
        "why": why,
    }))
}

fn table(views: &[Value]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["cell", "dbms", "revision", "build key", "cached", "source"]);
    for view in views {
        let text = |key: &str| view[key].as_str().unwrap_or("-").to_owned();
        let key = view["build_key"].as_str().map_or("-", |key| &key[..12]).to_owned();
        let cached = if view["cached"] == true { "yes" } else { "no" }.to_owned();
        table.add_row([text("name"), text("dbms"), text("revision"), key, cached, text("source")]);
    }
    table
}
