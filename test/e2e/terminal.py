"""What a person sees on a terminal: ftrun trains in a pseudo-terminal whose other end is pyte's screen (PyPI, in the
environment that scripts/watch-peers makes). The block is redrawn in its place, lines that stay are whole and there
once, also after the window was resized, Ctrl-C and a kill leave the terminal in order, and plain lines elsewhere."""
import json
import os
import re
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 6], y: i32[B]) {
  logits = Linear(4, name="out")(relu(Linear(16, name="in")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(f32(argmax(logits, axis=-1) == y))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 8; epochs = 100; seed = 5; optimizer = adam(lr=0.01)
  eval every 20000 steps
  log { every=100 steps }
}
"""

# argv: what to do as JSON: columns, rows, events [[seconds, what, value]], command, env
HARNESS = """
import fcntl, json, os, pty, select, signal, struct, sys, termios, time
import pyte
todo = json.loads(sys.argv[1])
columns, rows = todo["columns"], todo["rows"]
pid, fd = pty.fork()
if pid == 0:
    time.sleep(0.2)
    os.chdir(todo["cwd"])
    os.execvpe(todo["command"][0], todo["command"], {**os.environ, **todo["env"]})
def size():
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
size()
before = termios.tcgetattr(fd)
screen = pyte.HistoryScreen(columns, rows, history=100000)
stream, raw, seen, shots = pyte.ByteStream(screen), b"", time.monotonic(), []
events, block_end = todo["events"], b"\\n\\x1b[J" # a shot is of a whole block: what was read of the next one comes behind it
def shot():
    shots.append({"lines": [line.rstrip() for line in screen.display], "column": screen.cursor.x, "row": screen.cursor.y})
def wants_shot():
    return events and events[0][1] == "shot" and time.monotonic() - seen >= events[0][0]
while True:
    late = time.monotonic() - seen - events[0][0] if events else -1
    if late >= 0 and (late > 20 or events[0][1] != "shot"):
        _, what, value = events.pop(0)
        if what == "size":
            columns, rows = value
            screen.resize(rows, columns)
            size()
        elif what == "keys":
            os.write(fd, value.encode())
        elif what == "shot":
            shot()
        elif what == "kill":
            os.kill(pid, value)
    if select.select([fd], [], [], 0.02)[0]:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        at = (raw[-3:] + data).find(block_end)
        if wants_shot() and at >= 0:
            end = at + len(block_end) - len(raw[-3:])
            stream.feed(data[:end])
            shot()
            events.pop(0)
            stream.feed(data[end:])
        else:
            stream.feed(data)
        raw += data
after = termios.tcgetattr(fd)
status = os.waitpid(pid, 0)[1]
shot()
def text(line):
    return "".join(line[i].data for i in range(columns)).rstrip()
history = [text(line) for line in screen.history.top]
print(json.dumps({"shots": shots, "history": history, "raw": raw.decode(errors="replace"), "status": status, "same_modes": before == after,
                  "shown": pyte.modes.DECTCEM in screen.mode, "wraps": pyte.modes.DECAWM in screen.mode}))
"""


class Terminal(support.Case):
    @classmethod
    def setUpClass(cls):
        cls.python = support.peer_python("watch-peers")

    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), random.standard_normal((70, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 70).astype("i4"))
        self.compile(MODEL)

    def show(self, *flags, columns=100, rows=24, events=(), tail="", env=None, command=None):
        command = command or [os.path.join(support.BUILD, "bin", "ftrun"), "model.so", "--data", ".", *map(str, flags)]
        if tail:
            command = ["sh", "-c", "trap : INT; " + " ".join(command) + "; " + tail]
        todo = {"columns": columns, "rows": rows, "events": list(events), "command": command, "cwd": self.folder,
                "env": {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "NO_COLOR": "", **(env or {})}}
        done = subprocess.run([self.python, "-c", HARNESS, json.dumps(todo)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout)

    def kept(self, seen):
        """All lines from the first on, without empty ones at the end, nor the advice of a run whose steps waited for data, which depends on times."""
        lines = "\n".join(seen["history"] + seen["shots"][-1]["lines"]).rstrip().split("\n")
        return [line for line in lines if not line.startswith(("data: steps waited", "data: at the start"))]

    def assert_in_order(self, seen):
        self.assertTrue(seen["same_modes"] and seen["shown"] and seen["wraps"])
        self.assertEqual(seen["shots"][-1]["column"], 0)

    def evaluations(self, lines):
        return [int(m.group(1)) for m in (re.match(r"epoch \d+/\d+  step (\d+)/\d+  valid: loss .*\)$", line) for line in lines) if m]

    BLOCK = [r"epoch \d+/\d+  step (\d+)/(\d+)  +(\d+)%  [━]+$", r"loss [\d.e-]+  accuracy [01]\.\d+  lr 0\.01  [▁▂▃▄▅▆▇█]+$",
             r"\d+ samples/s  eta [\d:]+  data wait \d+\.\d\d ms \(\d+%\)  memory [\d.]+ [MG]B$"]

    def test_a_run(self):
        seen = self.show("--steps", 100000, columns=130)
        lines = self.kept(seen)
        self.assertEqual(seen["status"], 0)
        self.assert_in_order(seen)
        self.assertEqual(self.evaluations(lines), [20000, 40000, 60000, 80000, 100000])
        self.assertRegex(lines[0], "^M: .* parameters, adam on cpu")
        blocks = [line for line in lines if re.match(self.BLOCK[0], line)]
        self.assertLessEqual(len(blocks), 1, lines)  # redrawn in its place, and taken away for lines that stay
        self.assertEqual(len(lines), 3 + 5 + (3 if blocks else 0), lines)

    def test_the_block(self):
        seen = self.show("--steps", 1000000000, events=[[1.5, "shot", 0], [2, "kill", 2]])
        lines = [line for line in seen["shots"][0]["lines"] if line]
        for wanted, line in zip(self.BLOCK, lines[-3:]):
            self.assertRegex(line, wanted)
        step, steps, percent = map(int, re.match(self.BLOCK[0], lines[-3]).groups())
        self.assertEqual((steps, percent), (1000000000, 100 * step // steps))
        self.assertEqual((seen["shots"][0]["column"], seen["shots"][0]["row"]), (0, len(lines)))

    def test_ascii(self):
        seen = self.show("--steps", 1000000000, events=[[1, "shot", 0], [1.2, "kill", 2]], env={"LC_ALL": "C"})
        self.assertTrue(seen["raw"].isascii())
        self.assertRegex("\n".join(seen["shots"][0]["lines"]), r"%  \.+\nloss [^\n]*  lr 0.01  [_.~=*#@-]+\n")

    def test_ctrl_c(self):
        for keys in ("\x03", "abc\n\x03"):  # what is typed meanwhile is only shown
            seen = self.show("--steps", 1000000000, events=[[1.2, "keys", keys]], tail="echo exit $?; echo prompt")
            self.assert_in_order(seen)
            lines = self.kept(seen)
            self.assertEqual(lines[-2:], ["exit 130", "prompt"], lines)
            self.assertTrue([line for line in lines if line.startswith("stopped after step")], lines)

    def test_a_kill(self):
        for number, code in ((9, 137), (15, 143)):
            command = f"exec {os.path.join(support.BUILD, 'bin', 'ftrun')} model.so --data . --steps 1000000000"
            with open(self.path("run.sh"), "w") as file:
                file.write(f"({command}) & sleep 1.2; kill -{number} $!; wait $!; echo exit $?; echo prompt\n")
            seen = self.show(command=["sh", "run.sh"])
            self.assert_in_order(seen)
            self.assertEqual(self.kept(seen)[-2:], [f"exit {code}", "prompt"])

    def test_resizing(self):
        """Lines that stay are there once, whatever the window does (the terminal itself cuts what no longer fits)."""
        sizes = [[0.3 + 0.2 * i, "size", size] for i, size in enumerate([(60, 24), (160, 24), (30, 10), (100, 5), (100, 24), (99, 23), (120, 30)])]
        seen = self.show("--steps", 200000, "--set", "train.eval.every=50000", events=sizes)
        self.assertEqual(seen["status"], 0)
        self.assert_in_order(seen)
        steps = [int(step) for step in re.findall(r"step (\d+)/200000  valid: loss", seen["raw"])]
        self.assertEqual(steps, [50000, 100000, 150000, 200000])
        self.assertEqual(self.evaluations(self.kept(seen))[-1], 200000)

    def test_small_windows(self):
        for columns, rows in ((20, 24), (8, 24), (2, 24), (1, 5), (100, 3), (100, 2), (100, 1), (500, 100)):
            seen = self.show("--steps", 20000, columns=columns, rows=rows)
            self.assertEqual(seen["status"], 0, (columns, rows))
            self.assert_in_order(seen)

    def test_plain_lines_elsewhere(self):
        for env in ({"TERM": "dumb"}, {"NO_COLOR": "1"}, {"TERM": ""}):
            seen = self.show("--steps", 300, env=env)
            self.assertNotIn("\x1b", seen["raw"])
            lines = self.kept(seen)
            self.assertEqual([line.split("  ")[1] for line in lines[3:]], ["step 100/300", "step 200/300", "step 300/300", "step 300/300"])
        piped = support.run("ftrun", self.path("model.so"), "--data", self.folder, "--steps", 300, env={"TERM": "xterm"}).stdout
        self.assertNotIn("\x1b", piped)
        self.assertEqual(len(piped.splitlines()), len(lines))


if __name__ == "__main__":
    support.main()
