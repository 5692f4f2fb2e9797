"""Operations that wider.py draws, beside those of the other files: layers whose weights and inputs are rounded, 8-bit floats that are rounded to,
learnt scales, weights that go where their elements go, and metrics that are read twice or are tables."""
import math

import torch
import torch.nn.functional as F

from further_operations import seen_largest
from operations import FAR, QUANTISERS, block, convolve, extreme_gap, fake_quant, far_from_ties, linear, literal, nearest, operation, over, whole_numbers

LEAST = 1.1754944e-38


# ── layers with rounded weights: x, weight, bias, what is observed of the input, stored scales, factors of the input ──
def parts_of(a, k):
    """x times its factors, and the others by name."""
    rest = dict(zip(k["has"], a[1:]))
    shape = [1, -1] + [1] * (a[0].dim() - 2) if "kernel" in k else [-1]
    return (a[0] * rest["input_factor"].reshape(shape) if "input_factor" in rest else a[0]), rest


def rows_of(weight, k):
    """The weights that share a scale, row by row."""
    return weight.reshape(1 if k.get("per_tensor") else weight.shape[0] if not k.get("group") else -1, *([-1] if not k.get("group") else [k["group"]]))


def weight_steps(rows, rest, k):
    high = whole_numbers({"bits": k["bits"], "signed": True})[1]
    own = rows.detach().abs().amax(1, keepdim=True).clamp(min=LEAST * high) / high
    stored = rest["weight_scale"].reshape(-1, 1) if "weight_scale" in rest else torch.zeros_like(own)
    return torch.where(stored > 0, stored, own)


def input_step(x, rest, k):
    how = {"bits": k["input_bits"], "signed": k["signed_input"]}
    high = whole_numbers(how)[1]
    largest = seen_largest([x, rest["input.max_abs"]], k).reshape([1] * x.dim()) if "input.max_abs" in rest else x.detach().abs().amax(-1, keepdim=True)
    return largest.clamp(min=LEAST * high) / high, how


def quantised(product):
    def meaning(a, k):
        x, rest = parts_of(a, k)
        rows = rows_of(rest["weight"], k)
        rounds = {"rounds": k.get("rounds", True)}
        w = fake_quant([rows], {"bits": k["bits"], "signed": True, "scale": weight_steps(rows, rest, k), **rounds}).reshape(rest["weight"].shape)
        if k["input_bits"]:
            step, how = input_step(x, rest, k)
            x = fake_quant([x], {**how, "scale": step, **rounds})
        return product([x, w, *([rest["bias"]] if k["bias"] else [])], k)

    return meaning


def quantised_kink(a, k):
    x, rest = parts_of(a, k)
    rows = rows_of(rest["weight"], k)
    return min(far_from_ties(rows, weight_steps(rows, rest, k)), far_from_ties(x, input_step(x, rest, k)[0]) if k["input_bits"] else FAR)


def quantised_states(a, k):
    if "input.max_abs" not in k["has"]:
        return {}
    return {1 + k["has"].index("input.max_abs"): seen_largest([parts_of(a, k)[0], parts_of(a, k)[1]["input.max_abs"]], k)}


FLAGS = ("per_tensor", "stored_scale", "input_factor", "dynamic")
WORDS = ("bits", "signed_input", "momentum", "bias", "group", *FLAGS)


def quantised_words(k, first=()):
    words = [f"input_bits={k['input_bits'] or 'none'}"] + [f"{n}={literal(k[n])}" for n in (*first, *WORDS) if n in k]
    return [str(k["out"])] + ([literal(k["kernel"])] if "kernel" in k else []) + words


block("QuantLinear", quantised_words, quantised(lambda a, k: linear(a, {})), quantised_kink, states=quantised_states)
block("QuantConv2d", lambda k: quantised_words(k, ("stride", "padding", "dilation", "groups")), quantised(convolve), quantised_kink, states=quantised_states)


# ── a scale that is learnt: Esser et al., Learned Step Size Quantization ──
def along(k, a):
    axis = k.get("axis")
    size = a[1].abs() + 0.0625
    return size.reshape([] if axis is None else [-1 if i == axis % a[0].dim() else 1 for i in range(a[0].dim())])


def learnt_quant(a, k):
    x, scale, (low, high) = a[0], along(k, a), whole_numbers(k)
    if not k.get("rounds", True):
        return x
    v = (x / scale).detach()
    n = v.round().clamp(low, high)
    inside = n == v.round()
    slope = torch.where(inside, x, torch.zeros_like(x)) + scale * torch.where(inside, n - v, n)
    return n * scale.detach() + slope - slope.detach()


operation("fake_quant_learnt", lambda a, k: f"fake_quant({a[0]}, abs({a[1]}) + 0.0625, bits={k['bits']}, signed={literal(k['signed'])}" + (f", axis={k['axis']})" if "axis" in k else ")"),
          learnt_quant, lambda a, k: min(far_from_ties(a[0], along(k, a)), nearest(a[1].abs())))
QUANTISERS.update({"QuantLinear", "QuantConv2d", "fake_quant_learnt", "fake_float8"})

# ── 8-bit floats: digits behind the first, the least exponent, the largest number ──
FORMATS = {"e4m3": (3, -6, 448.0), "e5m2": (2, -14, 57344.0)}


def float8_scale(a, k):
    return FORMATS[k["format"]][2] / a[0].detach().abs().max().clamp(min=7.8886091e-31) if k["scale"] is None else k["scale"]


def places(v, k):
    """The distance of neighbours at v."""
    digits, least, _ = FORMATS[k["format"]]
    return 2.0 ** (torch.floor(torch.log2(v.abs().clamp(min=2.0**-60))).clamp(min=least) - digits)


