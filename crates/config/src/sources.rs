//! Combines the configuration file, the environment and the flags.

use crate::error::{Problem, Problems, Warning};
use crate::keys::{KEYS, Key, by_name, distance, nearest};
use crate::typed::{Config, contradictions};
use crate::value::{Kind, Value};
use std::collections::BTreeMap;
use std::fmt;
use toml_edit::{Document, Item, Table};

/// A configuration file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name in errors.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// All sources of configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file, if there is one.
    pub file: Option<File>,
    /// The environment's variables. Variables of other programs are ignored.
    pub environment: Vec<(String, String)>,
    /// The flags: each with its name on the command line, the key's name and the value.
    pub flags: Vec<(String, String, String)>,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table's default.
    Default,
    /// A line of a file.
    File {
        /// The file's name.
        name: String,
        /// The line number, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Environment(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// The value of a key and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The value; `None` if it is not set and has no default.
    pub value: Option<Value>,
    /// The origin of the value.
    pub origin: Origin,
}

/// The resolved configuration, with all keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The settings by name, with an entry for each key.
    settings: BTreeMap<&'static str, Setting>,
    /// Settings that are probably mistakes.
    pub warnings: Vec<Warning>,
}

impl Sources {
    /// Combines the sources into the effective configuration.
    ///
    /// # Errors
    /// All problems at once.
    pub fn resolve(&self) -> Result<Effective, Problems> {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let mut settings: BTreeMap<&'static str, Setting> = BTreeMap::new();
        for key in KEYS {
            // A test parses all defaults, so none is lost here.
            let value = key.default.and_then(|text| key.kind.parse(text).ok());
            settings.insert(key.name, Setting { value, origin: Origin::Default });
        }
        if let Some(file) = &self.file {
            read_file(file, &mut settings, &mut problems);
        }
        for (variable, text) in &self.environment {
            // Scripts often pass an empty variable when a value is not set.
            if !variable.starts_with("THUNDERHEAD_") || text.is_empty() {
                continue;
            }
            match KEYS.iter().find(|key| key.variable() == *variable) {
                Some(key) => {
                    let origin = Origin::Environment(variable.clone());
                    put(key, text, origin, &mut settings, &mut problems);
                }
                None => warnings.extend(misspelled(variable)),
            }
        }
        for (flag, name, text) in &self.flags {
            match by_name(name) {
                Some(key) => {
                    put(key, text, Origin::Flag(flag.clone()), &mut settings, &mut problems);
                }
                None => problems.push(Problem::unknown(flag.clone(), name, nearest(name))),
            }
        }
        let effective = Effective { settings, warnings };
        if problems.is_empty() {
            problems = contradictions(&effective);
        }
        match problems.is_empty() {
            true => Ok(effective),
            false => Err(Problems(problems)),
        }
    }
}

fn put(
    key: &'static Key,
    text: &str,
    origin: Origin,
    settings: &mut BTreeMap<&'static str, Setting>,
    problems: &mut Vec<Problem>,
) {
    match key.kind.parse(text) {
        Ok(value) => {
            settings.insert(key.name, Setting { value: Some(value), origin });
        }
        Err(what) => problems.push(Problem::value(origin.to_string(), key, text, what)),
    }
}

/// Returns a warning for a variable that is probably a misspelled key. Other programs may set
/// variables with our prefix, so the others cause no warning.
fn misspelled(variable: &str) -> Option<Warning> {
    let others = ["THUNDERHEAD_CONFIG", "THUNDERHEAD_HISTORY"];
    // Kubernetes sets these for a service with our name.
    if others.contains(&variable) || variable.contains("_SERVICE_") {
        return None;
    }
    let near = KEYS.iter().map(|key| (distance(variable, &key.variable()), key));
    let (far, key) = near.min_by_key(|(far, _)| *far)?;
    (far <= 3).then(|| {
        let meant = key.variable();
        Warning(format!("{variable} is not a Thunderhead variable; did you mean {meant}?"))
    })
}

