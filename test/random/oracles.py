"""What a program is held against: the interpreter and rounding (random_program.c), and PyTorch in float64."""
import math
import os
import random
import subprocess
import tempfile

import torch

from disguise import disguise, samples_axis, twice
from driver import BUILD
import float8_programs
from float8_product import LARGEST, Exact, of_first_step, wrong_states
from generate import generate
from roots import RATE

CLOSE = 1e-7  # both compute in double; what is left of it where a norm of nearly equal numbers loses half the digits


def choices():
    """All that --disable takes."""
    text = subprocess.run([os.path.join(BUILD, "bin", "ftc"), "--help"], capture_output=True, text=True, check=True).stdout
    return text[text.index("--disable takes:") :].split("\n\n")[0].split()[2:]


HOPPER = ("wgmma", "attention_wgmma", "attention_tiles", "tma", "clusters", "conv_regions", "early_launch")
GPU = (*HOPPER, "column_sums", "row_sums", "slope_epilogues", "channels", "moments", "masks", "window_tiles", "narrow_rows", "row_chains")
CPU = ("concat_parts", "widen", "winograd", "winograd4")
FLOAT8_GPUS = ("sm_89", "sm_90a")  # they multiply 8-bit floats; the others, what was rounded to them
FLOAT8_TILES = (1, 10), (11, 17), (11, 17), (18, 24), (25, 31), (32, 38)  # mma.sync's, wgmma's, those with tensor maps, of both kinds of clusters
TILES, PLAIN_TILES = 54, 10  # of 16 bits on sm_90a: mma.sync's, then wgmma's, then those with tensor maps: of a block, and of two kinds of clusters (convolutions: or with regions)


def is_for_cores(seed, gpu):
    """Of the programs of the simulator every second one is made for tensor cores."""
    return gpu and random.Random(seed * 17 + 1).random() < 0.5


def made(seed, gpu, float8=False):
    return float8_programs.generate(seed) if float8 else generate(seed, cores=is_for_cores(seed, gpu))


ATTENTION = {"attention", "attention_dropout"}
PRODUCTS = {"Linear", "SwiGLU", "apply", "matmul", "matmul_transposed", "Conv2d", "conv2d"}
WANTS = {  # what a program must have for a choice to matter to it: one of these operations, and this of its recipe
    **dict.fromkeys(["attention", "heads", "heads_join", "attention_wgmma", "attention_tiles"], (ATTENTION, None)),
    **dict.fromkeys(["layout", "channels", "winograd", "winograd4"], ({"Conv2d", "conv2d"}, None)),
    **dict.fromkeys(["precision", "widen", "narrow", "approximate", "wgmma", "tma", "clusters"], (PRODUCTS, "16")),
    **dict.fromkeys(["amx", "dpbf16", "widened"], (PRODUCTS | ATTENTION, "16")),
    **dict.fromkeys(["moments", "column_sums", "row_sums", "slope_epilogues", "storage"], (PRODUCTS, None)),
    "fp8_products": (PRODUCTS, "8"),
    "conv_regions": ({"Conv2d", "conv2d"}, "16"), "masks": ({"relu", "leaky_relu", "hardtanh"}, None), "concat_parts": ({"concat", "stack"}, None),
    **dict.fromkeys(["integers", "rounded", "vnni"], ({"QuantLinear"}, None)),
    "window_tiles": ({"max_pool2d", "avg_pool2d"}, None), "narrow_rows": ({"Conv2d", "conv2d", "pad", "permute", "transpose", "rearrange"}, None),
    "transpose_tiles": ({"transpose", "permute", "rearrange"}, None), "recompute": (None, "recompute"),
}
# Few programs are of a kind to which these matter: where one is left out, it is one that changes this program's graph.
RARE = ("cse", "cse2", "dce", "heads_join", "storage", "moments", "column_sums", "slope_epilogues", "recompute", "masks")


def may_matter(program, choice):
    operations, setting = WANTS.get(choice, (None, None))
    settings = program.settings
    if setting == "8":
        return program.has_float8
    has_setting = not setting or (setting in settings["precision"] if setting == "16" else setting in settings)
    return has_setting and (not operations or any(s.op in operations for s in program.statements))


def graph_of(path, machine, without):
    gpu = [] if machine == "cpu" else ["--gpu", next((m for m in FLOAT8_GPUS if m in machine), "sm_80")]
    left_out = ["--disable=" + without] if without else []
    command = [os.path.join(BUILD, "bin", "ftc"), path, "--emit=ir", "--stop-after=memplan", *gpu, *left_out]
    return subprocess.run(command, capture_output=True, text=True).stdout


