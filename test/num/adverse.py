"""Rounding errors where sums cancel, numbers are far from 0 or of all sizes, scores are large, and sums are long: of values and gradients
in f32 against PyTorch in float64, as multiples of PyTorch's own errors in f32. On the CPU at three levels, and in the simulator."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(__file__))
import ops
import support
from functions import attention

random = numpy.random.default_rng(5)
# What is written, PyTorch's function, arguments; of what each element's own relative error counts; by how many of their deviations numbers are away from 0.
CASES = []


def case(expression, function, by_element=(), away=1, **arguments):
    CASES.append((expression, function, {name: numpy.asarray(value, "i4" if numpy.asarray(value).dtype.kind == "i" else "f4") for name, value in arguments.items()}, by_element, away))


def normal(*shape):
    return random.standard_normal(shape)


# ── functions of one element ──
SIZES = numpy.concatenate([sign * numpy.logspace(-30, 18, 49) for sign in (1, -1)])
NEAR = numpy.concatenate([at + sign * numpy.logspace(-6, 0, 25) for at in (0.0, 1.0, -1.0, 3.0, -3.0) for sign in (1, -1)])
POINTS = numpy.concatenate([SIZES, numpy.linspace(-100, 100, 401), NEAR])
BOTH = ("value", "gradient of x")
UNARY = {"exp": torch.exp, "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "silu": F.silu, "softplus": F.softplus,
         "elu": lambda x: torch.where(x > 0, x, torch.expm1(x)), "gelu": F.gelu, "mish": F.mish, "logsigmoid": F.logsigmoid, "hardswish": F.hardswish, "relu6": F.relu6}
for name, function in UNARY.items():
    points = POINTS[abs(abs(POINTS) - 3) > 1e-6] if name == "hardswish" else POINTS  # at a corner the slope is either side's
    # the slope of expm1, and so of elu, is the value + 1, and far below 0 that is 0
    case(f"{name}(x)", function, ("value",) if name in ("expm1", "elu") else BOTH, x=points[abs(points) < (60 if "exp" in name or name == "elu" else 3e4)])
POSITIVE = numpy.concatenate([numpy.logspace(-12, 18, 151), 1 + numpy.linspace(-0.5, 0.5, 100), 1 + numpy.logspace(-7, -1, 20), 1 - numpy.logspace(-7, -1, 20)])
case("log(x)", torch.log, BOTH, x=POSITIVE)
case("sqrt(x)", torch.sqrt, BOTH, x=POSITIVE)
case("rsqrt(x)", torch.rsqrt, BOTH, x=POSITIVE)
case("log1p(x)", torch.log1p, BOTH, x=numpy.concatenate([numpy.logspace(-30, 30, 101), -numpy.logspace(-30, -1, 50), [-0.9, -0.99, -0.9999]]))
case("x ** 3", lambda x: x**3, BOTH, x=SIZES[abs(SIZES) < 1e9])
case("x ** -2", lambda x: x**-2.0, BOTH, x=POSITIVE[(POSITIVE > 1e-9) & (POSITIVE < 1e9)])
case("x ** 1.7", lambda x: x**1.7, BOTH, x=POSITIVE[(POSITIVE > 1e-10) & (POSITIVE < 1e15)])
FEW = POINTS[abs(POINTS) < 1e4]
case("bce_with_logits(x, y)", lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"), x=numpy.tile(FEW, 3), y=numpy.repeat([0.0, 1.0, 0.3], len(FEW)))
case("huber(x, y)", lambda x, y: F.huber_loss(x, y, reduction="none"), x=SIZES, y=SIZES * 1.0001)
case("smooth_l1(x, y)", lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), x=SIZES, y=SIZES * 1.0001)

# ── norms and moments ──
OF_ROWS = {
    "sum(x, axis=-1)": lambda x: x.sum(-1), "mean(x, axis=0)": lambda x: x.mean(0), "var(x, axis=-1)": lambda x: x.var(-1), "std(x, axis=0)": lambda x: x.std(0), "var(x)": lambda x: x.var(),
    "layer_norm(x)": lambda x: F.layer_norm(x, (700,)), "layer_norm(reshape(x, [4200]))": lambda x: F.layer_norm(x.reshape(4200), (4200,)),
    "layer_norm(reshape(x, [420, 10]))": lambda x: F.layer_norm(x.reshape(420, 10), (10,)), "rms_norm(x)": lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt(),
    "group_norm(reshape(x, [6, 70, 10]), 7)": lambda x: F.group_norm(x.reshape(6, 70, 10), 7), "sqrt(sum(x * x, axis=-1))": lambda x: x.norm(dim=-1)}
AWAY = {"offset 100": 100, "offset 1e3": 1e3, "offset 1e4": 1e4}
ROWS = {"offset 1e3": 1e3 + normal(6, 700), "offset 1e4": 1e4 + normal(6, 700), "large": 1e6 * normal(6, 700), "tiny": 1e-4 * normal(6, 700),
        "of all sizes": normal(6, 700) * 10.0 ** random.uniform(-6, 6, (6, 700)), "one large": numpy.where(random.random((6, 700)) < 0.002, 1e7, 1) * normal(6, 700)}
for kind, x in ROWS.items():
    for expression, function in OF_ROWS.items():
        case(f"{expression}  # {kind}", function, away=AWAY.get(kind, 1), x=x)
    case(f"cosine_similarity(x, y)  # {kind}", lambda x, y: F.cosine_similarity(x, y), x=x, y=x + 0.01 * abs(x).mean() * normal(*x.shape))
    case(f"mse(x, y)  # {kind}", lambda x, y: (x - y) ** 2, x=x, y=x + normal(*x.shape))
for kind, x in {"offset 100": 100 + normal(8, 6, 9, 9), "offset 1e4": 1e4 + normal(8, 6, 9, 9)}.items():
    case(f"group_norm(x, 3)  # {kind}", lambda x: F.group_norm(x, 3), away=AWAY[kind], x=x)
    case(f'BatchNorm(name="norm")(x)  # {kind}', lambda x: F.batch_norm(x, None, None, training=True), away=AWAY[kind], x=x)
    case(f"avg_pool2d(x, 3)  # {kind}", lambda x: F.avg_pool2d(x, 3), x=x)

# ── softmax and what is like it ──
TARGET = numpy.concatenate([numpy.full(3, 7), random.integers(0, 300, 5)])
SCORES = {"times 100": 100 * normal(8, 300), "offset 1e4": 1e4 + 5 * normal(8, 300), "peaked": normal(8, 300) + 60.0 * (numpy.arange(300) == 7), "equal": numpy.full((8, 300), 77.7)}
for kind, x in SCORES.items():
    case(f"softmax(x)  # {kind}", lambda x: F.softmax(x, -1), x=x)
    case(f"softmax(x, axis=0)  # {kind}", lambda x: F.softmax(x, 0), x=x)
    case(f"log_softmax(x)  # {kind}", lambda x: F.log_softmax(x, -1), x=x)
    case(f"logsumexp(x)  # {kind}", lambda x: torch.logsumexp(x, -1), x=x)
    for smoothing in (0, 0.1):
        case(f"cross_entropy(x, t, smoothing={smoothing})  # {kind}", lambda x, t, s=smoothing: F.cross_entropy(x, t, reduction="none", label_smoothing=s), x=x, t=TARGET)

# ── long sums, products, attention ──
LONG = {"of tenths": numpy.full(1 << 20, 0.1), "cancelling": normal(1 << 20), "positive": random.random(1 << 20), "growing": numpy.arange(1 << 20) * 1e-3}
for kind, x in LONG.items():
    for expression, function in {"sum(x)": torch.sum, "mean(x)": torch.mean, "sum(reshape(x, [1024, 1024]), axis=0)": lambda x: x.reshape(1024, 1024).sum(0),
                                 "sum(reshape(x, [8, 131072]), axis=1)": lambda x: x.reshape(8, -1).sum(1), "sum(reshape(x, [131072, 8]), axis=0)": lambda x: x.reshape(-1, 8).sum(0)}.items():
        case(f"{expression}  # {kind}", function, x=x)
case("x @ y  # long", lambda x, y: x @ y, x=random.random((20, 30000)), y=random.random((30000, 17)))
case("transpose(x) @ y  # long", lambda x, y: x.T @ y, x=random.random((30000, 20)), y=random.random((30000, 17)))
case("x @ y  # offset", lambda x, y: x @ y, x=100 + normal(20, 3000), y=normal(3000, 17))
for causal in (False, True):
    for kind, q, k, v in (("large", 30, 0, 0), ("huge", 300, 0, 0), ("offset", 1, 3, 10)):
        case(f"attention(q, k, v, causal={str(causal).lower()})  # {kind}", lambda q, k, v, c=causal: attention(q, k, v, c, None), away=100 if k else 1,
             q=(5 if k else 0) + q * normal(1, 2, 150, 32), k=k + normal(1, 2, 150, 32), v=v + normal(1, 2, 150, 32))
case("conv2d(x, y, padding=1)  # offset", lambda x, y: F.conv2d(x, y, padding=1), x=100 + normal(2, 32, 12, 12), y=normal(32, 32, 3, 3))
case("conv2d(x, y, padding=1)  # of all sizes", lambda x, y: F.conv2d(x, y, padding=1), x=normal(2, 32, 12, 12) * 10.0 ** random.uniform(-4, 4, (2, 1, 12, 12)), y=normal(32, 32, 3, 3))


SLOPES = [random.uniform(0.5, 1.5, tuple(function(*map(torch.from_numpy, (v.astype("f4" if v.dtype.kind == "f" else "i8") for v in a.values()))).shape)).astype("f4") for _, function, a, _, _ in CASES]
GROUP = 13
# times PyTorch's error, and what is allowed besides: of the largest element, of each; and where numbers are away from 0 four places of their mean
MOST, ALLOWED, ALLOWED_BY_ELEMENT, ALLOWED_AWAY = 8, 1e-5, 2e-5, 2.0**-22


def model(numbers):
    """Parameters that are added to inputs and factors begin as 0, so that after a step of sgd at a rate of 1 they are what is wanted, negative, without another rounding."""
    inputs, weights, lines, terms = {"unused": numpy.zeros((1, 1), "f4")}, {}, [], []
    for k in numbers:
        expression, _, arguments, _, _ = CASES[k]
        text = expression.split("  #")[0].replace('name="norm"', f'name="c{k}_norm"')
        if "BatchNorm" in text:
            weights[f"c{k}_norm.weight"], weights[f"c{k}_norm.bias"] = numpy.ones(6, "f4"), numpy.zeros(6, "f4")
        for name, value in arguments.items():
            full, dims = f"c{k}_{name}", ", ".join(map(str, value.shape))
            inputs[full + "_in"] = value
            lines.append(f"  {full} = reshape({full}_in, [{dims}])")
            if value.dtype.kind == "f":
                weights[full + "_more"] = numpy.zeros(value.shape, "f4")
                lines[-1:] = [f"  param {full}_more: [{dims}] = zeros", lines[-1] + f" + {full}_more"]
            text = ops.rename(text, name, full)
        dims = ", ".join(map(str, SLOPES[k].shape))
        inputs[f"c{k}_slope_in"], weights[f"c{k}_factor"] = SLOPES[k], numpy.zeros(SLOPES[k].shape, "f4")
        lines += [f"  param c{k}_factor: [{dims}] = zeros", f"  c{k} = {text}"]
        terms.append(f"sum(c{k} * (reshape(c{k}_slope_in, [{dims}]) + c{k}_factor))")
    types = {name: f"{'f' if v.dtype.kind == 'f' else 'i'}32[B{''.join(f', {d}' for d in (v.shape if name != 'unused' else (1,)))}]" for name, v in inputs.items()}
    text = "model Adverse(" + ", ".join(f"{name}: {type}" for name, type in types.items()) + ") {\n" + "\n".join(lines) + "\n  loss = " + " + ".join(terms) + "\n}\n"
    text += "data D { train = npy(" + ", ".join(f'"{name}.npy"' for name in inputs) + ") }\ntrain { batch = 1; steps = 1; optimizer = sgd(lr=1.0) }\n"
    return text, weights, {name: v if name == "unused" else v[None] for name, v in inputs.items()}


def by_torch(k, dtype):
    _, function, arguments, _, _ = CASES[k]
    tensors = {name: torch.from_numpy(v).to(dtype) if v.dtype.kind == "f" else torch.from_numpy(v.astype("i8")) for name, v in arguments.items()}
    for tensor in tensors.values():
        tensor.requires_grad_(tensor.is_floating_point())
    value = function(*tensors.values())
    (value * torch.from_numpy(SLOPES[k]).to(dtype)).sum().backward()
    gradients = {f"gradient of {name}": tensor.grad if tensor.grad is not None else torch.zeros_like(tensor) for name, tensor in tensors.items() if tensor.is_floating_point()}
    return {what: tensor.detach().numpy().astype("f8") for what, tensor in {"value": value, **gradients}.items()}


def error(x, exact, by_element):
    """Of the largest element, or the largest of elements' own."""
    if not numpy.isfinite(x).all():
        return numpy.inf
    size = numpy.maximum(abs(exact), 1e-30) if by_element else max(abs(exact).max(), 1e-30)
    return float((abs(x - exact) / size).max())


