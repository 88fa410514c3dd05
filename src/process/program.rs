//! A command described, then run in one of four ways: for its output, into a log, line by line, or
//! as a daemon.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duct::Handle;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::account::Account;
use super::error::{Outcome, ProcessError};
use super::interrupt::interrupted;
use super::sweep::MARKER;

/// How often a wait looks at the child, the deadline and the interrupt flag.
const POLL: Duration = Duration::from_millis(20);
/// Lines of output that an error quotes.
const TAIL_LINES: usize = 15;
/// Bytes from the end of a log that are searched for those lines.
const TAIL_BYTES: u64 = 16 * 1024;

/// A command to be run: built up by chained setters, consumed by one of the four ways to run it.
#[derive(Clone, Debug)]
pub struct Program {
    argv: Vec<OsString>,
    dir: Option<PathBuf>,
    env: BTreeMap<OsString, OsString>,
    removed_env: Vec<OsString>,
    inherit_env: bool,
    account: Option<Account>,
    deadline: Option<Duration>,
    log: Option<PathBuf>,
    signal_on_death: Signal,
    jobserver: Option<jobserver::Client>,
}

/// A command that succeeded.
#[derive(Debug)]
pub struct Finished {
    /// Standard output and standard error, in the order written; empty when they went to a log.
    pub output: String,
    /// Wall-clock time it took.
    pub elapsed: Duration,
}

