"""Pages that the tool writes of small recordings, and browsers to open them in."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from rosbags.rosbag2 import Reader, StoragePlugin, Writer

import browser as chromium

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("FORECLOUD", ROOT / "target/release/forecloud"))
TINY = ROOT / "tests/data/tiny_push"
#: What a page must show as it is, and never obey.
NASTY_NAME = "a\"'><img src=x onerror=document.title='obeyed'>&amp;{{scenes}}"
NASTY_TASK = "</script><script>document.title='obeyed'</script><b>=cmd,\"&lt;"


def replay(out, *arguments):
    """Runs `forecloud replay --out`; the JSON that it prints."""
    assert TOOL.exists(), f"{TOOL} is missing: cargo build --release"
    command = [TOOL, "replay", "--json", "--horizon", "3", "--out", out, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rename_task(source, target, task):
    """Copies a recording with another task in its truth."""
    with Reader(source) as reader, Writer(
        target, version=9, storage_plugin=StoragePlugin.MCAP
    ) as writer:
        connections = {}
        for connection in reader.connections:
            topic = (connection.topic, connection.msgtype)
            definition = connection.msgdef.data or "string data"
            connections[connection.id] = writer.add_connection(
                *topic, msgdef=definition, rihs01=connection.digest or ""
            )
        for connection, time_ns, data in reader.messages():
            if connection.topic == "/truth/bodies":
                bodies = json.loads(bytes(data[8:]).split(b"\0")[0])
                text = json.dumps({**bodies, "task": task}).encode() + b"\0"
                data = bytes(data[:4]) + len(text).to_bytes(4, "little") + text
            writer.write(connections[connection.id], time_ns, data)


class Written:
    """A page, and the report that it must agree with."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.report = replay(folder, *arguments)
        self.url = (folder / "report.html").as_uri()


@pytest.fixture(scope="session")
def nasty_bag(tmp_path_factory):
    bag = tmp_path_factory.mktemp("bags") / NASTY_NAME
    rename_task(TINY, bag, NASTY_TASK)
    return bag


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    return Written(tmp_path_factory.mktemp("page"), TINY)


@pytest.fixture(scope="session")
def nasty(tmp_path_factory, nasty_bag):
    return Written(tmp_path_factory.mktemp("nasty"), TINY, nasty_bag)


@pytest.fixture(scope="session")
def hindsight(tmp_path_factory, nasty_bag):
    return Written(tmp_path_factory.mktemp("hindsight"), "--no-truth", nasty_bag)


def _browser(webgl):
    if chromium.find() is None:
        pytest.skip("no Chromium: `apt-get install chromium` to test the page in a browser")
    browser = chromium.Browser(webgl)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def with_webgl():
    yield from _browser(True)


@pytest.fixture(scope="session")
def without_webgl():
    yield from _browser(False)


@pytest.fixture(params=["webgl", "2d"])
def drawing(request):
    """Both ways of drawing: (name, browser)."""
    name = {"webgl": "with_webgl", "2d": "without_webgl"}[request.param]
    return request.param, request.getfixturevalue(name)


@pytest.fixture
def opened(with_webgl):
    """Opens pages; closes the tabs at the end."""
    tabs = []

    def open_tab(url, browser=with_webgl, **options):
        tabs.append(chromium.Tab(browser, url, **options))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.close()
