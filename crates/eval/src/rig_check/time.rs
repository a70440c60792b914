//! Rates, gaps and clocks.

use std::collections::BTreeMap;

use super::series::{Series, Times};
use forecloud::message::Stamp;
use forecloud::predict::rig::{Item, Verdict};

/// A gap is told from this many periods on, and from so long on (s).
const GAP_PERIODS: f64 = 6.0;
const GAP_SECS: f64 = 0.5;
/// Sources whose stamps differ from their receipt by so much more than others' have another clock (s).
const CLOCKS_SECS: f64 = 1.0;
/// How far behind the images joints may come (s) without a word.
const LATE_SECS: f64 = 0.1;
/// Share of the plans that may be in force at no frame.
const UNUSED_PLANS: f64 = 0.5;

/// What the stamps tell; `frames` are those of all frames.
pub(super) fn items(series: &Series, frames: &[Stamp]) -> Vec<Item> {
    let mut items = Vec::new();
    let zero: Vec<String> = series
        .times
        .iter()
        .filter(|(source, times)| times.n_zero > 0 && !source.starts_with("tf of"))
        .map(|(source, times)| format!("{source} {} of {}", times.n_zero, times.all.len()))
        .collect();
    if !zero.is_empty() {
        items.push(Item::wrong(
            Verdict::Fail,
            "stamps of 0",
            zero.join(", "),
            "a driver that does not fill in header.stamp",
            "let the driver stamp its messages when they are measured",
        ));
    }
    items.extend(clocks(series));
    items.push(rates(series));
    items.extend(plans(series, frames));
    items.extend(lateness(series));
    items
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

impl Times {
    /// Times from one stamp to the next (s).
    fn gaps(&self) -> Vec<f64> {
        let mut stamps: Vec<Stamp> = self.all.iter().map(|(stamp, _)| *stamp).collect();
        stamps.sort_unstable();
        stamps.windows(2).map(|two| two[1].secs_since(two[0])).filter(|secs| *secs > 0.0).collect()
    }

    /// Median of receipt less stamp (s), of those with a stamp.
    fn offset(&self) -> Option<f64> {
        let stamped = self.all.iter().filter(|(stamp, _)| stamp.nanos() != 0);
        median(stamped.map(|(stamp, at)| (at - stamp.nanos()) as f64 * 1e-9).collect())
    }
}

fn clocks(series: &Series) -> Option<Item> {
    let offsets: Vec<(&str, f64)> = series
        .times
        .iter()
        .filter(|(_, times)| times.all.len() >= 3)
        .filter_map(|(source, times)| Some((source.as_str(), times.offset()?)))
        .collect();
    let middle = median(offsets.iter().map(|(_, offset)| *offset).collect())?;
    let other: Vec<&(&str, f64)> =
        offsets.iter().filter(|(_, offset)| (offset - middle).abs() > CLOCKS_SECS).collect();
    let spread = offsets.iter().fold(0.0f64, |most, (_, offset)| most.max((offset - middle).abs()));
    let item = match other.is_empty() {
        true => Item::ok(
            "clocks",
            format!(
                "stamps of {} sources lie within {:.0} ms of each other, beside their receipt",
                offsets.len(),
                1e3 * spread
            ),
        ),
        false => {
            let told =
                |(source, offset): &&(&str, f64)| format!("{source} {:+.1} s", middle - offset);
            let told: Vec<String> = other.iter().take(6).map(told).collect();
            Item::wrong(
                Verdict::Fail,
                "clocks",
                format!("stamped by another clock than the rest: {}", told.join(", ")),
                "two clocks: use_sim_time is set in some nodes only, or machines are not synchronised",
                "set use_sim_time alike in all nodes, and synchronise machines (chrony, PTP)",
            )
        }
    };
    Some(item.value("apart_secs", spread))
}

fn rates(series: &Series) -> Item {
    // Sources of the same rate are told together: a robot has a transform for each link.
    let (mut alike, mut gaps) = (BTreeMap::<String, Vec<&str>>::new(), Vec::new());
    for (source, times) in series.times.iter().filter(|(_, times)| times.all.len() >= 3) {
        let between = times.gaps();
        let Some(period) = median(between.clone()) else { continue };
        let longest = between.iter().fold(0.0f64, |most, gap| most.max(*gap));
        let jitter =
            median(between.iter().map(|gap| (gap - period).abs()).collect()).unwrap_or(0.0);
        let rate = format!("{:.1} Hz (jitter {:.1} ms)", 1.0 / period, 1e3 * jitter);
        alike.entry(rate).or_default().push(source);
        if longest > GAP_SECS.max(GAP_PERIODS * period) && !is_seldom(source) {
            gaps.push(format!("{source} {longest:.1} s (usually {:.0} ms)", 1e3 * period));
        }
    }
    let told = |(rate, sources): (&String, &Vec<&str>)| match &sources[..] {
        [first, _, _, ..] => format!("{rate}: {first} and {} others", sources.len() - 1),
        few => format!("{rate}: {}", few.join(", ")),
    };
    let texts: Vec<String> = alike.iter().map(told).collect();
    match gaps.is_empty() {
        true => Item::ok("rates", texts.join("; ")),
        false => Item::wrong(
            Verdict::Warn,
            "rates",
            format!("gaps: {}", gaps.join(", ")),
            "messages were lost: the network, the disk or a processor is too slow; or the driver paused",
            "record on a faster disk, compress images, raise the network's buffers (docs/src/guide/trouble.md)",
        ),
    }
    .value("n_with_gaps", gaps.len() as f64)
}

/// Sources that come when there is something to say.
fn is_seldom(source: &str) -> bool {
    source.contains("plan") || source.contains("trajectory") || source.contains("camera_info")
}

fn plans(series: &Series, frames: &[Stamp]) -> Option<Item> {
    let timed =
        series.plans.iter().filter(|plan| plan.header.stamp.nanos() != 0 && plan.points.len() > 1);
    let (mut n, mut n_unused, mut nearest) = (0u64, 0u64, f64::INFINITY);
    for plan in timed {
        let start = plan.header.stamp;
        let lasts = plan.points.last().map_or(0, |point| point.time_from_start_nanos);
        let end = start.plus_secs(lasts as f64 * 1e-9);
        let after = frames.partition_point(|stamp| *stamp < start);
        n += 1;
        let is_used = frames.get(after).is_some_and(|stamp| *stamp <= end);
        if !is_used {
            n_unused += 1;
            let beside = [after.checked_sub(1).and_then(|i| frames.get(i)), frames.get(after)];
            let apart = beside.into_iter().flatten().map(|stamp| stamp.secs_since(start).abs());
            nearest = apart.fold(nearest, f64::min);
        }
    }
    if n == 0 || frames.is_empty() {
        return None;
    }
    let text = format!("{} of {n} plans are in force at some frame", n - n_unused);
    let share = n_unused as f64 / n as f64;
    let item = match share > UNUSED_PLANS {
        true => Item::wrong(
            Verdict::Warn,
            "time of plans",
            format!("{text}; the nearest of the others starts {nearest:.1} s from a frame"),
            "plans are stamped by another clock than the images, or much too early",
            "stamp plans with their start, by the clock of the images (use_sim_time alike in all nodes)",
        ),
        false => Item::ok("time of plans", text),
    };
    Some(item.value("unused_share", share))
}

/// How much later than the images the joints (and moving transforms) of their time come.
fn lateness(series: &Series) -> Option<Item> {
    let is_image = |source: &str| source.contains("image") || source.contains("points");
    let images: Vec<f64> = series
        .times
        .iter()
        .filter(|(source, _)| is_image(source) && !source.contains("info"))
        .filter_map(|(_, times)| times.offset())
        .collect();
    let images = images.into_iter().reduce(f64::max)?;
    let is_state = |source: &str| source.contains("joint_state") || source.starts_with("tf of");
    let mut late: Vec<(&str, f64)> = Vec::new();
    for (source, times) in series.times.iter().filter(|(source, _)| is_state(source)) {
        let period = median(times.gaps()).unwrap_or(0.0);
        // The state after the image's stamp is needed: up to a period later.
        late.extend(times.offset().map(|offset| (source.as_str(), offset - images + period)));
    }
    let (source, secs) = late.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Another clock is told elsewhere.
    let secs = Some(secs).filter(|secs| secs.abs() < CLOCKS_SECS)?;
    let text = format!("{source} is complete {:.0} ms after the images of its time", 1e3 * secs);
    let item = match secs > LATE_SECS {
        true => Item::wrong(
            Verdict::Warn,
            "late states",
            text,
            "a slow rate, or a driver that publishes late",
            "publish them faster, or let frames wait longer (patience_secs, where there is such a parameter)",
        ),
        false => Item::ok("late states", text),
    };
    Some(item.value("late_ms", 1e3 * secs))
}
