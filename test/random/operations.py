"""The operations of random programs: how each is written in the language, and what it means in PyTorch.

The meaning is written down here from docs/language.md, with PyTorch's own functions where there is one, in
float64: it is the oracle that shares nothing with ft. `kink` gives how far the nearest argument lies from a
place where the function jumps or its gradient does (0 and less: on it); the generator keeps away from these.
"""
import math

import torch
import torch.nn.functional as F

from float8_product import product8

FAR = math.inf


class Operation:
    def __init__(self, text, meaning, kink=None, exact=True, states=None, definition=None):
        self.text, self.meaning, self.kink = text, meaning, kink
        self.exact = exact  # PyTorch computes the same; false: random numbers, rounding to 16 bits
        self.states = states  # of the arguments and attributes: what a training step leaves in arguments that are states, by their number
        self.definition = definition  # of a block, which stands before the model


OPERATIONS = {}
QUANTISERS = {"fake_quant", "fake_quant_rows", "fake_quant_groups", "FakeQuant_again"}


def operation(name, text, meaning, kink=None, exact=True, states=None, definition=None):
    OPERATIONS[name] = Operation(text, meaning, kink, exact, states, definition)


def call(name, *keys):
    """NAME(arguments, key=attribute …)"""

    def text(a, k):
        return f"{name}({', '.join([*a, *(f'{key}={literal(k[key])}' for key in keys if key in k)])})"

    return text


def literal(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(v) for v in value) + "]"
    return str(value)


def nearest(distance):
    """The smallest of these distances; FAR if there is none."""
    return distance.min().item() if distance.numel() else FAR


# ── pointwise ──
for name, function in {
    "exp": torch.exp, "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "silu": F.silu,
    "softplus": F.softplus, "square": torch.square, "stop_gradient": torch.detach,
}.items():
    operation(name, call(name), lambda a, k, f=function: f(a[0]))
operation("neg", lambda a, k: f"-{a[0]}", lambda a, k: -a[0])
operation("gelu", call("gelu"), lambda a, k: F.gelu(a[0]))
operation("gelu_tanh", lambda a, k: f'gelu({a[0]}, approximate="tanh")', lambda a, k: F.gelu(a[0], approximate="tanh"))
for name, function in {"relu": torch.relu, "abs": torch.abs, "leaky_relu": F.leaky_relu, "elu": F.elu, "sign": torch.sign}.items():
    operation(name, call(name), lambda a, k, f=function: f(a[0]), lambda a, k: nearest(a[0].abs()))
for name, function in {"floor": torch.floor, "ceil": torch.ceil}.items():
    operation(name, call(name), lambda a, k, f=function: f(a[0]), lambda a, k: nearest((a[0] - a[0].round()).abs()))
operation("round", call("round"), lambda a, k: torch.round(a[0]), lambda a, k: nearest((a[0] - a[0].floor() - 0.5).abs()))
operation("hardtanh", call("hardtanh"), lambda a, k: F.hardtanh(a[0]), lambda a, k: nearest((a[0].abs() - 1).abs()))


def bounds(a, k):
    return min(nearest((a[0] - k["low"]).abs()), nearest((a[0] - k["high"]).abs()))


operation("clamp", lambda a, k: f"clamp({a[0]}, {k['low']}, {k['high']})", lambda a, k: a[0].clamp(k["low"], k["high"]), bounds)
for name, sign, function in [("add", "+", torch.add), ("sub", "-", torch.sub), ("mul", "*", torch.mul), ("div", "/", torch.div)]:
    operation(name, lambda a, k, s=sign: f"{a[0]} {s} {a[1]}", lambda a, k, f=function: f(a[0], a[1]))
for name, sign in [("add_number", "+"), ("mul_number", "*"), ("div_number", "/"), ("sub_number", "-"), ("power", "**")]:
    function = {"+": torch.add, "*": torch.mul, "/": torch.div, "-": torch.sub, "**": torch.pow}[sign]
    operation(name, lambda a, k, s=sign: f"{a[0]} {s} {k['value']}", lambda a, k, f=function: f(a[0], k["value"]))
for name, sign, function in [("from_number", "-", torch.sub), ("over_number", "/", torch.div)]:
    operation(name, lambda a, k, s=sign: f"{k['value']} {s} {a[0]}",
              lambda a, k, f=function: f(torch.as_tensor(k["value"], dtype=a[0].dtype), a[0]))
