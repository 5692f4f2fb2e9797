"""What bench/gpu.sh compares: each case is an artifact and what the peers must do to match it. `tiny` are the
values in a rehearsal, where a processor plays the GPU."""
import os

# name: unit, example, ftc's flags, its hypers and batch, those of a rehearsal, precision; the peers' kind.
# padded: the vocabulary that peers and, besides the true one, ft may use, for the sake of aligned rows
CASES = {
    "mlp-64": dict(goal=10, unit="small", example="fashion_mlp", kind="mlp", batch=64, precision="f32", tiny=dict(batch=4)),
    "mlp-8192": dict(unit="small", example="fashion_mlp", kind="mlp", batch=8192, precision="f32", tiny=dict(batch=32)),
    "cnn-64": dict(goal=2, unit="small", example="fashion_cnn", kind="cnn", batch=64, precision="f32", tiny=dict(batch=4)),
    "resnet18-32": dict(goal=1.1, unit="resnet18-32", example="resnet18", kind="resnet18", batch=256, precision="bf16", hypers=dict(size=32, classes=10, width=64),
                        tiny=dict(batch=4, size=32, width=4)),
    "resnet18-224": dict(goal=1.1, unit="resnet18-224", example="resnet18", kind="resnet18", batch=128, precision="bf16", hypers=dict(size=224, classes=1000, width=64),
                         tiny=dict(batch=2, size=80, classes=10, width=4)),
    "gpt2-124M": dict(goal=1.15, unit="gpt2-124M", example="gpt2", kind="gpt2", batch=8, precision="bf16", hypers=dict(D=768, L=12, heads=12, T=1024, V=50257), padded=50304,
                      tiny=dict(batch=2, D=32, L=2, heads=2, T=32, V=97)),
    "gpt2-350M": dict(goal=1.15, unit="gpt2-350M", example="gpt2", kind="gpt2", batch=8, precision="bf16", hypers=dict(D=1024, L=24, heads=16, T=1024, V=50257), padded=50304,
                      tiny=dict(batch=2, D=64, L=1, heads=2, T=32, V=97)),
}
# what a unit may take on the device, in seconds; in the order of their worth: right first, then the goals
UNITS = {"smoke": 140, "suite": 60, "small": 200, "gpt2-124M": 270, "kernels": 170, "resnet18-32": 190, "resnet18-224": 220, "gpt2-350M": 300}
PEERS = {"eager": "torch eager", "compile": "torch.compile", "autotune": "torch max-autotune", "compile-cudnn": "torch.compile, cuDNN's attention", "jax": "JAX jit"}
SAMPLES = 60000  # of Fashion-MNIST, which the noise stands for
# images in the made-up folders of ResNet-18
IMAGES = {32: 16384, 80: 64, 224: 2048}


def values(name, is_tiny):
    """batch and hypers of a case."""
    case = CASES[name]
    return {"batch": case["batch"], **case.get("hypers", {}), **(case["tiny"] if is_tiny else {})}


def peer_values(name, is_tiny):
    found, padded = values(name, is_tiny), CASES[name].get("padded")
    return {**found, "V": padded} if padded and not is_tiny else found


def flags(name, is_tiny, variant):
    """ftc's."""
    found = values(name, is_tiny)
    if VARIANTS[variant].get("is_padded") and not is_tiny:
        found["V"] = CASES[name]["padded"]
    settings = ["--set", f"train.batch={found.pop('batch')}", "--set", f"train.precision={CASES[name]['precision']}"]
    return settings + [word for key, value in found.items() for word in ("-D", f"{key}={value}")] + variant_flags(variant)


# ── how an artifact may be compiled: what a fault of the first one leaves ───────────────────────────────────
# A spare is measured only where none before it was right; a switch that this ftc does not know leaves its variant out
# of the pack.
VARIANTS = {
    "sm_90a": dict(gpu="sm_90a"),
    "padded": dict(gpu="sm_90a", is_padded=True),
    "sm_80": dict(gpu="sm_80"),
    "no-clusters": dict(gpu="sm_90a", disable="clusters", is_spare=True),
    "no-tma": dict(gpu="sm_90a", disable="tma", is_spare=True),
    "no-attention-wgmma": dict(gpu="sm_90a", disable="attention_wgmma", is_spare=True),
    "no-joins": dict(gpu="sm_90a", disable="join_launches", is_spare=True),
    "no-transposes": dict(gpu="sm_90a", disable="transpose_tiles", is_spare=True),
    "no-wgmma": dict(gpu="sm_90a", disable="wgmma,attention_wgmma,tma,transpose_tiles", is_spare=True),
    "no-attention": dict(gpu="sm_80", disable="attention", is_spare=True),
    "plain": dict(gpu="sm_80", disable="attention,fuse", is_spare=True),
}


