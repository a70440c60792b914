"""Seeds of the splits never meet. No OpenGL needed."""

import itertools

import pytest

from sim.splits import SEEDS_PER_SPLIT, SPLITS, seeds, split_of


def test_splits_are_disjoint():
    whole = {split: set(seeds(split, 0, SEEDS_PER_SPLIT)) for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not whole[one] & whole[other]


@pytest.mark.parametrize("split", SPLITS)
def test_a_seed_knows_its_split(split):
    ends = seeds(split, 0, SEEDS_PER_SPLIT)
    assert split_of(ends[0]) == split_of(ends[-1]) == split


@pytest.mark.parametrize("first, episodes", [(SEEDS_PER_SPLIT - 1, 2), (-1, 1), (0, -1)])
def test_a_split_is_never_left(first, episodes):
    with pytest.raises(ValueError, match="leave the split"):
        seeds("train", first, episodes)


def test_unknown_splits_and_seeds():
    with pytest.raises(ValueError, match="unknown split"):
        seeds("trian", 0, 1)
    with pytest.raises(ValueError, match="no split"):
        split_of(len(SPLITS) * SEEDS_PER_SPLIT)
