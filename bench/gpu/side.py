"""A peer beside ft: a process of peers.py that compiles while others do, and is measured alone."""
import json
import os
import queue
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def command(*words, timeout=590, **environment):
    """Exit code, standard output, standard error; what is not there is a failure that says so."""
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, errors="replace", timeout=timeout, env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired as late:
        return 124, str(late.stdout or ""), f"{words[0]} took more than {timeout} s"
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


class Side:
    def __init__(self, case, peer, is_tiny, device, seconds, out):
        self.case, self.peer, self.is_ready, self.found = case, peer, False, None
        os.makedirs(out, exist_ok=True)
        self.log = os.path.join(out, f"peer-{case}-{peer}.log")
        words = [sys.executable, os.path.join(HERE, "peers.py"), peer, case, "--device", device, "--seconds", str(seconds)] + (["--tiny"] if is_tiny else [])
        # processes that compile with several workers each would be too many
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="4", TORCHINDUCTOR_CACHE_DIR=os.path.join("/tmp", f"ft-inductor-{case}-{peer}"))
        with open(self.log, "w") as errors:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def read_line(self, deadline):
        """The next line it prints; "" at its end, None when it is too late."""
        try:
            return self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None

    def end(self, why):
        self.process.kill()
        self.process.wait()
        with open(self.log) as file:
            said = [line for line in file.read().strip().splitlines() if line]
        self.found = {"failed": why if why else (said or ["no output"])[-1][:200]}

    def wait_until_ready(self, deadline):
        while not self.is_ready and not self.found:
            line = self.read_line(deadline)
            if line is None:
                self.end("was not ready in time")
            elif line.startswith("{"):
                self.found = json.loads(line)
                self.process.wait()
            elif line == "":
                self.end(None)
            else:
                self.is_ready = line.strip() == "ready"

    def measure(self, deadline):
        if self.is_ready and not self.found:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            self.is_ready = False
            # it has compiled: this takes seconds, also past the deadline
            self.wait_until_ready(max(deadline, time.monotonic() + 30))
        return self.found
