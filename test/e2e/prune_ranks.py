"""Pruning on several ranks: the files of a mesh are those of one rank, byte by byte, masks and scores included, where no sum is rounded: parts of
parameters (`zero`), of layers (`tensor`) and stages (`pipeline`); ties, sizes that no number of ranks divides, resuming on another mesh."""
import os
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

BATCH = 12  # of all ranks
# Weights, gradients and their products are multiples of powers of two with few digits, so that no order of sums rounds: weights are only pruned.
MODEL = """
model M(x: f32[B, 7], t: f32[B, 6]) {
  h = relu(Linear(18, name="a")(x))
  h = relu(Linear(10, name="b")(h)) * 0.25
  loss = sum(Linear(6, name="c")(h) * t)
}
data D { train = npy("x.npy", "t.npy"); shuffle = false }
train { epochs = 4; seed = 5; eval = none; optimizer = sgd(lr=0, momentum=0.5); prune = %s; checkpoint { every = 2 steps; keep = 9 } }
"""
WHEN = "begin=1, end=3, every=1"
ONE = (1, 0, 1, 1)
# ranks that share a batch, zero, tensor, pipeline; what is pruned on which of them
WAYS = [
    (f"magnitude(sparsity=0.6, {WHEN})", [(3, 1, 1, 1), (1, 0, 2, 1)]),
    (f"movement(sparsity=0.7, scope=global, {WHEN})", [(2, 2, 2, 1), (1, 0, 1, 2)]),
    (f"gradient(sparsity=0.5, average=0.5, {WHEN})", [(3, 3, 1, 1), (2, 1, 1, 2)]),
    ('magnitude(structure="2:4", begin=1)', [(2, 3, 1, 1), (1, 0, 2, 1)]),
    (f'magnitude(sparsity=0.5, structure="4x3", scope=global, {WHEN})', [(3, 1, 1, 1), (1, 0, 2, 2)]),
    (f"gradient(sparsity=0.5, structure=channel, {WHEN})", [(2, 3, 2, 1)]),
    ("zeros", [(2, 2, 1, 1)]),
]
NORMED = """
model M(x: f32[B, 7], t: f32[B, 6]) {
  h = relu(BatchNorm(name="bn")(Linear(12, bias=false, name="a")(x)))
  h = relu(BatchNorm(name="bo")(Linear(12, bias=false, name="b")(h)))
  loss = mean((Linear(6, name="d")(h) - t) ** 2)
}
data D { train = npy("x.npy", "t.npy") }
train { eval = none; epochs = 1; batch = 4; prune = magnitude(structure=channel) }
distributed { pipeline = 2; stages = "%s" }
"""


class PruneRanks(support.Case):
    def setUp(self):
        super().setUp()
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        random = numpy.random.default_rng(7)
        numpy.save(self.path("x.npy"), random.integers(-2, 3, (BATCH, 7)).astype("f4"))
        numpy.save(self.path("t.npy"), random.integers(-1, 2, (BATCH, 6)).astype("f4"))

    def artifact(self, prune, mesh, name="m.so", *more):
        data, zero, tensor, pipeline = mesh
        sets = {"train.batch": BATCH // data // pipeline, "train.accumulate": pipeline, "distributed.data": data, "distributed.zero": zero,
                "distributed.tensor": tensor, "distributed.pipeline": pipeline}
        return self.compile(MODEL % prune, *(word for one in (*("%s=%s" % of for of in sets.items()), *more) for word in ("--set", one)), name=name)

    def start(self, artifact):
        """Weights of few values, so that most are equal; some are 0."""
        file, random = self.path("start.safetensors"), numpy.random.default_rng(3)
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", file)
        tensors = support.read_safetensors(file)
        support.write_safetensors(file, {name: random.integers(-3, 4, v.shape).astype("f4") / 4 for name, v in tensors.items()})
        return file

    def train(self, artifact, mesh, folder, *flags):
        ranks = mesh[0] * mesh[2] * mesh[3]
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 4, "--set", f"train.checkpoint.dir={self.path(folder)}", "--threads", 1,
                    *(["--ranks", ranks] if ranks > 1 else []), *flags)
        return support.read_safetensors(self.path(folder, "step-00000004.safetensors"))

    def same(self, have, want):
        self.assertEqual(sorted(have), sorted(want))
        for name, value in want.items():
            self.assertEqual(have[name].tobytes(), value.tobytes(), f"{name}: {numpy.sum(have[name] != value)} of {value.size} differ")

    def test_masks_are_those_of_one(self):
        for number, (prune, meshes) in enumerate(WAYS):
            one = self.artifact(prune, ONE)
            start = self.start(one)
            want = self.train(one, ONE, f"one{number}", "--init", start)
            masks = [value for name, value in want.items() if "prune.mask" in name and name.endswith("weight")]
            self.assertEqual(len(masks), 3)
            self.assertGreater(sum((m == 0).sum() for m in masks), 0)
            for mesh in meshes:
                with self.subTest(prune=prune, mesh=mesh):
                    self.same(self.train(self.artifact(prune, mesh), mesh, f"way{number}{mesh}", "--init", start), want)

    def test_a_stage_of_frozen_layers(self):
        """It has no mask, and takes part in the counts of the other stages."""
        for number, prune in enumerate((WAYS[1][0], WAYS[0][0], "zeros")):
            with self.subTest(prune=prune):
                prune += '; freeze = "a.*"'
                one = self.artifact(prune, ONE)
                start = self.start(one)
                want = self.train(one, ONE, f"one{number}", "--init", start)
                self.assertEqual(sorted(name for name in want if "prune.mask" in name and name.endswith("weight")), ["@prune.mask.b.weight", "@prune.mask.c.weight"])
                for mesh in ((1, 0, 1, 2), (2, 2, 1, 2)):
                    cut = self.artifact(prune, mesh, "cut.so", "distributed.stages=b")
                    self.same(self.train(cut, mesh, f"cut{number}{mesh[0]}", "--init", start), want)

    def test_resumes_on_another_mesh(self):
        prune = WAYS[2][0]
        meshes = [ONE, (2, 3, 1, 1), (1, 0, 2, 1)]
        artifacts = [self.artifact(prune, mesh, f"m{i}.so") for i, mesh in enumerate(meshes)]
        start = self.start(artifacts[0])
        want = self.train(artifacts[0], ONE, "whole", "--init", start)
        folder = self.path("part")
        self.train(artifacts[1], meshes[1], "part", "--init", start)
        os.remove(os.path.join(folder, "step-00000004.safetensors"))
        for mesh, artifact in zip(meshes, artifacts):
            with self.subTest(mesh=mesh):
                file = os.path.join(folder, "step-00000002.safetensors")
                self.same(self.train(artifact, mesh, f"rest{mesh}", "--resume", file), want)

    def test_stages_keep_norms(self):
        """The rank that chooses channels has the vectors that become 0 with them."""
        with open(self.path("n.ft"), "w") as f:
            f.write(NORMED % "bn")
        self.fails(1, "no stage begins with block 'bn', since train.prune makes its vectors 0 with the channels of the layer before", "ftc", self.path("n.ft"), "-o", self.path("n.so"))
        for stages in ("b", "d", ""):
            with open(self.path("n.ft"), "w") as f:
                f.write(NORMED % stages)
            support.run("ftc", self.path("n.ft"), "-o", self.path("n.so"))


if __name__ == "__main__":
    support.main()
