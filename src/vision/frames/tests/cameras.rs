//! Cameras of different rates, free-running ones, and cameras that fall silent.

use super::*;
use crate::base::random::{draw, uniform};

/// Images of one camera: colour and depth of each stamp at which it sends.
struct Source {
    camera: usize,
    period_ms: f64,
    offset_ms: f64,
    sends: fn(f64) -> bool,
}

const fn source(camera: usize, period_ms: f64) -> Source {
    Source { camera, period_ms, offset_ms: 0.0, sends: |_| true }
}

fn nanos(ms: f64) -> i64 {
    START_NS + (ms * 1e6).round() as i64
}

/// Messages of `secs` seconds in the order of arrival: each up to `late_ms` after its stamp.
fn messages(sources: &[Source], secs: f64, seed: u64, late_ms: f64) -> Vec<Input> {
    let mut inputs = Vec::new();
    let mut n = 0;
    let mut push = |stamp: i64, input| {
        n += 1;
        let late = f64::from(uniform(draw(seed, 0, n, 0))) * late_ms * 1e6;
        inputs.push((stamp + late as i64, n, input));
    };
    for source in sources {
        let n_images = (1e3 * secs / source.period_ms) as i64;
        let times = (0..n_images).map(|i| i as f64 * source.period_ms + source.offset_ms);
        for stamp in times.filter(|&ms| (source.sends)(ms)).map(nanos) {
            push(stamp, color(source.camera, stamp));
            push(stamp, depth(source.camera, stamp));
        }
    }
    for i in -5..(secs * 100.0) as i64 + 5 {
        let stamp = nanos(i as f64 * 10.0);
        push(stamp, joint("a", stamp, i as f64));
    }
    inputs.sort_by_key(|&(arrival, n, _)| (arrival, n));
    inputs.into_iter().map(|(.., input)| input).collect()
}

/// Frames as (milliseconds, cameras).
fn frames_of(frames: &mut Frames, inputs: Vec<Input>) -> Vec<(f64, Vec<usize>)> {
    let mut made: Vec<Frame> = inputs.into_iter().filter_map(|input| push(frames, input)).collect();
    made.extend(std::iter::from_fn(|| frames.finish()));
    let secs = |frame: &Frame| frame.stamp.secs_since(Stamp::from_nanos(START_NS));
    made.iter().map(|f| (secs(f) * 1e3, f.camera_numbers().collect())).collect()
}

fn made(sources: &[Source], secs: f64) -> (Frames, Vec<(f64, Vec<usize>)>) {
    let mut frames = ready();
    let made = frames_of(&mut frames, messages(sources, secs, 0, 0.0));
    (frames, made)
}

#[test]
fn frames_come_at_the_slower_rate_and_the_surplus_is_no_problem() {
    for periods in [[33.3, 66.6], [66.6, 33.3], [33.3, 40.0], [40.0, 33.3], [33.3, 500.0]] {
        let [a, b] = periods;
        let (frames, made) = made(&[source(0, a), source(1, b)], 6.0);
        let n = (6e3 / a.max(b)) as usize;
        let counts = frames.counts();
        assert!(made.len().abs_diff(n) <= 1, "{} frames of {n}: {periods:?}", made.len());
        assert!(made.iter().all(|(_, cameras)| *cameras == [0, 1]));
        assert_eq!((counts.dropped_unpaired, frames.last_problem()), (0, None), "{periods:?}");
        let n_surplus = 2 * ((6e3 / a) as u64).abs_diff((6e3 / b) as u64);
        assert!(counts.images_surplus.abs_diff(n_surplus) <= 32, "{counts:?} {n_surplus}");
    }
}

#[test]
fn colour_of_another_rate_pairs_too() {
    let mut frames = ready();
    let inputs = messages(&[source(0, 40.0), source(1, 40.0)], 2.0, 0, 0.0);
    let mut n = 0;
    let slower = inputs.into_iter().filter(|input| match input {
        Input::Color { camera: 0, .. } => {
            n += 1;
            n % 2 == 1
        }
        _ => true,
    });
    let made = frames_of(&mut frames, slower.collect());
    assert_eq!(made.len(), 25, "{made:?}");
    // Depth of camera 0, and both images of camera 1.
    let counts = frames.counts();
    assert_eq!((counts.dropped_unpaired, frames.last_problem()), (0, None), "{counts:?}");
    assert!((70..=75).contains(&counts.images_surplus), "{counts:?}");
}

