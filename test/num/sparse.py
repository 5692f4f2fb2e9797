"""Products by weights of which two of four neighbours are 0, on a GPU's sparse tensor cores: pass sparse and kernels/sparse_ptx.c, in the simulator,
against numpy in f64. Fours with every choice of places; few rows, whole tiles and what is left of them; bf16 and fp16; several GPUs, with and without
fusion. And `ftrun deploy`, which finds such weights and keeps the others as they are."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.default_rng(31)
LAYERS = [("a", 70, 96), ("b", 33, 80), ("c", 130, 40), ("d", 5, 64), ("e", 1, 8), ("f", 64, 520), ("g", 17, 600), ("h", 48, 1032), ("i", 200, 16)]
DENSE = [("j", 16, 36), ("k", 24, 64)]  # a k that 8 does not divide, and weights that are not so


def narrow(x, dtype):
    """Rounded to 16 bits, as f64."""
    if dtype == "fp16":
        return x.astype("f2").astype("f8")
    bits = numpy.ascontiguousarray(x, dtype="f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & numpy.uint32(0xFFFF0000)).view("f4").astype("f8")


def two_of_four(n, k):
    """No, one or two numbers of each four, at any places."""
    w = random.normal(0, 1, (n, k)).astype("f4")
    order = numpy.argsort(random.random((n, -(-k // 4), 4)), axis=2)
    keep = order < random.integers(0, 3, (n, -(-k // 4), 1))
    keep |= (order < 2) & (random.random((n, -(-k // 4), 1)) < 0.7)
    return w * keep.reshape(n, -1)[:, :k]


class Sparse(support.Case):
    flags, precision, batches, turn = [], "bf16", (1, 8, 13, 37, 150), None

    def setUp(self):
        if self.turn is not None and not support.has_its_turn(self.turn):
            self.skipTest("another day's")
        super().setUp()

    def compiled(self, inputs, lines, batch, names, count, params=()):
        text = (f"model M({', '.join(f'{name}: f32[B, {str(list(shape))[1:-1]}]' for name, shape in inputs)}) {{\n" +
                "".join(f"  param {name}: {list(shape)} = zeros\n" for name, shape in params) + "".join(f"  {line}\n" for line in lines) +
                f"  loss = mean({inputs[0][0]})\n}}\n" + "data D { train = npy(" + ", ".join(f'"{name}.npy"' for name, _ in inputs) +
                f") }}\ntrain {{ batch = {batch}; epochs = 1; optimizer = sgd(lr=0.1); eval = none; precision = {self.precision}; loss_scale = {1 if self.precision == 'bf16' else 64} }}\n")
        artifact = self.compile(text.replace("; loss_scale = 1 ", " "), "--inference", "--sparse", ",".join(names), *self.flags, name="model.ptx")
        with open(artifact, "rb") as file:
            ptx = file.read()
        self.assertEqual(ptx.count(b".visible .entry") and ptx.count(b"mma.sp.sync.aligned.m16n8k32") > 0, count > 0)
        return artifact

    def near(self, got, x, w, bias=0, relu=False):
        """Within the rounding of the result to 16 bits, of one row of the sum, too (a bias of one row is none), and some of the sum of the sizes in f32."""
        x, w = narrow(x, self.precision), narrow(w, self.precision)
        want, size = x @ w + bias, numpy.abs(x) @ numpy.abs(w) + numpy.abs(bias)
        sums = numpy.abs(x @ w) if len(x) == 1 else 0
        want = numpy.maximum(want, 0) if relu else want
        self.assertEqual(got.shape, want.shape)
        self.assertTrue(numpy.all(numpy.isfinite(got)))
        eps = 2.0 ** -8 if self.precision == "bf16" else 2.0 ** -10
        self.assertLessEqual(numpy.max(numpy.abs(got - want) - (eps * (numpy.abs(want) + 1.01 * sums) + 4e-6 * size + 1e-7)), 0)

    def test_layers(self):
        weights = {f"{name}.weight": two_of_four(n, k) for name, n, k in LAYERS}
        weights |= {f"{name}.weight": random.normal(0, 1, (n, k)).astype("f4") for name, n, k in DENSE}
        weights["j.weight"] = two_of_four(16, 36)
        weights |= {f"{name}.bias": random.normal(0, 1, n).astype("f4") for name, n, _ in LAYERS + DENSE}
        weights["a.weight"][3] = 0
        weights["a.weight"][5, ::2] = -0.0
        lines = []
        for name, n, _ in LAYERS + DENSE:
            lines += [f'y{name} = relu(Linear({n}, name="{name}")(x{name}))', f"output y{name}"]
        for batch in self.batches:
            artifact = self.compiled([(f"x{name}", (k,)) for name, _, k in LAYERS + DENSE], lines, batch, [f"{name}.weight" for name, *_ in LAYERS] + ["j.weight"], 1)
            x = {f"x{name}": random.normal(0, 1, (batch, k)).astype("f4") for name, _, k in LAYERS + DENSE}
            got = self.predict(artifact, x, weights, [f"y{name}" for name, *_ in LAYERS + DENSE], "--device", "sim")
            for name, *_ in LAYERS + DENSE:
                with self.subTest(batch=batch, layer=name):
                    bias = weights[f"{name}.bias"]  # of one row it is no bias to the compiler, and is added in f32
                    self.near(got[f"y{name}"], x[f"x{name}"], weights[f"{name}.weight"].T, bias if batch == 1 else narrow(bias, self.precision), True)
        weights["g.weight"][11, 300:303] = 1  # not two of four: one output, and no other
        got = self.predict(artifact, x, weights, ["yg"], "--device", "sim")["yg"]
        self.assertEqual(list(numpy.nonzero(numpy.isnan(got).any(0))[0]), [11])
        self.assertTrue(numpy.isnan(got[:, 11]).all())

    def test_forms(self):
        """Behind a convolution, without a bias, with a residual sum, of three dimensions, a first operand that is turned, weights that something else reads, too."""
        w = {"w": two_of_four(40, 48), "v": two_of_four(48, 40)}
        w |= {"k": random.normal(0, 1, (8, 3, 3, 3)).astype("f4"), "f.weight": two_of_four(6, 72)}
        lines = ['f = Linear(6, bias=false, name="f")(flatten(MaxPool2d(2)(conv2d(i, k)), from=1))', "y1 = x @ transpose(w)", "y2 = x @ transpose(w) + y1", "y3 = z @ transpose(w)", "y4 = transpose(w @ transpose(x))",
                 "y5 = x @ transpose(w) + sum(w)", "y6 = gelu(x @ transpose(w)) @ transpose(v) + x", "y7 = transpose(q, [0, 2, 1]) @ transpose(w)"]
        outputs = [f"y{i}" for i in range(1, 8)] + ["f"]
        lines += [f"output {name}" for name in outputs]
        for batch in (1, 6):
            inputs = [("x", (48,)), ("z", (5, 48)), ("q", (48, 3)), ("i", (3, 8, 8))]
            artifact = self.compiled(inputs, lines, batch, ["w", "v", "f.weight"], 1, [(name, w[name].shape) for name in ("w", "v", "k")])
            x = {name: random.normal(0, 1, (batch, *shape)).astype("f4") for name, shape in inputs}
            got = self.predict(artifact, x, w, outputs, "--device", "sim")
            self.near(got["y1"], x["x"], w["w"].T)
            self.near(got["y3"], x["z"], w["w"].T)
            self.near(got["y4"], x["x"], w["w"].T)
            self.near(got["y7"], x["q"].swapaxes(1, 2), w["w"].T)
            with open(self.path("model.ft"), encoding="utf-8") as file:
                plain = self.compile(file.read(), "--inference", *self.flags, name="model.ptx")
            want = self.predict(plain, x, w, outputs, "--device", "sim")
            for name in outputs:
                numpy.testing.assert_allclose(got[name], want[name], rtol=2e-2, atol=2e-2)

    def test_not(self):
        """No such products: in f32, of weights that the list does not name, and along what is not summed up."""
        w = [("w", (48, 48)), ("v", (48, 48))]
        self.compiled([("x", (48,))], ["y = x @ w", "output y", "z = x @ transpose(v)", "output z"], 3, ["w"], 0, w)


class SparseOfHalf(Sparse):
    flags, precision, batches, turn = ["--gpu", "sm_86"], "fp16", (1, 21), 0


class SparseOfHopper(Sparse):
    flags, batches, turn = ["--gpu", "sm_90a"], (1, 21), 1

    def test_many(self):
        """Of many rows its dense products are faster."""
        self.compiled([("x", (48,))], ["y = x @ transpose(w)", "output y"], 200, ["w"], 0, [("w", (48, 48))])


class SparsePlain(Sparse):
    flags, batches, turn = ["--disable=fuse,simplify,simplify2,prepare,layout,storage,narrow"], (2, 37), 2


class Deploy(support.Case):
    TEXT = """
