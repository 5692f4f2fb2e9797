"""Functions and blocks of the standard library in random programs (frontend/std), beside those of operations.py: how each is written, and
what it means in PyTorch."""
import math

import torch
import torch.nn.functional as F

from operations import attend, attention_text, block, call, literal, nearest, operation, spread

# ── activations ──
for name, function in {"mish": F.mish, "logsigmoid": F.logsigmoid}.items():
    operation(name, call(name), lambda a, k, f=function: f(a[0]))
operation("selu", call("selu"), lambda a, k: F.selu(a[0]), lambda a, k: nearest(a[0].abs()))
for name, function in {"hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish}.items():
    operation(name, call(name), lambda a, k, f=function: f(a[0]), lambda a, k: nearest((a[0].abs() - 3).abs()))
operation("relu6", call("relu6"), lambda a, k: F.relu6(a[0]), lambda a, k: nearest(torch.minimum(a[0].abs(), (a[0] - 6).abs())))
operation("glu", call("glu", "axis"), lambda a, k: F.glu(a[0], dim=k["axis"]))
block("PReLU", lambda k: [str(k["count"])], lambda a, k: F.prelu(a[0], a[1]), lambda a, k: nearest(a[0].abs()))


# ── norms of groups of channels ──
def group_norm(a, k):
    return F.group_norm(a[0], k["groups"], *a[1:])


def spread_of_groups(a, k):
    x = a[0]
    return spread(x.reshape(x.shape[0], k["groups"], -1), [-1])


operation("group_norm", lambda a, k: f"group_norm({a[0]}, {k['groups']})", group_norm, spread_of_groups)
block("GroupNorm", lambda k: [str(k["groups"])], group_norm, spread_of_groups)
block("InstanceNorm", lambda k: ["affine=true"], lambda a, k: F.instance_norm(a[0], weight=a[1], bias=a[2]),
      lambda a, k: spread(a[0].flatten(2), [-1]))

# ── moves ──
operation("flip", call("flip", "axis"), lambda a, k: a[0].flip(k["axis"]))
operation("roll", lambda a, k: f"roll({a[0]}, {k['shift']}" + (f", axis={k['axis']})" if "axis" in k else ")"),
          lambda a, k: torch.roll(a[0], k["shift"], k.get("axis")))
operation("tile", lambda a, k: f"tile({a[0]}, {literal(k['times'])})", lambda a, k: a[0].tile(k["times"]))
operation("repeat_interleave", lambda a, k: f"repeat_interleave({a[0]}, {k['times']}, axis={k['axis']})",
          lambda a, k: a[0].repeat_interleave(k["times"], dim=k["axis"]))

# ── images and sequences ──
BACK = ("stride", "padding", "output_padding", "dilation", "groups")


def convolve_back(a, k):
    return F.conv_transpose2d(a[0], a[1], a[2] if len(a) > 2 else None, k["stride"], k["padding"], k["output_padding"], k["groups"], k["dilation"])


operation("conv_transpose2d", call("conv_transpose2d", *BACK), convolve_back)
block("ConvTranspose2d", lambda k: [str(k["out"]), literal(k["kernel"])] + [f"{n}={literal(k[n])}" for n in (*BACK, "bias")], convolve_back)
block("Conv1d", lambda k: [str(k["out"]), str(k["kernel"])] + [f"{n}={literal(k[n])}" for n in ("stride", "padding", "dilation", "groups", "bias")],
      lambda a, k: F.conv1d(a[0], a[1], a[2] if len(a) > 2 else None, k["stride"], k["padding"], k["dilation"], k["groups"]))


def upsample_text(a, k):
    return call("upsample", "size", "scale", "align_corners")(a, k)[:-1] + f', mode="{k["mode"]}")'


def upsampled(a, k):
    more = {"align_corners": k.get("align_corners", False)} if k["mode"] != "nearest" else {}
    return F.interpolate(a[0], size=k.get("size"), scale_factor=k.get("scale"), mode=k["mode"], **more)


operation("upsample", upsample_text, upsampled)

# ── distances ──
operation("cosine_similarity", call("cosine_similarity", "axis"), lambda a, k: F.cosine_similarity(*torch.broadcast_tensors(*a), dim=k["axis"]),
          lambda a, k: min(nearest(x.norm(dim=k["axis"])) for x in torch.broadcast_tensors(*a)) / 100)
operation("smooth_l1", call("smooth_l1"), lambda a, k: F.smooth_l1_loss(a[0], a[1], reduction="none"), lambda a, k: nearest(((a[0] - a[1]).abs() - 1).abs()))
operation("kl_div", lambda a, k: f"kl_div(log_softmax({a[0]}), softmax({a[1]}))",
          lambda a, k: F.kl_div(a[0].log_softmax(-1), a[1].softmax(-1), reduction="none"))


# ── sequences: x [B, T, I] ──
def lstm(x, h, c, ih, hh, bih, bhh):
    i, f, g, o = (x @ ih.T + bih + h @ hh.T + bhh).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru(x, h, c, ih, hh, bih, bhh):
    (ri, zi, ni), (rh, zh, nh) = ((y @ w.T + b).chunk(3, dim=-1) for y, w, b in ((x, ih, bih), (h, hh, bhh)))
    r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
    return (1 - z) * (ni + r * nh).tanh() + z * h, c


def rnn(x, h, c, ih, hh, bih, bhh):
    return (x @ ih.T + bih + h @ hh.T + bhh).tanh(), c


def along(step, x, weights, hidden):
    """The states of one layer in one direction."""
    h = c = torch.zeros(x.shape[0], hidden, dtype=x.dtype)
    states = []
    for t in range(x.shape[1]):
        h, c = step(x[:, t], h, c, *weights)
        states.append(h)
    return torch.stack(states, 1)


def recurrent(step):
    def meaning(a, k):
        x, weights = a[0], list(a[1:])
        for _ in range(k["layers"]):
            sides = []
            for is_reverse in (False, True)[: k["directions"]]:
                own, weights = weights[:4], weights[4:]
                y = along(step, x.flip(1) if is_reverse else x, own, k["hidden"])
                sides.append(y.flip(1) if is_reverse else y)
            x = torch.cat(sides, -1)
        return x

    return meaning


def recurrent_text(name):
    def text(a, k):
        more = (f", num_layers={k['layers']}" if k["layers"] > 1 else "") + (", bidirectional=true" if k["directions"] > 1 else "")
        return f'{name}({k["hidden"]}{more}, name="{k["name"]}")({a[0]})[0]'

    return text


for name, step in {"LSTM": lstm, "GRU": gru, "RNN": rnn}.items():
    operation(name, recurrent_text(name), recurrent(step))


def multihead(a, k):
    x, weight, bias, out, out_bias = a
    q, key, value = ((y.unflatten(-1, (k["heads"], -1)).transpose(1, 2)) for y in (x @ weight.T + bias).chunk(3, dim=-1))
    scores = q @ key.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if k["causal"]:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2) @ out.T + out_bias


block("MultiheadAttention", lambda k: [str(k["heads"]), f"causal={literal(k['causal'])}"], multihead)
operation("attention_bias", lambda a, k: f"{attention_text(a[:3], k)[:-1]}, bias={a[3]})", attend)
