//! Joint states and plans by themselves: names, sources that contradict each other, wrapped angles.

use std::f64::consts::TAU;

use super::series::Series;
use forecloud::message::{JointTrajectory, Stamp};
use forecloud::predict::rig::{Item, Verdict};
use forecloud::robot::kinematics::Robot;

/// How far a joint jumps there and back for two sources to tell of it (rad or m), how much less the second
/// next differs from it, and the share of all states in which it does.
const JUMP: f64 = 0.02;
const BACK: f64 = 0.25;
const JUMPS_SHARE: f64 = 0.1;
/// Three states that tell of two sources come within so long (s).
const SOON_SECS: f64 = 0.25;
/// How near to a whole turn a jump is, or a plan to the joint, to be one (rad).
const NEAR_TURN: f64 = 0.6;
/// Share of the plans that may disagree with the joint when they start (rad), and by how much.
const PLAN_OFF: f64 = 0.5;

/// What the item of plans and joints is called.
pub(super) const PLANS: &str = "plans and joints";

/// What the names of joints tell.
pub(super) fn name_item(robot: &Robot, series: &Series) -> Option<Item> {
    let what = "joint names";
    let came = series.joint_names();
    if came.is_empty() {
        return None;
    }
    let own = robot.joint_names();
    let missing: Vec<&str> =
        own.iter().map(String::as_str).filter(|name| !came.contains(name)).collect();
    if missing.is_empty() {
        let text = format!("all {} joints of the description came", own.len());
        return Some(Item::ok(what, text));
    }
    let text = format!(
        "{} of {} joints of the description never came: {}",
        missing.len(),
        own.len(),
        list(&missing)
    );
    let (cause, remedy) = match prefix(&missing, &came) {
        Some((prefix, true)) => (
            format!(
                "the description's names have the prefix '{prefix}', which those of the joint states lack"
            ),
            "give robot_state_publisher and the driver the same prefix (tf_prefix)",
        ),
        Some((prefix, false)) => (
            format!(
                "the joint states' names have the prefix '{prefix}', which the description's lack"
            ),
            "give robot_state_publisher and the driver the same prefix (tf_prefix)",
        ),
        None => (
            format!(
                "a description of another robot, or a second source of joint states that is missing; these came: {}",
                list(&came)
            ),
            "publish the description of this robot, and the states of all its joints",
        ),
    };
    Some(
        Item::wrong(Verdict::Fail, what, text, cause, remedy)
            .value("n_missing", missing.len() as f64),
    )
}

fn list(names: &[&str]) -> String {
    let more = if names.len() > 6 { ", …" } else { "" };
    names[..names.len().min(6)].join(", ") + more
}

/// What all `missing` names have before names that came (true), or names that came before all of them.
fn prefix(missing: &[&str], came: &[&str]) -> Option<(String, bool)> {
    let found = |long: &str, short: &str| {
        long.strip_suffix(short).filter(|prefix| !prefix.is_empty()).map(str::to_owned)
    };
    let first = missing.first()?;
    let with = came.iter().filter_map(|name| Some((found(first, name)?, true)));
    let without = came.iter().filter_map(|name| Some((found(name, first)?, false)));
    let fits = |(prefix, is_own): &(String, bool)| {
        missing.iter().all(|name| match is_own {
            true => name.strip_prefix(prefix.as_str()).is_some_and(|rest| came.contains(&rest)),
            false => came.contains(&format!("{prefix}{name}").as_str()),
        })
    };
    with.chain(without).find(fits)
}

/// What joint states and plans tell by themselves; `robot` says which joints are wanted, and which of them
/// turn without end.
pub(super) fn items(series: &Series, robot: Option<&Robot>) -> Vec<Item> {
    let wanted: Vec<String> = match robot {
        Some(robot) => robot.joint_names().to_vec(),
        None => series.joint_names().into_iter().map(str::to_owned).collect(),
    };
    if series.n_states() == 0 || wanted.is_empty() {
        return Vec::new();
    }
    let endless = |name: &str| {
        let joint = robot?.joint_names().iter().position(|other| other == name)?;
        Some(robot?.limits()[joint].upper == f64::INFINITY)
    };
    let mut items = vec![sources_item(series, &wanted)];
    items.push(wrap_item(series, &wanted, &endless));
    items.extend(plan_item(series, &wanted, &endless));
    items
}