#[test]
fn a_lost_image_is_a_problem_and_named_with_its_topic() {
    let lossy = Source { sends: |ms| ms != 400.0, ..source(1, 40.0) };
    let (frames, made) = made(&[source(0, 40.0), lossy], 2.0);
    assert_eq!(made.len(), 49);
    let counts = frames.counts();
    assert_eq!((counts.dropped_unpaired, counts.images_surplus), (2, 0), "{counts:?}");
    let problem = frames.last_problem().expect("a problem");
    assert!(problem.contains("'camera_right'") && problem.contains("ros2 topic hz"), "{problem}");
}

#[test]
fn the_closest_pair_of_free_running_cameras_tells_the_tolerance() {
    let apart = || [source(0, 100.0), Source { offset_ms: 31.0, ..source(1, 100.0) }];
    let (frames, made) = made(&apart(), 2.0);
    assert_eq!(made, []);
    // The first camera sent once before the other one did.
    assert_eq!((frames.counts().dropped_unpaired, frames.counts().images_surplus), (78, 2));
    let problem = frames.last_problem().expect("a problem");
    let told = "closest pair 31.0 ms apart: raise tolerance_secs above 0.031 or synchronise";
    assert!(problem.contains(told), "{problem}");

    let config = FramesConfig { tolerance_secs: 0.0311, ..FramesConfig::default() };
    let mut frames = ready_with(config);
    let made = frames_of(&mut frames, messages(&apart(), 2.0, 0, 0.0));
    assert_eq!((made.len(), made[3].0), (20, 300.0), "{:?}", frames.counts());
}

#[test]
fn a_faster_reference_takes_the_nearest_of_a_free_running_camera() {
    let config = FramesConfig { tolerance_secs: 0.04, ..FramesConfig::default() };
    let mut frames = ready_with(config);
    let slow = Source { offset_ms: 30.0, ..source(1, 66.6) };
    let made = frames_of(&mut frames, messages(&[source(0, 33.3), slow], 2.0, 0, 0.0));
    // 30 ms lies 3 ms before 33.3, not 30 ms behind 0.
    assert!((made[1].0 - 33.3 - 66.6).abs() < 1e-6, "{made:?}");
    assert!(made.len() >= 29, "{}", made.len());
}

const SILENT: fn(f64) -> bool = |ms| !(1000.0..4000.0).contains(&ms);

#[test]
fn frames_go_on_without_a_silent_camera_and_take_it_back() {
    for silent in [0, 1] {
        let other = Source { offset_ms: 3.0, ..source(1 - silent, 40.0) };
        let lossy = Source { sends: SILENT, ..source(silent, 40.0) };
        let mut frames = ready();
        let (mut n_left, mut n_back, mut frames_made) = (0, 0, Vec::new());
        for input in messages(&[other, lossy], 6.0, 0, 0.0) {
            frames_made.extend(push(&mut frames, input));
            let name = ["camera_left", "camera_right"][silent];
            match frames.take_problem() {
                Some(problem) if problem.contains("is left out, frames go on without it") => {
                    assert!(problem.contains(&format!("nothing readable came on /{name}/color")));
                    assert!(frames.absent_cameras().eq([name]));
                    n_left += 1;
                }
                _ => {}
            }
            if let Some(news) = frames.take_news() {
                assert!(news.contains(name) && frames.absent_cameras().next().is_none());
                n_back += 1;
            }
        }
        assert_eq!((n_left, n_back), (1, 1));
        let start = Stamp::from_nanos(START_NS);
        let ms: Vec<f64> = frames_made.iter().map(|f| f.stamp.secs_since(start) * 1e3).collect();
        let longest = ms.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!((1000.0..1080.0).contains(&longest), "{longest} ms without a frame");
        let whole = |f: &&Frame| f.cameras.len() == 2;
        let (n_whole, n_all) = (frames_made.iter().filter(whole).count(), frames_made.len());
        let counts = frames.counts();
        assert_eq!(counts.frames_without_camera as usize, n_all - n_whole);
        assert_eq!((counts.cameras_left_out, counts.time_jumps), (1, 0));
        // 25 of each second with both; those of the silence from 2 s on with the other one.
        assert!(
            (65..=75).contains(&n_whole) && (50..=60).contains(&(n_all - n_whole)),
            "{n_whole} {n_all}"
        );
        let alone = frames_made.iter().filter(|f| f.cameras.len() == 1);
        assert!(alone.clone().all(|f| f.cameras[0].camera == 1 - silent));
        // The one that is there sets the stamps: 3 ms behind those of the silent one.
        assert!(alone.clone().all(|f| (f.stamp.nanos() - START_NS) % 40_000_000 == 3_000_000));
        assert!(frames_made.last().expect("frames").cameras.len() == 2);
    }
}

