"""Layers with states that are applied several times in a step: each application reads what those before have made of a state, as modules of
PyTorch do. Batch norms, a spectral norm and a state of the model's own against PyTorch in float64: trained, in parts, on ranks, of averages,
recomputed, on the simulator, and computed anew (`statistics = true`) against update_bn."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import update_bn

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
block Spectral(o: int)(x: [B, D]) {
  param weight: [o, D] = normal(0.5)
  state u: [o] = ones
  v = transpose(stop_gradient(weight)) @ u
  v = v / sqrt(sum(v ** 2))
  next = stop_gradient(weight) @ v
  next = next / sqrt(sum(next ** 2))
  update u = next
  return x @ transpose(weight / sum(next * (weight @ v)))
}
block Encoder()(x: [B, 6]) {
  state seen: [] = zeros
  x = Linear(5, name="fc")(x)
  update seen = 0.5 * seen + mean(x)                 // no gradient flows to the application before
  x = tanh(BatchNorm(name="bn")(x)) + 0.1 * seen
  return Spectral(4, name="sn")(x)
}
model M(a: f32[B, 6], b: f32[B, 6]) {
  encoder = Encoder(name="encoder")
  ya = encoder(a)
  yb = encoder(b)
  z = stop_gradient(encoder)(2 * a + b)
  loss = mean((ya - 2 * yb + 0.5 * z + 1) ** 2)
  output ya
}
data D { train = npy("a.npy", "b.npy"); valid = npy("a.npy", "b.npy"); shuffle = false }
train { batch = 8; steps = 4; seed = 5; optimizer = sgd(lr=0.05); %s }
"""
SAMPLES = 32


class Net(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.fc, self.bn = torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5)
        self.weight = torch.nn.Parameter(torch.zeros(4, 5))
        self.register_buffer("u", torch.ones(4))
        self.register_buffer("seen", torch.zeros(()))
        self.double()
        self.load_state_dict({k.replace("encoder.", "").replace("sn.", ""): torch.tensor(v).double() for k, v in weights.items()}, strict=False)

    def encode(self, x):
        before, x = self.seen, self.fc(x)
        with torch.no_grad():
            v = F.normalize(self.weight.T @ self.u, dim=0)
            u = F.normalize(self.weight @ v, dim=0)
            if self.training:
                self.seen, self.u = 0.5 * self.seen + x.mean(), u
        x = torch.tanh(self.bn(x)) + 0.1 * before
        return x @ (self.weight / (u @ self.weight @ v)).T

    def detached(self, x):
        """encode without gradients for its parameters."""
        parameters = list(self.parameters())
        for p in parameters:
            p.requires_grad_(False)
        y = self.encode(x)
        for p in parameters:
            p.requires_grad_(True)
        return y

    def forward(self, batch):
        a, b = batch[:, :6], batch[:, 6:]
        return ((self.encode(a) - 2 * self.encode(b) + 0.5 * self.detached(2 * a + b) + 1) ** 2).mean()


