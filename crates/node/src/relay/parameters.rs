//! Parameters of the plan relay: config/plan_relay.yaml. Read at the start only.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use r2r::ParameterValue;

use forecloud::robot::relay::Fingers;

/// Controllers at most.
const MAX_CONTROLLERS: usize = 32;
/// Parameters that ROS itself gives to any node.
const FOREIGN: &[&str] = &["start_type_description_service", "qos_overrides"];
/// Parameters of the relay, and those of each controller.
const KNOWN: &[&str] = &[
    "controllers",
    "prefix",
    "speed_scaling_topic",
    "full_speed",
    "controller_timeout_secs",
    "use_sim_time",
];
const OF_CONTROLLER: &[&str] = &["type", "action", "joints", "scales", "speed"];

/// Parameters of the relay.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The controllers; at least one.
    pub controllers: Vec<ControllerConfig>,
    /// Topic of the robot's speed scaling; empty for none.
    pub speed_scaling_topic: String,
    /// The value on it that means the planned speed.
    pub full_speed: f64,
    /// Longest silence of a controller.
    pub timeout: Duration,
    /// Whether ROS time comes from `/clock`.
    pub use_sim_time: bool,
}

/// One controller.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerConfig {
    /// Its action.
    pub action: String,
    /// The action that is offered in its place.
    pub offered: String,
    /// Of which kind it is.
    pub kind: Kind,
}

/// What a controller takes.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// control_msgs/FollowJointTrajectory.
    Trajectory,
    /// control_msgs/GripperCommand, which moves these joints.
    Gripper(Fingers),
}

/// The parameters that were given, those that are not being the defaults.
///
/// # Errors
/// The first one that is unknown, of another type or out of its range, and the remedy.
pub fn configure(given: &BTreeMap<String, ParameterValue>) -> Result<Config> {
    let given = Given(given);
    let controllers = given.texts("controllers", &["joint_trajectory_controller"])?;
    if controllers.is_empty() || controllers.len() > MAX_CONTROLLERS {
        bail!(
            "`controllers` has {} names: give 1 to {MAX_CONTROLLERS}, for example \
             [joint_trajectory_controller]",
            controllers.len()
        );
    }
    given.check_names(&controllers)?;
    let prefix = given.text("prefix", "forecloud")?;
    if prefix.trim_matches('/') != prefix || prefix.is_empty() {
        bail!("`prefix` is '{}': give a name without a slash at its ends", prefix.escape_debug());
    }
    let controller = |name: &String| given.controller(name, &prefix);
    Ok(Config {
        controllers: controllers.iter().map(controller).collect::<Result<_>>()?,
        speed_scaling_topic: given.text("speed_scaling_topic", "")?,
        full_speed: given.number("full_speed", 100.0, 1e-6..=1e6)?,
        timeout: Duration::from_secs_f64(given.number(
            "controller_timeout_secs",
            5.0,
            0.5..=3600.0,
        )?),
        use_sim_time: match given.0.get("use_sim_time") {
            None | Some(ParameterValue::NotSet) => false,
            Some(ParameterValue::Bool(value)) => *value,
            Some(_) => bail!("`use_sim_time` must be true or false"),
        },
    })
}

struct Given<'a>(&'a BTreeMap<String, ParameterValue>);

impl Given<'_> {
    fn controller(&self, name: &str, prefix: &str) -> Result<ControllerConfig> {
        let key = |of: &str| format!("{name}.{of}");
        let kind = self.text(&key("type"), "FollowJointTrajectory")?;
        let (kind, action) = match kind.as_str() {
            "FollowJointTrajectory" => (Kind::Trajectory, "follow_joint_trajectory"),
            "GripperCommand" => (Kind::Gripper(self.fingers(name)?), "gripper_cmd"),
            other => bail!(
                "`{}` is '{}': use FollowJointTrajectory or GripperCommand",
                key("type"),
                other.escape_debug()
            ),
        };
        let action = self.text(&key("action"), action)?;
        Ok(ControllerConfig {
            action: format!("{name}/{action}"),
            offered: format!("{name}/{prefix}/{action}"),
            kind,
        })
    }

    fn fingers(&self, name: &str) -> Result<Fingers> {
        let joints = self.texts(&format!("{name}.joints"), &[])?;
        if joints.is_empty() {
            bail!("`{name}.joints` is empty: name the joints that the gripper's command moves");
        }
        let key = format!("{name}.scales");
        let scales = match self.0.get(&key) {
            None | Some(ParameterValue::NotSet) => vec![1.0; joints.len()],
            Some(ParameterValue::DoubleArray(scales)) => scales.clone(),
            Some(ParameterValue::IntegerArray(scales)) => {
                scales.iter().map(|&scale| scale as f64).collect()
            }
            Some(_) => bail!("`{key}` must be a list of numbers"),
        };
        if scales.len() != joints.len() || !scales.iter().all(|scale| scale.is_finite()) {
            bail!("`{key}` must be {} finite numbers, one for each joint", joints.len());
        }
        let speed = self.number(&format!("{name}.speed"), 0.1, 1e-4..=100.0)?;
        Ok(Fingers { joints: joints.into_iter().zip(scales).collect(), speed })
    }

    /// All parameters must be known, and no controller named twice.
    fn check_names(&self, controllers: &[String]) -> Result<()> {
        if let Some((i, twice)) =
            controllers.iter().enumerate().find(|(i, name)| controllers[..*i].contains(name))
        {
            bail!("`controllers` has '{}' twice (entry {})", twice.escape_debug(), i + 1);
        }
        for name in self.0.keys() {
            let is_foreign = FOREIGN.contains(&name.split('.').next().unwrap_or_default());
            let is_of_controller = name.rsplit_once('.').is_some_and(|(controller, of)| {
                controllers.iter().any(|known| known == controller) && OF_CONTROLLER.contains(&of)
            });
            if !is_foreign && !is_of_controller && !KNOWN.contains(&name.as_str()) {
                bail!(
                    "`{}` is unknown. Known parameters: {}; for each controller: {}",
                    name.escape_debug(),
                    KNOWN.join(", "),
                    OF_CONTROLLER.join(", ")
                );
            }
        }
        Ok(())
    }

    fn text(&self, name: &str, default: &str) -> Result<String> {
        match self.0.get(name) {
            None | Some(ParameterValue::NotSet) => Ok(default.to_owned()),
            Some(ParameterValue::String(text)) => Ok(text.clone()),
            Some(_) => bail!("`{name}` must be a string"),
        }
    }

    fn texts(&self, name: &str, default: &[&str]) -> Result<Vec<String>> {
        match self.0.get(name) {
            None | Some(ParameterValue::NotSet) => {
                Ok(default.iter().map(|&text| text.to_owned()).collect())
            }
            Some(ParameterValue::StringArray(texts)) => Ok(texts.clone()),
            Some(_) => bail!("`{name}` must be a list of strings"),
        }
    }

    fn number(
        &self,
        name: &str,
        default: f64,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<f64> {
        let value = match self.0.get(name) {
            None | Some(ParameterValue::NotSet) => default,
            Some(ParameterValue::Double(value)) => *value,
            Some(ParameterValue::Integer(value)) => *value as f64,
            Some(_) => f64::NAN,
        };
        if !range.contains(&value) {
            bail!("`{name}` must be a number from {} to {}", range.start(), range.end());
        }
        Ok(value)
    }
}
