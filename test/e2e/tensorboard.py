"""Event files as TensorBoard itself and tbparse (PyPI, in the environment that scripts/watch-peers makes) read them:
every record by TensorBoard's loader with its sums, scalars equal to those of the JSON lines, histograms to numpy's of
the saved weights, hyperparameters and the graph, one run, and resumed runs without a step twice."""
import base64
import glob
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys

import numpy
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 6], y: i32[B]) {
  h = relu(Linear(16, name="in")(x))
  logits = Linear(4, name="out")(h)
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(f32(argmax(logits, axis=-1) == y))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 3; seed = 5; optimizer = adam(lr=0.01)
  eval every 1 epoch
  checkpoint { dir="runs"; every=1 epoch; keep=100 }
  log { jsonl; every=2 steps; tensorboard="tb/a" }
}
"""

WRITER = """
model G(tokens: i32[B, 8], target: i32[B, 8]) {
  x = Embedding(256, 12, name="bytes")(tokens)
  output logits = Linear(256, name="head")(relu(Linear(16, name="up")(x)))
  loss = mean(cross_entropy(logits, target))
}
data D { train = bytes("t.txt"); valid = bytes("t.txt") }
train { batch = 19; epochs = 3; seed = 9; optimizer = adam(lr=0.02)
  eval every 10 steps
  checkpoint { dir="runs-%(name)s"; every=10 steps; keep=100 }
  log { jsonl="%(name)s.jsonl"; every=5 steps; tensorboard="tb/%(name)s"; %(log)s }
}
"""

READ = """
import base64, glob, json, os, sys
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from tensorboard.compat.proto import event_pb2
folder = sys.argv[1]
out = {"records": {}, "scalars": {}, "histograms": {}, "hparams": {}, "nodes": {}, "images": {}, "texts": {}}
for path in sorted(glob.glob(os.path.join(folder, "*"))):
    out["records"][os.path.basename(path)] = [[event.step, event.WhichOneof("what")] for event in event_file_loader.LegacyEventFileLoader(path).Load()]
all_ = event_accumulator.EventAccumulator(folder, size_guidance={key: 0 for key in ("scalars", "histograms", "tensors", "images")})
all_.Reload()
tags = all_.Tags()
for tag in tags["scalars"]:
    out["scalars"][tag] = [[e.step, e.value, e.wall_time] for e in all_.Scalars(tag)]
for tag in tags["histograms"]:
    out["histograms"][tag] = [[e.step, e.histogram_value.min, e.histogram_value.max, e.histogram_value.num, e.histogram_value.sum, e.histogram_value.sum_squares,
                               list(e.histogram_value.bucket_limit), list(e.histogram_value.bucket)] for e in all_.Histograms(tag)]
for tag in tags["images"]:
    out["images"][tag] = [[e.step, e.width, e.height, base64.b64encode(e.encoded_image_string).decode()] for e in all_.Images(tag)]
for tag in tags["tensors"]:
    if all_.SummaryMetadata(tag).plugin_data.plugin_name == "text":
        out["texts"][tag] = [[e.step, e.tensor_proto.string_val[0].decode()] for e in all_.Tensors(tag)]
if tags["graph"]:
    for node in all_.Graph().node:
        shapes = [[dim.size for dim in shape.dim] for shape in node.attr["_output_shapes"].list.shape]
        out["nodes"][node.name] = {"op": node.op, "inputs": list(node.input), "shapes": shapes}
try:
    start = metadata.parse_session_start_info_plugin_data(all_.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content)
    out["hparams"] = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
except KeyError:
    pass