for name in ("maximum", "minimum"):
    operation(name, call(name), lambda a, k, f=getattr(torch, name): f(a[0], a[1]), lambda a, k: nearest((a[0] - a[1]).abs()))
for name, sign, function in [("less", "<", torch.lt), ("greater", ">", torch.gt), ("at_least", ">=", torch.ge)]:
    operation(name, lambda a, k, s=sign: f"{a[0]} {s} {a[1]}", lambda a, k, f=function: f(a[0], a[1]),
              lambda a, k: nearest((a[0] - a[1]).abs()) if a[0].is_floating_point() else FAR)
operation("equal", lambda a, k: f"{a[0]} == {a[1]}", lambda a, k: a[0] == a[1])
operation("above", lambda a, k: f"{a[0]} > {k['value']}", lambda a, k: a[0] > k["value"],
          lambda a, k: nearest((a[0] - k["value"]).abs()) if a[0].is_floating_point() else FAR)
operation("turn", lambda a, k: f"({a[0]} + {k['by']}) % {k['count']}", lambda a, k: (a[0] + k["by"]) % k["count"])  # of ids from 0 to below count
for name, function in {"and": torch.logical_and, "or": torch.logical_or}.items():
    operation(name, lambda a, k, s=name: f"{a[0]} {s} {a[1]}", lambda a, k, f=function: f(a[0], a[1]))
operation("not", lambda a, k: f"not {a[0]}", lambda a, k: ~a[0])
operation("where", call("where"), lambda a, k: torch.where(a[0], a[1], a[2]))
operation("where_number", lambda a, k: f"where({a[0]}, {a[1]}, {k['value']})",
          lambda a, k: torch.where(a[0], a[1], torch.as_tensor(k["value"], dtype=a[1].dtype)))
operation("f32", call("f32"), lambda a, k: a[0].to(torch.float64))
operation("f64", call("f64"), lambda a, k: a[0])
operation("i32", call("i32"), lambda a, k: a[0].to(torch.int64),
          lambda a, k: nearest((a[0] - a[0].round()).abs()) if a[0].is_floating_point() else FAR)
operation("i64", call("i64"), lambda a, k: a[0].to(torch.int64))
operation("modulo", lambda a, k: f"{a[0]} % {k['value']}", lambda a, k: torch.fmod(a[0], k["value"]))
operation("bf16", lambda a, k: f"f32(bf16({a[0]}))", lambda a, k: a[0], exact=False)
operation("f16", lambda a, k: f"f32(f16({a[0]}))", lambda a, k: a[0], exact=False)
operation("dropout", lambda a, k: f"dropout({a[0]}, {k['p']})", lambda a, k: a[0], exact=False)


def whole_numbers(k):
    return (-(2 ** (k["bits"] - 1)), 2 ** (k["bits"] - 1) - 1) if k["signed"] else (0, 2 ** k["bits"] - 1)


def fake_quant(a, k):
    """As torch.fake_quantize_per_tensor_affine; its gradient is 1 within the range."""
    x, (low, high) = a[0], whole_numbers(k)
    if not k.get("rounds", True):
        return x
    n = torch.round(x.detach() / k["scale"])
    inside = (n >= low) & (n <= high)
    return n.clamp(low, high) * k["scale"] + torch.where(inside, x - x.detach(), torch.zeros_like(x))


operation("fake_quant", lambda a, k: f"fake_quant({a[0]}, {k['scale']}, bits={k['bits']}, signed={literal(k['signed'])})", fake_quant,
          lambda a, k: nearest((a[0] / k["scale"] - (a[0] / k["scale"]).floor() - 0.5).abs()))


def row_steps(x, k):
    return x.detach().abs().amax(-1, keepdim=True).clamp_min(1e-30) / whole_numbers({**k, "signed": True})[1]


def far_from_ties(x, step):
    return nearest((x / step - (x / step).floor() - 0.5).abs())


operation("fake_quant_rows", lambda a, k: f"fake_quant_rows({a[0]}, bits={k['bits']})", lambda a, k: fake_quant(a, {**k, "signed": True, "scale": row_steps(a[0], k)}),
          lambda a, k: far_from_ties(a[0], row_steps(a[0], k)))


