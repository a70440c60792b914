use super::*;
use crate::base::random::{draw, uniform};

/// Base, arm of box and cylinder, slider with a sphere that moves a mimicking finger with a mesh.
const SMALL: &str = r#"<?xml version="1.0"?>
<robot name="small"> <!-- <link> in a comment -->
  <link name="base"><visual><geometry><box size="1 1 1"/></geometry></visual></link>
  <link name="arm">
    <visual>
      <origin xyz="0.5 0 0" rpy="0 1.5707963267948966 0"/>
      <geometry><cylinder radius="0.05" length="1"/></geometry>
    </visual>
    <visual><geometry><box size="0.2 0.3 0.4"/></geometry></visual>
  </link>
  <link name="slide">
    <collision><origin xyz="0 0 0.1"/><geometry><sphere radius="0.1"/></geometry></collision>
  </link>
  <link name="finger">
    <visual><geometry><mesh filename="package://none/finger.stl"/></geometry></visual>
  </link>
  <link name="tip"/>
  <joint name="turn" type="revolute">
    <parent link="base"/><child link="arm"/>
    <origin xyz="0 0 1" rpy="0 0 0"/><axis xyz="0 0 2"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/>
  </joint>
  <joint name="push" type="prismatic">
    <parent link="arm"/><child link="slide"/>
    <origin xyz="1 0 0" rpy="0 0.3 0.1"/><axis xyz="1 0 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/>
  </joint>
  <joint name="grip" type="prismatic">
    <parent link="slide"/><child link="finger"/>
    <origin xyz="0 0.1 0"/><axis xyz="0 1 0"/><mimic joint="push" multiplier="-0.5" offset="0.01"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/>
  </joint>
  <joint name="end" type="fixed">
    <parent link="finger"/><child link="tip"/><origin xyz="0 0 0.2"/>
  </joint>
</robot>"#;

fn small(n_points: usize) -> Robot {
    Robot::from_urdf(SMALL, n_points, "base").unwrap()
}