import tbparse
frame = tbparse.SummaryReader(os.path.dirname(folder), extra_columns={"dir_name"}).scalars
out["tbparse texts"] = sorted([row.tag, int(row.step), row.value] for row in tbparse.SummaryReader(folder).text.itertuples())
out["tbparse"] = sorted([row.tag, int(row.step), float(row.value), row.dir_name] for row in frame.itertuples())
json.dump(out, sys.stdout)
"""


IMAGES = """
model M(image: u8[B, 3, 5, 4], label: i32[B]) {
  logits = Linear(3, name="fc")(flatten(f32(image), from=1) / 255)
  loss = mean(cross_entropy(logits, label))
  output logits
}
data D { train = npy("i.npy", "l.npy") | hflip(p=1); valid = npy("i.npy", "l.npy") }
train { batch = 4; epochs = 2; seed = 5; optimizer = sgd(lr=0.1); log { tensorboard="tb/i"; samples=SAMPLES } }
"""
TEXTS = """
model M(text: i32[B, 6], next: i32[B, 6]) {
  logits = Linear(256, name="o")(Embedding(256, 4, name="e")(text))
  loss = mean(cross_entropy(logits, next))
  output logits
}
data D { train = bytes("t.txt"); valid = bytes("t.txt"); shuffle = false }
train { batch = 2; epochs = 1; seed = 5; optimizer = sgd(lr=0.1); log { tensorboard="tb/t"; samples=2 } }
"""


class TensorBoard(support.Case):
    @classmethod
    def setUpClass(cls):
        cls.python = support.peer_python("watch-peers")

    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), random.standard_normal((70, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 70).astype("i4"))
        self.compile(MODEL)

    def train(self, *flags, check=True):
        return support.run("ftrun", self.path("model.so"), "--data", self.folder, *flags, cwd=self.folder, check=check)

    def read(self, folder="tb/a"):
        done = subprocess.run([self.python, "-c", READ, self.path(folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout)

    def scalars_of_json(self):
        wanted = {}
        for line in support.read_log(self.path("log.jsonl")):
            if "ft" in line:
                continue
            values = {f"{name}/{line['split']}": line[name] for name in ("loss", "accuracy")}
            values.update({name: line[name] for name in ("lr", "samples_per_s", "data_wait", "epoch") if name in line})
            for tag, value in values.items():
                wanted.setdefault(tag, []).append([line["step"], float(numpy.float32(value)), line["time"]])
        return wanted

    def assert_scalars(self, found, clocks=True):
        wanted = self.scalars_of_json()
        self.assertEqual(set(found["scalars"]), set(wanted))
        for tag, points in wanted.items():
            self.assertEqual([p[0] for p in found["scalars"][tag]], [p[0] for p in points], tag)
            if tag in ("samples_per_s", "data_wait"):  # nine digits in JSON
                numpy.testing.assert_allclose([p[1] for p in found["scalars"][tag]], [p[1] for p in points], rtol=1e-6)
            else:
                self.assertEqual([p[1] for p in found["scalars"][tag]], [p[1] for p in points], tag)
            numpy.testing.assert_allclose([p[2] for p in found["scalars"][tag]], [p[2] for p in points], atol=2)
        rows = sorted([tag, p[0], p[1]] for tag, points in wanted.items() for p in points if tag not in ("samples_per_s", "data_wait"))
        self.assertEqual([row[:3] for row in found["tbparse"] if row[0] not in ("samples_per_s", "data_wait")], rows)
        self.assertEqual(len({row[3] for row in found["tbparse"]}), 1)

    def test_layers(self):
        self.train("--set", "train.log.layers=8")
        found, steps = self.read(), []
        self.assertIn("ft-layers", [name.rsplit(".", 1)[1] for name in found["records"]])
        for line in map(json.loads, open(self.path("log.jsonl"))):
            if "activations" not in line:
                continue
            steps.append(line["step"])
            at = lambda tag: next(point[1] for point in found["scalars"][tag] if point[0] == line["step"])
            for name, told in line["parameters"].items():
                for figure in ("weight_norm", "grad_norm", "grad_max", "grad_zeros", "update_ratio"):
                    numpy.testing.assert_allclose(at(f"layers_{figure}/{name}"), told[figure], rtol=1e-6, err_msg=name)
                row = next(row for row in found["histograms"]["gradients/" + name] if row[0] == line["step"])
                _, least, most, count, _, squares, _, counts = row
                self.assertEqual((count, sum(counts)), (told["elements"], told["elements"]))
                numpy.testing.assert_allclose([squares**0.5, max(-least, most)], [told["grad_norm"], told["grad_max"]], rtol=1e-6)
            for told in line["activations"]:
                for figure in ("mean", "std", "max", "zeros"):
                    numpy.testing.assert_allclose(at(f"layers_output_{figure}/{told['layer']}.{told['value']}"), told[figure], rtol=1e-6)
        self.assertEqual(steps, [8, 16, 24])

    def test_generated_text(self):
        """What a model writes at an evaluation is what ftrun generate draws from the weights of that step; training does not change for it."""
        with open(self.path("t.txt"), "w") as file:
            file.write("the cat sat on the mat; *the* dog ate <b>the hat</b>.\n" * 20)
        weights, artifact = [], None
        for name, prompt in ("without", ""), ("with", "the "):
            artifact = self.compile(WRITER % dict(name=name, log=f'prompt = "{prompt}"; prompt_tokens = 30' if prompt else ""), name=name + ".so")
            done = support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w"), "--threads", "1", cwd=self.folder)
            weights.append(support.read_safetensors(self.path("w")))
        for name, value in weights[0].items():
            numpy.testing.assert_array_equal(value, weights[1][name])
        self.assertNotIn("generated", open(self.path("without.jsonl")).read())

        def written():
            with open(self.path("with.jsonl")) as file:
                return [(line["step"], line["generated"]) for line in map(json.loads, file) if "generated" in line]

        def drawn(path):
            return support.run("ftrun", "generate", artifact, "--weights", path, "--prompt", "the ", "--tokens", "30", "--seed", "9", "--threads", "1").stdout[:-1]

        found = written()
        self.assertEqual([step for step, _ in found], [10, 20, 21])
        for step, text in found:
            self.assertEqual(len(text), 34)
            if step != 21:
                self.assertEqual(text, drawn(self.path(f"runs-with/step-{step:08d}.safetensors")))
        self.assertEqual(found[-1][1], drawn(self.path("w")))
        self.assertEqual(len({text for _, text in found}), 3)  # or nothing is measured
        shown = [(step, html.unescape(text).replace("  \n", "\n")) for step, text in self.read("tb/with")["texts"]["generated"]]
        plain = [(step, re.sub("[^\n -~]", "?", text)) for step, text in found]  # what is no text
        self.assertEqual(shown, plain)
        for step, text in plain:
            self.assertIn(f"step {step} writes: " + text.replace("\n", " ↵ "), done.stdout)
        support.run("ftrun", "report", self.path("with.jsonl"), "-o", self.path("r.html"))
        with open(self.path("r.html")) as file:
            self.assertIn('"generated":[[10,"the ', file.read())
        # a resumed training says what it repeats once
        os.remove(self.path("runs-with/step-00000020.safetensors"))
        support.run("ftrun", artifact, "--data", self.folder, "--resume", self.path("runs-with"), "--threads", "1", cwd=self.folder)
        self.assertEqual(written(), found)

    def test_prompts_that_are_refused(self):
        with open(self.path("t.txt"), "w") as file:
            file.write("the cat sat on the mat\n" * 20)
        artifact = self.compile(WRITER % dict(name="a", log=""), name="a.so")
        plain = self.compile(MODEL, name="m.so")
        numpy.save(self.path("x.npy"), numpy.zeros((16, 6), "f4")), numpy.save(self.path("y.npy"), numpy.zeros(16, "i4"))
        for of, flags, said in ((plain, ["train.log.prompt=a"], r"train\.log\.prompt: generate needs a model of tokens i32\[B,T\]"),
                                (artifact, ["train.log.prompt=a", "train.log.tokenizer=nowhere"], r"train\.log\.tokenizer: nowhere not found"),
                                (artifact, ["train.log.prompt=a", "train.log.prompt_tokens=0"], r"train\.log\.prompt_tokens=0: 0 is less than 1"),
                                (artifact, ["train.log.prompt=a", "train.log.temperature=-1"], r"-1 is less than 0")):
            done = support.run("ftrun", of, "--data", self.folder, *[word for flag in flags for word in ("--set", flag)], check=False, cwd=self.folder)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, said)

    @staticmethod
    def cells(markdown):
        """Of a table's rows below its head."""
        return [[html.unescape(cell) for cell in line.split(" | ")] for line in markdown.splitlines()[2:]]

    def test_samples_of_images(self):
        """What the loader makes of them, classes, and the class that the weights of then give; training does not change for it."""
        random = numpy.random.default_rng(6)
        images, labels = random.integers(0, 256, (9, 3, 5, 4), "u1"), random.integers(0, 3, 9).astype("i4")
        numpy.save(self.path("i.npy"), images), numpy.save(self.path("l.npy"), labels)
        weights = []
        for samples in ("0", "3"):
            artifact = self.compile(IMAGES.replace("SAMPLES", samples), name=f"i{samples}.so")
            support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w"), cwd=self.folder)
            weights.append(support.read_safetensors(self.path("w")))
            self.assertEqual(len(glob.glob(self.path("tb/i/*.ft-samples"))), int(samples != "0"))
        for name, value in weights[0].items():
            numpy.testing.assert_array_equal(value, weights[1][name])
        said = support.run("ftrun", artifact, "--data", self.folder, "--steps", "1", "--set", "train.log.tensorboard=", cwd=self.folder)
        self.assertIn("train.log.samples: there is no folder for TensorBoard", said.stdout + said.stderr)
        found, shown = self.read("tb/i"), [0, 3, 6]
        self.assertEqual([name.rsplit(".", 1)[1] for name in found["records"]], ["ft-graph", "ft-histograms", "ft-hparams", "ft-samples", "ft-scalars"])
        self.assertEqual(set(found["images"]), {f"{split}/image/{i}" for split in ("train", "valid") for i in range(3)})
        for split, steps, turned in (("train", [0, 2, 4], images[:, :, :, ::-1]), ("valid", [2, 4], images)):
            for i, sample in enumerate(shown):
                rows = found["images"][f"{split}/image/{i}"]
                self.assertEqual([row[:3] for row in rows], [[step, 4, 5] for step in steps])
                for row in rows:
                    pixels = numpy.asarray(Image.open(io.BytesIO(base64.b64decode(row[3]))))
                    numpy.testing.assert_array_equal(pixels, turned[sample].transpose(1, 2, 0))
        for step, table in found["texts"]["train/samples"]:
            self.assertEqual(self.cells(table), [[str(i), f"image {i}", str(labels[sample])] for i, sample in enumerate(shown)])
        self.assertEqual([step for step, _ in found["texts"]["valid/samples"]], [2, 4])
        scores = images.reshape(9, 60).astype("f4") / 255 @ weights[1]["fc.weight"].T + weights[1]["fc.bias"]
        for i, (row, sample) in enumerate(zip(self.cells(found["texts"]["valid/samples"][-1][1]), shown)):
            self.assertEqual(row[:3], [str(i), f"image {i}", str(labels[sample])])
            best, score = row[3].split()
            self.assertEqual(int(best), scores[sample].argmax())
            self.assertAlmostEqual(float(score.strip("()")), scores[sample].max(), delta=0.01)
        self.assertEqual([row[:2] for row in found["tbparse texts"]], [["train/samples", s] for s in (0, 2, 4)] + [["valid/samples", s] for s in (2, 4)])

    def test_samples_of_texts(self):
        text = "a|b <i>*ü_\n" + "`[x]#&\x01~ z" * 3
        with open(self.path("t.txt"), "w") as file:
            file.write(text)
        artifact = self.compile(TEXTS, name="t.so")
        support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w"), cwd=self.folder)
        weights = support.read_safetensors(self.path("w"))
        bytes_, windows = text.encode(), (len(text.encode()) - 1) // 6
        rows = self.cells(self.read("tb/t")["texts"]["valid/samples"][-1][1])

        def shown(part):
            return "".join(" \u21b5 " if c == "\n" else c if c.isprintable() and c != "\ufffd" else "?" for c in bytes(part).decode(errors="replace"))

        for i, row in enumerate(rows):
            start = i * (windows // 2) * 6
            scores = weights["e.weight"][list(bytes_[start : start + 6])] @ weights["o.weight"].T + weights["o.bias"]
            self.assertEqual(row[1:3], [shown(bytes_[start : start + 6]), shown(bytes_[start + 1 : start + 7])])
            self.assertEqual(len(row), 4)
            self.assertEqual(row[3], shown(scores.argmax(1).tolist()))
        self.assertEqual(len(rows), 2)

    def test_everything_is_read(self):
        self.train()
        found = self.read()
        kinds = [name.rsplit(".", 1)[1] for name in found["records"]]
        self.assertEqual(kinds, ["ft-graph", "ft-histograms", "ft-hparams", "ft-scalars"])
        for name, records in found["records"].items():
            self.assertEqual(records[0], [0, "file_version"], name)
        self.assertEqual({tuple(r)[1] for r in list(found["records"].values())[3][1:]}, {"summary"})
        self.assert_scalars(found)

        for tag in ("in.weight", "in.bias", "out.weight", "out.bias"):
            rows = found["histograms"]["weights/" + tag]
            self.assertEqual([row[0] for row in rows], [8, 16, 24])
            for step, least, most, count, total, squares, limits, counts in rows:
                value = support.read_safetensors(self.path("runs", f"step-{step:08d}.safetensors"))[tag].astype("f8").ravel()
                bins, edges = numpy.histogram(value, bins=30)
                self.assertEqual((least, most, count), (value.min(), value.max(), value.size))
                numpy.testing.assert_allclose([total, squares], [value.sum(), (value**2).sum()], rtol=1e-12)
                self.assertEqual(counts, bins.tolist(), tag)
                numpy.testing.assert_allclose(limits, edges[1:], rtol=1e-15, atol=1e-15)

        self.assertEqual({key: found["hparams"][key] for key in ("train.lr", "train.batch", "train.optimizer", "data.shuffle", "train.seed")},
                         {"train.lr": 0.01, "train.batch": 8, "train.optimizer": "adam", "data.shuffle": True, "train.seed": 5})
        self.assertFalse([key for key in found["hparams"] if key.startswith("train.log.") or "steps_per_epoch" in key])

        nodes = found["nodes"]
        self.assertEqual(nodes["in/weight"], {"op": "Parameter", "inputs": [], "shapes": [[16, 6]]})
        self.assertEqual(nodes["input-x"], {"op": "Input", "inputs": [], "shapes": [[8, 6]]})
        for name, node in nodes.items():
            for given in node["inputs"]:
                at, _, output = given.partition(":")
                self.assertIn(at, nodes, name)
                self.assertLess(int(output or 0), len(nodes[at]["shapes"]), given)
        first = [node for node in nodes.values() if "in/weight" in node["inputs"] and "input-x" in node["inputs"]]
        self.assertTrue(first)

    def test_resumed_runs_draw_no_step_twice(self):
        self.train("--steps", 20)
        first = self.read()
        for path in glob.glob(self.path("tb/a/*.ft-scalars")):
            with open(path, "ab") as file:
                file.write(b"\x18\0\0\0\0\0\0\0half a record")
        self.train("--steps", 24, "--resume", self.path("runs/step-00000008.safetensors"))
        found = self.read()
        self.assert_scalars(found)
        files = [name for name in found["records"] if name.endswith("ft-scalars")]
        self.assertEqual(len(files), 2)
        old, new = sorted((found["records"][name] for name in files), key=lambda records: min([r[0] for r in records[1:]]))
        self.assertEqual(max(r[0] for r in old), 8)
        self.assertEqual({tuple(r)[1] for r in new[1:]}, {"summary"})
        (again,) = (records for name, records in found["records"].items() if name.endswith("ft-again"))
        self.assertEqual(again[1:], [[9, "session_log"]])
        self.assertEqual([row[0] for row in found["histograms"]["weights/in.bias"]], [8, 16, 24])
        self.assertEqual(len([name for name in found["records"] if name.endswith("ft-graph")]), 1)
        self.assertEqual(found["hparams"], first["hparams"])

    def test_a_reader_that_saw_the_steps_before_forgets_them(self):
        """TensorBoard stays open while the training is killed and resumed."""
        watch = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator
all_ = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
for line in sys.stdin:
    all_.Reload()
    print(json.dumps([[e.step, e.value] for e in all_.Scalars("loss/train")]), flush=True)
"""
        self.train("--steps", 20)
        with subprocess.Popen([self.python, "-c", watch, self.path("tb/a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as reader:
            ask = lambda: (reader.stdin.write("\n"), reader.stdin.flush(), json.loads(reader.stdout.readline()))[2]
            self.assertEqual([step for step, _ in ask()], list(range(2, 21, 2)))
            self.train("--steps", 24, "--resume", self.path("runs/step-00000008.safetensors"))
            self.assertEqual([step for step, _ in ask()], list(range(2, 25, 2)))
            reader.stdin.close()

    def test_a_new_run_replaces_ours_and_nothing_else(self):
        self.train("--steps", 20)
        for name in ("events.out.tfevents.1.other.2.0", "notes.ft-scalars", "README"):
            with open(self.path("tb/a", name), "w") as file:
                file.write("someone else's")
        self.train("--steps", 6)
        self.assertEqual(len(glob.glob(self.path("tb/a/*.ft-*"))), 4)  # graph, hparams, scalars, and notes
        for name in ("events.out.tfevents.1.other.2.0", "notes.ft-scalars", "README"):
            self.assertEqual(open(self.path("tb/a", name)).read(), "someone else's")
            os.remove(self.path("tb/a", name))
        self.assert_scalars(self.read())

    def test_flags_and_settings(self):
        shutil.rmtree(self.path("tb"), ignore_errors=True)
        self.train("--steps", 3, "--dry-run")
        self.assertFalse(os.path.exists(self.path("tb")))
        self.train("--steps", 17, "--tensorboard", self.path("b/c"), "--set", "train.log.histograms=2")
        self.assertFalse(os.path.exists(self.path("tb")))
        found = self.read("b/c")
        self.assert_scalars(found)
        self.assertEqual([row[0] for row in found["histograms"]["weights/in.bias"]], [16])
        self.train("--steps", 17, "--set", "train.log.histograms=0")
        self.assertFalse(self.read()["histograms"])
        with open(self.path("file"), "w"):
            pass
        self.fails(1, "file", "ftrun", self.path("model.so"), "--data", self.folder, "--tensorboard", self.path("file"), cwd=self.folder)
        self.compile(MODEL.replace('tensorboard="tb/a"', 'tensorboard="../tb"'))
        self.fails(1, "train.log.tensorboard is '../tb' in the model's file", "ftrun", self.path("model.so"), "--data", self.folder, cwd=self.folder)
        self.compile(MODEL.replace('tensorboard="tb/a"', "tensorboard"))
        self.train("--steps", 3)
        self.assertTrue(glob.glob(self.path("tensorboard/*.ft-scalars")))


if __name__ == "__main__":
    support.main()
