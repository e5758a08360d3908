//! The elements of an array of which each part has some, as in the reply to `MGET` or `KEYS`.

use super::super::writer::{Version, Writer};
use super::Broken;
use std::collections::VecDeque;

/// Arrays of several parts that become one. It is sent while it arrives.
#[derive(Debug)]
pub(super) struct Elements {
    pub(super) parts: Vec<u32>,
    pub(super) heads: Vec<Option<Result<u64, Vec<u8>>>>,
    /// The order of the elements: the next ones of a part, and their number. Without an order,
    /// those of each part follow those of the part before it.
    pub(super) order: Option<VecDeque<(u32, u64)>>,
    /// Whether all heads are there.
    pub(super) is_begun: bool,
    /// Whether the elements are dropped, because a part has an error.
    pub(super) is_dropped: bool,
}

impl Elements {
    pub(super) fn new(parts: Vec<u32>, order: Option<Vec<(u32, u64)>>) -> Elements {
        let heads = vec![None; parts.len()];
        let order = order.map(VecDeque::from);
        Elements { parts, heads, order, is_begun: false, is_dropped: false }
    }

    /// Takes all heads; returns the first bytes of the reply. Otherwise the order does not fit.
    pub(super) fn begin(&mut self) -> Result<Vec<u8>, Broken> {
        let heads = std::mem::take(&mut self.heads);
        let lengths: VecDeque<(u32, u64)> = self
            .parts
            .iter()
            .zip(&heads)
            .filter_map(|(part, head)| Some((*part, *head.as_ref()?.as_ref().ok()?)))
            .collect();
        self.is_begun = true;
        let error = heads.into_iter().flatten().find_map(Result::err);
        if let Some(error) = error {
            (self.is_dropped, self.order) = (true, Some(lengths));
            return Ok(error);
        }
        let total = lengths.iter().map(|(_, length)| length).sum::<u64>();
        if let Some(order) = &self.order {
            let of_part = |part: u32| {
                let own = order.iter().filter(|(it, _)| *it == part);
                own.map(|(_, count)| count).sum::<u64>()
            };
            if !lengths.iter().all(|(part, length)| of_part(*part) == *length) {
                return Err(Broken);
            }
        } else {
            self.order = Some(lengths);
        }
        let mut out = Vec::new();
        Writer::new(&mut out, Version::Two).array(usize::try_from(total).map_err(|_| Broken)?);
        Ok(out)
    }

    /// Returns the part whose element is the next one.
    pub(super) fn next(&mut self) -> Option<u32> {
        let order = self.order.as_mut()?;
        while order.front().is_some_and(|(_, count)| *count == 0) {
            order.pop_front();
        }
        order.front().map(|(part, _)| *part)
    }
}
