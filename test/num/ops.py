"""Values and gradients of every function of the language, compiled, against PyTorch in float64.

A case is an expression over named arguments. Float arguments are params, so that one step of
sgd(lr=1) on loss = sum over cases of sum(expression * weight) leaves their gradients in the saved
weights (old - new), and the weights' own gradients are the expression's values in the train graph.
Integer arguments are model inputs. Every op of `ftc --list-ops` must appear in the step of some case."""
import json
import os
import re
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.RandomState(3)


def uniform(*shape, low=-2.0, high=2.0):
    return random.uniform(low, high, shape).astype(numpy.float32)


def positive(*shape):
    return uniform(*shape, low=0.2, high=3.0)


def integers(high, *shape, low=0):
    return random.randint(low, high, shape).astype(numpy.int32)


def distinct(*shape):
    """Values without ties, for max and its kin."""
    n = int(numpy.prod(shape))
    return (random.permutation(n).reshape(shape) / max(n, 1) * 4 - 2).astype(numpy.float32)


CASES = []


def case(expression, torch_function, **arguments):
    CASES.append((expression, torch_function, arguments))


SHAPES = [(), (1,), (7,), (3, 5), (2, 1, 9), (4, 33)]
UNARY = {
    "exp": torch.exp, "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "erf": torch.erf, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round,
    "relu": torch.relu, "silu": F.silu, "softplus": F.softplus, "elu": F.elu, "leaky_relu": F.leaky_relu, "gelu": F.gelu,
    "hardtanh": F.hardtanh,
}
for name, function in UNARY.items():
    for shape in SHAPES if name in ("exp", "relu", "tanh") else SHAPES[3:5]:
        case(f"{name}(x)", function, x=uniform(*shape))


def float8(bits, least, largest):
    """To numbers of so many bits, the last of which is worth at least 2^least."""

    def function(x):
        unit = 2.0 ** torch.clamp(torch.frexp(x.detach())[1] - bits, min=least)
        return torch.clamp(torch.round(x / unit) * unit, -largest, largest)

    return function


for scale in (1, 0.001, 1e5):
    case("round_e4m3(x)", float8(4, -9, 448), x=numpy.float32(scale) * uniform(6, 9))
    case("round_e5m2(x)", float8(3, -16, 57344), x=numpy.float32(scale) * uniform(6, 9))