fn sources_item(series: &Series, wanted: &[String]) -> Item {
    let what = "sources of joints";
    let mut worst: Option<(f64, &str, f64, bool)> = None;
    for name in wanted {
        let values = series.of_joint(name);
        let mut n = 0;
        let mut most = 0.0f64;
        let mut by_order = true;
        for three in values.windows(3) {
            let [(first, a, from), (_, b, to), (last, c, _)] = [three[0], three[1], three[2]];
            let jump = (b - a).abs();
            // A joint may go there and back by itself in a longer time.
            if last.secs_since(first).abs() < SOON_SECS
                && jump > JUMP
                && (c - a).abs() < BACK * jump
            {
                n += 1;
                most = most.max(jump);
                by_order &= from != to;
            }
        }
        let share = n as f64 / values.len().max(1) as f64;
        if share > JUMPS_SHARE && worst.is_none_or(|(known, ..)| share > known) {
            worst = Some((share, name, most, by_order));
        }
    }
    let n_orders = series.orders.len();
    let Some((share, name, most, by_order)) = worst else {
        let text = match n_orders {
            1 => format!("{} states of the same joints in the same order", series.n_states()),
            n => format!(
                "{} states, in {n} lists of joints, none of which contradict each other",
                series.n_states()
            ),
        };
        return Item::ok(what, text).value("n_lists", n_orders as f64);
    };
    let which = match by_order {
        true => "; the two list their joints in different orders",
        false => "",
    };
    let text = format!(
        "joint '{name}' jumps there and back by up to {most:.2} in {:.0} % of the states{which}",
        100.0 * share
    );
    let cause = "two nodes publish joint states of the same joints, such as joint_state_publisher beside a driver's broadcaster";
    let remedy = "stop one of them (ros2 topic info -v /joint_states), or remap it; name the measured one with --remap /joint_states:=TOPIC";
    Item::wrong(Verdict::Fail, what, text, cause, remedy).value("jumps_share", share)
}

fn is_turn(change: f64) -> bool {
    let turns = (change / TAU).round();
    turns != 0.0 && (change - turns * TAU).abs() < NEAR_TURN
}

fn wrap_item(series: &Series, wanted: &[String], endless: &impl Fn(&str) -> Option<bool>) -> Item {
    let what = "wrapped angles";
    let mut wrapped = Vec::new();
    for name in wanted {
        let values = series.of_joint(name);
        let jumps = values.windows(2).filter(|two| {
            two[0].2 == two[1].2
                && is_turn(two[1].1 - two[0].1)
                && two[1].0.secs_since(two[0].0) < 1.0
        });
        let n = jumps.count();
        if n > 0 {
            wrapped.push((name.as_str(), n));
        }
    }
    let told = |(name, n): &(&str, usize)| format!("'{name}' {n} times");
    let told = |which: &[(&str, usize)]| which.iter().map(told).collect::<Vec<_>>().join(", ");
    let (free, bound): (Vec<_>, Vec<_>) =
        wrapped.into_iter().partition(|(name, _)| endless(name).unwrap_or(false));
    match (bound.is_empty(), free.is_empty()) {
        (true, true) => Item::ok(what, "no joint jumps by a whole turn"),
        (true, false) => Item::ok(
            what,
            format!("by a whole turn jumps {}: it turns without end (continuous), and is followed the short way", told(&free)),
        ),
        (false, _) => Item::wrong(
            Verdict::Warn,
            what,
            format!("by a whole turn jumps {}", told(&bound)),
            "the driver wraps angles at plus and minus half a turn, and the description has limits (revolute)",
            "publish angles that go on, or describe the joint as continuous",
        ),
    }
    .value("n_wrapped", (bound.len() + free.len()) as f64)
}