impl Program {
    /// A command without arguments yet; `program` is a path or is looked up on PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            argv: vec![program.as_ref().to_owned()],
            dir: None,
            env: BTreeMap::new(),
            removed_env: Vec::new(),
            inherit_env: true,
            account: None,
            deadline: None,
            log: None,
            signal_on_death: Signal::SIGKILL,
            jobserver: None,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Takes one variable out of the inherited environment.
    #[must_use]
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.removed_env.push(name.as_ref().to_owned());
        self
    }

    /// Starts from an empty environment: only what [`Self::env`] sets is there. Builds use this, so
    /// that nothing outside the build key can change them.
    #[must_use]
    pub fn only_given_env(mut self) -> Self {
        self.inherit_env = false;
        self
    }

    /// Marks the process tree as working in `dir`, so that [`super::end_leftovers`] finds it.
    #[must_use]
    pub fn mark(self, dir: &Path) -> Self {
        self.env(MARKER, dir)
    }

    /// Runs under another account, or under our own for `None`.
    #[must_use]
    pub fn account(mut self, account: Option<&Account>) -> Self {
        self.account = account.cloned();
        self
    }

    /// Ends the process group when it runs longer than this.
    #[must_use]
    pub const fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Appends everything the command prints to this file.
    #[must_use]
    pub fn log(mut self, path: impl AsRef<Path>) -> Self {
        self.log = Some(path.as_ref().to_owned());
        self
    }

    /// Signal that the kernel sends the child if dbisect dies (default SIGKILL; a server gets the
    /// one that makes it stop all of its processes).
    #[must_use]
    pub const fn signal_on_death(mut self, signal: Signal) -> Self {
        self.signal_on_death = signal;
        self
    }

    /// Lets the command take part in a budget of parallel jobs; `make` finds it in MAKEFLAGS.
    #[must_use]
    pub fn jobserver(mut self, budget: &jobserver::Client) -> Self {
        self.jobserver = Some(budget.clone());
        self
    }

    /// The argument vector as one line that can be pasted into a shell.
    #[must_use]
    pub fn command_line(&self) -> String {
        self.argv.iter().map(|arg| quote(&arg.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }

    /// Runs to the end and returns what it printed (stdout and stderr together).
    ///
    /// # Errors
    /// When it cannot start, fails, runs into its deadline, or the user interrupts.
    pub fn output(self) -> Result<Finished, ProcessError> {
        let file = tempfile::tempfile().map_err(|error| self.error(Outcome::Output(error), String::new()))?;
        let elapsed = self.run_into(&file)?;
        let output = read_from(&file, 0).map_err(|error| self.error(Outcome::Output(error), String::new()))?;
        Ok(Finished { output, elapsed })
    }

    /// Runs to the end with everything it prints appended to the log, which must have been set.
    ///
    /// # Errors
    /// As [`Self::output`]; also when the log cannot be written.
    pub fn run(self) -> Result<Finished, ProcessError> {
        let file = self.open_log()?;
        let elapsed = self.run_into(&file)?;
        Ok(Finished { output: String::new(), elapsed })
    }

    /// Runs to the end and hands over every line the moment it is printed. The callback gets the
    /// leader's process id and the line.
    ///
    /// # Errors
    /// As [`Self::output`]; the error quotes the last lines.
    pub fn lines(self, mut on_line: impl FnMut(u32, &str)) -> Result<Finished, ProcessError> {
        let started = Instant::now();
        let (reader, writer) = std::io::pipe().map_err(|error| self.error(Outcome::Output(error), String::new()))?;
        let handle = self.start(|expression| expression.stderr_to_stdout().stdout_file(writer))?;
        let pid = handle.pids().first().copied().unwrap_or_default();
        // The reader blocks on the child's output, so deadline and interrupt are watched from here on a
        // second thread, which ends the group and thereby the output.
        let handle = Arc::new(handle);
        let watcher = {
            let (handle, limit) = (Arc::clone(&handle), self.deadline);
            std::thread::spawn(move || wait(&handle, limit, started))
        };
        let mut output = String::new();
        let mut read_error = None;
        for line in BufReader::new(reader).split(b'\n') {
            match line {
                Ok(bytes) => {
                    let line = String::from_utf8_lossy(&bytes);
                    on_line(pid, &line);
                    output.push_str(&line);
                    output.push('\n');
                }
                Err(error) => {
                    read_error = Some(error);
                    break;
                }
            }
        }
        let waited = watcher.join().unwrap_or_else(|_| Err(Outcome::Output(std::io::Error::other("the watching thread panicked"))));
        let outcome = match (waited, read_error) {
            (Err(outcome), _) => Some(outcome),
            (Ok(_), Some(error)) => Some(Outcome::Output(error)),
            (Ok(status), None) => failure(status),
        };
        match outcome {
            None => Ok(Finished { output, elapsed: started.elapsed() }),
            Some(outcome) => Err(self.error(outcome, last_lines(&output))),
        }
    }

    /// Starts a long-running process with its output going to the log, which must have been set.
    ///
    /// # Errors
    /// When it cannot start or the log cannot be written.
    pub fn spawn(self) -> Result<Daemon, ProcessError> {
        let file = self.open_log()?;
        let handle = self.start_into(&file)?;
        let pid = handle.pids().first().copied().unwrap_or_default();
        Ok(Daemon { program: self, handle, pid })
    }

    fn open_log(&self) -> Result<File, ProcessError> {
        let missing = || std::io::Error::other("no log was named");
        let path = self.log.as_ref().ok_or_else(|| self.error(Outcome::Output(missing()), String::new()))?;
        OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)
            .map_err(|error| self.error(Outcome::Output(std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))), String::new()))
    }

    fn run_into(&self, file: &File) -> Result<Duration, ProcessError> {
        let started = Instant::now();
        let handle = self.start_into(file)?;
        let outcome = match wait(&handle, self.deadline, started) {
            Ok(status) => failure(status),
            Err(outcome) => Some(outcome),
        };
        match outcome {
            None => Ok(started.elapsed()),
            Some(outcome) => Err(self.error(outcome, tail(file))),
        }
    }

    fn start_into(&self, file: &File) -> Result<Handle, ProcessError> {
        let copy = file.try_clone().map_err(|error| self.error(Outcome::Output(error), String::new()))?;
        self.start(|expression| expression.stderr_to_stdout().stdout_file(copy))
    }

    fn start(&self, redirect: impl FnOnce(duct::Expression) -> duct::Expression) -> Result<Handle, ProcessError> {
        tracing::debug!(command = %self.command_line(), dir = ?self.dir, "start");
        let mut expression = duct::cmd(&self.argv[0], &self.argv[1..]).stdin_null().unchecked();
        if let Some(dir) = &self.dir {
            expression = expression.dir(dir);
        }
        if self.inherit_env {
            for name in &self.removed_env {
                expression = expression.env_remove(name);
            }
            for (name, value) in &self.env {
                expression = expression.env(name, value);
            }
        } else {
            expression = expression.full_env(&self.env);
        }
        let (account, signal, budget) = (self.account.clone(), self.signal_on_death, self.jobserver.clone());
        let parent = std::process::id().cast_signed();
        expression = expression.before_spawn(move |command| {
            command.process_group(0);
            if let Some(account) = &account {
                command.uid(account.uid).gid(account.gid);
            }
            if let Some(budget) = &budget {
                budget.configure_make(command);
            }
            // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
            // It runs after the change of user, which would clear the setting.
            unsafe {
                command.pre_exec(move || {
                    nix::sys::prctl::set_pdeathsig(signal)?;
                    // dbisect may have died between fork and prctl; then nobody would send the signal.
                    if nix::unistd::getppid().as_raw() == parent { Ok(()) } else { Err(std::io::Error::other("dbisect has ended")) }
                });
            }
            Ok(())
        });
        redirect(expression).start().map_err(|error| self.error(Outcome::NotStarted(error), String::new()))
    }

    fn error(&self, outcome: Outcome, tail: String) -> ProcessError {
        ProcessError { command: self.command_line(), outcome, tail, log: self.log.clone() }
    }
}

/// A process that runs until it is told to stop. Dropping it ends its process group.
#[derive(Debug)]
pub struct Daemon {
    program: Program,
    handle: Handle,
    pid: u32,
}

impl Daemon {
    /// Process id of the group's leader.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal to the leader only, for engines that stop their own children.
    pub fn signal(&self, signal: Signal) {
        if self.is_running() {
            // It may end between the check and the signal; then there is nothing left to tell it.
            let _ = nix::sys::signal::kill(Pid::from_raw(self.pid.cast_signed()), signal);
        }
    }

