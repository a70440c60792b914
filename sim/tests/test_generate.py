"""What the generator's command does before it simulates."""

from sim.generate import NOTE, claim
from sim.imaging import Imaging


def test_a_folder_has_recordings_of_one_kind(tmp_path):
    out = tmp_path / "recordings"
    assert claim(out, "real", Imaging(rate_hz=10)) is None
    # The same command goes on.
    assert claim(out, "real", Imaging(rate_hz=10)) is None
    assert (out / NOTE).exists()
    for other in [("split", None), ("real", None), ("real", Imaging(rate_hz=10, torn=0.1))]:
        problem = claim(out, *other)
        assert problem and "another folder" in problem and "'variety': 'real'" in problem
    assert claim(tmp_path / "others", "split", None) is None
    assert claim(tmp_path / "others", "split", None) is None
    assert "another folder" in claim(tmp_path / "others", "split", None, truth=False)
