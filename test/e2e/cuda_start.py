"""The start of a run on a GPU, on the driver without one (test/fake): CUDA graphs are made before the first step, and where
they cannot be made the run goes on without them, says so once, and computes the same."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import cuda
import support

LATER = ["--set", "train.eval.every=0"]


class Graphs(cuda.CudaCase):
    def warned(self, *arguments, artifact=None, **options):
        """The losses, and what stderr says."""
        log = self.path("warned.jsonl")
        done = self.ftrun(artifact or self.artifact, *arguments, "--log-jsonl", log, "--set", "train.log.every=1", **options)
        lines = [{k: v for k, v in line.items() if k != "samples_per_s"} for line in support.read_jsonl(log)]
        os.unlink(log)
        return lines, done.stderr

    def test_all_are_made_before_the_first_step(self):
        """Of batches from the host, of kept data with launches of several lengths, and of a batch in parts."""
        parts = self.compile(os.path.join(cuda.INPUTS, "tiny.ft"), "--set", "train.accumulate=5", name="parts.ptx")
        for artifact, flags, keep in ((self.artifact, ["--steps", 30], 0), (self.artifact, ["--steps", 300], 1), (self.artifact, ["--steps", 1], 0),
                                      (parts, ["--steps", 10], 0), (parts, ["--steps", 10], 1)):
            truth = self.losses(*flags, *LATER, artifact=artifact, device="sim")
            self.assertEqual(self.losses(*flags, *LATER, artifact=artifact, FT_KEEP_DATA=keep, SEED=5), truth)
            report = self.report()
            self.assertGreater(report["graph_make"], 0)
            self.assertEqual(report["graph_late"], 0, (flags, keep))
        self.losses("--steps", 1, *LATER, FT_KEEP_DATA=0)
        self.assertEqual(self.report()["graph_make"], 1)  # no more than the steps need

    def test_evaluations_in_between(self):
        """Launches before them are shorter, and those behind them take the other set of slots."""
        flags = ["--steps", 90, "--set", "train.eval.unit=step", "--set", "train.eval.every=30"]
        truth = self.losses(*flags, device="sim")
        for keep in (0, 1):
            self.assertEqual(self.losses(*flags, FT_KEEP_DATA=keep, SEED=3), truth)
            self.assertLessEqual(self.report()["graph_late"], 8)  # of evaluations

    def test_a_graph_that_cannot_be_made(self):
        truth = self.losses("--steps", 30, device="sim")
        words = {"begin": "capturing a step: operation not permitted when stream is capturing", "launch": "launch of ", "end": "capturing a step: operation failed",
                 "make": "making it: out of memory (CUDA_ERROR_OUT_OF_MEMORY)", "upload": "uploading it: out of memory"}
        for part, why in words.items():
            for keep in (0, 1):
                got, said = self.warned("--steps", 30, GRAPH_FAILS=part, FT_KEEP_DATA=keep, SEED=6)
                self.assertEqual(got, truth, (part, keep))
                self.assertEqual((said.count("warning:"), said.count("\n")), (1, 1), said)
                self.assertIn("cuda:0 (Fake GPU, sm_90)", said)
                self.assertIn("there is no CUDA graph of graph ", said)
                self.assertIn(why, said)
                self.assertIn("kernels are launched one by one from now on: steps are slower, and their results the same", said)
                self.assertEqual((self.report()["graph_launch"], self.report()["left"]), (0, 0))

    def test_one_that_cannot_be_made_later(self):
        """Some graphs are there already: of the steps, and the evaluation's is not."""
        truth = self.losses("--epochs", 2, device="sim")
        for part in ("begin", "launch", "make"):
            for keep, later in ((0, 5), (0, 3), (1, 3)):
                got, said = self.warned("--epochs", 2, GRAPH_FAILS=part, GRAPH_FAILS_FROM=later, FT_KEEP_DATA=keep, SEED=2)
                self.assertEqual(got, truth, (part, keep, later))
                self.assertEqual(said.count("there is no CUDA graph of graph "), 1, said)
                self.assertEqual(self.report()["left"], 0)

    def test_timing_without_graphs(self):
        """Products are timed all the same, and so is bench's table."""
        library = dict(FT_CUBLASLT_LIBRARY=cuda.BLAS, FT_CUBLASLT="", CC=80, FT_FAKE_BLAS_SLOW=1)
        truth = self.losses("--steps", 5, device="sim")
        got, said = self.warned("--steps", 5, GRAPH_FAILS="begin", **library)
        self.assertEqual([line["loss"] for line in got], [line["loss"] for line in truth])
        self.assertIn("there is no CUDA graph of what is timed", said)
        self.assertEqual(said.count("warning:"), 1, said)
        done = support.run("ftrun", "bench", self.artifact, "--steps", "4", "--per-kernel", "--device", "cuda", cwd=self.folder, env=self.environment(GRAPH_FAILS="make"))
        self.assertIn("median", done.stdout)
        self.assertEqual(done.stderr.count("warning:"), 1, done.stderr)

    def test_a_lost_gpu_is_not_taken_for_it(self):
        self.refused(3, "CUDA_ERROR_LAUNCH_FAILED", "--steps", 5, LOST_AFTER=1)


