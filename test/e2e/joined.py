"""Joined launches (codegen/join.h): what they compute is what their kernels compute one by one, to the bit, in any order of warps, and with the
simulator's checks; and it is PyTorch's in float64. --check=nan tells the same of a number in a joined kernel as of one in a kernel of its own."""
import os
import re
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

HEAD = """data D {{ train = npy("x.npy", "y.npy") }}
train {{ model = M; data = D; batch = {batch}; precision = {precision}; seed = 3; optimizer = {optimizer}; eval every 0 epochs }}
"""
MODELS = {  # of layers whose blocks have other sizes than their neighbours', sums in two launches, statistics, a wide row beside a narrow one
    "mlp": """model M(x: f32[B, 40], y: i32[B]) {{
  h = relu(Linear(72, name="one")(x))
  h = gelu(Linear(24, name="two")(h))
  logits = Linear(10, name="three")(h)
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
}}
""",
    "norm": """model M(x: f32[B, 40], y: i32[B]) {{
  h = relu(BatchNorm(name="norm")(Linear(36, name="one")(x)))
  g = silu(Linear(20, name="gate")(x)) * Linear(20, name="value")(h)
  loss = mean(cross_entropy(Linear(10, name="out")(LayerNorm(name="last")(g)), y))
}}
""",
    # kernels that go by rows, one behind the other: odd widths, norms, residuals, a mask that is drawn, a long first product
    "rows": """model M(x: f32[B, 40], y: i32[B]) {{
  h = gelu(Linear(70, name="one")(concat([x, x * x, x - 1, x * 2, x, x, x + 3, x], axis=1)))
  h = LayerNorm(name="norm")(Linear(33, name="two")(dropout(h, 0.2)))
  h = silu(Linear(33, name="gate")(h)) * h + h
  logits = Linear(7, name="three")(h)
  loss = mean(cross_entropy(logits, y % 7)) + 0.1 * mean(square(logits))
  metric accuracy = mean(argmax(logits, axis=-1) == y % 7)
}}
""",
    # every row is compared with all others: one operand of that product goes by rows, and the other does not
    "pairs": """model M(x: f32[B, 40], y: i32[B]) {{
  h = Linear(16, name="two")(gelu(Linear(24, name="one")(x)))
  loss = mean(cross_entropy(h @ transpose(h), y % B))
}}
""",
    "images": """model M(x: f32[B, 40], y: i32[B]) {{
  h = relu(BatchNorm(name="norm")(Conv2d(8, 3, padding=1, name="one")(reshape(x, [B, 2, 5, 4]))))
  loss = mean(cross_entropy(Linear(10, name="out")(flatten(Conv2d(4, 3, name="two")(h), from=1)), y))
}}
""",
}