def group_steps(k):
    """Two scales in turn, powers of two."""
    return k["scale"] * (1 + torch.arange(k["groups"]) % 2).reshape(-1, 1)


def fake_quant_groups(a, k):
    return fake_quant([a[0].reshape(k["groups"], -1)], {**k, "signed": True, "scale": group_steps(k)}).reshape(a[0].shape)


operation("fake_quant_groups", lambda a, k: f"reshape(fake_quant(reshape({a[0]}, [{k['groups']}, -1]), f32(1 + iota([{k['groups']}], axis=0) % 2) * {k['scale']}, bits={k['bits']}, axis=0), {literal(k['shape'])})",
          fake_quant_groups, lambda a, k: far_from_ties(a[0].reshape(k["groups"], -1), group_steps(k)))


# ── reductions; attribute axis: a list, or absent for all ──
def over(function):
    def meaning(a, k):
        axes = k.get("axis")
        axes = list(range(a[0].dim())) if axes is None else axes if isinstance(axes, list) else [axes]
        if a[0].dim() == 0:
            return function(a[0].reshape(1), [0], False)
        return function(a[0], [x % a[0].dim() for x in axes], k.get("keepdims", False))

    return meaning


def product(x, axes, keep):
    for axis in sorted(axes, reverse=True):
        x = x.prod(dim=axis, keepdim=keep)
    return x


def extreme_gap(sign):
    """Between the largest and the next along the axes."""

    def gap(x, axes, keep):
        rest = [i for i in range(x.dim()) if i not in axes]
        rows = (x * sign).permute(*rest, *axes).reshape(*[x.shape[i] for i in rest], -1)
        return torch.as_tensor(FAR) if rows.shape[-1] < 2 else (lambda t: t[..., 0] - t[..., 1])(rows.topk(2, dim=-1).values)

    return lambda a, k: nearest(over(gap)(a, k))


def variance(x, axes, keep, k):
    return x.var(dim=axes, unbiased=k.get("unbiased", True), keepdim=keep)


REDUCE = ("axis", "keepdims")
operation("sum", call("sum", *REDUCE), over(lambda x, d, keep: x.to(torch.float64).sum(dim=d, keepdim=keep)))
operation("mean", call("mean", *REDUCE), over(lambda x, d, keep: x.to(torch.float64).mean(dim=d, keepdim=keep)))
operation("prod", call("prod", *REDUCE), over(product))
operation("max", call("max", *REDUCE), over(lambda x, d, keep: x.amax(dim=d, keepdim=keep)), extreme_gap(1))
operation("min", call("min", *REDUCE), over(lambda x, d, keep: x.amin(dim=d, keepdim=keep)), extreme_gap(-1))
operation("var", call("var", *REDUCE, "unbiased"), lambda a, k: over(lambda x, d, keep: variance(x, d, keep, k))(a, k),
          lambda a, k: over(lambda x, d, keep: smallest_spread(x, d))(a, k))
operation("std", call("std", *REDUCE, "unbiased"), lambda a, k: over(lambda x, d, keep: variance(x, d, keep, k).sqrt())(a, k),
          lambda a, k: nearest(over(lambda x, d, keep: variance(x, d, keep, k))(a, k)))
operation("logsumexp", call("logsumexp", *REDUCE), over(lambda x, d, keep: x.logsumexp(dim=d, keepdim=keep)))
for name, sign in [("argmax", 1), ("argmin", -1)]:
    operation(name, call(name, *REDUCE), lambda a, k, s=sign: (a[0] * s).argmax(dim=k["axis"], keepdim=k.get("keepdims", False)),
              extreme_gap(sign))


def softmax(x, axes):
    e = (x - x.amax(dim=axes, keepdim=True).detach()).exp()
    return e / e.sum(dim=axes, keepdim=True)


def layer_norm(x, axes, eps=1e-5):
    d = x - x.mean(dim=axes, keepdim=True)
    return d * torch.rsqrt((d * d).mean(dim=axes, keepdim=True) + eps)


