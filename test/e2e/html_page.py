"""The page of `ftc --emit=html`: what is in it, without a browser, and that a browser shows it: the overview, groups that open and
close, and a search that moves to what it finds. chromium is in no list of scripts/install-deps, so these are skipped where it is missing."""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import browser
import support

MODEL = r"""// </script><script>alert(1)</script> <b>&amp;
hyper L: int = 3
block Mlp()(x: [B, T, D]) { return Linear(D, name="c_proj")(gelu(Linear(32, name="c_fc")(x))) }
block Layer()(x: [B, T, D]) { return x + Mlp(name="mlp")(LayerNorm(name="ln")(x)) }
model M(ids: i32[B, T=4], y: i32[B, T]) {
  param wte: [10, 8] = normal(0.02)
  x = embed(wte, ids)
  repeat i in 0..L as h { x = Layer()(x) }
  loss = mean(cross_entropy(x @ transpose(wte), y))
}
train { model = M; batch = 2; steps = 1; optimizer = adamw(lr=0.1); clip = norm(1) }
"""
LEAVES = {"input", "param", "state", "setting", "const", "iota", "random", "arg"}


class Page(support.Case):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="ft-html-")
        cls.page = os.path.join(cls.place.name, "page.html")
        cls.source = os.path.join(cls.place.name, "model.ft")
        with open(cls.source, "w") as file:
            file.write(MODEL)
        support.run("ftc", cls.source, "--emit=html", "-o", cls.page)
        with open(cls.page) as file:
            cls.text = file.read()
        cls.parts = {name: json.loads(text) for name, text in re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', cls.text, re.S)}
        cls.index, cls.bodies = cls.parts["index"], cls.parts["bodies"]
        cls.plan = support.run("ftc", cls.source, "--emit=plan").stdout

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def graph(self, of, name):
        found = [i for i, stage in enumerate(self.index["stages"]) if (stage["pass"], stage["name"]) == (of, name)]
        self.assertEqual(len(found), 1, (of, name))
        return self.parts[f"graph-{found[0]}"]["nodes"]

    def test_the_source_stays_text(self):
        self.assertEqual(self.text.count("</script>"), len(self.parts) + 1)
        self.assertNotIn("alert(1)</script>", self.text)
        self.assertEqual(next(file["text"] for file in self.index["files"] if file["path"].endswith("model.ft")), MODEL)
        self.assertNotRegex(self.text, r"(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)")

    def test_stages(self):
        stages = [(stage["pass"], stage["name"]) for stage in self.index["stages"]]
        self.assertEqual(stages[:2], [("frontend", "train"), ("frontend", "eval")])
        for expected in (("autodiff", "train"), ("fuse", "train"), ("memplan", "train"), ("memplan", "eval"), ("plan", "train"), ("plan", "eval")):
            self.assertIn(expected, stages)
        for i, stage in enumerate(self.index["stages"]):
            nodes = self.parts[f"graph-{i}"]["nodes"]
            self.assertEqual(len(nodes), stage["nodes"])
            known = set()
            for node in nodes:
                self.assertTrue(set(node["in"]) <= known, (stage, node))
                known.add(node["id"])
                self.assertIn(node["phase"], ("none", "forward", "backward", "recomputed", "both", "update"))
                self.assertEqual(sorted({"id", "op", "type", "in", "at", "phase"} - set(node)), [])
                if node["op"] == "fused":
                    self.assertEqual(self.bodies[node["body"]]["nodes"][0]["op"], "arg")

    def test_layers_and_phases(self):
        nodes = self.graph("memplan", "train")
        self.assertEqual({node["attrs"]["name"]: node.get("layer") for node in nodes if node["op"] == "param"},
                         {"wte": None, **{f"h.{i}.{name}": f"h.{i}.{name.rsplit('.', 1)[0]}" for i in range(3)
                                           for name in ("ln.weight", "ln.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")}})
        work = {(node["phase"], node.get("layer")) for node in nodes if node["op"] not in LEAVES}
        for i in range(3):
            for layer in ("ln", "mlp.c_fc", "mlp.c_proj"):
                self.assertIn(("forward", f"h.{i}.{layer}"), work)
                self.assertIn(("backward", f"h.{i}.{layer}"), work)
        self.assertIn(("update", None), work)
        self.assertFalse([node for node in self.graph("memplan", "eval") if node["phase"] in ("backward", "update")])

    def test_costs_are_the_plans(self):
        for name in ("train", "eval"):
            steps = self.graph("plan", name)
            text = self.plan.split(f'graph "{name}"')[1].split("\ngraph ")[0].split("\nprogramme")[0]
            flops = [int(number) for number in re.findall(r" flops=(\d+)", text)]
            self.assertEqual([step["flops"] for step in steps if step["flops"]], [number for number in flops if number])
            self.assertEqual(sum(node.get("flops", 0) for node in self.graph("memplan", name)), sum(flops))
        self.assertEqual({name for name, size in self.index["memory"] if size} & {"parameters", "gradients", "optimizer state"}, {"parameters", "gradients", "optimizer state"})
        self.assertEqual(dict(self.index["memory"])["parameters"] // 4 % 16, 0)

    def walk(self, page):
        """Every pass, open and closed."""
        for i in range(page.run("$('pass').options.length")):
            page.run(f"go({i}), foldAll(true), foldAll(false)")
        self.assertEqual(page.errors(), [])

    def test_of_several_stages_one(self):
        titles = {}
        for flags in ((), ("--stage", "1")):
            text = support.run("ftc", self.source, "--set", "distributed.pipeline=2", "--set", "train.accumulate=2", "--emit=html", *flags).stdout
            index = json.loads(re.search(r'id="index">(.*?)</script>', text, re.S)[1])
            stages = [(stage["pass"], stage["name"]) for stage in index["stages"]]
            self.assertEqual(len(stages), len(set(stages)), flags)
            titles[flags] = index["model"]
        self.assertEqual(list(titles.values()), ["M, stage 0 of 2", "M, stage 1 of 2"])

    def test_in_a_browser(self):
        page = browser.Browser(1400, 900)
        try:
            page.open("file://" + self.page)
            page.wait("typeof at !== 'undefined' && at")
            self.assertEqual(page.errors(), [])
            self.assertEqual([url for url in page.requests() if not url.startswith("file:")], [])
            shown = "shapes.filter(s => s.item.isGroup).map(s => [s.item.key, open.has(s.item.key)])"
            groups = dict(page.run(shown))
            self.assertTrue(groups["/forward"] and groups["/backward"])
            self.assertIn("/forward/h.0", groups)
            # the same sums as the plan's
            self.assertEqual(page.run("[at.root.stats.flops, at.root.stats.moves, at.root.stats.kernels]"),
                             page.run("(() => { const s = prepare(index.stages.findIndex(x => x.pass === 'plan' && x.name === 'train')).root.stats; return [s.flops, s.moves, s.kernels]; })()"))
            self.assertEqual(page.run("at.root.stats.params"), 10 * 8 + 3 * (16 + 9 * 32 + 33 * 8))
            page.run("open.clear(), open.add('/forward'), camera = null, draw()")
            self.assertEqual({key for key, is_open in page.run(shown) if not is_open and key.startswith("/forward/")}, {"/forward/wte", "/forward/loss", "/forward/h.0", "/forward/h.1", "/forward/h.2"})
            # search: Enter opens the groups around what it finds, goes there, and then to the next
            page.run("$('search').value = 'h.1.mlp.c_fc gelu', $('search').dispatchEvent(new Event('input')), $('search').focus()")
            count = page.run("hits.length")
            self.assertGreater(count, 2)
            self.assertEqual(page.run("$('count').textContent"), f"{count} found")
            self.assertTrue(page.run("document.querySelectorAll('.group.hit').length"))
            page.key("Enter")
            self.assertEqual(page.run("$('count').textContent"), f"1 of {count}")
            self.assertTrue(page.run("open.has('/forward/h.1/mlp/c_fc') && !open.has('/forward/h.2')"))
            first = page.run("picked.item.id")
            middle = "(() => { const b = document.querySelector('.pick').getBoundingClientRect(), v = $('view').getBoundingClientRect(); return b.left >= v.left && b.right <= v.right && b.top >= v.top && b.bottom <= v.bottom; })()"
            self.assertTrue(page.run(middle))
            page.key("Enter")
            self.assertEqual(page.run("$('count').textContent"), f"2 of {count}")
            self.assertTrue(page.run(middle))
            page.run("goToHit(-1)")
            self.assertEqual(page.run("picked.item.id"), first)
            self.assertIn("h.1.mlp.c_fc", page.run("$('details').textContent"))
            page.run("$('search').value = 'nowhere', findHits()")
            self.assertEqual(page.run("$('count').textContent"), "not found")
            # layers, source, another graph and pass
            self.assertEqual(page.run("[...document.querySelectorAll('#layers tr[data-path]')].map(r => r.dataset.path).sort()"), ["(update)", "h.0", "h.1", "h.2", "loss", "wte"])
            page.run("goToLine(1 + index.files.findIndex(f => f.path.endsWith('model.ft')), 7)")
            self.assertTrue(page.run("document.querySelectorAll('svg .line').length"))
            page.run("[...document.querySelectorAll('#graphs button')].find(b => b.textContent === 'eval').click()")
            self.assertEqual(page.run("[...at.root.groups.keys()]"), ["forward"])
            self.walk(page)
            images = os.path.join(self.place.name, "images.html")
            support.run("ftc", os.path.join(support.EXAMPLES, "fashion_cnn.ft"), "--emit=html", "-o", images)
            page.open("file://" + images)
            page.wait("typeof at !== 'undefined' && at")
            self.walk(page)
        finally:
            page.close()


if __name__ == "__main__":
    support.main()