for name, function in {"log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt}.items():
    case(f"{name}(x)", function, x=positive(3, 5))
    case(f"{name}(x)", function, x=positive(130))
case("-x", torch.neg, x=uniform(3, 5))
case('gelu(x, approximate="tanh")', lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))), x=uniform(4, 9))
case("leaky_relu(x, 0.2)", lambda x: F.leaky_relu(x, 0.2), x=uniform(4, 9))
case("elu(x, alpha=0.7)", lambda x: F.elu(x, 0.7), x=uniform(4, 9))
case("clamp(x, -0.5, 0.8)", lambda x: torch.clamp(x, -0.5, 0.8), x=uniform(4, 9))
BROADCASTS = [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((), (4, 3)), ((2, 1, 4), (3, 1)), ((1,), (6,))]
for symbol, function in {"+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div}.items():
    for a, b in BROADCASTS:
        case(f"a {symbol} b", function, a=uniform(*a), b=positive(*b))
case("maximum(a, b)", torch.maximum, a=uniform(3, 5), b=uniform(5))
# where they are not differentiable: at a tie each takes half
case("maximum(a, b)", torch.maximum, a=integers(2, 4, 6).astype(numpy.float32), b=integers(2, 6).astype(numpy.float32))
case("minimum(a, b)", torch.minimum, a=integers(2, 4, 6).astype(numpy.float32), b=integers(2, 4, 6).astype(numpy.float32))
case("abs(x)", torch.abs, x=integers(3, 4, 6).astype(numpy.float32) - 1)
case("relu(x)", torch.relu, x=integers(3, 4, 6).astype(numpy.float32) - 1)
# a relu wherever values are all that counts, but half the gradient goes through a 0
case("maximum(x, 0)", lambda x: torch.maximum(x, torch.zeros_like(x)), x=integers(3, 4, 6).astype(numpy.float32) - 1)
case("maximum(0, x @ w + b)", lambda x, w, b: torch.maximum(torch.zeros(4, 20, dtype=x.dtype), x @ w + b),
     x=integers(3, 4, 6).astype(numpy.float32) - 1, w=integers(3, 6, 20).astype(numpy.float32) - 1, b=integers(3, 20).astype(numpy.float32) - 1)
case("max_pool2d(maximum(x, 0), 2)", lambda x: F.max_pool2d(torch.maximum(x, torch.zeros_like(x)), 2), x=integers(3, 2, 3, 8, 8).astype(numpy.float32) - 2)
case("minimum(a, b)", torch.minimum, a=uniform(3, 5), b=uniform(5))
case("pow(a, b)", torch.pow, a=positive(3, 5), b=uniform(5))
case("a ** 3", lambda a: a**3, a=uniform(3, 5))
case("a ** 2.5", lambda a: a**2.5, a=positive(3, 5))
case("1.5 - a", lambda a: 1.5 - a, a=uniform(3, 5))
case("2.0 / a", lambda a: 2.0 / a, a=positive(3, 5))
for symbol, function in {"<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge, "==": torch.eq, "!=": torch.ne}.items():
    case(f"where(a {symbol} b, a * 2, b * b)", lambda a, b, f=function: torch.where(f(a, b), a * 2, b * b), a=uniform(3, 5), b=uniform(3, 5))
case("f32(i == j) * a", lambda i, j, a: (i == j) * a, i=integers(3, 4, 5), j=integers(3, 4, 5), a=uniform(4, 5))
case("where((a > 0 and b > 0) or not (a > 1), a, b)", lambda a, b: torch.where(((a > 0) & (b > 0)) | ~(a > 1), a, b), a=uniform(3, 5), b=uniform(3, 5))
case("f32(isfinite(a / b)) * b", lambda a, b: torch.isfinite(a / b) * b, a=uniform(4), b=numpy.array([0, 1, 0, 2], numpy.float32))
case("f32(i + j * 3 - 2) * a", lambda i, j, a: (i + j * 3 - 2) * a, i=integers(9, 6), j=integers(9, 6), a=uniform(6))
case("f32(i % 4) * a", lambda i, a: (i % 4) * a, i=integers(99, 6), a=uniform(6))
for shape in [(5,), (1,), (3, 4), (2, 3, 5), (1, 7), (6, 1), (3, 300)]:
    case("sum(x)", torch.sum, x=uniform(*shape))
    case("mean(x)", torch.mean, x=uniform(*shape))
    case("max(x)", torch.max, x=distinct(*shape))
for name, function in {"sum": torch.sum, "mean": torch.mean}.items():
    case(f"{name}(x, axis=0)", lambda x, f=function: f(x, 0), x=uniform(5, 7))
    case(f"{name}(x, axis=-1, keepdims=true)", lambda x, f=function: f(x, -1, keepdim=True), x=uniform(5, 7))
    case(f"{name}(x, axis=(0, 2))", lambda x, f=function: f(x, (0, 2)), x=uniform(3, 4, 5))
    case(f"{name}(x, axis=1)", lambda x, f=function: f(x, 1), x=uniform(3, 4, 5))
    case(f"{name}(x, axis=0)", lambda x, f=function: f(x, 0), x=uniform(300, 3))
# so many rows that they are cut into parts, the last of which is shorter
case("sum(x, axis=0)", lambda x: x.sum(0), x=uniform(1001, 64))
case("sum(x, axis=1)", lambda x: x.sum(1), x=uniform(3, 1001, 64))
case("sum(x, axis=0) * max(x, axis=0) + mean(x * x, axis=0)", lambda x: x.sum(0) * x.amax(0) + (x * x).mean(0), x=uniform(200, 300))
case("min(x)", torch.min, x=distinct(4, 3))
case("max(x, axis=1)", lambda x: torch.amax(x, 1), x=distinct(4, 9))
case("min(x, axis=0)", lambda x: torch.amin(x, 0), x=distinct(4, 9))
case("max(x, axis=(0, 2))", lambda x: torch.amax(x, (0, 2)), x=distinct(3, 4, 5))
case("max(x, axis=-1)", lambda x: torch.amax(x, -1), x=numpy.array([[1, 1, 0], [2, 2, 2]], numpy.float32))
case("prod(x, axis=1)", lambda x: torch.prod(x, 1), x=positive(4, 5))
case("prod(x, axis=1)", lambda x: torch.prod(x, 1), x=numpy.array([[0, 2, 3], [0, 0, 5], [1, 2, 3]], numpy.float32))
case("var(x, axis=-1, unbiased=false)", lambda x: torch.var(x, -1, unbiased=False), x=uniform(4, 9))
case("var(x, axis=0)", lambda x: torch.var(x, 0, unbiased=True), x=uniform(9, 4))
case("std(x, axis=-1, unbiased=false)", lambda x: torch.std(x, -1, unbiased=False), x=uniform(4, 9))
case("f32(argmax(x, axis=-1)) * y", lambda x, y: torch.argmax(x, -1) * y, x=distinct(5, 7), y=uniform(5))
case("f32(argmin(x, axis=0)) * y", lambda x, y: torch.argmin(x, 0) * y, x=distinct(5, 7), y=uniform(7))
case("f32(argmax(x, axis=0)) * y", lambda x, y: torch.argmax(x, 0) * y, x=distinct(5, 600), y=uniform(600))  # several blocks of columns
for axis in (0, 1):  # a sum that waits for an argmax of the same rows
    case(f"sum(where(iota([9, 33], axis={axis}) == argmax(x, axis={axis}, keepdims=true), x * y, y), axis={axis})",
         lambda x, y, a=axis: torch.where(torch.arange(x.shape[a]).unsqueeze(1 - a) == x.argmax(a, keepdim=True), x * y, y).sum(a), x=distinct(9, 33), y=uniform(9, 33))
case("a @ b", torch.matmul, a=uniform(3, 4), b=uniform(4, 5))
case("a @ b", torch.matmul, a=uniform(1, 33), b=uniform(33, 17))
case("a @ b", torch.matmul, a=uniform(65, 70), b=uniform(70, 129))
case("a @ transpose(b)", lambda a, b: a @ b.T, a=uniform(3, 4), b=uniform(5, 4))
case("transpose(a) @ b", lambda a, b: a.T @ b, a=uniform(4, 3), b=uniform(4, 5))
case("transpose(a) @ transpose(b)", lambda a, b: a.T @ b.T, a=uniform(4, 3), b=uniform(5, 4))
case("a @ b", torch.matmul, a=uniform(2, 3, 4), b=uniform(2, 4, 5))
case("a @ b", torch.matmul, a=uniform(2, 3, 4), b=uniform(4, 5))
case("a @ b", torch.matmul, a=uniform(2, 1, 3, 4), b=uniform(5, 4, 6))
case("relu(a @ b + c)", lambda a, b, c: torch.relu(a @ b + c), a=uniform(6, 4), b=uniform(4, 20), c=uniform(20))
case("gelu(a @ b + c) * d", lambda a, b, c, d: F.gelu(a @ b + c) * d, a=uniform(6, 4), b=uniform(4, 20), c=uniform(20), d=uniform(6, 20))
case("reshape(x, [2, 6]) * y", lambda x, y: x.reshape(2, 6) * y, x=uniform(3, 4), y=uniform(6))
case("flatten(x, from=1) * y", lambda x, y: x.flatten(1) * y, x=uniform(2, 3, 4), y=uniform(12))
case("transpose(x) * y", lambda x, y: x.T * y, x=uniform(37, 45), y=uniform(37))
case("permute(x, (2, 0, 1)) * y", lambda x, y: x.permute(2, 0, 1) * y, x=uniform(3, 4, 5), y=uniform(4))
case("squeeze(x, axis=1) * y", lambda x, y: x.squeeze(1) * y, x=uniform(3, 1, 4), y=uniform(4))
case("unsqueeze(x, axis=1) * y", lambda x, y: x.unsqueeze(1) * y, x=uniform(3, 4), y=uniform(2, 4))
case("broadcast_to(x, [5, 3]) * y", lambda x, y: x.expand(5, 3) * y, x=uniform(1, 3), y=uniform(5, 3))
case("concat([a, b], axis=1) * c", lambda a, b, c: torch.cat([a, b], 1) * c, a=uniform(3, 2), b=uniform(3, 5), c=uniform(7))
case("concat([a, b, a], axis=0)", lambda a, b: torch.cat([a, b, a]), a=uniform(2, 3), b=uniform(1, 3))
case("stack([a, b], axis=0)", lambda a, b: torch.stack([a, b]), a=uniform(2, 3), b=uniform(2, 3))
case("x[1:3, ::2] * 2", lambda x: x[1:3, ::2] * 2, x=uniform(4, 7))
case("x[-1]", lambda x: x[-1], x=uniform(4, 7))
case("x[:, 2]", lambda x: x[:, 2], x=uniform(4, 7))
case("pad(x, low=(1, 0), high=(0, 2), value=0.5)", lambda x: F.pad(x, (0, 2, 1, 0), value=0.5), x=uniform(3, 4))
case('rearrange(x, "b t (h d) -> b h t d", h=2) * y', lambda x, y: x.reshape(2, 3, 2, 4).permute(0, 2, 1, 3) * y, x=uniform(2, 3, 8), y=uniform(4))
case('rearrange(a, "b (x y) -> b y x", x=3)', lambda a: a.reshape(2, 3, 4).permute(0, 2, 1), a=uniform(2, 12))
case('rearrange(x=a, pattern="b (h y) -> b y h", h=3)', lambda a: a.reshape(2, 3, 4).permute(0, 2, 1), a=uniform(2, 12))
case('rearrange(a, "b (pattern y) -> b y pattern", pattern=3)', lambda a: a.reshape(2, 3, 4).permute(0, 2, 1), a=uniform(2, 12))
case("t[u8(i)] + t[u32(i)]", lambda t, i: 2 * t[i], t=uniform(5, 3), i=integers(5, 4))
case("embed(t, i) * y", lambda t, i, y: t[i] * y, t=uniform(11, 6), i=integers(11, 4, 5), y=uniform(6))
case("embed(t, i)", lambda t, i: t[i], t=uniform(5, 3), i=numpy.array([2, 2, 2, 0], numpy.int32))
case("f32(one_hot(i, 6)) * y", lambda i, y: F.one_hot(i, 6) * y, i=integers(6, 5), y=uniform(6))
case("f32(arange(7)) * y", lambda y: torch.arange(7) * y, y=uniform(7))
case("stop_gradient(x) * x", lambda x: x.detach() * x, x=uniform(3, 4))
for shape in [(4, 10), (1, 1), (3, 1000), (2, 3, 17)]:
    case("softmax(x)", lambda x: torch.softmax(x, -1), x=uniform(*shape))
    case("log_softmax(x)", lambda x: torch.log_softmax(x, -1), x=uniform(*shape))
    case("logsumexp(x)", lambda x: torch.logsumexp(x, -1), x=uniform(*shape))
case("softmax(x * 60)", lambda x: torch.softmax(x * 60, -1), x=uniform(3, 5))
case("softmax(x, axis=1)", lambda x: torch.softmax(x, 1), x=uniform(2, 5, 3))
for shape in [(4, 10), (3, 1), (2, 3, 300)]:
    case("layer_norm(x, g, b)", lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b), x=uniform(*shape), g=uniform(shape[-1]), b=uniform(shape[-1]))
case("rms_norm(x, g)", lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g, x=uniform(4, 10), g=uniform(10))
for batch, classes in [(1, 2), (6, 10), (5, 1000)]:
    case("mean(cross_entropy(x, t))", lambda x, t: F.cross_entropy(x, t), x=uniform(batch, classes), t=integers(classes, batch))
case("cross_entropy(x, t)", lambda x, t: F.cross_entropy(x, t, reduction="none"), x=uniform(6, 10), t=integers(10, 6))
case("mean(cross_entropy(x, t, smoothing=0.1))", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), x=uniform(6, 10), t=integers(10, 6))
case("mean(cross_entropy(x, t, ignore=-1))", lambda x, t: F.cross_entropy(x, t, ignore_index=-1), x=uniform(6, 10), t=numpy.array([1, -1, 3, -1, 9, 0], numpy.int32))
case("mean(cross_entropy(x, t))", lambda x, t: F.cross_entropy(x.reshape(-1, 9), t.reshape(-1)), x=uniform(2, 4, 9), t=integers(9, 2, 4))
kept = lambda t: t != -1
HARD = uniform(12)
HARD[[2, 5, 7]] = HARD[9]  # equal ones: the first come first
for k in (1, 3, 5, 12):
    largest = lambda x, k=k: torch.sort(x, descending=True, stable=True)[1][:k]
    case(f"x[0] * f32(hardest_index(x, {k}))", lambda x, f=largest: x[0] * f(x), x=HARD)
    case(f"sum(hardest(x, {k}))", lambda x, f=largest: x[f(x)].sum(), x=HARD)
    case(f"sum(hardest_rows(x, {k}, y), axis=0)", lambda x, y, f=largest: y[f(x)].sum(0) + 0 * x.sum(), x=HARD, y=uniform(12, 3))
