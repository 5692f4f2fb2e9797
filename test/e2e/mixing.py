"""Trainings with mixup, cutmix and noise, compiled and run in every way: ranks, parts of a batch, sharing of parameters, without fused
kernels, recomputed, on the simulator, from every kind of source. They all end with the weights of one plain run. (By the interpreter:
test/unit/passes_mix.c; against numpy and torchvision: test/num/mixing.py.)"""
import glob
import os
import shutil
import subprocess
import sys
import unittest

import numpy
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
from shards import packed

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
MPIRUN = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
HAS_MPI = bool(shutil.which("mpirun")) and bool(glob.glob(os.path.join(support.BUILD, "**", "libft-mpi.so"), recursive=True))
MODEL = """
model M(image: f32[B, 3, 8, 8], label: i32[B]) {
  x = relu(Conv2d(4, 3, padding=1, name="conv")(image))
  h = relu(Linear(24, name="fc")(flatten(x, from=1)))
  logits = Linear(5, name="head")(h)
  loss = mean(cross_entropy(logits, label, smoothing=0.1))
  metric accuracy = mean(argmax(logits, axis=-1) == label)
}
data D { train = SOURCE CHAIN; workers = 2 }
train { batch = 16; epochs = 1; seed = 7; optimizer = adam(lr=0.003) EXTRA; log { every = 1 steps } }
"""
CHAIN = "| hflip | noise(sigma=0.1) | normalize(mean=0.5, std=0.3) | mixup_or_cutmix(mixup_alpha=0.4)"
SAMPLES = 96


