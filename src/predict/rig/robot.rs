//! What the looks at the robot tell: whether it is where it is described, by how much it is not, and the
//! likeliest cause.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use super::clouds;
use super::explain::{Cause, Explanation};
use super::item::{Item, Verdict};
use super::words::{told, way_m};
use super::{Counts, CountsBy, Misfit, RigWatch};
use crate::robot::kinematics::Robot;

/// What the item of late joints is called.
pub const LAG: &str = "time of the joints";

/// Fewer points that should be visible tell nothing.
const LEAST_POINTS: u64 = 400;
/// Share of them that is seen, and that the camera looks through, beyond which the robot is elsewhere.
const SEEN: f64 = 0.45;
const THROUGH: f64 = 0.25;
/// The same of a link, and how many of its points must tell.
const LINK_THROUGH: f64 = 0.5;
const LEAST_OF_LINK: u64 = 60;
/// Share of the misfit that a cause must take away to be named, and the way by which it moves the robot (m).
const GAIN: f64 = 0.18;
/// The same where the joints' time is off, which moves the robot, too; and where it is elsewhere altogether.
const GAIN_BESIDE: f64 = 0.5;
const OFF_M: f64 = 0.008;
/// Causes that take away as much (share of the best one's) are as good.
const AS_GOOD: f64 = 0.93;
/// From which on joints are told as late (s), and the share of the misfit that this must take away.
const LATE_SECS: f64 = 0.015;
const LATE_GAIN: f64 = 0.15;
/// Share of the points that must be near what is seen for a cause to be named, where the robot is elsewhere.
const NEAR_SHARE: f64 = 0.7;
/// Joints in degrees are more than a turn (rad), and fit as radians: so much more is seen then.
const TURNING: f64 = TAU;
const DEGREES_GAIN: f64 = 0.2;
/// Depths are in another unit where they are a power of ten times what they should be, up to this share.
const UNIT_SHARE: f64 = 0.2;
/// Nearer to the world's origin a robot counts as put there (m).
const ORIGIN_M: f64 = 0.002;

/// By how much later the joints must be taken to lie where the cameras see the robot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lag {
    /// Seconds; negative: earlier.
    pub secs: f64,
    /// Share of the misfit that this takes away.
    pub gain: f64,
    /// Frames in which the robot moved fast enough to tell.
    pub n_frames: usize,
}

impl Lag {
    /// Whether the joints' own time does not fit.
    pub fn is_off(&self) -> bool {
        self.secs.abs() >= LATE_SECS && self.gain >= LATE_GAIN
    }
}

/// What trying other joints came to; only a recording has the time for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Trials {
    /// With the joints as they are.
    pub as_they_are: Option<Misfit>,
    /// With turning joints taken for degrees.
    pub as_degrees: Option<Misfit>,
    /// Largest position of a turning joint (rad).
    pub largest_rad: f64,
    /// With joints of another time.
    pub lag: Option<Lag>,
}

impl Trials {
    /// Whether joint positions are in degrees: taken for that, the robot is where it is seen.
    pub fn are_degrees(&self) -> bool {
        degrees(self).is_some()
    }
}

