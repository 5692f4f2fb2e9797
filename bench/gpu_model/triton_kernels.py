"""Kernels in Triton that do what ft's launches of a GPT-2 step do, compiled for an H100 without one, for bench/gpu_model/run.

    python triton_kernels.py FOLDER | --version

Writes the PTX of each kernel to FOLDER and FOLDER/kernels.json, a list of {work, kernel, ptx, block, shared, registers, …}, each with its launch for the
whole work and for a few rows: {grid, arguments, bytes, flops}: `arguments` as bench/gpu_model/ptx.c takes them. Needs PyPI's triton, and no torch. Where Triton's tutorials tune a tile,
several are here, and what counts is the fastest by the model. triton_check.py compares what they compute with numpy."""
import json
import os
import re
import subprocess
import sys

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # its default today, and a warning if not said
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SMS = 132
B, T, C, HEADS, V, P = 8, 1024, 768, 12, 50257, 50304
ROWS = B * T


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns
    i = tl.arange(0, BLOCK)
    value = tl.load(x + at + i, mask=i < columns, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + at + i, value / tl.sum(value, axis=0), mask=i < columns)


@triton.jit
def residual_layer_norm(x, bias, residual, gain, shift, sum, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns
    i = tl.arange(0, BLOCK)
    inside = i < columns
    value = tl.load(x + at + i, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + i, mask=inside, other=0.0).to(tl.float32)
    value = (value + tl.load(residual + at + i, mask=inside, other=0.0).to(tl.float32)).to(tl.bfloat16)
    tl.store(sum + at + i, value, mask=inside)
    value = value.to(tl.float32)
    mean = tl.sum(value, axis=0) / columns
    far = tl.where(inside, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(far * far, axis=0) / columns + 1e-5)
    out = far * scale * tl.load(gain + i, mask=inside, other=0.0).to(tl.float32) + tl.load(shift + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at + i, out.to(tl.bfloat16), mask=inside)


@triton.jit
def layer_norm_backward(x, gain, dy, before, dx, partial_gain, partial_shift, rows, columns, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """A block does EACH rows, and leaves its sums of the gradients of gain and shift."""
    block = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    weight = tl.load(gain + i, mask=inside, other=0.0).to(tl.float32)
    sum_gain = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(block * EACH, min(block * EACH + EACH, rows)):
        at = row.to(tl.int64) * columns
        value = tl.load(x + at + i, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(dy + at + i, mask=inside, other=0.0).to(tl.float32)
        old = tl.load(before + at + i, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(value, axis=0) / columns
        far = tl.where(inside, value - mean, 0.0)
        scale = tl.rsqrt(tl.sum(far * far, axis=0) / columns + 1e-5)
        hat = far * scale
        slope = up * weight
        first = tl.sum(slope, axis=0) / columns
        second = tl.sum(slope * hat, axis=0) / columns
        tl.store(dx + at + i, (old + (slope - first - hat * second) * scale).to(tl.bfloat16), mask=inside)
        sum_gain += up * hat
        sum_shift += up
    tl.store(partial_gain + block * columns + i, sum_gain, mask=inside)
    tl.store(partial_shift + block * columns + i, sum_shift, mask=inside)


@triton.jit
def product(a, b, bias, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, BLOCKS: tl.constexpr, BIAS: tl.constexpr,
            GELU: tl.constexpr):
    """c = a · bᵀ (+ bias, gelu) by tensor descriptors; BLOCKS blocks take the tiles in turn, GROUP rows of tiles side by side."""
    tall = tl.cdiv(M, BM)
    wide = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), tall * wide, BLOCKS, flatten=True):
        first = tile // (GROUP * wide) * GROUP
        height = min(tall - first, GROUP)
        row = (first + tile % height) * BM
        column = (tile % (GROUP * wide)) // height * BN
        sum = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(steps):
            sum = tl.dot(a.load([row, k * BK]), b.load([column, k * BK]).T, sum)
        if BIAS:
            at = column + tl.arange(0, BN)
            sum += tl.load(bias + at, mask=at < N, other=0.0).to(tl.float32)[None, :]
        if GELU:
            sum *= tl.sigmoid(1.5957691216057308 * (sum + 0.044715 * sum * sum * sum))
        c.store([row, column], sum.to(tl.bfloat16))


@triton.jit
def attention(q, k, v, out, least, scale, positions, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal attention over q, k and v of [heads · positions, D]: FlashAttention-2's loop, without a mask up to the diagonal."""
    head = tl.program_id(1)
    first = tl.program_id(0) * BM
    base = head * positions
    rows = first + tl.arange(0, BM)
    high = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BM,), dtype=tl.float32)
    sum = tl.zeros((BM, D), dtype=tl.float32)
    mine = q.load([base + first, 0])
    scale *= 1.4426950408889634
    for at in tl.range(0, first, BN):
        score = tl.dot(mine, k.load([base + at, 0]).T)
        higher = tl.maximum(high, tl.max(score, 1) * scale)
        weight = tl.exp2(score * scale - higher[:, None])
        fade = tl.exp2(high - higher)
        total = total * fade + tl.sum(weight, 1)
        sum = tl.dot(weight.to(tl.bfloat16), v.load([base + at, 0]), sum * fade[:, None])
        high = higher
    for at in tl.range(first, first + BM, BN):
        score = tl.dot(mine, k.load([base + at, 0]).T) * scale
        score = tl.where(rows[:, None] >= (at + tl.arange(0, BN))[None, :], score, -float("inf"))
        higher = tl.maximum(high, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        fade = tl.exp2(high - higher)
        total = total * fade + tl.sum(weight, 1)
        sum = tl.dot(weight.to(tl.bfloat16), v.load([base + at, 0]), sum * fade[:, None])
        high = higher
    tl.store(least + base + rows, high + tl.log2(total))
    out.store([base + first, 0], (sum / total[:, None]).to(tl.bfloat16))


@triton.jit
def cross_entropy(logits, target, loss, columns, stride, weight, BLOCK: tl.constexpr):
    """Each row's loss, and the logits' gradient in their place: the maximum and the sum in one pass."""
    row = tl.program_id(0)
    at = logits + row.to(tl.int64) * stride
    wanted = tl.load(target + row)
    high = -float("inf")
    total = 0.0
    for begin in range(0, columns, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(at + i, mask=i < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(high, tl.max(value, axis=0))
        total = total * tl.exp(high - higher) + tl.sum(tl.exp(value - higher), axis=0)
        high = higher
    tl.store(loss + row, high + tl.log(total) - tl.load(at + wanted).to(tl.float32))
    tl.debug_barrier()
    for begin in range(0, columns, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.exp(tl.load(at + i, mask=i < columns, other=-float("inf")).to(tl.float32) - high) / total
        tl.store(at + i, ((value - tl.where(i == wanted, 1.0, 0.0)) * weight).to(tl.bfloat16), mask=i < columns)


@triton.jit
def adamw(master, param, grad, m, v, count, lr, decay, fix1, fix2, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    g = tl.load(grad + i, mask=inside, other=0.0).to(tl.float32)
    first = 0.9 * tl.load(m + i, mask=inside, other=0.0) + 0.1 * g
    second = 0.95 * tl.load(v + i, mask=inside, other=0.0) + 0.05 * g * g
    w = tl.load(master + i, mask=inside, other=0.0)
    w -= lr * (first * fix1 / (tl.sqrt(second * fix2) + 1e-8) + decay * w)
    tl.store(m + i, first, mask=inside)
    tl.store(v + i, second, mask=inside)
    tl.store(master + i, w, mask=inside)
    tl.store(param + i, w.to(tl.bfloat16), mask=inside)


def matrix(rows, columns, box):
    """The argument of a tensor descriptor over bf16 [rows, columns] in the order of the kernel's parameters: the map, the shape, the strides."""
    inner = min(box[1], 64)
    return [f"t:2:{columns}x{rows}:{inner}x{box[0]}:{2 * inner}", f"i:{rows}", f"i:{columns}", f"l:{columns}", "l:1"]


def array(count, size):
    return [f"p:{count * size}"]


def launches():
    """Each: work, kernel, the types of its arguments, its constants, warps, stages, its launch as a function of sizes, the sizes of the work, and few."""
    yield ("softmax of f32", softmax, "*fp32 *fp32 i32", {"BLOCK": 4096}, 8, 1,
           lambda rows, wide: ((rows, 1), [*array(rows * wide, 4), *array(rows * wide, 4), f"i:{wide}"], rows * wide * 8, 0), (8192, 4096), (3, 4096))
    yield ("residual + layer norm", residual_layer_norm, "*bf16 *bf16 *bf16 *bf16 *bf16 *bf16 *bf16 i32", {"BLOCK": 1024}, 4, 1,
           lambda rows: ((rows, 1), [*array(rows * C, 2), *array(C, 2), *array(rows * C, 2), *array(C, 2), *array(C, 2), *array(rows * C, 2), *array(rows * C, 2),
                                     f"i:{C}"], 4 * rows * C * 2, 0), (ROWS,), (3,))
    each = -(-ROWS // (4 * SMS))
    yield ("layer norm backward", layer_norm_backward, "*bf16 *bf16 *bf16 *bf16 *bf16 *fp32 *fp32 i32 i32", {"EACH": each, "BLOCK": 1024}, 4, 2,
           lambda rows: ((-(-rows // each), 1), [*array(rows * C, 2), *array(C, 2), *array(rows * C, 2), *array(rows * C, 2), *array(rows * C, 2),
                                                 *array(-(-rows // each) * C, 4), *array(-(-rows // each) * C, 4), f"i:{rows}", f"i:{C}"], 4 * rows * C * 2, 0),
           (ROWS,), (20,))
    for work, m, n, k, bias, gelu in [("product, 8192³", 8192, 8192, 8192, 0, 0), ("mlp.c_fc: product, bias, gelu", ROWS, 4 * C, C, 1, 1),
                                      ("attn.c_attn: product, bias", ROWS, 3 * C, C, 1, 0), ("attn.c_proj: product", ROWS, C, C, 0, 0),
                                      ("logits: product", ROWS, P, C, 0, 0)]:
        for bm, bn, warps, stages in [(128, 256, 8, 3), (128, 128, 8, 4), (128, 128, 4, 4)]:
            def at(rows, n, k, bm=bm, bn=bn):
                return ((SMS, 1), [*matrix(rows, k, (bm, 64)), *matrix(n, k, (bn, 64)), *array(n, 2), *matrix(rows, n, (bm, bn)), f"i:{rows}", f"i:{n}", f"i:{k}"],
                        2 * (rows * k + n * k + rows * n), 2 * rows * n * k)
            yield (work, product, f"tensordesc<bf16[{bm},64]> tensordesc<bf16[{bn},64]> *bf16 tensordesc<bf16[{bm},{bn}]> i32 i32 i32",
                   {"BM": bm, "BN": bn, "BK": 64, "GROUP": 8, "BLOCKS": SMS, "BIAS": bias, "GELU": gelu}, warps, stages, at, (m, n, k), (208, 528, 208))
    for work, batch, heads, positions, d in [("attention, 64 a head", B, HEADS, T, 64), ("attention, 128 a head, 4096 positions", 4, 16, 4096, 128)]:
        for bm, bn, warps, stages in [(128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3), (128, 128, 4, 2)]:
            def at(heads, rows, d=d, bm=bm, bn=bn):
                all = heads * rows
                return ((rows // bm, heads), [*matrix(all, d, (bm, d)), *matrix(all, d, (bn, d)), *matrix(all, d, (bn, d)), *matrix(all, d, (bm, d)), *array(all, 4),
                                              f"f:{d ** -0.5}", f"i:{rows}"], 8 * all * d, 2 * all * rows * d)
            yield (work, attention, f"tensordesc<bf16[{bm},{d}]> tensordesc<bf16[{bn},{d}]> tensordesc<bf16[{bn},{d}]> tensordesc<bf16[{bm},{d}]> *fp32 fp32 i32",
                   {"BM": bm, "BN": bn, "D": d}, warps, stages, at, (batch * heads, positions), (2, 384))
    for block, warps in [(4096, 16), (2048, 8), (8192, 16)]:
        yield ("cross entropy with its gradient", cross_entropy, "*bf16 *i32 *fp32 i32 i32 fp32", {"BLOCK": block}, warps, 1,
               lambda rows: ((rows, 1), [*array(rows * P, 2), *array(rows, 4), *array(rows, 4), f"i:{V}", f"i:{P}", "f:0.001"], 4 * rows * V, 0), (ROWS,), (2,))
    yield ("adamw", adamw, "*fp32 *bf16 *bf16 *fp32 *fp32 i32 fp32 fp32 fp32 fp32", {"BLOCK": 1024}, 4, 1,
           lambda count: ((-(-count // 1024), 1), [*array(count, 4), *array(count, 2), *array(count, 2), *array(count, 4), *array(count, 4), f"i:{count}", "f:0.001", "f:0.1",
                                                   "f:1.5", "f:2"], 28 * count, 0), (124439808,), (5008,))


def compiled(kernel, types, constants, warps, stages, arguments):
    names = [name for name in kernel.arg_names if name not in constants]
    signature = {**dict(zip(names, types.split(), strict=True)), **{name: "constexpr" for name in constants}}
    attributes = {}  # what Triton finds at a call: pointers, and integers that 16 divides
    given = iter(arguments)
    for i, type in enumerate(types.split()):
        value = [next(given) for _ in range(5 if type.startswith("tensordesc") else 1)][0]
        if value[0] == "p" or value[0] == "i" and int(value[2:]) % 16 == 0:
            attributes[i,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel, signature={name: signature[name] for name in kernel.arg_names}, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages})


def main(folder):
    cuobjdump = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
    made = []
    for number, (work, kernel, types, constants, warps, stages, at, sizes, few) in enumerate(launches()):
        binary = compiled(kernel, types, constants, warps, stages, at(*sizes)[1])
        path = os.path.join(folder, f"{number}.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(binary.asm["ptx"])
        with open(path + ".cubin", "wb") as file:
            file.write(binary.asm["cubin"])
        told = subprocess.run([cuobjdump, "-res-usage", path + ".cubin"], capture_output=True, text=True, check=True).stdout
        entry = {"work": work, "kernel": binary.metadata.name, "ptx": path, "block": 32 * warps, "shared": binary.metadata.shared, "constants": constants,
                 "registers": int(re.search(r"REG:(\d+)", told)[1]), "spilled": int(re.search(r"STACK:(\d+)", told)[1]), "types": types.split(),
                 "names": [name for name in kernel.arg_names if name not in constants]}
        for key, chosen in (("whole", sizes), ("few", few)):
            grid, arguments, least, flops = at(*chosen)
            entry[key] = {"sizes": chosen, "grid": grid, "arguments": arguments + ["l:0", "l:0"], "bytes": least, "flops": flops}  # Triton's scratch areas: empty
        made.append(entry)
    with open(os.path.join(folder, "kernels.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print("Triton", triton.__version__)
    else:
        main(sys.argv[1])
