"""A training on shards with augmentation, mixup and several workers, killed at any instant and resumed with another number of workers:
the final weights are bitwise those of one that was never killed. FT_SOAK=1: 200 kills; FT_KILLS=50: so many. FT_SEED: at other instants."""
import glob
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import unittest

import numpy
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
SEED = int(os.environ.get("FT_SEED", 11))
KILLS = int(os.environ.get("FT_KILLS", 200 if os.environ.get("FT_SOAK") else 2 if support.IS_SANITIZED else 5))
WORKERS = [1, 2, 3, 4, 7]
STEPS = 60
MODEL = """
model M(image: f32[B, 3, 12, 12], label: i32[B]) {
  x = relu(BatchNorm(name="norm")(Conv2d(6, 3, name="conv")(image)))
  logits = Linear(5, name="head")(dropout(flatten(x, from=1), 0.2))
  loss = mean(cross_entropy(logits, label, smoothing=0.1))
  metric accuracy = mean(argmax(logits, axis=-1) == label)
}
data D {
  train = tar("train-{0..2}.tar") | random_resized_crop(12) | hflip | color_jitter(brightness=0.4, hue=0.1) | trivialaugment | erase
    | noise(sigma=0.05) | normalize(mean=0.45, std=0.25) | mixup_or_cutmix(mixup_alpha=0.2, p=0.9)
  valid = tar("valid.tar") | resize((12, 12)) | normalize(mean=0.45, std=0.25)
}
train { batch = 8; accumulate = PARTS; steps = STEPS; seed = 5; optimizer = adamw(lr=0.01); schedule = cosine(warmup=5 steps); ema = 0.9
  eval every 20 steps; checkpoint { every = 4 steps; keep = 2 }; log { every = 1 steps } }
"""


def shard(path, first, count):
    """Photographs of noise, of any size, every fourth a PNG."""
    with tarfile.open(path, "w") as tar:
        for i in range(first, first + count):
            numbers, out = numpy.random.default_rng(i), io.BytesIO()
            picture = numbers.integers(0, 256, (14 + i % 9, 13 + i % 7, 3), "u1")
            Image.fromarray(picture).save(out, "PNG" if i % 4 == 0 else "JPEG")
            for name, content in ((f"{i:04}.{'png' if i % 4 == 0 else 'jpg'}", out.getvalue()), (f"{i:04}.cls", str(i % 5).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


class Interrupted(support.Case):
    def setUp(self):
        super().setUp()
        for i, count in enumerate((61, 40, 52)):
            shard(self.path(f"train-{i}.tar"), 100 * i, count)
        shard(self.path("valid.tar"), 1000, 19)
        self.random = random.Random(SEED)

    def command(self, artifact, workers):
        return [FTRUN, artifact, "--threads", "2", "--log-jsonl", "log", "--save", "end", "--set", f"data.workers={workers}", "--set", f"data.prefetch={1 + workers}",
                "--set", "train.checkpoint.dir=ck"]

    def steps(self):
        try:
            with open(self.path("log")) as file:
                return sum('"loss"' in line for line in file)
        except FileNotFoundError:
            return 0

    def killed(self, command):
        """At an instant of this run, which counts as many steps as it makes. False: it was over before."""
        at, more = self.steps() + self.random.randrange(STEPS), self.random.random() * (0.15 if self.random.random() < 0.5 else 0.01)
        running = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while self.steps() < at and running.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(more)
        running.send_signal(signal.SIGKILL)
        said = running.communicate(timeout=60)[1]
        self.assertIn(running.returncode, (0, -signal.SIGKILL), said)
        return running.returncode != 0

    def trial(self, artifact):
        """How often it was killed, and resumed from a checkpoint."""
        for name in ("log", "end"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        shutil.rmtree(self.path("ck"), ignore_errors=True)
        kills, resumed, used = 0, 0, []
        for goes in range(self.random.choice([1, 1, 1, 2])):
            used.append(self.random.choice([count for count in WORKERS if used[-1:] != [count]]))
            command = self.command(artifact, used[-1])
            has_checkpoint = bool(glob.glob(self.path("ck", "*.safetensors")))
            kills += self.killed(command + (["--resume", "ck"] if has_checkpoint else []))
            resumed += has_checkpoint
        used.append(self.random.choice([count for count in WORKERS if used[-1:] != [count]]))
        has_checkpoint = bool(glob.glob(self.path("ck", "*.safetensors")))
        done = subprocess.run(self.command(artifact, used[-1]) + (["--resume", "ck"] if has_checkpoint else []), cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, f"workers {used}\n{done.stdout}{done.stderr}")
        return kills, resumed + has_checkpoint

    def test_final_weights_are_those_of_one_never_killed(self):
        artifacts, whole = [], []
        for parts in (1, 2):
            source = MODEL.replace("PARTS", str(parts)).replace("STEPS", str(STEPS))
            artifacts.append(self.compile(source, name=f"{parts}.so"))
            subprocess.run(self.command(artifacts[-1], 3), cwd=self.folder, check=True, stdout=subprocess.DEVNULL, timeout=120)
            whole.append(support.read_safetensors(self.path("end")))
            self.assertTrue(all(numpy.isfinite(value).all() for value in whole[-1].values()))
            shutil.rmtree(self.path("ck"))
            os.remove(self.path("log"))
        kills = resumed = trial = 0
        while kills < KILLS:
            more, trial = self.trial(artifacts[trial % 2]), trial + 1
            kills, resumed = kills + more[0], resumed + more[1]
            end = support.read_safetensors(self.path("end"))
            for name, value in whole[(trial - 1) % 2].items():
                self.assertEqual(value.tobytes(), end[name].tobytes(), f"training {trial} of seed {SEED}: {name}")
            self.assertLess(trial, 10 + 3 * KILLS, "too few were killed before they ended")
        print(f"{trial} trainings killed {kills} times, {resumed} times resumed from a checkpoint: all end alike")


if __name__ == "__main__":
    support.main()
