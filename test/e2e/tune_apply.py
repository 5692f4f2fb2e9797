"""ftc --apply and ftrun tune --apply: what is written into a .ft file is the value and nothing else, or nothing; ftrun report of a study:
the numbers are the journal's, and a hostile journal runs nothing in a browser."""
import base64
import hashlib
import json
import math
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import browser
import support

MODEL = """// a model of mine
hyper width: int = 4   // how wide
hyper scale = 0.5 /* a float, as it is written */
hyper wide: bool = false
hyper kind = "tanh"
hyper twice: int = 2 * width
preset narrow { width = 2 }   // { not this one
model M(x: f32[B, 6], y: f32[B, 2]) {
  hidden = Linear(width, name="a")(x)
  h = if wide then hidden else tanh(hidden) * scale
  loss = mean((Linear(2, name="b")(h) - y) ** 2)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 1_6; epochs = 3; seed = 5
  optimizer = sgd(lr=1e-2,
     momentum=0.9)   // } not this one
  schedule = cosine(warmup = 5 steps)
  eval every 1 epoch
}
"""


class Apply(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        numpy.save(self.path("x.npy"), random.standard_normal((64, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.standard_normal((64, 2)).astype("f4"))
        self.model = MODEL.replace("  h = if wide then hidden else tanh(hidden) * scale\n", "  h = tanh(hidden) * scale\n")
        self.write("m.ft", self.model)

    def write(self, name, text):
        with open(self.path(name), "w", newline="") as file:
            file.write(text)

    def read(self, name="m.ft"):
        with open(self.path(name), newline="") as file:
            return file.read()

    def apply(self, *choices, flags=(), model=None, name="m.ft"):
        self.write(name, model or self.model)
        done = support.run("ftc", name, *[word for choice in choices for word in ("--apply", choice)], *flags, cwd=self.folder)
        return self.read(name), done.stdout

    def changed(self, *pairs, model=None):
        model = model or self.model
        for old, new in pairs:
            self.assertEqual(model.count(old), 1, old)
            model = model.replace(old, new)
        return model

    def test_only_the_value_changes(self):
        text, said = self.apply("width=8", "train.lr=0.003", "schedule.warmup=9", "batch=32", "scale=1", "wide=1", "kind=relu")
        self.assertEqual(text, self.changed(("width: int = 4 ", "width: int = 8 "), ("lr=1e-2", "lr=0.003"), ("warmup = 5 ", "warmup = 9 "), ("1_6", "32"),
                                            ("scale = 0.5", "scale = 1.0"), ("= false", "= true"), ('"tanh"', '"relu"')))
        self.assertIn("m.ft:2: width: 4 -> 8\nm.ft:15: train.lr: 1e-2 -> 0.003\n", said)
        self.assertEqual(self.apply("width=9", flags=("--preset", "narrow"))[0], self.changed(("width = 2 }", "width = 9 }")))
        self.assertEqual(self.apply("width=4", "lr=0.01"), (self.model, "m.ft: width is 4 already\nm.ft: train.lr is 0.01 already\n"))
        self.assertEqual(self.apply('kind=a\n\tb"\\c')[0], self.changed(('"tanh"', r'"a\n\tb\"\\c"')))
        windows = self.model.replace("\n", "\r\n")
        self.assertEqual(self.apply("width=8", "clip=1", model=windows)[0], self.changed(("width: int = 4", "width: int = 8"), ("epoch\n}", "epoch\n  clip = 1\n}")).replace("\n", "\r\n"))

    def test_what_is_not_there_is_added(self):
        text, said = self.apply("data.workers=2", "train.weight_decay=0.1", "log.every=7")
        self.assertEqual(text, self.changed(('valid = npy("x.npy", "y.npy") }', 'valid = npy("x.npy", "y.npy"); workers = 2 }'),
                                            ("epoch\n}", "epoch\n  weight_decay = 0.1\n  log { every = 7 }\n}")))
        self.assertIn("m.ft: data.workers: not there -> 2\n", said)

    def test_settings_below_what_is_chosen(self):
        """Whatever --set says below a name, an entry of the file says, too: what is written compiles to the same program, or nothing is written."""
        frozen = self.model.replace("  eval every", '  freeze = after(0.5, "a.*")\n  eval every')
        rounded = self.model.replace("  eval every", '  quantize = after(0.5, "a=w8a8")\n  eval every')
        for model, choices, entries in (
                (self.model, ["sharpness=sam", "sharpness.rho=0.2"], ["sharpness = sam", "sharpness { rho = 0.2 }"]),
                (self.model, ["sharpness.eta=0.2", "sharpness=asam"], ["sharpness { eta = 0.2 }", "sharpness = asam"]),
                (self.model, ["prune=magnitude", "prune.structure=channel", "prune.every=7"],
                 ["prune = magnitude", 'prune { structure = "channel" }', "prune { every = 7 }"]),
                (self.model, ["average=swa", "average.start=0.5"], ["average = swa", "average { start = 0.5 }"]),
                (self.model, ["precision=fp8", "fp8.scaling=delayed", "fp8.history=16"],
                 ["precision = fp8", 'fp8 { scaling = "delayed" }', "fp8 { history = 16 }"]),
                (self.model, ["recompute=auto", "recompute.budget=8GiB"], ["recompute = auto", 'recompute { budget = "8GiB" }']),
                (frozen, ["freeze.rate=cosine", "freeze.rate.final=0.2"], ['freeze { rate = "cosine" }', "freeze { rate { final = 0.2 } }"]),
                (rounded, ["quantize.observe=0.9"], ["quantize { observe = 0.9 }"]),
                (self.model, ["checkpoint.unit=step", "checkpoint.best=min(valid.loss)"], ['checkpoint { unit = "step" }', 'checkpoint { best = "min(valid.loss)" }'])):
            with self.subTest(choices):
                self.assertEqual(self.apply(*choices, model=model)[0], model[:-2] + "".join(f"  {entry}\n" for entry in entries) + "}\n")

    def test_nothing_is_written_where_it_cannot_be(self):
        self.write("lib.ft", "hyper depth: int = 2\npreset deep { width = 3 }\n")
        self.model = 'import "lib.ft"\n' + self.model
        for code, needle, choices, flags in (
                (1, "m.ft:7:22: error: 'twice' is not written into the file: here it is no plain value; to have it, write twice = 3 by hand", ["twice=3", "width=8"], []),
                (1, "'depth' is not written into the file: it stands in lib.ft", ["depth=3"], []), (1, "'width' is not written into the file: it stands in lib.ft", ["width=5"], ["--preset", "deep"]),
                (1, "with these values in it, it does not compile; to have them, write train { optimizer = adamw } by hand", ["train.optimizer=adamw"], []),
                (1, "there is no block for it; to have it, write distributed { zero = 2 } by hand", ["distributed.zero=2"], []),
                (1, "-D width=3.5: not an integer", ["width=3.5"], []), (1, "there is no such hyper or setting", ["widht=3"], []),
                (1, "the name is given twice", ["lr=1", "train.lr=2"], []), (2, "NAME=VALUE", ["width"], []), (2, "nothing else at a time", ["width=8"], ["--summary"])):
            with self.subTest(needle):
                self.write("m.ft", self.model)
                self.fails(code, needle, "ftc", "m.ft", *[word for choice in choices for word in ("--apply", choice)], *flags, cwd=self.folder)
                self.assertEqual(self.read(), self.model)
        # a rate that other parameters' rates are a part of
        self.write("m.ft", self.changed(("sgd(lr=1e-2,", "sgd("), ("  schedule", '  lr = 1e-2\n  lr = 0.001 on "b.*"\n  schedule')))
        before = self.read()
        self.fails(1, "'train.lr' is not written", "ftc", "m.ft", "--apply", "lr=0.5", cwd=self.folder)
        self.assertEqual(self.read(), before)

    def test_links_and_permissions(self):
        os.symlink("m.ft", self.path("link.ft"))
        os.chmod(self.path("m.ft"), 0o640)
        support.run("ftc", "link.ft", "--apply", "width=8", cwd=self.folder)
        self.assertIn("int = 8", self.read())
        self.assertTrue(os.path.islink(self.path("link.ft")))
        self.assertEqual(os.stat(self.path("m.ft")).st_mode & 0o777, 0o640)
        os.chmod(self.path("m.ft"), 0o440)
        self.fails(1, "m.ft stays as it is: Permission denied", "ftc", "m.ft", "--apply", "width=9", cwd=self.folder)
        self.assertIn("int = 8", self.read())
        self.assertEqual([name for name in os.listdir(self.folder) if "tmp" in name or name.startswith(".")], [])

    def test_cut_files_are_never_worse(self):
        for end in range(0, len(self.model), 61):
            self.write("m.ft", self.model[:end])
            done = support.run("ftc", "m.ft", "--apply", "width=8", "--apply", "clip=1", cwd=self.folder, check=False)
            self.assertIn(done.returncode, (0, 1))
            if done.returncode:
                self.assertEqual(self.read(), self.model[:end])

    # ── a study ──
    def tune(self, *flags, check=True, model="m.ft"):
        return support.run("ftrun", "tune", model, "--threads", "1", "--space", "width=[2, 8]", "--space", "lr=log(1e-4, 1e-1)", "--space", "schedule=[cosine, linear, constant]",
                           "--space", "schedule.warmup=int(1, 9) if schedule=cosine|linear", "--sampler", "random", *flags, cwd=self.folder, check=check)

    def page(self, study="m.study"):
        support.run("ftrun", "report", study, "-o", "r.html", cwd=self.folder)
        with open(self.path("r.html"), encoding="utf-8") as file:
            text = file.read()
        return text, json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])

    def test_a_study_is_applied_and_reported(self):
        self.model = self.model.replace('hyper kind = "tanh"\n', "").replace("hyper wide: bool = false\n", "").replace("hyper twice: int = 2 * width\n", "")
        self.write("m.ft", self.model)
        self.tune("--trials", "12")
        self.assertEqual(self.read(), self.model)
        done = self.tune("--trials", "1", "--apply").stdout  # no other trial
        self.assertRegex(done, r"\nimportance \(fANOVA of 12 trials\): .* %, only together \d+ %\nbest: ")
        best = dict(word.split("=") for word in re.search(r"best: trial .*?: (.*)\n", done)[1].split())
        text = self.read()
        self.assertIn(f"width: int = {best['width']} ", text)
        self.assertIn(f"sgd(lr={best['lr']},", text)
        self.assertRegex(text, rf"schedule = {best['schedule']}\(warmup = {best.get('schedule.warmup', 5)} steps\)")
        # the file by itself now trains to what was found
        log = self.path("log.jsonl")
        support.run("ftrun", "m.ft", "--threads", "1", "--log-jsonl", log, cwd=self.folder)
        with open(self.path("m.study", "journal.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        ends = {line["trial"]: line for line in lines if "end" in line}
        values = {number: line["value"] for number, line in ends.items()}
        self.assertEqual([line["loss"] for line in support.read_jsonl(log) if line.get("eval")][-1], min(values.values()))
        self.assertIn("already", self.tune("--trials", "1", "--apply").stdout)
        self.fails(2, "--apply writes into a .ft file", "ftrun", "tune", "m.so", "--apply", "--space", "lr=[1, 2]", cwd=self.folder)
        # the report
        page, data = self.page()
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
        for inside in re.findall(r"<script>(.*?)</script>", page, re.S):
            self.assertIn(base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode(), policy)
        self.assertEqual({trial["n"]: trial["value"] for trial in data["trials"]}, {number: float(f"{value:.9g}") for number, value in values.items()})
        self.assertEqual(data["best"], min(values, key=values.get))
        self.assertEqual([dim["name"] for dim in data["dims"]], ["width", "lr", "schedule", "schedule.warmup"])
        importance = data["importance"]
        self.assertLessEqual(sum(share for share, _ in importance["share"]), 1 + 1e-6)
        self.assertEqual(importance["trials"], 12)
        self.fails(1, "m.study is a study of ftrun tune, which has a page of its own", "ftrun", "report", "m.study", "log.jsonl", cwd=self.folder)
        os.mkdir(self.path("none"))
        self.write("none/journal.jsonl", "something\n")
        self.fails(1, "this is not the journal of a study", "ftrun", "report", "none", cwd=self.folder)

    def test_many_trials(self):
        """The newest, and whatever was the best when it came."""
        random = numpy.random.default_rng(3)
        values = random.uniform(0, 1, 6000)
        os.mkdir(self.path("s"))
        self.write("s/journal.jsonl", '{"study": 1, "goal": "max(valid.accuracy)", "space": ["a=range(0, 1)"], "seed": 0}\n' + "".join(
            f'{{"trial": {i}, "start": {{"a": "{i / 6000:.6g}"}}}}\n{{"trial": {i}, "end": "complete", "value": {value}, "step": 1, "seconds": 1}}\n' for i, value in enumerate(values)))
        data = self.page("s")[1]
        records = [i for i in range(1000) if values[i] > max(values[:i], default=-1)]
        self.assertEqual([trial["n"] for trial in data["trials"]], [*records, *range(1000, 6000)])
        self.assertEqual((data["count"], data["best"], dict(data["states"])["complete"]), (6000, int(values.argmax()), 6000))

    def test_a_hostile_journal(self):
        """Names, choices and reasons of a stranger are text; trials of every state are shown, and what is far worse hides nothing."""
        evil = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
        lines = [{"study": 1, "goal": "min(valid.loss)", "space": ["lr=log(1e-05, 0.1)", "kind=[adamw, sgd]", "momentum=range(0, 1) if kind=sgd", "n=int(3, 3)"], "seed": 1}]
        random = numpy.random.default_rng(1)
        for i in range(40):
            rate, kind = 10 ** random.uniform(-5, -1), "adamw" if i % 2 else "sgd"
            lines.append({"trial": i, "start": {"lr": f"{rate:.6g}", "kind": kind, **({} if i % 2 else {"momentum": "0.5"}), "n": "3"}, "by": evil, "source": evil * 9})
            ends = ({"end": "failed", "why": evil, "value": None}, {"end": "pruned", "value": 3.0, "step": 5}, {"end": "complete", "value": 1e300, "step": 1e300, "seconds": -1}, None)
            end = ends[i % 10] if i % 10 < 4 else {"end": "complete", "value": abs(math.log(rate / 1e-3)), "step": 10, "seconds": 1.5}
            lines.append({"trial": i, "step": 5, "value": 2.5})
            if end:
                lines.append({"trial": i, **end})
        os.mkdir(self.path("s"))
        self.write("s/journal.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + evil + "\n" + '{"trial": 7, "e')
        text, data = self.page("s")
        self.assertEqual(text.count("<script"), 3)
        self.assertNotIn("<img", text)
        self.assertEqual([sum(trial["state"] == state for trial in data["trials"]) for state in ("complete", "pruned", "failed", "running")], [28, 4, 4, 4])
        self.assertEqual(dict(data["states"]), {"complete": 28, "pruned": 4, "failed": 4, "running": 4})
        self.assertGreater(data["importance"]["share"][0][0], 0.3)
        page = browser.Browser(width=1280, height=900)
        self.addCleanup(page.close)
        page.open("file://" + self.path("r.html"))
        page.wait("document.querySelector('h1')")
        self.assertEqual(page.errors(), [])
        self.assertEqual(page.requests(), ["file://" + self.path("r.html")])
        self.assertEqual(page.run("document.title"), "study s")
        self.assertIn("1 lines of the journal", page.run("document.body.innerText"))
        rows = "[...document.querySelectorAll('.trials tbody tr')]"
        self.assertEqual(page.run(rows + ".length"), 40)
        self.assertEqual(page.run("document.querySelectorAll('.way').length"), 32)
        self.assertEqual(page.run(f"{rows}.filter(row => row.lastChild.textContent.includes('<script>')).length"), 4)
        # by value: the best first, what has none last; and the other way
        value = "Number(row.children[2].textContent)"
        page.run("document.querySelectorAll('.sort')[2].click()")
        first = page.run(f"{rows}.slice(0, 36).map(row => {value})")
        self.assertEqual(first, sorted(first))
        self.assertEqual(page.run(f"{rows}.slice(36).map(row => row.children[1].textContent)"), ["failed"] * 4)
        page.run("document.querySelectorAll('.sort')[2].click()")
        self.assertEqual(page.run(f"{rows}.slice(0, 4).map(row => {value})"), [1e300] * 4)
        # the mouse chooses on the axis of `kind`, its upper half: sgd
        box = page.run("(box => [box.x + box.width / 2, box.y, box.height])(document.querySelectorAll('.hit')[1].getBoundingClientRect())")
        page.run(f"scrollTo(0, {box[1] - 100})")
        x, y, height = page.run("(box => [box.x + box.width / 2, box.y, box.height])(document.querySelectorAll('.hit')[1].getBoundingClientRect())")
        for kind, at in (("mousePressed", 0.1), ("mouseMoved", 0.4), ("mouseReleased", 0.4)):
            page.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y + at * height, button="left", buttons=1, clickCount=1)
        self.assertEqual(page.run(f"new Set({rows}.map(row => row.children[6].textContent)).size"), 1)
        self.assertEqual(page.run(rows + ".length"), 20)
        self.assertGreater(page.run("document.querySelectorAll('.way.off').length"), 10)
        page.run("document.querySelector('section button').click()")
        self.assertEqual(page.run(rows + ".length"), 40)


support.main()
