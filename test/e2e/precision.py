"""Training in bf16 and fp16 follows PyTorch: the same operands are rounded, and fp16's loss scale moves as
torch.amp.GradScaler moves it.

Two references. *Rounded* is float32 PyTorch in which exactly those values are rounded that ft says it rounds
(docs/language.md); ft differs from it by the order of sums only, and where such a difference falls on the other
side of a rounding, by a place of the narrow type: losses of a small model agree to 3 % of its unit roundoff u
(2^-8 for bf16, 2^-11 for f16), and f32 is twice as far away at least: ft would fail if it did not round. Over
25 steps of the MLP and 8 of the CNN such differences grow with the training: 4 u. *Autocast* is PyTorch's own, which rounds more
(the gradients of weights and biases): 8 u, and so f32."""
import os
import sys

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
from trajectory import Cnn, Mlp, fashion, state_of

BATCH = 64
UNIT = {"bf16": 2.0**-8, "fp16": 2.0**-11}
KIND = {"bf16": torch.bfloat16, "fp16": torch.float16}
torch.manual_seed(7)
torch.set_num_threads(2)


class Round(torch.autograd.Function):
    """To a narrow type and back, and the gradient too."""

    @staticmethod
    def forward(context, x, kind):
        context.kind = kind
        return x.to(kind).float()

    @staticmethod
    def backward(context, gradient):
        return gradient.to(context.kind).float(), None


class RoundForward(torch.autograd.Function):
    """A parameter's narrow copy: its gradient keeps the f32 sums."""

    @staticmethod
    def forward(context, x, kind):
        return x.to(kind).float()

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def rounded(net, kind):
    """Makes the Linear and Conv2d layers of `net` contract rounded operands."""

    def contract(layer):
        def forward(x):
            x, weight, bias = Round.apply(x, kind), RoundForward.apply(layer.weight, kind), layer.bias
            bias = None if bias is None else RoundForward.apply(bias, kind)
            if isinstance(layer, nn.Linear):
                return Round.apply(F.linear(x, weight, bias), kind)
            return Round.apply(F.conv2d(x, weight, bias, layer.stride, layer.padding), kind)

        return forward

    for layer in net.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            layer.forward = contract(layer)
    return net


class Scaler:
    """What torch.amp.GradScaler does, for versions of PyTorch that have it for GPUs only."""

    def __init__(self, scale, interval):
        self.scale_, self.interval, self.good, self.skipped = scale, interval, 0, 0

    def scale(self, loss):
        return loss * self.scale_

    def unscale_(self, optimizer):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        self.finite = all(bool(torch.isfinite(g).all()) for g in grads)
        for g in grads:
            g.mul_(1 / self.scale_)

    def step(self, optimizer):
        if self.finite:
            optimizer.step()
        else:
            self.skipped += 1

    def update(self):
        self.good = self.good + 1 if self.finite else 0
        if not self.finite:
            self.scale_ *= 0.5
        elif self.good == self.interval:
            self.scale_, self.good = self.scale_ * 2, 0

    def get_scale(self):
        return self.scale_


HAS_SCALER = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")


def sgd(parameters, rate):
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def train(net, images, labels, rate, how=None, scaler=None, clip=0, make=torch.optim.Adam, parts=1, norms=None):
    """PyTorch's losses and, with a scaler, the scale of each step; norms: of the gradients, where they are clipped. how: (autocast dtype) or None."""
    optimizer, losses, scales, sum_ = make(net.parameters(), rate), [], [], 0
    for step in range(len(labels) // BATCH):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        image, label = torch.from_numpy(numpy.array(images[batch])).float(), torch.from_numpy(labels[batch].astype(numpy.int64))
        if how:
            with torch.autocast("cpu", dtype=how):
                logits = net(image)
        else:
            logits = net(image)
        loss = F.cross_entropy(logits.float(), label) / parts
        sum_ += loss.item()
        if step % parts == 0:
            optimizer.zero_grad()
        (scaler.scale(loss) if scaler else loss).backward()
        if (step + 1) % parts:
            continue
        if scaler:
            scales.append(scaler.get_scale())
            scaler.unscale_(optimizer)
        if clip:
            norm = nn.utils.clip_grad_norm_(net.parameters(), clip).item()
            if norms is not None:
                norms.append(norm)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        losses.append(sum_)
        sum_ = 0
    return losses, scales


def parting(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b) if numpy.isfinite(y))


