//! The commands of docs/src/reference/faults.md on SQLite recordings whose pages are damaged.

use super::written::{assert_reads, messages, sqlite_bytes};
use forecloud_bag::bag::Bag;
use std::path::Path;
use std::process::Command;

const PAGE_BYTES: usize = 4096;
/// First byte of an inner page of a table.
const INNER: u8 = 5;

fn commands() -> String {
    let table = Path::new(crate::ROOT).join("docs/src/reference/faults.md");
    let table = std::fs::read_to_string(table).unwrap();
    table.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned()
}

#[test]
fn the_commands_of_the_table_save_all_messages() {
    let pages = Command::new("sqlite3").args([":memory:", "SELECT 1 FROM sqlite_dbpage"]).output();
    if !pages.is_ok_and(|output| output.status.success()) {
        super::shared::skipped("there is no sqlite3 that has .recover");
        return;
    }
    let messages = messages(3_000);
    for n_columns in [5, 6] {
        let whole = sqlite_bytes(&messages, n_columns);
        let mut schema = whole.clone();
        schema[100..PAGE_BYTES].fill(0xA5);
        let mut inner = whole.clone();
        inner.chunks_mut(PAGE_BYTES).filter(|page| page[0] == INNER).for_each(|p| p.fill(0xA5));
        for bytes in [schema, inner] {
            let folder = tempfile::tempdir().unwrap();
            let [file, new] = ["damaged.db3", "new.db3"].map(|name| folder.path().join(name));
            std::fs::write(&file, bytes).unwrap();
            let before = Bag::open(&file);
            let told = before.as_ref().map_or_else(
                |error| error.to_string(),
                |bag| bag.warnings().join("\n") + &format!("{} messages", bag.n_messages()),
            );
            assert!(told.contains("docs/src/reference/faults.md"), "{told}");
            assert!(before.is_err() || told.contains("0 messages"), "{told}");
            let mut command = Command::new("sh");
            command.args(["-ec", &commands()]).env("FILE", &file).env("NEW", &new);
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            assert_reads(&Bag::open(&new).unwrap(), &messages);
        }
    }
}
