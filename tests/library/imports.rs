//! Nothing flows back up: which room of the library imports which, read from the sources, against the
//! order of their floors. `cargo test --test library imports -- --nocapture` prints all imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rooms of `src/lib.rs` from the ground up: each imports only what stands before it. Between crates
/// the compiler holds the order.
const FLOORS: &[&str] = &["base", "message", "robot", "vision", "engine", "predict", "planner"];

/// The files that may name `cudarc`.
const CUDA: &[&str] = &["engine/backend/cuda.rs", "engine/backend/cuda/"];

/// A source file: its path in `src/`, and its code without tests, comments and texts.
struct Source {
    path: String,
    code: String,
}

#[test]
fn every_room_has_a_floor() {
    let root = sources();
    let root = root.iter().find(|source| source.path == "lib.rs").expect("src/lib.rs");
    let declared = words(&root.code).collect::<Vec<_>>();
    let declared = declared.windows(2).filter(|pair| pair[0] == "mod").map(|pair| pair[1]);
    let (declared, floors): (BTreeSet<_>, BTreeSet<_>) =
        (declared.collect(), FLOORS.iter().copied().collect());
    assert_eq!(declared, floors, "modules of src/lib.rs, and FLOORS");
}

#[test]
fn nothing_flows_back_up() {
    let mut imports: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for source in &sources() {
        let Some(&from) = FLOORS.iter().find(|floor| is_of(&source.path, floor)) else { continue };
        for to in tops(source).into_iter().filter(|to| to != from) {
            imports.entry(from).or_default().entry(to).or_default().push(source.path.clone());
        }
    }
    let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    let mut wrong = Vec::new();
    for from in FLOORS {
        let Some(of_module) = imports.get(from) else { continue };
        let names: Vec<&str> = of_module.keys().map(String::as_str).collect();
        println!("{from} → {}", names.join(", "));
        for (to, files) in of_module {
            if floor(to) >= floor(from) || floor(to).is_none() {
                wrong.push(format!("{from} imports {to} in {}", files.join(", ")));
            }
        }
    }
    assert!(imports.len() == 6 && imports["engine"].contains_key("vision"), "{imports:?}");
    assert!(wrong.is_empty(), "what stands above is not to be imported:\n{}", wrong.join("\n"));
}

#[test]
fn cuda_keeps_to_its_room() {
    let mut n_named = 0;
    for source in &sources() {
        let is_named = words(&source.code).any(|word| word == "cudarc");
        n_named += usize::from(is_named);
        let is_at_home = CUDA.iter().any(|room| source.path.starts_with(room));
        assert!(is_at_home || !is_named, "cudarc in src/{}", source.path);
    }
    assert!(n_named > 0, "cudarc is named nowhere: is it still used?");
}

#[test]
fn ros_keeps_to_the_node() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = root.join("crates").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let folders = crates.chain([root.to_path_buf(), root.join("python")]);
    let takes_ros = |folder: &PathBuf| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        // The workspace's own says which version; a package that takes it says no more than that.
        manifest.lines().any(|line| line.starts_with("r2r") && line.contains("workspace"))
    };
    assert_eq!(folders.filter(takes_ros).collect::<Vec<_>>(), [root.join("crates/node")]);
}

#[test]
fn code_is_told_from_comments_texts_and_tests() {
    let text = r##"
        //! crate::a
        use crate::{b::{Thing, other}, c}; /* crate::d /* crate::d */ */
        const QUOTE: char = '"'; const TEXT: &str = "crate::e \" crate::e"; // crate::e
        const RAW: &str = r#"crate::f " "#; fn life<'a>(x: &'a str) { crate::g::call(x) }
        #[cfg(test)]
        mod tests { use crate::h; fn f() { crate::h::g() } }
        #[cfg(test)] #[rustfmt::skip] pub mod check;
        use super::super::i::J; use super::k; pub(crate) use l;
    "##;
    let source = Source { path: "x/y.rs".into(), code: without_tests(&bare(text)).0 };
    assert_eq!(tops(&source).into_iter().collect::<Vec<_>>(), ["b", "c", "g", "i"]);
    assert_eq!(without_tests(&bare(text)).1, ["check"]);
}

