"""Seeds of the splits: disjoint by construction."""

SEEDS_PER_SPLIT = 100_000
SPLITS = ("train", "val", "test", "unseen", "materials", "robots")  # add at the end: seeds follow the order


def seeds(split: str, first: int, episodes: int) -> range:
    """The seeds of episodes `first` to `first + episodes - 1` of a split.

    Raises ValueError on an unknown split, or where the seeds would leave it.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, expected one of {', '.join(SPLITS)}")
    if first < 0 or episodes < 0 or first + episodes > SEEDS_PER_SPLIT:
        raise ValueError(
            f"episodes {first} to {first + episodes - 1} leave the split {split}, "
            f"which has {SEEDS_PER_SPLIT}"
        )
    start = SPLITS.index(split) * SEEDS_PER_SPLIT + first
    return range(start, start + episodes)


def split_of(seed: int) -> str:
    """The split that a seed belongs to."""
    index = seed // SEEDS_PER_SPLIT
    if not 0 <= index < len(SPLITS):
        raise ValueError(f"seed {seed} belongs to no split")
    return SPLITS[index]
