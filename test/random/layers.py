"""Products, convolutions, norms with parameters and attention of random programs."""
import math
import random

from values import Reject


def nearest_spread(x):
    axes = [0, *range(2, x.rank)]
    return x.data.var(dim=axes, unbiased=False).min().item()


class Layers:
    drops_scores = True  # attention with dropout

    def layer(self, x, block, params, batch, scale=None, **attrs):
        name = self.name("f")
        leaves = [self.leaf("param" if not n.startswith("running") else "state", "f32", shape, name=f"{name}.{n}", hidden=True,
                            scale=scale or 1.0, positive=n == "running_var") for n, shape in params.items()]
        return self.add(block, [x, *leaves], batch, "product", name=name, **attrs)

    def linear(self, x=None, out=None):
        x = x or self.pick()
        if x.rank < 1 or x.batch == x.rank - 1:
            raise Reject
        if x.rank == 1:
            raise Reject
        k, out, bias = x.shape[-1], out or self.size(), self.chance(0.6)
        return self.layer(x, "Linear", {"weight": [out, k], **({"bias": [out]} if bias else {})}, x.batch, 1.2 / math.sqrt(k), out=out, bias=bias)

    def product(self):
        r, x = self.random, self.pick()
        choice = r.choice(["linear", "linear", "linear", "param", "param_transposed", "self", "values", "swiglu", "vector", "left"])
        if x.rank < 2 and choice != "vector":
            raise Reject
        k = x.shape[-1] if x.rank else 1
        if choice == "linear":
            return self.linear(x)
        if x.batch is not None and x.batch >= x.rank - 1:
            raise Reject
        if choice == "swiglu":
            hidden = self.size()
            return self.layer(x, "SwiGLU", {"gate_proj.weight": [hidden, k], "up_proj.weight": [hidden, k], "down_proj.weight": [k, hidden]},
                              x.batch, 1 / math.sqrt(k), hidden=hidden)
        if choice == "param":
            batch = [] if x.batch is not None or self.chance(0.7) else x.shape[:-2]
            return self.add("matmul", [x, self.leaf("param", "f32", [*batch, k, self.size()], scale=1 / math.sqrt(k))], x.batch, "product")
        if choice == "param_transposed":
            return self.add("matmul_transposed", [x, self.leaf("param", "f32", [self.size(), k], scale=1 / math.sqrt(k))], x.batch, "product")
        if x.batch is not None and x.batch >= x.rank - 2:
            raise Reject
        if choice == "left":  # a param from the left: tokens are mixed
            return self.add("matmul", [self.leaf("param", "f32", [self.size(), x.shape[-2]], scale=1 / math.sqrt(x.shape[-2])), x], x.batch, "product")
        if choice == "vector":
            if x.batch is not None or not x.rank:
                raise Reject
            return self.add("matmul", [x, self.leaf("param", "f32", [k])], None, "product")
        if choice == "self":
            return self.tame(self.add("matmul_transposed", [x, x], x.batch, "product"))
        fits = [v for v in self.floats() if v.rank >= 2 and v.shape[-2] == k and v.rank == x.rank and v.batch == x.batch] or \
               [v for v in self.floats() if v.rank >= 2 and v.shape[-2] == k and v.batch is None and v.rank <= x.rank]
        if not fits:
            raise Reject
        return self.tame(self.add("matmul", [x, r.choice(fits)], x.batch, "product"))

    def norm_layer(self):
        x = self.pick()
        choice = self.random.choice(["LayerNorm", "RMSNorm", "BatchNorm"])
        if x.rank < 2 or x.batch == x.rank - 1:
            raise Reject
        if choice != "BatchNorm":
            if x.shape[-1] < 2:
                raise Reject
            n = [x.shape[-1]]
            return self.layer(x, choice, {"weight": n, **({"bias": n} if choice == "LayerNorm" else {})}, x.batch)
        if self.program.samplewise or x.data.numel() // x.shape[1] < 3 or nearest_spread(x) < 1e-3:
            raise Reject
        n = [x.shape[1]]
        return self.layer(x, "BatchNorm", {"weight": n, "bias": n, "running_mean": n, "running_var": n}, None)

    # ── images ──
    def image(self, x):
        """x as [N, C, H, W]."""
        if x.rank == 4 and x.batch in (None, 0) and self.chance(0.7):
            return x
        if x.batch not in (None, 0):
            raise Reject
        if x.batch == 0:
            count = x.data.numel() // x.shape[0]
            return self.add("reshape", [x], 0, "move", shape=["B", *self.factors(count, 3)])
        return self.add("reshape", [x], None, "move", shape=self.factors(x.data.numel(), 4))

    def factors(self, count, rank):
        shape = []
        for _ in range(rank - 1):
            d = self.random.choice([d for d in range(1, min(count, 12) + 1) if count % d == 0])
            shape.append(d)
            count //= d
        shape.append(count)
        self.random.shuffle(shape)
        return shape

    def window(self, x, dilated):
        kernel = [self.random.randint(1, 3) for _ in range(2)]
        dilation = [self.random.choice([1, 1, 2]) if dilated else 1 for _ in range(2)]
        low, high = ([self.random.randint(0, k - 1 if dilated else k // 2) for k in kernel] for _ in range(2))
        if any(n + a + b < d * (k - 1) + 1 for n, a, b, d, k in zip(x.shape[2:], low, high, dilation, kernel)):
            raise Reject
        return kernel, [self.random.choice([1, 1, 2]) for _ in range(2)], [*low, *high], dilation

    def conv(self):
        x = self.image(self.pick())
        kernel, stride, padding, dilation = self.window(x, True)
        c = x.shape[1]
        groups = self.random.choice([1, 1, c, *([2] if c % 2 == 0 else [])])
        out = groups * self.random.choice([1, 2, 3, 4])
        attrs = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        weight, scale = [out, c // groups, *kernel], 1.2 / math.sqrt(c // groups * math.prod(kernel))
        if self.chance(0.7):
            bias = self.chance(0.7)
            y = self.layer(x, "Conv2d", {"weight": weight, **({"bias": [out]} if bias else {})}, x.batch, scale, out=out, kernel=kernel, bias=bias, **attrs)
        else:
            y = self.add("conv2d", [x, self.leaf("param", "f32", weight, scale=scale)], x.batch, "product", **attrs)
        if self.chance(0.3):
            y = self.add(self.random.choice(["gelu", "silu", "tanh", "relu"]), [y], y.batch, "expensive")
        if self.chance(0.4):
            y = self.add("permute", [y], y.batch, "move", order=[0, 2, 3, 1])
        return y

    def network(self):
        """Convolutions as networks have them: a bias or a norm, an activation, the next one."""
        r, p = self.random, self.program
        if self.chance(0.5):
            x = self.input("f32", [r.choice([1, 2, 3, 8]), r.choice([3, 4, 6, 8]), r.choice([2, 4, 5, 8])])
        else:
            x = self.image(self.pick())
        is_wide = random.Random(p.seed * 31 + 7).random() < 0.25  # whole vectors of channels: 3 x 3 is Winograd's on CPUs
        for last in (False, False, True) if self.chance(0.3) or is_wide else (False, True):
            k, out, bias = r.choice([1, 3, 3]), r.choice([2, 4, 8, 8]), self.chance(0.6)
            if is_wide:
                out = 16 * max(1, out // 4)
            weight, scale = [out, x.shape[1], k, k], 1.2 / math.sqrt(x.shape[1] * k * k)
            x = self.layer(x, "Conv2d", {"weight": weight, **({"bias": [out]} if bias else {})}, x.batch, scale, out=out, kernel=[k, k],
                           bias=bias, stride=[1, 1], padding=[k // 2] * 4, dilation=[1, 1], groups=1)
            if last:
                return x
            if not p.samplewise and self.chance(0.5) and nearest_spread(x) > 1e-3:
                n = [out]
                x = self.layer(x, "BatchNorm", {"weight": n, "bias": n, "running_mean": n, "running_var": n}, None)
            x = self.add(r.choice(["gelu", "silu", "relu", "leaky_relu", "tanh"]), [x], x.batch, "expensive")

    def pool(self):
        x = self.image(self.pick())
        kernel, stride, padding, _ = self.window(x, False)
        choice = self.random.choice(["max", "average", "global"])
        if choice == "max":
            return self.add("max_pool2d", [x], x.batch, "window", kernel=kernel, stride=stride, padding=padding)
        if choice == "average":
            return self.add("avg_pool2d", [x], x.batch, "window", kernel=kernel, stride=stride, padding=padding, count_include_pad=self.chance(0.5))
        return self.add("global_avg_pool2d", [x], x.batch, "reduce")

    # ── attention ──
    def plain_attention(self):
        """Nothing between one product for q, k and v, and attention: its gradients are put together again."""
        return self.attention(is_plain=True)

    def attention(self, is_plain=False):
        r, x = self.random, self.pick()
        if x.batch not in (None, 0):
            raise Reject
        b = ["B"] if x.batch == 0 else [1]
        count = x.data.numel() // (x.shape[0] if x.batch == 0 else 1)
        tokens, features = self.factors(count, 2)
        if tokens > 24:
            raise Reject
        x = self.add("reshape", [x], x.batch, "move", shape=[*b, tokens, features])
        groups, repeat, d = r.choice([1, 1, 2, 3]), r.choice([1, 1, 2]), r.choice([8, 8, 16, 24, 32] if self.cores else [1, 2, 3, 4, 4, 8, 8, 16])
        heads = groups * repeat
        if is_plain or self.chance(0.5):  # one product for all three, as GPT has it
            width = (heads + 2 * groups) * d
            rows = self.linear(x, width)
            parts = [heads * d, groups * d, groups * d]
            rows = [self.add("split", [rows], x.batch, "move", keep=False, parts=parts, axis=2, index=i) for i in range(3)]
        else:
            rows = [self.linear(x, n * d) for n in (heads, groups, groups)]
        operands = []
        for row, n in zip(rows, (heads, groups, groups)):
            if not is_plain and self.chance(0.15):
                row = self.add(r.choice(["tanh", "gelu"]), [row], x.batch, "expensive", keep=False)
            row = self.add("rearrange", [row], x.batch, "move", keep=False, pattern="b t (h d) -> b h t d", sizes={"h": n})
            operands.append(row)
        if not is_plain and d % 2 == 0 and self.chance(0.3):
            operands[:2] = [self.add("rope", [o], x.batch, "point", keep=False) for o in operands[:2]]
        attrs = {"causal": self.chance(0.5)}
        if self.chance(0.2):
            attrs["scale"] = 0.4
        if (tokens + heads + d) % 4 == 0:  # draws nothing: fixed seeds give the programs that they gave before
            attrs["softcap"] = (0.8, 3, 100)[tokens % 3]
        if self.chance(0.25):
            mask = self.leaf("state", "f32", [r.choice([1, heads]), tokens, tokens])
            operands.append(mask if self.chance(0.5) else self.add("above", [mask], None, "point", keep=False, value=-0.5))
        drops = self.drops_scores and (tokens + 2 * heads + d // 2) % 6 == 0  # draws nothing, either
        if drops:
            attrs["dropout"] = (0.1, 0.5, 0.9)[tokens % 3]
        y = self.add("attention_dropout" if drops else "attention", operands, x.batch, "product", **attrs)
        if self.chance(0.7):
            y = self.add("rearrange", [y], x.batch, "move", pattern="b h t d -> b t (h d)", sizes={})
        return y
