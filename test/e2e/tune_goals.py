"""ftrun tune with several goals: the front, by every sampler; what is kept, told and refused; --apply --trial; goals that are no numbers of the log."""
import json
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
hyper width: int = 4
model M(x: f32[B, 6], y: f32[B, 2]) {
  loss = mean((Linear(2, name="b")(tanh(Linear(width, name="a")(x))) - y) ** 2)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 16; epochs = 2; seed = 5
  optimizer = sgd(lr=0.01); eval every 1 epoch
}
"""
SPACE = ["--space", "width=int(1, 12)", "--space", "lr=log(1e-3, 1)"]
BOTH = "min(valid.loss), min(model.parameters)"


class Goals(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        x = random.standard_normal((160, 6)).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), (x @ random.standard_normal((6, 2)) + 3).astype("f4"))
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL)

    def tune(self, *flags, model="m.ft", code=0):
        return support.run("ftrun", "tune", model, "--threads", "1", *flags, cwd=self.folder, **({"check": False} if code else {}))

    def journal(self, folder="m.study"):
        with open(self.path(folder, "journal.jsonl")) as file:
            return [json.loads(line) for line in file]

    @staticmethod
    def front(ends):
        """Numbers of those that no other one beats, by the definition."""
        beats = lambda a, b: all(p <= q for p, q in zip(a, b)) and a != b
        return {n for n, value in ends.items() if not any(beats(other, value) for other in ends.values())}

    def test_front_by_every_sampler(self):
        for sampler in ("gp", "tpe", "random", "sobol"):
            said = self.tune(*SPACE, "--goal", BOTH, "--sampler", sampler, "--study", sampler, "--trials", "13").stdout
            lines = self.journal(sampler)
            self.assertEqual(lines[0]["goal"], BOTH)
            starts = {line["trial"]: line["start"] for line in lines if "start" in line}
            ends = {line["trial"]: line["values"] for line in lines if line.get("end") == "complete"}
            self.assertEqual(len(ends), 13)
            for number, (loss, parameters) in ends.items():
                width = int(starts[number]["width"])
                self.assertEqual(parameters, width * 6 + width + 2 * width + 2)
            told = {int(n) for n in re.findall(r"(?m)^  trial (\d+) ", said)}
            self.assertEqual(told, self.front(ends))
            self.assertIn("--trials 1 --apply --trial N writes one of them into m.ft", said)
            losses = [ends[int(n)][0] for n in re.findall(r"(?m)^  trial (\d+) ", said)]
            self.assertEqual(losses, sorted(losses))
        # it goes on, and other processes see what there is
        self.tune(*SPACE, "--goal", BOTH.replace(", ", ","), "--study", "gp", "--trials", "16", "--parallel", "2")
        self.assertEqual(sum("end" in line for line in self.journal("gp")), 16)
        self.fails(1, "this study's goal is min(valid.loss), min(model.parameters), not min(valid.loss)", "ftrun", "tune", "m.ft", *SPACE, "--study", "gp", "--goal",
                   "min(valid.loss)", cwd=self.folder)
        support.run("ftrun", "report", "gp", cwd=self.folder)
        with open(self.path("report.html")) as file:
            page = file.read()
        data = json.loads(re.search(r'(\{"study":.*?\]\})</script>', page, re.S)[1])
        ends = {line["trial"]: line["values"] for line in self.journal("gp") if line.get("end") == "complete"}
        self.assertEqual({trial["n"] for trial in data["trials"] if trial["front"]}, self.front(ends))
        self.assertEqual([goal["name"] for goal in data["goals"]], ["min(valid.loss)", "min(model.parameters)"])

    def test_goals_of_the_run(self):
        self.tune("--space", "width=[2, 12]", "--space", "batch=[16, 32]", "--sampler", "grid", "--goal",
                  "max(run.samples_per_s), min(run.seconds), min(model.weight_bytes), min(model.memory)")
        for line in self.journal():
            if line.get("end") == "complete":
                rate, seconds, size, memory = line["values"]
                self.assertTrue(rate > 0 and seconds > 0 and seconds < 100 and memory > size > 0)
        sizes = {line["values"][2] for line in self.journal() if "values" in line}
        self.assertEqual(sizes, {4 * (width * 9 + 2) for width in (2, 12)})
        said = self.tune("--space", "width=[12, 2, 5]", "--sampler", "grid", "--goal", "min(model.parameters)", "--study", "one").stdout
        self.assertRegex(said, r"best: trial 1, min\(model.parameters\) = 20 ")

    def test_block_and_apply(self):
        with open(self.path("m.ft"), "a") as file:
            file.write("tune { width = [2, 8]; lr = log(1e-3, 1e-1); trials = 5; goal = [min(valid.loss), min(model.parameters)] }\n")
        self.assertIn("\n  --goal min(valid.loss), min(model.parameters)\n", support.run("ftc", "m.ft", "--hypers", cwd=self.folder).stdout)
        said = self.tune().stdout
        number = re.findall(r"(?m)^  trial (\d+) ", said)[-1]
        start = next(line["start"] for line in self.journal() if line.get("trial") == int(number) and "start" in line)
        self.fails(1, "--apply needs --trial N where there are several goals", "ftrun", "tune", "m.ft", "--trials", "1", "--apply", cwd=self.folder)
        self.fails(2, "--trial says what --apply writes: give both", "ftrun", "tune", "m.ft", "--trial", "1", cwd=self.folder)
        self.fails(1, "--trial 77: the study has no such trial that is complete", "ftrun", "tune", "m.ft", "--trials", "1", "--apply", "--trial", "77", cwd=self.folder)
        self.tune("--trials", "1", "--apply", "--trial", number)
        with open(self.path("m.ft")) as file:
            text = file.read()
        self.assertIn(f"hyper width: int = {start['width']}\n", text)
        self.assertIn(f"sgd(lr={start['lr']})", text)

    def test_refused(self):
        line = ["ftrun", "tune", "m.ft", "--study", "no", *SPACE]
        for wanted, flags in (("the sampler cma has one goal: take gp or tpe for several", ["--goal", BOTH, "--sampler", "cma"]),
                              ("--prune goes by one goal", ["--goal", BOTH, "--prune", "asha"]),
                              ("--prune looks at evaluations, and --goal min(run.seconds) is not of them", ["--goal", "min(run.seconds)", "--prune", "median"]),
                              ("letter 17: expected min(valid.loss)", ["--goal", "min(valid.loss),min(model.size)"]),
                              ("different ones with commas", ["--goal", "min(valid.loss),max(valid.loss)"])):
            self.fails(1, wanted, *line, *flags, cwd=self.folder)
        # a goal that no line of the log has, in the block or behind the flag, and one that only some trials have
        said = self.fails(1, "max(valid.accuracy): the log of valid has no 'accuracy'; it has loss", *line, "--goal",
                          "min(valid.loss), max(valid.accuracy)", cwd=self.folder)
        self.assertNotIn("trial 0", said.stdout)
        with open(self.path("block.ft"), "w") as file:
            file.write(MODEL.replace("loss = mean", "if width < 5 { metric small = mean(x) }\n  loss = mean") + "tune { width = [2, 8]; goal = min(valid.smal) }\n")
        self.fails(1, "min(valid.smal): the log of valid has no 'smal'; it has loss, small", "ftrun", "tune", "block.ft", cwd=self.folder)
        said = self.tune("--goal", "min(valid.small)", "--trials", "2", "--sampler", "grid", model="block.ft").stdout
        self.assertRegex(said, r"trial 1 +failed.*width=8 +\(it logged no valid.small\)")
        # numbers that a setting brings, which the trials choose
        for number, (space, goal) in enumerate((("ema=[0.5, 0.9]", "min(valid.ema_loss)"), ("average=[swa]", "min(valid.ema_loss)"), ("clip=[1, 2]", "min(train.grad_norm)"),
                                                      ("precision=[fp16]", "max(train.skipped_steps)"))):
            said = self.tune("--space", space, "--goal", goal, "--study", f"brought{number}", "--trials", "2").stdout
            self.assertRegex(said, r"trial 0 +[\d.]")
            self.assertNotIn("failed", said)
        self.fails(1, "the log of valid has no 'ema_los'; it has loss, ema_loss", *line[:3], "--space", "ema=[0.5, 0.9]", "--goal", "min(valid.ema_los)", "--study", "no", cwd=self.folder)
        self.fails(1, "the log of valid has no 'skipped_steps'", *line[:3], "--space", "precision=[fp16]", "--goal", "min(valid.skipped_steps)", "--study", "no", cwd=self.folder)
        # a journal is a stranger's: an end without all values has failed
        self.tune(*SPACE, "--goal", BOTH, "--study", "cut", "--trials", "2")
        with open(self.path("cut", "journal.jsonl")) as file:
            text = re.sub(r'"values": \[[^]]*\]', '"values": [1]', file.read())
        with open(self.path("cut", "journal.jsonl"), "w") as file:
            file.write(text)
        self.assertIn("no trial has come to its end with a value", self.tune(*SPACE, "--goal", BOTH, "--study", "cut", "--trials", "2", code=1).stdout)


support.main()