FEATURES = """model M(x: f32[B, 24], label: i32[B]) {
  h = relu(Linear(48, name="fc1")(x))
  loss = mean(cross_entropy(Linear(5, name="fc2")(h), label))
}
data D { train = npy("x.npy", "label.npy") }
train { optimizer = %s; precision = %s; %s }
"""


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(24, 48), nn.Linear(48, 5)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class Precision(support.Case):
    def train(self, source, data, *settings, steps, start=None):
        flags = [flag for s in (f"train.batch={BATCH}", *settings) for flag in ("--set", s)]
        if not source.endswith(".ft"):
            source += "\n"
        artifact = self.compile(source, *flags, *(["-D", "drop=0"] if source.endswith("cnn.ft") else []))
        self.said = support.run("ftrun", "train", artifact, "--data", data, "--no-shuffle", "--steps", steps, "--set", "train.log.every=1",
                                "--set", "train.eval.every=0", "--log-jsonl", self.path("log.jsonl"), "--save", self.path("end.safetensors"),
                                *(["--init", start] if start else [])).stdout
        return [line for line in support.read_jsonl(self.path("log.jsonl")) if not line.get("eval")]

    def follow(self, example, make, precision, rate, steps):
        images, labels = fashion(BATCH)
        images, labels = images[: steps * BATCH], labels[: steps * BATCH]
        torch.manual_seed(11)
        net = make()
        start = state_of(net)
        support.write_safetensors(self.path("start.safetensors"), start)

        def fresh():
            other = make()
            other.load_state_dict({k: torch.from_numpy(v) for k, v in start.items()})
            return other

        recipe = ["train.optimizer=sgd", "train.momentum=0.9", f"train.lr={rate}", "train.weight_decay=0", "train.schedule=constant", "train.schedule.warmup=0"]
        lines = self.train(os.path.join(support.EXAMPLES, example), support.FASHION, *recipe, f"train.precision={precision}",
                           steps=steps, start=self.path("start.safetensors"))
        ours = [line["loss"] for line in lines]
        self.assertEqual(len(ours), steps)
        kind, u = KIND[precision], UNIT[precision]
        scaler = Scaler(65536.0, 2000) if precision == "fp16" else None
        theirs, scales = train(rounded(fresh(), kind), images, labels, rate, scaler=scaler, make=sgd)
        single, _ = train(fresh(), images, labels, rate, make=sgd)
        figures = {"rounded": parting(ours, theirs), "f32": parting(ours, single), "f32 from rounded": parting(single, theirs)}
        if precision == "bf16" or HAS_SCALER:
            other = torch.amp.GradScaler("cpu", init_scale=65536.0) if precision == "fp16" else None
            figures["autocast"] = parting(ours, train(fresh(), images, labels, rate, how=kind, scaler=other, make=sgd)[0])
        print(f"{example} {precision}:", ", ".join(f"{k} {v / u:.3f} u" for k, v in figures.items()), flush=True)
        self.assertLess(figures["rounded"], 4 * u)
        self.assertLess(figures["f32"], 8 * u)
        self.assertLess(figures.get("autocast", 0), 8 * u)
        if scaler:
            self.assertEqual([line["loss_scale"] for line in lines], scales)

    def features(self, steps, spike=None):
        random = numpy.random.default_rng(3)
        x = random.standard_normal((steps * BATCH, 24)).astype(numpy.float32)
        label = (x[:, :5].argmax(1)).astype(numpy.int32)
        if spike is not None:
            x[spike * BATCH + 5, 3] = 1e6  # infinite in f16
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("label.npy"), label)
        torch.manual_seed(13)
        net = Small()
        support.write_safetensors(self.path("start.safetensors"), state_of(net))
        return x, label, net

    def scaled(self, steps, spike, initial, interval, clip, parts=1):
        x, label, net = self.features(steps * parts, spike)
        more = f"clip = norm({clip})" if clip else "clip = none"
        # adam makes a step of a gradient of nothing but rounding; parts sum in another order
        ours, make = ("sgd(lr=0.05, momentum=0.9)", sgd) if parts > 1 else ("adam(lr=0.01)", torch.optim.Adam)
        source = FEATURES % (ours, f"fp16(initial={initial}, every={interval})", f"{more}; accumulate = {parts}")
        lines = self.train(source, self.folder, steps=steps, start=self.path("start.safetensors"))
        scaler, norms = Scaler(float(initial), interval), []
        losses, scales = train(rounded(net, torch.float16), x, label, 0.05 if parts > 1 else 0.01, scaler=scaler, clip=clip, make=make, parts=parts, norms=norms)
        self.assertEqual([line["loss_scale"] for line in lines], scales)
        self.assertEqual(lines[-1]["skipped_steps"], scaler.skipped)
        self.assertRegex(self.said, f"loss_scale {scales[-1]:.9g}  skipped_steps {scaler.skipped}")  # the console's last line
        ours = [line["loss"] if line["loss"] is not None else numpy.nan for line in lines]
        usable = [i for i, loss in enumerate(losses) if numpy.isfinite(loss) and numpy.isfinite(ours[i])]
        self.assertGreater(len(usable), steps - 3)
        self.assertLess(parting([ours[i] for i in usable], [losses[i] for i in usable]), 2 * UNIT["fp16"])
        for line, norm in zip(lines, norms):  # unscaled; a step that overflows is skipped and has none
            self.assertEqual(line["grad_norm"] is None, not numpy.isfinite(norm), line)
            if numpy.isfinite(norm):
                self.assertLess(abs(line["grad_norm"] - norm), 20 * UNIT["fp16"] * norm, line)
        end = support.read_safetensors(self.path("end.safetensors"))
        for name, value in state_of(net).items():
            self.assertTrue(numpy.isfinite(end[name]).all())
            off = numpy.abs(end[name] - value)
            self.assertLess(numpy.quantile(off, 0.98), 1e-3, name)
            self.assertLess(off.max(), 0.01, name)  # adam moves an element by lr where its gradient is all rounding
        return lines, losses, scales, scaler, net

    def test_rounds_as_documented(self):
        """Each step's loss by itself: nearer to Rounded than f32 is, by far."""
        for precision, kind in KIND.items():
            x, label, net = self.features(12)
            other = Small()
            other.load_state_dict(net.state_dict())
            scale = "(loss_scale=1)" if precision == "fp16" else ""
            lines = self.train(FEATURES % ("sgd(lr=0.05)", precision + scale, "clip = none"), self.folder, steps=12, start=self.path("start.safetensors"))
            plain = lambda parameters, rate: torch.optim.SGD(parameters, lr=rate)
            theirs, _ = train(rounded(net, kind), x, label, 0.05, make=plain)
            single, _ = train(other, x, label, 0.05, make=plain)
            ours = [line["loss"] for line in lines]
            near, far = parting(ours, theirs), parting(single, theirs)
            print(f"{precision}: rounded {near / UNIT[precision]:.4f} u, f32 {far / UNIT[precision]:.4f} u", flush=True)
            self.assertLess(near, 0.03 * UNIT[precision])
            self.assertGreater(far, 2 * near)

    def test_simulator_follows(self):
        """The GPU's kernels, run by the simulator, against the CPU's: tensor cores, casts, loss scaling with a skipped step."""
        for precision, limit in (("bf16", 0.1 * UNIT["bf16"]), ("fp16", UNIT["fp16"]), ("tf32", 2.0**-10)):
            self.features(6, 2 if precision == "fp16" else None)
            losses = []
            for name, device in (("model.so", "cpu"), ("model.ptx", "sim")):
                artifact = self.compile(FEATURES % ("adam(lr=0.01)", precision, "clip = norm(0.5)"), "--set", f"train.batch={BATCH}", name=name)
                support.run("ftrun", "train", artifact, "--device", device, "--data", self.folder, "--no-shuffle", "--steps", 6, "--set",
                            "train.log.every=1", "--set", "train.eval.every=0", "--log-jsonl", self.path("log.jsonl"), "--init", self.path("start.safetensors"))
                lines = support.read_jsonl(self.path("log.jsonl"))
                losses.append([line["loss"] if line["loss"] is not None else numpy.nan for line in lines if not line.get("eval")])
                if precision == "fp16":
                    self.assertEqual(lines[-1]["skipped_steps"], 1)
            self.assertEqual(len(losses[0]), 6)
            self.assertLess(parting(losses[1], losses[0]), limit, precision)

    def test_injected_overflow(self):
        """Exactly that step is skipped, the scale halves, training goes on as PyTorch's does."""
        lines, losses, scales, scaler, net = self.scaled(30, 11, 1024, 2000, 0)
        self.assertEqual(scaler.skipped, 1)
        self.assertEqual([line["skipped_steps"] for line in lines], [0] * 11 + [1] * 19)
        self.assertEqual(scales, [1024.0] * 12 + [512.0] * 18)

    def test_injected_overflow_in_parts(self):
        """One part of one batch overflows: that whole update is skipped, as with GradScaler over several backwards."""
        for spike in (22, 23):  # the first part, the last
            _, _, scales, scaler, _ = self.scaled(30, spike, 1024, 2000, 0.5, parts=2)
            self.assertEqual(scales, [1024.0] * 12 + [512.0] * 18)
        _, _, scales, scaler, _ = self.scaled(30, None, 2.0**26, 6, 0, parts=3)
        self.assertGreater(scaler.skipped, 1)

    def test_layer_of_its_own(self):
        """A layer in fp16 under another setting has the loss scale too: without, these gradients would be 0."""
        self.features(8)
        source = FEATURES.replace("Linear(48,", "Linear(48, precision=fp16,").replace("loss = mean(", "loss = 1e-7 * mean(")
        for precision in ("f32", "bf16"):
            lines = self.train(source % ("sgd(lr=1e6)", precision, "clip = none"), self.folder, steps=8, start=self.path("start.safetensors"))
            self.assertEqual((lines[-1]["loss_scale"], lines[-1]["skipped_steps"]), (65536, 0))
            own = support.read_safetensors(self.path("end.safetensors"))
            self.train(FEATURES % ("sgd(lr=0.1)", "f32", "clip = none"), self.folder, steps=8, start=self.path("start.safetensors"))
            plain, start = support.read_safetensors(self.path("end.safetensors")), support.read_safetensors(self.path("start.safetensors"))
            moved = numpy.abs(plain["fc1.weight"] - start["fc1.weight"]).max()
            self.assertLess(numpy.abs(own["fc1.weight"] - plain["fc1.weight"]).max(), 0.05 * moved)

    def test_skipped_step_changes_nothing(self):
        self.features(1, 0)
        source = FEATURES % ("adam(lr=0.01)", "fp16", "clip = norm(1.0)")
        self.train(source, self.folder, steps=1, start=self.path("start.safetensors"))
        start, end = (support.read_safetensors(self.path(f"{name}.safetensors")) for name in ("start", "end"))
        for name, value in start.items():
            self.assertTrue((value == end[name]).all(), name)

    def test_states_count_skipped_steps(self):
        """A model's own states belong to forward, which a skipped step has done: PyTorch's running statistics do the same."""
        source = """
model M(x: f32[B, 4]) {
  state seen: [1] = zeros
  update seen = seen + 1
  y = BatchNorm(name="norm")(Linear(3, name="fc")(x))
  loss = mean(square(y - 1))
}
data D { train = npy("x.npy") }
train { batch = 8; steps = 6; optimizer = sgd(lr=0.1); precision = fp16(initial=%s); log { every = 1 }; eval = none }
"""
        numpy.save(self.path("x.npy"), numpy.random.RandomState(2).standard_normal((48, 4)).astype("f4"))
        ends = []
        for scale in ("1e38", "1024"):
            support.run("ftrun", self.compile(source % scale), "--data", self.folder, "--save", self.path("end"), "--no-shuffle",
                        "--log-jsonl", self.path("log"))
            skipped = support.read_jsonl(self.path("log"))[-1]["skipped_steps"]
            self.assertEqual(skipped, 6 if scale == "1e38" else 0)
            ends.append(support.read_safetensors(self.path("end")))
            self.assertEqual(ends[-1]["seen"], 6)
        self.assertTrue((ends[0]["norm.running_mean"] != 0).all())
        self.assertTrue((ends[0]["fc.weight"] != ends[1]["fc.weight"]).any())

    def test_rounded_parameters_are_kept(self):
        """The update writes what products read: the same bits as rounding at the beginning of each step, with averages, parts of a
        batch, a skipped step, on the simulator, from given weights and resumed in the middle."""
        cases = (
            ("adamw(lr=0.01)", "bf16", "ema = 0.9; accumulate = 2", "so", None),
            ("adamw(lr=0.01)", "bf16", "ema = 0.9", "ptx", None),
            ("muon(lr=0.01, weight_decay=0.1) on rank == 2", "bf16", "", "so", None),
            ("adam(lr=0.01)", "fp16", "clip = norm(0.5)", "so", 2),
            ("adam(lr=0.01)", "fp16", "clip = norm(0.5)", "ptx", 2),
        )
        for optimizer, precision, more, kind, spike in cases:
            self.features(12, spike)
            source = (FEATURES % (optimizer, precision, more)).replace("data D {", 'data D { valid = npy("x.npy", "label.npy");')
            logs, ends = [], []
            for name, flags, stops in (("made", ["--disable=narrow"], [6]), ("kept", [], [6]), ("resumed", [], [3, 6])):
                artifact = self.compile(source, "--set", f"train.batch={BATCH}", *flags, name=f"{name}.{kind}")
                with open(artifact, "rb") as file:
                    self.assertEqual(b"place narrow 0 " in file.read(), name == "made")
                for steps in stops:
                    folder = self.path(f"{name}-{optimizer[:4]}-{precision}-{kind}")
                    begin = ["--resume", folder] if steps == 6 and len(stops) > 1 else ["--init", self.path("start.safetensors")]
                    support.run("ftrun", "train", artifact, "--device", "sim" if kind == "ptx" else "cpu", "--data", self.folder, "--no-shuffle",
                                "--steps", steps, "--set", "train.eval.unit=step", "--set", "train.eval.every=2", "--set", "train.log.every=1",
                                "--set", "train.checkpoint.unit=step", "--set", f"train.checkpoint.dir={folder}",
                                "--log-jsonl", self.path(f"{name}.jsonl"), "--save", self.path(f"{name}.safetensors"), *begin)
                lines = support.read_jsonl(self.path(f"{name}.jsonl"))
                logs.append([{key: value for key, value in line.items() if not key.endswith("_per_s")} for line in lines])
                ends.append(support.read_safetensors(self.path(f"{name}.safetensors")))
            self.assertEqual([len(log) for log in logs], [9] * 3, logs)
            for log, end in zip(logs[1:], ends[1:]):
                self.assertEqual(str(log), str(logs[0]))
                for name, value in ends[0].items():
                    self.assertTrue((value == end[name]).all(), name)

    def test_growth_and_backoff(self):
        """A scale that overflows at first and grows soon: the same events as GradScaler's, with clipping too."""
        for clip in (0, 0.5):
            _, _, scales, scaler, _ = self.scaled(40, None, 2.0**26, 6, clip)
            self.assertGreater(scaler.skipped, 2)
            self.assertGreater(max(b / a for a, b in zip(scales, scales[1:])), 1)

    def test_scaler_is_pytorchs(self):
        """The Scaler of this test against torch.amp.GradScaler, where PyTorch has it for CPUs."""
        if not HAS_SCALER:
            self.skipTest("this PyTorch has GradScaler for GPUs only")
        x, label, net = self.features(40, 17)
        other = Small()
        other.load_state_dict(net.state_dict())
        mine = train(rounded(net, torch.float16), x, label, 0.01, scaler=Scaler(2.0**24, 6))
        real = train(rounded(other, torch.float16), x, label, 0.01, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=6))
        self.assertEqual(mine[1], real[1])
        self.assertEqual(str(mine[0]), str(real[0]))

    def test_constant_scale(self):
        self.features(3)
        lines = self.train(FEATURES % ("adam(lr=0.01)", "fp16(loss_scale=128)", "clip = none"), self.folder, "train.loss_scale.every=1", steps=3)
        self.assertEqual([line["loss_scale"] for line in lines], [128.0] * 3)


for example, make, rate, steps in (("fashion_mlp.ft", Mlp, 0.02, 25), ("fashion_cnn.ft", Cnn, 1e-3, 8)):
    for precision in ("bf16", "fp16"):

        def test(self, example=example, make=make, precision=precision, rate=rate, steps=steps):
            self.follow(example, make, precision, rate, steps)

        turn = (make is Mlp) + (precision == "bf16")
        setattr(Precision, f"test_{example.split('.')[0]}_{precision}", support.in_turns(turn, 2)(test))
del test

if __name__ == "__main__":
    support.main()
