"""What else the language has, in random programs (further_operations.py): running sums, rows by number, bools and whole numbers that are
moved, layers that are applied again with their states, losses of rows, metrics. Drawn of a share of the seeds: the other programs are
what they were."""
import math
import random

from layers import nearest_spread
from values import Reject

STATES = ("running_mean", "running_var", "seen", "hidden", "max_abs")


class Further:
    FURTHER = [("running", 6), ("rows_by_number", 6), ("flags", 7), ("whole_numbers", 4), ("again", 8), ("recurrent_again", 3), ("loss_of_rows", 7),
               ("small", 6), ("line", 2), ("noisy", 2)]

    def further(self):
        names, weights = zip(*self.FURTHER)
        return getattr(self, "further_" + self.random.choices(names, weights)[0])()

    # ── running sums, rows by number ──
    def further_running(self):
        x, r = self.pick(), self.random
        if not x.free():
            raise Reject
        axis = r.choice(x.free())
        if self.chance(0.25):
            axis -= x.rank
        return self.add(r.choice(["cumsum", "cumprod"]), [x], x.batch, "expensive", axis=axis, exclusive=self.chance(0.35))

    def numbers(self, count, apart):
        """Numbers of rows, some of them of none; of samples only where the rows are not (apart)."""
        r = self.random
        if apart or self.chance(0.4):
            by, first = r.choice([1, 2, 3]), r.randint(0, count)
            return self.add("numbers", [], None, "point", keep=False, n=self.size(), by=by, first=first, count=count + r.choice([0, 0, 1]))
        return self.input(r.choice(["i32", "i32", "i64", "u8"]), [self.size()] if self.chance(0.5) else [], scale=count + r.choice([0, 0, 1]))

    def further_rows_by_number(self, x=None):
        x, r = x or self.pick(), self.random
        if not x.free():
            raise Reject
        if x.rank >= 2 and x.batch in (None, 0) and x.shape[0] == self.program.batch and self.chance(0.5):
            if self.program.samplewise and x.batch is None:
                raise Reject
            index = self.input(r.choice(["i32", "i32", "i64", "u8"]), [self.size() for _ in range(r.choice([0, 1, 1, 2]))], scale=x.shape[1] + r.choice([0, 0, 1]))
            return self.add("take_each", [x, index], x.batch, "move")
        axis = r.choice(x.free())
        index = self.numbers(x.shape[axis], x.batch is not None)
        batch = x.batch if x.batch is None or x.batch < axis else x.batch - 1 + index.rank
        if index.batch is not None:
            batch = axis
        return self.add("take", [x, index], batch, "move", axis=axis)

    # ── bools and whole numbers ──
    FLAG_MOVES = ["permute", "transpose", "reshape", "slice", "pad", "pad", "pad", "concat", "stack", "unsqueeze", "squeeze", "broadcast", "rearrange", "flatten"]

    def moved(self, x, turns):
        """x, of any type, behind some moves that are possible."""
        for _ in range(turns):
            made = self.attempt(lambda x=x: self.one_move(x))
            x = made or x
        return x

    def one_move(self, x):
        r = self.random
        way = r.choice([*self.FLAG_MOVES, "rows", "turned", "function"])
        if way == "rows":
            return self.further_rows_by_number(x)
        if way == "turned":
            return self.turned(x)
        if way == "function":
            return self.function_turned(x)
        return getattr(self, "move_" + way)(x)

    def flag(self):
        x, r = self.pick(), self.random
        choice = r.choice(["above", "at_most", "unlike", "two", "finite", "input"])
        if choice == "two":
            return self.binary(r.choice(["less", "at_least"]), x, self.partner(x))
        if choice == "finite":
            return self.add("isfinite", [x], x.batch, "point")
        if choice == "input":
            return self.input("bool", [self.size() for _ in range(r.choice([0, 1, 2]))])
        return self.add(choice, [x], x.batch, "point", value=r.choice([0.1, -0.2, 0.0]))

    def further_flags(self):
        r = self.random
        mask = self.moved(self.flag(), r.choice([1, 1, 2, 3]))
        if self.chance(0.4):
            fits = [v for v in self.values if v.data.dtype == mask.data.dtype and v.shape == mask.shape and v.batch == mask.batch]
            mask = self.add(r.choice(["and", "or", "equal"]), [mask, r.choice(fits)], mask.batch, "point") if fits else self.add("not", [mask], mask.batch, "point")
        use = r.choice(["where", "where", "where_number", "f32", "sum", "running"])
        if use == "sum":
            if not mask.free():
                raise Reject
            axis = r.choice(mask.free())
            return self.add(r.choice(["sum", "mean"]), [mask], self.without(mask, axis, False), "reduce", axis=axis, keepdims=False)
        if use in ("f32", "running"):
            x = self.add("f32", [mask], mask.batch, "point")
            if use == "f32" or not x.free():
                return x
            return self.add("cumsum", [x], x.batch, "expensive", axis=r.choice(x.free()), exclusive=self.chance(0.5))
        x = self.partner(mask)
        if use == "where_number":
            return self.add("where_number", [mask, x], self.same_batch(mask, x), "point", value=r.choice([0.0, 0.5, -1.0]))
        y = self.partner(mask)
        return self.add("where", [mask, x, y], self.same_batch(mask, x, y), "point")

    def further_whole_numbers(self):
        r = self.random
        x = self.input("i32", [self.size() for _ in range(r.choice([1, 1, 2]))], scale=5)
        for _ in range(r.choice([1, 2, 3])):
            made = self.attempt(lambda x=x: self.whole_work(x))
            x = made or x
        if self.chance(0.3):
            return self.add("where_number", [self.add("above", [x], x.batch, "point", keep=False, value=2), y := self.partner(x)], self.same_batch(x, y), "point", value=0.25)
        return self.add("mul_number", [self.add("f32", [x], x.batch, "point", keep=False)], x.batch, "point", value=0.125)

    def whole_work(self, x):
        r = self.random
        way = r.choice(["move", "move", "cumsum", "whole_sum", "whole_max", "div", "modulo", "u8", "u32", "i64"])
        if way == "move":
            return self.one_move(x)
        if way in ("u8", "u32", "i64"):
            if (x.data < 0).any() or (x.data > 250).any():
                raise Reject
            return self.add("i32", [self.add(way, [x], x.batch, "point", keep=False)], x.batch, "point")
        if way in ("div", "modulo"):
            return self.add("div_whole" if way == "div" else "modulo", [x], x.batch, "point", value=r.choice([2, 3]))
        if not x.free():
            raise Reject
        axis = r.choice(x.free())
        if way == "cumsum":
            return self.add("cumsum", [x], x.batch, "expensive", axis=axis, exclusive=self.chance(0.4))
        return self.add(way, [x], self.without(x, axis, False), "reduce", axis=axis)

    # ── layers again ──
    def declare(self, block, shapes, words, scale=1.0, **attrs):
        """(the layer, its parameters and states)"""
        name = self.name("f")
        leaves = [self.leaf("state" if n in STATES else "param", "f32", shape, name=f"{name}.{n}", hidden=True,
                            scale=scale, positive=n in ("running_var", "max_abs")) for n, shape in shapes.items()]
        layer = self.add("declare_layer", leaves, None, keep=False, block=block, words=words, name=name, **attrs)
        return layer, leaves

    def apply(self, layer, block, x, leaves, batch, how="{}", **attrs):
        return self.add(block + "_again", [layer, *x, *leaves], batch, "product", how=how, inputs=len(x), **attrs)

    def other(self, x, is_fit):
        """What else a layer is applied to: what came of x, or another value."""
        fits = [v for v in self.floats() if v.name != x.name and v.rank == x.rank and v.batch == x.batch and is_fit(v)]
        if not fits or self.chance(0.3):
            y = self.function_turned(x) if self.chance(0.5) else self.add(self.random.choice(["tanh", "sin"]), [x], x.batch, "expensive")
            fits = [y] if y.rank == x.rank and is_fit(y) else []
        if not fits:
            raise Reject
        return self.random.choice(fits)

    def further_again(self):
        r, x = self.random, self.pick()
        choice = r.choice(["Linear", "BatchNorm", "BatchNorm", "InstanceNorm", "Centred", "Carried", "FakeQuant"])
        if x.rank < 2 or x.batch == x.rank - 1 or (self.program.samplewise and choice != "Linear"):
            raise Reject
        if choice == "Linear":
            return self.linear_again(x)
        if choice == "InstanceNorm" and (x.rank not in (3, 4) or math.prod(x.shape[2:]) < 2):
            x = self.image(x)
        axis, n = (x.rank - 1, [x.shape[-1]]) if choice == "Carried" else (1, [x.shape[1]])
        places = math.prod(x.shape) // x.shape[1]
        if choice == "BatchNorm" and (places < 3 or nearest_spread(x) < 1e-3) or (choice == "InstanceNorm" and math.prod(x.shape[2:]) < 2):
            raise Reject
        words, shapes = [], {"weight": n, "bias": n, "running_mean": n, "running_var": n}
        if choice == "InstanceNorm":
            affine = self.chance(0.5)
            words = ["track_running_stats=true"] + (["affine=true"] if affine else [])
            shapes = {"running_mean": n, "running_var": n, **({"weight": n, "bias": n} if affine else {})}
        if choice == "FakeQuant":
            attrs = {"bits": r.choice([4, 8]), "momentum": r.choice([0.01, 0.25])}
            layer, leaves = self.declare(choice, {"max_abs": [1]}, [f"{n}={v}" for n, v in attrs.items()])
            return self.twice_or_more(layer, choice, x, leaves, lambda v: True, **attrs)
        if choice in ("Centred", "Carried"):
            shapes = {"Centred": {"seen": n}, "Carried": {"weight": n, "hidden": n}}[choice]
        layer, leaves = self.declare(choice, shapes, words)
        return self.twice_or_more(layer, choice, x, leaves, lambda v: v.shape[axis] == x.shape[axis] and (choice != "BatchNorm" or nearest_spread(v) > 1e-3))

    def twice_or_more(self, layer, block, x, leaves, is_fit, **attrs):
        y = self.apply(layer, block, [x], leaves, None, **attrs)
        for _ in range(self.random.choice([1, 1, 1, 2])):
            z = self.other(x, is_fit) if self.chance(0.7) or not is_fit(y) or y.rank != x.rank else self.tame(y)
            y = self.apply(layer, block, [z], leaves, None, self.random.choice(["{}", "{}", "stop_gradient({})"]), **attrs)
        return y

    def linear_again(self, x):
        r, k, bias = self.random, x.shape[-1], self.chance(0.5)
        out = k if self.chance(0.5) else self.size()
        words = [str(out)] + ([] if bias else ["bias=false"])
        layer, leaves = self.declare("Linear", {"weight": [out, k], **({"bias": [out]} if bias else {})}, words, 1.2 / math.sqrt(k))
        y = self.apply(layer, "Linear", [x], leaves, x.batch)
        again = self.tame(y) if out == k and self.chance(0.5) else self.other(x, lambda v: v.shape[-1] == k)
        return self.apply(layer, "Linear", [again], leaves, again.batch, r.choice(["{}", "stop_gradient({})", "average({}, decay=0.75)"]))

    def further_recurrent_again(self):
        """Over two pieces of a sequence, the second one from the first one's last states on."""
        x, r = self.sequence(5), self.random
        choice, hidden, features = r.choice(["LSTM", "GRU", "RNN"]), r.choice([1, 2, 3, 4, 8]), x.shape[2]
        layers, directions, bias = r.choice([1, 1, 1, 2]), r.choice([1, 1, 2]), self.chance(0.7)
        gates, shapes, width = {"LSTM": 4, "GRU": 3, "RNN": 1}[choice] * hidden, {}, features
        for layer in range(layers):
            for side in ("", "_reverse")[:directions]:
                end = f"_l{layer}{side}"
                shapes.update({"weight_ih" + end: [gates, width], "weight_hh" + end: [gates, hidden], **({"bias_ih" + end: [gates], "bias_hh" + end: [gates]} if bias else {})})
            width = hidden * directions
        words = [str(hidden)] + ([f"num_layers={layers}"] if layers > 1 else []) + (["bidirectional=true"] if directions > 1 else []) + ([] if bias else ["bias=false"])
        layer, leaves = self.declare(choice, shapes, words, 1 / math.sqrt(max(hidden, features)))
        attrs = {"layers": layers, "directions": directions, "hidden": hidden, "each": 4 if bias else 2}
        side = None if x.batch is None else 1
        states = [self.apply(layer, choice, [x], leaves, side, index=i, **attrs) for i in range(1, 3 if choice == "LSTM" else 2)]
        next_piece = self.other(x, lambda v: v.shape[0] == x.shape[0] and v.shape[2] == features and v.shape[1] <= 5) if self.chance(0.6) else x
        index = r.choice([0, 0, 1])
        return self.apply(layer, choice, [next_piece, *states], leaves, side if index else x.batch, r.choice(["{}", "{}", "stop_gradient({})"]), index=index, **attrs)

    # ── losses of rows ──
    def rows_like(self, x):
        y = self.alike(x) if self.chance(0.6) else x
        return y if y is not x else self.add("sin", [x], x.batch, "expensive")

    def further_loss_of_rows(self):
        r, x = self.random, self.pick()
        choice = r.choice(["pairwise_distance", "triplet_margin", "cosine_embedding", "nll", "cross_entropy_to", "class_mean", "distill_kl", "distill_features",
                           "distill_attention", "hardest", "hardest_rows"])
        if choice.startswith("hardest"):
            return self.hardest(choice)
        if x.rank < 2 or x.shape[-1] < 2 or x.batch not in (None, 0) or x.shape[0] != self.program.batch:
            x = self.linear(self.input("f32", [self.size()]), max(2, self.size()))
        if choice == "distill_attention":
            x = self.image(x)
            return self.add(choice, [x, self.rows_like(x)], x.batch, "reduce")
        if choice == "distill_features":
            return self.add(choice, [x, self.rows_like(x)], x.batch, "expensive")
        if choice in ("nll", "class_mean"):
            return self.of_classes(choice, x)
        more = {"pairwise_distance": {"p": r.choice([1, 2, 2, 3])}, "cross_entropy_to": {"smoothing": r.choice([0, 0.1])}, "distill_kl": {"temperature": r.choice([1, 2.5])},
                "triplet_margin": {"margin": 0.75, "p": r.choice([2, 2, 3]), "swap": self.chance(0.5)}, "cosine_embedding": {"margin": 0.1}}[choice]
        operands = [x, self.rows_like(x)] + ([self.rows_like(x)] if choice == "triplet_margin" else [])
        if choice == "cosine_embedding":
            if self.program.samplewise and x.batch is None:
                raise Reject
            mask = self.add("above", [self.input("f32", x.shape[1:-1])], x.batch, "point", keep=False, value=0.0)
            operands.append(self.add("f32", [mask], x.batch, "point", keep=False))
        return self.add(choice, operands, x.batch, "reduce", **more)

    def of_classes(self, choice, x):
        if self.program.samplewise and (x.batch is None or choice == "class_mean"):
            raise Reject
        target, more = self.input("i32", x.shape[1:-1], scale=x.shape[-1]), {}
        if choice == "nll":
            return self.add("nll", [x, target], x.batch, "reduce")
        if self.chance(0.4):
            more["ignore"] = self.random.randint(0, x.shape[-1] - 1)
        if self.chance(0.4):
            more["smoothing"] = 0.1
        return self.add(choice, [x, target], None, "reduce", weight=[self.random.choice([0.5, 1, 2.5]) for _ in range(x.shape[-1])], **more)

    def hardest(self, choice):
        x = self.pick()
        if self.program.samplewise or not x.rank:
            raise Reject
        if x.rank > 1:
            x = self.add("mean", [x], None, "reduce", axis=list(range(1, x.rank)), keepdims=False)
        fits = [v for v in self.floats() if v.rank and v.shape[0] == x.shape[0]]
        return self.add(choice, [x] if choice == "hardest" else [x, self.random.choice(fits)], None, "reduce", k=self.random.randint(1, x.shape[0]))

    # ── small ones ──
    def turned(self, x):
        steps = [0 if i == x.batch else self.random.choice([0, 1, 1, 2, 3]) for i in range(x.rank)]
        if not any(steps):
            raise Reject
        return self.add("turned", [x], x.batch, "move", steps=steps)

    def further_small(self):
        r, x = self.random, self.pick()
        choice = r.choice(["turned", "turned", "expand", "pow", "like", "count", "embed", "pool", "upsample", "bool", "filled", "prelu", "matmul"])
        if choice == "turned":
            return self.turned(x)
        if choice == "expand":
            sizes = [r.choice([-1, self.size()]) if n == 1 and i != x.batch else -1 for i, n in enumerate(x.shape)]
            if x.batch is None and self.chance(0.4):
                sizes = [self.size(), *sizes]
            if all(n == -1 for n in sizes):
                raise Reject
            return self.add("expand", [x], x.batch, "move", sizes=sizes)
        if choice == "pow":
            base = self.add("add_number", [self.add("square", [x], x.batch, "expensive")], x.batch, "expensive", value=0.4)
            y = self.partner(x)
            return self.add("pow", [base, self.add("tanh", [y], y.batch, "expensive")], self.same_batch(base, y), "expensive")
        if choice == "like":
            return self.binary("mul", x, self.add(r.choice(["zeros_like", "ones_like"]), [x], x.batch, "point", keep=False, value=0.5))
        if choice == "count":
            if not x.free():
                raise Reject
            return self.add("count", [x], x.batch, "point", axis=r.choice(x.free()))
        if choice == "embed":
            table = self.leaf("param", "f32", [self.size(), *[self.size() for _ in range(r.choice([0, 1, 2]))]])
            ids = self.input(r.choice(["i32", "i64"]), [self.size()] if self.chance(0.5) else [], scale=table.shape[0])
            return self.add("embed", [table, ids], ids.batch, "move")
        if choice == "bool":
            return self.add("f32", [self.add(choice, [x], x.batch, "point", keep=False)], x.batch, "point")
        if choice == "filled":
            shape = [1 if i == x.batch else n for i, n in enumerate(x.shape)]
            return self.binary(r.choice(["mul", "add"]), x, self.add(choice, [], None, "point", keep=False, of=r.choice(["ones", "full"]), shape=shape, value=0.75))
        if choice == "prelu":
            if x.rank < 2 or x.batch == 1:
                raise Reject
            return self.add(choice, [x, self.leaf("param", "f32", [r.choice([1, x.shape[1]])])], x.batch, "expensive")
        if choice == "matmul":
            if x.rank < 2 or x.batch == x.rank - 1:
                raise Reject
            return self.add("matmul_called", [x, self.leaf("param", "f32", [x.shape[-1], self.size()], scale=1 / math.sqrt(x.shape[-1]))], x.batch, "product")
        x = self.image(x)
        if choice == "upsample":
            return self.add("Upsample", [x], x.batch, "move", scale=r.choice([2, 3]))
        return self.add(r.choice(["MaxPool2d", "AvgPool2d"]), [x], x.batch, "window", kernel=[r.randint(1, min(3, n)) for n in x.shape[2:]])

    def further_line(self):
        x, r = self.sequence(30), self.random
        channels = x.shape[1]
        if self.chance(0.3):
            return self.add("upsample_line", [x], x.batch, "move", size=r.randint(1, 2 * x.shape[2] + 1), corners=self.chance(0.4))
        kernel, stride, dilation, groups = r.randint(1, 3), r.choice([1, 2, 3]), r.choice([1, 1, 2]), r.choice([1, 1, channels])
        out, padding, attrs = groups * r.choice([1, 2, 3]), r.randint(0, kernel // 2), {}
        if self.chance(0.35):
            if x.shape[2] + 2 * padding < dilation * (kernel - 1) + 1:
                raise Reject
            weight = self.leaf("param", "f32", [out, channels // groups, kernel], scale=1.2 / math.sqrt(channels // groups * kernel))
            return self.add("conv1d", [x, weight], x.batch, "product", stride=stride, padding=padding, dilation=dilation, groups=groups)
        more = r.randint(0, max(stride, dilation) - 1) if self.chance(0.4) else 0
        if (x.shape[2] - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1 < 1:
            raise Reject
        attrs = dict(stride=stride, padding=padding, output_padding=more, dilation=dilation, groups=groups)
        shape, scale = [channels, out // groups, kernel], 1.2 / math.sqrt(channels // groups * kernel)
        if self.chance(0.4):
            return self.add("conv_transpose1d", [x, self.leaf("param", "f32", shape, scale=scale)], x.batch, "product", **attrs)
        bias = self.chance(0.7)
        return self.layer(x, "ConvTranspose1d", {"weight": shape, **({"bias": [out]} if bias else {})}, x.batch, scale, out=out, kernel=kernel, bias=bias, **attrs)

    def further_noisy(self):
        r, x = self.random, self.pick()
        choice = r.choice(["random_normal", "random_uniform", "Dropout", "drop_path"])
        if choice == "drop_path":
            if not x.rank or x.batch not in (None, 0):
                raise Reject
            return self.add(choice, [x], x.batch, "point", p=r.choice([0.25, 0.5]), mode=r.choice(["row", "batch"]))
        return self.add(choice, [x], x.batch, "point", **({"p": r.choice([0.1, 0.5])} if choice == "Dropout" else {}))

    # ── metrics ──
    def further_metric(self):
        r, x = self.random, self.pick()
        choice = r.choice(["accuracy", "topk_accuracy", "precision", "recall", "f1", "perplexity"])
        if choice == "perplexity":
            return self.add(choice, [x], None, "reduce", keep=False)
        if x.rank < 2 or x.shape[-1] < 2 or x.batch not in (None, 0) or x.shape[0] != self.program.batch or (self.program.samplewise and x.batch is None):
            raise Reject
        target = self.input("i32", x.shape[1:-1], scale=x.shape[-1])
        more = {"topk_accuracy": {"k": r.randint(1, x.shape[-1])}, "accuracy": {}}.get(choice, {"average": r.choice(["macro", "micro", "weighted"])})
        return self.add(choice, [x, target], None, "reduce", keep=False, **more)

    def metric(self):
        """Behind all else, by a random number of its own."""
        self.random = random.Random(self.program.seed * 43 + 29)
        if self.chance(0.3):
            made = self.attempt(self.further_metric)
            if made:
                self.program.metrics.append(made.name)
