//! What is wrong with the settings, and where each fault is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::field::Field;

/// One fault in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The field: `worker.max_in_flight`, `agents[0].tools`.
    pub field: Option<String>,
    /// The line of the file, from 1.
    pub line: Option<usize>,
    /// The file.
    pub file: Option<PathBuf>,
    /// The environment variable that set the field.
    pub variable: Option<String>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    /// A problem that is not one field's.
    pub fn new(message: impl Into<String>) -> Self {
        Self { field: None, line: None, file: None, variable: None, message: message.into() }
    }

    /// A problem with a field; [`Loaded::locate`](super::Loaded::locate) finds its line or variable.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(message) }
    }

    /// A problem at a line of the file.
    pub(super) fn line(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::new(message) }
    }

    /// A problem with a variable that sets no field.
    pub(super) fn variable(variable: &str, message: impl Into<String>) -> Self {
        Self { variable: Some(variable.into()), ..Self::new(message) }
    }
}

/// `turnmill.toml:12: worker.drain_timeout: expected ..`, with as much of that as is known.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.variable, &self.file, self.line) {
            (Some(variable), ..) => write!(f, "{variable}: ")?,
            (None, Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (None, Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None, None) => {}
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// The settings cannot be used: everything that is wrong with them, in the order of the file, then what the
/// environment brought. Never empty when [`load`](super::load) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong.
    pub problems: Vec<Problem>,
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// One line a problem.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Where a field was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A line of the file, from 1.
    Line(usize),
    /// An environment variable.
    Variable(String),
}

/// Where each field was set.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// The file, if one was read.
    pub(super) file: Option<PathBuf>,
    /// Each field that was set.
    pub(super) fields: BTreeMap<Field, Place>,
}

impl Places {
    /// Where the field was set, or else the nearest table or list around it that was.
    pub(super) fn find(&self, field: &Field) -> Option<&Place> {
        let mut at = Some(field.clone());
        while let Some(field) = at {
            if let Some(place) = self.fields.get(&field) {
                return Some(place);
            }
            at = field.parent();
        }
        None
    }

    /// Whether the field itself was set.
    pub(super) fn sets(&self, field: &Field) -> bool {
        self.fields.contains_key(field)
    }

    /// Fills in the file and line, or the variable, unless the problem has some of them already.
    pub(super) fn locate(&self, mut problem: Problem) -> Problem {
        if problem.file.is_some() || problem.variable.is_some() {
            return problem;
        }
        let place = problem.field.as_deref().and_then(|field| self.find(&Field::parse(field)));
        match place {
            Some(Place::Variable(variable)) => problem.variable = Some(variable.clone()),
            Some(Place::Line(line)) => {
                problem.line = problem.line.or(Some(*line));
                problem.file.clone_from(&self.file);
            }
            None => problem.file.clone_from(&self.file),
        }
        problem
    }
}
