//! The six services through which `ros2 param` and others read and set parameters, and the events
//! that tell of changes. r2r's own know neither ranges nor reasons.

use r2r::builtin_interfaces::msg::Time;
use r2r::rcl_interfaces::msg::{
    FloatingPointRange, IntegerRange, ListParametersResult, Parameter, ParameterDescriptor,
    ParameterEvent, ParameterValue as ValueMsg, SetParametersResult,
};
use r2r::rcl_interfaces::srv::{
    DescribeParameters, GetParameterTypes, GetParameters, ListParameters, SetParameters,
    SetParametersAtomically,
};
use r2r::{ParameterValue, Publisher, QosProfile};

use super::parameters::{Declaration, NodeConfig, Range, Scope, When, set};
use super::service::Service;

/// Parameters set by one request at most: many times what there is.
const MAX_CHANGES: usize = 1000;

/// The services, and the parameters that they are about.
pub struct ParameterServices {
    config: NodeConfig,
    node_name: String,
    list: Service<ListParameters::Service>,
    get: Service<GetParameters::Service>,
    types: Service<GetParameterTypes::Service>,
    describe: Service<DescribeParameters::Service>,
    set: Service<SetParameters::Service>,
    set_atomically: Service<SetParametersAtomically::Service>,
    events: Publisher<ParameterEvent>,
}

impl ParameterServices {
    /// Offers the services, and tells of all parameters.
    ///
    /// # Errors
    /// What rcl says, with the service or topic.
    pub fn new(node: &mut r2r::Node, config: NodeConfig, now: Time) -> anyhow::Result<Self> {
        let qos = QosProfile::parameter_events();
        let events = node
            .create_publisher("/parameter_events", qos)
            .map_err(|error| anyhow::anyhow!("publisher of /parameter_events: {error}"))?;
        let services = Self {
            config,
            node_name: node.fully_qualified_name()?,
            list: Service::new(node, "~/list_parameters")?,
            get: Service::new(node, "~/get_parameters")?,
            types: Service::new(node, "~/get_parameter_types")?,
            describe: Service::new(node, "~/describe_parameters")?,
            set: Service::new(node, "~/set_parameters")?,
            set_atomically: Service::new(node, "~/set_parameters_atomically")?,
            events,
        };
        let all = names().into_iter().map(|name| parameter(&services.config, name)).collect();
        services.publish(ParameterEvent { new_parameters: all, stamp: now, ..Default::default() });
        Ok(services)
    }

    /// The values as they are now.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Answers all requests that have come; those within `scope` may be set. `apply` puts changed values to use
    /// and tells the time, or says why it can't; they stay as they were then.
    pub fn serve(
        &mut self,
        scope: Scope,
        mut apply: impl FnMut(&NodeConfig) -> Result<Time, String>,
    ) {
        let config = &self.config;
        self.list.serve(|request| ListParameters::Response { result: list(request) });
        self.get.serve(|request| {
            let names = request.names.iter();
            let values = names.map(|name| message(config.get(name)));
            GetParameters::Response { values: values.collect() }
        });
        self.types.serve(|request| {
            let names = request.names.iter();
            let types = names.map(|name| message(config.get(name)).type_);
            GetParameterTypes::Response { types: types.collect() }
        });
        self.describe.serve(|request| {
            let names = request.names.iter();
            let descriptors = names.map(|name| descriptor(config, name));
            DescribeParameters::Response { descriptors: descriptors.collect() }
        });

        let (before, mut changed_at) = (self.config.clone(), None);
        let config = &mut self.config;
        let mut change = |parameters: &[Parameter], n_changes: usize| {
            let outcome = if n_changes > MAX_CHANGES {
                Err(format!("at most {MAX_CHANGES} parameters can be set at once"))
            } else {
                let changes: Vec<_> =
                    parameters.iter().map(|p| (p.name.clone(), value(&p.value))).collect();
                set(config, &changes, scope).and_then(|changed| {
                    if changed != *config {
                        changed_at = Some(apply(&changed)?);
                        *config = changed;
                    }
                    Ok(())
                })
            };
            let reason = outcome.err().unwrap_or_default();
            SetParametersResult { successful: reason.is_empty(), reason }
        };
        self.set.serve(|request| {
            let all = &request.parameters;
            let each = all.chunks(1).map(|one| change(one, all.len()));
            SetParameters::Response { results: each.collect() }
        });
        self.set_atomically.serve(|request| {
            let result = change(&request.parameters, request.parameters.len());
            SetParametersAtomically::Response { result }
        });
        let Some(stamp) = changed_at else { return };
        let changed = names().into_iter().filter(|name| before.get(name) != self.config.get(name));
        let changed_parameters = changed.map(|name| parameter(&self.config, name)).collect();
        self.publish(ParameterEvent { stamp, changed_parameters, ..Default::default() });
    }

    fn publish(&self, mut event: ParameterEvent) {
        event.node.clone_from(&self.node_name);
        if let Err(error) = self.events.publish(&event) {
            tracing::warn!("/parameter_events could not be published: {error}");
        }
    }
}

fn names() -> Vec<&'static str> {
    NodeConfig::declarations().iter().map(|declared| declared.name).collect()
}

fn parameter(config: &NodeConfig, name: &str) -> Parameter {
    Parameter { name: name.to_owned(), value: message(config.get(name)) }
}

