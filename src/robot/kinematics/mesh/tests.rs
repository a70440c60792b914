use super::*;
use crate::base::random::draw;
use crate::robot::kinematics::{Robot, RobotOptions, Spread};
use std::fs;

/// A unit square in the plane z = 0, of two triangles.
const SQUARE: [[[f32; 3]; 3]; 2] = [
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]],
    [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]],
];

fn ascii_stl(triangles: &[Triangle]) -> Vec<u8> {
    let mut text = String::from("solid name of it\n");
    for triangle in triangles {
        text += " facet normal 0 0 1\n  outer loop\n";
        for [x, y, z] in triangle {
            text += &format!("   vertex {x:e} {y} {z}\n");
        }
        text += "  endloop\n endfacet\n";
    }
    (text + "endsolid name of it\n").into_bytes()
}

fn binary_stl(triangles: &[Triangle]) -> Vec<u8> {
    // As many programs begin it, ascii or not.
    let mut bytes = b"solid binary\n".to_vec();
    bytes.resize(80, b' ');
    bytes.extend((triangles.len() as u32).to_le_bytes());
    for triangle in triangles {
        let corners = triangle.iter().flatten().flat_map(|x| x.to_le_bytes());
        bytes.extend([0; 12].into_iter().chain(corners).chain([0; 2]));
    }
    bytes
}

/// The same square: as a quad, then as a triangle of negative indices and one of texture
/// coordinates.
const OBJ: &str = "# comment\r\nmtllib none.mtl\no it\n v 0 0 0 # origin\nv 1 0 0\nv 1 1 0 0.5 0.5 0.5\n\
    v 0 1 0\nvt 0 0\nvn 0 0 1\nusemtl red\nf 1 2 3 4\ng other\nf -4 -3 -2\nf 1/1/1 3//1 4\n";

/// A cube's face and a triangle fan, under nodes that turn, move, scale and instance them.
fn dae(unit: &str, scene: &str) -> String {
    format!(
        r##"<?xml version="1.0" encoding="utf-8"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset>{unit}<up_axis>Y_UP</up_axis></asset>
  <library_geometries><geometry id="square"><mesh>
    <source id="where"><float_array id="w" count="12">0 0 0 1 0 0 1 1 0 0 1 0</float_array>
      <technique_common><accessor source="#w" count="4" stride="3"/></technique_common></source>
    <source id="normals"><float_array id="n" count="3">0 0 1</float_array></source>
    <vertices id="corners"><input semantic="POSITION" source="#where"/></vertices>
    <triangles count="1">
      <input semantic="VERTEX" source="#corners" offset="0"/>
      <input semantic="NORMAL" source="#normals" offset="1"/>
      <p>0 0 1 0 2 0</p></triangles>
    <polylist count="1"><input semantic="VERTEX" source="#corners" offset="0"/>
      <vcount>3</vcount><p>0 2 3</p></polylist>
    <lines count="1"><input semantic="VERTEX" source="#corners" offset="0"/><p>0 1</p></lines>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="unused"/><visual_scene id="scene">{scene}</visual_scene>
  </library_visual_scenes>
  <scene><instance_visual_scene url="#scene"/></scene>
</COLLADA>"##
    )
}

const INSTANCE: &str = r##"<node><instance_geometry url="#square"/></node>"##;

/// A robot of one moving link and one joint; `links` stands within the moving link.
fn urdf(model: &str) -> String {
    format!(
        r#"<robot name="r"><link name="world"/><link name="arm">{model}</link><link name="tip"/>
  <joint name="j" type="revolute"><parent link="world"/><child link="arm"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="k" type="fixed"><parent link="arm"/><child link="tip"/><origin xyz="0 0 0.5"/></joint>
</robot>"#
    )
}

fn shape(kind: &str, file: &str, scale: &str) -> String {
    format!(
        r#"<{kind}><origin xyz="0 0 1"/><geometry><mesh filename="{file}"{scale}/></geometry></{kind}>"#
    )
}

