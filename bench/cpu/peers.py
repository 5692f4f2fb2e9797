"""One peer, one model, one process: prints a JSON line with the median step time of each round.

  peers.py {torch-eager,torch-compile,jax,tinygrad} {mlp,cnn,resnet} [--threads N] [--steps N] [--rounds N]

Fairness: data is in memory as u8, as ft's loader has it; a step takes a shuffled batch by index,
converts it to f32 inside the step (inside the compiled function where there is one), and runs
forward, backward and update. Compilation and warm-up are outside the timed rounds. The peers get
their fast modes: fused Adam, inference of channels_last for the convolutions where it is faster,
donated buffers in JAX, TinyJit in tinygrad.
"""
import os

import peer

arguments = peer.parse(__doc__, ["torch-eager", "torch-compile", "jax", "tinygrad"], ["mlp", "cnn", "resnet"], rounds=5,
                       more=lambda parser: parser.add_argument("--batch", type=int, default=64))
import numpy

random = numpy.random.default_rng(1)
samples = 4096
shape = (3, 32, 32) if arguments.model == "resnet" else (28, 28)
images = random.integers(0, 256, (samples,) + shape, dtype=numpy.uint8)
labels = random.integers(0, 10, samples).astype(numpy.int32)


def batches():
    while True:
        order = random.permutation(samples)
        for at in range(0, samples - arguments.batch + 1, arguments.batch):
            yield order[at : at + arguments.batch]


def torch_step(compiled):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(arguments.threads)

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.down = None
            if stride != 1 or inputs != outputs:
                self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (self.down(x) if self.down else x))

    if arguments.model == "mlp":
        net = nn.Sequential(nn.Flatten(1), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    elif arguments.model == "cnn":
        net = nn.Sequential(nn.Conv2d(1, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Flatten(1), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))
    else:
        net = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(64, 10))
    channels_last = arguments.model != "mlp"
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    if arguments.model == "resnet":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    else:
        try:
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
        except (RuntimeError, TypeError):
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    all_images, all_labels = torch.from_numpy(images), torch.from_numpy(labels).long()

    def loss_of(x, y):
        x = (x.float() / 255 - 0.1307) / 0.3081
        if arguments.model == "cnn":
            x = x.unsqueeze(1)
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return F.cross_entropy(net(x), y)

    if compiled:
        loss_of = torch.compile(loss_of)

    step, value = peer.torch_step(lambda index: loss_of(all_images[index], all_labels[index]), optimizer)
    return lambda index: step(torch.from_numpy(index)), value


