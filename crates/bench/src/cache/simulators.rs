//! Simulated caches with a capacity in bytes: LRU, and S3-FIFO (Yang et al., SOSP 2023).

use std::collections::HashMap;
use std::collections::VecDeque;

/// The end of a list.
const NONE: usize = usize::MAX;

/// The share of S3-FIFO's capacity that new objects have.
const SMALL_SHARE: f64 = 0.1;

/// S3-FIFO counts so many uses of an object.
const USES_MAX: u8 = 3;

/// A cache that is read, and written to after each miss.
pub trait Simulated {
    /// Returns its name.
    fn name(&self) -> &'static str;

    /// Reads an object of this many bytes at a time in seconds. Returns whether it was there; if
    /// not, the object is inserted, and expires at a time.
    fn request(&mut self, key: u64, bytes: u64, now: f64, expires: f64) -> bool;
}

#[derive(Clone, Copy)]
struct Node {
    key: u64,
    bytes: u64,
    expires: f64,
    newer: usize,
    older: usize,
}

/// Evicts the object that was not used for the longest time.
pub struct Lru {
    capacity: u64,
    bytes: u64,
    places: HashMap<u64, usize>,
    nodes: Vec<Node>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
}

impl Lru {
    /// Returns an empty cache.
    #[must_use]
    pub fn new(capacity: u64) -> Lru {
        Lru {
            capacity,
            bytes: 0,
            places: HashMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    fn unlink(&mut self, place: usize) {
        let Node { newer, older, .. } = self.nodes[place];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older].newer = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        (self.nodes[place].newer, self.nodes[place].older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = place,
            newest => self.nodes[newest].newer = place,
        }
        self.newest = place;
    }

    fn remove(&mut self, place: usize) {
        self.unlink(place);
        self.bytes -= self.nodes[place].bytes;
        self.places.remove(&self.nodes[place].key);
        self.free.push(place);
    }
}

impl Simulated for Lru {
    fn name(&self) -> &'static str {
        "LRU"
    }

    fn request(&mut self, key: u64, bytes: u64, now: f64, expires: f64) -> bool {
        if let Some(place) = self.places.get(&key).copied() {
            if self.nodes[place].expires > now {
                self.unlink(place);
                self.link_newest(place);
                return true;
            }
            self.remove(place);
        }
        let node = Node { key, bytes, expires, newer: NONE, older: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.places.insert(key, place);
        self.link_newest(place);
        self.bytes += bytes;
        while self.bytes > self.capacity && self.oldest != NONE {
            self.remove(self.oldest);
        }
        false
    }
}

/// An object of S3-FIFO.
#[derive(Clone, Copy)]
struct Held {
    bytes: u64,
    expires: f64,
    uses: u8,
    /// Tells an object from an earlier one of its key that is still in a queue.
    stamp: u64,
}

/// A queue of keys, each with the stamp of its object.
#[derive(Default)]
struct Queue {
    keys: VecDeque<(u64, u64)>,
    bytes: u64,
}

/// New objects begin in a small queue. They move to the main queue if they are used there more than
/// once, or if they come back soon after they left.
pub struct S3Fifo {
    capacity: u64,
    held: HashMap<u64, Held>,
    small: Queue,
    main: Queue,
    /// Keys that left the small queue, and the stamps with which they did.
    ghosts: VecDeque<(u64, u64)>,
    ghost_stamps: HashMap<u64, u64>,
    stamp: u64,
}

impl S3Fifo {
    /// Returns an empty cache.
    #[must_use]
    pub fn new(capacity: u64) -> S3Fifo {
        S3Fifo {
            capacity,
            held: HashMap::new(),
            small: Queue::default(),
            main: Queue::default(),
            ghosts: VecDeque::new(),
            ghost_stamps: HashMap::new(),
            stamp: 0,
        }
    }

