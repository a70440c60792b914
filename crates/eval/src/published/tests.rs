//! Objects of published predictions, held against replay's.

use forecloud::predict::objects::{Followed, ParticleKind};

use super::*;

const SETUP: Setup = Setup { model_hash: "m", world_frame: "world", step_secs: 0.1 };

/// Three particles of the objects `numbers`.
fn replayed(numbers: [u64; 3]) -> Prediction {
    let stamp = Stamp::from_secs(7.0);
    let mut prediction = Prediction { stamp, ..Prediction::default() };
    prediction.particles.positions = vec![[0.5; 3]; 3];
    prediction.particles.sources = vec![1, 2, 3];
    let map = &mut prediction.objects;
    map.number_of = numbers.to_vec();
    map.kinds = vec![ParticleKind::Resting; 3];
    let mut seen: Vec<u64> = numbers.iter().copied().filter(|number| *number > 0).collect();
    seen.sort_unstable();
    seen.dedup();
    map.seen = seen.into_iter().map(|number| Followed { number, since: stamp }).collect();
    (map.since, map.n_followed) = (Stamp::from_secs(6.0), 4);
    prediction
}

fn published(numbers: [u64; 3], n_followed: u64) -> Published {
    let prediction = replayed(numbers);
    let (object_ids, objects) = prediction.objects.indexed();
    Published::new([message::Prediction {
        header: message::Header { stamp: prediction.stamp, frame_id: "world".into() },
        step_secs: 0.1,
        n_particles: 3,
        model_hash: "m".into(),
        positions: prediction.particles.positions.concat(),
        sources: prediction.particles.sources.clone(),
        object_ids,
        objects,
        kinds: vec![ParticleKind::Resting as u8; 3],
        objects_since: prediction.objects.since,
        n_followed,
        ..message::Prediction::default()
    }])
}

#[test]
fn numbers_are_compared_to_the_bit_or_up_to_renaming() {
    let told = |numbers, n_followed| {
        let mut published = published(numbers, n_followed);
        published.compare(&replayed([5, 0, 9]), &SETUP);
        let comparison = published.comparison().clone();
        let counts = (comparison.n_renumbered, comparison.n_other_objects);
        (comparison.agreement(), counts, comparison.verdict())
    };
    assert_eq!(told([5, 0, 9], 4), (Agreement::Equal, (0, 0), "yes".into()));
    // The node has followed more predictions than the recording holds.
    assert_eq!(told([2, 0, 1], 8), (Agreement::Equal, (1, 0), "yes".into()));
    for others in [[5, 5, 9], [5, 0, 5], [0, 0, 9]] {
        let (agreement, counts, verdict) = told(others, 8);
        assert_eq!((agreement, counts), (Agreement::Partial, (0, 1)));
        assert!(verdict.contains("objects of 1 hang on earlier predictions"), "{verdict}");
    }
    // Those that hang on the same predictions must be the same.
    for others in [[2, 0, 1], [5, 5, 9]] {
        let (agreement, counts, verdict) = told(others, 4);
        assert_eq!((agreement, counts), (Agreement::Different, (0, 0)));
        assert!(verdict.contains("other numbers"), "{verdict}");
    }
}
