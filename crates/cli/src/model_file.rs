//! Where the shipped models lie.

use anyhow::{Context, Result, bail};
use forecloud::engine::model::Model;
use std::path::{Path, PathBuf};

/// Name of the shipped model below the repository's root, or the package's share folder.
pub const DEFAULT: &str = "models/small.safetensors";
/// The same of what draws pictures.
pub const VIDEO: &str = "models/video.safetensors";

/// Loads `path`, or the shipped model: of the current folder, the repository that the program was built in,
/// or the installed package.
pub fn load(path: Option<&Path>) -> Result<(Model, PathBuf)> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => shipped(DEFAULT)?,
    };
    let model = Model::load(&path).context("cannot use the model")?;
    Ok((model, path))
}

/// Where the shipped file of this name lies.
///
/// # Errors
/// Names the places that it does not lie at.
pub fn shipped(name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().unwrap_or_default();
    // PREFIX/bin/forecloud, and PREFIX/lib/forecloud/forecloud as ament installs it.
    let prefixes = executable.ancestors().skip(2).take(2);
    let shares = prefixes.map(|prefix| prefix.join("share/forecloud").join(name));
    let mut places: Vec<PathBuf> = vec![name.into()];
    // ROOT/target/release/forecloud, where Cargo builds it.
    places.extend(executable.ancestors().nth(3).map(|root| root.join(name)));
    // The Python package, in whose folder they lie, says where that is.
    places.extend(std::env::var_os("FORECLOUD_SHARE").map(|share| Path::new(&share).join(name)));
    places.extend(shares);
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    bail!(
        "no model at {}: name a file with --model, or make one with `forecloud train`",
        places.join(", ")
    )
}
