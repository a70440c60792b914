use super::*;
use forecloud::message::Stamp;

/// Topics with 100 messages each; `I` image, `C` compressed image, `K` calibration, `P` cloud,
/// `J` joints, `T` transforms.
fn topics(names: &[&str]) -> Vec<TopicInfo> {
    let topic = |text: &&str| {
        let (kind, name) = text.split_once(' ').expect("kind and name");
        let message_type = match kind {
            "I" => "sensor_msgs/msg/Image",
            "C" => "sensor_msgs/msg/CompressedImage",
            "K" => "sensor_msgs/msg/CameraInfo",
            "P" => "sensor_msgs/msg/PointCloud2",
            "J" => "sensor_msgs/msg/JointState",
            "T" => "tf2_msgs/msg/TFMessage",
            "S" => "std_msgs/msg/String",
            "Q" => "trajectory_msgs/msg/JointTrajectory",
            _ => panic!("{text}"),
        };
        let (first, last) = (Stamp::from_nanos(0), Stamp::from_nanos(1));
        TopicInfo {
            name: name.into(),
            message_type: message_type.into(),
            n_messages: 100,
            first,
            last,
        }
    };
    names.iter().map(topic).collect()
}

/// The arguments proposed for the default topics; what they name is there, and is all there is
/// to read the recording.
fn arguments(names: &[&str]) -> String {
    let topics = topics(names);
    let proposal = propose(&topics, &Topics::default());
    let arguments = proposal.arguments().unwrap_or_default();
    let mut wanted = Topics { cameras: vec![], ..Topics::default() };
    for camera in &proposal.cameras {
        let CameraTopics { name, input, depth_registered, .. } = camera;
        wanted.cameras.push(CameraTopics::new(name, *input, *depth_registered));
    }
    for remap in arguments.split("--remap ").skip(1) {
        let (from, to) = remap.trim().trim_matches('\'').split_once(":=").expect("OLD:=NEW");
        wanted.remap(from, to);
    }
    if !proposal.cameras.is_empty() {
        let missing = wanted.specs().into_iter().filter(|spec| {
            let is = |t: &TopicInfo| *t.name == *spec.name && t.message_type == spec.message_type;
            spec.required && !topics.iter().any(is)
        });
        assert_eq!(missing.collect::<Vec<_>>(), [], "{arguments}");
    }
    arguments
}

const REALSENSE: [&str; 13] = [
    "I /camera/camera/aligned_depth_to_color/image_raw",
    "K /camera/camera/aligned_depth_to_color/camera_info",
    "I /camera/camera/aligned_depth_to_infra1/image_raw",
    "I /camera/camera/color/image_raw",
    "C /camera/camera/color/image_raw/compressed",
    "K /camera/camera/color/camera_info",
    "P /camera/camera/depth/color/points",
    "I /camera/camera/depth/image_rect_raw",
    "K /camera/camera/depth/camera_info",
    "I /camera/camera/infra1/image_rect_raw",
    "K /camera/camera/infra1/camera_info",
    "T /tf_static",
    "J /joint_states",
];

#[test]
fn realsense() {
    assert_eq!(
        arguments(&REALSENSE),
        "--cameras camera --remap /camera/color/image_raw:=/camera/camera/color/image_raw \
         --remap /camera/depth/image_raw:=/camera/camera/aligned_depth_to_color/image_raw \
         --remap /camera/color/camera_info:=/camera/camera/color/camera_info"
    );
    let unaligned: Vec<&str> =
        REALSENSE.into_iter().filter(|topic| !topic.contains("aligned")).collect();
    assert_eq!(
        arguments(&unaligned),
        "--cameras camera -p depth_registered:=false \
         --remap /camera/color/image_raw:=/camera/camera/color/image_raw \
         --remap /camera/depth/image_raw:=/camera/camera/depth/image_rect_raw \
         --remap /camera/color/camera_info:=/camera/camera/color/camera_info \
         --remap /camera/depth/camera_info:=/camera/camera/depth/camera_info"
    );
    assert_eq!(
        arguments(&["P /camera/camera/depth/color/points", "J /joint_states"]),
        "--cameras camera --input points \
         --remap /camera/points:=/camera/camera/depth/color/points"
    );
}

#[test]
fn orbbec() {
    let names = [
        "K /camera/color/camera_info",
        "I /camera/color/image_raw",
        "K /camera/depth/camera_info",
        "I /camera/depth/image_raw",
        "P /camera/depth/points",
        "P /camera/depth_registered/points",
        "I /camera/left_ir/image_raw",
        "J /joint_states",
    ];
    assert_eq!(arguments(&names), "--cameras camera");
    let notes = propose(&topics(&names), &Topics::default()).notes;
    assert!(notes[0].contains("-p depth_registered:=false"), "the names don't tell: {notes:?}");
    let clouds: Vec<&str> = names.into_iter().filter(|name| !name.starts_with('I')).collect();
    assert_eq!(
        arguments(&clouds),
        "--cameras camera --input points --remap /camera/points:=/camera/depth_registered/points"
    );
}

