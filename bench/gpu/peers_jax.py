"""The cases in JAX: one jitted function that runs many steps by lax.scan, JAX's own way to many steps a launch."""
import os

import cases
from peers import Peer, timing_alone

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as np
import numpy
from jax import lax

keys = iter(jax.random.split(jax.random.PRNGKey(1), 256))


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────
def weight(*shape, fan):
    return jax.random.uniform(next(keys), shape, np.float32, -(fan**-0.5), fan**-0.5)


def dense(inputs, outputs):
    return weight(inputs, outputs, fan=inputs), np.zeros(outputs)


def conv(x, w, stride=1):
    pad = w.shape[0] // 2
    return lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(x, window, stride, pad=0):
    return lax.reduce_window(x, numpy.array(-numpy.inf, x.dtype), lax.max, (1, window, window, 1), (1, stride, stride, 1), [(0, 0), (pad, pad), (pad, pad), (0, 0)])


def norm(x, scale, shift):
    wide = x.astype(np.float32)
    mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    return ((wide - mean) * lax.rsqrt(variance + 1e-5) * scale + shift).astype(x.dtype)


def mlp():
    def forward(p, x, _):
        x = x.reshape(x.shape[0], -1)
        for w, b in p[:-1]:
            x = jax.nn.relu(x @ w + b)
        return x @ p[-1][0] + p[-1][1]

    return [dense(784, 128), dense(128, 64), dense(64, 10)], forward


def cnn():
    params = [(weight(3, 3, 1, 32, fan=9), np.zeros(32)), (weight(3, 3, 32, 64, fan=288), np.zeros(64)), dense(3136, 128), dense(128, 10)]

    def forward(p, x, key):
        x = x[..., None]
        for w, b in p[:2]:
            x = pool(jax.nn.relu(conv(x, w) + b), 2, 2)
        x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p[2][0] + p[2][1])
        x = np.where(jax.random.bernoulli(key, 0.75, x.shape), x / 0.75, 0)
        return x @ p[3][0] + p[3][1]

    return params, forward


def resnet18(size, classes, width):
    def conv_norm(kernel, inputs, outputs):
        return weight(kernel, kernel, inputs, outputs, fan=kernel * kernel * inputs), np.ones(outputs), np.zeros(outputs)

    def layer(x, p, stride=1):
        return norm(conv(x, p[0], stride), p[1], p[2])

    params, inputs = {"stem": conv_norm(3 if size <= 64 else 7, 3, width)}, width
    places = [(f"{k}.{i}", 2 if k and not i else 1, width << k) for k in range(4) for i in range(2)]
    for name, stride, outputs in places:
        params[name] = {"a": conv_norm(3, inputs, outputs), "b": conv_norm(3, outputs, outputs)}
        if stride > 1 or inputs != outputs:
            params[name]["down"] = conv_norm(1, inputs, outputs)
        inputs = outputs
    params["fc"] = dense(inputs, classes)

    def forward(p, x, _):
        x = x.transpose(0, 2, 3, 1).astype(np.bfloat16)
        x = jax.nn.relu(layer(x, p["stem"], 1 if size <= 64 else 2))
        if size > 64:
            x = pool(x, 3, 2, 1)
        for name, stride, _ in places:
            y = layer(jax.nn.relu(layer(x, p[name]["a"], stride)), p[name]["b"])
            x = jax.nn.relu(y + (layer(x, p[name]["down"], stride) if "down" in p[name] else x))
        return x.mean((1, 2)).astype(np.float32) @ p["fc"][0] + p["fc"][1]

    return params, forward


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────
class Jax(Peer):
    def __init__(self, arguments):
        if arguments.device == "cuda" and jax.default_backend() != "gpu":
            raise ImportError(f"JAX {jax.__version__} sees no GPU here")
        if cases.CASES[arguments.case]["precision"] == "f32":
            jax.config.update("jax_default_matmul_precision", "highest")  # no tf32
        values, kind = cases.values(arguments.case, arguments.tiny), cases.CASES[arguments.case]["kind"]
        batch, is_resnet = values.pop("batch"), kind == "resnet18"
        size = values.get("size", 28)
        samples = max(256 if arguments.tiny else cases.IMAGES[size] if is_resnet else cases.SAMPLES, 2 * batch)
        shape, mean, deviation = ((3, size, size), 0.45, 0.225) if is_resnet else ((28, 28), 0.2860, 0.3530)
        params, forward = {"mlp": mlp, "cnn": cnn, "resnet18": resnet18}[kind](**values)
        images = jax.random.randint(jax.random.PRNGKey(2), (samples, *shape), 0, 256, dtype=np.uint8)
        labels = jax.random.randint(jax.random.PRNGKey(3), (samples,), 0, values.get("classes", 10))
        per_epoch = samples // batch

        def step(state, _):
            params, m, v, t, order = state
            at = t % per_epoch
            key = jax.random.fold_in(jax.random.PRNGKey(4), t)
            order = lax.cond(at == 0, lambda: jax.random.permutation(key, samples).astype(np.int32), lambda: order)
            index = lax.dynamic_slice(order, (at * batch,), (batch,))
            target = labels[index]

            def loss_of(p):
                logits = forward(p, (images[index].astype(np.float32) / 255 - mean) / deviation, key)
                chosen = np.take_along_axis(jax.nn.log_softmax(logits), target[:, None], 1)
                return -chosen.mean(), (logits.argmax(1) == target).mean()

            (loss, _), g = jax.value_and_grad(loss_of, has_aux=True)(params)
            t += 1
            if is_resnet:
                m = jax.tree.map(lambda m, g, p: 0.9 * m + g + 1e-4 * p, m, g, params)
                params = jax.tree.map(lambda p, m: p - 0.1 * m, params, m)
            else:
                m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
                v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
                scale, root = 1e-3 / (1 - 0.9**t), 1 - 0.999**t
                params = jax.tree.map(lambda p, m, v: p - scale * m / (np.sqrt(v / root) + 1e-8), params, m, v)
            return (params, m, v, t, order), loss

        self.steps_at_once = 2 if arguments.tiny else 10 if is_resnet else 50
        self.many = jax.jit(lambda state: lax.scan(step, state, None, length=self.steps_at_once), donate_argnums=0)
        zeros = jax.tree.map(np.zeros_like, params)
        self.state, self.loss = (params, zeros, jax.tree.map(np.zeros_like, params), np.int32(0), np.arange(samples, dtype=np.int32)), None

    def step(self):
        if self.loss is None:  # it compiles, and times what it chooses from
            with timing_alone():
                self.state, self.loss = self.many(self.state)
                return self.sync()
        self.state, self.loss = self.many(self.state)

    def sync(self):
        self.loss.block_until_ready()

    def memory(self):
        found = jax.devices()[0].memory_stats()
        return (found or {}).get("peak_bytes_in_use")


def make(arguments):
    return Jax(arguments)
