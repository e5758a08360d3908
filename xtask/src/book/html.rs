//! The HTML of the book: plain copies of sources, and the check of all links.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns a page with the text of a source.
pub(super) fn source(file: &Path, text: &str) -> String {
    page(file, &format!("<pre>{}</pre>\n", escaped(text)))
}

/// Returns a page with the names of files and the paths in the book that they lead to.
pub(super) fn directory(directory: &Path, files: &[(String, PathBuf)]) -> String {
    let up = "../".repeat(directory.components().count());
    let mut list = String::from("<ul>\n");
    for (name, path) in files {
        let target = path.display().to_string();
        // Writing to a string does not fail.
        let _ =
            writeln!(list, "<li><a href=\"{up}{}\">{}</a></li>", escaped(&target), escaped(name));
    }
    list.push_str("</ul>\n");
    page(&directory.join("index.html"), &list)
}

/// Returns a page at a path in the book.
fn page(path: &Path, content: &str) -> String {
    let up = "../".repeat(path.components().count() - 1);
    let name = path.display().to_string();
    let name = escaped(name.trim_end_matches("/index.html"));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{name}</title></head>\n\
         <body>\n<p><a href=\"{up}index.html\">Thunderhead</a>: {name}</p>\n{content}</body>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns a line for each relative link in the book that leads to no file, or to no such anchor.
pub(super) fn wrong_links(book: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    add_files(book, Path::new(""), &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|it| it == "html")) {
        let text = fs::read_to_string(book.join(file)).with_context(|| format!("read {file:?}"))?;
        pages.insert(file.clone(), text);
    }
    // The page for addresses that do not exist may be served from anywhere.
    pages.remove(Path::new("404.html"));
    Ok(wrong(&pages, &files))
}

fn add_files(book: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(book.join(folder)).with_context(|| format!("read {folder:?}"))?;
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => add_files(book, &path, files)?,
            false => {
                files.insert(path);
            }
        }
    }
    Ok(())
}

fn wrong(pages: &BTreeMap<PathBuf, String>, files: &BTreeSet<PathBuf>) -> Vec<String> {
    let ids: BTreeMap<&Path, BTreeSet<String>> =
        pages.iter().map(|(file, text)| (file.as_path(), attributes(text, &["id"]))).collect();
    let mut wrong = Vec::new();
    for (file, text) in pages {
        for target in attributes(text, &["href", "src"]) {
            let is_address =
                ["//", "mailto:", "data:", "javascript:"].iter().any(|it| target.contains(it));
            if is_address {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match path.split('?').next() {
                None | Some("") => file.clone(),
                Some(path) => crate::pages::resolve(file.parent().unwrap_or(file), path),
            };
            let known = ids.get(path.as_path());
            let is_there = files.contains(&path)
                && (anchor.is_empty() || known.is_none_or(|ids| ids.contains(anchor)));
            if !is_there {
                wrong.push(format!("{}: {target} leads nowhere", file.display()));
            }
        }
    }
    wrong
}

/// Returns the values of some attributes of a page's tags.
fn attributes(html: &str, names: &[&str]) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    for part in html.split('<').skip(1) {
        // Text after the tag has no attributes.
        let tag = part.split('>').next().unwrap_or("");
        for name in names {
            for behind in tag.split(&format!(" {name}=\"")).skip(1) {
                let value = behind.split('"').next().unwrap_or("");
                values.insert(decoded(value));
            }
        }
    }
    values
}

/// Returns a value without the escapes of HTML and of addresses.
fn decoded(value: &str) -> String {
    let value = value.replace("&amp;", "&").replace("&#x27;", "'").replace("&quot;", "\"");
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let byte = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        match (*first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            (first, _) => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let text = |(file, text): &(&str, &str)| (PathBuf::from(file), (*text).to_owned());
        let pages: BTreeMap<PathBuf, String> = pages.iter().map(text).collect();
        let mut files: BTreeSet<PathBuf> = pages.keys().cloned().collect();
        files.insert(PathBuf::from("a/b.svg"));
        wrong(&pages, &files)
    }

    #[test]
    fn a_link_of_the_book_leads_to_a_file_and_an_anchor() {
        let index = "<h1 id=\"top\">x</h1><a class=\"c\" href=\"a/one.html#%C3%BC\">1</a>\
                     <a href=\"#top\">href=\"no.html\"</a><a href=\"https://x.example/y\"></a>";
        let one = "<i id=\"ü\"></i><img src=\"b.svg\"><a href=\"../index.html\"></a>";
        assert_eq!(found(&[("index.html", index), ("a/one.html", one)]), [""; 0]);
        for (link, target) in [
            ("<a href=\"two.html\">", "two.html"),
            ("<a href=\"one.html#other\">", "one.html#other"),
            ("<a href=\"#other\">", "#other"),
            ("<img alt=\"x\" src=\"c.svg\">", "c.svg"),
        ] {
            let expected = format!("a/one.html: {target} leads nowhere");
            assert_eq!(found(&[("a/one.html", link)]), [expected]);
        }
    }

    #[test]
    fn a_copy_of_a_source_leads_back() {
        let source = source(Path::new("a/b.rs"), "x < y && \"z\"");
        assert!(source.contains("<pre>x &lt; y &amp;&amp; &quot;z&quot;</pre>"), "{source}");
        assert!(source.contains("<a href=\"../index.html\">Thunderhead</a>: a/b.rs<"), "{source}");
        let list =
            directory(Path::new("a/c"), &[("d.rs".to_owned(), PathBuf::from("a/c/d.rs.html"))]);
        assert!(list.contains("<a href=\"../../a/c/d.rs.html\">d.rs</a>"), "{list}");
        assert!(list.contains("<a href=\"../../index.html\">Thunderhead</a>: a/c<"), "{list}");
    }
}
