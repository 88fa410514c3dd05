//! What the user wrote cannot be meant; the exit code is 2.

/// A mistake in what the user wrote: a matrix, a revision, an argument. Retrying cannot help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigurationError(pub String);

impl ConfigurationError {
    /// Wraps a sentence that says what was wanted, what was found, where, and what to try.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

/// The known word that looks most like `word`, if any is near enough to be a slip of the keyboard.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 2).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
