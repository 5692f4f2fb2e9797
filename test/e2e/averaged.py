"""average(layer, decay=d)(x), a layer with averages in place of its parameters: against a momentum encoder in PyTorch, in every way of
training; with --init, resumed, in files of weights; and `state s = parameter`."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
block Encoder()(x: [B, D]) { return Linear(8, name="fc2")(relu(Linear(16, name="fc1")(x))) }
model M(x: f32[B, 8], z: f32[B, 8]) {
  encoder = Encoder()
  target = average(encoder, decay=0.9)
  loss = mean(square(Linear(8, name="predictor")(encoder(x)) - target(z)))
  metric apart = mean(abs(encoder(x) - target(x)))
  output t = target(x)
}
data D { train = npy("x.npy", "z.npy"); valid = npy("x.npy", "z.npy"); shuffle = false }
train { batch = %d; epochs = 1; seed = 5; optimizer = adamw(lr=0.02, weight_decay=0.1); eval = none; %s }
"""
# more of the recipe, flags of ftc, ranks
WAYS = {
    "plain": ("", [], 1),
    "parts of a batch": ("accumulate = 2", [], 1),
    "no fusion": ("", ["--disable=fuse"], 1),
    "recompute": ("recompute = block", [], 1),
    "zero 1": ("", ["data=2", "zero=1"], 2),
    "zero 3": ("accumulate = 2", ["data=2", "zero=3"], 2),
    "tensor": ("", ["tensor=2"], 2),
    "pipeline": ("accumulate = 2", ["pipeline=2"], 2),
}
random = numpy.random.RandomState(3)
BATCH = 16


class Reference:
    def __init__(self, weights):
        self.weights = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in weights.items() if "average" not in k}
        self.average = {k: w.detach().clone() for k, w in self.weights.items() if k.startswith("encoder")}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=0.02, weight_decay=0.1)

    def encode(self, weights, x):
        linear = lambda name, h: torch.nn.functional.linear(h, weights[name + ".weight"], weights[name + ".bias"])
        return linear("encoder.fc2", torch.relu(linear("encoder.fc1", x)))

    def loss(self, x, z):
        p = torch.nn.functional.linear(self.encode(self.weights, x), self.weights["predictor.weight"], self.weights["predictor.bias"])
        with torch.no_grad():
            target = self.encode(self.average, z)
        return torch.nn.functional.mse_loss(p, target)

    def mix(self):
        for k, v in self.average.items():
            v.mul_(0.9).add_(self.weights[k].detach(), alpha=0.1)

    def step(self, x, z):
        self.optimizer.zero_grad()
        self.loss(x, z).backward()
        self.optimizer.step()
        self.used = {k: v.clone() for k, v in self.average.items()}
        self.mix()


