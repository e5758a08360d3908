//! Problems in a configuration. Each message says the next step.

use crate::keys::Key;
use std::fmt;

/// A problem in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place: `thunderhead.toml:3`, a variable or a flag.
    pub place: String,
    /// The key, if the problem concerns one.
    pub key: Option<String>,
    /// The key's value.
    pub value: Option<String>,
    /// A description of the problem.
    pub what: String,
    /// The key that the user probably meant.
    pub nearest: Option<&'static str>,
}

impl Problem {
    pub(crate) fn unknown(place: String, name: &str, nearest: &Key) -> Problem {
        Problem {
            place,
            key: Some(name.to_owned()),
            value: None,
            what: "there is no such key".to_owned(),
            nearest: Some(nearest.name),
        }
    }

    pub(crate) fn value(place: String, key: &Key, value: &str, what: String) -> Problem {
        Problem {
            place,
            key: Some(key.name.to_owned()),
            value: Some(value.to_owned()),
            what,
            nearest: None,
        }
    }

    pub(crate) fn other(place: String, what: String) -> Problem {
        Problem { place, key: None, value: None, what, nearest: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(f, "{key} = {value:?}: ")?,
            (Some(key), None) => write!(f, "{key}: ")?,
            _ => {}
        }
        f.write_str(&self.what)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}

/// All problems in a configuration; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            let between = if number == 0 { "" } else { "\n" };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

/// A setting that is probably a mistake, but is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
