"""What the Python tests share: running ftc and ftrun, safetensors, and the runner whose last line is
`N passed, N failed`. Needs only numpy; tests that compare with PyTorch import it themselves."""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("FT_BUILD", os.path.join(ROOT, "build")))
EXAMPLES = os.path.join(ROOT, "examples")
# Files whose tests take turns: with FT_TURN, the number of commits, which scripts/test gives, every second to fourth of a file's tests runs. What
# takes turns within a test has the next one's when all tests have had theirs.
TURNS = {
    2: """e2e/buckets e2e/check_nan_ops e2e/column_sums e2e/deploy e2e/distil e2e/docs_reference e2e/float8 e2e/float8_delayed
         e2e/float8_gpt e2e/freeze_after e2e/freezing e2e/grow e2e/images e2e/joined e2e/mixing e2e/packed e2e/pitch e2e/precision e2e/prune
         e2e/prune_parts e2e/prune_ranks e2e/quantised e2e/quantize_matrix e2e/ranks_ddp e2e/ranks_files e2e/recompute e2e/running_statistics
         e2e/sensitivity e2e/sharpness e2e/shrink e2e/sim_budgets e2e/storage e2e/tune num/evaluation num/image num/integers num/layers num/moves
         num/ops num/rounded""",
    3: """e2e/checkpoint e2e/cuda e2e/deploy_c e2e/deploy_ptx e2e/faults e2e/gpt e2e/limits e2e/onnx_file e2e/prepared e2e/pruned e2e/quantize
         e2e/recipe e2e/sim_traffic e2e/stopping e2e/tensorboard e2e/terminal e2e/waits e2e/zoo num/attention""",
    4: "e2e/ranks e2e/ranks_ptx e2e/sim",
}
IS_SANITIZED = b"__asan_init" in subprocess.run(["nm", os.path.join(BUILD, "bin", "ftrun")], capture_output=True).stdout
LINKER = ["clang-19", "-fsanitize=address"] if IS_SANITIZED else ["gcc"]  # of a program with an artifact, whose kernels call the sanitizer's functions
CHECK_MEMORY = os.environ.get("FT_CHECK_MEMORY", "")  # generated kernels ask whether they stay inside of their tensors
FASHION = "/usr/share/datasets/fashion-mnist"
# mpirun takes away its folder at the end if that is empty, and another mpirun that has just seen it there fails: each test has its own, never empty
if "OMPI_MCA_orte_tmpdir_base" not in os.environ:
    MPI_FOLDER = tempfile.TemporaryDirectory(prefix="ft-mpi-", ignore_cleanup_errors=True)
    os.environ["OMPI_MCA_orte_tmpdir_base"] = MPI_FOLDER.name
    os.makedirs(os.path.join(MPI_FOLDER.name, f"ompi.{os.uname().nodename}.{os.getuid()}", "stays"))
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")  # ranks that wait leave the processors to those that run
DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "u1", "I8": "i1"}


def run(tool, *arguments, check=True, timeout=300, cwd=None, env=None):
    """Runs a tool of ours. Returns the CompletedProcess; with check, a failure raises with its output."""
    command = [os.path.join(BUILD, "bin", tool), *map(str, arguments)]
    environment = dict(os.environ, **(env or {}))
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=cwd, env=environment)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\nexit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done


def levels():
    """The values of --cpu between x86-64 and native whose code this machine runs: those with registers of 32 and 64 bytes."""
    with open("/proc/cpuinfo") as file:
        flags = file.read().split()
    return [level for level, flag in (("x86-64-v3", "avx2"), ("x86-64-v4", "avx512vl")) if flag in flags]


def peer_python(script):
    """The Python that a script such as scripts/watch-peers makes, with packages to compare with; what needs it is skipped where they cannot be installed."""
    folder = os.path.join(BUILD, script)
    made = subprocess.run([os.path.join(ROOT, "scripts", script), folder], capture_output=True, text=True)
    if made.returncode != 0:
        raise unittest.SkipTest(f"scripts/{script} cannot install what this compares with: " + made.stderr[-200:])
    return os.path.join(folder, "bin", "python")


