//! Goals from their messages.

use r2r::forecloud::msg::{Box as BoxMsg, Goal as GoalMsg};
use r2r::geometry_msgs::msg::Point;
use r2r::sensor_msgs::msg::Image;

use super::text::quoted;
use forecloud::planner::costs::{Goal, MAX_CLOUD, MAX_KEEP_OUT, Mask, Reach, Select, Zone};
use forecloud::{Error, Result};

/// Most pixels of a mask.
const MAX_PIXELS: u64 = 1 << 24;

/// The goal that a message tells.
///
/// # Errors
/// [`Error::Goal`] names the field and the remedy.
pub fn goal(message: &GoalMsg) -> Result<Goal> {
    let select = match message.select {
        0 => Select::Region(zone(&message.region)),
        1 => Select::Pixels(mask(&message.mask, message.mask_camera)?),
        2 => Select::Body(point(&message.point)),
        other => return refused("select", format!("{other} is not one of SELECT_*")),
    };
    let reach = match message.reach {
        0 => Reach::Box(zone(&message.box_)),
        1 if message.cloud.len() > MAX_CLOUD => {
            let n = message.cloud.len();
            return refused("cloud", format!("{n} points, at most {MAX_CLOUD}: thin it out"));
        }
        1 => Reach::Cloud(message.cloud.iter().map(point).collect()),
        2 => {
            let (rotation, translation) = (&message.motion.rotation, &message.motion.translation);
            Reach::Pose {
                rotation: [rotation.x, rotation.y, rotation.z, rotation.w],
                translation: [translation.x, translation.y, translation.z],
            }
        }
        other => return refused("reach", format!("{other} is not one of REACH_*")),
    };
    let n_boxes = message.keep_out.len();
    if n_boxes > MAX_KEEP_OUT {
        return refused("keep_out", format!("{n_boxes} boxes, at most {MAX_KEEP_OUT}"));
    }
    let goal = Goal {
        select,
        reach,
        reach_weight: message.reach_weight,
        tolerance: message.tolerance,
        keep_out: message.keep_out.iter().map(zone).collect(),
        keep_out_weight: message.keep_out_weight,
        leave_weight: message.leave_weight,
        clearance: message.clearance,
        clearance_weight: message.clearance_weight,
        kappa: message.kappa,
        length_weight: message.length_weight,
        smoothness_weight: message.smoothness_weight,
    };
    goal.validate()?;
    Ok(goal)
}

fn zone(message: &BoxMsg) -> Zone {
    Zone { min: point(&message.min), max: point(&message.max) }
}

fn point(message: &Point) -> [f64; 3] {
    [message.x, message.y, message.z]
}

fn mask(image: &Image, camera: u32) -> Result<Mask> {
    let size = [image.width, image.height];
    if !matches!(&image.encoding[..], "mono8" | "8UC1") {
        let got = quoted(&image.encoding);
        return refused("mask", format!("encoding '{got}': use mono8 or 8UC1"));
    }
    let n_pixels = u64::from(image.width) * u64::from(image.height);
    if n_pixels == 0 || n_pixels > MAX_PIXELS {
        return refused("mask", format!("{} x {} pixels", image.width, image.height));
    }
    let (step, width) = (image.step as usize, image.width as usize);
    let is_whole =
        step >= width && image.data.len() as u64 >= step as u64 * u64::from(image.height);
    if !is_whole {
        let got = image.data.len();
        return refused("mask", format!("{got} bytes in rows of {step} are too few"));
    }
    let rows = image.data.chunks_exact(step).take(image.height as usize);
    let pixels = rows.flat_map(|row| row[..width].iter().map(|&byte| byte != 0)).collect();
    Ok(Mask { camera: camera as usize, size, pixels })
}

fn refused<T>(field: &str, problem: impl Into<String>) -> Result<T> {
    Err(Error::Goal { field: field.into(), problem: problem.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_row_by_row_and_torn_ones_refused() {
        let image = Image {
            width: 2,
            height: 2,
            step: 3,
            encoding: "mono8".into(),
            data: vec![0, 7, 9, 255, 0, 9],
            ..Image::default()
        };
        let read = mask(&image, 1).unwrap();
        assert_eq!((read.camera, read.size), (1, [2, 2]));
        assert_eq!(read.pixels, [false, true, true, false]);
        for change in [
            |i: &mut Image| i.encoding = "rgb8".into(),
            |i: &mut Image| i.step = 1,
            |i: &mut Image| i.data.truncate(5),
            |i: &mut Image| i.height = u32::MAX,
            |i: &mut Image| i.width = 0,
        ] {
            let mut wrong = image.clone();
            change(&mut wrong);
            let told = mask(&wrong, 1).unwrap_err().to_string();
            assert!(told.starts_with("goal: mask: "), "{told}");
        }
        let forged = Image { encoding: "y\n".repeat(1 << 20), ..image };
        let told = mask(&forged, 1).unwrap_err().to_string();
        assert!(told.len() < 200 && !told.contains('\n'), "{told}");
    }
}
