"""More models as bench/cpu/*.ft have them, each by one peer: prints a JSON line as peers.py does.

  peers_more.py {torch-eager,torch-compile,jax} {lstm,vit,unet} [--threads N] [--steps N] [--rounds N]

lstm: a layer of 128 over the 28 rows of an image of 28 x 28, batch 64, Adam. vit: ViT-Ti (width 192, 12 layers, 3 heads) over 32 x 32 in patches of
4 x 4, batch 64, AdamW. unet: five pairs of 3 x 3 convolutions with group norms, 32 to 128 channels, takes noise out of 32 x 32, batch 16, Adam. Batches
are taken by index from u8 images in memory. The peers get their fast modes: nn.LSTM, fused optimisers, scaled_dot_product_attention and
jax.nn.dot_product_attention, channels_last, lax.scan, donated buffers."""
import peer

arguments = peer.parse(__doc__, ["torch-eager", "torch-compile", "jax"], ["lstm", "vit", "unet"], rounds=3)
import numpy

MODEL = arguments.model
B = 16 if MODEL == "unet" else 64
L, D, H = 12, 192, 3  # of vit
WIDTH, GROUPS = 32, 8  # of unet
random = numpy.random.default_rng(1)
images = random.integers(0, 256, (4096, 28, 28) if MODEL == "lstm" else (4096, 3, 32, 32), dtype=numpy.uint8)
labels = random.integers(0, 10, 4096).astype(numpy.int32)


def batches():
    while True:
        order = random.permutation(len(images))
        for at in range(0, len(images) - B + 1, B):
            yield order[at : at + B]


