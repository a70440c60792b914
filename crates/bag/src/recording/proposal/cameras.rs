//! The cameras of a recording.

use crate::bag::TopicInfo;
use forecloud::vision::frames::{CameraInput, CameraTopics};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Words in names of images that are neither colour nor depth.
const OTHER_WORDS: [&str; 12] = [
    "ir",
    "infra",
    "infra1",
    "infra2",
    "disparity",
    "confidence",
    "mask",
    "gray",
    "grey",
    "mono",
    "stereo",
    "ids",
];
const COLOR_WORDS: [&str; 3] = ["color", "colour", "rgb"];
/// Further words of the parts that tell what a camera's topic is, behind its namespace.
const STREAM_WORDS: [&str; 6] = ["depth", "image", "points", "points2", "point", "cloud"];
/// Parts of names of depth images that have a pixel for each of the colour image.
const REGISTERED: [&str; 4] =
    ["aligned_depth_to_color", "depth_to_rgb", "depth_to_color", "depth_registered"];

/// The topics of one namespace.
pub(super) struct Found {
    pub(super) namespace: String,
    /// Images, or else compressed ones.
    pub(super) images: Option<CameraTopics>,
    pub(super) points: Option<CameraTopics>,
    /// Whether its depth image may be registered or not.
    pub(super) is_unsure: bool,
    /// Why its images can't be used, where they can't.
    pub(super) lack: String,
}

impl Found {
    /// Takes depth whose name doesn't tell for what was said of it: not registered.
    pub(super) fn unregister(&mut self) {
        let Some(camera) = self.images.as_mut().filter(|_| self.is_unsure) else { return };
        if camera.depth_info.is_empty() {
            self.lack = format!(
                "its depth is not registered to colour, and has no calibration of its own beside {}",
                camera.depth
            );
            self.images = None;
        } else {
            camera.depth_registered = false;
        }
    }
}

/// An image topic.
#[derive(Clone, Copy)]
struct Image<'a> {
    topic: &'a TopicInfo,
    /// Its name without that of its compression.
    base: &'a str,
}

/// Finds all cameras, by namespace; also those of which topics are missing.
pub(super) fn find(topics: &[&TopicInfo]) -> Vec<Found> {
    let mut groups: BTreeMap<&str, Vec<&TopicInfo>> = BTreeMap::new();
    for topic in topics {
        groups.entry(namespace(&topic.name)).or_default().push(topic);
    }
    let found =
        groups.into_iter().map(|(namespace, group)| in_namespace(namespace, &group, topics));
    let mut found: Vec<Found> = found.flatten().collect();
    found.sort_by_cached_key(|camera| natural(&camera.namespace));
    found
}

/// A key by which `camera_2` comes before `camera_10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, after) =
            rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (digits, more) = after.split_at(end);
        parts.push((text.to_owned(), digits.parse().unwrap_or(0)));
        rest = more;
    }
    parts
}

/// What of a camera's images is missing.
fn lack(namespace: &str, group: &[&TopicInfo], all: &[&TopicInfo]) -> String {
    let inputs = [CameraInput::Images, CameraInput::Compressed];
    let images = || inputs.into_iter().flat_map(|i| group.iter().filter_map(move |t| image(t, i)));
    let has = |is_it: fn(&str) -> bool| images().any(|image| is_it(image.base));
    let is_here = |topic: &&&TopicInfo| super::cameras::namespace(&topic.name) == namespace;
    let has_calibration = all.iter().filter(is_here).any(|topic| is_calibration(topic));
    let parts = [
        (has(is_color), "colour images"),
        (has(is_depth), "depth images"),
        (has_calibration, "calibration (sensor_msgs/msg/CameraInfo)"),
    ];
    let of = |wanted: bool| {
        let parts = parts.iter().filter(move |(has, _)| *has == wanted).map(|(_, what)| *what);
        parts.collect::<Vec<_>>().join(" and ")
    };
    match (of(true).as_str(), of(false).as_str()) {
        (_, "") => "the names of its colour, depth and calibration don't tell what belongs together, or one \
                    of its images is compressed and the other is not"
            .into(),
        ("", lacks) => format!("it has no {lacks}: record them"),
        (has, lacks) => format!("it has {has}, and no {lacks}: record them"),
    }
}

