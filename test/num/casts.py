"""Every cast, and every cast of a cast, of integers at the ends of the types and of floats with infinities and NaN: as
docs/ir.md says, to the bit, on the CPU, fused or not, and in the simulator."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
INTEGERS = {"u8": (0, 2**8 - 1), "i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-(2**63), 2**63 - 1)}
TYPES = [*FLOATS, *INTEGERS, "bool"]
NUMBERS = {
    "i64": numpy.array(sorted({sign * (2**bits + more) for bits in (0, 3, 7, 8, 11, 15, 16, 24, 31, 32, 40) for more in (-1, 0, 1)
                               for sign in (1, -1)}), "i8"),
    "f32": numpy.array([0, -0.0, 0.5, -0.5, 1.5, -1.5, 127.9, 128, 200.7, 255, 255.9, 256, -1, -200, 1e4, 7e4, -7e4, 2.5e9, -2.5e9, 3e9, 5e9,
                        1e19, -1e19, 1e30, 1e-30, 1e-7, 1.0029297, numpy.inf, -numpy.inf, numpy.nan], "f4"),
}
# between two numbers of bf16 or of f16, and beside: of even and odd ones, of f16's smallest and largest too
BETWEEN = [(1 + place / 2**bits + more) * 2.0**exponent for bits, exponents in ((7, (0, 100, -126)), (10, (0, 14, 15, -14)))
           for exponent in exponents for place in (0.5, 1.5, 2.5, 2**bits - 0.5) for more in (0, -(2.0**-23), 2.0**-23)]
BETWEEN += [place * 2.0**-24 + more for place in (0.5, 1.5, 2.5, 3.5) for more in (0, -(2.0**-48), 2.0**-48)]
NUMBERS["f32"] = numpy.concatenate([NUMBERS["f32"], numpy.array(BETWEEN, "f4"), -numpy.array(BETWEEN, "f4")])


def is_float(value):
    return isinstance(value, torch.Tensor)


def cast(to, value):
    """Floats are tensors, integers and flags lists of Python's numbers."""
    if to == "bool":
        return [x != 0 for x in (value.tolist() if is_float(value) else value)]
    if to in FLOATS and is_float(value):
        return value.float().to(FLOATS[to]) if to != "f64" else value.double()
    if to in FLOATS:
        return cast(to, torch.tensor(value, dtype=torch.float64)) if to != "f32" else torch.tensor(value, dtype=torch.int64).float()
    low, high = INTEGERS[to]
    if is_float(value):  # towards 0; what is outside of the type becomes its nearest, NaN 0
        return [0 if x != x else low if x < low else high if x > high else int(x) for x in value.tolist()]
    return [(int(x) - low) % (high - low + 1) + low for x in value]


class Casts(support.Case):
    def check(self, kind):
        numbers = NUMBERS[kind]
        # an output of each type; a cast to f64 behind it could take its place, but floats have no other way out
        lines = [f"  to_{to} = stack([{', '.join(f'f64({to}({first}(x)))' if to in FLOATS else f'{to}({first}(x))' for first in TYPES)}], "
                 f"axis=1)\n  output to_{to}\n" for to in TYPES]
        source = (f"model M(x: {kind}[B]) {{\n  param p: [1] = ones\n{''.join(lines)}  loss = sum(f32(to_f64) * p)\n}}\n"
                  f"train {{ batch = {len(numbers)} }}\n")
        start = numbers.tolist() if kind == "i64" else torch.from_numpy(numbers)
        numpy.save(self.path("x.npy"), numbers)
        support.write_safetensors(self.path("one"), {"p": numpy.ones(1, "f4")})
        for flags, name, device in (((), "m.so", "cpu"), (("--disable=fuse",), "u.so", "cpu"), ((), "m.ptx", "sim")):
            artifact = self.compile(source, *flags, name=name)
            outputs = [item for to in TYPES for item in ("--output", f"to_{to}={self.path(to)}.npy")]
            support.run("ftrun", "predict", artifact, "--weights", self.path("one"), "--input", f"x={self.path('x.npy')}", *outputs,
                        "--device", device)
            for to in TYPES:
                have = numpy.load(self.path(to + ".npy")).astype("f8")
                for i, first in enumerate(TYPES):
                    want = numpy.array(cast("f64", cast(to, cast(first, start))), "f8")
                    with self.subTest(f"{to}({first}(x)) of {kind}", name=name):
                        wrong = ~((have[:, i] == want) | (numpy.isnan(have[:, i]) & numpy.isnan(want)))
                        self.assertFalse(wrong.any(), numpy.stack([numbers[wrong], have[wrong, i], want[wrong]], 1).tolist())

    def test_of_integers(self):
        self.check("i64")

    def test_of_floats(self):
        self.check("f32")


if __name__ == "__main__":
    support.main()
