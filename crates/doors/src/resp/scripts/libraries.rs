//! The libraries of functions.
//!
//! The store has the text of each library, and an *index*: a line with the name and the digest of
//! each. Before a command uses libraries, it compares the index in the store with the index of the
//! libraries in memory, and loads the libraries that differ. So the store decides which libraries
//! exist, also after a restart and after a transaction that failed. A library whose text stays the
//! same keeps its local variables.

use super::interpreter::{Interpreter, Outcome, Programs};
use super::library::digest;
use super::limits::ScriptClock;
use super::metadata;
use super::registration::{Registered, Registration};
use super::{answer, failure, internal};
use crate::resp::context::Context;
use crate::resp::stop::{Done, Stop};
use crate::resp::store::{FUNCTIONS, Kind};
use mlua::{Function, Table, Value, Variadic};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The key of the index. No library has this name.
const INDEX: &[u8] = b"";

/// The most libraries. The interpreter has room for some thousand tables.
const LIBRARIES_MAX: usize = 1000;

/// The time in which a library must be loaded.
const LOADING: Duration = Duration::from_millis(500);

/// A library that is loaded.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) code: Vec<u8>,
    digest: String,
    callbacks: Table,
    pub(super) functions: BTreeMap<String, Registered>,
}

impl Library {
    /// Whether a function has the flag `no-writes`.
    pub(super) fn only_reads(&self, name: &str) -> bool {
        self.functions.get(name).is_some_and(|it| it.flags.contains(&"no-writes"))
    }

    /// Returns the code of a function.
    pub(super) fn callback(&self, name: &str) -> Result<Function, Stop> {
        self.callbacks.raw_get(name).map_err(|error| internal(&error))
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    interpreter: Option<Rc<Interpreter>>,
    index: Vec<u8>,
    list: BTreeMap<String, Library>,
    /// The library and the name of each function, by its name in small letters.
    names: BTreeMap<String, (String, String)>,
}

/// The treatment of libraries that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// A library with the same name is an error.
    Kept,
    /// The same for the libraries of a payload, for which Redis has another error.
    Joined,
    /// A library with the same name is replaced.
    Replaced,
    /// All libraries are dropped before.
    Dropped,
}

/// Returns an error from its text without the code.
fn refused(text: impl AsRef<[u8]>) -> Stop {
    Stop::error_of([b"ERR ", text.as_ref()].concat())
}

impl Libraries {
    /// Returns the interpreter of libraries, which is made if there is none.
    pub(super) fn interpreter(&mut self, clock: &ScriptClock) -> Result<Rc<Interpreter>, Stop> {
        if let Some(interpreter) = &self.interpreter {
            return Ok(Rc::clone(interpreter));
        }
        let made = Interpreter::new(clock, Programs::Libraries).map(Rc::new);
        let made = made.map_err(|error| internal(&error))?;
        Ok(Rc::clone(self.interpreter.insert(made)))
    }