/// `all`: the calibration may lie elsewhere.
fn in_namespace(namespace: &str, group: &[&TopicInfo], all: &[&TopicInfo]) -> Option<Found> {
    // As they are, before what was compressed; with colour, before depth alone.
    let inputs = [
        CameraInput::Images,
        CameraInput::DepthCompressed,
        CameraInput::ColorCompressed,
        CameraInput::Compressed,
    ];
    let images = inputs.into_iter().find_map(|input| pair(namespace, group, all, input));
    let clouds = group.iter().filter(|topic| topic.message_type == "sensor_msgs/msg/PointCloud2");
    let cloud = clouds.max_by_key(|topic| (has_color(&topic.name), topic.n_messages));
    let images = images.or_else(|| {
        let inputs = [CameraInput::DepthOnly, CameraInput::CompressedDepthOnly];
        let alone = |input| depth_alone(namespace, group, all, input);
        inputs.into_iter().filter(|_| cloud.is_none()).find_map(alone)
    });
    let points = cloud.map(|topic| CameraTopics {
        points: topic.name.to_string(),
        ..nameless(namespace, CameraInput::Points, true)
    });
    if images.is_none() && points.is_none() && !group.iter().any(|t| is_depth(&t.name)) {
        return None;
    }
    let with_color = images.as_ref().filter(|camera| camera.input.has_color());
    let depth = with_color.map(|camera| &*camera.depth);
    let is_unsure = depth.is_some_and(|depth| is_registered(depth).is_none());
    let lack = lack(namespace, group, all);
    Some(Found { namespace: namespace.into(), images, points, is_unsure, lack })
}

fn nameless(namespace: &str, input: CameraInput, depth_registered: bool) -> CameraTopics {
    let none = String::new;
    let (color, depth, color_info, depth_info) = (none(), none(), none(), none());
    let name = namespace.into();
    CameraTopics {
        name,
        input,
        depth_registered,
        color,
        depth,
        color_info,
        depth_info,
        points: none(),
    }
}

/// Colour, depth and calibration that belong together.
fn pair(
    namespace: &str,
    group: &[&TopicInfo],
    all: &[&TopicInfo],
    input: CameraInput,
) -> Option<CameraTopics> {
    let images: Vec<Image> = group.iter().filter_map(|topic| image(topic, input)).collect();
    let calibration = |base: &str| calibration(namespace, base, all);
    let depth = best_depth(&images)?;
    // A rectified depth image belongs to the rectified colour image.
    let is_rectified =
        |name: &str| words(name).any(|word| word == "rect") || name.ends_with("depth_registered");
    let colors = images.iter().filter(|image| is_color(image.base));
    let color = colors.max_by_key(|image| {
        (
            has_color(image.base),
            is_rectified(image.base) == is_rectified(depth.base),
            image.topic.n_messages,
            Reverse(image.base.len()),
        )
    })?;
    let own = calibration(depth.base);
    let registered = is_registered(depth.base).unwrap_or(true);
    let color_info = match registered {
        true => calibration(color.base).or_else(|| own.clone()),
        false => calibration(color.base),
    };
    if !registered && own.is_none() {
        return None;
    }
    Some(CameraTopics {
        color: color.topic.name.to_string(),
        depth: depth.topic.name.to_string(),
        color_info: color_info?,
        depth_info: own.unwrap_or_default(),
        ..nameless(namespace, input, registered)
    })
}

/// Depth with its calibration, of a camera that has no colour.
fn depth_alone(
    namespace: &str,
    group: &[&TopicInfo],
    all: &[&TopicInfo],
    input: CameraInput,
) -> Option<CameraTopics> {
    let images: Vec<Image> = group.iter().filter_map(|topic| image(topic, input)).collect();
    let depth = best_depth(&images)?;
    Some(CameraTopics {
        depth: depth.topic.name.to_string(),
        depth_info: calibration(namespace, depth.base, all)?,
        ..nameless(namespace, input, true)
    })
}