def smallest_spread(x, axes):
    """As `spread`, of a variance: that of equal numbers other than 0 is 0 or a rounding error's square, of which `lion`
    takes the sign (seed 8882)."""
    if not x.numel():
        return FAR
    apart, size = (x - x.mean(dim=axes, keepdim=True)).abs().amax(dim=axes), x.abs().amax(dim=axes)
    ratio = (apart / size)[size > 0]
    return ratio.min().item() / 100 if ratio.numel() else FAR


def spread(x, axes):
    """A hundredth of how far the numbers of a norm lie apart beside their size: of nearly equal ones rounding is all
    that is left. All backwards of norms leave out that the deviations from a mean do not quite add up to 0 (PyTorch's
    own too: seed 5892 has the same error there), and no rounding of single operations shows what that costs. Equal
    ones are fine."""
    if not x.numel():
        return FAR
    apart = (x - x.mean(dim=axes, keepdim=True)).abs().amax(dim=axes)
    ratio = apart / x.abs().amax(dim=axes).clamp(min=1e-30)
    ratio = ratio[ratio > 1e-14]
    return ratio.min().item() / 100 if ratio.numel() else FAR


def spread_over(a, k):
    return over(lambda x, d, keep: spread(x, d))(a, k)


operation("softmax", call("softmax", "axis"), over(lambda x, d, keep: softmax(x, d)))
operation("log_softmax", call("log_softmax", "axis"), over(lambda x, d, keep: softmax(x, d).log()))
operation("layer_norm", call("layer_norm", "axis"), over(lambda x, d, keep: layer_norm(x, d)), spread_over)
operation("rms_norm", call("rms_norm", "axis"), over(lambda x, d, keep: x * torch.rsqrt((x * x).mean(dim=d, keepdim=True) + 1e-5)))


# ── moves ──
def shape_of(k, a):
    return [a[0].shape[k.get("samples", 0)] if d == "B" else d for d in k["shape"]]


def slice_text(a, k):
    parts = []
    for cut in k["cuts"]:
        if isinstance(cut, int):
            parts.append(str(cut))
        else:
            low, high, step = cut
            parts.append(":".join(["" if low is None else str(low), "" if high is None else str(high)] + ([str(step)] if step > 1 else [])))
    return f"{a[0]}[{', '.join(parts)}]"


def slice_meaning(a, k):
    return a[0][tuple(cut if isinstance(cut, int) else slice(*cut) for cut in k["cuts"])]


def pad_meaning(a, k):
    ends = [n for pair in zip(reversed(k["low"]), reversed(k["high"])) for n in pair]
    return F.pad(a[0], ends, value=k["value"])


operation("reshape", lambda a, k: f"reshape({', '.join([a[0], *map(str, k['shape'])])})", lambda a, k: a[0].reshape(shape_of(k, a)))
operation("flatten", lambda a, k: f"flatten({a[0]}, from={k['from']})", lambda a, k: a[0].flatten(k["from"]))
operation("transpose", call("transpose"), lambda a, k: a[0].transpose(-1, -2))
operation("permute", lambda a, k: f"permute({', '.join([a[0], *map(str, k['order'])])})", lambda a, k: a[0].permute(*k["order"]))
operation("squeeze", lambda a, k: f"squeeze({a[0]}, axis={k['axis']})", lambda a, k: a[0].squeeze(k["axis"]))
operation("unsqueeze", lambda a, k: f"unsqueeze({a[0]}, {k['axis']})", lambda a, k: a[0].unsqueeze(k["axis"]))
operation("broadcast_to", lambda a, k: f"broadcast_to({a[0]}, {literal(k['shape'])})", lambda a, k: a[0].broadcast_to(shape_of(k, a)))
operation("to_samples", lambda a, k: f"broadcast_to({a[0]}, [{', '.join(['B', *map(str, k['row'])])}])",  # the second tells how many they are
          lambda a, k: a[0].broadcast_to([a[1].shape[k["samples"]], *k["row"]]))
operation("concat", lambda a, k: f"concat([{', '.join(a)}], axis={k['axis']})", lambda a, k: torch.cat(a, dim=k["axis"]))
operation("stack", lambda a, k: f"stack([{', '.join(a)}], axis={k['axis']})", lambda a, k: torch.stack(a, dim=k["axis"]))
operation("split", lambda a, k: f"split({a[0]}, {literal(k['parts'])}, axis={k['axis']})[{k['index']}]",
          lambda a, k: a[0].split(k["parts"], dim=k["axis"])[k["index"]])