    fn evict(&mut self) {
        let small = self.small.bytes as f64 >= SMALL_SHARE * self.capacity as f64;
        if small || self.main.keys.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    /// Takes the oldest object of a queue. Entries whose object was replaced count no bytes.
    fn oldest(queue: &mut Queue, held: &HashMap<u64, Held>) -> Option<(u64, Held)> {
        while let Some((key, stamp)) = queue.keys.pop_front() {
            if let Some(found) = held.get(&key).filter(|it| it.stamp == stamp) {
                queue.bytes -= found.bytes;
                return Some((key, *found));
            }
        }
        None
    }

    fn evict_small(&mut self) {
        while let Some((key, found)) = Self::oldest(&mut self.small, &self.held) {
            if found.uses > 1 {
                self.push_main(key, Held { uses: 0, ..found });
                continue;
            }
            self.held.remove(&key);
            self.ghost_stamps.insert(key, found.stamp);
            self.ghosts.push_back((key, found.stamp));
            // As many ghosts as the main queue has objects.
            while self.ghosts.len() > self.main.keys.len().max(1) {
                if let Some((key, stamp)) = self.ghosts.pop_front()
                    && self.ghost_stamps.get(&key) == Some(&stamp)
                {
                    self.ghost_stamps.remove(&key);
                }
            }
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some((key, found)) = Self::oldest(&mut self.main, &self.held) {
            if found.uses == 0 {
                self.held.remove(&key);
                return;
            }
            self.push_main(key, Held { uses: found.uses - 1, ..found });
        }
    }

    fn push_main(&mut self, key: u64, held: Held) {
        self.main.keys.push_back((key, held.stamp));
        self.main.bytes += held.bytes;
        self.held.insert(key, held);
    }

    /// Removes an expired object. Its entry stays in its queue until it is the oldest.
    fn remove(&mut self, key: u64, found: Held) {
        self.held.remove(&key);
        let is_small = self.small.keys.iter().any(|it| *it == (key, found.stamp));
        let queue = if is_small { &mut self.small } else { &mut self.main };
        queue.bytes -= found.bytes;
    }
}

impl Simulated for S3Fifo {
    fn name(&self) -> &'static str {
        "S3-FIFO"
    }

    fn request(&mut self, key: u64, bytes: u64, now: f64, expires: f64) -> bool {
        if let Some(found) = self.held.get_mut(&key) {
            if found.expires > now {
                found.uses = (found.uses + 1).min(USES_MAX);
                return true;
            }
            let found = *found;
            self.remove(key, found);
        }
        while self.small.bytes + self.main.bytes + bytes > self.capacity && !self.held.is_empty() {
            self.evict();
        }
        self.stamp += 1;
        let held = Held { bytes, expires, uses: 0, stamp: self.stamp };
        if self.ghost_stamps.remove(&key).is_some() {
            self.push_main(key, held);
        } else {
            self.small.keys.push_back((key, self.stamp));
            self.small.bytes += bytes;
            self.held.insert(key, held);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: f64 = f64::INFINITY;

    fn hits(cache: &mut dyn Simulated, keys: &[u64]) -> Vec<bool> {
        keys.iter().map(|key| cache.request(*key, 1, 0.0, NEVER)).collect()
    }

    #[test]
    fn lru_evicts_the_object_that_was_not_used_for_longest() {
        let mut cache = Lru::new(2);
        assert_eq!(hits(&mut cache, &[1, 2, 1, 3]), [false, false, true, false]);
        assert_eq!(hits(&mut cache, &[1, 3]), [true, true]);
        assert_eq!(hits(&mut cache, &[2, 1]), [false, false]);
        assert_eq!((cache.bytes, cache.places.len()), (2, 2));
    }

    #[test]
    fn s3_fifo_keeps_used_objects_through_a_scan() {
        let mut cache = S3Fifo::new(20);
        hits(&mut cache, &(0..10).collect::<Vec<_>>());
        hits(&mut cache, &(0..10).chain(0..10).collect::<Vec<_>>());
        hits(&mut cache, &(100..200).collect::<Vec<_>>());
        assert_eq!(hits(&mut cache, &(0..10).collect::<Vec<_>>()), [true; 10]);
        let mut lru = Lru::new(20);
        hits(&mut lru, &(0..10).chain(0..10).chain(100..200).collect::<Vec<_>>());
        assert_eq!(hits(&mut lru, &(0..10).collect::<Vec<_>>()), [false; 10]);
    }

    #[test]
    fn s3_fifo_remembers_keys_that_left_early() {
        let mut cache = S3Fifo::new(10);
        hits(&mut cache, &(0..10).flat_map(|key| [key; 3]).collect::<Vec<_>>());
        hits(&mut cache, &(20..23).collect::<Vec<_>>());
        assert!(!hits(&mut cache, &[20])[0]);
        assert_eq!(cache.main.keys.back().unwrap().0, 20);
    }

    #[test]
    fn caches_never_exceed_their_capacity_and_expired_objects_are_absent() {
        let mut lru = Lru::new(100);
        let mut fifo = S3Fifo::new(100);
        let mut random = thunderhead_runtime::Random::from_seed(1);
        for step in 0..20_000 {
            let (key, now) = (random.below(60), f64::from(step) / 100.0);
            let bytes = 1 + key % 9;
            for cache in [&mut lru as &mut dyn Simulated, &mut fifo] {
                cache.request(key, bytes, now, now + 1.0);
                assert!(cache.request(key, bytes, now, now + 1.0));
            }
            let sum = fifo.held.values().map(|it| it.bytes).sum::<u64>();
            assert_eq!(sum, fifo.small.bytes + fifo.main.bytes);
            assert!(sum <= 100 && lru.bytes <= 100);
        }
        assert!(!lru.request(1, 2, 1e9, NEVER) && !fifo.request(1, 2, 1e9, NEVER));
    }
}