/// Whether the robot is where it is described, by what `watch` saw.
pub fn robot_items(watch: &RigWatch, trials: &Trials) -> Vec<Item> {
    let Some(robot) = watch.robot() else { return Vec::new() };
    let what = "robot in the picture";
    let counts = watch.counts();
    let mut all = Counts::default();
    counts.values().for_each(|of_link| all += *of_link);
    let name = |camera: usize| watch.cameras().get(camera).map_or("?", String::as_str);
    let on_clouds = watch.on_clouds().into_iter();
    let mut items: Vec<Item> =
        on_clouds.filter_map(|(camera, counts)| clouds::item(name(camera), counts)).collect();
    let Some([seen, through]) = all.shares().filter(|_| all.n_known() >= LEAST_POINTS) else {
        if watch.n_looks() > 0 && watch.has_depth {
            items.push(out_of_view(robot, all, watch.n_looks()));
        }
        return items;
    };
    let text = format!(
        "of {} surface points that should be visible, {:.0} % are seen at their depth, the cameras look \
         through {:.0} %, and {:.0} % lie behind something",
        all.n_known(),
        100.0 * seen,
        100.0 * through,
        100.0 * (1.0 - seen - through)
    );
    let with_values = |item: Item| {
        let item = item.value("seen_share", seen).value("through_share", through);
        let lag = trials.lag.iter();
        let item = lag.fold(item, |item, lag| {
            item.value("lag_ms", 1e3 * lag.secs).value("lag_gain", lag.gain)
        });
        let item = item.value("n_points", all.n_known() as f64);
        by_camera(watch, &counts).into_iter().fold(item, |item, (name, [seen, through])| {
            item.value(format!("seen_share {name}"), seen)
                .value(format!("through_share {name}"), through)
        })
    };
    let wrong = |verdict, text: &str, (cause, remedy): (String, String)| {
        with_values(Item::wrong(verdict, what, text, cause, remedy))
    };
    let is_elsewhere = seen < SEEN || through > THROUGH;
    if let Some(found) = degrees(trials) {
        items.push(wrong(Verdict::Fail, &text, found));
        return items;
    }
    if let Some(found) = unit(watch.stretch()).filter(|_| is_elsewhere) {
        items.push(wrong(Verdict::Fail, &text, found));
        return items;
    }
    let lag = trials.lag.filter(Lag::is_off);
    items.extend(lag.map(lag_item));
    let explanations = watch.explanations();
    let least = if lag.is_some() || is_elsewhere { GAIN_BESIDE } else { GAIN };
    let best = preferred(&explanations);
    let best = best.filter(|best| best.gain >= least && way_m(best) >= OFF_M);
    // What the joints' time explains is told already.
    let best = best.filter(|best| lag.is_none() || best.cause != Cause::Time);
    // What is far off is explained by what little is near only by chance.
    let is_near = all.near as f64 >= NEAR_SHARE * all.n_known() as f64;
    let best = best.filter(|_| is_near || !is_elsewhere);
    let by_links = links_off(robot, &counts);
    match best {
        _ if is_elsewhere => {
            let cause = elsewhere(robot, best.map(|best| told(watch, &explanations, best)));
            items.push(wrong(Verdict::Fail, &format!("{text}{by_links}"), cause));
        }
        Some(best) => {
            let (text, cause, remedy) = told(watch, &explanations, best);
            items.push(with_values(Item::ok(what, short(seen, through))));
            let item =
                Item::wrong(Verdict::Warn, "place of the robot", text + &by_links, cause, remedy);
            items.push(
                item.value("off_mm", 1e3 * way_m(best))
                    .value("gain", best.gain)
                    .value("n_points", best.n as f64),
            );
        }
        None => items.push(with_values(Item::ok(what, text))),
    }
    if let (None, Some(best)) = (best, explanations.first()) {
        let (off_mm, gain) = (1e3 * way_m(best), best.gain);
        if let Some(item) = items.last_mut() {
            let told = std::mem::take(item).value("off_mm", off_mm).value("gain", gain);
            *item = told;
        }
    }
    items
}

/// The best explanation; of those that are as good, the simplest.
fn preferred(explanations: &[Explanation]) -> Option<&Explanation> {
    let best = explanations.first()?;
    let rank = |found: &Explanation| match found.cause {
        Cause::Camera(_) => 0,
        Cause::Robot => 1,
        Cause::Time => 2,
        Cause::Origin(_) => 3,
        Cause::Zero(_) => 4,
    };
    let alike = explanations.iter().filter(|found| found.saved >= AS_GOOD * best.saved);
    alike.min_by_key(|found| rank(found))
}

fn short(seen: f64, through: f64) -> String {
    format!("{:.0} % seen, {:.0} % looked through", 100.0 * seen, 100.0 * through)
}

/// Shares by camera.
fn by_camera(watch: &RigWatch, counts: &CountsBy) -> Vec<(String, [f64; 2])> {
    let mut sums = BTreeMap::<usize, Counts>::new();
    for ((camera, _), of_link) in counts {
        *sums.entry(*camera).or_default() += *of_link;
    }
    let name = |camera: usize| watch.cameras().get(camera).cloned();
    let told = |(camera, counts): (usize, Counts)| Some((name(camera)?, counts.shares()?));
    sums.into_iter().filter_map(told).collect()
}

/// Links that the cameras mostly look through, in words.
fn links_off(robot: &Robot, counts: &CountsBy) -> String {
    let mut sums = BTreeMap::<usize, Counts>::new();
    for ((_, link), of_camera) in counts {
        *sums.entry(*link).or_default() += *of_camera;
    }
    let off = |(link, counts): (usize, Counts)| {
        let [_, through] = counts.shares().filter(|_| counts.n_known() >= LEAST_OF_LINK)?;
        let name = robot.link_names().get(link)?;
        (through >= LINK_THROUGH).then(|| format!("{name} {:.0} %", 100.0 * through))
    };
    let off: Vec<String> = sums.into_iter().filter_map(off).collect();
    match off.is_empty() {
        true => String::new(),
        false => format!("; looked through most: {}", off.join(", ")),
    }
}

