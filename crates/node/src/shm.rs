//! Whether Fast DDS has the shared memory that images need.
//!
//! Each participant (a process, roughly) makes a file of `segment_size` in /dev/shm, of which all
//! memory is taken at once. Where it finds no room, it goes on over UDP without a word to ROS, and
//! best-effort images get lost.

use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/dev/shm";
/// What Fast DDS takes where no profile says more, bytes.
const DEFAULT_SEGMENT: u64 = 512 << 10;
/// A segment's file is larger than the segment, which is rounded here.
const OVERHEAD: f64 = 1.05;
/// Images that a segment should hold: a reader that is late still finds the last ones.
const IMAGES_PER_SEGMENT: u64 = 4;

/// What is known when a check is made.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    /// The middleware, as RMW_IMPLEMENTATION names it.
    pub middleware: String,
    /// FASTDDS_BUILTIN_TRANSPORTS: other transports than the usual ones.
    pub builtin_transports: String,
    /// The profile that this process was started with.
    pub profile: Option<Profile>,
    /// Size of /dev/shm and what is free of it, bytes; none where there is no such thing.
    pub space: Option<(u64, u64)>,
    /// Bytes of the largest segment that this process maps.
    pub own_segment: u64,
    /// Segments of all processes that are as large as the profile says.
    pub n_segments: u64,
    /// Nodes that publish images to this one.
    pub n_publishers: u64,
    /// Bytes of the largest image so far.
    pub largest_image: u64,
    /// Whether images get lost.
    pub losing: bool,
}

/// A profile of Fast DDS.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The file.
    pub path: PathBuf,
    /// Bytes of a segment, none without shared memory; or why the file can't be used.
    pub segment: Result<Option<u64>, String>,
}

/// Looks at the files and variables that the checks are about.
#[derive(Debug)]
pub struct Memory {
    middleware: String,
    builtin_transports: String,
    profile: Option<Profile>,
}

impl Memory {
    /// Of this process.
    pub fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let middleware = variable("RMW_IMPLEMENTATION");
        let builtin_transports = variable("FASTDDS_BUILTIN_TRANSPORTS");
        // Fast DDS 3 (from Kilted on) has new names for the variable and the file.
        let old = matches!(r2r::ROS_DISTRO, "humble" | "iron" | "jazzy");
        let (name, file) = match old {
            true => ("FASTRTPS_DEFAULT_PROFILES_FILE", "DEFAULT_FASTRTPS_PROFILES.xml"),
            false => ("FASTDDS_DEFAULT_PROFILES_FILE", "DEFAULT_FASTDDS_PROFILES.xml"),
        };
        let named = std::env::var_os(name).filter(|name| !name.is_empty()).map(PathBuf::from);
        let beside = || Some(PathBuf::from(file)).filter(|path| path.is_file());
        let profile = named.or_else(beside).map(Profile::read);
        Self { middleware, builtin_transports, profile }
    }

    /// What the checks need, as it is now.
    pub fn look(&self, n_publishers: u64, largest_image: u64, losing: bool) -> Conditions {
        let segment = self.profile.as_ref().and_then(|profile| profile.segment.clone().ok());
        let segment = segment.flatten().unwrap_or(DEFAULT_SEGMENT);
        Conditions {
            middleware: self.middleware.clone(),
            builtin_transports: self.builtin_transports.clone(),
            profile: self.profile.clone(),
            space: space(),
            own_segment: fs::read_to_string("/proc/self/maps")
                .map_or(0, |maps| largest_segment(&maps)),
            n_segments: n_segments(segment),
            n_publishers,
            largest_image,
            losing,
        }
    }
}

impl Profile {
    fn read(path: PathBuf) -> Self {
        let segment = match fs::read_to_string(&path) {
            Ok(xml) => Ok(segment_bytes(&xml)),
            Err(error) => Err(error.to_string()),
        };
        Self { path, segment }
    }
}

