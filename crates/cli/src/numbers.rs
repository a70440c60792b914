//! Numbers in ranges, as arguments.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use forecloud::Error;

/// A parser of numbers in `range`, which it tells; NaN is in none.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let value = text.trim().parse::<T>().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| format!("expected a number in {}..={}", range.start(), range.end()))
    }
}

/// Settings of the library, and the options that they come from.
const OPTIONS: &[(&str, &str)] = &[
    ("model.width", "--width"),
    ("model.n_heads", "--width"),
    ("model.n_blocks", "--blocks"),
    ("model.k", "--k"),
    ("model.n_hops", "--n-hops"),
    ("model.n_particles", "--particles"),
    ("model.n_history", "--history"),
    ("model.n_kinematic", "--n-kinematic"),
    ("model.plan_lag_secs", "--plan-lag"),
    ("model.chunk", "--chunk"),
    ("model.stride", "--stride"),
    ("model.layers.mlp_ratio", "--mlp-ratio"),
    ("model.layers.anchor_stride", "--anchor-stride"),
    ("model.layers.top_k", "--top-k"),
    ("model.layers.feature_map", "--feature-map"),
    ("mask.walks", "--walks"),
    ("walks", "--walks"),
    ("edge_weights", "--edge-bandwidth"),
    ("mask.edge_weights", "--edge-bandwidth"),
    ("mask.cell_m", "--mask-cell"),
    ("model.mask.cell_m", "--mask-cell"),
    ("sensor_noise.strength", "--sensor-noise"),
    ("train.curriculum", "--curriculum"),
    ("hold_out", "--hold-out"),
    ("video.vit.cut_m", "--patch-cut"),
];

/// The error of a setting, by the name of its option.
pub fn by_option(error: Error) -> Error {
    match error {
        Error::Config { key, problem } => {
            let option = OPTIONS.iter().find(|(name, _)| *name == key);
            Error::Config { key: option.map_or(key, |(_, option)| (*option).to_owned()), problem }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_the_range_are_read_and_others_told_the_range() {
        let share = within(0.5..=2.0);
        assert_eq!(share("0.5"), Ok(0.5));
        for text in ["0.4", "2.1", "-1", "nan", "inf", "1e999", "x", ""] {
            assert_eq!(share(text), Err("expected a number in 0.5..=2".into()), "{text}");
        }
        assert_eq!(within(1u64..=9)("7"), Ok(7));
        assert!(within(1usize..=9)("99999999999999999999999").is_err());
    }
}
