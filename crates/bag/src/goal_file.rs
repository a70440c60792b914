//! Goals as YAML files: the fields of `msg/Goal.msg`, with a mask as a PNG beside the file.

use std::path::Path;

use serde::Deserialize;

use crate::yaml;

use forecloud::planner::costs::{Goal, Mask, Reach, Select, Zone};
use forecloud::{Error, Result};

/// Bytes of a goal file at most.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    select: SelectFile,
    reach: ReachFile,
    reach_weight: Option<f64>,
    tolerance: Option<f64>,
    #[serde(default)]
    keep_out: Vec<Zone>,
    keep_out_weight: Option<f64>,
    leave_weight: Option<f64>,
    clearance: Option<f64>,
    clearance_weight: Option<f64>,
    kappa: Option<f64>,
    length_weight: Option<f64>,
    smoothness_weight: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectFile {
    region: Option<Zone>,
    pixels: Option<PixelsFile>,
    body: Option<[f64; 3]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PixelsFile {
    #[serde(default)]
    camera: usize,
    mask: std::path::PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReachFile {
    #[serde(rename = "box")]
    zone: Option<Zone>,
    cloud: Option<Vec<[f64; 3]>>,
    pose: Option<PoseFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoseFile {
    #[serde(default = "no_rotation")]
    rotation: [f64; 4],
    #[serde(default)]
    translation: [f64; 3],
}

fn no_rotation() -> [f64; 4] {
    [0.0, 0.0, 0.0, 1.0]
}

/// Reads a goal from a YAML file; a mask's path is told from the file's folder.
///
/// # Errors
/// [`Error::Io`] if a file can't be read, and as [`parse_goal`].
pub fn read_goal(path: &Path) -> Result<Goal> {
    let io = |cause| Error::Io { path: path.into(), cause };
    let place = path.display().to_string();
    let text = yaml::read_text(path, MAX_BYTES).map_err(io)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    parse_goal(&text, &place, |mask, camera| read_mask(&folder.join(mask), camera))
}

/// A goal from YAML, of which JSON is a part. `place` names the text in errors; `mask` gives the mask of
/// that path and camera.
///
/// # Errors
/// [`Error::Goal`] for what is not understood, as [`Goal::validate`], and as `mask`.
pub fn parse_goal(
    text: &str,
    place: &str,
    mask: impl FnOnce(&Path, usize) -> Result<Mask>,
) -> Result<Goal> {
    let wrong = |problem: String| Error::Goal { field: place.to_owned(), problem };
    // Some editors begin a file with a byte-order mark; the parser takes it for a document of its own.
    let text = text.trim_start_matches('\u{feff}');
    let file: File = yaml::parse(text).map_err(wrong)?;
    let select = match file.select {
        SelectFile { region: Some(zone), pixels: None, body: None } => Select::Region(zone),
        SelectFile { region: None, pixels: Some(pixels), body: None } => {
            Select::Pixels(mask(&pixels.mask, pixels.camera)?)
        }
        SelectFile { region: None, pixels: None, body: Some(point) } => Select::Body(point),
        _ => return Err(wrong("select: give one of region, pixels, body".into())),
    };
    let reach = match file.reach {
        ReachFile { zone: Some(zone), cloud: None, pose: None } => Reach::Box(zone),
        ReachFile { zone: None, cloud: Some(cloud), pose: None } => Reach::Cloud(cloud),
        ReachFile { zone: None, cloud: None, pose: Some(pose) } => {
            Reach::Pose { rotation: pose.rotation, translation: pose.translation }
        }
        _ => return Err(wrong("reach: give one of box, cloud, pose".into())),
    };
    let usual = Goal::new(select, reach);
    let goal = Goal {
        reach_weight: file.reach_weight.unwrap_or(usual.reach_weight),
        tolerance: file.tolerance.unwrap_or(usual.tolerance),
        keep_out: file.keep_out,
        keep_out_weight: file.keep_out_weight.unwrap_or(usual.keep_out_weight),
        leave_weight: file.leave_weight.unwrap_or(usual.leave_weight),
        clearance: file.clearance.unwrap_or(usual.clearance),
        clearance_weight: file.clearance_weight.unwrap_or(usual.clearance_weight),
        kappa: file.kappa.unwrap_or(usual.kappa),
        length_weight: file.length_weight.unwrap_or(usual.length_weight),
        smoothness_weight: file.smoothness_weight.unwrap_or(usual.smoothness_weight),
        ..usual
    };
    goal.validate()?;
    Ok(goal)
}

/// A mask from a PNG of one channel, 8 bits or less: what is not 0 is the target's.
fn read_mask(path: &Path, camera: usize) -> Result<Mask> {
    let wrong = |problem: String| Error::Goal { field: path.display().to_string(), problem };
    let file = std::fs::File::open(path).map_err(|cause| Error::Io { path: path.into(), cause })?;
    let mut decoder = png::Decoder::new_with_limits(
        std::io::BufReader::new(file),
        png::Limits { bytes: 64 << 20 },
    );
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(|error| wrong(error.to_string()))?;
    let size = [reader.info().width, reader.info().height];
    let (color, _) = reader.output_color_type();
    if color != png::ColorType::Grayscale {
        return Err(wrong(format!("{color:?} pixels: save the mask as grey, one channel")));
    }
    let n_bytes = reader.output_buffer_size().filter(|&n| n <= 64 << 20);
    let n_bytes = n_bytes.ok_or_else(|| wrong(format!("{size:?} pixels are too many")))?;
    let mut bytes = vec![0; n_bytes];
    reader.next_frame(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    Ok(Mask { camera, size, pixels: bytes.iter().map(|&byte| byte != 0).collect() })
}