class AppliedAgain(support.Case):
    def setUp(self):
        super().setUp()
        self.data = numpy.random.default_rng(4).normal(0.3, 1, (SAMPLES, 12)).astype("f4")
        numpy.save(self.path("a.npy"), self.data[:, :6])
        numpy.save(self.path("b.npy"), self.data[:, 6:])
        self.train(self.compile(MODEL % ""), "--steps", 0, "--save", self.path("start"))
        self.start = support.read_safetensors(self.path("start"))

    def train(self, artifact, *flags):
        return support.run("ftrun", artifact, "--data", self.folder, *flags).stdout

    def trained(self, recipe, *flags, static=(), name="model.so"):
        artifact = self.compile(MODEL % recipe, *static, name=name)
        self.train(artifact, "--init", self.path("start"), "--save", self.path("end"), "--log-jsonl", self.path("log"), "--set", "train.log.every=1", *flags)
        self.lines = support.read_jsonl(self.path("log"))
        return support.read_safetensors(self.path("end"))

    def reference(self, parts=1):
        net = Net(self.start)
        optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05), []
        for batch in torch.tensor(self.data).double().split(8):
            optimizer.zero_grad()
            losses.append(0)
            u = net.u
            for part in batch.split(8 // parts):
                net.u = u  # what does not depend on the batch is made once a step
                loss = net(part) / parts
                loss.backward()
                losses[-1] += float(loss)
            optimizer.step()
        net.eval()
        with torch.no_grad():
            losses.append(float(net(torch.tensor(self.data).double())))
        return net, losses

    def reference_of_ranks(self):
        """Each has the states of its own samples; afterwards there are their means."""
        net = Net(self.start)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for batch in torch.tensor(self.data).double().split(8):
            optimizer.zero_grad()
            before, after = {k: v.clone() for k, v in net.named_buffers()}, []
            for part in batch.split(4):
                net.load_state_dict(before, strict=False)
                (net(part) / 2).backward()
                after.append({k: v.clone() for k, v in net.named_buffers()})
            net.load_state_dict({k: (v + after[1][k]) / 2 if v.is_floating_point() else v for k, v in after[0].items()}, strict=False)
            optimizer.step()
        return net

    def check(self, found, net, losses=None):
        for name, value in found.items():
            expected = {**dict(net.named_parameters()), **dict(net.named_buffers())}[name.replace("encoder.", "").replace("sn.", "")].detach().numpy()
            numpy.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5, err_msg=name)
        if losses:
            numpy.testing.assert_allclose([line["loss"] for line in self.lines if "loss" in line], losses, rtol=1e-4)

    def test_trained(self):
        net, losses = self.reference()
        self.assertGreater(numpy.abs(self.start["encoder.bn.running_mean"] - net.bn.running_mean.numpy()).max(), 0.05)
        for recipe, static in (("", ()), ("", ("--disable=fuse",)), ("recompute = block", ())):
            self.check(self.trained(recipe, static=static), net, losses)

    def test_parts(self):
        """Running statistics see every micro-batch, one after the other."""
        net, losses = self.reference(parts=2)
        self.check(self.trained("accumulate = 2", static=("--set", "train.batch=4")), net, losses)

    def test_ranks(self):
        flags = ("--set", "train.batch=4", "--set", "distributed.data=2")
        self.check(self.trained("", "--ranks", 2, static=flags), self.reference_of_ranks())
        net, losses = self.reference()
        self.check(self.trained("", "--ranks", 2, static=(*flags, "--set", "distributed.sync_batch_norm=true")), net, losses)

    def test_simulator(self):
        net, losses = self.reference()
        self.check(self.trained("", "--device", "sim", name="model.ptx"), net, losses)

    def test_average(self):
        """The states of an average are its own, and are as far."""
        average = MODEL.replace('encoder = Encoder(name="encoder")', 'encoder = average(Encoder(name="encoder"), decay=1)').replace("stop_gradient(encoder)", "encoder")
        plain = self.trained("lr = 0.0")
        self.train(self.compile((average % "lr = 0.0").replace("+ 1) ** 2)", "+ 1) ** 2) + 0 * mean(Linear(1, name=\"live\")(a))")), "--init", self.path("start"),
                   "--init-missing", "keep", "--save", self.path("averaged"))
        averaged = support.read_safetensors(self.path("averaged"))
        for name in ("encoder.bn.running_mean", "encoder.bn.running_var", "encoder.sn.u", "encoder.seen"):
            numpy.testing.assert_allclose(averaged[name + ".average"], plain[name], rtol=1e-5, err_msg=name)

    def test_statistics(self):
        """Every application counts as a batch of update_bn's does; other states stay."""
        found = self.trained("", static=("--set", "train.statistics=true"))
        net = Net(self.start)
        update_bn(torch.tensor(self.data).double().split(8), net)
        net.u, net.seen = torch.ones(4).double(), torch.zeros(()).double()
        self.check(found, net)

    def test_once(self):
        """Within one application a state has one update."""
        source = (MODEL % "").replace("update seen = 0.5 * seen + mean(x) ", "update seen = seen + 1\n  update seen = seen + 2")
        with open(self.path("m.ft"), "w") as file:
            file.write(source)
        done = support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"), check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("state 'encoder.seen' is updated twice in one step", done.stderr)


if __name__ == "__main__":
    support.main()
