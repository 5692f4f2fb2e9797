"""The same program in other words: what is inserted changes no value. Needs no oracle: the disguised program must give
what the plain one gives, to rounding. And the same samples twice, weighted so that each counts once in all."""
import random

import torch

from program import Leaf, Statement


def there_and_back(r, p, value, name, fresh):
    """Statements that make `name` again, and the name of what they make."""
    shape, order = list(value.shape), list(range(value.dim()))
    one, two, three = fresh(), fresh(), fresh()
    ways = ["reshape", "flat"]
    if value.is_floating_point():
        ways += ["plus", "times", "negate", "choose", "minus"]
    if value.dim() >= 1:
        ways += ["stack"]
    if value.dim() >= 2:
        ways += ["permute", "permute", "transpose"]
    if any(n > 1 for n in shape):
        ways += ["split", "split", "pad"]
    way = r.choice(ways)
    if way in ("reshape", "flat"):
        other = [value.numel()] if way == "flat" else shape[::-1] + [1]
        return [Statement(one, "reshape", [name], {"shape": other}), Statement(two, "reshape", [one], {"shape": shape})] if shape else []
    if way == "permute":
        r.shuffle(order)
        back = [order.index(i) for i in range(len(order))]
        return [Statement(one, "permute", [name], {"order": order}), Statement(two, "permute", [one], {"order": back})]
    if way == "transpose":
        return [Statement(one, "transpose", [name], {}), Statement(two, "transpose", [one], {})]
    if way in ("plus", "minus"):
        return [Statement(one, "add_number" if way == "plus" else "sub_number", [name], {"value": 0})]
    if way == "times":
        return [Statement(one, "mul_number", [name], {"value": 1})]
    if way == "negate":
        return [Statement(one, "neg", [name], {}), Statement(two, "neg", [one], {})]
    if way == "choose":
        return [Statement(one, "at_least", [name, name], {}), Statement(two, "where", [one, name, name], {})]
    if way == "stack":
        axis = r.randint(0, len(shape))
        return [Statement(one, "stack", [name, name], {"axis": axis}),
                Statement(two, "slice", [one], {"cuts": [r.randint(0, 1) if i == axis else [None, None, 1] for i in range(len(shape) + 1)]})]
    axis = r.choice([i for i, n in enumerate(shape) if n > 1])
    cut = r.randint(1, shape[axis] - 1)
    if way == "pad":
        low = [r.randint(0, 2) for _ in shape]
        cuts = [[a, a + n, 1] for a, n in zip(low, shape)]
        return [Statement(one, "pad", [name], {"low": low, "high": [r.randint(0, 2) for _ in shape], "value": 0.5} if value.is_floating_point() else
                          {"low": low, "high": [0] * len(shape), "value": 0}), Statement(two, "slice", [one], {"cuts": cuts})]
    parts = {"parts": [cut, shape[axis] - cut], "axis": axis}
    return [Statement(one, "split", [name], dict(parts, index=0)), Statement(two, "split", [name], dict(parts, index=1)),
            Statement(three, "concat", [one, two], {"axis": axis})]


COMMUTE = ("add", "mul", "maximum", "minimum", "and", "or", "equal")


def disguise(program, seed):
    r = random.Random(seed * 7 + 3)
    p = program.copy()
    p.regions = []
    with torch.no_grad():
        known = p.evaluate(p.leaf_values())
    count = [0]

    def fresh():
        count[0] += 1
        return f"d{count[0]}"

    for s in p.statements:
        if s.op in COMMUTE and r.random() < 0.5:
            s.args.reverse()
    names = [leaf.name for leaf in p.leaves if not leaf.hidden and leaf.dtype == "f32"] + [s.name for s in p.statements if not s.op.startswith("declare")]
    for name in r.sample(names, min(len(names), r.randint(1, 4))):
        made = there_and_back(r, p, known[name], name, fresh)
        if not made:
            continue
        last = made[-1].name
        at = next((i + 1 for i, s in enumerate(p.statements) if s.name == name), 0)
        for s in p.statements[at:]:
            if r.random() < 0.7:  # some readers read the plain one
                s.args = [last if a == name else a for a in s.args]
        p.loss = [last if n == name else n for n in p.loss]
        p.statements[at:at] = made
        for s in made:
            known[s.name] = known[name]
    return p


SAME_SHAPE = ("mse", "l1", "huber", "bce_with_logits")  # their operands do not broadcast


def samples_axis(p):
    """The axis along which each value has the samples; none: it has none. None: rows that are no samples are as many by chance, and meet
    samples: with twice the samples PyTorch refuses the program, or it is another one."""
    try:
        with torch.no_grad():
            one, two = (p.evaluate(p.leaf_values(rows)) for rows in (p.batch, 2 * p.batch))
    except (RuntimeError, ValueError):
        return None
    axis = {name: axes[0] for name in one if (axes := [i for i, (n, m) in enumerate(zip(one[name].shape, two[name].shape)) if n != m])}
    if any(len({axis.get(a) for a in s.args}) > 1 for s in p.statements if s.op in SAME_SHAPE):
        return None  # of a batch of 1 only they have one shape
    return axis


def twice(program, seed):
    """Each sample twice, with weights that add up to 1 (or both a half): the same loss, the same gradients. None: the loss is no mean
    over samples, or more than the loss depends on the batch."""
    kinds = ("mean", "cross_entropy_mean", "weighted_mean")
    made_by = {s.name: s for s in program.statements}
    if not program.samplewise or program.updates or any(made_by[n].op not in kinds for n in program.loss if n in made_by):
        return None
    axis = samples_axis(program)
    if axis is None:
        return None
    p = program.copy()
    p.batch, p.regions, p.outputs, p.metrics = 2 * p.batch, [], [], []
    for leaf in p.leaves:
        if leaf.kind == "input":
            leaf.shape[0], leaf.twin = p.batch, "same"
    p.leaves.append(Leaf("input", "h", "f32", [p.batch], scale=0.9, positive=True, twin=random.Random(seed * 5 + 2).choice(["rest", "half"])))
    for s in [s for s in p.statements if s.name in p.loss]:
        at = axis.get(s.args[0])
        if at is None:
            continue
        of = program.evaluate(program.leaf_values())[s.args[0]]
        weight = Statement(f"h{s.name}", "reshape", ["h"], {"shape": ["B" if i == at else 1 for i in range(of.dim())]})
        p.statements.insert(p.statements.index(s), weight)
        s.op, s.args = s.op + "_by", [*s.args, weight.name]
    return p if is_same_loss(program, p) else None


def is_same_loss(p, q):
    """In PyTorch. What the reducer has made smaller may mix samples."""
    try:
        have, want = q.gradients()[0], p.gradients()[0]
    except (RuntimeError, IndexError):
        return False
    return abs(have - want) <= 1e-9 * max(1, abs(want))
