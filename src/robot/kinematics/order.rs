//! From the joint order of a message to the robot's.

use super::Robot;
use crate::base::error::{Error, Result};
use std::collections::HashMap;

/// Where each joint of a robot is found in a joint state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JointOrder {
    sources: Vec<usize>,
    n_names: usize,
    /// Joints of the joint state that the robot lacks or does not need, e.g. mimicking ones.
    pub ignored: Vec<String>,
}

impl Robot {
    /// Finds the robot's joints among `names` of a joint state; of a name twice, the first counts.
    ///
    /// # Errors
    /// [`Error::MissingJoints`] if the robot has joints, neither fixed nor mimicking, that are
    /// not there.
    pub fn order(&self, names: &[String]) -> Result<JointOrder> {
        let mut found: HashMap<&str, usize> = HashMap::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            found.entry(name).or_insert(i);
        }
        let own = self.joint_names();
        let missing = own.iter().filter(|name| !found.contains_key(name.as_str()));
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(Error::MissingJoints { names: missing });
        }
        let sources: Vec<usize> = own.iter().map(|name| found[name.as_str()]).collect();
        let mut used = vec![false; names.len()];
        sources.iter().for_each(|&i| used[i] = true);
        let ignored = names.iter().zip(&used).filter(|(_, used)| !**used);
        let ignored = ignored.map(|(name, _)| name.clone()).collect();
        Ok(JointOrder { sources, n_names: names.len(), ignored })
    }
}

impl JointOrder {
    /// Replaces `out` by `values` (one per name of the joint state) in the robot's order.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of values.
    pub fn apply(&self, values: &[f64], out: &mut Vec<f64>) -> Result<()> {
        if values.len() != self.n_names {
            let (expected, got) = (self.n_names, values.len());
            return Err(Error::Shape { what: "values of a joint state", expected, got });
        }
        out.clear();
        out.extend(self.sources.iter().map(|&i| values[i]));
        Ok(())
    }
}
