//! `bisect`: the search asks, the pipeline builds, measures and records.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::bisect::{
    Answer, Candidate, Cost, Evidence, Expect, Measured, Named, Next, Outcome, Question, Range, SearchReport, Suspect, Tested, next, posterior,
};
use crate::build::{FailureClass, keeps};
use crate::cache::Entry;
use crate::matrix::{Cell, ConfigurationError, Matrix, Revision, Workload};
use crate::measure::{Metric, fingerprint};
use crate::process::stop_if_interrupted;
use crate::source::Commit;
use crate::store::{BuildNote, SearchId, SessionId, Store};

use super::builds::{Limits, Made};
use super::restarts::{Ended, Restart};
use super::study::estimate;
use super::{Observer, Places, Workshop, now};

/// Failed restarts of a class after which it counts as one that cannot be measured.
const MOST_FAILURES: usize = 2;
/// Doubtful readings beyond those that count, at which the host is given up.
const MOST_DOUBTFUL: usize = 12;

/// What is searched and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchOptions {
    /// Good end as written.
    pub good: String,
    /// Bad end as written.
    pub bad: String,
    /// Metric that decides.
    pub metric: Metric,
    /// Step that decides.
    pub step: String,
    /// Probability at which a commit is named.
    pub confidence: f64,
    /// Smallest effect of interest, as a fraction.
    pub floor: f64,
    /// Seconds after which the search must end.
    pub budget: Option<f64>,
    /// Breaks ties.
    pub seed: u64,
    /// Kind of change.
    pub expect: Expect,
}

/// Everything that makes a search reproducible: written down when it begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Definition {
    options: SearchOptions,
    study: String,
    /// The matrix file, absolute: server configurations and patches lie beside it.
    #[serde(default)]
    matrix: PathBuf,
    cell: Cell,
    workload: Workload,
    commits: Vec<Commit>,
    /// Class of each commit.
    classes: Vec<usize>,
    all: usize,
    note: Option<String>,
}

/// Begins a search and carries it to its end.
///
/// # Errors
/// [`ConfigurationError`] for ends that do not exist or cannot be ordered; when the user interrupts,
/// in which case [`resume_search`] goes on; when something that is no fact about a commit goes wrong.
pub fn start_search(
    workshop: &Workshop,
    matrix: &Matrix,
    cell: &Cell,
    options: SearchOptions,
    limits: Limits,
    store: &mut Store,
    observer: &dyn Observer,
) -> anyhow::Result<SearchReport> {
    let history = workshop.sources.history(cell, &options.good, &options.bad, &|sentence| observer.say(sentence))?;
    let mut class = 0;
    let classes = history.commits.iter().enumerate().map(|(index, commit)| {
        class += usize::from(index > 0 && commit.paths.iter().any(|path| keeps(cell.dbms, path)));
        class
    });
    let definition = Definition {
        classes: classes.collect(),
        study: matrix.name.clone(),
        matrix: std::path::absolute(&matrix.path).context("the matrix file cannot be named")?,
        cell: cell.clone(),
        workload: Workload { steps: vec![options.step.clone()], ..matrix.workload.clone() },
        options,
        commits: history.commits,
        all: history.all,
        note: history.note,
    };
    let id = store.begin_search(&serde_json::to_string(&definition)?, &now())?;
    observer.say(&format!(
        "search {id}: {} commits, {} of which change what is built",
        definition.commits.len() - 1,
        definition.classes.last().copied().unwrap_or(0)
    ));
    Search { id, definition, workshop, matrix }.go_on(limits, store, observer)
}

/// Goes on with a search that was interrupted; one that has ended gives its answer again.
///
/// # Errors
/// As [`start_search`].
pub fn resume_search(workshop: &Workshop, id: SearchId, limits: Limits, store: &mut Store, observer: &dyn Observer) -> anyhow::Result<SearchReport> {
    let record = store.search(id)?;
    if record.answer.is_some() {
        return show_search(id, store);
    }
    let definition: Definition = serde_json::from_str(&record.definition).context("the database holds a search that cannot be read")?;
    let matrix = Matrix::bare(&definition.study);
    Search { id, definition, workshop, matrix: &matrix }.go_on(limits, store, observer)
}