def variant_flags(variant):
    found = VARIANTS[variant]
    return ["--gpu", found["gpu"]] + ([f"--disable={found['disable']}"] if "disable" in found else [])


def variants_of(name):
    return [variant for variant, how in VARIANTS.items()
            if ("padded" in CASES[name] or not how.get("is_padded")) and (CASES[name]["kind"] == "gpt2" or "attention" not in how.get("disable", "") or variant == "plain")]


def artifact(folder, name, variant):
    return os.path.join(folder, f"{name}.{variant}.ptx")


def peers_of(name):
    only = {"jax": ("mlp", "cnn", "resnet18"), "compile-cudnn": ("gpt2",)}
    return [peer for peer in PEERS if CASES[name]["kind"] in only.get(peer, (CASES[name]["kind"],))]


# ── probes: each way of the runtime and each kind of kernel by itself, against the simulator ────────────────
POINT = """model M(x: f32[B, N=256], t: f32[B, N]) {
  param w: [N] = normal(1)
  loss = mean(square(x * w - t))
}"""
DENSE = """model M(x: f32[B, N=256], t: f32[B, N]) {
  y = Linear(N, name="b")(gelu(Linear(N, name="a")(x), approximate="tanh"))
  loss = mean(square(y - t))
}"""
WIDE = DENSE.replace('N, name="a"', '4096, name="a"')  # wide enough for Hopper's tiles
ATTENTION = """model M(x: f32[B, T=128, N=64], t: f32[B, T, N]) {
  q, k, v = split(reshape(Linear(3 * N, name="in")(x), [B, 1, T, 3 * N]), 3, axis=-1)
  loss = mean(square(reshape(attention(q, k, v, causal=true), [B, T, N]) - t))
}"""
CONVOLUTION = """model M(x: f32[B, N=256], t: f32[B, N]) {
  h = relu(Conv2d(32, 3, padding=1, name="a")(reshape(x, [B, 1, 16, 16])))
  h = max_pool2d(relu(Conv2d(64, 3, padding=1, name="b")(h)), 2)
  loss = mean(square(Linear(N, name="c")(flatten(h, from=1)) - t))
}"""
PLAIN = dict(FT_CUBLASLT="own", FT_KEEP_DATA="0", FT_CUDA_NO_GRAPH="1")
OWN = dict(FT_CUBLASLT="own", FT_KEEP_DATA="0")
LIBRARY = dict(FT_CUBLASLT="library", FT_KEEP_DATA="0")
# name: model, batch, precision, target, how it is run, what must be in its PTX, switch of the environment if it fails
PROBES = {
    "one kernel": dict(model=POINT, batch=64, precision="f32", gpu="sm_80", way=PLAIN),
    "graph": dict(model=POINT, batch=64, precision="f32", gpu="sm_80", way=OWN, otherwise=dict(FT_CUDA_NO_GRAPH="1")),
    "kept data": dict(model=POINT, batch=64, precision="f32", gpu="sm_80", way={**OWN, "FT_KEEP_DATA": "1"}, otherwise=dict(FT_KEEP_DATA="0")),
    "f32 products": dict(model=DENSE, batch=64, precision="f32", gpu="sm_80", way=OWN),
    "mma.sync": dict(model=DENSE, batch=128, precision="bf16", gpu="sm_80", way=OWN, needs="mma.sync"),
    "wgmma": dict(model=WIDE, batch=128, precision="bf16", gpu="sm_90a", disable="tma", way=OWN, needs="wgmma.mma_async"),
    "tma": dict(model=WIDE, batch=128, precision="bf16", gpu="sm_90a", disable="clusters", way=OWN, needs="cp.async.bulk"),
    "clusters": dict(model=WIDE, batch=256, precision="bf16", gpu="sm_90a", way=OWN, needs="cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast"),
    "attention": dict(model=ATTENTION, batch=4, shape=(128, 64), precision="bf16", gpu="sm_80", way=OWN, needs="mma.sync"),
    "attention sm_90a": dict(model=ATTENTION, batch=4, shape=(128, 64), precision="bf16", gpu="sm_90a", disable="wgmma,tma", way=OWN, needs="wgmma.mma_async"),
    "fp16": dict(model=DENSE, batch=64, precision="fp16", gpu="sm_80", way=OWN),
    "adamw, clipped": dict(model=DENSE, batch=64, precision="f32", gpu="sm_80", way=OWN, recipe="optimizer = adamw(lr=0.01); clip = norm(0.5)"),
    "muon": dict(model=DENSE, batch=64, precision="f32", gpu="sm_80", way=OWN, recipe="optimizer = muon(lr=0.01)"),
    "joined launches": dict(model=DENSE, batch=64, precision="f32", gpu="sm_80", way=OWN, needs=".entry join"),
    "convolution": dict(model=CONVOLUTION, batch=16, precision="f32", gpu="sm_80", way=OWN),
    "convolution bf16": dict(model=CONVOLUTION, batch=16, precision="bf16", gpu="sm_90a", way=OWN),
    "cuBLASLt": dict(model=DENSE, batch=64, precision="f32", gpu="sm_80", way=LIBRARY, otherwise=dict(FT_CUBLASLT="own")),
    "cuBLASLt bf16": dict(model=DENSE, batch=128, precision="bf16", gpu="sm_80", way=LIBRARY, otherwise=dict(FT_CUBLASLT="own")),
    "cuBLASLt, timed": dict(model=DENSE, batch=64, precision="f32", gpu="sm_80", way={**LIBRARY, "FT_CUBLASLT": ""}, otherwise=dict(FT_CUBLASLT="own")),
}
def apart(losses, truth):
    """How far two runs' losses are from each other. Roundings grow from step to step, so that of the first two (forward,
    and after one update by every gradient) counts in full and each later one half of the one before."""
    if len(losses) != len(truth) or not all(a == a for a in losses):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 0.1) / 2 ** max(0, step - 1) for step, (a, b) in enumerate(zip(losses, truth)))


