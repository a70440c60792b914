//! Forecloud for Python: what `python/forecloud/` gives its names, docstrings and shapes.
//!
//! Nothing of the method is here. Arrays are checked where they come in; long work leaves the interpreter
//! to others (`work`); what goes wrong becomes an exception (`errors`).

mod ahead;
mod arrays;
mod attention;
mod errors;
mod frame;
mod graph;
mod labels;
mod laplacian;
mod masks;
mod model;
mod plans;
mod predictor;
mod recording;
mod train;
mod work;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the tool as a command: until it ends, nothing else of the interpreter runs in this thread.
///
/// `arguments`: the first is its name. Returns the exit code.
#[pyfunction]
fn run_tool(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| forecloud_cli::run(arguments))
}

/// The compiled part of the package; see the package's modules instead.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Masks by name, and models that have them.
    forecloud_lab::register();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(run_tool, module)?)?;
    work::add_to(module)?;
    ahead::add_to(module)?;
    attention::add_to(module)?;
    frame::add_to(module)?;
    graph::add_to(module)?;
    labels::add_to(module)?;
    laplacian::add_to(module)?;
    masks::add_to(module)?;
    model::add_to(module)?;
    plans::add_to(module)?;
    predictor::add_to(module)?;
    recording::add_to(module)?;
    train::add_to(module)
}
