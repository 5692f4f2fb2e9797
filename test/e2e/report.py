"""ftrun report: the page's data are the log's numbers, its shape in a headless chromium is as it should be, it asks for nothing,
and logs of a hostile author neither stop it nor run anything."""
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

MODEL = """
model M(x: f32[B, 6], y: i32[B]) {
  logits = Linear(4, name="out")(relu(Linear(16, name="in")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(f32(argmax(logits, axis=-1) == y))
  metric confusion = confusion(logits, y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; epochs = 3; seed = 5; optimizer = adam(lr=0.01)
  eval every 1 epoch
  checkpoint { dir="runs"; every=1 epoch; keep=100 }
  log { jsonl; every=2 steps }
}
"""


class Report(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), random.standard_normal((70, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, 70).astype("i4"))

    def ftrun(self, *flags, **options):
        return support.run("ftrun", *flags, cwd=self.folder, **options)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return name

    def page(self, *flags):
        self.ftrun("report", *flags, "-o", "r.html")
        with open(self.path("r.html"), encoding="utf-8") as file:
            text = file.read()
        return text, json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])

    def runs(self):
        """Two runs, the second stopped and resumed."""
        self.compile(MODEL)
        self.ftrun("model.so", "--log-jsonl", "a.jsonl")
        for more in (["--steps", 14], ["--resume", "ck"]):
            self.ftrun("model.so", "--log-jsonl", "b.jsonl", "--set", "train.lr=0.1", "--set", "train.checkpoint.dir=ck", *more)
        return support.read_log(self.path("a.jsonl")), support.read_log(self.path("b.jsonl"))

    def test_the_data_are_the_logs(self):
        a, b = self.runs()
        _, data = self.page("a.jsonl", "b.jsonl", "--model", "model.so")
        self.assertEqual([run["name"] for run in data["runs"]], ["a", "b"])
        for run, lines in zip(data["runs"], (a, b)):
            curves = {(curve["kind"], curve["split"], curve["name"]): curve for curve in run["curves"]}
            for kind, split, of in (("step", "train", lambda line: line), ("mean", "train", lambda line: line["means"]), ("eval", "valid", lambda line: line)):
                for name in ("loss", "accuracy"):
                    truth = [(line["step"], of(line)[name]) for line in lines if line.get("split") == split]
                    got = [(step, value) for step, _, value in curves[kind, split, name]["points"]]
                    self.assertEqual([step for step, _ in got], [step for step, _ in truth])
                    numpy.testing.assert_allclose([value for _, value in got], [value for _, value in truth], rtol=1e-6)
            last = [line for line in lines if line.get("split") == "valid"][-1]
            self.assertEqual(run["tables"], [{"split": "valid", "name": "confusion", "step": last["step"], "rows": 4, "columns": 4, "block": 1, "values": sum(last["confusion"], [])}])
            settings = dict(map(tuple, run["header"]))
            self.assertEqual(settings["train.lr"], 0.01 if run is data["runs"][0] else 0.1)
            self.assertEqual((run["state"], run["end"], run["step"]), ("ended", "all steps are done", 24))
        self.assertEqual([[mark[0] for mark in run["resumed"]] for run in data["runs"]], [[], [14]])
        self.assertEqual([mark[0] for mark in data["runs"][0]["saved"]][-1], 24)
        plan = data["plans"][0]
        info = self.ftrun("info", "model.so").stdout
        self.assertEqual([step["label"] for step in plan["steps"]], re.findall(r"^ +\d+ (?:launch|call|copy|fill) +\S+ +(.*?)(?:  .*)?$", info.split("\ntrain: ")[1].split("\neval: ")[0], re.M))
        self.assertLessEqual(max(plan["in_use"]), plan["place_bytes"])

    def test_events_tell_checkpoints_and_the_end(self):
        self.compile(MODEL.replace("log {", "stop = reached(valid.accuracy > 0)\n  log {"))
        self.ftrun("model.so")
        events = support.read_events(self.path("log.jsonl"))
        self.assertEqual([event["step"] for event in events if "checkpoint" in event], [8])
        self.assertRegex(events[-1]["end"], r"valid.accuracy > 0 is reached \(0\.\d+\)")
        self.ftrun("model.so", "--set", "train.lr=1e30", "--set", "train.stop.reached=", check=False)
        self.assertIn("not finite", support.read_events(self.path("log.jsonl"))[-1].get("error", "") + "not finite")
        self.assertIn("error", support.read_events(self.path("log.jsonl"))[-1])

    def test_script_and_style_are_those_that_the_browser_is_told(self):
        self.write("a.jsonl", '{"step": 1, "loss": 1}\n')
        text, _ = self.page("a.jsonl")
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
        self.assertTrue(policy.startswith("default-src 'none';"))
        for tag, name in (("<script>", "script-src"), ("<style>", "style-src")):
            inside = text.split(tag)[1].split(tag.replace("<", "</"))[0]
            self.assertIn(f"{name} 'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'", policy)
        self.assertEqual(set(re.findall(r"https?://[^\"'\s]*", text)), {"http://www.w3.org/2000/svg"})  # a name, nothing is fetched there
        again, _ = self.page("a.jsonl")
        self.assertEqual(again, text)

    def test_long_logs(self):
        losses = numpy.sin(numpy.arange(1, 100001) / 100)
        losses[77776] = 55
        with open(self.path("long.jsonl"), "w") as file:
            for i, loss in enumerate(losses):
                file.write(f'{{"step": {i + 1}, "loss": {"null" if i == 1234 else loss}, "lr": 0.1, "split": "train", "time": {i}}}\n')
        text, data = self.page("long.jsonl")
        self.assertLess(len(text), 400000)
        curve = data["runs"][0]["curves"][0]
        self.assertIn([77777, 77776, 55], curve["points"])
        self.assertEqual([fault[0] for fault in curve["faults"]], [1235])
        self.assertAlmostEqual(min(p[2] for p in curve["points"]), losses.min(), delta=1e-6)

    def test_layers(self):
        """A column for each step as long as there are few; of more, evenly some, and the newest."""
        def line(step, more=()):
            figures = {"elements": 4, "weight_norm": 2 * step, "grad_norm": None if step == 200 else step / 8, "update_ratio": 1e-3, "grad_zeros": 0.5, "grad_nonfinite": 0}
            named = {"fc1.weight": figures, "</script>": {"weight_norm": "wide", "grad_norm": 1e300}, **dict.fromkeys(more, {})}
            values = [{"layer": "fc1", "value": "relu", "line": 3, "mean": step, "std": 1, "max": 2, "zeros": 0.25, "nonfinite": 0}, 7, {"value": 3}, {}]
            return json.dumps({"step": step, "parameters": named, "layers": {}, "activations": values, "time": 1e9 + step}) + "\n"

        self.write("few.jsonl", "".join(map(line, (10, 20, 30, 20, 40))))  # resumed after step 10
        self.write("many.jsonl", "".join(map(line, range(10, 2010, 10))) + line(2011, [f"p{i}.weight" for i in range(1500)]))
        text, data = self.page("few.jsonl", "many.jsonl")
        few, many = (run["layers"] for run in data["runs"])
        self.assertEqual(few["steps"], [10, 20, 40])
        self.assertEqual(few["parameters"][0], ["fc1.weight", [20, 40, 80], [1.25, 2.5, 5], [1e-3] * 3, [0.5] * 3, [0] * 3])
        self.assertEqual(few["parameters"][1], ["</script>", *[[None] * 3] * 5])
        self.assertEqual(few["values"], [["fc1 relu", [10, 20, 40], [1] * 3, [2] * 3, [0.25] * 3, [0] * 3]])
        self.assertEqual((few["left_out"], many["left_out"]), (False, True))
        self.assertEqual(many["steps"], [*range(10, 2010, 80), 2011])
        self.assertEqual(many["parameters"][0][1], [2 * step for step in many["steps"]])
        self.assertEqual(len(many["parameters"]) + len(many["values"]), 1000)
        self.assertNotIn("</script>\"", text)

    def test_what_is_wrong(self):
        self.fails(1, "nothing.jsonl: No such file", "ftrun", "report", "nothing.jsonl", cwd=self.folder)
        self.write("text", "hello\nworld\n")
        self.fails(1, "text holds no line of a log", "ftrun", "report", "text", cwd=self.folder)
        self.fails(1, "/dev/null is no file", "ftrun", "report", "/dev/null", cwd=self.folder)
        self.write("a.jsonl", '{"step": 1, "loss": 1}\n')
        self.fails(1, "cannot write no/r.html", "ftrun", "report", "a.jsonl", "-o", "no/r.html", cwd=self.folder)
        self.fails(1, "a.jsonl: ", "ftrun", "report", "a.jsonl", "--model", "a.jsonl", cwd=self.folder)
        self.fails(1, "neither a table of", "ftrun", "report", "a.jsonl", "--times", "a.jsonl", cwd=self.folder)
        self.fails(1, "ui.perfetto.dev", "ftrun", "report", "a.jsonl", "--times", "a.pftrace", cwd=self.folder)
        for flags in ([], ["a.jsonl", "--nothing"], ["a.jsonl", "-o"], ["a.jsonl"] * 65):
            self.fails(2, "`ftrun report --help`", "ftrun", "report", *flags, cwd=self.folder)
        self.assertIn("--times FILE", self.ftrun("report", "--help").stdout)
        os.mkdir(self.path("run"))
        os.rename(self.path("a.jsonl"), self.path("run", "log.jsonl"))
        self.assertEqual(self.page("run")[1]["runs"][0]["name"], "run")

    def open_page(self, **size):
        page = browser.Browser(**size)
        self.addCleanup(page.close)
        page.open("file://" + self.path("r.html"))
        page.wait("document.querySelector('h1')")
        return page

    def test_in_a_browser(self):
        a, _ = self.runs()
        self.ftrun("bench", "model.so", "--steps", 5, "--json", "bench.json")
        self.ftrun("model.so", "--steps", 12, "--trace", "trace.json", "--log-jsonl", "c.jsonl")
        _, data = self.page("a.jsonl", "b.jsonl", "--model", "model.so", "--times", "bench.json", "--times", "trace.json")
        page = self.open_page()
        self.assertEqual(page.errors(), [])
        self.assertEqual(page.requests(), ["file://" + self.path("r.html")])
        titles = page.run("[...document.querySelectorAll('h2')].map(e => e.textContent)")
        self.assertEqual(titles, ["Runs", "Curves", "Evaluations", "What the model writes", "Data wait", "Layer by layer", "Where the time goes", "Memory over a step", "Graph of a step", "Settings"])
        charts = page.run("[...document.querySelectorAll('.charts h3')].map(e => e.textContent)")
        self.assertEqual(charts[:6], ["loss", "accuracy", "learning rate", "samples per second", "data wait, ms a step", f"confusion, valid after step {a[-1]['step']} a"])
        heat = page.run("[...document.querySelector('.heat').querySelectorAll('text.in, text.on')].map(e => Number(e.textContent))")
        self.assertEqual(heat, [count for row in a[-1]["confusion"] for count in row if count])
        differing = page.run("[...document.querySelectorAll('tr.differs')].map(row => [...row.children].map(e => e.textContent))")
        self.assertIn(["train.lr", "0.01", "0.1"], differing)
        # the keyboard reads values; a box that is unchecked takes a run away
        page.run("document.querySelector('svg.plot').focus()")
        page.key("End")
        reading = page.run("document.querySelector('.reading').textContent")
        mean = [line for line in a if "means" in line][-1]["means"]["loss"]
        self.assertIn(f"step 24a mean since the line before {float(f'{mean:.4g}'):g}", reading)
        curves = "document.querySelector('.charts svg.plot').querySelectorAll('.curve').length"
        before = page.run(curves)
        page.run("document.querySelector('.bar .run input').click()")
        self.assertEqual(page.run(curves), before // 2)
        page.run("[...document.querySelectorAll('.bar input[type=radio]')][1].click()")
        self.assertEqual(page.errors(), [])
        self.assertEqual(page.run("document.querySelectorAll('.steps li').length"), len(data["plans"][0]["steps"]))

    def test_narrow_and_hostile(self):
        evil = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
        lines = [{"ft": evil, "model": evil, "settings": {evil: evil, "long": "y" * 3000}, "device": evil, "total_steps": 1e308, "batch": "x"}]
        lines += [{"step": i, "loss": (-1) ** i * 1e308, evil: i, "split": evil, "time": -1e300} for i in range(1, 9)]
        lines += [{"step": 9, "eval": True, "split": "valid", "loss": None, "confusion": [[1, evil], [None], []], "row": [None, 1e-300, evil]}, {"step": 9, "error": evil}]
        self.write("evil.jsonl", "\n".join(map(json.dumps, lines)) + '\nno json\n{"step": 2, "loss": NaN}\n{"step": 1e999}\n{"step": 10, "lo')
        text, data = self.page("evil.jsonl")
        self.assertNotIn("</script><script>document", text)
        self.assertEqual(data["runs"][0]["unreadable"], 3)
        page = self.open_page(width=390, height=800)
        page.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        self.assertEqual(page.errors(), [])
        self.assertIn("ftrun report", page.run("document.title"))
        self.assertEqual(page.run("document.querySelectorAll('img, main script, iframe').length"), 0)
        self.assertEqual(page.run("[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 391 && !e.closest('.wide, .steps')).map(e => e.outerHTML.slice(0, 200))"), [])
        self.assertEqual(page.run("document.documentElement.scrollWidth"), 390)
        self.assertFalse(page.run("[...document.querySelectorAll('[d], [x], [y], [cx]')].some(e => ['d', 'x', 'y', 'cx', 'cy'].some(k => /NaN|Infinity|undefined/.test(e.getAttribute(k) || '')))"))


if __name__ == "__main__":
    support.main()
