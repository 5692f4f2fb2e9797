"""The update, as the interpreter evaluates it, against torch.optim in float64 over several steps: every
optimizer, its options, every schedule, clipping. No kernel is involved: this is about the formulas."""
import itertools
import math
import os
import subprocess
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FTOPT = os.path.join(os.environ.get("FT_BUILD", os.path.join(ROOT, "build")), "bin", "ftopt")
STEPS, TOTAL = 7, 100  # ftopt's made-up train.total_steps is 100
FRESH = 3  # a seed with which ftopt's made-up step is 0: a training's first
GRAPH = """graph "train" {
  %x = input {name="x"} : f32[4,3]
  %w = param {name="w", init="zeros"} : f32[2,3]
  %b = param {name="b", init="zeros"} : f32[1,2]
  %step = state {name="step", init="zeros"} : i64[]
  %h = dot %x, %w {tb=true} : f32[4,2]
  %bb = broadcast %b : f32[4,2]
  %hb = add %h, %bb : f32[4,2]
  %t = tanh %hb : f32[4,2]
  %q = mul %t, %hb : f32[4,2]
  %s = sum %q {axes=[0,1]} : f32[1,1]
  %l = reshape %s : f32[]
  loss "loss" %l
}
"""


def run(settings, seed):
    """One dictionary a step: (kind, name) -> list of numbers. The seed makes the first step's number."""
    flags = [f"--seed={seed}"] + [f for key, value in settings.items() for f in ("--set", f"train.{key}={value}")]
    done = subprocess.run([FTOPT, "-", "--passes=autodiff,optimizer,simplify2,cse2,dce2", "--interp", "--all-values",
                           f"--steps={STEPS}"] + flags, input=GRAPH, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    steps = []
    for line in done.stdout.splitlines():
        head, values = line.split(" =")
        kind, name = head.split(":")[0].split(" ", 1)
        if not steps or (kind, name) in steps[-1]:
            steps.append({})
        steps[-1][kind, name] = [float(v) for v in values.split()]
    return steps


def rate(settings, t):
    """The schedule as documented in docs/language.md, written again."""
    warmup = settings.get("schedule.warmup", 0)
    if t < warmup:
        return (t + 1) / warmup
    final = settings.get("schedule.final", 0)
    done = min(1, (t - warmup) / max(TOTAL - warmup, 1))
    kind = settings.get("schedule", "constant")
    if kind == "linear":
        return 1 + (final - 1) * done
    if kind == "cosine":
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))
    if kind == "step":
        return settings["schedule.gamma"] ** ((t - warmup) // settings["schedule.every"])
    return 1


def make(settings, parameters):
    kind, decay = settings["optimizer"], settings.get("weight_decay", 0)
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=1, momentum=settings.get("momentum", 0), weight_decay=decay,
                               dampening=settings.get("dampening", 0), nesterov=settings.get("nesterov") == "true")
    constructor = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    return constructor(parameters, lr=1, betas=(settings.get("beta1", 0.9), settings.get("beta2", 0.999)),
                       eps=settings.get("eps", 1e-8), weight_decay=decay)


def start(optimizer, parameters, first):
    """Gives torch's optimizer the states that ftopt made up, and its step number."""
    step = int(first["state", "step"][0])
    flat = {name: torch.tensor(values, dtype=torch.float64) for (kind, name), values in first.items() if kind == "state"}
    for parameter, offset in zip(parameters, (0, 16)):
        def part(name):
            return flat[name][offset:offset + parameter.numel()].reshape(parameter.shape).clone()
        prefix = next((n.split(".")[0] for n in flat if n.endswith(".m")), None)
        if prefix:
            optimizer.state[parameter] = {"step": torch.tensor(float(step)), "exp_avg": part(prefix + ".m"),
                                          "exp_avg_sq": part(prefix + ".v")}
        elif "sgd.momentum" in flat:
            optimizer.state[parameter]["momentum_buffer"] = part("sgd.momentum") if step else None
    return step


def check(settings, seed):
    steps = run(settings, seed)
    first = steps[0]
    if seed == FRESH and first["state", "step"][0] != 0:
        raise RuntimeError("FRESH must be a seed that makes step 0")
    x = torch.tensor(first["input", "x"], dtype=torch.float64).reshape(4, 3)
    w = torch.tensor(first["param", "w"], dtype=torch.float64).reshape(2, 3).requires_grad_()
    b = torch.tensor(first["param", "b"], dtype=torch.float64).reshape(1, 2).requires_grad_()
    optimizer = make(settings, [w, b])
    at = start(optimizer, [w, b], first)
    worst = 0
    for step in steps:
        lr = settings.get("lr", 0.001) * rate(settings, at)
        worst = max(worst, abs(step["metric", "lr"][0] - lr) / max(lr, 1e-12))
        optimizer.param_groups[0]["lr"] = lr
        h = x @ w.T + b
        loss = (torch.tanh(h) * h).sum()
        optimizer.zero_grad()
        loss.backward()
        worst = max(worst, abs(step["loss", "loss"][0] - loss.item()))
        if settings.get("clip", 0):
            torch.nn.utils.clip_grad_norm_([w, b], settings["clip"])
        optimizer.step()
        after = step["assign", "params"]  # w at 0, b at 16; what lies between is nobody's
        expected = w.detach().flatten().tolist() + b.detach().flatten().tolist()
        worst = max([worst] + [abs(p - q) for p, q in zip(after[0:6] + after[16:18], expected)])
        at += 1
        assert step["assign", "step"][0] == at
    return worst


def cases():
    for momentum, dampening, nesterov, decay in itertools.product((0, 0.9), (0, 0.3), ("false", "true"), (0, 0.05)):
        if nesterov == "true" and (not momentum or dampening):
            continue
        yield dict(optimizer="sgd", lr=0.1, momentum=momentum, dampening=dampening, nesterov=nesterov, weight_decay=decay)
    for kind, decay, betas, eps in itertools.product(("adam", "adamw"), (0, 0.1), ((0.9, 0.999), (0.5, 0.8)), (1e-8, 0.01)):
        yield dict(optimizer=kind, lr=0.02, weight_decay=decay, beta1=betas[0], beta2=betas[1], eps=eps)
    for schedule, warmup, final in itertools.product(("constant", "step", "linear", "cosine"), (0, 5, 40), (0, 0.1)):
        yield {"optimizer": "adamw", "lr": 0.01, "schedule": schedule, "schedule.warmup": warmup, "schedule.final": final,
               "schedule.every": 2, "schedule.gamma": 0.5}
    for kind, clip in itertools.product(("sgd", "adam"), (0.05, 1, 1000)):
        yield dict(optimizer=kind, lr=0.05, clip=clip, momentum=0.9)


passed = failed = 0
for settings, seed in itertools.product(cases(), (0, FRESH)):
    try:
        worst = check(settings, seed)
    except Exception as error:  # a crash is a failure of this case, not of the rest
        print(f"FAILED {settings} seed {seed}: {type(error).__name__}: {error}")
        failed += 1
        continue
    if worst <= 1e-10:
        passed += 1
    else:
        print(f"FAILED {settings} seed {seed}: off by {worst:.3g}")
        failed += 1
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
