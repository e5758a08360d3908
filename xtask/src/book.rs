//! `cargo xtask book`: one book from all pages of the tree, built by mdBook into `target/book`.
//!
//! The pages are written for the tree: their links lead to other pages and to sources, relative to
//! the page. mdBook wants all its pages in one directory. So the pages are copied, with their
//! paths, into `target/book-source`, and links between them stay as they are. A link to a source
//! leads to a plain copy of that source in the book. `docs/SUMMARY.md` gives the order of the
//! pages; `tidy` checks that each page is in it.
//!
//! At the end the links of the built book are checked, with their anchors.

mod html;

use crate::pages::{self, Link};
use crate::steps::{self, workspace};
use crate::tidy;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The page with the order of all pages.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The configuration of mdBook.
const CONFIGURATION: &str = "docs/book.toml";

/// The directory of the copied pages, and the directory of the book.
const SOURCE: &str = "target/book-source";
const BOOK: &str = "target/book";

/// Endings of pictures, which are copied beside the pages.
const PICTURES: [&str; 2] = ["svg", "png"];

/// Builds the book and checks its links.
pub(crate) fn book() -> Result<()> {
    let root = workspace();
    let tree = Tree::new(&root, tidy::tracked(&root)?);
    for directory in [SOURCE, BOOK] {
        let _ = fs::remove_dir_all(root.join(directory));
    }
    let mut sources = tree.copy_pages()?;
    let book = root.join(BOOK);
    steps::mdbook(&root.join(SOURCE), &book)?;
    tree.write_sources(&mut sources)?;
    let wrong = html::wrong_links(&book)?;
    for finding in &wrong {
        println!("{finding}");
    }
    if !wrong.is_empty() {
        bail!("{} links of the book lead nowhere", wrong.len());
    }
    println!("{} pages are in {BOOK}/index.html", tree.pages.len());
    Ok(())
}

/// Opens the book in a browser.
pub(crate) fn open() -> Result<()> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    steps::run(opener, &[&format!("{BOOK}/index.html")])
}

/// The findings for `tidy`: pages that are not in the book.
pub(crate) fn findings(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let summary =
        fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("read {SUMMARY}"))?;
    Ok(missing(&summary, files))
}

fn missing(summary: &str, files: &[PathBuf]) -> Vec<String> {
    let links = pages::links(summary);
    let listed: BTreeSet<PathBuf> = links.iter().filter_map(in_tree(Path::new(SUMMARY))).collect();
    let pages = files.iter().filter(|file| is_page(file) && !listed.contains(*file));
    pages.map(|file| format!("{}:1: list this page in {SUMMARY}", file.display())).collect()
}

/// Whether a file is a page of the book.
fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|it| it == "md") && file != Path::new(SUMMARY)
}

/// Returns the path in the tree that a relative link of a page leads to. `None` for an address and
/// for an anchor of the page itself.
fn in_tree(page: &Path) -> impl Fn(&Link<'_>) -> Option<PathBuf> {
    let folder = page.parent().unwrap_or(Path::new("")).to_path_buf();
    move |link| {
        let path = link.path().filter(|path| !path.is_empty())?;
        Some(pages::resolve(&folder, path))
    }
}

/// The tree and its pages.
struct Tree {
    root: PathBuf,
    files: Vec<PathBuf>,
    pages: BTreeSet<PathBuf>,
}

impl Tree {
    fn new(root: &Path, files: Vec<PathBuf>) -> Tree {
        let pages = files.iter().filter(|file| is_page(file)).cloned().collect();
        Tree { root: root.to_path_buf(), files, pages }
    }

