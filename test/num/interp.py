"""The interpreter against PyTorch in float64: contractions, pooling and their gradients with random
strides, paddings, dilations and groups, reductions, movement and lookup. The interpreter is the oracle
of everything else, so it is held to something that is not ours.

Operands are sin(a * k + b) of their element's number k, made inside the graph. Of each result the
interpreter's printout gives the first values and a weighted sum, to six digits."""
import os
import re
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

random = numpy.random.RandomState(11)
lines, expected = [], []


def shape_text(shape):
    return "[" + ",".join(map(str, shape)) + "]"


def node(text, shape, dtype="f64"):
    lines.append(f"  %n{len(lines)} = {text} : {dtype}{shape_text(shape)}")
    return f"%n{len(lines) - 1}"


def operand(shape, a=None):
    """A graph node and the same tensor in torch."""
    a, b = (a or round(random.uniform(0.3, 2.9), 4)), round(random.uniform(-1, 1), 4)
    count = int(numpy.prod(shape))
    index = node("cast " + node("iota {axis=0}", [count], "i64"), [count])
    scaled = node(f"mul {index}, " + node(f"const {{value={a}}}", [count]), [count])
    shifted = node(f"add {scaled}, " + node(f"const {{value={b}}}", [count]), [count])
    flat = node(f"sin {shifted}", [count])
    value = torch.sin(torch.arange(count, dtype=torch.float64) * a + b)
    return node(f"reshape {flat}", shape), value.reshape(shape)


def indices(count, high):
    step = int(random.randint(1, 7))
    index = node("iota {axis=0}", [count], "i32")
    scaled = node(f"mul {index}, " + node(f"const {{value={step}}}", [count], "i32"), [count], "i32")
    rem = node(f"rem {scaled}, " + node(f"const {{value={high}}}", [count], "i32"), [count], "i32")
    return rem, torch.arange(count) * step % high


def expect(what, result, value):
    """`result` is a node's text; its value and a weighted sum become outputs."""
    shape, dtype = list(value.shape), "f64" if value.is_floating_point() else "i32"
    made = node(result, shape, dtype)
    value = value.double().reshape(-1)
    if dtype == "i32":
        made = node(f"cast {made}", shape)
    count = len(value)
    weights, w = operand([count], a=1.7)
    flat = node(f"reshape {made}", [count])
    total = node(f"sum {node(f'mul {flat}, {weights}', [count])} {{axes=[0]}}", [1])
    name = f"{len(expected)}"
    lines.append(f'  output "{name}" {flat}')
    lines.append(f'  output "{name} sum" {total}')
    expected.append((what + f" = {result}", value[:12].tolist(), [float((value * w).sum())]))


def window_case():
    kernel = random.randint(1, 5, 2)
    stride = random.randint(1, 4, 2)
    dilation = random.randint(1, 3, 2)
    low = [int(random.randint(0, k)) for k in kernel]
    high = [int(random.randint(0, k)) for k in kernel]
    size = [int(random.randint(max(1, d * (k - 1) + 1 - a - b), 11)) for k, d, a, b in zip(kernel, dilation, low, high)]
    return [list(map(int, x)) for x in (kernel, stride, dilation, low, high, size)]