BY_CLASS = [0.5, 2, 1, 3, 0.25]
by_class = torch.tensor(BY_CLASS, dtype=torch.float64)
TARGETS, SOME = integers(5, 6), numpy.array([1, -1, 3, -1, 4, 0], numpy.int32)
for smoothing in (0, 0.1):
    case(f"mean(cross_entropy(x, t, weight={BY_CLASS}, smoothing={smoothing}))", lambda x, t, e=smoothing: F.cross_entropy(x, t, by_class, label_smoothing=e), x=uniform(6, 5), t=TARGETS)
    case(f"sum(cross_entropy(x, t, weight={BY_CLASS}, smoothing={smoothing}))", lambda x, t, e=smoothing: F.cross_entropy(x, t, by_class, label_smoothing=e, reduction="sum"), x=uniform(6, 5), t=TARGETS)
    case(f"mean(cross_entropy(x, t, weight={BY_CLASS}, smoothing={smoothing}, ignore=-1))", lambda x, t, e=smoothing: F.cross_entropy(x, t, by_class, label_smoothing=e, ignore_index=-1), x=uniform(6, 5), t=SOME)
    case(f"mean(cross_entropy(x, p, weight={BY_CLASS}, smoothing={smoothing}))", lambda x, p, e=smoothing: F.cross_entropy(x, p, by_class, label_smoothing=e), x=uniform(6, 5), p=positive(6, 5))