fn read_file(
    file: &File,
    settings: &mut BTreeMap<&'static str, Setting>,
    problems: &mut Vec<Problem>,
) {
    let line_at =
        |at: usize| 1 + file.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    let document = match Document::parse(file.text.as_str()) {
        Ok(document) => document,
        Err(error) => {
            let line = error.span().map_or(1, |span| line_at(span.start));
            let what = error.message().trim().replace('\n', "; ");
            return problems.push(Problem::other(format!("{}:{line}", file.name), what));
        }
    };
    let mut found = Vec::new();
    flatten(document.as_table(), "", &mut found);
    for Found { name, at, item } in found {
        let line = line_at(at);
        let place = || format!("{}:{line}", file.name);
        let Some(key) = by_name(&name) else {
            problems.push(Problem::unknown(place(), &name, nearest(&name)));
            continue;
        };
        match text_of(item, key.kind) {
            Ok(text) => {
                let origin = Origin::File { name: file.name.clone(), line };
                put(key, &text, origin, settings, problems);
            }
            Err(text) => {
                let what = format!("it must be: {}", key.kind.allowed());
                problems.push(Problem::value(place(), key, &text, what));
            }
        }
    }
}

struct Found<'a> {
    name: String,
    at: usize,
    item: &'a Item,
}

/// Collects all values of a table and its sections. An empty section with an unknown name counts as
/// a value, because it is a mistake too.
fn flatten<'a>(table: &'a Table, above: &str, into: &mut Vec<Found<'a>>) {
    for (name, item) in table.iter() {
        let at = table.key(name).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
        let name = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
        match item {
            // Sections have one level only. A deeper value is reported by its full name.
            Item::Table(inner) if !above.contains('.') => {
                let is_section = KEYS.iter().any(|key| key.section() == name);
                if inner.is_empty() && !is_section {
                    let at = inner.span().map_or(at, |span| span.start);
                    into.push(Found { name, at, item });
                } else {
                    flatten(inner, &name, into);
                }
            }
            _ => into.push(Found { name, at, item }),
        }
    }
}

/// Returns a value as text. The error is the original text of a value of the wrong kind.
fn text_of(item: &Item, kind: Kind) -> Result<String, String> {
    let wrong = || Err(item.to_string().trim().to_owned());
    match item.as_value() {
        Some(toml_edit::Value::String(text)) => Ok(text.value().clone()),
        Some(toml_edit::Value::Integer(number)) => Ok(number.value().to_string()),
        Some(toml_edit::Value::Boolean(flag)) => Ok(flag.value().to_string()),
        Some(toml_edit::Value::Array(array)) if kind == Kind::Addresses => {
            let parts: Option<Vec<&str>> = array.iter().map(toml_edit::Value::as_str).collect();
            parts.map_or_else(wrong, |parts| Ok(parts.join(",")))
        }
        _ => wrong(),
    }
}

impl Effective {
    /// Returns all keys with their settings, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Setting)> {
        KEYS.iter().filter_map(|key| Some((key, self.settings.get(key.name)?)))
    }

    /// Returns the setting of a key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.get(name)
    }

    /// Returns the same configuration as typed structs.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::of(self)
    }

    /// Returns the whole configuration as a TOML file with the same meaning. Comments name each
    /// value's origin.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for (key, Setting { value, origin }) in self.iter() {
            if key.section() != section {
                section = key.section();
                text += &format!("\n[{section}]\n");
            }
            let line = match value {
                Some(value) => format!("{} = {}", key.leaf(), toml_of(value)),
                None => format!("# {} is not set", key.leaf()),
            };
            text += &format!("{line:48} # {origin}\n");
        }
        text
    }
}

fn toml_of(value: &Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Addresses(addresses) => {
            let parts: Vec<String> = addresses.iter().map(|it| quoted(&it.to_string())).collect();
            format!("[{}]", parts.join(", "))
        }
        other => quoted(&other.to_string()),
    }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}
