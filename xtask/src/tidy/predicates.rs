//! The check of predicates: a function that is named like a question changes nothing and returns
//! a `bool`.
//!
//! A reader takes `if store.is_idle(frame)` for a question. If the function changes the store, the
//! reader is misled. So a function with a name that begins with `is_`, `has_` or `are_` has no
//! `&mut` parameter, and returns `bool` or a `Result<bool, _>`.

use super::tokens::{Token, group_end, modules};
use anyhow::Result;
use std::path::Path;

/// Beginnings of names that are questions.
const QUESTIONS: [&str; 3] = ["is_", "has_", "are_"];

/// Checks the production code of some crates, given by the files of their roots. Returns the place
/// and the fault of each wrong predicate, by `file: function`.
pub(super) fn found(root: &Path, crate_roots: &[String]) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for crate_root in crate_roots {
        for module in modules(root, crate_root)? {
            for (line, name, fault) in faults(&module.tokens) {
                let file = &module.file;
                let finding = format!("{file}:{line}: {name} {fault}");
                found.push((format!("{file}: {name}"), finding));
            }
        }
    }
    Ok(found)
}

/// Returns the line, the name and the fault of each wrong predicate.
fn faults(tokens: &[Token]) -> Vec<(usize, &str, &'static str)> {
    let mut faults = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [keyword, Token { text: name, line }] = pair else { continue };
        let is_question = QUESTIONS.iter().any(|it| name.starts_with(it));
        if keyword.text != "fn" || !is_question {
            continue;
        }
        let (parameters, result) = signature(&tokens[at + 2..]);
        if changes(parameters) {
            let fault = "takes `&mut`: name a change by a verb, and a handler of an event on_*";
            faults.push((*line, name.as_str(), fault));
        } else if !answers(result) {
            let fault = "returns no bool: only a question is named is_*, has_* or are_*";
            faults.push((*line, name.as_str(), fault));
        }
    }
    faults
}

/// Returns the parameters and the type of the result, given all tokens behind the name.
fn signature(tokens: &[Token]) -> (&[Token], &[Token]) {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|it| it.text == text);
    let generics = if is(0, "<") { generics_end(tokens) } else { 0 };
    let open = (generics..tokens.len()).find(|at| is(*at, "(")).unwrap_or(tokens.len());
    let close = group_end(tokens, open);
    let result = if is(close, "->") { close + 1 } else { close };
    let is_end = |it: &Token| ["{", ";", "where"].contains(&it.text.as_str());
    let end = tokens[result..].iter().position(is_end).map_or(tokens.len(), |it| result + it);
    (&tokens[open..close], &tokens[result..end])
}

/// Returns the index behind the generic parameters, which come first.
fn generics_end(tokens: &[Token]) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Whether a parameter is a `&mut`.
fn changes(parameters: &[Token]) -> bool {
    let texts: Vec<&str> = parameters.iter().map(|it| it.text.as_str()).collect();
    let is_mut = |at: usize| texts.get(at) == Some(&"mut");
    let has_lifetime = |at: usize| texts.get(at).is_some_and(|it| it.starts_with('\''));
    (0..texts.len()).any(|at| {
        let behind = if has_lifetime(at + 1) { at + 2 } else { at + 1 };
        texts[at] == "&" && is_mut(behind)
    })
}

/// Whether a result is `bool` or a `Result` of it.
fn answers(result: &[Token]) -> bool {
    let texts: Vec<&str> = result.iter().map(|it| it.text.as_str()).collect();
    let of_result = texts.windows(3).any(|it| it[0] == "Result" && it[1] == "<" && it[2] == "bool");
    texts == ["bool"] || of_result
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn found(source: &str) -> Vec<(usize, String)> {
        let tokens = tokens(source);
        let faults = faults(&tokens).into_iter();
        faults.map(|(line, name, _)| (line, name.to_owned())).collect()
    }

    #[test]
    fn a_predicate_changes_nothing_and_returns_a_bool() {
        for good in [
            "fn is_idle(&self) -> bool {}",
            "fn is_idle(self) -> bool {}",
            "fn has_room<T: Fn(&T) -> u8>(it: &T, mut count: u32) -> bool where T: A {}",
            "fn is_at(file: &File) -> io::Result<bool> {}",
            "async fn is_held(&self) -> Result<bool, Failure> {}",
            "fn are_equal(&self) -> bool;",
            "fn isolate(&mut self) {}",
            "fn on_idle(&mut self) {}",
        ] {
            assert_eq!(found(good), [], "{good}");
        }
        for bad in [
            "\nfn is_it(&mut self) -> bool {}",
            "\nfn is_it(&'a mut self) -> bool {}",
            "\nfn is_it(\n  store: &mut Store,\n) -> bool {}",
            "\nfn is_it(&self) {}",
            "\nfn is_it(&self) -> io::Result<()> {}",
            "\nfn is_it(&self) -> Option<bool>;",
        ] {
            assert_eq!(found(bad), [(2, "is_it".to_owned())], "{bad}");
        }
    }
}
