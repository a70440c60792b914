//! The mean of two models' weights: of a model and what was fine-tuned from it, it keeps most of what
//! each is good at (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022).
//!
//! ```sh
//! cargo run --release -p forecloud-lab --example average_models -- OUT.safetensors BEFORE.safetensors TUNED.safetensors [SHARE]
//! ```
//! SHARE (0 to 1, default 0.5) is that of TUNED. OUT must not be there.

use std::error::Error;
use std::path::Path;

use forecloud::engine::model::Model;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([out, before, tuned], rest) = arguments
        .split_first_chunk()
        .ok_or("usage: average_models OUT BEFORE TUNED [SHARE], all but SHARE model files")?;
    let share: f64 = rest.first().map_or(Ok(0.5), |share| share.parse())?;
    if !(0.0..=1.0).contains(&share) {
        return Err(format!("SHARE is from 0 to 1, not {share}").into());
    }
    if Path::new(out).exists() {
        return Err(format!("{out} is there: name a new file").into());
    }
    let (before, tuned) = (Model::load(before.as_ref())?, Model::load(tuned.as_ref())?);
    if before.config != tuned.config {
        return Err("the two models have different configurations".into());
    }
    let mean =
        |(a, b): (&f32, &f32)| ((1.0 - share) * f64::from(*a) + share * f64::from(*b)) as f32;
    let weights = before.weights.iter().zip(&tuned.weights).map(mean).collect();
    let model = Model::new(tuned.config, weights)?;
    model.save(out.as_ref())?;
    println!("{out}: {}", model.hash);
    Ok(())
}