/// The matrix file that a search was begun with, for whoever resumes it from another directory.
///
/// # Errors
/// When there is none of that number, or it cannot be read.
pub fn matrix_of_search(id: SearchId, store: &Store) -> anyhow::Result<PathBuf> {
    let definition: Definition = serde_json::from_str(&store.search(id)?.definition).context("the database holds a search that cannot be read")?;
    Ok(definition.matrix)
}

/// What is known of a search: its answer, or where it stands.
///
/// # Errors
/// When there is none of that number, or it cannot be read.
pub fn show_search(id: SearchId, store: &Store) -> anyhow::Result<SearchReport> {
    let record = store.search(id)?;
    let definition: Definition = serde_json::from_str(&record.definition).context("the database holds a search that cannot be read")?;
    let question = definition.question();
    let evidence = definition.evidence(id, store, &BTreeSet::new(), None)?;
    let answer = match next(&question, &evidence) {
        Next::Stop(answer) => answer,
        Next::Measure { why, .. } => unfinished(&question, &evidence, &why),
    };
    if let Some(text) = record.answer {
        return serde_json::from_str(&text).context("the database holds an answer that cannot be read");
    }
    definition.report(id, &question, &evidence, answer, store)
}

fn unfinished(question: &Question, evidence: &Evidence, why: &str) -> Answer {
    let belief = posterior(question, evidence);
    let best = belief.commits.iter().copied().fold(0.0, f64::max);
    Answer {
        outcome: Outcome::Undecided,
        culprit: None,
        posterior: best,
        suspects: Vec::new(),
        effect: None,
        restarts_needed: None,
        why: format!("the search has not ended; next: {why}"),
    }
}

/// The decisions of a search again, from the recorded readings, one line each.
///
/// # Errors
/// As [`show_search`].
pub fn replay(id: SearchId, store: &Store) -> anyhow::Result<Vec<String>> {
    let record = store.search(id)?;
    let definition: Definition = serde_json::from_str(&record.definition).context("the database holds a search that cannot be read")?;
    let question = definition.question();
    let full = definition.evidence(id, store, &BTreeSet::new(), None)?;
    let mut lines = Vec::new();
    let mut seen = Evidence { readings: Vec::new(), ..full.clone() };
    loop {
        let at = seen.readings.len();
        match next(&question, &seen) {
            Next::Stop(answer) => {
                lines.push(format!("after {at} readings: stop, {:?}: {}", answer.outcome, answer.why));
                return Ok(lines);
            }
            Next::Measure { classes, why } => {
                let names: Vec<_> = classes.iter().map(|class| definition.short(*class)).collect();
                lines.push(format!("after {at} readings: measure {} because {why}", names.join(", ")));
                if at >= full.readings.len() {
                    return Ok(lines);
                }
                let end = (at + classes.len()).min(full.readings.len());
                seen.readings.extend_from_slice(&full.readings[at..end]);
            }
        }
    }
}

impl Definition {
    fn question(&self) -> Question {
        let candidate =
            |index: usize| Candidate { class: self.classes[index], prior: if index > 0 && self.classes[index] != self.classes[index - 1] { 1.0 } else { 0.0 } };
        Question {
            commits: (0..self.commits.len()).map(candidate).collect(),
            worse: self.options.metric.worse(),
            expect: self.options.expect,
            floor: self.options.floor,
            confidence: self.options.confidence,
            seed: self.options.seed,
            most_restarts: 24,
        }
    }

    /// First commit of a class: the one that is built for it.
    fn representative(&self, class: usize) -> &Commit {
        let index = self.classes.iter().position(|other| *other == class).unwrap_or(0);
        &self.commits[index]
    }

