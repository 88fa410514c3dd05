//! `dbisect cache`.

use std::io::Write;

use serde_json::json;

use crate::cache::Cache;

use super::arguments::{Cache as Arguments, CacheCommand, Global};
use super::exit::Exit;
use super::shop::cache_dir;

pub fn cache(global: &Global, arguments: &Arguments) -> anyhow::Result<Exit> {
    let dir = cache_dir(global)?;
    let cache = Cache::new(&dir);
    let mut out = std::io::stdout().lock();
    match arguments.command {
        CacheCommand::Ls => {
            let lines = cache.list()?;
            if global.json {
                writeln!(out, "{}", json!({"schema": 1, "builds": lines}))?;
            } else if lines.is_empty() {
                writeln!(out, "no build in {}", dir.display())?;
            } else {
                for line in &lines {
                    let damage = line.damage.as_ref().map_or_else(String::new, |damage| format!("  DAMAGED: {damage}"));
                    writeln!(
                        out,
                        "{}  {:4} MB  {:5.0} s  {}  {} ({}){damage}",
                        &line.build_key[..12],
                        line.bytes / 1_000_000,
                        line.seconds,
                        line.built_at,
                        line.cell,
                        line.source
                    )?;
                }
            }
        }
        CacheCommand::Stats => {
            let stats = cache.stats()?;
            if global.json {
                writeln!(out, "{}", json!({"schema": 1, "dir": dir, "stats": stats}))?;
            } else {
                writeln!(out, "{}", dir.display())?;
                writeln!(
                    out,
                    "{} builds, {} MB, which took {:.0} min; {} remembered failures; {} damaged",
                    stats.builds,
                    stats.build_bytes / 1_000_000,
                    stats.build_seconds / 60.0,
                    stats.failures,
                    stats.damaged
                )?;
                writeln!(
                    out,
                    "sources {} MB, loaded data {} MB, object cache {} MB",
                    stats.source_bytes / 1_000_000,
                    stats.data_bytes / 1_000_000,
                    stats.object_bytes / 1_000_000
                )?;
            }
        }
    }
    Ok(Exit::Done)
}
