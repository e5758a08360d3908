//! Patterns of Lua 5.1, as `string.find` and its relatives understand them.
//!
//! Lua's own matcher has no limits: it may recurse until the stack of the thread overflows, and
//! search for years. This one counts its steps and its depth.

use std::ops::Range;

/// The most captures of a pattern.
const CAPTURES_MAX: usize = 32;

/// The greatest depth of a search: one for each repetition and each capture.
const DEPTH_MAX: usize = 200;

/// The steps that are counted together.
const STEPS: u32 = 256;

/// The reason why a search ends without an answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The pattern is wrong.
    Pattern(&'static str),
    /// The script is ended.
    Ended(mlua::Error),
}

/// The text that a part of a pattern has matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// The part is unfinished, and begins here.
    Open(usize),
    /// A position.
    Position(usize),
    /// A text.
    Text(usize, usize),
}

/// A search.
pub(super) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    depth: usize,
    steps: u32,
    /// Counts steps, and tells when to end.
    work: &'a dyn Fn(u32) -> mlua::Result<()>,
}

/// Returns the part of a pattern that is used: patterns end at a byte 0.
pub(super) fn used(pattern: &[u8]) -> &[u8] {
    &pattern[..memchr::memchr(0, pattern).unwrap_or(pattern.len())]
}