def fake_float8(a, k):
    x, largest, scale = a[0], FORMATS[k["format"]][2], float8_scale(a, k)
    if not k.get("rounds", True):
        return x
    v = x.detach() * scale
    n = ((v / places(v, k)).round() * places(v, k)).clamp(-largest, largest)
    slope = torch.where(v.abs() < largest * (29 / 28 if k["format"] == "e4m3" else 15 / 14), x, torch.zeros_like(x))
    return n / scale + slope - slope.detach()


def float8_kink(a, k):
    v = a[0] * float8_scale(a, k)
    return min(far_from_ties(v, places(v, k)), nearest((v.abs() / FORMATS[k["format"]][2] - (29 / 28 if k["format"] == "e4m3" else 15 / 14)).abs()))


operation("fake_float8", lambda a, k: f'fake_float8({a[0]}, ' + (f'float8_scale({a[0]}, format="{k["format"]}")' if k["scale"] is None else str(k["scale"])) + f', format="{k["format"]}")',
          fake_float8, float8_kink)

# ── weights: the first operand has a weight, whose numbers are the second, which went the same way ──
operation("weighted", lambda a, k: f"weighted({a[0]}, {a[1]})", lambda a, k: a[0])
operation("unweighted", lambda a, k: f"unweighted({a[0]})", lambda a, k: a[0])
operation("spread_like", lambda a, k: f"f32({a[0]}) * ones_like({a[1]})", lambda a, k: a[0].to(torch.float64) * torch.ones_like(a[1]))


def weighted_reduction(how):
    """Of (x, w, axes, keep); what counts of `max` and `min` is what has a weight other than 0."""
    total = lambda w, d, keep: w.sum(dim=d, keepdim=keep)
    mean = lambda x, w, d, keep: total(x * w, d, keep) / total(w, d, keep)

    def variance(x, w, d, keep, less):
        centre = mean(x, w, d, True)
        return total(w * (x - centre) ** 2, d, keep) / (total(w, d, keep) - less)

    return {
        "sum": lambda x, w, d, keep: total(x * w, d, keep), "mean": mean,
        "var": lambda x, w, d, keep: variance(x, w, d, keep, 1), "plain_var": lambda x, w, d, keep: variance(x, w, d, keep, 0),
        "max": lambda x, w, d, keep: torch.where(w != 0, x, -math.inf).amax(dim=d, keepdim=keep),
        "min": lambda x, w, d, keep: torch.where(w != 0, x, math.inf).amin(dim=d, keepdim=keep),
    }[how]


def weighted_meaning(a, k):
    x, w = a[0], a[1].expand(a[0].shape)
    return over(lambda x, d, keep: weighted_reduction(k["how"])(x, w if x.dim() == w.dim() else w.reshape(x.shape), d, keep))([x], k)


def weighted_kink(a, k):
    w = a[1].expand(a[0].shape)
    enough = over(lambda x, d, keep: x.sum(dim=d))([w], k).min().item() - (1.5 if k["how"] == "var" else 0)
    if k["how"] in ("max", "min"):
        sign = 1 if k["how"] == "max" else -1
        apart = extreme_gap(sign)([torch.where(w != 0, a[0], -sign * 1e6 + torch.arange(w.numel(), dtype=w.dtype).reshape(w.shape))], k)
        return min(apart, 0 if enough <= 0 else FAR)
    return 0 if enough < 0.2 else FAR


def weighted_text(a, k):
    name = {"plain_var": "var"}.get(k["how"], k["how"])
    words = [a[0]] + [f"{n}={literal(k[n])}" for n in ("axis", "keepdims") if n in k] + (["unbiased=false"] if k["how"] == "plain_var" else [])
    return f"{name}({', '.join(words)})"


operation("reduce_weighted", weighted_text, weighted_meaning, weighted_kink)


# ── features of a teacher, behind a projection: student, teacher, weight, bias ──
def distilled(a, k):
    own = F.conv2d(a[0], a[2], a[3]) if a[0].dim() == 4 else a[0] @ a[2].T + a[3]
    return (own - a[1].detach()) ** 2


operation("DistillFeatures", lambda a, k: f'DistillFeatures(name="{k["name"]}")({a[0]}, {a[1]})', distilled)


# ── metrics ──
def r2(a, k):
    left, whole = ((a[1] - a[0]) ** 2).mean(), ((a[1] - a[1].mean()) ** 2).mean()
    return 1 - left / whole


def pearson(x, y):
    x, y = x - x.mean(), y - y.mean()
    return (x * y).mean() / ((x * x).mean() * (y * y).mean()).sqrt()


def confusion(a, k):
    classes = a[0].shape[-1]
    return torch.bincount((a[1] * classes + a[0].argmax(-1)).reshape(-1), minlength=classes * classes).reshape(classes, classes).to(torch.float64)


operation("r2", lambda a, k: f"r2({a[0]}, {a[1]})", r2, lambda a, k: a[1].var(unbiased=False).item() if a[1].numel() > 1 else 0)
operation("correlation", lambda a, k: f"correlation({a[0]}, {a[1]})", lambda a, k: pearson(*a),
          lambda a, k: min(x.var(unbiased=False).item() if x.numel() > 1 else 0 for x in a))
operation("confusion", lambda a, k: f"confusion({a[0]}, {a[1]})", confusion, lambda a, k: extreme_gap(1)(a, {"axis": -1}))
operation("mean_of", lambda a, k: f"mean({a[0]})", lambda a, k: a[0].to(torch.float64).mean())
