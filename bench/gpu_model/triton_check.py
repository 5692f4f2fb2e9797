"""What Triton's kernels compute in the simulator, against numpy: code that is not ours, on numbers that are not ours.

    python triton_check.py FOLDER PROGRAM

FOLDER is what triton_kernels.py has written, PROGRAM is ptx.c compiled. Prints a line for each kernel, and fails if an element is wrong."""
import json
import os
import subprocess
import sys

import numpy as np

BRAIN = 2.0 ** -8  # of bf16: relative


def rounded(x):
    """To bf16, as f32."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


def brain(x):
    return (np.ascontiguousarray(x, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def softmax(x, sizes):
    x = x["x"].reshape(sizes)
    e = np.exp(x - x.max(1, keepdims=True))
    return {"y": e / e.sum(1, keepdims=True)}


def norm(value):
    mean = value.mean(1, keepdims=True)
    scale = 1 / np.sqrt(((value - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    return (value - mean) * scale, scale


def residual_layer_norm(x, sizes):
    rows = sizes[0]
    value = rounded(x["x"].reshape(rows, -1) + x["bias"] + x["residual"].reshape(rows, -1)).astype(np.float64)
    return {"sum": value, "y": norm(value)[0] * x["gain"] + x["shift"]}


def layer_norm_backward(x, sizes):
    rows = sizes[0]
    hat, scale = norm(x["x"].reshape(rows, -1))
    up = x["dy"].reshape(rows, -1)
    slope = up * x["gain"]
    dx = (slope - slope.mean(1, keepdims=True) - hat * (slope * hat).mean(1, keepdims=True)) * scale + x["before"].reshape(rows, -1)
    return {"dx": dx, "partial_gain": [(up * hat)[at:at + 16].sum(0) for at in range(0, rows, 16)],
            "partial_shift": [up[at:at + 16].sum(0) for at in range(0, rows, 16)]}


def product(x, sizes, constants):
    m, n, k = sizes
    c = x["a"].reshape(m, k) @ x["b"].reshape(n, k).T
    if constants["BIAS"]:
        c += x["bias"]
    if constants["GELU"]:
        with np.errstate(over="ignore"):  # of what becomes 0
            c = c / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (c + 0.044715 * c ** 3)))
    return {"c": c}


def attention(x, sizes, constants):
    heads, rows = sizes
    q, k, v = (x[name].reshape(heads, rows, constants["D"]) for name in "qkv")
    score = q @ k.transpose(0, 2, 1) * constants["D"] ** -0.5
    score[:, np.triu(np.ones((rows, rows), dtype=bool), 1)] = -np.inf
    high = score.max(2, keepdims=True)
    total = np.exp(score - high).sum(2, keepdims=True)
    return {"out": np.exp(score - high) / total @ v, "least": (high + np.log(total)) * np.log2(np.e)}


def cross_entropy(x, sizes):
    rows, columns = sizes[0], 50257
    logits = x["logits"].reshape(rows, -1)[:, :columns]
    high = logits.max(1, keepdims=True)
    total = np.exp(logits - high).sum(1, keepdims=True)
    gradient = np.exp(logits - high) / total
    at = np.arange(rows), x["target"]
    loss = (high + np.log(total))[:, 0] - logits[at]
    gradient[at] -= 1
    whole = x["logits"].reshape(rows, -1).copy()
    whole[:, :columns] = gradient * np.float32(0.001)
    return {"loss": loss, "logits": whole}


def adamw(x, sizes):
    first = 0.9 * x["m"] + 0.1 * x["grad"]
    second = 0.95 * x["v"] + 0.05 * x["grad"] ** 2
    w = x["master"] - 0.001 * (first * 1.5 / (np.sqrt(second * 2) + 1e-8) + 0.1 * x["master"])
    return {"m": first, "v": second, "master": w, "param": w}


ORACLES = {function.__name__: function for function in (softmax, residual_layer_norm, layer_norm_backward, product, attention, cross_entropy, adamw)}


def check(entry, folder, program, draw):
    launch = entry["few"]
    given, words = iter(launch["arguments"]), []
    values, files = {}, {}
    for name, type in zip(entry["names"], entry["types"]):
        word = next(given)
        if type.startswith("tensordesc") or type.startswith("*"):
            is_brain = "bf16" in type
            parts = word.split(":")
            count = int(parts[1]) // (2 if is_brain else 4) if parts[0] == "p" else int(np.prod([int(size) for size in parts[2].split("x")]))
            value = draw.integers(0, 50257, count).astype(np.int32) if type == "*i32" else rounded(draw.standard_normal(count)) if is_brain else draw.standard_normal(count).astype(np.float32)
            value = np.abs(value) if name == "v" and entry["kernel"] == "adamw" else value
            values[name] = value if type == "*i32" else value.astype(np.float64)
            files[name] = os.path.join(folder, name)
            (brain(value) if is_brain else value).tofile(files[name])
            word += f":{files[name]}:{files[name]}.out"
        words.append(word)
        if type.startswith("tensordesc"):
            words += [next(given) for _ in range(4)]
    words += list(given)
    x, y = launch["grid"]
    command = [program, "h100", 0, entry["ptx"], entry["kernel"], f"{x},{y},1", f"{entry['block']},1,1", entry["shared"], entry["registers"], 0, 0, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    oracle = ORACLES[entry["kernel"]]
    more = [entry["constants"]] if oracle.__code__.co_argcount == 3 else []
    for name, want in oracle(values, launch["sizes"], *more).items():
        is_brain = "bf16" in entry["types"][entry["names"].index(name)]
        got = np.fromfile(files[name] + ".out", dtype=np.uint16 if is_brain else np.float32)
        got = (got.astype(np.uint32) << 16).view(np.float32) if is_brain else got
        want = np.asarray(want, dtype=np.float64).reshape(-1)
        # f32: sums of some thousands; bf16: its rounding, and that of weights within attention, whose errors do not grow with the result
        near = (BRAIN * np.abs(want) + (BRAIN if entry["kernel"] == "attention" else 1e-5)) if is_brain else 1e-4 * np.abs(want) + 1e-5
        wrong = np.flatnonzero(~(np.abs(got - want) <= near))
        if wrong.size:
            return f"{name}[{wrong[0]}] is {got[wrong[0]]}, not {want[wrong[0]]}; {wrong.size} of {want.size} elements are wrong"
    return ""


def main(folder, program):
    with open(os.path.join(folder, "kernels.json"), encoding="utf-8") as file:
        entries = json.load(file)
    failed = 0
    for entry in entries:
        wrong = check(entry, folder, program, np.random.default_rng(1))
        failed += bool(wrong)
        print(f"{entry['work']}, {entry['constants']}: {wrong or 'as numpy'}", flush=True)
    print(f"{len(entries) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
