//! What goes wrong on real robots, and what becomes of it: the table in docs/src/reference/faults.md.

mod chunks;
#[cfg(unix)]
#[path = "../../../../tests/support/edited.rs"]
mod edited;
mod images;
mod intake;
mod joints;
mod memory;
mod model_files;
#[cfg(unix)]
mod recordings;
#[cfg(unix)]
mod replay_outputs;
#[cfg(unix)]
mod run;
mod stream;
mod tf;
mod time;
#[cfg(unix)]
mod training;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// The tests that docs/src/reference/faults.md names: `file::function`, or a file of its own.
#[test]
fn the_table_names_tests_that_are_there() {
    let root = std::path::Path::new(crate::ROOT);
    let table = std::fs::read_to_string(root.join("docs/src/reference/faults.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Fault"));
    let mut n_rows = 0;
    for row in rows {
        let held_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        // Marked so only while it is true.
        let is_to_come = held_by.starts_with("to come:");
        let names: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "held by nothing: {row}");
        for name in names {
            let (path, function) = name.split_once("::").unwrap_or((name, "main"));
            let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            let heads = [format!("fn {function}("), format!("def {function}(")];
            let is_there = heads.iter().any(|head| text.contains(head));
            assert_eq!(is_there, !is_to_come, "{name}, in the row: {row}");
        }
        n_rows += 1;
    }
    assert!(n_rows > 40, "{n_rows} rows");
}

/// The workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