def first_that_matters(program, machine, names):
    """Without which the passes make another graph; None: there is no such."""
    with tempfile.NamedTemporaryFile("w", suffix=".ft", prefix="ft-random-") as file:
        file.write(program.text())
        file.flush()
        whole = graph_of(file.name, machine, None)
        return next((n for n in names if graph_of(file.name, machine, n) != whole), None)


def leave_out(r, machine, names, program):
    """Something that the machine has and that may matter to the program; fuse more often than the rest, and what is rare."""
    lacks = (*GPU, "fp8_products") if machine == "cpu" else CPU if "sm_90a" in machine else (*CPU, *HOPPER)
    fits = [n for n in names if n not in lacks and may_matter(program, n)]
    if r.random() < 0.3:
        seldom = [n for n in RARE if n in fits]
        found = first_that_matters(program, machine, r.sample(seldom, min(5, len(seldom))))
        if found:
            return found
    rare = [n for n in fits if n in WANTS]
    if rare and r.random() < 0.4:
        return r.choice(rare)
    return "fuse" if r.random() < 0.2 else r.choice(fits)


def machine_of(r, gpu, cores):
    """cpu, gpu (the least), or a GPU with the only tile that products may have and the splits of their sums."""
    if not gpu:
        return "cpu"
    machine = r.choice(["gpu", "sm_80", "sm_90a", "sm_90a"] if not cores else ["sm_80", *["sm_90a"] * 7])
    if machine == "sm_90a" and r.random() < (0.9 if cores else 0.7):
        machine += f":{r.randint(PLAIN_TILES + 1 if cores and r.random() < 0.8 else 1, TILES)}"
        if r.random() < 0.25:
            machine += f"/{r.randint(2, 3)}"
    return machine


def float8_machine(r, gpu):
    """Mostly one that multiplies 8-bit floats, with one of its tiles for them."""
    if not gpu:
        return "cpu"
    machine = r.choice(["sm_80", *["sm_89"] * 4, *["sm_90a"] * 5])
    if machine == "sm_80" or r.random() < 0.2:
        return machine
    first, last = FLOAT8_TILES[0] if machine == "sm_89" else r.choice(FLOAT8_TILES)
    return f"{machine}:{r.randint(first, last)}" + ("/2" if r.random() < 0.2 else "")


def forms(program, gpu, names):
    """How a program is compiled: (machine, what is left out, a key of OTHERWISE or None). Always as it is; then, often, with
    something left out, in other words, or with each sample twice."""
    r = random.Random(program.seed * 31 + 5)
    machine = float8_machine(r, gpu) if program.has_float8 else machine_of(r, gpu, is_for_cores(program.seed, gpu))
    yield machine, None, None
    if r.random() < 0.25:
        yield machine, leave_out(r, machine, names, program), None
    if r.random() < 0.25:
        yield machine, None, "in other words"
    if r.random() < 0.5 and not program.has_float8 and twice(program, program.seed):
        yield machine, None, "with each sample twice"


OTHERWISE = {"in other words": disguise, "with each sample twice": twice}


def read_dump(path):
    found = {}
    with open(path) as file:
        for line in file:
            kind, name, *numbers = line.split()
            found[kind, name] = torch.tensor([float(n) for n in numbers], dtype=torch.float64)
    return found


def far(have, want):
    """None, or how far apart they are."""
    want = want.detach().to(torch.float64).reshape(-1)
    if have.shape != want.shape:
        return f"{have.numel()} elements instead of {want.numel()}"
    scale = max(want.abs().max().item(), 1e-5) if want.numel() else 1  # a gradient that is exactly 0 is what is left of larger terms
    error = (have - want).abs().max().item() if want.numel() else 0
    return None if error <= CLOSE * scale else f"off by {error:.3g}, largest {scale:.3g}: {have[:4].tolist()} and not {want[:4].tolist()}"


def is_mean_over_samples(program):
    """Is a step whose batch comes in parts what PyTorch says of the whole batch? A norm over the samples, and a state, take each part by
    itself."""
    if not program.samplewise or any(leaf.kind == "state" for leaf in program.leaves) or any(s.op == "BatchNorm" for s in program.statements):
        return False
    return samples_axis(program) is not None


