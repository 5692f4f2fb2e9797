"""What bench/gpu.sh compares: each case is an artifact and what the peers must do to match it. `tiny` are the
values in a rehearsal, where a processor plays the GPU."""
import os

# name: stage, example, ftc's flags, its hypers and batch, those of a rehearsal, precision; the peers' kind
CASES = {
    "mlp-64": dict(stage="small", example="fashion_mlp", kind="mlp", batch=64, precision="f32", tiny=dict(batch=4)),
    "mlp-8192": dict(stage="small", example="fashion_mlp", kind="mlp", batch=8192, precision="f32", tiny=dict(batch=32)),
    "cnn-64": dict(stage="small", example="fashion_cnn", kind="cnn", batch=64, precision="f32", tiny=dict(batch=4)),
    "resnet18-32": dict(stage="resnet", example="resnet18", kind="resnet18", batch=256, precision="bf16", hypers=dict(size=32, classes=10, width=64),
                        tiny=dict(batch=4, size=32, width=4)),
    "resnet18-224": dict(stage="resnet", example="resnet18", kind="resnet18", batch=128, precision="bf16", hypers=dict(size=224, classes=1000, width=64),
                         tiny=dict(batch=2, size=80, classes=10, width=4)),
    "gpt2-124M": dict(stage="gpt", example="gpt2", kind="gpt2", batch=8, precision="bf16", hypers=dict(D=768, L=12, heads=12, T=1024, V=50257),
                      tiny=dict(batch=2, D=32, L=2, heads=2, T=32, V=97)),
    "gpt2-350M": dict(stage="gpt", example="gpt2", kind="gpt2", batch=8, precision="bf16", hypers=dict(D=1024, L=24, heads=16, T=1024, V=50257),
                      tiny=dict(batch=2, D=64, L=1, heads=2, T=32, V=97)),
}
PEERS = {"eager": "torch eager", "compile": "torch.compile", "autotune": "torch max-autotune", "jax": "JAX jit"}
SAMPLES = 60000  # of Fashion-MNIST, which the noise stands for
# images in the made-up folders of ResNet-18
IMAGES = {32: 16384, 80: 64, 224: 2048}


def values(name, is_tiny):
    """batch and hypers of a case."""
    case = CASES[name]
    return {"batch": case["batch"], **case.get("hypers", {}), **(case["tiny"] if is_tiny else {})}


def flags(name, is_tiny):
    """ftc's."""
    found = values(name, is_tiny)
    settings = ["--set", f"train.batch={found.pop('batch')}", "--set", f"train.precision={CASES[name]['precision']}"]
    return settings + [word for key, value in found.items() for word in ("-D", f"{key}={value}")]


# every artifact for each of these; the second one runs on all GPUs, should the first have a fault
TARGETS = ["sm_90a", "sm_80"]


def artifact(folder, name, target):
    return os.path.join(folder, f"{name}.{target}.ptx")


def peers_of(name):
    return [peer for peer in PEERS if peer != "jax" or CASES[name]["kind"] != "gpt2"]


def smoke_flags(place):
    """A few steps at a rate that changes the weights, every one logged."""
    settings = ["train.log.every=1", "train.eval.every=0", "train.schedule.warmup=2", "train.lr=0.02", f"train.checkpoint.dir={place}/runs"]
    return ["--data", place, "--steps", "6"] + [word for setting in settings for word in ("--set", setting)]


# ── kernels by themselves: model text, the kernel's name, made large enough to leave the caches ──────────────
def model(body, columns, batch, labels=False, optimizer="sgd(lr=0.001)"):
    t = "i32[B]" if labels else "f32[B, N]"
    return f"""model M(x: f32[B, N={columns}], t: {t}) {{
{body}
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {batch}; epochs = 1; optimizer = {optimizer}; eval every 0 epochs }}
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
