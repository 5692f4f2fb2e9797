"""average = swa(start=…, every=…): the mean of the weights behind late steps (Izmailov et al. 2018; PyTorch's AveragedModel without a decay),
from the weights that checkpoints of every step hold; in every way of training, resumed, with steps that are skipped."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
block Body()(x: [B, 8]) { return x + Linear(8, name="b")(relu(Linear(16, name="a")(x))) }
model M(x: f32[B, 8], y: f32[B, 1]) {
  loss = mean(square(Linear(1, name="out")(Body(name="body1")(Body(name="body0")(x))) - y)) * %s
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = %d; epochs = 5; seed = 5; optimizer = sgd(lr=0.05); eval = none; %s }
"""
SAMPLES, BATCH = 128, 16  # 8 steps an epoch, 40 in all
# more of the recipe, flags of ftc, ranks
WAYS = {
    "plain": ("", [], 1),
    "parts of a batch": ("accumulate = 2", [], 1),
    "no fusion": ("", ["--disable=fuse"], 1),
    "adamw, clipped": ("clip = 1.0; optimizer = adamw(lr=0.01)", [], 1),
    "pruned": ("prune = magnitude(sparsity=0.5, every=5)", [], 1),
    "frozen": ('freeze = "body0.a.*"', [], 1),
    "frozen later": ('freeze = after(0.5, "body0.a.*")', [], 1),
    "zero 1": ("", ["data=2", "zero=1"], 2),
    "zero 3": ("accumulate = 2", ["data=2", "zero=3"], 2),
    "tensor": ("", ["tensor=2"], 2),
    "pipeline": ("accumulate = 2", ["pipeline=2"], 2),
}
random = numpy.random.RandomState(3)


def parts(start, every, total):
    """Behind which of `total` steps weights count, by the definition in docs/language.md."""
    return [done for done in range(every, total + 1, every) if done >= start * total - 1e-6]


