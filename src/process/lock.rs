//! Locks between processes. The kernel drops them when their holder dies, however it dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::interrupt::stop_if_interrupted;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

/// Who holds a lock, as the holder wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder(pub String);

impl Held {
    /// Takes the lock, or says who has it.
    ///
    /// # Errors
    /// When the lock's file cannot be made.
    pub fn try_take(path: &Path, purpose: &str) -> anyhow::Result<Result<Self, Holder>> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make the directory {}", parent.display()))?;
        }
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = open.with_context(|| format!("cannot open the lock {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {
                // What is written only serves messages of others; a full disk must not stop us here.
                let note = format!("process {}, {purpose}", std::process::id());
                if file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes())).is_err() {
                    tracing::debug!(path = %path.display(), "could not write the holder's name into the lock");
                }
                Ok(Ok(Self { _file: file }))
            }
            Err(TryLockError::WouldBlock) => {
                let mut note = String::new();
                // The holder may be writing its name just now; then the name stays empty.
                let _ = file.read_to_string(&mut note);
                Ok(Err(Holder(if note.is_empty() { "another process".to_owned() } else { note })))
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Waits for the lock; `waiting` is told once for whom.
    ///
    /// # Errors
    /// When the lock's file cannot be made, or the user interrupts.
    pub fn take(path: &Path, purpose: &str, waiting: &dyn Fn(&Holder)) -> anyhow::Result<Self> {
        let mut told: Option<Holder> = None;
        loop {
            match Self::try_take(path, purpose)? {
                Ok(held) => return Ok(held),
                Err(holder) => {
                    if told.as_ref() != Some(&holder) {
                        waiting(&holder);
                        told = Some(holder);
                    }
                }
            }
            stop_if_interrupted()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
