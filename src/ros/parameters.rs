//! ROS parameters into the [`Config`](crate::config::Config) that tool and node share.
//!
//! A parameter's name is the field's path with dots. Names and types are checked against the
//! default configuration, so that a typing error is refused by name and never ignored.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use r2r::ParameterValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parameters that ROS itself gives to any node. The node works in the time of the messages'
/// headers, so `use_sim_time` changes nothing.
const FOREIGN: &[&str] = &["use_sim_time", "start_type_description_service", "qos_overrides"];

/// The defaults of `C` with the given parameters put in.
///
/// # Errors
/// Every parameter that is unknown or of another type, each by name.
pub fn configure<C: Default + Serialize + DeserializeOwned>(
    parameters: &BTreeMap<String, ParameterValue>,
) -> anyhow::Result<C> {
    let mut config = serde_json::to_value(C::default()).context("default configuration")?;
    let known = names(&config, "");
    let mut problems = Vec::new();
    for (name, value) in parameters {
        let foreign = FOREIGN.contains(&name.split('.').next().unwrap_or_default());
        if foreign || *value == ParameterValue::NotSet {
            continue;
        }
        match field(&mut config, name) {
            None => problems.push(format!("`{name}` is unknown")),
            Some(slot) => match convert(value, slot) {
                Ok(value) => *slot = value,
                Err(wanted) => {
                    problems.push(format!("`{name}` must be {wanted}, but is {}", describe(value)))
                }
            },
        }
    }
    if !problems.is_empty() {
        bail!(
            "parameters: {}. Remedy: correct the parameter file. Known parameters: {}",
            problems.join("; "),
            known.join(", ")
        );
    }
    serde_json::from_value(config).context("parameters")
}

/// The field with the dotted path `name`, if it is one value and not a group of them.
fn field<'a>(config: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let slot = name.split('.').try_fold(config, |group, key| group.get_mut(key))?;
    (!slot.is_object()).then_some(slot)
}

/// Dotted paths of all values.
fn names(value: &Value, prefix: &str) -> Vec<String> {
    match value {
        Value::Object(group) => group
            .iter()
            .flat_map(|(key, value)| {
                let dot = if prefix.is_empty() { "" } else { "." };
                names(value, &format!("{prefix}{dot}{key}"))
            })
            .collect(),
        _ => vec![prefix.to_owned()],
    }
}

/// `parameter` as a value of the type of `default`, or what that type is.
fn convert(parameter: &ParameterValue, default: &Value) -> Result<Value, &'static str> {
    use ParameterValue as P;
    match (default, parameter) {
        (Value::Bool(_), P::Bool(value)) => Ok((*value).into()),
        (Value::Bool(_), _) => Err("true or false"),
        (Value::Number(number), P::Integer(value)) if number.is_u64() && *value < 0 => {
            Err("a whole number from 0")
        }
        // A whole number is a fine value for a field with decimals; the other way it is not.
        (Value::Number(_), P::Integer(value)) => Ok((*value).into()),
        (Value::Number(number), P::Double(value)) if number.is_f64() && value.is_finite() => {
            Ok((*value).into())
        }
        (Value::Number(number), _) if number.is_f64() => Err("a finite number"),
        (Value::Number(_), _) => Err("a whole number"),
        (Value::String(_), P::String(value)) => Ok(value.as_str().into()),
        (Value::String(_), _) => Err("a text"),
        (Value::Array(_), P::StringArray(values)) => Ok(values.clone().into()),
        (Value::Array(_), P::DoubleArray(values)) if values.iter().all(|v| v.is_finite()) => {
            Ok(values.clone().into())
        }
        (Value::Array(_), P::IntegerArray(values)) => Ok(values.clone().into()),
        (Value::Array(_), P::BoolArray(values)) => Ok(values.clone().into()),
        (Value::Array(_), _) => Err("a list"),
        // An optional field without a default: its own type decides on reading.
        (_, P::Bool(value)) => Ok((*value).into()),
        (_, P::Integer(value)) => Ok((*value).into()),
        (_, P::Double(value)) => Ok((*value).into()),
        (_, P::String(value)) => Ok(value.as_str().into()),
        (_, P::StringArray(values)) => Ok(values.clone().into()),
        (_, P::DoubleArray(values)) => Ok(values.clone().into()),
        (_, P::IntegerArray(values)) => Ok(values.clone().into()),
        (_, _) => Err("a value"),
    }
}

/// A value as its writer knows it: with its type.
fn describe(value: &ParameterValue) -> String {
    use ParameterValue as P;
    match value {
        P::Bool(value) => format!("the boolean {value}"),
        P::Integer(value) => format!("the whole number {value}"),
        P::Double(value) => format!("the number {value:?}"),
        P::String(value) => format!("the text '{}'", value.escape_debug()),
        other => format!("a {}", other.type_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        model: Option<String>,
        cameras: Vec<String>,
        horizon: u32,
        graph: Graph,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Graph {
        radius_m: f32,
        corner: [f32; 3],
    }

    impl Default for Config {
        fn default() -> Self {
            let graph = Graph { radius_m: 0.1, corner: [0.0; 3] };
            Self { model: None, cameras: vec!["camera".into()], horizon: 3, graph }
        }
    }

    fn set(parameters: &[(&str, ParameterValue)]) -> anyhow::Result<Config> {
        configure(&parameters.iter().map(|(n, v)| (n.to_string(), v.clone())).collect())
    }

    #[test]
    fn parameters_replace_defaults_and_nothing_else() {
        let config = set(&[
            ("model", ParameterValue::String("m".into())),
            ("cameras", ParameterValue::StringArray(vec!["a".into(), "b".into()])),
            ("graph.radius_m", ParameterValue::Integer(2)),
            ("graph.corner", ParameterValue::DoubleArray(vec![1.0, 2.0, 0.1])),
            ("use_sim_time", ParameterValue::Bool(true)),
            ("qos_overrides./tf.publisher.depth", ParameterValue::Integer(2)),
        ]);
        let graph = Graph { radius_m: 2.0, corner: [1.0, 2.0, 0.1] };
        let cameras = vec!["a".into(), "b".into()];
        let expected = Config { model: Some("m".into()), cameras, horizon: 3, graph };
        assert_eq!(config.unwrap(), expected);
    }

    #[test]
    fn every_wrong_parameter_is_named() {
        let error = set(&[
            ("horizn", ParameterValue::Integer(2)),
            ("graph", ParameterValue::Integer(2)),
            ("horizon", ParameterValue::Integer(-1)),
            ("cameras", ParameterValue::String("left".into())),
            ("graph.radius_m", ParameterValue::Double(f64::NAN)),
        ]);
        let text = error.unwrap_err().to_string();
        for part in [
            "`horizn` is unknown",
            "`graph` is unknown",
            "`horizon` must be a whole number from 0, but is the whole number -1",
            "`cameras` must be a list, but is the text 'left'",
            "`graph.radius_m` must be a finite number, but is the number NaN",
            "graph.corner",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn a_list_of_the_wrong_length_is_refused() {
        let error = set(&[("graph.corner", ParameterValue::DoubleArray(vec![1.0]))]);
        assert!(format!("{:#}", error.unwrap_err()).contains("parameters"));
    }
}