fn out_of_view(robot: &Robot, all: Counts, n_looks: usize) -> Item {
    let text = format!(
        "{} surface points of the robot are in the picture, in {n_looks} frames",
        all.n_known() + all.unknown
    );
    let item = match stands_at_origin(robot) {
        _ if all.n_known() + all.unknown > 0 => Item::ok("robot in the picture", text),
        at_origin => {
            let (cause, remedy) = match at_origin {
                true => at_the_origin(),
                false => (
                    "the cameras look elsewhere, or the robot is described elsewhere".to_owned(),
                    "check the transforms of the cameras and of the robot's base (ros2 run tf2_tools view_frames)".to_owned(),
                ),
            };
            Item::wrong(Verdict::Warn, "robot in the picture", text, cause, remedy)
        }
    };
    item.value("n_points", (all.n_known() + all.unknown) as f64)
}

fn degrees(trials: &Trials) -> Option<(String, String)> {
    let (now, then) = (trials.as_they_are?, trials.as_degrees?);
    let ([seen, _], [seen_then, _]) = (now.counts.shares()?, then.counts.shares()?);
    let is_large = trials.largest_rad > TURNING;
    let fits = is_large && seen_then - seen >= DEGREES_GAIN && seen_then >= SEEN;
    let cause = format!(
        "joint positions in degrees: taken as such, {:.0} % are seen instead of {:.0} %",
        100.0 * seen_then,
        100.0 * seen
    );
    fits.then(|| (cause, "publish joint states in radians (REP 103)".into()))
}

/// Cause and remedy where depths are of another unit.
fn unit(stretch: f64) -> Option<(String, String)> {
    let power = stretch.max(1e-9).log10().round();
    let factor = 10f64.powf(power);
    let fits = power != 0.0 && (stretch / factor - 1.0).abs() < UNIT_SHARE;
    fits.then(|| {
        let cause = format!(
            "depth is in another unit: what is seen is {factor} times as far off as the robot"
        );
        (cause, "set the driver's depth unit: 16UC1 holds millimetres, 32FC1 metres".into())
    })
}

fn lag_item(Lag { secs, gain, n_frames }: Lag) -> Item {
    let which = if secs > 0.0 { "later" } else { "earlier" };
    let text = format!(
        "the cameras see the robot where its joints are {:.0} ms {which}: {:.0} % less misfit, in \
         {n_frames} frames with fast joints",
        1e3 * secs.abs(),
        100.0 * gain
    );
    let cause = match secs > 0.0 {
        true => {
            "joint states are stamped too late, or images too early: clocks of two machines, or stamps of receipt"
        }
        false => {
            "images are stamped too late (at receipt, after exposure and transfer), or joint states too early"
        }
    };
    let remedy = "synchronise the clocks (chrony, PTP), and let drivers stamp when they measure";
    Item::wrong(Verdict::Warn, LAG, text, cause, remedy)
        .value("lag_ms", 1e3 * secs)
        .value("gain", gain)
}

/// Cause and remedy of a robot that is elsewhere.
fn elsewhere(robot: &Robot, best: Option<(String, String, String)>) -> (String, String) {
    if stands_at_origin(robot) {
        return at_the_origin();
    }
    match best {
        Some((text, cause, remedy)) => (format!("{cause}: {text}"), remedy),
        None => (
            "the description is of another robot, or an old one: most of it is not where it should be".into(),
            "publish the description of this robot on /robot_description, with its mounting and tool".into(),
        ),
    }
}

fn at_the_origin() -> (String, String) {
    (
        "the robot is put at the world's origin: the place of its base is missing (an identity transform)".into(),
        "publish where its base stands: in the description's joint from the world, or on /tf_static".into(),
    )
}

/// Whether all that holds its first moving links is at the world's origin.
fn stands_at_origin(robot: &Robot) -> bool {
    let base = |link: usize| {
        let mut node = link;
        while node != 0 && !robot.joints_to(robot.parent_of(node)).is_empty() {
            node = robot.parent_of(node);
        }
        robot.parent_of(node)
    };
    let is_put = |link: usize| {
        robot.pose_of(link).is_some_and(|pose| pose.translation.vector.norm() < ORIGIN_M)
    };
    // What tf or a description places by an identity.
    if robot.mounting().root.is_some() && is_put(0) {
        return true;
    }
    let mut bases = robot.surfaces().map(|(link, _)| base(link)).peekable();
    bases.peek().is_some() && bases.all(is_put)
}
