//! The libraries of functions.
//!
//! The store has the text of each library, and an *index*: a line with the name and the digest of
//! each. Before a command uses libraries, it compares the index in the store with the index of the
//! libraries in memory, and replaces the libraries that differ. So the store decides which
//! libraries exist, also after a restart and after a transaction that failed. A library whose text
//! stays the same keeps its local variables.
//!
//! A command loads replaced libraries when it looks for a function that is not loaded. No load
//! begins after [`LOADING`] in the same turn, so that the shard serves other clients. If libraries
//! remain, the command ends with [`Refusal::NotNow`], and the server executes it again in its next
//! turn.
//!
//! # Promises
//!
//! - A library is in the index until a client deletes it, also if it cannot be loaded: then it has
//!   no functions, and is loaded again later.

use super::interpreter::{Interpreter, Outcome, Programs};
use super::library::digest;
use super::limits::ScriptClock;
use super::metadata;
use super::registration::{Registered, Registration};
use super::{answer, failure, internal};
use crate::resp::context::Context;
use crate::resp::stop::{Done, Stop};
use crate::resp::store::{FUNCTIONS, Kind, Refusal};
use mlua::{Function, Table, Value, Variadic};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The key of the index. No library has this name.
const INDEX: &[u8] = b"";

/// The most libraries. The interpreter has room for some thousand tables.
const LIBRARIES_MAX: usize = 1000;

/// The error for more libraries.
const TOO_MANY: &str = "There are too many libraries";

/// The time in which the new libraries of a command must be loaded, and after which no further
/// library of the store is loaded in the same turn.
const LOADING: Duration = Duration::from_millis(500);

/// The loads of a library of the store, one after another, before commands go on without it. Each
/// one may take twice as long as the one before, because the machine may be busy.
const TRIES_MAX: u32 = 3;

/// The pause before a library that could not be loaded is loaded once more.
const PAUSE_MS: u64 = 60_000;

/// The index in memory while libraries change. It never equals the index in the store.
const CHANGING: &[u8] = b"changing";

/// A library.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) code: Vec<u8>,
    digest: String,
    /// The code of its functions, or the loads that failed.
    callbacks: Result<Table, Failures>,
    /// They are empty until the library is loaded.
    pub(super) functions: BTreeMap<String, Registered>,
}

/// The loads of a library that failed.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    /// The time before which a library that failed too often is not loaded again.
    again_ms: u64,
    /// The last error.
    error: Vec<u8>,
}

impl Failures {
    /// Whether commands wait for the next load.
    fn is_pending(&self) -> bool {
        self.count < TRIES_MAX
    }

    fn note(&mut self, error: &[u8], now_ms: u64) {
        self.count = TRIES_MAX.min(self.count + 1);
        self.again_ms = now_ms.saturating_add(PAUSE_MS);
        self.error = error.to_vec();
    }
}

impl Library {
    /// Whether a function has the flag `no-writes`.
    pub(super) fn only_reads(&self, name: &str) -> bool {
        self.functions.get(name).is_some_and(|it| it.flags.contains(&"no-writes"))
    }

    /// Returns a library that is not loaded.
    fn of_store(code: Vec<u8>) -> Library {
        let digest = digest(&code);
        let callbacks = Err(Failures::default());
        Library { code, digest, callbacks, functions: BTreeMap::new() }
    }

    /// Returns the code of a function.
    pub(super) fn callback(&self, name: &str) -> Result<Function, Stop> {
        let Ok(callbacks) = &self.callbacks else {
            return Err(refused("The library is not loaded"));
        };
        callbacks.raw_get(name).map_err(|error| internal(&error))
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

    /// Returns a library that could not be loaded, and the error.
    pub(super) fn failed(&self) -> Option<(&str, &[u8])> {
        self.list.iter().find_map(|(name, library)| {
            let failures = library.callbacks.as_ref().err()?;
            Some((name.as_str(), failures.error.as_slice()))
        })
    }

    /// Loads a library in a time; returns its name.
    fn load(
        &mut self,
        clock: &ScriptClock,
        code: &[u8],
        time: Duration,
    ) -> Result<(String, Library), Stop> {
        let metadata = metadata::read(code).map_err(refused)?;
        let interpreter = self.interpreter(clock)?;
        interpreter.make_room().map_err(|error| internal(&error))?;
        let compiled = interpreter.compile(&code[metadata.bytes..]);
        let compiled = compiled
            .map_err(|text| refused([b"Error compiling function: ", &text[..]].concat()))?;
        let compiled = compiled.function().map_err(|error| internal(&error))?;
        let (callbacks, functions) = register(&interpreter, &compiled, time)?;
        if functions.is_empty() {
            return Err(refused("No functions registered"));
        }
        let (code, digest) = (code.to_vec(), digest(code));
        Ok((metadata.name, Library { code, digest, callbacks: Ok(callbacks), functions }))
    }

    /// Loads libraries that can be added together.
    fn load_all(
        &mut self,
        clock: &ScriptClock,
        codes: &[Vec<u8>],
        existing: Existing,
    ) -> Result<Vec<(String, Library)>, Stop> {
        let mut new: Vec<(String, Library)> = Vec::new();
        let begin = clock.now();
        if codes.len() > LIBRARIES_MAX {
            return Err(refused(TOO_MANY));
        }
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
            let time = LOADING.saturating_sub(clock.now().saturating_sub(begin));
            new.push(self.load(clock, code, time)?);
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
            return Err(refused(TOO_MANY));
        }
        self.remove(&name);
        for function in library.functions.keys() {
            let names = (name.clone(), function.clone());
            self.names.insert(function.to_ascii_lowercase(), names);
        }
        self.list.insert(name, library);
        Ok(())
    }