def updated(program, gradients):
    """The params after plain sgd; none: by another rule."""
    if program.settings["optimizer"] != f"sgd(lr={RATE})" or {"clip", "schedule", "loss_scale"} & program.settings.keys():
        return {}
    before, (factor, _, group) = program.leaf_values(), program.settings.get("lr", "1x on").partition("x on")
    return {name: before[name] - RATE * (float(factor) if f'"{name}"' in group else 1) * g for name, g in gradients.items()}


def metrics_of(program, graph, otherwise):
    """(number, value) of those that PyTorch judges: in parts of a batch, a metric that is no mean is the mean of the parts' values where ftc does
    not see that it is computed of sums over the samples (docs/language.md), as behind what divides them in other words."""
    made_by = {s.name: s.op for s in program.statements}
    is_in_parts = graph == "train" and program.parts > 1
    averaged = {"r2", "correlation"} if is_in_parts else ()  # they read the samples twice: ftc warns
    return [(i, n) for i, n in enumerate(program.metrics) if made_by.get(n) not in averaged and (not (is_in_parts and otherwise) or made_by.get(n) == "mean")]


def against_pytorch(program, dump, otherwise=None):
    """The interpreter's first step and evaluation against PyTorch; None, or what differs."""
    if not program.exact or not (program.has_float8 or program.settings["precision"] in ("f32", "tf32")):
        return None
    found, exact = read_dump(dump), program.has_float8 and Exact(program)
    _, _, evaluated = program.gradients(training=False, exact=exact)
    pairs = [("eval.loss", "loss", sum(evaluated[n] for n in program.loss))]
    graphs = [("eval", evaluated)]
    if program.parts == 1 or (is_mean_over_samples(program) and not program.has_float8):  # each part has scales of its own
        LARGEST.clear()
        _, gradients, known = program.gradients(program.batch * program.parts, exact=exact)
        pairs += [("train.loss", "loss", sum(known[n] for n in program.loss)), *(("param", n, v) for n, v in updated(program, gradients).items())]
        graphs += [("train", known)]
    if program.parts == 1:
        scale = program.settings.get("loss_scale", 1)
        pairs += [("gradient", name, g * scale) for name, g in gradients.items()]
        pairs += [("state", leaf.name, known[program.updates.get(leaf.name, leaf.name)]) for leaf in program.leaves if leaf.kind == "state"]
    for graph, values in graphs:
        if graph == "eval" or program.parts == 1:  # an output is the last part's
            pairs += [(f"{graph}.output", n, values[n]) for n in program.outputs]
        pairs += [(f"{graph}.metric", f"m{i}", values[n]) for i, n in metrics_of(program, graph, otherwise)]
    if exact and (wrong := wrong_states(program, found, of_first_step(program, exact, list(LARGEST)))):
        return wrong
    if exact and not exact.judges:
        return None
    for kind, name, want in pairs:
        if (kind, name) not in found:
            continue  # evaluation drops what is for training only
        if not math.isfinite(want.detach().to(torch.float64).sum().item()):
            continue
        wrong = far(found[kind, name], want)
        if wrong:
            return f"{kind} '{name}' of the interpreter is not PyTorch's: {wrong}"
    return None


def in_one_piece(program):
    """Its step takes one batch, and no parts."""
    other = program.copy()
    other.settings.pop("accumulate", None)
    return other


def ask(driver, program, machine, without=None, dump=None):
    """(verdict, text, what was asked). A loss that is no mean over the samples is refused with parts of a batch: the program without."""
    verdict, text = driver.ask(program, machine, without, dump)
    if verdict == "refused" and "with accumulate" in text and program.parts > 1:
        program = in_one_piece(program)
        verdict, text = driver.ask(program, machine, without, dump)
    return verdict, text, program


def check(driver, program, form, pytorch=True):
    """(verdict, text). What is written otherwise is held against what PyTorch says of the plain program."""
    machine, without, otherwise = form
    dump = driver.path("dump") if pytorch and program.exact and without is None else None
    asked = OTHERWISE[otherwise](program, program.seed) if otherwise else program
    if not asked:
        return "refused", f"it cannot be written {otherwise}"
    verdict, text, asked = ask(driver, asked, machine, without, dump)
    if verdict == "ok" and dump:
        wrong = against_pytorch(program if asked.parts > 1 else in_one_piece(program), dump, otherwise)
        if wrong:
            return "fail", wrong
    if verdict == "ok" and asked.parts > 1:
        text += " in_parts"
    return verdict, text
