"""A disk that does not answer (test/fault/shim.c: a call that never returns) ends a training after train.timeout, with one sentence that names the
step and the file, exit code 3 and the last checkpoint whole; and what is slow but moves does not."""
import os
import re
import shutil
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import faults
import splits
import support

MODEL = """
model M(image: u8[B, 3, 8, 8], label: i32[B]) {
  p = Linear(2, name="fc")(flatten(f32(image), from=1) / 255)
  output p
  loss = mean(cross_entropy(p, label))
}
data D { train = folder("photos/") | resize((8, 8)); workers = WORKERS }
train { batch = 4; epochs = 3; seed = 1; optimizer = sgd(lr=0.01); timeout = 0.5; checkpoint { dir = "runs"; every = 4 steps } }"""


class Stalls(support.Case):
    def setUp(self):
        super().setUp()
        self.shim = faults.build_shim(self.folder)
        for name in ("a", "b"):
            os.makedirs(self.path("photos", name))
            for i in range(24):
                splits.write_png(self.path("photos", name, f"{i}.png"), numpy.full((8, 8, 3), 5 * i + (name == "b"), "u1"))

    def train(self, artifact, kind, at, *flags, **settings):
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        return self.command(artifact, kind, at, *flags, **settings)

    def command(self, first, kind, at, *flags, **settings):
        """(what ended, the number of calls)"""
        environment = dict(os.environ, LD_PRELOAD=self.shim, FT_FAULT_KIND=kind, FT_FAULT_AT=str(at), FT_FAULT_COUNT=self.path("count"), **settings)
        command = [os.path.join(support.BUILD, "bin", "ftrun"), first, "--threads", "1", *flags]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        return done, int(open(self.path("count")).read()) if os.path.exists(self.path("count")) else 0

    def ends(self, done, sentence):
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stderr, sentence)
        return int(re.search(r"the checkpoint of step (\d+) is whole: the same command with --resume runs goes on from it", done.stderr).group(1))

    def test_reading(self):
        """With workers, and without, where the main thread itself hangs."""
        for workers in (2, 0):
            with self.subTest(workers):
                artifact = self.compile(MODEL.replace("WORKERS", str(workers)), name=f"m{workers}.so")
                done, calls = self.train(artifact, "read", 0)
                self.assertEqual(done.returncode, 0, done.stderr)
                done, _ = self.train(artifact, "read", calls - 20, FT_FAULT_HANGS="1", FT_FAULT_LASTING="1")
                saved = self.ends(done, r"error: step \d+: the run has waited for a batch \(.*photos.*\) for 0\.5 seconds in which nothing moved \(train\.timeout\)")
                support.run("ftrun", artifact, "--resume", "runs", "--threads", 1, cwd=self.folder)
                self.assertIn(saved, range(4, 37, 4))

    def test_reading_for_others(self):
        """Evaluations and predictions, too."""
        artifact = self.compile(MODEL.replace("WORKERS", "0"))
        support.run("ftrun", artifact, "--steps", 1, "--save", "w.safetensors", "--threads", 1, cwd=self.folder)
        for command in (["eval", "--split", "train"], ["predict", "--split", "train", "--output", "p=p.npy"]):
            with self.subTest(command[0]):
                words = [artifact, "--weights", "w.safetensors", *command[1:]]
                done, calls = self.command(command[0], "read", 0, *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                done, _ = self.command(command[0], "read", calls - 20, *words, FT_FAULT_HANGS="1", FT_FAULT_LASTING="1")
                self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
                self.assertRegex(done.stderr, r"error: the run has waited for a batch \(.*photos.*\) for 0\.5 seconds in which nothing moved \(train\.timeout\)\n$")

    def test_writing(self):
        artifact = self.compile(MODEL.replace("WORKERS", "0"))
        done, calls = self.train(artifact, "fsync", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        done, _ = self.train(artifact, "fsync", calls // 2 + 1, FT_FAULT_HANGS="1", FT_FAULT_LASTING="1")
        saved = self.ends(done, r"error: step \d+: the run has waited for the checkpoint to be written \(runs\) for 0\.5 seconds")
        support.run("ftrun", artifact, "--resume", "runs", "--threads", 1, cwd=self.folder)
        self.assertGreater(saved, 0)

    def test_slow(self):
        """A batch of 16 files, each of which takes 50 ms, by the main thread itself: 0.8 s, but not one without progress."""
        artifact = self.compile(MODEL.replace("WORKERS", "0").replace("batch = 4", "batch = 16").replace("epochs = 3", "epochs = 1"))
        done, _ = self.train(artifact, "read", 1, FT_FAULT_SLOW="50", FT_FAULT_LASTING="1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_long_steps(self):
        """What takes longer than train.timeout is the step: nothing is waited for."""
        numpy.save(self.path("x.npy"), numpy.ones((1024, 2048), "f4"))
        numpy.save(self.path("y.npy"), numpy.arange(1024, dtype="i4") % 10)
        artifact = self.compile("""model M(x: f32[B, 2048], y: i32[B]) {
  loss = mean(cross_entropy(Linear(10, name="fc")(relu(Linear(2048, name="a")(relu(Linear(2048, name="b")(x))))), y))
}
data D { train = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 1024; epochs = 2; seed = 1; optimizer = sgd(lr=0.01); timeout = 0.2 }""")
        support.run("ftrun", artifact, "--threads", 1, cwd=self.folder)

    def test_any_time(self):
        """train.timeout = 0 waits as long as it takes, and another process may end it."""
        artifact = self.compile(MODEL.replace("WORKERS", "0"))
        _, calls = self.train(artifact, "read", 0)
        environment = dict(os.environ, LD_PRELOAD=self.shim, FT_FAULT_KIND="read", FT_FAULT_AT=str(calls - 20), FT_FAULT_HANGS="1")
        process = subprocess.Popen([os.path.join(support.BUILD, "bin", "ftrun"), artifact, "--set", "train.timeout=0"], cwd=self.folder, env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(3)
        self.assertIsNone(process.poll())
        process.kill()
        process.wait()


if __name__ == "__main__":
    support.main()