def torch_step(compiled):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(arguments.threads)

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(28, 128, batch_first=True), nn.Linear(128, 10)

        def forward(self, x, y):
            x = (x.float() / 255 - 0.1307) / 0.3081
            return F.cross_entropy(self.head(self.lstm(x)[1][0][-1]), y)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.qkv, self.proj, self.fc1, self.fc2 = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

        def forward(self, x):
            q, k, v = (t.view(B, -1, H, D // H).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(D, -1))
            x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, -1, D))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.layers = nn.Conv2d(3, D, 4, 4), nn.Sequential(*(Layer() for _ in range(L)))
            self.first, self.places = nn.Parameter(0.02 * torch.randn(1, 1, D)), nn.Parameter(0.02 * torch.randn(1, 65, D))
            self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 10)

        def forward(self, x, y):
            x = self.patches(x.float() / 255 - 0.5).flatten(2).transpose(1, 2)
            x = self.layers(torch.cat([self.first.expand(B, 1, D), x], 1) + self.places)
            return F.cross_entropy(self.head(self.norm(x)[:, 0]), y)

    def twice(inputs, outputs):
        layers = []
        for c in (inputs, outputs):
            layers += [nn.Conv2d(c, outputs, 3, 1, 1), nn.GroupNorm(GROUPS, outputs), nn.SiLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            w = WIDTH
            self.down1, self.down2, self.bottom = twice(3, w), twice(w, 2 * w), twice(2 * w, 4 * w)
            self.up2, self.up1, self.out = twice(6 * w, 2 * w), twice(3 * w, w), nn.Conv2d(w, 3, 1)

        def forward(self, x, y):
            clean = (x.float() / 255 - 0.5).contiguous(memory_format=torch.channels_last)
            a = self.down1(clean + 0.3 * torch.randn_like(clean))
            b = self.down2(F.max_pool2d(a, 2))
            c = self.bottom(F.max_pool2d(b, 2))
            b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
            a = self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
            return F.mse_loss(self.out(a), clean)

    net = {"lstm": Rows, "vit": ViT, "unet": UNet}[MODEL]()
    if MODEL == "unet":
        net = net.to(memory_format=torch.channels_last)
    if MODEL == "vit":
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    all_images, all_labels = torch.from_numpy(images), torch.from_numpy(labels).long()
    step, value = peer.torch_step(torch.compile(net) if compiled else net, optimizer)
    return lambda at: step(all_images[at], all_labels[at]), value


def jax_step():
    import jax
    import jax.numpy as jnp

    key = iter(jax.random.split(jax.random.PRNGKey(0), 256))

    def uniform(shape, inputs):
        return jax.random.uniform(next(key), shape, minval=-(inputs**-0.5), maxval=inputs**-0.5)

    dense = lambda i, o: {"w": uniform((i, o), i), "b": jnp.zeros(o)}
    apply = lambda d, x: x @ d["w"] + d["b"]
    norm_of = lambda c: {"g": jnp.ones(c), "b": jnp.zeros(c)}

    def layer_norm(n, x):
        d = x - x.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * n["g"] + n["b"]

    def cross_entropy(logits, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    conv_of = lambda k, i, o: {"w": uniform((k, k, i, o), k * k * i), "b": jnp.zeros(o)}

    def conv(p, x, stride=1, padding=0):
        return jax.lax.conv_general_dilated(x, p["w"], (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["b"]

    def lstm_loss(p, x, y, _):
        x = (x.astype(jnp.float32) / 255 - 0.1307) / 0.3081
        x = jnp.moveaxis(apply(p["ih"], x), 1, 0)

        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split(x + apply(p["hh"], h), 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((B, 128))
        (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x)
        return cross_entropy(apply(p["head"], h), y)

    def vit_loss(p, x, y, _):
        x = conv(p["patches"], x.astype(jnp.float32).transpose(0, 2, 3, 1) / 255 - 0.5, 4).reshape(B, 64, D)
        x = jnp.concatenate([jnp.broadcast_to(p["first"], (B, 1, D)), x], 1) + p["places"]
        for l in p["layers"]:
            q, k, v = (t.reshape(B, 65, H, D // H) for t in jnp.split(apply(l["qkv"], layer_norm(l["norm1"], x)), 3, -1))
            x = x + apply(l["proj"], jax.nn.dot_product_attention(q, k, v).reshape(B, 65, D))
            x = x + apply(l["fc2"], jax.nn.gelu(apply(l["fc1"], layer_norm(l["norm2"], x)), approximate=False))
        return cross_entropy(apply(p["head"], layer_norm(p["norm"], x)[:, 0]), y)

    def twice(p, x):
        for c, n in p:
            x = conv(c, x, 1, 1)
            s = x.reshape(B, -1, GROUPS, x.shape[-1] // GROUPS)
            d = s - s.mean((1, 3), keepdims=True)
            x = (d * jax.lax.rsqrt((d * d).mean((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * n["g"] + n["b"]
            x = jax.nn.silu(x)
        return x

    def unet_loss(p, x, y, noise):
        clean = x.astype(jnp.float32).transpose(0, 2, 3, 1) / 255 - 0.5
        pool = lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        larger = lambda x: x.repeat(2, 1).repeat(2, 2)
        a = twice(p["down1"], clean + 0.3 * jax.random.normal(noise, clean.shape))
        b = twice(p["down2"], pool(a))
        c = twice(p["bottom"], pool(b))
        b = twice(p["up2"], jnp.concatenate([larger(c), b], -1))
        a = twice(p["up1"], jnp.concatenate([larger(b), a], -1))
        return ((conv(p["out"], a) - clean) ** 2).mean()

    pair = lambda i, o: [(conv_of(3, i, o), norm_of(o)), (conv_of(3, o, o), norm_of(o))]
    if MODEL == "lstm":
        p, loss_of = {"ih": dense(28, 512), "hh": dense(128, 512), "head": dense(128, 10)}, lstm_loss
    elif MODEL == "vit":
        layer = lambda: {"norm1": norm_of(D), "norm2": norm_of(D), "qkv": dense(D, 3 * D), "proj": dense(D, D), "fc1": dense(D, 4 * D), "fc2": dense(4 * D, D)}
        p = {"patches": conv_of(4, 3, D), "first": uniform((1, 1, D), 2500), "places": uniform((1, 65, D), 2500), "layers": [layer() for _ in range(L)],
             "norm": norm_of(D), "head": dense(D, 10)}
        loss_of = vit_loss
    else:
        w = WIDTH
        p = {"down1": pair(3, w), "down2": pair(w, 2 * w), "bottom": pair(2 * w, 4 * w), "up2": pair(6 * w, 2 * w), "up1": pair(3 * w, w), "out": conv_of(1, w, 3)}
        loss_of = unet_loss
    decay = 0.05 if MODEL == "vit" else 0.0

    def update(p, m, v, t, seed, x, y):
        seed, noise = jax.random.split(seed)
        loss, g = jax.value_and_grad(loss_of)(p, x, y, noise)
        t = t + 1
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        new = lambda w, a, b: w - 1e-3 * (a / (1 - 0.9**t) / (jnp.sqrt(b / (1 - 0.999**t)) + 1e-8) + decay * w)
        return jax.tree.map(new, p, m, v), m, v, t, seed, loss

    jitted = jax.jit(update, donate_argnums=(0, 1, 2, 3, 4))
    state = [p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros(()), jax.random.PRNGKey(1)]

    def step(at):
        *state[:], loss = jitted(*state, images[at], labels[at])
        return loss

    return step, lambda loss: float(loss)


step, value = jax_step() if arguments.peer == "jax" else torch_step(arguments.peer == "torch-compile")
source = batches()
peer.measure(arguments, lambda: step(next(source)), value, warmup=4, seconds=2, least=5)