class Swa(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), random.randn(SAMPLES, 8).astype("f4"))
        numpy.save(self.path("y.npy"), random.randn(SAMPLES, 1).astype("f4"))

    def train(self, artifact, *flags):
        return support.run("ftrun", artifact, "--data", self.folder, *flags).stdout

    def checkpoints(self, artifact, folder, *flags):
        """What each step has left: by its number, {name: value}."""
        folder = self.path(folder)
        self.train(artifact, *flags, *[word for key, value in (("dir", folder), ("unit", "step"), ("every", 1), ("keep", 100))
                                       for word in ("--set", f"train.checkpoint.{key}={value}")])
        return {int(name[5:13]): support.read_safetensors(os.path.join(folder, name)) for name in os.listdir(folder) if name.startswith("step-")}

    def check(self, left, which, what):
        names = [name for name in left[1] if "@ema." + name in left[1]]
        self.assertTrue(names, what)
        moved = 0
        for done, values in left.items():
            counts = [step for step in which if step <= done] or [done]
            for name in names:
                expected = numpy.mean([left[step][name].astype("f8") for step in counts], axis=0)
                if what == "pruned":  # what is pruned now is so in the average, too
                    expected = expected * (values[name] != 0)
                numpy.testing.assert_allclose(values["@ema." + name], expected, atol=2e-6, err_msg=f"{what}: {name} behind step {done}, of {counts}")
                moved = max(moved, numpy.abs(expected - values[name]).max())
        self.assertGreater(moved, 1e-3, what)

    def test_every_way(self):
        for number, (what, (more, static, ranks)) in enumerate(WAYS.items()):
            with self.subTest(what):
                divide = (2 if "accumulate" in more else 1) * (2 if "data=2" in static else 1)
                flags = [word for s in static for word in (["--set", "distributed." + s] if "=" in s and s[0] != "-" else [s])]
                on = ["--ranks", ranks] if ranks > 1 else []
                artifact = self.compile(MODEL % (1, BATCH // divide, "average = swa(start=0.4, every=3); " + more), *flags)
                left = self.checkpoints(artifact, f"runs{number}", "--save", self.path("end"), "--save-ema", self.path("mean"), *on)
                self.assertEqual(len(left), 40, what)
                self.check(left, parts(0.4, 3, 40), what)
                for name, value in support.read_safetensors(self.path("mean")).items():
                    self.assertTrue(numpy.array_equal(value, left[40].get("@ema." + name, left[40][name])), f"{what}: {name}")
                self.train(artifact, "--resume", os.path.join(self.path(f"runs{number}"), "step-00000026.safetensors"), "--save-ema", self.path("again"), *on)
                for name, value in support.read_safetensors(self.path("mean")).items():
                    self.assertTrue(numpy.array_equal(value, support.read_safetensors(self.path("again"))[name]), f"{what}, resumed: {name}")

    def test_which_steps(self):
        """Start and distance are settings of ftrun; without a distance it is an epoch, of 8 steps."""
        artifact = self.compile(MODEL % (1, BATCH, "average = swa"))
        self.check(self.checkpoints(artifact, "whole", "--epochs", 6), [40, 48], "defaults: three quarters of 48 steps, then epochs")
        for number, (start, every) in enumerate([(0, 1), (0.5, 8), (0.07, 7), (1, 1), (0.99, 5), (0.3, 13)]):
            left = self.checkpoints(artifact, f"set{number}", "--set", f"train.average.start={start}", "--set", f"train.average.every={every}", "--steps", 100)
            which = parts(start, every, 100)
            self.assertEqual(len(left), 100)
            if len(which) > 1:
                self.check(left, which, f"start={start}, every={every}")
            else:  # the mean of one
                self.assertTrue(numpy.array_equal(left[100]["@ema.out.weight"], left[100]["out.weight"]))

    def test_skipped_steps(self):
        """With fp16 a step whose gradients are not finite is none: neither weights nor average change, and it does not count."""
        artifact = self.compile(MODEL % ("1", BATCH, "average = swa(start=0.2, every=2); precision = fp16(initial=16384, every=4)"))
        left = self.checkpoints(artifact, "fp16")
        skipped = {done: int(values["@loss_scale.skipped"]) for done, values in left.items()}
        self.assertGreater(skipped[40], skipped[20], "no step was skipped late: the test tests nothing")
        self.assertLess(skipped[40], 15)
        own = {}
        for done in sorted(left):  # by their own count, the first time that it is reached
            own.setdefault(done - skipped[done], left[done])
        own.pop(0, None)
        which = [step for step in parts(0.2, 2, 40) if step <= max(own)]
        self.check(own, which, "fp16")

    def test_skipped_steps_of_epochs(self):
        """Without `every` an epoch ends where its batches do, whichever of its steps were skipped, the last one too."""
        last = 0
        for initial, every in ((2.0**17, 3), (2.0**15, 4)):
            artifact = self.compile(MODEL % ("1", BATCH, f"average = swa(start=0.2); precision = fp16(initial={initial}, every={every})"), name=f"{every}.so")
            left = self.checkpoints(artifact, f"epochs{every}")
            skipped = {0: 0, **{done: int(values["@loss_scale.skipped"]) for done, values in left.items()}}
            self.assertGreater(skipped[40], skipped[20], "no step was skipped late: the test tests nothing")
            last += sum(skipped[done] > skipped[done - 1] for done in (16, 24, 32, 40))
            self.check(left, parts(0.2, 8, 40), f"initial={initial}, every={every}")
        self.assertTrue(last, "no last step of an epoch was skipped")

    def test_mistakes(self):
        for text, message in [("average = swa(begin=1)", "swa has no argument 'begin'; it has start and every"),
                              ("average = mean", "unknown average 'mean'; there are ema and swa"),
                              ("average = ema", "average = ema needs its decay: ema(decay=0.999)"),
                              ("average = swa; ema = 0.9", "average = swa and ema = 0.9 are two"),
                              ("average = swa(start=1.5)", "train.average.start: 1.5 is more than 1"),
                              ("average = swa; precision = bf16(parameters=bf16)", "an average of the weights is one of f32 parameters")]:
            with open(self.path("wrong.ft"), "w") as file:
                file.write(MODEL % (1, BATCH, text))
            self.fails(1, message, "ftc", self.path("wrong.ft"), "-o", self.path("wrong.so"))


if __name__ == "__main__":
    support.main()
