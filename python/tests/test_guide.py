"""The Python that README and the guide show runs, page by page, in a folder like a clone's; so does
`forecloud view`. Blocks that are not of the package alone say so (```python ros)."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/src/guide").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def of_pages(language: str, begins: str) -> list[Path]:
    return [page for page in PAGES if any(begins in block for block in blocks(page, language))]


@pytest.fixture
def clone(tmp_path) -> Path:
    for name in ("data", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("page", of_pages("python", ""), ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, clone):
    # In a process of its own, each block after the ones before it, as a reader types them.
    code = "\n".join(blocks(page, "python")).replace("budget=2.0", "budget=0.5")
    result = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


VIEWS = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("forecloud view")]


@pytest.mark.parametrize("line", [line for line in VIEWS if "--save" in line])
def test_view_saves_what_the_guide_says(line, clone):
    pytest.importorskip("rerun", reason="rerun is not installed")
    command = shutil.which("forecloud", path=str(Path(sys.executable).parent))
    words = [command, *shlex.split(line, comments=True)[1:]]
    result = subprocess.run(words, cwd=clone, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert any(clone.glob("*.rrd"))
