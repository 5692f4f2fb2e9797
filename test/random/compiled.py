"""Compiles fixed random programs, for fixed machines, to code, and runs none of it: the branches that scripts/coverage
--compiled asks for, which are the same wherever it runs; and rows that a GPU's registers do not hold, or of which it sums
columns, products of 8-bit floats, rows with a pitch that a loop transposes, and rows of several layers, which random programs
do not have. Prints what ftc does not compile."""
import itertools
import os
import random
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import torch

import oracles
from driver import Driver
from generate import generate

PROGRAMS, EVERY = 720, 4  # every fourth one for a GPU: they take longer

ROWS = """model Random(x: f32[B, N={length}], t: {target}) {{
  param v: [1, N] = normal(0.5)
  loss = {loss}
}}
train {{ model = Random; batch = 16; optimizer = sgd(lr=1); precision = {precision} }}
"""
LOSSES = [("sum(softmax(v + x) * t)", "f32[B, N]"), ("sum(log_softmax(v * x) * t)", "f32[B, N]"), ("sum(layer_norm(v + x) * t)", "f32[B, N]"),
          ("sum(sin(x + v) / (1 + exp(sum(x * v, axis=1, keepdims=true))))", "f32[B, N]"), ("mean(cross_entropy(v + x, t, ignore=-1))", "i32[B]"),
          ('mean(cross_entropy(Linear(N, name="head")(x[:, 0:16]), t, smoothing=0.1))', "i32[B]")]
LENGTHS = (4099, 5000, 16390, 50257)
MACHINES = (("sm_80", "f32"), ("sm_80", "bf16"), ("sm_90a", "f32"), ("sm_90a", "bf16"), ("sm_90a", "fp16"))


def long_rows():
    """(text, machine)"""
    return [(ROWS.format(length=length, target=target, loss=loss, precision=precision), machine)
            for (loss, target), length, (machine, precision) in itertools.product(LOSSES, LENGTHS, MACHINES)]