def write_safetensors(path, tensors):
    names = {numpy.dtype(text): name for name, text in DTYPES.items()}
    header, offset, parts = {}, 0, []
    for name, value in tensors.items():
        value = numpy.asarray(value)
        data = value.tobytes()  # C order, whatever the strides
        header[name] = {"dtype": names[value.dtype], "shape": list(value.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def write_example_mlp(path):
    """Weights for examples/fashion_mlp.ft, drawn; gives them."""
    shapes, random = {"fc1": (128, 784), "fc2": (64, 128), "fc3": (10, 64)}, numpy.random.default_rng(2)
    tensors = {name + ".weight": random.standard_normal(shape).astype(numpy.float32) / 20 for name, shape in shapes.items()}
    tensors.update({name + ".bias": random.standard_normal(shape[0]).astype(numpy.float32) for name, shape in shapes.items()})
    write_safetensors(path, tensors)
    return tensors


def read_safetensors(path):
    with open(path, "rb") as file:
        bytes_ = file.read()
    (length,) = struct.unpack("<Q", bytes_[:8])
    header = json.loads(bytes_[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            raw = bytes_[8 + length + begin : 8 + length + end]
            if entry["dtype"] == "BF16":  # numpy has none: as f32
                value = (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
            else:
                value = numpy.frombuffer(raw, DTYPES[entry["dtype"]])
            tensors[name] = value.reshape(entry["shape"]).copy()
    return tensors


def turn_of(file):
    """(which, of how many) of a file's tests run; FT_TURN becomes what is within the tests."""
    turn, name = os.environ.get("FT_TURN"), "/".join(os.path.splitext(os.path.abspath(file))[0].split(os.sep)[-2:])
    of = next((of for of, names in TURNS.items() if name in names.split()), 1)
    if not turn or of == 1 or IS_SANITIZED:  # CI has a fifth of the files then
        return 0, 1
    os.environ["FT_TURN"] = str(int(turn) // of)
    return (int(turn) + len(name)) % of, of  # those of a single test not all in the same commits


TURN, TURN_OF = turn_of(getattr(sys.modules["__main__"], "__file__", "") or "")


def has_its_turn(number, of=5):
    """Of many cases every fifth (or every third, and so on), with FT_TURN, the number of commits, which scripts/test gives; without it each."""
    turn = os.environ.get("FT_TURN")
    return not turn or number % of == int(turn) % of


def of_this_turn(cases, of):
    """Those whose turn it is."""
    return [case for number, case in enumerate(cases) if has_its_turn(number, of)]


def in_turns(number, of):
    """Of a class of tests or of one: only the commits whose turn it is run it, as has_its_turn says."""
    return unittest.skipUnless(has_its_turn(number, of), "the turn of another commit")


def read_log(path):
    """All that a log of JSON lines holds, but for its events (read_events) and statistics by layer."""
    with open(path) as file:
        return [line for line in map(json.loads, file) if not is_event(line, "end", "checkpoint") and "activations" not in line]


def read_events(path):
    """Its lines that tell of checkpoints and of the end of the training."""
    with open(path) as file:
        return [line for line in map(json.loads, file) if is_event(line, "end", "error", "checkpoint")]


def is_event(line, *kinds):
    return any(isinstance(line.get(kind), str) for kind in kinds)


def read_jsonl(path):
    """Its lines without headers, events, splits, clocks, and means, which depend on where a training went on."""
    return [{k: v for k, v in line.items() if k not in ("time", "data_wait", "means", "split")} for line in read_log(path)
            if "ft" not in line and not is_event(line, "error")]


class Case(unittest.TestCase):
    """A test with a folder of its own, removed afterwards."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="ft-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def compile(self, source, *flags, name="model.so"):
        """Compiles a file, or a text that is not a path, to an artifact in the folder."""
        if "\n" in source:
            with open(self.path("model.ft"), "w") as file:
                file.write(source)
            source = self.path("model.ft")
        checks = ["--check-memory"] if CHECK_MEMORY and name.endswith(".so") else []
        run("ftc", source, "-o", self.path(name), *checks, *flags)
        return self.path(name)

    def untrained(self, text, x, y):
        """Writes a model, m.ft, and its data, and returns the weights that its training begins with."""
        numpy.save(self.path("x.npy"), x.astype("f4"))
        numpy.save(self.path("y.npy"), y.astype("i4"))
        with open(self.path("m.ft"), "w") as file:
            file.write(text)
        run("ftc", self.path("m.ft"), "-o", self.path("m.so"))
        run("ftrun", self.path("m.so"), "--data", self.folder, "--steps", 0, "--save", self.path("w.safetensors"))
        return read_safetensors(self.path("w.safetensors"))

    def predict(self, artifact, inputs, weights, outputs, *flags):
        """ftrun predict by arrays: outputs by name."""
        write_safetensors(self.path("w.safetensors"), weights)
        arguments = []
        for name, value in inputs.items():
            numpy.save(self.path(f"{name}.npy"), value)
            arguments += ["--input", f"{name}={self.path(name + '.npy')}"]
        for name in outputs:
            arguments += ["--output", f"{name}={self.path('out_' + name + '.npy')}"]
        run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), *arguments, *flags)
        return {name: numpy.load(self.path(f"out_{name}.npy")) for name in outputs}

    def fails(self, exit_code, needle, tool, *arguments, **options):
        """The tool must end with exit_code and say one clear thing that holds `needle`."""
        done = run(tool, *arguments, check=False, **options)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, exit_code, said[-2000:])
        self.assertIn(needle, said)
        for trace in ("Sanitizer", "Segmentation", "core dumped", "Assertion", "LLVM ERROR"):
            self.assertNotIn(trace, said)
        return done


class Loader(unittest.TestLoader):
    """Of a file's tests those whose turn it is."""

    def loadTestsFromModule(self, *arguments, **options):
        tests = list(each_test(super().loadTestsFromModule(*arguments, **options)))
        return self.suiteClass([test for number, test in enumerate(tests) if number % TURN_OF == TURN])


def each_test(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each_test(test)
        else:
            yield test


def spent():
    """Seconds of processors, by this process and by those that it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def main():
    """Runs the caller's tests; prints each as it ends and the count; exit 1 if one failed."""

    class Result(unittest.TextTestResult):
        def getDescription(self, test):
            return test.id()

        def startTest(self, test):
            self.spent = spent()
            super().startTest(test)

        def stopTest(self, test):
            super().stopTest(test)
            if spent() - self.spent >= 2:
                self.stream.writeln(f"{spent() - self.spent:.0f} s of processors: {test.id()}")

    program = unittest.main(module="__main__", exit=False, testLoader=Loader(), verbosity=int(os.environ.get("FT_TEST_VERBOSITY", "1")),
                            testRunner=unittest.TextTestRunner(resultclass=Result, stream=sys.stderr))
    failed = len(program.result.failures) + len(program.result.errors) + len(program.result.unexpectedSuccesses)
    skipped = len(program.result.skipped)
    print(f"{max(program.result.testsRun - failed - skipped, 0)} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or program.result.testsRun == 0 and TURN_OF == 1 else 0)
