"""One peer, one model, one process on the GPU: prints a JSON line with the median time of a step.

  peers.py {eager,compile,autotune,jax,ceilings} {mlp,cnn,resnet_tiny} [--batch N] [--seconds S]

Fairness: the data set is on the GPU as u8, as ft keeps it; a step takes a shuffled batch by index,
converts it, and runs forward, loss, accuracy, backward and update. f32 without tf32, as ft. Peers get
their fast modes: fused Adam or SGD, channels_last where it is faster, the step's function compiled
(autotune: with CUDA graphs), donated buffers in JAX. Compilation and warm-up are not timed; a round
is many steps and one synchronisation; the median of the rounds counts."""
import argparse
import json
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("peer", choices=["eager", "compile", "autotune", "jax", "ceilings"])
parser.add_argument("model", choices=["mlp", "cnn", "resnet_tiny", "none"], nargs="?", default="none")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--seconds", type=float, default=4.0)
parser.add_argument("--device", default="cuda")
arguments = parser.parse_args()
SAMPLES = max(16384, 2 * arguments.batch)
SHAPE = (3, 32, 32) if arguments.model == "resnet_tiny" else (28, 28)
MEAN, DEVIATION = (0.5, 1.0) if arguments.model == "resnet_tiny" else (0.2860, 0.3530)


def measure(steps_of, sync):
    """steps_of(n) starts n steps; the median over rounds of about a fifth of the time each."""
    steps_of(20)
    sync()
    start = time.perf_counter()
    steps_of(20)
    sync()
    count = max(10, int(20 * arguments.seconds / 5 / (time.perf_counter() - start)))
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        steps_of(count)
        sync()
        rounds.append((time.perf_counter() - start) / count)
    return {"ms": statistics.median(rounds) * 1e3, "low": min(rounds) * 1e3, "high": max(rounds) * 1e3, "steps": count}


