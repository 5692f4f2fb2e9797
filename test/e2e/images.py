"""Images in folders and transforms from the recipe to the model, held against Pillow and numpy: the order of files, what every
transform makes, what random ones draw, normalize in the graph, layouts, arrays; and a training on a folder that learns, does not
depend on its workers, and goes on in the middle of an epoch with another number of them, bit for bit."""
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy
from PIL import Image, ImageEnhance

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

CLASSES = ["Zebra", "apple", "bird"]  # in the order of their bytes
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MODEL = """
model M(image: %(type)s, label: i32[B]) {
  x = f32(image)
  loss = mean(cross_entropy(Linear(3, name="fc")(reshape(x, B, x.size / B)), label))
  output image
  output label
}
data D { %(data)s }
train { batch = 4; epochs = 1; eval = none; optimizer = sgd(lr=0.0); seed = %(seed)s }
"""


def philox(key, counter):
    k, c = list(key), list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


class Draw:
    """What docs/data.md says of random numbers."""

    def __init__(self, seed, epoch, sample, place):
        self.key, self.counter = (seed & 0xFFFFFFFF, seed >> 32), (sample & 0xFFFFFFFF, sample >> 32 | place << 16, epoch)

    def word(self, n):
        return philox(self.key, (*self.counter, 0x40000000 + n // 4))[n % 4]

    def uniform(self, n, low, high):
        return low + (high - low) * (self.word(n) / 2**32)

    def below(self, n, end):
        return self.word(n) * end >> 32


def random_resized_crop(image, draw, size, scale=(0.08, 1), ratio=(3 / 4, 4 / 3), filter=Image.Resampling.BILINEAR, is_box=False):
    """torchvision's RandomResizedCrop.get_params."""
    width, height = image.size
    for i in range(10):
        area = width * height * draw.uniform(4 * i, *scale)
        form = math.exp(draw.uniform(4 * i + 1, math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * form)), round(math.sqrt(area / form))
        if 0 < w <= width and 0 < h <= height:
            top, left = draw.below(4 * i + 2, height - h + 1), draw.below(4 * i + 3, width - w + 1)
            break
    else:
        form = width / height
        w, h = width, height
        if form < min(ratio):
            h = round(w / min(ratio))
        elif form > max(ratio):
            w = round(h * max(ratio))
        top, left = (height - h) // 2, (width - w) // 2
    if is_box:
        return left, top, left + w, top + h
    return image.crop((left, top, left + w, top + h)).resize((size[1], size[0]), filter)


def resize(image, size, filter=Image.Resampling.BILINEAR):
    width, height = image.size
    short, long = sorted((width, height))
    if width <= height:
        return image.resize((size, int(size * long / short)), filter)
    return image.resize((int(size * long / short), size), filter)


def center_crop(image, height, width):
    """torchvision's center_crop: fills up with black, and rounds halves to even."""
    have = image.size
    left, top = max(width - have[0], 0), max(height - have[1], 0)
    padded = Image.new(image.mode, (have[0] + left, have[1] + top))
    padded.paste(image, (left // 2, top // 2))
    x, y = round((padded.size[0] - width) / 2), round((padded.size[1] - height) / 2)
    return padded.crop((x, y, x + width, y + height))


class Images(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(7)
        self.files = []
        for label, name in enumerate(CLASSES):
            for folder in (name, os.path.join(name, "more"), os.path.join(name, "more-of-it")):
                os.makedirs(self.path("photos", folder))
            for i, (folder, suffix, mode) in enumerate([("", "9.jpg", "RGB"), ("", "10.JPEG", "L"), ("more", "a.png", "RGB"),
                                                        ("more", "B.PNG", "P"), ("more-of-it", "0.jpg", "RGB"), ("", "z.png", "LA")]):
                height, width = random.integers(20, 60, 2)
                coarse = random.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), "u1")
                image = Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC)
                path = os.path.join("photos", name, folder, suffix)
                image.convert(mode).save(self.path(path), quality=90)
                self.files.append((path, label))
        self.files.sort(key=lambda file: (os.path.dirname(file[0]), os.path.basename(file[0])))
        self.write("photos/notes.txt", "no folder")
        self.write("photos/bird/notes.txt", "no image")

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def predicted(self, data, type="u8[B, 3, 24, 32]", split="train", seed=3, name="model.so"):
        """What the model sees of the samples of a split, and their labels."""
        artifact = self.compile(MODEL % dict(type=type, data=data, seed=seed), name=name)
        support.run("ftrun", artifact, "--data", self.folder, "--steps", "1", "--save", self.path("weights"))
        support.run("ftrun", "predict", artifact, "--data", self.folder, "--split", split, "--weights", self.path("weights"),
                    "--output", "image=" + self.path("image.npy"), "--output", "label=" + self.path("label.npy"))
        return numpy.load(self.path("image.npy")), numpy.load(self.path("label.npy"))

    def expect(self, transform, mode="RGB"):
        """The same of Pillow, channels last."""
        return numpy.stack([numpy.asarray(transform(Image.open(self.path(file)).convert(mode), i))
                            for i, (file, _) in enumerate(self.files)])

    def test_order_and_fixed_transforms(self):
        image, label = self.predicted('train = folder("photos/") | resize(40) | center_crop((24, 32))')
        self.assertEqual(label.tolist(), [label for _, label in self.files])
        expected = self.expect(lambda image, i: center_crop(resize(image, 40), 24, 32))
        numpy.testing.assert_array_equal(image, expected.transpose(0, 3, 1, 2))

    def test_crops_of_resized_images(self):
        """Only what the crop keeps is decoded and resampled: the pixels are those of doing one after the other."""
        bicubic = Image.Resampling.BICUBIC

        def random_crop(image, draw, height, width):
            y, x = draw.below(0, image.height - height + 1), draw.below(1, image.width - width + 1)
            return image.crop((x, y, x + width, y + height))

        for chain, expected in [
            ("resize(33) | random_crop((24, 32))", lambda image, i: random_crop(resize(image, 33), Draw(3, 0, i, 1), 24, 32)),
            ("resize((90, 35), filter=bicubic) | center_crop((24, 32))", lambda image, i: center_crop(image.resize((35, 90), bicubic), 24, 32)),
            ("resize(26) | center_crop((24, 32))", lambda image, i: center_crop(resize(image, 26), 24, 32)),  # some are too narrow
            ("resize(40) | hflip(1) | center_crop((24, 32))", lambda image, i: center_crop(resize(image, 40).transpose(Image.Transpose.FLIP_LEFT_RIGHT), 24, 32)),
            ("resize(40, filter=nearest) | center_crop((24, 32))", lambda image, i: center_crop(resize(image, 40, Image.Resampling.NEAREST), 24, 32)),
            ("center_crop((50, 50)) | resize(70) | center_crop((24, 32))", lambda image, i: center_crop(resize(center_crop(image, 50, 50), 70), 24, 32)),
        ]:
            expected = self.expect(expected).transpose(0, 3, 1, 2)
            for cache in "", "; cache = 1 MiB":
                image, _ = self.predicted(f'train = folder("photos/") | {chain}{cache}')
                numpy.testing.assert_array_equal(image, expected, chain + cache)

    def test_scaled(self):
        """JPEG's decoded smaller, as Pillow's draft, and resized from the box that draft returns."""

        def opened(i):
            return Image.open(self.path(self.files[i][0]))

        def drafted(image, i, height, width):
            """Of file i (`image` is it decoded): the picture, and what of it stands for all of the file."""
            file = opened(i)
            box = file.draft(file.mode, (width, height)) if file.format == "JPEG" else None
            return (file.convert("RGB"), box[1]) if box else (image, (0, 0, *image.size))

        def resized(image, i, size):
            width, height = image.size
            if isinstance(size, int):
                short, long = sorted((width, height))
                size = (int(size * long / short), size) if width <= height else (size, int(size * long / short))
            image, box = drafted(image, i, *size)
            return image.resize(size[::-1], Image.Resampling.BILINEAR, box=box)

        def boxed(image, i):
            """random_resized_crop: the part of the scaled picture that has all of the box."""
            box = random_resized_crop(image, Draw(3, 0, i, 0), (6, 8), is_box=True)
            scale = 1
            if opened(i).format == "JPEG":
                scale = max(s for s in (1, 2, 4, 8) if s == 1 or (6 * s <= box[3] - box[1] and 8 * s <= box[2] - box[0]))
                image = drafted(image, i, image.size[1] // scale, image.size[0] // scale)[0]
            part = box[0] // scale, box[1] // scale, -(-box[2] // scale), -(-box[3] // scale)
            inside = [b / scale - part[k % 2] for k, b in enumerate(box)]
            return image.crop(part).resize((8, 6), Image.Resampling.BILINEAR, box=inside)

        type = "u8[B, 3, 6, 8]"
        for chain, expected in [("resize((6, 8))", lambda image, i: resized(image, i, (6, 8))),
                                ("resize(9) | center_crop((6, 8))", lambda image, i: center_crop(resized(image, i, 9), 6, 8)),
                                ("random_resized_crop((6, 8))", boxed)]:
            expected = self.expect(expected).transpose(0, 3, 1, 2)
            for more, rest in ("", ""), (", damaged=skip", ""), ("", "; cache = 1 MiB"):
                if rest and "random" in chain:
                    continue
                image, _ = self.predicted(f'train = folder("photos/", scaled=true{more}) | {chain}{rest}', type)
                numpy.testing.assert_array_equal(image, expected, chain + more + rest)
            plain, _ = self.predicted(f'train = folder("photos/", scaled=false) | {chain}', type)
            self.assertTrue((plain != expected).any())
        for data, needle in [('folder("photos", scaled=true) | hflip | resize((6, 8))', "the first transform needs, which is to be resize or random_resized_crop"),
                             ('folder("photos", scaled=true) | random_resized_crop((6, 8)); cache = 1 MiB', "so scaled=true does not go with it")]:
            artifact = self.compile(MODEL % dict(type=type, data="train = " + data, seed=3))
            self.fails(1, needle, "ftrun", artifact, "--data", self.folder)

    def test_filters_layouts_and_grey(self):
        for word, filter in [("nearest", Image.Resampling.NEAREST), ("bicubic", Image.Resampling.BICUBIC)]:
            image, _ = self.predicted(f'train = folder("photos") | resize((24, 32), filter={word})', "u8[B, 24, 32, 3]")
            numpy.testing.assert_array_equal(image, self.expect(lambda image, i: image.resize((32, 24), filter)))
        for type in ("u8[B, 24, 32]", "u8[B, 1, 24, 32]"):
            image, _ = self.predicted('train = folder("photos") | center_crop((70, 20)) | resize((24, 32))', type)
            expected = self.expect(lambda image, i: center_crop(image, 70, 20).resize((32, 24), Image.Resampling.BILINEAR), "L")
            numpy.testing.assert_array_equal(image.reshape(-1, 24, 32), expected)

    def test_what_random_transforms_draw(self):
        seed = 2**33 + 5
        image, _ = self.predicted('train = folder("photos") | hflip(0.3) | random_resized_crop((24, 32), scale=(0.3, 0.9)) | vflip',
                                  seed=seed)

        def transform(image, i):
            if Draw(seed, 0, i, 0).uniform(0, 0, 1) < 0.3:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            image = random_resized_crop(image, Draw(seed, 0, i, 1), (24, 32), (0.3, 0.9))
            return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if Draw(seed, 0, i, 2).uniform(0, 0, 1) < 0.5 else image

        numpy.testing.assert_array_equal(image, self.expect(transform).transpose(0, 3, 1, 2))
        # in front of the chain only the part is decoded
        image, _ = self.predicted('train = folder("photos") | random_resized_crop((24, 32))', seed=seed)
        expected = self.expect(lambda image, i: random_resized_crop(image, Draw(seed, 0, i, 0), (24, 32)))
        numpy.testing.assert_array_equal(image, expected.transpose(0, 3, 1, 2))
        # forms that no image has: the middle
        image, _ = self.predicted('train = folder("photos") | random_resized_crop((24, 32), scale=(1, 1), ratio=(5, 6), filter=nearest) '
                                  "| random_crop((24, 32), padding=3, fill=9)")

        def middle(image, i):
            image = random_resized_crop(image, Draw(3, 0, i, 0), (24, 32), (1, 1), (5, 6), Image.Resampling.NEAREST)
            padded = Image.new("RGB", (38, 30), (9, 9, 9))
            padded.paste(image, (3, 3))
            draw = Draw(3, 0, i, 1)
            top, left = draw.below(0, 7), draw.below(1, 7)
            return padded.crop((left, top, left + 32, top + 24))

        numpy.testing.assert_array_equal(image, self.expect(middle).transpose(0, 3, 1, 2))

    def test_colours(self):
        image, _ = self.predicted('train = folder("photos") | resize((24, 32)) | color_jitter(0.4, 1.5, 0.3, 0) | rotate(30, fill=7) | grey(0.4)')

        def transform(image, i):
            image, draw = image.resize((32, 24), Image.Resampling.BILINEAR), Draw(3, 0, i, 1)
            order = list(range(4))
            for k in (3, 2, 1):
                other = draw.below(3 - k, k + 1)
                order[k], order[other] = order[other], order[k]
            for which in order:
                if which < 3:
                    low, high = [(0.6, 1.4), (0, 2.5), (0.7, 1.3)][which]
                    enhance = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color][which]
                    image = enhance(image).enhance(draw.uniform(4 + which, low, high))
            image = image.rotate(Draw(3, 0, i, 2).uniform(0, -30, 30), Image.Resampling.NEAREST, fillcolor=(7, 7, 7))
            return image.convert("L").convert("RGB") if Draw(3, 0, i, 3).uniform(0, 0, 1) < 0.4 else image

        numpy.testing.assert_array_equal(image, self.expect(transform).transpose(0, 3, 1, 2))

    def test_normalize(self):
        step = f"normalize(mean={MEAN}, std={STD})"
        data = f'train = folder("photos") | hflip(1) | center_crop((24, 32)) | {step}; valid = folder("photos") | resize((24, 32)) | {step}'
        for type, order in [("f32[B, 3, 24, 32]", (0, 3, 1, 2)), ("f32[B, 24, 32, 3]", (0, 1, 2, 3))]:
            for split, make in [("valid", lambda image, i: image.resize((32, 24), Image.Resampling.BILINEAR)),
                                ("train", lambda image, i: center_crop(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), 24, 32))]:
                image, _ = self.predicted(data, type, split)
                expected = (self.expect(make).astype("f8") / 255 - MEAN) / STD
                numpy.testing.assert_allclose(image, expected.transpose(order), atol=1e-6, rtol=1e-6)
        image, _ = self.predicted('train = folder("photos") | resize((24, 32)) | normalize', "f32[B, 24, 32]")
        expected = self.expect(lambda image, i: image.resize((32, 24), Image.Resampling.BILINEAR), "L")
        numpy.testing.assert_allclose(image, expected / 255, atol=1e-7)
        info = support.run("ftrun", "info", self.path("model.so")).stdout
        self.assertIn("folder(\"photos\") | resize(size=(24, 32), filter=bilinear) | normalize(mean=0, std=1)", info)
        self.assertIn("u8[4,24,32]", info)

    def test_evaluations_have_one_normalize(self):
        """That of valid; another split with another one would be evaluated with wrong numbers."""
        data = 'train = folder("photos") | resize((24, 32)) | normalize(0.5, 0.25); valid = folder("photos") | resize((24, 32)) | normalize(0.5, %s)'
        artifact = self.compile(MODEL % dict(type="f32[B, 3, 24, 32]", data=data % 0.5, seed=3))
        support.run("ftrun", artifact, "--data", self.folder, "--steps", "1", "--save", self.path("weights"))
        flags = [artifact, "--data", self.folder, "--weights", self.path("weights"), "--split"]
        for command, more in (("eval", []), ("predict", ["--output", "image=" + self.path("image.npy")])):
            done = support.run("ftrun", command, *flags, "train", *more, check=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("error: train has another normalize than valid, and evaluations have that of valid: ", done.stderr)
            support.run("ftrun", command, *flags, "valid", *more)

    def test_arrays(self):
        pixels = numpy.random.default_rng(2).integers(0, 256, (10, 3, 24, 32), "u1")
        numpy.save(self.path("x.npy"), pixels)
        numpy.save(self.path("last.npy"), pixels.transpose(0, 2, 3, 1).copy())
        numpy.save(self.path("y.npy"), numpy.arange(10, dtype="i4") % 3)
        for file in ("x.npy", "last.npy"):
            image, label = self.predicted(f'train = npy("{file}", "y.npy") | hflip(1) | vflip(1)')
            numpy.testing.assert_array_equal(image, pixels[:, :, ::-1, ::-1])
            numpy.testing.assert_array_equal(label, numpy.arange(10) % 3)
        image, _ = self.predicted('train = npy("x.npy", "y.npy") | normalize(0.5, 0.25)', "f32[B, 3, 24, 32]")
        numpy.testing.assert_allclose(image, (pixels / 255 - 0.5) / 0.25, atol=1e-6)
        image, _ = self.predicted('train = npy("x.npy", "y.npy") | random_crop((24, 32), padding=4)')
        for i in range(10):
            draw = Draw(3, 0, i, 0)
            padded = numpy.pad(pixels[i], ((0, 0), (4, 4), (4, 4)))
            top, left = draw.below(0, 9), draw.below(1, 9)
            numpy.testing.assert_array_equal(image[i], padded[:, top:top + 24, left:left + 32])
        numpy.save(self.path("x.npy"), pixels.astype("f4"))
        artifact = self.path("model.so")
        failed = support.run("ftrun", artifact, "--data", self.folder, check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("samples are f32[3,24,32] in x.npy, but its transforms and input image want u8 images of 3 channels", failed.stderr)

    def test_dry_run_and_classes(self):
        data = 'train = folder("photos") | resize((24, 32)); valid = folder("other") | resize((24, 32))'
        shutil.copytree(self.path("photos"), self.path("other"))
        artifact = self.compile((MODEL % dict(type="u8[B, 3, 24, 32]", data=data, seed=1)).replace("eval = none", "eval every 1 epoch"))
        said = support.run("ftrun", artifact, "--data", self.folder, "--dry-run").stdout
        self.assertIn("photos: 18 files of 3 classes", said)
        self.assertIn("other: 18 files of 3 classes", said)
        os.rename(self.path("other", "apple"), self.path("other", "banana"))
        failed = support.run("ftrun", artifact, "--data", self.folder, check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("class 'apple' is in", failed.stderr)


TRAINING = """
model Stripes(image: f32[B, 3, 16, 16], label: i32[B]) {
  x = max_pool2d(relu(Conv2d(8, 3, padding=1, name="conv1")(image)), 2)
  x = relu(Conv2d(16, 3, padding=1, name="conv2")(x))
  logits = Linear(3, name="fc")(mean(x, axis=(2, 3)))
  loss = mean(cross_entropy(logits, label))
  metric accuracy = mean(f32(argmax(logits, axis=-1) == label))
}
data D {
  train = folder("train") | random_resized_crop(16, scale=(0.5, 1)) | hflip | vflip | normalize(0.5, 0.25)
  valid = folder("valid") | resize(20) | center_crop(16) | normalize(0.5, 0.25)
}
train { batch = 16; epochs = 6; seed = 11; optimizer = adamw(lr=0.01)
  eval every 1 epoch
  log { every = 1 }
  checkpoint { every = 5 steps; keep = 100 }
}
"""


class Training(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(1)
        for split, each in [("train", 32), ("valid", 10)]:
            for label, name in enumerate(["across", "down", "noise"]):
                os.makedirs(os.path.join(self.folder, split, name))
                for i in range(each):
                    height, width = random.integers(20, 34, 2)
                    wave = (numpy.sin(numpy.arange(34) * random.uniform(0.8, 1.4)) * 90 + 128)[:, None]
                    pixels = [wave[:height] + numpy.zeros((1, width)), wave[:width].T + numpy.zeros((height, 1)),
                              random.uniform(38, 218, (height, width))][label]
                    pixels = pixels[:, :, None] + random.uniform(-30, 30, (1, 1, 3))
                    Image.fromarray(pixels.clip(0, 255).astype("u1")).save(
                        os.path.join(self.folder, split, name, f"{i}.{'jpg' if i % 2 else 'png'}"), quality=95)
        self.artifact = self.compile(TRAINING)

    def train(self, name, workers, *flags):
        log = os.path.join(self.folder, name + ".jsonl")
        support.run("ftrun", self.artifact, "--data", self.folder, "--set", f"data.workers={workers}", "--log-jsonl", log,
                    "--save", os.path.join(self.folder, name), *flags, cwd=self.folder)
        with open(os.path.join(self.folder, name), "rb") as file:
            return support.read_jsonl(log), file.read()

    def test_learns_and_resumes(self):
        lines, one = self.train("one", 1, "--set", "train.checkpoint.dir=steps")
        accuracy = [line["accuracy"] for line in lines if line.get("eval")]
        self.assertGreaterEqual(accuracy[-1], 0.95, accuracy)
        _, three = self.train("three", 3)
        self.assertEqual(one, three)
        kept = sorted(os.listdir(os.path.join(self.folder, "steps")))
        chosen = [name for name in kept if "10" in name or "25" in name]  # in the middle of epochs of 6 steps
        self.assertEqual(len(chosen), 2, kept)
        for checkpoint in chosen:
            _, resumed = self.train("resumed", 4, "--resume", os.path.join("steps", checkpoint))
            self.assertEqual(one, resumed)

    def test_killed_at_any_instant(self):
        """Ended by SIGKILL again and again, each time gone on from the checkpoint there is with another number of workers: the weights
        are bitwise those of a run that was never killed. FT_SOAK makes 200 kills."""
        since = time.monotonic()
        _, whole = self.train("whole", 1, "--set", "train.checkpoint.dir=first", "--set", "train.checkpoint.every=1")
        takes = time.monotonic() - since
        draw = random.Random(os.environ.get("FT_SEED", "1"))
        kills, wanted = 0, 200 if os.environ.get("FT_SOAK") else 12
        while kills < wanted:
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            ended = False
            while not ended:
                workers, ahead, cache = draw.choice((0, 1, 2, 3, 16)), draw.choice((1, 2, 7)), draw.choice((0, 20000, 64 << 20))
                command = [os.path.join(support.BUILD, "bin", "ftrun"), self.artifact, "--data", self.folder, "--resume", "runs", "--or-start",
                           "--set", "train.checkpoint.dir=runs", "--set", "train.checkpoint.every=1", "--set", f"data.workers={workers}",
                           "--set", f"data.prefetch={ahead}", "--set", f"data.cache={cache}", "--save", self.path("parts")]
                run = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                try:
                    run.wait(draw.uniform(0, takes) if kills < wanted else None)
                except subprocess.TimeoutExpired:
                    run.kill()
                    kills += 1
                said = run.communicate()[1]
                ended = run.returncode == 0
                self.assertIn(run.returncode, (0, -signal.SIGKILL), said)
            with open(self.path("parts"), "rb") as file:
                self.assertEqual(file.read(), whole, f"after {kills} kills")

    def test_a_damaged_file_is_named(self):
        path = os.path.join(self.folder, "train", "down", "5.jpg")
        for missing in 20, os.path.getsize(path) - 120:  # of rows that a part may not need; of nearly all
            with open(path, "r+b") as file:
                file.truncate(os.path.getsize(path) - missing)
            for workers in 1, 4:
                failed = support.run("ftrun", self.artifact, "--data", self.folder, "--set", f"data.workers={workers}", "--steps", "6",
                                     check=False, cwd=self.folder)
                self.assertEqual(failed.returncode, 1)
                self.assertRegex(failed.stderr, r"train: sample \d+, .*train/down/5\.jpg the JPEG image is truncated")


# In a process of its own, for a child's peak counts what its parent had when it was forked.
PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
sys.stderr.write(done.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
sys.exit(done.returncode)
"""


class Memory(support.Case):
    @unittest.skipIf(support.IS_SANITIZED, "sanitizers have memory of their own")
    def test_memory(self):
        """The peak of three epochs lies within what --dry-run says, with 1 and with 16 workers; a set ten times larger takes the bytes of
        its list more; and a worker takes no more than its pictures."""
        random = numpy.random.default_rng(5)
        for name, count in ("tiny", 40), ("small", 40), ("large", 400):
            os.makedirs(self.path(name, "train", "a"))
            for i in range(count):
                path = self.path(name, "train", "a", f"{i:04d}.jpg")
                if name == "tiny":
                    Image.fromarray(random.integers(0, 256, (16, 16, 3), "u1")).save(path)
                elif name == "small":
                    coarse = random.integers(0, 256, (38, 50, 3), "u1")
                    image = Image.fromarray(coarse).resize((400 if i else 440, 300), Image.Resampling.BICUBIC)
                    image.save(path, quality=85, progressive=i % 2 == 0)
                else:
                    os.link(self.path("small", "train", "a", f"{i % 40:04d}.jpg"), path)
        artifact = self.compile(MODEL % dict(type="u8[B, 3, 128, 128]", seed=1, data='train = folder("train") | random_resized_crop(128) | hflip'))

        def run(name, workers, cache=0, epochs=3, disk=0):
            flags = [os.path.join(support.BUILD, "bin", "ftrun"), artifact, "--data", self.path(name), "--set", f"data.workers={workers}",
                     "--set", f"data.cache={cache}", "--epochs", str(epochs)]
            if disk:
                flags += ["--set", f"data.cache_dir={self.path('kept')}", "--set", f"data.disk_cache={disk}"]
            said = support.run("ftrun", *flags[1:], "--dry-run").stdout
            model, unit = re.search(r"memory ([\d.]+) (.)B for the model", said).groups()
            each, loader = map(float, re.search(r"takes ([\d.]+) MiB in each of .* at most ([\d.]+) MiB beside its batches", said).groups())
            peak = float(subprocess.run([sys.executable, "-S", "-c", PEAK, *flags], check=True, capture_output=True, text=True).stdout)
            stated = float(model) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit] / 2**20
            if name == "tiny":
                return peak - stated, each
            stated += loader + program
            self.assertLessEqual(peak, stated, (name, workers, cache, said))
            return peak, each

        program, _ = run("tiny", 1)  # ftrun and its libraries, whose size differs between machines
        small, _ = run("small", 16, epochs=30)  # as many samples
        one, _ = run("large", 1)
        many, each = run("large", 16)
        kept, _ = run("large", 16, 8 << 20)
        for _ in range(2):  # that writes all pictures, and that reads them
            run("large", 16, disk=1 << 30)
        self.assertLessEqual(many - one, 15 * each)
        self.assertLessEqual(many - small, 4)  # all decoded images would be 130
        self.assertGreater(kept - many, 4)  # or this measures nothing


if __name__ == "__main__":
    support.main()
