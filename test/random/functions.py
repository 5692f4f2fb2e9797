"""The standard library's functions and blocks in random programs (more_operations.py)."""
import math

from values import Reject


class Functions:
    def function(self):
        kinds = ["activation"] * 3 + ["group"] * 3 + ["turned"] * 4 + ["image"] * 4 + ["distance"] * 2 + ["recurrent", "recurrent", "heads", "biased", "line"]
        return getattr(self, "function_" + self.random.choice(kinds))()

    def function_activation(self):
        x, choice = self.pick(), self.random.choice(["mish", "logsigmoid", "selu", "hardsigmoid", "hardswish", "relu6", "glu", "prelu"])
        if choice == "glu":
            axes = [i for i in x.free() if x.shape[i] % 2 == 0]
            if not axes:
                raise Reject
            return self.add("glu", [x], x.batch, "expensive", axis=self.random.choice(axes))
        if choice == "prelu":
            if x.rank < 2 or x.batch == 1:
                raise Reject
            count = self.random.choice([1, x.shape[1]])
            return self.layer(x, "PReLU", {"weight": [count]}, x.batch, count=count)
        return self.add(choice, [x], x.batch, "expensive")

    def channels(self):
        """Something as [N, C, ...] whose samples, if there are any, come first."""
        x = self.pick()
        if x.rank < 3 or x.batch not in (None, 0):
            x = self.image(x)
        return x

    def function_group(self):
        x = self.channels()
        channels = x.shape[1]
        groups = self.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
        if math.prod(x.shape[1:]) // groups < 2:
            raise Reject
        weights = {"weight": [channels], "bias": [channels]}
        if self.chance(0.3):
            return self.add("group_norm", [x], x.batch, "product", groups=groups)
        if x.rank in (3, 4) and math.prod(x.shape[2:]) > 1 and self.chance(0.3):
            return self.layer(x, "InstanceNorm", weights, x.batch)
        return self.layer(x, "GroupNorm", weights, x.batch, groups=groups)

    def function_turned(self, x=None):
        x, r = x or self.pick(), self.random
        axes = x.free()
        if not axes:
            raise Reject
        axis, choice = r.choice(axes), r.choice(["flip", "roll", "tile", "repeat"])
        if choice == "flip":
            return self.add("flip", [x], x.batch, "move", axis=sorted(r.sample(axes, r.randint(1, min(2, len(axes))))))
        if choice == "roll":
            flat = {} if x.batch is None and self.chance(0.3) else {"axis": axis}
            return self.add("roll", [x], x.batch, "move", shift=r.choice([-3, -1, 1, 2, 5]), **flat)
        if choice == "tile":
            return self.add("tile", [x], x.batch, "move", times=[1 if i == x.batch else r.choice([1, 1, 2, 3]) for i in range(x.rank)])
        return self.add("repeat_interleave", [x], x.batch, "move", times=r.choice([2, 3]), axis=axis)

    def function_image(self):
        x, r = self.image(self.pick()), self.random
        if self.chance(0.4):
            mode = r.choice(["nearest", "nearest", "bilinear"])
            size = {"scale": r.choice([2, 3])} if self.chance(0.6) else {"size": [r.randint(1, 2 * n + 1) for n in x.shape[2:]]}
            corners = {"align_corners": True} if mode == "bilinear" and self.chance(0.3) and "scale" not in size else {}
            return self.add("upsample", [x], x.batch, "move", mode=mode, **size, **corners)
        kernel, stride = [r.randint(1, 3) for _ in range(2)], [r.choice([1, 2, 2, 3]) for _ in range(2)]
        dilation = [r.choice([1, 1, 2]) for _ in range(2)]
        padding = [r.randint(0, k // 2) for k in kernel]
        more = [r.randint(0, max(s, d) - 1) if self.chance(0.4) else 0 for s, d in zip(stride, dilation)]
        if any((n - 1) * s - 2 * p + d * (k - 1) + m + 1 < 1 for n, s, p, d, k, m in zip(x.shape[2:], stride, padding, dilation, kernel, more)):
            raise Reject
        c = x.shape[1]
        groups = r.choice([1, 1, c, *([2] if c % 2 == 0 else [])])
        out = groups * r.choice([1, 2, 3, 4])
        attrs = dict(stride=stride, padding=padding, output_padding=more, dilation=dilation, groups=groups)
        weight, scale = [c, out // groups, *kernel], 1.2 / math.sqrt(c // groups * math.prod(kernel))
        if self.chance(0.3):
            return self.add("conv_transpose2d", [x, self.leaf("param", "f32", weight, scale=scale)], x.batch, "product", **attrs)
        bias = self.chance(0.7)
        return self.layer(x, "ConvTranspose2d", {"weight": weight, **({"bias": [out]} if bias else {})}, x.batch, scale, out=out, kernel=kernel, bias=bias, **attrs)

    def sequence(self, most):
        """Something as [B, T, features], of at most so many T."""
        x = self.pick()
        if x.batch not in (None, 0):
            raise Reject
        if x.rank != 3:
            count = x.data.numel() // (x.shape[0] if x.batch == 0 else 1)
            x = self.add("reshape", [x], x.batch, "move", shape=["B", *self.factors(count, 2)] if x.batch == 0 else self.factors(count, 3))
        if x.shape[1] > most:
            raise Reject
        return x

    def function_line(self):
        x, r = self.sequence(40), self.random
        channels, length = x.shape[1:]
        kernel, dilation, padding = r.randint(1, 3), r.choice([1, 1, 2]), r.randint(0, 2)
        if length + 2 * padding < dilation * (kernel - 1) + 1:
            raise Reject
        groups = r.choice([1, 1, channels])
        out, bias = groups * r.choice([1, 2, 3]), self.chance(0.6)
        weight, scale = [out, channels // groups, kernel], 1.2 / math.sqrt(channels // groups * kernel)
        return self.layer(x, "Conv1d", {"weight": weight, **({"bias": [out]} if bias else {})}, x.batch, scale, out=out, kernel=kernel, bias=bias,
                          stride=r.choice([1, 1, 2]), padding=padding, dilation=dilation, groups=groups)

    def function_recurrent(self):
        x, r = self.sequence(6), self.random
        choice, hidden, features, params = r.choice(["LSTM", "GRU", "RNN"]), r.choice([1, 2, 3, 4, 5, 8]), x.shape[2], {}
        layers, directions = r.choice([1, 1, 1, 2]), r.choice([1, 1, 2])
        rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[choice] * hidden
        for layer in range(layers):
            for side in ("", "_reverse")[:directions]:
                end = f"_l{layer}{side}"
                params.update({"weight_ih" + end: [rows, features], "weight_hh" + end: [rows, hidden], "bias_ih" + end: [rows], "bias_hh" + end: [rows]})
            features = hidden * directions
        return self.layer(x, choice, params, x.batch, 1 / math.sqrt(max(hidden, x.shape[2])), hidden=hidden, layers=layers, directions=directions)

    def function_biased(self):
        """Attention whose scores have a bias, which is learned."""
        x, r = self.sequence(16), self.random
        groups, repeat, d = r.choice([1, 2]), r.choice([1, 1, 2]), r.choice([1, 2, 4, 8])
        heads = groups * repeat
        rows = self.linear(x, (heads + 2 * groups) * d)
        parts = [heads * d, groups * d, groups * d]
        operands = [self.add("split", [rows], x.batch, "move", keep=False, parts=parts, axis=2, index=i) for i in range(3)]
        operands = [self.add("rearrange", [row], x.batch, "move", keep=False, pattern="b t (h d) -> b h t d", sizes={"h": n})
                    for row, n in zip(operands, (heads, groups, groups))]
        bias = self.leaf("param", "f32", [r.choice([1, heads]), x.shape[1], x.shape[1]])
        more = {"softcap": 1.5} if self.chance(0.3) else {}
        y = self.add("attention_bias", [*operands, bias], x.batch, "product", causal=self.chance(0.5), **more)
        return self.add("rearrange", [y], x.batch, "move", pattern="b h t d -> b t (h d)", sizes={})

    def function_heads(self):
        x = self.sequence(16)
        features = x.shape[2]
        heads = self.random.choice([h for h in range(1, features + 1) if features % h == 0])
        params = {"in_proj_weight": [3 * features, features], "in_proj_bias": [3 * features], "out_proj.weight": [features, features], "out_proj.bias": [features]}
        return self.layer(x, "MultiheadAttention", params, x.batch, 1 / math.sqrt(features), heads=heads, causal=self.chance(0.5))

    def function_distance(self):
        x = self.pick()
        y = self.alike(x)
        choice = self.random.choice(["cosine_similarity", "smooth_l1", "kl_div"])
        if y is x or (choice == "kl_div" and (not x.rank or x.batch == x.rank - 1)):
            raise Reject
        if choice != "cosine_similarity":
            return self.add(choice, [x, y], x.batch, "expensive")
        if not x.free():
            raise Reject
        axis = self.random.choice(x.free())
        return self.add(choice, [x, y], x.batch if x.batch is None or x.batch < axis else x.batch - 1, "reduce", axis=axis)
