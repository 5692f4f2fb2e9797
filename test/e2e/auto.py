"""distributed { auto(...) }: what it chooses for processes on this machine trains with the losses of one process, in the artifact
that the settings it names make, and in the same one each time."""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  logits = Linear(4, name="head")(relu(Linear(16, name="fc1")(x)))
  loss = mean(cross_entropy(logits, y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = 8; seed = 5; optimizer = adam(lr=0.01); log { every = 1 steps } }
distributed { auto(gpus = 2) }
"""
HAS_MPI = bool(shutil.which("mpirun")) and bool(glob.glob(os.path.join(support.BUILD, "**", "libft-mpi.so"), recursive=True))


class Auto(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), random.standard_normal((64, 8)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 64).astype("i4"))
        self.source = self.path("model.ft")
        with open(self.source, "w") as file:
            file.write(MODEL)

    def choose(self, name, *flags):
        """The artifact, and the flags that the table says."""
        done = support.run("ftc", self.source, *flags, "-o", self.path(name))
        return self.path(name), shlex.split(re.search(r"^chosen, as by hand: (.*)$", done.stderr, re.M).group(1))

    def losses(self, artifact, ranks):
        out = self.path(f"log{ranks}.jsonl")
        flags = ["--ranks", ranks] if ranks > 1 else []
        support.run("ftrun", *flags, artifact, "--data", self.folder, "--log-jsonl", out, "--no-shuffle")
        return [line["loss"] for line in support.read_jsonl(out)]

    def test_the_artifact_is_that_of_the_flags(self):
        for limit in ("4GiB", "4KiB"):  # the second: too little for all layers on each rank
            auto, flags = self.choose("auto.so", "--auto", f"gpus=2 memory={limit}")
            again, _ = self.choose("again.so", "--auto", f"gpus=2 memory={limit}")
            support.run("ftc", self.source, "--set", "distributed.auto=", *flags, "-o", self.path("hand.so"))
            read = [open(path, "rb").read() for path in (auto, again, self.path("hand.so"))]
            self.assertEqual(read[0], read[1])
            self.assertEqual(read[0], read[2])

    @unittest.skipUnless(HAS_MPI, "no MPI")
    def test_losses_are_those_of_one_process(self):
        support.run("ftc", self.source, "--set", "distributed.auto=", "-o", self.path("one.so"))
        one = self.losses(self.path("one.so"), 1)
        self.assertEqual(len(one), 8)
        chosen = set()
        for limit in ("4GiB", "4KiB"):
            artifact, flags = self.choose("auto.so", "--auto", f"gpus=2 memory={limit}")
            chosen.add(" ".join(flags))
            numpy.testing.assert_allclose(self.losses(artifact, 2), one, rtol=2e-6)
        self.assertEqual(len(chosen), 2, "memory decides")


if __name__ == "__main__":
    support.main()
