//! One message in ten damaged at random, for as long as a robot runs in a quarter of an hour.
//!
//! Apart from `crates/cli/tests/faults/main.rs`: its memory is measured, and other tests in the same process would
//! count.

#[path = "faults/intake.rs"]
mod intake;
#[path = "faults/memory.rs"]
mod memory;
#[path = "faults/stream.rs"]
mod stream;

use forecloud::vision::frames::Topics;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use intake::Intake;
use memory::resident_bytes;
use stream::Message;

/// A quarter of an hour at 10 Hz, and more.
const N_FRAMES: u64 = 10_000;
const SEED: u64 = 7;

/// Damages a message in one of the ways in which cables, drivers and programs do.
fn damage(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    let n = bytes.len();
    match rng.random_range(0..6) {
        0 => bytes.truncate(rng.random_range(0..n)),
        1 => bytes.extend((0..rng.random_range(1..64)).map(|_| rng.random::<u8>())),
        2 => {
            // A few bits, anywhere.
            for _ in 0..rng.random_range(1..8) {
                bytes[rng.random_range(0..n)] ^= 1 << rng.random_range(0..8);
            }
        }
        3 => {
            // A few bits of the head, where stamps, names and sizes lie.
            for _ in 0..rng.random_range(1..4) {
                bytes[rng.random_range(0..n.min(80))] ^= 1 << rng.random_range(0..8);
            }
        }
        4 => {
            let at = rng.random_range(0..n);
            let end = (at + rng.random_range(1..64)).min(n);
            rng.fill(&mut bytes[at..end]);
        }
        _ => {
            let value = [0, 0xff][rng.random_range(0..2)];
            let at = rng.random_range(0..n);
            let end = (at + 8).min(n);
            bytes[at..end].fill(value);
        }
    }
}

/// Damaged messages that decode, and those that do not: each of these must be counted.
#[derive(Default, Debug)]
struct Damaged {
    n_decoded: u64,
    n_refused: u64,
}

fn take_damaged(intake: &mut Intake, topics: &Topics, message: &Message, damaged: &mut Damaged) {
    let decodes = topics.decode(message.topic, &message.bytes).expect("one of the topics").is_ok();
    let before = intake.counts();
    intake.take(message);
    let after = intake.counts();
    if decodes {
        damaged.n_decoded += 1;
    } else {
        damaged.n_refused += 1;
        assert_eq!(after.bad_messages, before.bad_messages + 1, "{}", message.topic);
    }
}

#[test]
fn one_message_in_ten_damaged_stops_nothing_and_takes_no_memory() {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let topics = Topics::default();
    let mut intake = Intake::after(5);
    let (mut damaged, mut n_messages) = (Damaged::default(), 0);
    let n = N_FRAMES;
    let mut resident = Vec::new();
    let mut longest_silence = 0;
    let mut silence = 0;
    for i in 5..5 + n {
        let mut messages = stream::frame(i);
        // Latched messages come again, as those of a publisher that starts anew.
        if i % 10 == 0 {
            messages.splice(0..0, stream::start());
        }
        let before = intake.n_predicted;
        for mut message in messages {
            n_messages += 1;
            if rng.random_bool(0.1) {
                damage(&mut rng, &mut message.bytes);
                take_damaged(&mut intake, &topics, &message, &mut damaged);
            } else {
                intake.take(&message);
            }
        }
        silence = if intake.n_predicted > before { 0 } else { silence + 1 };
        longest_silence = longest_silence.max(silence);
        intake.problems.clear();
        if [n / 10, n / 2, n].contains(&(i - 4)) {
            resident.push(resident_bytes().unwrap_or_default());
        }
    }
    let (counts, n_predicted) = (intake.counts(), intake.n_predicted);
    println!(
        "{n} frames, {n_messages} messages, {damaged:?}; {counts:?}; {n_predicted} predictions, \
         {} frames without history, {} rejected, {} robot descriptions refused; longest silence \
         {longest_silence} frames; resident at 10, 50, 100 %: {resident:?} bytes",
        intake.n_without_history, intake.n_rejected, intake.n_robots_refused
    );
    assert!(counts.bad_messages >= damaged.n_refused && damaged.n_decoded > 0);
    assert!(n_predicted > n / 2, "{n_predicted} predictions");
    // The longest: names of joints that no robot has, waited for during five seconds.
    assert!(longest_silence < 100, "{longest_silence} frames");
    assert!(resident[2] < resident[0] + (4 << 20), "{resident:?}");
    // Good messages again, and what is latched once more: all as before.
    intake.take_all(stream::start());
    intake.take_frames(n + 5..n + 65);
    assert!(intake.take_frames(n + 65..n + 75) == 10, "{:?}", intake.problems);
}
