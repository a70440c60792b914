//! What is wrong with the rigs of recordings, for people.

use std::collections::BTreeMap;

use forecloud::predict::rig::Item;
use forecloud_train::moving_camera::PoseErrors;
use forecloud_train::rig::Rig;

use super::intake::recordings;

/// From which on a lag between joints and cameras is told (s), and a distance of the cameras' planes (m).
const TOLD_LAG_SECS: f64 = 0.04;
const TOLD_APART_M: f64 = 0.012;
/// The same of errors of moving cameras' poses in a step (mm): below that they are the usual.
const TOLD_POSE_MM: f64 = 3.0;

/// Kinds of other findings that are told.
const MAX_FINDINGS: usize = 6;

/// What is wrong with cameras and clocks, by what hindsight found in the recordings.
pub fn rig_lines(rigs: &[Rig]) -> Vec<String> {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).map(|median| (*median, values.len()))
    };
    let mut lines = Vec::new();
    let lags = rigs.iter().filter_map(|rig| rig.lag_secs).collect();
    if let Some((lag, n)) = median(lags).filter(|(lag, _)| lag.abs() >= TOLD_LAG_SECS) {
        let which = if lag > 0.0 { "later" } else { "earlier" };
        lines.push(format!(
            "warning: clocks disagree: the cameras see the robot where its joints say it is {:.2} s {which} \
             (median of {}): check the stamps of both drivers",
            lag.abs(),
            recordings(n)
        ));
    }
    let apart = rigs.iter().filter_map(|rig| rig.apart_m().map(f64::from)).collect();
    if let Some((apart_m, n)) = median(apart).filter(|(apart_m, _)| *apart_m >= TOLD_APART_M) {
        let mut text = format!(
            "warning: the cameras see the support plane {:.0} mm apart (median of {}): calibrate them \
             again; its height by camera:",
            1e3 * apart_m,
            recordings(n)
        );
        let mut heights: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (camera, height_m) in rigs.iter().flat_map(|rig| &rig.planes_m) {
            heights.entry(camera).or_default().push(f64::from(*height_m));
        }
        for (camera, heights) in heights {
            let height_m = median(heights).map_or(0.0, |(height_m, _)| height_m);
            text += &format!(" {camera} {:.0} mm", 1e3 * height_m);
        }
        lines.push(text);
    }
    lines.extend(pose_error_line(rigs));
    let mut others: BTreeMap<&str, (&Item, usize)> = BTreeMap::new();
    for item in rigs.iter().flat_map(|rig| &rig.findings) {
        others.entry(&item.what).or_insert((item, 0)).1 += 1;
    }
    let others = others.into_values().take(MAX_FINDINGS);
    lines.extend(
        others.map(|(item, n)| {
            format!("warning: rig of {}, the first: {}", recordings(n), item.line())
        }),
    );
    lines
}

/// How tf of moving cameras errs, where that is worth a word.
fn pose_error_line(rigs: &[Rig]) -> Option<String> {
    let all = || rigs.iter().filter_map(|rig| rig.pose_errors);
    let sum = |of: fn(PoseErrors) -> f64| all().map(of).sum::<f64>();
    let n_off = sum(|errors| errors.n_off as f64).max(1.0);
    let mean_mm = 1e3 * sum(|errors| errors.n_off as f64 * errors.shift_m) / n_off;
    let degrees = sum(|errors| errors.n_off as f64 * errors.turn_rad).to_degrees() / n_off;
    let share = n_off / sum(|errors| errors.n_moved as f64).max(1.0);
    (mean_mm >= TOLD_POSE_MM).then(|| {
        format!(
            "warning: tf of moving cameras errs by {mean_mm:.1} mm and {degrees:.2} degrees a step, in {:.0} % of the \
             steps in which one moves (mean of {}): that is taken out of labels and motion; positions stay as far \
             off as tf is. Calibrate where the camera is mounted, stamp its images when they are taken, publish tf \
             more often",
            100.0 * share,
            recordings(all().count())
        )
    })
}