def torch_model(torch):
    nn, F = torch.nn, torch.nn.functional

    class ConvNorm(nn.Module):
        def __init__(self, inputs, outputs, kernel, stride=1):
            super().__init__()
            self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
            self.bn = nn.BatchNorm2d(outputs)

        def forward(self, x):
            return self.bn(self.conv(x))

    class Residual(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.a, self.b = ConvNorm(inputs, outputs, 3, stride), ConvNorm(outputs, outputs, 3)
            self.down = ConvNorm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

        def forward(self, x):
            return F.relu(self.b(F.relu(self.a(x))) + self.down(x))

    if arguments.model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    if arguments.model == "cnn":
        return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))
    return nn.Sequential(ConvNorm(3, 16, 3), nn.ReLU(), Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def run_torch():
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    device = torch.device(arguments.device)
    images = torch.randint(0, 256, (SAMPLES, *SHAPE), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 10, (SAMPLES,), device=device)
    net = torch_model(torch).to(device)
    if arguments.model != "mlp":
        net = net.to(memory_format=torch.channels_last)
    if arguments.model == "resnet_tiny":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, fused=device.type == "cuda")
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=device.type == "cuda")

    def loss_of(index):
        x = images[index].float().div_(255).sub_(MEAN).div_(DEVIATION)
        if arguments.model == "cnn":
            x = x.unsqueeze(1)
        logits, target = net(x), labels[index]
        return torch.nn.functional.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean()

    if arguments.peer == "compile":
        loss_of = torch.compile(loss_of)
    if arguments.peer == "autotune":
        loss_of = torch.compile(loss_of, mode="max-autotune")

    state = {"order": torch.randperm(SAMPLES, device=device), "at": 0}

    def steps_of(count):
        for _ in range(count):
            if state["at"] + arguments.batch > SAMPLES:
                state["order"], state["at"] = torch.randperm(SAMPLES, device=device), 0
            index = state["order"][state["at"] : state["at"] + arguments.batch]
            state["at"] += arguments.batch
            if arguments.peer == "autotune":
                torch.compiler.cudagraph_mark_step_begin()
            loss, _ = loss_of(index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    return {"version": torch.__version__, **measure(steps_of, sync)}


def run_jax():
    import jax
    import jax.numpy as np
    from jax import lax

    if arguments.device == "cuda" and jax.default_backend() != "gpu":
        raise ImportError(f"JAX {jax.__version__} sees no GPU here")
    jax.config.update("jax_default_matmul_precision", "highest")
    keys = iter(jax.random.split(jax.random.PRNGKey(1), 64))

    def weight(*shape, fan):
        return jax.random.uniform(next(keys), shape, np.float32, -(fan**-0.5), fan**-0.5)

    def dense(inputs, outputs):
        return weight(inputs, outputs, fan=inputs), np.zeros(outputs)

    def conv(x, w, stride=1):
        pad = w.shape[0] // 2
        return lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(x, scale, shift):
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift

    def pool(x):
        return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def conv_norm(inputs, outputs, kernel):
        return weight(kernel, kernel, inputs, outputs, fan=kernel * kernel * inputs), np.ones(outputs), np.zeros(outputs)

    if arguments.model == "mlp":
        params = [dense(784, 128), dense(128, 64), dense(64, 10)]

        def forward(p, x, _):
            x = x.reshape(x.shape[0], -1)
            for w, b in p[:-1]:
                x = jax.nn.relu(x @ w + b)
            return x @ p[-1][0] + p[-1][1]
    elif arguments.model == "cnn":
        params = [(weight(3, 3, 1, 32, fan=9), np.zeros(32)), (weight(3, 3, 32, 64, fan=288), np.zeros(64)), dense(3136, 128), dense(128, 10)]

        def forward(p, x, key):
            x = x[..., None]
            for w, b in p[:2]:
                x = pool(jax.nn.relu(conv(x, w) + b))
            x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p[2][0] + p[2][1])
            x = np.where(jax.random.bernoulli(key, 0.75, x.shape), x / 0.75, 0)
            return x @ p[3][0] + p[3][1]
    else:
        params = {"stem": conv_norm(3, 16, 3), "fc": dense(64, 10)}
        for name, inputs, outputs, stride in (("1", 16, 16, 1), ("2", 16, 32, 2), ("3", 32, 64, 2)):
            params["a" + name], params["b" + name] = conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3)
            if stride != 1:
                params["d" + name] = conv_norm(inputs, outputs, 1)

        def layer(x, p, stride=1):
            return norm(conv(x, p[0], stride), p[1], p[2])

        def forward(p, x, _):
            x = jax.nn.relu(layer(x.transpose(0, 2, 3, 1), p["stem"]))
            for name, stride in (("1", 1), ("2", 2), ("3", 2)):
                y = layer(jax.nn.relu(layer(x, p["a" + name], stride)), p["b" + name])
                x = jax.nn.relu(y + (layer(x, p["d" + name], stride) if "d" + name in p else x))
            return x.mean((1, 2)) @ p["fc"][0] + p["fc"][1]

    images = jax.random.randint(jax.random.PRNGKey(2), (SAMPLES, *SHAPE), 0, 256).astype(np.uint8)
    labels = jax.random.randint(jax.random.PRNGKey(3), (SAMPLES,), 0, 10)
    zeros = jax.tree.map(np.zeros_like, params)
    per_epoch = SAMPLES // arguments.batch
    is_adam = arguments.model != "resnet_tiny"

    def step(state, _):
        params, m, v, t, order = state
        at = t % per_epoch
        key = jax.random.fold_in(jax.random.PRNGKey(4), t)
        order = lax.cond(at == 0, lambda: jax.random.permutation(key, SAMPLES), lambda: order)
        index = lax.dynamic_slice(order, (at * arguments.batch,), (arguments.batch,))
        target = labels[index]

        def loss_of(p):
            logits = forward(p, (images[index].astype(np.float32) / 255 - MEAN) / DEVIATION, key)
            chosen = np.take_along_axis(jax.nn.log_softmax(logits), target[:, None], 1)
            return -chosen.mean(), (logits.argmax(1) == target).mean()

        (loss, _), g = jax.value_and_grad(loss_of, has_aux=True)(params)
        t += 1
        if is_adam:
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            scale, root = 1e-3 / (1 - 0.9**t), 1 - 0.999**t
            params = jax.tree.map(lambda p, m, v: p - scale * m / (np.sqrt(v / root) + 1e-8), params, m, v)
        else:
            m = jax.tree.map(lambda m, g, p: 0.9 * m + g + 5e-4 * p, m, g, params)
            params = jax.tree.map(lambda p, m: p - 0.05 * m, params, m)
        return (params, m, v, t, order), loss

    # JAX's own way to many steps a launch: a loop inside the compiled function
    chunk = 50
    many = jax.jit(lambda state: lax.scan(step, state, None, length=chunk), donate_argnums=0)
    held = {"state": (params, zeros, jax.tree.map(np.zeros_like, params), np.int32(0), np.arange(SAMPLES))}

    def steps_of(count):
        for _ in range((count + chunk - 1) // chunk):
            held["state"], held["loss"] = many(held["state"])

    def rounded(count):
        steps_of(count)

    result = measure(lambda n: rounded((n + chunk - 1) // chunk * chunk), lambda: held["loss"].block_until_ready())
    scale = ((result["steps"] + chunk - 1) // chunk * chunk) / result["steps"]  # whole chunks were run
    for name in ("ms", "low", "high"):
        result[name] /= scale
    return {"version": jax.__version__, **result}


def ceilings():
    """What the card reaches here: a large copy, and large products, by events, on random data."""
    import torch

    def timed(work, repeats=10):
        times = []
        work()
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        return statistics.median(times)

    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    result = {"device": torch.cuda.get_device_name(0), "copy_gb_s": 2 * a.numel() / timed(lambda: b.copy_(a)) / 1e9}
    del a, b
    n = 8192
    for name, dtype, tf32 in (("f32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        x, y = torch.randn(n, n, device="cuda", dtype=dtype), torch.randn(n, n, device="cuda", dtype=dtype)
        result[f"{name}_tflops"] = 2 * n**3 / timed(lambda: torch.mm(x, y)) / 1e12
    return result


work = {"ceilings": ceilings, "jax": run_jax}.get(arguments.peer, run_torch)
try:
    print(json.dumps({"peer": arguments.peer, "model": arguments.model, "batch": arguments.batch, **work()}))
except ImportError as missing:
    print(json.dumps({"peer": arguments.peer, "model": arguments.model, "batch": arguments.batch, "missing": str(missing)}))
    sys.exit(0)
