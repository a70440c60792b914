use std::collections::BTreeMap;

use r2r::ParameterValue as P;

use super::declare::File;
use super::*;

fn start(parameters: &[(&str, P)]) -> anyhow::Result<NodeConfig> {
    configure(&parameters.iter().map(|(n, v)| (n.to_string(), v.clone())).collect())
}

fn change(config: &NodeConfig, changes: &[(&str, P)]) -> Result<NodeConfig, String> {
    let changes: Vec<_> = changes.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
    set(config, &changes, Scope::AnyTime)
}

const FILES: [(File, &str); 2] =
    [(File::Basic, "config/forecloud.yaml"), (File::Advanced, "config/advanced.yaml")];

const BASIC_HEAD: &str = "\
# Parameters of the node that people change, with their defaults (config/advanced.yaml has the rest).
# Copy this file, change it, and start the node with it:
#   ros2 launch forecloud forecloud.launch.py params:=my.yaml
# Your file may hold parameters of both files; what it leaves out keeps its default. Those that are not
# read at startup only can also be set while the node runs:
#   ros2 param set /forecloud horizon 10
";

const ADVANCED_HEAD: &str = "\
# The other parameters of the node, with their defaults: few people need to change them. Copy the lines
# that you change into your copy of config/forecloud.yaml, or name a second file at the launch. If both
# set a parameter, the last file counts:
#   ros2 launch forecloud forecloud.launch.py params:=my.yaml,my_advanced.yaml
";

/// A file of `config/` as it must be.
fn text_of(file: File) -> String {
    let mut text = String::from(if file == File::Basic { BASIC_HEAD } else { ADVANCED_HEAD });
    text += "/**:\n  ros__parameters:\n";
    for declared in NodeConfig::declarations().into_iter().filter(|d| d.file == file) {
        let default = yaml(&declared);
        comment(&mut text, &declared.description());
        let unit = unit(declared.name);
        let mut facts = format!("Default: {default}{unit}.");
        if let Some(bounds) = declared.range.bounds() {
            facts += &format!(" Range: {bounds}{unit}.");
        }
        if declared.when == When::AtStart {
            facts += " Read at startup only.";
        }
        comment(&mut text, &facts);
        text += &format!("    {}: {default}\n", declared.name);
    }
    text
}

/// The unit that a parameter's name ends with.
fn unit(name: &str) -> &'static str {
    match name.rsplit_once('_') {
        Some((_, "secs")) => " s",
        Some((_, "m")) => " m",
        _ => "",
    }
}

/// A parameter's default as YAML has it.
fn yaml(declared: &Declaration) -> String {
    match NodeConfig::default().get(declared.name).unwrap() {
        P::DoubleArray(values) => format!("{values:?}"),
        P::String(value) if value.is_empty() => "\"\"".to_owned(),
        P::String(value) => value,
        P::StringArray(values) => format!("[{}]", values.join(", ")),
        P::Bool(value) => value.to_string(),
        P::Integer(value) => value.to_string(),
        P::Double(value) => format!("{value:?}"),
        other => panic!("{}: no way to write {other:?}", declared.name),
    }
}

fn comment(text: &mut String, words: &str) {
    let mut line = String::from("    #");
    for word in words.split(' ') {
        if line.len() + 1 + word.len() > 98 {
            *text += &std::mem::replace(&mut line, "    #".into());
            *text += "\n";
        }
        line += " ";
        line += word;
    }
    *text += &line;
    *text += "\n";
}

