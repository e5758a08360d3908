//! The scans in progress, of which the user knows only the numbers.

use crate::result;
use std::collections::HashMap;
use thunderhead_client::{Enumeration, Error, Operation, Results, TableId};

/// Scans in progress, by number.
#[derive(Default)]
pub(crate) struct Scans {
    open: HashMap<u64, Enumeration>,
    count: u64,
}

impl Scans {
    /// Begins a scan of a table and returns its number.
    pub(crate) fn open(&mut self, table: TableId) -> u64 {
        self.count += 1;
        self.open.insert(self.count, Enumeration::new(table));
        self.count
    }

    /// Ends a scan.
    pub(crate) fn close(&mut self, scan: u64) {
        self.open.remove(&scan);
    }

    /// Returns the operation that fetches the next page. `None` if the scan has ended or is
    /// unknown.
    pub(crate) fn next(&self, scan: u64) -> Option<Operation> {
        self.open.get(&scan).and_then(Enumeration::next)
    }

    /// Appends the completion of that operation, or the last page if there was no operation.
    pub(crate) fn put_page(
        &mut self,
        (tag, scan): (u64, u64),
        mut results: Results,
        into: &mut Vec<u8>,
    ) {
        let objects = match (results.pop(), self.open.get_mut(&scan)) {
            (None, _) | (_, None) => Ok(Vec::new()),
            (Some(Ok(answer)), Some(it)) => it.answered(answer).ok_or(Error::Incomprehensible),
            (Some(Err(error)), Some(_)) => Err(error),
        };
        match objects {
            Ok(objects) => {
                let is_last = self.next(scan).is_none();
                result::put_head(tag, objects.len() + 1, into);
                result::put_page(&objects, is_last, into);
            }
            Err(error) => {
                result::put_head(tag, 1, into);
                result::put_error(&error, into);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_client::{Action, Answer, KeyHash, Obstacle};

    const HEAD_BYTES: usize = 12;

    /// Returns how many results a completion has, the kind of the last one, and its mark.
    fn end(bytes: &[u8]) -> (u32, u8, u8) {
        let count = u32::from_le_bytes(bytes[8..HEAD_BYTES].try_into().unwrap());
        let last = &bytes[bytes.len() - 20..];
        (count, last[0], last[1])
    }

    #[test]
    fn a_scan_ends_after_its_last_page_and_keeps_its_place_after_an_error() {
        let mut scans = Scans::default();
        let scan = scans.open(TableId(4));
        let page = |last, cursor| Ok(Answer::Page { objects: Vec::new(), last, cursor });
        let mut put = |results| {
            let mut into = Vec::new();
            scans.put_page((7, scan), results, &mut into);
            (into, scans.next(scan))
        };
        let (bytes, next) = put(vec![page(KeyHash(99), None)]);
        assert_eq!(end(&bytes), (1, 7, 0));
        assert!(matches!(next.unwrap().action, Action::Page { first: KeyHash(100), .. }));
        let (bytes, next) = put(vec![Err(Error::TimedOut(Obstacle::NoAnswer))]);
        assert_eq!((bytes[HEAD_BYTES], bytes[HEAD_BYTES + 2]), (0, 4));
        assert!(next.is_some(), "the page can be requested again");
        let (bytes, next) = put(vec![page(KeyHash::MAX, None)]);
        assert_eq!((end(&bytes), next), ((1, 7, 1), None));
        assert_eq!(end(&put(Vec::new()).0), (1, 7, 1), "it has ended");
        scans.close(scan);
        assert_eq!(scans.next(scan), None);
    }
}
