# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its DevTools pipe without further packages.

    with Browser(find_chromium(), width=1280, height=900) as browser:
        browser.open("report.html")
        browser.evaluate("document.title")
        browser.press("ArrowDown")
        browser.screenshot("page.png")
        browser.errors      # console errors, exceptions and refused requests
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
        "Home": 36, "End": 35}


def find_chromium():
    """Path of a Chromium, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    def __init__(self, program, width=1280, height=900, dark=False, seconds=60):
        self.deadline = time.monotonic() + seconds
        self.errors = []
        self.requests = []
        self._folder = tempfile.TemporaryDirectory(prefix="tlt-chromium-")
        to_browser, write = os.pipe()
        read, from_browser = os.pipe()
        # The browser reads descriptor 3 and writes 4.
        command = ["sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "sh", program, "--headless=new",
                   "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
                   f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}", "about:blank"]
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._write, self._read = write, read
        self._buffer, self._id, self._session = b"", 0, None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        for _ in range(20):  # its children may still write there
            try:
                return self._folder.cleanup()
            except OSError:
                time.sleep(0.1)

    def _next_message(self):
        import select
        while b"\0" not in self._buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value") for one in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"][:200])

    def call(self, method, **params):
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        while True:
            answer = self._next_message()
            if answer.get("id") != self._id:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def evaluate(self, expression):
        """Value of a JavaScript expression; of a promise, what it resolves to."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", expression))
        return result["result"].get("value")

    def wait_for(self, condition):
        while not self.evaluate(condition):
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"{condition}; errors: {self.errors}")
            time.sleep(0.02)

    def open(self, path):
        """Seconds until the page of a local file has run its script."""
        begin = time.monotonic()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not self.evaluate("document.documentElement?.dataset.ready === 'true'"):
            if self.errors or time.monotonic() > self.deadline:
                raise RuntimeError(f"{path} did not open: {self.errors}")
            time.sleep(0.02)
        return time.monotonic() - begin

    def press(self, key):
        code = KEYS.get(key, ord(key.upper()[0]))
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, path):
        image = self.call("Page.captureScreenshot", format="png")["data"]
        Path(path).write_bytes(base64.b64decode(image))
