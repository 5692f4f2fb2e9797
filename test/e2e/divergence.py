"""A training whose numbers are no longer finite stops and spoils nothing; files that cannot be written are told before
the first step, and numbers that have nowhere to go at the end go elsewhere."""
import glob
import os
import re
import shutil
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 4]) {
  y = Linear(1, name="fc")(x)
  loss = mean(square(y - sum(x, axis=1, keepdims=true)))
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 4; steps = 12; optimizer = sgd(lr=0.01); seed = 1
  checkpoint { dir="runs"; every=3 steps; keep=2 }
  log { every = 1 } }
"""
# fp16 in one layer: its gradients overflow where the loss is multiplied by 1e30, whatever the scale
HALF = """
hyper factor: float = 1
model M(x: f32[B, 4]) {
  y = Linear(1, name="fc", precision=fp16)(x)
  loss = mean(y) * factor
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 4; steps = 150; optimizer = sgd(lr=0.001); seed = 1; precision = fp16
  log { every = 1 } }
"""


class Divergence(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(0)
        self.x = random.normal(size=(40, 4)).astype(numpy.float32)
        numpy.save(self.path("x.npy"), self.x)

    def poison(self, batch, value=numpy.nan):
        """The batch of this number, from 1, holds a value that no training survives."""
        self.x[4 * (batch - 1)] = value
        numpy.save(self.path("x.npy"), self.x)

    def train(self, *flags, code=0, needle="", **options):
        return self.fails(code, needle, "ftrun", self.artifact, "--no-shuffle", *flags, cwd=self.folder, **options)

    def steps(self):
        return sorted(os.listdir(self.path("runs")))

    def test_stops_at_the_loss(self):
        self.artifact = self.compile(MODEL)
        self.train("--save", "w.safetensors", "--set", "train.checkpoint.dir=")
        before = open(self.path("w.safetensors"), "rb").read()
        self.poison(8)
        for device in ([], ["--threads", "1"]):
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            done = self.train("--save", "w.safetensors", "--log-jsonl", "log", *device, code=1, needle="the loss of step 8 is NaN")
            self.assertIn("checkpoint is that of step 6, --resume runs", done.stderr)
            self.assertIn("w.safetensors is left as it was", done.stderr)
            self.assertEqual(open(self.path("w.safetensors"), "rb").read(), before)
            self.assertEqual(self.steps(), ["step-00000003.safetensors", "step-00000006.safetensors"])
            self.assertEqual([line["step"] for line in support.read_jsonl(self.path("log"))], list(range(1, 9)))
        # what it says to do works
        numpy.save(self.path("x.npy"), numpy.nan_to_num(self.x))
        self.train("--resume", "runs", "--save", "w.safetensors", needle="resumed")

    def test_parameters_are_looked_at_before_a_checkpoint(self):
        """A finite loss whose update is not: step 6's checkpoint would be the newest."""
        self.artifact = self.compile(MODEL.replace('name="fc"', 'bias=false'))
        self.x[:] = 0
        self.poison(6, 1e17)
        done = self.train("--set", "train.lr=1e6", code=1, needle="after step 6 parameter weight is not finite")
        self.assertIn("that of step 3", done.stderr)
        self.assertEqual(self.steps(), ["step-00000003.safetensors"])

    def test_the_last_step(self):
        """No checkpoint and no evaluation is due: --save itself is what must not happen."""
        self.artifact = self.compile(MODEL.replace("steps = 12", "steps = 10").replace('name="fc"', 'bias=false'))
        self.x[:] = 0
        self.poison(10, 1e17)
        self.train("--set", "train.checkpoint.dir=", "--set", "train.lr=1e6", "--save", "w.safetensors", code=1, needle="after step 10 parameter weight")
        self.assertFalse(os.path.exists(self.path("w.safetensors")))

    def test_keep_going(self):
        self.artifact = self.compile(MODEL)
        self.poison(8)
        done = self.train("--save", "w.safetensors", "--keep-going", needle="warning: the loss of step 8 is NaN")
        self.assertEqual(done.stderr.count("warning"), 1)
        # checkpoints that nobody can go on from do not push out those that one can
        self.assertEqual(self.steps(), ["step-00000003.safetensors", "step-00000006.safetensors"])
        self.assertTrue(numpy.isnan(support.read_safetensors(self.path("w.safetensors"))["fc.weight"]).all())

    def test_on_sim(self):
        self.artifact = self.compile(MODEL, name="model.ptx")
        self.poison(2)
        self.train("--device", "sim", code=1, needle="the loss of step 2 is NaN")

    def test_half(self):
        """Steps that fp16 skips are no divergence; a training that only skips is."""
        self.artifact = self.compile(HALF)
        self.x[8] = 1e9  # infinite in fp16: batch 3's loss is not finite, and its update is skipped
        numpy.save(self.path("x.npy"), self.x)
        self.train("--log-jsonl", "log", "--save", "w.safetensors", "--steps", 20)
        lines = support.read_jsonl(self.path("log"))
        self.assertIsNone(lines[2]["loss"])
        self.assertEqual([line["skipped_steps"] for line in lines[-1:]], [2])
        numpy.save(self.path("x.npy"), numpy.ones((40, 4), numpy.float32))
        self.artifact = self.compile(HALF, "-D", "factor=1e30")
        self.train("--log-jsonl", "log", code=1, needle="100 steps in a row were skipped")
        scales = [line["loss_scale"] for line in support.read_jsonl(self.path("log"))]
        numpy.testing.assert_allclose(scales[:31], [2.0 ** (16 - i) for i in range(31)], rtol=1e-6)
        self.assertEqual(set(scales[30:]), {scales[30]})  # the floor
        self.train("--keep-going", needle="100 steps in a row")