#[test]
fn the_two_files_hold_every_parameter_once_with_its_default_and_description() {
    let mut in_files = Vec::new();
    for (file, path) in FILES {
        let path = &format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        let expected = text_of(file);
        if std::env::var_os("FORECLOUD_WRITE_PARAMETER_FILE").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap();
        let differs =
            "write it anew: FORECLOUD_WRITE_PARAMETER_FILE=1 ctest --test-dir build/forecloud";
        assert!(found == expected, "{path} is not what the code says; {differs}\n{expected}");
        // It is what a YAML parser takes it for.
        let yaml: serde_json::Value = serde_norway::from_str(&found).unwrap();
        let parameters = yaml["/**"]["ros__parameters"].as_object().unwrap();
        in_files.extend(parameters.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    in_files.sort_by(|(a, _), (b, _)| a.cmp(b));
    let defaults = NodeConfig::default();
    let value = |name| match defaults.get(name).unwrap() {
        P::DoubleArray(values) => serde_json::Value::from(values),
        P::String(value) => value.into(),
        P::StringArray(values) => values.into(),
        P::Bool(value) => value.into(),
        P::Integer(value) => value.into(),
        P::Double(value) => value.into(),
        other => panic!("{other:?}"),
    };
    let declared = NodeConfig::declarations();
    let mut expected: Vec<_> =
        declared.iter().map(|d| (d.name.to_owned(), value(d.name))).collect();
    expected.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert_eq!(in_files, expected);
}

#[test]
fn the_first_file_stays_short() {
    let declared = NodeConfig::declarations();
    assert!(declared.iter().filter(|declared| declared.file == File::Basic).count() <= 20);
}

#[test]
fn every_parameter_is_described_and_its_default_is_allowed() {
    let defaults = NodeConfig::default();
    for declared in NodeConfig::declarations() {
        let words = declared.description();
        assert!(words.len() > 15 && words.ends_with(['.', ')']), "{}: {words}", declared.name);
        let mut config = defaults.clone();
        config.put(&declared, &defaults.get(declared.name).unwrap()).unwrap();
        assert_eq!(config, defaults, "{}", declared.name);
    }
    defaults.frames("/").unwrap();
    let model = ModelConfig::default();
    // What the tool does, in real time.
    let in_time = PredictorConfig { deadline_secs: model.step_secs, ..PredictorConfig::default() };
    assert_eq!(defaults.predictor(&model).unwrap(), in_time);
}

#[test]
fn given_parameters_replace_defaults_and_nothing_else() {
    let config = start(&[
        ("model", P::String("m".into())),
        ("cameras", P::StringArray(vec!["a".into(), "b".into()])),
        ("tolerance_secs", P::Integer(2)),
        ("workspace_max", P::DoubleArray(vec![1.0, 2.0, 0.1])),
        ("workspace_min", P::IntegerArray(vec![-1, -2, 0])),
        ("use_sim_time", P::Bool(true)),
        ("seed", P::NotSet),
        ("qos_overrides./tf.publisher.depth", P::Integer(2)),
    ]);
    let expected = NodeConfig {
        model: "m".into(),
        cameras: vec!["a".into(), "b".into()],
        tolerance_secs: 2.0,
        workspace_max: vec![1.0, 2.0, 0.1],
        workspace_min: vec![-1.0, -2.0, 0.0],
        use_sim_time: true,
        ..NodeConfig::default()
    };
    assert_eq!(config.unwrap(), expected);
}

#[test]
fn every_wrong_parameter_is_named_with_what_is_allowed() {
    let error = start(&[
        ("horizn", P::Integer(2)),
        ("horizon", P::Integer(0)),
        ("n_particles", P::Integer(-1)),
        ("seed", P::Double(1.5)),
        ("cameras", P::String("left".into())),
        ("workspace_min", P::DoubleArray(vec![f64::NAN])),
        ("tolerance_secs", P::Double(f64::NAN)),
        ("time_jump_secs", P::Double(0.0)),
        ("history_tolerance_secs", P::Integer(11)),
        ("use_sim_time", P::Integer(1)),
    ]);
    let text = error.unwrap_err().to_string();
    for part in [
        "`horizn` is unknown",
        "`horizon` must be a whole number from 1 to 100, but is the whole number 0",
        "`n_particles` must be a whole number from 0 to 1048576, but is the whole number -1",
        "`seed` must be a whole number, 0 or more, but is the number 1.5",
        "`cameras` must be a list of strings, but is the string 'left'",
        "`workspace_min` must be a list of finite numbers, but is a double array",
        "`tolerance_secs` must be a number from 0 to 10, but is the number NaN",
        "`time_jump_secs` must be a number from 0.001 to 3600, but is the number 0.0",
        "`history_tolerance_secs` must be a number from 0 to 10, but is the whole number 11",
        "`use_sim_time` must be true or false, but is the whole number 1",
        "Known parameters: model, cameras,",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn what_is_read_at_startup_only_is_refused_while_running() {
    let config = NodeConfig::default();
    for declared in NodeConfig::declarations().iter().filter(|d| d.when == When::AtStart) {
        let other = match config.get(declared.name).unwrap() {
            P::String(_) => P::String("other".into()),
            P::StringArray(_) => P::StringArray(vec!["other".into()]),
            P::DoubleArray(_) => P::DoubleArray(vec![0.5]),
            P::Integer(value) => P::Integer(value + 1),
            P::Double(value) => match &declared.range {
                Range::Doubles(range) if *range.end() != value => P::Double(*range.end()),
                Range::Doubles(range) => P::Double(*range.start()),
                _ => P::Double(value + 1.0),
            },
            P::Bool(value) => P::Bool(!value),
            value => panic!("{}: {value:?}", declared.name),
        };
        let told = change(&config, &[(declared.name, other)]).unwrap_err();
        let expected = format!(
            "`{}` is read when the node is configured: restart it, or clean it up first",
            declared.name
        );
        assert_eq!(told, expected);
        // The value that it has: `ros2 param load` of the whole file.
        let same = config.get(declared.name).unwrap();
        assert_eq!(change(&config, &[(declared.name, same)]).unwrap(), config);
    }
}

#[test]
fn all_changes_or_none() {
    let config = NodeConfig::default();
    let good = ("horizon", P::Integer(9));
    let changed = change(&config, &[good.clone(), ("seed", P::Integer(3))]).unwrap();
    assert_eq!(changed, NodeConfig { horizon: 9, seed: 3, ..config.clone() });
    for (bad, told) in [
        (("horizn", P::Integer(9)), "`horizn` is unknown; known parameters: model, cameras"),
        (("seed", P::NotSet), "`seed` can't be deleted"),
        (("seed", P::Integer(-3)), "`seed` must be a whole number, 0 or more"),
        (("threads", P::Integer(3)), "`threads` is read when the node is configured"),
    ] {
        let text = change(&config, &[good.clone(), bad]).unwrap_err();
        assert!(text.starts_with(told), "{told} does not begin: {text}");
    }
}

#[test]
fn a_name_or_value_of_any_length_gives_a_short_message() {
    let long = "é\n".repeat(100_000);
    let told = change(&NodeConfig::default(), &[(&long, P::Integer(1))]).unwrap_err();
    assert!(told.len() < 800, "{} bytes", told.len());
    let told = change(&NodeConfig::default(), &[("horizon", P::String(long))]).unwrap_err();
    assert!(told.ends_with("but is a string of 300000 bytes"), "{told}");
}

#[test]
fn each_corner_of_the_workspace_stands_alone() {
    let model = ModelConfig::default();
    let min = NodeConfig { workspace_min: vec![-0.1, -0.2, 0.0], ..NodeConfig::default() };
    let workspace = min.predictor(&model).unwrap().workspace.unwrap();
    assert_eq!((workspace.min, workspace.max), ([-0.1, -0.2, 0.0], model.workspace.max));
    for (corner, told) in [(vec![0.0; 2], "`workspace_min` must be three"), (vec![9.0; 3], "below")]
    {
        let config = NodeConfig { workspace_min: corner, ..NodeConfig::default() };
        let text = config.predictor(&model).unwrap_err().to_string();
        assert!(text.contains(told), "{told} is not in: {text}");
    }
}

#[test]
fn topics_lie_in_the_namespace_but_transforms_do_not() {
    let cameras = vec!["camera".to_owned(), "/shared/camera".to_owned()];
    let camera_inputs = vec!["points".to_owned(), "compressed".to_owned()];
    let config = NodeConfig { cameras, camera_inputs, ..NodeConfig::default() };
    let topics = config.frames("/left").unwrap().topics;
    assert_eq!(topics.cameras[0].color, "/left/camera/color/image_raw");
    assert_eq!(topics.cameras[0].points, "/left/camera/points");
    assert_eq!(topics.cameras[0].name, "camera");
    assert_eq!(topics.cameras[1].depth, "/shared/camera/depth/image_raw/compressedDepth");
    assert_eq!(topics.joint_states, "/left/joint_states");
    assert_eq!(topics.planned_joints, "/left/planned_joints");
    assert_eq!(topics.robot_description, "/left/robot_description");
    assert_eq!((&topics.tf[..], &topics.tf_static[..]), ("/tf", "/tf_static"));
    assert_eq!(NodeConfig::default().frames("/").unwrap().topics, Topics::default());
}

#[test]
fn cameras_that_are_none_or_twice_are_refused() {
    for cameras in [vec![], vec!["a".to_owned(), "a".to_owned()]] {
        let config = NodeConfig { cameras, ..NodeConfig::default() };
        let told = config.frames("/").unwrap_err().to_string();
        assert!(told.starts_with("cameras: must be 1 to 255"), "{told}");
    }
    let config = NodeConfig { camera_inputs: vec!["video".into()], ..NodeConfig::default() };
    let told = config.frames("/").unwrap_err().to_string();
    assert!(told.contains("images, compressed, points"), "{told}");
    assert!(configure(&BTreeMap::new()).is_ok());
}
