"""Views and other moves of random programs."""
import torch

from values import Reject


class Moves:
    def move(self, x=None):
        r = self.random
        x = x or self.pick()
        choices = ["permute", "permute", "transpose", "reshape", "reshape", "slice", "slice", "pad", "concat", "stack", "split", "unsqueeze",
                   "squeeze", "broadcast", "rearrange", "flatten", "gather"]
        return getattr(self, "move_" + r.choice(choices))(x)

    def move_permute(self, x):
        order = list(range(x.rank))
        self.random.shuffle(order)
        if x.rank < 2 or order == sorted(order):
            raise Reject
        return self.add("permute", [x], None if x.batch is None else order.index(x.batch), "move", order=order)

    def move_transpose(self, x):
        if x.rank < 2:
            raise Reject
        batch = x.batch
        if batch is not None and batch >= x.rank - 2:
            batch = 2 * x.rank - 3 - batch
        return self.add("transpose", [x], batch, "move")

    def move_reshape(self, x):
        if x.batch is None:
            shape = self.shape(x.data.numel())
            if shape == x.shape:
                raise Reject
            return self.add("reshape", [x], None, "move", shape=shape)
        if x.batch != 0:
            raise Reject
        return self.add("reshape", [x], 0, "move", shape=["B", *self.shape(x.data.numel() // x.shape[0])])

    def move_flatten(self, x):
        first = self.random.randint(0, max(x.rank - 1, 0))
        if x.rank < 2 or (x.batch is not None and first <= x.batch):
            raise Reject
        return self.add("flatten", [x], x.batch, "move", **{"from": first})

    def move_slice(self, x):
        cuts, batch, axis = [], x.batch, 0
        for i, n in enumerate(x.shape):
            kind = "all" if i == x.batch or n == 1 else self.random.choice(["all", "all", "range", "range", "step", "index"])
            if kind == "index":
                cuts.append(self.random.randint(-n, n - 1))
                if batch is not None and i < x.batch:
                    batch -= 1
            elif kind == "all":
                cuts.append([None, None, 1])
            else:
                low = self.random.randint(0, n - 1)
                high = self.random.randint(low + 1, n)
                cuts.append([self.random.choice([low, low, None]), self.random.choice([high, high, None, high - n if high < n else None]),
                             self.random.randint(2, 3) if kind == "step" else 1])
            axis += 1
        if all(c == [None, None, 1] for c in cuts):
            raise Reject
        return self.add("slice", [x], batch, "move", cuts=cuts)

    def move_pad(self, x):
        low = [0 if i == x.batch else self.random.choice([0, 0, 1, 2]) for i in range(x.rank)]
        high = [0 if i == x.batch else self.random.choice([0, 0, 1, 2]) for i in range(x.rank)]
        if not any(low + high):
            raise Reject
        value = self.random.choice([0.0, 0.0, 0.75])
        if not x.is_float:
            value = bool(value) if x.data.dtype == torch.bool else 4 * int(value > 0)
        return self.add("pad", [x], x.batch, "move", low=low, high=high, value=value)

    def alike(self, x, axis=None):
        """Other values of the shape of x, but for one axis. Of integers x itself: they are of many types."""
        fits = [v for v in self.values if v.data.dtype == x.data.dtype != torch.int64 and v.rank == x.rank and v.batch == x.batch and
                all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)]
        return self.random.choice(fits) if fits else x

    def move_concat(self, x):
        if not x.free():
            raise Reject
        axis = self.random.choice(x.free())
        parts = [x, *(self.alike(x, axis) for _ in range(self.random.choice([1, 1, 2])))]
        self.random.shuffle(parts)
        return self.add("concat", parts, x.batch, "move", axis=axis)

    def long_rows(self):
        """Parts side by side whose rows are long: each is a loop of its own."""
        x = self.expensive()
        n = self.random.choice([8, 12, 16])
        if x.data.numel() % n or x.batch not in (None, 0):
            raise Reject
        rows = ["B", x.data.numel() // x.shape[0] // n, n] if x.batch == 0 else [x.data.numel() // n, n]
        if 0 in rows:
            raise Reject
        x = self.add("reshape", [x], x.batch, "move", shape=rows)
        shape = [self.program.batch, *rows[1:]] if x.batch == 0 else rows
        times = max(1, -(-512 // x.data.numel()) - 1)
        others = [self.some_like(x, shape) for _ in range(min(times, 4))]
        parts = [x, *others]
        self.random.shuffle(parts)
        return self.add("concat", parts, x.batch, "move", axis=self.random.choice([i for i in range(x.rank) if i != x.batch]))

    def some_like(self, x, shape):
        return self.input("f32", shape[1:]) if x.batch == 0 else self.leaf("param", "f32", shape)

    def move_stack(self, x):
        axis = self.random.randint(0, x.rank)
        batch = x.batch if x.batch is None or axis > x.batch else x.batch + 1
        return self.add("stack", [x, self.alike(x)], batch, "move", axis=axis)

    def move_split(self, x):
        axes = [i for i in x.free() if x.shape[i] > 1]
        if not axes:
            raise Reject
        axis = self.random.choice(axes)
        n = x.shape[axis]
        cut = self.random.randint(1, n - 1)
        parts = [cut, n - cut]
        made = [self.add("split", [x], x.batch, "move", parts=parts, axis=axis, index=i) for i in range(2)]
        if parts[0] == parts[1] and self.chance(0.7):  # a gated unit
            gate = self.add(self.random.choice(["sigmoid", "silu", "tanh"]), [made[1]], x.batch, "expensive")
            return self.add("mul", [made[0], gate], x.batch, "point")
        return made[0]

    def move_unsqueeze(self, x):
        axis = self.random.randint(0, x.rank)
        batch = x.batch if x.batch is None or axis > x.batch else x.batch + 1
        return self.add("unsqueeze", [x], batch, "move", axis=axis)

    def move_squeeze(self, x):
        ones = [i for i in x.free() if x.shape[i] == 1]
        if not ones:
            raise Reject
        axis = self.random.choice(ones)
        return self.add("squeeze", [x], x.batch - (x.batch > axis) if x.batch is not None else None, "move", axis=axis)

    def move_broadcast(self, x):
        shape = [self.size() if n == 1 and i != x.batch else n for i, n in enumerate(x.shape)]
        if x.batch is None and self.chance(0.4):
            shape = [self.size(), *shape]
        if shape == x.shape:
            raise Reject
        return self.add("broadcast_to", [x], x.batch, "move", shape=["B" if i == x.batch else n for i, n in enumerate(shape)],
                        **({} if x.batch is None else {"samples": x.batch}))

    def move_rearrange(self, x):
        names = "abcdefg"[: x.rank]
        left, sizes, flat = [], {}, []
        for i, (n, size) in enumerate(zip(names, x.shape)):
            divisors = [d for d in range(2, size) if size % d == 0]
            if divisors and i != x.batch and self.chance(0.6):
                sizes[n + "0"] = self.random.choice(divisors)
                left.append(f"({n}0 {n}1)")
                flat += [n + "0", n + "1"]
            else:
                left.append(n)
                flat.append(n)
        right = list(flat)
        self.random.shuffle(right)
        batch = None if x.batch is None else names[x.batch]
        groups = [[n] for n in right]
        if len(groups) > 1 and self.chance(0.6):
            at = self.random.randint(0, len(groups) - 2)
            if batch not in groups[at] + groups[at + 1]:
                groups[at : at + 2] = [groups[at] + groups[at + 1]]
        pattern = " ".join(left) + " -> " + " ".join(f"({' '.join(g)})" if len(g) > 1 else g[0] for g in groups)
        return self.add("rearrange", [x], None if batch is None else groups.index([batch]), "move", pattern=pattern, sizes=sizes)

    def move_gather(self, x):
        if x.batch is not None or x.rank < 1:
            raise Reject
        index = self.input(self.random.choice(["i32", "i32", "i64"]), [self.size()] if self.chance(0.5) else [], scale=x.shape[0])
        return self.add(self.random.choice(["gather", "lookup"]), [x, index], index.batch, "move")
