"""Operations of the language that further.py draws, beside those of operations.py and more_operations.py: running sums, rows of each
sample, layers that are applied again with their states, losses of rows, metrics."""
import math

import torch
import torch.nn.functional as F

from more_operations import gru, lstm, rnn
from operations import FAR, batch_norm, batch_norm_states, block, call, extreme_gap, fake_quant, far_from_ties, linear, literal, nearest, operation, spread, whole_numbers


# ── running sums and products ──
def running(start, step):
    """One element after the other: PyTorch's own gradient of cumprod divides by the elements."""

    def meaning(a, k):
        rows = list(a[0].unbind(k["axis"]))
        if k["exclusive"]:
            rows = [torch.full_like(rows[0], start), *rows[:-1]]
        for i in range(1, len(rows)):
            rows[i] = step(rows[i - 1], rows[i])
        return torch.stack(rows, k["axis"])

    return meaning


operation("cumsum", call("cumsum", "axis", "exclusive"), running(0, torch.add))
operation("cumprod", call("cumprod", "axis", "exclusive"), running(1, torch.mul))


# ── rows by their numbers; zeros where a number is none of theirs ──
def take(a, k):
    x, index = a[0].movedim(k["axis"], 0), a[1]
    rows = x[index.clamp(0, x.shape[0] - 1)]
    inside = ((index >= 0) & (index < x.shape[0])).reshape([*index.shape, *[1] * (x.dim() - 1)])
    rows = torch.where(inside, rows, torch.zeros_like(rows))
    axes = [index.dim() + i for i in range(k["axis"])] + list(range(index.dim()))
    return rows.permute(axes + [i for i in range(rows.dim()) if i not in axes])


operation("take", call("take", "axis"), take)
operation("take_each", call("take_each"), lambda a, k: torch.stack([take([x, index], {"axis": 0}) for x, index in zip(*a)]))
operation("numbers", lambda a, k: f"(arange({k['n']}) * {k['by']} + {k['first']}) % {k['count']}",
          lambda a, k: (torch.arange(k["n"]) * k["by"] + k["first"]) % k["count"])
operation("embed", call("embed"), lambda a, k: a[0][a[1]])


# ── moves and tensors of one number ──
def turned(a, k):
    x = a[0]
    for axis, step in enumerate(k["steps"]):
        x = x.flip(axis).index_select(axis, torch.arange(0, x.shape[axis], step)) if step else x
    return x


operation("turned", lambda a, k: f"{a[0]}[{', '.join(f'::-{step}' if step else ':' for step in k['steps'])}]", turned)
operation("expand", lambda a, k: f"expand({a[0]}, {', '.join(map(str, k['sizes']))})", lambda a, k: a[0].expand(k["sizes"]))
for name, value in {"zeros_like": 0, "ones_like": 1}.items():
    operation(name, lambda a, k, n=name: f"{n}({a[0]}) + {k['value']}", lambda a, k, v=value: torch.full_like(a[0], v + k["value"]))
operation("pow", call("pow"), lambda a, k: a[0] ** a[1], lambda a, k: nearest(a[0] - 0.1))
operation("isfinite", call("isfinite"), lambda a, k: a[0].isfinite())
operation("bool", call("bool"), lambda a, k: a[0] != 0, lambda a, k: nearest(a[0].abs()) if a[0].is_floating_point() else FAR)
operation("filled", lambda a, k: f"{k['of']}({literal(k['shape'])})" if k["of"] != "full" else f"full({literal(k['shape'])}, {k['value']})",
          lambda a, k: torch.full(k["shape"], {"zeros": 0, "ones": 1, "full": k["value"]}[k["of"]], dtype=torch.float64))
operation("prelu", call("prelu"), lambda a, k: F.prelu(a[0], a[1]), lambda a, k: nearest(a[0].abs()))
operation("matmul_called", lambda a, k: f"matmul({a[0]}, {a[1]})", lambda a, k: a[0] @ a[1])
operation("unlike", lambda a, k: f"{a[0]} != {k['value']}", lambda a, k: a[0] != k["value"])
operation("at_most", lambda a, k: f"{a[0]} <= {k['value']}", lambda a, k: a[0] <= k["value"],
          lambda a, k: nearest((a[0] - k["value"]).abs()) if a[0].is_floating_point() else FAR)
operation("div_whole", lambda a, k: f"div({a[0]}, {k['value']})", lambda a, k: torch.div(a[0], k["value"], rounding_mode="trunc"))
for name in ("u8", "u32"):
    operation(name, call(name), lambda a, k: a[0])
