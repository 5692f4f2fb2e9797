"""Attention with dropout in training: values and gradients by the kernels, against PyTorch in float64 with the numbers that Philox4x32-10, written here in
numpy, draws for each element of [B, H, T, S]; and the same programs with attention written out. Micro-batches and steps draw apart, ranks draw what one
draws for the whole batch (test/e2e/ranks.py)."""
import os
import re
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import support

random = numpy.random.RandomState(8)


def philox(seed, step, stream, first, count):
    """`count` numbers in [0, 1) from element `first` on."""
    index = numpy.arange(first, first + count, dtype="u8")
    low = numpy.uint64(0xFFFFFFFF)
    block = index // 4
    a, b = block & low, block >> numpy.uint64(32)
    c, d = numpy.full_like(a, step & 0xFFFFFFFF), numpy.full_like(a, stream)
    one, two = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        left, right = a * numpy.uint64(0xD2511F53), c * numpy.uint64(0xCD9E8D57)
        a, b, c, d = right >> numpy.uint64(32) ^ b ^ numpy.uint64(one), right & low, left >> numpy.uint64(32) ^ d ^ numpy.uint64(two), left & low
        one, two = one + 0x9E3779B9 & 0xFFFFFFFF, two + 0xBB67AE85 & 0xFFFFFFFF
    words = numpy.stack([a, b, c, d], -1)[numpy.arange(count), (index % 4).astype(int)]
    return (words >> numpy.uint64(8)).astype("f8") * 2.0**-24


def attend(q, k, v, share, draw, causal=False, mask=None, cap=None):
    """draw(stream, shape of the scores); a row that sees nothing gives zeros."""
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2]), -torch.inf)
    kept = torch.from_numpy(draw(scores.shape) >= numpy.float32(share))
    return torch.where(kept, torch.nan_to_num(torch.softmax(scores, -1)) / (1 - share), 0) @ v


TEXT = """
model M(x: f32[B, 1]) {{
  param q: [{heads}, {rows}, {features}] = normal(1)
  param k: [{groups}, {keys}, {features}] = normal(1)
  param v: [{groups}, {keys}, {values}] = normal(1)
  param w: [{batch}, {heads}, {rows}, {values}] = normal(1)
  one = reshape(x, [B, 1, 1, 1])
  other = {other}
  y = attention(one * q, one * k, one * v, dropout={share}{options})
  loss = sum(y * w) + 0 * other
}}
data D {{ train = npy("x.npy") }}
train {{ model = M; data = D; batch = {batch}; seed = {seed}; optimizer = sgd(lr=1); precision = {precision} }}
"""

LAYERS = """
block Layer()(x: [B, T, D]) {
  q, k, v = split(Linear(3 * D, name="qkv")(x), 3, axis=-1)
  y = attention(rearrange(q, "b t (h d) -> b h t d", h=2), rearrange(k, "b t (h d) -> b h t d", h=2), rearrange(v, "b t (h d) -> b h t d", h=2), causal=true, dropout=0.4)
  return x + dropout(rearrange(y, "b h t d -> b t (h d)"), 0.1)
}
model M(x: f32[B, T=35, D=16]) {
  h = x
  repeat i in 0..3 as h { h = Layer()(h) }
  loss = mean(h ** 4)
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 2; seed = 5; optimizer = sgd(lr=0.05) }
"""

# heads, groups, rows, keys, features, values, share, options
CASES = [
    (2, 2, 64, 64, 32, 32, 0.1, {"causal": True}),
    (4, 2, 67, 67, 16, 16, 0.5, {"causal": True}),
    (2, 1, 33, 130, 20, 20, 0.3, {"mask": "rows"}),
    (1, 1, 70, 9, 64, 64, 0.9, {"cap": 0.8}),
    (3, 3, 20, 141, 8, 8, 0.25, {"mask": "added", "cap": 2.0, "causal": True}),
    (1, 1, 5, 70, 256, 256, 0, {}),
    (2, 1, 130, 128, 64, 64, 0.35, {"causal": True, "cap": 1.5}),  # long enough for wgmma, which has no dropout
    (1, 1, 20, 36, 16, 16, 0.1, {}),
    (2, 2, 9, 7, 264, 264, 0.2, {"causal": True}),  # no kernel has so many features
    (2, 2, 30, 40, 8, 12, 0.4, {"causal": True}),  # nor values of another size
]


