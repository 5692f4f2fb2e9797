"""A peer beside ft: a process of peers.py that compiles while others do, and is measured while all others stand
still: they are stopped by a signal, as peers also are while ft is measured."""
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DRAIN = 0.5  # seconds until what a stopped process had started on the GPU has ended


class Side:
    def __init__(self, case, peer, is_tiny, device, seconds, folder):
        self.case, self.peer, self.is_ready, self.found = case, peer, False, None
        self.log = os.path.join(folder, f"peer-{case}-{peer}.log")
        words = [sys.executable, os.environ.get("FT_PEERS") or os.path.join(HERE, "peers.py"), peer, case, "--device", device, "--seconds", str(seconds)] + (["--tiny"] if is_tiny else [])
        # processes that compile with several workers each would be too many; Inductor times its candidates one process at a time
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="4", TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, f"inductor-{case}-{peer}"),
                           FT_TIMING_LOCK=os.path.join(folder, "timing.lock"))
        with open(self.log, "w") as errors:
            # a group of its own, to be stopped with its workers; a session of its own would outlive a call that is cut off
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, preexec_fn=lambda: os.setpgid(0, 0))
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def leave(self):
        """Only then is its memory free; workers of compilers may keep it from ending by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=15)
        self.signal(signal.SIGKILL)
        self.process.wait()

    def end(self, why):
        self.signal(signal.SIGKILL)
        self.process.wait()
        with open(self.log, errors="replace") as file:
            said = [line for line in file.read().strip().splitlines() if line.strip()]
        self.found = {"failed": why if why else (said or ["no output"])[-1][:200]}

    def look(self, seconds=0.0):
        """Takes what the process has said meanwhile, waiting a little for it."""
        end = time.monotonic() + seconds
        while not self.found and not self.is_ready:
            try:
                line = self.lines.get(timeout=max(0.001, end - time.monotonic()))
            except queue.Empty:
                return
            if line.startswith("{"):
                self.found = json.loads(line)
                self.leave()
            elif line == "":
                self.end(None)
            else:
                self.is_ready = line.strip() == "ready"

    def measure(self, seconds):
        """It has compiled; what it says after "go" is its result."""
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except OSError:
            return self.end(None)
        self.is_ready = False
        self.look(seconds)
        if not self.found:
            self.end(f"was compiled and then took more than {seconds:.0f} s to be measured")

    def is_out_of_memory(self):
        return "out of memory" in str((self.found or {}).get("failed", "")).lower() or "RESOURCE_EXHAUSTED" in str(self.found)


class Sides:
    """Several of them: alone() stops all but one."""

    def __init__(self, sides):
        self.sides = sides

    def waiting(self):
        return [side for side in self.sides if not side.found]

    @contextlib.contextmanager
    def alone(self, but=None):
        others = [side for side in self.waiting() if side is not but]
        for side in others:
            side.signal(signal.SIGSTOP)
        if others:
            time.sleep(DRAIN)
        try:
            yield
        finally:
            for side in others:
                side.signal(signal.SIGCONT)

    def measure_all(self, clock_end, tell):
        """Each as soon as it is ready; what is not ready by then is ended."""
        while self.waiting():
            for side in self.waiting():
                side.look()
                if side.is_ready:
                    with self.alone(side):
                        side.measure(max(45.0, clock_end - time.monotonic()))
                if side.found:
                    tell(side)
            if self.waiting() and time.monotonic() > clock_end:
                for side in self.waiting():
                    side.end("was not ready in time")
                    tell(side)
            elif self.waiting():
                time.sleep(0.05)

    def end(self):
        for side in self.waiting():
            side.end("was ended")