    /// Returns the libraries, by their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Library)> {
        self.list.iter()
    }

    /// Returns the numbers of libraries and of functions.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.list.len(), self.names.len())
    }

    /// Returns a library and the name of one of its functions, in whose name letters may be small
    /// or capital.
    pub(super) fn function(&self, name: &[u8]) -> Option<(&Library, &str)> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        let (library, name) = self.names.get(&name)?;
        Some((self.list.get(library)?, name))
    }

    /// Loads a library; returns its name.
    fn load(&mut self, clock: &ScriptClock, code: &[u8]) -> Result<(String, Library), Stop> {
        let metadata = metadata::read(code).map_err(refused)?;
        let interpreter = self.interpreter(clock)?;
        let compiled = interpreter.compile(&code[metadata.bytes..]);
        let compiled = compiled
            .map_err(|text| refused([b"Error compiling function: ", &text[..]].concat()))?;
        let compiled = compiled.function().map_err(|error| internal(&error))?;
        let (callbacks, functions) = register(&interpreter, &compiled)?;
        if functions.is_empty() {
            return Err(refused("No functions registered"));
        }
        let (code, digest) = (code.to_vec(), digest(code));
        Ok((metadata.name, Library { code, digest, callbacks, functions }))
    }

    /// Loads libraries that can be added together.
    fn load_all(
        &mut self,
        clock: &ScriptClock,
        codes: &[Vec<u8>],
        existing: Existing,
    ) -> Result<Vec<(String, Library)>, Stop> {
        let mut new: Vec<(String, Library)> = Vec::new();
        for code in codes {
            let name = metadata::read(code).map_err(refused)?.name;
            let is_there = self.list.contains_key(&name);
            if is_there && existing == Existing::Joined {
                return Err(refused(format!("Library {name} already exists")));
            }
            let is_refused = is_there && existing == Existing::Kept;
            if is_refused || new.iter().any(|(other, _)| *other == name) {
                return Err(refused(format!("Library '{name}' already exists")));
            }
            new.push(self.load(clock, code)?);
        }
        let stays = |name: &String| {
            existing != Existing::Dropped && new.iter().all(|(other, _)| other != name)
        };
        let mut taken: BTreeSet<String> = self
            .names
            .iter()
            .filter(|(_, (owner, _))| stays(owner))
            .map(|(function, _)| function.clone())
            .collect();
        for function in new.iter().flat_map(|(_, library)| library.functions.keys()) {
            if !taken.insert(function.to_ascii_lowercase()) {
                return Err(refused(format!("Function {function} already exists")));
            }
        }
        Ok(new)
    }

    /// Takes a library in place of the former one, and refuses functions that others have.
    fn insert(&mut self, name: String, library: Library) -> Done {
        for function in library.functions.keys() {
            let owner = self.names.get(&function.to_ascii_lowercase());
            if owner.is_some_and(|(owner, _)| *owner != name) {
                return Err(refused(format!("Function {function} already exists")));
            }
        }
        if self.list.len() >= LIBRARIES_MAX && !self.list.contains_key(&name) {
            return Err(refused("There are too many libraries"));
        }
        self.remove(&name);
        for function in library.functions.keys() {
            let names = (name.clone(), function.clone());
            self.names.insert(function.to_ascii_lowercase(), names);
        }
        self.list.insert(name, library);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> bool {
        self.names.retain(|_, (owner, _)| owner != name);
        self.list.remove(name).is_some()
    }

    /// Makes the libraries in memory those of an index. `code_of` returns the text of a library.
    fn reconcile(
        &mut self,
        clock: &ScriptClock,
        index: &[u8],
        mut code_of: impl FnMut(&str) -> Result<Option<Vec<u8>>, Stop>,
    ) -> Done {
        let text = String::from_utf8_lossy(index);
        let wanted: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.split_once(' ')).collect();
        let is_wanted = |(name, library): (&String, &Library)| {
            wanted.get(name.as_str()) == Some(&library.digest.as_str())
        };
        let unwanted = self.list.iter().filter(|it| !is_wanted(*it));
        for name in unwanted.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.remove(&name);
        }
        for (name, _) in wanted {
            if self.list.contains_key(name) {
                continue;
            }
            let Some(code) = code_of(name)? else { continue };
            // A library that cannot be loaded again has no functions until it is replaced.
            match self.load(clock, &code).and_then(|(name, library)| self.insert(name, library)) {
                Ok(()) | Err(Stop::Error(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        self.index = index.to_vec();
        Ok(())
    }
}

/// Executes the text of a library; returns its functions.
fn register(
    interpreter: &Interpreter,
    compiled: &Function,
) -> Result<(Table, BTreeMap<String, Registered>), Stop> {
    let failed = |text: &[u8]| refused([b"Error registering functions: ", text].concat());
    let lua = interpreter.lua();
    let callbacks = lua.create_table().map_err(|error| internal(&error))?;
    let registration = Rc::new(RefCell::new(Registration::default()));
    let (shared, table) = (Rc::clone(&registration), callbacks.clone());
    let function = lua.create_function(move |_, given: Variadic<Value>| {
        shared.try_borrow_mut().map_err(mlua::Error::external)?.add(&given, &table)
    });
    let function = function.map_err(|error| internal(&error))?;
    match interpreter.load(compiled, &function, LOADING) {
        Ok(Outcome::Value(_)) => {}
        Ok(Outcome::Error(Value::Table(table))) => {
            let (text, _) = answer::error_of(&table).unwrap_or_default();
            return Err(failed(&text));
        }
        Ok(Outcome::Error(_)) => return Err(failed(b"ERR execution failure")),
        Ok(Outcome::Ended(_)) => return Err(failed(b"ERR FUNCTION LOAD timeout")),
        Err(error) => return Err(failed(&failure::text_of(&error))),
    }
    let functions = std::mem::take(&mut registration.borrow_mut().functions);
    Ok((callbacks, functions))
}

/// Executes an action on the libraries, which are those of the store.
pub(super) fn with<T>(
    context: &mut Context<'_>,
    act: impl FnOnce(&mut Context<'_>, &mut Libraries, &ScriptClock) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let clock = context.state.scripts.clock();
    let mut libraries = std::mem::take(&mut context.state.scripts.libraries);
    let result = match update(context, &mut libraries, &clock) {
        Ok(()) => act(context, &mut libraries, &clock),
        Err(stop) => Err(stop),
    };
    context.state.scripts.libraries = libraries;
    result
}

fn update(context: &mut Context<'_>, libraries: &mut Libraries, clock: &ScriptClock) -> Done {
    let objects = &mut context.objects;
    let index = match objects.peek_in(FUNCTIONS, INDEX)? {
        Some(found) if found.value == libraries.index => return Ok(()),
        None if libraries.index.is_empty() => return Ok(()),
        found => found.map(|found| found.value.to_vec()).unwrap_or_default(),
    };
    libraries.reconcile(clock, &index, |name| {
        Ok(objects.peek_in(FUNCTIONS, name.as_bytes())?.map(|found| found.value.to_vec()))
    })
}

/// Writes the index of the libraries.
fn save(context: &mut Context<'_>, libraries: &mut Libraries) -> Done {
    let line = |(name, library): (&String, &Library)| format!("{name} {}\n", library.digest);
    libraries.index = libraries.list.iter().map(line).collect::<String>().into_bytes();
    match libraries.index.is_empty() {
        true => context.objects.remove_in(FUNCTIONS, INDEX).map(drop),
        false => {
            let index = &libraries.index;
            context.objects.put_in(FUNCTIONS, INDEX, index, Kind::String, None)
        }
    }
}

/// Adds libraries to the store, all or none; returns the name of the last one.
pub(super) fn add(
    context: &mut Context<'_>,
    codes: &[Vec<u8>],
    existing: Existing,
) -> Result<String, Stop> {
    with(context, |context, libraries, clock| {
        let new = libraries.load_all(clock, codes, existing)?;
        let last = new.last().map(|(name, _)| name.clone()).unwrap_or_default();
        if existing == Existing::Dropped {
            for (name, _) in std::mem::take(&mut libraries.list) {
                context.objects.remove_in(FUNCTIONS, name.as_bytes())?;
            }
            libraries.names.clear();
        }
        // If the store refuses, the next command finds that this is not the index of the store.
        libraries.index = b"changing".to_vec();
        for (name, library) in new {
            let code = &library.code;
            context.objects.put_in(FUNCTIONS, name.as_bytes(), code, Kind::String, None)?;
            libraries.insert(name, library)?;
        }
        save(context, libraries)?;
        Ok(last)
    })
}

/// Deletes a library; returns whether it was there.
pub(super) fn delete(context: &mut Context<'_>, name: &[u8]) -> Result<bool, Stop> {
    with(context, |context, libraries, _| {
        let is_there = std::str::from_utf8(name).is_ok_and(|name| libraries.remove(name));
        if is_there {
            context.objects.remove_in(FUNCTIONS, name)?;
            save(context, libraries)?;
        }
        Ok(is_there)
    })
}

/// Deletes all libraries.
pub(super) fn delete_all(context: &mut Context<'_>) -> Done {
    with(context, |context, libraries, _| {
        for name in libraries.list.keys() {
            context.objects.remove_in(FUNCTIONS, name.as_bytes())?;
        }
        *libraries = Libraries::default();
        save(context, libraries)
    })
}
