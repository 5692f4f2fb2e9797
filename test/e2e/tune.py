"""ftrun tune: studies that end, go on, are killed and joined by other processes; samplers, pruning, hypers that are compiled in, conditions,
failures; what it refuses."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
hyper width: int = 4
preset narrow { width = 2 }
model M(x: f32[B, 6], y: f32[B, 2]) {
  z = Linear(2, name="b")(tanh(Linear(width, name="a")(x)))
  loss = mean((z - y) ** 2)
  metric size = mean(abs(z))
  if not training { metric row = mean(z, axis=0) }
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 16; epochs = 3; seed = 5
  optimizer = sgd(lr=0.01); eval every 1 epoch
  checkpoint { dir = "runs"; best = min(valid.loss) }
}
"""


class Tune(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        x = random.standard_normal((160, 6)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), (x @ random.standard_normal((6, 2)) + 3).astype("f4"))
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL)

    def line(self, *flags, model="m.so"):
        return [os.path.join(support.BUILD, "bin", "ftrun"), "tune", model, "--threads", "1", *flags]

    def tune(self, *flags, **options):
        return support.run("ftrun", *self.line(*flags, **options)[1:], cwd=self.folder)

    def journal(self, folder="m.study"):
        with open(self.path(folder, "journal.jsonl")) as file:
            return [json.loads(line) for line in file]

    def ends(self, folder="m.study"):
        """trial: how it ended"; each ended once, and was begun before."""
        begun, ends = {}, {}
        for line in self.journal(folder)[1:]:
            if "start" in line:
                self.assertNotIn(line["trial"], ends)
                self.assertEqual(begun.setdefault(line["trial"], line["start"]), line["start"], "a trial begun again has its point")
            if "end" in line:
                self.assertIn(line["trial"], begun)
                self.assertNotIn(line["trial"], ends)
                ends[line["trial"]] = line
        points = [json.dumps(point, sort_keys=True) for point in begun.values()]
        self.assertEqual(len(points), len(set(points)), "a point was proposed twice")
        self.assertEqual(sorted(begun), list(range(len(begun))))
        return begun, ends

    def test_finds_the_rate_and_goes_on(self):
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        space = ["--space", "lr=log(1e-5, 10)", "--seed", "3"]
        first = self.tune(*space, "--trials", "4").stdout
        self.assertRegex(first, r"study m.study: min\(valid.loss\) by gp over 1 dimension, up to 4 trials\n")
        self.assertEqual(len(re.findall(r"(?m)^trial ", first)), 4)
        done = self.tune(*space, "--trials", "16").stdout
        self.assertIn("goes on behind 4 that have ended", done)
        begun, ends = self.ends()
        self.assertEqual(len(ends), 16)
        values = [line["value"] for line in ends.values() if line["end"] == "complete"]
        best = re.search(r"best: trial (\d+), min\(valid.loss\) = (\S+) at step 30: lr=(\S+)\n(.*)\n", done)
        self.assertAlmostEqual(float(best[2]), min(values), delta=1e-4 * min(values))
        self.assertEqual(ends[int(best[1])]["value"], min(values))
        # what it proposes trains to that loss; the failures are the rates that are too large
        log = self.path("again.jsonl")
        support.run(*best[4].split(), "--threads", "1", "--set", "train.checkpoint.dir=", "--log-jsonl", log, cwd=self.folder)
        self.assertEqual([line["loss"] for line in support.read_jsonl(log) if line.get("eval")][-1], min(values))
        for number, line in ends.items():
            if line["end"] == "failed":
                self.assertGreater(float(begun[number]["lr"]), 0.1)
                self.assertIn("not finite", line["why"])
        self.assertFalse(os.path.exists(self.path("runs")), "trials leave no checkpoints")
        # the same study by one process in one go has the same points
        self.tune(*space, "--trials", "6", "--study", "other")
        self.assertEqual([line["start"] for line in self.journal("other") if "start" in line][:6], [begun[i] for i in range(6)])

    def test_hypers_and_static_settings_are_compiled_in(self):
        done = self.tune("--space", "width=[2, 8]", "--space", "batch=[16, 32]", "--space", "lr=range(0.01, 0.03, step=0.01)", "--sampler", "grid",
                         "--trials", "50", "--parallel", "2", model="m.ft")
        begun, ends = self.ends()
        self.assertEqual(len(ends), 12, "the whole grid, and no more")
        self.assertIn("all 12 points of the space have been tried", done.stdout)
        self.assertEqual({line["step"] for line in ends.values()}, {15, 30}, "160 samples, three times, in batches of 32 and 16")
        artifacts = [name for name in os.listdir(self.path("m.study")) if name.startswith("model-")]
        self.assertEqual(len(artifacts), 5, "four choices, and the model as it is")
        self.assertRegex(done.stdout.splitlines()[-1], r"^ftrun m.ft --threads 1 -D width=8 --set train.batch=16 --set train.lr=0.03$")

    def test_steps_that_are_not_binary(self):
        """3 · 0.1 is more than 0.3 in binary: the last trial was none of the space when the journal was read again, and was begun for ever."""
        support.run("ftc", self.path("m.ft"), "-o", self.path("m.so"))
        self.tune("--space", "lr=range(0, 0.3, step=0.1)", "--sampler", "grid", "--trials", "9")
        self.assertEqual([line["start"]["lr"] for line in self.journal() if "start" in line], ["0", "0.1", "0.2", "0.3"])

    def test_block_of_the_file(self):
        """A tune block is what the command line does not say otherwise; what is compiled is the same without it."""
        support.run("ftc", "m.ft", "-o", "plain.so", cwd=self.folder)
        with open(self.path("m.ft"), "a") as file:
            file.write("""tune {
  lr = log(1e-4, 1e-1)
  schedule = [constant, cosine]
  schedule.warmup = int(1, 9) if schedule = cosine   // only there
  goal = max(train.loss); sampler = random; trials = 3
}
""")
        support.run("ftc", "m.ft", "-o", "block.so", cwd=self.folder)
        with open(self.path("plain.so"), "rb") as plain, open(self.path("block.so"), "rb") as block:
            self.assertEqual(plain.read(), block.read())
        self.assertIn("max(train.loss) by random over 3 dimensions, up to 3 trials", self.tune(model="m.ft").stdout)
        begun, ends = self.ends()
        self.assertEqual(len(ends), 3)
        for start in begun.values():
            self.assertEqual("schedule.warmup" in start, start["schedule"] == "cosine")
        self.tune("--space", "train.lr=[0.01, 0.02]", "--space", "width=[2, 8]", "--goal", "min(valid.loss)", "--sampler=sobol", "--trials", "2", "--study", "t",
                  "--space", "schedule=[constant, linear, cosine]", model="m.ft")
        head = self.journal("t")[0]
        self.assertEqual(head["goal"], "min(valid.loss)")
        self.assertEqual([dim.split("=")[0] for dim in head["space"]], ["train.lr", "schedule", "schedule.warmup", "width"])
        self.assertEqual(len(self.ends("t")[1]), 2)
        with open(self.path("m.ft"), "a") as file:
            file.write("// a comment\ntune { lr = 3 }\n")
        self.fails(1, "a second tune block", "ftrun", "tune", "m.ft", cwd=self.folder)

    def test_a_text_of_several_lines(self):
        """A hyper's text that looks like the lines by which ftc tells ftrun of the block is a text."""
        with open(self.path("m.ft"), "a") as file:
            file.write('hyper note = "a\\n\\ntune, flags\\n  --trials 1"\ntune { lr = [0.01, 0.02]; trials = 2; goal = min(train.loss) }\n')
        self.assertIn("a??tune, flags?  --trials 1", support.run("ftc", "m.ft", "--hypers", cwd=self.folder).stdout)
        self.tune(model="m.ft")
        self.assertEqual(len(self.ends()[1]), 2)

    def test_texts_and_none(self):
        """Texts in quotes and none are choices, on the command line and in the file; the line that trains the best is one of a shell."""
        dims = ["quantize=[none, \"*=w8a8\", 'a=w4 b=w8']", 'clip=[none, 1] if quantize="a=w4 b=w8"', "log.csv=[none] if quantize=none"]
        done = self.tune(*[word for dim in dims for word in ("--space", dim)], "--sampler", "grid", "--trials", "9", "--goal", "max(valid.loss)", model="m.ft").stdout
        begun, ends = self.ends()
        self.assertEqual(self.journal()[0]["space"], ['quantize=[none, "*=w8a8", "a=w4 b=w8"]', 'clip=[none, 1] if quantize="a=w4 b=w8"', "log.csv=[none] if quantize=none"])
        self.assertEqual({line["end"] for line in ends.values()}, {"complete"})
        self.assertEqual(sorted((start["quantize"], start.get("clip")) for start in begun.values()),
                         [("*=w8a8", None), ("a=w4 b=w8", "1"), ("a=w4 b=w8", "none"), ("none", None)])
        values = {(start["quantize"], start.get("clip")): ends[number]["value"] for number, start in begun.items()}
        plain = ["--threads", "1", "--set", "train.checkpoint.dir=none", "--log-jsonl", "log.jsonl"]
        support.run("ftrun", "m.ft", *plain, cwd=self.folder)
        loss = [line["loss"] for line in support.read_jsonl(self.path("log.jsonl")) if line.get("eval")][-1]
        self.assertEqual(values["none", None], loss, "none is what the file has without it")
        self.assertEqual(len(set(values.values())), 4)
        best = max(values, key=values.get)
        self.assertIn("quantize=" + (best[0] if best[0] == "none" else f'"{best[0]}"'), done)
        command = done.splitlines()[-1]
        subprocess.run(["sh", "-c", command.replace("ftrun", os.path.join(support.BUILD, "bin", "ftrun"), 1) + " --log-jsonl best.jsonl"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.assertEqual([line["loss"] for line in support.read_jsonl(self.path("best.jsonl")) if line.get("eval")][-1], values[best])
        with open(self.path("m.ft"), "a") as file:
            file.write('hyper _kind = "a" // meant\ntune { quantize = [none, "*=w8a8"]; _kind = ["a b", ""] if quantize = "*=w8a8"; clip = [none, 1] }\n')
        self.assertIn('  --space quantize=[none, "*=w8a8"]\n  --space _kind=["a b", ""] if quantize="*=w8a8"\n  --space clip=[none, 1]\n',
                      support.run("ftc", "m.ft", "--hypers", cwd=self.folder).stdout)
        done = self.tune("--sampler", "grid", "--trials", "9", "--study", "block", "--apply", model="m.ft").stdout
        self.assertEqual(len(self.ends("block")[1]), 6)
        self.assertIn("m.ft: train.clip ", done)

    def test_conditions(self):
        self.tune("--space", "schedule=[constant, cosine]", "--space", "schedule.warmup=int(1, 9) if schedule=cosine", "--trials", "8",
                  "--sampler", "random", model="m.ft")
        begun, ends = self.ends()
        self.assertEqual({line["end"] for line in ends.values()}, {"complete"})
        for start in begun.values():
            self.assertEqual("schedule.warmup" in start, start["schedule"] == "cosine")

    def test_conditions_between_dimensions(self):
        """The grid that is left is the one that Python finds; the journal has the conditions, and so has another process."""
        space = ["--space", "width=int(1, 4)", "--space", "seed=[1, 2, 3]", "--space", "schedule=[constant, cosine]", "--space",
                 "schedule.warmup=int(1, 2) if schedule=cosine"]
        where = ["--where", "width  * seed <= 4 and (schedule == cosine or min(width, seed) != 1)", "--where", "not train.schedule.warmup + seed > 3"]
        done = self.tune(*space, *where, "--sampler", "grid", "--trials", "99", model="m.ft").stdout
        self.assertIn("  where width * seed <= 4 and (schedule == cosine or min(width, seed) != 1)\n  where not train.schedule.warmup + seed > 3\n", done)
        begun, ends = self.ends()
        wanted = {(width, seed, schedule, warmup) for width in range(1, 5) for seed in (1, 2, 3) for schedule in ("constant", "cosine")
                  for warmup in ((1, 2) if schedule == "cosine" else (None,))
                  if width * seed <= 4 and (schedule == "cosine" or min(width, seed) != 1) and not (warmup is not None and warmup + seed > 3)}
        self.assertEqual({(int(start["width"]), int(start["seed"]), start["schedule"], int(start["schedule.warmup"]) if "schedule.warmup" in start else None)
                          for start in begun.values()}, wanted)
        self.assertIn(f"all {len(wanted)} points of the space have been tried", done)
        self.assertEqual(len(self.journal()[0]["where"]), 2)
        line = ["ftrun", *self.line(*space, "--trials", "1", model="m.ft")[1:]]
        self.fails(1, "condition 1 of this study is width * seed <= 4 and (schedule == cosine or min(width, seed) != 1), --where says none; choose another", *line, cwd=self.folder)
        self.fails(1, "condition 3 of this study is none, --where says seed < 9;", *line, *where, "--where", "seed < 9", cwd=self.folder)
        support.run("ftrun", "report", "m.study", cwd=self.folder)
        with open(self.path("report.html")) as file:
            self.assertIn('"where":["width * seed \\u003c= 4 and', file.read().replace("<", "\\u003c"))
        # nothing is left; and what is no condition
        self.fails(1, "no point of the space keeps --where width > 4", *line, "--study", "none", "--where", "width > 4", cwd=self.folder)
        self.fails(2, "--where width < 3 or sed == 2: letter 14: there is no dimension 'sed'; did you mean 'seed'?", *line, "--study", "none", "--where",
                   "width < 3 or sed == 2", cwd=self.folder)

    def test_conditions_of_the_block(self):
        with open(self.path("m.ft"), "a") as file:
            file.write('tune { width = int(1, 8); lr = log(1e-4, 1e-1); trials = 12; sampler = tpe\n  where = "width * 0.01 <= lr"; where = "lr < 0.05" }\n')
        self.assertIn("\n  --where width * 0.01 <= lr\n  --where lr < 0.05\n", support.run("ftc", "m.ft", "--hypers", cwd=self.folder).stdout)
        self.tune("--space", "train.lr=log(1e-3, 1e-1)", "--where", "width != 2", model="m.ft")
        begun, ends = self.ends()
        self.assertEqual(len(begun), 12)
        for start in begun.values():
            rate, width = float(start["train.lr"]), int(start["width"])
            self.assertTrue(width * 0.01 <= rate < 0.05 and width != 2, start)

    def test_momentum_that_the_recipe_lacks(self):
        """It is compiled in, value by value; an artifact cannot have it."""
        self.tune("--space", "momentum=range(0, 0.9)", "--trials", "3", model="m.ft")
        self.assertEqual({line["end"] for line in self.ends()[1].values()}, {"complete"})
        self.assertEqual(len({line["value"] for line in self.ends()[1].values()}), 3)
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        self.fails(1, "--space momentum: the model was compiled with 0 and has no memory for it; give the .ft file in place of m.so", "ftrun",
                   *self.line("--space", "momentum=range(0, 0.9)", "--study", "other")[1:], cwd=self.folder)

    def test_pruned_trials_end_early(self):
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        self.tune("--space", "lr=log(1e-7, 1e-1)", "--trials", "14", "--sampler", "sobol", "--prune", "asha", "--epochs", "200", "--set",
                  "train.eval.every=5")
        begun, ends = self.ends()
        pruned = {number: line for number, line in ends.items() if line["end"] == "pruned"}
        self.assertGreater(len(pruned), 3)
        best = min((line for line in ends.values() if line["end"] == "complete"), key=lambda line: line["value"])
        self.assertEqual(best["step"], 2000)
        for line in pruned.values():
            self.assertLess(line["step"], 2000)
            self.assertGreater(line["value"], best["value"])

    def test_killed_and_joined(self):
        """Four processes on one study, killed at any instant and begun anew: no trial is lost, no point is proposed twice."""
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        random, trials = numpy.random.default_rng(5), 80
        line = self.line("--space", "lr=log(1e-5, 1e-1)", "--space", "seed=int(1, 5)", "--trials", str(trials), "--sampler", "tpe", "--parallel", "2", "--epochs", "300")
        running, kills, ended = [], 0, 0
        deadline = time.time() + 200
        while ended < trials and time.time() < deadline:
            running = [process for process in running if process.poll() is None]
            while len(running) < 4:
                running.append(subprocess.Popen(line, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(random.uniform(0.05, 0.3))
            if kills < 8:
                running[random.integers(4)].send_signal(signal.SIGKILL)
                kills += 1
            if os.path.exists(self.path("m.study", "journal.jsonl")):
                with open(self.path("m.study", "journal.jsonl"), errors="replace") as file:
                    ended = file.read().count('"end"')
        for process in running:
            process.wait()
        with open(self.path("m.study", "journal.jsonl"), "a") as file:
            file.write('{"trial": 0, "en')  # torn
        self.assertIn("up to", self.tune(*line[5:]).stdout)
        with open(self.path("m.study", "journal.jsonl")) as file:
            kept = [text for text in file if text.endswith("}\n")]
        with open(self.path("m.study", "journal.jsonl"), "w") as file:
            file.writelines(kept)
        begun, ends = self.ends()
        self.assertEqual(len(ends), trials)
        self.assertEqual(kills, 8)
        self.assertEqual({line["end"] for line in ends.values()}, {"complete"})

    def test_ctrl_c(self):
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        process = subprocess.Popen(self.line("--space", "lr=log(1e-5, 1e-1)", "--trials", "1000", "--sampler", "random"), cwd=self.folder,
                                   stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        for text in process.stdout:
            if text.startswith("trial 1 "):
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        self.assertEqual(process.wait(), 128 + signal.SIGINT)
        self.assertIn("best: trial", rest)
        self.assertIn("the same command goes on", rest)

    def test_refusals(self):
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)
        rate = ("--space", "lr=log(1e-5, 1e-1)")
        for code, needle, flags in (
                (2, "needs what to choose from", ["m.so"]), (2, "needs a model", rate), (2, "one model too many", ["m.so", "m.so", *rate]),
                (2, "--space lr=1: a range is log(", ["m.so", "--space", "lr=1"]),
                (2, "the name is given twice", ["m.so", *rate, *rate]),
                (2, "expected gp, tpe", ["m.so", *rate, "--sampler", "bayes"]), (2, "--prune soon: expected", ["m.so", *rate, "--prune", "soon"]),
                (2, "--trials", ["m.so", *rate, "--trials", "0"]), (2, "--parallel", ["m.so", *rate, "--parallel", "1000"]),
                (1, "no such setting; did you mean 'train.momentum'", ["m.so", "--space", "momentun=range(0, 1)"]),
                (1, "no such hyper in the file, and no setting", ["m.ft", "--space", "depth=int(1, 3)"]),
                (1, "no such hyper in the file, and no setting", ["m.ft", "--space", "name=[a, b]"]),  # a head of a column of --hypers
                (1, "no such hyper in the file, and no setting", ["m.ft", "--space", "narrow=[a, b]"]),  # a preset
                (1, "x.npy is no folder; choose another one with --study", ["m.so", *rate, "--study", "x.npy"]),
                (1, "train.batch is compiled in; give the .ft file in place of m.so", ["m.so", "--space", "batch=[8, 16]"]),
                (1, "-D width=3 is for .ft files", ["m.so", *rate, "-D", "width=3"]),
                (1, "none.ft", ["none.ft", *rate]), (1, "none.so", ["none.so", *rate]),
                (1, "--goal loss: letter 1: expected min(valid.loss)", ["m.so", *rate, "--goal", "loss"]),
                (1, "needs dimensions with a number of values", ["m.so", *rate, "--sampler", "grid"]),
                # what a hyper or setting cannot be, as of a tune block (test/lit/frontend/errors/tune_*.ft)
                (1, "--space batch: 'train.batch' is an int: write int(8, 16)", ["m.ft", "--space", "batch=range(8, 16)"]),
                (1, "--space width: 'width' is an int: write log_int(2, 8)", ["m.ft", "--space", "width=log(2, 8)"]),
                (1, "--space width: 'width' is an int, of which this range has none", ["m.ft", "--space", "width=range(0.2, 0.8)"]),
                (1, "--space width: hyper 'width' cannot be 2.5: not an integer", ["m.ft", "--space", "width=[2, 2.5]"]),
                (1, "--space width: hyper 'width' cannot be 1e400: not an integer", ["m.ft", "--space", "width=[2, 1e400]"]),
                (1, "--space width: hyper 'width' cannot be nan: not an integer", ["m.ft", "--space", "width=[nan]"]),
                (1, "--space lr: setting 'train.lr' cannot be -1: -1 is less than 0", ["m.so", "--space", "lr=range(-1, 1)"]),
                (1, "--space seed: 'train.seed' is an int: write int(1, 3)", ["m.so", "--space", "seed=range(1, 3)"]),
                (1, "--space shuffle: 'data.shuffle' is no number but a bool: write its values in [ ]", ["m.so", "--space", "shuffle=int(0, 1)"]),
                # goals that no log has
                (1, "--goal max(valid.acuracy): the log of valid has no 'acuracy'; it has loss, size", ["m.so", *rate, "--goal", "max(valid.acuracy)"]),
                (1, "--goal min(train.size), min(train.ema_size): the log of train has no 'ema_size'; it has loss, size, epoch, lr", ["m.so", *rate, "--goal",
                                                                                                                              "min(train.size),min(train.ema_size)"]),
                (1, "--goal min(test.loss): a training has numbers of train and valid, not of 'test'", ["m.so", *rate, "--goal", "min(test.loss)"]),
                (1, "--goal min(valid.row): metric 'row' is more than one number", ["m.so", *rate, "--goal", "min(valid.row)"]),
                (1, "--goal min(valid.loss): eval = none switches the evaluations off that it follows", ["m.so", *rate, "--set", "train.eval.every=0"])):
            with self.subTest(needle):
                self.fails(code, needle, "ftrun", "tune", *flags, cwd=self.folder)
        self.assertFalse([name for name in os.listdir(self.path("m.study")) if name.startswith("trial")], "what is refused begins no trial")
        self.tune(*rate, "--trials", "1")
        self.fails(1, "this study has lr=log(1e-05, 0.1) where --space says lr=log(1e-05, 1)", "ftrun", "tune", "m.so", "--space", "lr=log(1e-5, 1)",
                   cwd=self.folder)
        self.fails(1, "this study's goal is min(valid.loss), not max(valid.loss)", "ftrun", "tune", "m.so", *rate, "--goal", "max(valid.loss)",
                   cwd=self.folder)
        too_far = ("--space", "lr=log(1e30, 1e32)")  # no loss is finite
        none = self.fails(1, "", "ftrun", "tune", "m.so", *too_far, "--study", "none", "--trials", "2", cwd=self.folder)
        self.assertIn("no trial has come to its end with a value", none.stdout)
        # a model that fails each time does not fail a thousand times
        done = self.fails(1, "the first 5 trials have failed", "ftrun", "tune", "m.so", *too_far, "--study", "s", "--trials", "1000", cwd=self.folder)
        os.makedirs(self.path("own"))
        with open(self.path("own", "journal.jsonl"), "w") as file:
            file.write("something of mine\n")
        self.fails(1, "this is not the journal of a study", "ftrun", "tune", "m.so", *rate, "--study", "own", cwd=self.folder)


support.main()