    fn short(&self, class: usize) -> String {
        self.representative(class).id.chars().take(10).collect()
    }

    /// What is known. Of doubtful readings only those of this session count against the host: it may
    /// be quieter when a search is resumed.
    fn evidence(&self, id: SearchId, store: &Store, cached: &BTreeSet<usize>, session: Option<SessionId>) -> anyhow::Result<Evidence> {
        let (readings, doubtful) = store.readings_of(id, &self.options.step, self.options.metric)?;
        let doubtful = doubtful.into_iter().filter(|of| Some(*of) == session).count();
        if doubtful > MOST_DOUBTFUL + readings.len() {
            bail!(
                "{doubtful} readings were doubtful and {} were not: the host is too disturbed to decide anything; `dbisect doctor` says what disturbs it, and `bisect resume {id}` goes on",
                readings.len()
            );
        }
        let builds = store.builds_of(id)?;
        let failed = |note: &&BuildNote| note.outcome == "failed";
        let made: Vec<f64> = builds.iter().filter(|note| note.outcome == "built").map(|note| note.seconds).collect();
        let (restarts, restart_seconds) = store.restarts_of(id)?;
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let average = |sum: f64, count: usize, guess: f64| if count == 0 { guess } else { sum / count as f64 };
        Ok(Evidence {
            readings,
            unbuildable: builds.iter().filter(failed).map(|note| note.class).collect(),
            built: builds.iter().filter(|note| note.outcome != "failed").map(|note| note.class).chain(cached.iter().copied()).collect(),
            build_seconds: average(made.iter().sum(), made.len(), estimate(1, 0, &self.workload)),
            restart_seconds: average(restart_seconds, restarts, estimate(0, 1, &self.workload)),
            spent_seconds: builds.iter().map(|note| note.seconds).sum::<f64>() + restart_seconds,
            budget_seconds: self.options.budget,
        })
    }

    fn report(&self, id: SearchId, question: &Question, evidence: &Evidence, answer: Answer, store: &Store) -> anyhow::Result<SearchReport> {
        let belief = posterior(question, evidence);
        let builds = store.builds_of(id)?;
        let (runs, run_seconds) = store.restarts_of(id)?;
        let named = |index: usize| Named { commit: self.commits[index].id.clone(), subject: self.commits[index].subject.clone() };
        let suspect = |(index, probability): &(usize, f64)| Suspect {
            commit: self.commits[*index].id.clone(),
            subject: self.commits[*index].subject.clone(),
            probability: *probability,
        };
        let mut notes: Vec<String> = self.note.iter().cloned().collect();
        if self.all > self.commits.len() - 1 {
            notes.push(format!(
                "the range has {} commits with merged branches and {} along first parents; only the latter were searched",
                self.all,
                self.commits.len() - 1
            ));
        }
        Ok(SearchReport {
            id,
            outcome: answer.outcome,
            culprit: answer.culprit.map(named),
            posterior: answer.posterior,
            suspects: answer.suspects.iter().map(suspect).collect(),
            effect: answer.effect.map(|effect| Measured {
                metric: self.options.metric,
                step: self.options.step.clone(),
                relative: effect.relative,
                ci95: effect.ci95,
            }),
            tested: self.tested(evidence, &builds, &belief.commits),
            cost: Cost {
                builds: builds.iter().filter(|note| note.outcome != "hit").count(),
                hits: builds.iter().filter(|note| note.outcome == "hit").count(),
                runs,
                seconds: run_seconds + builds.iter().map(|note| note.seconds).sum::<f64>(),
            },
            no_change: belief.no_change,
            restarts_needed: answer.restarts_needed,
            why: answer.why,
            range: Range { commits: self.commits.len() - 1, builds: self.classes.last().copied().unwrap_or(0), all: self.all },
            notes,
        })
    }

