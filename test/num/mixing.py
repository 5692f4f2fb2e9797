"""mixup, cutmix and noise: what a training step makes of images and labels, against their definition in numpy with the random numbers that
docs/data.md says, and that definition against torchvision's own v2 with the same numbers, where it is there (as test/num/vision.py says). Cross entropy against PyTorch's. How lambda is distributed."""
import math
import os
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
import vision

MODEL = """
model M(image: u8_or_f32[B, SHAPE], label: i32[B]) {
  state seen: f32[B, SHAPE]
  update seen = image
  state classes: f32[B, 5]
  update classes = one_hot(label, 5)
  param w: [5] = zeros
  loss = mean(cross_entropy(broadcast_to(w, [B, 5]), label))
}
data D { train = npy("x.npy", "y.npy") | CHAIN }
train { batch = 6; steps = 1; optimizer = sgd(lr=0.1) }
"""


class Step:
    """The numbers that a step draws, by stream."""

    def __init__(self, seed, step=0):
        self.seed, self.step = seed, step

    def uniform(self, stream, count=1):
        words = [word for block in range((count + 3) // 4) for word in vision.philox((self.seed, 0), (block, 0, self.step, stream))]
        numbers = numpy.array(words[:count]) >> 8
        return numbers * 2.0**-24

    def one(self, stream):
        return float(self.uniform(stream)[0])

    def beta(self, alpha, stream):
        p, c = (1 - self.one(stream)) ** (1 / alpha), math.cos(2 * math.pi * self.one(stream + 1))
        return 0.5 + math.copysign(0.5, c) * math.sqrt((1 - p) * c * c / (p + (1 - p) * c * c))

    def normal(self, shape):
        count = int(numpy.prod(shape))
        u, v = 1 - self.uniform(0, count), self.uniform(1, count)
        return (numpy.sqrt(-2 * numpy.log(u)) * numpy.cos(2 * math.pi * v)).reshape(shape)


def mixed(x, y, share, cuts, middle, height=-2, width=-1):
    """x, and how much there is of each class in y, of pairs. middle: of the box, as shares of the width and the height."""
    other, out = numpy.arange(len(x)) ^ 1, x.astype("f8")
    if cuts:
        box, area = {}, 1
        for axis, at in zip((width, height), middle):
            size = x.shape[axis]
            half = int(0.5 * math.sqrt(1 - share) * size)
            box[axis] = slice(max(int(at * size) - half, 0), min(int(at * size) + half, size))
            area *= (box[axis].stop - box[axis].start) / size
        places = tuple(box.get(axis - x.ndim, slice(None)) for axis in range(x.ndim))
        out[places], share = x[other][places], 1 - area
    else:
        out = share * out + (1 - share) * x[other]
    rows = numpy.eye(5)[y]
    return out, share * rows + (1 - share) * rows[other]


def drawn(seed, transform, p=1.0, first=0):
    """share, cuts, middle of a step; first: the stream that mixing begins with."""
    step, cuts, at = Step(seed), transform[0] == "cutmix", first
    alpha = transform[1]
    if transform[0] == "mixup_or_cutmix":
        cuts, at = step.one(at) < 0.5, at + 1
        alpha = transform[2] if cuts else alpha
    share, at = step.beta(alpha, at), at + 2
    if p < 1:
        share, at = share if step.one(at) < p else 1.0, at + 1
    return share, cuts, [step.one(at), step.one(at + 1)] if cuts else [0, 0]


CASES = [  # chain, of which transform, p, shape, dtype of the data
    ("mixup(alpha=0.3)", ("mixup", 0.3), 1, (3, 9, 7), "f4"),
    ("normalize(mean=0.4, std=0.5) | mixup", ("mixup", 1), 1, (3, 9, 7), "u1"),
    ("mixup(alpha=2, p=0.5)", ("mixup", 2), 0.5, (11,), "f4"),
    ("cutmix(alpha=1)", ("cutmix", 1), 1, (5, 9, 7), "f4"),
    ("cutmix(alpha=0.7, p=0.6)", ("cutmix", 0.7), 0.6, (8, 6, 3), "u1"),
    ("normalize | mixup_or_cutmix(mixup_alpha=0.2, cutmix_alpha=1)", ("mixup_or_cutmix", 0.2, 1), 1, (12, 10), "u1"),
]


class Mixing(support.Case):
    def stepped(self, artifact, seed, *more):
        support.run("ftrun", artifact, "--no-shuffle", "--save", "new", "--set", f"train.seed={seed}", *more, cwd=self.folder)
        return support.read_safetensors(self.path("new"))

    def prepare(self, shape, dtype, chain):
        random = numpy.random.default_rng(4)
        x = random.integers(0, 256, (6, *shape)).astype("u1") if dtype == "u1" else random.standard_normal((6, *shape)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), numpy.array([0, 3, 2, 2, 4, 1], "i4"))
        is_u8 = dtype == "u1" and "normalize" not in chain
        source = MODEL.replace("SHAPE", ", ".join(map(str, shape))).replace("CHAIN", chain).replace("u8_or_f32", "u8" if is_u8 else "f32")
        return x, numpy.load(self.path("y.npy")), self.compile(source.replace("seen = image", "seen = f32(image)"))

    def test_steps_are_what_is_documented(self):
        for chain, transform, p, shape, dtype in CASES:
            x, y, artifact = self.prepare(shape, dtype, chain)
            if "normalize" in chain:
                x = (x / 255 - 0.4) / 0.5 if "mean" in chain else x / 255
            kinds = set()
            for seed in range(4 if support.IS_SANITIZED else 10):
                share, cuts, middle = drawn(seed, transform, p)
                kinds.add((cuts, share == 1))
                sides = (-3, -2) if shape[-1] == 3 else (-2, -1)
                images, classes = mixed(x, y, share, cuts, middle, *sides)
                have = self.stepped(artifact, seed)
                numpy.testing.assert_allclose(have["seen"], images, rtol=2e-6, atol=2e-6, err_msg=f"{chain}, seed {seed}")
                numpy.testing.assert_allclose(have["classes"], classes, rtol=2e-6, atol=1e-6, err_msg=f"{chain}, seed {seed}")
                # weights of zero: the gradient is that of the classes that there are
                numpy.testing.assert_allclose(have["w"], -0.1 * (0.2 - classes.mean(0)), rtol=1e-5, atol=1e-7, err_msg=f"{chain}, seed {seed}")
            self.assertEqual(len(kinds), 2 if p < 1 or "or" in transform[0] else 1, chain)

    def test_noise_is_what_is_documented(self):
        for chain, dtype, scale, clip in (("noise(mean=0.1, sigma=0.2) | normalize", "u1", 255, True), ("noise(sigma=0.5, clip=false)", "f4", 1, False),
                                          ("noise(sigma=0.5, clip=true) | mixup(alpha=0.5)", "f4", 1, True)):
            x, y, artifact = self.prepare((3, 9, 7), dtype, chain)
            for seed in range(3):
                step = Step(seed)
                images = x / scale + (0.1 if "mean" in chain else 0) + (0.2 if "mean" in chain else 0.5) * step.normal(x.shape)
                images = numpy.clip(images, 0, 1) if clip else images
                if "mixup" in chain:
                    images, _ = mixed(images, y, *drawn(seed, ("mixup", 0.5), first=2))
                numpy.testing.assert_allclose(self.stepped(artifact, seed)["seen"], images, rtol=1e-5, atol=3e-6, err_msg=f"{chain}, seed {seed}")

    @unittest.skipUnless(vision.v2, "no Python with torchvision: scripts/vision-peers")
    def test_definition_is_torchvisions(self):
        """Of pairs: in a batch of two the sample before is the other one."""
        torch, v2, random, kept = vision.torch, vision.v2, numpy.random.default_rng(1), (vision.torch.randint, vision.torch.randn_like)
        for i in range(60):
            height, width = random.integers(1, 40, 2)
            x, y = random.standard_normal((4, 3, height, width)).astype("f4"), random.integers(0, 5, 4)
            share, cuts, middle = [float(random.beta(0.5, 0.5)), 1.0, 0.0][0 if i < 40 else i % 3], bool(i % 2), random.random(2)
            transform = (v2.CutMix if cuts else v2.MixUp)(alpha=1.0, num_classes=5)
            transform._dist.sample = lambda *_: torch.tensor(share, dtype=torch.float64)
            images, classes = mixed(x, y, share, cuts, middle)
            for pair in (slice(0, 2), slice(2, 4)):
                places = iter(middle)
                torch.randint = lambda end, size: torch.tensor([int(next(places) * end)])
                try:
                    theirs = transform(torch.tensor(x[pair]), torch.tensor(y[pair]))
                finally:
                    torch.randint = kept[0]
                numpy.testing.assert_allclose(images[pair], theirs[0].numpy(), rtol=1e-5, atol=1e-6, err_msg=f"{i}")
                numpy.testing.assert_allclose(classes[pair], theirs[1].numpy(), rtol=1e-5, atol=1e-6, err_msg=f"{i}")
        x, normal = random.random((2, 3, 9, 7)).astype("f4"), random.standard_normal((2, 3, 9, 7)).astype("f4")
        torch.randn_like = lambda *_, **__: torch.tensor(normal)
        try:
            theirs = v2.functional.gaussian_noise(torch.tensor(x), mean=0.1, sigma=0.2)
        finally:
            torch.randn_like = kept[1]
        numpy.testing.assert_allclose(numpy.clip(x + 0.1 + 0.2 * normal, 0, 1), theirs.numpy(), atol=1e-6)

    def test_cross_entropy_is_pytorchs(self):
        """Of the classes that there are, with smoothing and weights, and its gradient."""
        import torch

        weight = [1.0, 2.0, 0.5, 1.5, 3.0]
        numpy.save(self.path("x.npy"), numpy.random.default_rng(2).standard_normal((6, 7)).astype("f4"))
        numpy.save(self.path("y.npy"), numpy.array([0, 3, 2, 2, 4, 1], "i4"))
        for options, theirs in (("", {}), (", smoothing=0.2", {"label_smoothing": 0.2}), (f", smoothing=0.1, weight={weight}", {"label_smoothing": 0.1, "weight": torch.tensor(weight)})):
            source = """
model M(x: f32[B, 7], label: i32[B]) {
  param w: [5, 7] = normal(0.5)
  loss = mean(cross_entropy(x @ transpose(w), label%s))
  state seen: f32[B, 7]
  update seen = x
  state classes: f32[B, 5]
  update classes = one_hot(label, 5)
}
data D { train = npy("x.npy", "y.npy") | mixup(alpha=0.8) }
train { batch = 6; steps = 1; optimizer = sgd(lr=1); log { every = 1 steps } }
""" % options
            artifact = self.compile(source)
            start = self.stepped(artifact, 3, "--steps", "0")["w"]
            have = self.stepped(artifact, 3, "--log-jsonl", "log")
            loss = support.read_jsonl(self.path("log"))[0]["loss"]
            os.remove(self.path("log"))
            w = torch.tensor(start, requires_grad=True)
            want = torch.nn.functional.cross_entropy(torch.tensor(have["seen"]) @ w.T, torch.tensor(have["classes"]), **theirs)
            want.backward()
            self.assertAlmostEqual(loss, want.item(), places=5)
            numpy.testing.assert_allclose(start - have["w"], w.grad.numpy(), rtol=1e-4, atol=2e-6, err_msg=options)

    def test_how_the_share_is_distributed(self):
        """Kolmogorov's test; with 3000 numbers one of 10 000 such tests is above 2.23 / sqrt(3000) where the distribution is right."""
        count = 3000
        numpy.save(self.path("x.npy"), numpy.zeros((2, 1), "f4"))
        for alpha in (0.1, 0.2, 0.5, 1, 2, 30):
            source = """
model M(x: f32[B, 1]) {
  loss = mean(Linear(1, name="l")(x) ** 2)
  metric share = mixed(ones([]), zeros([]))
}
data D { train = npy("x.npy") | mixup(alpha=%g) }
train { batch = 2; seed = 6; steps = %d; optimizer = sgd(lr=0); log { console = false; every = 1 steps } }
""" % (alpha, count)
            support.run("ftrun", self.compile(source), "--log-jsonl", "log", cwd=self.folder)
            shares = numpy.sort([line["share"] for line in support.read_jsonl(self.path("log")) if "share" in line])
            os.remove(self.path("log"))
            self.assertEqual(len(shares), count)
            # Of a half and less; below 1 in t = x^alpha, whose density is smooth there.
            power = min(alpha, 1)
            t = numpy.linspace(0, 0.5**power, 200001)
            density = t ** (alpha / power - 1) * (1 - t ** (1 / power)) ** (alpha - 1)
            below = numpy.concatenate([[0], numpy.cumsum((density[1:] + density[:-1]) / 2)])
            low = numpy.minimum(shares, 1 - shares)
            share_below = 0.5 * numpy.interp(low**power, t, below / below[-1])
            expected = numpy.where(shares < 0.5, share_below, 1 - share_below)
            inner = low > 1e-5  # shares are f32: the ones nearer to 0 and 1 fall together
            distance = max(abs(expected - numpy.arange(k, count + k) / count)[inner].max() for k in (0, 1))
            self.assertLess(distance, 2.23 / math.sqrt(count), f"alpha {alpha}")


if __name__ == "__main__":
    support.main()
