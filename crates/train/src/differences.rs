//! Which settings differ, by name.

use serde::Serialize;
use serde_json::Value;

/// The settings in which `stored` and `asked` differ: `name: … there, … here` each.
pub fn differences<T: Serialize>(stored: &T, asked: &T) -> Vec<String> {
    let [stored, asked] = [stored, asked].map(|it| serde_json::to_value(it).unwrap_or_default());
    let mut found = Vec::new();
    collect("", &stored, &asked, &mut found);
    found
}

fn collect(name: &str, stored: &Value, asked: &Value, found: &mut Vec<String>) {
    let below = |key: &str| match name {
        "" => key.to_owned(),
        name => format!("{name}.{key}"),
    };
    match (stored, asked) {
        (a, b) if a == b => {}
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let [a, b] = [a, b].map(|of| of.get(key).unwrap_or(&Value::Null));
                collect(&below(key), a, b, found);
            }
        }
        (a, b) => found.push(format!("{name}: {} there, {} here", shown(a), shown(b))),
    }
}

/// A value in a few words.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = match value {
        Value::Null => return "the default".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adamw::AdamWConfig;
    use crate::config::TrainConfig;
    use forecloud::engine::model::ModelConfig;

    #[test]
    fn each_setting_that_differs_is_named_with_both_values() {
        let stored = TrainConfig::default();
        assert!(differences(&stored, &stored).is_empty());
        let asked = TrainConfig {
            batch: 7,
            adamw: AdamWConfig { max_norm: 0.5, ..stored.adamw },
            ..stored.clone()
        };
        let expected = ["adamw.max_norm: 1.0 there, 0.5 here", "batch: 2 there, 7 here"];
        assert_eq!(differences(&stored, &asked), expected);
        let mut other = ModelConfig::default();
        other.layers.mlp_ratio = 3;
        let told = differences(&ModelConfig::default(), &other);
        assert_eq!(told, ["layers.mlp_ratio: 4 there, 3 here"]);
    }
}