#[test]
fn a_camera_that_never_sent_is_waited_for_and_then_left_out() {
    let (frames, made) = made(&[source(1, 40.0)], 3.0);
    assert!((1000.0..=1080.0).contains(&made[0].0), "{made:?}");
    assert!(made.len() >= 48 && made.iter().all(|(_, cameras)| *cameras == [1]));
    assert_eq!(frames.counts().frames_without_camera, made.len() as u64);
    assert!(frames.absent_cameras().eq(["camera_left"]));
}

#[test]
fn a_pause_of_all_cameras_leaves_none_out() {
    let paused = |camera| Source { sends: SILENT, ..source(camera, 40.0) };
    let (frames, made) = made(&[paused(0), paused(1)], 6.0);
    assert_eq!(made.len(), 75);
    let expected = FrameCounts { frames: 75, ..FrameCounts::default() };
    assert_eq!((*frames.counts(), frames.last_problem()), (expected, None));
}

#[test]
fn a_camera_without_colour_images_gives_nothing_and_is_told() {
    let mut frames = ready();
    let inputs = messages(&[source(0, 40.0), source(1, 40.0)], 3.0, 0, 0.0).into_iter();
    let blind = inputs.filter(|input| !matches!(input, Input::Color { camera: 1, .. }));
    let mut left_out = None;
    let mut made = Vec::new();
    for input in blind {
        made.extend(push(&mut frames, input));
        left_out = frames.take_problem().filter(|p| p.contains("is left out")).or(left_out);
    }
    assert!(made.len() >= 48 && made.iter().all(|frame| frame.camera_numbers().eq([0])));
    let left_out = left_out.expect("a problem");
    assert!(left_out.contains("nothing readable came on /camera_right/color/image_raw for 1 s"));
}

#[test]
fn a_clock_that_lies_behind_is_told() {
    let behind = Source { offset_ms: -5000.0, ..source(1, 40.0) };
    let mut frames = ready();
    // Both send at once, 5 s apart by their stamps.
    let mut inputs: Vec<_> = messages(&[source(0, 40.0)], 3.0, 0, 0.0).into_iter().rev().collect();
    let mut other: Vec<_> = messages(&[behind], 3.0, 0, 0.0)
        .into_iter()
        .filter(|input| !matches!(input, Input::JointState(_)))
        .rev()
        .collect();
    let (mut n_frames, mut told) = (0, Vec::new());
    while let Some(input) = inputs.pop() {
        n_frames += push(&mut frames, input).iter().count();
        other
            .pop()
            .into_iter()
            .for_each(|input| n_frames += push(&mut frames, input).iter().count());
        told.extend(frames.take_problem().filter(|problem| problem.contains("clocks")));
    }
    assert!(n_frames > 40, "{n_frames}");
    assert!(told[0].contains("'camera_right'") && told[0].contains("s behind"), "{told:?}");
}

#[test]
fn a_camera_slower_than_the_timeout_is_told_what_to_set() {
    let slow = Source { offset_ms: 0.0, ..source(1, 1500.0) };
    let mut frames = ready();
    let (mut told, mut stamps) = (Vec::new(), Vec::new());
    for input in messages(&[source(0, 50.0), slow], 12.0, 0, 0.0) {
        stamps.extend(push(&mut frames, input).map(|frame| frame.stamp));
        told.extend(frames.take_problem().filter(|problem| problem.contains("left out")));
    }
    // When it is left out, and when its period is known; not each time that it sends.
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("it sends every 1.5 s: set camera_timeout_secs to 3"), "{told:?}");
    assert!(stamps.len() > 200, "{}", stamps.len());

    let config = FramesConfig { camera_timeout_secs: 3.0, ..FramesConfig::default() };
    let slow = source(1, 1500.0);
    let inputs = messages(&[source(0, 50.0), slow], 12.0, 0, 0.0);
    let made = frames_of(&mut ready_with(config), inputs);
    assert_eq!(made.len(), 8, "{made:?}");
}