case("mean(cross_entropy(x, t, weight=[0, 2, 1, 3, 0]))", lambda x, t: F.cross_entropy(x, t, torch.tensor([0, 2, 1, 3, 0], dtype=torch.float64)), x=uniform(6, 5), t=TARGETS)
nll = lambda x, t: F.cross_entropy(x, t, ignore_index=-1, reduction="none")
IGNORED = numpy.array([1, -1, 3, -1, 9, 0], numpy.int32)
case("mean(cross_entropy(x, t, ignore=-1) + 1)", lambda x, t: (nll(x, t) + 1)[kept(t)].mean(), x=uniform(6, 10), t=IGNORED)
case("mean(f32(clamp(cross_entropy(x, t, ignore=-1), 1.5, 3)) ** 2)", lambda x, t: (nll(x, t).clamp(1.5, 3) ** 2)[kept(t)].mean(), x=uniform(6, 10), t=IGNORED)
case("mean(maximum(y, cross_entropy(x, t, ignore=-1)))", lambda x, y, t: torch.maximum(nll(x, t), y)[kept(t)].mean(), x=uniform(6, 10), y=positive(6), t=IGNORED)
case("mean(flatten(stack([y, cross_entropy(x, t, ignore=-1)]))[2:10])", lambda x, y, t: torch.cat([y[2:], nll(x, t)[:4][kept(t[:4])]]).mean(), x=uniform(6, 10), y=positive(6), t=IGNORED)
case("mean(exp(weighted(x, y)) * z)", lambda x, y, z: (x.exp() * z * y).sum() / y.sum(), x=uniform(4, 5), y=positive(4, 5), z=uniform(5))
case("std(transpose(weighted(x, y > 1)), axis=0)", lambda x, y: torch.stack([r[m > 1].std() for r, m in zip(x, y)]), x=uniform(3, 9), y=positive(3, 9))
case("max(weighted(x, y > 1), axis=1)", lambda x, y: torch.where(y > 1, x, -torch.inf).amax(1), x=distinct(3, 9), y=positive(3, 9))
case("mean(mse(x, y))", F.mse_loss, x=uniform(4, 5), y=uniform(4, 5))
case("mean(l1(x, y))", F.l1_loss, x=uniform(4, 5), y=uniform(4, 5))
case("mean(huber(x, y, delta=0.7))", lambda x, y: F.huber_loss(x, y, delta=0.7), x=uniform(4, 5), y=uniform(4, 5))
case("mean(bce_with_logits(x, y))", F.binary_cross_entropy_with_logits, x=uniform(4, 5), y=uniform(4, 5, low=0, high=1))
case("f32(topk_correct(x, t, 3)) * y", lambda x, t, y: (x.topk(3).indices == t[:, None]).any(1) * y, x=distinct(8, 9), t=integers(9, 8), y=uniform(8))