    /// Copies all pages and pictures. Returns the sources that the pages link to.
    fn copy_pages(&self) -> Result<BTreeSet<PathBuf>> {
        let source = self.root.join(SOURCE);
        let mut sources = BTreeSet::new();
        for page in &self.pages {
            let text = self.read(page)?;
            let of_page = self.sources(page, &text);
            write(&source.join("src").join(page), &self.page(page, &text))?;
            for shown in included(page, &text) {
                write(&source.join("src").join(&shown), &self.read(&shown)?)?;
            }
            sources.extend(of_page);
        }
        for included in self.pages.iter().map(|page| self.included(page)) {
            for file in included? {
                write(&source.join("src").join(&file), &self.read(&file)?)?;
            }
        }
        let is_picture = |file: &&PathBuf| is_picture(file);
        for picture in self.files.iter().filter(is_picture) {
            write(&source.join("src").join(picture), &self.read(picture)?)?;
        }
        let summary = self.read(Path::new(SUMMARY))?;
        let from_root = |link: &Link<'_>| {
            in_tree(Path::new(SUMMARY))(link).map(|path| path.display().to_string())
        };
        write(&source.join("src/SUMMARY.md"), &pages::with_targets(&summary, from_root))?;
        write(&source.join("book.toml"), &self.read(Path::new(CONFIGURATION))?)?;
        Ok(sources)
    }

    fn read(&self, file: &Path) -> Result<String> {
        fs::read_to_string(self.root.join(file)).with_context(|| format!("read {}", file.display()))
    }

    /// Whether a path is a source: a file or a directory that is neither a page nor a picture.
    fn is_source(&self, path: &Path) -> bool {
        let is_shown = self.pages.contains(path) || is_picture(path) || path == Path::new(SUMMARY);
        !is_shown && self.root.join(path).exists()
    }

    /// Returns the sources that a page links to.
    fn sources(&self, page: &Path, text: &str) -> Vec<PathBuf> {
        let links = pages::links(text);
        let paths = links.iter().filter_map(in_tree(page));
        paths.filter(|path| self.is_source(path)).collect()
    }

    /// Returns the sources that mdBook puts into a page.
    fn included(&self, page: &Path) -> Result<Vec<PathBuf>> {
        let text = self.read(page)?;
        let folder = page.parent().unwrap_or(Path::new(""));
        let targets = text.split("{{#include ").skip(1).filter_map(|rest| rest.split_once("}}"));
        Ok(targets.map(|(path, _)| pages::resolve(folder, path.trim())).collect())
    }

    /// Returns a page in which links to sources lead to their copies. mdBook renames each
    /// `README.md`. A link to the order of the pages leads to the first page, because each page of
    /// the book shows the order at its side.
    fn page(&self, page: &Path, text: &str) -> String {
        let path_of = in_tree(page);
        pages::with_targets(text, |link| {
            let path = path_of(link)?;
            if path == Path::new(SUMMARY) {
                return Some(format!("{}index.html", "../".repeat(page.components().count() - 1)));
            }
            if self.pages.contains(&path) && is_readme(&path) {
                return Some(link.target.replacen("README.md", "index.html", 1));
            }
            let source = Some(path).filter(|path| self.is_source(path))?;
            let target = link.target.trim_end_matches('/');
            let is_directory = self.root.join(source).is_dir();
            Some(format!("{target}{}", if is_directory { "/index.html" } else { ".html" }))
        })
    }

    /// Writes a copy of each source into the book: of a file its text, of a directory the list of
    /// its files.
    fn write_sources(&self, sources: &mut BTreeSet<PathBuf>) -> Result<()> {
        let book = self.root.join(BOOK);
        let directories = sources.iter().filter(|path| self.root.join(path).is_dir());
        for directory in directories.cloned().collect::<Vec<_>>() {
            let files = self.files.iter().filter(|file| file.starts_with(&directory));
            let mut list = Vec::new();
            for file in files {
                if self.is_source(file) {
                    sources.insert(file.clone());
                }
                let name = file.strip_prefix(&directory)?.display().to_string();
                list.push((name, self.address(file)));
            }
            let path = directory.join("index.html");
            write(&book.join(&path), &html::directory(&directory, &list))?;
        }
        for file in sources.iter().filter(|path| self.root.join(path).is_file()) {
            let path = format!("{}.html", file.display());
            write(&book.join(path), &html::source(file, &self.read(file)?))?;
        }
        Ok(())
    }

    /// Returns the path in the book of a page, a picture or a source.
    fn address(&self, file: &Path) -> PathBuf {
        if file == Path::new(SUMMARY) {
            PathBuf::from("index.html")
        } else if self.pages.contains(file) {
            if is_readme(file) {
                file.with_file_name("index.html")
            } else {
                file.with_extension("html")
            }
        } else if is_picture(file) {
            file.to_path_buf()
        } else {
            PathBuf::from(format!("{}.html", file.display()))
        }
    }
}

/// Returns the paths in the tree of the files that a page shows, such as examples. mdBook reads
/// them while it builds the page.
fn included(page: &Path, text: &str) -> Vec<PathBuf> {
    let folder = page.parent().unwrap_or(Path::new(""));
    let paths = text.lines().filter_map(|line| {
        // A part of a file follows a colon.
        line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?.split(':').next()
    });
    paths.map(|path| pages::resolve(folder, path.trim())).collect()
}

fn is_readme(file: &Path) -> bool {
    file.file_name().is_some_and(|it| it == "README.md")
}

fn is_picture(file: &Path) -> bool {
    file.extension().is_some_and(|it| PICTURES.iter().any(|ending| it == *ending))
}

/// Writes a file and makes its directories.
fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_in_the_summary_is_found() {
        let files = ["README.md", "docs/SUMMARY.md", "docs/a.md", "docs/b/c.md", "docs/d.svg"];
        let files = files.map(PathBuf::from);
        let all = "[One](../README.md)\n- [A](a.md)\n  - [C](b/c.md)\n";
        assert_eq!(missing(all, &files), [""; 0]);
        let expected = ["docs/b/c.md:1: list this page in docs/SUMMARY.md"];
        assert_eq!(missing("[One](../README.md)\n- [A](a.md)\n", &files), expected);
    }

    #[test]
    fn files_that_a_page_shows_are_found() {
        let text = "{{#include ../../examples/a.py}}\nsee {{#include x}}\n{{#include b.rs:2:7}}\n";
        let expected = ["examples/a.py", "docs/clients/b.rs"].map(PathBuf::from);
        assert_eq!(included(Path::new("docs/clients/python.md"), text), expected);
    }

    #[test]
    fn links_to_sources_lead_to_their_copies() {
        let root = workspace();
        let tree = Tree::new(&root, tidy::tracked(&root).unwrap());
        let page = Path::new("docs/testing.md");
        let text = "[a](../xtask/src/book.rs) [b](../crates/) [c](cli.md#d) [d](x.rs) [e](#f)\n";
        let expected = "[a](../xtask/src/book.rs.html) [b](../crates/index.html) [c](cli.md#d) [d](x.rs) [e](#f)\n";
        assert_eq!(tree.page(page, text), expected);
        assert_eq!(tree.page(page, "[all](SUMMARY.md)"), "[all](../index.html)");
        assert_eq!(tree.page(page, "[a](../README.md#b)"), "[a](../index.html#b)");
        assert_eq!(tree.sources(page, text), ["xtask/src/book.rs", "crates"].map(PathBuf::from));
        assert_eq!(
            tree.address(Path::new("bindings/ycsb/README.md")),
            Path::new("bindings/ycsb/index.html")
        );
        assert_eq!(tree.address(page), Path::new("docs/testing.html"));
        assert_eq!(tree.address(Path::new("LICENSE")), Path::new("LICENSE.html"));
    }
}