class Outputs(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), numpy.random.RandomState(0).normal(size=(40, 4)).astype(numpy.float32))
        self.artifact = self.compile(MODEL.replace('dir="runs"', 'dir=""'))

    def train(self, *flags, code=0, needle="", **options):
        return self.fails(code, needle, "ftrun", self.artifact, *flags, cwd=self.folder, **options)

    def test_before_the_first_step(self):
        with open(self.path("file"), "w"):
            pass
        os.mkfifo(self.path("fifo"))
        for needle, flags in (("there is no folder no/where; make it first", ["--save", "no/where/w.safetensors"]),
                              ("there is no folder no/where", ["--save-ema", "no/where/w.safetensors"]),
                              ("that is a folder", ["--save", "."]),
                              ("a device or pipe, not a file", ["--save", "fifo"]),
                              ("there is no folder no", ["--trace", "no/t.json"]),
                              ("cannot write in file", ["--save", "file/w.safetensors"]),
                              ("Not a directory", ["--set", "train.checkpoint.dir=file"]),
                              ("Not a directory", ["--set", "train.checkpoint.dir=file/runs"]),
                              ("cannot write in file", ["--set", "train.checkpoint.dir=file/runs", "--dry-run"]),
                              ("the same file", ["--save", "w", "--save-ema", "w"]),
                              ("no/log", ["--log-jsonl", "no/log"])):
            artifact = self.artifact
            if "--save-ema" in flags:
                self.artifact = self.compile(MODEL.replace('dir="runs"', 'dir=""').replace("seed = 1", "seed = 1; ema = 0.9"))
            done = self.train(*flags, code=1, needle=needle)
            self.assertNotIn("step 1/", done.stdout)
            self.artifact = artifact
        self.train("--save", "w.safetensors", "--set", "train.checkpoint.dir=new/runs", "--dry-run")
        self.assertEqual(sorted(os.listdir(self.folder)), ["fifo", "file", "model.ft", "model.so", "x.npy"])

    def lose(self, folder, flags, code=1):
        """Trains while `folder` disappears: the first lines of the console are out, then the log ends at a pipe."""
        log = self.path("fifo")
        os.mkfifo(log)
        pid = os.fork()
        if pid == 0:
            with open(log) as reader:  # opens when ftrun does, before the first step; reads one line
                reader.readline()
                shutil.rmtree(folder)
                for _ in reader:
                    pass
            os._exit(0)
        try:
            return self.train("--log-jsonl", log, *flags, code=code)
        finally:
            os.waitpid(pid, 0)
            os.remove(log)

    def test_weights_go_beside(self):
        os.mkdir(self.path("out"))
        done = self.lose(self.path("out"), ["--save", "out/w.safetensors", "--steps", 100000, "--set", "train.log.every=1000"])
        kept = glob.glob(self.path("w.kept-*.safetensors"))
        self.assertEqual(len(kept), 1, done.stderr)
        self.assertIn(os.path.basename(kept[0]), done.stderr)
        self.assertIn("fc.weight", support.read_safetensors(kept[0]))

    def test_a_checkpoint_goes_beside(self):
        """Its folder became a file during the run."""
        os.mkdir(self.path("out"))
        with open(self.path("wall"), "w"):
            pass
        os.symlink(self.path("out"), self.path("runs"))
        log = self.path("fifo")
        os.mkfifo(log)
        pid = os.fork()
        if pid == 0:
            with open(log) as reader:
                reader.readline()
                os.remove(self.path("runs"))
                os.symlink(self.path("wall"), self.path("runs"))
                for _ in reader:
                    pass
            os._exit(0)
        done = self.train("--log-jsonl", log, "--steps", 100000, "--set", "train.log.every=1000", "--set", "train.checkpoint.dir=runs",
                          "--set", "train.checkpoint.every=60000", code=1, needle="runs")
        os.waitpid(pid, 0)
        kept = glob.glob(self.path("runs.kept-*.safetensors"))
        self.assertEqual(len(kept), 1, done.stderr)
        done = self.train("--resume", kept[0], "--steps", 60010, needle="resumed from")
        step = int(re.search(r"step (\d+) of 60010", done.stdout + done.stderr).group(1))
        self.assertGreaterEqual(step, 60000)  # training went on until it was told
        self.assertLessEqual(step, 100000)


if __name__ == "__main__":
    support.main()