def jax_step():
    flags = os.environ.get("XLA_FLAGS", "")
    if arguments.threads == 1:
        os.environ["XLA_FLAGS"] = flags + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax
    import jax.numpy as jnp

    key = iter(jax.random.split(jax.random.PRNGKey(0), 64))

    def dense(inputs, outputs):
        bound = inputs**-0.5
        return {"w": jax.random.uniform(next(key), (inputs, outputs), minval=-bound, maxval=bound), "b": jnp.zeros(outputs)}

    def kernel(k, inputs, outputs):
        bound = (k * k * inputs) ** -0.5
        return jax.random.uniform(next(key), (k, k, inputs, outputs), minval=-bound, maxval=bound)

    def conv(x, w, stride=1):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), [(w.shape[0] // 2,) * 2] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def norm(x, p):
        mean = x.mean((0, 1, 2))
        variance = ((x - mean) ** 2).mean((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["g"] + p["b"], (mean, variance)

    bn = lambda c: {"g": jnp.ones(c), "b": jnp.zeros(c)}
    relu = jax.nn.relu
    if arguments.model == "mlp":
        parameters = [dense(784, 128), dense(128, 64), dense(64, 10)]
    elif arguments.model == "cnn":
        parameters = {"c1": kernel(3, 1, 32), "b1": jnp.zeros(32), "c2": kernel(3, 32, 64), "b2": jnp.zeros(64), "f1": dense(3136, 128), "f2": dense(128, 10)}
    else:
        block = lambda i, o, s: {"c1": kernel(3, i, o), "n1": bn(o), "c2": kernel(3, o, o), "n2": bn(o), **({} if s == 1 and i == o else {"cd": kernel(1, i, o), "nd": bn(o)})}
        parameters = {"stem": kernel(3, 3, 16), "n0": bn(16), "b1": block(16, 16, 1), "b2": block(16, 32, 2), "b3": block(32, 64, 2), "fc": dense(64, 10)}
    running = {}

    def forward(p, x):
        x = (x.astype(jnp.float32) / 255 - 0.1307) / 0.3081
        if arguments.model == "mlp":
            x = x.reshape(x.shape[0], -1)
            for layer in p[:-1]:
                x = relu(x @ layer["w"] + layer["b"])
            return x @ p[-1]["w"] + p[-1]["b"], []
        if arguments.model == "cnn":
            x = pool(relu(conv(x[..., None], p["c1"]) + p["b1"]))
            x = pool(relu(conv(x, p["c2"]) + p["b2"])).reshape(x.shape[0], -1)
            x = relu(x @ p["f1"]["w"] + p["f1"]["b"])
            return x @ p["f2"]["w"] + p["f2"]["b"], []
        statistics = []

        def bnorm(x, q):
            y, s = norm(x, q)
            statistics.append(s)
            return y

        x = relu(bnorm(conv(x.transpose(0, 2, 3, 1), p["stem"]), p["n0"]))
        for name, stride in (("b1", 1), ("b2", 2), ("b3", 2)):
            q = p[name]
            y = bnorm(conv(relu(bnorm(conv(x, q["c1"], stride), q["n1"])), q["c2"]), q["n2"])
            x = relu(y + (bnorm(conv(x, q["cd"], stride), q["nd"]) if "cd" in q else x))
        return x.mean((1, 2)) @ p["fc"]["w"] + p["fc"]["b"], statistics

    def loss_of(p, x, y):
        logits, statistics = forward(p, x)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
        return -picked.mean(), statistics

    tree = jax.tree_util.tree_map
    zeros = lambda: tree(jnp.zeros_like, parameters)
    state = [parameters, zeros(), zeros() if arguments.model != "resnet" else None, jnp.zeros((), jnp.int32)]

    def update(p, m, v, t, x, y):
        (loss, statistics), g = jax.value_and_grad(loss_of, has_aux=True)(p, x, y)
        t = t + 1
        if arguments.model == "resnet":
            g = tree(lambda g, p: g + 5e-4 * p, g, p)
            m = tree(lambda m, g: 0.9 * m + g, m, g)
            p = tree(lambda p, m: p - 0.05 * m, p, m)
        else:
            m = tree(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = tree(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            c1, c2 = 1 - 0.9 ** t.astype(jnp.float32), 1 - 0.999 ** t.astype(jnp.float32)
            p = tree(lambda p, m, v: p - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), p, m, v)
        return p, m, v, t, loss, statistics

    jitted = jax.jit(update, donate_argnums=(0, 1, 2, 3))

    def step(index):
        *state[:], loss, _ = jitted(*state, images[index], labels[index])
        return loss

    return step, lambda loss: float(loss)


def tinygrad_step():
    os.environ.setdefault("DEV", "CPU")
    os.environ["PATH"] += ":/usr/lib/llvm-19/bin"  # it calls clang
    from tinygrad import Context, Tensor, TinyJit, nn

    class Conv:
        def __init__(self, inputs, outputs, kernel=3, stride=1):
            self.conv, self.bn = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm(outputs)

        def __call__(self, x):
            return self.bn(self.conv(x))

    class Block:
        def __init__(self, inputs, outputs, stride):
            self.a, self.b = Conv(inputs, outputs, 3, stride), Conv(outputs, outputs)
            self.down = Conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

        def __call__(self, x):
            return (self.b(self.a(x).relu()) + (self.down(x) if self.down else x)).relu()

    if arguments.model == "mlp":
        layers = [lambda x: x.flatten(1), nn.Linear(784, 128), Tensor.relu, nn.Linear(128, 64), Tensor.relu, nn.Linear(64, 10)]
    elif arguments.model == "cnn":
        layers = [lambda x: x.unsqueeze(1), nn.Conv2d(1, 32, 3, padding=1), Tensor.relu, Tensor.max_pool2d, nn.Conv2d(32, 64, 3, padding=1), Tensor.relu, Tensor.max_pool2d,
                  lambda x: x.flatten(1), nn.Linear(3136, 128), Tensor.relu, nn.Linear(128, 10)]
    else:
        layers = [Conv(3, 16), Tensor.relu, Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2), lambda x: x.mean((2, 3)), nn.Linear(64, 10)]
    parameters = nn.state.get_parameters(layers)
    optimizer = nn.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4) if arguments.model == "resnet" else nn.optim.Adam(parameters, lr=1e-3)

    @TinyJit
    def train(x, y):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = ((x.float() / 255 - 0.1307) / 0.3081).sequential(layers).sparse_categorical_crossentropy(y)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

    return lambda index: train(Tensor(images[index]), Tensor(labels[index])), lambda loss: loss.item()


if arguments.peer == "jax":
    step, value = jax_step()
elif arguments.peer == "tinygrad":
    step, value = tinygrad_step()
else:
    step, value = torch_step(arguments.peer == "torch-compile")
source = batches()
peer.measure(arguments, lambda: step(next(source)), value, warmup=20, seconds=1, least=20)