/// Names of the top-level modules that a source names by `crate::` or by enough of `super::`.
fn tops(source: &Source) -> BTreeSet<String> {
    let module = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let to_root = "super::".repeat(module.split('/').count());
    let mut found = BTreeSet::new();
    for root in ["crate::", &to_root] {
        for (at, _) in source.code.match_indices(root) {
            let before = source.code[..at].chars().next_back().unwrap_or(' ');
            if is_word(before) || before == ':' {
                continue;
            }
            let rest = &source.code[at + root.len()..];
            match rest.strip_prefix('{') {
                None => found.extend(words(rest).next().map(str::to_owned)),
                Some(group) => found.extend(firsts(group)),
            }
        }
    }
    // What `lib.rs` passes on of the ground floor, a macro with it.
    let reexported = ["Error", "Result", "vectorized"];
    let to_module = |name: String| match reexported.contains(&name.as_str()) {
        true => "base".to_owned(),
        false => name,
    };
    found.into_iter().map(to_module).collect()
}

/// The first name of each item of a group, up to its closing brace.
fn firsts(group: &str) -> Vec<String> {
    let (mut depth, mut item, mut found) = (1, String::new(), Vec::new());
    for c in group.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 || (depth == 1 && c == ',') {
            found.extend(words(&item).next().map(str::to_owned));
            item.clear();
        } else {
            item.push(c);
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// Whether a path in `src/` is a file of the module.
fn is_of(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// All sources of the package but those that are compiled for tests alone.
fn sources() -> Vec<Source> {
    let root = Path::new(crate::ROOT).join("src");
    let (mut folders, mut sources, mut tests) = (vec![root.clone()], Vec::new(), Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                let (code, of_tests) = without_tests(&bare(&text));
                let inside = match path.file_stem().and_then(|stem| stem.to_str()) {
                    Some("lib" | "main" | "mod") => folder.clone(),
                    _ => path.with_extension(""),
                };
                tests.extend(of_tests.iter().map(|name| relative(&root, &inside.join(name))));
                sources.push(Source { path: relative(&root, &path), code });
            }
        }
    }
    sources.retain(|source| !tests.iter().any(|test| is_of(&source.path, test)));
    assert!(sources.len() > 150, "{} sources", sources.len());
    sources
}

fn relative(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).expect("a path in src").into();
    path.to_string_lossy().replace('\\', "/")
}

/// The code without comments, and without what is in quotes.
fn bare(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|tail| tail.trim_start_matches('#'));
        let raw = raw.filter(|tail| tail.starts_with('"') && !code.ends_with(is_word));
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(tail) = raw {
            let hashes = rest.len() - tail.len() - 1;
            let end = format!("\"{}", "#".repeat(hashes));
            let start = rest.len() - tail.len() + 1;
            rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
        } else if c == '"' {
            quoted(rest, '"')
        } else if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') && c == '\'' {
            quoted(rest, '\'')
        } else {
            code.push(c);
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    code
}

/// Length of a comment between stars, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let tail = &text[at..];
        if tail.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if tail.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of a text in quotes, with them.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Code without the items that are compiled for tests alone, and the modules among these that are
/// files of their own.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut files, mut rest) = (String::new(), Vec::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        let item = &rest[at..];
        let mut depth = 0;
        let end = item.char_indices().find(|&(_, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && (c == ';' || c == '}')
        });
        let end = end.map_or(item.len(), |(at, _)| at + 1);
        let names: Vec<&str> = words(&item[..end]).collect();
        if item[..end].ends_with(';') && names.contains(&"mod") {
            files.extend(names.last().map(|name| (*name).to_owned()));
        }
        rest = &item[end..];
    }
    kept.push_str(rest);
    (kept, files)
}
