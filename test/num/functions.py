"""Values and gradients of the functions that the standard library writes in the language or that move elements, against
PyTorch in float64, as test/num/ops.py has those of the operators: on the processor, without fusion, and in the simulator."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(__file__))
import ops
import support
from ops import distinct, integers, positive, uniform

CASES = []


def case(expression, torch_function, **arguments):
    CASES.append((expression, torch_function, arguments))


BENDS = (integers(9, 40) - 4).astype(numpy.float32)  # whole numbers, on the corners too
for name, function in {"relu6": F.relu6, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "mish": F.mish, "selu": F.selu, "logsigmoid": F.logsigmoid}.items():
    case(f"{name}(x)", function, x=uniform(3, 7, low=-8, high=8))
    if name in ("relu6", "mish", "hardsigmoid"):
        case(f"{name}(x)", function, x=BENDS)
# at the corners PyTorch's slope depends on the element's place in its vectors
case("hardswish(x)", F.hardswish, x=BENDS[numpy.abs(BENDS) != 3])
case("glu(x)", F.glu, x=uniform(3, 8))
case("glu(x, axis=1)", lambda x: F.glu(x, 1), x=uniform(2, 6, 5))
case("prelu(x, w)", F.prelu, x=uniform(2, 3, 4, 5), w=uniform(3))
case("prelu(x, w)", F.prelu, x=uniform(7), w=uniform(1))
for groups in (1, 2, 6):
    case(f"group_norm(x, {groups}, w, b)", lambda x, w, b, g=groups: F.group_norm(x, g, w, b), x=uniform(2, 6, 3, 5), w=uniform(6), b=uniform(6))
case("group_norm(x, 2, eps=0.1)", lambda x: F.group_norm(x, 2, eps=0.1), x=uniform(3, 4))

# ── moves ──
for axis in (0, 1, 2, -1):
    case(f"flip(x, axis={axis}) * y", lambda x, y, a=axis: x.flip(a) * y, x=uniform(3, 4, 5), y=uniform(5))
case("flip(x, axis=(0, 2)) * y", lambda x, y: x.flip((0, 2)) * y, x=uniform(3, 4, 5), y=uniform(5))
case("flip(x) * y", lambda x, y: x.flip(0) * y, x=uniform(9), y=uniform(9))
case("x[::-1] * y", lambda x, y: x.flip(0) * y, x=uniform(5, 3), y=uniform(3))
case("x[:, ::-2]", lambda x: x[:, [6, 4, 2, 0]], x=uniform(3, 7))
case("x[5:1:-1, 1]", lambda x: x[[5, 4, 3, 2], 1], x=uniform(7, 3))
case("x[-2:-6:-3]", lambda x: x[[5, 2]], x=uniform(7))
case("x[9::-9]", lambda x: x[[6]], x=uniform(7))
case("x[1:3, ::-1, ::2]", lambda x: x[1:3].flip(1)[:, :, ::2], x=uniform(4, 5, 6))
case("x[..., 3::-1]", lambda x: x[..., [3, 2, 1, 0]], x=uniform(2, 3, 6))
for shift, axis in ((1, 0), (-2, 1), (7, 1), (0, 0)):
    case(f"roll(x, {shift}, axis={axis}) * y", lambda x, y, s=shift, a=axis: x.roll(s, a) * y, x=uniform(3, 5), y=uniform(5))
case("roll(x, (1, -2), axis=(0, 2)) * y", lambda x, y: x.roll((1, -2), (0, 2)) * y, x=uniform(3, 4, 5), y=uniform(5))
case("roll(x, 4) * y", lambda x, y: x.roll(4) * y, x=uniform(3, 5), y=uniform(5))
case("tile(x, 3) * y", lambda x, y: x.tile(3) * y, x=uniform(2, 3), y=uniform(9))
case("tile(x, [2, 1, 3])", lambda x: x.tile(2, 1, 3), x=uniform(4, 5))
case("tile(x, (3, 2))", lambda x: x.tile(3, 2), x=uniform(2, 4, 5))
case("repeat_interleave(x, 3, axis=1) * y", lambda x, y: x.repeat_interleave(3, 1) * y, x=uniform(2, 4), y=uniform(12))
case("repeat_interleave(x, 2)", lambda x: x.repeat_interleave(2, -1), x=uniform(2, 4))
case("expand(x, 4, -1) * y", lambda x, y: x.expand(4, -1) * y, x=uniform(1, 3), y=uniform(4, 3))
case("expand(x, [2, 3, -1])", lambda x: x.expand(2, 3, -1), x=uniform(1, 5))
case("take(x, i, axis=1)", lambda x, i: x[:, i], x=uniform(3, 7, 2), i=integers(7, 4))
case("take(x, i, axis=-1)", lambda x, i: x[..., i], x=uniform(3, 7), i=integers(7, 2, 3))

def before(x, axis, value):  # what an exclusive sum or product begins with
    return torch.cat([torch.full_like(x.narrow(axis, 0, 1), value), x.narrow(axis, 0, x.shape[axis] - 1)], axis)


for axis, n in ((0, 1), (0, 2), (1, 7), (-1, 8), (-2, 13), (1, 700)):
    shape = [3, 5] if axis == -1 else [2, 4]
    shape.insert(axis if axis >= 0 else len(shape) + axis + 1, n)
    case(f"cumsum(x, axis={axis}) * y", lambda x, y, a=axis: x.cumsum(a) * y, x=uniform(*shape), y=uniform(*shape))
    case(f"cumsum(x, axis={axis}, exclusive=true) * y", lambda x, y, a=axis: before(x, a, 0).cumsum(a) * y, x=uniform(*shape), y=uniform(*shape))
    case(f"cumprod(x, axis={axis}) * y", lambda x, y, a=axis: x.cumprod(a) * y, x=uniform(*shape, low=0.5, high=1.5), y=uniform(*shape))
    case(f"cumprod(x, axis={axis}, exclusive=true) * y", lambda x, y, a=axis: before(x, a, 1).cumprod(a) * y, x=uniform(*shape, low=-1.5, high=1.5), y=uniform(*shape))
case("cumprod(x)", lambda x: x.cumprod(-1), x=integers(3, 4, 9).astype(numpy.float32))  # with zeros
case("take_each(x, i) * y", lambda x, i, y: torch.take_along_dim(x, i, 1) * y, x=uniform(3, 7), i=integers(7, 3, 4), y=uniform(3, 4))
case("take_each(x, i) * y", lambda x, i, y: x[torch.arange(2), i] * y, x=uniform(2, 5, 3), i=integers(5, 2), y=uniform(2, 3))
case("take_each(x, i)", lambda x, i: torch.stack([a[j] for a, j in zip(x, i)]), x=uniform(3, 6, 2, 2), i=integers(6, 3, 2, 5))
case("take_each(x, i - 1)", lambda x, i: torch.stack([torch.cat([a, 0 * a[:2]])[j - 1] for a, j in zip(x, i)]), x=uniform(3, 4, 2), i=integers(6, 3, 5))  # -1 and 4 are outside
case("take_each(concat([x, full([2, 3], -inf)], axis=1), i)", lambda x, i: torch.stack([a[j] for a, j in zip(x, i)]), x=uniform(2, 6), i=integers(6, 2, 3))  # not 0 times infinity
case('rearrange(x, "b d -> b 1 d") * y', lambda x, y: x[:, None] * y, x=uniform(2, 3), y=uniform(2, 4, 3))
case('rearrange(x, "b 1 (h d) -> h b d 1", h=2)', lambda x: x.reshape(2, 2, 3).transpose(0, 1)[..., None], x=uniform(2, 1, 6))
case('rearrange(x, "b d -> b t d", t=4) * y', lambda x, y: x[:, None].expand(-1, 4, -1) * y, x=uniform(2, 3), y=uniform(2, 4, 3))
case('rearrange(x, "b d -> (r b) (d s)", r=2, s=3)', lambda x: x.repeat(2, 1).repeat_interleave(3, 1), x=uniform(2, 3))

# ── sequences and images ──
for n, c, length, o, k, stride, padding, dilation, groups in [(2, 3, 9, 4, 3, 1, 0, 1, 1), (1, 4, 11, 6, 4, 2, 3, 1, 2), (3, 2, 13, 2, 3, 1, 2, 2, 2), (2, 1, 5, 1, 1, 3, 0, 1, 1)]:
    case(f"conv1d(x, w, stride={stride}, padding={padding}, dilation={dilation}, groups={groups})",
         lambda x, w, s=stride, p=padding, d=dilation, g=groups: F.conv1d(x, w, None, s, p, d, g), x=uniform(n, c, length), w=uniform(o, c // groups, k))
case('conv1d(x, w, padding="same")', lambda x, w: F.conv1d(x, w, padding="same"), x=uniform(2, 3, 8), w=uniform(4, 3, 4))
case("conv1d(x, w, padding=(2, 0))", lambda x, w: F.conv1d(F.pad(x, (2, 0)), w), x=uniform(2, 3, 8), w=uniform(4, 3, 3))
TRANSPOSED = [  # n c h w o k stride padding output_padding dilation groups
    (1, 1, 4, 4, 1, 1, 1, 0, 0, 1, 1), (2, 3, 5, 4, 4, 3, 1, 1, 0, 1, 1), (2, 4, 5, 3, 6, 3, 2, 1, 1, 1, 2), (1, 2, 4, 5, 3, 3, 2, 0, 1, 2, 1),
    (2, 4, 3, 3, 4, 4, 2, 1, 0, 1, 4), (2, 3, 4, 3, 5, 2, 3, 0, 2, 1, 1), (1, 2, 3, 3, 2, 3, 1, 2, 1, 2, 1), (2, 16, 4, 4, 8, 2, 2, 0, 0, 1, 1)]
for n, c, h, w, o, k, stride, padding, more, dilation, groups in TRANSPOSED:
    case(f"conv_transpose2d(x, w, stride={stride}, padding={padding}, output_padding={more}, dilation={dilation}, groups={groups})",
         lambda x, w, s=stride, p=padding, m=more, d=dilation, g=groups: F.conv_transpose2d(x, w, None, s, p, m, g, d), x=uniform(n, c, h, w), w=uniform(c, o // groups, k, k))
case("conv_transpose2d(x, w, stride=(3, 2), padding=(0, 1), output_padding=(2, 0))", lambda x, w: F.conv_transpose2d(x, w, None, (3, 2), (0, 1), (2, 0)), x=uniform(2, 3, 3, 4), w=uniform(3, 2, 2, 5))
case("relu(conv_transpose2d(x, w, stride=2) + reshape(b, [1, 4, 1, 1]))", lambda x, w, b: F.relu(F.conv_transpose2d(x, w, b, 2)), x=uniform(2, 3, 4, 4), w=uniform(3, 4, 2, 2), b=uniform(4))
case("conv_transpose1d(x, w, stride=2, padding=1, output_padding=1)", lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1), x=uniform(2, 3, 5), w=uniform(3, 4, 3))
for size in ("scale=2", "scale=3", "scale=1.7", "scale=(2, 1.5)", "size=(7, 3)", "size=1", "size=(5, 4)", "scale=0.5", "size=(11, 13)"):
    key, value = size.split("=")
    option = {"size" if key == "size" else "scale_factor": eval(value)}
    case(f"upsample(x, {size})", lambda x, o=option: F.interpolate(x, **o), x=uniform(2, 3, 5, 4))
    for corners in (False, True):
        case(f'upsample(x, {size}, mode="bilinear", align_corners={str(corners).lower()})',
             lambda x, o=option, c=corners: F.interpolate(x, mode="bilinear", align_corners=c, **o), x=uniform(2, 3, 5, 4))
case("upsample(x, scale=2)", lambda x: F.interpolate(x, scale_factor=2), x=uniform(2, 3, 5))
# between convolutions images stay channels-last, with more dimensions meanwhile (passes/layout.c)
BETWEEN = {
    "upsample({}, scale=2)": lambda x: F.interpolate(x, scale_factor=2),
    "upsample({}, scale=(1, 3))": lambda x: F.interpolate(x, scale_factor=(1, 3)),
    'upsample({}, scale=2, mode="bilinear")': lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "concat([upsample({0}, scale=2), upsample(relu({0}), scale=2)], axis=1)": lambda x: torch.cat([F.interpolate(x, scale_factor=2), F.interpolate(F.relu(x), scale_factor=2)], 1),
    "max(reshape({}, [2, 4, 2, 2, 2, 3]), axis=[3, 5])": lambda x: x.reshape(2, 4, 2, 2, 2, 3).amax((3, 5)),
    "reshape(sum(reshape({}, [2, 4, 4, 3, 2]), axis=4), [2, 4, 3, 4])": lambda x: x.reshape(2, 4, 4, 3, 2).sum(4).reshape(2, 4, 3, 4),
    "reshape(reshape({}, [2, 4, 2, 2, 6])[:, :, :, ::-1], [2, 4, 4, 6])": lambda x: x.reshape(2, 4, 2, 2, 6).flip(3).reshape(2, 4, 4, 6),
    "reshape(softmax(reshape({}, [2, 4, 2, 2, 6]), axis=1), [2, 4, 6, 4])": lambda x: x.reshape(2, 4, 2, 2, 6).softmax(1).reshape(2, 4, 6, 4),
    "reshape(permute(reshape({}, [2, 4, 2, 2, 6]), (0, 2, 1, 3, 4)), [2, 4, 4, 6])": lambda x: x.reshape(2, 4, 2, 2, 6).transpose(1, 2).reshape(2, 4, 4, 6),
    "reshape(reshape({}, [2, 2, 2, 4, 6]) * reshape(b, [1, 2, 2, 1, 1]), [2, 4, 4, 6])": lambda x, b: (x.reshape(2, 2, 2, 4, 6) * b.reshape(1, 2, 2, 1, 1)).reshape(2, 4, 4, 6),
    "reshape(reshape({}, [2, 4, 4, 3, 2]) * reshape(b, [1, 4, 1, 1, 1]), [2, 4, 4, 6])": lambda x, b: (x.reshape(2, 4, 4, 3, 2) * b.reshape(1, 4, 1, 1, 1)).reshape(2, 4, 4, 6),
    "reshape(permute(reshape({}, [2, 1, 2, 2, 4, 6]), (0, 1, 4, 2, 5, 3)), [2, 1, 8, 12])": lambda x: F.pixel_shuffle(x, 2),
    "reshape(permute(reshape({}, [2, 4, 2, 2, 3, 2]), (0, 1, 3, 5, 2, 4)), [2, 16, 2, 3])": lambda x: F.pixel_unshuffle(x, 2),
}
for move, f in BETWEEN.items():
    after = f(torch.zeros(2, 4, 4, 6), *[torch.zeros(4)] * ("b, [" in move)).shape[1]
    conv = lambda x, w: F.conv2d(x, w, padding=1)
    if "b, [" in move:
        case(f"conv2d({move.format('conv2d(x, w, padding=1)')}, v, padding=1)", lambda x, w, v, b, f=f: conv(f(conv(x, w), b), v),
             x=uniform(2, 3, 4, 6), w=uniform(4, 3, 3, 3), v=uniform(2, after, 3, 3), b=uniform(4))
    else:
        case(f"conv2d({move.format('conv2d(x, w, padding=1)')}, v, padding=1)", lambda x, w, v, f=f: conv(f(conv(x, w)), v),
             x=uniform(2, 3, 4, 6), w=uniform(4, 3, 3, 3), v=uniform(2, after, 3, 3))
case('upsample(x, size=7, mode="linear")', lambda x: F.interpolate(x, 7, mode="linear"), x=uniform(2, 3, 5))

# ── losses ──
LOG_P = lambda *shape: numpy.log(positive(*shape) / 4)
BY_CLASS = [0.5, 2, 1, 3, 0.25]
by_class = torch.tensor(BY_CLASS, dtype=torch.float64)
case("nll(x, t)", lambda x, t: F.nll_loss(x, t, reduction="none"), x=LOG_P(6, 5), t=integers(5, 6))
case("mean(nll(x, t, ignore=-1))", lambda x, t: F.nll_loss(x, t, ignore_index=-1), x=LOG_P(6, 5), t=numpy.array([1, -1, 3, -1, 4, 0], numpy.int32))
case(f"mean(nll(x, t, weight={BY_CLASS}))", lambda x, t: F.nll_loss(x, t, by_class), x=LOG_P(6, 5), t=integers(5, 6))
case(f"sum(nll(x, t, weight={BY_CLASS}, ignore=2))", lambda x, t: F.nll_loss(x, t, by_class, ignore_index=2, reduction="sum"), x=LOG_P(6, 5), t=integers(5, 6))
case("mean(nll(log_softmax(x), t))", lambda x, t: F.cross_entropy(x.reshape(-1, 5), t.reshape(-1)), x=uniform(2, 3, 5), t=integers(5, 2, 3))
case("kl_div(x, p)", lambda x, p: F.kl_div(x, p, reduction="none"), x=LOG_P(4, 5), p=positive(4, 5))
case("kl_div(x, stop_gradient(p))", lambda x, p: F.kl_div(x, p.detach(), reduction="none"), x=LOG_P(2, 3), p=numpy.array([[0, 1, 0], [0.5, 0.5, 0]], numpy.float32))
for temperature in (1, 4, 0.5):
    case(f"distill_kl(x, stop_gradient(t), {temperature})", lambda x, t, T=temperature: T * T * F.kl_div(F.log_softmax(x / T, -1), F.softmax(t.detach() / T, -1), reduction="none").sum(-1), x=uniform(4, 5, low=-30, high=30), t=uniform(4, 5, low=-30, high=30))
case("distill_features(x, stop_gradient(t))", lambda x, t: F.mse_loss(x, t.detach(), reduction="none"), x=uniform(4, 5), t=uniform(4, 5))
case("distill_attention(x, stop_gradient(t))", lambda x, t: (F.normalize(x.square().mean(1).flatten(1)) - F.normalize(t.detach().square().mean(1).flatten(1))).square(), x=uniform(2, 3, 4, 5), t=uniform(2, 7, 4, 5))
case("kl_div(x, q, log_target=true)", lambda x, q: F.kl_div(x, q, reduction="none", log_target=True), x=LOG_P(4, 5), q=LOG_P(4, 5))
case("smooth_l1(x, y, beta=0.7)", lambda x, y: F.smooth_l1_loss(x, y, beta=0.7, reduction="none"), x=uniform(4, 5), y=uniform(4, 5))
case("cosine_similarity(x, y)", F.cosine_similarity, x=uniform(4, 5), y=uniform(4, 5))
case("cosine_similarity(x, y)", lambda x, y: F.cosine_similarity(x, y, dim=-1), x=uniform(2, 3, 5), y=uniform(2, 3, 5))
case("cosine_similarity(x, y, axis=1)", lambda x, y: F.cosine_similarity(x, y, dim=1), x=uniform(2, 3, 5), y=uniform(2, 3, 5))
SAME = numpy.array([1, -1, -1, 1, -1, 1], numpy.int32)
for margin in (0, 0.4):
    case(f"cosine_embedding(x, y, t, margin={margin})", lambda x, y, t, m=margin: F.cosine_embedding_loss(x, y, t, margin=m, reduction="none"), x=uniform(6, 4), y=uniform(6, 4), t=SAME)
for options in ("", "margin=3", "p=1", "p=3", "swap=true", "margin=0.1, p=2.5, eps=0.01"):
    keys = eval(f"dict({options})", {"true": True})
    case(f"triplet_margin(x, y, z{', ' if options else ''}{options})", lambda x, y, z, o=keys: F.triplet_margin_loss(x, y, z, reduction="none", **o), x=uniform(6, 4), y=uniform(6, 4), z=uniform(6, 4))
for p in (1, 2, 3, "inf"):
    case(f"pairwise_distance(x, y, p={p})", lambda x, y, p=float(p): F.pairwise_distance(x, y, p), x=distinct(6, 4), y=uniform(6, 4))


def attention(q, k, v, causal=False, mask=None, scale=None, cap=None, bias=None):
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) if x.dim() > 2 else x for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    scores = scores if bias is None else scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(~seen, -torch.inf)
    return torch.nan_to_num(torch.softmax(scores, -1)) @ v


case("attention(q, k, v, softcap=0.9)", lambda q, k, v: attention(q, k, v, cap=0.9), q=uniform(2, 3, 7, 8), k=uniform(2, 3, 5, 8), v=uniform(2, 3, 5, 8))
case("attention(q, k, v, causal=true, softcap=2, scale=0.7)", lambda q, k, v: attention(q, k, v, True, cap=2, scale=0.7), q=uniform(2, 4, 9, 8), k=uniform(2, 2, 9, 8), v=uniform(2, 2, 9, 4))
case("attention(q, k, v, bias=b)", lambda q, k, v, b: attention(q, k, v, bias=b), q=uniform(2, 3, 7, 8), k=uniform(2, 3, 5, 8), v=uniform(2, 3, 5, 8), b=uniform(3, 7, 5))
case("attention(q, k, v, bias=b, causal=true)", lambda q, k, v, b: attention(q, k, v, True, bias=b), q=uniform(2, 2, 2, 6, 8), k=uniform(2, 2, 1, 6, 8), v=uniform(2, 2, 1, 6, 8), b=uniform(2, 1, 1, 1, 6))
case("attention(q, k, v, bias=b, softcap=1.5, mask=m != 0)", lambda q, k, v, b, m: attention(q, k, v, bias=b, cap=1.5, mask=m != 0), q=uniform(3, 5, 8), k=uniform(3, 6, 8), v=uniform(3, 6, 8), b=uniform(5, 6), m=numpy.maximum(integers(2, 3, 5, 6), numpy.eye(5, 6, dtype=numpy.int32)))
case("attention(q, k, v, softcap=3)", lambda q, k, v: attention(q, k, v, cap=3), q=uniform(5, 8), k=uniform(9, 8), v=uniform(9, 8))

GROUP = 24  # cases in one model


class Functions(ops.Compared):
    """All cases."""


class FunctionsPlain(Functions):
    """Without fusion (with FT_TURN half of them)."""

    def compile(self, source, *flags, **options):
        return super().compile(source, "--disable=fuse", *flags, **options)


class FunctionsOnSim(Functions):
    """The PTX in the simulator."""

    artifact, device = "model.ptx", "sim"


for first in range(0, len(CASES), GROUP):
    for of in (Functions, FunctionsPlain, FunctionsOnSim):
        cases = lambda self, first=first: self.group(CASES[first : first + GROUP])
        setattr(of, f"test_cases_{first:03d}", support.in_turns(first // GROUP, 2)(cases) if of is FunctionsPlain else cases)
del of  # a second name of the last class: its tests would run twice

if __name__ == "__main__":
    support.main()
