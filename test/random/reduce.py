"""Makes a program that fails smaller, as long as it fails (delta debugging, Zeller and Hildebrandt 2002): recipe, roots and
statements are left out, values replaced by their operands or by fresh params, sizes made smaller."""
import torch

from operations import OPERATIONS
from program import Leaf


def tidy(p):
    """Without what no root needs. A model needs an input and a param."""
    needed = set(p.loss + p.metrics + p.outputs) | set(p.updates.values()) | set(p.updates)
    kept = []
    for s in reversed(p.statements):
        if s.name in needed:
            needed.update(s.args)
            kept.append(s)
    if len(kept) < len(p.statements):
        p.regions = []
    p.statements = kept[::-1]
    leaves = [leaf for leaf in p.leaves if leaf.name in needed]
    for kind in ("input", "param"):
        if not any(leaf.kind == kind for leaf in leaves):
            have = next((leaf for leaf in p.leaves if leaf.kind == kind and not leaf.hidden), None)
            leaves.append(have or Leaf(kind, kind[0] + "0", "f32", [p.batch] if kind == "input" else [1]))
    p.leaves = leaves
    return p


def shapes(p):
    """The value of each name; None: it cannot be computed, or is not defined everywhere."""

    def watch(s, args, value):
        kink = OPERATIONS[s.op].kink
        if not value.numel() or (value.is_floating_point() and not value.isfinite().all()) or (kink and not kink(args, dict(s.attrs, training=True)) > 0):
            raise ValueError

    try:
        with torch.no_grad():
            return p.evaluate(p.leaf_values(), watch=watch)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError, TypeError, AssertionError):
        return None


def rename(p, old, new):
    for s in p.statements:
        s.args = [new if a == old else a for a in s.args]
    swap = lambda names: [new if n == old else n for n in names]
    p.loss, p.metrics, p.outputs = swap(p.loss), swap(p.metrics), []  # an output is called as its value
    p.updates = {state: new if n == old else n for state, n in p.updates.items()}


def dtype_of(value):
    return "bool" if value.dtype == torch.bool else "f32" if value.is_floating_point() else "i32"


def fewer_settings(p):
    for key, plain in {"optimizer": "sgd(lr=0.05)", "precision": "f32"}.items():
        if p.settings.get(key) != plain:
            q = p.copy()
            q.settings[key] = plain
            yield q
    for key in list(p.settings):
        if key not in ("optimizer", "precision"):
            q = p.copy()
            del q.settings[key]
            yield q
    if p.regions:
        q = p.copy()
        q.regions = []
        yield q


def fewer_roots(p):
    for what in ("metrics", "outputs", "loss"):
        names = getattr(p, what)
        if len(names) > (what == "loss"):
            for name in names:
                q = p.copy()
                getattr(q, what).remove(name)
                yield q
    for state in p.updates:
        q = p.copy()
        del q.updates[state]
        yield q


def tied(p):
    """What has a weight, and the weights' numbers, which go the same way: none of these is replaced without the other."""
    names = {s.name for s in p.statements if s.op in ("weighted", "spread_like")}
    for s in p.statements:
        if s.op not in ("reduce_weighted", "weighted", "unweighted", "ones_like") and names.intersection(s.args):
            names.add(s.name)
    return names


def by_leaf(p):
    """A value becomes a param (an input, if it is no float), and all that made it goes."""
    known, fixed = shapes(p), tied(p)
    for s in reversed(p.statements):
        if s.name in fixed:
            continue
        value = known[s.name]
        q = p.copy()
        name, dtype = "q" + s.name[1:], dtype_of(value)
        if q.leaf(name) or (dtype != "f32" and (value.dim() == 0 or value.shape[0] != p.batch)):
            continue
        most = 2.0 if dtype != "i32" else value.max().item() + 1
        q.leaves.append(Leaf("param" if dtype == "f32" else "input", name, dtype, value.shape, scale=min(most, 1.0) if dtype == "f32" else most))
        if s.name in q.loss and value.dim():
            continue
        rename(q, s.name, name)
        q.statements = [t for t in q.statements if t.name != s.name]
        yield q


def by_operand(p):
    known, fixed = shapes(p), tied(p)
    for s in reversed(p.statements):
        if s.name in fixed:
            continue
        for a in s.args:
            if known[a].shape == known[s.name].shape and known[a].dtype == known[s.name].dtype:
                q = p.copy()
                rename(q, s.name, a)
                q.statements = [t for t in q.statements if t.name != s.name]
                yield q


def by_loss(p):
    """The mean of an inner value as the whole loss."""
    from program import Statement

    known, fixed = shapes(p), tied(p)
    for s in p.statements:
        if s.name not in fixed and known[s.name].is_floating_point() and known[s.name].dim() and len(p.statements) > 2:
            q = p.copy()
            q.statements.append(Statement("z0", "mean", [s.name], {}))
            q.loss, q.metrics, q.outputs = ["z0"], [], []
            if len(tidy(q).statements) < len(p.statements):
                yield q


def replaced(value, old, new):
    if isinstance(value, bool):
        return value
    if isinstance(value, list):
        return [replaced(v, old, new) for v in value]
    return new if isinstance(value, int) and value == old else value


def smaller_sizes(p):
    sizes = sorted({n for leaf in p.leaves for n in leaf.shape if n > 1}, reverse=True)
    for old in sizes:
        for new in sorted({1, 2, 3, old // 2, old - 1} - {0}):
            if new >= old:
                continue
            for whole in (True, False):
                q = p.copy()
                if q.batch == old and whole:
                    q.batch = new
                for leaf in q.leaves:
                    first = leaf.kind == "input"
                    leaf.shape = [q.batch if first and i == 0 else replaced(n, old, new) for i, n in enumerate(leaf.shape)]
                if whole:
                    for s in q.statements:
                        s.attrs = {k: v if k in ("axis", "order", "cuts", "index", "axes") else
                                   {n: replaced(m, old, new) for n, m in v.items()} if isinstance(v, dict) else replaced(v, old, new)
                                   for k, v in s.attrs.items()}
                yield q


def reduce(program, fails, most=400, note=lambda text: None):
    """The smallest program found for which `fails` is still true."""
    best, tried = tidy(program.copy()), 0
    if not fails(best):
        best = program.copy()
    improved = True
    while improved and tried < most:
        improved = False
        for way in (fewer_roots, fewer_settings, by_loss, by_leaf, by_operand, smaller_sizes):
            again = True
            while again and tried < most:
                again = False
                for q in way(best):
                    if way is not fewer_settings:
                        tidy(q)
                    if shapes(q) is None or tried >= most or q.text() == best.text():
                        continue
                    tried += 1
                    if fails(q):
                        best, again, improved = q, True, True
                        note(f"{way.__name__}: {len(best.statements)} statements")
                        break
    return best