class Adverse(support.Case):
    flags, device = [], "cpu"

    def group(self, numbers):
        text, weights, inputs = model(numbers)
        for name, value in inputs.items():
            numpy.save(self.path(name + ".npy"), value)
        support.write_safetensors(self.path("start"), weights)
        artifact = self.compile(text, *self.flags, name="model.ptx" if self.device == "sim" else "model.so")
        support.run("ftrun", artifact, "--data", self.folder, "--init", self.path("start"), "--save", self.path("end"), "--no-shuffle", "--device", self.device)
        end = support.read_safetensors(self.path("end"))
        for k in numbers:
            exact, plain = by_torch(k, torch.float64), by_torch(k, torch.float32)
            for what, value in exact.items():
                self.assertTrue(numpy.isfinite(value).all())
                ours = -end[f"c{k}_factor" if what == "value" else f"c{k}_{what.split()[-1]}_more"].astype("f8")
                for by_element in (False, True)[: 2 if what in CASES[k][3] else 1]:
                    with self.subTest(CASES[k][0], what=what, by_element=by_element):
                        theirs = error(plain[what], value, by_element)
                        self.assertLess(error(ours, value, by_element), MOST * theirs + (ALLOWED_BY_ELEMENT if by_element else ALLOWED) + (CASES[k][4] > 1) * ALLOWED_AWAY * CASES[k][4], f"PyTorch's in f32: {theirs:.1e}")


class AdverseAvx2(Adverse):
    flags = ["--cpu", "x86-64-v3"]


class AdverseBaseline(Adverse):
    flags = ["--cpu", "x86-64"]


class AdverseOnSim(Adverse):
    flags, device = ["--gpu", "sm_80"], "sim"


class AdverseOnHopper(Adverse):
    flags, device = ["--gpu", "sm_90a"], "sim"


for turn, of in enumerate((Adverse, AdverseAvx2, AdverseBaseline, AdverseOnSim, AdverseOnHopper)):
    for number in range(0, len(CASES), GROUP):
        def test(self, first=number, turn=turn):
            if not support.has_its_turn(first // GROUP + turn, 5):
                self.skipTest("another day's")
            self.group(range(first, min(first + GROUP, len(CASES))))
        setattr(of, f"test_{number:03d}", test)

if __name__ == "__main__":
    support.main()