class Compiling(cuda.CudaCase):
    SLOW = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ill formed pipeline stage in the function 'k3_dot'\n"
            "ptxas info    : Function properties for k4_row\n    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
            "ptxas info    : Function properties for k5_row\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n")

    def said(self, log):
        done = self.ftrun(self.artifact, "--steps", 2, FT_KEEP_DATA=0, JIT_INFO=log)
        return done.stderr

    def test_slow_kernels_are_told(self):
        said = self.said(self.SLOW)
        self.assertIn("warning: tiny.ptx: kernel k3_dot is slower than it could be: wgmma.mma_async instructions are serialized due to ill formed pipeline stage\n",
                      said.replace(self.folder + "/", ""))
        self.assertIn("kernel k4_row is slower than it could be: it has too few registers and keeps values in memory instead (spills: 12 bytes of stores, 16 of loads for each thread)", said)
        self.assertEqual(said.count("\n"), 2, said)

    def test_a_log_that_is_cut_or_hostile(self):
        self.assertEqual(self.said("ptxas info : Used 40 registers\n"), "")
        many = self.said("".join(f"Potential Performance Loss: slow in the function 'k{i}'\n" for i in range(2000)))  # more than the driver is given room for
        self.assertEqual(many.count("warning:"), 9, many)
        self.assertRegex(many, r"says such things \d+ more times")
        said = self.said("Potential Performance Loss: \x1b[2J%s%n in the function 'k\r\x07'" + "x" * 100000)
        self.assertNotRegex(said, r"[\x00-\x09\x0b-\x1f]")
        self.assertEqual(said.count("warning:"), 1, said)

    def test_modules_side_by_side(self):
        """A large text is compiled in pieces; where one of them is refused, in one."""
        truth = self.losses("--steps", 30, device="sim")
        compiled = {}
        for most in ("", "1", "2", "100", "no"):
            self.assertEqual(self.losses("--steps", 30, FT_CUDA_MODULES=most), truth, most)
            compiled[most] = self.report()["compiled"]
        self.assertEqual(compiled["2"], compiled["1"] + 1)
        self.assertGreater(compiled[""], compiled["2"])
        self.assertEqual((compiled["100"], compiled["no"]), (compiled[""], compiled["1"]))
        for number in (1, 2, 3):
            self.assertEqual(self.losses("--steps", 30, COMPILE_FAILS=number), truth, number)
            self.assertEqual(self.report()["compiled"], compiled[""] + 1)


class Headroom(cuda.CudaCase):
    """64 MiB are left for graphs and the driver, where there is a choice."""
    HEADROOM = 64 << 20

    def run_in(self, memory, *flags, **more):
        done = self.ftrun(self.artifact, "--steps", 40, *LATER, *flags, MEMORY=memory, **more)
        return done.stderr, self.report()

    def test_a_little_less_and_a_little_more(self):
        truth = self.losses("--steps", 40, *LATER, device="sim")
        said, plenty = self.run_in(1 << 30, FT_KEEP_DATA=1)
        self.assertEqual(said, "")
        self.assertEqual((plenty["memory_alloc"], plenty["graph_launch"]), (2, 1))
        # the data would fit, and is sent batch by batch
        said, report = self.run_in(plenty["peak"] + self.HEADROOM - 4096, FT_KEEP_DATA=1)
        self.assertEqual((said, report["memory_alloc"], report["graph_launch"]), ("", 1, 40))
        # slots for steps in a row would fit, and there are fewer
        many = report["peak"]
        said, report = self.run_in(many + self.HEADROOM - 1, FT_KEEP_DATA=0)
        self.assertEqual((said, report["graph_launch"]), ("", 40))
        few = report["peak"]
        self.assertLess(few, many)
        # from here on less than that is left, and that is told
        said, report = self.run_in(few + self.HEADROOM - 1, FT_KEEP_DATA=0)
        self.assertEqual(said.count("warning:"), 1, said)
        self.assertRegex(said, r"tiny.ptx needs 0\.\d MiB on the GPU and 6\d\.\d MiB are free \(of 6\d\.\d MiB\), which leaves 6[34]\.\d MiB: CUDA graphs and libraries want some 64")
        self.assertEqual(self.run_in(few + self.HEADROOM)[0], "")
        said, _ = self.run_in(few)
        self.assertIn("which leaves 0.0 MiB", said)
        self.assertEqual(self.losses("--steps", 40, *LATER, MEMORY=few, SEED=5), truth)
        self.refused(3, "beside it CUDA graphs and libraries want some 64 MiB", MEMORY=few - 1)

    def test_with_the_library(self):
        library = dict(FT_CUBLASLT_LIBRARY=cuda.BLAS, FT_CUBLASLT="library", CC=80)
        self.refused(3, "beside it CUDA graphs and libraries want some 128 MiB", MEMORY=4096, **library)

    def test_a_copy_for_a_checkpoint(self):
        folder = ["--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=10", "--set", "train.checkpoint.dir"]
        _, plenty = self.run_in(1 << 30, *folder[:-1], f"{folder[-1]}={self.path('a')}", FT_KEEP_DATA=0)
        self.assertGreater(plenty["on_device"], 0)
        said, report = self.run_in(plenty["peak"] + self.HEADROOM - 4096, *folder[:-1], f"{folder[-1]}={self.path('b')}", FT_KEEP_DATA=0)
        self.assertEqual((said, report["on_device"]), ("", 0))


if __name__ == "__main__":
    support.main()
