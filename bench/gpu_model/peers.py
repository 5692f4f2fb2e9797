"""CUTLASS's and FlashAttention-3's kernels for sm_90a in ft's simulator: nvcc compiles cutlass.cu, flash.cu and flash_backward.cu with a checkout of each,
what they compute is compared with numpy at small shapes, and then the model says how long they would take at the shapes of GPT-2 and at published ones.
bench/gpu_model/run --cutlass and --flash call this; it needs nvcc, ptxas and g++ of a CUDA toolkit, and numpy."""
import os
import re
import shutil
import subprocess
import sys

from triton_check import BRAIN, brain, rounded

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
KERNELS = ("pingpong-64x128", "pingpong-128x128-2", "cooperative-128x256-2")
PRODUCTS = (  # of GPT-2, 8192 rows: columns, depth, the launch of ft's step that does it (with what it does besides)
    ("mlp.c_fc", 3072, 768, r"^h\.0\.mlp\.c_fc: dot \+ bias \+ gelu"),
    ("attn.c_attn", 2304, 768, r"^h\.0\.attn\.c_attn: dot \+ bias"),
    ("attn.c_proj", 768, 768, r"^h\.0\.attn\.c_proj: dot"),
    ("mlp.c_proj", 768, 3072, r"^h\.0\.mlp\.c_proj: dot"),
    ("logits", 50304, 768, r"^wte: dot"),
)


def run(words, folder=None):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))[:300]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def build(name, folder, archives, includes):
    """The words with which the program is called, up to the file of registers; compiled once for each source and checkout."""
    for tool in ("nvcc", "ptxas", "g++"):
        if not shutil.which(tool):
            sys.exit(f"--{name} needs {tool}, of a CUDA toolkit from 12.3 on")
    os.makedirs(folder, exist_ok=True)
    source, kept = os.path.join(HERE, name + ".cu"), os.path.join(folder, name + ".stamp")
    with open(source, encoding="utf-8") as file:
        stamp = file.read() + repr(includes)
    ptx, registers, compiled, program = (os.path.join(folder, name + end) for end in (".ptx", ".registers", ".o", ""))
    if not os.path.exists(kept) or open(kept, encoding="utf-8").read() != stamp:
        print(f"nvcc compiles {name}.cu: minutes, and gigabytes of memory", flush=True)
        said = run(["nvcc", "-c", "-gencode", "arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-DNDEBUG", "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math",
                    "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED", "-diag-suppress", "20012", f"-I{ROOT}", *[f"-I{include}" for include in includes], "--keep", "-Xptxas", "-v", source, "-o", compiled], folder)
        with open(registers, "w", encoding="utf-8") as file:
            for kernel, count in re.findall(r"entry function '(\w+)'(?:.*\n)*?.*Used (\d+) registers", said):
                file.write(f"{kernel} {count}\n")
        for left in os.listdir(folder):
            if left.startswith(name + ".") and left.endswith((".ii", ".cubin", ".gpu", ".stub.c", ".cudafe1.cpp", ".fatbin.c", ".fatbin", ".reg.c")):
                os.remove(os.path.join(folder, left))
        with open(kept, "w", encoding="utf-8") as file:
            file.write(stamp)
    objects = []
    for ours in ("peer", "reckon"):
        objects.append(os.path.join(folder, ours + ".o"))
        run(["gcc", "-O2", "-std=gnu17", f"-I{ROOT}", "-c", os.path.join(HERE, ours + ".c"), "-o", objects[-1]])
    run(["g++", compiled, *objects, "-o", program, *archives, "-lz", "-lzstd", "-ljansson", "-lpcre2-8", "-ldl", "-lm", "-lpthread"])
    return program, ptx, registers


def first_wrong(got, want, near):
    import numpy
    wrong = numpy.flatnonzero(~(numpy.abs(got - want) <= near))
    return f"element {wrong[0]} is {got.flat[wrong[0]]}, not {want.flat[wrong[0]]}; {wrong.size} of {want.size} are wrong" if wrong.size else ""