    /// Whether the leader is still running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.handle.try_wait(), Ok(None))
    }

    /// Waits for the leader's end for at most `limit`; true when it ended.
    #[must_use]
    pub fn wait_for_end(&self, limit: Duration) -> bool {
        let started = Instant::now();
        while self.is_running() {
            if started.elapsed() > limit {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// The error that describes an unwanted end, with the log's last lines.
    #[must_use]
    pub fn error(&self) -> ProcessError {
        let outcome = match self.handle.try_wait() {
            Ok(Some(output)) => failure(output.status).unwrap_or(Outcome::Exit(0)),
            Ok(None) => Outcome::Output(std::io::Error::other("it is still running")),
            Err(error) => Outcome::Output(error),
        };
        let tail = self.program.open_log().map(|file| tail(&file)).unwrap_or_default();
        self.program.error(outcome, tail)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.is_running() {
            end_group(&self.handle);
        }
    }
}

/// Waits for the end, the deadline or an interrupt, whichever comes first.
fn wait(handle: &Handle, limit: Option<Duration>, started: Instant) -> Result<ExitStatus, Outcome> {
    loop {
        // Returns as soon as the child has ended: identifying a toolchain runs dozens of short ones.
        match handle.wait_timeout(POLL) {
            Ok(Some(output)) => return Ok(output.status),
            Ok(None) => {}
            Err(error) => return Err(Outcome::Output(error)),
        }
        let over = limit.filter(|limit| started.elapsed() > *limit);
        if over.is_some() || interrupted() {
            end_group(handle);
            return Err(over.map_or(Outcome::Interrupted, Outcome::Deadline));
        }
    }
}

/// Ends a whole process group: first politely, after two seconds for good.
fn end_group(handle: &Handle) {
    let Some(pid) = handle.pids().first().copied() else { return };
    let group = Pid::from_raw(pid.cast_signed());
    for (signal, patience) in [(Signal::SIGTERM, Duration::from_secs(2)), (Signal::SIGKILL, Duration::from_secs(10))] {
        // An error means that the group is gone already, which is the aim.
        let _ = killpg(group, signal);
        let asked = Instant::now();
        while asked.elapsed() < patience {
            let leader_gone = !matches!(handle.try_wait(), Ok(None));
            if leader_gone && killpg(group, None).is_err() {
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

fn failure(status: ExitStatus) -> Option<Outcome> {
    if status.success() { None } else { Some(status.code().map_or_else(|| Outcome::Signal(status.signal().unwrap_or_default()), Outcome::Exit)) }
}

fn read_from(mut file: &File, start: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(file: &File) -> String {
    let length = file.metadata().map_or(0, |meta| meta.len());
    read_from(file, length.saturating_sub(TAIL_BYTES)).map(|text| last_lines(&text)).unwrap_or_default()
}

fn last_lines(text: &str) -> String {
    let mut kept = VecDeque::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if kept.len() == TAIL_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    Vec::from(kept).join("\n")
}

fn quote(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%{}".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{}'", arg.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_stdout_and_stderr_in_order() {
        let done = Program::new("sh").args(["-c", "echo one; echo two >&2; echo three"]).output().unwrap();
        assert_eq!(done.output, "one\ntwo\nthree\n");
    }

    #[test]
    fn a_failure_names_command_status_and_last_lines() {
        let error = Program::new("sh").args(["-c", "echo broken; exit 3"]).output().unwrap_err();
        assert_eq!(error.to_string(), "`sh -c 'echo broken; exit 3'` failed with status 3; it last said:\n  broken");
    }

    #[test]
    fn a_missing_program_points_to_doctor() {
        let error = Program::new("no-such-program-here").output().unwrap_err();
        assert!(error.to_string().contains("`dbisect doctor`"), "{error}");
    }

    #[test]
    fn the_deadline_ends_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("grandchild");
        let script = format!("sh -c 'sleep 1.5; touch {}' & sleep 60", file.display());
        let error = Program::new("sh").args(["-c", &script]).deadline(Duration::from_millis(300)).output().unwrap_err();
        assert!(matches!(error.outcome, Outcome::Deadline(_)), "{error}");
        std::thread::sleep(Duration::from_secs(2));
        assert!(!file.exists(), "a grandchild outlived its group");
    }

    #[test]
    fn lines_arrive_one_by_one() {
        let mut seen = Vec::new();
        Program::new("sh").args(["-c", "echo a; echo b"]).lines(|_, line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["a", "b"]);
    }

    #[test]
    fn leftovers_are_found_by_their_mark_and_nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let marked = Program::new("sleep").arg("60").mark(dir.path()).log(&log).spawn().unwrap();
        let other = Program::new("sleep").arg("60").log(&log).spawn().unwrap();
        crate::process::end_leftovers(dir.path());
        assert!(marked.wait_for_end(Duration::from_secs(5)));
        assert!(other.is_running());
    }
}