/// The depth image that is registered to colour, if one is.
fn best_depth<'a, 'b>(images: &'b [Image<'a>]) -> Option<&'b Image<'a>> {
    let depths = images.iter().filter(|image| is_depth(image.base));
    depths.max_by_key(|image| {
        let rank = is_registered(image.base).map_or(1, |registered| if registered { 2 } else { 0 });
        (rank, image.topic.n_messages, Reverse(image.base.len()))
    })
}

/// The calibration of an image topic.
fn calibration(namespace: &str, base: &str, all: &[&TopicInfo]) -> Option<String> {
    let stem = base.rsplit_once('/').map_or("", |(stem, _)| stem);
    let names = [format!("{stem}/camera_info"), format!("{base}/camera_info")];
    let mut names = names.into_iter().chain([format!("{namespace}/camera_info")]);
    names.find(|name| all.iter().any(|topic| *topic.name == **name && is_calibration(topic)))
}

fn is_calibration(topic: &TopicInfo) -> bool {
    topic.message_type == "sensor_msgs/msg/CameraInfo"
}

/// The topic as an image of this input, if it is one.
fn image(topic: &TopicInfo, input: CameraInput) -> Option<Image<'_>> {
    let name: &str = &topic.name;
    let is_compressed = match is_depth(name) {
        true => input.is_depth_compressed(),
        false => input.is_color_compressed(),
    };
    let base = match (is_compressed, &*topic.message_type) {
        (false, "sensor_msgs/msg/Image") => name,
        // Depth may be PNG of the transport of colours, too.
        (true, "sensor_msgs/msg/CompressedImage") => {
            let of_depth = name.strip_suffix("/compressedDepth").filter(|_| is_depth(name));
            of_depth.or_else(|| name.strip_suffix("/compressed"))?
        }
        _ => return None,
    };
    Some(Image { topic, base })
}

/// Words of a topic's name, in its own case.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['/', '_']).filter(|word| !word.is_empty())
}

fn is_one_of(words: &[&str], word: &str) -> bool {
    words.iter().any(|other| other.eq_ignore_ascii_case(word))
}

/// The part of the name before that which tells what the topic is.
fn namespace(name: &str) -> &str {
    let all_words = [&OTHER_WORDS[..], &COLOR_WORDS, &STREAM_WORDS];
    let is_stream =
        |part: &str| words(part).any(|word| all_words.iter().any(|w| is_one_of(w, word)));
    let parts = name.split_inclusive('/').take_while(|part| !is_stream(part));
    name[..parts.map(str::len).sum()].trim_end_matches('/')
}

/// What of the name tells what the topic is.
fn stream(name: &str) -> &str {
    &name[namespace(name).len()..]
}

/// Colour in the depth image's pixels is no depth.
fn is_depth(name: &str) -> bool {
    let stream = stream(name);
    let to_depth = ["rgb_to_depth", "color_to_depth"].iter().any(|part| stream.contains(part));
    words(stream).any(|word| is_one_of(&["depth", "compressedDepth"], word))
        && !to_depth
        && !words(stream).any(|word| is_one_of(&OTHER_WORDS, word))
}

fn is_color(name: &str) -> bool {
    let stream = stream(name);
    let is_other = |word| is_one_of(&OTHER_WORDS, word) || word.eq_ignore_ascii_case("depth");
    !words(stream).any(is_other)
}

fn has_color(name: &str) -> bool {
    let registered = REGISTERED.iter().any(|part| name.contains(part));
    registered
        || words(stream(name)).any(|word| is_one_of(&COLOR_WORDS, word) || word == "registered")
}

/// Whether a depth image is registered to colour, where its name tells.
fn is_registered(name: &str) -> Option<bool> {
    if name.split('/').any(|part| REGISTERED.contains(&part)) {
        Some(true)
    } else if name.contains("/image_rect_raw") {
        Some(false) // as the camera sees it (RealSense)
    } else {
        None
    }
}