/// Whether a pattern has characters that do not stand for themselves.
pub(super) fn is_special(pattern: &[u8]) -> bool {
    used(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// Whether a byte is of a class, such as `d` for digits.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of != class.is_ascii_uppercase()
}

impl<'a> Matcher<'a> {
    /// Returns a search in a text.
    pub(super) fn new(
        subject: &'a [u8],
        pattern: &'a [u8],
        work: &'a dyn Fn(u32) -> mlua::Result<()>,
    ) -> Matcher<'a> {
        let pattern = used(pattern);
        Matcher { subject, pattern, captures: Vec::new(), depth: 0, steps: 0, work }
    }

    /// Matches the pattern, from an index on, at a place of the text. Returns the match's end.
    pub(super) fn matches(&mut self, at: usize, pattern: usize) -> Result<Option<usize>, Trouble> {
        self.captures.clear();
        self.depth = 0;
        self.run(at, pattern)
    }

    /// Finds the first match from a place on.
    pub(super) fn search(
        &mut self,
        from: usize,
        is_anchored: bool,
    ) -> Result<Option<Range<usize>>, Trouble> {
        for at in from..=self.subject.len() {
            if let Some(end) = self.matches(at, usize::from(is_anchored))? {
                return Ok(Some(at..end));
            }
            if is_anchored {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the captures of a match. A match without captures is its own capture.
    pub(super) fn captures(&self, whole: &Range<usize>) -> Result<Vec<Capture>, Trouble> {
        if self.captures.is_empty() {
            return Ok(vec![Capture::Text(whole.start, whole.end)]);
        }
        self.own_captures()
    }

    /// Returns the captures of a match.
    pub(super) fn own_captures(&self) -> Result<Vec<Capture>, Trouble> {
        match self.captures.iter().any(|capture| matches!(capture, Capture::Open(_))) {
            true => Err(Trouble::Pattern("unfinished capture")),
            false => Ok(self.captures.clone()),
        }
    }

    /// Returns a capture of a match by its index.
    pub(super) fn capture(&self, index: usize, whole: &Range<usize>) -> Result<Capture, Trouble> {
        match self.captures.get(index) {
            Some(Capture::Open(_)) => Err(Trouble::Pattern("unfinished capture")),
            Some(capture) => Ok(*capture),
            None if index == 0 => Ok(Capture::Text(whole.start, whole.end)),
            None => Err(Trouble::Pattern("invalid capture index")),
        }
    }

    fn step(&mut self) -> Result<(), Trouble> {
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            (self.work)(STEPS).map_err(Trouble::Ended)?;
        }
        Ok(())
    }

    fn at(&self, index: usize) -> Option<u8> {
        self.pattern.get(index).copied()
    }

    /// Returns the index behind the class that begins at an index.
    fn class_end(&self, at: usize) -> Result<usize, Trouble> {
        match self.at(at) {
            Some(b'%') => match self.at(at + 1) {
                Some(_) => Ok(at + 2),
                None => Err(Trouble::Pattern("malformed pattern (ends with '%')")),
            },
            Some(b'[') => {
                let mut at = at + 1;
                if self.at(at) == Some(b'^') {
                    at += 1;
                }
                loop {
                    match self.at(at) {
                        None => return Err(Trouble::Pattern("malformed pattern (missing ']')")),
                        Some(b'%') if self.at(at + 1).is_some() => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.at(at) == Some(b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(at + 1),
        }
    }

    /// Whether a byte belongs to the set between `[` at `begin` and `]` at `end`.
    fn is_in_set(&self, byte: u8, begin: usize, end: usize) -> bool {
        let mut at = begin + 1;
        let is_listed = self.at(at) != Some(b'^');
        if !is_listed {
            at += 1;
        }
        while at < end {
            let Some(own) = self.at(at) else { break };
            let is_range = self.at(at + 1) == Some(b'-') && at + 2 < end;
            match own {
                b'%' => {
                    at += 1;
                    if self.at(at).is_some_and(|class| is_of_class(byte, class)) {
                        return is_listed;
                    }
                }
                first if is_range => {
                    at += 2;
                    if self.at(at).is_some_and(|last| (first..=last).contains(&byte)) {
                        return is_listed;
                    }
                }
                own if own == byte => return is_listed,
                _ => {}
            }
            at += 1;
        }
        !is_listed
    }

    /// Whether the text has a byte of a class at a place.
    fn is_single(&self, at: usize, class: usize, class_end: usize) -> bool {
        let Some(byte) = self.subject.get(at).copied() else { return false };
        match self.at(class) {
            Some(b'.') => true,
            Some(b'%') => self.at(class + 1).is_some_and(|class| is_of_class(byte, class)),
            Some(b'[') => self.is_in_set(byte, class, class_end - 1),
            own => own == Some(byte),
        }
    }

    /// Matches one level deeper.
    fn deeper(&mut self, at: usize, pattern: usize) -> Result<Option<usize>, Trouble> {
        if self.depth >= DEPTH_MAX {
            return Err(Trouble::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let end = self.run(at, pattern);
        self.depth -= 1;
        end
    }

    fn run(&mut self, mut at: usize, mut pattern: usize) -> Result<Option<usize>, Trouble> {
        loop {
            self.step()?;
            let Some(first) = self.at(pattern) else { return Ok(Some(at)) };
            match (first, self.at(pattern + 1)) {
                (b'(', Some(b')')) => {
                    return self.open(Capture::Position(at), at, pattern + 2);
                }
                (b'(', _) => return self.open(Capture::Open(at), at, pattern + 1),
                (b')', _) => return self.close(at, pattern + 1),
                (b'%', Some(b'b')) => match self.balanced(at, pattern + 2)? {
                    Some(end) => {
                        at = end;
                        pattern += 4;
                        continue;
                    }
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    pattern += 2;
                    if self.at(pattern) != Some(b'[') {
                        return Err(Trouble::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(pattern)?;
                    let before = at.checked_sub(1).and_then(|at| self.subject.get(at));
                    let before = before.copied().unwrap_or(0);
                    let next = self.subject.get(at).copied().unwrap_or(0);
                    if self.is_in_set(before, pattern, end - 1)
                        || !self.is_in_set(next, pattern, end - 1)
                    {
                        return Ok(None);
                    }
                    pattern = end;
                    continue;
                }
                (b'%', Some(digit @ b'0'..=b'9')) => match self.repeated(at, digit)? {
                    Some(end) => {
                        at = end;
                        pattern += 2;
                        continue;
                    }
                    None => return Ok(None),
                },
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                _ => {}
            }
            let end = self.class_end(pattern)?;
            let is_single = self.is_single(at, pattern, end);
            match self.at(end) {
                Some(b'?') => {
                    if is_single && let Some(found) = self.deeper(at + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    pattern = end + 1;
                }
                Some(b'*') => return self.longest(at, pattern, end),
                Some(b'+') if is_single => return self.longest(at + 1, pattern, end),
                Some(b'-') => return self.shortest(at, pattern, end),
                Some(b'+') => return Ok(None),
                _ if !is_single => return Ok(None),
                _ => {
                    at += 1;
                    pattern = end;
                }
            }
        }
    }

    fn longest(
        &mut self,
        at: usize,
        class: usize,
        class_end: usize,
    ) -> Result<Option<usize>, Trouble> {
        let mut count = 0;
        while self.is_single(at + count, class, class_end) {
            self.step()?;
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(found) = self.deeper(at + count, class_end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn shortest(
        &mut self,
        mut at: usize,
        class: usize,
        class_end: usize,
    ) -> Result<Option<usize>, Trouble> {
        loop {
            if let Some(found) = self.deeper(at, class_end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_single(at, class, class_end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(
        &mut self,
        capture: Capture,
        at: usize,
        pattern: usize,
    ) -> Result<Option<usize>, Trouble> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Trouble::Pattern("too many captures"));
        }
        self.captures.push(capture);
        let length = self.captures.len();
        let end = self.deeper(at, pattern)?;
        if end.is_none() {
            self.captures.truncate(length - 1);
        }
        Ok(end)
    }

    fn close(&mut self, at: usize, pattern: usize) -> Result<Option<usize>, Trouble> {
        let open = self.captures.iter().rposition(|it| matches!(it, Capture::Open(_)));
        let Some(open) = open else {
            return Err(Trouble::Pattern("invalid pattern capture"));
        };
        let before = self.captures[open];
        if let Capture::Open(begin) = before {
            self.captures[open] = Capture::Text(begin, at);
        }
        let end = self.deeper(at, pattern)?;
        if end.is_none() {
            self.captures[open] = before;
        }
        Ok(end)
    }

    /// Matches a text between two bytes, such as parentheses, with as many of one as of the other.
    fn balanced(&mut self, at: usize, pattern: usize) -> Result<Option<usize>, Trouble> {
        let (Some(begin), Some(end)) = (self.at(pattern), self.at(pattern + 1)) else {
            return Err(Trouble::Pattern("unbalanced pattern"));
        };
        if self.subject.get(at) != Some(&begin) {
            return Ok(None);
        }
        let mut open = 1;
        for place in at + 1..self.subject.len() {
            self.step()?;
            let byte = self.subject[place];
            if byte == end {
                open -= 1;
                if open == 0 {
                    return Ok(Some(place + 1));
                }
            } else if byte == begin {
                open += 1;
            }
        }
        Ok(None)
    }

    /// Matches the text of an earlier capture.
    fn repeated(&mut self, at: usize, digit: u8) -> Result<Option<usize>, Trouble> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(index).copied());
        match capture {
            None | Some(Capture::Open(_)) => Err(Trouble::Pattern("invalid capture index")),
            Some(Capture::Position(_)) => Ok(None),
            Some(Capture::Text(begin, end)) => {
                self.steps = self.steps.saturating_add((end - begin) as u32 / 16);
                let rest = self.subject.get(at..).unwrap_or_default();
                Ok(rest.starts_with(&self.subject[begin..end]).then_some(at + end - begin))
            }
        }
    }
}
