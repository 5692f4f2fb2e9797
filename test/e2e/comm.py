"""Several ranks, started by mpirun: every kind of work, type and operation against numpy, and what is said when a rank dies, stops,
falls behind, or does something else than the others. runtime/communicate; test/tools/comm_program.c is one rank."""
import concurrent.futures
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

PROGRAM = os.path.join(support.BUILD, "unit", "comm_program")
HAS_MPI = shutil.which("mpirun") and os.path.exists(os.path.join(support.BUILD, "lib", "libft-mpi.so"))
TIMEOUT = 10  # seconds, of faults; mpirun has to have started all ranks by then
HANG = 90  # seconds: what takes longer hangs
TYPES = {"bool": np.uint8, "u8": np.uint8, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "f16": np.float16, "bf16": np.uint16,
         "f32": np.float32, "f64": np.float64}
FAULTS = [(4, "nothing"), (2, "slow"), (4, "dies"), (2, "zero-dies"), (4, "stops"), (4, "zero-stops"), (4, "sleeps"), (4, "other"),
          (4, "leaves"), (4, "fails"), (4, "absent")]
OPS = ["sum", "min", "max", "prod"]


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values):
    """f32 to bf16, to the nearest, ties to even"""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def some(random, dtype, count):
    if dtype == "bool":
        return random.integers(0, 2, count).astype(np.uint8)
    if dtype in ("f16", "f32", "f64"):
        values = (random.standard_normal(count) * 10.0 ** random.integers(-3, 3, count)).astype(TYPES[dtype])
    elif dtype == "bf16":
        values = narrow(random.standard_normal(count).astype(np.float32))
    else:
        info = np.iinfo(TYPES[dtype])
        return random.integers(info.min, info.max, count, dtype=TYPES[dtype], endpoint=True)  # sums wrap
    special = {"f16": [np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8], "bf16": [0x7FC1, 0xFFC0, 0x7F80, 0xFF80, 0, 0x8000, 1]}
    places = random.integers(0, max(count, 1), count // 8)
    choice = np.array(special.get(dtype, [np.nan, np.inf, -np.inf, 0.0, -0.0]), TYPES[dtype])
    values[places] = random.choice(choice, len(places))
    return values


def factors(x, dtype):
    """Numbers from 1/2 to 2, and what is special: products of these neither leave the range nor lose bits at its lower end."""
    if dtype not in ("f16", "bf16", "f32", "f64"):
        return x
    wide = widen(x) if dtype == "bf16" else x.astype(np.float64)
    plain = np.isfinite(wide) & (wide != 0)
    with np.errstate(all="ignore"):
        wide = np.where(plain, np.sign(wide) * (0.5 + 1.5 * np.abs(wide) / (1 + np.abs(wide))), wide)
    return narrow(wide.astype(np.float32)) if dtype == "bf16" else wide.astype(TYPES[dtype])


def bits(values):
    return values.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize])