#[test]
fn azure_kinect() {
    let names = [
        "I /rgb/image_raw",
        "K /rgb/camera_info",
        "I /depth/image_raw",
        "K /depth/camera_info",
        "I /depth_to_rgb/image_raw",
        "K /depth_to_rgb/camera_info",
        "I /rgb_to_depth/image_raw",
        "K /rgb_to_depth/camera_info",
        "I /ir/image_raw",
        "P /points2",
        "J /joint_states",
    ];
    assert_eq!(
        arguments(&names),
        "--cameras camera --remap /camera/color/image_raw:=/rgb/image_raw \
         --remap /camera/depth/image_raw:=/depth_to_rgb/image_raw \
         --remap /camera/color/camera_info:=/rgb/camera_info"
    );
    assert_eq!(
        arguments(&["P /points2", "J /joint_states"]),
        "--cameras camera --input points --remap /camera/points:=/points2"
    );
}

#[test]
fn zed() {
    let names = [
        "I /zed/zed_node/rgb/color/rect/image",
        "K /zed/zed_node/rgb/color/rect/camera_info",
        "K /zed/zed_node/rgb/color/rect/image/camera_info",
        "I /zed/zed_node/rgb/color/raw/image",
        "I /zed/zed_node/rgb/gray/rect/image",
        "I /zed/zed_node/left/color/rect/image",
        "I /zed/zed_node/right/color/rect/image",
        "I /zed/zed_node/depth/depth_registered",
        "K /zed/zed_node/depth/camera_info",
        "I /zed/zed_node/confidence/confidence_map",
        "P /zed/zed_node/point_cloud/cloud_registered",
        "J /robot/joint_states",
        "T /tf",
    ];
    assert_eq!(
        arguments(&names),
        "--cameras zed --remap /zed/color/image_raw:=/zed/zed_node/rgb/color/rect/image \
         --remap /zed/depth/image_raw:=/zed/zed_node/depth/depth_registered \
         --remap /zed/color/camera_info:=/zed/zed_node/rgb/color/rect/camera_info \
         --remap /joint_states:=/robot/joint_states"
    );
}

#[test]
fn several_cameras_compressed() {
    let names = [
        "C /left/camera/color/image_raw/compressed",
        "C /left/camera/aligned_depth_to_color/image_raw/compressedDepth",
        "K /left/camera/color/camera_info",
        "C /right/camera/color/image_raw/compressed",
        "C /right/camera/aligned_depth_to_color/image_raw/compressedDepth",
        "K /right/camera/color/camera_info",
        "P /velodyne/points",
        "J /joint_states",
    ];
    let arguments = arguments(&names);
    assert!(arguments.starts_with("--cameras left,right --input compressed --remap"));
    assert_eq!(arguments.matches("--remap").count(), 6, "{arguments}");
    let notes = propose(&topics(&names), &Topics::default()).notes;
    assert!(notes[0].contains("/velodyne is left out"), "{notes:?}");
}

#[test]
fn cameras_of_different_kinds() {
    let names = [
        "I /head/color/image_raw",
        "I /head/aligned_depth_to_color/image_raw",
        "K /head/color/camera_info",
        "K /head/aligned_depth_to_color/camera_info",
        "C /wrist/color/image_raw/compressed",
        "C /wrist/depth/image_rect_raw/compressedDepth",
        "K /wrist/color/camera_info",
        "K /wrist/depth/camera_info",
        "J /joint_states",
    ];
    // Of two the registered one is kept, as the other can't be read as if it were.
    let registered = "--cameras head \
                      --remap /head/depth/image_raw:=/head/aligned_depth_to_color/image_raw";
    assert_eq!(arguments(&names), registered);
    let mut more = names.to_vec();
    more.extend([
        "I /chest/color/image_raw",
        "I /chest/depth/image_rect_raw",
        "K /chest/color/camera_info",
        "K /chest/depth/camera_info",
    ]);
    let all = arguments(&more);
    let expected = "--cameras chest,head,wrist --input images,images,compressed -p depth_registered:=false --remap";
    assert!(all.starts_with(expected), "{all}");
}

