"""Programs that are wide, deep or of the highest rank, beyond what one kernel holds: they compile for both targets,
and train as they do without fusion, where every node is a kernel. With FT_TURN each for one of the targets."""
import os
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

STEPS = 2
HEAD = '  loss = mean(cross_entropy(Linear(4, name="o")(h), y))\n'
FIRST = '  h = Linear(8, name="l")(x)\n'


def repeated(count, statement):
    return FIRST + "  repeat i in 0..%d as r { %s }\n" % (count, statement) + HEAD


def lines(count, line, head=FIRST, tail=HEAD):
    return head + "".join(line.format(i=i, n=i + 1) for i in range(count)) + tail


def parts(count):
    return "[" + ", ".join("p%d" % i for i in range(count)) + "]"


# name: the model's body, how its data looks
PROGRAMS = {
    # more sums in one row or column than a kernel has accumulators
    "softmax chain": repeated(40, "h = h + softmax(h * (i + 1))"),
    "row maxima": repeated(50, "h = h + 0.01 * max(h * (i + 1), axis=-1, keepdims=true)"),
    "column sums": FIRST + "  s = sum(h, axis=0, keepdims=true)\n  repeat i in 0..50 as r { s = s + sum(tanh(h * (i + 1)), axis=0, keepdims=true) }\n  h = h + s\n" + HEAD,
    "column sums, f64": FIRST + "  d = f64(h)\n  s = sum(d, axis=0, keepdims=true)\n  repeat i in 0..40 as r { s = s + sum(tanh(d * (i + 1)), axis=0, keepdims=true) }\n  h = h + f32(s)\n" + HEAD,
    "column moments": repeated(20, "h = h + 0.1 * (h * (i + 1) - mean(h * (i + 1), axis=0, keepdims=true)) * rsqrt(var(h * (i + 1), axis=0, keepdims=true) + 1)"),
    "argmax metrics": lines(40, "  metric m{i} = mean(argmax(h * {n}, axis=-1) == y)\n"),
    "metrics": lines(50, "  metric m{i} = mean(h * {n} > 1)\n"),
    "outputs": lines(40, "  o{i} = softmax(h * {n} + 1)\n  output o{i}\n"),
    # many operands
    "concat, narrow": lines(70, "  p{i} = h[:, {i} % 7:{i} % 7 + 2] * {n}\n", tail="  h = concat(" + parts(70) + ", axis=1) * 0.01\n" + HEAD),
    "concat, wide": lines(40, '  p{i} = tanh(x * {n})\n', tail="  h = concat(" + parts(40) + ", axis=1)\n" + HEAD, head=""),
    "concat of rows": lines(70, "  p{i} = h * {n}\n", tail="  h = sum(concat(" + parts(70) + ", axis=0), axis=0, keepdims=true) * 0.001 + h\n" + HEAD),
    "stack": lines(70, "  p{i} = h[:, {i} % 8] * {n}\n", tail="  h = stack(" + parts(70) + ", axis=1) * 0.01\n" + HEAD),
    "concat of products": lines(30, '  p{i} = Linear(3, name="c{i}")(x)\n', head="", tail="  h = concat(" + parts(30) + ", axis=1)\n" + HEAD),
    "split": '  h = Linear(300, name="l")(x)\n  ' + parts(150)[1:-1] + " = split(h, 150, axis=-1)\n  h = concat([" + ", ".join("p%d * %d" % (149 - i, i % 5 + 1) for i in range(150)) + "], axis=1)\n" + HEAD,
    "sum of layers": "  h = " + " + ".join('Linear(8, name="l%d")(x)' % i for i in range(40)) + "\n" + HEAD,
    "sum of parameters": lines(150, "  param p{i}: [8] = normal(0.02)\n  h = h + p{i}\n", head="  h = x\n"),
    "no elements": FIRST + "  e = h[:, 3:3]\n  output e\n  h = concat([h[:, :0], h, e], axis=1) + sum(e, axis=1, keepdims=true)\n" + HEAD,
    # deep
    "chain, dear": repeated(100, "h = tanh(h + 0.01)"),
    "dropouts": repeated(60, "h = dropout(h, 0.01) + 0.01 * x"),
    "chain, cheap": repeated(1000, "h = h * 1.001 + x"),
    "recurrent": '  w = Linear(8, name="w")\n  u = Linear(8, name="u")\n  h = s[:, 0]\n  repeat t in 0..60 as r { h = tanh(w(h) + u(s[:, t])) }\n' + HEAD,
    # rank
    "rank 8": '  h = reshape(Linear(256, name="l")(x), B, 2, 2, 2, 2, 2, 2, 4)\n  h = softmax(permute(h, 0, 7, 6, 5, 4, 3, 2, 1))\n'
    "  h = h * transpose(h)\n  h = flatten(h, from=1)\n" + HEAD,
    "rank 8 product": '  a = reshape(Linear(128, name="l")(x), B, 2, 1, 2, 2, 2, 2, 4)\n  b = reshape(Linear(128, name="m")(x), B, 1, 2, 2, 2, 2, 4, 2)\n'
    "  h = flatten(a @ b, from=1)\n" + HEAD,
}


def model(body):
    return "model M(x: f32[B, 8], s: f32[B, 60, 8], y: i32[B]) {\n" + body + '}\ndata D { train = npy("x.npy", "s.npy", "y.npy"); shuffle = false }\ntrain { batch = 4; steps = %d; seed = 3; optimizer = sgd(lr=0.1) }\n' % STEPS


class Limits(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(1)
        numpy.save(self.path("x.npy"), random.randn(8, 8).astype(numpy.float32))
        numpy.save(self.path("s.npy"), random.randn(8, 60, 8).astype(numpy.float32))
        numpy.save(self.path("y.npy"), random.randint(0, 4, 8).astype(numpy.int32))

    def train(self, artifact, device, threads=0):
        name = os.path.basename(artifact)
        log, weights = self.path(name + ".jsonl"), self.path(name + ".safetensors")
        support.run("ftrun", artifact, "--device", device, "--threads", threads, "--data", self.folder, "--log-jsonl", log, "--save", weights, "--set", "train.log.every=1")
        return [line for line in support.read_jsonl(log) if "loss" in line], support.read_safetensors(weights)

    def check(self, body, number):
        want, weights = self.train(self.compile(model(body), "--disable=fuse", name="plain.so"), "cpu", threads=1)
        for turn, name, device, threads in ((0, "fused.so", "cpu", (1, 7)), (1, "fused.ptx", "sim", (0,))):
            if support.has_its_turn(number + turn, 2):
                artifact = self.compile(model(body), name=name)
                for count in threads:
                    self.compare(name, want, weights, *self.train(artifact, device, count))

    def compare(self, name, want, weights, have, mine):
        self.assertEqual(len(have), STEPS)
        for a, b in zip(want, have):
            for key in a.keys() - {"samples_per_s"}:
                self.assertAlmostEqual(a[key], b[key], delta=1e-4 * max(1, abs(a[key])), msg=f"{name} {key}")
        for key, value in weights.items():
            numpy.testing.assert_allclose(mine[key], value, rtol=2e-4, atol=2e-5, err_msg=f"{name} {key}")


def add(name, body, number):
    setattr(Limits, "test_" + "".join(c if c.isalnum() else "_" for c in name), lambda self: self.check(body, number))


for number, (name, body) in enumerate(PROGRAMS.items()):
    add(name, body, number)
if __name__ == "__main__":
    support.main()