operation("whole_sum", call("sum", "axis"), lambda a, k: a[0].sum(dim=k["axis"]))
operation("whole_max", call("max", "axis"), lambda a, k: a[0].amax(dim=k["axis"]))
operation("count", lambda a, k: f"{a[0]} / count({a[0]}, axis={k['axis']})", lambda a, k: a[0] / a[0].shape[k["axis"]])
operation("drop_path", lambda a, k: f'drop_path({a[0]}, {k["p"]}, mode="{k["mode"]}")', lambda a, k: a[0], exact=False)
operation("Dropout", lambda a, k: f"Dropout({k['p']})({a[0]})", lambda a, k: a[0], exact=False)
for name in ("random_normal", "random_uniform"):
    operation(name, lambda a, k, n=name: f"{a[0]} + 0.1 * {n}({a[0]}.shape)", lambda a, k: a[0], exact=False)


# ── layers that are applied again: what `declare_layer` made, x, parameters and states ──
def declared(a, k):
    return f"{k['block']}({', '.join([*k['words'], 'name=' + chr(34) + k['name'] + chr(34)])})"


def again(name, meaning, kink=None, states=None, definition=None):
    """attribute how: a format of the layer."""
    operation(name, lambda a, k: f"{k['how'].format(a[0])}({', '.join(a[1 : k['inputs'] + 1])})" + (f"[{k['index']}]" if "index" in k else ""), meaning,
              kink and (lambda a, k: kink(a[1:], k)), states=states and (lambda a, k: {i + 1: new for i, new in states(a[1:], k).items()}), definition=definition)


def held(meaning):
    """An average, or a layer without a gradient, has the same parameters, in the first step."""

    def of(a, k):
        first = k["inputs"] + 1
        weights = a[first:] if k["how"] == "{}" else [w.detach() for w in a[first:]]
        return meaning([*a[1:first], *weights], k)

    return of


operation("declare_layer", declared, lambda a, k: a[0])
again("Linear_again", held(linear))
again("BatchNorm_again", held(batch_norm), lambda a, k: spread(a[0], [0, *range(2, a[0].dim())]), batch_norm_states)


def instance_norm(a, k):
    x, mean, var, *affine = a
    shape = [1, -1] + [1] * (x.dim() - 2)
    if k["training"]:
        y = F.instance_norm(x)
    else:
        y = (x - mean.reshape(shape)) * torch.rsqrt(var.reshape(shape) + 1e-5)
    return y * affine[0].reshape(shape) + affine[1].reshape(shape) if affine else y


def instance_norm_states(a, k):
    x, mean, var = a[:3]
    places = list(range(2, x.dim()))
    return {1: 0.9 * mean + 0.1 * x.mean(dim=[0, *places]), 2: 0.9 * var + 0.1 * x.var(dim=places, unbiased=True).mean(0)}


again("InstanceNorm_again", held(instance_norm), lambda a, k: spread(a[0].flatten(2), [-1]), instance_norm_states)

CENTRED = """block Centred()(x: [N, C, ...]) {
  state seen: [C] = zeros
  now = mean(x, axis=[0] + range(2, x.rank))
  update seen = running_average(seen, stop_gradient(now), 0.25)
  return x - reshape(seen, [1, C] + [1] * (x.rank - 2))
}"""
CARRIED = """block Carried()(x: [..., D]) {
  param weight: [D] = normal(0.5)
  state hidden: [D] = zeros
  y = tanh(x * weight + hidden)
  update hidden = mean(y, axis=range(0, x.rank - 1))
  return y
}"""


def centred_states(a, k):
    x, seen = a
    return {1: 0.75 * seen + 0.25 * x.mean(dim=[0, *range(2, x.dim())])}


def carried(a, k):
    x, weight, hidden = a
    return torch.tanh(x * weight + hidden)




# ── FakeQuant: the largest number that it has seen is a state ──
def seen_largest(a, k):
    x, most = a
    now = x.detach().abs().max().reshape(1)
    return torch.where(most > 0, most + k["momentum"] * (now - most), now) if k["training"] else most


def fake_quant_seen(a, k):
    return fake_quant(a, {**k, "signed": True, "scale": seen_largest(a, k).item() / whole_numbers({**k, "signed": True})[1]})


again("FakeQuant_again", held(fake_quant_seen), lambda a, k: far_from_ties(a[0], seen_largest(a, k).item() / whole_numbers({**k, "signed": True})[1]),
      lambda a, k: {1: seen_largest(a, k)})

again("Centred_again", held(lambda a, k: a[0] - a[1].reshape([1, -1] + [1] * (a[0].dim() - 2))), None, centred_states, CENTRED)
again("Carried_again", held(carried), None, lambda a, k: {2: carried(a, k).flatten(0, -2).mean(0)}, CARRIED)


