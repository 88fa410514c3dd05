//! A cursor over a parsed TOML table that collects every mistake with its line and key path, and
//! refuses keys that nobody asked for.

use std::cell::RefCell;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::nearest;

/// Mistakes found so far, each already located.
pub struct Mistakes<'a> {
    text: &'a str,
    found: RefCell<Vec<(usize, String)>>,
}

impl<'a> Mistakes<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self { text, found: RefCell::new(Vec::new()) }
    }

    /// Records one mistake at a byte range of the text.
    pub fn add(&self, span: &Range<usize>, key: &str, sentence: &str) {
        let start = span.start.min(self.text.len());
        let line = self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
        let place = if key.is_empty() { format!("line {line}") } else { format!("line {line}, `{key}`") };
        self.found.borrow_mut().push((line, format!("{place}: {sentence}")));
    }

    /// All mistakes in the order of the file, without repetitions.
    pub fn sorted(self) -> Vec<String> {
        let mut found = self.found.into_inner();
        found.sort();
        found.dedup();
        found.into_iter().map(|(_, sentence)| sentence).collect()
    }
}

/// One word of the file with the place where it stands.
#[derive(Clone, Debug)]
pub struct Word {
    pub text: String,
    pub span: Range<usize>,
    pub key: String,
}

/// A table that is being read.
pub struct Reader<'t, 'i> {
    table: &'t DeTable<'i>,
    path: String,
    span: Range<usize>,
    mistakes: &'t Mistakes<'t>,
    known: RefCell<Vec<&'static str>>,
}

impl<'t, 'i> Reader<'t, 'i> {
    pub fn new(table: &'t DeTable<'i>, path: String, span: Range<usize>, mistakes: &'t Mistakes<'t>) -> Self {
        Self { table, path, span, mistakes, known: RefCell::new(Vec::new()) }
    }

    fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Says something about the table as a whole.
    pub fn mistake(&self, sentence: &str) {
        self.mistakes.add(&self.span, &self.path, sentence);
    }

    /// Says something about one key.
    pub fn mistake_at(&self, word: &Word, sentence: &str) {
        self.mistakes.add(&word.span, &word.key, sentence);
    }

    fn get(&self, name: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.known.borrow_mut().push(name);
        self.table.get(name)
    }

    fn wrong_type(&self, name: &str, value: &Spanned<DeValue<'i>>, wanted: &str) {
        let sentence = format!("wanted {wanted}, found {} {}", article(value.get_ref().type_str()), value.get_ref().type_str());
        self.mistakes.add(&value.span(), &self.key(name), &sentence);
    }

    /// A text, number or switch as the word the user wrote.
    pub fn word(&self, name: &'static str) -> Option<Word> {
        let value = self.get(name)?;
        let word = self.scalar(name, value);
        if word.is_none() {
            self.wrong_type(name, value, "a single value");
        }
        word
    }

    /// A list of words; one value alone is a list of one.
    pub fn words(&self, name: &'static str) -> Option<Vec<Word>> {
        let value = self.get(name)?;
        let Some(array) = value.get_ref().as_array() else {
            let word = self.scalar(name, value);
            if word.is_none() {
                self.wrong_type(name, value, "a value or a list of values");
            }
            return word.map(|word| vec![word]);
        };
        if array.is_empty() {
            self.mistakes.add(&value.span(), &self.key(name), "the list is empty; name at least one value or leave the key out");
        }
        let words = array.iter().filter_map(|item| {
            let word = self.scalar(name, item);
            if word.is_none() {
                self.wrong_type(name, item, "a list of single values");
            }
            word
        });
        Some(words.collect())
    }

    fn scalar(&self, name: &str, value: &Spanned<DeValue<'i>>) -> Option<Word> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(switch) => switch.to_string(),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => return None,
        };
        Some(Word { text, span: value.span(), key: self.key(name) })
    }

    /// A whole number within bounds.
    pub fn number(&self, name: &'static str, bounds: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let word = self.word(name)?;
        match word.text.parse::<u32>() {
            Ok(number) if bounds.contains(&number) => Some(number),
            _ => {
                self.mistake_at(&word, &format!("wanted a whole number from {} to {}, found `{}`", bounds.start(), bounds.end(), word.text));
                None
            }
        }
    }

    /// A table below this one.
    pub fn table(&self, name: &'static str) -> Option<Self> {
        let value = self.get(name)?;
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(name, value, "a table");
            return None;
        };
        Some(Self::new(table, self.key(name), value.span(), self.mistakes))
    }

    /// A value that is either a word or a table.
    pub fn word_or_table(&self, name: &'static str) -> Option<Result<Word, Self>> {
        if self.table.get(name)?.get_ref().is_table() { self.table(name).map(Err) } else { self.word(name).map(Ok) }
    }

    /// A list of tables (`[[name]]`).
    pub fn tables(&self, name: &'static str) -> Vec<Self> {
        let Some(value) = self.get(name) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(name, value, &format!("a list of tables, written [[{name}]]"));
            return Vec::new();
        };
        let readers = array.iter().enumerate().filter_map(|(index, item)| {
            let Some(table) = item.get_ref().as_table() else {
                self.wrong_type(name, item, "a table");
                return None;
            };
            Some(Self::new(table, format!("{}[{index}]", self.key(name)), item.span(), self.mistakes))
        });
        readers.collect()
    }

    /// Refuses every key that was not asked for; call it when all known keys have been asked for.
    pub fn refuse_unknown(&self) {
        let known = self.known.borrow();
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let hint = nearest(name, known.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let sentence = format!("there is no such key{hint} (known here: {})", known.join(", "));
                self.mistakes.add(&key.span(), &self.key(name), &sentence);
            }
        }
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
