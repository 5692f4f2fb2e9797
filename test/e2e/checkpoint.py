"""Checkpoints: whatever ends a training, and whenever, `--resume DIR` goes on from the newest one, and the end is
bitwise that of a training that nothing ended: weights, averages, log. Also what is damaged, full, or of another model."""
import json
import os
import re
import random
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

if os.access("/dev/shm", os.W_OK):
    tempfile.tempdir = "/dev/shm"  # a killed process is not a power cut: nothing here needs a disk
SOAK = bool(os.environ.get("FT_SOAK"))
MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  h = dropout(gelu(Linear(%(hidden)s, name="fc1")(x)), 0.2)
  logits = Linear(4, name="head")(h)
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("vx.npy", "vy.npy"); shuffle = true }
train { batch = 4; accumulate = %(parts)s; seed = 5; precision = %(precision)s
  optimizer = %(optimizer)s
  schedule = plateau(gamma=0.7, patience=0, final=0.1, metric=max(valid.accuracy))
  ema = 0.9
  eval every 7 steps
  checkpoint { every = 2 steps; keep = 2; best = max(valid.accuracy) }
  log { every = 1 steps }
}
"""
OPTIMIZERS = ("sgd(lr=0.05, momentum=0.9, weight_decay=0.01)", "adam(lr=0.01)", "adamw(lr=0.01, weight_decay=0.1 on rank >= 2)", "lion(lr=0.001)",
              "adagrad(lr=0.05)", "rmsprop(lr=0.002, momentum=0.9, centered=true, eps=0.001)", 'muon(lr=0.02) on "fc1.weight"')
# Ends the process at its N-th attempt to change a file whose name has "safetensors", before or after the change.
KILLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int wanted = -1, count;
static void at(int is_ours) {
  if (wanted < 0) wanted = atoi(getenv("KILL_AT"));
  if (is_ours && __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) == wanted) raise(SIGKILL);
}
static int is_ours(int fd) {
  char link[64], name[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, name, sizeof name - 1);
  if (length < 0) return 0;
  name[length] = 0;
  return strstr(name, "safetensors") || strstr(name, "/runs");
}
__attribute__((destructor)) static void say(void) { printf("places: %d\n", count); }
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int open(const char *path, int flags, ...) {
  va_list list; va_start(list, flags); int mode = va_arg(list, int); va_end(list);
  int ours = (flags & O_CREAT) && strstr(path, "safetensors");
  at(ours); int result = REAL(open)(path, flags, mode); at(ours); return result;
}
ssize_t write(int fd, const void *bytes, size_t count_) {
  int ours = is_ours(fd);
  at(ours);
  if (ours && count_ > 1) { /* a part of it first */
    ssize_t part = REAL(write)(fd, bytes, count_ / 2);
    at(ours);
    return part;
  }
  return REAL(write)(fd, bytes, count_);
}
ssize_t pwrite(int fd, const void *bytes, size_t count_, off_t place) {
  int ours = is_ours(fd);
  at(ours);
  ssize_t part = REAL(pwrite)(fd, bytes, ours && count_ > 1 ? count_ / 2 : count_, place);
  at(ours);
  return part;
}
int ftruncate(int fd, off_t size) { int ours = is_ours(fd); at(ours); int r = REAL(ftruncate)(fd, size); at(ours); return r; }
int fsync(int fd) { int ours = is_ours(fd); at(ours); int r = REAL(fsync)(fd); at(ours); return r; }
int rename(const char *a, const char *b) { int ours = !!strstr(b, "safetensors"); at(ours); int r = REAL(rename)(a, b); at(ours); return r; }
int unlink(const char *a) { int ours = !!strstr(a, "safetensors"); at(ours); int r = REAL(unlink)(a); at(ours); return r; }
"""
# Says which folders are made and synced.
WATCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int mkdir(const char *path, mode_t mode) {
  int result = REAL(mkdir)(path, mode);
  if (!result) fprintf(stderr, "mkdir %s\n", path);
  return result;
}
int fsync(int fd) {
  char link[64], name[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, name, sizeof name - 1);
  if (length > 0) fprintf(stderr, "fsync %.*s\n", (int)length, name);
  return REAL(fsync)(fd);
}
"""
# A disk that takes its time: nothing of a checkpoint is on it before there is a file GO.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int fsync(int fd) {
  char link[64], name[512] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  (void)!readlink(link, name, sizeof name - 1);
  while (strstr(name, "safetensors") && access(getenv("GO"), F_OK) != 0) usleep(1000);
  return ((__typeof__(&fsync))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""
# 10 million parameters: 40 MB of them, as many of the momentum
LARGE = """
model M(x: f32[B, 8], y: i32[B]) {
  h = Linear(4000, name="fc1")(x)
  logits = Linear(4, name="head")(Linear(2500, name="fc2")(h))
  loss = mean(cross_entropy(logits, y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = 4; seed = 5; optimizer = sgd(lr=0.001, momentum=0.9)
  checkpoint { every = 1 steps } }
"""
# Runs a command, and says in MiB how much memory it had at most, and how much address space when last seen.
MEMORY = """
import re, resource, subprocess, sys, time
running, space = subprocess.Popen(sys.argv[1:]), 0
while running.poll() is None:
    space = max([space, *map(int, re.findall(r"VmPeak:\\s+(\\d+)", open(f"/proc/{running.pid}/status").read()))])
    time.sleep(0.005)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, space / 1024, file=sys.stderr)
sys.exit(running.returncode)
"""


def lines_of(path):
    """The log without what depends on the clock."""
    return [{k: v for k, v in line.items() if k != "samples_per_s"} for line in support.read_jsonl(path)]


class Checkpoints(support.Case):
    def setUp(self):
        super().setUp()
        maker = numpy.random.default_rng(3)
        for name, count in (("", 90), ("v", 200)):
            x = maker.standard_normal((count, 8)).astype("f4")
            numpy.save(self.path(name + "x.npy"), x)
            numpy.save(self.path(name + "y.npy"), (x[:, :4] + maker.standard_normal((count, 4))).argmax(1).astype("i4"))
        self.runs = self.path("runs")

    def build(self, name="model.so", hidden=16, optimizer="adamw(lr=0.01)", precision="f32", parts=1):
        return self.compile(MODEL % dict(hidden=hidden, optimizer=optimizer, precision=precision, parts=parts), name=name)

    def flags(self, artifact, steps, name="a", folder=None):
        return [artifact, "--data", self.folder, "--steps", steps, "--save", self.path(name), "--save-ema", self.path(name + "-ema"),
                "--log-jsonl", self.path(name + ".jsonl"), "--set", f"train.checkpoint.dir={folder or self.runs}"]

    def checkpoints(self):
        return sorted(os.listdir(self.runs)) if os.path.isdir(self.runs) else []

    def whole(self, artifact, steps, *more):
        support.run("ftrun", *self.flags(artifact, steps, "whole", self.path("whole-runs")), *more)

    def assert_as_whole(self, name="a"):
        for end in ("", "-ema"):
            self.assertEqual(open(self.path(name + end), "rb").read(), open(self.path("whole" + end), "rb").read(), end)
        self.assertEqual(lines_of(self.path(name + ".jsonl")), lines_of(self.path("whole.jsonl")))
        mine, other = (open(os.path.join(folder, "best.safetensors"), "rb").read() for folder in (self.runs, self.path("whole-runs")))
        self.assertEqual(mine, other, "best.safetensors")

    def start(self, artifact, steps, **environment):
        resume = ["--resume", self.runs] if any(name.endswith(".safetensors") for name in self.checkpoints()) else []
        command = [os.path.join(support.BUILD, "bin", "ftrun"), *map(str, self.flags(artifact, steps) + resume)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **environment))

    def end_often(self, artifact, times, number, code):
        """Sends a signal after a random time, `times` times; the training then ends by itself, as if it had always been let alone."""
        dice, seen, begin, window = random.Random(times + number), set(), time.monotonic(), 0.07
        for k in range(times):
            running = self.start(artifact, 10_000_000)
            time.sleep(dice.uniform(0, window))
            running.send_signal(number)
            said = running.communicate(timeout=60)[0]
            self.assertIn(running.returncode, (code, -number), f"time {k}: {said[-2000:]}")  # -number: before the training began
            if tuple(self.checkpoints()) in seen:  # it did not come as far as a checkpoint: a busy machine
                window = min(window * 1.5, 5)
            seen.add(tuple(self.checkpoints()))
            for name in self.checkpoints():  # what has its name is whole
                if name.endswith(".safetensors"):
                    support.read_safetensors(os.path.join(self.runs, name))
        newest = max(int(name[5:13]) for name in self.checkpoints() if name.startswith("step"))
        print(f"{times} times signal {number} in {newest} steps: {time.monotonic() - begin:.1f} s")
        self.assertGreater(len(seen), times / 3)  # it came forward in between
        running = self.start(artifact, newest + 9)
        said = running.communicate(timeout=120)[0]
        self.assertEqual(running.returncode, 0, said[-2000:])
        self.assertFalse([name for name in self.checkpoints() if name.endswith(".tmp")])
        self.whole(artifact, newest + 9, "--set", "train.checkpoint.every=100000")
        self.assert_as_whole()

    def test_killed_at_random_instants(self):
        """What was left by one that was killed in between is gone in the end, too."""
        os.makedirs(self.runs)
        for name in (".ft-try.vm.0123abcd.tmp", "step-00000003.safetensors.vm.0123abcd.tmp"):
            open(os.path.join(self.runs, name), "w").close()
        self.end_often(self.build(hidden=300), 600 if SOAK else 30, signal.SIGKILL, -signal.SIGKILL)

    def test_asked_to_end_at_random_instants(self):
        """SIGTERM saves, also amid an evaluation, which is then made up for."""
        self.end_often(self.build(hidden=300, parts=2), 100 if SOAK else 8, signal.SIGTERM, 128 + signal.SIGTERM)

    def test_training_goes_on_meanwhile(self):
        """A slow disk: steps go on up to the next checkpoint, which waits; so does the end, and what is asked to end."""
        with open(self.path("slow.c"), "w") as file:
            file.write(SLOW)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", self.path("slow.so"), self.path("slow.c"), "-ldl"], check=True)
        artifact, go, log = self.build(), self.path("go"), self.path("a.jsonl")
        running = self.start(artifact, 10_000_000, LD_PRELOAD=self.path("slow.so"), GO=go)
        try:
            begin = time.monotonic()
            while not os.path.exists(log) or '"step": 4,' not in open(log).read():
                self.assertIsNone(running.poll())
                self.assertLess(time.monotonic() - begin, 60)
                time.sleep(0.01)
            self.assertNotIn('"step": 5,', open(log).read())
            self.assertFalse([name for name in self.checkpoints() if name.endswith(".safetensors")])
            running.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.assertIsNone(running.poll())
            open(go, "w").close()
            said = running.communicate(timeout=60)[0]
        finally:
            running.kill()
            running.communicate()
        self.assertEqual(running.returncode, 128 + signal.SIGTERM, said)
        self.assertEqual(self.checkpoints(), ["step-00000002.safetensors", "step-00000004.safetensors"])
        self.whole(artifact, 12)
        support.run("ftrun", *self.flags(artifact, 12), "--resume", self.runs)
        self.assert_as_whole()

    def test_killed_while_training_goes_on(self):
        """kill -9 while a checkpoint is on its way: the one before is there, the other one has no name."""
        with open(self.path("slow.c"), "w") as file:
            file.write(SLOW)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", self.path("slow.so"), self.path("slow.c"), "-ldl"], check=True)
        artifact = self.build()
        support.run("ftrun", *self.flags(artifact, 4))
        running = self.start(artifact, 10_000_000, LD_PRELOAD=self.path("slow.so"), GO=self.path("go"))
        try:
            begin = time.monotonic()
            while not any(name.startswith("step-00000006.safetensors.") for name in self.checkpoints()):
                self.assertIsNone(running.poll())
                self.assertLess(time.monotonic() - begin, 60)
                time.sleep(0.01)
        finally:
            running.kill()
            running.communicate()
        self.assertIn("step-00000004.safetensors", self.checkpoints())
        self.assertNotIn("step-00000006.safetensors", self.checkpoints())
        self.whole(artifact, 12)
        support.run("ftrun", *self.flags(artifact, 12), "--resume", self.runs)
        self.assert_as_whole()

    def measure(self, *arguments, limit=None):
        """A run with at most `limit` MiB of address space; last on its stderr: its memory and address space in MiB."""
        with open(self.path("memory"), "w") as file:
            file.write(MEMORY)
        command = [sys.executable, self.path("memory"), os.path.join(support.BUILD, "bin", "ftrun"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=120,
                              preexec_fn=lambda: limit and resource.setrlimit(resource.RLIMIT_AS, (int(limit) << 20,) * 2))

    def peak(self, *arguments):
        """What a run says, and its memory and address space in MiB."""
        done = self.measure(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, *map(float, done.stderr.split()[-2:])

    def test_memory(self):
        """Beside the copy that training goes on from, a piece of the file; without room for a copy, only this."""
        if support.IS_SANITIZED:
            self.skipTest("AddressSanitizer")
        artifact, kept = self.compile(LARGE), 80e6 / 2**20
        flags = [artifact, "--data", self.folder, "--threads", 2, "--steps", 2]
        words = "there is no room for a copy of what a checkpoint holds: training waits while one is written"
        _, plain, space = self.peak(*flags)
        said, copied, _ = self.peak(*flags, "--set", "train.checkpoint.dir=a")
        self.assertNotIn(words, said)
        # The least address space with which training succeeds has no room for a copy. It is looked for from below:
        # what threads reserve, and so what is left of more, differs from run to run.
        limit, done = space - 160, None
        while done is None or done.returncode:
            done = self.measure(*flags, "--set", "train.checkpoint.dir=b", limit=limit)
            if done.returncode:
                self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
                self.assertRegex(done.stderr, "out of memory|raise it .ulimit -v")
                self.assertLess(limit, space + 2 * kept)
            limit += 8
        said, limited = done.stdout, float(done.stderr.split()[-2])
        self.assertEqual(said.count(words), 1)
        _, saved, _ = self.peak(*flags, "--save", "w")
        print(f"MiB: {plain:.0f} without a checkpoint, {copied:.0f} with a copy of {kept:.0f}, {limited:.0f} without one, {saved:.0f} with --save")
        self.assertLess(copied - plain, kept + 24)
        self.assertLess(limited - plain, 24)
        self.assertLess(saved - plain, 24)
        for name in ("step-00000001.safetensors", "step-00000002.safetensors"):
            a, b = (open(self.path(folder, name), "rb").read() for folder in "ab")
            self.assertTrue(a == b, name)

    def test_evaluation_has_no_moments(self):
        """Who only evaluates has no more in memory with an optimizer of two moments than with one of none."""
        if support.IS_SANITIZED:
            self.skipTest("AddressSanitizer")
        peaks = []
        for number, optimizer in enumerate(("sgd(lr=0.001)", "adamw(lr=0.001)")):
            artifact = self.compile(LARGE.replace("sgd(lr=0.001, momentum=0.9)", optimizer), name=f"{number}.so")
            support.run("ftrun", artifact, "--data", self.folder, "--steps", 0, "--save", self.path("w"))
            peaks.append(self.peak("eval", artifact, "--data", self.folder, "--split", "train", "--weights", self.path("w"), "--threads", 2)[1])
        print("MiB of an evaluation: %.0f without moments, %.0f with" % tuple(peaks))
        self.assertLess(peaks[1] - peaks[0], 16)  # a moment has 38

    def test_killed_at_every_change_of_a_file(self):
        """Before, amid and after each call that changes a checkpoint file."""
        with open(self.path("killer.c"), "w") as file:
            file.write(KILLER)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", self.path("killer.so"), self.path("killer.c"), "-ldl"], check=True)
        artifact = self.build()
        self.whole(artifact, 7, "--set", "train.checkpoint.every=2")
        said = self.start(artifact, 7, LD_PRELOAD=self.path("killer.so"), KILL_AT="1000000").communicate(timeout=60)[0]
        places = int(said.split("places: ")[1])
        print(f"{places} places to be killed at")
        self.assertGreater(places, 60)
        for place in range(places) if SOAK else sorted(random.Random(4).sample(range(places), 30)):
            for name in self.checkpoints():
                os.remove(os.path.join(self.runs, name))
            running = self.start(artifact, 7, LD_PRELOAD=self.path("killer.so"), KILL_AT=str(place))
            said = running.communicate(timeout=60)[0]
            self.assertEqual(running.returncode, -signal.SIGKILL, said[-2000:])
            running = self.start(artifact, 7)
            said = running.communicate(timeout=60)[0]
            self.assertEqual(running.returncode, 0, f"place {place}: {said[-2000:]}")
            self.assert_as_whole()
            self.assertIn("step-00000007.safetensors", self.checkpoints())
            self.assertFalse([name for name in self.checkpoints() if name.endswith(".tmp")])

    def test_damage_is_seen(self):
        """The newest checkpoint damaged anywhere: refused by name, and the one before is taken."""
        artifact = self.build()
        self.whole(artifact, 8)
        support.run("ftrun", *self.flags(artifact, 6))
        saved = {name: open(os.path.join(self.runs, name), "rb").read() for name in self.checkpoints()}
        log, newest = open(self.path("a.jsonl"), "rb").read(), os.path.join(self.runs, "step-00000006.safetensors")
        good, dice = saved["step-00000006.safetensors"], random.Random(1)
        damages = [good[:-1], good[: len(good) // 2], good[:3], b"", good + b"x"]
        # what the metadata says, and the sum itself
        for was, now in ((b'"step":"6"', b'"step":"5"'), (b'"checksum":"', b'"checksun":"'), (b'"seed":"5"', b'"seed":"6"'), (b'"shuffled":"1"', b'"shuffled":"0"')):
            self.assertIn(was, good)
            damages.append(good.replace(was, now))
        length = int.from_bytes(good[:8], "little")
        for place in [9, 100, 8 + length, len(good) - 1] + [dice.randrange(len(good)) for _ in range(300 if SOAK else 12)]:
            damages.append(good[:place] + bytes([good[place] ^ 1 << dice.randrange(8)]) + good[place + 1 :])
        for damage in damages:
            for name in self.checkpoints():
                os.remove(os.path.join(self.runs, name))
            for name, data in saved.items():
                with open(os.path.join(self.runs, name), "wb") as file:
                    file.write(damage if name in newest else data)
            with open(self.path("a.jsonl"), "wb") as file:
                file.write(log)
            self.fails(1, newest, "ftrun", *self.flags(artifact, 8), "--resume", newest)
            done = support.run("ftrun", *self.flags(artifact, 8), "--resume", self.runs)
            self.assertIn("warning: " + newest, done.stderr)
            self.assertIn("step-00000004.safetensors: step 4 of 8", done.stdout)
            self.assert_as_whole()
        for name in self.checkpoints():
            with open(os.path.join(self.runs, name), "wb") as file:
                file.write(good[:99])
        self.fails(1, "holds no whole checkpoint", "ftrun", *self.flags(artifact, 8), "--resume", self.runs)

    def test_an_earlier_format_is_named(self):
        artifact = self.build()
        support.run("ftrun", *self.flags(artifact, 6))
        newest = os.path.join(self.runs, "step-00000006.safetensors")
        with open(newest, "r+b") as file:
            text = file.read()
            file.seek(0)
            file.write(text.replace(b"ft-checkpoint-3", b"ft-checkpoint-1"))
        self.fails(1, f"format 'ft-checkpoint-1'; this ftrun goes on from ft-checkpoint-3 only (--init {newest} starts", "ftrun",
                   *self.flags(artifact, 8), "--resume", newest)

    def test_goes_on_from_the_format_before(self):
        """Whose sum is one chain through the file: words of 8 bytes in four lanes, bytes that are left, the count."""
        mixed = lambda sum_, word: (lambda x: x ^ x >> 29)((sum_ ^ word) * 0x9E3779B97F4A7C15 % 2**64)

        def chain(data, seed):
            lanes, whole = [(seed + i) % 2**64 for i in range(4)], len(data) // 32 * 32
            for at in range(0, whole, 8):
                lanes[at // 8 % 4] = mixed(lanes[at // 8 % 4], int.from_bytes(data[at : at + 8], "little"))
            for byte in data[whole:]:
                lanes[0] = mixed(lanes[0], byte)
            for lane in lanes[1:]:
                lanes[0] = mixed(lanes[0], lane)
            return mixed(lanes[0], len(data))

        artifact = self.build()
        self.whole(artifact, 8)
        support.run("ftrun", *self.flags(artifact, 6))
        newest = os.path.join(self.runs, "step-00000006.safetensors")
        with open(newest, "rb") as file:
            text = file.read()
        end = 8 + int.from_bytes(text[:8], "little")
        head = re.sub(rb'"checksum":"[0-9a-f]{16}"', b'"sum":"0123456789abcdef"', text[8:end].replace(b"ft-checkpoint-3", b"ft-checkpoint-2"))
        head += b" " * (-len(head) % 8)
        head = len(head).to_bytes(8, "little") + head
        place = head.index(b"0123456789abcdef")
        total = chain(head[place + 16 :], chain(head[:place], 1))
        tensors = [entry["data_offsets"] for name, entry in json.loads(head[8:]).items() if name != "__metadata__"]
        for begin, after in sorted(tensors):
            total = chain(text[end + begin : end + after], total)
        for sum_ in (total ^ 1, total):
            with open(newest, "wb") as file:
                file.write(head[:place] + b"%016x" % sum_ + head[place + 16 :] + text[end:])
            if sum_ != total:
                self.fails(1, "is damaged: its bytes are not those that were written", "ftrun", *self.flags(artifact, 8), "--resume", newest)
        support.run("ftrun", *self.flags(artifact, 8), "--resume", newest)
        self.assert_as_whole()

    def test_one_training_a_folder(self):
        """A second one is refused before it touches the folder or its log, and named the first; a kill leaves no lock."""
        artifact = self.build()
        first = self.start(artifact, 10_000_000)
        try:
            while not any(name.startswith("step") for name in self.checkpoints()):
                self.assertIsNone(first.poll())
                time.sleep(0.01)
            with open(self.path("b.jsonl"), "w") as file:
                file.write("kept\n")
            done = self.fails(1, f"another training writes its checkpoints to {self.runs} (process {first.pid} on host ", "ftrun",
                              *self.flags(artifact, 8, "b"))
            self.assertIn("--set train.checkpoint.dir=", done.stderr)
            self.assertEqual(open(self.path("b.jsonl")).read(), "kept\n")
            support.run("ftrun", *self.flags(artifact, 8, "c", self.path("elsewhere")))
            support.run("ftrun", *self.flags(artifact, 8, "d"), "--dry-run")  # writes nothing there
        finally:
            first.kill()
            first.communicate(timeout=60)
        support.run("ftrun", *self.flags(artifact, 8))
        self.assertNotIn(".lock", self.checkpoints())

    def test_no_device_is_replaced(self):
        artifact = self.build()
        os.mkfifo(self.path("a"))
        self.fails(1, "that is a device or pipe, not a file", "ftrun", *self.flags(artifact, 8))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("a")).st_mode))

    def test_new_folders_are_synced(self):
        """Each folder that is made lasts when the one it is in is on the disk too."""
        with open(self.path("watch.c"), "w") as file:
            file.write(WATCH)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", self.path("watch.so"), self.path("watch.c"), "-ldl"], check=True)
        self.runs = self.path("deep", "er", "runs")
        done = support.run("ftrun", *self.flags(self.build(), 8), env={"LD_PRELOAD": self.path("watch.so")})
        said = [line for line in done.stderr.splitlines() if line.startswith(("mkdir ", "fsync "))]
        for folder in ("deep", "deep/er", "deep/er/runs"):
            made = said.index("mkdir " + self.path(folder))
            self.assertIn("fsync " + os.path.dirname(self.path(folder)), said[made:])

    def test_another_training(self):
        artifact = self.build()
        support.run("ftrun", *self.flags(artifact, 6))
        newest = os.path.join(self.runs, "step-00000006.safetensors")
        for words, change in (("comes from a training with adamw, this one has sgd", dict(optimizer="sgd(lr=0.1)")),
                              ("fc1.weight is f32[16,8] but the model's is f32[24,8]", dict(hidden=24)),
                              ("lacks @loss_scale, which this training has: it cannot go on exactly (--init", dict(precision="fp16")), ("batch 4 on 90 samples, this one has batch 8", dict(parts=2))):
            self.fails(1, words, "ftrun", *self.flags(self.build("other.so", **change), 8), "--resume", self.runs)
        source = MODEL.replace("ema = 0.9", "") % dict(hidden=16, optimizer="adamw(lr=0.01)", precision="f32", parts=1)
        plain = self.compile(source, name="plain.so")
        self.fails(1, "which this training does not have: it cannot go on exactly", "ftrun", plain, "--data", self.folder, "--resume", newest)
        mean = self.compile((MODEL % dict(hidden=16, optimizer="adamw(lr=0.01)", precision="f32", parts=1)).replace("ema = 0.9", "average = swa(start=0.1)"), name="mean.so")
        self.fails(1, "comes from a training with an average of weights by ema, this one has swa: it cannot go on exactly", "ftrun", mean, *self.flags(mean, 8)[1:], "--resume", newest)
        support.run("ftrun", plain, "--data", self.folder, "--steps", 1, "--init", newest)
        done = support.run("ftrun", *self.flags(artifact, 2))
        self.assertIn(f"{self.runs} holds a checkpoint of step 6 from a training before", done.stderr)

    def test_keeps_the_best_and_the_newest(self):
        """best=...: never removed by keep, and a resumed training knows what it has to beat."""
        old = 0
        for rule, better in (("max(valid.accuracy)", max), ("min(valid.loss)", min)):
            self.runs = self.path(rule)
            artifact = self.build(optimizer="adamw(lr=0.3)")  # up and down
            for steps in (23, 40, 63):
                resume = ["--resume", self.runs] if steps > 23 else []
                support.run("ftrun", *self.flags(artifact, steps), *resume, "--set", f"train.checkpoint.best={rule}")
                evaluations = [line for line in lines_of(self.path("a.jsonl")) if line.get("eval")]
                if steps % 7:  # the one at the end, which is only logged
                    self.assertEqual(evaluations.pop()["step"], steps)
                self.assertEqual([line["step"] for line in evaluations], list(range(7, steps + 1, 7)))
                values = [line[rule[4:-1].split(".")[1]] for line in evaluations]
                with open(os.path.join(self.runs, "best.safetensors"), "rb") as file:
                    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                said = header["__metadata__"]
                self.assertEqual(int(said["step"]), evaluations[values.index(better(values))]["step"], values)
                old += int(said["step"]) < steps - 4
                self.assertAlmostEqual(float(said["best"]), better(values), 7)
                names = self.checkpoints()
                self.assertEqual(names, ["best.safetensors", *(f"step-{step:08}.safetensors" for step in {23: (22, 23), 40: (38, 40), 63: (62, 63)}[steps])])
        self.assertGreater(old, 0)  # keep would have removed it
        # from the best alone, too
        for name in self.checkpoints():
            name.startswith("step") and os.remove(os.path.join(self.runs, name))
        done = support.run("ftrun", *self.flags(artifact, 70), "--resume", self.runs)
        self.assertIn("best.safetensors: step " + said["step"], done.stdout)

    def test_full_disk(self):
        """Exit 3 and a plain sentence; what was saved before is whole and goes on once there is room."""
        artifact = self.build(hidden=64)
        self.whole(artifact, 12)
        room = 0
        support.run("ftrun", *self.flags(artifact, 4))
        size = os.path.getsize(os.path.join(self.runs, "step-00000004.safetensors"))

        def fails(beside, **options):
            done = subprocess.run([os.path.join(support.BUILD, "bin", "ftrun"), *map(str, self.flags(artifact, 12)), "--resume", self.runs],
                                  capture_output=True, text=True, cwd=self.folder, **options)
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            self.assertRegex(done.stderr, r"error: cannot write .*step-00000006.safetensors: (File too large|No space left on device); " + beside +
                             r"the checkpoint of step 4 is whole: the same command with --resume .* goes on from it")
            self.assertEqual(self.checkpoints(), ["step-00000002.safetensors", "step-00000004.safetensors"])

        nowhere = r"nor could a checkpoint be written to \. or \S+; "
        fails(nowhere, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1)))
        support.run("ftrun", *self.flags(artifact, 12), "--resume", self.runs)
        self.assert_as_whole()
        self.runs = self.path("small")
        os.mkdir(self.runs)
        room = -(-size // 4096) * 4096 * 5 // 2
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", self.runs], capture_output=True).returncode != 0:
            return  # only root can make a small disk
        try:
            support.run("ftrun", *self.flags(artifact, 4))
            fails(r"a checkpoint of step \d+: \./\w+\.kept-\d+\.safetensors; ")
            subprocess.run(["mount", "-o", "remount,size=10M", self.runs], check=True)
            support.run("ftrun", *self.flags(artifact, 12), "--resume", self.runs)
            self.assert_as_whole()
        finally:
            subprocess.run(["umount", self.runs], check=True)

    def test_resumes_bitwise_with_everything_on(self):
        """Each optimizer in fp16 with skipped steps, parts of a batch, dropout, an order of its own, plateau, averages."""
        for number, optimizer in enumerate(OPTIMIZERS):
            for device, name in (("cpu", "model.so"), ("sim", "model.ptx")):
                with self.subTest(optimizer=optimizer, device=device):
                    artifact = self.build(name, optimizer=optimizer, precision="fp16(initial=16777216, every=3); clip = norm(1.0)", parts=2)
                    flags = ["--device", device, "--set", "train.checkpoint.every=100", "--set", "train.eval.every=3",
                             "--set", "train.schedule.metric=max(valid.loss)"]
                    support.run("ftrun", *self.flags(artifact, 18, "whole", self.path("whole-runs")), *flags)
                    self.runs = self.path(f"runs{number}{device}")
                    for steps in (4, 13, 18):  # an epoch has 11 steps
                        resume = ["--resume", self.runs] if steps > 4 else []
                        support.run("ftrun", *self.flags(artifact, steps), *flags, *resume)
                    self.assert_as_whole()
                    steps = [line for line in lines_of(self.path("whole.jsonl")) if "eval" not in line]
                    self.assertGreater(steps[-1]["skipped_steps"], 1)
                    self.assertGreater(len({line["loss_scale"] for line in steps}), 3)
                    self.assertGreater(len({line["lr"] for line in steps}), 1)


if __name__ == "__main__":
    support.main()