impl Conditions {
    /// What is wrong, with remedies; and the figures.
    pub fn check(&self) -> (Vec<String>, Vec<(String, String)>) {
        let fast = self.middleware.is_empty() || self.middleware.starts_with("rmw_fastrtps");
        let usual = matches!(self.builtin_transports.as_str(), "" | "DEFAULT");
        let mut values = vec![
            ("middleware".to_owned(), self.middleware.clone()),
            ("builtin_transports".into(), self.builtin_transports.clone()),
        ];
        if !fast || !usual {
            return (Vec::new(), values);
        }
        let profile = self.profile.as_ref();
        values.push((
            "profile".into(),
            profile.map_or("none".into(), |p| p.path.display().to_string()),
        ));
        let segment = match profile.map(|profile| (&profile.path, &profile.segment)) {
            Some((path, Err(error))) => {
                let problem = format!(
                    "the DDS profile {} can't be read ({error}), so Fast DDS runs without it. \
                     Remedy: correct FASTRTPS_DEFAULT_PROFILES_FILE (from Kilted on: \
                     FASTDDS_DEFAULT_PROFILES_FILE)",
                    path.display()
                );
                return (vec![problem], values);
            }
            Some((_, Ok(Some(segment)))) => *segment,
            Some((_, Ok(None))) => {
                values.push(("segment_bytes".into(), "none: the profile has no SHM".into()));
                return (Vec::new(), values);
            }
            None => DEFAULT_SEGMENT,
        };
        values.push(("segment_bytes".into(), segment.to_string()));
        values.push(("own_segment_bytes".into(), self.own_segment.to_string()));
        if let Some((total, free)) = self.space {
            values.push(("shm_bytes".into(), total.to_string()));
            values.push(("shm_free_bytes".into(), free.to_string()));
        }
        values.push(("largest_image_bytes".into(), self.largest_image.to_string()));
        let problems = [self.too_small_folder(segment), self.too_small_segment(segment)];
        (problems.into_iter().flatten().collect(), values)
    }

    fn too_small_folder(&self, segment: u64) -> Option<String> {
        let (total, free) = self.space?;
        let needed = (segment as f64 * OVERHEAD) as u64;
        let wanted = needed * (1 + self.n_publishers.max(1));
        let problem = if self.own_segment < segment {
            "this node's segment found no room there: its predictions go over UDP".to_owned()
        } else if free < needed && self.n_segments < 1 + self.n_publishers {
            format!(
                "of {} publishers of images and this node, {} have such a segment, and no other \
                 one finds room: images may go over UDP and get lost",
                self.n_publishers, self.n_segments
            )
        } else {
            return None;
        };
        Some(format!(
            "{FOLDER} has {} ({} free), and a segment of Fast DDS takes {} of it; {problem}. \
             Remedy: make it {} or more (in Docker: --shm-size or --ipc=host), or lower \
             segment_size",
            mebibytes(total),
            mebibytes(free),
            mebibytes(needed),
            mebibytes(wanted)
        ))
    }

    fn too_small_segment(&self, segment: u64) -> Option<String> {
        if self.largest_image * IMAGES_PER_SEGMENT <= segment {
            return None;
        }
        let image = mebibytes(self.largest_image);
        match self.profile {
            None if self.losing => Some(format!(
                "images of {image} get lost, and this process has no DDS profile: Fast DDS's own \
                 segments of {} are too small for them. Remedy: start their publishers (theirs \
                 counts) and this node with FASTRTPS_DEFAULT_PROFILES_FILE set to \
                 config/fastdds_large_clouds.xml",
                mebibytes(segment)
            )),
            None => None,
            Some(_) => Some(format!(
                "a segment of the DDS profile, {}, holds fewer than {IMAGES_PER_SEGMENT} images \
                 of {image}. Remedy: raise segment_size in it, for the publishers of the images \
                 too",
                mebibytes(segment)
            )),
        }
    }
}

/// `segment_size` of the shared-memory transport in a profile of Fast DDS, or what it is without
/// one; none if the profile leaves that transport out.
fn segment_bytes(xml: &str) -> Option<u64> {
    let text = without_comments(xml);
    let transports = text.split("<transport_descriptor>").skip(1);
    let own = transports
        .map(|transport| transport.split("</transport_descriptor>").next().unwrap_or_default())
        .find(|transport| element(transport, "type") == Some("SHM"));
    let size = |transport| element(transport, "segment_size")?.parse().ok();
    match own {
        Some(transport) => Some(size(transport).unwrap_or(DEFAULT_SEGMENT)),
        None if element(&text, "useBuiltinTransports") == Some("false") => None,
        None => Some(DEFAULT_SEGMENT),
    }
}

fn without_comments(xml: &str) -> String {
    let mut parts = xml.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("-->").map_or("", |(_, after)| after))
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = xml.split_once(&format!("<{name}>"))?;
    Some(after.split_once(&format!("</{name}>"))?.0.trim())
}

/// Size of /dev/shm and what is free of it, bytes.
fn space() -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(FOLDER).ok()?;
    Some((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

/// Bytes of the largest segment among a process's mappings, as /proc/self/maps lists them.
fn largest_segment(maps: &str) -> u64 {
    let name = |line: &str| line.rsplit('/').next().unwrap_or_default().to_owned();
    let segments =
        maps.lines().filter(|line| is_segment(name(line).trim_end_matches(" (deleted)")));
    let sizes = segments.filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)
    });
    sizes.max().unwrap_or(0)
}