operation("slice", slice_text, slice_meaning)
operation("pad", lambda a, k: f"pad({a[0]}, {literal(k['low'])}, {literal(k['high'])}, value={literal(k['value'])})", pad_meaning)
operation("rearrange", lambda a, k: "rearrange({}, \"{}\"{})".format(a[0], k["pattern"], "".join(f", {n}={v}" for n, v in k["sizes"].items())),
          lambda a, k: rearrange(a[0], k["pattern"], k["sizes"]))
operation("gather", call("gather"), lambda a, k: a[0][a[1]])
operation("lookup", lambda a, k: f"{a[0]}[{a[1]}]", lambda a, k: a[0][a[1]])
operation("one_hot", lambda a, k: f"one_hot({a[0]}, {k['n']})", lambda a, k: F.one_hot(a[0], k["n"]).to(torch.float64))
operation("iota", lambda a, k: f"f32(iota({literal(k['shape'])}, axis={k['axis']}))",
          lambda a, k: torch.arange(k["shape"][k["axis"]], dtype=torch.float64).reshape(
              [-1 if i == k["axis"] else 1 for i in range(len(k["shape"]))]).expand(k["shape"]))
operation("full", lambda a, k: f"full({literal(k['shape'])}, {k['value']})",
          lambda a, k: torch.full(k["shape"], k["value"], dtype=torch.float64))


def rearrange(x, pattern, sizes):
    """Only patterns of the generator: names, and one level of brackets."""
    import re

    left, right = (re.findall(r"\(([^)]*)\)|(\w+)", side) for side in pattern.split("->"))
    left, right = ([(group or name).split() for group, name in side] for side in (left, right))
    known = dict(sizes)
    for group, size in zip(left, x.shape):
        rest = [n for n in group if n not in known]
        for n in rest:
            known[n] = size // math.prod(known[m] for m in group if m != n)
    flat = [n for group in left for n in group]
    x = x.reshape([known[n] for n in flat]).permute([flat.index(n) for group in right for n in group])
    return x.reshape([math.prod(known[n] for n in group) for group in right])


# ── products ──
operation("matmul", lambda a, k: f"{a[0]} @ {a[1]}", lambda a, k: product8(a[0], a[1], k.get("scales")))
operation("matmul_transposed", lambda a, k: f"{a[0]} @ transpose({a[1]})", lambda a, k: product8(a[0], a[1].transpose(-1, -2), k.get("scales")))


def attend(a, k):
    q, key, value = a[:3]
    groups = q.shape[-3] // key.shape[-3]
    key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    scale = k.get("scale", 1 / math.sqrt(q.shape[-1]))
    scores = q @ key.transpose(-1, -2) * scale
    if "softcap" in k:
        scores = torch.tanh(scores / k["softcap"]) * k["softcap"]
    rows, columns = scores.shape[-2:]
    if len(a) > 3:
        scores = scores.masked_fill(~a[3], -math.inf) if a[3].dtype == torch.bool else scores + a[3]
    if k.get("causal"):
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, dim=-1) @ value


def sees_something(a, k):
    """A row of attention that sees no key gives zeros; PyTorch says NaN: kept away from."""
    rows, columns = a[0].shape[-2], a[1].shape[-2]
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if k.get("causal"):
        seen = seen.tril(columns - rows)
    if len(a) > 3 and a[3].dtype == torch.bool:
        seen = seen & a[3]
    return FAR if seen.any(-1).all() else 0


def attention_text(a, k):
    words = list(a[:3])
    if k.get("causal"):
        words.append("causal=true")
    if len(a) > 3:
        words.append(f"mask={a[3]}")
    if "scale" in k:
        words.append(f"scale={k['scale']}")
    if "softcap" in k:
        words.append(f"softcap={k['softcap']}")
    return f"attention({', '.join(words)})"


operation("attention", attention_text, attend, sees_something)
operation("attention_dropout", lambda a, k: f"{attention_text(a, k)[:-1]}, dropout={k['dropout']})", attend, sees_something, exact=False)


def rope(a, k):
    x = a[0]
    half, rows = x.shape[-1] // 2, x.shape[-2]
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / half))
    c, s = angle.cos(), angle.sin()
    return torch.cat([x[..., :half] * c - x[..., half:] * s, x[..., half:] * c + x[..., :half] * s], dim=-1)


