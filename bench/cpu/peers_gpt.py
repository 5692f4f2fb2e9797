"""A GPT as peers.py measures it: GPT-2's architecture over bytes, AdamW, no dropout.

  peers_gpt.py {torch-eager,torch-compile,jax} {gpt128,gpt384,gpt128-bf16,gpt384-bf16} [--threads N] [--steps N] [--rounds N]

gpt128: 4 layers, width 128, 4 heads, sequence 128; gpt384: 6 layers, width 384, 6 heads, sequence 256;
batch 8. -bf16: products of bf16, all else in f32 (torch.autocast; JAX casts the operands). A step takes random windows of a text in memory. The peers get their fused attention
(scaled_dot_product_attention, jax.nn.dot_product_attention), fused AdamW and donated buffers."""
import peer

arguments = peer.parse(__doc__, ["torch-eager", "torch-compile", "jax"], ["gpt128", "gpt384", "gpt128-bf16", "gpt384-bf16"], rounds=3)
import numpy

V, B = 256, 8
L, D, H, T = (4, 128, 4, 128) if arguments.model.startswith("gpt128") else (6, 384, 6, 256)
IS_BF16 = arguments.model.endswith("-bf16")
random = numpy.random.default_rng(1)
text = random.integers(0, V, 1 << 20).astype(numpy.int32)


def windows():
    at = random.integers(0, len(text) - T - 1, B)[:, None] + numpy.arange(T + 1)
    return text[at[:, :-1].ravel()].reshape(B, T), text[at[:, 1:].ravel()].reshape(B, T)


def torch_step(compiled):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(arguments.threads)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.c_attn, self.c_proj, self.c_fc, self.c_out = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

        def forward(self, x):
            q, k, v = (t.view(B, T, H, D // H).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(D, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
            x = x + self.c_proj(y)
            return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe, self.h, self.ln_f = nn.Embedding(V, D), nn.Embedding(T, D), nn.Sequential(*(Layer() for _ in range(L))), nn.LayerNorm(D)

        def forward(self, x, y):
            logits = self.ln_f(self.h(self.wte(x) + self.wpe.weight)) @ self.wte.weight.T
            return F.cross_entropy(logits.view(-1, V), y.view(-1))

    net = Gpt()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    model = torch.compile(net) if compiled else net

    def loss_of(*batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=IS_BF16):
            return model(*batch)

    step, value = peer.torch_step(loss_of, optimizer)
    return lambda: step(*(torch.from_numpy(a).long() for a in windows())), value


def jax_step():
    import jax
    import jax.numpy as jnp

    key = iter(jax.random.split(jax.random.PRNGKey(0), 256))
    dense = lambda i, o: {"w": 0.02 * jax.random.normal(next(key), (i, o)), "b": jnp.zeros(o)}
    norm_of = lambda: {"g": jnp.ones(D), "b": jnp.zeros(D)}
    layer = lambda: {"ln_1": norm_of(), "ln_2": norm_of(), "qkv": dense(D, 3 * D), "out": dense(D, D), "up": dense(D, 4 * D), "down": dense(4 * D, D)}
    p = {"wte": 0.02 * jax.random.normal(next(key), (V, D)), "wpe": 0.02 * jax.random.normal(next(key), (T, D)), "h": [layer() for _ in range(L)], "ln_f": norm_of()}
    narrow = (lambda x: x.astype(jnp.bfloat16)) if IS_BF16 else lambda x: x
    multiply = lambda x, w: jnp.matmul(narrow(x), narrow(w), preferred_element_type=jnp.float32)
    apply = lambda d, x: multiply(x, d["w"]) + d["b"]

    def norm(n, x):
        d = x - x.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * n["g"] + n["b"]

    def loss_of(p, x, y):
        h = p["wte"][x] + p["wpe"]
        for l in p["h"]:
            q, k, v = (narrow(t).reshape(B, T, H, D // H) for t in jnp.split(apply(l["qkv"], norm(l["ln_1"], h)), 3, -1))
            h = h + apply(l["out"], jax.nn.dot_product_attention(q, k, v, is_causal=True).astype(jnp.float32).reshape(B, T, D))
            h = h + apply(l["down"], jax.nn.gelu(apply(l["up"], norm(l["ln_2"], h)), approximate=True))
        logits = multiply(norm(p["ln_f"], h), p["wte"].T)
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[..., None], -1)[..., 0]).mean()

    def update(p, m, v, t, x, y):
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        t = t + 1
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        new = lambda w, a, b: w - 1e-4 * (a / (1 - 0.9**t) / (jnp.sqrt(b / (1 - 0.999**t)) + 1e-8) + 0.01 * w)
        return jax.tree.map(new, p, m, v), m, v, t, loss

    jitted = jax.jit(update, donate_argnums=(0, 1, 2, 3))
    state = [p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros(())]

    def step():
        *state[:], loss = jitted(*state, *windows())
        return loss

    return step, lambda loss: float(loss)


step, value = jax_step() if arguments.peer == "jax" else torch_step(arguments.peer == "torch-compile")
peer.measure(arguments, step, value, warmup=4, seconds=3, least=5)
