"""The page of `forecloud replay --out` in a real browser: what it says is what was found."""

import json
import re

import pytest
from conftest import NASTY_NAME, NASTY_TASK

SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
HEX = "getComputedStyle(document.documentElement).getPropertyValue('{}').trim()"


def view(opened, url, browser, **options):
    """A tab whose view is drawn."""
    tab = opened(url, browser, **options)
    tab.wait("document.getElementById('stage').dataset.drawing")
    tab.evaluate(SETTLED)
    return tab


def pixels(tab):
    """The drawn picture, as text to compare."""
    tab.evaluate(SETTLED)
    return tab.evaluate("document.getElementById('canvas').toDataURL()")


def change(tab, name, value):
    """Sets a control as a user does."""
    key = "checked" if isinstance(value, bool) else "value"
    tab.evaluate(
        f"(() => {{ const control = document.getElementById('{name}');"
        f"control.{key} = {json.dumps(value)};"
        "control.dispatchEvent(new Event('input')); control.dispatchEvent(new Event('change')); })()"
    )


def text(tab, name):
    return tab.evaluate(f"document.getElementById('{name}').textContent")


def focus(tab, name):
    tab.evaluate(f"document.getElementById('{name}').focus()")


# --- Nothing from outside, nothing wrong.


@pytest.mark.parametrize("written", ["page", "nasty", "hindsight"])
def test_a_page_asks_for_nothing_and_complains_of_nothing(request, opened, drawing, written):
    name, browser = drawing
    url = request.getfixturevalue(written).url
    tab = view(opened, url, browser)
    for control, value in [("step", 1), ("color", "error"), ("layout", "over"), ("step", 3)]:
        change(tab, control, value)
        tab.evaluate(SETTLED)
    assert tab.requests() == [url]
    assert tab.complaints() == []
    assert tab.evaluate("document.getElementById('stage').dataset.drawing") == name


def test_a_page_may_load_and_run_nothing_else(opened, page):
    tab = opened(page.url)
    tab.evaluate(
        """(() => {
          window.refused = [];
          document.addEventListener('securitypolicyviolation',
            (event) => window.refused.push(event.effectiveDirective));
          const add = (tag, values) =>
            document.body.append(Object.assign(document.createElement(tag), values));
          add('script', { textContent: 'window.obeyed = true' });
          add('script', { src: 'http://127.0.0.1:9/a.js' });
          add('style', { textContent: 'body { color: red }' });
          add('img', { src: 'http://127.0.0.1:9/a.png' });
          add('iframe', { src: 'http://127.0.0.1:9/' });
          fetch('http://127.0.0.1:9/').catch(() => 0);
        })()"""
    )
    tab.wait("window.refused.length >= 6")
    assert sorted(tab.evaluate("window.refused")) == [
        "connect-src", "frame-src", "img-src", "script-src-elem", "script-src-elem",
        "style-src-elem",
    ]
    assert tab.evaluate("window.obeyed === undefined")


def test_untrusted_names_are_shown_and_not_obeyed(opened, nasty, with_webgl):
    tab = view(opened, nasty.url, with_webgl)
    assert tab.evaluate("document.title") == "Forecloud replay of 2 recordings"
    assert tab.evaluate("document.querySelectorAll('img, b').length") == 0
    assert tab.evaluate("document.scripts.length") == 3
    recordings = tab.evaluate("document.querySelector('[data-table=recordings]').innerText")
    assert NASTY_NAME in recordings and NASTY_TASK in recordings
    tables = tab.evaluate("document.querySelector('[data-table=object_moving]').innerText")
    assert NASTY_TASK in tables
    groups = tab.evaluate("[...document.querySelectorAll('#frame optgroup')].map(g => g.label)")
    assert groups == ["tiny_push (push)", f"{NASTY_NAME} ({NASTY_TASK})"]
    titles = tab.evaluate("[...document.querySelectorAll('figcaption')].map(t => t.textContent)")
    assert f"Object points that move: {NASTY_TASK}" in titles


# --- Figures.


