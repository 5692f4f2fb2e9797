"""Rounded matrices outside of Linear and Conv2d (frontend/quantize_matrix.c): weights [in, out] and [out, in], a table that is the head too, a
first operand. What `ftrun quantize` writes and what evaluation, prediction and a deployed library compute of it, against numpy; GPTQ against
an implementation by elimination; texts of a GPT-2; what is refused, with which words."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
from quantize import gptq, largest_scale, rounded

MODEL = """block Dense(out: int)(x: [..., I]) {
  param w: [I, out] = normal(0.3)
  return x @ w
}
block Tokens()(x) {
  param weight: [24, 16] = normal(0.3)
  if is_float(x) { return x @ transpose(weight) }
  return embed(weight, x)
}
block Mix()(x: [B, T, D]) {
  param table: [T, T] = normal(0.3)
  return table @ x
}
model M(x: i32[B, T=4], y: i32[B, T]) {
  tokens = Tokens(name="tokens")
  h = tokens(x)
  repeat i in 0..2 as block { h = h + Dense(16, name="down")(relu(Dense(32, name="up")(h))) }
  h = h + Mix(name="mix")(h)
  z = tokens(h)
  loss = mean(cross_entropy(z, y))
  output z
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""
TURNED = ("block.0.up.w", "block.0.down.w", "block.1.up.w", "block.1.down.w")  # [in, out]
SAMPLES = 32


def forward(w, x, seen=None, rows=lambda x: x):
    """rows: what becomes of the rows that weights multiply."""
    h = w["tokens.weight"][x]
    for i in range(2):
        for name in ("up", "down"):
            if seen is not None:
                seen[f"block.{i}.{name}.w"] = h if name == "up" else u
            u = numpy.maximum(rows(h) @ w[f"block.{i}.up.w"], 0) if name == "up" else u
        h = h + rows(u) @ w[f"block.{i}.down.w"]
    h = h + w["mix.table"] @ h
    return rows(h) @ w["tokens.weight"].T


def unpacked(tensors):
    """Whole numbers times their scales, as docs/language.md has the files, written for matrices."""
    out = {}
    for name, value in tensors.items():
        if name.endswith("_shape") or name.endswith("_scale"):
            continue
        if name.endswith("_packed"):
            name, shape = name[: -len("_packed")], tensors[name.replace("_packed", "_shape")]
            nibbles = value.view("u4")[:, :, None] >> (4 * numpy.arange(8, dtype="u4")) & 15
            value = (nibbles.reshape(len(value), -1)[:, : shape[1]].astype("i4") - 8).astype("i1")
        if value.dtype == numpy.int8:
            scale = tensors[name + "_scale"]
            if scale.ndim == 1:
                scale = scale.reshape(-1, 1)
            value = value.astype("f4") * numpy.repeat(numpy.repeat(scale, value.shape[0] // scale.shape[0], 0), value.shape[1] // scale.shape[1], 1)
        out[name] = value
    return out


def nearest(weight, bits, group, turned):
    rows = numpy.ascontiguousarray(weight.T if turned else weight)
    pieces = rows.reshape(-1, group or rows.shape[1])
    out = rounded(pieces, largest_scale(pieces, bits), bits, axis=0).reshape(rows.shape)
    return out.T if turned else out


class QuantizeMatrix(support.Case):
    def prepare(self, text=MODEL):
        random = numpy.random.default_rng(5)
        x = random.integers(0, 24, (SAMPLES, 4)).astype("i4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), random.integers(0, 24, (SAMPLES, 4)).astype("i4"))
        with open(self.path("m.ft"), "w") as file:
            file.write(text)
        support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"))
        support.run("ftrun", self.path("m.so"), "--data", self.folder, "--steps", 0, "--save", self.path("w.safetensors"))
        weights = {name: (random.standard_normal(value.shape) * 0.4).astype("f4") for name, value in support.read_safetensors(self.path("w.safetensors")).items()}
        support.write_safetensors(self.path("w.safetensors"), weights)
        return weights, x

    def quantize(self, *flags, source="m.ft", weights="w.safetensors", out="q.ft"):
        done = support.run("ftrun", "quantize", self.path(source), "--data", self.folder, "--weights", self.path(weights), "-o", self.path(out), *flags)
        return done.stdout, support.read_safetensors(self.path(out.replace(".ft", ".safetensors")))

    def predict(self, *flags, source="q.ft", weights="q.safetensors", device="cpu"):
        support.run("ftc", self.path(source), "-o", self.path("p.so" if device == "cpu" else "p.ptx"), *flags)
        support.run("ftrun", "predict", self.path("p.so" if device == "cpu" else "p.ptx"), "--device", device, "--weights", self.path(weights), "--input", f"x={self.path('x.npy')}", "--output", self.path("z.npy"))
        return numpy.load(self.path("z.npy"))

    def test_both_ways_round(self):
        """Numbers, scales and their sizes in files; predictions of five kinds of code, and of a library."""
        w, x = self.prepare()
        plain = forward(w, x)
        for bits, group in ((8, 0), (8, 8), (4, 8), (4, 0), (3, 4), (12, 0)):
            form = f"w{bits}" + (f"g{group}" if group else "")
            fits = group in (0, 4)  # the table of Mix has 4 features
            layers = ["--layers", f"*.w={form}", "--layers", f"tokens.weight={form}"] + (["--layers", f"mix.table={form}"] if fits else [])
            with self.subTest(form):
                said, files = self.quantize(*layers)
                q = unpacked(files)
                for name in [*TURNED, "tokens.weight"] + ["mix.table"] * fits:
                    turned = name in TURNED
                    numpy.testing.assert_array_equal(q[name], nearest(w[name], bits, group, turned), name)
                    out, features = w[name].shape[::-1] if turned else w[name].shape
                    groups = features // group if group else 1
                    want = (groups, out) if turned else (out, groups) if group else (out,)
                    self.assertEqual(files[name + "_scale"].shape, want, name)
                    self.assertEqual((name in files, name + "_packed" in files), (bits > 4, bits <= 4))
                want = forward({**w, **q}, x)
                self.assertGreater(numpy.abs(want - plain).max(), 1e-4)  # it is rounded
                for flags in ((), ("--disable=integers",), ("--disable=fuse",), ("--disable=prepare",), ("--cpu=x86-64-v3",)):
                    numpy.testing.assert_allclose(self.predict(*flags), want, rtol=1e-4, atol=1e-5, err_msg=str(flags))
                ratio = 10 * numpy.log10((plain.astype("f8") ** 2).sum() / ((plain.astype("f8") - want) ** 2).sum())
                self.assertAlmostEqual(float(re.search(r"(?m)^tokens.weight .* (\S+) dB$", said)[1]), ratio, delta=0.06)
                # as f32: `frozen`, --init and the like read the same
                support.run("ftrun", self.path("p.so"), "--data", self.folder, "--steps", 0, "--init", self.path("q.safetensors"), "--save", self.path("plain.safetensors"))
                saved = support.read_safetensors(self.path("plain.safetensors"))
                for name, value in q.items():
                    numpy.testing.assert_array_equal(saved[name], value)

    def test_dynamic(self):
        """Rows of inputs by their own largest number, too."""
        w, x = self.prepare()
        plain = forward(w, x)
        for form, bits, group in (("w4g8a8d", 4, 8), ("w8a8d", 8, 0), ("w8g8a6d", 8, 8), ("w8a12d", 8, 0)):
            said, files = self.quantize("--layers", f"*.w={form}", "--layers", f"tokens.weight={form}")
            self.assertRegex(said, rf"(?m)^tokens.weight +{form} +by row ")
            self.assertEqual([name for name in files if "max_abs" in name], [])
            _, smoothed = self.quantize("--layers", f"*.w={form}", "--layers", f"tokens.weight={form}", "--smooth", 0.5, out="s.ft")  # matrices are not smoothed
            self.assertEqual(set(smoothed), set(files))
            q = unpacked(files)
            numpy.testing.assert_array_equal(q["block.1.up.w"], unpacked(smoothed)["block.1.up.w"])
            numpy.testing.assert_array_equal(q["block.1.up.w"], nearest(w["block.1.up.w"], bits, group, True))
            input_bits = int(form[form.index("a") + 1 : -1])
            want = forward({**w, **q}, x, rows=lambda x: rounded(x.reshape(-1, x.shape[-1]), largest_scale(x.reshape(-1, x.shape[-1]), input_bits), input_bits, axis=0).reshape(x.shape))
            self.assertGreater(numpy.abs(want - forward({**w, **q}, x)).max(), 1e-6)
            ratio = 10 * numpy.log10((plain.astype("f8") ** 2).sum() / ((plain.astype("f8") - want) ** 2).sum())
            self.assertAlmostEqual(float(re.search(r"(?m)^tokens.weight .* (\S+) dB$", said)[1]), ratio, delta=0.5)
            # a number in the middle between two may be rounded either way: f32 sums have another order here
            for flags in ((), ("--disable=integers",), ("--disable=vnni",), ("--disable=fuse",), ("--cpu=x86-64-v3",)):
                got = self.predict(*flags)
                self.assertGreater((numpy.abs(got - want) <= 1e-4 * numpy.abs(want) + 1e-5).mean(), 0.9, flags)
                numpy.testing.assert_allclose(got, want, atol=0.02 * numpy.abs(want).max(), err_msg=str(flags))
        numpy.testing.assert_allclose(self.predict("--gpu", "sm_80", device="sim"), want, atol=0.02 * numpy.abs(want).max())

    def test_other_forms_of_code(self):
        w, x = self.prepare()
        _, files = self.quantize("--layers", "*.w=w4g8", "--layers", "tokens.weight=w8", "--layers", "mix.table=w8t")
        q = unpacked(files)
        self.assertEqual(files["mix.table_scale"].shape, (1,))
        want = forward({**w, **q}, x)
        numpy.testing.assert_allclose(self.predict("--gpu", "sm_80", device="sim"), want, rtol=1e-4, atol=1e-5)
        support.run("ftrun", "deploy", self.path("q.ft"), "--weights", self.path("q.safetensors"), "-o", self.path("d.so"))
        support.run("ftrun", "predict", self.path("d.so"), "--weights", self.path("q.safetensors"), "--input", f"x={self.path('x.npy')}", "--output", self.path("d.npy"))
        numpy.testing.assert_allclose(numpy.load(self.path("d.npy")), want, rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(self.predict("--set", "train.precision=bf16"), want, atol=4 * 2**-8 * numpy.abs(want).max())  # four roundings of the largest
        # without its scales, which weights of another training have not: the largest weight says them
        support.write_safetensors(self.path("raw.safetensors"), {**w, **{name: numpy.zeros_like(value) for name, value in files.items() if name.endswith("_scale")}})
        self.assertLess(numpy.abs(self.predict(weights="raw.safetensors") - want).max(), 1e-4)
        # layers with rounding of their own stay as they are the second time
        _, again = self.quantize("--layers", "tokens.weight=w8", source="m.ft", out="once.ft")
        self.assertIn("block.0.up.w", again)
        self.assertEqual(again["block.0.up.w"].dtype, numpy.float32)

    def test_training(self):
        """A step of training with the rounding: a gradient goes straight through, to the matrix that the step reads rounded."""
        w, x = self.prepare()
        support.run("ftc", self.path("m.ft"), "--set", "train.quantize=*.w=w4g8 tokens.weight=w4", "-o", self.path("t.so"))
        start = {**w, **{name + "_scale": numpy.zeros((2 if "up" in name else 4, w[name].shape[1]), "f4") for name in TURNED}, "tokens.weight_scale": numpy.zeros(24, "f4")}
        support.write_safetensors(self.path("start.safetensors"), start)
        support.run("ftrun", self.path("t.so"), "--data", self.folder, "--steps", 1, "--init", self.path("start.safetensors"), "--save", self.path("one.safetensors"))
        got = support.read_safetensors(self.path("one.safetensors"))
        import torch

        q = {name: torch.tensor(nearest(value, 4, 8 if name in TURNED else 0, name in TURNED) if name != "mix.table" else value, requires_grad=True) for name, value in w.items()}
        y = torch.from_numpy(numpy.load(self.path("y.npy"))[:8].astype("i8"))
        h = q["tokens.weight"][torch.from_numpy(x[:8].astype("i8"))]
        for i in range(2):
            h = h + torch.relu(h @ q[f"block.{i}.up.w"]) @ q[f"block.{i}.down.w"]
        z = (h + q["mix.table"] @ h) @ q["tokens.weight"].T
        torch.nn.functional.cross_entropy(z.reshape(-1, 24), y.reshape(-1)).backward()
        for name, value in w.items():
            numpy.testing.assert_allclose(got[name], value - 0.1 * q[name].grad.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)

    def test_gptq(self):
        w, x = self.prepare()
        seen = {}
        forward(w, x, seen)
        _, files = self.quantize("--layers", "block.0.up.w=w4g8", "--gptq")
        want, scales = gptq(numpy.ascontiguousarray(w["block.0.up.w"].T), seen["block.0.up.w"].reshape(-1, 16), 4, 8)
        numpy.testing.assert_allclose(files["block.0.up.w_scale"], scales.T, rtol=1e-5)
        self.assertGreater((numpy.abs(unpacked(files)["block.0.up.w"] - want.T) < 1e-5).mean(), 0.99)
        # a first operand has no inputs that GPTQ knows
        done = support.run("ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("q.ft"), "--layers", "mix.table=w8", "--gptq")
        self.assertIn("mix.table is rounded to nearest", done.stderr)

    def test_refused(self):
        self.prepare()
        base = ("ftrun", "quantize", self.path("m.ft"), "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("q.ft"))
        self.fails(1, "the model has no Linear and no Conv2d, whose weights could be quantised; matrices of its own blocks are meant by their names", *base)
        self.fails(1, "'tokens.weight' is a matrix outside of Linear and Conv2d, which observe nothing: give it a form without a and f, w8, or w8a8d", *base, "--layers", "tokens.weight=w8a8")
        self.fails(1, "groups of 5 do not divide the 16 input features of 'tokens.weight'", *base, "--layers", "tokens.weight=w8g5")
        self.fails(1, "there is no layer 'nothing.weight'", *base, "--layers", "nothing.weight=w8")
        for setting, words in (("tokens.weight=w8a8", "which observe nothing: give it a form without a and f, w8, or w8a8d"), ("mix.table=w8a8d", "'mix.table' is the first operand of this product"), ("block.*.up.w=w8g7", "groups of 7 do not divide the 16 features that 'block.0.up.w' sums over"),
                               ("nothing.weight=w8", "there is no Linear or Conv2d 'nothing.weight' left"), ("block.0.up.*=w8", "there is no Linear or Conv2d")):
            self.fails(1, words, "ftc", self.path("m.ft"), "--set", f"train.quantize={setting}", "-o", self.path("n.so"))
        with open(self.path("o.ft"), "w") as file:
            file.write(MODEL.replace("return x @ w\n", "if training { return x @ w }; return x[..., :1] * w[0]\n"))
        self.fails(1, "'block.0.up.w' is multiplied in training alone, or in evaluations alone", "ftc", self.path("o.ft"), "--set", "train.quantize=*.w=w8", "-o", self.path("n.so"))
        with open(self.path("o.ft"), "w") as file:
            file.write(MODEL.replace("z = tokens(h)", 'z = tokens(Linear(16, name="lin")(h))'))
        self.fails(1, "'lin.weight' is the weight of a layer, which is meant by its own name: 'lin'", "ftc", self.path("o.ft"), "--set", "train.quantize=lin.weight=w8", "-o", self.path("n.so"))
        with open(self.path("o.ft"), "w") as file:
            file.write(MODEL.replace("return x @ w\n", "return x @ w @ transpose(w) @ w\n"))
        self.fails(1, "'block.0.up.w' sums over its dimension 1 here and over the other one elsewhere, so no set of scales fits it", "ftc", self.path("o.ft"), "--set", "train.quantize=*.w=w8", "-o", self.path("n.so"))

    def test_gpt2(self):
        """examples/gpt2.ft, whose matrices are all outside of layers: texts of a rounded model come from 4 and 8 bits."""
        with open(self.path("train.bin"), "wb") as file:
            header = numpy.zeros(256, "i4")
            header[:3] = 20240520, 1, 4000
            file.write(header.tobytes() + numpy.random.default_rng(1).integers(0, 96, 4000).astype("u2").tobytes())
        os.link(self.path("train.bin"), self.path("valid.bin"))
        model, sizes = os.path.join(support.EXAMPLES, "gpt2.ft"), ("-D", "T=32", "-D", "V=96", "-D", "positions=32", "-D", "D=64", "-D", "L=2", "-D", "heads=4")
        support.run("ftc", model, *sizes, "-o", self.path("g.so"))
        support.run("ftrun", self.path("g.so"), "--data", self.folder, "--steps", 3, "--save", self.path("w.safetensors"), cwd=self.folder)
        support.run("ftrun", "quantize", model, *sizes, "--data", self.folder, "--weights", self.path("w.safetensors"), "-o", self.path("q.ft"), "--samples", 16,
                    "--layers", "h.*.weight=w4g32", "--layers", "wte.weight=w8")
        files = support.read_safetensors(self.path("q.safetensors"))
        self.assertEqual(files["h.0.attn.c_attn.weight_packed"].shape, (64, 24))
        self.assertEqual(files["h.0.attn.c_attn.weight_scale"].shape, (2, 192))
        self.assertEqual((files["wte.weight"].dtype, files["ln_f.weight"].dtype), (numpy.int8, numpy.float32))
        texts = []
        for flags in ((), ("--disable=integers",)):
            support.run("ftc", self.path("q.ft"), *flags, "-o", self.path("q.so"))
            texts.append(support.run("ftrun", "generate", self.path("q.so"), "--weights", self.path("q.safetensors"), "--prompt-tokens", "1,2,3", "--tokens", 20, "--temperature", 0).stdout)
        self.assertEqual(*texts)
        # whole windows, prompts and single tokens by rows of whole numbers, from the same weights
        texts = []
        for flags in ((), ("--disable=vnni",)):
            support.run("ftc", model, *sizes, "--set", "train.quantize=h.*.weight=w4g32a8d wte.weight=w8a8d", *flags, "-o", self.path("q.so"))
            for more in ((), ("--no-cache",)):
                texts.append(support.run("ftrun", "generate", self.path("q.so"), "--weights", self.path("q.safetensors"), "--prompt-tokens", "1,2,3", "--tokens", 20, "--temperature", 0, *more).stdout)
        self.assertEqual(len(set(texts)), 1)


if __name__ == "__main__":
    support.main()
