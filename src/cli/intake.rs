//! What `forecloud train` and `forecloud compare` tell of the recordings that they read.

use forecloud::train::reading::LeftOut;
use forecloud::train::skipped::Skipped;

/// What was not read, and why.
pub fn tell(left_out: &LeftOut) {
    for (path, error) in &left_out.failed {
        eprintln!("left out: {}: {error}", path.display());
    }
    let splits = left_out.other_splits.iter().map(|(split, n)| format!("{n} of split '{split}'"));
    let others = [
        (left_out.n_without_truth, "without truth"),
        (left_out.n_surplus, "beyond --max-recordings"),
        (left_out.failed.len(), "that can't be used (above)"),
    ];
    let others = others.into_iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}"));
    let all: Vec<String> = splits.chain(others).collect();
    if !all.is_empty() {
        eprintln!("recordings left out: {}", all.join(", "));
    }
}

/// Frames that are not used as they might be, and why; nothing if all are.
pub fn skipped_lines(skipped: &Skipped) -> impl Iterator<Item = String> {
    let list = |losses: Vec<(u64, &str)>| {
        let losses: Vec<String> = losses.iter().map(|(n, what)| format!("{what}: {n}")).collect();
        Some(losses.join("; ")).filter(|text| !text.is_empty())
    };
    let first = skipped.first.as_ref().map(|first| format!("; the first: {first}"));
    let frames = list(skipped.frames().collect())
        .map(|losses| format!("skipped: {losses}{}", first.unwrap_or_default()));
    let n: u64 = skipped.starts().map(|(n, _)| n).sum();
    let starts = list(skipped.starts().collect());
    let starts = starts.map(|starts| format!("no windows start at {n} frames: {starts}"));
    frames.into_iter().chain(starts)
}

/// An order of which each beginning is spread over the whole: with some of the recordings, some of
/// each task. Steps of the golden ratio's share, as far as they hit each once.
pub fn spread<T>(items: Vec<T>) -> Vec<T> {
    let n = items.len();
    let is_coprime = |step: &usize| {
        let (mut a, mut b) = (n, *step);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let from = (0.618 * n as f64) as usize;
    let step = (from.max(1)..=n.max(1)).find(is_coprime).unwrap_or(1);
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    (0..n).filter_map(|i| items[i * step % n].take()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_beginning_is_spread_and_all_are_there() {
        for n in [0, 1, 2, 3, 10, 97, 100, 992] {
            let mut order = spread((0..n).collect());
            for part in [10, 40].into_iter().filter(|&part| part <= n) {
                let quarters = order[..part].iter().map(|i| 4 * i / n);
                let counts: Vec<usize> =
                    (0..4).map(|q| quarters.clone().filter(|&at| at == q).count()).collect();
                assert!(counts.iter().all(|&c| 4 * c + 8 >= part), "{n}: {counts:?}");
            }
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }
}