class Mixing(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(0)
        self.x, self.y = random.integers(0, 256, (SAMPLES, 3, 8, 8)).astype("u1"), random.integers(0, 5, SAMPLES).astype("i4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)

    def train(self, *flags, source='npy("x.npy", "y.npy")', chain=CHAIN, extra="", ranks=1, name="model.so", run=(), model=MODEL):
        artifact = self.compile(model.replace("SOURCE", source).replace("CHAIN", chain).replace("EXTRA", extra), *flags, name=name)
        command = [FTRUN, artifact, "--threads", "1", "--save", "end", *run]
        if ranks > 1:
            command = MPIRUN + ["-n", str(ranks)] + command
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return support.read_safetensors(self.path("end"))

    def losses(self, *flags):
        self.train(*flags, run=["--log-jsonl", "log"])
        lines = support.read_jsonl(self.path("log"))
        os.remove(self.path("log"))
        return [line["loss"] for line in lines]

    def assert_near(self, one, other, tolerance, what):
        self.assertEqual(set(one), set(other))
        for name in one:
            self.assertLess(abs(one[name] - other[name]).max(), tolerance, f"{what}: {name}")

    def test_every_way(self):
        """The tolerance is that of another order of sums over 6 steps of adam; another partner or share differs by 1e-2."""
        plain = self.train()
        mixed = {seed: self.train(run=["--set", f"train.seed={seed}"]) for seed in (7, 8)}
        self.assert_near(plain, mixed[7], 1e-12, "again")
        self.assertGreater(max(abs(plain[name] - mixed[8][name]).max() for name in plain), 1e-2)
        ways = {"no fused kernels": ["--disable=fuse"], "recomputed": ["--set", "train.recompute=block"], "2 parts": ["--set", "train.batch=8", "--set", "train.accumulate=2"],
                "4 parts": ["--set", "train.batch=4", "--set", "train.accumulate=4"]}
        for what, flags in ways.items():
            self.assert_near(plain, self.train(*flags), 2e-5, what)
        losses = [self.losses(*flags) for flags in ([], ["--set", "train.precision=bf16"], ["--set", "train.precision=bf16", "--disable=fuse"])]
        self.assertEqual(len(losses[0]), 6)
        for narrow in losses[1:]:
            numpy.testing.assert_allclose(narrow, losses[0], rtol=5e-3)
        if not support.IS_SANITIZED:
            self.assert_near(plain, self.train(name="model.ptx", run=["--device", "sim"]), 2e-5, "simulator")

    @unittest.skipUnless(HAS_MPI, "no Open MPI here")
    def test_ranks(self):
        plain = self.train()
        ways = [(2, ["distributed.data=any", "train.batch=8"]), (4, ["distributed.data=4", "train.batch=4", "distributed.zero=3"]),
                (2, ["distributed.data=2", "train.batch=4", "train.accumulate=2", "distributed.zero=1"]), (2, ["distributed.tensor=2", "train.batch=16"]),
                (2, ["distributed.pipeline=2", "train.batch=8", "train.accumulate=2"])]
        for ranks, sets in ways[:2] if support.IS_SANITIZED else ways:
            flags = [word for words in sets for word in ("--set", words)]
            self.assert_near(plain, self.train(*flags, ranks=ranks), 2e-5, f"{ranks} ranks, {sets}")

    def test_every_source(self):
        """The same pixels from arrays, a folder and shards give the same weights; so do arrays of floats that are normalised already."""
        pictures = self.x.transpose(0, 2, 3, 1)
        order = numpy.argsort(self.y, kind="stable")  # a folder's
        members = []
        for rank, i in enumerate(order):
            os.makedirs(self.path("tree", str(self.y[i])), exist_ok=True)
            path = self.path("tree", str(self.y[i]), f"{rank:03}.png")
            Image.fromarray(pictures[i]).save(path)
            with open(path, "rb") as file:
                members += [(f"{rank:03}.png", file.read()), (f"{rank:03}.cls", str(self.y[i]).encode())]
        with open(self.path("all.tar"), "wb") as file:
            file.write(packed(members))
        numpy.save(self.path("x.npy"), self.x[order])
        numpy.save(self.path("y.npy"), self.y[order])
        numpy.save(self.path("f.npy"), ((self.x[order] / 255 - 0.5) / 0.3).astype("f4"))
        sized = "| center_crop(8) " + CHAIN
        plain = self.train(chain=sized)
        self.assert_near(plain, self.train(source='folder("tree")', chain=sized), 1e-12, "folder")
        self.assert_near(plain, self.train(source='tar("all.tar")', chain=sized), 1e-12, "tar")
        no_noise = "| normalize(mean=0.5, std=0.3) | mixup_or_cutmix(mixup_alpha=0.4)"
        self.assert_near(self.train(chain=no_noise), self.train(source='npy("f.npy", "y.npy")', chain="| mixup_or_cutmix(mixup_alpha=0.4)"), 2e-5, "floats")

    def test_evaluation_has_none_of_it(self):
        """An evaluation during the training, of its own data, and of the data that is trained on."""
        with_mixing = MODEL.replace("CHAIN;", "CHAIN; valid = npy(\"x.npy\", \"y.npy\") | normalize(mean=0.5, std=0.3);")
        chain = "| noise(sigma=0.1) | normalize(mean=0.5, std=0.3) | mixup(alpha=1)"
        weights = self.train(model=with_mixing, chain=chain)
        support.write_safetensors(self.path("w"), weights)
        said = [support.run("ftrun", "eval", self.path("model.so"), "--weights", self.path("w"), *more, cwd=self.folder).stdout for more in ([], ["--split", "train"])]
        self.compile(with_mixing.replace("SOURCE", 'npy("x.npy", "y.npy")').replace("CHAIN", "| normalize(mean=0.5, std=0.3)").replace("EXTRA", ""))
        want = support.run("ftrun", "eval", self.path("model.so"), "--weights", self.path("w"), cwd=self.folder).stdout
        numbers = [text[text.index("loss"):].split("(")[0] for text in (*said, want)]
        self.assertEqual(numbers[0], numbers[2])
        self.assertEqual(numbers[1], numbers[2])

    def test_labels_of_one_hot(self):
        """Classes that the chain makes rows of train as classes do."""
        rows = MODEL.replace("label: i32[B]", "label: f32[B, 5]").replace("== label", "== argmax(label, axis=-1)")
        self.assert_near(self.train(), self.train(model=rows, chain=CHAIN + " | one_hot(5)"), 2e-6, "one_hot")
        bad = self.y.copy()
        bad[3] = 5
        numpy.save(self.path("y.npy"), bad)
        for model, chain in ((MODEL, CHAIN), (rows, CHAIN + " | one_hot(5)")):
            artifact = self.compile(model.replace("SOURCE", 'npy("x.npy", "y.npy")').replace("CHAIN", chain).replace("EXTRA", ""))
            self.fails(1, "label", "ftrun", artifact, cwd=self.folder)


if __name__ == "__main__":
    support.main()