/// No name has a dot, so prefixes are names, and depth (1 or more, or 0 for all) leaves none out.
fn list(request: &ListParameters::Request) -> ListParametersResult {
    let wanted = |name: &str| {
        request.prefixes.is_empty() || request.prefixes.iter().any(|prefix| prefix == name)
    };
    let names = names().into_iter().filter(|name| wanted(name)).map(str::to_owned).collect();
    ListParametersResult { names, prefixes: Vec::new() }
}

fn descriptor(config: &NodeConfig, name: &str) -> ParameterDescriptor {
    let declarations = NodeConfig::declarations();
    let Some(declared) = declarations.iter().find(|declared| declared.name == name) else {
        // As of any node: a parameter that is not there has no type.
        return ParameterDescriptor { name: name.to_owned(), ..Default::default() };
    };
    let (floating_point_range, integer_range) = ranges(declared);
    let at_start = declared.when == When::AtStart;
    ParameterDescriptor {
        name: name.to_owned(),
        type_: message(config.get(name)).type_,
        description: declared.description(),
        additional_constraints: if at_start { "read when the node is configured" } else { "" }
            .to_owned(),
        read_only: at_start,
        dynamic_typing: false,
        floating_point_range,
        integer_range,
    }
}

fn ranges(declared: &Declaration) -> (Vec<FloatingPointRange>, Vec<IntegerRange>) {
    match &declared.range {
        Range::None => (Vec::new(), Vec::new()),
        Range::Integers(range) => {
            let (from_value, to_value) = (*range.start(), *range.end());
            (Vec::new(), vec![IntegerRange { from_value, to_value, step: 1 }])
        }
        Range::Doubles(range) => {
            let (from_value, to_value) = (*range.start(), *range.end());
            (vec![FloatingPointRange { from_value, to_value, step: 0.0 }], Vec::new())
        }
    }
}

/// A value as messages hold it; `rcl_interfaces/msg/ParameterType` numbers the types.
fn message(value: Option<ParameterValue>) -> ValueMsg {
    use ParameterValue as P;
    let empty = ValueMsg::default();
    match value.unwrap_or(P::NotSet) {
        P::NotSet => empty,
        P::Bool(bool_value) => ValueMsg { type_: 1, bool_value, ..empty },
        P::Integer(integer_value) => ValueMsg { type_: 2, integer_value, ..empty },
        P::Double(double_value) => ValueMsg { type_: 3, double_value, ..empty },
        P::String(string_value) => ValueMsg { type_: 4, string_value, ..empty },
        P::ByteArray(byte_array_value) => ValueMsg { type_: 5, byte_array_value, ..empty },
        P::BoolArray(bool_array_value) => ValueMsg { type_: 6, bool_array_value, ..empty },
        P::IntegerArray(integer_array_value) => ValueMsg { type_: 7, integer_array_value, ..empty },
        P::DoubleArray(double_array_value) => ValueMsg { type_: 8, double_array_value, ..empty },
        P::StringArray(string_array_value) => ValueMsg { type_: 9, string_array_value, ..empty },
    }
}

/// The value that a message holds; one of an unknown type is none.
fn value(message: &ValueMsg) -> ParameterValue {
    use ParameterValue as P;
    match message.type_ {
        1 => P::Bool(message.bool_value),
        2 => P::Integer(message.integer_value),
        3 => P::Double(message.double_value),
        4 => P::String(message.string_value.clone()),
        5 => P::ByteArray(message.byte_array_value.clone()),
        6 => P::BoolArray(message.bool_array_value.clone()),
        7 => P::IntegerArray(message.integer_array_value.clone()),
        8 => P::DoubleArray(message.double_array_value.clone()),
        9 => P::StringArray(message.string_array_value.clone()),
        _ => P::NotSet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_through_a_message() {
        use ParameterValue as P;
        for kept in [
            P::NotSet,
            P::Bool(true),
            P::Integer(-2),
            P::Double(0.5),
            P::String("text".into()),
            P::ByteArray(vec![1]),
            P::BoolArray(vec![true]),
            P::IntegerArray(vec![-1]),
            P::DoubleArray(vec![1.5]),
            P::StringArray(vec!["a".into()]),
        ] {
            assert_eq!(value(&message(Some(kept.clone()))), kept);
        }
        assert_eq!(value(&ValueMsg { type_: 77, ..ValueMsg::default() }), P::NotSet);
    }

    #[test]
    fn descriptors_tell_range_and_whether_a_restart_is_needed() {
        let config = NodeConfig::default();
        let horizon = descriptor(&config, "horizon");
        assert_eq!((horizon.type_, horizon.read_only), (2, false));
        let range = &horizon.integer_range[0];
        assert_eq!((range.from_value, range.to_value, range.step), (1, 100, 1));
        assert_eq!(
            horizon.description,
            "Number of steps to predict. A step of the shipped model takes 0.1 s."
        );
        let tolerance = descriptor(&config, "tolerance_secs");
        assert_eq!(tolerance.floating_point_range[0].to_value, 10.0);
        let cameras = descriptor(&config, "cameras");
        assert_eq!((cameras.type_, cameras.read_only), (9, true));
        assert_eq!(descriptor(&config, "none").type_, 0);
    }

    #[test]
    fn a_prefix_lists_what_has_that_name() {
        let names = |prefixes: &[&str]| {
            let prefixes = prefixes.iter().map(|prefix| prefix.to_string()).collect();
            list(&ListParameters::Request { prefixes, depth: 1 }).names
        };
        assert_eq!(names(&[]).len(), NodeConfig::declarations().len());
        assert_eq!(names(&["seed", "se", "nothing"]), ["seed"]);
    }
}