fn pose(robot: &mut Robot, link: &str, positions: &[f64]) -> Isometry3<f64> {
    *robot.link_poses(positions).unwrap().find(|(name, _)| *name == link).unwrap().1
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn poses_by_hand() {
    let mut robot = small(10);
    assert_eq!(robot.joint_names(), ["turn", "push"]);
    let quarter = std::f64::consts::FRAC_PI_2;
    let slide = pose(&mut robot, "slide", &[quarter, 0.0]);
    assert!((slide.translation.vector - nalgebra::vector![0.0, 1.0, 1.0]).norm() < 1e-12);
    // The finger opens against the slide: 0.1 - 0.5 * 0.4 + 0.01 along y of the slide.
    let slide = pose(&mut robot, "slide", &[0.2, 0.4]);
    let finger = pose(&mut robot, "finger", &[0.2, 0.4]);
    let in_slide = slide.inverse() * finger;
    assert!((in_slide.translation.vector - nalgebra::vector![0.0, -0.09, 0.0]).norm() < 1e-12);
}

/// `k` computes the same poses (on another version of nalgebra).
#[test]
fn poses_agree_with_k() {
    let mut robot = small(10);
    let chain = k::Chain::<f64>::from(&urdf_rs::read_from_string(SMALL).unwrap());
    for round in 0..50 {
        let q: [f64; 2] =
            std::array::from_fn(|j| f64::from(uniform(draw(1, round, j as u64, 0))) * 2.0 - 1.0);
        for (name, value) in [("turn", q[0]), ("push", q[1]), ("grip", 0.01 - 0.5 * q[1])] {
            chain.find(name).unwrap().set_joint_position_unchecked(value);
        }
        chain.update_transforms();
        for (link, pose) in robot.link_poses(&q).unwrap() {
            let oracle = chain.find_link(link).unwrap().world_transform().unwrap();
            for corner in [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] {
                let got = pose * Point3::from(corner);
                let expected = oracle * k::nalgebra::Point3::from(corner);
                let gap = (0..3).map(|i| (got[i] - expected[i]).abs()).fold(0.0, f64::max);
                assert!(gap < 1e-12, "{link}, round {round}: {gap} m");
            }
        }
    }
}

#[test]
fn particles_lie_on_the_surfaces_in_proportion_to_their_areas() {
    let n_points = 5003;
    let mut robot = small(n_points);
    let mut points = Vec::new();
    robot.place(&[0.0, 0.0], &mut points).unwrap();
    assert_eq!((points.len(), robot.n_points()), (n_points, n_points));
    let name = |&(node, _): &(usize, Range<usize>)| robot.link_names[node].clone();
    assert_eq!(robot.runs.iter().map(name).collect::<Vec<_>>(), ["arm", "slide", "finger"]);
    let mut on = [0usize; 2];
    for (node, range) in &robot.runs {
        for point in &robot.points[range.clone()] {
            let gap = match robot.link_names[*node].as_str() {
                "slide" => ((point - Point3::new(0.0, 0.0, 0.1)).norm() - 0.1).abs(),
                // A mesh on a line to its child joint.
                "finger" => point.x.abs() + point.y.abs() + (point.z - point.z.clamp(0.0, 0.2)),
                _ => {
                    let faces = [point.x.abs() - 0.1, point.y.abs() - 0.15, point.z.abs() - 0.2];
                    let gap_box = faces.into_iter().fold(f64::MIN, f64::max).abs();
                    let ring = point.y.hypot(point.z);
                    let gap_tube = (ring - 0.05).max((point.x - 0.5).abs() - 0.5).abs();
                    on[usize::from(gap_tube < gap_box)] += 1;
                    gap_box.min(gap_tube)
                }
            };
            assert!(gap < 1e-9, "{}: {point} is {gap} m off", robot.link_names[*node]);
        }
    }
    let (tube, cube) = (std::f64::consts::TAU * 0.05 * 1.05, 0.52);
    let share = on[1] as f64 / (on[0] + on[1]) as f64;
    assert!((share - tube / (tube + cube)).abs() < 0.01, "{share}");
}

/// Each link nearer to the root has half the density of the next.
#[test]
fn particles_can_be_denser_towards_the_tips() {
    let counts = |spread| {
        let robot = Robot::with_spread(SMALL, 6000, "base", spread).unwrap();
        robot.runs.iter().map(|(_, range)| range.len() as f64).collect::<Vec<_>>()
    };
    let (even, tips) = (counts(Spread::Even), counts(Spread::Tips));
    // Arm, slide, finger: the finger is the tip.
    let expected = [0.25, 0.5, 1.0].map(|density| {
        density / even.iter().zip([0.25, 0.5, 1.0]).map(|(n, d)| n * d).sum::<f64>() * 6000.0
    });
    for i in 0..3 {
        assert!((tips[i] - even[i] * expected[i]).abs() < 3.0, "{even:?} {tips:?}");
    }
    let robot = Robot::with_spread(SMALL, 100, "base", Spread::Tips).unwrap();
    let links: Vec<u32> = robot.links().collect();
    assert_eq!(links.len(), 100);
    assert!(links.is_sorted() && links[0] == 0 && links[99] == 2);
}

#[test]
fn each_point_count_is_met_and_repeats() {
    for n_points in [0, 1, 2, 3, 7, 64, 257] {
        let (mut a, mut b) = (small(n_points), small(n_points));
        let (mut points, mut again) = (Vec::new(), vec![[1.0; 3]]);
        a.place(&[0.3, -0.2], &mut points).unwrap();
        b.place(&[0.3, -0.2], &mut again).unwrap();
        assert_eq!(points.len(), n_points);
        assert_eq!(points, again);
    }
}

#[test]
fn capsules_have_round_ends() {
    let text =
        SMALL.replace(r#"<sphere radius="0.1"/>"#, r#"<capsule radius="0.1" length="0.6"/>"#);
    let robot = Robot::from_urdf(&text, 3000, "base").unwrap();
    let (_, range) = robot.runs.iter().find(|(i, _)| robot.link_names[*i] == "slide").unwrap();
    let mut ends = [f64::MAX, f64::MIN];
    for point in &robot.points[range.clone()] {
        let z = point.z - 0.1;
        let axis = Point3::new(0.0, 0.0, 0.1 + z.clamp(-0.3, 0.3));
        assert!(((point - axis).norm() - 0.1).abs() < 1e-9, "{point}");
        ends = [ends[0].min(z), ends[1].max(z)];
    }
    assert!(ends[0] < -0.39 && ends[1] > 0.39, "{ends:?}");
}

#[test]
fn the_world_is_the_named_link_or_the_root() {
    let mut robot = small(4);
    assert_eq!(robot.warnings.len(), 2, "{:?}", robot.warnings);
    assert!(robot.warnings[0].contains("package 'none' is not found"), "{:?}", robot.warnings);
    assert!(robot.warnings[1].contains("used of finger"), "{:?}", robot.warnings);
    assert_eq!(robot.mounting(), Mounting::default());
    let (mut here, mut there) = (Vec::new(), Vec::new());
    robot.place(&[0.0; 2], &mut here).unwrap();
    // Where the description tells, tf does not count.
    let root = Some(Isometry3::translation(1.0, 2.0, 3.0));
    robot.set_mount(&Mount { root, free: vec![] }).unwrap();
    robot.place(&[0.0; 2], &mut there).unwrap();
    assert_eq!(here, there);
    let mut robot = Robot::from_urdf(SMALL, 4, "map").unwrap();
    assert_eq!(robot.mounting(), Mounting { root: Some("base".into()), free: vec![] });
    assert!(!robot.fits(&Mount::default()) && robot.fits(&Mount { root, free: vec![] }));
    robot.set_mount(&Mount { root, free: vec![] }).unwrap();
    robot.place(&[0.0; 2], &mut there).unwrap();
    for (a, b) in here.iter().zip(&there) {
        assert!((0..3).all(|i| (b[i] - a[i] - (i + 1) as f32).abs() < 1e-6));
    }
    let warning = robot.mounting().warning("map").unwrap();
    assert!(warning.contains("'map'") && warning.contains("--child-frame-id base"), "{warning}");
    assert!(Robot::from_urdf(SMALL, 4, "tip").unwrap_err().to_string().contains("moves"));
    let stand = r#"<link name="stand"/><joint name="s" type="fixed"><parent link="base"/>
        <child link="stand"/><origin xyz="0 0 -2"/></joint></robot>"#;
    let mut raised = Robot::from_urdf(&SMALL.replace("</robot>", stand), 4, "stand").unwrap();
    assert!((pose(&mut raised, "base", &[0.0; 2]).translation.z - 2.0).abs() < 1e-12);
}

/// As urdfdom does, on which robot_state_publisher stands.
#[test]
fn prefixes_need_no_declaration() {
    let tag = "<drake:group name='a:b \"c:d'><drake:member gz:link=\"x\"/></drake:group></robot>";
    let mut plain = small(64);
    for declaration in ["", " xmlns:gz=\"http://gz\"", " xmlns:gz=\"a\" xmlns:drake=\"b\""] {
        let text = SMALL
            .replace("</robot>", tag)
            .replace("<joint name=\"turn\"", "<joint gz:a=\"1\" name=\"turn\"");
        let text = text.replace("<robot ", &format!("<robot{declaration} "));
        let mut robot = Robot::from_urdf(&text, 64, "base").unwrap();
        let (mut points, mut expected) = (Vec::new(), Vec::new());
        robot.place(&[0.1, 0.2], &mut points).unwrap();
        plain.place(&[0.1, 0.2], &mut expected).unwrap();
        assert_eq!(points, expected, "{declaration}");
    }
}

/// What xacro leaves behind is no xacro.
#[test]
fn comments_may_quote_xacro() {
    let text = SMALL
        .replace("<link> in a comment", "<xacro:arm r=\"${r}\"/> $(find here)")
        .replace("<robot ", "<robot xmlns:xacro=\"http://www.ros.org/wiki/xacro\" ");
    Robot::from_urdf(&text, 4, "base").unwrap();
}

#[test]
fn tf_tells_floating_and_planar_joints() {
    let text = SMALL.replace("type=\"revolute\"", "type=\"floating\"");
    let mut robot = Robot::from_urdf(&text, 8, "base").unwrap();
    assert_eq!(robot.joint_names(), ["push"]);
    assert_eq!(robot.mounting().free, [["base", "arm"].map(String::from)]);
    // The whole transform, the joint's origin included.
    let there = Isometry3::new([1.0, 2.0, 3.0].into(), [0.0, 0.0, 0.4].into());
    let mount = Mount { root: None, free: vec![there] };
    assert!(robot.fits(&mount) && !robot.fits(&Mount::default()));
    robot.set_mount(&mount).unwrap();
    assert_eq!(pose(&mut robot, "arm", &[0.0]), there);
    let wrong = robot.set_mount(&Mount::default()).unwrap_err();
    assert!(matches!(wrong, Error::Shape { expected: 1, got: 0, .. }), "{wrong}");
    assert_eq!(pose(&mut robot, "arm", &[0.0]), there);
}

#[test]
fn a_mount_goes_on_as_it_came() {
    let pose = |x: f64, turn: f64| Isometry3::new([x, 0.0, 0.5].into(), [0.0, 0.0, turn].into());
    let mount = |x, turn| Mount { root: Some(pose(x, turn)), free: vec![pose(-x, turn)] };
    let ahead = mount(1.2, 0.3).extrapolated(&mount(1.0, 0.2), 3.0);
    let expected = mount(1.8, 0.6);
    let pairs = [(ahead.root.unwrap(), expected.root.unwrap()), (ahead.free[0], expected.free[0])];
    for (got, expected) in pairs {
        assert!((got.to_homogeneous() - expected.to_homogeneous()).norm() < 1e-12, "{got}");
    }
    // What stands still does so to the bit.
    assert_eq!(mount(1.3, 0.1).extrapolated(&mount(1.3, 0.1), 7.0), mount(1.3, 0.1));
}

#[test]
fn joint_states_are_put_in_order() {
    let robot = small(1);
    let order = robot.order(&names(&["grip", "push", "wheel", "turn"])).unwrap();
    assert_eq!(order.ignored, ["grip", "wheel"]);
    let mut out = Vec::new();
    order.apply(&[1.0, 2.0, 3.0, 4.0], &mut out).unwrap();
    assert_eq!(out, [4.0, 2.0]);
    assert!(matches!(order.apply(&[1.0], &mut out), Err(Error::Shape { expected: 4, got: 1, .. })));
    let Err(Error::MissingJoints { names }) = robot.order(&names(&["grip", "turn"])) else {
        panic!("a joint was missing")
    };
    assert_eq!(names, ["push"]);
}

#[test]
fn positions_are_checked() {
    let mut robot = small(5);
    let mut out = Vec::new();
    assert!(matches!(robot.place(&[0.0], &mut out), Err(Error::Shape { .. })));
    assert!(matches!(robot.place(&[0.0, f64::NAN], &mut out), Err(Error::Plan { .. })));
}

#[test]
fn what_is_no_robot_is_refused_with_its_cause() {
    let swap = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        SMALL.replacen(from, to, 1)
    };
    let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
    // Closing tags inside a processing instruction close nothing.
    let open = "<a>".repeat(60);
    let hidden = format!("{open}<?p >{}?>", "</a>".repeat(60)).repeat(2000);
    let cases = [
        (String::new(), ""),
        (hidden, "nested"),
        ("<!DOCTYPE r [<!ENTITY a \"<b>\">]><robot/>".to_owned(), "DOCTYPE"),
        ("no robot".to_owned(), ""),
        ("<robot name=\"x\"/>".to_owned(), "no links"),
        (swap("<robot name=\"small\">", "<robot name=\"small\">&#x;"), ""),
        (" ".repeat(guard::MAX_BYTES + 1), "at most"),
        (deep.clone(), "nested"),
        (
            SMALL.replace("<link name=\"tip\"/>", &format!("<link name=\"tip\">{deep}</link>")),
            "nested",
        ),
        ("<a\"><a><a>".to_owned(), "malformed"),
        ("<robot name='x".to_owned(), "ends before"),
        (swap("type=\"revolute\"", "type=\"hinge\""), "hinge"),
        (swap("type=\"revolute\"", "type=\"spherical\""), "Spherical"),
        (swap("<link name=\"tip\"/>", "<xacro:tip name=\"tip\"/>"), "xacro FILE"),
        (swap("radius=\"0.05\"", "radius=\"${r}\""), "xacro FILE"),
        (swap("package://none", "$(find none)"), "xacro FILE"),
        (swap("<axis xyz=\"0 0 2\"/>", "<axis xyz=\"0 0 0\"/>"), "zero axis"),
        (swap("<origin xyz=\"0 0 1\"", "<origin xyz=\"0 nan 1\""), "not finite"),
        (swap("radius=\"0.05\"", "radius=\"-1\""), "negative"),
        (swap("size=\"0.2 0.3 0.4\"", "size=\"0.2 -0.3 -0.4\""), "negative"),
        (swap("length=\"1\"", "length=\"inf\""), "not finite"),
        (swap("mimic joint=\"push\"", "mimic joint=\"none\""), "missing"),
        (swap("mimic joint=\"push\"", "mimic joint=\"grip\""), "circle"),
        (swap("mimic joint=\"push\"", "mimic joint=\"end\""), "fixed"),
        (swap("<parent link=\"base\"/>", "<parent link=\"tip\"/>"), "loop"),
        (swap("<parent link=\"base\"/>", "<parent link=\"none\"/>"), "'none'"),
        (swap("<link name=\"tip\"/>", "<link name=\"tip\"/><link name=\"lost\"/>"), "'lost'"),
        (swap("<link name=\"tip\"/>", "<link name=\"arm\"/>"), "named 'arm'"),
        (swap("<child link=\"tip\"/>", "<child link=\"slide\"/>"), "two joints"),
        (swap("joint name=\"push\"", "joint name=\"turn\""), "named 'turn'"),
        ("<robot name=\"x\"><link name=\"a\"/></robot>".to_owned(), "surface"),
    ];
    for (text, cause) in cases {
        let start: String = text.chars().take(80).collect();
        match Robot::from_urdf(&text, 10, "base") {
            Err(Error::Urdf { problem }) => assert!(problem.contains(cause), "{start}: {problem}"),
            other => panic!("{start} ({cause}): {other:?}"),
        }
    }
}

/// Cuts and overwrites anywhere: an error or a robot, never a panic.
#[test]
fn damaged_descriptions_do_not_panic() {
    for i in 0..3000u64 {
        let bits = draw(11, 0, i, 0);
        let mut bytes = SMALL.as_bytes().to_vec();
        let at = bits as usize % bytes.len();
        match bits >> 62 {
            0 => bytes.truncate(at),
            1 => bytes[at] = b"<>/\"-0 9e"[(bits >> 40) as usize % 9],
            2 => drop(bytes.drain(at..(at + (bits >> 50) as usize % 40).min(bytes.len()))),
            _ => bytes.rotate_left(at),
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(mut robot) = Robot::from_urdf(&text, 16, "base") {
            let still = vec![0.1; robot.joint_names().len()];
            let mut out = Vec::new();
            robot.place(&still, &mut out).unwrap();
            assert!(out.iter().flatten().all(|x| x.is_finite()), "draw {i}");
        }
    }
}
