"""Sums of columns that other kernels make on a GPU (docs/kernels.md): the gradients of biases in the epilogues of products, those of a layer
norm's weight and bias in the kernel that makes its input's gradient. Every gradient of a residual block, for many activations and precisions,
against PyTorch in float64, and against the same program with kernels of their own for the sums, on the simulator."""
import itertools
import os
import re
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

SOURCE = """model M(x: f32[B, {width}], y: f32[B, {width}]) {{
  h = x + dropout(Linear({width}, name="first")(x), {drop})
  z = {act}(Linear({hidden}, name="up")(LayerNorm(name="norm")(h)){rest})
  h = h + dropout(Linear({width}, name="down")(z), {drop})
  loss = mean((LayerNorm(name="last")(h) - y) ** 2)
}}
data D {{ train = npy("x.npy", "y.npy") }}
train {{ model = M; data = D; batch = {batch}; precision = {precision}; seed = 3; optimizer = sgd(lr=8192.0); eval every 0 epochs }}
"""
ACTS = {
    "gelu": (torch.nn.functional.gelu, ""),
    "gelu tanh": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), ', approximate="tanh"'),
    "relu": (torch.relu, ""), "silu": (torch.nn.functional.silu, ""), "tanh": (torch.tanh, ""), "sigmoid": (torch.sigmoid, ""),
    "elu": (torch.nn.functional.elu, ""), "softplus": (torch.nn.functional.softplus, ""),
}
NEAR = 2e-5  # f32's sums in another order
FLIPS = {"f32": 0, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-3}  # where such a sum is rounded to fewer bits, it may fall to the other side
LEFT_OUT = "column_sums,row_sums"