class Averaged(support.Case):
    def setUp(self):
        super().setUp()
        for name in "xz":
            numpy.save(self.path(name + ".npy"), random.randn(128, 8).astype("f4"))

    def train(self, artifact, *flags):
        return support.run("ftrun", artifact, "--data", self.folder, *flags).stdout

    def batches(self):
        x, z = (torch.tensor(numpy.load(self.path(name + ".npy"))).double() for name in "xz")
        return [(x[i : i + BATCH], z[i : i + BATCH]) for i in range(0, len(x), BATCH)]

    def check(self, file, reference, what):
        for name, value in support.read_safetensors(file).items():
            if name.endswith(".begun"):
                self.assertEqual(value, 1)
                continue
            expected = reference.used[name[: -len(".average")]] if name.endswith(".average") else reference.weights[name]
            numpy.testing.assert_allclose(value, expected.detach().numpy(), atol=3e-5, err_msg=f"{what}: {name}")

    def test_every_way(self):
        for what, (more, static, ranks) in WAYS.items():
            with self.subTest(what):
                parts = (2 if "accumulate" in more else 1) * (2 if "data=2" in static else 1)
                flags = [word for s in static for word in (["--set", "distributed." + s] if "=" in s and s[0] != "-" else [s])]
                on = ["--ranks", ranks] if ranks > 1 else []
                artifact = self.compile(MODEL % (BATCH // parts, more), *flags)
                folder = self.path("runs", what.replace(" ", "_"))
                every = ["--set", f"train.checkpoint.dir={folder}", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=3"]
                self.train(artifact, "--steps", 0, "--save", self.path("start"), *on)
                self.train(artifact, "--init", self.path("start"), "--save", self.path("end"), *every, *on)
                reference = Reference(support.read_safetensors(self.path("start")))
                for x, z in self.batches():
                    reference.step(x, z)
                self.assertEqual(len(support.read_safetensors(self.path("end"))), 6 + 2 * 4)
                self.check(self.path("end"), reference, what)
                self.train(artifact, "--resume", os.path.join(folder, "step-00000003.safetensors"), "--save", self.path("again"), *on)
                for name, value in support.read_safetensors(self.path("end")).items():
                    self.assertTrue(numpy.array_equal(value, support.read_safetensors(self.path("again"))[name]), f"{what}, resumed: {name}")
                if not what == "plain":
                    continue
                # evaluation and predictions have the average after the last update; it goes on from a file of weights
                out = self.path("t.npy")
                support.run("ftrun", "predict", artifact, "--weights", self.path("end"), "--data", self.folder, "--input", f"x={self.path('x.npy')}", "--output", f"t={out}")
                expected = reference.encode(reference.average, torch.tensor(numpy.load(self.path("x.npy"))).double())
                numpy.testing.assert_allclose(numpy.load(out), expected.numpy(), atol=1e-4)

    def test_precision(self):
        """In bf16 the averages are f32, and products read them rounded: near what f32 does."""
        ends = []
        for precision in ("f32", "bf16", "bf16(parameters=bf16)"):
            artifact = self.compile(MODEL % (BATCH, f"precision = {precision}"))
            if not ends:
                self.train(artifact, "--steps", 0, "--save", self.path("start"))
            self.train(artifact, "--init", self.path("start"), "--save", self.path("end"))
            ends.append(support.read_safetensors(self.path("end")))
        for end in ends[1:]:
            for name, value in ends[0].items():
                self.assertLess(numpy.abs(end[name].astype("f4") - value).mean(), 0.01, name)
            self.assertEqual(end["encoder.fc1.weight.average"].dtype, numpy.float32)

    def test_states_of_an_averaged_layer(self):
        """Running statistics are the target's own, as those of a copied module are."""
        artifact = self.compile("""
block Encoder()(x: [B, D]) { return BatchNorm(name="bn")(Linear(4, name="fc")(x)) }
model M(x: f32[B, 8], z: f32[B, 8]) {
  encoder = Encoder()
  loss = mean(square(encoder(x) - average(encoder, decay=0.5)(z)))
}
data D { train = npy("x.npy", "z.npy"); shuffle = false }
train { batch = 16; optimizer = sgd(lr=0.1) }
""")
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        self.train(artifact, "--init", self.path("start"), "--steps", 3, "--save", self.path("end"))
        start, end = support.read_safetensors(self.path("start")), support.read_safetensors(self.path("end"))
        x, z = (numpy.load(self.path(name + ".npy")).astype("f8") for name in "xz")
        online, target = (torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)).double() for _ in "xz")
        names = {"0.weight": "encoder.fc.weight", "0.bias": "encoder.fc.bias", "1.weight": "encoder.bn.weight", "1.bias": "encoder.bn.bias"}
        online.load_state_dict({k: torch.tensor(start[names[k]]).double() if k in names else v for k, v in online.state_dict().items()})
        target.load_state_dict(online.state_dict())
        optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
        for i in range(3):
            rows = slice(16 * i, 16 * i + 16)
            with torch.no_grad():
                for p, q in zip(target.parameters(), online.parameters()):
                    p.mul_(0.5).add_(q, alpha=0.5)
                t = target(torch.tensor(z[rows]))
            optimizer.zero_grad()
            (online(torch.tensor(x[rows])) - t).square().mean().backward()
            optimizer.step()
        for module, suffix in ((online, ""), (target, ".average")):
            for k, v in module.state_dict().items():
                name = names.get(k, k.replace("1.running", "encoder.bn.running")) + suffix
                if name in end:
                    numpy.testing.assert_allclose(end[name], v.numpy(), atol=1e-5, err_msg=name)
        self.assertIn("encoder.bn.running_mean.average", end)

    def test_a_state_begins_as_a_parameter(self):
        """As what --init has put there. One that nothing updates stays so."""
        artifact = self.compile("""
model M(x: f32[B, 8], z: f32[B, 8]) {
  param w: [8] = normal(1.0)
  state first: [8] = w
  state half: [8] = w
  update half = (half + w) / 2
  loss = mean(square(x * w - z)) + 0.1 * mean(square(w - first))
}
data D { train = npy("x.npy", "z.npy"); shuffle = false }
train { batch = 16; optimizer = sgd(lr=0.1) }
""")
        given = numpy.arange(8).astype("f4")
        support.write_safetensors(self.path("given"), {"w": given})
        self.train(artifact, "--init", self.path("given"), "--steps", 3, "--save", self.path("end"))
        w, first, half = (torch.tensor(given).double() for _ in range(3))
        x, z = (torch.tensor(numpy.load(self.path(name + ".npy"))).double() for name in "xz")
        for i in range(3):
            w = w.detach().requires_grad_()
            rows = slice(16 * i, 16 * i + 16)
            loss = (x[rows] * w - z[rows]).square().mean() + 0.1 * (w - first).square().mean()
            (gradient,) = torch.autograd.grad(loss, w)
            half = (half + w.detach()) / 2
            w = w.detach() - 0.1 * gradient
        end = support.read_safetensors(self.path("end"))
        for name, expected in (("w", w), ("first", first), ("half", half)):
            numpy.testing.assert_allclose(end[name], expected.numpy(), atol=1e-5, err_msg=name)

    def test_refused(self):
        model = "model M(x: f32[B, 8]) {\n  l = Linear(8, name=\"l\")\n  loss = mean(l(x)) + mean(%s)\n}\ntrain { batch = 4; optimizer = sgd(lr=0.1) }\n"
        for expression, sentence in (
            ("average(x, decay=0.9)", "average() takes a layer and gives one with averages in place of its parameters, not a tensor"),
            ("average(l, decay=1.5)(x)", "decay=1.5: it is from 0 (the parameters as they are) to 1 (as they were at first)"),
            ("average(l)(x)", "decay"),
            ("average(l, decay=0.9)(x) + average(l, decay=0.8)(x)", "the layer of parameter 'l.weight' is averaged with decay=0.9 and with decay=0.8: it has one average"),
            ("average(average(l, decay=0.9), decay=0.9)(x)", "this layer has averages in place of its parameters already"),
        ):
            with open(self.path("bad.ft"), "w") as file:
                file.write(model % expression)
            self.fails(1, sentence, "ftc", self.path("bad.ft"), "--emit=ir")
        for initial, sentence in (("w + 1", "a state begins with an initialiser or as a parameter of its block"), ("v", "the state is f32[8] and cannot begin as the parameter, which is f32[4]")):
            with open(self.path("bad.ft"), "w") as file:
                file.write("model M(x: f32[B, 8]) {\n  param w: [8] = zeros\n  param v: [4] = zeros\n  state s: [8] = %s\n  loss = mean(x * w + s) + mean(v)\n}\ntrain { batch = 4 }\n" % initial)
            self.fails(1, sentence, "ftc", self.path("bad.ft"), "--emit=ir")


if __name__ == "__main__":
    support.main()