operation("rope", call("rope"), rope)

WINDOW = ("stride", "padding", "dilation", "groups")


def convolve(a, k):
    top, left, bottom, right = k["padding"]
    y = F.conv2d(F.pad(a[0], [left, right, top, bottom]), a[1], None, k["stride"], 0, k["dilation"], k["groups"])
    return y + a[2].reshape(1, -1, 1, 1) if len(a) > 2 else y


operation("conv2d", lambda a, k: call("conv2d", *WINDOW)(a, k), convolve)


def pool_max(a, k):
    top, left, bottom, right = k["padding"]
    return F.max_pool2d(F.pad(a[0], [left, right, top, bottom], value=-math.inf), k["kernel"], k["stride"])


def pool_gap(a, k):
    top, left, bottom, right = k["padding"]
    padded = F.pad(a[0], [left, right, top, bottom], value=-1e9)
    windows = F.unfold(padded.reshape(-1, 1, *padded.shape[-2:]), k["kernel"], stride=k["stride"])
    return FAR if windows.shape[1] < 2 else (lambda t: nearest(t[:, 0] - t[:, 1]))(windows.topk(2, dim=1).values)


def pool_average(a, k):
    top, left, bottom, right = k["padding"]
    ones = F.pad(torch.ones_like(a[0]), [left, right, top, bottom])
    total = F.avg_pool2d(F.pad(a[0], [left, right, top, bottom]), k["kernel"], k["stride"])
    return total if k["count_include_pad"] else total / F.avg_pool2d(ones, k["kernel"], k["stride"])


POOL = ("kernel", "stride", "padding")
operation("max_pool2d", call("max_pool2d", *POOL), pool_max, pool_gap)
operation("avg_pool2d", call("avg_pool2d", *POOL, "count_include_pad"), pool_average)
operation("global_avg_pool2d", call("global_avg_pool2d"), lambda a, k: a[0].mean(dim=(2, 3)))

# ── losses ──


def cross_entropy(a, k):
    """One value for each row; ignored ones are 0."""
    logits, target = a
    logs = torch.log_softmax(logits, dim=-1)
    smoothing, ignore = k.get("smoothing", 0), k.get("ignore")
    keep = target != ignore if ignore is not None else torch.ones_like(target, dtype=torch.bool)
    nll = -logs.gather(-1, torch.where(keep, target, torch.zeros_like(target)).unsqueeze(-1)).squeeze(-1)
    nll = (1 - smoothing) * nll - smoothing * logs.mean(dim=-1)
    return torch.where(keep, nll, torch.zeros_like(nll))


def cross_entropy_mean(a, k):
    value, kept = cross_entropy(a, k), a[1].numel()
    if "ignore" in k:
        kept = (a[1] != k["ignore"]).sum()
    return value.sum() / kept


LOSS = ("smoothing", "ignore")
operation("cross_entropy", call("cross_entropy", *LOSS), cross_entropy)
operation("cross_entropy_mean", lambda a, k: f"mean({call('cross_entropy', *LOSS)(a, k)})", cross_entropy_mean,
          lambda a, k: FAR if "ignore" not in k or (a[1] != k["ignore"]).any() else 0)
operation("weighted_mean", lambda a, k: f"mean(weighted({a[0]} * {a[1]}, {a[1]}))", lambda a, k: (a[0] * a[1]).sum() / a[1].expand(a[0].shape).sum(),
          lambda a, k: nearest(a[1].sum().abs()))


def by_weight(name):
    """mean(x) as mean(weighted(x, w)): sum(x·w) / sum(w); a weight that x has is multiplied with w."""
    plain = OPERATIONS[name]

    def text(a, k):
        inner = f"weighted({a[0]} * {a[1]}, {a[1]})" if name == "weighted_mean" else plain.text(a[:-1], k)[len("mean(") : -1]
        return f"mean(weighted({inner}, {a[-1]}))"

    def meaning(a, k):
        x, w, own = a[0], a[-1], torch.ones(())
        if name == "weighted_mean":
            x, own = a[0] * a[1], a[1]
        if name == "cross_entropy_mean":
            x = cross_entropy(a[:2], k)
            own = (a[1] != k["ignore"]).to(torch.float64) if "ignore" in k else own
        return (x * w).sum() / (own * w).expand(x.shape).sum()

    operation(name + "_by", text, meaning)


