"""What the card reaches in PyTorch, by events and on random data: a large copy and large products (the ceilings), and
attention and products of the shapes that ft's are timed at."""
import statistics
import time

import cases
import torch
import torch.nn.functional as F


def timed(work, device, repeats=10):
    """The median, in seconds."""
    work()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        else:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def product_rate(m, k, n, dtype, device):
    x, y = torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype)
    return 2 * m * k * n / timed(lambda: torch.mm(x, y), device) / 1e12


def ceilings(device, is_tiny):
    is_gpu = device == "cuda"
    a = torch.empty(1 << (20 if is_tiny else 30), dtype=torch.uint8, device=device).random_()
    b = torch.empty_like(a)
    result = {"device": torch.cuda.get_device_name(0) if is_gpu else "cpu", "torch": torch.__version__, "copy_gb_s": 2 * a.numel() / timed(lambda: b.copy_(a), device) / 1e9}
    del a, b
    n = 64 if is_tiny else 8192
    for name, dtype, tf32 in (("f32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        result[f"{name}_tflops"] = product_rate(n, n, n, dtype, device)
    return result


def attention_rates(name, is_tiny, device, backend):
    """Forward and backward in TFLOP/s; None where it cannot."""
    s, flops = cases.attention_shape(name, is_tiny), cases.attention_flops(name, is_tiny)
    q, k, v = (torch.randn(s["B"], s["H"], s["T"], s["head"], device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    if device == "cuda":
        import peers_torch

        peers_torch.choose_attention(backend)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=s["is_causal"])

    y = forward()
    given = torch.randn_like(y)
    times = timed(forward, device), timed(lambda: torch.autograd.grad(y, (q, k, v), given, retain_graph=True), device)
    return [work / seconds / 1e12 for work, seconds in zip(flops, times)]


def kernels(device, is_tiny):
    found = {"attention": {}, "product": {}}
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in cases.attentions(is_tiny):
        for backend in ("flash", "cudnn") if device == "cuda" else ("flash",):
            try:
                found["attention"].setdefault(name, {})[backend] = attention_rates(name, is_tiny, device, backend)
            except (RuntimeError, ImportError) as error:
                print(f"{name}, {backend}: {error}", flush=True)
    for name in cases.products(is_tiny):
        dtype = torch.bfloat16 if cases.PRODUCTS[name]["precision"] == "bf16" else torch.float32
        found["product"][name] = product_rate(*cases.product_shape(name, is_tiny), dtype, device)
    return found