model M(x: f32[B, 256]) {
  h = relu(Linear(512, name="a")(x))
  h = relu(Linear(512, name="b")(h))
  y = Linear(16, name="c")(h)
  output y
  loss = mean(y)
}
data D { train = npy("x.npy") }
train { batch = 4; epochs = 1; optimizer = sgd(lr=0.1); precision = bf16; eval = none }
"""

    def sizes(self, weights):
        support.write_safetensors(self.path("w.safetensors"), weights)
        support.run("ftrun", "deploy", self.path("m.ft"), "--weights", self.path("w.safetensors"), "-o", self.path("m.ptx"))
        with open(self.path("m.ptx"), "rb") as file:
            has = b"mma.sp" in file.read()
        return has, sum(os.path.getsize(self.path(name)) for name in os.listdir(self.folder) if name.startswith("m.") and not name.endswith((".ptx", ".ft", ".h")))

    def test_deploy(self):
        """Two numbers and their places in place of four: 4.5 bytes and not 8."""
        with open(self.path("m.ft"), "w", encoding="utf-8") as file:
            file.write(self.TEXT)
        numpy.save(self.path("x.npy"), numpy.zeros((8, 256), "f4"))
        shapes = {"a": (512, 256), "b": (512, 512), "c": (16, 512)}
        dense = {f"{name}.weight": random.normal(0, 1, shape).astype("f4") for name, shape in shapes.items()}
        bias = {f"{name}.bias": numpy.zeros(shape[0], "f4") for name, shape in shapes.items()}
        sparse = {f"{name}.weight": two_of_four(*shape) for name, shape in shapes.items()}
        has, whole = self.sizes(dense | bias)
        self.assertFalse(has)
        has, less = self.sizes(sparse | bias)
        self.assertTrue(has)
        self.assertLess(less, 0.58 * whole)
        almost = {name: value.copy() for name, value in sparse.items()}
        for value in almost.values():
            value[-1, -4:] = [1, 2, 3, 0]  # one four of three
        self.assertEqual(self.sizes(almost | bias), (False, whole))
        has, one = self.sizes(dense | bias | {"b.weight": sparse["b.weight"]})
        self.assertTrue(has)
        self.assertLess(one, 0.73 * whole)

    def test_others(self):
        """A checkpoint has the masks, which are two of four, too, and states; other tensors are told and ignored."""
        with open(self.path("m.ft"), "w", encoding="utf-8") as file:
            file.write(self.TEXT.replace("model M(x: f32[B, 256]) {", "model M(x: f32[B, 256]) {\n  state seen: [16, 8] = zeros\n  seen = seen + sum(x) * 0").replace(
                "train { ", 'train { prune = magnitude(structure="2:4", begin=1); checkpoint { dir="runs"; every=2 steps }; '))
        numpy.save(self.path("x.npy"), random.normal(0, 1, (8, 256)).astype("f4"))
        support.run("ftrun", "m.ft", "--steps", 2, cwd=self.folder)
        weights = self.path("runs", os.listdir(self.path("runs"))[0])
        names = support.read_safetensors(weights)
        self.assertIn("@prune.mask.a.weight", names)
        support.write_safetensors(self.path("more.safetensors"), {name: value for name, value in names.items() if name[0] != "@"} | {"extra": numpy.zeros((4, 8), "f4")})
        for weights in (weights, self.path("more.safetensors")):
            support.run("ftrun", "deploy", self.path("m.ft"), "--weights", weights, "-o", self.path("m.ptx"))
            with open(self.path("m.ptx"), "rb") as file:
                self.assertIn(b"mma.sp", file.read())

    def test_flags(self):
        with open(self.path("m.ft"), "w", encoding="utf-8") as file:
            file.write(self.TEXT)
        numpy.save(self.path("x.npy"), numpy.zeros((8, 256), "f4"))
        done = support.run("ftc", self.path("m.ft"), "--inference", "--sparse", "a.weight,d.weight", "-o", self.path("m.ptx"), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no parameter 'd.weight'", done.stderr)
        for more in (["-o", self.path("m.ptx")], ["--inference", "-o", self.path("m.so")]):
            done = support.run("ftc", self.path("m.ft"), "--sparse", "a.weight", *more, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--sparse is for what a GPU predicts", done.stderr)


if __name__ == "__main__":
    support.main()
