//! The ROS arguments that rcl keeps to itself: remaps, and what the log may say.
//!
//! rcl applies the remaps and checks all arguments; they are read here once more because r2r passes
//! on neither the names that topics got nor the levels of the log.

/// The process's ROS arguments, as far as they are needed here.
#[derive(Debug, Default, PartialEq)]
pub struct Arguments {
    remaps: Vec<Remap>,
    /// Levels by logger; without a name, of all.
    levels: Vec<(Option<String>, String)>,
    /// `--disable-rosout-logs`.
    pub without_rosout: bool,
}

#[derive(Debug, PartialEq)]
struct Remap {
    /// The only node that it is meant for.
    node: Option<String>,
    from: String,
    to: String,
}

impl Arguments {
    /// Reads them from the process's arguments; what rcl would refuse is left out.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Self {
        let mut parsed = Self::default();
        let mut arguments = arguments.into_iter();
        let mut ours = false;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--ros-args" => ours = true,
                "--" => ours = false,
                _ if !ours => {}
                "-r" | "--remap" => {
                    parsed.remaps.extend(arguments.next().as_deref().and_then(Remap::parse));
                }
                "--log-level" => parsed.levels.extend(arguments.next().as_deref().map(level)),
                "-p" | "--param" | "--params-file" | "-e" | "--enclave" | "--log-config-file" => {
                    arguments.next();
                }
                "--disable-rosout-logs" => parsed.without_rosout = true,
                "--enable-rosout-logs" => parsed.without_rosout = false,
                _ => {}
            }
        }
        parsed
    }

    /// The full name that `topic` has for the node `name` in `namespace`.
    pub fn topic(&self, topic: &str, name: &str, namespace: &str) -> String {
        let expand = |topic: &str| match (topic.strip_prefix("~/"), topic.starts_with('/')) {
            (Some(private), _) => join(&join(namespace, name), private),
            (None, true) => topic.to_owned(),
            (None, false) => join(namespace, topic),
        };
        let full = expand(topic);
        let of_node = |rule: &&Remap| rule.node.as_deref().is_none_or(|node| node == name);
        let mut rules = self.remaps.iter().filter(of_node);
        rules.find(|rule| expand(&rule.from) == full).map_or(full, |rule| expand(&rule.to))
    }

    /// What `--log-level` asks for: the level of the node's own log, and those of others by name.
    ///
    /// `name`: the node's before remaps.
    pub fn levels(&self, name: &str) -> (Option<&str>, Vec<(&str, &str)>) {
        let logger = self.logger(name);
        let (mut own, mut others) = (None, Vec::new());
        for (of, level) in &self.levels {
            match of.as_deref() {
                None => own = Some(level.as_str()),
                // A logger's level is also that of the loggers below it.
                Some(of) if logger == of || logger.starts_with(&format!("{of}.")) => {
                    own = Some(level.as_str());
                }
                Some(of) => others.push((of, level.as_str())),
            }
        }
        (own, others)
    }

    /// Name of the node's logger: its full name with dots.
    fn logger(&self, name: &str) -> String {
        let of_node = |rule: &&Remap| rule.node.as_deref().is_none_or(|node| node == name);
        let rule = |keys: &[&str]| {
            let mut rules = self.remaps.iter().filter(of_node);
            rules.find(|rule| keys.contains(&rule.from.as_str())).map(|rule| rule.to.as_str())
        };
        let namespace = rule(&["__ns"]).unwrap_or("/");
        let full = join(namespace, rule(&["__node", "__name"]).unwrap_or(name));
        full.trim_start_matches('/').replace('/', ".")
    }
}

impl Remap {
    /// `[node:]from:=to`; topics may be written as `rostopic://from`. Those of services are none.
    fn parse(rule: &str) -> Option<Self> {
        let (from, to) = rule.split_once(":=")?;
        let (node, from) = match from.split_once(':') {
            Some((node, rest)) if !rest.starts_with("//") => (Some(node.to_owned()), rest),
            _ => (None, from),
        };
        let from = from.strip_prefix("rostopic://").unwrap_or(from);
        (!from.starts_with("rosservice://")).then(|| Self {
            node,
            from: from.to_owned(),
            to: to.strip_prefix("rostopic://").unwrap_or(to).to_owned(),
        })
    }
}

/// `level` or `logger:=level`.
fn level(argument: &str) -> (Option<String>, String) {
    match argument.split_once(":=") {
        Some((logger, level)) => (Some(logger.to_owned()), level.to_lowercase()),
        None => (None, argument.to_lowercase()),
    }
}

fn join(namespace: &str, name: &str) -> String {
    format!("{}/{name}", namespace.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Arguments {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn topics_are_named_as_rcl_names_them() {
        let arguments = parse(
            "node -r /x:=/ignored --ros-args -r __ns:=/robot -r __node:=seer -p a:=-r \
             -r /left/image:=/rgb -r joint_states:=joints -r ~/prediction:=/p \
             -r rosservice://tf:=/service -r other:tf:=/others --remap seer:tf:=own \
             -r rostopic:///a:=rostopic:///b -r /rgb:=/twice -- -r /y:=/ignored",
        );
        for (topic, full) in [
            ("/left/image", "/rgb"),
            ("/joint_states", "/joint_states"),
            ("joint_states", "/robot/joints"),
            ("/robot/joint_states", "/robot/joints"),
            ("~/prediction", "/p"),
            ("~/timing", "/robot/seer/timing"),
            ("tf", "/robot/own"),
            ("/a", "/b"),
            ("/x", "/x"),
            ("/y", "/y"),
        ] {
            assert_eq!(arguments.topic(topic, "seer", "/robot"), full, "{topic}");
        }
        assert_eq!(parse("node").topic("tf", "seer", "/"), "/tf");
    }

    #[test]
    fn levels_of_the_own_log_and_of_others() {
        let own = |line: &str| {
            let arguments = parse(line);
            let (own, others) = arguments.levels("forecloud");
            let others: Vec<_> = others.iter().map(|(a, b)| format!("{a}={b}")).collect();
            (own.map(str::to_owned), others.join(","))
        };
        let debug = || Some("debug".to_owned());
        assert_eq!(own("node --log-level debug"), (None, "".into()));
        assert_eq!(own("node --ros-args --log-level DEBUG"), (debug(), "".into()));
        assert_eq!(own("node --ros-args --log-level forecloud:=debug"), (debug(), "".into()));
        assert_eq!(
            own("node --ros-args --log-level r2r:=warn --log-level seer:=debug"),
            (None, "r2r=warn,seer=debug".into())
        );
        for logger in ["robot", "robot.seer"] {
            let line = format!(
                "node --ros-args -r __ns:=/robot -r __node:=seer --log-level {logger}:=debug"
            );
            assert_eq!(own(&line), (debug(), "".into()), "{logger}");
        }
    }

    #[test]
    fn rosout_can_be_switched_off() {
        assert!(!parse("node --ros-args -r a:=b").without_rosout);
        assert!(parse("node --ros-args --disable-rosout-logs").without_rosout);
    }
}
