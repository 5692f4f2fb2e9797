"""ftrun as a process: limits of its address space, signals, and what a killed run leaves behind."""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  loss = mean(cross_entropy(Linear(4, name="o")(relu(Linear(24, name="h")(x))), y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = 4; steps = 100000000; optimizer = adam(lr=0.01)
  checkpoint { dir = "runs"; every = 1000000 steps }
  log { every = 1 steps }
}
"""
FTRUN = os.path.join(support.BUILD, "bin", "ftrun")


class Process(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(1)
        numpy.save(self.path("x.npy"), random.randn(8, 8).astype(numpy.float32))
        numpy.save(self.path("y.npy"), random.randint(0, 4, 8).astype(numpy.int32))
        self.artifact = self.compile(MODEL)
        self.scratch = self.path("scratch")
        os.mkdir(self.scratch)

    def start(self, *arguments, ignored=(), **environment):
        def child():
            for number in (signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        running = subprocess.Popen([FTRUN, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=dict(os.environ, TMPDIR=self.scratch, **environment), preexec_fn=child)
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        return running

    def until_training(self, running):
        said = ""
        while "loss" not in (line := running.stdout.readline()):
            said += line
            self.assertIsNone(running.poll(), said)

    def limited(self, mebibytes, *arguments, **environment):
        return subprocess.run([FTRUN, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60, env=dict(os.environ, **environment),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20,) * 2))

    def test_little_address_space(self):
        """Nothing is taken before it is needed; what there is no room for is said."""
        if support.IS_SANITIZED:
            self.skipTest("AddressSanitizer")
        done = self.limited(150, "info", "model.so")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.limited(400, "model.so", "--steps", "2", "--threads", "2", "--set", "data.workers=0")
        self.assertEqual(done.returncode, 0, done.stderr)
        endings = set()
        for mebibytes in (20, 40, 60, 80, 120, 180):
            for more in ({}, {"FT_GEMM": "openblas"}):
                done = self.limited(mebibytes, "model.so", "--steps", "2", "--threads", "2", **more)
                self.assertIn(done.returncode, (0, 3, 127), done.stderr)  # 127: the system's loader has no room for a library
                self.assertEqual(done.returncode == 0, "error" not in done.stderr, done.stderr)
                endings.add(done.returncode)
        self.assertIn(3, endings)

    def test_openblas_has_no_room(self):
        if support.IS_SANITIZED:
            self.skipTest("AddressSanitizer")
        artifact = self.compile(MODEL, "--cpu", "x86-64", name="old.so")  # its products are calls
        done = self.limited(250, artifact, "--steps", "2", "--threads", "2", FT_GEMM="openblas")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"OpenBLAS, which makes this product, takes \d+ MiB of address space.*ulimit -v")
        done = support.run("ftrun", artifact, "--steps", "2", cwd=self.folder, env={"FT_GEMM": "openblas"})
        self.assertIn("loss", done.stdout)

    def test_signals_that_save(self):
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            running = self.start("model.so", "--save", f"w{number}")
            self.until_training(running)
            running.send_signal(number)
            said = running.communicate(timeout=60)[0]
            self.assertEqual(running.returncode, 128 + number, said)
            self.assertIn("goes on", said)
            self.assertTrue(os.path.exists(self.path(f"w{number}")))
            self.assertTrue([name for name in os.listdir(self.path("runs")) if name.startswith("step-")])
            for name in os.listdir(self.path("runs")):
                os.remove(self.path("runs", name))

    def test_who_reads_has_gone(self):
        """A pipe without a reader, as the log or as the console, ends a training with its checkpoint and --save."""
        os.mkfifo(self.path("pipe"))
        for flags in (["--log-jsonl", "pipe"], []):
            running = self.start("model.so", "--save", "w", "--set", "train.log.every=1", *flags)
            if flags:
                with open(self.path("pipe")) as reader:
                    reader.readline()
                said = running.communicate(timeout=60)[0]
                self.assertIn("cannot write the log pipe: Broken pipe", said)
            else:
                self.until_training(running)
                running.stdout.close()
                running.wait(timeout=60)
            self.assertEqual(running.returncode, 128 + signal.SIGPIPE)
            steps = [name for name in os.listdir(self.path("runs")) if name.startswith("step-")]
            self.assertTrue(steps)
            support.read_safetensors(self.path("runs", max(steps)))
            support.read_safetensors(self.path("w"))
            shutil.rmtree(self.path("runs"))
            os.remove(self.path("w"))

    def test_a_log_that_cannot_be_written(self):
        """The reason, and where what was trained is now."""
        command = [FTRUN, "model.so", "--save", "w", "--set", "train.log.every=1", "--log-jsonl"]
        done = subprocess.run([*command, "/dev/full"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (3, "error: cannot write the log /dev/full: No space left on device\n"))
        done = subprocess.run([*command, "log"], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16,) * 2))
        self.assertEqual(done.returncode, 3)
        kept = re.search(r"cannot write the log log: File too large; a checkpoint of step \d+: (\S+)", done.stderr)
        self.assertTrue(kept, done.stderr)
        support.read_safetensors(self.path(kept[1]))

    def test_nohup_means_what_it_says(self):
        running = self.start("model.so", ignored=(signal.SIGHUP,))
        self.until_training(running)
        running.send_signal(signal.SIGHUP)
        for _ in range(50):
            self.until_training(running)
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=60)[0]
        self.assertEqual(running.returncode, 128 + signal.SIGTERM, said)

    def test_what_a_killed_run_leaves(self):
        """The next one removes it, and leaves alone what is a living run's or is not a run's at all."""
        killed, living = self.start("model.ft"), self.start("model.ft", "--set", "train.checkpoint.dir=other")
        self.until_training(killed)
        self.until_training(living)
        self.assertEqual(len(os.listdir(self.scratch)), 2)
        killed.kill()
        killed.communicate(timeout=60)
        self.assertEqual(len(os.listdir(self.scratch)), 2)
        for name in ("ftrun-mine", "ftrun-shared", "other"):  # too short; others may read it; not a name of ours
            os.mkdir(os.path.join(self.scratch, name), 0o755)
        os.symlink(self.path("runs"), os.path.join(self.scratch, "ftrun-linked"))
        with open(self.path("runs", "kept"), "w"):
            pass
        with open(self.path("scratch", "ftrun-shared", "kept"), "w"):
            pass
        before = set(os.listdir(self.scratch))
        support.run("ftrun", "model.ft", "--steps", "1", "--set", "train.checkpoint.dir=third", cwd=self.folder, env={"TMPDIR": self.scratch})
        gone = before - set(os.listdir(self.scratch))
        self.assertEqual(len(gone), 1, gone)
        self.assertTrue(os.path.exists(self.path("runs", "kept")))
        self.assertTrue(os.path.exists(self.path("scratch", "ftrun-shared", "kept")))
        living.send_signal(signal.SIGTERM)
        said = living.communicate(timeout=60)[0]
        self.assertEqual(living.returncode, 128 + signal.SIGTERM, said)
        self.assertEqual(set(os.listdir(self.scratch)), {"ftrun-mine", "ftrun-shared", "other", "ftrun-linked"})

    def test_many_at_once(self):
        """Runs that begin together do not take each other's folders for a killed run's."""
        for _ in range(2):
            runs = [self.start("model.ft", "--steps", "1", "--set", f"train.checkpoint.dir=r{i}") for i in range(5)]
            for running in runs:
                said = running.communicate(timeout=120)[0]
                self.assertEqual(running.returncode, 0, said)
        self.assertEqual(os.listdir(self.scratch), [])


if __name__ == "__main__":
    support.main()