def shown(value):
    """Three digits, as the text report rounds."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


@pytest.mark.parametrize("written", ["page", "nasty"])
def test_tables_hold_the_figures_of_the_report(request, opened, written):
    written = request.getfixturevalue(written)
    assert json.loads((written.folder / "report.json").read_text()) == written.report
    tab = opened(written.url)
    rows = tab.evaluate(
        "[...document.querySelectorAll('table[data-table] tbody tr[data-method]')]"
        ".map(row => [row.closest('table').dataset.table, row.cells[0].textContent,"
        "row.dataset.method, [...row.cells].slice(2).map(c => [c.dataset.value, c.textContent])])"
    )
    found = {(name, task, method): cells for name, task, method, cells in rows}
    assert len(found) == len(rows)
    n_tasks = len({row["task"] for row in written.report["errors"]} - {None})
    expected = {}
    for row in written.report["errors"]:
        is_repeated = n_tasks == 1 and row["task"] is None and row["class"].startswith("object")
        if not is_repeated:
            key = row["class"], row["task"] or "all", row["method"]
            expected[key] = row["mean_mm"]
    assert found.keys() == expected.keys() and len(found) >= 12
    for key, means in expected.items():
        assert [float(value) for value, _ in found[key]] == means, key
        assert [label for _, label in found[key]] == [shown(mean) for mean in means], key


def test_the_table_of_how_sure_predictions_were_holds_the_figures_of_the_report(opened, page):
    tab = opened(page.url)
    rows = tab.evaluate(
        "[...document.querySelectorAll('[data-table=confidence] tbody tr')]"
        ".map(row => [...row.cells].map(c => c.dataset.value ?? c.textContent))"
    )
    labels = {
        "within sigma, %": "within_50",
        "within sigma_90, %": "within_90",
        "sigma, mm": "sigma_mm",
        "sigma_90, mm": "sigma_90_mm",
        "ranks like the error (1: all)": "rank_correlation",
    }
    found = {(cells[0], labels[cells[1]]): cells[2:] for cells in rows}
    assert len(found) == len(rows) == len(labels) * len(page.report["confidence"]) > 0
    for row in page.report["confidence"]:
        for key in labels.values():
            cells = found[row["situation"], key]
            values = [None if value == "-" else float(value) for value in cells]
            assert values == row[key], (row["situation"], key)


def test_hindsight_tables_hold_the_figures_of_the_report(opened, hindsight):
    tab = opened(hindsight.url)
    keys = [
        "covered_share", "in_front_share", "agree_share", "unknown_share", "violation_mm",
        "chamfer_predicted_to_observed_mm", "chamfer_observed_to_predicted_mm", "chamfer_mm",
    ]
    n_checked = 0
    for row in hindsight.report["hindsight"]["rows"]:
        if row["region"] not in ("moving", "robot", "static"):
            continue
        found = tab.evaluate(
            f"[...document.querySelectorAll('[data-table={row['region']}] tr[data-method="
            f"{row['method']}]')].map(r => [...r.cells].slice(2).map(c => c.dataset.value))"
        )
        for step, values in enumerate(found):
            expected = [row[key][step] for key in keys]
            assert [None if value is None else float(value) for value in values] == expected
            n_checked += 1
    assert n_checked >= 3 * 4 * 3
    assert "In hindsight" not in text(tab, "readout") and hindsight.report["errors"] == []


def test_csv_holds_the_figures_of_the_report(nasty, hindsight):
    import csv

    with open(nasty.folder / "errors.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {
        (row["method"], row["class"], row["task"], int(row["step"])):
        (float(row["mean_mm"]), int(row["n_points"])) for row in rows
    }
    expected = {
        (row["method"], row["class"], row["task"] or "", step + 1): (mean, n)
        for row in nasty.report["errors"]
        for step, (mean, n) in enumerate(zip(row["mean_mm"], row["n_points"], strict=True))
    }
    assert found == expected and len(rows) == len(expected)
    assert {row["time_s"] for row in rows} == {"0.1", "0.2", "0.3"}
    with open(hindsight.folder / "hindsight.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    reported = hindsight.report["hindsight"]["rows"]
    assert len(rows) == 3 * len(reported)
    assert float(rows[1]["chamfer_mm"]) == reported[0]["chamfer_mm"][1]


@pytest.mark.parametrize("written", ["nasty", "hindsight"])
def test_charts_have_a_curve_for_each_method_at_its_values(request, opened, written):
    written = request.getfixturevalue(written)
    tab = opened(written.url)
    charts = tab.evaluate(
        "[...document.querySelectorAll('.chart')].map(chart => [chart.dataset.chart,"
        "JSON.parse(chart.querySelector('svg').dataset.curves),"
        "[...chart.querySelectorAll('.curve')].map(c =>"
        " [c.dataset.method, c.querySelector('.line').getAttribute('d')])])"
    )
    rows = written.report["errors"] or written.report["hindsight"]["rows"]
    legend = tab.evaluate(
        "[...document.querySelectorAll('.legend li')].map(item =>"
        " [item.textContent, item.querySelector('.curve').classList[1]])"
    )
    assert sorted(kind for _, kind in legend) == sorted({f"m-{row['method']}" for row in rows})
    assert [label for label, _ in legend[:2]] == ["model", "nothing moves"]
    # Three classes (nothing rests in this recording) and two tasks; or three regions by two measures.
    assert len(charts) == (5 if written.report["errors"] else 6)
    for name, (unit, times, told), curves in charts:
        key = "class" if written.report["errors"] else "region"
        of_task = "object_moving" if name == "task" else name
        methods = {row["method"] for row in rows if row[key] == of_task}
        assert {method for method, _ in curves} == methods and len(curves) == len(methods) >= 4
        assert times == pytest.approx([0.1, 0.2, 0.3]) and unit.split(", ")[1] in ("mm", "%")
        values = {method: values for method, _, values in told}
        if name == "robot" and written.report["errors"]:
            row = next(row for row in rows if (row["method"], row["class"]) == ("model", name))
            assert values["model"] == row["mean_mm"]
        # All points lie on one straight line from value to height.
        points = [
            (value, float(y))
            for method, path in curves
            for value, (_, y) in zip(
                [v for v in values[method] if v is not None],
                re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path), strict=True,
            )
        ]
        (low, bottom), (high, top) = min(points), max(points)
        assert bottom > top
        for value, y in points:
            assert y == pytest.approx(bottom + (value - low) / (high - low) * (top - bottom), abs=0.2)


def test_columns_sort(opened, page):
    tab = opened(page.url)
    table = "document.querySelector('[data-table=robot]')"
    values = f"[...{table}.tBodies[0].rows].map(row => Number(row.cells[4].dataset.value))"
    before = tab.evaluate(values)
    for direction in ("ascending", "descending"):
        tab.evaluate(f"{table}.querySelectorAll('th button')[4].click()")
        assert tab.evaluate(values) == sorted(before, reverse=direction == "descending")
        assert tab.evaluate(f"{table}.querySelectorAll('thead th')[4].ariaSort") == direction
    assert before != tab.evaluate(values)


def test_charts_tell_their_values_by_keys(opened, page):
    tab = opened(page.url)
    assert tab.evaluate("document.getElementById('tip').hidden")
    tab.evaluate("document.querySelector('[data-chart=robot] svg').focus()")
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    row = next(
        row for row in page.report["errors"]
        if row["method"] == "model" and row["class"] == "robot"
    )
    tip = text(tab, "tip")
    assert "0.2 s ahead" in tip and "model" + shown(row["mean_mm"][1]) in tip, tip


def test_the_header_tells_what_was_replayed(opened, page):
    tab = opened(page.url)
    report, header = page.report, tab.evaluate("document.querySelector('header').innerText")
    for part in [
        "Forecloud replay of tiny_push", report["model_hash"], report["model_path"],
        f"{report['n_predicted']} of {report['n_frames']} frames predicted", "3 steps of 0.1 s",
    ]:
        assert part in header, header
    timing = text(tab, "timing")
    assert report["device"]["cpu"] in timing and "ms (median" in timing


def test_added_noise_is_told(opened, page, hindsight):
    facts = "document.querySelector('[aria-labelledby=h-facts]').innerText"
    told = "added, of strength 0.5"
    assert told in opened(hindsight.url).evaluate(facts)
    assert told not in opened(page.url).evaluate(facts)


# --- The view.


def test_the_view_shows_many_particles(opened, page, drawing):
    _, browser = drawing
    tab = view(opened, page.url, browser)
    # Particles alone, as bright as they were seen.
    for name in ("trails", "dim"):
        change(tab, name, False)
    tab.evaluate(SETTLED)
    n_colors, share, bright = tab.evaluate(
        """(() => {
          const from = document.getElementById('canvas');
          const to = document.createElement('canvas');
          [to.width, to.height] = [from.width, from.height];
          const context = to.getContext('2d');
          context.drawImage(from, 0, 0);
          const { data } = context.getImageData(0, 0, to.width, to.height);
          const counts = new Map();
          let bright = 0;
          for (let i = 0; i < data.length; i += 4) {
            const color = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
            const channels = [data[i], data[i + 1], data[i + 2]];
            bright += Math.max(...channels) - Math.min(...channels) > 50;
            counts.set(color, (counts.get(color) || 0) + 1);
          }
          const ground = Math.max(...counts.values());
          return [counts.size, 1 - (4 * ground) / data.length, (4 * bright) / data.length];
        })()"""
    )
    assert n_colors > 100 and 0.03 < share < 0.9 and bright > 0.005, (n_colors, share, bright)


def test_the_slider_and_every_toggle_change_the_picture(opened, page, drawing):
    _, browser = drawing
    tab = view(opened, page.url, browser)
    last = pixels(tab)
    steps = [last]
    for step in (0, 1, 2):
        change(tab, "step", step)
        steps.append(pixels(tab))
    assert len(set(steps)) == 4
    change(tab, "step", 3)
    assert pixels(tab) == last
    for name, value, back in [
        ("show-truth", False, True), ("show-model", False, True), ("show-baseline", True, False),
        ("dim", False, True), ("trails", False, True), ("color", "error", "own"),
        ("layout", "over", "beside"),
    ]:
        change(tab, name, value)
        assert pixels(tab) != last, name
        change(tab, name, back)
        assert pixels(tab) == last, name
    change(tab, "layout", "over")
    # The model's links may be shorter than the points are large, and so behind them.
    change(tab, "show-baseline", True)
    with_links = pixels(tab)
    change(tab, "links", False)
    assert pixels(tab) != with_links
    drawn = []
    for baseline in ("nothing", "estimated", "velocity"):
        change(tab, "baseline", baseline)
        drawn.append(pixels(tab))
    assert len(set(drawn)) == 3


def test_the_step_is_told_with_its_errors(opened, page, with_webgl):
    tab = view(opened, page.url, with_webgl)
    change(tab, "step", 2)
    assert text(tab, "time") == "0.2 s ahead"
    assert re.search(
        r"Mean error on the \d+ points that move: prediction [\d.]+ mm; nothing moves [\d.]+ mm; "
        r"constant velocity, estimated [\d.]+ mm; constant velocity, true [\d.]+ mm\.",
        text(tab, "readout"),
    ), text(tab, "readout")


def test_keys_turn_shift_zoom_step_and_play(opened, page, drawing):
    _, browser = drawing
    tab = view(opened, page.url, browser)
    focus(tab, "canvas")
    home = pixels(tab)
    for key, modifiers in [
        ("ArrowLeft", 0), ("ArrowUp", 0), ("ArrowRight", 8), ("ArrowDown", 8), ("+", 0), ("-", 0),
    ]:
        tab.press(key, modifiers)
        assert pixels(tab) != home, key
        tab.press("Home")
        assert pixels(tab) == home, key
    tab.press(",")
    assert tab.evaluate("document.getElementById('step').value") == "2" and pixels(tab) != home
    tab.press(".")
    assert pixels(tab) == home
    tab.press(" ")
    assert text(tab, "play") == "Pause"
    tab.wait("Number(document.getElementById('step').value) === 1")
    tab.wait("Number(document.getElementById('step').value) === 3")
    tab.press(" ")
    assert text(tab, "play") == "Play"


def test_the_slider_takes_keys(opened, page, with_webgl):
    tab = view(opened, page.url, with_webgl)
    last = pixels(tab)
    focus(tab, "step")
    tab.press("ArrowLeft")
    assert tab.evaluate("document.getElementById('step').value") == "2" and pixels(tab) != last
    assert "step 2 of 3" in tab.evaluate("document.getElementById('step').ariaValueText")


def test_mouse_and_fingers_turn_and_zoom(opened, page, with_webgl):
    tab = view(opened, page.url, with_webgl)
    x, y = tab.evaluate(
        "(() => { const canvas = document.getElementById('canvas'); canvas.scrollIntoView();"
        "const box = canvas.getBoundingClientRect();"
        "return [box.left + box.width / 4, box.top + box.height / 2]; })()"
    )
    pictures = [pixels(tab)]
    tab.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    tab.mouse("mouseMoved", x + 60, y + 20, button="left", buttons=1)
    tab.mouse("mouseReleased", x + 60, y + 20, button="left", clickCount=1)
    pictures.append(pixels(tab))
    focus(tab, "canvas")
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    tab.wait("scrollY >= 0")
    pictures.append(pixels(tab))
    tab.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)

    def touch(kind, *points):
        tab.call(
            "Input.dispatchTouchEvent", type=kind,
            touchPoints=[{"x": px, "y": py, "id": i} for i, (px, py) in enumerate(points)],
        )

    touch("touchStart", (x, y))
    touch("touchMove", (x - 40, y + 10))
    touch("touchEnd")
    pictures.append(pixels(tab))
    touch("touchStart", (x - 20, y), (x + 20, y))
    touch("touchMove", (x - 60, y), (x + 60, y))
    touch("touchEnd")
    pictures.append(pixels(tab))
    assert len(set(pictures)) == 5


def test_other_frames_are_chosen(opened, nasty, with_webgl):
    tab = view(opened, nasty.url, with_webgl)
    n_frames = tab.evaluate("document.querySelectorAll('#frame option').length")
    assert n_frames >= 2 and f"{n_frames} of 10 predicted frames are shown" in text(tab, "shown")
    assert tab.evaluate("document.getElementById('previous').disabled")
    for index in range(1, n_frames):
        tab.evaluate("document.getElementById('next').click()")
        assert tab.evaluate("document.getElementById('frame').value") == str(index)
    assert tab.evaluate("document.getElementById('next').disabled")


def test_without_truth_the_view_shows_what_was_seen(opened, hindsight, drawing):
    _, browser = drawing
    tab = view(opened, hindsight.url, browser)
    assert text(tab, "truth-name") == "seen then"
    seen = []
    for step in (1, 2):
        change(tab, "step", step)
        assert "the points that the cameras saw then" in text(tab, "readout")
        change(tab, "show-model", False)
        seen.append(pixels(tab))
        change(tab, "show-model", True)
    assert seen[0] != seen[1]
    before = pixels(tab)
    change(tab, "color", "error")
    assert pixels(tab) != before and "nearest point seen" in text(tab, "scale-what")
    names = tab.evaluate("[...document.querySelectorAll('#baseline option')].map(o => o.value)")
    assert names == ["nothing", "estimated"]


def test_without_truth_nothing_is_called_truth_and_the_view_opens_in_no_gap(
    opened, hindsight, page, with_webgl
):
    tab = view(opened, hindsight.url, with_webgl)
    assert text(tab, "h-view") == "What was seen later, and the prediction"
    assert "No frame shows" not in text(tab, "readout")
    titles = tab.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert not any("ruth" in title for title in titles), titles
    # One line says whether the model helps.
    lines = tab.evaluate("[...document.querySelectorAll('.verdict')].map(p => p.textContent)")
    verdict = hindsight.report["verdicts"][0]
    assert len(lines) == 1 and lines[0].startswith("The model is ")
    for value in (verdict["model_mm"], verdict["false_motion_mm"]):
        assert f"{shown(value)} mm" in lines[0], lines
    tab = view(opened, page.url, with_webgl)
    assert text(tab, "h-view") == "Truth and prediction"


@pytest.mark.parametrize("written", ["page", "nasty", "hindsight"])
def test_no_column_is_cut_on_a_desk(request, opened, with_webgl, written):
    tab = view(opened, request.getfixturevalue(written).url, with_webgl, width=1280, height=900)
    cut = tab.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth)"
        ".map(s => s.getAttribute('aria-labelledby') || s.getAttribute('aria-label'))"
    )
    assert cut == []


# --- For everybody.


def luminance(color):
    channels = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_and_curves_stand_out_in_light_and_dark(opened, page):
    grounds = []
    for dark in (False, True):
        tab = opened(page.url, dark=dark)
        color = lambda name, tab=tab: tab.evaluate(HEX.format(name))  # noqa: E731
        grounds.append(color("--sheet"))
        for ground in ("--sheet", "--paper"):
            for ink in ("--ink", "--soft", "--accent"):
                assert contrast(color(ink), color(ground)) >= 4.5, (dark, ink, ground)
        for curve in ("model", "nothing", "estimated", "velocity", "node", "observed"):
            assert contrast(color(f"--{curve}"), color("--sheet")) >= 3, (dark, curve)
        assert contrast(color("--ink"), color("--warn")) >= 4.5
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize("written", ["nasty", "hindsight"])
def test_a_phone_need_not_scroll_sideways(request, opened, with_webgl, written):
    url = request.getfixturevalue(written).url
    tab = view(opened, url, with_webgl, width=360, height=740)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.evaluate("document.getElementById('canvas').clientHeight") < 0.7 * 740


def test_every_control_has_a_name_and_is_reached_by_tab(opened, page, with_webgl):
    tab = view(opened, page.url, with_webgl)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {"button", "slider", "combobox", "checkbox", "application", "img", "image", "link"}
    controls = [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip())
        for node in nodes if not node["ignored"] and node["role"]["value"] in named
    ]
    roles = {role for role, _ in controls}
    assert {"button", "slider", "checkbox", "application"} <= roles, roles
    assert [control for control in controls if not control[1]] == []
    focus(tab, "frame")
    reached = []
    for _ in range(14):
        tab.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id"))
    for name in ("color", "layout", "canvas", "play", "step", "show-truth", "baseline", "reset"):
        assert name in reached, reached


def test_charts_and_tables_need_no_script(opened, page):
    tab = opened(page.url, script=False)
    tab.wait("document.querySelectorAll('.chart').length === 3")
    assert tab.evaluate("document.querySelectorAll('[data-table=robot] tbody tr').length") == 4
    assert "needs JavaScript" in tab.evaluate("document.querySelector('main').innerText")