/// Segments in /dev/shm of at least `bytes`.
fn n_segments(bytes: u64) -> u64 {
    let entries = fs::read_dir(Path::new(FOLDER)).into_iter().flatten().flatten();
    let segments = entries.filter(|entry| {
        is_segment(&entry.file_name().to_string_lossy())
            && entry.metadata().is_ok_and(|metadata| metadata.len() >= bytes)
    });
    segments.count() as u64
}

/// `fastrtps_` (from version 3 on `fastdds_`) and 16 hexadecimal digits.
fn is_segment(name: &str) -> bool {
    let id = name.strip_prefix("fastrtps_").or_else(|| name.strip_prefix("fastdds_"));
    id.is_some_and(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A profile of 64 MiB with all room for it.
    fn fine() -> Conditions {
        let path = PathBuf::from("profile.xml");
        Conditions {
            middleware: "rmw_fastrtps_cpp".into(),
            builtin_transports: String::new(),
            profile: Some(Profile { path, segment: Ok(Some(64 * MIB)) }),
            space: Some((1024 * MIB, 512 * MIB)),
            own_segment: 67 * MIB,
            n_segments: 2,
            n_publishers: 1,
            largest_image: 5 * MIB,
            losing: false,
        }
    }

    fn problem(change: impl FnOnce(&mut Conditions)) -> String {
        let mut conditions = fine();
        change(&mut conditions);
        conditions.check().0.join("; ")
    }

    #[test]
    fn what_is_too_small_is_said_with_its_remedy() {
        for (change, told) in [
            ((|_| ()) as fn(&mut Conditions), ""),
            (|c| (c.own_segment, c.space) = (0, Some((64 * MIB, 63 * MIB))), "--shm-size"),
            (|c| (c.n_segments, c.space) = (1, Some((100 * MIB, 32 * MIB))), "--ipc=host"),
            // Those who need a segment have one already.
            (|c| (c.n_segments, c.space) = (2, Some((140 * MIB, 6 * MIB))), ""),
            (|c| c.largest_image = 17 * MIB, "fewer than 4 images of 17.0 MiB"),
            (|c| (c.profile, c.own_segment, c.losing) = (None, 549_408, true), "no DDS profile"),
            (|c| (c.profile, c.own_segment) = (None, 549_408), ""),
            (|c| c.profile.as_mut().unwrap().segment = Err("no such file".into()), "no such file"),
            (|c| (c.middleware, c.own_segment) = ("rmw_cyclonedds_cpp".into(), 0), ""),
            (|c| (c.builtin_transports, c.own_segment) = ("LARGE_DATA".into(), 0), ""),
            (|c| (c.profile.as_mut().unwrap().segment, c.own_segment) = (Ok(None), 0), ""),
            (|c| c.space = None, ""),
        ] {
            let text = problem(change);
            assert!(text.contains(told) && text.is_empty() == told.is_empty(), "{told}: {text}");
        }
    }

    #[test]
    fn the_shipped_profile_has_segments_of_64_mebibytes() {
        let xml = include_str!("../../../config/fastdds_large_clouds.xml");
        assert_eq!(segment_bytes(xml), Some(64 * MIB));
        assert_eq!(segment_bytes(&xml.replace("SHM", "UDPv4")), None);
        assert_eq!(segment_bytes("<!-- <transport_descriptor>"), Some(DEFAULT_SEGMENT));
        let commented = xml
            .replace("<segment_size>", "<!-- <segment_size>")
            .replace("</segment_size>", "</segment_size> -->");
        assert_eq!(segment_bytes(&commented), Some(DEFAULT_SEGMENT));
    }

    #[test]
    fn segments_are_told_from_ports_and_semaphores() {
        let maps = "7f0000000000-7f0000001000 rw-s 00000000 00:1a 5 /dev/shm/fastrtps_port7411\n\
                    7f0000000000-7f0004300000 rw-s 00000000 00:1a 6 /dev/shm/fastrtps_ab3a7ed019276f89\n\
                    7f0000000000-7f0000086000 rw-s 00000000 00:1a 7 /dev/shm/fastrtps_83becf5b4fa3e48e\n\
                    7f0000000000-7f9990000000 r-xp 00000000 00:1a 7 /lib/libfastrtps.so\n";
        assert_eq!(largest_segment(maps), 0x430_0000);
        assert_eq!(largest_segment("nonsense"), 0);
        assert!(
            is_segment("fastdds_ab3a7ed019276f89") && !is_segment("fastrtps_ab3a7ed019276f89_el")
        );
    }
}
