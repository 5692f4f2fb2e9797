"""ftrun watch: says in another terminal what the training says in its own, whatever becomes of the log's file, and ends with it;
--http serves the page on this machine only, to be read only, and a browser that looks at it sees new lines without loading it anew."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import browser
import support

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
MODEL = """
model M(x: f32[B, 6], y: i32[B]) {
  logits = Linear(4, name="out")(relu(Linear(16, name="in")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(f32(argmax(logits, axis=-1) == y))
  metric confusion = confusion(logits, y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 3; seed = 5; optimizer = adam(lr=0.01)
  eval every 1 epoch
  log { every=2 steps }
}
"""
HEADER = {"ft": "0", "model": "M", "device": "cpu", "start_time": "now", "time": 100, "batch": 8, "steps_per_epoch": 8, "total_steps": 24, "first_step": 0}


class Watch(support.Case):
    def start(self, *flags):
        process = subprocess.Popen([FTRUN, "watch", *map(str, flags)], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a script's background jobs ignore it
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def add(self, *lines, name="log", mode="a"):
        with open(self.path(name), mode) as file:
            file.write("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))

    def until(self, process, needle):
        said = []
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if needle in line:
                return said
        raise AssertionError(f"no {needle!r} in {said}")

    def step(self, i, loss=None):
        return {"step": i, "epoch": (i - 1) // 8 + 1, "loss": loss or i, "lr": 0.5, "samples_per_s": 16, "split": "train", "time": 100 + i, "data_wait": 0.1, "means": {"loss": loss or i}}

    def test_it_says_what_the_training_says(self):
        random = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), random.standard_normal((70, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 70).astype("i4"))
        self.compile(MODEL)
        watch = self.start("log")
        self.until(watch, "waiting for log")
        train = lambda *flags: support.run("ftrun", "model.so", "--log-jsonl", "log", "--set", "train.checkpoint.dir=ck", *flags, cwd=self.folder).stdout
        # without what is of the moment: rates, the time an evaluation took
        clean = lambda text: [re.sub(r"  \(\d+ samples in .*|  \d+ samples/s .*", "", line) for line in text.splitlines() if re.match(r"epoch|    |  confusion", line)]
        wanted = clean(train())
        said, _ = watch.communicate(timeout=60)
        self.assertEqual(watch.returncode, 0, said)
        self.assertEqual(clean(said), wanted)
        self.assertEqual(len([line for line in wanted if "valid: " in line]), 3)
        self.assertIn("the training has ended after step 24: all steps are done", said)
        # all of it is there already: the last lines, and the end
        again = support.run("ftrun", "watch", "log", cwd=self.folder).stdout
        self.assertTrue(said.rstrip().endswith("\n".join(again.rstrip().splitlines()[-3:])))
        self.assertLessEqual(len(re.findall("^epoch", again, re.M)), 20)

    def test_files_that_change(self):
        self.add(HEADER, *map(self.step, range(1, 6)))
        watch = self.start("log")
        self.until(watch, "step 5/24  loss 5.0000  lr 0.5  16 samples/s  eta 0:10")
        self.add('{"step": 6, "epoch": 1, "lo')
        time.sleep(0.3)
        self.add('ss": 6.5, "split": "train"}\n', "no line\n")
        self.until(watch, "step 6/24  loss 6.5000")
        # resumed from step 4: cut back, and on in the same file; what was said is not said again
        self.add(HEADER, *map(self.step, range(1, 5)), {**HEADER, "first_step": 4}, self.step(5, 55), mode="w")
        said = self.until(watch, "step 5/24  loss 55.0000")
        self.assertEqual(len(said), 2, said)
        self.assertIn("resumed at step 4", said[0])
        # another file under the name
        self.add(HEADER, self.step(1, 77), name="other")
        os.rename(self.path("other"), self.path("log"))
        self.until(watch, "step 1/24  loss 77.0000")
        self.add({"step": 2, "error": "the loss of step 2 is NaN \x1b[31m"})
        said, _ = watch.communicate(timeout=60)
        self.assertEqual(watch.returncode, 1)
        self.assertIn("error: log: the training ended: the loss of step 2 is NaN", said)

    def test_what_is_wrong(self):
        for code, needle, flags in ((1, "/dev/zero is no file", ["/dev/zero"]), (2, "needs a log", []), (2, "one too many", ["a", "b"]), (2, "goes with --http", ["a", "--address", "::1"]),
                                    (2, "goes with --http", ["a", "--model", "m"]), (2, "from 1 to 65535", ["a", "--http", "70000"]), (2, "-o is no flag of ftrun watch", ["a", "-o", "x"]),
                                    (1, "expected a numeric one", ["a", "--http", "--address", "localhost"])):
            self.fails(code, needle, "ftrun", "watch", *flags, cwd=self.folder)
        self.assertIn("--http [PORT]", support.run("ftrun", "watch", "--help").stdout)

    def serve(self, *flags):
        server = self.start("--http", *flags)
        address = re.search(r"http://127\.0\.0\.1:(\d+)/ shows", self.until(server, "until Ctrl-C")[-1])
        return server, int(address[1])

    def ask(self, port, method="GET", path="/", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def test_http(self):
        self.add(HEADER, *map(self.step, range(1, 6)))
        server, port = self.serve("log", "absent")
        for path, kind in (("/", "text/html; charset=utf-8"), ("/report.js", "text/javascript; charset=utf-8"), ("/report.css", "text/css; charset=utf-8"), ("/data.json", "application/json")):
            answer, body = self.ask(port, path=path)
            self.assertEqual((answer.status, answer.headers["Content-Type"], int(answer.headers["Content-Length"])), (200, kind, len(body)))
            self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
            self.assertEqual(self.ask(port, "HEAD", path)[1], b"")
        data = json.loads(body)
        self.assertEqual([(run["state"], run.get("last")) for run in data["runs"]], [("open", 105), ("empty", None)])
        self.assertEqual(self.ask(port, path="/data.json", headers={"If-None-Match": answer.headers["ETag"]})[0].status, 304)
        self.add(self.step(6))
        end = time.monotonic() + 20
        while self.ask(port, path="/data.json", headers={"If-None-Match": answer.headers["ETag"]})[0].status == 304:
            self.assertLess(time.monotonic(), end)
        for path in ("/log", "/../log", "/report.js?x", "//", "/%2e%2e/log"):
            self.assertEqual(self.ask(port, path=path)[0].status, 404)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            self.assertEqual(self.ask(port, method)[0].status, 405)
        self.assertEqual(self.ask(port, headers={"Host": f"evil.example:{port}"})[0].status, 421)
        for own in {place[4][0] for place in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}:
            if not own.startswith("127."):
                with self.assertRaises(OSError):
                    socket.create_connection((own, port), timeout=5).close()
        self.fails(1, f"port {port} of 127.0.0.1", "ftrun", "watch", "log", f"--http={port}", cwd=self.folder)
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(timeout=20), -signal.SIGINT)

    def test_a_browser_sees_new_lines(self):
        self.add(HEADER, *map(self.step, range(1, 6)))
        page = browser.Browser()
        self.addCleanup(page.close)
        _, port = self.serve("log")
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.querySelector('.charts svg')")
        page.run("window.mark = 1; document.querySelectorAll('.bar input[type=radio]')[1].click(); document.querySelector('svg.plot').focus()")
        self.assertIn("5 of 24", page.run("document.querySelector('table').textContent"))
        self.assertIn("running, or killed: no line for", page.run("document.querySelector('table').textContent"))
        self.add({**self.step(5), "time": time.time()})
        page.wait("/running: last line .* ago, about .* to go/.test(document.querySelector('table').textContent)")
        self.add(self.step(6), {"step": 6, "eval": True, "split": "valid", "loss": 0.25, "accuracy": 0.75, "time": 107})
        page.wait("document.querySelector('table').textContent.includes('6 of 24')")
        page.wait("[...document.querySelectorAll('.charts h3')].some(e => e.textContent === 'accuracy')")
        self.add(self.step(7), {"step": 7, "end": "all steps are done"})
        page.wait("document.getElementById('live').textContent.includes('All runs have ended')")
        self.assertEqual(page.run("window.mark"), 1)
        self.assertTrue(page.run("document.querySelectorAll('.bar input[type=radio]')[1].checked"))
        self.assertEqual([error for error in page.errors() if "favicon" not in json.dumps(error)], [])
        self.assertEqual({request.split("/", 3)[2] for request in page.requests()}, {f"127.0.0.1:{port}"})


if __name__ == "__main__":
    support.main()
