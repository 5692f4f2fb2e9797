"""Kernels that are begun before the one before them has ended (programmatic dependent launch), on the driver without a GPU
(test/fake): only a launch behind one launch is, never one behind a copy, a fill or a library call, where the fake would
end the process; drivers that cannot do it run the same without; and a kernel that does not wait is found."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import cuda
import support


def launches(path, graph="train"):
    """The steps of a graph, each the kind and the numbers of those that it waits for, and whether it says `early`."""
    with open(path) as file:
        text = re.search(rf'^//@ft graph "{graph}"\n(.*?)^//@ft (graph|end)', file.read() + "//@ft end", flags=re.S | re.M).group(1)
    steps = []
    for line in re.findall(r"^//@ft   (launch|copy|fill|call|begin|end) (.*)$", text, flags=re.M):
        after = re.search(r" after=([0-9,]+)", line[1])
        steps.append((line[0], [int(i) for i in after.group(1).split(",")] if after else [], " early " in line[1]))
    return steps


def expected(steps):
    """Launches behind one launch."""
    return sum(kind == "launch" and len(after) == 1 and steps[after[0]][0] == "launch" for kind, after, early in steps)


class Early(cuda.CudaCase):
    def setUp(self):
        super().setUp()
        self.artifact = self.compile(os.path.join(cuda.INPUTS, "tiny.ft"), "--gpu", "sm_90a", "--disable=row_chains", name="tiny.ptx")

    def test_which_are(self):
        """One graph of one step: as many as the plan has, and the values of the simulator, where kernels run one behind the other."""
        steps = launches(self.artifact)
        self.assertTrue(all(early for kind, after, early in steps if kind == "launch"))
        self.assertGreater(expected(steps), 4)
        flags = ["--steps", 12, "--set", "train.eval.every=0"]
        truth = self.losses(*flags, device="sim")
        for seed in (0, 1, 6):
            self.assertEqual(self.losses(*flags, SEED=seed, FT_KEEP_DATA=0), truth)
            report = self.report()
            self.assertEqual(report["early"], report["graph_make"] * expected(steps))
            self.assertEqual(report["left"], 0)

    def test_several_steps_in_a_graph(self):
        """The first launch of a step waits for all that the step before has not waited for: in the ordinary way."""
        flags = ["--steps", 200, "--set", "train.eval.every=0"]
        self.assertEqual(self.losses(*flags, SEED=3, FT_KEEP_DATA=1), self.losses(*flags, device="sim"))
        report = self.report()
        self.assertGreater(report["early"], 0)
        self.assertEqual(report["early"] % expected(launches(self.artifact)), 0)

    def test_beside_fills(self):
        """A batch in parts: gradients are cleared, which is no kernel's work, before the next part's kernels; and running statistics."""
        source = """model Norm(image: u8[B, 4, 4], label: i32[B]) {
  x = flatten(f32(image) / 255, from=1)
  h = relu(BatchNorm(name="norm")(Linear(16, name="one")(x)))
  loss = mean(cross_entropy(Linear(4, name="fc")(h), label))
}
data D { train = idx("train-x.gz", "train-y") }
train { model = Norm; data = D; batch = 8; epochs = 1; seed = 3; optimizer = adam(lr=0.01) }
"""
        kinds = set()
        for name, flags in (("parts.ptx", ["--set", "train.accumulate=2"]), ("whole.ptx", [])):
            artifact = self.compile(source, "--gpu", "sm_90a", *flags, name=name)
            steps = launches(artifact)
            kinds |= {kind for kind, after, early in steps}
            for seed in (0, 2):
                truth = self.losses("--steps", 6, artifact=artifact, device="sim")
                self.assertEqual(self.losses("--steps", 6, artifact=artifact, SEED=seed), truth)
                self.assertGreater(self.report()["early"], 0)
        self.assertIn("fill", kinds)

    def test_behind_library_calls(self):
        library = dict(FT_CUBLASLT_LIBRARY=cuda.BLAS, FT_CUBLASLT="library", SEED=3)
        truth = self.losses("--steps", 10, device="sim", FT_CUBLASLT="library")
        own = self.losses("--steps", 10, FT_KEEP_DATA=0), self.report()
        for a, b in zip(self.losses("--steps", 10, FT_KEEP_DATA=0, **library), truth, strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-4 * b["loss"])
        report = self.report()
        self.assertGreater(report["library_call"], 0)
        self.assertLess(report["early"], own[1]["early"])

    def test_drivers_that_cannot(self):
        """CUDA before 12.3, a driver without the function, ours told not to, no edges, an artifact without: no word, and the same losses."""
        truth = self.losses("--steps", 10, device="sim")
        plain = self.compile(os.path.join(cuda.INPUTS, "tiny.ft"), "--gpu", "sm_90a", "--disable=early_launch", name="plain.ptx")
        with open(plain) as file:
            text = file.read()
        self.assertNotIn("griddepcontrol", text)
        self.assertNotRegex(text, r"launch .* early ")
        old = os.path.join(cuda.FAKE, "libfake_cuda_11.so")
        for artifact, how in ((self.artifact, dict(VERSION=12020)), (self.artifact, dict(FT_CUDA_LIBRARY=old)), (self.artifact, dict(FT_CUDA_EARLY=0)), (plain, {})):
            log = self.path("log.jsonl")
            done = self.ftrun(artifact, "--steps", 10, "--log-jsonl", log, "--set", "train.log.every=1", **how)
            self.assertNotIn("warning", done.stderr)
            self.assertEqual([line["loss"] for line in support.read_jsonl(log)], [line["loss"] for line in truth])
            self.assertEqual(self.report()["early"], 0)
            self.assertGreater(self.report()["graph_launch"], 0)
        self.assertEqual(self.losses("--steps", 10, NO_EDGES=1), truth)
        self.assertEqual(self.losses("--steps", 10, FT_CUDA_NO_GRAPH=1), truth)
        self.assertEqual(self.report()["early"], 0)

    def test_a_driver_that_refuses(self):
        truth = self.losses("--steps", 10, device="sim")
        log = self.path("refused.jsonl")
        done = self.ftrun(self.artifact, "--steps", 10, "--log-jsonl", log, "--set", "train.log.every=1", GRAPH_FAILS="early")
        self.assertEqual([line["loss"] for line in support.read_jsonl(log)], [line["loss"] for line in truth])
        self.assertEqual(done.stderr.count("warning:"), 1, done.stderr)
        self.assertIn("the driver makes no CUDA graph in which kernels begin early (launch of ", done.stderr)
        self.assertEqual(self.report()["early"], 0)
        self.assertGreater(self.report()["graph_launch"], 0)

    def test_kernels_that_do_not_wait(self):
        """Every kernel begins with the wait; without it, or with it behind a load, the simulator says so, on both devices."""
        with open(self.artifact) as file:
            text = file.read()
        first = re.findall(r"\.entry [^{]*\{\n(?:\t(?:\.|// demoted)[^\n]*\n|\n)*\tgriddepcontrol\.wait;\n\tgriddepcontrol\.launch_dependents;\n", text)
        self.assertEqual(len(first), text.count(".entry "))
        self.assertNotIn("ld.global.nc", text)
        wait = "\tgriddepcontrol.wait;\n"
        late = re.sub(r"(\.entry k1_.*?)" + wait + r"(.*?\tld\.global[^\n]*\n)", r"\1\2" + wait, text, count=1, flags=re.S)
        for broken, why in ((text.replace(wait, ""), "before griddepcontrol.wait: the kernel before may still be at work there"), (late, "before griddepcontrol.wait")):
            self.assertNotEqual(broken, text)
            with open(self.path("broken.ptx"), "w") as file:
                file.write(broken)
            for device, code in (("sim", 1), ("cuda", 3)):
                done = self.ftrun(self.path("broken.ptx"), "--steps", 2, device=device, check=False)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn("too early: ", done.stderr)
                self.assertIn(why, done.stderr)


if __name__ == "__main__":
    support.main()