for _ in range(40):
    kernel, stride, dilation, low, high, size = window_case()
    groups = int(random.randint(1, 4))
    n, c, o = int(random.randint(1, 4)), groups * int(random.randint(1, 4)), groups * int(random.randint(1, 4))
    xn, x = operand([n, c, *size])
    wn, w = operand([o, c // groups, *kernel])
    x.requires_grad_()
    w.requires_grad_()
    y = F.conv2d(F.pad(x, [low[1], high[1], low[0], high[0]]), w, stride=stride, dilation=dilation, groups=groups)
    attrs = f"{{stride={stride}, padding={low + high}, dilation={dilation}, groups={groups}}}"
    expect("convolution", f"conv {xn}, {wn} {attrs}", y.detach())
    dyn, dy = operand(list(y.shape))
    y.backward(dy)
    expect("gradient", f"conv_grad_input {dyn}, {wn} {attrs}", x.grad)
    expect("gradient", f"conv_grad_weight {dyn}, {xn} {attrs}", w.grad)
    # channels last, weights too
    last = lambda x: x.detach().permute(0, 2, 3, 1)
    xn, wn, dyn = (node(f"transpose {name} {{perm=[0,2,3,1]}}", list(last(value).shape)) for name, value in ((xn, x), (wn, w), (dyn, dy)))
    attrs = attrs[:-1] + ', layout="nhwc"}'
    expect("convolution", f"conv {xn}, {wn} {attrs}", last(y))
    expect("gradient", f"conv_grad_input {dyn}, {wn} {attrs}", last(x.grad))
    expect("gradient", f"conv_grad_weight {dyn}, {xn} {attrs}", last(w.grad))

for _ in range(40):
    kernel, stride, _, low, high, _ = window_case()
    size = [int(random.randint(k, 12)) for k in kernel]
    n, c = int(random.randint(1, 4)), int(random.randint(1, 4))
    for count_pad in (False, True):
        xn, x = operand([n, c, *size])
        x.requires_grad_()
        padding = [low[1], high[1], low[0], high[0]]
        y = F.avg_pool2d(F.pad(x, padding), kernel, stride)
        if not count_pad:  # torch pads both sides alike; the mean of the real ones is a quotient
            y = y / F.avg_pool2d(F.pad(torch.ones_like(x), padding), kernel, stride)
        attrs = f"{{kernel={kernel}, stride={stride}, padding={low + high}, count_pad={str(count_pad).lower()}}}"
        expect("average", f"pool_avg {xn} {attrs}", y.detach())
        dyn, dy = operand(list(y.shape))
        y.backward(dy)
        expect("gradient", f"pool_avg_grad {dyn} {attrs}", x.grad)
    x.grad = None
    y = F.max_pool2d(F.pad(x, padding, value=-torch.inf), kernel, stride)
    attrs = f"{{kernel={kernel}, stride={stride}, padding={low + high}}}"
    expect("maximum", f"pool_max {xn} {attrs}", y.detach())
    y.backward(dy)
    index = node(f"pool_index {xn} {attrs}", list(y.shape), "u8")
    expect("gradient", f"pool_max_grad {dyn}, {index} {attrs}", x.grad)

for _ in range(20):
    batch = [int(d) for d in random.randint(1, 4, random.randint(0, 3))]
    m, k, n = (int(d) for d in random.randint(1, 9, 3))
    for ta in (False, True):
        for tb in (False, True):
            an, a = operand([*batch, k, m] if ta else [*batch, m, k])
            bn, b = operand([*batch, n, k] if tb else [*batch, k, n])
            y = (a.mT if ta else a) @ (b.mT if tb else b)
            expect("product", f"dot {an}, {bn} {{ta={str(ta).lower()}, tb={str(tb).lower()}}}", y)

for _ in range(20):
    shape = [int(d) for d in random.randint(1, 6, random.randint(1, 5))]
    xn, x = operand(shape)
    axes = sorted(int(a) for a in random.permutation(len(shape))[: random.randint(1, len(shape) + 1)])
    for op, function in (("sum", torch.sum), ("rmax", torch.amax), ("rmin", torch.amin)):
        expect("reduction", f"{op} {xn} {{axes={axes}}}", function(x, axes, keepdim=True))
    product = x
    for axis in axes:
        product = product.prod(axis, keepdim=True)
    expect("reduction", f"prod {xn} {{axes={axes}}}", product)
    for op, function in (("argmax", torch.argmax), ("argmin", torch.argmin)):
        expect("choice", f"{op} {xn} {{axes={axes[:1]}}}", function(x, axes[0], keepdim=True))
    perm = [int(p) for p in random.permutation(len(shape))]
    expect("movement", f"transpose {xn} {{perm={perm}}}", x.permute(perm).contiguous())
    start = [int(random.randint(0, d)) for d in shape]
    step = [int(s) for s in random.randint(1, 4, len(shape))]
    expect("movement", f"slice {xn} {{start={start}, step={step}}}", x[tuple(slice(b, None, s) for b, s in zip(start, step))].contiguous())
    low, high = ([int(v) for v in random.randint(0, 3, len(shape))] for _ in range(2))
    both = [v for pair in zip(reversed(low), reversed(high)) for v in pair]
    expect("movement", f"pad {xn} {{low={low}, high={high}, value=0.5}}", F.pad(x, both, value=0.5))
    yn, y = operand(shape)
    axis = int(random.randint(0, len(shape)))
    expect("movement", f"concat {xn}, {yn}, {xn} {{axis={axis}}}", torch.cat([x, y, x], axis))
    rows = shape[0]
    number, index = indices(int(random.randint(1, 9)), rows)
    expect("lookup", f"gather {xn}, {number}", x[index])
    number, index = indices(rows, int(random.randint(1, 9)))
    table = torch.zeros([9, *shape[1:]], dtype=torch.float64)
    expect("lookup", f"scatter_add {xn}, {number}", table.index_add(0, index, x))
    size, at = shape[axis], int(random.randint(-2, shape[axis] + 2))
    part_shape = list(shape)
    part_shape[axis] = int(random.randint(1, 4))
    partn, part = operand(part_shape)
    places = [k for k in range(part_shape[axis]) if 0 <= at + k < size]
    whole = x.index_copy(axis, torch.tensor([at + k for k in places], dtype=torch.int64), part.index_select(axis, torch.tensor(places, dtype=torch.int64)))
    placen = node(f"const {{value={at}}}", [], "i64")
    expect("movement", f"put {xn}, {partn}, {placen} {{axis={axis}}}", whole)


def close(have, want):
    return len(have) >= len(want) and all(abs(h - w) <= 2e-6 * max(1, abs(w)) * 5 for h, w in zip(have, want))


with tempfile.TemporaryDirectory(prefix="ft-test-") as folder:
    path = os.path.join(folder, "cases.ftir")
    with open(path, "w") as file:
        file.write('graph "train" {\n' + "\n".join(lines) + "\n}\n")
    printed = support.run("ftopt", path, "--interp").stdout
values = {}
for name, numbers in re.findall(r"^output ([^:]*): f64\[[0-9,]*\] =([^\n]*)$", printed, re.M):
    values[name] = [float(number) for number in numbers.split(" ...")[0].split()]
passed = failed = 0
for number, (what, first, total) in enumerate(expected):
    have, have_total = values.get(f"{number}", []), values.get(f"{number} sum", [])
    if close(have, first) and close(have_total, total):
        passed += 1
        continue
    failed += 1
    print(f"FAILED {what}\n  interpreter {have} sum {have_total}\n  PyTorch     {first} sum {total}")
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0 or passed == 0)