def attention(q, k, v, causal=False, mask=None, scale=None):
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) if x.dim() > 2 else x for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(~seen, -torch.inf)
    return torch.softmax(scores, -1) @ v


case("attention(q, k, v)", attention, q=uniform(2, 3, 7, 16), k=uniform(2, 3, 7, 16), v=uniform(2, 3, 7, 16))
case("attention(q, k, v, causal=true, scale=0.3)", lambda q, k, v: attention(q, k, v, True, scale=0.3), q=uniform(2, 4, 70, 20), k=uniform(2, 2, 70, 20), v=uniform(2, 2, 70, 20))
case("attention(q, k, v, causal=true)", lambda q, k, v: attention(q, k, v, True), q=uniform(5, 8), k=uniform(9, 8), v=uniform(9, 8))
case("attention(q, k, v)", attention, q=uniform(3, 5, 8), k=uniform(3, 6, 8), v=uniform(3, 6, 4))  # values narrower than keys: written out
case("attention(q, k, v, mask=m != 0)", lambda q, k, v, m: attention(q, k, v, mask=m != 0), q=uniform(2, 2, 5, 8), k=uniform(2, 1, 6, 8), v=uniform(2, 1, 6, 8), m=numpy.maximum(integers(2, 2, 1, 5, 6), numpy.eye(5, 6, dtype=numpy.int32)))
case("attention(q, k, v, mask=stop_gradient(m))", lambda q, k, v, m: attention(q, k, v, mask=m.detach()), q=uniform(2, 2, 2, 5, 8), k=uniform(2, 2, 2, 6, 8), v=uniform(2, 2, 2, 6, 8), m=uniform(2, 1, 1, 6))

