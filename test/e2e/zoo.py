"""Kinds of models that no example has (test/e2e/zoo), on the processor and on the simulator, against PyTorch: from the
same initial weights and batches, in float64 there, the losses of the first steps must agree, so every gradient must.
The models are written a second time below, as functions of the weights by ft's names."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

ZOO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zoo")
STEPS, BATCH = 4, 8


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


def batch_norm(w, name, x):
    return F.batch_norm(x, None, None, w[name + ".weight"], w[name + ".bias"], training=True)


def conv(w, name, x, **options):
    return F.conv2d(x, w[name + ".weight"], w.get(name + ".bias"), **options)


def heads(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def attend(q, k, v, causal=False):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -float("inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def vit(w, image, label):
    x = conv(w, "patch", image / 255, stride=4).flatten(2).transpose(1, 2)
    x = torch.cat([w["cls"].expand(len(x), -1, -1), x], 1) + w["pos"]
    for i in range(2):
        at = f"blocks.{i}."
        q, k, v = (heads(part, 4) for part in linear(w, at + "attn.qkv", layer_norm(w, at + "n1", x)).chunk(3, -1))
        x = x + linear(w, at + "attn.proj", attend(q, k, v))
        x = x + linear(w, at + "f2", F.gelu(linear(w, at + "f1", layer_norm(w, at + "n2", x))))
    return F.cross_entropy(linear(w, "head", layer_norm(w, "norm", x)[:, 0]), label, label_smoothing=0.1)


def unet(w, image, mask):
    def double(name, x):
        for i in "12":
            x = F.relu(batch_norm(w, f"{name}.n{i}", conv(w, f"{name}.c{i}", x, padding=1)))
        return x

    a = double("d1", image / 255)
    b = double("d2", F.max_pool2d(a, 2))
    c = double("d3", F.avg_pool2d(b, 2))
    y = double("u2", torch.cat([F.interpolate(c, scale_factor=2), b], 1))
    y = double("u1", torch.cat([F.interpolate(y, scale_factor=2), a], 1))
    return F.binary_cross_entropy_with_logits(conv(w, "out", y)[:, 0], mask)


def lstm(w, sequence, label):
    h = c = torch.zeros(len(label), 16, dtype=sequence.dtype)
    for t in range(12):
        i, f, g, o = (linear(w, "cell.ih", sequence[:, t]) + linear(w, "cell.hh", h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return F.cross_entropy(linear(w, "fc", h), label)


def mobilenet(w, image, label):
    def inverted(name, x, out, t, s=1):
        n = x.shape[1] * t
        y = batch_norm(w, name + ".n1", conv(w, name + ".e", x)).clamp(0, 6)
        y = batch_norm(w, name + ".n2", conv(w, name + ".d", y, stride=s, padding=1, groups=n)).clamp(0, 6)
        gate = linear(w, name + ".se2", F.silu(linear(w, name + ".se1", y.mean((2, 3))))).sigmoid()
        y = batch_norm(w, name + ".n3", conv(w, name + ".p", y * gate[..., None, None]))
        return x + y if s == 1 and x.shape[1] == out else y

    x = conv(w, "stem", F.pad(image / 127.5 - 1, (0, 1, 0, 1)), stride=2)  # "same" puts the odd row below
    x = inverted("b1", F.silu(batch_norm(w, "n0", x)), 8, 2)
    x = conv(w, "g", inverted("b2", x, 12, 3, 2), padding=1, groups=4)
    return F.cross_entropy(linear(w, "fc", x.mean((2, 3))), label)


def vae(w, image):
    x = image.flatten(1) / 255
    h = F.relu(linear(w, "e1", x))
    mu, lv = linear(w, "mu", h), linear(w, "lv", h)
    y = linear(w, "d2", F.relu(linear(w, "d1", mu + (0.5 * lv).exp() * 0.3)))
    reconstruction = F.binary_cross_entropy_with_logits(y, x, reduction="none").sum(1).mean()
    return reconstruction - 0.5 * (1 + lv - mu * mu - lv.exp()).sum(1).mean()


def rms_norm(w, name, x):
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w[name + ".weight"]


def rope(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def llama(w, tokens, targets):
    x = w["emb.weight"][tokens]
    for i in range(2):
        at = f"layers.{i}."
        n = rms_norm(w, at + "n1", x)
        q, k = rope(heads(linear(w, at + "q", n), 4)), rope(heads(linear(w, at + "k", n), 2))
        k, v = (part.repeat_interleave(2, 1) for part in (k, heads(linear(w, at + "v", n), 2)))
        x = x + linear(w, at + "o", attend(q, k, v, causal=True))
        n = rms_norm(w, at + "n2", x)
        x = x + linear(w, at + "mlp.down_proj", F.silu(linear(w, at + "mlp.gate_proj", n)) * linear(w, at + "mlp.up_proj", n))
    return F.cross_entropy(linear(w, "head", rms_norm(w, "norm", x)).flatten(0, 1), targets.flatten(), ignore_index=0)


def convnext(w, image, label):
    x = conv(w, "s", image / 255, stride=2)
    x = F.group_norm(x, 2, w["gn.weight"], w["gn.bias"])
    for i in range(2):
        at = f"n.{i}."
        y = conv(w, at + "dw", x, padding=3, groups=8).permute(0, 2, 3, 1)
        y = linear(w, at + "p2", F.gelu(linear(w, at + "p1", F.layer_norm(y, (8,)))))
        x = x + (y * w[at + "gamma"]).permute(0, 3, 1, 2)
    return F.cross_entropy(linear(w, "fc", x.mean((2, 3))), label)


def contrastive(w, image, label):
    f = linear(w, "proj", conv(w, "c", image / 255, stride=2).tanh().flatten(1))
    z = f * (f.pow(2).sum(-1, keepdim=True) + 1e-6).rsqrt()
    s = (z @ z.T / 0.1).masked_fill(torch.eye(len(z)).bool(), -30)
    same = (label[:, None] == label).to(s.dtype)
    return -((s.log_softmax(-1) * same * 0.01).sum(1) / same.sum(1)).mean()


def pixels(w, image, mask):
    return F.cross_entropy(conv(w, "b", conv(w, "a", image / 255, padding=1).tanh(), padding=1), mask.long())


def diffusion(w, image, mask):
    def block(name, groups, x, scale=None, shift=None):
        return conv(w, name, F.silu(F.group_norm(x, groups, scale, shift)), padding=1)

    x = conv(w, "in", image / 255, padding=1)
    h = block("c2", 4, block("c1", 2, x, w["n1.weight"], w["n1.bias"]))
    return F.mse_loss(block("out", 2, x + h)[:, 0], mask)


def stems(w, image, label):
    x = F.gelu(conv(w, "stem", image / 255, stride=2)).flatten(2).transpose(1, 2)
    x = F.gelu(linear(w, "f", layer_norm(w, "n1", x)))
    x = x.reshape(-1, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)  # windows of 4 x 4
    x = layer_norm(w, "n2", x).reshape(-1, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, 8)
    weight = F.softplus(linear(w, "gate", x)).softmax(1)
    return F.cross_entropy(linear(w, "fc", (weight * x).sum(1)), label)


def retention(w, sequence, label):
    t = torch.arange(12, dtype=sequence.dtype)
    decay = (-0.1 * (t[:, None] - t)).exp().tril()
    v = decay @ heads(linear(w, "v", sequence), 4)
    y = F.layer_norm(v, v.shape[-1:]).transpose(1, 2).flatten(2) * F.silu(linear(w, "gate", sequence))
    y = layer_norm(w, "n", y.tanh().reshape(-1, 12, 4, 4).transpose(2, 3).flatten(2))
    return F.cross_entropy(linear(w, "fc", y[:, 11]), label)


def wavenet(w, sequence, label):
    x, total = linear(w, "in", sequence).transpose(1, 2), 0
    for i in range(3):
        at = f"g.{i}.l."
        y = conv(w, at + "c", F.pad(x, (2**i, 0))[:, :, None], dilation=(1, 2**i))[:, :, 0]
        y = y[:, :4].tanh() * y[:, 4:].sigmoid()
        z = linear(w, at + "mix", y.transpose(1, 2)).transpose(1, 2)
        x, total = x + z, total + z
    return F.cross_entropy(linear(w, "fc", layer_norm(w, "n", F.gelu(total).transpose(1, 2))[:, 11]), label)


def residual(w, sequence, label):
    h = linear(w, "a", sequence[:, 0])
    h = h + linear(w, "b", linear(w, "c", h).tanh())
    return F.cross_entropy(linear(w, "fc", h), label)


class Zoo(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(0)
        self.data = {
            "img": random.integers(0, 256, (64, 3, 16, 16), dtype=numpy.uint8),
            "lab": random.integers(0, 10, 64, dtype=numpy.int32),
            "seq": random.standard_normal((64, 12, 8), dtype=numpy.float32),
            "mask": random.integers(0, 2, (64, 16, 16), dtype=numpy.uint8),
            "tok": random.integers(0, 50, (64, 24), dtype=numpy.int32),
            "tgt": random.integers(0, 50, (64, 24), dtype=numpy.int32),
        }
        for name, value in self.data.items():
            numpy.save(self.path(name + ".npy"), value)

    def losses(self, name, kind, weights):
        artifact, log = self.compile(os.path.join(ZOO, name + ".ft"), name="model." + kind), self.path(kind + ".jsonl")
        start = ["--save", weights, "--steps", 0] if not os.path.exists(weights) else None
        device = ["--device", "sim"] if kind == "ptx" else []
        if start:
            support.run("ftrun", artifact, "--data", self.folder, *start, *device)
        support.run("ftrun", artifact, "--data", self.folder, "--init", weights, "--steps", STEPS, "--log-jsonl", log, "--set",
                    "train.eval.every=0", *device)
        return [line["loss"] for line in support.read_jsonl(log) if not line.get("eval")]

    def trained(self, name, weights, model, inputs, lr, clip=None, parts=1):
        w = {key: torch.tensor(value).double().requires_grad_() for key, value in support.read_safetensors(weights).items()
             if "running_" not in key}
        optimizer = torch.optim.SGD(w.values(), lr=lr, momentum=0.9)
        data = [torch.tensor(self.data[key]) for key in inputs]
        data = [x.long() if x.dtype == torch.int32 else x.double() for x in data]
        losses, size = [], BATCH * parts
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(w, *(x[step * size : (step + 1) * size] for x in data))
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(list(w.values()), clip)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def agrees(self, model, inputs, lr=0.02, **options):
        name, weights = model.__name__, self.path("w.safetensors")
        ours = {kind: self.losses(name, kind, weights) for kind in ("so", "ptx")}
        theirs = self.trained(name, weights, model, inputs, lr, **options)
        self.assertGreater(max(theirs) - min(theirs), 1e-4, "the losses hardly move: this would show nothing")
        for kind, losses in ours.items():
            self.assertEqual(len(losses), STEPS)
            worst = max(abs(a - b) / abs(b) for a, b in zip(losses, theirs))
            print(f"{name}.{kind}: {worst:.1e}", file=sys.stderr)
            self.assertLess(worst, 2e-5, (losses, theirs))

    def test_vit(self):
        self.agrees(vit, ("img", "lab"))

    def test_unet(self):
        self.agrees(unet, ("img", "mask"))

    def test_lstm(self):
        self.agrees(lstm, ("seq", "lab"), clip=1.0)

    def test_mobilenet(self):
        self.agrees(mobilenet, ("img", "lab"))

    def test_vae(self):
        self.agrees(vae, ("img",), lr=0.0001)

    def test_llama(self):
        self.agrees(llama, ("tok", "tgt"), parts=2)

    def test_convnext(self):
        self.agrees(convnext, ("img", "lab"))

    def test_contrastive(self):
        self.agrees(contrastive, ("img", "lab"))

    def test_pixels(self):
        self.agrees(pixels, ("img", "mask"))

    def test_diffusion(self):
        self.agrees(diffusion, ("img", "mask"))

    def test_stems(self):
        self.agrees(stems, ("img", "lab"))

    def test_retention(self):
        self.agrees(retention, ("seq", "lab"))

    def test_wavenet(self):
        self.agrees(wavenet, ("seq", "lab"))

    def test_residual(self):
        self.agrees(residual, ("seq", "lab"))

    def test_memory(self):
        artifact = self.compile(os.path.join(ZOO, "memory.ft"))
        start, end = self.path("start.safetensors"), self.path("end.safetensors")
        support.run("ftrun", artifact, "--data", self.folder, "--save", start, "--steps", 0)
        support.run("ftrun", artifact, "--data", self.folder, "--init", start, "--save", end, "--steps", STEPS)
        w, h = support.read_safetensors(start), numpy.ones((1, 8))
        for _ in range(STEPS):
            h = h + numpy.tanh(h @ w["v"].T) @ w["w"].T
        numpy.testing.assert_allclose(support.read_safetensors(end)["h"], h, rtol=1e-5, atol=1e-5)

    def test_residual_of_one_sample(self):
        artifact = self.compile(os.path.join(ZOO, "residual.ft"), "--set", "train.batch=1")
        weights, sample, result = self.path("w.safetensors"), self.path("x.npy"), self.path("h.npy")
        support.run("ftrun", artifact, "--data", self.folder, "--save", weights, "--steps", 0)
        numpy.save(sample, self.data["seq"][:1])
        support.run("ftrun", "predict", artifact, "--weights", weights, "--input", f"seq={sample}", "--output", result)
        w = {key: torch.tensor(value).double() for key, value in support.read_safetensors(weights).items()}
        h = linear(w, "a", torch.tensor(self.data["seq"][:1, 0]).double())
        h = h + linear(w, "b", linear(w, "c", h).tanh())
        self.assertLess(numpy.abs(numpy.load(result) - h.numpy()).max(), 2e-6)


if __name__ == "__main__":
    support.main()
