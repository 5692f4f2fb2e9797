"""data.workers = auto and data.prefetch = auto: what is trained is bitwise that of fixed ones, whatever is tried meanwhile, also on several
ranks and from a checkpoint; what is said of it; and the suggestion where steps wait for their batches."""
import gzip
import os
import re
import shutil
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

MODEL = """
model M(x: u8[B, 60000], y: f32[B]) {
  w = Linear(1, name="o")
  loss = mean((reshape(w(f32(x[:, 0:64]) / 255), B) - y) ** 2)
}
data D { train = npy("x.npy", "y.npy"); WORKERS }
train { batch = 64; steps = 1500; seed = 5; optimizer = adam(lr=0.01); log { every = 1 steps } }
distributed { data = any }
"""
IMAGES = """
model M(x: u8[B, 8, 8, 3], y: f32[B]) {
  loss = mean(square(y - squeeze(Linear(1, name="o")(flatten(f32(x), from=1)), axis=1)))
}
data D { train = npy("images.npy", "few.npy") | resize((8, 8)); workers = 0 }
train { batch = 64; steps = 400; optimizer = sgd(lr=1e-9); log { every = 1 steps } }
"""
FIXED = {"FT_THREADS": "1"}


class DataAuto(support.Case):
    """A step that does little with much data."""

    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        numpy.save(self.path("x.npy"), random.integers(0, 256, (1500, 60000), "u1"))
        numpy.save(self.path("y.npy"), random.standard_normal(1500).astype("f4"))

    def train(self, artifact, *flags, exit_code=0):
        done = support.run("ftrun", artifact, "--log-jsonl", "log", "--save", "w", "--set", "train.log.console=true", *flags, cwd=self.folder, env=FIXED)
        return done.stdout, [(line["step"], line["loss"]) for line in support.read_jsonl(self.path("log")) if "loss" in line]

    def test_the_same_training(self):
        auto = self.compile(MODEL.replace("WORKERS", "workers = auto; prefetch = auto"), name="auto.so")
        fixed = self.compile(MODEL.replace("WORKERS", "workers = 2"), name="fixed.so")
        self.assertRegex(support.run("ftrun", "info", auto).stdout, r"data\.workers\W+auto")
        said, have = self.train(auto)
        weights = support.read_safetensors(self.path("w"))
        found = re.findall(r"data: steps wait (\d+) % of the time for batches: workers=(\d+), prefetch=(\d+)", said)
        self.assertTrue(found, said[-3000:])
        self.assertTrue(all(int(share) >= 2 and int(workers) <= 16 and 4 <= int(ahead) <= 32 for share, workers, ahead in found), found)
        _, want = self.train(fixed)
        self.assertEqual(have, want)
        for name, value in support.read_safetensors(self.path("w")).items():
            numpy.testing.assert_array_equal(weights[name], value)
        said, have = self.train(fixed, "--set", "data.workers=auto", "--set", "data.prefetch=auto")
        self.assertEqual(have, want)
        self.assertIn("data: steps wait", said)

    def test_it_goes_on_exactly(self):
        auto = self.compile(MODEL.replace("WORKERS", "workers = auto; prefetch = auto"))
        _, want = self.train(auto)
        _, first = self.train(auto, "--steps", "700", "--set", "train.checkpoint.dir=runs")
        _, rest = self.train(auto, "--resume", "runs", "--set", "train.checkpoint.dir=runs")
        self.assertEqual(rest, want)

    def test_on_ranks(self):
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        auto = self.compile(MODEL.replace("WORKERS", "workers = auto; prefetch = auto"), name="auto.so")
        fixed = self.compile(MODEL.replace("WORKERS", ""), name="fixed.so")
        _, have = self.train(auto, "--ranks", "2", "--steps", "400")
        _, want = self.train(fixed, "--ranks", "2", "--steps", "400")
        self.assertEqual(have, want)

    def test_the_suggestion(self):
        """Of a step that is nothing beside its data."""
        images = numpy.random.default_rng(3).integers(0, 256, (96, 320, 320, 3), "u1")
        numpy.save(self.path("images.npy"), images)
        numpy.save(self.path("few.npy"), numpy.zeros(len(images), "f4"))
        artifact = self.compile(IMAGES)
        said, _ = self.train(artifact)
        found = re.search(r"data: steps waited (\d+) % of their time for batches \((\S+) of (\S+) ms\): (.*)", said)
        self.assertTrue(found, said[-800:])
        self.assertLess(abs(float(found[2]) / float(found[3]) - int(found[1]) / 100), 0.02)
        self.assertIn("data.workers=auto, or 1, may help", found[4])

    def test_inflating_is_no_waiting(self):
        """What the first steps wait for a compressed file is not in data_wait, by which workers and batches ahead are chosen."""
        rows = numpy.random.default_rng(4).integers(0, 4, (100, 60000), "u1")
        numpy.save(self.path("x.npy"), numpy.concatenate([rows] * 15))
        with open(self.path("x.npy"), "rb") as file:
            head = file.read(os.path.getsize(self.path("x.npy")) - 15 * rows.size)
        artifact = self.compile(MODEL.replace("WORKERS", "workers = 1"))
        _, want = self.train(artifact, "--steps", "30")
        plain = support.read_log(self.path("log"))
        with open(self.path("x.npy"), "wb") as file:
            file.write(gzip.compress(head) + gzip.compress(rows.tobytes(), 1) * 15)
        _, have = self.train(artifact, "--steps", "30")
        self.assertEqual(have, want)
        for lines, waits in ((plain, True), (support.read_log(self.path("log")), False)):
            first = next(line for line in lines if line.get("step") == 1 and "loss" in line)
            self.assertEqual(first["data_wait"] > 0, waits, first)

    def test_what_is_refused(self):
        with open(self.path("model.ft"), "w") as file:
            file.write(MODEL.replace("WORKERS", "workers = many"))
        self.fails(1, "many", "ftc", self.path("model.ft"), "-o", self.path("m.so"))
        artifact = self.compile(MODEL.replace("WORKERS", ""))
        for setting, needle in (("data.workers=-1", "-1 is less than 0"), ("data.prefetch=automatic", "no whole number"), ("train.epochs=auto", "no whole number")):
            self.fails(1, needle, "ftrun", artifact, "--set", setting, cwd=self.folder)


if __name__ == "__main__":
    support.main()
