"""Ends before the last step: early stopping as torch's ReduceLROnPlateau counts, metrics that are reached, the time that is up
(also of a SLURM job, and of several ranks), and Ctrl-C while ftrun compiles and evaluates, once and twice."""
import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

MODEL = """
model M(x: f32[B, 6], y: i32[B]) {
  h = relu(Linear(32, name="a")(x))
  logits = Linear(4, name="b")(h)
  each = cross_entropy(logits, y)
  loss = mean(each)
  metric accuracy = mean(argmax(logits, axis=-1) == y)
  metric gain = -mean(each)
  metric root = sqrt(1.4 - mean(each))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("vx.npy", "vy.npy") }
train { batch = 8; epochs = 30; seed = 5; optimizer = adam(lr=0.02); ema = 0.9
  eval every 3 steps
  RECIPE
}
distributed { data = any }
"""
FTRUN = os.path.join(support.BUILD, "bin", "ftrun")


class Stopping(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        for prefix, count in (("", 64), ("v", 40)):
            numpy.save(self.path(prefix + "x.npy"), random.standard_normal((count, 6)).astype("f4"))
            numpy.save(self.path(prefix + "y.npy"), random.integers(0, 4, count).astype("i4"))

    def build(self, recipe="", name="model.so"):
        return self.compile(MODEL.replace("RECIPE", recipe), name=name)

    def train(self, artifact, *flags, log="log", exit_code=0, env=None):
        done = support.run("ftrun", artifact, "--log-jsonl", log, "--save", "w", *flags, cwd=self.folder, check=False, env=env)
        self.assertEqual(done.returncode, exit_code, done.stdout[-600:] + done.stderr)
        return done.stdout + done.stderr

    def evaluations(self, log="log"):
        return [line for line in support.read_jsonl(self.path(log)) if "eval" in line]

    def same_weights(self, have, want):
        have, want = support.read_safetensors(self.path(have)), support.read_safetensors(self.path(want))
        for name in want:
            numpy.testing.assert_array_equal(have[name], want[name], name)

    def ends_by_torch(self, values, is_max, patience, threshold):
        """How many evaluations there are until torch, which waits for one more than its patience, would reduce the rate."""
        dummy = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(dummy, "max" if is_max else "min", 0.5, patience - 1, threshold)
        for i, value in enumerate(values):
            scheduler.step(float("nan") if value is None else value)
            if dummy.param_groups[0]["lr"] < 1:
                return i + 1
        return None

    def test_early(self):
        """The step at which it ends, and its weights, are those of a training of so many steps."""
        whole = self.build()
        self.train(whole)
        every, ends = self.evaluations(), set()
        for rule, patience, threshold in (("min(valid.loss)", 1, 1e-4), ("min(valid.loss)", 4, 0.02), ("max(valid.accuracy)", 3, 0), ("max(valid.root)", 2, 0.1),
                                          ("min(valid.ema_loss)", 2, 0.05), ("max(valid.loss)", 6, 0.5), ("min(valid.loss)", 70, 0.9)):
            with self.subTest(rule=rule, patience=patience):
                name = rule.split(".")[1][:-1]
                count = self.ends_by_torch([line[name] for line in every], rule.startswith("max"), patience, threshold)
                artifact = self.build(f"stop = early(metric={rule}, patience={patience}, threshold={threshold})", "early.so")
                said = self.train(artifact)
                ends.add(count)
                if count is None:
                    self.assertEqual(len(self.evaluations()), len(every))
                    self.assertNotIn("the training ends", said)
                    continue
                step = every[count - 1]["step"]
                self.assertIn(f"{rule} has made no progress in {patience} evaluations", said)
                self.assertIn(f"the training ends after step {step}\n", said[-300:])
                self.assertEqual(self.evaluations()[-1]["step"], step)
                shutil.move(self.path("w"), self.path("w.early"))
                self.train(whole, "--steps", str(step))
                self.same_weights("w.early", "w")
        self.assertGreater(len(ends), 4, ends)

    def test_early_of_negative_numbers(self):
        """Where torch's threshold is met by what is worse."""
        artifact = self.build("stop = early(metric=max(valid.gain), patience=3, threshold=0.05)")
        self.train(artifact)
        best, waited = None, 0
        lines = self.evaluations()
        for i, line in enumerate(lines):
            if best is None or line["gain"] > best + 0.05 * abs(best):
                best, waited = line["gain"], 0
            else:
                waited += 1
            self.assertEqual(waited == 3, i == len(lines) - 1)
        self.assertLess(len(lines), 60)

    def test_early_goes_on_exactly(self):
        """From a checkpoint of any step, also one that a signal made in an evaluation's place: the same end, to the bit."""
        recipe = 'stop = early(metric=max(valid.accuracy), patience=4) or reached(valid.loss < 0); checkpoint { dir = "runs"; every = 2 steps; keep = 99 }'
        artifact = self.build(recipe)
        self.train(artifact)
        shutil.move(self.path("w"), self.path("w.whole"))
        last = self.evaluations()[-1]["step"]
        self.assertLess(last, 200)
        names = sorted(os.listdir(self.path("runs")))
        self.assertIn(f"step-{last:08d}.safetensors", names)
        for name in names[:-1]:
            said = self.train(artifact, "--resume", os.path.join("runs", name), "--set", "train.checkpoint.dir=other")
            self.assertIn(f"the training ends after step {last}", said)
            self.same_weights("w", "w.whole")
            shutil.rmtree(self.path("other"))
        said = self.train(artifact, "--resume", "runs")
        self.assertIn("the training had ended: max(valid.accuracy) made no progress in 4 evaluations", said)
        self.same_weights("w", "w.whole")
        said = self.train(artifact, "--resume", "runs", "--set", "train.stop.patience=5", "--set", "train.checkpoint.dir=other")
        self.assertNotIn("had ended", said)
        self.assertGreater(self.evaluations()[-1]["step"], last)
        said = self.train(artifact, "--resume", "runs", "--set", "train.stop.metric=", "--set", "train.checkpoint.dir=third", "--steps", str(last + 1))
        self.assertNotIn("ended", said)

    def test_reached(self):
        self.train(self.build(), "--steps", "60")
        every = self.evaluations()
        values = [line["accuracy"] for line in every]
        limit = sorted(set(values))[-2]
        for compare, name, fits in ((f"> {limit}", "accuracy", lambda v: v > limit), (f">= {limit}", "accuracy", lambda v: v >= limit),
                                    (f"< {every[4]['loss']:.17g}", "loss", lambda v: v < every[4]["loss"]),
                                    (f"<= {every[4]['loss']:.17g}", "loss", lambda v: v <= every[4]["loss"])):
            want = next((line["step"] for line in every if fits(line[name])), None)
            said = self.train(self.build(f"stop = reached(valid.{name} {compare}); checkpoint {{ dir = \"runs\" }}", "r.so"), "--steps", "60")
            self.assertEqual(self.evaluations()[-1]["step"], want or 60)
            if want:
                self.assertRegex(said, rf"valid\.{name} {compare.split()[0]} \S+ is reached \(\S+\): the training ends after step {want}\n")
                said = self.train(self.path("r.so"), "--resume", "runs", "--steps", "60")
                self.assertIn("was reached; another train.stop.reached goes on", said)
            shutil.rmtree(self.path("runs"))

    def test_what_is_refused(self):
        for text, needle in (("stop = soon", "stop is early(metric=min(valid.loss), patience=10), reached(valid.accuracy > 0.95), or both"),
                             ("stop = early(patient=3)", "early has no argument 'patient'; did you mean 'patience'?"),
                             ("stop = early(3)", "the arguments of early have names"), ("stop = early(patience=0)", "0 is less than 1"),
                             ("stop = early(metric=valid.loss)", "metric is max(valid.accuracy), min(valid.loss)"),
                             ("stop = early(metric=min(valid.lost))", "the model has no metric 'lost'; did you mean 'loss'?"),
                             ("stop = early(metric=min(train.loss))", "training evaluates valid"), ("stop = reached(valid.accuracy)", "reached compares a metric"),
                             ("stop = reached(0.9 < valid.accuracy)", "reached compares a metric"), ("stop = reached(valid.accuracy > true)", "with a number, not with"),
                             ("stop = reached(valid.f1 > 0.5)", "the model has no metric 'f1'"), ("stop = reached(test.loss < 0.5)", "so it is valid.loss, not 'test'"),
                             ("stop = early; eval = none", "eval = none switches the evaluations off that it follows"), ("max_time = 3 weeks", "expected"),
                             ("max_time = -1", "-1 is less than 0"), ('max_time = "2x"', "is no time, such as 90m or 2h")):
            with open(self.path("model.ft"), "w") as file:
                file.write(MODEL.replace("RECIPE", text))
            self.fails(1, needle, "ftc", self.path("model.ft"), "-o", self.path("x.so"))
        artifact = self.build()
        for setting, needle in (("stop.metric=min(valid.lost)", "the model has no metric 'lost'"), ("stop.reached=valid.loss", "expected a limit such as valid.accuracy"),
                                ("stop.reached=valid.loss < nan", "expected a limit"), ("stop.reached=test.loss < 1", "training evaluates valid"),
                                ("max_time=2 parsecs", "is no time, such as 90m or 2h")):
            self.fails(1, needle, "ftrun", artifact, "--set", "train." + setting, cwd=self.folder)
        self.fails(1, "needs valid data", "ftrun", artifact, "--set", "train.stop.reached=valid.loss < 1", "--set", "train.eval.every=0", cwd=self.folder)

    def test_units_of_time(self):
        for text, seconds in (("90 min", "5400"), ("1.5h", "5400"), ("2h", "7200"), ("3 d", "259200"), ("45s", "45"), ("10m", "600"), ("7", "7"), ('"1h"', "3600"), ("none", None)):
            shown = support.run("ftrun", "info", self.build(f"max_time = {text}")).stdout
            found = re.search(r"train\.max_time\b\W+(\d+)", shown)
            self.assertEqual(found[1] if found and seconds else None, seconds, shown[:3000] if not found else found[0])

    def test_time_is_up(self):
        artifact = self.build('epochs = 100000000; log { every = 1000 steps }; eval every 5000 steps; checkpoint { dir = "runs"; every = 1000000 steps }')
        said = self.train(artifact, "--max-time", "2s", exit_code=124)
        step = int(re.search(r"the time is up \(train\.max_time\): stopped after step (\d+); the same command with --resume runs goes on", said)[1])
        self.assertIn(f"step-{step:08d}.safetensors", os.listdir(self.path("runs")))
        self.assertIn("weights written to w", said)
        said = self.train(artifact, "--resume", "runs", exit_code=124, env={"SLURM_JOB_END_TIME": str(int(time.time()) + 6)})
        self.assertRegex(said, r"the job ends in \d s \(SLURM_JOB_END_TIME\): the training [01] s before")
        more = int(re.search(r"the time is up \(SLURM_JOB_END_TIME\): stopped after step (\d+)", said)[1])
        self.assertGreater(more, step)
        said = self.train(artifact, "--resume", "runs", "--max-time", "0.5s", exit_code=124, env={"SLURM_JOB_END_TIME": str(int(time.time()) + 3600)})
        self.assertIn("the training 60 s before", said)
        self.assertIn("(train.max_time): stopped", said)
        said = self.train(artifact, "--max-time", "0.000001s", "--set", "train.checkpoint.dir=fresh", exit_code=124)
        self.assertIn("the time is up (train.max_time): stopped before the first step; the same command starts again", said)
        self.assertFalse(os.path.isdir(self.path("fresh")) and os.listdir(self.path("fresh")))
        said = self.train(artifact, "--resume", "runs", "--max-time", "0.000001s", "--set", "train.checkpoint.dir=fresh", exit_code=124)
        self.assertRegex(said, r"stopped after step \d+; the same command with --resume runs goes on")  # nothing new in `fresh`
        for value, reason in (("soon", "is no time"), ("1e9", "is no time"), ("1000000", "is past"), ("9" * 30, "is no time")):
            said = self.train(artifact, "--steps", "2", "--set", "train.checkpoint.dir=", "--set", "train.eval.every=0", env={"SLURM_JOB_END_TIME": value})
            self.assertIn(f"SLURM_JOB_END_TIME={value} {reason}", said)

    def test_time_of_ranks(self):
        """All end after the same step, which rank 0's clock decides: one file of all, and its code."""
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        recipe = 'epochs = 100000000; log { every = 1000 steps }; eval every 5000 steps; checkpoint { dir = "runs"; every = 1000000 steps }'
        artifact = self.build(recipe)
        said = self.train(artifact, "--ranks", "2", "--threads", "1", "--max-time", "5s", exit_code=124)
        step = re.search(r"the time is up \(train\.max_time\): stopped after step (\d+)", said)[1]
        self.assertIn(f"step-{int(step):08d}.safetensors", os.listdir(self.path("runs")))
        shutil.rmtree(self.path("runs"))
        said = self.train(self.path("model.ft"), "--elastic", "1:2", "--threads", "1", "--max-time", "5s", exit_code=124)
        self.assertIn("the time is up (train.max_time)", said)
        self.assertNotIn("elastic: the", said)  # another run after it

    def start(self, *arguments):
        os.makedirs(self.path("scratch"), exist_ok=True)
        running = subprocess.Popen([FTRUN, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                   env=dict(os.environ, TMPDIR=self.path("scratch")),
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a script's background jobs ignore it
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        return running

    def until(self, running, word):
        said = ""
        while word not in (line := running.stdout.readline()):
            said += line
            self.assertIsNone(running.poll(), said)

    def test_ctrl_c_while_compiling(self):
        """To the whole group, as a terminal sends it: neither compiler nor folder is left."""
        layers = "\n".join(f'  h = relu(Linear({33 + i}, name="l{i}")(h))' for i in range(150))
        with open(self.path("large.ft"), "w") as file:
            file.write(MODEL.replace('  logits', layers + '\n  logits').replace("RECIPE", ""))
        running = self.start("large.ft")
        end = time.monotonic() + 30
        while not os.listdir(self.path("scratch")) and time.monotonic() < end:
            time.sleep(0.005)
        self.assertTrue(os.listdir(self.path("scratch")))
        os.killpg(running.pid, signal.SIGINT)
        said = running.communicate(timeout=60)[0]
        self.assertEqual(running.returncode, -signal.SIGINT, said)
        self.assertEqual(os.listdir(self.path("scratch")), [])

    def test_ctrl_c_while_evaluating(self):
        """The evaluation is broken off and owed; the training that goes on makes it, and the weights are those of one never stopped."""
        random = numpy.random.default_rng(4)
        numpy.save(self.path("vx.npy"), random.standard_normal((400000, 6)).astype("f4"))
        numpy.save(self.path("vy.npy"), random.integers(0, 4, 400000).astype("i4"))
        artifact = self.build('epochs = 1; log { every = 1 steps }; checkpoint { dir = "runs"; best = min(valid.loss) }')
        self.train(artifact, "--set", "train.checkpoint.dir=")
        shutil.move(self.path("w"), self.path("w.whole"))
        want = [(line["step"], line["loss"]) for line in self.evaluations()]
        running = self.start(artifact, "--log-jsonl", "log2", "--save", "w")
        self.until(running, "step 3/")
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[0]
        self.assertEqual(running.returncode, 128 + signal.SIGINT, said)
        self.assertIn("goes on", said)
        self.train(artifact, "--resume", "runs", log="log2")
        self.same_weights("w", "w.whole")
        self.assertEqual([(line["step"], line["loss"]) for line in self.evaluations("log2")], want)

    def test_ctrl_c_twice(self):
        """A training that cannot end after its step, for nobody reads its log: the second one ends it at once, and what it saved goes on."""
        artifact = self.build('epochs = 100000000; log { every = 1 steps }; eval = none; checkpoint { dir = "runs"; every = 50 steps }')
        os.mkfifo(self.path("pipe"))
        running = self.start(artifact, "--log-jsonl", "pipe", "--set", "train.log.console=false")
        with open(self.path("pipe")) as reader:
            reader.readline()
            while not any(name.startswith("step-") for name in os.listdir(self.path("runs"))):
                reader.readline()
            before, held = -1, 0
            while held != before or held < 20000:  # until the pipe is full: a line that does not fit into the rest of a page takes a new one
                time.sleep(1)
                before, held = held, struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"1234"))[0]
            running.send_signal(signal.SIGINT)
            time.sleep(1)
            self.assertIsNone(running.poll())
            running.send_signal(signal.SIGINT)
            running.wait(timeout=30)
        self.assertEqual(running.returncode, -signal.SIGINT)
        said = self.train(artifact, "--resume", "runs", "--max-time", "1s", exit_code=124)
        self.assertIn("resumed from runs/step-", said)


if __name__ == "__main__":
    support.main()
