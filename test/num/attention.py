"""Attention by Hopper's tensor cores (kernels/attention_wgmma_*), alone: values and gradients in bf16, in the simulator, against PyTorch in float64. Heads of
48 to 256 features, masks of bools and masks that are added, capped scores, heads that share keys; and the same programs without those kernels."""
import os
import re
import sys

import numpy
import torch

sys.path.insert(0, os.path.dirname(__file__))
import ops
import support
from functions import attention

random = numpy.random.default_rng(41)
CASES = []


def bf16(*shape):
    bits = random.uniform(-1, 1, shape).astype("f4").view("u4")
    return (bits + 0x8000 & 0xFFFF0000).astype("u4").view("f4")


def case(features, rows, keys, heads=2, groups=2, batch=1, added=None, bools=None, causal=False, cap=None, squares=False):
    arguments = dict(q=bf16(batch, heads, rows, features), k=bf16(batch, groups, keys, features), v=bf16(batch, groups, keys, features))
    options = ", causal=true" * causal + (f", softcap={cap}" if cap else "")
    if added:
        arguments["m"], options = 3 * bf16(*added), options + ", mask=stop_gradient(m)"
    if bools:
        arguments["m"] = (random.uniform(0, 1, bools) < 0.3).astype("i4")
        arguments["m"][..., -70:] = 0  # tiles that no row sees
        if squares:  # of each two queries and keys of different halves nothing, and the first rows see nothing
            halves = numpy.arange(rows)[:, None] * 2 // rows != numpy.arange(keys) * 2 // keys
            arguments["m"][..., halves] = 0
            arguments["m"][..., : rows // 4, :] = 0
        options += ", mask=m != 0"

    def expected(q, k, v, m=None):
        mask = None if m is None or added else m != 0
        return attention(q, k, v, causal, mask, cap=cap, bias=m.detach() if added else None)
    CASES.append((f"attention(q, k, v{options})", expected, arguments))


case(256, 200, 150, heads=2, groups=1)
case(256, 130, 130, causal=True)
case(256, 128, 136, added=(1, 2, 128, 136))
case(256, 192, 272, bools=(1, 1, 192, 272), causal=True, cap=2)
case(192, 140, 230, heads=1, groups=1, batch=2, bools=(2, 1, 1, 230))
case(192, 160, 160, causal=True, added=(1, 1, 160, 160), cap=1.5)
case(136, 129, 128)
case(128, 150, 201, groups=1, added=(1, 2, 150, 201))
case(128, 128, 290, batch=2, added=(2, 1, 1, 290), causal=True)
case(80, 200, 144, added=(1, 1, 200, 144), cap=0.9)
case(80, 130, 310, heads=4)
case(64, 260, 260, causal=True, added=(1, 2, 260, 260))
case(48, 128, 190, added=(1, 2, 128, 190))


class Kernels(ops.Compared):
    artifact, device, flags, kernels = "model.ptx", "sim", [], True

    def compile(self, source, *flags, **options):
        artifact = super().compile(source, "--gpu", "sm_90a", "--set", "train.precision=bf16", *self.flags, *flags, **options)
        with open(artifact) as file:
            text = file.read()
        bodies = [name for name in re.findall(r"\.entry (\w*attention\w*)\(.*?\n\}", text, re.S) if not name.endswith("_tiles")]
        products = [body for body in re.split(r"\.entry ", text) if re.match(r"\w*attention", body) and "wgmma.mma_async" in body]
        self.assertEqual(len(products), len(bodies) if self.kernels else 0)
        if self.kernels:
            self.assertEqual(len(bodies), 3)
        return artifact

    def close(self, ours, theirs, what, start):
        """Operands, weights and results are rounded to bf16, and all terms are about as large as the largest result."""
        self.assertEqual(ours.shape, theirs.shape, what)
        self.assertTrue(numpy.isfinite(ours).all(), what)
        error = numpy.abs(ours - theirs).max(initial=0) / max(numpy.abs(theirs).max(initial=0), 1e-2)
        self.assertLess(error, 3 * 2**-8, f"{what}: {error:.1e} of its largest element")


class Attention(Kernels):
    """With tensor maps."""


class AttentionTiles(Kernels):
    """Tiles that a mask hides: whether they are computed or not, the bits are the same."""

    def ends(self, cases, *flags):
        text, weights, inputs = ops.model(cases)
        artifact = self.compile(text, *flags, name=self.artifact)
        for name, value in inputs.items():
            numpy.save(self.path(name + ".npy"), value)
        support.write_safetensors(self.path("start.safetensors"), weights)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"), "--steps", "1",
                    "--no-shuffle", "--device", "sim")
        with open(artifact) as file:
            lists = len(re.findall(r"\.entry \w*attention\w*_tiles\(", file.read()))
        return support.read_safetensors(self.path("end.safetensors")), lists

    def test_same_bits(self):
        case(64, 320, 400, groups=1, bools=(1, 1, 320, 400), squares=True)
        case(128, 260, 260, batch=2, bools=(2, 2, 260, 260), causal=True, squares=True)
        for one in (CASES.pop(), CASES.pop()):
            drawn = ops.random.get_state()
            skipped, lists = self.ends([one])
            self.assertEqual(lists, 3)
            ops.random.set_state(drawn)
            whole, lists = self.ends([one], "--disable=attention_tiles")
            self.assertEqual(lists, 0)
            for name, value in whole.items():
                self.assertEqual(value.tobytes(), skipped[name].tobytes(), f"{one[0]}: {name}")
            self.group([one])


class AttentionWithoutMaps(Attention):
    flags = ["--disable=tma"]


class AttentionWithout(Attention):
    """By mma.sync, and of more than 128 features in products."""

    flags, kernels = ["--disable=attention_wgmma"], False


class LargeScores(ops.Compared):
    """Rows of equal scores of up to 150: their weights are equal, wherever the keys stand. A largest score that were rounded anew
    for each tile would let the weights of the first keys drift, by 2^-18 a tile."""

    artifact, device = "model.ptx", "sim"

    def test(self):
        scores = numpy.linspace(50, 150, 64, dtype="f4")
        arguments = dict(q=numpy.repeat(scores[:, None], 64, 1)[None, None], k=numpy.full((1, 1, 2048, 64), 0.125, "f4"),
                         v=numpy.repeat(numpy.float32([1, -1]), 1024)[None, None, :, None] * numpy.ones(64, "f4"))
        cases = [("attention(stop_gradient(q), stop_gradient(k), v)", lambda q, k, v: attention(q.detach(), k.detach(), v, False, None), arguments)]
        for flags in (["sm_80"], ["sm_80", "--set", "train.precision=tf32"], ["sm_80", "--set", "train.precision=bf16"], ["sm_90a", "--set", "train.precision=bf16"]):
            with self.subTest(flags):
                self.flags = ["--gpu", *flags]
                self.group(cases)

    def compile(self, source, **options):
        return super().compile(source, *self.flags, **options)

    def close(self, ours, theirs, what, start):
        """Gradients are of weights that are rounded to 16 bits."""
        error = numpy.abs(ours - theirs).max() / numpy.abs(start).max()
        self.assertLess(error, 4e-6 if what == "value" else 2**-12, f"{what}: {error:.1e} of its largest element")


for number, one in enumerate(CASES):
    for turn, of in enumerate((Attention, AttentionWithoutMaps, AttentionWithout)):
        def test(self, number=number, one=one, turn=turn):
            if turn and not support.has_its_turn(number + turn, 4):
                self.skipTest("another day's")
            self.group([one])
        setattr(of, f"test_{number:02d}", test)

if __name__ == "__main__":
    support.main()
