"""A headless chromium (Debian's package) for tests of pages. What needs it is skipped where it is missing: it is too large for
scripts/install-deps to bring it."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
         "--no-first-run", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


class Browser:
    """One page, spoken to over chromium's own pipe (DevTools protocol, a JSON text and a zero byte each way)."""

    def __init__(self, width=1200, height=900):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if not program:
            raise unittest.SkipTest("no chromium here")
        self.folder = tempfile.TemporaryDirectory(prefix="ft-browser-", ignore_cleanup_errors=True)
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def inherit():  # chromium reads from 3 and writes to 4
            kept = os.dup(to_read), os.dup(to_write)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self.process = subprocess.Popen([program, *FLAGS, f"--window-size={width},{height}", f"--user-data-dir={self.folder.name}", "--remote-debugging-pipe", "about:blank"],
                                        close_fds=False, preexec_fn=inherit, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.count, self.said = b"", 0, []
        page = next(target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def read(self):
        while b"\0" not in self.buffer:
            more = os.read(self.read_end, 1 << 20)
            if not more:
                raise AssertionError("chromium has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.requestWillBeSent"):
            self.said.append((message["method"], message["params"]))
        return message

    def call(self, method, session=None, **parameters):
        self.count += 1
        text = {"id": self.count, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.write_end, json.dumps(text).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self.count:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]

    def ask(self, method, **parameters):
        return self.call(method, self.session, **parameters)

    def open(self, address):
        self.said.clear()
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression (a promise is waited for)."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition):
        """Until it is true, which the test's own time limit bounds."""
        self.run(f"new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 30); look(); }})")

    def errors(self):
        """What scripts threw, and what the browser refused."""
        return [params for method, params in self.said if method == "Runtime.exceptionThrown" or (method == "Log.entryAdded" and params["entry"]["level"] == "error")]

    def requests(self):
        return [params["request"]["url"] for method, params in self.said if method == "Network.requestWillBeSent"]

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.folder.cleanup()
