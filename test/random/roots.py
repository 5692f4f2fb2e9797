"""Losses, metrics, outputs and the recipe of random programs."""
import random

from operations import QUANTISERS
from values import Reject

RATE = 0.05  # of plain sgd


class Roots:
    def scalar(self, x):
        """One number made of x that counts: weighted by position, since plain means of norms are constant."""
        if x.rank and self.chance(0.85):
            weight = self.leaf("param", "f32", [1 if i == x.batch or self.chance(0.2) else n for i, n in enumerate(x.shape)])
            x = self.binary("mul", x, weight)
        return self.add("mean", [x], None, "reduce", keep=False)

    def classes(self):
        x = self.pick()
        if x.rank < 2 or x.shape[-1] < 2 or x.batch == x.rank - 1 or (x.batch not in (None, 0)):
            raise Reject
        if x.batch is None and x.shape[0] != self.program.batch:
            raise Reject
        target = self.input("i32", x.shape[1:-1], scale=x.shape[-1])
        more = {}
        if self.chance(0.3):
            more["ignore"] = self.random.randint(0, x.shape[-1] - 1)
        if self.chance(0.3):
            more["smoothing"] = 0.1
        if self.chance(0.5):
            return self.add("cross_entropy_mean", [x, target], None, "reduce", keep=False, **more)
        more.pop("ignore", None)
        return self.scalar(self.add("cross_entropy", [x, target], x.batch, "reduce", **more))

    def weighted(self):
        x = self.pick()
        if x.rank < 1:
            raise Reject
        weight = self.input("f32", x.shape[1:], positive=True) if x.shape[0] == self.program.batch and x.batch in (None, 0) else None
        if weight is None:
            raise Reject
        weight = self.add("f32", [self.add("above", [weight], weight.batch, "point", keep=False, value=0.5)], weight.batch, "point", keep=False)
        return self.add("weighted_mean", [x, weight], None, "reduce", keep=False)

    def finish(self):
        p, r = self.program, self.random
        used = {n for s in p.statements for n in s.args} | set(p.updates.values())
        sinks = [v for v in self.values if v.name not in used and v.is_float and p.leaf(v.name) is None]
        r.shuffle(sinks)
        for special, chance in ((self.classes, 0.3), (self.weighted, 0.12), *([(self.weighted_loss, 0.4)] if self.has_wider else [])):
            made = self.attempt(special) if self.chance(chance) else None
            if made:
                p.loss.append(made.name)
        if p.samplewise and p.loss:
            sinks = []  # means of several weights do not add up over parts of a batch
        for x in sinks[:4]:
            made = self.attempt(lambda x=x: self.scalar(x))
            if made:
                p.loss.append(made.name)
        while not p.loss:
            made = self.attempt(lambda: self.scalar(self.pick()))
            if made:
                p.loss.append(made.name)
        for x in r.sample(self.values, min(2, len(self.values))):
            if self.chance(0.4) and p.leaf(x.name) is None and x.rank and x.name not in p.outputs:
                p.outputs.append(x.name)
        indices = [s.name for s in p.statements if s.op in ("argmax", "argmin")]  # no loss is made of them
        p.outputs += [v.name for v in self.values if v.name in indices and v.rank and v.name not in p.outputs and v.name not in used]
        if self.chance(0.4):
            made = self.attempt(lambda: self.add("mean", [self.pick()], None, "reduce", keep=False))
            if made:
                p.metrics.append(made.name)
        if not any(i.kind == "input" for i in p.leaves):
            self.input("f32", [1])
        if not any(i.kind == "param" for i in p.leaves):
            made = None
            while not made:
                made = self.attempt(lambda: self.scalar(self.binary("mul", self.pick(), self.leaf("param", "f32", [1]))))
            p.loss.append(made.name)

    def recipe(self):
        r, s = self.random, self.program.settings
        s["optimizer"] = r.choice(["sgd(lr=0.05)", "sgd(lr=0.05)", "sgd(lr=0.05, momentum=0.9)", "sgd(lr=0.05, momentum=0.9, nesterov=true)",
                                   "adam(lr=0.01)", "adamw(lr=0.01, weight_decay=0.1)", "lion(lr=0.01)", "adagrad(lr=0.05)", "rmsprop(lr=0.01)",
                                   "rmsprop(lr=0.01, momentum=0.5, centered=true)", "adamw(lr=0.01, weight_decay=0.1 on rank >= 2)"])
        matrices = [i for i in self.program.leaves if i.kind == "param" and len(i.shape) == 2]
        if matrices and self.chance(0.06):
            s["optimizer"] = "muon(lr=0.02)"
        if self.chance(0.2):
            s["clip"] = r.choice(["norm(0.1)", "norm(1.0)", "value(0.01)"])
        if self.chance(0.1):
            s["ema"] = "0.9"
        if self.chance(0.2):
            s["schedule"] = r.choice(["cosine(warmup=2, final=0.1)", "linear(warmup=1)", "exponential(every=10, gamma=0.5)", "step(every=2, gamma=0.5)"])
        if self.chance(0.2):
            s["recompute"] = r.choice(["pointwise", "block", "block"])
            n = len(self.program.statements)
            first = r.randint(0, n - 1)
            self.program.regions = [(first, r.randint(first, n - 1))]
        x = r.random() * (0.3 if min(self.sizes) == 8 else 1)  # rows of 16 bytes, as tensor cores want them
        if self.cores:
            x = r.choice([0, 0, 0.15, 0.15, 0.21, 0.24])
        s["precision"] = "bf16" if x < 0.14 else "fp16" if x < 0.2 else "tf32" if x < 0.23 else "bf16(parameters=bf16, rounding=nearest)" if x < 0.25 else "f32"
        if "parameters" in s["precision"]:
            s.pop("ema", None)
        self.parts()

    def parts(self):
        """Drawn apart, so that the programs stay what they were before there were parts."""
        r, s = random.Random(self.program.seed * 23 + 11), self.program.settings
        if r.random() < (0.5 if self.program.samplewise else 0.1):
            s["accumulate"] = r.choice([2, 2, 3])
            if r.random() < 0.6:  # PyTorch's gradients say what the parameters are then
                s["optimizer"] = f"sgd(lr={RATE})"
                for key in ("clip", "schedule"):
                    s.pop(key, None)
        params = [i.name for i in self.program.leaves if i.kind == "param"]
        self.rules(random.Random(self.program.seed * 29 + 13))
        if len(params) > 1 and r.random() < 0.12:
            s["freeze"] = "(%s)" % ", ".join(f'"{name}"' for name in sorted(r.sample(params, r.randint(1, len(params) - 1))))

    def rules(self, r):
        """What changes the weights by more than their gradient, of few programs; drawn apart, too."""
        s = self.program.settings
        rule = r.random()
        if rule < 0.05:
            s["sharpness"] = r.choice(["sam(rho=0.05)", "asam(rho=0.2)"])
        elif rule < 0.1:
            s["prune"] = r.choice(["magnitude(sparsity=0.4, begin=0, end=3, every=1)", "movement(sparsity=0.4, begin=0, end=2, every=1)", "gradient(sparsity=0.5, begin=0, end=2, every=1)", "zeros"])
        if any(statement.op in QUANTISERS for statement in self.program.statements) and random.Random(self.program.seed * 37 + 19).random() < 0.4:
            s["quantize"] = r.choice(["after(1 step)", "after(0.02)"])  # of 100 steps, see random_case.h