# in f64: written out, and on the CPU a product is a sum
case("f32(attention(f64(q), f64(k), f64(v), causal=true))", lambda q, k, v: attention(q, k, v, True), q=uniform(2, 4, 7, 16), k=uniform(2, 2, 9, 16), v=uniform(2, 2, 9, 16))
case("f32(f64(a) @ f64(b))", torch.matmul, a=uniform(2, 3, 4, 5), b=uniform(2, 3, 5, 7))
case("f32(f64(a) @ transpose(f64(b)))", lambda a, b: a @ b.transpose(-1, -2), a=uniform(4, 70), b=uniform(1, 70))


def rope(x, theta=10000.0, offset=0):
    half = x.shape[-1] // 2
    angle = (torch.arange(x.shape[-2], dtype=torch.float64) + offset)[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


case("rope(x)", rope, x=uniform(2, 3, 9, 8))
case("rope(x, theta=100, offset=5)", lambda x: rope(x, 100.0, 5), x=uniform(9, 6))
CONVS = [  # n c h w o k stride padding dilation groups
    (1, 1, 5, 5, 1, 1, 1, 0, 1, 1), (2, 3, 8, 7, 4, 3, 1, 1, 1, 1), (2, 4, 9, 9, 6, 3, 2, 1, 1, 2), (1, 2, 11, 11, 3, 3, 1, 2, 2, 1),
    (2, 4, 6, 6, 4, 3, 1, 1, 1, 4), (2, 3, 7, 7, 16, 5, 3, 2, 1, 1), (3, 16, 8, 8, 32, 1, 2, 0, 1, 1)]
for n, c, h, w, o, k, stride, padding, dilation, groups in CONVS:
    case(f"conv2d(x, w, stride={stride}, padding={padding}, dilation={dilation}, groups={groups})",
         lambda x, w, s=stride, p=padding, d=dilation, g=groups: F.conv2d(x, w, None, s, p, d, g), x=uniform(n, c, h, w), w=uniform(o, c // groups, k, k))
case("f32(argmax(flatten(conv2d(x, w), from=1), axis=1)) * y", lambda x, w, y: F.conv2d(x, w).flatten(1).argmax(1) * y, x=uniform(5, 3, 6, 6), w=uniform(8, 3, 3, 3), y=uniform(5))
case("relu(conv2d(x, w, padding=1) + reshape(b, [1, 4, 1, 1]))", lambda x, w, b: torch.relu(F.conv2d(x, w, b, padding=1)), x=uniform(2, 3, 6, 6), w=uniform(4, 3, 3, 3), b=uniform(4))
POOLS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (3, 3, 1)]
for kernel, stride, padding in POOLS:
    case(f"max_pool2d(x, {kernel}, stride={stride}, padding={padding})", lambda x, k=kernel, s=stride, p=padding: F.max_pool2d(x, k, s, p), x=distinct(2, 3, 9, 8))
    case(f"avg_pool2d(x, {kernel}, stride={stride}, padding={padding})", lambda x, k=kernel, s=stride, p=padding: F.avg_pool2d(x, k, s, p), x=uniform(2, 3, 9, 8))
case("avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=false)", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x=uniform(2, 3, 9, 8))
case("max_pool2d(relu(conv2d(x, w, padding=1)), 2)", lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2), x=uniform(2, 3, 8, 8), w=uniform(8, 3, 3, 3))
case("global_avg_pool2d(x)", lambda x: x.mean((2, 3)), x=uniform(2, 3, 5, 4))

# Not in any case's step: made only by passes that the random-graph tests cover, or without a value of their own; or of several
# ranks (e2e/ranks.py).
NOT_HERE = {"all_gather", "all_reduce", "all_to_all", "broadcast_from", "reduce_scatter", "transfer", "send", "receive", "fused", "arg", "result", "random", "xor", "put", "mean", "spread"}
GROUP = 16  # cases in one model: fewer compilations


def model(cases):
    """The text of a model with these cases, its initial weights and its integer inputs."""
    lines, weights, inputs, names = [], {}, {"unused": numpy.zeros((1, 1), numpy.float32)}, []
    terms = []
    for k, (expression, function, arguments) in enumerate(cases):
        lines.append(f"  // {expression}")
        text = expression
        for name, value in arguments.items():
            full = f"c{k}_{name}"
            dims = ", ".join(map(str, value.shape))
            if value.dtype == numpy.int32:
                inputs[full] = value[None]
                lines.append(f"  {full} = reshape({full}_in, [{dims}])")
            else:
                weights[full] = value
                lines.append(f"  param {full}: [{dims}] = zeros")
            text = rename(text, name, full)
        result = function(*(torch.from_numpy(v.astype(numpy.int64 if v.dtype == numpy.int32 else numpy.float64)) for v in arguments.values()))
        weight = random.uniform(0.5, 1.5, tuple(result.shape)).astype(numpy.float32)
        weights[f"c{k}_weight"] = weight
        lines += [f"  param c{k}_weight: [{', '.join(map(str, weight.shape))}] = zeros", f"  c{k} = {text}"]
        terms.append(f"sum(c{k} * c{k}_weight)")
    signature = ", ".join(["unused: f32[B, 1]"] + [f"{n}_in: i32[B, {', '.join(map(str, v.shape[1:]))}]" if v.ndim > 1 else f"{n}_in: i32[B]" for n, v in inputs.items() if n != "unused"])
    files = ", ".join(f'"{n}.npy"' for n in inputs)
    text = f"model Cases({signature}) {{\n" + "\n".join(lines) + "\n  loss = " + " + ".join(terms) + "\n}\n"
    text += f"data D {{ train = npy({files}) }}\ntrain {{ model = Cases; data = D; batch = 1; epochs = 1; optimizer = sgd(lr=1.0); eval every 0 epochs }}\n"
    return text, weights, inputs


def rename(text, name, full):
    return re.sub(rf"(?<![A-Za-z0-9_\"]){name}(?![A-Za-z0-9_(=])", full, text)


class Compared(support.Case):
    """Cases in one model, after one step."""

    artifact, device = "model.so", "cpu"

    def group(self, cases):
        text, weights, inputs = model(cases)
        artifact = self.compile(text, name=self.artifact)
        for name, value in inputs.items():
            numpy.save(self.path(name + ".npy"), value)
        support.write_safetensors(self.path("start.safetensors"), weights)
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start.safetensors"), "--save", self.path("end.safetensors"), "--steps", "1", "--no-shuffle", "--device", self.device)
        end = support.read_safetensors(self.path("end.safetensors"))
        for k, (expression, function, arguments) in enumerate(cases):
            with self.subTest(expression, **{n: v.shape for n, v in arguments.items()}):
                tensors = {n: torch.from_numpy(v.astype(numpy.int64 if v.dtype == numpy.int32 else numpy.float64)) for n, v in arguments.items()}
                for tensor in tensors.values():
                    tensor.requires_grad_(tensor.is_floating_point())
                value = function(*tensors.values())
                weight = torch.from_numpy(weights[f"c{k}_weight"].astype(numpy.float64))
                total = (value * weight).sum()
                if total.requires_grad:
                    total.backward()
                self.close(weights[f"c{k}_weight"] - end[f"c{k}_weight"], value.detach().numpy(), "value", weights[f"c{k}_weight"])
                for name, tensor in tensors.items():
                    if tensor.is_floating_point():
                        gradient = tensor.grad.numpy() if tensor.grad is not None else numpy.zeros(tensor.shape)
                        start = weights[f"c{k}_{name}"]
                        self.close(start - end[f"c{k}_{name}"], gradient, f"gradient of {name}", start)

    def close(self, ours, theirs, what, start):
        self.assertEqual(ours.shape, theirs.shape, what)
        # old - new cancels: its error is that of rounding both to f32, besides the arithmetic's own
        scale = max(numpy.abs(theirs).max(initial=0), numpy.abs(start).max(initial=0), 1e-3)
        self.assertTrue(numpy.isfinite(ours).all(), what)
        error = numpy.abs(ours - theirs).max(initial=0) / scale
        self.assertLess(error, 4e-6, f"{what}: {error:.1e} of its largest element")


class Ops(Compared):
    """All cases."""


for first in range(0, len(CASES), GROUP):
    setattr(Ops, f"test_cases_{first:03d}", lambda self, first=first: self.group(CASES[first : first + GROUP]))


def test_every_op_has_a_case(self):
    listed = {line.split()[0] for line in support.run("ftc", "--list-ops").stdout.splitlines()[1:]}
    self.assertGreater(len(listed), 60)
    seen = set()
    for first in range(0, len(CASES), GROUP):  # whether or not it is their turn
        with open(self.path("model.ft"), "w") as file:
            file.write(model(CASES[first : first + GROUP])[0])
        # as written, and the whole training step before fusion, gradients and optimiser included
        for stop in ([], ["--stop-after=dce2"]):
            graph = support.run("ftc", self.path("model.ft"), "--emit=ir", *stop).stdout
            seen.update(re.findall(r"^ *%\S+ = (\w+)", graph, re.M))
    self.assertEqual(sorted(listed - seen - NOT_HERE), [])


setattr(Ops, "test_every_op_has_a_case", test_every_op_has_a_case)


class OpsOnSim(Ops):
    """The same cases, the PTX of which runs in the simulator."""

    artifact, device = "model.ptx", "sim"


if __name__ == "__main__":
    support.main()