# ── recurrent layers, x [B, T, I], with the states of an earlier application: the outputs, the last states ──
def recurrent_again(step):
    def meaning(a, k):
        x, *given = a[: k["inputs"]]
        weights, ends_h, ends_c = list(a[k["inputs"] :]), [], []
        for layer in range(k["layers"]):
            sides = []
            for side in range(k["directions"]):
                own, weights = weights[: k["each"]], weights[k["each"] :]
                own = own if k["each"] == 4 else [*own, *(torch.zeros(own[0].shape[0], dtype=x.dtype) for _ in range(2))]
                at = layer * k["directions"] + side
                h, c = ([*given, *given][i][at] if given else torch.zeros(x.shape[0], k["hidden"], dtype=x.dtype) for i in range(2))
                rows = []
                for t in range(x.shape[1]):
                    h, c = step((x.flip(1) if side else x)[:, t], h, c, *own)
                    rows.append(h)
                y = torch.stack(rows, 1)
                sides.append(y.flip(1) if side else y)
                ends_h.append(h)
                ends_c.append(c)
            x = torch.cat(sides, -1)
        return (x, torch.stack(ends_h), torch.stack(ends_c))[k["index"]]

    return meaning


for name, step in {"LSTM": lstm, "GRU": gru, "RNN": rnn}.items():
    again(name + "_again", held(recurrent_again(step)))


# ── losses of rows ──
def distance(a, b, p):
    return ((a - b + 1e-6).abs() ** p).sum(-1) ** (1 / p)


def far_apart(a, b):
    return min(nearest((a - b + 1e-6).abs()), nearest(distance(a, b, 2)) / 100)


def triplet(a, k):
    near, far = distance(a[0], a[1], k["p"]), distance(a[0], a[2], k["p"])
    if k["swap"]:
        far = torch.minimum(far, distance(a[1], a[2], k["p"]))
    return (near - far + k["margin"]).clamp(min=0)


def triplet_kink(a, k):
    near, far, other = (distance(*pair, k["p"]) for pair in ((a[0], a[1]), (a[0], a[2]), (a[1], a[2])))
    corner = min(nearest((near - f + k["margin"]).abs()) for f in ((far, other) if k["swap"] else (far,)))
    return min(corner, nearest((far - other).abs()), *(far_apart(*pair) for pair in ((a[0], a[1]), (a[0], a[2]), (a[1], a[2]))))


operation("pairwise_distance", call("pairwise_distance", "p"), lambda a, k: distance(a[0], a[1], k["p"]), lambda a, k: far_apart(*a))
operation("triplet_margin", call("triplet_margin", "margin", "p", "swap"), triplet, triplet_kink)
operation("cosine_embedding", call("cosine_embedding", "margin"),
          lambda a, k: torch.where(a[2] > 0, 1 - cosine(*a[:2]), (cosine(*a[:2]) - k["margin"]).clamp(min=0)),
          lambda a, k: min(nearest((cosine(*a[:2]) - k["margin"]).abs()), *(nearest(x.norm(dim=-1)) / 100 for x in a[:2])))


def cosine(a, b):
    return (a * b).sum(-1) / ((a * a).sum(-1) + 1e-12).sqrt() / ((b * b).sum(-1) + 1e-12).sqrt()


operation("nll", lambda a, k: f"nll(log_softmax({a[0]}), {a[1]})", lambda a, k: -a[0].log_softmax(-1).gather(-1, a[1].unsqueeze(-1)).squeeze(-1))
operation("cross_entropy_to", lambda a, k: f"cross_entropy({a[0]}, softmax({a[1]}), smoothing={k['smoothing']})",
          lambda a, k: -((a[1].softmax(-1) * (1 - k["smoothing"]) + k["smoothing"] / a[0].shape[-1]) * a[0].log_softmax(-1)).sum(-1))


def class_mean(a, k):
    rows = a[0].reshape(-1, a[0].shape[-1])
    more = {"ignore_index": k["ignore"]} if "ignore" in k else {}
    return F.cross_entropy(rows, a[1].reshape(-1), weight=torch.tensor(k["weight"], dtype=torch.float64), label_smoothing=k.get("smoothing", 0), **more)


operation("class_mean", lambda a, k: f"mean({call('cross_entropy', 'weight', 'smoothing', 'ignore')(a, k)})", class_mean,
          lambda a, k: FAR if "ignore" not in k or (a[1] != k["ignore"]).any() else 0)
operation("distill_kl", call("distill_kl", "temperature"), lambda a, k: k["temperature"] ** 2 * F.kl_div(
    (a[0] / k["temperature"]).log_softmax(-1), (a[1].detach() / k["temperature"]).log_softmax(-1), reduction="none", log_target=True).sum(-1))
operation("distill_features", call("distill_features"), lambda a, k: (a[0] - a[1].detach()) ** 2)


def attention_map(x):
    y = (x * x).mean(1).flatten(1)
    return y / (y * y).sum(1, keepdim=True).sqrt().clamp(min=1e-12)