#[test]
fn arrival_within_a_frames_time_changes_nothing_whatever_the_rates() {
    let cases: [fn() -> [Source; 2]; 6] = [
        || [source(0, 33.3), Source { sends: SILENT, ..source(1, 66.6) }],
        || [source(0, 66.6), Source { sends: SILENT, ..source(1, 33.3) }],
        || [Source { sends: SILENT, ..source(0, 66.6) }, source(1, 33.3)],
        || [Source { sends: SILENT, ..source(0, 33.3) }, source(1, 66.6)],
        || {
            [
                Source { sends: SILENT, ..source(0, 33.3) },
                Source { offset_ms: 9.0, ..source(1, 33.3) },
            ]
        },
        || {
            [
                Source { offset_ms: 17.0, ..source(0, 40.0) },
                Source { sends: SILENT, ..source(1, 66.6) },
            ]
        },
    ];
    for (case, sources) in cases.into_iter().enumerate() {
        let mut frames = ready();
        let expected = frames_of(&mut frames, messages(&sources(), 7.0, 0, 0.0));
        let n_parts = expected.iter().filter(|(_, cameras)| cameras.len() == 1).count();
        assert!(expected.len() > 60 && n_parts > 20, "{case}: {} {n_parts}", expected.len());
        for seed in 1..=30 {
            let mut again = ready();
            let got = frames_of(&mut again, messages(&sources(), 7.0, seed, 33.0));
            assert_eq!(got, expected, "case {case}, seed {seed}");
            assert_eq!(again.counts().frames_without_camera, frames.counts().frames_without_camera);
        }
    }
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut frames = ready();
    for i in 0..3000 {
        let at = |camera: i64| START_NS + i * 33_000_000 + camera * (i % 37) * 1_000_000;
        for camera in 0..2 {
            push(&mut frames, color(camera, at(camera as i64)));
            push(&mut frames, depth(camera, at(camera as i64) + (i % 11) * 3_000_000));
        }
    }
    let waiting: u64 = frames.waiting.iter().map(|(set, _)| set.n_images()).sum();
    let paired: u64 = frames.pairers.iter().map(ImagePairer::n_held).sum();
    let n_held = waiting + paired + frames.sets.n_held();
    assert!(n_held <= 2 * 4 * 8 + 4, "{n_held}");
}

/// The frames of images at 10 Hz, of both cameras, from number `from` on.
fn see(frames: &mut Frames, numbers: std::ops::Range<i64>) -> Vec<Frame> {
    let mut made = Vec::new();
    for i in numbers {
        for input in images(START_NS + i * PERIOD_NS) {
            made.extend(push(frames, input));
            made.extend(std::iter::from_fn(|| frames.take_frame()));
        }
    }
    made
}

#[test]
fn a_camera_that_lacks_something_is_left_out_like_a_silent_one_and_taken_back() {
    type Lacks = (fn() -> Input, fn(&FrameCounts) -> u64);
    let cases: [Lacks; 2] = [
        (|| Input::TfStatic(transform(0, 0, 0.0)), |counts| counts.dropped_no_tf),
        (|| info(0, 2), |counts| counts.dropped_no_info),
    ];
    for (lacking, count) in cases {
        let config = FramesConfig { robot: RobotMode::None, ..FramesConfig::default() };
        let mut frames = Frames::new(config);
        push(&mut frames, info(1, 2));
        push(&mut frames, Input::TfStatic(transform(1, 0, 1.0)));
        for input in [Input::TfStatic(transform(0, 0, 0.0)), info(0, 2)] {
            if input != lacking() {
                push(&mut frames, input);
            }
        }
        let made = see(&mut frames, 0..30);
        assert!((10..=12).contains(&count(frames.counts())), "{:?}", frames.counts());
        assert!(made.len() >= 17, "{}", made.len());
        assert!(made.iter().all(|frame| frame.camera_numbers().eq([1])));
        assert_eq!(frames.counts().cameras_left_out, 1);
        assert_eq!(frames.absent_cameras().collect::<Vec<_>>(), ["camera_left"]);
        let problem = frames.take_problem().expect("a problem");
        assert!(
            problem.contains("'camera_left' is left out, frames go on without it"),
            "{problem}"
        );
        push(&mut frames, lacking());
        let made = see(&mut frames, 30..33);
        assert!(made[1..].iter().all(|frame| frame.camera_numbers().eq([0, 1])), "{made:?}");
        assert!(frames.take_news().is_some_and(|news| news.contains("back in the frames")));
        assert_eq!(frames.absent_cameras().count(), 0);
    }
}

#[test]
fn moving_transforms_that_come_late_are_waited_for() {
    // 30 Hz images; the second camera's transforms at 20 Hz, 20 ms late.
    let config = FramesConfig { robot: RobotMode::None, ..FramesConfig::default() };
    let mut frames = ready_with(config);
    let mut inputs = Vec::new();
    for i in 0..120 {
        let nanos = START_NS + i * 33_333_333;
        inputs.extend(images(nanos).map(|input| (nanos + 5_000_000, input)));
    }
    for i in -1..82 {
        let nanos = START_NS + i * 50_000_000;
        inputs.push((nanos + 20_000_000, Input::Tf(transform(1, nanos, 1.0))));
    }
    inputs.sort_by_key(|(arrived, _)| *arrived);
    let mut made = 0;
    for (arrived, input) in inputs {
        made += usize::from(frames.pass_time(Stamp::from_nanos(arrived)).is_some());
        made += usize::from(push(&mut frames, input).is_some());
        made += std::iter::from_fn(|| frames.take_frame()).count();
    }
    assert!(made >= 117, "{made}: {:?}", frames.counts());
}
