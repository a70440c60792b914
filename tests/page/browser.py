"""A headless Chromium, driven through the DevTools protocol over a pipe; standard library only."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Seconds until something that must come counts as missing.
PATIENCE_SECS = 60


def find():
    """Path of a browser; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process with its own, empty profile."""

    def __init__(self, webgl):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        graphics = (
            ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
            if webgl
            else ["--disable-3d-apis", "--disable-gpu"]
        )
        command = [
            find(), "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
            "--disable-extensions", "--remote-debugging-pipe",
            f"--user-data-dir={self.profile.name}", *graphics, "about:blank",
        ]
        to_read, to_us = os.pipe()
        from_us, to_write = os.pipe()
        # The browser reads commands on descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{from_us} 4>&{to_us}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command],
            pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self.reader, self.writer = os.fdopen(to_read, "rb"), os.fdopen(to_write, "wb")
        self.buffer, self.n_sent, self.events = b"", 0, []

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()
        self.reader.close()
        try:
            self.writer.close()
        except OSError:
            pass  # What it did not take before it ended.
        self.profile.cleanup()

    def call(self, method, session=None, **parameters):
        """Sends a command; returns its result. Events that come meanwhile are kept."""
        self.n_sent += 1
        number = self.n_sent
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self.writer.write(json.dumps(message).encode() + b"\0")
        self.writer.flush()
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        while b"\0" not in self.buffer:
            # One read call each: a buffered read would wait for more.
            data = os.read(self.reader.fileno(), 1 << 16)
            if not data:
                raise EOFError("the browser ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)


class Tab:
    """A tab of a size that has opened `url`; notes what it loads and complains of."""

    def __init__(self, browser, url, width=1280, height=900, dark=False, script=True):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.target, self.session = target, attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        is_phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=url)
        if script:
            self.wait("document.readyState === 'complete'")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def evaluate(self, expression):
        """Value of a JavaScript expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression):
        """Waits until an expression holds."""
        end = time.monotonic() + PATIENCE_SECS
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never: {expression}"
            time.sleep(0.02)

    def press(self, key, modifiers=0):
        """A key, by its name in KeyboardEvent; Shift is modifier 8."""
        text = {"text": key} if len(key) == 1 else {}
        code = "Space" if key == " " else key
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code, modifiers=modifiers,
                **(text if kind == "keyDown" else {}),
            )

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path=None, **more):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"])
        if path:
            with open(path, "wb") as file:
                file.write(data)
        return data

    def _events(self, method):
        return [
            event["params"] for event in self.browser.events
            if event.get("sessionId") == self.session and event.get("method") == method
        ]

    def requests(self):
        """Addresses of all that was asked for."""
        self.evaluate("0")
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def complaints(self):
        """All that went to the console, exceptions and the browser's own log."""
        self.evaluate("0")
        said = [event["args"] for event in self._events("Runtime.consoleAPICalled")]
        thrown = [event["exceptionDetails"] for event in self._events("Runtime.exceptionThrown")]
        logged = [event["entry"]["text"] for event in self._events("Log.entryAdded")]
        return said + thrown + logged