operation("distill_attention", call("distill_attention"), lambda a, k: (attention_map(a[0]) - attention_map(a[1].detach())) ** 2,
          lambda a, k: min(nearest((x * x).mean(1).flatten(1).norm(dim=1)) for x in a) / 10)


def hardest(a, k):
    return a[0].topk(k["k"]).values.mean() if k["training"] else a[0].mean()


def hardest_rows(a, k):
    return a[1][a[0].topk(k["k"]).indices].mean() if k["training"] else a[1].mean()


def ranks_apart(a, k):
    return nearest(a[0].sort().values.diff().abs()) if a[0].numel() > 1 else FAR


operation("hardest", lambda a, k: f"mean(hardest({a[0]}, {k['k']}))", hardest, ranks_apart)
operation("hardest_rows", lambda a, k: f"mean(hardest_rows({a[0]}, {k['k']}, {a[1]}))", hardest_rows, ranks_apart)

# ── windows and sequences ──
operation("MaxPool2d", lambda a, k: f"MaxPool2d({literal(k['kernel'])})({a[0]})", lambda a, k: F.max_pool2d(a[0], k["kernel"]),
          lambda a, k: window_gap(a[0], k["kernel"]))
operation("AvgPool2d", lambda a, k: f"AvgPool2d({literal(k['kernel'])})({a[0]})", lambda a, k: F.avg_pool2d(a[0], k["kernel"]))


def window_gap(x, kernel):
    windows = F.unfold(x.reshape(-1, 1, *x.shape[-2:]), kernel, stride=kernel)
    return FAR if windows.shape[1] < 2 else (lambda t: nearest(t[:, 0] - t[:, 1]))(windows.topk(2, dim=1).values)


operation("upsample_line", lambda a, k: f'upsample({a[0]}, size={k["size"]}, mode="linear", align_corners={literal(k["corners"])})',
          lambda a, k: F.interpolate(a[0], size=k["size"], mode="linear", align_corners=k["corners"]))
operation("Upsample", lambda a, k: f"Upsample(scale={k['scale']})({a[0]})", lambda a, k: F.interpolate(a[0], scale_factor=k["scale"]))
LINE = ("stride", "padding", "output_padding", "dilation", "groups")


def line_back(a, k):
    return F.conv_transpose1d(a[0], a[1], a[2] if len(a) > 2 else None, k["stride"], k["padding"], k["output_padding"], k["groups"], k["dilation"])


block("ConvTranspose1d", lambda k: [str(k["out"]), str(k["kernel"])] + [f"{n}={literal(k[n])}" for n in (*LINE, "bias")], line_back)
operation("conv_transpose1d", call("conv_transpose1d", *LINE), line_back)
operation("conv1d", call("conv1d", "stride", "padding", "dilation", "groups"),
          lambda a, k: F.conv1d(a[0], a[1], None, k["stride"], k["padding"], k["dilation"], k["groups"]))


# ── metrics of classes: scores, labels ──
def class_counts(a):
    classes = a[0].shape[-1]
    chosen, given = (F.one_hot(x.reshape(-1), classes).to(torch.float64) for x in (a[0].argmax(-1), a[1]))
    return (chosen * given).sum(0), chosen.sum(0), given.sum(0)


def class_average(part, whole, chosen, given, average):
    ratio = lambda x, y: torch.where(y == 0, torch.zeros_like(y), x / y.clamp(min=1))
    if average == "micro":
        return ratio(part.sum(), whole.sum())
    each = ratio(part, whole)
    return each[(chosen + given) > 0].mean() if average == "macro" else (each * given).sum() / given.sum()


def class_metric(name):
    def meaning(a, k):
        hits, chosen, given = class_counts(a)
        part, whole = {"precision": (hits, chosen), "recall": (hits, given), "f1": (2 * hits, chosen + given)}[name]
        return class_average(part, whole, chosen, given, k["average"])

    operation(name, lambda a, k: f'{name}({a[0]}, {a[1]}, average="{k["average"]}")', meaning, lambda a, k: extreme_gap(1)(a, {"axis": -1}))


for name in ("precision", "recall", "f1"):
    class_metric(name)
operation("accuracy", call("accuracy"), lambda a, k: (a[0].argmax(-1) == a[1]).to(torch.float64).mean(), lambda a, k: extreme_gap(1)(a, {"axis": -1}))
operation("topk_accuracy", call("topk_accuracy", "k"), lambda a, k: ((a[0] > a[0].gather(-1, a[1].unsqueeze(-1))).sum(-1) < k["k"]).to(torch.float64).mean(),
          lambda a, k: nearest((lambda d: d[d != 0])((a[0] - a[0].gather(-1, a[1].unsqueeze(-1))).abs())))
operation("perplexity", call("perplexity"), lambda a, k: math.e ** a[0].mean())
