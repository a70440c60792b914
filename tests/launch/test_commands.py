"""Commands that documentation and help show: each is one that there is, with options that it has; those of
the tool in README, guide and help run, on recordings of a second and a half, with two steps of training."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from pages import CARD, GUIDE, NOTEBOOK, OTHERS, README, REFERENCE, ROOT, code_blocks, commands, help_examples, help_of, lines_of, name
from world import World, make_stock

# Programs that are not ours: what they take is theirs to say.
FOREIGN = set(
    "apt apt-get sudo pip colcon ros2 export git cd cp kubectl sbatch sqlite3 head xacro cargo rustup source rerun for loop mkdir bash pytest unzip curl echo env docker which mdbook forecloud_node".split()
)
# Options that models and tool once had: the notebook keeps what was run then.
GONE = {"--inputs", "--sigma", "--second-looks", "--no-lean-when-unlike", "--global", "--local", "--top-k", "--encodings", "--mlp-ratio",
        "--hold-out-seed", "--tuning-share", "--checkpoint-secs", "--validations", "--feature-seed", "--blocks", "--k", "--n-hops",
        "--particles", "--history", "--n-kinematic", "--plan-lag", "--feature-map", "--random-features", "--anchor-stride",
        "--edge-bandwidth", "--sampler", "--walks", "--p-halt", "--mask-cell", "--curriculum", "--step-discount", "--sensor-noise",
        "--validation-windows", "--pixel-weight", "--rays", "--width", "--world-frame", "--robot", "--unregistered-depth",
        "--level-camera", "--tolerance-secs", "--mesh-path", "--no-hold-at-rest", "--no-carry-robot"}  # fmt: skip
# Commands of the Python package beside the tool's; python/tests runs them.
OF_THE_PACKAGE = {"view": "view.py", "cluster": "cluster.py"}
# Examples that cannot run here, and why.
NOT_RUN = {
    "/lidar/points": "no recording here has a topic of clouds",
    "--device cuda": "needs a GPU",
    "cluster": "needs the package and Ray: python/tests/test_cluster.py",
    "forecloud view": "needs the package and rerun: python/tests/test_guide.py",
    "…": "not a whole command",
    "forecloud compare": "trains each rival: minutes. A test of its own runs it",
    "--shard 1/4": "one share of four: merging takes all",
}


def shown(page: Path) -> list[str]:
    """The command lines of a page."""
    text = page.read_text()
    indented = re.findall(r"^    ((?:target/release/)?forecloud .*)$", text, re.MULTILINE)
    indented += [inline.split(" [")[0] for inline in re.findall(r"`(cargo (?:run|bench|test) [^`…]*)`", text)]
    return [line for block in code_blocks(text, "sh") for line in lines_of(block)] + indented


def is_tool(word: str) -> bool:
    return word == "forecloud" or word.endswith("target/release/forecloud")


@cache
def source_of(path: Path) -> str:
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return "\n".join(file.read_text() for file in files)


def options(words: list[str]) -> list[str]:
    return [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]


def fault_of_tool(words: list[str], gone: set[str]) -> str | None:
    if words[0] in OF_THE_PACKAGE:
        source = source_of(ROOT / "python/forecloud" / OF_THE_PACKAGE[words[0]])
        own = words[: words.index("--")] if "--" in words else words
        rest = words[len(own) + 1 :]
        missing = [option for option in options(own) if f'"{option}"' not in source]
        if missing:
            return f"{missing[0]} is no option of `forecloud {words[0]}`"
        return fault_of_tool([own[1], *rest], gone) if rest else None
    # `forecloud replay bag --help` is the help of `replay`: its usage tells how many words are the command's.
    named = [n for n in (1, 2, 3) if len(words) >= n and all(re.fullmatch(r"[a-z][\w-]*", w) for w in words[:n]) and re.search(rf"^Usage: \S+ {' '.join(words[:n])} ", help_of(*words[:n]), re.MULTILINE)]
    depth = max(named, default=0)
    if depth == 0:
        return None if options(words) in (["--help"], ["--version"]) else f"there is no `forecloud {words[0]}`"
    text = help_of(*words[:depth])
    missing = [o for o in options(words[depth:]) if not re.search(rf"^\s+(-\w, )?{o}\b(?!-)", text, re.MULTILINE) and o not in gone]
    return f"{missing[0]} is no option of `forecloud {' '.join(words[:depth])}`" if missing else None


def fault_of_module(words: list[str]) -> str | None:
    module = words[0]
    if not module.startswith("sim"):
        return None
    path = ROOT / module.replace(".", "/")
    path = path if path.is_dir() else path.with_suffix(".py")
    if not path.exists():
        return f"there is no module {module}"
    missing = [option for option in options(words) if f'"{option}"' not in source_of(path) and option != "--help"]
    return f"{missing[0]} is no option of {module}" if missing else None


def fault_of_cargo(words: list[str]) -> str | None:
    """Examples, benches and tests are there, and in the package that is named (none: the workspace's own)."""
    folders = {"--example": "examples", "--bench": "benches", "--test": "tests"}
    words = words[: words.index("--")] if "--" in words else words
    package = next((words[i + 1] for i, word in enumerate(words) if word in {"-p", "--package"}), None)
    roots = [ROOT, ROOT / "crates/cli", ROOT / "crates/node"] if package in {None, "forecloud"} else [ROOT / "crates" / package.removeprefix("forecloud-")]
    if not all((root / "Cargo.toml").exists() for root in roots):
        return f"there is no package {package}"
    for i, word in enumerate(words):
        if word in folders:
            wanted = words[i + 1]
            places = [root / folders[word] / name for root in roots for name in (f"{wanted}.rs", f"{wanted}/main.rs")]
            named = any(f'name = "{wanted}"' in (root / "Cargo.toml").read_text() for root in roots)
            if not named and not any(place.exists() for place in places):
                return f"there is no {word[2:]} {wanted}" + (f" in {package}" if package else " in the package that cargo takes: name it by -p")
    return None


def fault(words: list[str], gone: set[str] = frozenset()) -> str | None:
    """What is wrong with a command; None if nothing is."""
    program, rest = words[0], words[1:]
    if is_tool(program):
        return fault_of_tool(rest, gone) if rest else None
    if program == "cargo":
        return fault_of_cargo(rest)
    if Path(program).name.startswith("python"):
        if rest[:1] == ["-m"]:
            return fault_of_module(rest[1:])
        scripts = [word for word in rest if word.endswith(".py")]
        return next((f"{script} is not there" for script in scripts if not (ROOT / script).exists()), None)
    if "/" in program and (ROOT / program.split("/")[0]).is_dir():
        path = ROOT / program
        made = program.startswith(("install/", "build/", ".venv/"))
        return None if made or (path.exists() and path.stat().st_mode & 0o111) else f"{program} is no program"
    if program in FOREIGN or made_by_shell(program):
        return None
    return f"{program} is a program that this test does not know"


def made_by_shell(program: str) -> bool:
    return program.startswith(("$", "[", ".venv/", "install/", "build/"))


PAGES = [README, CARD, *GUIDE, *REFERENCE, *[p for p in OTHERS if p != CARD]]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_there_and_have_the_options(page):
    faults = [f"{line}\n    {why}" for line in shown(page) for words in commands(line) if (why := fault(words))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", NOTEBOOK, ids=name)
def test_commands_of_the_notebook_are_there_or_were(page):
    faults = [f"{line}\n    {why}" for line in shown(page) for words in commands(line) if (why := fault(words, GONE))]
    assert not faults, "\n".join(faults)


def test_faults_are_found():
    for line, why in {
        "forecloud replay --no-such-thing bag": "--no-such-thing is no option of `forecloud replay`",
        "forecloud repaly bag": "there is no `forecloud repaly`",
        "python -m sim.generate --episode 3": "--episode is no option of sim.generate",
        "scripts/nothing": "scripts/nothing is no program",
        "cargo run --example nothing": "there is no example nothing in the package that cargo takes: name it by -p",
    }.items():
        assert [fault(words) for words in commands(line)] == [why]


def shortened(line: str) -> str:
    """The line with as few steps of training, or plans, as there can be."""
    for command in ("train", "train-video"):
        if f"forecloud {command} " in line:
            line = re.sub(r" --(?:steps|stop-at|validate-every) \S+", "", line)
            line = line.replace(f"forecloud {command} ", f"forecloud {command} --steps 2 ")
    # Eight recordings are needed for that; training would read each of them.
    line = re.sub(r"calibrate (recordings|my_bags) ", "calibrate held_out ", line)
    # Pictures are slow to draw: those of half a second, and small.
    line = re.sub(r"(--render .*) \S+$", r"\1 tiny_push", line)
    if re.search(r"forecloud plan ", line):
        line = re.sub(r" --(?:max-plans|budget) \S+", "", line)
        line = re.sub(r"(forecloud plan) ", r"\1 --max-plans 4 ", line)
    return line


OF_PAGES = {name(page): shown(page) for page in [README, *GUIDE]}
ONCE = {line for lines in OF_PAGES.values() for line in lines}
# What a page has is not run again for a help.
EXAMPLES = OF_PAGES | {source: [line for line in lines if line not in ONCE] for source, lines in help_examples().items()}
RUN = {
    source: lines
    for source, all_lines in EXAMPLES.items()
    if (lines := [line for line in all_lines if any(is_tool(w[0]) for w in commands(line)) and not any(part in line for part in NOT_RUN)])
}


@pytest.fixture(scope="session")
def stock(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    make_stock(folder)
    return folder


def run(world: World, line: str) -> None:
    result = world.run(shortened(line))
    # No plan of four is good enough (3): an answer, too.
    good = {0, 3} if "forecloud plan " in line else {0}
    assert result.returncode in good, f"{line}\nas {shortened(line)}\n{result.stderr[-2000:]}\n{result.stdout[-500:]}"


@pytest.mark.parametrize("source", RUN)
def test_examples_run(source, stock, tmp_path):
    page = "" if source.endswith("--help") else (ROOT / source).read_text()
    world = World(tmp_path / "clone", stock, page)
    for line in RUN[source]:
        if source.endswith("--help"):  # a page's go on from each other, those of a help stand alone
            world.remove()
            world = World(tmp_path / "clone", stock)
        run(world, line)
    world.remove()
