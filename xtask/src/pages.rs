//! Pages in Markdown: their links and the anchors of their headings. Code is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// A link of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// Its line, from 1 on.
    pub(crate) line: usize,
    /// The place of its target in the page.
    range: Range<usize>,
    /// Its target: an address, or a path and an anchor.
    pub(crate) target: &'a str,
}

impl Link<'_> {
    /// Returns the path of a relative link, which is empty for an anchor of the same page. `None`
    /// for an address.
    pub(crate) fn path(&self) -> Option<&str> {
        let is_address = self.target.contains("://") || self.target.starts_with("mailto:");
        (!is_address).then(|| self.target.split('#').next().unwrap_or(""))
    }

    /// Returns the anchor.
    pub(crate) fn anchor(&self) -> Option<&str> {
        self.target.split_once('#').map(|(_, anchor)| anchor)
    }
}

/// Returns the links of a page, in their order.
pub(crate) fn links(page: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (number, offset, line) in lines_without_code(page) {
        let bytes = line.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == b'`' {
                at = code_end(line, at);
            } else if line[at..].starts_with("](") {
                let begin = at + 2;
                let bytes = line[begin..].find([')', ' ']).unwrap_or(line.len() - begin);
                let range = offset + begin..offset + begin + bytes;
                links.push(Link { line: number, target: &page[range.clone()], range });
                at = begin + bytes;
            } else {
                at += line[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
    }
    links
}

/// Returns the index behind the code that a backquote here begins.
fn code_end(line: &str, at: usize) -> usize {
    let quotes = line[at..].len() - line[at..].trim_start_matches('`').len();
    let behind = at + quotes;
    line[behind..].find(&line[at..behind]).map_or(behind, |end| behind + end + quotes)
}

/// Returns a page with other targets in its links. A link for which there is no other target keeps
/// its own.
pub(crate) fn with_targets(page: &str, target: impl Fn(&Link<'_>) -> Option<String>) -> String {
    let mut text = String::with_capacity(page.len());
    let mut done = 0;
    for link in links(page) {
        if let Some(other) = target(&link) {
            text.push_str(&page[done..link.range.start]);
            text.push_str(&other);
            done = link.range.end;
        }
    }
    text.push_str(&page[done..]);
    text
}

/// Returns the anchors of a page's headings, as GitHub and mdBook name them.
pub(crate) fn anchors(page: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, _, line) in lines_without_code(page) {
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        if !line.starts_with('#') {
            continue;
        }
        let slug = slug(heading);
        let count = counts.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

fn slug(heading: &str) -> String {
    let plain = with_targets(heading, |_| Some(String::new()));
    plain
        .trim()
        .chars()
        .filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then(|| letter.to_lowercase().next()).flatten(),
        })
        .collect()
}

/// Returns the number, the offset and the text of each line that is not between fences.
fn lines_without_code(page: &str) -> Vec<(usize, usize, &str)> {
    let (mut offset, mut is_code) = (0, false);
    let mut lines = Vec::new();
    for (number, line) in page.split_inclusive('\n').enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((number + 1, offset, line.trim_end_matches('\n')));
        }
        offset += line.len();
    }
    lines
}

/// Returns the path in the tree that a relative link leads to, from a page in a folder.
pub(crate) fn resolve(folder: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_are_found_with_their_lines() {
        let page = "See [a](b.md#c) and `[no](x)`.\n```text\n[no](x)\n```\n[`d`](../e.rs \"f\") [g\nh](#i)\n";
        let found: Vec<(usize, &str)> = links(page).iter().map(|it| (it.line, it.target)).collect();
        assert_eq!(found, [(1, "b.md#c"), (5, "../e.rs"), (6, "#i")]);
        assert_eq!(links("``a ` b`` [c](d)").len(), 1);
        assert_eq!(links("a ` b [c](d)").len(), 1, "a single backquote begins no code");
    }

    #[test]
    fn a_link_has_a_path_and_an_anchor() {
        let parts = |target: &str| {
            let page = format!("[x]({target})");
            let link = &links(&page)[0];
            (link.path().map(str::to_owned), link.anchor().map(str::to_owned))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("a.md#b"), (some("a.md"), some("b")));
        assert_eq!(parts("#b"), (some(""), some("b")));
        assert_eq!(parts("a"), (some("a"), None));
        assert_eq!(parts("https://a.example/b").0, None);
        assert_eq!(resolve(Path::new("docs/a"), "../../b/./c.md"), Path::new("b/c.md"));
    }

    #[test]
    fn targets_are_replaced_in_place() {
        let page = "[a](b) `[a](b)` [ü](c)\n";
        let other = |link: &Link<'_>| (link.target != "b").then(|| format!("{}.html", link.target));
        assert_eq!(with_targets(page, other), "[a](b) `[a](b)` [ü](c.html)\n");
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let page = "# A seed failed. Now what?\n## `a_b`: c-d\n## Same\n## Same\n### See [x](y)\n\
                    #no\n```text\n# no\n```\n";
        let expected =
            ["a-seed-failed-now-what", "a_b-c-d", "same", "same-1", "see-x"].map(str::to_owned);
        assert_eq!(anchors(page), BTreeSet::from(expected));
    }
}
