"""A headless Chromium, driven over its debugging pipe. Used by one test; one thread."""

import base64
import json
import os
import select
import signal
import subprocess
import tempfile
import time


class Browser:
    def __init__(self):
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_read, self.to_browser = os.pipe()
        self.from_browser, answer_write = os.pipe()

        def pipes():  # Chromium reads commands from 3 and writes answers to 4.
            first, second = os.dup(command_read), os.dup(answer_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.home.name}", "about:blank"],
            preexec_fn=pipes, close_fds=False, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(command_read)
        os.close(answer_write)
        self.rest = b""
        self.last = 0
        self.problems = []
        self.events = []
        self.session = None
        pages = self.ask("Target.getTargets")["targetInfos"]
        page = next(one for one in pages if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def close(self):
        # Its helpers write to the home as well.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.home.cleanup()

    def _read(self, deadline):
        """One message, or None after the deadline."""
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                return None
            read = os.read(self.from_browser, 1 << 20)
            if not read:
                raise EOFError("the browser ended")
            self.rest += read
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method:
            self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {parameters['exceptionDetails']}")
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.problems.append(f"console: {parameters['args']}")
        if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"log: {parameters['entry']}")

    def ask(self, method, seconds=30, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            answer = self._read(deadline)
            if answer is None:
                raise TimeoutError(method)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, url, scheme="light", width=1280, height=900, scripts=True):
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.ask("Page.navigate", url=url)
        deadline = time.monotonic() + 30
        while "Page.loadEventFired" not in self.events:
            if self._read(deadline) is None:
                raise TimeoutError(url)

    def run(self, script):
        """The value of a script."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, script, seconds=30):
        """Waits until the script is true."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > deadline:
                raise TimeoutError(script)

    def drag(self, x, y, to_x):
        moves = (("mousePressed", x), ("mouseMoved", (x + to_x) / 2), ("mouseMoved", to_x), ("mouseReleased", to_x))
        for kind, at in moves:
            self.ask("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)

    def screenshot(self, path):
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
