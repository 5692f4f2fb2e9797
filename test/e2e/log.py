"""What a training leaves for those who watch it: JSON lines with their header, and CSV, each field against the steps
themselves (a log of every step) and numpy; the last step and the evaluation at the end; resumed and interrupted runs."""
import csv
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 6], y: i32[B]) {
  logits = Linear(4, name="fc")(relu(Linear(8, name="in")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(f32(argmax(logits, axis=-1) == y))
  metric worst = max(abs(logits))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 3; seed = 5; optimizer = adam(lr=0.01); ema = 0.9
  eval every 1 epoch
  checkpoint { dir="runs"; every=4 steps; keep=100 }
  log { %s }
}
"""
EMA = ["ema_loss", "ema_accuracy", "ema_worst"]


class Log(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), random.standard_normal((70, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 70).astype("i4"))

    def train(self, *flags, artifact="model.so", check=True):
        return support.run("ftrun", self.path(artifact), "--data", self.folder, *flags, cwd=self.folder, check=check)

    def rows(self, name="log.csv"):
        with open(self.path(name), newline="") as file:
            return list(csv.DictReader(file))

    def test_grad_norm(self):
        """Plain SGD moves the weights by its rate times the gradients; what clip makes of them does not change their norm."""
        for clip in ("", "clip = value(0.001)", "clip = norm(0.001)"):
            source = MODEL.replace("adam(lr=0.01); ema = 0.9", f"sgd(lr=0.125); {clip}")
            for word in ("grad_norm", "grad_norm = false"):
                self.compile(source % f"csv; {word}; every=1 steps")
                flags = ["--set", "train.checkpoint.dir="]
                said = self.train("--steps", 1, *flags, "--save", "end").stdout
                self.train("--steps", 0, *flags, "--set", "train.log.csv=", "--save", "start")
                row = self.rows()[0]
                self.assertEqual("  grad_norm " in said, word == "grad_norm")
                self.assertEqual("grad_norm" in row, word == "grad_norm" or "norm(" in clip)
                if not clip and word == "grad_norm":
                    start, end = (support.read_safetensors(self.path(name)) for name in ("start", "end"))
                    moved = math.sqrt(sum(((end[name].astype("f8") - start[name]) ** 2).sum() for name in start))
                    norm = moved / 0.125
                    self.assertGreater(norm, 0.01)
                if "grad_norm" in row:
                    self.assertLess(abs(float(row["grad_norm"]) - norm), 1e-5 * norm, clip)

    def test_fields(self):
        self.compile(MODEL % "jsonl; csv; every=5 steps")
        before = time.time()
        self.train("--steps", 19)
        after = time.time()
        header, *lines = support.read_log(self.path("log.jsonl"))
        self.train("--steps", 19, "--set", "train.log.every=1", "--log-jsonl", "all")
        every = {line["step"]: line for line in support.read_log(self.path("all")) if "means" in line}
        self.assertEqual(sorted(every), list(range(1, 20)))

        self.assertEqual({key: header[key] for key in ("ft", "model", "parameters", "ranks", "batch", "steps_per_epoch", "total_steps", "first_step")},
                         {"ft": support.run("ftrun", "--version").stdout.split()[1], "model": "M", "parameters": 92, "ranks": 1, "batch": 8, "steps_per_epoch": 8, "total_steps": 19, "first_step": 0})
        self.assertEqual(header["artifact"], self.path("model.so"))
        self.assertEqual(header["data"]["train"], {"samples": 70, "files": [self.path("x.npy"), self.path("y.npy")]})
        self.assertEqual(header["settings"]["train.optimizer"], "adam")
        self.assertEqual(header["settings"]["train.lr"], 0.01)
        self.assertIs(header["settings"]["train.log.console"], True)
        self.assertEqual(header["settings"]["train.steps"], 0)
        self.assertTrue(header["device"].startswith("cpu"))
        self.assertTrue(header["target"].startswith("cpu "))
        self.assertEqual(header["system"], f"{os.uname().sysname} {os.uname().release} {os.uname().machine}")
        self.assertLess(abs(time.mktime(time.strptime(header["start_time"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - before), 100)

        # steps of `every` and the last; evaluations at the ends of epochs, and after the last step
        self.assertEqual([(line["step"], line["split"]) for line in lines],
                         [(5, "train"), (8, "valid"), (10, "train"), (15, "train"), (16, "valid"), (19, "train"), (19, "valid")])
        last = 0
        for line in lines:
            self.assertTrue(before - 1 <= line["time"] <= after + 1)
            if line["split"] == "valid":
                self.assertEqual(set(line), {"step", "eval", "split", "time", "loss", "accuracy", "worst", *EMA})
                continue
            self.assertEqual(set(line), {"step", "epoch", "split", "time", "loss", "accuracy", "worst", "lr", "samples_per_s", "data_wait", "means"})
            steps = [every[i] for i in range(last + 1, line["step"] + 1)]
            for name in ("loss", "accuracy", "worst"):
                self.assertEqual(line[name], steps[-1][name])
                self.assertAlmostEqual(line["means"][name], numpy.mean([step[name] for step in steps]), delta=1e-7)
            self.assertEqual(line["lr"], 0.01)
            self.assertTrue(0 <= line["data_wait"] < 1 and line["samples_per_s"] > 0)
            last = line["step"]
        self.assertEqual([line["time"] for line in lines], sorted(line["time"] for line in lines))

    def test_csv_says_what_json_says(self):
        self.compile(MODEL % "jsonl; csv; every=5 steps")
        self.train()
        lines, rows = support.read_log(self.path("log.jsonl"))[1:], self.rows()
        self.assertEqual(list(rows[0]), ["step", "epoch", "time", "loss", "lr", "samples_per_s", "data_wait", "accuracy", "worst", "mean.loss", "mean.accuracy", "mean.worst",
                                         "valid.loss", "valid.accuracy", "valid.worst", *("valid." + name for name in EMA)])
        self.assertEqual(len(rows), len(lines))
        for row, line in zip(rows, lines):
            wanted = {"epoch": (line["step"] - 1) // 8 + 1}
            for name, value in line.items():
                if name == "means":
                    wanted.update({"mean." + key: mean for key, mean in value.items()})
                elif name in ("step", "time", "epoch"):
                    wanted[name] = value
                elif name not in ("split", "eval"):
                    wanted["valid." + name if "eval" in line else name] = value
            self.assertEqual({key: float(value) for key, value in row.items() if value}, wanted)

    def test_resumed_runs_go_on_in_the_files(self):
        self.compile(MODEL % "jsonl; csv; every=3 steps")
        self.train("--steps", 24)
        whole, whole_rows = support.read_jsonl(self.path("log.jsonl")), self.rows()
        for name in ("log.jsonl", "log.csv"):  # what a kill leaves: a line that was not written to its end
            with open(self.path(name), "a") as file:
                file.write('{"step": 25, "lo' if name == "log.jsonl" else "25,4,1")
        self.train("--steps", 24, "--resume", "runs/step-00000008.safetensors", "--allow-paths")
        without_clocks = lambda rows, drop: [{k: v for k, v in row.items() if k not in drop} for row in rows]
        self.assertEqual(without_clocks(support.read_jsonl(self.path("log.jsonl")), {"samples_per_s"}), without_clocks(whole, {"samples_per_s"}))
        drop = {"samples_per_s", "data_wait", "time", "mean.loss", "mean.accuracy", "mean.worst"}
        self.assertEqual(without_clocks(self.rows(), drop), without_clocks(whole_rows, drop))
        headers = [line for line in support.read_log(self.path("log.jsonl")) if "ft" in line]
        self.assertEqual([header["first_step"] for header in headers], [0, 8])

    def test_other_columns_are_refused(self):
        self.compile(MODEL % "csv; every=3 steps")
        self.train("--steps", 8)
        kept = open(self.path("log.csv")).read().splitlines()
        with open(self.path("log.csv"), "w") as file:
            file.write("\n".join(["step,loss", *kept[1:]]) + "\n")
        self.fails(1, "log.csv has other columns than this training", "ftrun", self.path("model.so"), "--data", self.folder, "--resume", "runs", "--steps", 9, cwd=self.folder)
        for text in ("", "garbage", "\x00\xff" * 1000):  # nothing of ours before: the header is written, or the file refused
            with open(self.path("log.csv"), "w") as file:
                file.write(text)
            done = self.train("--resume", "runs", "--steps", 9, check=False)
            self.assertEqual(done.returncode, 0 if not text or "\n" not in text else 1, done.stderr)

    def test_numbers_that_are_not_finite(self):
        self.compile((MODEL % "jsonl; csv; every=3 steps").replace("loss = mean(", "loss = log(0 * f32(x[0, 0])) + mean("))
        done = self.train("--keep-going", "--steps", 3, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = support.read_log(self.path("log.jsonl"))[1]
        self.assertEqual((line["loss"], line["means"]["loss"], line["nonfinite"]), (None, None, True))
        self.assertTrue(math.isinf(float(self.rows()[0]["loss"])) or math.isnan(float(self.rows()[0]["loss"])))

    def test_the_last_step_of_an_interrupted_run(self):
        self.compile(MODEL % "jsonl; csv; every=1000000000 steps")
        running = subprocess.Popen([os.path.join(support.BUILD, "bin", "ftrun"), self.path("model.so"), "--data", self.folder, "--steps", "1000000000",
                                    "--set", "train.checkpoint.every=1000000000", "--set", "train.eval.every=0"], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        for said in running.stdout:
            if said.startswith("train:"):
                break
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[0]
        self.assertEqual(running.returncode, 130)
        stopped = int(said.split("stopped after step ")[1].split(";")[0])
        header, line = support.read_log(self.path("log.jsonl"))
        self.assertEqual((line["step"], int(self.rows()[0]["step"])), (stopped, stopped))
        self.assertIn(f"step {stopped}/", said)

    def test_paths_of_the_models_file(self):
        self.compile(MODEL % 'csv="../log.csv"')
        self.fails(1, "train.log.csv is '../log.csv' in the model's file", "ftrun", self.path("model.so"), "--data", self.folder, cwd=self.folder)
        self.train("--set", "train.log.csv=no/where.csv", check=False)
        self.fails(1, "cannot write the log no/where.csv", "ftrun", self.path("model.so"), "--data", self.folder, "--set", "train.log.csv=no/where.csv", cwd=self.folder)

    def test_names_of_fields_are_taken(self):
        for name in ("time", "means", "data_wait"):
            self.assertIn("the log's own", support.run("ftc", self.write((MODEL % "").replace("metric worst", f"metric {name}")), "--emit=plan", check=False).stderr)

    def write(self, text):
        with open(self.path("other.ft"), "w") as file:
            file.write(text)
        return self.path("other.ft")


if __name__ == "__main__":
    support.main()