class Dropout(support.Case):
    def one(self, number, precision, *flags, tolerance=2e-5):
        heads, groups, rows, keys, features, values, share, options = CASES[number]
        batch, seed, words, mask = 2, 11 + (number << 40), "", None
        if options.get("causal"):
            words += ", causal=true"
        if "cap" in options:
            words += f", softcap={options['cap']}"
        if options.get("mask") == "rows":
            words += f", mask=iota([1, {rows}, {keys}], axis=2) % 3 != iota([1, {rows}, {keys}], axis=1) % 4"
            mask = torch.arange(keys)[None, :] % 3 != torch.arange(rows)[:, None] % 4
        if options.get("mask") == "added":
            words += f", mask=f32(iota([1, {rows}, {keys}], axis=2) % 5) * 0.3"
            mask = (torch.arange(keys)[None, :] % 5).double() * 0.3 + torch.zeros(rows, 1)
        if not share:  # exactly what an element has drawn, which is kept
            share = float(philox(seed, 0, number % 2, 0, 2 * heads * rows * keys)[keys])
            self.assertEqual(numpy.float32(share), share)
        # another dropout before it: the attention's stream is 1
        other = "sum(dropout(x, 0.5))" if number % 2 else "sum(x)"
        text = TEXT.format(heads=heads, groups=groups, rows=rows, keys=keys, features=features, values=values, share=share, options=words, batch=batch, seed=seed,
                           precision=precision, other=other)
        artifact = self.compile(text, *flags, name="model.ptx" if "--gpu" in flags else "model.so")
        numpy.save(self.path("x.npy"), numpy.ones((batch, 1), "f4"))
        shapes = {"q": (heads, rows, features), "k": (groups, keys, features), "v": (groups, keys, values), "w": (batch, heads, rows, values)}
        start = {name: random.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
        if precision != "f32":
            start = {name: (value.view("u4") & 0xFFFF0000).view("f4") for name, value in start.items()}
        support.write_safetensors(self.path("start.safetensors"), start)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"), "--steps", "1", "--no-shuffle",
                    *(["--device", "sim"] if "--gpu" in flags else []))
        end = support.read_safetensors(self.path("end.safetensors"))
        theirs = {name: torch.from_numpy(value).double().requires_grad_() for name, value in start.items()}
        one = torch.ones(batch, 1, 1, 1).double()

        def draw(shape):
            return philox(seed, 0, number % 2, 0, int(numpy.prod(shape))).reshape(shape)
        y = attend(one * theirs["q"], one * theirs["k"], one * theirs["v"], share, draw, options.get("causal", False), mask, options.get("cap"))
        (y * theirs["w"]).sum().backward()
        for name, value in theirs.items():
            ours, want = start[name].astype("f8") - end[name], value.grad.numpy()
            error = numpy.abs(ours - want).max() / max(numpy.abs(want).max(), 1)
            self.assertLess(error, tolerance, f"{CASES[number]}: gradient of {name}, {error:.1e} of its largest element")

    def test_values_and_gradients(self):
        for number in range(len(CASES)):
            self.one(number, "f32")

    def test_without_the_kernels(self):
        for number in range(len(CASES)):
            self.one(number, "f32", "--disable=attention")

    def test_on_other_processors(self):
        for number in range(0, len(CASES) - 1, 2):
            self.one(number, "f32", "--cpu", "x86-64-v3")
            self.one(number + 1, "f32", "--cpu", "x86-64")

    def test_in_16_bits(self):
        for number in range(len(CASES) - 1):
            for flags in ([], ["--disable=amx,dpbf16"]) if number % 2 else ([], ["--disable=amx"]):
                self.one(number, "bf16", *flags, tolerance=0.02)

    def test_on_gpus(self):
        """Those whose keys are a multiple of four share what they draw."""
        for number in range(len(CASES)):
            self.one(number, "f32", "--gpu", "sm_80")
            self.one(number, "bf16", "--gpu", "sm_90a" if number in (1, 5, 6) else "sm_80", tolerance=0.02)
            self.one(number, "tf32", "--gpu", "sm_80", tolerance=0.01)

    def test_fp16_overflows_no_sooner_than_its_gradients(self):
        """The gradients of scores, with the factor 10 of dropout, are beyond what fp16 holds, and those of q, k and v are not (a random
        program, seed 810010): PyTorch's FlashAttention multiplies the sums, in f32. A step that overflows would leave the weights."""
        scale, shapes = 4608, {"q": (1, 8, 16), "k": (1, 8, 16), "v": (1, 8, 16), "w": (1, 1, 8, 16)}
        text = TEXT.format(heads=1, groups=1, rows=8, keys=8, features=16, values=16, share=0.9, options="", batch=1, seed=3, precision=f"fp16(loss_scale={scale})", other="sum(x)")
        artifact = self.compile(text, "--gpu", "sm_90a", name="model.ptx")
        numpy.save(self.path("x.npy"), numpy.ones((1, 1), "f4"))
        own = numpy.random.RandomState(19)
        start = {name: own.standard_normal(shape).astype("f2").astype("f4") for name, shape in shapes.items()}
        support.write_safetensors(self.path("start.safetensors"), start)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"), "--steps", "1", "--no-shuffle", "--device", "sim")
        end = support.read_safetensors(self.path("end.safetensors"))
        q, k, v, w = (torch.from_numpy(start[name]).double().requires_grad_() for name in "qkvw")
        scores = (q @ k.transpose(-1, -2) / 4).requires_grad_()
        kept = torch.from_numpy(philox(3, 0, 0, 0, 64).reshape(1, 8, 8) >= numpy.float32(0.9))
        loss = (torch.where(kept, torch.softmax(scores, -1) * 10, 0) @ v * w).sum()
        of_scores, *want = torch.autograd.grad(loss, [scores, q, k, v])
        self.assertGreater(of_scores.abs().max() * scale, 65504)
        for name, value in zip("qkv", want):
            self.assertLess(value.abs().max() * scale, 65504)
            self.assertLess((torch.from_numpy(start[name].astype("f8") - end[name]) - value).abs().max(), 0.01 * value.abs().max(), name)

    def ends(self, name, *flags, mask="causal=true"):
        artifact = self.compile(LAYERS.replace("causal=true", mask), *flags)
        support.run("ftrun", artifact, "--data", self.folder, "--save", self.path(name), "--steps", "3", "--no-shuffle")
        return support.read_safetensors(self.path(name))

    def test_layers_steps_and_micro_batches_draw_apart(self):
        """As they do where attention is written out, whose draws are those of other dropout."""
        numpy.save(self.path("x.npy"), random.standard_normal((12, 35, 16)).astype("f4"))
        seen = []
        for number, more in enumerate(([], ["--set", "train.accumulate=2"], ["--set", "train.recompute=block"], ["--set", "train.sharpness=sam"])):
            kernels = self.ends("a.safetensors", *more)
            written = self.ends("b.safetensors", "--disable=attention", *more)
            for name, value in written.items():
                self.assertLess(numpy.abs(kernels[name] - value).max(), 2e-6, f"{more}: {name}")
            seen.append(kernels["h.1.qkv.weight"])
        self.assertGreater(numpy.abs(seen[1] - seen[0]).max(), 1e-4)
        self.assertLess(numpy.abs(seen[2] - seen[0]).max(), 2e-6)

    def test_layers_with_a_mask(self):
        """Its gradient has the most inputs that an op has."""
        numpy.save(self.path("x.npy"), random.standard_normal((12, 35, 16)).astype("f4"))
        mask = "mask=iota([1, T, T], axis=2) % 3 != iota([1, T, T], axis=1) % 4"
        kernels, written = self.ends("a.safetensors", mask=mask), self.ends("b.safetensors", "--disable=attention", mask=mask)
        for name, value in written.items():
            self.assertLess(numpy.abs(kernels[name] - value).max(), 2e-6, name)

    def test_memory_grows_with_the_length_only(self):
        """Scores of one head are 1 MiB, and all of them 16 MiB."""
        text = TEXT.format(heads=8, groups=8, rows=512, keys=512, features=8, values=8, share=0.1, options=", causal=true", batch=2, seed=1, precision="f32", other="sum(x)")

        def work(*flags):
            return int(re.search(r"work arena: peak ([\d.]+) (?:M|K)iB", support.run("ftc", self.path("model.ft"), "-o", self.path("model.so"), "--memory", *flags).stdout).group(1).split(".")[0])
        with open(self.path("model.ft"), "w") as file:
            file.write(text)
        self.assertLess(work(), 8)
        self.assertGreater(work("--disable=attention"), 16)


if __name__ == "__main__":
    support.main()