    fn tested(&self, evidence: &Evidence, builds: &[BuildNote], posterior: &[f64]) -> Vec<Tested> {
        let mut logs: BTreeMap<usize, Vec<f64>> = builds.iter().map(|note| (note.class, Vec::new())).collect();
        for reading in &evidence.readings {
            logs.entry(reading.class).or_default().push(reading.value.ln());
        }
        let one = |(class, logs): (usize, Vec<f64>)| {
            let commit = self.representative(class);
            let changed: f64 = posterior.iter().zip(&self.classes).filter(|(_, other)| **other <= class).map(|(mass, _)| mass).sum();
            let note = builds.iter().find(|note| note.class == class);
            let state = match note {
                Some(note) if note.outcome == "failed" => "unbuildable",
                _ if logs.is_empty() => "built",
                _ if changed > 0.95 => "bad",
                _ if changed < 0.05 => "good",
                _ => "unclear",
            };
            #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
            let mean = (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp());
            Tested {
                commit: commit.id.clone(),
                subject: commit.subject.clone(),
                state: state.to_owned(),
                samples: logs.len(),
                mean,
                message: note.and_then(|note| note.message.clone()),
            }
        };
        logs.into_iter().map(one).collect()
    }
}

/// A search that is being carried out.
struct Search<'a> {
    id: SearchId,
    definition: Definition,
    workshop: &'a Workshop,
    matrix: &'a Matrix,
}