#[test]
fn cameras_that_are_there_stay() {
    let mut wanted = Topics { cameras: vec![CameraTopics::of("wrist")], ..Topics::default() };
    wanted.remap("/tf", "/robot/tf");
    let names = [
        "I /wrist/color/image_raw",
        "I /wrist/depth/image_raw",
        "K /wrist/color/camera_info",
        "I /head/color/image_raw",
        "I /head/depth/image_raw",
        "K /head/color/camera_info",
        "T /robot/tf",
        "S /robot/robot_description",
        "S /chatter",
        "Q /arm_controller/joint_trajectory",
        "J /arm/joint_states",
    ];
    assert_eq!(
        propose(&topics(&names), &wanted).arguments().unwrap(),
        "--cameras wrist --remap /joint_states:=/arm/joint_states \
         --remap /planned_joints:=/arm_controller/joint_trajectory --remap /tf:=/robot/tf \
         --remap /robot_description:=/robot/robot_description"
    );
}

#[test]
fn without_a_camera_it_says_what_to_record() {
    for names in [&["S /chatter"][..], &[]] {
        let proposal = propose(&topics(names), &Topics::default());
        assert_eq!(proposal.arguments(), None);
        // A robot need not be there.
        assert_eq!(proposal.notes.len(), 1, "{:?}", proposal.notes);
        assert!(proposal.notes[0].contains("no camera was found"));
    }
    // One that is there is not denied.
    let proposal = propose(&topics(&["I /cam/depth/image_raw", "S /chatter"]), &Topics::default());
    let lacks = "the camera in /cam can't be used: it has depth images, and no colour images and \
                 calibration (sensor_msgs/msg/CameraInfo): record them";
    assert_eq!((proposal.arguments(), proposal.notes), (None, vec![lacks.to_owned()]));
    let mut silent = topics(&REALSENSE);
    for topic in &mut silent {
        topic.n_messages = 0;
    }
    assert_eq!(propose(&silent, &Topics::default()).arguments(), None);
}

#[test]
fn arguments_are_one_word_each_to_a_shell() {
    let names = ["P /a b$(ls)'/points", "J /joint_states"];
    let arguments = propose(&topics(&names), &Topics::default()).arguments().unwrap();
    assert_eq!(arguments, r"--cameras 'a b$(ls)'\''' --input points");
}

#[test]
fn cameras_come_in_natural_order() {
    let of = |i: u32| {
        let name = |kind, rest: &str| format!("{kind} /camera_{i}/{rest}");
        [name("I", "color/image_raw"), name("I", "depth/image_raw"), name("K", "color/camera_info")]
    };
    let names: Vec<String> = [10, 2, 1].into_iter().flat_map(of).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(arguments(&names), "--cameras camera_1,camera_2,camera_10");
}

#[test]
fn measured_joint_states_come_before_commands() {
    let mut topics = topics(&["J /isaac_joint_commands", "J /isaac_joint_states", "S /arm/urdf"]);
    topics[0].n_messages = 1000;
    let proposal = propose(&topics, &Topics::default());
    let remap = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let expected =
        [remap("/joint_states", "/isaac_joint_states"), remap("/robot_description", "/arm/urdf")];
    assert_eq!(proposal.remaps, expected);
}

#[test]
fn what_was_said_of_depth_is_kept() {
    let names = [
        "I /a/color/image_raw",
        "I /a/depth/image_raw",
        "K /a/color/camera_info",
        "K /a/depth/camera_info",
    ];
    let camera = CameraTopics::new("camera_left", CameraInput::Images, false);
    let wanted = Topics { cameras: vec![camera], ..Topics::default() };
    let proposal = propose(&topics(&names), &wanted);
    assert_eq!(proposal.arguments().unwrap(), "--cameras a -p depth_registered:=false");
    assert_eq!(proposal.notes, [] as [String; 0]);
    let proposal = propose(&topics(&names[..3]), &wanted);
    assert!(proposal.notes[0].contains("no calibration of its own"), "{:?}", proposal.notes);
}

#[test]
fn what_is_compressed_beside_what_is_not_and_depth_alone() {
    let named = |color: &str, depth: &str| {
        let kind = |name: &str| if name.contains("compressed") { "C" } else { "I" };
        let names = [
            format!("{} /cam{color}", kind(color)),
            "K /cam/color/camera_info".to_owned(),
            format!("{} /cam{depth}", kind(depth)),
            "J /joint_states".to_owned(),
        ];
        arguments(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let [color, depth] = ["/color/image_raw", "/depth/image_raw"];
    let compressed = format!("{color}/compressed");
    assert_eq!(named(&compressed, depth), "--cameras cam --input color_compressed");
    let compressed_depth = format!("{depth}/compressedDepth");
    assert_eq!(named(color, &compressed_depth), "--cameras cam --input depth_compressed");
    let png = format!("{depth}/compressed");
    assert_eq!(
        named(&compressed, &png),
        "--cameras cam --input compressed --remap \
         /cam/depth/image_raw/compressedDepth:=/cam/depth/image_raw/compressed"
    );
    let alone = ["I /tof/depth/image_raw", "K /tof/depth/camera_info", "J /joint_states"];
    assert_eq!(arguments(&alone), "--cameras tof --input depth_only");
}
