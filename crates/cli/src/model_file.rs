//! Where the shipped models lie.

use anyhow::{Context, Result, bail};
use forecloud::engine::model::Model;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the shipped model below the repository's root, or the package's share folder.
pub const DEFAULT: &str = "models/small.safetensors";
/// The same of what draws pictures.
pub const VIDEO: &str = "models/video.safetensors";

/// Loads `path`, or the shipped model.
pub fn load(path: Option<&Path>) -> Result<(Model, PathBuf)> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => shipped(DEFAULT)?,
    };
    let model = Model::load(&path).context("cannot use the model")?;
    Ok((model, path))
}

/// Where the shipped file of this name lies: in the current folder, beside the program (as ament and pip
/// install it), or in the repository that the program was built in.
///
/// # Errors
/// Lists where it was looked for.
pub fn shipped(name: &str) -> Result<PathBuf> {
    let places = places(name, std::env::var_os("FORECLOUD_SHARE"), executable().as_deref());
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    bail!(
        "no model at {}: name a file with --model, start the program from where it was built or \
         installed, or train a model with `forecloud train`",
        places.join(", ")
    )
}

/// The program's file, links to it followed.
fn executable() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    Some(path.canonicalize().unwrap_or(path))
}

/// Where the file may lie, in the order of looking.
fn places(name: &str, share: Option<OsString>, executable: Option<&Path>) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = vec![name.into()];
    // The Python package, in whose folder they lie, says where that is.
    places.extend(share.map(|share| Path::new(&share).join(name)));
    let above = |n: usize| executable.and_then(|path| path.ancestors().nth(n));
    // PREFIX/bin/forecloud, and PREFIX/lib/forecloud/forecloud as ament installs it.
    let prefixes = [2, 3].into_iter().filter_map(above);
    places.extend(prefixes.map(|prefix| prefix.join("share/forecloud").join(name)));
    // target/release/forecloud, and target/TRIPLE/release/forecloud of other targets.
    let roots = [3, 4].into_iter().filter_map(above);
    places.extend(roots.map(|root| root.join(name)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shipped_file_is_looked_for_around_the_program() {
        let program = Path::new("/repo/target/release/forecloud");
        let places = places("models/a", Some("/share".into()), Some(program));
        for expected in [
            "models/a",
            "/share/models/a",
            "/repo/target/share/forecloud/models/a",
            "/repo/share/forecloud/models/a",
            "/repo/models/a",
            "/models/a",
        ] {
            assert!(places.contains(&expected.into()), "{expected}: {places:?}");
        }
        assert_eq!(places[0], Path::new("models/a"), "the current folder comes first");
    }
}
