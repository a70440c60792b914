//! What each setting of the estimate is worth: the errors with half of it and with twice of it.

use anyhow::{Result, ensure};
use forecloud::vision::motion::Settings;
use serde_json::{Value, json};

use crate::findings::Findings;
use crate::steps::Step;

const FACTORS: [f64; 2] = [0.5, 2.0];

/// Prints a row for each setting whose name begins with `name`.
pub fn table(name: &str, recordings: &[Vec<Step>]) -> Result<()> {
    let default = serde_json::to_value(Settings::default())?;
    let named = default.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with(name));
    // Where a setting is of two numbers, each is one.
    let pointers: Vec<String> = named
        .flat_map(|(key, value)| match value.as_array() {
            Some(values) => (0..values.len()).map(|i| format!("/{key}/{i}")).collect(),
            None => vec![format!("/{key}")],
        })
        .collect();
    ensure!(!pointers.is_empty(), "no setting's name begins with {name}");
    println!("| setting | value | ratio | onward (mm) | static (mm) | ms a frame |");
    println!("|{}", " --- |".repeat(6));
    println!("| as it ships | | {} |", measure(Settings::default(), recordings)?.join(" | "));
    for pointer in pointers {
        let mut cells: [Vec<String>; 5] = Default::default();
        for factor in FACTORS {
            let mut changed = default.clone();
            let Some(value) = changed.pointer_mut(&pointer) else { continue };
            *value = scaled(value, factor);
            cells[0].push(value.to_string());
            let settings: Settings = serde_json::from_value(changed)?;
            let figures = match settings.validate() {
                Ok(()) => measure(settings, recordings)?,
                // Out of its range.
                Err(_) => ["–"; 4].map(String::from),
            };
            cells[1..].iter_mut().zip(figures).for_each(|(cell, figure)| cell.push(figure));
        }
        let name = pointer.trim_start_matches('/').replace('/', " ");
        println!("| {name} | {} |", cells.map(|cell| cell.join(", ")).join(" | "));
    }
    Ok(())
}

/// Whole numbers stay whole, and 1 at least; others as short as they are written in code.
fn scaled(value: &Value, factor: f64) -> Value {
    match value.as_u64() {
        Some(n) => json!(((n as f64 * factor).round() as u64).max(1)),
        None => json!(
            format!("{:.3e}", value.as_f64().unwrap_or(0.0) * factor).parse::<f64>().unwrap_or(0.0)
        ),
    }
}

fn measure(settings: Settings, recordings: &[Vec<Step>]) -> Result<[String; 4]> {
    let mut findings = Findings::default();
    recordings.iter().try_for_each(|steps| findings.measure(settings, steps))?;
    Ok([
        format!("{:.3}", findings.ratio()),
        format!("{:.1}", 1e3 * findings.extrapolated_motion.get()),
        format!("{:.3}", 1e3 * findings.false_static.get()),
        format!("{:.1}", findings.frame_ms.get()),
    ])
}
