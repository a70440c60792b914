"""The documentation as its tests read it: pages, paragraphs, code blocks, commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs/src"
README = ROOT / "README.md"
CARD = ROOT / "models/README.md"
GUIDE = sorted((BOOK / "guide").glob("*.md"))
REFERENCE = sorted((BOOK / "reference").glob("*.md"))
NOTEBOOK = sorted((BOOK / "notebook").glob("*.md"))
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [ROOT / f"{p}.md" for p in ("CHANGELOG", "CONTRIBUTING", "models/README", "sim/README", "benches/README", "data/README")]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def tool() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(os.environ.get("FORECLOUD", target / "release/forecloud"))


@cache
def help_of(*words: str) -> str:
    """What `forecloud WORDS --help` prints; empty where there is no such command."""
    command = [str(tool()), *words, "--help"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "400"})
    return result.stdout if result.returncode == 0 else ""


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """Running text: without code, tables and headings; of a list each item."""
    fenced, lines = False, []
    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            fenced = not fenced
        stop = fenced or line.startswith(("```", "#", "|", "    ", "<!--")) or not line.strip()
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if (stop or item) and lines:
            yield " ".join(lines)
            lines = []
        if not stop:
            lines.append(line.strip())


def lines_of(block: str) -> Iterator[str]:
    """The command lines of a block; one that goes over several lines, by a backslash or a quote, as one."""
    pending = ""
    for line in block.splitlines():
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        try:
            shlex.split(pending, comments=True)
        except ValueError:  # a quote that is still open
            pending += "\n"
            continue
        if pending.strip() and not pending.lstrip().startswith("#"):
            yield pending
        pending = ""
    assert not pending, f"a quote is never closed: {pending}"


OPERATORS = {";", "|", "||", "&", "&&", "(", ")", "{", "}", "do", "done", "then", "else", "fi", ";;"}


def commands(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a line; where output goes is left out."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from commands(inner)
    line = re.sub(r"\$\([^()]*\)", "$made", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    lexer.commenters, lexer.whitespace_split = "#", True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif word in {">", ">>", "<", "2>", "2>>"}:
            skip = True
        elif word in OPERATORS or set(word) <= set(";|&()"):
            if words:
                yield words
            words = []
        elif not words and re.fullmatch(r"\w+=.*", word, re.DOTALL):
            pass  # a variable before the command, or alone
        else:
            words.append(word)


def help_examples() -> dict[str, list[str]]:
    """The examples of each command's help."""

    def below(words: tuple[str, ...]) -> dict[str, list[str]]:
        text = help_of(*words)
        found = {}
        match = re.search(r"^Examples?:\n((?:  .*\n?)+)", text, re.MULTILINE)
        if match:
            found[" ".join(("forecloud", *words, "--help"))] = [line.strip() for line in match[1].splitlines()]
        if listed := re.search(r"^Commands:\n((?:  .*\n?)+)", text, re.MULTILINE):
            for command in re.findall(r"^  ([\w-]+)", listed[1], re.MULTILINE):
                if command != "help":
                    found |= below((*words, command))
        return found

    return below(())