class Joined(support.Case):
    def write_data(self, rows):
        random = numpy.random.RandomState(5)
        self.x, self.y = random.randn(rows, 40).astype(numpy.float32), random.randint(0, 10, rows).astype(numpy.int32)
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), self.y)

    def trained(self, source, *flags, steps=3, seed=None, init=()):
        """The weights, and how many kernels each joined launch of a step has."""
        return self.runs(self.compile(source, *flags, name="model.ptx"), steps, seed, init)

    def runs(self, artifact, steps=3, seed=None, init=()):
        support.run("ftrun", artifact, "--device", "sim", "--data", self.folder, "--steps", steps, "--no-shuffle", *init,
                    "--save", self.path("end.safetensors"), env={"FT_SIM_SEED": str(seed)} if seed else None)
        with open(artifact) as file:
            train = re.search(r'^//@ft graph "train"\n(.*?)^//@ft graph', file.read() + "//@ft graph", re.S | re.M).group(1)
        return support.read_safetensors(self.path("end.safetensors")), [len(p.split(",")) for p in re.findall(r" parts=([0-9,]+)", train)]

    def check(self, name, gpu, precision, optimizer="adam(lr=0.01)", batch=33, disable="dce2", *flags):
        source = (MODELS[name] + HEAD).format(batch=batch, precision=precision, optimizer=optimizer)
        alone, none = self.trained(source, "--gpu", gpu, f"--disable={disable},join_launches", *flags)
        joined, parts = self.trained(source, "--gpu", gpu, f"--disable={disable}", *flags)
        again, _ = self.runs(self.path("model.ptx"), seed=9)
        what = f"{name}, {gpu}, {precision}, {disable} {flags}"
        print(f"{what}: joined launches of {parts} kernels", flush=True)
        self.assertTrue(parts and not none, what)
        for parameter, value in alone.items():
            numpy.testing.assert_array_equal(joined[parameter], value, f"{what}: {parameter}")
            numpy.testing.assert_array_equal(again[parameter], value, f"{what}: {parameter}, warps in another order")

    def test_same_bits(self):
        """With FT_TURN a third of the cases."""
        self.write_data(99)
        cases = [(name, "sm_80", precision) for name, precision in zip(MODELS, ("bf16", "f32", "tf32", "f32", "tf32"))]
        cases += [(name, "sm_90a", precision) for name, precision in zip(MODELS, ("f32", "bf16", "fp16", "f32", "fp16"))]
        cases += [("rows", "sm_90a", "f32", "adam(lr=0.01)", batch) for batch in (2, 5)]
        cases += [("rows", "sm_80", "f32", "adam(lr=0.01)", 33, "memplan,early_launch"),
                  ("rows", "sm_90a", "bf16", "sgd(lr=0.1)", 16, "dce2", "--set", "train.accumulate=2", "--set", "train.ema=0.9", "--set", "train.clip=1"),
                  ("norm", "sm_90a", "f32", "adam(lr=0.01)", 33, "fuse"), ("norm", "sm_80", "f32", "adam(lr=0.01)", 33, "column_sums,row_sums,early_launch,memplan"),
                  ("mlp", "sm_90a", "f32", "sgd(lr=0.1)", 24, "schedule", "--set", "train.accumulate=2")]
        for case in support.of_this_turn(cases, 3):
            self.check(*case)
        self.write_data(1024)  # gradients of weights are summed in parts
        gpu, precision = ("sm_80", "bf16") if support.has_its_turn(0, 2) else ("sm_90a", "f32")
        self.check("mlp", gpu, precision, "sgd(lr=0.1, momentum=0.9)", 1024)
        with open(self.path("model.ptx")) as file:
            self.assertIn("_combine", file.read())

    def test_against_pytorch(self):
        """Gradients of all parameters, by one step of 8192 times these."""
        self.write_data(48)
        source = (MODELS["mlp"] + HEAD).format(batch=48, precision="f32", optimizer="sgd(lr=8192.0)")
        random = numpy.random.RandomState(8)
        shapes = {"one.weight": (72, 40), "one.bias": (72,), "two.weight": (24, 72), "two.bias": (24,), "three.weight": (10, 24), "three.bias": (10,)}
        start = {name: (random.randn(*shape) * 0.2).astype(numpy.float32) for name, shape in shapes.items()}
        support.write_safetensors(self.path("start.safetensors"), start)
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in start.items()}
        linear = lambda name, h: torch.nn.functional.linear(h, w[name + ".weight"], w[name + ".bias"])
        h = torch.nn.functional.gelu(linear("two", torch.relu(linear("one", torch.tensor(self.x, dtype=torch.float64)))))
        torch.nn.functional.cross_entropy(linear("three", h), torch.tensor(self.y, dtype=torch.int64)).backward()
        for gpu in ("sm_80", "sm_90a"):
            end, parts = self.trained(source, "--gpu", gpu, steps=1, init=("--init", self.path("start.safetensors")))
            self.assertGreaterEqual(sum(parts), 6)
            for name, value in start.items():
                expected = w[name].grad.numpy()
                error = numpy.abs((value.astype(numpy.float64) - end[name]) / 8192 - expected).max() / numpy.abs(expected).max()
                self.assertLess(error, 2e-5, f"{gpu}: {name}")

    def rows_gradients(self, start):
        """Those of the model below, in float64, by PyTorch."""
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in start.items()}
        linear = lambda name, h: torch.nn.functional.linear(h, w[name + ".weight"], w[name + ".bias"])
        h = torch.nn.functional.gelu(linear("one", torch.tensor(self.x, dtype=torch.float64)))
        h = torch.nn.functional.layer_norm(linear("two", h), (33,), w["norm.weight"], w["norm.bias"], 1e-5)
        h = torch.nn.functional.silu(linear("gate", h)) * h + h
        logits = linear("three", h)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(self.y % 7, dtype=torch.int64)) + 0.1 * (logits ** 2).mean()
        loss.backward()
        return {name: value.grad.numpy() for name, value in w.items()}

    def test_rows_against_pytorch(self):
        """Layers of odd widths, a norm and a residual, whose kernels go by rows: all in one launch, and without."""
        model = """model M(x: f32[B, 40], y: i32[B]) {{
  h = LayerNorm(name="norm")(Linear(33, name="two")(gelu(Linear(70, name="one")(x))))
  logits = Linear(7, name="three")(silu(Linear(33, name="gate")(h)) * h + h)
  loss = mean(cross_entropy(logits, y % 7)) + 0.1 * mean(square(logits))
}}
"""
        random = numpy.random.RandomState(8)
        shapes = {"one": (70, 40), "two": (33, 70), "gate": (33, 33), "three": (7, 33)}
        start = {f"{name}.weight": (random.randn(*shape) * 0.3).astype(numpy.float32) for name, shape in shapes.items()}
        start.update({f"{name}.bias": (random.randn(shape[0]) * 0.3).astype(numpy.float32) for name, shape in shapes.items()})
        start.update({"norm.weight": (1 + random.randn(33) * 0.2).astype(numpy.float32), "norm.bias": random.randn(33).astype(numpy.float32)})
        support.write_safetensors(self.path("start.safetensors"), start)
        for batch, gpu in ((48, "sm_80"), (33, "sm_90a"), (3, "sm_90a"), (300, "sm_90a")):
            self.write_data(batch)
            expected = self.rows_gradients(start)
            source = (model + HEAD).format(batch=batch, precision="f32", optimizer="sgd(lr=8192.0)")
            for flags, has_chain in (((), True), (("--disable=row_chains",), False)):
                end, _ = self.trained(source, "--gpu", gpu, *flags, steps=1, init=("--init", self.path("start.safetensors")))
                with open(self.path("model.ptx")) as file:
                    self.assertEqual("$join_behind_" in file.read(), has_chain)
                for name, value in start.items():
                    error = numpy.abs((value.astype(numpy.float64) - end[name]) / 8192 - expected[name]).max() / numpy.abs(expected[name]).max()
                    self.assertLess(error, 2e-5, f"{gpu}, {batch} rows, {flags}: {name}")

    def test_check_nan(self):
        """The same sentence."""
        self.write_data(33)
        self.x[7, 3] = numpy.nan
        numpy.save(self.path("x.npy"), self.x)
        source = (MODELS["mlp"] + HEAD).format(batch=33, precision="f32", optimizer="sgd(lr=0.1)")
        said = []
        for line in ("h = relu(Linear(72, name=\"one\")(x))", "h = sqrt(abs(Linear(72, name=\"one\")(x * 0)) * 0)"):
            text = source.replace("h = relu(Linear(72, name=\"one\")(x))", line)
            if "sqrt" in line:
                numpy.save(self.path("x.npy"), numpy.nan_to_num(self.x))
            for flags in ((), ("--disable=join_launches",)):
                artifact = self.compile(text, "--gpu", "sm_80", *flags, name="model.ptx")
                done = self.fails(1, "is not finite", "ftrun", artifact, "--data", self.folder, "--device", "sim", "--check=nan", "--steps", 2)
                said.append(re.sub(r"k\d+_\w+|join\w+", "kernel", done.stderr))
        self.assertEqual(said[0], said[1])
        self.assertEqual(said[2], said[3])
        self.assertIn("sqrt", said[2])

    def test_check_nan_in_the_first_of_two(self):
        """Two products in one launch, of which the first one's is too large: what explains the value is its kernel."""
        self.write_data(33)
        numpy.save(self.path("x.npy"), numpy.concatenate([numpy.clip(self.x[:, :20], -3, 3) * numpy.float32(1e38), self.x[:, 20:]], 1))
        branches = """model M(x: f32[B, 40], y: i32[B]) {{
  loss = mean(square(LayerNorm(name="one")(Linear(24, name="large", init=normal(9))(x[:, 0:20])))) + mean(square(LayerNorm(name="two")(Linear(16, name="small")(x[:, 20:40]))))
  metric all = sum(f32(y))
}}
"""
        said = []
        for flags in ((), ("--disable=join_launches",)):
            artifact = self.compile((branches + HEAD).format(batch=33, precision="f32", optimizer="sgd(lr=0.1)"), "--gpu", "sm_80", *flags, name="model.ptx")
            said.append(self.fails(1, "is not finite", "ftrun", artifact, "--data", self.folder, "--device", "sim", "--check=nan", "--steps", 2).stderr)
        self.assertEqual(said[0], said[1])
        self.assertIn("of layer large, forward: NaN at [0,0] of f32[33,24], the sum of 20 products", said[0])



if __name__ == "__main__":
    support.main()
