"""What people combine every day, in random programs (wider_operations.py): layers with rounded weights and inputs, learnt scales, 8-bit floats
that are rounded to, weights that move with their elements, losses of rows, rates of groups, metrics that are tables or read twice. Drawn of a
share of the seeds, by random numbers that the other programs do not see."""
import math
import random

from values import Reject

MOVES = ["permute", "transpose", "reshape", "slice", "slice", "pad", "concat", "concat", "stack", "unsqueeze", "squeeze", "broadcast", "rearrange", "flatten"]
MADE = ("weight_scale", "input.max_abs", "input_factor")


class Wider:
    WIDER = [("quantised_layer", 12), ("quantised_value", 6), ("weighted_moves", 12), ("loss", 10), ("projected", 3)]

    def wider(self):
        names, weights = zip(*self.WIDER)
        return getattr(self, "wider_" + self.random.choices(names, weights)[0])()

    def wider_loss(self):
        return self.further_loss_of_rows()

    # ── rounded ──
    def state_or_param(self, name, end, shape, scale):
        is_state = end in MADE
        return self.leaf("state" if is_state else "param", "f32", shape, name=f"{name}.{end}", hidden=True, scale=scale, positive=is_state)

    def wider_quantised_layer(self):
        """Mostly of Linear's kind."""
        r, x = self.random, self.pick()
        is_image = self.chance(0.3)
        if is_image:
            x = self.image(x)
            kernel, stride, padding, dilation = self.window(x, True)
            c = x.shape[1]
            groups = r.choice([1, 1, c])
            out, shape = groups * r.choice([1, 2, 3]), None
            attrs = dict(kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
            shape, features = [out, c // groups, *kernel], c
        else:
            if x.rank < 2 or x.batch == x.rank - 1:
                raise Reject
            attrs, out, features = {}, self.size(), x.shape[-1]
            shape = [out, features]
        bits = r.choice([8, 8, 4, 3])
        attrs.update(out=out, bits=bits, input_bits=r.choice([8, 8, 4, 0]), signed_input=self.chance(0.8), momentum=r.choice([0.01, 0.25]), bias=self.chance(0.6))
        if not is_image and self.chance(0.3):
            attrs["group"] = r.choice([d for d in range(1, features + 1) if features % d == 0])
        elif self.chance(0.25):
            attrs["per_tensor"] = True
        if not is_image and attrs["input_bits"] and self.chance(0.3):
            attrs.update(dynamic=True, signed_input=True)
        for flag in ("stored_scale", "input_factor"):
            if self.chance(0.25):
                attrs[flag] = True
        return self.quantised(x, "QuantConv2d" if is_image else "QuantLinear", shape, features, attrs)

    def quantised(self, x, which, shape, features, attrs):
        if self.program.samplewise and attrs["input_bits"] and not attrs.get("dynamic"):
            raise Reject  # a range is that of each part of a batch
        name, out = self.name("f"), attrs["out"]
        size = 1.2 / math.sqrt(math.prod(shape[1:]))
        shapes = {"weight": (shape, size), **({"bias": ([out], 1.0)} if attrs["bias"] else {})}
        if attrs.get("stored_scale"):
            scales = [out, features // attrs["group"]] if "group" in attrs else [1 if attrs.get("per_tensor") else out]
            shapes["weight_scale"] = (scales, size / 2 ** (attrs["bits"] - 1))
        if attrs.get("input_factor"):
            shapes["input_factor"] = ([features], 1.0)
        if attrs["input_bits"] and not attrs.get("dynamic"):
            shapes["input.max_abs"] = ([1], 1.0)
        leaves = [self.state_or_param(name, end, *of) for end, of in shapes.items()]
        return self.add(which, [x, *leaves], x.batch, "product", name=name, has=list(shapes), **attrs)

    def wider_quantised_value(self):
        r, x = self.random, self.pick()
        choice = r.choice(["learnt", "learnt", "float8", "float8", "rows", "plain"])
        how = {"bits": r.choice([8, 4, 4, 3]), "signed": self.chance(0.8)}
        if choice == "learnt":
            axes = [i for i in x.free()]
            axis = r.choice(axes) if axes and self.chance(0.5) else None
            scale = self.leaf("param", "f32", [1] if axis is None else [x.shape[axis]], scale=r.choice([0.25, 0.5]))
            return self.add("fake_quant_learnt", [x, scale], x.batch, "point", **how, **({} if axis is None else {"axis": axis if self.chance(0.7) else axis - x.rank}))
        if choice == "float8":
            scale = r.choice([1, 4, 0.5, 600, *([] if self.program.samplewise else [None, None])])
            return self.add("fake_float8", [x], x.batch, "point", format=r.choice(["e4m3", "e5m2"]), scale=scale)
        if choice == "rows":
            if not x.rank or x.batch == x.rank - 1:
                raise Reject
            return self.add("fake_quant_rows", [x], x.batch, "point", bits=how["bits"])
        return self.add("fake_quant", [x], x.batch, "point", scale=r.choice([0.125, 0.03, 0.4]), **how)

    # ── weights ──
    def weight_for(self, x):
        """(what `weighted` is given, its numbers): of each sample, of each element, or of the places of a sample."""
        r = self.random
        if not x.rank or x.batch not in (None, 0) or (x.batch is None and x.shape[0] != self.program.batch):
            raise Reject
        if self.program.samplewise and x.batch is None:
            raise Reject
        shape = x.shape[1:] if self.chance(0.5) else [1 if self.chance(0.5) else n for n in x.shape[1:]]
        w = self.input("f32", shape, positive=True)
        if self.chance(0.5):
            return w
        return self.add("above", [w], w.batch, "point", keep=False, value=r.choice([0.4, 0.5, 0.7]))

    def with_it(self, x, w, before):
        """w, behind the statements that were added since: x came of the value that had it."""
        other = {}
        for s in self.program.statements[before:]:
            if not any(a in other for a in s.args) and not other:
                other[s.args[0]] = w
            if any(a in other for a in s.args) and (s.op in ("concat", "stack") or len(s.args) == 1):
                args = [other[a] if a in other else self.add("ones_like", [self.of_name(a)], None, keep=False, value=0) for a in s.args]
                attrs = dict(s.attrs, value=1.0) if s.op == "pad" else s.attrs
                other[s.name] = self.add(s.op, args, x.batch if s.name == x.name else None, keep=False, **attrs)
        if x.name not in other:
            raise Reject
        return other[x.name]

    def of_name(self, name):
        found = next((v for v in self.values if v.name == name), None)
        if not found:
            raise Reject
        return found

    def moved_with(self, x, w):
        """(x, w) behind a move, or something element by element, which leaves the weight as it is."""
        r, before = self.random, len(self.program.statements)
        if self.chance(0.3):
            y = self.add(r.choice(["tanh", "sigmoid", "square", "relu", "gelu"]), [x], x.batch, "expensive", keep=False)
            if self.chance(0.4):
                other = self.leaf("param", "f32", [n if i != y.batch and self.chance(0.6) else 1 for i, n in enumerate(y.shape)])
                y = self.add(r.choice(["mul", "add"]), [y, other], y.batch, "point", keep=False)
            return y, w
        y = getattr(self, "move_" + r.choice(MOVES))(x)
        return y, self.with_it(y, w, before)

    def weighted_pair(self):
        x = self.pick()
        w = self.weight_for(x)
        x = self.add("weighted", [x, w], x.batch, "point", keep=False)
        w = self.add("spread_like", [w, x], x.batch, "point", keep=False)
        for _ in range(self.random.choice([1, 2, 2, 3])):
            mark = len(self.values)
            made = self.attempt(lambda x=x, w=w: self.moved_with(x, w))
            del self.values[mark:]  # nobody else reads what has a weight
            x, w = made or (x, w)
        return x, w

    def wider_weighted_moves(self):
        """A number for each of some places, made of what counts."""
        x, w = self.weighted_pair()
        if not x.free():
            raise Reject
        axes, keep = self.axes_of(x), self.chance(0.5)
        return self.add("reduce_weighted", [x, w], self.without(x, axes, keep), "reduce", how=self.random.choice(["sum", "mean", "mean", "var", "plain_var", "max", "min"]), axis=axes, keepdims=keep)

    def weighted_loss(self):
        """The mean of what has a weight."""
        x, w = self.weighted_pair()
        return self.add("reduce_weighted", [x, w], None, "reduce", keep=False, how="mean")

    # ── distillation ──
    def wider_projected(self):
        x = self.pick()
        x = self.image(x) if self.chance(0.3) else x
        if x.rank < 2 or (x.rank != 4 and x.batch == x.rank - 1):
            raise Reject
        axis = 1 if x.rank == 4 else x.rank - 1
        fits = [v for v in self.floats() if v.rank == x.rank and v.batch == x.batch and all(n == m for i, (n, m) in enumerate(zip(v.shape, x.shape)) if i != axis)]
        teacher = self.random.choice(fits)
        if teacher.name == x.name:
            teacher = self.add("sin", [x], x.batch, "expensive")
        name, out, features = self.name("f"), teacher.shape[axis], x.shape[axis]
        weight = self.leaf("param", "f32", [out, features, *([1, 1] if x.rank == 4 else [])], name=f"{name}.projection.weight", hidden=True, scale=1.2 / math.sqrt(features))
        bias = self.leaf("param", "f32", [out], name=f"{name}.projection.bias", hidden=True)
        return self.add("DistillFeatures", [x, teacher, weight, bias], x.batch, "expensive", name=name)

    # ── metrics, recipe ──
    def wider_metric(self):
        r, x = self.random, self.pick()
        choice = r.choice(["r2", "correlation", "confusion", "topk", "row"])
        if x.rank < 1 or x.batch not in (None, 0) or x.shape[0] != self.program.batch or (self.program.samplewise and x.batch is None):
            raise Reject
        if choice in ("r2", "correlation"):
            target = self.input("f32", x.shape[1:])
            return self.add(choice, [x, target], None, "reduce", keep=False)
        if x.rank < 2 or x.shape[-1] < 2:
            raise Reject
        target = self.input("i32", x.shape[1:-1], scale=x.shape[-1])
        if choice == "topk":
            right = self.add("topk_correct", [x, target], x.batch, "reduce", keep=False, k=r.randint(1, x.shape[-1]))
            return self.add("mean_of", [right], None, "reduce", keep=False)
        return self.add("confusion", [x, target], None, "reduce", keep=False)

    def wider_recipe(self):
        """Behind all else, by a random number of its own."""
        r, s = random.Random(self.program.seed * 47 + 31), self.program.settings
        self.random = r
        if self.chance(0.4):
            made = self.attempt(self.wider_metric)
            if made:
                self.program.metrics.append(made.name)
        trained = [i.name for i in self.program.leaves if i.kind == "param" and f'"{i.name}"' not in s.get("freeze", "")]
        if trained and self.chance(0.3) and "muon" not in s["optimizer"]:
            s["lr"] = f"{r.choice(['0.5x', '2x'])} on (%s)" % ", ".join(f'"{n}"' for n in sorted(r.sample(trained, r.randint(1, len(trained)))))
        if "schedule" in s and self.chance(0.5):
            s["schedule"] = r.choice(["wsd(warmup=1, decay=2)", "onecycle(pct_start=0.5)"])
        if self.chance(0.2) and "prune" not in s and "optimizer" in s and "sgd(lr=0.05)" != s["optimizer"]:
            s["optimizer"] = r.choice(["sgd(lr=0.05, momentum=0.9, dampening=0.25, weight_decay=0.1)", "adam(lr=0.01, betas=(0.5, 0.9), eps=0.001, weight_decay=0.1)",
                                       "lion(lr=0.01, weight_decay=0.1)", "adagrad(lr=0.05, lr_decay=0.1, initial_accumulator=0.1, weight_decay=0.01)",
                                       "rmsprop(lr=0.01, alpha=0.5, weight_decay=0.1, momentum=0.5)", "adamw(lr=0.01, betas=(0, 0.5))"])
