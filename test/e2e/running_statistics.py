"""`statistics = true`: running statistics of batch norms computed anew with weights that stay, against PyTorch's torch.optim.swa_utils.update_bn
in float64 on the same batches, in every way of training; resumed; of averages; what stays; what is refused."""
import os
import sys

import numpy
import torch
from torch.optim.swa_utils import update_bn

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 3, 6, 6], y: i32[B]) {
  v = relu(BatchNorm(name="bn1")(Conv2d(5, 3, name="c1")(x)))
  v = BatchNorm(name="bn2", momentum=0.3)(Conv2d(6, 3, stride=2, bias=false, name="c2")(v))
  v = BatchNorm(name="bn3")(Linear(7, name="fc1")(flatten(v, from=1)))
  z = Linear(4, name="fc2")(tanh(v))
  loss = mean(cross_entropy(z, y))
  metric accuracy = mean(argmax(z, axis=-1) == y)
  output z
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 16; epochs = 3; seed = 5; optimizer = adam(lr=0.02); %s }
"""
ON = ["--set", "train.statistics=true"]
SAMPLES, BATCH = 168, 16  # the last 8 fill no batch
random = numpy.random.RandomState(3)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = torch.nn.Conv2d(3, 5, 3), torch.nn.Conv2d(5, 6, 3, stride=2, bias=False)
        self.bn1, self.bn2, self.bn3 = torch.nn.BatchNorm2d(5), torch.nn.BatchNorm2d(6, momentum=0.3), torch.nn.BatchNorm1d(7)
        self.fc1, self.fc2 = torch.nn.Linear(6, 7), torch.nn.Linear(7, 4)

    def forward(self, x):
        v = self.bn2(self.c2(torch.relu(self.bn1(self.c1(x)))))
        return self.fc2(torch.tanh(self.bn3(self.fc1(v.flatten(1)))))


def net_of(file):
    net = Net().double()
    net.load_state_dict({k: torch.tensor(v).double() for k, v in support.read_safetensors(file).items()}, strict=False)
    return net


class Statistics(support.Case):
    def setUp(self):
        super().setUp()
        self.x = (random.randn(SAMPLES, 3, 6, 6) * 2 + numpy.linspace(-1, 3, SAMPLES)[:, None, None, None]).astype("f4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("y.npy"), random.randint(0, 4, SAMPLES).astype("i4"))

    def train(self, artifact, *flags):
        return support.run("ftrun", artifact, "--data", self.folder, *flags).stdout

    def trained(self):
        """The averages of a training; their running statistics are those of the training."""
        self.train(self.compile(MODEL % "ema = 0.9"), "--save-ema", self.path("w"))
        return support.read_safetensors(self.path("w"))

    def anew(self, recipe, *flags, static=(), source=MODEL, init="w", out="s"):
        artifact = self.compile(source % recipe, *ON, *static, name="anew.so")
        self.said = self.train(artifact, "--init", self.path(init), "--save", self.path(out), *flags)
        return support.read_safetensors(self.path(out))

    def batches(self, size=BATCH):
        return [torch.tensor(self.x[i : i + size]).double() for i in range(0, SAMPLES // size * size, size)]

    def check(self, found, net, what="", tolerance=2e-5):
        """Against the module that update_bn has been given, and the weights that went in."""
        before, count = support.read_safetensors(self.path("w")), 0
        self.assertEqual(sorted(found), sorted(before))
        for name, value in found.items():
            if "running" in name:
                count += 1
                expected = dict(net.named_buffers())[name].numpy()
                numpy.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * numpy.abs(expected).max(), err_msg=f"{what}: {name}")
                self.assertGreater(numpy.abs(value - before[name]).max(), 1e-3 * numpy.abs(value).max(), name)
            else:
                self.assertTrue(numpy.array_equal(value, before[name]), f"{what}: {name}")
        self.assertEqual(count, 6)

    def test_update_bn(self):
        """Whatever the recipe says of updates: none is made, and each batch is one of PyTorch's loader."""
        self.trained()
        net = net_of(self.path("w"))
        update_bn(self.batches(), net)
        for recipe, static in (
            ("", ()), ("ema = 0.9", ()), ("accumulate = 2", ()), ("", ("--disable=fuse",)), ("recompute = block", ()), ("clip = norm(1.0)", ()),
            ("prune = magnitude(sparsity=0.5)", ()), ('freeze = after(0.3, "c1.*", rate=cosine)', ()), ("sharpness = sam(rho=0.1)", ()), ("grow = batch(4, 8)", ()),
            ('optimizer = muon(lr=0.01) on "fc*.weight"; schedule = plateau', ()), ("lr = 0.1x on \"fc*\"; weight_decay = 0.1 on rank >= 2", ()),
        ):
            self.check(self.anew(recipe, static=static), net, recipe)

    def test_predictions(self):
        """Evaluation and prediction read them: what PyTorch's model gives in eval()."""
        self.trained()
        net = net_of(self.path("w"))
        update_bn(self.batches(), net)
        self.anew("ema = 0.9")
        artifact, out = self.compile(MODEL % ""), self.path("z.npy")
        support.run("ftrun", "predict", artifact, "--weights", self.path("s"), "--data", self.folder, "--input", f"x={self.path('x.npy')}", "--output", f"z={out}")
        with torch.no_grad():
            expected = net.eval()(torch.tensor(self.x).double()).numpy()
        numpy.testing.assert_allclose(numpy.load(out), expected, atol=1e-4)
        self.assertIn("valid: loss", self.said)

    def test_shuffled(self):
        """The order is that of a training with this seed: without it other batches, and other statistics, near these."""
        self.trained()
        plain = self.anew("")
        source = MODEL.replace("shuffle = false", "shuffle = true")
        first, again = self.anew("", source=source), self.anew("", source=source)
        other = self.anew("", "--set", "train.seed=9", source=source)
        for name in ("bn1.running_mean", "bn3.running_var"):
            self.assertTrue(numpy.array_equal(first[name], again[name]))
            self.assertFalse(numpy.array_equal(first[name], other[name]))
        numpy.testing.assert_allclose(first["bn1.running_mean"], plain["bn1.running_mean"], atol=0.3)

    def test_resumed(self):
        self.trained()
        every = ["--set", f"train.checkpoint.dir={self.path('runs')}", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=4"]
        whole = self.anew("", *every)
        artifact = self.path("anew.so")
        self.train(artifact, "--resume", self.path("runs", "step-00000004.safetensors"), "--save", self.path("again"))
        again = support.read_safetensors(self.path("again"))
        for name, value in whole.items():
            self.assertTrue(numpy.array_equal(value, again[name]), name)

    def test_whatever_was_there(self):
        """Statistics of a training that went wrong are not read; those of frozen parameters are made anew."""
        before = self.trained()
        net = net_of(self.path("w"))
        update_bn(self.batches(), net)
        support.write_safetensors(self.path("bad"), {k: numpy.full_like(v, numpy.inf) if "running" in k else v for k, v in before.items()})
        self.check(self.anew('freeze = "c1.*"', init="bad"), net)

    def test_ranks(self):
        """With the statistics of all ranks, those of one process with the whole batch; else the mean over the ranks of what each has."""
        self.trained()
        net = net_of(self.path("w"))
        update_bn(self.batches(2 * BATCH), net)
        two = ("--set", "distributed.data=2")
        self.check(self.anew("", "--ranks", 2, static=(*two, "--set", "distributed.sync_batch_norm=true")), net, "synchronised")
        found = self.anew("", "--ranks", 2, static=(*two, "--set", "distributed.zero=3"))
        x = torch.tensor(self.x).double()
        seen = torch.nn.functional.conv2d(x, net.c1.weight, net.c1.bias).detach()
        rank = lambda i, r: seen[i + BATCH * r : i + BATCH * (r + 1)]
        steps = range(0, SAMPLES // (2 * BATCH) * 2 * BATCH, 2 * BATCH)
        variances = [rank(i, r).var((0, 2, 3), unbiased=True).numpy() for i in steps for r in (0, 1)]
        numpy.testing.assert_allclose(found["bn1.running_var"], numpy.mean(variances, 0), rtol=1e-5)

    def test_other_arrangements(self):
        """Layers shared out, or one after the other on several ranks."""
        self.trained()
        net = net_of(self.path("w"))
        update_bn(self.batches(), net)
        for static in ("tensor=2", "pipeline=2"):
            found = self.anew("accumulate = 2", "--ranks", 2, static=("--set", "distributed." + static))
            self.check(found, net, static)

    def test_precision(self):
        """As a training step of that precision computes them: near those of f32, and weights stay."""
        before = self.trained()
        plain = self.anew("")
        for precision in ("bf16", "fp16"):
            found = self.anew(f"precision = {precision}")
            for name, value in found.items():
                if "running" in name:
                    numpy.testing.assert_allclose(value, plain[name], rtol=0.02, atol=0.02 * numpy.abs(plain[name]).max(), err_msg=name)
                    self.assertFalse(numpy.array_equal(value, plain[name]))
                else:
                    self.assertTrue(numpy.array_equal(value, before[name]), name)

    def test_dropout(self):
        """It drops, as in update_bn, which runs the model in train(): values in front of a norm have a variance of E[x^2] / (1 - p) - E[x]^2."""
        source = """model M(x: f32[B, 3, 6, 6], y: i32[B]) {
          z = Linear(4, name="fc")(flatten(BatchNorm(name="bn")(dropout(x, 0.5)), from=1))
          loss = mean(cross_entropy(z, y))
        }
        data D { train = npy("x.npy", "y.npy"); shuffle = false }
        train { batch = 16; seed = 5; eval = none; %s }
        """
        self.train(self.compile(source % ""), "--steps", 0, "--save", self.path("w"))
        found = self.anew("", source=source)
        x = self.x[:160].astype("f8").transpose(1, 0, 2, 3).reshape(3, 10, -1)
        expected = ((x**2).mean(2) / 0.5 - x.mean(2) ** 2).mean(1)
        numpy.testing.assert_allclose(found["bn.running_var"], expected, rtol=0.05)
        numpy.testing.assert_allclose(found["bn.running_mean"], x.mean((1, 2)), atol=0.25)

    def test_what_stays(self):
        """Observers of a quantised layer, averages of a layer and counters of the program stay; the averaged layer's own batch norm, one over what
        is missing, and a norm of one's own are made anew."""
        source = """
block Norm()(x: [B, D]) {
  state seen: [D] = zeros
  state steps: [1] = zeros
  update steps = steps + 1
  if training { update seen = running_average(seen, mean(stop_gradient(x), axis=0), 0.1) }
  return x - seen
}
block Encoder()(x: [B, D]) { return BatchNorm(name="bn")(QuantLinear(6, name="fc")(x)) }
model M(x: f32[B, 3, 6, 6], y: i32[B]) {
  v = Norm(name="own")(flatten(x, from=1))
  encoder = Encoder()
  z = Linear(4, name="fc2")(encoder(v))
  loss = mean(cross_entropy(z, y)) + mean(square(average(encoder, decay=0.5)(v)))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 16; seed = 5; epochs = 2; optimizer = sgd(lr=0.1); eval = none; %s }
"""
        self.train(self.compile(source % ""), "--save", self.path("w"))
        before, found = support.read_safetensors(self.path("w")), self.anew("", source=source)
        anew = {"own.seen", "encoder.bn.running_mean", "encoder.bn.running_var", "encoder.bn.running_mean.average", "encoder.bn.running_var.average"}
        self.assertEqual({name for name in before if not numpy.array_equal(before[name], found[name])}, anew)
        numpy.testing.assert_allclose(found["own.seen"], self.x[:160].reshape(160, -1).mean(0, dtype="f8"), rtol=1e-4, atol=1e-5)

    def test_recipe_of_the_training(self):
        """Its checkpoints and logs are left alone, and one epoch is what there is by itself."""
        recipe = 'checkpoint { dir = "runs/here"; every = 2 steps; best = max(valid.ema_accuracy) }; log { jsonl = "runs.jsonl" }; ema = 0.9; stop = early(metric=min(valid.loss), patience=1)'
        self.trained()
        artifact = self.compile(MODEL % recipe, *ON, name="anew.so")
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            said = self.train(artifact, "--init", self.path("w"), "--save", self.path("s"))
        finally:
            os.chdir(here)
        self.assertFalse(os.path.exists(self.path("runs")) or os.path.exists(self.path("runs.jsonl")))
        self.assertIn("10 steps an epoch, 10 in all", said)

    def test_refused(self):
        with open(self.path("plain.ft"), "w") as file:
            file.write("model M(x: f32[B, 3], y: f32[B]) {\n  loss = mean(Linear(1, name=\"l\")(x))\n}\ntrain { batch = 4 }\n")
        self.fails(1, "the model has none", "ftc", self.path("plain.ft"), "--emit=ir", *ON)
        self.fails(1, "say of which, --init W.safetensors", "ftrun", self.compile(MODEL % "", *ON), "--data", self.folder)
        self.fails(1, "running_average", "ftc", self.bad("update s = running_average(s, 1)"), "--emit=ir")

    def bad(self, line):
        with open(self.path("bad.ft"), "w") as file:
            file.write("model M(x: f32[B, 3], y: i32[B]) {\n  state s: [3] = zeros\n  if training { %s }\n  loss = mean(Linear(1, name=\"l\")(x))\n}\ntrain { batch = 4 }\n" % line)
        return self.path("bad.ft")


if __name__ == "__main__":
    support.main()