class ColumnSums(support.Case):
    def start(self, batch, width, hidden):
        random = numpy.random.RandomState(7)
        for name in ("x", "y"):
            numpy.save(self.path(name + ".npy"), random.randn(batch, width).astype(numpy.float32))
        shapes = {"first.weight": (width, width), "first.bias": (width,), "norm.weight": (width,), "norm.bias": (width,), "up.weight": (hidden, width),
                  "up.bias": (hidden,), "down.weight": (width, hidden), "down.bias": (width,), "last.weight": (width,), "last.bias": (width,)}
        weights = {name: (random.randn(*shape) * 0.08 + (name in ("norm.weight", "last.weight"))).astype(numpy.float32) for name, shape in shapes.items()}
        support.write_safetensors(self.path("start.safetensors"), weights)
        return weights

    def gradients(self, source, weights, *flags, seed=None):
        """Of each parameter, by one step of 8192 times the gradient, and the kernels' names."""
        return self.gradients_of(self.compile(source, *flags, name="model.ptx"), weights, seed)

    def gradients_of(self, artifact, weights, seed=None):
        env = {"FT_SIM_SEED": str(seed)} if seed else None
        support.run("ftrun", artifact, "--device", "sim", "--data", self.folder, "--init", self.path("start.safetensors"), "--steps", 1, "--no-shuffle",
                    "--save", self.path("end.safetensors"), env=env)
        end = support.read_safetensors(self.path("end.safetensors"))
        return {name: (weights[name].astype(numpy.float64) - end[name]) / 8192 for name in weights}, self.kernels(artifact)

    def kernels(self, artifact):
        with open(artifact) as file:
            text = file.read()
        return re.findall(r"\.entry (\w+)\(", text) + re.findall(r"\w+", " ".join(re.findall(r"^// joins (.*)$", text, re.M)))

    def pytorchs(self, act, weights):
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
        x, y = (torch.tensor(numpy.load(self.path(name)), dtype=torch.float64) for name in ("x.npy", "y.npy"))
        linear = lambda name, h: torch.nn.functional.linear(h, w[name + ".weight"], w[name + ".bias"])
        norm = lambda name, h: torch.nn.functional.layer_norm(h, h.shape[-1:], w[name + ".weight"], w[name + ".bias"])
        h = x + linear("first", x)
        h = h + linear("down", act(linear("up", norm("norm", h))))
        ((norm("last", h) - y) ** 2).mean().backward()
        return {name: value.grad.numpy() for name, value in w.items()}

    @staticmethod
    def error(got, expected):
        return max(numpy.abs(got[name] - value).max() / numpy.abs(value).max() for name, value in expected.items())

    def check(self, name, precision, gpu, batch=520, width=512, hidden=136):
        act, rest = ACTS[name]
        weights = self.start(batch, width, hidden)
        source = SOURCE.format(width=width, hidden=hidden, drop=0, act=name.split()[0], rest=rest, batch=batch, precision=precision)
        apart, kernels = self.gradients(source, weights, "--gpu", gpu, "--disable=" + LEFT_OUT)
        self.assertFalse(any(kernel.endswith("_columns") for kernel in kernels), kernels)
        fused, kernels = self.gradients(source, weights, "--gpu", gpu)
        self.assertTrue(any(re.search("_dot_.*_columns$", kernel) for kernel in kernels), kernels)
        self.assertTrue(any(re.search("_row_.*_columns$", kernel) for kernel in kernels), kernels)
        what = f"{name}, {precision}, {gpu}"
        exact = self.pytorchs(act, weights)
        errors = self.error(fused, exact), self.error(apart, exact), self.error(fused, apart)
        print(f"{what}: errors {errors[0]:.1e}, kernels of their own {errors[1]:.1e}, between them {errors[2]:.1e}", flush=True)
        self.assertLess(errors[0], 1.05 * errors[1] + NEAR, what)  # no worse
        self.assertLess(errors[2], NEAR + FLIPS[precision], what)
        if precision == "f32":
            self.assertLess(errors[0], NEAR)
        again, _ = self.gradients_of(self.path("model.ptx"), weights, seed=5)
        for parameter, value in fused.items():
            numpy.testing.assert_array_equal(value, again[parameter], what + ": with warps in another order")

    def test_activations(self):
        for i, name in enumerate(ACTS):
            precision, gpu = (("f32", "sm_80"), ("bf16", "sm_90a"), ("tf32", "sm_80"), ("fp16", "sm_90a"), ("bf16", "sm_80"))[i % 5]
            if support.has_its_turn(i):
                self.check(name, precision, gpu)

    def test_odd_sizes(self):
        """Rows that begin anywhere, batches that fill no tile; columns that are no multiple of four have sums of their own."""
        for act, precision, gpu, batch, width, hidden in support.of_this_turn((("gelu", "f32", "sm_80", 601, 508, 68), ("silu", "bf16", "sm_90a", 777, 344, 200)), 2):
            self.check(act, precision, gpu, batch=batch, width=width, hidden=hidden)

    def test_dropout_and_parts(self):
        """Dropped elements, and a batch in parts: against kernels of their own, which random numbers and orders of parts do not depend on."""
        weights = self.start(1040, 512, 136)
        cases = (1040, ()), (520, ("--set", "train.accumulate=2")), (1040, ("--set", "train.recompute=pointwise"))
        for i, (precision, (batch, sets)) in enumerate(itertools.product(("f32", "bf16"), cases)):
            if support.has_its_turn(i):
                source = SOURCE.format(width=512, hidden=136, drop=0.2, act="gelu", rest="", batch=batch, precision=precision)
                fused, kernels = self.gradients(source, weights, "--gpu", "sm_90a", *sets)
                self.assertTrue(any(kernel.endswith("_columns") for kernel in kernels), kernels)
                apart, _ = self.gradients(source, weights, "--gpu", "sm_90a", *sets, "--disable=" + LEFT_OUT)
                error = self.error(fused, apart)
                print(f"{precision}, {sets}: {error:.1e}", flush=True)
                self.assertLess(error, NEAR + FLIPS[precision])

    def test_largest_sizes(self):
        """The largest size of what a product's epilogue makes, from which the scale of an 8-bit operand follows: a maximum does not depend on its order,
        so all bits are those of kernels of their own, the scales included. 144 columns are products of 8-bit floats on Hopper, 136 are of bf16 there."""
        cases = (("fp8(scaling=delayed)", "sm_90a", 520, 144, "gelu", 1, ()), ("fp8", "sm_90a", 601, 144, "gelu", 1, ()),
                 ("fp8(scaling=delayed, history=2)", "sm_90a", 777, 136, "silu", 1, ()), ("fp8(scaling=delayed)", "sm_89", 520, 136, "gelu", 1, ()),
                 ("fp8", "sm_80", 601, 144, "relu", 1, ()), ("fp8(scaling=delayed)", "sm_90a", 520, 144, "gelu", 2, ()),
                 ("fp8(scaling=delayed)", "sm_90a", 520, 144, "tanh", 1, ("tma",)), ("fp8", "sm_90a", 520, 144, "elu", 1, ("fp8_products",)))
        for i, (precision, gpu, batch, hidden, act, accumulate, left_out) in enumerate(cases):
            if not support.has_its_turn(i):
                continue
            self.start(batch * accumulate, 512, hidden)
            source = SOURCE.format(width=512, hidden=hidden, drop=0, act=act, rest="", batch=batch, precision=precision).replace("8192.0", "0.5")
            made = []
            for choices in (left_out, (*left_out, "column_sums")):
                flags = [f"--disable={','.join(choices)}"] * bool(choices)
                artifact = self.compile(source, "--gpu", gpu, "--set", f"train.accumulate={accumulate}", *flags, name="model.ptx")
                support.run("ftrun", artifact, "--device", "sim", "--data", self.folder, "--init", self.path("start.safetensors"), "--steps", 3,
                            "--no-shuffle", "--save", self.path("end.safetensors"))
                found = any(re.search("_dot.*_columns$", kernel) for kernel in self.kernels(artifact))
                made.append((support.read_safetensors(self.path("end.safetensors")), found))
            (fused, has), (apart, had) = made
            self.assertTrue(has and not had, cases[i])
            self.assertEqual("delayed" in precision, any("float8" in name for name in fused), cases[i])
            for name, value in fused.items():
                if name.endswith("bias"):  # sums in another order
                    numpy.testing.assert_allclose(value, apart[name], rtol=2e-3, atol=2e-3, err_msg=f"{cases[i]}: {name}")
                else:
                    numpy.testing.assert_array_equal(value, apart[name], f"{cases[i]}: {name}")


if __name__ == "__main__":
    support.main()
