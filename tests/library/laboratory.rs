//! Layers that the robot's package is built without.

use forecloud::engine::model::LocalLayer;

#[test]
fn a_mask_is_refused_without_the_laboratory_which_is_named_and_known_with_it() {
    let forest = || serde_json::from_str::<LocalLayer>("\"forest\"");
    let problem = forest().expect_err("not registered").to_string();
    for part in ["`forest` is none of grf, message_passing, linear, none", "forecloud-lab"] {
        assert!(problem.contains(part), "{problem}");
    }
    forecloud_lab::register();
    assert_eq!(forest().expect("registered").name(), "forest");
}
