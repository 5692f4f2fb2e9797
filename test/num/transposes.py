"""Transposes of matrices that are larger than a tile, ragged in each direction, in each type, with work before and behind, beside operands
in the result's order, in concatenations, with several results: against numpy, to the bit (the values are small whole numbers)."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """model M(x: f32[B, {shape}], x2: f32[B, {shape}], z: f32[B, {turned}]) {{
  param w: [1] = normal(1)
{lines}
  loss = sum(w)
}}
data D {{ train = npy("x.npy", "x2.npy", "z.npy") }}
train {{ model = M; data = D; batch = {batch}; optimizer = sgd(lr=0.01); eval every 0 epochs }}
"""
EXTENTS = [1, 2, 3, 15, 16, 17, 20, 31, 33, 48, 63, 64, 65, 100, 128, 130, 196]
TYPES = {"f32": numpy.float32, "bf16": numpy.float32, "f16": numpy.float16, "f64": numpy.float64, "i32": numpy.int32, "i64": numpy.int64, "u8": numpy.uint8}
FORMS = {  # of the transposed t, z and a transposed t2 of the same types; axis is a place among the dimensions
    "{t}": lambda t, z, t2, axis: t,
    "{t} * {z} + {t}": lambda t, z, t2, axis: t * z + t,
    "{t} + {t2} * {z}": lambda t, z, t2, axis: t + t2 * z,
    "concat([{t}, {z}], axis={axis})": lambda t, z, t2, axis: numpy.concatenate([t, z], axis),
    "concat([{z}, {t} + {t2}, {t}], axis={axis})": lambda t, z, t2, axis: numpy.concatenate([z, t + t2, t], axis),
    "concat([{t2}[:, :1], {t}], axis=1)": lambda t, z, t2, axis: numpy.concatenate([t2[:, :1], t], 1),
    "({t})[:, ::2] + ({z})[:, ::2]": lambda t, z, t2, axis: t[:, ::2] + z[:, ::2],
    "{t} + max({z}, axis=-1, keepdims=true)": lambda t, z, t2, axis: t + z.max(-1, keepdims=True),
}
PROGRAMS, CASES = (12 if "FT_TURN" in os.environ else 60), 4
draw = numpy.random.RandomState(int(os.environ.get("FT_TURN", "1")))


def one_of(choices):
    choices = list(choices)
    return choices[draw.randint(len(choices))]


def drawn_shape():
    while True:
        shape = [one_of(EXTENTS) for _ in range(one_of((2, 2, 3, 4)))]
        perm = list(draw.permutation(len(shape)))
        if 256 <= numpy.prod(shape) <= 60_000 and perm[-1] != len(shape) - 1:
            return shape, [0] + [int(i) + 1 for i in perm]


def text(shape):
    return ", ".join(str(n) for n in shape)


class Transposes(support.Case):
    def program(self, *flags, device="cpu", end=".so", most=None):
        shape, perm = drawn_shape()
        while most and numpy.prod(shape) > most:
            shape, perm = drawn_shape()
        turned = [shape[i - 1] for i in perm[1:]]
        batch, rows = one_of((1, 2, 3)), one_of((1, 3, 4))
        data = {name: draw.randint(0, 8, [max(batch, rows)] + list(of)).astype(numpy.float32) for name, of in (("x", shape), ("x2", shape), ("z", turned))}
        for name, value in data.items():
            numpy.save(self.path(name + ".npy"), value)
        lines, expected = [], {}
        for case in range(CASES):
            (dtype, numbers), (form, function), axis = one_of(TYPES.items()), one_of(FORMS.items()), draw.randint(1, len(perm))
            before = one_of(("{}", "{} * 3", "relu({} - 1)"))
            pre = {"{}": lambda x: x, "{} * 3": lambda x: x * 3, "relu({} - 1)": lambda x: numpy.maximum(x - 1, 0)}[before]
            t, t2 = (f"permute({dtype}({before.format(name)}), ({text(perm)}))" for name in ("x", "x2"))
            lines.append(f"  output y{case} = f32({form.format(t=t, t2=t2, z=f'{dtype}(z)', axis=axis)})")
            values = [numpy.transpose(pre(data[name][:rows]), perm).astype(numbers) for name in ("x", "x2")]
            expected[f"y{case}"] = function(values[0], data["z"][:rows].astype(numbers), values[1], axis).astype(numpy.float32)
        source = MODEL.format(shape=text(shape), turned=text(turned), lines="\n".join(lines), batch=batch)
        artifact = self.compile(source, *flags, name="model" + end)
        support.run("ftrun", artifact, "--device", device, "--steps", 1, "--data", self.folder, "--save", self.path("w"), cwd=self.folder)
        inputs = []
        for name, value in data.items():
            numpy.save(self.path(name + ".npy"), value[:rows])
            inputs += ["--input", f"{name}=" + self.path(name + ".npy")]
        threads = ["--threads", one_of((1, 2, 5))] if device == "cpu" else []
        outputs = [word for name in expected for word in ("--output", f"{name}=" + self.path(name + ".npy"))]
        support.run("ftrun", "predict", artifact, "--device", device, "--weights", self.path("w"), *inputs, *outputs, *threads, cwd=self.folder)
        for name, value in expected.items():
            got = numpy.load(self.path(name + ".npy"))
            self.assertEqual(got.shape, value.shape, source)
            self.assertTrue((got == value).all(), f"{name} of\n{source}")

    def test_cpu(self):
        for i in range(PROGRAMS):
            self.program("--cpu", one_of(("native", "x86-64", *support.levels())), *one_of(((), ("--disable=fuse",), ("--disable=concat_parts",), ("--check-memory",))))

    def test_simulator(self):
        for i in range(PROGRAMS // 4):
            self.program("--gpu", one_of(("sm_80", "sm_90a")), device="sim", end=".ptx", most=10_000)


if __name__ == "__main__":
    support.main()
