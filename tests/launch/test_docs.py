"""The documentation: it is as short as it says, its links lead somewhere, what is made of the code is
current, and the launch file takes the lines that it shows. What commands do: `test_commands.py`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import BOOK, CARD, GUIDE, OTHERS, PAGES, README, REFERENCE, ROOT, code_blocks, lines_of, name, paragraphs, tool


def launch_lines() -> list[tuple[str, dict[str, str]]]:
    """Page, and arguments by name, of each `ros2 launch forecloud` in a code block."""
    found = []
    for page in PAGES:
        for block in code_blocks(page.read_text(), "sh"):
            for line in lines_of(block):
                if not line.startswith("ros2 launch "):
                    continue
                words = shlex.split(line, comments=True)
                if words[:4] == ["ros2", "launch", "forecloud", "forecloud.launch.py"]:
                    given = [word for word in words[4:] if word != "--show-args"]
                    found.append((page.name, dict(word.split(":=", 1) for word in given)))
    return found


def test_the_lines_are_found():
    assert len(launch_lines()) > 15


@pytest.mark.parametrize("page, given", launch_lines())
def test_the_launch_file_takes_the_line(start, page, given):
    start.packages |= {"ros2bag", "rviz2"}
    # Files that the reader has.
    here = {
        "params": "config/forecloud.yaml",
        "relay_params": "config/plan_relay.yaml",
        "bag": "tests/data/tiny_push",
        "model": "models/small.safetensors",
    }
    given |= {name: str(ROOT / here[name]) for name in given.keys() & here.keys()}
    start(**given)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and mdBook make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def outside_of_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def test_links_lead_somewhere():
    broken = []
    for page in [*PAGES, *OTHERS]:
        for link in re.findall(r"\]\(([^)\s]+)\)", outside_of_code(page.read_text())):
            if link.startswith(("http://", "https://")):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                broken.append(f"{name(page)}: {link}")
            elif anchor and target.suffix == ".md":
                headings = re.findall(r"^#+ (.*)$", outside_of_code(target.read_text()), re.MULTILINE)
                if anchor not in {slug(heading) for heading in headings}:
                    broken.append(f"{name(page)}: {link}: no such heading")
    assert not broken, "\n".join(broken)


def test_pages_that_code_and_help_name_are_there():
    """Not only links: `docs/…` in comments, help and messages, too."""
    folders = "src crates python sim scripts launch config msg srv action tests examples benches docs models .ci".split()
    suffixes = {".rs", ".py", ".md", ".toml", ".yaml", ".msg", ".srv", ".action", ".sh", ""}
    missing = set()
    # No other folders: environments lie there, too.
    for root in [*(ROOT / folder for folder in folders), *filter(Path.is_file, ROOT.iterdir())]:
        for path in [root] if root.is_file() else root.rglob("*"):
            parts = set(path.relative_to(ROOT).parts)
            made = any(part.startswith(".") or part in {"target", "__pycache__", "book"} for part in parts - {".ci"})
            if made or path.suffix not in suffixes or not path.is_file():
                continue
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            for mention in re.findall(r"(?<![\w/.-])docs/[\w/.-]+\.(?:md|svg|png|ipynb|yaml|sbatch|toml)\b", text):
                if not (ROOT / mention).exists():
                    missing.add(f"{path.relative_to(ROOT)}: {mention}")
    assert not missing, "\n".join(sorted(missing))


def test_the_book_lists_every_page():
    listed = set(re.findall(r"\]\(([^)]+\.md)\)", (BOOK / "SUMMARY.md").read_text()))
    there = {str(page.relative_to(BOOK)) for page in BOOK.rglob("*.md")} - {"SUMMARY.md"}
    assert listed == there


def n_words(text: str) -> int:
    return len(text.split())


def long_paragraphs(page) -> list[str]:
    return [f"{name(page)}: {n_words(p)} words: {p[:60]}…" for p in paragraphs(page.read_text()) if n_words(p) > 90]


def test_readme_and_card_are_short():
    for page in (README, CARD):
        assert n_words(page.read_text()) <= 700, name(page)
        assert not long_paragraphs(page)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.name)
def test_a_page_of_the_guide_is_short(page):
    assert n_words(page.read_text()) <= 800
    assert not long_paragraphs(page)


@pytest.mark.parametrize("page", [p for p in REFERENCE if "Written by docs/generate" not in p.read_text()], ids=lambda page: page.name)
def test_paragraphs_of_the_reference_are_short(page):
    assert not long_paragraphs(page)


def test_the_changelog_is_short():
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60


def test_figures_have_their_command():
    """A figure whose program is gone is deleted."""
    for page in [*PAGES, *OTHERS]:
        assert "is not kept" not in page.read_text() and "not kept)" not in page.read_text(), name(page)


def test_pages_that_are_made_of_the_code_are_current():
    made = subprocess.run([sys.executable, ROOT / "docs/generate", "--check", tool()], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


def test_the_book_builds(tmp_path):
    if shutil.which("mdbook") is None:
        pytest.skip("mdbook is not installed (cargo install mdbook): the book was not built")
    made = subprocess.run(["mdbook", "build", ROOT / "docs", "--dest-dir", tmp_path / "book"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "book/index.html").exists()
    assert "ERROR" not in made.stderr, made.stderr
