//! Rust sources as tokens, for the checks of `tidy` that look at code and not at lines.
//!
//! Comments, texts and code for tests are left out. A token keeps its line, so that a finding can
//! name it. This is no parser: each check looks for the few patterns that it needs. A crate like
//! `syn` would parse everything, but it does not look into macros, and each build would wait for
//! it.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// One token: a name, a number, `::`, `->`, or one other character. A text is an empty token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// One source file as a module.
pub(super) struct Module {
    /// Its names below the crate; empty for the crate's root.
    pub(super) path: Vec<String>,
    /// Its file, relative to the tree.
    pub(super) file: String,
    /// Its code without tests.
    pub(super) tokens: Vec<Token>,
}

/// Words that begin an item or a statement. After one of them a comma does not end it.
const ITEMS: [&str; 15] = [
    "pub", "fn", "mod", "use", "let", "impl", "struct", "enum", "const", "static", "type", "trait",
    "async", "unsafe", "extern",
];

/// Reads a crate's modules, from its root downwards. A module that only tests declare is left out.
pub(super) fn modules(root: &Path, crate_root: &str) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    let folder = Path::new(crate_root).parent().unwrap_or(Path::new("")).display().to_string();
    add_module(root, crate_root, &folder, Vec::new(), &mut modules)?;
    Ok(modules)
}

fn add_module(
    root: &Path,
    file: &str,
    folder: &str,
    path: Vec<String>,
    modules: &mut Vec<Module>,
) -> Result<()> {
    let source = fs::read_to_string(root.join(file)).with_context(|| format!("read {file}"))?;
    let tokens = without_tests(&tokens(&source));
    let children: Vec<String> = tokens
        .windows(3)
        .filter(|it| it[0].text == "mod" && it[2].text == ";")
        .map(|it| it[1].text.clone())
        .collect();
    modules.push(Module { path: path.clone(), file: file.to_owned(), tokens });
    for name in children {
        let below = format!("{folder}/{name}");
        let files = [format!("{below}.rs"), format!("{below}/mod.rs")];
        // The attribute `path` is not understood: such a module is skipped.
        let Some(file) = files.iter().find(|it| root.join(it).exists()) else { continue };
        let mut path = path.clone();
        path.push(name);
        add_module(root, file, &below, path, modules)?;
    }
    Ok(())
}

/// Splits a source into tokens.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { source, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(next) = reader.rest().chars().next() {
        let line = reader.line;
        let text = reader.token(next);
        if let Some(text) = text {
            tokens.push(Token { text, line });
        }
    }
    tokens
}

/// A position in a source.
struct Reader<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Moves on by some bytes and returns them.
    fn take(&mut self, bytes: usize) -> &'a str {
        let taken = &self.rest()[..bytes];
        self.at += bytes;
        self.line += taken.matches('\n').count();
        taken
    }

    /// Moves on to the end of this text, or to the end of the source.
    fn take_past(&mut self, end: &str) {
        let bytes = self.rest().find(end).map_or(self.rest().len(), |at| at + end.len());
        self.take(bytes);
    }

    /// Takes the next token. Returns `None` for space and comments.
    fn token(&mut self, next: char) -> Option<String> {
        let rest = self.rest();
        if next.is_whitespace() {
            self.take(next.len_utf8());
            return None;
        }
        if rest.starts_with("//") {
            self.take_past("\n");
            return None;
        }
        if rest.starts_with("/*") {
            self.block_comment();
            return None;
        }
        if let Some(text) = self.text() {
            return Some(text);
        }
        if next.is_alphanumeric() || next == '_' {
            let is_end = |it: char| !it.is_alphanumeric() && it != '_';
            let bytes = rest.find(is_end).unwrap_or(rest.len());
            return Some(self.take(bytes).to_owned());
        }
        let pair = ["::", "->"].into_iter().find(|pair| rest.starts_with(pair));
        Some(self.take(pair.map_or(next.len_utf8(), str::len)).to_owned())
    }

    /// Takes a comment that may contain others.
    fn block_comment(&mut self) {
        let mut depth = 0;
        while !self.rest().is_empty() {
            match self.rest().get(..2) {
                Some("/*") => depth += 1,
                Some("*/") => depth -= 1,
                _ => {
                    let bytes = self.rest().chars().next().map_or(1, char::len_utf8);
                    self.take(bytes);
                    continue;
                }
            }
            self.take(2);
            if depth == 0 {
                return;
            }
        }
    }

    /// Takes a text, a character or a lifetime. A raw name such as `r#type` is none of them.
    fn text(&mut self) -> Option<String> {
        let rest = self.rest();
        let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
            rest.strip_prefix(prefix).is_some_and(|it| {
                let quoted = it.trim_start_matches('#').starts_with('"');
                it.starts_with('"') || (prefix.ends_with('r') && quoted) || it.starts_with('\'')
            })
        })?;
        let hashes = rest[prefix.len()..].chars().take_while(|it| *it == '#').count();
        let opening = rest[prefix.len() + hashes..].chars().next()?;
        if opening == '\'' {
            return Some(self.character(prefix.len()));
        }
        self.take(prefix.len() + hashes + 1);
        if prefix.ends_with('r') {
            self.take_past(&format!("\"{}", "#".repeat(hashes)));
        } else {
            self.take_past_unescaped('"');
        }
        Some(String::new())
    }

    /// Takes a character or a lifetime.
    fn character(&mut self, prefix_bytes: usize) -> String {
        self.take(prefix_bytes + 1);
        let mut next = self.rest().chars();
        match (next.next(), next.next()) {
            (Some('\\'), _) | (Some(_), Some('\'')) => {
                self.take_past_unescaped('\'');
                String::new()
            }
            _ => {
                let is_end = |it: char| !it.is_alphanumeric() && it != '_';
                let bytes = self.rest().find(is_end).unwrap_or(self.rest().len());
                format!("'{}", self.take(bytes))
            }
        }
    }

    /// Moves on past the end of a text or a character.
    fn take_past_unescaped(&mut self, end: char) {
        let mut escaped = false;
        let found = self.rest().find(|letter| {
            let is_end = letter == end && !escaped;
            escaped = letter == '\\' && !escaped;
            is_end
        });
        self.take(found.map_or(self.rest().len(), |at| at + 1));
    }
}

