//! The scripts that the server knows, by their digests.

use super::compiled::Program;
use super::shebang::Properties;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most bytes of scripts that `EVAL` has brought, and their number. Those not used for
/// the longest time are forgotten.
const BROUGHT_BYTES_MAX: usize = 4 << 20;
const BROUGHT_MAX: usize = 500;

/// The most bytes of scripts that `SCRIPT LOAD` has brought. They stay until `SCRIPT FLUSH`.
const LOADED_BYTES_MAX: usize = 8 << 20;

/// A script's digest: forty hexadecimal digits in small letters.
pub(super) type Digest = String;

/// A script.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) digest: Digest,
    pub(super) program: Program,
    pub(super) properties: Properties,
    bytes: usize,
    /// The order of its last use.
    used: Cell<u64>,
}

impl Script {
    pub(super) fn new(
        digest: Digest,
        program: Program,
        properties: Properties,
        bytes: usize,
    ) -> Script {
        Script { digest, program, properties, bytes, used: Cell::new(0) }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Cache {
    scripts: BTreeMap<Digest, Rc<Script>>,
    /// The scripts that `EVAL` has brought.
    brought: BTreeSet<Digest>,
    brought_bytes: usize,
    loaded_bytes: usize,
    uses: u64,
}

impl Cache {
    /// Returns a script, which is used.
    pub(super) fn find(&mut self, digest: &str) -> Option<Rc<Script>> {
        let script = self.scripts.get(digest)?;
        self.uses += 1;
        script.used.set(self.uses);
        Some(Rc::clone(script))
    }

    /// Returns the number of known scripts.
    pub(super) fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Returns the properties of a script, which is not used.
    pub(super) fn properties(&self, digest: &str) -> Option<Properties> {
        self.scripts.get(digest).map(|script| script.properties)
    }

    /// Whether a script is known.
    pub(super) fn knows(&self, digest: &str) -> bool {
        self.scripts.contains_key(digest)
    }

    /// Keeps a script that `EVAL` has brought.
    pub(super) fn bring(&mut self, script: &Rc<Script>) {
        self.uses += 1;
        script.used.set(self.uses);
        self.brought_bytes += script.bytes;
        self.brought.insert(script.digest.clone());
        self.scripts.insert(script.digest.clone(), Rc::clone(script));
        while self.brought.len() > BROUGHT_MAX || self.brought_bytes > BROUGHT_BYTES_MAX {
            let brought = self.brought.iter().filter_map(|digest| self.scripts.get(digest));
            let Some(oldest) = brought.min_by_key(|script| script.used.get()).cloned() else {
                break;
            };
            self.brought.remove(&oldest.digest);
            self.scripts.remove(&oldest.digest);
            self.brought_bytes -= oldest.bytes;
        }
    }

    /// Whether a script may be kept until all are forgotten.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.loaded_bytes + bytes <= LOADED_BYTES_MAX
    }

    /// Keeps a script until all are forgotten.
    pub(super) fn load(&mut self, script: &Rc<Script>) {
        if self.brought.remove(&script.digest) {
            self.brought_bytes -= script.bytes;
        } else if self.scripts.contains_key(&script.digest) {
            return;
        }
        self.loaded_bytes += script.bytes;
        self.scripts.insert(script.digest.clone(), Rc::clone(script));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::scripts::compiled::Compiled;
    use mlua::Lua;

    fn script(lua: &Lua, name: usize, bytes: usize) -> Rc<Script> {
        let function = lua.load("return 1").into_function().expect("it is Lua");
        let compiled = Rc::new(Compiled::new(lua).expect("there is memory"));
        let program = compiled.keep(function).expect("there is memory");
        Rc::new(Script::new(name.to_string(), program, Properties::default(), bytes))
    }

    #[test]
    fn scripts_that_were_brought_and_are_not_used_are_forgotten() {
        let (lua, mut cache) = (Lua::new(), Cache::default());
        let kept = script(&lua, 0, 10);
        cache.bring(&kept);
        cache.load(&kept);
        cache.load(&kept);
        for name in 1..=BROUGHT_MAX + 2 {
            cache.bring(&script(&lua, name, 10));
            assert!(cache.find("1").is_some());
        }
        let is_known = |name: usize| cache.knows(&name.to_string());
        assert_eq!([0, 1, 2, 3, 4].map(is_known), [true, true, false, false, true]);
        assert_eq!((cache.brought_bytes, cache.loaded_bytes), (10 * BROUGHT_MAX, 10));
        cache.bring(&script(&lua, 9000, BROUGHT_BYTES_MAX));
        assert!(cache.knows("9000") && !cache.knows("4") && cache.knows("0"));
    }
}
