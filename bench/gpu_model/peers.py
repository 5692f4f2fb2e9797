"""CUTLASS's and FlashAttention-3's kernels for sm_90a in ft's simulator: nvcc compiles cutlass.cu and flash.cu with a checkout of each, what they
compute is compared with numpy at small shapes, and then the model says how long they would take at the shapes of GPT-2 and at published ones.
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
        said = run(["nvcc", "-c", "-arch=sm_90a", "-O3", "-std=c++17", "-DNDEBUG", "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math",
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
def check_flash(words, folder):
    import numpy
    draw = numpy.random.default_rng(2)
    batch, heads, length = 2, 2, 408
    for features, is_causal in ((64, 0), (64, 1), (128, 0), (128, 1)):
        size = (batch, length, heads, features)
        q, k, v = (rounded(draw.standard_normal(size)) for _ in range(3))
        files = [os.path.join(folder, name) for name in ("q", "k", "v", "o", "l")]
        for value, path in zip((q, k, v), files):
            brain(value).tofile(path)
        run([words[0], "h100", -1, *words[1:], 132, "forward", batch, heads, length, features, is_causal, *files])
        q, k, v = (value.astype(numpy.float64).transpose(0, 2, 1, 3) for value in (q, k, v))
        score = q @ k.transpose(0, 1, 3, 2) * features ** -0.5
        if is_causal:
            score[..., numpy.triu(numpy.ones((length, length), dtype=bool), 1)] = -numpy.inf
        high = score.max(3, keepdims=True)
        total = numpy.exp(score - high).sum(3, keepdims=True)
        want = (numpy.exp(score - high) / total @ v).transpose(0, 2, 1, 3).reshape(-1)
        what = f"forward, {features} a head{', causal' if is_causal else ''}"
        report(what, first_wrong(read_brain(files[3]), want, BRAIN * (numpy.abs(want) + 1)))
        sums = (high + numpy.log(total)).reshape(-1)
        report(what + ", logarithms of the sums", first_wrong(numpy.fromfile(files[4], dtype=numpy.float32), sums, 1e-4 * (numpy.abs(sums) + 1)))


FLASH = (  # batch, heads, length, features, causal, TFLOP/s published (docs/sim.md says by whom)
    (8, 12, 1024, 64, 1, None), (32, 16, 512, 128, 0, 467), (4, 16, 4096, 128, 0, 638), (32, 32, 512, 64, 0, 333), (4, 32, 4096, 64, 0, 476),
    (32, 16, 512, 128, 1, 292), (16, 16, 1024, 128, 1, 423), (4, 16, 4096, 128, 1, 579), (4, 32, 4096, 64, 1, None))


def print_flash(gpu, blocks, multiprocessors, words, folder, rows):
    print("what FlashAttention-3's kernels compute in the simulator, beside numpy:")
    check_flash(words, folder)
    print(f"\nFlashAttention-3's kernels on {gpu}, bf16: reckoned\n{'batch, heads, length, features':44}{'us':>10}{'TFLOP/s':>10}{'published':>11}  bound")
    for batch, heads, length, features, is_causal, published in FLASH:
        out = run([words[0], gpu, blocks, *words[1:], multiprocessors, "forward", batch, heads, length, features, is_causal]).split()
        us, flops = float(out[0]), 4 * batch * heads * length ** 2 * features / (2 if is_causal else 1)
        print(f"{f'{batch} x {heads} x {length} x {features}' + (', causal' if is_causal else ''):44}{us:10.1f}{flops / us / 1e6:10.0f}{published or '':>11}  {out[2]}", flush=True)
        if (batch, heads, length) == (8, 12, 1024):
            ours = [row for row in rows if re.search(r"^h\.0\.attn: attention", row["kernel"])]
            if not ours:
                sys.exit("no launch of ft is labelled h.0.attn: attention")
            print(f"{'    ft':44}{ours[0]['us']:10.1f}  {100 * us / ours[0]['us']:.0f} % of its rate")
