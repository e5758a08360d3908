//! Users and their rights.
//!
//! A [`User`] has passwords and rules. Rules are in [`Selector`]s: one of them must allow a command
//! with all its keys and channels. The store keeps a user as a line, nearly as `ACL LIST` shows it.
//!
//! [`Users`] has all users. They are among the settings, so a transaction that fails takes changes
//! of them back. The store has them as one hidden object, which a server reads before its first
//! command. Afterwards only the server itself changes the object.
//!
//! # Promises
//!
//! - Only hashes (SHA-256) of passwords are stored and shown.
//! - A change of users is durable before its reply.
//! - The user that is made from a line of the store has the same rights.

mod check;
mod log;
mod selector;
#[cfg(test)]
mod tests;
mod user;

pub(super) use check::Denied;
pub(super) use log::{AclLog, Circumstance, Refused, reply as reply_log};
pub(super) use selector::Selector;
pub(super) use user::{User, merged};

use super::commands::Names;
use super::stop::Stop;
use super::store::{FUNCTIONS, Kind};
use super::transaction::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the first user, which exists always.
pub(super) const DEFAULT: &[u8] = b"default";

/// The key of the object that has all users. No library of functions has such a name.
const KEY: &[u8] = b" users";

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Users {
    all: Arc<BTreeMap<Vec<u8>, Arc<User>>>,
    default: Arc<User>,
    /// Whether the users of the store were read.
    pub(super) is_loaded: bool,
}

impl Users {
    /// Returns the user `default` with all rights, and with a password if one is given.
    pub(super) fn new(password: Option<&[u8]>) -> Users {
        let mut default = User::all_powerful(DEFAULT);
        default.set_password(password);
        let default = Arc::new(default);
        let all = BTreeMap::from([(DEFAULT.to_vec(), Arc::clone(&default))]);
        Users { all: Arc::new(all), default, is_loaded: false }
    }

    /// Returns the same users, but the store is asked again.
    pub(super) fn to_be_loaded(&self) -> Users {
        Users { is_loaded: false, ..self.clone() }
    }

    /// Returns the user `default`.
    #[inline]
    pub(super) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Returns a user.
    pub(super) fn named(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.all.get(name)
    }

    /// Returns the user of a client, which has a name unless it is `default`.
    #[inline]
    pub(super) fn of(&self, name: Option<&[u8]>) -> Option<&Arc<User>> {
        match name {
            None => Some(&self.default),
            Some(name) => self.named(name),
        }
    }

    /// Returns all users by their names.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.all.values()
    }

    /// Adds or replaces a user.
    pub(super) fn insert(&mut self, user: User) {
        let user = Arc::new(user);
        if user.name == DEFAULT {
            self.default = Arc::clone(&user);
        }
        Arc::make_mut(&mut self.all).insert(user.name.clone(), user);
    }

    /// Removes a user, but not `default`; returns whether it was there.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT && Arc::make_mut(&mut self.all).remove(name).is_some()
    }

    /// Sets the only password of the user `default`, or none.
    pub(super) fn set_password(&mut self, password: Option<&[u8]>) {
        let mut default = User::clone(&self.default);
        default.set_password(password);
        self.insert(default);
    }

    /// Writes all users into the store.
    pub(super) fn save(&self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        let mut text = Vec::new();
        for user in self.iter() {
            text.extend_from_slice(&user.stored_line());
            text.push(b'\n');
        }
        objects.put_in(FUNCTIONS, KEY, text, Kind::String, None)
    }

    /// Reads the users of the store, if it has some. A password of the server's options is the one
    /// of `default`, also if the store has another one.
    pub(super) fn load(
        &mut self,
        names: &Names,
        objects: &mut Transaction<'_>,
        password: Option<&[u8]>,
    ) -> Result<(), Stop> {
        let text = objects.peek_in(FUNCTIONS, KEY)?.map(|found| found.value.to_vec());
        for line in text.iter().flat_map(|text| text.split(|byte| *byte == b'\n')) {
            if let Some(user) = User::of_line(names, line) {
                self.insert(user);
            }
        }
        if password.is_some() {
            self.set_password(password);
        }
        self.is_loaded = true;
        Ok(())
    }
}