class Comm(support.Case):
    faults = {}
    apart = False  # the ranks share no memory

    def setUp(self):
        if not HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        self.folder = tempfile.mkdtemp(prefix="ft-comm-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def mpirun(self, ranks, what, *arguments):
        if what not in ("works", "speed", "stages"):
            arguments = (what, *arguments)
            what = "fault"
        command = ["mpirun", "--oversubscribe", "-n", str(ranks)]
        if os.getuid() == 0:
            command.insert(1, "--allow-run-as-root")
        done = subprocess.run([*command, PROGRAM, what, *map(str, arguments)], capture_output=True, text=True, timeout=HANG,
                              env={**os.environ, **({"COMM_PROGRAM_APART": "1"} if self.apart else {})})
        return done.returncode, done.stdout, done.stderr

    # ── works ──
    def cases(self, ranks):
        for kind in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"):
            for dtype in TYPES:
                ops = [0, 1, 2, 3] if kind in ("all_reduce", "reduce_scatter") else [0]
                for op in ops:
                    if op in (0, 3) and dtype == "bool" and len(ops) > 1:
                        continue
                    is_parted = kind in ("all_reduce", "reduce_scatter", "all_gather")  # of many elements, each rank reduces a part
                    many = (5003 * ranks + (kind == "all_reduce"), op != OPS.index("max"))
                    for count, in_place in ((24 * ranks, 0), (1000 * ranks, 1), (0, 0), *([many] if is_parted else [])):
                        if kind == "reduce_scatter" and in_place:
                            in_place = 0
                        yield kind, op, ranks - 1 if kind == "broadcast" else 0, dtype, count, int(in_place)

    def combine(self, dtype, op, values):
        """In more bits where there are rounded sums and products; exact otherwise."""
        more = np.longdouble if dtype == "f64" else np.float64
        wide = [widen(v) if dtype == "bf16" else v for v in values]
        with np.errstate(all="ignore"):
            if op == "sum" and dtype in ("f16", "bf16", "f32", "f64"):
                return np.sum([w.astype(more) for w in wide], axis=0)
            if op == "sum":
                return np.sum(wide, axis=0, dtype=TYPES[dtype])
            if op == "prod":
                return np.prod([w.astype(more if w.dtype.kind == "f" else TYPES[dtype]) for w in wide], axis=0, dtype=None if wide[0].dtype.kind == "f" else TYPES[dtype])
            result = (np.minimum if op == "min" else np.maximum).reduce(wide)
        if dtype in ("f16", "bf16", "f32", "f64"):  # numpy does not tell the zeros apart
            signs = [np.signbit(w) for w in wide]
            sign = np.logical_or.reduce(signs) if op == "min" else np.logical_and.reduce(signs)
            result = np.where(result == 0, np.where(sign, -0.0, 0.0), result)
        return result

    def expected(self, case, inputs, rank):
        kind, op, peer, dtype, count, _ = case
        ranks, part = len(inputs), count // len(inputs)
        own = slice(rank * part, (rank + 1) * part)
        if kind == "all_reduce":
            return self.combine(dtype, OPS[op], inputs)
        if kind == "reduce_scatter":
            return self.combine(dtype, OPS[op], [x[own] for x in inputs])
        if kind == "all_gather":
            return np.concatenate(inputs)
        if kind == "all_to_all":
            return np.concatenate([x[own] for x in inputs])
        return inputs[peer]

    def compare(self, case, got, expected, inputs, label):
        kind, op, _, dtype, _, _ = case
        is_combined = kind in ("all_reduce", "reduce_scatter")
        if not is_combined or dtype in ("bool", "u8", "i32", "u32", "i64"):
            self.assertTrue(np.array_equal(bits(got), bits(np.ascontiguousarray(expected))), label)
            return
        value = widen(got) if dtype == "bf16" else got
        if OPS[op] in ("min", "max"):
            exact = narrow(expected) if dtype == "bf16" else expected.astype(TYPES[dtype])
            both_nan = np.isnan(value) & np.isnan(expected)
            self.assertTrue(np.all(both_nan | (bits(got) == bits(exact))), label)
            return
        # each of ranks - 1 sums is rounded once, by half a unit of a number no larger than the sum of sizes
        epsilon = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[dtype]
        smallest = {"f16": 2.0**-25, "bf16": 2.0**-134, "f32": 2.0**-150, "f64": 0}[dtype]
        wide = [np.abs((widen(x) if dtype == "bf16" else x).astype(np.float64)) for x in inputs]
        with np.errstate(all="ignore"):
            if OPS[op] == "prod":
                wide = [np.abs(expected)]  # each of the products is rounded once
            size = np.sum(wide, axis=0) if kind == "all_reduce" else None
            if size is None:
                size = np.abs(expected)
                size = np.full_like(expected, np.max([np.max(w[np.isfinite(w)], initial=0) for w in wide]) * len(inputs))
            off = np.abs(value.astype(np.float64) - expected)
            good = off <= (len(inputs) - 1) * (epsilon * size * 1.01 + smallest)
        same = (np.isnan(value) & np.isnan(expected)) | (value == expected)
        if dtype == "f16":
            same |= np.isinf(value) & (np.abs(expected) > 65000)
        self.assertTrue(np.all(good | same), label)

    def members(self, mesh, over, rank):
        """The ranks of the group along this axis in which the rank is, in order."""
        place = lambda r: [r // (mesh[1] * mesh[2]), r // mesh[2] % mesh[1], r % mesh[2]]
        same = lambda r: all(x == y for axis, (x, y) in enumerate(zip(place(r), place(rank)), 1) if axis != over)
        return [r for r in range(math.prod(mesh)) if over == 0 or same(r)]

    def works(self, ranks, piece, seed, mesh=None, what="works"):
        random = np.random.default_rng(seed)
        cases = list(self.cases(ranks))
        random.shuffle(cases)
        sizes = [ranks, *(mesh or (ranks, 1, 1))]
        cases = [[c[0], *map(int, c[1:3]), c[3], *map(int, c[4:]), int(random.integers(0, 4)) if mesh else 0] for c in cases]
        for case in cases:
            case[2] = min(case[2], sizes[case[6]] - 1)
        self.last_cases, inputs = cases, []
        with open(os.path.join(self.folder, "cases"), "w") as file:
            file.writelines(" ".join(map(str, case)) + "\n" for case in cases)
        for i, case in enumerate(cases):
            shape = factors if case[1] == 3 else lambda x, dtype: x
            inputs.append([shape(some(random, case[3], case[4]), case[3]) for _ in range(ranks)])
            for rank, x in enumerate(inputs[i]):
                x.tofile(os.path.join(self.folder, f"x.{i}.{rank}"))
        code, out, err = self.mpirun(ranks, what, self.folder, seed, piece, *(mesh or ()))
        self.assertEqual(code, 0, err)
        self.assertIn(f"{ranks} ranks on 1 machine, ", out)
        if what == "works":
            self.assertRegex(out, "differs 1: the rank of ranks? 1.* not the same as rank 0's")
        results = []
        for i, case in enumerate(cases):
            got = [np.fromfile(os.path.join(self.folder, f"y.{i}.{rank}"), TYPES[case[3]]) for rank in range(ranks)]
            for rank in range(ranks):
                group = self.members(mesh or (ranks, 1, 1), case[6], rank)
                there = [inputs[i][r] for r in group]
                expected = self.expected(case[:6], there, group.index(rank))
                self.assertEqual(len(got[rank]), len(expected), case)
                self.compare(case[:6], got[rank], expected, there, f"rank {rank} of {ranks}: {case}")
                if case[0] in ("all_reduce", "broadcast", "all_gather"):
                    self.assertTrue(np.array_equal(bits(got[group[0]]), bits(got[rank])), f"ranks differ: {case}")
            results.append(b"".join(g.tobytes() for g in got))
        return results

    def test_works_of_two(self):
        self.assertEqual(self.works(2, 0, 1), self.works(2, 0, 1), "two runs differ")

    def test_works_of_three(self):
        self.works(3, 0, 2)

    def test_works_of_four(self):
        """What is done in shared memory and what by messages: the same bits of what is not added, and of large sums."""
        shared = self.works(4, 0, 3)
        self.apart = True
        by_messages = self.works(4, 0, 3)
        same = [a == b for case, a, b in zip(self.last_cases, shared, by_messages) if case[0] not in ("all_reduce", "reduce_scatter") or case[4] > 20000]
        self.assertGreater(len(same), 40)
        self.assertTrue(all(same))

    def test_works_of_groups(self):
        """Of the axes of a mesh: a group of one, of all, and of some."""
        self.works(4, 0, 6, (2, 1, 2))
        self.works(4, 100, 7, (1, 2, 2))

    def test_stages(self):
        """Programs of their own, with messages between them: more than there are works at a time, begun in another order than the
        collectives of both."""
        for ranks, mesh in ((2, (1, 2, 1)), (4, (2, 2, 1)), (4, (1, 2, 2))):
            with self.subTest(mesh=mesh):
                code, _, err = self.mpirun(ranks, "stages", 60, 0, 0, *mesh)
                self.assertEqual(code, 0, err)

    def test_works_in_pieces(self):
        """As if there were more elements than a call of MPI can have."""
        self.apart = True
        self.works(2, 7, 4)
        self.works(4, 100, 5)

    # ── faults ──
    def run_fault(self, ranks, what):
        """They wait most of the time, so two go on at once."""
        if not Comm.faults:
            pool = concurrent.futures.ThreadPoolExecutor(2)
            for case in FAULTS:
                Comm.faults[case] = pool.submit(self.mpirun, *case, TIMEOUT)
        return Comm.faults[ranks, what].result()

    def fault(self, ranks, what, sentence):
        got, out, err = self.run_fault(ranks, what)
        if sentence:
            self.assertRegex(err, sentence)
            self.assertNotIn("all rounds", out)
            self.assertNotEqual(got, 0)
        else:
            self.assertIn("all rounds", out)
            self.assertEqual(got, 0, err)
        end = time.monotonic() + 15  # the one that ends a launcher which hangs waits five seconds (runtime/communicate/launcher.c)
        while (left := self.left_of(what)) and time.monotonic() < end:
            time.sleep(0.2)
        self.assertEqual(left, "", "processes are left behind")

    def left_of(self, what):
        return subprocess.run(["pgrep", "-f", f"^{re.escape(PROGRAM)} fault {what} {TIMEOUT}$"], capture_output=True, text=True).stdout

    def test_nothing_is_wrong(self):
        self.fault(4, "nothing", None)

    def test_slow_is_not_wrong(self):
        self.fault(2, "slow", None)

    def test_dead(self):
        self.fault(4, "dies", r"said: rank 1 \(host \S+\) has ended without a word \(killed, or out of memory\); it was last seen in step [1-6], "
                   r"round of faults, (in|behind) all_reduce #[1-6] \(gradients of h.3\).*; the other 3 end")

    def test_dead_rank_0(self):
        self.fault(2, "zero-dies", r"said: rank 0 \(host \S+\) has ended without a word \(killed, or out of memory\); it was last seen in step [1-6]")

    def test_stopped(self):
        self.fault(4, "stops", r"said: rank 1 \(host \S+\) has not entered all_reduce #6 \(gradients of h.3\) of step 6 for 10 s and nothing is "
                   r"heard from there \(stopped, or cut off\); it was last seen in step [1-6], round of faults; the other 3 wait")

    def test_stopped_rank_0(self):
        self.fault(4, "zero-stops", r"said: nothing is heard from rank 0 \(host \S+\) for \d+ s \(stopped, or cut off\); "
                   r"it was last seen in step [1-6].*; rank 1 waits for 10 s in all_reduce #6 \(gradients of h.3\) of step 6")

    def test_behind(self):
        self.fault(4, "sleeps", r"said: rank 1 \(host \S+\) has not entered all_reduce #6 \(gradients of h.3\) of step 6 for 10 s; "
                   r"it was last seen in step 6, round of faults; the other 3 wait")

    def test_other_order(self):
        self.fault(4, "other", r"said: rank 1 \(host \S+\) has begun all_reduce of 999 f32 \(gradients of h.3\) as collective #6, and rank 0 "
                   r"all_reduce of 1000 f32")

    def test_leaves(self):
        self.fault(4, "leaves", r"said: rank 1 \(host \S+\) has ended its run, and rank \d waits for it in all_reduce #6")

    def test_fails(self):
        self.fault(4, "fails", r"said: rank 1 \(host \S+\) has failed: images.idx: no such file")

    def test_never_comes(self):
        self.fault(4, "absent", r"said: rank 1 of 4 has not come within 10 s \(host")


if __name__ == "__main__":
    support.main()