for name in ("mean", "cross_entropy_mean", "weighted_mean"):
    by_weight(name)
operation("mse", call("mse"), lambda a, k: (a[0] - a[1]) ** 2)
operation("l1", call("l1"), lambda a, k: (a[0] - a[1]).abs(), lambda a, k: nearest((a[0] - a[1]).abs()))
operation("huber", call("huber"), lambda a, k: F.huber_loss(a[0], a[1], reduction="none"), lambda a, k: nearest(((a[0] - a[1]).abs() - 1).abs()))
operation("bce_with_logits", call("bce_with_logits"), lambda a, k: F.binary_cross_entropy_with_logits(a[0], a[1], reduction="none"))
operation("topk_correct", lambda a, k: f"topk_correct({a[0]}, {a[1]}, k={k['k']})",
          lambda a, k: (a[0] > a[0].gather(-1, a[1].unsqueeze(-1))).sum(-1) < k["k"],
          lambda a, k: nearest((lambda d: d[d != 0])((a[0] - a[0].gather(-1, a[1].unsqueeze(-1))).abs())))


# ── blocks: the first operand is the layer's input, the others are its parameters ──
def block(name, words, meaning, kink=None, exact=True, states=None):
    operation(name, lambda a, k: f"{name}({', '.join([*words(k), 'name=' + chr(34) + k['name'] + chr(34)])})({a[0]})", meaning, kink, exact, states)


def linear(a, k):
    y = product8(a[0], a[1].T, k.get("scales"))
    return y + a[2] if len(a) > 2 else y


def swiglu(a, k):
    gate, up, down = (lambda x, w=w: product8(x, w.T, k.get("scales")) for w in a[1:])
    return down(F.silu(gate(a[0])) * up(a[0]))


def layer_words(k, words):
    return words + ([f"precision={k['precision']}"] if "precision" in k else [])


def batch_norm(a, k):
    x, weight, bias, mean, var = a
    axes, shape = [0, *range(2, x.dim())], [1, -1] + [1] * (x.dim() - 2)
    if k["training"]:
        mean, var = x.mean(dim=axes), x.var(dim=axes, unbiased=False)
    y = (x - mean.reshape(shape)) * torch.rsqrt(var.reshape(shape) + 1e-5)
    return y * weight.reshape(shape) + bias.reshape(shape)


def batch_norm_states(a, k):
    x, _, _, mean, var = a
    axes = [0, *range(2, x.dim())]
    return {3: 0.9 * mean + 0.1 * x.mean(dim=axes), 4: 0.9 * var + 0.1 * x.var(dim=axes, unbiased=True)}


block("Linear", lambda k: layer_words(k, [str(k["out"])] + ([] if k["bias"] else ["bias=false"])), linear)
# a layer that is applied several times: what it is, of the value of its weight, and an application: (layer, x, parameters)
operation("declare", lambda a, k: f"Linear({', '.join(layer_words(k, [str(k['out'])] + ([] if k['bias'] else ['bias=false'])))}, name=\"{k['name']}\")", lambda a, k: a[0])
operation("apply", lambda a, k: f"{a[0]}({a[1]})", lambda a, k: linear(a[1:], k))
block("Conv2d", lambda k: [str(k["out"]), literal(k["kernel"])] + [f"{n}={literal(k[n])}" for n in (*WINDOW, "bias")], convolve)
block("LayerNorm", lambda k: [], lambda a, k: layer_norm(a[0], [-1]) * a[1] + a[2], lambda a, k: spread(a[0], [-1]))
block("RMSNorm", lambda k: [], lambda a, k: a[0] * torch.rsqrt((a[0] * a[0]).mean(-1, keepdim=True) + 1e-5) * a[1])
block("BatchNorm", lambda k: [], batch_norm, lambda a, k: spread(a[0], [0, *range(2, a[0].dim())]), states=batch_norm_states)
block("Embedding", lambda k: [str(k["count"]), str(k["dim"])], lambda a, k: a[1][a[0]])
block("SwiGLU", lambda k: layer_words(k, [str(k["hidden"])]), swiglu)
