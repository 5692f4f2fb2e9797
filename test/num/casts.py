"""Every cast, and every cast of a cast, of integers at the ends of the types and of floats with infinities and NaN: as
docs/ir.md says, to the bit, on the CPU, fused or not, and in the simulator."""
import math
import os
import sys
from fractions import Fraction

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FLOATS = {"f16": (11, -24, 65504), "bf16": (8, -133, 255 * 2**120), "f32": (24, -149, (2**24 - 1) * 2**104), "f64": (53, -1074, (2**53 - 1) * 2**971)}
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


# so near to the middle of two that f32 rounds them to it; beyond the ends of f16 and bf16, and just within
TRAPS = [(1 + place / 2**bits) * 2.0**exponent * (1 + more) for bits, exponents in ((7, (0, 30, -126)), (10, (0, 14, -14))) for exponent in exponents
         for place in (0.5, 1.5, 2.5) for more in (2.0**-40, -(2.0**-40))]
TRAPS += [place * 2.0**-24 * (1 + more) for place in (0.5, 1.5, 2.5) for more in (2.0**-40, -(2.0**-40))]
TRAPS += [place * 2.0**-133 * (1 + more) for place in (0.5, 1.5, 2.5) for more in (2.0**-40, -(2.0**-40))]
TRAPS += [65520.0, math.nextafter(65520.0, 0), 511 * 2.0**119, math.nextafter(511 * 2.0**119, 0), 1e39, 1e300, 1e-300]
NUMBERS["f64"] = numpy.array([*TRAPS, *(-x for x in TRAPS), *NUMBERS["f32"].tolist()], "f8")
MIDDLES = [sign * (2**bits + place * 2 ** (bits - 8) + more) for bits in (26, 30, 31, 54, 62) for place in (1, 3) for more in (-1, 0, 1) for sign in (1, -1)]
MIDDLES += [sign * (2**62 + 2**38 + more) for more in (-1, 0, 1) for sign in (1, -1)]  # of f32; more is what f64 does not hold
NUMBERS["i64"] = numpy.concatenate([NUMBERS["i64"], numpy.array(MIDDLES, "i8")])


def nearest(to, x):
    """To the nearest float, exactly; halves to even."""
    bits, least, largest = FLOATS[to]
    if x == 0 or not math.isfinite(x):
        return float(x)
    exact = Fraction(x)
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    exponent -= abs(exact) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    rounded = round(exact / unit) * unit
    return math.copysign(math.inf, x) if abs(rounded) > largest else float(rounded)


def cast(to, value):
    """Of a list of Python's numbers: floats, integers or flags."""
    if to == "bool":
        return [x != 0 for x in value]
    if to in FLOATS:
        return [nearest(to, x) for x in value]
    low, high = INTEGERS[to]  # floats towards 0; what is outside of the type becomes its nearest, NaN 0
    if value and isinstance(value[0], float):
        return [0 if x != x else low if x < low else high if x > high else int(x) for x in value]
    return [(int(x) - low) % (high - low + 1) + low for x in value]


class Casts(support.Case):
    def check(self, kind):
        numbers = NUMBERS[kind]
        # an output of each type; a cast to f64 behind it could take its place, but floats have no other way out
        lines = [f"  to_{to} = stack([{', '.join(f'f64({to}({first}(x)))' if to in FLOATS else f'{to}({first}(x))' for first in TYPES)}], "
                 f"axis=1)\n  output to_{to}\n" for to in TYPES]
        source = (f"model M(x: {kind}[B]) {{\n  param p: [1] = ones\n{''.join(lines)}  loss = sum(f32(to_f64) * p)\n}}\n"
                  f"train {{ batch = {len(numbers)} }}\n")
        start = numbers.tolist()
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
                    want = numpy.array([float(x) for x in cast(to, cast(first, start))], "f8")
                    with self.subTest(f"{to}({first}(x)) of {kind}", name=name):
                        wrong = ~((have[:, i] == want) | (numpy.isnan(have[:, i]) & numpy.isnan(want)))
                        self.assertFalse(wrong.any(), numpy.stack([numbers[wrong], have[wrong, i], want[wrong]], 1).tolist())

    def test_of_integers(self):
        self.check("i64")

    def test_of_floats(self):
        self.check("f32")

    def test_of_doubles(self):
        self.check("f64")


if __name__ == "__main__":
    support.main()