def read_brain(path):
    import numpy
    return (numpy.fromfile(path, dtype=numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def report(what, wrong):
    print(f"    {what}: {wrong or 'as numpy'}", flush=True)
    if wrong:
        sys.exit(1)


# ── CUTLASS ──
def check_cutlass(words, folder):
    """Every block, in shapes over whose edges tiles reach."""
    import numpy
    draw = numpy.random.default_rng(1)
    m, n, k = 328, 520, 200
    a, b = rounded(draw.standard_normal((m, k))), rounded(draw.standard_normal((n, k)))
    files = [os.path.join(folder, name) for name in "abc"]
    brain(a).tofile(files[0])
    brain(b).tofile(files[1])
    want = (a.astype(numpy.float64) @ b.astype(numpy.float64).T).reshape(-1)
    for kernel in KERNELS:
        run([words[0], "h100", -1 if kernel.endswith("-2") else 0, *words[1:], 132, kernel, m, n, k, *files])
        report(kernel, first_wrong(read_brain(files[2]), want, BRAIN * numpy.abs(want) + 1e-4))


def print_cutlass(gpu, blocks, multiprocessors, words, folder, rows):
    print("what CUTLASS's kernels compute in the simulator, beside numpy:")
    check_cutlass(words, folder)
    print(f"\nCUTLASS's products beside ft's, bf16, on {gpu}: us, reckoned\n{'':34}" + "".join(f"{kernel:>24}" for kernel in KERNELS) + f"{'ft':>10}  of the fastest")
    for name, m, n, k, label in [(name, 8192, n, k, label) for name, n, k, label in PRODUCTS] + [("square", 8192, 8192, 8192, None)]:
        times = [float(run([words[0], gpu, blocks, *words[1:], multiprocessors, kernel, m, n, k]).split()[0]) for kernel in KERNELS]
        ours = [row for row in rows if label and re.search(label, row["kernel"])]
        if label and not ours:
            sys.exit(f"{name}: no launch of ft is labelled {label}")
        beside = f"{ours[0]['us']:10.1f}  {100 * min(times) / ours[0]['us']:.0f} %" if ours else f"{2 * m * n * k / min(times) / 1e6:20.0f} TFLOP/s"
        print(f"{name + f', {m} x {n} x {k}':34}" + "".join(f"{us:24.1f}" for us in times) + beside, flush=True)


# ── FlashAttention ──
def attend(q, k, v, is_causal):
    """Of [batch, heads, length, features] in f64: weights, what they give, and the logarithms of their sums."""
    import numpy
    length = q.shape[2]
    score = q @ k.transpose(0, 1, 3, 2) * q.shape[3] ** -0.5
    if is_causal:
        score[..., numpy.triu(numpy.ones((length, length), dtype=bool), 1)] = -numpy.inf
    high = score.max(3, keepdims=True)
    total = numpy.exp(score - high).sum(3, keepdims=True)
    weights = numpy.exp(score - high) / total
    return weights, weights @ v, high + numpy.log(total)


def by_heads(x):
    """[batch, length, heads, features] to heads before positions, or back."""
    return x.transpose(0, 2, 1, 3)


CHECKED = ((64, 0), (64, 1), (128, 0), (128, 1))  # features, causal; 2 samples, 2 heads, 408 positions


def check_flash(words, folder):
    import numpy
    draw = numpy.random.default_rng(2)
    batch, heads, length = 2, 2, 408
    for features, is_causal in CHECKED:
        size = (batch, length, heads, features)
        q, k, v = (rounded(draw.standard_normal(size)) for _ in range(3))
        files = [os.path.join(folder, name) for name in ("q", "k", "v", "o", "l")]
        for value, path in zip((q, k, v), files):
            brain(value).tofile(path)
        run([words[0], "h100", -1, *words[1:], 132, "forward", batch, heads, length, features, is_causal, *files])
        _, want, sums = attend(*(by_heads(value.astype(numpy.float64)) for value in (q, k, v)), is_causal)
        want, sums = by_heads(want).reshape(-1), sums.reshape(-1)
        what = f"forward, {features} a head{', causal' if is_causal else ''}"
        report(what, first_wrong(read_brain(files[3]), want, BRAIN * (numpy.abs(want) + 1)))
        report(what + ", logarithms of the sums", first_wrong(numpy.fromfile(files[4], dtype=numpy.float32), sums, 1e-4 * (numpy.abs(sums) + 1)))


def check_flash_backward(words, folder):
    """Weights, and slopes of scores, are rounded to bf16 on the way: an element of a gradient is wrong by that share of the sum of its terms' sizes."""
    import numpy
    draw = numpy.random.default_rng(3)
    batch, heads, length = 2, 2, 408
    for features, is_causal in CHECKED:
        scale = features ** -0.5
        q, k, v, dy = (rounded(draw.standard_normal((batch, length, heads, features))) for _ in range(4))
        wide_q, wide_k, wide_v, wide_dy = (by_heads(value.astype(numpy.float64)) for value in (q, k, v, dy))
        weights, out, sums = attend(wide_q, wide_k, wide_v, is_causal)
        out = rounded(out)
        files = [os.path.join(folder, name) for name in ("q", "k", "v", "o", "l", "dy", "dq", "dk", "dv")]
        for value, path in zip((q, k, v, by_heads(out)), files):
            brain(value).tofile(path)
        sums.astype(numpy.float32).tofile(files[4])
        brain(dy).tofile(files[5])
        run([words[0], "h100", -1, *words[1:], 132, batch, heads, length, features, is_causal, *files])
        pull = weights * (wide_dy @ wide_v.transpose(0, 1, 3, 2) - (wide_dy * out).sum(3, keepdims=True))
        turned_weights, turned_pull = weights.transpose(0, 1, 3, 2), pull.transpose(0, 1, 3, 2)
        gradients = {"dq": (pull, wide_k, scale), "dk": (turned_pull, wide_q, scale), "dv": (turned_weights, wide_dy, 1)}
        for number, (name, (left, right, factor)) in enumerate(gradients.items()):
            want, terms = (by_heads(factor * (a @ b)).reshape(-1) for a, b in ((left, right), (numpy.abs(left), numpy.abs(right))))
            near = BRAIN * (numpy.abs(want) + terms) + 1e-5
            report(f"{name}, {features} a head{', causal' if is_causal else ''}", first_wrong(read_brain(files[6 + number]), want, near))


FLASH = (  # batch, heads, length, features, causal, TFLOP/s published (docs/sim.md says by whom)
    (8, 12, 1024, 64, 1, None), (32, 16, 512, 128, 0, 467), (4, 16, 4096, 128, 0, 638), (32, 32, 512, 64, 0, 333), (4, 32, 4096, 64, 0, 476),
    (32, 16, 512, 128, 1, 292), (16, 16, 1024, 128, 1, 423), (4, 16, 4096, 128, 1, 579), (4, 32, 4096, 64, 1, None))
ATTENTION = """model Attention(unused: f32[B, 1]) {{
  param q: [{0}, {1}, {2}, {3}] = zeros
  param k: [{0}, {1}, {2}, {3}] = zeros
  param v: [{0}, {1}, {2}, {3}] = zeros
  param dy: [{0}, {1}, {2}, {3}] = zeros
  loss = sum(attention(q, k, v, causal={4}) * dy)
}}
data Nothing {{ train = npy("nothing.npy") }}
train {{ model = Attention; data = Nothing; batch = 1; epochs = 1; optimizer = sgd(lr=1.0); precision = bf16; eval every 0 epochs }}
"""


def ours(gpu, blocks, tools, folder, *shape):
    """Microseconds of ft's kernels at a shape: forward, and the two of backward together."""
    import numpy
    source, artifact = os.path.join(folder, "attention.ft"), os.path.join(folder, "attention.ptx")
    with open(source, "w", encoding="utf-8") as file:
        file.write(ATTENTION.format(*shape[:4], "true" if shape[4] else "false"))
    numpy.save(os.path.join(folder, "nothing.npy"), numpy.zeros((1, 1), dtype=numpy.float32))
    run([os.path.join(tools, "ftc"), source, "-o", artifact, "--gpu", "sm_90a"])
    text = run([os.path.join(tools, "ftrun"), "bench", artifact, "--device", "sim", "--data", folder, "--gpu-model", gpu, "--blocks", blocks])
    found = re.findall(r"^ *([0-9.]+) +1 +[0-9.]+%.*\(k\d+_\w*?attention(\w*)\)$", text[text.index("reckoned for"):], re.M)
    times = {ending: float(us) for us, ending in found}
    if sorted(times) != ["", "_grad", "_grad_keys"]:
        sys.exit(f"ft has other kernels of attention: {found}")
    return times[""], times["_grad"] + times["_grad_keys"]


def print_flash(gpu, blocks, multiprocessors, words, backward, tools, folder):
    print("what FlashAttention-3's kernels compute in the simulator, beside numpy:")
    check_flash(words, folder)
    check_flash_backward(backward, folder)
    heading = "".join(f"{what:>{width}}" for what, width in (("forward", 10), ("TFLOP/s", 9), ("published", 11), ("bound", 9), ("ft", 9), ("", 7), ("backward", 10), ("TFLOP/s", 9), ("bound", 9), ("ft", 9)))
    print(f"\nFlashAttention-3 and ft on {gpu}, bf16: us, reckoned, and ft's rate of its\n{'batch, heads, length, features':40}{heading}")
    for *shape, published in FLASH:
        batch, heads, length, features, is_causal = shape
        flops = 4 * batch * heads * length ** 2 * features / (2 if is_causal else 1)
        out = run([words[0], gpu, blocks, *words[1:], multiprocessors, "forward", *shape]).split()
        # of a causal mask each block has another amount of work, and blocks are not persistent
        launches = run([backward[0], gpu, max(blocks, 64) if is_causal else blocks, *backward[1:], multiprocessors, *shape]).splitlines()
        us, back = float(out[0]), sum(float(line.split()[0]) for line in launches)
        near, near_back = ours(gpu, blocks, tools, folder, *shape)
        name = f"{batch} x {heads} x {length} x {features}" + (", causal" if is_causal else "")
        print(f"{name:40}{us:10.1f}{flops / us / 1e6:9.0f}{published or '':>11}{out[2]:>9}{near:9.1f}{100 * us / near:5.0f} %"
              f"{back:10.1f}{2.5 * flops / back / 1e6:9.0f}{launches[1].split()[2]:>9}{near_back:9.1f}{100 * back / near_back:5.0f} %")
        parts = " + ".join(line.split()[0] for line in launches)
        print(f"    of FlashAttention-3's backward: {parts} (sums of dy out and zeros for dq, the gradients, dq rounded)", flush=True)