SUMMED = """model Random(x: f32[B, N={length}], t: f32[B, N]) {{
  param v: [1, N] = normal(0.5)
  h = x * v
  loss = sum(LayerNorm(name="n")(h + silu(h)) * t)
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def summed_rows():
    """(text, machine)"""
    cases = ((2048, 128, "bf16"), (2050, 256, "f32"), (523, 700, "fp16"), (1024, 1538, "f32"), (520, 4096, "bf16"), (1024, 768, "f32"))
    return [(SUMMED.format(batch=batch, length=length, precision=precision), machine)
            for (batch, length, precision), machine in itertools.product(cases, ("sm_80", "sm_90a"))]


WINDOWS = """model Random(x: f32[B, C={channels}, H={height}, W={width}], t: f32[B]) {{
  h = relu(Conv2d(C, 3, padding=1, name="before")(x))
  h = Conv2d({out}, {kernel}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}, name="conv")(h)
  loss = sum(square(h))
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def windows():
    """(text, machine): convolutions of whole rows of 128 bytes, of which a block loads a region of the images, and others beside them."""
    names = ("batch", "channels", "height", "width", "out", "kernel", "stride", "padding", "dilation", "groups")
    cases = [(64, 64, 56, 56, 64, 3, 1, 1, 1, 1), (64, 128, 28, 28, 128, 3, 1, 1, 1, 1), (32, 64, 28, 30, 192, 5, 1, 2, 1, 1), (8, 64, 200, 200, 64, 3, 1, 2, 2, 1),
             (64, 64, 28, 28, 128, 3, 2, 1, 1, 1), (64, 64, 28, 28, 128, 1, 1, 0, 1, 1), (64, 128, 14, 14, 128, 3, 1, 1, 1, 2), (16, 96, 14, 14, 64, 3, 1, 1, 1, 1),
             (2, 64, 512, 512, 64, 7, 1, 3, 1, 1), (256, 256, 7, 7, 512, 3, 1, 1, 1, 1), (1, 64, 5, 5, 64, (2, 3), 1, 1, 1, 1)]
    return [(WINDOWS.format(**dict(zip(names, case)), precision=precision), machine)
            for case in cases for precision, machine in (("bf16", "sm_90a"), ("fp16", "sm_90a"), ("bf16", "sm_80"), ("f32", "sm_90a"))]


NORMED = """model Random(x: f32[B, C=16, H=12, W=9], t: f32[B]) {
  h = relu(BatchNorm(name="n")(Conv2d(32, 3, padding=1, bias=false, name="a")(x)))
  h = BatchNorm(name="m")(Conv2d(16, 3, padding=1, bias=false, name="b")(h))
  loss = sum(square(h))
}
train { model = Random; batch = 4; optimizer = sgd(lr=1) }
"""
RECURRENT = """model Random(x: f32[B, 20, 12], t: f32[B]) {
  y, h, c = LSTM(16, name="l")(x)
  loss = sum(square(h))
}
train { model = Random; batch = 8; optimizer = sgd(lr=1) }
"""


def cpu_windows():
    """(text, machine): convolutions on CPUs: by fewer multiplications, what is not made so, and such that stride; and many parts side by side."""
    names = ("batch", "channels", "height", "width", "out", "kernel", "stride", "padding", "dilation", "groups")
    cases = [(4, 32, 10, 9, 48, 3, 1, 1, 1, 1), (2, 16, 1, 1, 16, 3, 1, 1, 1, 1), (2, 16, 8, 8, 24, 3, 1, 1, 1, 1), (2, 16, 8, 8, 16, 3, 1, 3, 1, 1), (2, 16, 8, 8, 16, 3, 1, (1, 3), 1, 1),
             (4, 32, 20, 20, 48, 3, 1, 1, 1, 1), (2, 16, 20, 20, 16, 3, 2, 1, 1, 1), (2, 16, 20, 20, 16, 3, 1, 2, 2, 1)]
    texts = [WINDOWS.format(**dict(zip(names, case)), precision="f32") for case in cases] + [NORMED, RECURRENT]
    return [(text, "x86-64-v3") for text in texts] + [(texts[0], "x86-64"), (texts[0], "x86-64-v3 without winograd"), (texts[5], "x86-64-v3 without winograd4"), (texts[0], "x86-64-v3 without layout"),
                                                      (texts[0].replace("precision = f32", "precision = bf16"), "x86-64-v3")]


ATTENTION = """model Random(x: f32[B, T={rows}, D={width}], m: {mask}, t: f32[B, T, D]) {{
  q, k, v = split(Linear(3 * D, bias=false, name="a")(x), 3, axis=-1)
  h = attention(unsqueeze(q, 1), unsqueeze(k, 1), unsqueeze(v, 1), mask=reshape(m, [{shape}]))
  loss = sum(square(reshape(h, [B, T, D]) - t))
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def attentions():
    """(text, machine): heads of many widths, short and long, with masks of bools and such that are added."""
    cases = [(width, rows, batch, mask, shape) for width, rows, batch in ((64, 256, 64), (96, 256, 8), (200, 160, 8), (256, 512, 8), (256, 64, 2), (264, 256, 2), (128, 1024, 2))
             for mask, shape in (("bool[B, T]", "B, 1, 1, T"), ("f32[B, T, T]", "B, 1, T, T"))]
    return [(ATTENTION.format(width=width, rows=rows, batch=batch, mask=mask, shape=shape, precision=precision), machine)
            for width, rows, batch, mask, shape in cases for precision, machine in (("bf16", "sm_90a"), ("f32", "sm_80"), ("fp16", "sm_80"))]


POOLED = """model Random(x: f32[B, C={channels}, H={height}, W={width}], t: f32[B]) {{
  h = Conv2d({out}, 3, padding=1, name="before")(x)
  h = {between}
  h = {pool}(h, {kernel}, stride={stride}, padding={padding})
  loss = sum(square(Conv2d(8, 1, name="after")(h)))
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def pools():
    """(text, machine): windows over large images, of which a thread computes tiles of places, and others beside them; images of few channels."""
    names = ("batch", "channels", "height", "width", "out", "pool", "kernel", "stride", "padding")
    cases = [(96, 3, 64, 64, 64, "max_pool2d", 3, 2, 1), (64, 3, 64, 64, 64, "max_pool2d", (3, 2), 2, (1, 0)), (64, 3, 66, 62, 24, "avg_pool2d", (3, 2), (2, 1), (1, 0)), (64, 3, 63, 64, 64, "max_pool2d", 3, 2, 1),
             (64, 4, 64, 64, 32, "max_pool2d", 2, 2, 0), (32, 4, 64, 60, 64, "avg_pool2d", 3, 1, 1), (32, 3, 60, 60, 64, "max_pool2d", 5, 3, 2),
             (512, 1, 64, 64, 1, "max_pool2d", 3, 2, 1), (2, 3, 8, 8, 64, "max_pool2d", 3, 2, 1)]
    return [(POOLED.format(**dict(zip(names, case)), between=between, precision=precision), machine) for case in cases
            for between in ("h", 'relu(BatchNorm(name="n")(h))') for precision, machine in (("bf16", "sm_90a"), ("f32", "sm_80"), ("bf16", "sm_80:1"))] + [
                (POOLED.format(**dict(zip(names, cases[0])), between="h", precision="bf16"), f"sm_80 without {choice}") for choice in ("window_tiles", "narrow_rows")]


def many_values():
    """(text, machine): more small values than memplan keeps apart."""
    layers = "".join(f'  h = tanh(Linear(128, name="l{i}")(h))\n' for i in range(24))
    text = f"model Random(x: f32[B, 128], t: f32[B, 128]) {{\n  h = x\n{layers}  loss = mean(square(h - t))\n}}\ntrain {{ model = Random; batch = 256; optimizer = sgd(lr=1) }}\n"
    return [(text, "sm_80")]


QUANTISED = """model Random(x: f32[B, C={channels}, H={height}, W={width}], t: f32[B]) {{
  h = relu({layer}({out}, {kernel}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}, name="conv"{more})(x))
  output h
  loss = sum(square(h))
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def quantised():
    """(text, machine): convolutions of whole numbers, of few channels and many, in groups and dilated."""
    names = ("batch", "channels", "height", "width", "out", "kernel", "stride", "padding", "dilation", "groups")
    cases = [(64, 64, 28, 28, 64, 3, 1, 1, 1, 1), (8, 3, 64, 64, 30, 7, 2, 3, 1, 1), (4, 8, 14, 14, 33, 3, 1, 1, (1, 2), 1), (4, 64, 14, 14, 64, 3, 1, 1, 1, 4), (4, 24, 14, 14, 24, 3, 1, 1, 1, 3)]
    return [(QUANTISED.format(**dict(zip(names, case)), layer="QuantConv2d", more=more, precision=precision), machine) for case in cases
            for more, precision, machine in (("", "f32", "sm_90a"), (", signed_input=false", "tf32", "sm_80"), (", per_tensor=true", "f32", "x86-64-v3"), (", input_bits=none", "f32", "sm_80"))]


EIGHT_BITS = """model Random(x: f32[B, {inputs}], t: f32[B, {outputs}]) {{
  h = tanh(Linear({inside}, name="a")(x))
  loss = mean(square(Linear({outputs}, name="b")(h) - t))
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def eight_bits():
    """(text, machine): products of 8-bit floats, whose operands a kernel makes in two orders; many long rows, and few."""
    names = ("batch", "inputs", "inside", "outputs")
    cases = [(2048, 64, 2064, 144), (2048, 2064, 128, 129), (32, 32, 48, 129), (640, 256, 256, 2176)]
    return [(EIGHT_BITS.format(**dict(zip(names, case)), precision=precision), machine)
            for case in cases for precision in ("fp8", "fp8(scaling=delayed)") for machine in ("sm_90a", "sm_89", "x86-64-v3")]


TURNED = """model Random(x: f32[B, T=40, D=24], t: f32[B, {length}, T]) {{
  param w: [D, {length}] = normal(0.5)
  param k: [{length}, 8] = normal(0.5)
  h = tanh(x @ w)
  loss = sum(square(h @ k)) + sum(sin(transpose(h, 0, 2, 1)) * t)
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def turned_rows():
    """(text, machine): loops that transpose rows with a pitch."""
    return [(TURNED.format(length=length, batch=batch, precision=precision), machine)
            for length, batch in ((30, 4), (60, 300)) for machine, precision in (("sm_80", "bf16"), ("sm_90a", "fp16"))]


BYTES = """model Random(x: u8[B, 80, 96], y: u8[B, 2, 80, 96], z: u8[B, 80, 90], m: bool[B, 80, 64], i: u8[B, 16, 600], j: u8[B, 90, 80]) {
  param w: [1] = normal(1)
  a = transpose(x, 0, 2, 1)
  b = transpose(y, 0, 2, 3, 1)
  c = transpose(z, 0, 2, 1)
  d = transpose(m, 0, 2, 1)
  e = transpose(i, 1, 0, 2)
  f = transpose(j, 0, 2, 1)
  loss = sum(w)
  output a
  output b
  output c
  output d
  output e
  output f
}
train { model = Random; batch = 3; optimizer = sgd(lr=1) }
"""
WITHIN = """model Random(x: f32[B, 64, 48]) {
  h = Linear(129, name="a")(x)
  param w: [160, 32] = normal(0.1)
  param u: [32, 129] = normal(0.1)
  z = transpose(h, 1, 2, 0) @ w
  loss = mean(square(h @ transpose(stop_gradient(u)))) + mean(square(z)) + mean(u)
}
train { model = Random; batch = 160; optimizer = sgd(lr=1); precision = fp8 }
"""
WRITTEN = """model Random(x: f32[B, 129, 24]) {
  param w: [129, 8] = normal(0.1)
  loss = mean(square(tanh(transpose(x, 2, 0, 1)) @ w))
}
train { model = Random; batch = 160; optimizer = sgd(lr=1); precision = bf16 }
"""


def moved_bytes():
    """(text, machine): bytes that are transposed and nothing else, what is like them but goes another way, and rows with a pitch within longer ones."""
    return [(BYTES, "sm_80"), (WITHIN, "sm_90a"), (WRITTEN, "sm_80")]


ROW_CHAINS = """model Random(x: f32[B, {inputs}], t: i32[B]) {{
  h = relu(Linear({hidden}, name="a")(x))
  h = LayerNorm(name="n")(gelu(Linear({hidden}, name="b")(h)))
  param v: [{hidden}, 40] = normal(0.1)
  param w: [40, {classes}] = normal(0.1)
  param c: [40] = zeros
  loss = mean(cross_entropy(relu(dropout(h, 0.1) @ v + c) @ w, t))
}}
train {{ model = Random; batch = {batch}; optimizer = adam(lr=1); precision = {precision} }}
"""


def row_chains():
    """(text, machine): rows of several layers in one launch, behind a long product in parts."""
    names = ("inputs", "hidden", "batch", "classes", "precision")
    cases = [(784, 128, 64, 3, "f32"), (2000, 35, 300, 10, "f32"), (64, 250, 1000, 3, "f32"), (784, 250, 72, 3, "bf16")]
    return [(ROW_CHAINS.format(**dict(zip(names, case))), machine) for case in cases for machine in ("sm_80", "sm_90a")]


SPARSE = """model Random(x: f32[B, {inputs}]) {{
  h = Linear({outputs}, name="two")(x){more}
  loss = mean(square(h))
}}
train {{ model = Random; batch = {batch}; optimizer = sgd(lr=1); precision = {precision} }}
"""


def sparse():
    """(text, machine): products by weights of which two of four are 0: few and many rows, steps and columns."""
    names = ("inputs", "outputs", "batch", "more", "precision")
    cases = [(4096, 4096, 1, "", "bf16"), (64, 48, 2000, "", "bf16"), (4096, 32, 40, "", "fp16"), (600, 3000, 120, " * 2", "bf16"), (64, 64, 9, " + x", "bf16"),
             (8192, 8192, 600, "", "bf16"), (64, 64, 1, "", "f32")]
    return [(SPARSE.format(**dict(zip(names, case))), machine) for case in cases for machine in ("sm_80", "sm_90a")]


def how(number):
    """To machine code; with FT_TURN, the number of commits, a fifth of them, and others until LLVM begins, which takes the same branches of ft."""
    turn = os.environ.get("FT_TURN")
    return "code:" if not turn or number % 5 == int(turn) % 5 else "quick:code:"


def compile_text(driver, number, text, machine):
    with open(driver.path("p.ft"), "w") as file:
        file.write(text)
    machine, _, without = machine.partition(" without ")
    verdict, said = driver.ask_files(driver.path("p.ft"), driver.path("p.values"), how(number) + machine, without or None, None)
    return None if verdict == "ok" else f"{text}for {machine}: {verdict}: {said[:300]}"


def compile_one(driver, seed):
    """None, or why it was not compiled."""
    is_gpu = seed % EVERY == 0
    is_for_cores = oracles.is_for_cores(seed, is_gpu)
    machine = oracles.machine_of(random.Random(seed), is_gpu, is_for_cores) if is_gpu else "x86-64-v3"
    program = generate(seed, cores=is_for_cores)
    program.on_ranks, program.on_stages = seed % 5 == 1, seed % 5 == 3
    if program.on_stages:
        program.settings["accumulate"] = 3
    verdict, text, asked = oracles.ask(driver, program, how(seed) + machine)
    if verdict == "refused" and (asked.on_ranks or asked.on_stages):
        asked.on_ranks = asked.on_stages = False
        verdict, text, _ = oracles.ask(driver, asked, how(seed) + machine)
    return None if verdict == "ok" else f"seed {seed} for {machine}: {verdict}: {text[:300]}"


def work(seeds, texts, failures):
    driver = Driver()
    failures += [wrong for seed in seeds if (wrong := compile_one(driver, seed))]
    failures += [wrong for number, (text, machine) in texts if (wrong := compile_text(driver, number, text, machine))]
    driver.end()


def main():
    torch.set_num_threads(1)
    jobs, failures = os.cpu_count(), []
    texts = list(enumerate(long_rows() + summed_rows() + windows() + cpu_windows() + attentions() + pools() + many_values() + quantised() + eight_bits() + turned_rows() + moved_bytes() + row_chains() + sparse()))
    threads = [threading.Thread(target=work, args=(range(i, PROGRAMS, jobs), texts[i::jobs], failures)) for i in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
