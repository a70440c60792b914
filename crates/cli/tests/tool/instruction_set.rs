//! The tool and the variable that holds its vector instructions.

use std::process::Command;

#[test]
fn unknown_instructions_end_the_tool_with_what_there_is() {
    let run = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forecloud"));
        command.args(["info", "tests/data/tiny_push"]).current_dir(crate::ROOT);
        command.env("FORECLOUD_SIMD", name).output().unwrap()
    };
    let output = run("sse9");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("FORECLOUD_SIMD: there is no 'sse9': take scalar"), "{told}");
    for known in ["scalar", ""] {
        assert!(run(known).status.success(), "'{known}'");
    }
}
