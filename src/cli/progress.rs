//! Progress on standard error: bars on a terminal, single lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::pipeline::Observer;

use super::arguments::Global;

/// Shows what the pipeline does.
pub struct Progress {
    bars: MultiProgress,
    builds: Mutex<BTreeMap<String, ProgressBar>>,
    restarts: Mutex<Option<ProgressBar>>,
    terminal: bool,
    quiet: bool,
}

impl Progress {
    /// Bars for a terminal, lines for anything else, nothing with `--quiet`.
    pub fn new(global: &Global) -> Self {
        let terminal = std::io::stderr().is_terminal() && !global.quiet;
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), builds: Mutex::default(), restarts: Mutex::default(), terminal, quiet: global.quiet }
    }

    fn style(template: &str) -> ProgressStyle {
        // The templates are ours and known to be well formed; a plain bar is no worse.
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}

impl Observer for Progress {
    fn say(&self, sentence: &str) {
        if self.quiet {
            return;
        }
        if self.terminal {
            // A line that cannot be shown is no reason to stop.
            let _ = self.bars.println(sentence);
        } else {
            eprintln!("{sentence}");
        }
    }

    fn building(&self, cell: &str, step: &str, compiled: f64) {
        let Ok(mut builds) = self.builds.lock() else { return };
        if !builds.contains_key(cell) {
            let bar = self.bars.add(ProgressBar::new(100));
            bar.set_style(Self::style("{prefix} [{bar:24}] {percent:>3}% {msg} {elapsed}"));
            bar.set_prefix(cell.to_owned());
            builds.insert(cell.to_owned(), bar);
            if !self.terminal && !self.quiet {
                eprintln!("building {cell}");
            }
        }
        if let Some(bar) = builds.get(cell) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share from 0 to 1 as per cent")]
            bar.set_position((compiled * 100.0) as u64);
            bar.set_message(step.to_owned());
        }
    }

    fn build_ended(&self, cell: &str) {
        if let Some(bar) = self.builds.lock().ok().and_then(|mut builds| builds.remove(cell)) {
            bar.finish_and_clear();
            self.bars.remove(&bar);
        }
    }

    fn measuring(&self, done: usize, all: usize, what: &str) {
        let Ok(mut restarts) = self.restarts.lock() else { return };
        let bar = restarts.get_or_insert_with(|| {
            let bar = self.bars.add(ProgressBar::new(all as u64));
            bar.set_style(Self::style("measuring [{bar:24}] {pos}/{len} {msg} {elapsed}, {eta} left"));
            bar
        });
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
        if !self.terminal && !self.quiet && done < all {
            eprintln!("measuring {what} ({} of {all})", done + 1);
        }
        if done == all {
            bar.finish_and_clear();
            *restarts = None;
        }
    }
}
