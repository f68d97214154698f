//! Loads the settings: the file, the environment over it, the types, the checks.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::Config;
use super::decode::decode;
use super::field::Field;
use super::problem::{ConfigError, Place, Places, Problem};
use super::tree::Node;
use super::validate::validate;
use super::{env, properties, variables};

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "turnmill.toml";

/// Settings that passed every check, and where each was set.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// What relative paths are relative to: the folder of the file.
    pub base_dir: PathBuf,
    /// The variables that tools need and the environment does not have. Only those who run tools mind.
    pub(crate) unset: Vec<Problem>,
    places: Places,
}

/// Settings that a program made itself.
impl From<Config> for Loaded {
    fn from(config: Config) -> Self {
        Self { config, base_dir: PathBuf::from("."), unset: Vec::new(), places: Places::default() }
    }
}

impl Loaded {
    /// The file, if one was read.
    pub fn file(&self) -> Option<&Path> {
        self.places.file.as_deref()
    }

    /// The line of the file, from 1, that sets a field (`agents[1].model`), or else the nearest table or list
    /// around it that the file has. None for what the environment sets.
    pub fn line_of(&self, field: &str) -> Option<usize> {
        match self.places.find(&Field::parse(field)) {
            Some(Place::Line(line)) => Some(*line),
            Some(Place::Variable(_)) | None => None,
        }
    }

    /// Whether the file or the environment sets a field itself.
    pub fn is_set(&self, field: &str) -> bool {
        self.places.sets(&Field::parse(field))
    }

    /// Fills in where the problem's field was set: file and line, or the variable.
    #[must_use]
    pub fn locate(&self, problem: Problem) -> Problem {
        self.places.locate(problem)
    }
}

/// Loads the settings from a file and the environment ([`environment`](super::environment) is this process's).
///
/// Without a path, it is `turnmill.toml` of the working directory, and the defaults if there is none. Each
/// agent's `script` is joined to the folder of the file.
///
/// # Errors
/// The file cannot be read, is not TOML, or anything in it or in the environment is wrong: every problem that
/// can be told, in the order of the file, then what the environment brought. In a file that is not TOML, only
/// that can be told.
pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Loaded, ConfigError> {
    whole(look(path, env)?)
}

/// As [`load`], but what is wrong is left out instead of ending it, so that what is left can be looked at too.
///
/// # Errors
/// The file cannot be read or is not TOML, or too much of it is wrong: nothing is left to look at.
pub(crate) fn look(
    path: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
) -> Result<(Loaded, Vec<Problem>), ConfigError> {
    look_at_file(path.unwrap_or(Path::new(DEFAULT_FILE)), path.is_some(), env)
}

#[cfg(test)]
pub(super) fn load_file(
    path: &Path,
    must_exist: bool,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, ConfigError> {
    whole(look_at_file(path, must_exist, env)?)
}

fn whole((loaded, problems): (Loaded, Vec<Problem>)) -> Result<Loaded, ConfigError> {
    if problems.is_empty() { Ok(loaded) } else { Err(ConfigError { problems }) }
}

fn look_at_file(
    path: &Path,
    must_exist: bool,
    env: impl Iterator<Item = (String, String)>,
) -> Result<(Loaded, Vec<Problem>), ConfigError> {
    let (file, text) = match read(path)? {
        Some(text) => (Some(path.to_path_buf()), text),
        None if must_exist => return Err(unreadable(path, None, "there is no such file")),
        None => (None, String::new()),
    };
    let parent = file.as_deref().and_then(Path::parent).filter(|parent| *parent != Path::new(""));
    let base_dir = parent.unwrap_or(Path::new(".")).to_path_buf();

    let mut problems = Vec::new();
    let mut places = Places { file, ..Places::default() };
    let Some(mut tree) = Node::parse(&text, &mut problems) else {
        return Err(report(problems, &places));
    };
    properties::flatten(&mut tree, &mut problems);
    let env: Vec<_> = env.collect();
    env::merge(&mut tree, env.iter().cloned(), &mut problems);
    tree.places(&Field::default(), &mut places);

    let Some(mut config) = decode(&mut tree, &mut problems) else {
        return Err(report(problems, &places));
    };
    for script in config.agents.iter_mut().filter_map(|agent| agent.script.as_mut()) {
        *script = base_dir.join(&script);
    }
    for provider in &mut config.providers {
        provider.complete();
        if let Some(file) = &mut provider.api_key_file {
            *file = base_dir.join(&file);
        }
    }
    let values: HashMap<String, String> = env.into_iter().collect();
    let variables::Variables { mut wrong, unset } =
        variables::expand(&mut config.http_tools, &mut config.providers, &values);
    wrong.extend(validate(&config));
    let (wrong, unset) = (further(&problems, &tree, wrong), further(&problems, &tree, unset));
    problems.extend(wrong);
    let (problems, unset) = (report(problems, &places).problems, report(unset, &places).problems);
    Ok((Loaded { config, base_dir, unset, places }, problems))
}

/// The file's text, if there is such a file.
fn read(file: &Path) -> Result<Option<String>, ConfigError> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(file, None, &format!("cannot be read: {error}"))),
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
            let line = good.filter(|byte| **byte == b'\n').count() + 1;
            Err(unreadable(file, Some(line), "is not UTF-8 text"))
        }
    }
}

fn unreadable(file: &Path, line: Option<usize>, message: &str) -> ConfigError {
    Problem { line, file: Some(file.into()), ..Problem::new(message) }.into()
}

/// Those of the checks' problems that are not about what is a problem already, and was taken out.
fn further(problems: &[Problem], tree: &Node, found: Vec<Problem>) -> Vec<Problem> {
    let known: Vec<Field> =
        problems.iter().filter_map(|problem| problem.field.as_deref()).map(Field::parse).collect();
    let as_written = found.into_iter().filter_map(|problem| {
        let field = tree.as_written(&Field::parse(problem.field.as_deref()?));
        let further = !known.iter().any(|known| known.overlaps(&field));
        further.then(|| Problem { field: Some(field.to_string()), ..problem })
    });
    as_written.collect()
}

fn report(problems: Vec<Problem>, places: &Places) -> ConfigError {
    let mut problems: Vec<Problem> = problems.into_iter().map(|problem| places.locate(problem)).collect();
    // Stable: what has no line, the variables and the defaults, stays in its order, at the end.
    problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
    ConfigError { problems }
}