/// Removes each item, statement or field behind an attribute like `#[cfg(test)]`.
pub(super) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match attribute_end(tokens, at) {
            Some(end) if is_for_tests(&tokens[at..end]) => at = item_end(tokens, end),
            _ => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// Returns the index behind an attribute that begins here.
fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let texts = |at: usize| tokens.get(at).map(|it| it.text.as_str());
    (texts(at) == Some("#") && texts(at + 1) == Some("[")).then(|| group_end(tokens, at + 1))
}

/// Whether an attribute is `#[test]`, or a `cfg` that holds in tests only.
fn is_for_tests(attribute: &[Token]) -> bool {
    let texts: Vec<&str> = attribute.iter().map(|it| it.text.as_str()).collect();
    let has_test = (0..texts.len()).any(|at| {
        let before = [at.wrapping_sub(2), at.wrapping_sub(1)].map(|it| texts.get(it).copied());
        texts[at] == "test" && before != [Some("not"), Some("(")]
    });
    has_test && (texts.get(2) == Some(&"cfg") || texts.len() == 4)
}

/// Returns the index behind the item, statement or field that begins here, after its further
/// attributes.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while let Some(end) = attribute_end(tokens, at) {
        at = end;
    }
    let is_item = tokens.get(at).is_some_and(|it| ITEMS.contains(&it.text.as_str()));
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            ")" | "]" | "}" => return at,
            "{" => return group_end(tokens, at),
            "(" | "[" => at = group_end(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Returns the index behind the bracket that closes the bracket at this index.
pub(super) fn group_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        tokens(source).into_iter().map(|it| it.text).collect()
    }

    fn kept(source: &str) -> String {
        let kept = without_tests(&tokens(source));
        kept.into_iter().map(|it| it.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_texts_are_no_tokens() {
        assert_eq!(texts("// a\n/* b /* c */ d */ e // f"), ["e"]);
        assert_eq!(texts(r#"x("a \" b", b"c", r"\", 'd', '\'', '"');"#).join(""), "x(,,,,,);");
        assert_eq!(texts("r#\"a \" b\"# c"), ["", "c"]);
    }

    #[test]
    fn names_paths_and_lifetimes_are_tokens() {
        assert_eq!(
            texts("fn f<'a>(x: &'a T) -> crate::A"),
            [
                "fn", "f", "<", "'a", ">", "(", "x", ":", "&", "'a", "T", ")", "->", "crate", "::",
                "A"
            ]
        );
        assert_eq!(texts("b'x' 'static r#type"), ["", "'static", "r", "#", "type"]);
    }

    #[test]
    fn a_token_has_its_line() {
        let lines: Vec<usize> =
            tokens("a\n/* \n */ \"x\ny\"\nb").iter().map(|it| it.line).collect();
        assert_eq!(lines, [1, 3, 5]);
    }

    #[test]
    fn code_for_tests_is_left_out() {
        assert_eq!(kept("a; #[cfg(test)] mod tests { x } b;"), "a ; b ;");
        assert_eq!(kept("#[cfg(all(test, not(loom)))] #[allow(x)] mod tests; b;"), "b ;");
        assert_eq!(kept("S { a: A, #[cfg(test)] b: B, c: C }"), "S { a : A , c : C }");
        assert_eq!(kept("S { #[cfg(test)] b: B } c"), "S { } c");
        assert_eq!(kept("#[cfg(test)] pub fn f<A, B>(a: A, b: B) -> X { y } c"), "c");
        assert_eq!(kept("#[test] fn f() { y } c"), "c");
    }

    #[test]
    fn other_attributes_do_not_hide_code() {
        for source in ["#[cfg(not(test))] fn f ( )", "#[cfg(loom)] fn f ( )", "#[derive(A)] b"] {
            assert_eq!(kept(source).replace(' ', ""), source.replace(' ', ""));
        }
    }
}