/// Particles of the robot at rest, its warnings, and its folder of meshes.
fn robot(folder: &Path, model: &str, n_points: usize) -> (Vec<[f32; 3]>, Vec<String>) {
    let meshes = &MeshSearch::only([folder]);
    let options = RobotOptions { n_points, spread: Spread::Even, world_frame: "world", meshes };
    let mut robot = Robot::with_options(&urdf(model), &options).unwrap();
    let mut points = Vec::new();
    robot.place(&[0.0], &mut points).unwrap();
    (points, robot.warnings)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn write(folder: &tempfile::TempDir, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Largest distance of points from the unit square at `z`, and lowest and highest x and y.
fn gaps(points: &[[f32; 3]], z: f32) -> (f32, [f32; 2]) {
    let gap = points.iter().map(|[x, y, height]| {
        let side = |x: &f32| (-x).max(x - 1.0).max(0.0);
        (height - z).abs().max(side(x)).max(side(y))
    });
    let all = || points.iter().flat_map(|[x, y, _]| [*x, *y]);
    (gap.fold(0.0, f32::max), [all().fold(9.0, f32::min), all().fold(-9.0, f32::max)])
}

#[test]
fn every_format_gives_the_same_square() {
    let mut long = binary_stl(&SQUARE);
    // Some programs add to the file's end.
    long.extend(b"more");
    for (name, bytes) in [
        ("ascii.stl", ascii_stl(&SQUARE)),
        ("binary.STL", binary_stl(&SQUARE)),
        ("long.stl", long),
        ("square.obj", OBJ.into()),
        ("square.dae", dae("", INSTANCE).into_bytes()),
    ] {
        let folder = folder();
        write(&folder, name, bytes);
        let (points, warnings) = robot(folder.path(), &shape("visual", name, ""), 500);
        assert_eq!(warnings, Vec::<String>::new(), "{name}");
        let (gap, [low, high]) = gaps(&points, 1.0);
        assert!(gap < 1e-6 && low < 0.05 && high > 0.95, "{name}: {gap} {low} {high}");
        // Both triangles have their half.
        let below = points.iter().filter(|[x, y, _]| x > y).count();
        assert!(below.abs_diff(250) < 15, "{name}: {below}");
    }
}

#[test]
fn scales_stretch_and_mirror() {
    let folder = folder();
    write(&folder, "a.stl", binary_stl(&SQUARE));
    let at = |scale: &str| robot(folder.path(), &shape("visual", "a.stl", scale), 300).0;
    let points = at(r#" scale="2 -0.5 3""#);
    for [x, y, z] in &points {
        assert!((0.0..=2.0).contains(x) && (-0.5..=0.0).contains(y) && *z == 1.0, "{x} {y} {z}");
    }
    let mean = |i: usize| points.iter().map(|point| point[i]).sum::<f32>() / 300.0;
    assert!((mean(0) - 1.0).abs() < 0.02 && (mean(1) + 0.25).abs() < 0.02);
}

#[test]
fn nodes_of_a_scene_place_what_they_hold() {
    // Row-major: x' = y, y' = z, z' = x.
    let matrix = "0 1 0 0 0 0 1 0 1 0 0 0 0 0 0 1";
    let scene = format!(
        r##"<node id="outer"><translate>0 0 5</translate><rotate>0 0 1 90</rotate>
            <node id="part"><scale>2 1 1</scale><instance_geometry url="#square"/></node></node>
          <node><matrix>{matrix}</matrix><instance_node url="#part"/></node>
          <node><instance_camera url="#none"/><lookat>0 0 0 1 1 1 0 0 1</lookat></node>"##
    );
    let unit = r#"<unit name="centimeter" meter="0.01"/>"#;
    let triangles = collada::read(dae(unit, &scene).as_bytes()).unwrap();
    assert_eq!(triangles.len(), 4);
    // (1, 1, 0) → scaled (2, 1, 0) → turned (-1, 2, 0) → moved; no axis is swapped for Y_UP.
    let close = |a: [f32; 3], b: [f32; 3]| (0..3).all(|i| (a[i] - b[i]).abs() < 1e-6);
    assert!(close(triangles[0][2], [-0.01, 0.02, 0.05]), "{triangles:?}");
    assert!(close(triangles[2][2], [0.01, 0.0, 0.02]), "{triangles:?}");
}

#[test]
fn polygons_fans_and_strips_are_cut_into_triangles() {
    let input = r##"<input semantic="VERTEX" source="#corners" offset="0"/>"##;
    let count = |primitive: &str| {
        let text = dae("", INSTANCE).replace("<lines", &format!("{primitive}<lines"));
        let triangles = collada::read(text.as_bytes())?;
        let area = |[a, b, c]: &Triangle| {
            let [a, b, c] = [a, b, c].map(|corner| Vector3::from(*corner));
            (b - a).cross(&(c - a)).norm() / 2.0
        };
        Ok::<_, Problem>((triangles.len() - 2, triangles.iter().map(area).sum::<f32>() - 1.0))
    };
    for (primitive, n) in [
        ("<polygons>INPUT<p>0 1 2 3</p><p>0 1 2</p></polygons>", 3),
        ("<trifans>INPUT<p>0 1 2 3</p></trifans>", 2),
        ("<tristrips>INPUT<p>0 1 3 2</p></tristrips>", 2),
        ("<polylist>INPUT<vcount>4 2 3</vcount><p>0 1 2 3 0 1 0 1 2</p></polylist>", 3),
    ] {
        let (found, area) = count(&primitive.replace("INPUT", input)).unwrap();
        assert_eq!((found, area), (n, 0.5 * n as f32), "{primitive}");
    }
    for (primitive, told) in [
        ("<polylist>INPUT<vcount>4 4</vcount><p>0 1 2 3</p></polylist>", "end early"),
        ("<polygons>INPUT<ph><p>0 1 2 3</p><h>0 1 2</h></ph></polygons>", "holes"),
        ("<triangles>INPUT<p>0 1 4</p></triangles>", "no such corner"),
        ("<triangles>INPUT<p>0 1 -1</p></triangles>", "no such corner"),
    ] {
        let problem = count(&primitive.replace("INPUT", input)).unwrap_err();
        assert!(problem.contains(told), "{problem}");
    }
}

/// Points go by area, however the triangles are cut, and repeat.
#[test]
fn points_go_by_area_and_repeat() {
    let folder = folder();
    // A large triangle beside ten thousand slivers of the same area in all, and some of none.
    let mut triangles = vec![[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]];
    for i in 0..10_000 {
        let [low, high] = [i, i + 1].map(|i| i as f32 / 10_000.0);
        triangles.push([[5.0, low, 0.0], [6.0, low, 0.0], [5.0, high, 0.0]]);
        triangles.push([[9.0; 3], [9.0; 3], [9.0; 3]]);
    }
    triangles.push([[9.0; 3], [9.0; 3], [9.0; 3]]);
    write(&folder, "a.stl", binary_stl(&triangles));
    let (points, warnings) = robot(folder.path(), &shape("collision", "a.stl", ""), 2000);
    assert_eq!(warnings, Vec::<String>::new());
    let large = points.iter().filter(|[x, y, _]| x + y <= 1.0001).count();
    assert!(large.abs_diff(1000) < 10, "{large}");
    assert!(points.iter().all(|[x, _, z]| *x <= 6.0 && *z == 1.0));
    // Within the large one, the corner's quarter has a quarter.
    let corner = points.iter().filter(|[x, y, _]| x + y <= 0.5).count();
    assert!(corner.abs_diff(large / 4) < 20, "{corner} of {large}");
    assert_eq!(robot(folder.path(), &shape("collision", "a.stl", ""), 2000).0, points);
}

/// Tips are denser with meshes as they are without.
#[test]
fn tips_are_denser() {
    let folder = folder();
    write(&folder, "a.stl", binary_stl(&SQUARE));
    let mesh = shape("visual", "a.stl", "");
    let text =
        urdf(&mesh).replace("<link name=\"tip\"/>", &format!("<link name=\"tip\">{mesh}</link>"));
    let meshes = &MeshSearch::only([folder.path()]);
    let counts = |spread| {
        let options = RobotOptions { n_points: 900, spread, world_frame: "world", meshes };
        let robot = Robot::with_options(&text, &options).unwrap();
        let on_tip = robot.links().filter(|link| *link == 1).count();
        (900 - on_tip, on_tip)
    };
    assert_eq!(counts(Spread::Even), (450, 450));
    assert_eq!(counts(Spread::Tips), (300, 600));
}

#[test]
fn the_model_is_chosen_by_what_can_be_used() {
    let folder = folder();
    write(&folder, "seen.stl", binary_stl(&SQUARE));
    write(&folder, "hull.stl", binary_stl(&SQUARE[..1]));
    write(&folder, "empty.obj", "v 0 0 0\n");
    let cube =
        |kind: &str| format!(r#"<{kind}><geometry><box size="0.1 0.1 0.1"/></geometry></{kind}>"#);
    let (seen, hull) = (shape("visual", "seen.stl", ""), shape("collision", "hull.stl", ""));
    let lost = |kind| shape(kind, "lost.stl", "");
    let is_cube = |p: &[f32; 3]| p[2] < 0.06;
    let is_hull = |p: &[f32; 3]| p[2] == 1.0 && p[0] >= p[1];
    let is_seen = |p: &[f32; 3]| p[2] == 1.0;
    let on_line = |p: &[f32; 3]| p[0] == 0.0 && p[1] == 0.0 && p[2] <= 0.5;
    type Test<'a> = &'a dyn Fn(&[f32; 3]) -> bool;
    let cases: [(String, Test, usize); 9] = [
        (cube("visual") + &hull, &is_cube, 0),
        (cube("collision") + &seen, &is_seen, 0),
        (hull.clone() + &seen, &is_seen, 0),
        (hull.clone(), &is_hull, 0),
        (lost("collision") + &seen, &is_seen, 0),
        (lost("visual") + &hull, &is_hull, 1),
        (lost("visual") + &cube("visual") + &hull, &is_hull, 1),
        (cube("visual") + &lost("visual") + &lost("collision"), &is_cube, 1),
        (lost("collision") + &shape("visual", "empty.obj", ""), &on_line, 3),
    ];
    for (model, test, n_warnings) in cases {
        let (points, warnings) = robot(folder.path(), &model, 100);
        assert!(points.iter().all(test), "{model}: {points:?}");
        assert_eq!(warnings.len(), n_warnings, "{model}: {warnings:?}");
    }
}

#[test]
fn files_are_found_by_package_folder_and_path() {
    let folder = folder();
    for file in ["pkg/meshes/a b.stl", "ws/src/other/a.stl", "clone-1.2/a.stl", "plain/a.stl"] {
        write(&folder, file, binary_stl(&SQUARE));
    }
    write(&folder, "clone-1.2/package.xml", "<package><name> third </name></package>");
    let full = |path: &str| folder.path().join(path);
    let search = MeshSearch::only(["", "pkg", "ws", "clone-1.2", "plain"].map(full));
    let find = |uri: &str| search.find(uri);
    for (uri, path) in [
        ("package://pkg/meshes/a%20b.stl", "pkg/meshes/a b.stl"),
        ("package://pkg//urdf/../meshes/./a%20b.stl", "pkg/meshes/a b.stl"),
        ("package://other/a.stl", "ws/src/other/a.stl"),
        ("model://third/a.stl", "clone-1.2/a.stl"),
        (" meshes/a b.stl ", "pkg/meshes/a b.stl"),
        ("../plain/a.stl", "pkg/../plain/a.stl"),
    ] {
        assert_eq!(
            find(uri).map(|found| found.canonicalize().unwrap()),
            Ok(full(path).canonicalize().unwrap()),
            "{uri}"
        );
    }
    // A package that is nowhere: its files may lie in a folder of another name.
    assert_eq!(find("package://gone/meshes/a%20b.stl"), Ok(full("pkg/meshes/a b.stl")));
    // The folder that is the package goes before one of that name within another.
    let inner = MeshSearch::only([full("pkg")]).find("package://pkg/meshes/a%20b.stl");
    assert_eq!(inner, Ok(full("pkg/meshes/a b.stl")));
    let absolute = full("plain/a.stl").display().to_string();
    assert_eq!(find(&absolute), Ok(full("plain/a.stl")));
    assert_eq!(find(&format!("file://{absolute}")), Ok(full("plain/a.stl")));
    assert_eq!(find(&format!("file://localhost{absolute}")), Ok(full("plain/a.stl")));
    for (uri, told) in [
        ("package://none/b.stl", "'none' is not found: source"),
        ("package://pkg/meshes/none.stl", "lacks that file"),
        ("package://pkg/../plain/a.stl", "out of its package"),
        ("package://pkg/meshes/%2e%2e/..%2f../plain/a.stl", "out of its package"),
        ("package://../plain/a.stl", "no package"),
        ("package:///a.stl", "no package"),
        ("a.stl.txt", "only .stl"),
        ("/etc/passwd", "only .stl"),
        ("", "only .stl"),
        ("http://host/a.stl", "http:// is not read"),
        ("file:///none/a.stl", "not there"),
        ("none/a.stl", "mesh_paths:=FOLDER"),
        ("package://pkg/%ff.stl", "UTF-8"),
        ("package://pkg/%00.stl", "UTF-8"),
    ] {
        let problem = find(uri).unwrap_err();
        assert!(problem.contains(told), "{uri}: {problem}");
    }
}

#[test]
fn the_environment_is_asked_last() {
    let folder = folder();
    write(&folder, "mine/pkg/a.stl", "");
    write(&folder, "ros/share/pkg/a.stl", "");
    write(&folder, "ros/share/pkg/b.stl", "");
    let mut search = MeshSearch::only([folder.path().join("mine")]);
    search.prefixes = search::split(format!("/none::{}/ros", folder.path().display()).as_ref());
    let find = |uri| search.find(uri).unwrap().strip_prefix(folder.path()).unwrap().to_owned();
    assert_eq!(find("package://pkg/a.stl"), Path::new("mine/pkg/a.stl"));
    assert_eq!(find("package://pkg/b.stl"), Path::new("ros/share/pkg/b.stl"));
}

/// Each says what is wrong, once, and leaves the link as if there were no mesh.
#[test]
fn meshes_that_cannot_be_used_are_told_once() {
    let folder = folder();
    let nan = SQUARE.map(|triangle| triangle.map(|[x, y, _]| [x, y, f32::NAN]));
    let flat = SQUARE.map(|triangle| triangle.map(|[x, _, _]| [x, 0.0, 0.0]));
    let millimetres = SQUARE.map(|triangle| triangle.map(|corner| corner.map(|x| x * 300.0)));
    let cut = binary_stl(&SQUARE)[..100].to_vec();
    let circle = r##"<node id="a"><instance_node url="#a"/></node>"##;
    // Each node holds the next one twice.
    let twice = |i| {
        format!(
            r##"<node id="n{i}"><instance_node url="#n{0}"/><instance_node url="#n{0}"/></node>"##,
            i + 1
        )
    };
    let many = (0..40).map(twice).collect::<String>() + r#"<node id="n40"/>"#;
    let deep = format!("{}{}", "<node>".repeat(100_000), "</node>".repeat(100_000));
    let bomb = r#"<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY c "&b;&b;">]><COLLADA>&c;</COLLADA>"#;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nan.stl", binary_stl(&nan), "not finite"),
        ("flat.stl", ascii_stl(&flat), "no surface"),
        ("large.stl", binary_stl(&millimetres), "reaches 300 m"),
        ("cut.stl", cut, "export it again"),
        ("none.stl", binary_stl(&[]), "no triangles"),
        ("empty.stl", Vec::new(), "export it again"),
        ("text.stl", b"solid a\nfacet normal 0 0".to_vec(), "export it again"),
        ("index.obj", b"v 0 0 0\nv 1 0 0\nf 1 2 3\n".to_vec(), "export it again"),
        ("zero.obj", b"v 0 0 0\nv 1 0 0\nf 0 1 2\n".to_vec(), "export it again"),
        ("back.obj", b"v 0 0 0\nv 1 0 0\nf -9 1 2\n".to_vec(), "export it again"),
        ("polygon.obj", format!("v 0 0 0\nf{}\n", " 1".repeat(1_000_003)).into(), "over 1000000"),
        ("words.obj", b"v a b c\nf 1 1 1\n".to_vec(), "export it again"),
        ("circle.dae", dae("", circle).into(), "circular"),
        ("many.dae", dae("", &many).into(), "circular"),
        ("deep.dae", dae("", &deep).into(), "nested"),
        ("bomb.dae", bomb.into(), "DTD"),
        ("no.dae", b"no xml".to_vec(), "export it again"),
        ("unit.dae", dae(r#"<unit meter="-1"/>"#, INSTANCE).into(), "unit"),
        ("lost.dae", dae("", INSTANCE).replace("#square\"", "#lost\"").into(), "'#lost'"),
        ("other.dae", dae("", INSTANCE).replace("#where\"", "o.dae#where\"").into(), "o.dae"),
        ("skew.dae", dae("", "<node><skew>45 0 1 0 1 0 0</skew></node>").into(), "skew"),
        ("short.dae", dae("", "<node><matrix>1 0</matrix></node>").into(), "16 numbers"),
        ("bare.dae", dae("", "<node/>").into(), "no triangles"),
    ];
    for (name, bytes, told) in cases {
        write(&folder, name, bytes);
        let mesh = shape("visual", name, "");
        let (points, warnings) =
            robot(folder.path(), &(shape("collision", name, "") + &mesh + &mesh), 50);
        assert_eq!(warnings.len(), 2, "{name}: {warnings:?}");
        assert!(warnings[0].contains(told) && warnings[0].contains(name), "{warnings:?}");
        assert!(warnings[1].contains("no mesh could be used of arm"), "{warnings:?}");
        assert!(points.iter().all(|[x, y, z]| *x == 0.0 && *y == 0.0 && *z <= 0.5), "{name}");
    }
    write(&folder, "a.stl", binary_stl(&SQUARE));
    for scale in ["nan 1 1", "inf 1 1", "0 0 0", "1e300 1 1"] {
        let scale = format!(" scale=\"{scale}\"");
        let (_, warnings) = robot(folder.path(), &shape("visual", "a.stl", &scale), 5);
        assert!(warnings[0].contains("a.stl"), "{warnings:?}");
    }
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = folder();
    fs::create_dir(folder.path().join("folder.stl")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe.stl")).status();
    assert!(made.unwrap().success());
    let large = fs::File::create(folder.path().join("large.stl")).unwrap();
    large.set_len(MAX_FILE_BYTES as u64 + 1).unwrap();
    write(&folder, "target.stl", binary_stl(&SQUARE));
    std::os::unix::fs::symlink("target.stl", folder.path().join("link.stl")).unwrap();
    for (name, told) in
        [("folder.stl", "no file"), ("pipe.stl", "no file"), ("large.stl", "64 MiB")]
    {
        let (_, warnings) = robot(folder.path(), &shape("visual", name, ""), 5);
        assert!(warnings[0].contains(told), "{warnings:?}");
    }
    let (points, warnings) = robot(folder.path(), &shape("visual", "link.stl", ""), 5);
    assert!(warnings.is_empty() && gaps(&points, 1.0).0 < 1e-6, "{warnings:?}");
}

/// One package that is missing is one line, however many meshes lie in it.
#[test]
fn meshes_with_the_same_problem_share_a_line() {
    let folder = folder();
    let models: String =
        (0..9).map(|i| shape("visual", &format!("package://gone/{i}.stl"), "")).collect();
    let (_, warnings) = robot(folder.path(), &models, 5);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("gone/2.stl and 6 more: package 'gone'"), "{warnings:?}");
    let odd = shape("visual", &format!("package://gone/&#10;{}.stl", "x".repeat(999)), "");
    let (_, warnings) = robot(folder.path(), &odd, 5);
    assert!(warnings[0].len() < 400 && !warnings[0].contains('\n'), "{warnings:?}");
}

/// A file is read once for all robots of a search, and anew when it changed.
#[test]
fn what_was_read_is_shared() {
    let folder = folder();
    write(&folder, "a.stl", binary_stl(&SQUARE));
    let search = MeshSearch::only([folder.path()]);
    let path = search.find("a.stl").unwrap();
    let first = search.read(&path, || read(&path)).unwrap();
    let again = search.clone().read(&path, || Err("read twice".into())).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    write(&folder, "a.stl", binary_stl(&SQUARE[..1]));
    assert_eq!(search.read(&path, || read(&path)).unwrap().triangles.len(), 1);
}

/// Cuts and overwrites anywhere: a mesh or a problem, never a panic.
#[test]
fn damaged_meshes_do_not_panic() {
    let files: [(&str, Vec<u8>); 4] = [
        ("stl", ascii_stl(&SQUARE)),
        ("stl", binary_stl(&SQUARE)),
        ("obj", OBJ.into()),
        ("dae", dae("", INSTANCE).into()),
    ];
    let mut n_read = 0;
    for (kind, whole) in &files {
        for i in 0..1500u64 {
            let bits = draw(12, 0, i, 0);
            let mut bytes = whole.clone();
            let at = bits as usize % bytes.len();
            match bits >> 62 {
                0 => bytes.truncate(at),
                1 => bytes[at] = b"<>/\"-0 9e\xff\n"[(bits >> 40) as usize % 11],
                2 => drop(bytes.drain(at..(at + (bits >> 50) as usize % 40).min(bytes.len()))),
                _ => bytes.rotate_left(at),
            }
            let triangles = match *kind {
                "stl" => formats::read_stl(bytes),
                "obj" => formats::read_obj(&bytes),
                _ => collada::read(&bytes),
            };
            let Ok(triangles) = triangles.and_then(checked) else { continue };
            let mesh = Arc::new(Mesh { triangles, n_bytes: 0 });
            let Ok(sampler) = Sampler::new(mesh, Vector3::repeat(1.0)) else { continue };
            n_read += 1;
            let point = sampler.point(0.3, 0.6);
            assert!(point.iter().all(|x| x.is_finite()), "{kind} {i}: {point}");
        }
    }
    assert!(n_read > 500, "{n_read}");
}

#[test]
fn a_robot_has_limits_besides_those_of_its_meshes() {
    let folder = folder();
    write(&folder, "a.stl", binary_stl(&SQUARE));
    let search = MeshSearch::only([folder.path()]);
    let told = |prepare: fn(&mut Meshes)| {
        let mut meshes = Meshes::new(&search);
        prepare(&mut meshes);
        // Twice the same mesh, of which once is enough.
        for _ in 0..2 {
            let sampler = meshes.sampler("a.stl", Vector3::repeat(1.0));
            assert_eq!(sampler.is_none(), meshes.warnings().count() == 1);
        }
        meshes.warnings().next().unwrap_or_default()
    };
    assert_eq!(told(|meshes| meshes.n_triangles = MAX_ROBOT_TRIANGLES - 2), "");
    assert!(told(|meshes| meshes.n_triangles = MAX_ROBOT_TRIANGLES - 1).contains("8000000"));
    assert!(told(|meshes| meshes.n_bytes = MAX_ROBOT_BYTES - 183).contains("512 MiB"));
    let many = |meshes: &mut Meshes| {
        (0..MAX_ROBOT_MESHES).for_each(|i| drop(meshes.read.insert(i.to_string(), None)));
    };
    assert!(told(many).contains("first 512"));
}