TINY_PROBES = ("one kernel", "graph", "kept data", "mma.sync", "joined launches", "cuBLASLt")  # enough for a rehearsal
TOLERANCE = {"f32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}
# ways of one model at full size, where roundings average out
NEAR = {"mlp": 3e-4, "cnn": 3e-4, "resnet18": 1e-2, "gpt2": 2e-3}


def probe_text(name):
    probe = PROBES[name]
    return probe["model"] + f"""
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {probe['batch']}; epochs = 10; {probe.get('recipe', 'optimizer = sgd(lr=0.5)')}; precision = {probe['precision']}; eval every 0 epochs }}
"""


# programs of the numerical suite, recorded here and played there (replay.py), and their classes
SUITE = [["test/num/ops.py", "Ops"], ["test/e2e/zoo.py"], ["test/e2e/gpt.py", "Gpt2Precisions", "Gpt2Hopper"]]


def smoke_flags(place, is_case=True):
    """A few steps at a rate that changes the weights, every one logged."""
    settings = ["train.log.every=1", "train.eval.every=0", "train.checkpoint.dir="]  # runs of one place go side by side
    settings += ["train.schedule.warmup=2", "train.lr=0.02"] if is_case else []
    return ["--data", place, "--steps", "6"] + [word for setting in settings for word in ("--set", setting)]


# ── kernels by themselves: model text, the kernel's name, made large enough to leave the caches ──────────────
def model(body, columns, batch, labels=False, optimizer="sgd(lr=0.001)", precision="f32"):
    t = "i32[B]" if labels else "f32[B, N]"
    return f"""model M(x: f32[B, N={columns}], t: {t}) {{
{body}
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {batch}; epochs = 1; optimizer = {optimizer}; precision = {precision}; eval every 0 epochs }}
"""


def with_result(expression):
    return f"  param w: [1] = normal(1)\n  y = {expression}\n  output y\n  loss = sum(w)"


NORM = "  param w: [N] = normal(1)\n  param b: [N] = normal(1)\n  y = layer_norm(x, weight=w, bias=b)\n  output y\n  loss = sum(y * t)"
ENTROPY = "  param w: [B, N] = normal(1)\n  loss = mean(cross_entropy(w + x, t))"
KERNELS = {
    "pointwise": (with_result("gelu(x * 2 + t) + sigmoid(x - t)"), 8192, 8192, False, "sgd(lr=0.001)", "k0_loop"),
    "softmax 1024": (with_result("softmax(x)"), 1024, 65536, False, "sgd(lr=0.001)", "k0_row"),
    "softmax 8192": (with_result("softmax(x)"), 8192, 8192, False, "sgd(lr=0.001)", "k0_row"),
    "layer norm 768": (NORM, 768, 65536, False, "sgd(lr=0.001)", "k0_row"),
    "layer norm 4096": (NORM, 4096, 16384, False, "sgd(lr=0.001)", "k0_row"),
    "cross entropy 1000": (ENTROPY, 1000, 32768, True, "sgd(lr=0.001)", "k0_row"),
    "cross entropy 50257": (ENTROPY, 50257, 4096, True, "sgd(lr=0.001)", "k0_row"),
    "sgd with momentum": ("  param w: [B, N] = normal(1)\n  loss = sum(w * x * t)", 8192, 8192, False, "sgd(lr=0.001, momentum=0.9)", "loop"),
    "adamw": ("  param w: [B, N] = normal(1)\n  loss = sum(w * x * t)", 8192, 8192, False, "adamw(lr=0.001)", "loop"),
}


def kernels(is_tiny):
    """One of each shape is enough for a rehearsal."""
    return [name for name in KERNELS if not is_tiny or name in ("pointwise", "cross entropy 50257", "adamw")]


def kernel_text(name, is_tiny):
    body, columns, batch, labels, optimizer, _ = KERNELS[name]
    return model(body, min(columns, 128) if is_tiny else columns, min(batch, 16) if is_tiny else batch, labels, optimizer)


# ── attention by itself, in bf16. Rates as papers count: 4 B H T T D forward, 10 backward, half of it if causal ──
ATTENTIONS = {
    "64, T 1024, causal": dict(head=64, T=1024, B=16, is_causal=True),
    "64, T 16384": dict(head=64, T=16384, B=1, is_causal=False),
    "128, T 1024, causal": dict(head=128, T=1024, B=16, is_causal=True),
    "128, T 16384": dict(head=128, T=16384, B=1, is_causal=False),
}
# FlashAttention-3 (Shah et al. 2024, figures 5 and 6), FP16 on an H100 SXM5, TFLOP/s at the same B T = 16384 and
# H D = 2048: forward and backward at this shape, None where the paper has no such figure; and the best at any length
PUBLISHED = {"64, T 1024, causal": (265, None), "64, T 16384": (497, 474), "128, T 1024, causal": (None, None), "128, T 16384": (648, 561)}
BEST_PUBLISHED = {64: (497, 474), 128: (648, 561)}


def attention_shape(name, is_tiny):
    found = ATTENTIONS[name]
    return dict(found, B=1, T=64, H=1) if is_tiny else dict(found, H=2048 // found["head"])


def attentions(is_tiny):
    return list(ATTENTIONS)[:1] if is_tiny else list(ATTENTIONS)


def attention_text(name, is_tiny):
    s = attention_shape(name, is_tiny)
    shape = f"[{s['B']}, {s['H']}, {s['T']}, {s['head']}]"
    body = "".join(f"  param {n}: {shape} = normal(1)\n" for n in "qkv") + f"  y = attention(q, k, v, causal={str(s['is_causal']).lower()})\n  loss = mean(y * y) + 0 * sum(x * t)"
    return model(body, 8, 1, precision="bf16")


def attention_flops(name, is_tiny):
    """Forward and backward."""
    s = attention_shape(name, is_tiny)
    forward = 4 * s["B"] * s["H"] * s["T"] ** 2 * s["head"] / (2 if s["is_causal"] else 1)
    return forward, 2.5 * forward


# ── products by themselves, against the library's rate for the same ─────────────────────────────────────────
PRODUCTS = {"bf16 8192": dict(n=8192, precision="bf16"), "bf16 8192 x 768 x 3072": dict(m=8192, k=768, n=3072, precision="bf16"), "f32 4096": dict(n=4096, precision="f32")}


def product_shape(name, is_tiny):
    """m, k, n"""
    found = PRODUCTS[name]
    return (64, 64, 64) if is_tiny else (found.get("m", found["n"]), found.get("k", found["n"]), found["n"])


def products(is_tiny):
    return list(PRODUCTS)[:1] if is_tiny else list(PRODUCTS)


def product_text(name, is_tiny):
    m, k, n = product_shape(name, is_tiny)
    body = f"  param w: [N, {n}] = normal(1)\n  y = x @ w\n  output y\n  loss = mean(y) + 0 * sum(t)"
    return model(body, k, m, precision=PRODUCTS[name]["precision"])