    fn remove(&mut self, name: &str) {
        self.names.retain(|_, (owner, _)| owner != name);
        self.list.remove(name);
    }

    /// Makes the libraries in memory those of an index, without loading them. `code_of` returns
    /// the text of a library.
    fn reconcile(
        &mut self,
        index: &[u8],
        mut code_of: impl FnMut(&str) -> Result<Option<Vec<u8>>, Stop>,
    ) -> Done {
        self.index = CHANGING.to_vec();
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
            if !self.list.contains_key(name)
                && let Some(code) = code_of(name)?
            {
                self.list.insert(name.to_owned(), Library::of_store(code));
            }
        }
        self.index = index.to_vec();
        Ok(())
    }

    /// Loads libraries of the store until there are enough, or no further one can be loaded.
    ///
    /// # Errors
    /// [`Refusal::NotNow`] if the command is to wait for a further turn.
    pub(super) fn load_stored(
        &mut self,
        clock: &ScriptClock,
        now_ms: u64,
        is_enough: impl Fn(&Libraries) -> bool,
    ) -> Done {
        if is_enough(self) {
            return Ok(());
        }
        let mut due: Vec<(u32, String)> = Vec::new();
        for (name, library) in &self.list {
            if let Err(failures) = &library.callbacks
                && (failures.is_pending() || failures.again_ms <= now_ms)
            {
                due.push((failures.count, name.clone()));
            }
        }
        // A library that fails does not hold up the others.
        due.sort_unstable();
        let begin = clock.now();
        for (_, name) in due {
            self.load_again(clock, &name, now_ms)?;
            if is_enough(self) {
                return Ok(());
            }
            if clock.now().saturating_sub(begin) >= LOADING {
                break;
            }
        }
        let mut failures = self.list.values().filter_map(|it| it.callbacks.as_ref().err());
        match failures.any(Failures::is_pending) {
            true => Err(Stop::Refused(Refusal::NotNow)),
            false => Ok(()),
        }
    }

    /// Loads a library of the store, or notes that this failed.
    fn load_again(&mut self, clock: &ScriptClock, name: &str, now_ms: u64) -> Done {
        let Some(mut library) = self.list.remove(name) else { return Ok(()) };
        let Err(failures) = &mut library.callbacks else {
            self.list.insert(name.to_owned(), library);
            return Ok(());
        };
        let time = LOADING * (1 << failures.count.min(TRIES_MAX - 1));
        let loaded = self.load(clock, &library.code, time);
        match loaded.and_then(|(_, loaded)| self.insert(name.to_owned(), loaded)) {
            Ok(()) => Ok(()),
            Err(stop) => {
                let (error, done): (&[u8], Done) = match &stop {
                    Stop::Error(text) | Stop::Ended(text) => (text, Ok(())),
                    Stop::Refused(_) | Stop::Wait(_) => (b"", Err(stop)),
                };
                failures.note(error, now_ms);
                self.list.insert(name.to_owned(), library);
                // The next load must not fail because of the garbage of this one.
                let collected = self.interpreter(clock)?.collect();
                collected.map_err(|error| internal(&error)).and(done)
            }
        }
    }
}

/// Executes the text of a library; returns its functions.
fn register(
    interpreter: &Interpreter,
    compiled: &Function,
    time: Duration,
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
    match interpreter.load(compiled, &function, time) {
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
    let result = match update(context, &mut libraries) {
        Ok(()) => act(context, &mut libraries, &clock),
        Err(stop) => Err(stop),
    };
    context.state.scripts.libraries = libraries;
    result
}

fn update(context: &mut Context<'_>, libraries: &mut Libraries) -> Done {
    let objects = &mut context.objects;
    let index = match objects.peek_in(FUNCTIONS, INDEX)? {
        Some(found) if found.value == libraries.index => return Ok(()),
        None if libraries.index.is_empty() => return Ok(()),
        found => found.map(|found| found.value.to_vec()).unwrap_or_default(),
    };
    libraries.reconcile(&index, |name| {
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

/// Executes an action on the libraries after all of them are loaded that can be.
pub(super) fn with_loaded<T>(
    context: &mut Context<'_>,
    act: impl FnOnce(&mut Context<'_>, &mut Libraries, &ScriptClock) -> Result<T, Stop>,
) -> Result<T, Stop> {
    with(context, |context, libraries, clock| {
        libraries.load_stored(clock, context.objects.now(), |_| false)?;
        act(context, libraries, clock)
    })
}

/// Adds libraries to the store, all or none; returns the name of the last one.
pub(super) fn add(
    context: &mut Context<'_>,
    codes: &[Vec<u8>],
    existing: Existing,
) -> Result<String, Stop> {
    with(context, |context, libraries, clock| {
        // The functions of libraries that stay must not have the same names.
        if existing != Existing::Dropped {
            libraries.load_stored(clock, context.objects.now(), |_| false)?;
        }
        let new = libraries.load_all(clock, codes, existing)?;
        let last = new.last().map(|(name, _)| name.clone()).unwrap_or_default();
        // If the store refuses, the next command finds that this is not the index of the store.
        libraries.index = CHANGING.to_vec();
        if existing == Existing::Dropped {
            for (name, _) in std::mem::take(&mut libraries.list) {
                context.objects.remove_in(FUNCTIONS, name.as_bytes())?;
            }
            libraries.names.clear();
        }
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
        let Some(known) =
            std::str::from_utf8(name).ok().filter(|it| libraries.list.contains_key(*it))
        else {
            return Ok(false);
        };
        libraries.index = CHANGING.to_vec();
        libraries.remove(known);
        context.objects.remove_in(FUNCTIONS, name)?;
        save(context, libraries)?;
        Ok(true)
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