impl Search<'_> {
    fn go_on(&self, limits: Limits, store: &mut Store, observer: &dyn Observer) -> anyhow::Result<SearchReport> {
        self.workshop.check_configs(std::slice::from_ref(&self.definition.cell))?;
        let question = self.definition.question();
        let places = Places::new(self.workshop.cache())?;
        let session = store.begin_session(&fingerprint(places.root()), "bisect", &self.definition.study, &now())?;
        let cached = self.cached(observer)?;
        let mut entries: BTreeMap<usize, Entry> = BTreeMap::new();
        loop {
            stop_if_interrupted()?;
            let evidence = self.definition.evidence(self.id, store, &cached, Some(session))?;
            let classes = match next(&question, &evidence) {
                Next::Stop(answer) => {
                    let report = self.definition.report(self.id, &question, &evidence, answer, store)?;
                    store.end_search(self.id, &serde_json::to_string(&report)?)?;
                    return Ok(report);
                }
                Next::Measure { classes, why } => {
                    let names: Vec<_> = classes.iter().map(|class| self.definition.short(*class)).collect();
                    observer.say(&format!("search {}: measure {}: {why}", self.id, names.join(", ")));
                    classes
                }
            };
            // All builds first: a build beside a measurement would disturb it.
            let mut failed = false;
            for class in classes.iter().copied().collect::<BTreeSet<_>>() {
                failed |= !self.build(class, &mut entries, limits, store, observer)?;
            }
            if !failed {
                self.measure(&classes, &entries, session, &places, store, observer)?;
            }
        }
    }

    fn cell_of(&self, class: usize) -> anyhow::Result<Cell> {
        Ok(self.matrix.cell_at(&self.definition.cell, Revision::Commit(self.definition.representative(class).id.clone()))?)
    }

    /// Classes whose build is in the cache already: they cost nothing, and the search knows.
    fn cached(&self, observer: &dyn Observer) -> anyhow::Result<BTreeSet<usize>> {
        let mut cached = BTreeSet::new();
        let Some(last) = self.definition.classes.last() else { return Ok(cached) };
        for class in 0..=*last {
            stop_if_interrupted()?;
            if let Some(planned) = self.workshop.plan_offline(&self.cell_of(class)?)?
                && self.workshop.ready(&planned)?.is_some()
            {
                cached.insert(class);
            }
        }
        if !cached.is_empty() {
            observer.say(&format!("search {}: {} of {} builds are in the cache", self.id, cached.len(), last + 1));
        }
        Ok(cached)
    }

    /// True when the class has a build. Failures of the machine are errors.
    fn build(&self, class: usize, entries: &mut BTreeMap<usize, Entry>, limits: Limits, store: &Store, observer: &dyn Observer) -> anyhow::Result<bool> {
        if entries.contains_key(&class) {
            return Ok(true);
        }
        let cell = self.cell_of(class)?;
        let reports = self.workshop.build(std::slice::from_ref(&cell), limits, observer)?;
        let report = reports.into_iter().next().context("a build without a report")?;
        // What configure refuses at one commit and accepted at another is that commit's need: it is
        // not remembered as a fact, but the search can go round it.
        let unbuildable = report.class.is_some_and(|class| class.is_final() || (class == FailureClass::ToolchainLacks && !entries.is_empty()));
        if matches!(report.outcome, Made::Failed | Made::KnownFailure) && !unbuildable {
            bail!(
                "{} could not be built, and that is no fact about the commit: {}; `dbisect bisect resume {}` goes on",
                report.cell,
                report.message.unwrap_or_default(),
                self.id
            );
        }
        let outcome = match report.outcome {
            Made::Built => "built",
            Made::Hit => "hit",
            Made::Failed | Made::KnownFailure => "failed",
        };
        store.note_build(
            self.id,
            &BuildNote { class, build_key: report.build_key, outcome: outcome.to_owned(), seconds: report.seconds, message: report.message },
        )?;
        let Some(entry) = report.entry else {
            observer.say(&format!("search {}: {} cannot be built; its probability is kept", self.id, self.definition.short(class)));
            return Ok(false);
        };
        entries.insert(class, entry);
        Ok(true)
    }

    fn measure(
        &self,
        classes: &[usize],
        entries: &BTreeMap<usize, Entry>,
        session: i64,
        places: &Places,
        store: &mut Store,
        observer: &dyn Observer,
    ) -> anyhow::Result<()> {
        for (at, class) in classes.iter().enumerate() {
            stop_if_interrupted()?;
            let Some(entry) = entries.get(class) else { continue };
            let cell = self.cell_of(*class)?;
            observer.measuring(at, classes.len(), &format!("search {}: {}", self.id, self.definition.short(*class)));
            let block = u64::try_from(store.restarts_of(self.id)?.0)?;
            let restart = Restart { session, cell: &cell, position: *class, entry, workload: &self.definition.workload, block, seed: block + 1 };
            let note = |store: &Store, restart| store.note_reading(self.id, restart, *class);
            if let Ended::Failed(why) = self.workshop.restart(&restart, places, store, &note, observer)? {
                observer.say(&format!("search {}: a restart of {} failed: {why}", self.id, self.definition.short(*class)));
                let failures = store.failures_of(self.id, *class)?;
                if failures.len() >= MOST_FAILURES {
                    let message = format!("it was built and could not be measured: {why}");
                    store.note_build(
                        self.id,
                        &BuildNote {
                            class: *class,
                            build_key: Some(entry.key.to_string()),
                            outcome: "failed".to_owned(),
                            seconds: 0.0,
                            message: Some(message),
                        },
                    )?;
                }
                return Ok(());
            }
        }
        observer.measuring(classes.len(), classes.len(), "done");
        Ok(())
    }
}

impl SearchOptions {
    /// Refuses numbers that no search can be asked with.
    ///
    /// # Errors
    /// [`ConfigurationError`] that names the option.
    pub fn check(self) -> Result<Self, ConfigurationError> {
        if !(0.5..1.0).contains(&self.confidence) {
            return Err(ConfigurationError::new(format!("--confidence is {} and must be at least 0.5 and below 1", self.confidence)));
        }
        if !(self.floor > 0.0 && self.floor < 1.0) {
            return Err(ConfigurationError::new(format!("--floor is {}% and must be above 0 and below 100", self.floor * 100.0)));
        }
        Ok(self)
    }
}
