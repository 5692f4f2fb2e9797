"""Decoded images that are kept on disk (data.cache_dir, data.disk_cache): a training ends with the weights of one without, whatever is in the
folder: pictures of before, of a run that was killed, damaged ones, those of other transforms or of files that have changed since."""
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(image: f32[B, 3, 16, 16], label: i32[B]) {
  loss = mean(cross_entropy(Linear(2, name="fc")(flatten(image, from=1)), label))
}
data D { train = folder("photos"%s) | %s | normalize; workers = 3%s }
train { model = M; data = D; batch = 4; epochs = %s; seed = 3; eval = none; optimizer = sgd(lr=0.1) }
"""
CHAIN, KEPT = "resize(24) | random_crop(16) | hflip", '; cache_dir = "kept"; disk_cache = 4 MiB'


class DiskCache(support.Case):
    def setUp(self):
        super().setUp()
        draw = numpy.random.default_rng(7)
        for i in range(26):
            path = self.path("photos", "ab"[i % 2], f"{i}.jpg")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            coarse = draw.integers(0, 256, (8, 9, 3), "u1")
            Image.fromarray(coarse).resize((int(draw.integers(30, 60)), int(draw.integers(30, 60))), Image.Resampling.BICUBIC).save(path, quality=90)
            os.utime(path, (1e9, 1e9))

    def model(self, kept=KEPT, chain=CHAIN, option="", epochs=2, name="m"):
        with open(self.path(name + ".ft"), "w") as file:
            file.write(MODEL % (option, chain, kept, epochs))
        support.run("ftc", self.path(name + ".ft"), "-o", self.path(name + ".so"))
        return self.path(name + ".so")

    def weights(self, artifact, *flags):
        done = support.run("ftrun", artifact, "--data", self.folder, "--save", self.path("w.safetensors"), *flags, cwd=self.folder)
        self.said = done.stdout + done.stderr
        with open(self.path("w.safetensors"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def kept(self):
        """Every picture's path and length; what is beside them may not be there."""
        found = {}
        for folder, _, names in os.walk(self.path("kept")):
            for name in names:
                path = os.path.join(folder, name)
                if name != "used":
                    self.assertRegex(name, r"^\d{3}$")
                    found[path] = os.path.getsize(path)
        return found

    def used(self):
        with open(self.path("kept", "ft-images", "used"), "rb") as file:
            return int.from_bytes(file.read(), "little")

    def test_same_weights(self):
        for chain, option in (CHAIN, ""), ("random_resized_crop(16)", ""), ("resize(24) | center_crop(16)", ", damaged=skip"), ("resize(18) | center_crop(16)", ", scaled=true"):
            plain = self.weights(self.model("", chain, option))
            artifact, before = self.model(KEPT, chain, option), len(self.kept())
            for _ in range(2):
                self.assertEqual(self.weights(artifact), plain, chain)
                self.assertEqual(len(self.kept()), before + 26, chain)  # each chain has a folder of its own
            self.assertEqual(self.used(), sum(self.kept().values()))
            self.assertEqual(self.weights(self.model(KEPT + "; cache = 1 MiB", chain, option)), plain)

    def test_read_from_there(self):
        """A file that is another one behind the same length and time is not looked at; with another time it is."""
        artifact = self.model()
        first = self.weights(artifact)
        path = self.path("photos", "a", "0.jpg")
        size = os.path.getsize(path)
        Image.new("RGB", (40, 40), (200, 30, 90)).save(path, quality=20)
        self.assertLess(os.path.getsize(path), size)
        os.truncate(path, size)
        os.utime(path, (1e9, 1e9))
        self.assertEqual(self.weights(artifact), first)
        changed = self.weights(self.model("", name="n"))
        self.assertNotEqual(changed, first)
        os.utime(path, (1.1e9, 1.1e9))
        for _ in range(2):
            self.assertEqual(self.weights(artifact), changed)
        os.utime(path)  # now: it might change again within the clock's tick
        before = self.kept()
        self.assertEqual(self.weights(artifact), changed)
        self.assertEqual(self.kept(), before)

    def test_damaged_pictures(self):
        artifact, draw = self.model(), random.Random(3)
        plain = self.weights(artifact)
        for i, path in enumerate(sorted(self.kept())):
            with open(path, "rb") as file:
                data = file.read()
            at = draw.randrange(len(data))
            bad = [b"", data[:at], data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :], data + b"x", os.urandom(len(data)), bytes(len(data)), b"\0" * 88 + data[88:]][i % 7]
            with open(path, "wb") as file:
                file.write(bad)
        paths = sorted(self.kept())
        with open(paths[0], "rb") as a, open(paths[1], "rb") as b:
            first, second = a.read(), b.read()
        with open(paths[0], "wb") as a, open(paths[1], "wb") as b:
            a.write(second), b.write(first)
        for _ in range(2):
            self.assertEqual(self.weights(artifact), plain)
        self.assertEqual(self.used(), sum(self.kept().values()))

    def test_killed(self):
        artifact, draw = self.model(epochs=40), random.Random(5)
        plain = self.weights(self.model("", epochs=40, name="n"))
        for _ in range(8):
            process = subprocess.Popen([os.path.join(support.BUILD, "bin", "ftrun"), artifact, "--data", self.folder], cwd=self.folder, stdout=subprocess.DEVNULL)
            time.sleep(draw.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            process.wait()
        folder = next(iter(os.walk(self.path("kept", "ft-images"))))[1]
        if folder:  # as if one had been killed while it wrote
            os.makedirs(self.path("kept", "ft-images", folder[0], "000000"), exist_ok=True)
            with open(self.path("kept", "ft-images", folder[0], "000000", "003-77-1.part"), "wb") as file:
                file.write(b"x" * 100)
        self.assertEqual(self.weights(artifact), plain)
        self.assertEqual(len(self.kept()), 26)
        self.assertEqual(self.used(), sum(self.kept().values()))

    def test_several_at_a_time(self):
        artifact = self.model(epochs=6)
        plain = self.weights(self.model("", epochs=6, name="n"))
        runs = [subprocess.Popen([os.path.join(support.BUILD, "bin", "ftrun"), artifact, "--data", self.folder, "--save", self.path(f"w{i}")], cwd=self.folder, stdout=subprocess.DEVNULL) for i in range(4)]
        for i, run in enumerate(runs):
            self.assertEqual(run.wait(120), 0)
            with open(self.path(f"w{i}"), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), plain)
        self.assertEqual(len(self.kept()), 26)

    def test_budget(self):
        plain = self.weights(self.model(""))
        artifact = self.model('; cache_dir = "kept"; disk_cache = 20000')
        for run in range(2):
            self.assertEqual(self.weights(artifact), plain)
            used, files = sum(self.kept().values()), len(self.kept())
            self.assertTrue(0 < used <= 20000)
            said = re.findall(r"data.cache_dir: kept is full: its images take ([\d.]+) KiB of data.disk_cache = 19.53 KiB, and (\d+) of them are of this training", self.said)
            self.assertEqual(len(said), 1, self.said)
            then, of_this = float(said[0][0]), int(said[0][1])
            if run:
                self.assertEqual((f"{then:.2f}", of_this), (f"{used / 1024:.2f}", 0))
            else:  # as it was when the first had no room: other workers may be writing theirs, and a smaller one may fit after it
                self.assertTrue(0 < then <= used / 1024 + 0.005 and 0 <= of_this <= files, (self.said, used, files))
        said = support.run("ftrun", artifact, "--data", self.folder, "--dry-run", cwd=self.folder).stdout
        self.assertIn(f"on disk in kept, up to data.disk_cache = 19.53 KiB, of which {used / 1024:.2f} KiB are taken", said)
        self.weights(self.model())
        self.assertNotIn("is full", self.said)
        os.rename(self.path("kept"), self.path("other"))
        self.assertEqual(self.weights(artifact), plain)

    def test_what_is_said_and_refused(self):
        artifact = self.model()
        said = support.run("ftrun", artifact, "--data", self.folder, "--dry-run", cwd=self.folder).stdout
        all_of_it = re.search(r"decoded images, which take about (\S+) KiB in all, are kept on disk in kept, up to data\.disk_cache = 4\.00 MiB, of which 0 B are taken", said)
        self.assertFalse(os.path.exists(self.path("kept")))
        self.weights(artifact)
        self.assertLess(abs(float(all_of_it[1]) * 1024 / sum(self.kept().values()) - 1), 0.2)
        shutil.rmtree(self.path("kept"))
        for kept, needle in (('; cache_dir = "kept"', "data.disk_cache = 20 GiB or the like says how much"), ("; disk_cache = 1 MiB", 'data.cache_dir = "FOLDER" says where'),
                             ('; cache_dir = "/tmp/ft-nowhere"; disk_cache = 1 MiB', "data.cache_dir is '/tmp/ft-nowhere' in the model's file, which is hidden or leads out of the current folder"),
                             ('; cache_dir = "m.ft"; disk_cache = 1 MiB', "data.cache_dir: cannot make m.ft/ft-images")):
            self.fails(1, needle, "ftrun", self.model(kept), "--data", self.folder, cwd=self.folder)


if __name__ == "__main__":
    support.main()
