"""What is found, on disk as soon as it is found: a call may be cut off, and the next one goes on where it was.

gpu.json and log.txt lie in the pack's folder `state`, for the calls to come, and are copied with results.md into the
folder that --out names: few files, for the device machine takes eight back."""
import json
import os
import shutil
import subprocess
import time

import summary


class Report:
    def __init__(self, root, out, is_tiny):
        self.root, self.out = root, out
        self.state = os.path.join(root, "state")
        os.makedirs(self.state, exist_ok=True)
        os.makedirs(out, exist_ok=True)
        self.failures = []
        try:
            with open(self.path("gpu.json")) as file:
                self.result = json.load(file)
        except (OSError, ValueError):
            self.result = {"is_tiny": is_tiny, "cases": {}, "kernels": {}, "done": {}, "failures": []}
        self.result["pack"] = self.read_pack()
        self.log = open(self.path("log.txt"), "a")

    def read_pack(self):
        try:
            with open(os.path.join(self.root, "pack.json")) as file:
                return json.load(file)
        except OSError:
            return {}

    def path(self, *parts):
        return os.path.join(self.state, *parts)

    def say(self, text=""):
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def failed(self, what):
        """One line is shown; the log has the rest."""
        first = what.strip().splitlines()[0][:300] if what.strip() else "nothing was said"
        self.failures.append(first)
        self.result["failures"].append(first)
        print(f"FAILED: {first}", flush=True)
        self.log.write(f"FAILED: {what}\n")
        self.keep()

    def keep(self):
        """Written beside and renamed: whole at any instant."""
        for name, text in (("gpu.json", json.dumps(self.result, indent=1)), ("results.md", summary.markdown(self.result))):
            with open(self.path(name + ".new"), "w") as file:
                file.write(text)
            os.replace(self.path(name + ".new"), self.path(name))
        self.log.flush()
        for name in ("gpu.json", "results.md", "log.txt", "kernels.txt", "peers.txt"):
            if os.path.exists(self.path(name)):
                shutil.copy(self.path(name), os.path.join(self.out, name))

    def append(self, name, text):
        with open(self.path(name), "a") as file:
            file.write(text + "\n")


def command(*words, timeout=590, **environment):
    """Exit code, standard output, standard error; what is not there is a failure that says so."""
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, errors="replace", timeout=timeout, env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired as late:
        return 124, text_of(late.stdout), f"{os.path.basename(str(words[0]))} took more than {timeout:.0f} s {text_of(late.stderr)}"
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def text_of(output):
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


class Clock:
    """What is left of this call."""

    def __init__(self, minutes):
        self.end = time.monotonic() + minutes * 60

    def left(self):
        return self.end - time.monotonic()

    def within(self, seconds):
        """A moment not later than the end of the call."""
        return min(self.end, time.monotonic() + seconds)
