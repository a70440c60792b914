//! Setting parameters: at the start, and while the node runs.

use std::collections::BTreeMap;

use anyhow::bail;
use r2r::ParameterValue;

use super::{Declaration, NodeConfig, When};
use crate::text::quoted;

/// Parameters that ROS itself gives to any node, and that change nothing here.
const FOREIGN: &[&str] = &["start_type_description_service", "qos_overrides"];

/// The defaults with the given parameters put in.
///
/// # Errors
/// Every parameter that is unknown, of another type or out of its range, each by name.
pub fn configure(parameters: &BTreeMap<String, ParameterValue>) -> anyhow::Result<NodeConfig> {
    let mut config = NodeConfig::default();
    let mut problems = Vec::new();
    for (name, value) in parameters {
        let foreign = FOREIGN.contains(&name.split('.').next().unwrap_or_default());
        if !foreign && *value != ParameterValue::NotSet {
            problems.extend(put(&mut config, name, value).err());
        }
    }
    if !problems.is_empty() {
        bail!(
            "parameters: {}. Remedy: correct the parameter file. Known parameters: {}",
            problems.join("; "),
            known()
        );
    }
    Ok(config)
}

/// Which parameters may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All: nothing is configured by them yet.
    All,
    /// Those of [`When::AnyTime`].
    AnyTime,
}

/// `config` with all of `changes` put in, or with none of them.
///
/// # Errors
/// The first change that can't be made while the node runs, and why.
pub fn set(
    config: &NodeConfig,
    changes: &[(String, ParameterValue)],
    scope: Scope,
) -> Result<NodeConfig, String> {
    let mut changed = config.clone();
    for (name, value) in changes {
        if *value == ParameterValue::NotSet && config.get(name).is_some() {
            return Err(format!("`{name}` can't be deleted: set it to its default instead"));
        }
        put(&mut changed, name, value).map_err(|problem| {
            let is_unknown = config.get(name).is_none();
            if is_unknown { format!("{problem}; known parameters: {}", known()) } else { problem }
        })?;
    }
    let is_fixed =
        |declared: &Declaration| scope == Scope::AnyTime && declared.when == When::AtStart;
    let fixed = NodeConfig::declarations().into_iter().filter(is_fixed);
    match fixed.map(|d| d.name).find(|name| changed.get(name) != config.get(name)) {
        Some(name) => Err(format!(
            "`{name}` is read when the node is configured: restart it, or clean it up first"
        )),
        None => Ok(changed),
    }
}

fn put(config: &mut NodeConfig, name: &str, value: &ParameterValue) -> Result<(), String> {
    match NodeConfig::declarations().iter().find(|declared| declared.name == name) {
        Some(declared) => config.put(declared, value),
        None => Err(format!("`{}` is unknown", quoted(name))),
    }
}

fn known() -> String {
    NodeConfig::declarations().iter().map(|d| d.name).collect::<Vec<_>>().join(", ")
}