/// Whether plans begin where the joints are, and don't jump.
fn plan_item(
    series: &Series,
    wanted: &[String],
    endless: &impl Fn(&str) -> Option<bool>,
) -> Option<Item> {
    let what = PLANS;
    let plans = || series.plans.iter().filter(|plan| plan.points.len() > 1);
    let n = plans().count();
    if n == 0 {
        return None;
    }
    let (mut turned, mut jumped, mut off) = (Vec::new(), Vec::new(), Vec::new());
    let mut n_compared = 0usize;
    for name in wanted {
        let values = series.of_joint(name);
        let (mut n_turned, mut n_off, mut n_jumped) = (0, 0, 0);
        for plan in plans() {
            let Some(column) = plan.joint_names.iter().position(|other| other == name) else {
                continue;
            };
            let jumps = plan
                .points
                .windows(2)
                .any(|two| is_turn(two[1].positions[column] - two[0].positions[column]));
            n_jumped += usize::from(jumps);
            let Some((commanded, measured)) = compared(plan, column, &values) else { continue };
            n_compared += 1;
            let change = commanded - measured;
            n_turned += usize::from(is_turn(change));
            n_off += usize::from(change.abs() > PLAN_OFF && !is_turn(change));
        }
        let few = |count: usize| 20 * count <= n;
        if !few(n_turned) {
            turned.push(format!("'{name}' in {n_turned} of {n} plans"));
        }
        if n_jumped > 0 {
            jumped.push(format!("'{name}' in {n_jumped} of {n} plans"));
        }
        if !few(n_off) {
            off.push(format!("'{name}' in {n_off} of {n} plans"));
        }
    }
    let is_endless = |texts: &[String]| {
        wanted.iter().all(|name| {
            endless(name).unwrap_or(false)
                || !texts.iter().any(|text| text.contains(&format!("'{name}'")))
        })
    };
    Some(match (turned.is_empty() && jumped.is_empty(), off.is_empty()) {
        (true, true) => {
            Item::ok(what, format!("{n} plans begin near the joints ({n_compared} compared)"))
        }
        (false, _) => {
            let text = format!(
                "a whole turn from the measured joint: {}; jumps by one within: {}",
                none_or(&turned),
                none_or(&jumped)
            );
            match is_endless(&[&turned[..], &jumped[..]].concat()) {
                true => Item::ok(
                    what,
                    format!(
                        "{text}: it turns without end (continuous), and is followed the short way"
                    ),
                ),
                false => Item::wrong(
                    Verdict::Warn,
                    what,
                    text,
                    "the planner and the driver count turns differently: one of them wraps angles",
                    "publish plans in the same turn as the joint states",
                ),
            }
        }
        (true, false) => Item::wrong(
            Verdict::Warn,
            what,
            format!(
                "more than {PLAN_OFF} from the measured joint when in force: {}",
                off.join(", ")
            ),
            "plans in degrees, of another robot, or of another clock; or the joint states are commands",
            "publish plans in radians, stamped by the clock of the joint states",
        ),
    })
}

fn none_or(texts: &[String]) -> String {
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}

/// What a plan commands a joint at its first point, and what was measured then.
fn compared(
    plan: &JointTrajectory,
    column: usize,
    values: &[(Stamp, f64, usize)],
) -> Option<(f64, f64)> {
    let first = plan.points.first()?;
    let start = plan.header.stamp.nanos().checked_add(first.time_from_start_nanos)?;
    let at = Stamp::from_nanos(start);
    let nearest = values.iter().min_by_key(|(stamp, ..)| stamp.abs_diff(at))?;
    let is_near = nearest.0.secs_since(at).abs() < 0.2;
    is_near.then(|| Some((*first.positions.get(column)?, nearest.1)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_found_on_either_side() {
        let own = ["left_j1", "left_j2"];
        assert_eq!(prefix(&own, &["j1", "j2", "k"]), Some(("left_".into(), true)));
        assert_eq!(prefix(&["j1", "j2"], &own), Some(("left_".into(), false)));
        assert_eq!(prefix(&["j1", "j3"], &own), None);
    }

    #[test]
    fn turns_are_told_from_other_jumps() {
        assert!(is_turn(TAU - 0.1) && is_turn(-2.0 * TAU + 0.2));
        assert!(!is_turn(0.1) && !is_turn(std::f64::consts::PI) && !is_turn(1.5));
    }
}
