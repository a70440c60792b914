//! Split conformal quantiles with recordings as units.

/// Recordings below which nothing is said.
pub const LEAST_RECORDINGS: usize = 8;

/// The least value that a share of all values does not exceed, each list weighing as much as any other;
/// the share is a little larger than `share`, as a list that is not here could lie anywhere among these
/// (Lei et al. 2018, lemma 2). None of too few lists.
pub(crate) fn quantile(lists: &[&[f32]], share: f64) -> Option<f32> {
    if lists.len() < LEAST_RECORDINGS {
        return None;
    }
    let n = lists.len() as f64;
    let wanted = (share * (n + 1.0) / n).min(1.0) * n;
    let weigh = |list: &&[f32]| {
        let weight = 1.0 / list.len() as f64;
        list.iter().map(move |&value| (value, weight)).collect::<Vec<_>>()
    };
    let mut values: Vec<(f32, f64)> = lists.iter().flat_map(weigh).collect();
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    let reached = values.iter().find(|(_, weight)| {
        sum += weight;
        // Weights that add up to it but for rounding do.
        sum >= wanted - 1e-9
    });
    reached.or(values.last()).map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recording_counts_as_much_as_a_short_one() {
        let long = vec![10.0; 10_000];
        let lists: Vec<&[f32]> = std::iter::once(&long[..]).chain([&[1.0f32][..]; 19]).collect();
        assert_eq!(quantile(&lists, 0.9), Some(1.0));
        assert_eq!(quantile(&lists[..LEAST_RECORDINGS - 1], 0.9), None);
    }
}
