"""Transforms of plan/transforms.def against torchvision's v2 on the same PIL images, with the numbers that ft draws put in the place of
PyTorch's random ones: torchvision itself makes its parameters of them. Needs a Python with torchvision: FT_VISION_PYTHON, or the one
that scripts/vision-peers makes; skipped without."""
import contextlib
import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))


def with_vision():
    """v2 of torchvision. Its compiled operators, which transforms need not, fit only the PyTorch they were built with: without
    them it is enough that they are declared."""
    import importlib.util
    import re

    import torch

    where = importlib.util.find_spec("torchvision").submodule_search_locations[0]
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        torch.ops.load_library(os.path.join(where, "_C.so"))
    except OSError:
        with open(os.path.join(where, "_meta_registrations.py")) as file:
            for name in sorted(set(re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"\)', file.read()))):
                library.define(f"{name}() -> ()")
    from torchvision.transforms import v2

    return torch, v2, library


try:
    torch, v2, LIBRARY = with_vision()
    import numpy
    from PIL import Image
except (ImportError, AttributeError):
    other = os.environ.get("FT_VISION_PYTHON", os.path.join(os.environ.get("FT_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build")), "vision-peers", "bin", "python"))
    if os.path.exists(other) and not os.environ.get("FT_VISION_INSIDE"):
        os.execve(other, [other, *sys.argv], dict(os.environ, FT_VISION_INSIDE="1"))
    v2 = None
import support

PROGRAM = os.path.join(support.BUILD, "unit", "pipe_program")
ROUNDS = int(os.environ.get("FT_ROUNDS", 8 if support.IS_SANITIZED else 20))
random_ = random.Random(29)


def philox(key, counter):
    k, c = list(key), list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


class Draw:
    """Stands in for PyTorch's random numbers while a transform of torchvision runs. `order` says which word each of its draws has: it
    is called with 'uniform' or 'integer' and how many of these came before."""

    def __init__(self, seed, epoch, sample, order):
        self.key, self.counter, self.order = (seed & 0xFFFFFFFF, seed >> 32), (sample, 0, epoch), order
        self.count = {"uniform": 0, "integer": 0}

    def word(self, n):
        return philox(self.key, (*self.counter, 0x40000000 + n // 4))[n % 4]

    def next(self, kind):
        n = self.order(kind, self.count[kind])
        self.count[kind] += 1
        return self.word(n)

    def uniform(self, low=0.0, high=1.0):
        return float(low) + (float(high) - float(low)) * (self.next("uniform") / 2**32)

    def integer(self, low, high):
        return low + (self.next("integer") * (high - low) >> 32)

    def permutation(self, count):
        order = list(range(count))
        for i in range(count - 1, 0, -1):
            other = self.word(count - 1 - i) * (i + 1) >> 32
            order[i], order[other] = order[other], order[i]
        return order

    @contextlib.contextmanager
    def forced(self):
        kept = torch.rand, torch.randint, torch.randperm, torch.Tensor.uniform_, torch.linspace

        def randint(*bounds, size=None, **_):
            bounds = [bound for bound in bounds if isinstance(bound, int)]
            low, high = bounds if len(bounds) == 2 else (0, bounds[0])
            return torch.tensor(self.integer(low, high)).reshape(size or ())

        def linspace(first, last, count=None, **options):
            """Each in f32 from the nearer end. PyTorch's own has another last bit by how many numbers a register of the processor takes."""
            if count is None:  # of a blur
                return kept[4](first, last, **options)
            values = kept[4](first, last, count)
            first, last, width = map(numpy.float32, (first, last, (numpy.float32(last) - numpy.float32(first)) / numpy.float32(count - 1)))
            exact = [first + width * numpy.float32(i) if i < count // 2 else last - width * numpy.float32(count - i - 1) for i in range(count)]
            torch.testing.assert_close(values, torch.tensor(numpy.array(exact)), rtol=3e-7, atol=1e-5)
            return torch.tensor(numpy.array(exact))

        torch.linspace, torch.rand = linspace, lambda *size: torch.tensor(self.uniform(), dtype=torch.float64)
        torch.randint, torch.randperm = randint, lambda count: torch.tensor(self.permutation(count))
        torch.Tensor.uniform_ = lambda _, low=0, high=1: torch.tensor([self.uniform(low, high)], dtype=torch.float64)
        try:
            yield
        finally:
            torch.rand, torch.randint, torch.randperm, torch.Tensor.uniform_, torch.linspace = kept


def straight(*words):
    """The words in this order, whatever is drawn."""
    left = iter(words)
    return lambda kind, count: next(left)


def tries(first):
    """Of ten tries: two uniform numbers, then two whole ones if they fit. first: words in front, of uniform numbers."""
    state = {"last": 0}

    def order(kind, count):
        if kind == "uniform" and count < len(first):
            return first[count]
        if kind == "uniform":
            at = count - len(first)
            state["last"] = at // 2
            return at // 2 * 4 + at % 2
        return state["last"] * 4 + 2 + count

    return order


FILTERS = ["nearest", "bilinear", "bicubic"]
MODES = ["constant", "edge", "reflect", "symmetric"]


def spread(most):
    value = random_.uniform(0, most)
    return random_.choice([(f"{value!r}", value), (f"{-value!r}, {most!r}", (-value, most))])


def colour(channels):
    value = [random_.randrange(256) for _ in range(channels)]
    one = random_.randrange(256)
    return random_.choice([(f"{one}", one), (", ".join(map(str, value)), tuple(value) if channels > 1 else value[0])])


def chance():
    return random_.choice([0.0, 0.3, 0.5, 1.0])


class Case:
    """A chain of one transform in a plan's words, and the same of torchvision with the order of its draws."""

    def __init__(self, words, transform, order=lambda kind, count: count, tensor=False):
        self.words, self.transform, self.order, self.tensor = words, transform, order, tensor


def resize(height, width, channels):
    filter_ = random_.choice(FILTERS)
    size = random_.choice([(random_.randrange(1, 50), random_.randrange(1, 50)), random_.randrange(1, 40)])
    words = f"{size[0]}, {size[1]}" if isinstance(size, tuple) else str(size)
    return Case(f"resize size {words} filter {filter_}", v2.Resize(size, v2.InterpolationMode(filter_)))


def center_crop(height, width, channels):
    size = random_.randrange(1, 70), random_.randrange(1, 70)
    return Case(f"center_crop size {size[0]}, {size[1]}", v2.CenterCrop(size))


def padding(most=(9, 9)):
    """Reflections of no more than the picture has: numpy, which torchvision takes for them, repeats larger ones in its own way."""
    x, y = (random_.randrange(0, side + 1) for side in most)
    z, t = (random_.randrange(0, side + 1) for side in most)
    return random_.choice([(f"{min(x, y)}", min(x, y)), (f"{x}, {y}", (x, y)), (f"{x}, {y}, {z}, {t}", (x, y, z, t))])


def pad(height, width, channels):
    mode, (words, fill) = random_.choice(MODES), colour(channels)
    less = mode == "reflect"
    sides, value = padding((min(9, width - less), min(9, height - less)))
    return Case(f"pad padding {sides} fill {words} padding_mode {mode}", v2.Pad(list(value) if isinstance(value, tuple) else value, fill, mode))


def random_crop(height, width, channels):
    mode, (words, fill) = random_.choice(MODES), colour(channels)
    less, needed = mode == "reflect", random_.choice([False, True]) and mode == "constant"
    sides, value = padding((min(9, width - less), min(9, height - less)))
    size = random_.randrange(1, height + (30 if needed else 1)), random_.randrange(1, width + (30 if needed else 1))
    return Case(f"random_crop size {size[0]}, {size[1]} padding {sides} pad_if_needed {int(needed)} fill {words} padding_mode {mode}",
                v2.RandomCrop(size, list(value) if isinstance(value, tuple) else value, needed, fill, mode), "crop")


def random_resized_crop(height, width, channels):
    filter_, size = random_.choice(FILTERS), (random_.randrange(1, 40), random_.randrange(1, 40))
    scale, ratio = random_.choice([(0.08, 1.0), (0.5, 0.6), (0.9, 1.0)]), random_.choice([(0.75, 4 / 3), (0.2, 5.0), (3.0, 4.0)] if min(height, width) > 2 else [(0.75, 4 / 3)])
    words = f"size {size[0]}, {size[1]} scale {scale[0]!r}, {scale[1]!r} ratio {ratio[0]!r}, {ratio[1]!r} filter {filter_}"
    return Case(f"random_resized_crop {words}", v2.RandomResizedCrop(size, scale, ratio, v2.InterpolationMode(filter_)), tries([]))


def flip(height, width, channels):
    p, (name, kind) = chance(), random_.choice([("hflip", v2.RandomHorizontalFlip), ("vflip", v2.RandomVerticalFlip)])
    return Case(f"{name} p {p!r}", kind(p))


def rotate(height, width, channels):
    filter_, (words, fill), (angle, degrees) = random_.choice(FILTERS), colour(channels), spread(200.0)
    return Case(f"rotate degrees {angle} filter {filter_} fill {words}", v2.RandomRotation(degrees, v2.InterpolationMode(filter_), fill=fill))


def affine(height, width, channels):
    filter_, (words, fill), (angle, degrees) = random_.choice(FILTERS), colour(channels), spread(200.0)
    translate, scale, order = random_.choice([(0.0, 0.0), (0.1, 0.3)]), random_.choice([(1.0, 1.0), (0.5, 2.0)]), [0]
    shear = random_.choice([0.0, 20.0, (-5.0, 30.0), (-5.0, 30.0, -10.0, 10.0)])
    order += [1, 2] if any(translate) else []
    order += [3] if scale != (1.0, 1.0) else []
    order += [4, 5][: 2 if isinstance(shear, tuple) and len(shear) == 4 else 1] if shear else []
    numbers = [repr(number) for number in (shear if isinstance(shear, tuple) else (shear,))]
    return Case(f"affine degrees {angle} translate {translate[0]!r}, {translate[1]!r} scale {scale[0]!r}, {scale[1]!r} shear {', '.join(numbers)} "
                f"filter {filter_} fill {words}",
                v2.RandomAffine(degrees, translate if any(translate) else None, scale if scale != (1.0, 1.0) else None, shear or None,
                                v2.InterpolationMode(filter_), fill), straight(*order))


def perspective(height, width, channels):
    filter_, (words, fill), by, p = random_.choice(FILTERS), colour(channels), random_.choice([0.2, 0.5, 0.8]), chance()
    return Case(f"perspective distortion_scale {by!r} p {p!r} filter {filter_} fill {words}",
                v2.RandomPerspective(by, p, v2.InterpolationMode(filter_), fill), straight(*range(9)))


def color_jitter(height, width, channels):
    values = [random_.choice([0.0, 0.4, 1.5]) for _ in range(3)] + [random_.choice([0.0, 0.1, 0.5])]
    names = "brightness", "contrast", "saturation", "hue"
    return Case("color_jitter " + " ".join(f"{name} {value!r}" for name, value in zip(names, values)), v2.ColorJitter(*values),
                straight(*(4 + i for i in range(4) if values[i])))


def grey(height, width, channels):
    p = chance()
    return Case(f"grey p {p!r}", v2.RandomGrayscale(p))


def blur(height, width, channels):
    low = random_.uniform(0.1, 3)
    taps = 2 * random_.randrange(0, min(height, width, 8)) + 1
    taps = min(taps, 2 * min(height, width) - 1)
    return Case(f"blur size {taps} sigma {low!r}, {low + 1!r}", v2.GaussianBlur(taps, (low, low + 1)))


def happens(name, kind, *more):
    def make(height, width, channels):
        p, values = chance(), [value() for _, value in more]
        words = "".join(f" {parameter} {value!r}" for (parameter, _), value in zip(more, values))
        return Case(f"{name}{words} p {p!r}", kind(*values, p=p))

    return make


def randaugment(height, width, channels):
    bins, (words, fill), filter_, count = random_.choice([31, 11, 2, 10]), colour(channels), random_.choice(FILTERS), random_.randrange(5)
    at = random_.randrange(bins)
    state = {"last": 0}

    def order(kind, number):
        if kind == "integer":
            state["last"] = number
            return 2 * number
        return 2 * state["last"] + 1

    return Case(f"randaugment num_ops {count} magnitude {at} num_magnitude_bins {bins} filter {filter_} fill {words}",
                v2.RandAugment(count, at, bins, v2.InterpolationMode(filter_), fill), order)


def trivialaugment(height, width, channels):
    bins, (words, fill), filter_ = random_.choice([31, 11, 2, 10]), colour(channels), random_.choice(FILTERS)
    return Case(f"trivialaugment num_magnitude_bins {bins} filter {filter_} fill {words}",
                v2.TrivialAugmentWide(bins, v2.InterpolationMode(filter_), fill), lambda kind, count: 2 if kind == "uniform" else count)


def erase(height, width, channels):
    p, (words, value) = chance(), colour(channels)
    scale, ratio = random_.choice([(0.02, 0.33), (0.0, 0.001), (0.5, 1.0)]), random_.choice([(0.3, 3.3), (0.05, 20.0)])
    return Case(f"erase p {p!r} scale {scale[0]!r}, {scale[1]!r} ratio {ratio[0]!r}, {ratio[1]!r} value {words}",
                v2.RandomErasing(p, scale, ratio, value), tries([40]), tensor=True)


@unittest.skipUnless(v2, "no torchvision of version 0.16 or newer here: scripts/vision-peers makes a Python that has it")
class Vision(support.Case):
    def setUp(self):
        super().setUp()
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.stdin.close)

    def made(self, words, array, draw):
        numbers = " ".join(map(str, (*draw, *array.shape)))
        self.process.stdin.write(f"{numbers} {words}\n".encode() + array.tobytes())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        if answer.startswith("failed"):
            return answer
        height, width, channels = map(int, answer.split())
        pixels = numpy.frombuffer(self.process.stdout.read(height * width * channels), "u1")
        return pixels.reshape(height, width, channels)

    def expected(self, case, array, draw):
        image = Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])
        if case.order == "crop":  # drawn only where there is a choice: by what remains
            padded = case.transform.make_params([image])
            size = [array.shape[i] + sum(padded["padding"][1 - i :: 2]) - case.transform.size[i] for i in range(2)]
            case.order = straight(*(i for i in range(2) if size[i] > 0))
        with Draw(*draw, case.order).forced():
            if case.tensor:
                return case.transform(torch.from_numpy(array.transpose(2, 0, 1).copy())).numpy().transpose(1, 2, 0)
            try:
                made = numpy.asarray(case.transform(image))
            except torch.linalg.LinAlgError:  # corners on one line: ft leaves such a picture as it is
                made = array
        return made if made.ndim == 3 else made[:, :, None]

    def compare(self, make, most=0, part=0.0):
        """Pixels differ by `most` at most, and no more than this part of all."""
        count = differing = 0
        for number in range(ROUNDS):
            shape = random_.choice([(1, 1), (1, 9), (40, 2)]) if number % 8 == 0 else (random_.randrange(3, 50), random_.randrange(3, 50))
            array = numpy.random.default_rng(random_.randrange(2**32)).integers(0, 256, (*shape, random_.choice([1, 3, 3])), "u1")
            if number % 3 == 0:  # smooth
                y, x = numpy.mgrid[0 : shape[0], 0 : shape[1]]
                array = (array // 40 + (100 * numpy.sin(x / 5 + y / 9) + 110)[:, :, None]).astype("u1")
            draw = random_.randrange(2**64), random_.randrange(2**20), random_.randrange(2**32)
            case = make(*array.shape)
            got, expected = self.made("then " + case.words, array, draw), self.expected(case, array, draw)
            self.assertNotIsInstance(got, str, f"{case.words} of {array.shape}: {got}")
            self.assertEqual(got.shape, expected.shape, case.words)
            if most:
                difference = abs(got.astype(int) - expected)
                self.assertLessEqual(difference.max(initial=0), most, f"{case.words} of {array.shape}, {draw}")
                count, differing = count + got.size, differing + (difference > 0).sum()
            else:
                numpy.testing.assert_array_equal(got, expected, f"{case.words} of {array.shape}, {draw}")
        self.assertLessEqual(differing, part * count)


TESTS = dict(center_crop=center_crop, pad=pad, random_crop=random_crop, flip=flip, rotate=rotate, affine=affine, perspective=perspective,
             color_jitter=color_jitter, grey=grey, randaugment=randaugment, trivialaugment=trivialaugment, erase=erase, resize=resize,
             random_resized_crop=random_resized_crop, blur=blur)
if v2:
    TESTS.update(
        invert=happens("invert", v2.RandomInvert), equalize=happens("equalize", v2.RandomEqualize),
        autocontrast=happens("autocontrast", v2.RandomAutocontrast),
        posterize=happens("posterize", v2.RandomPosterize, ("bits", lambda: random_.randrange(1, 9))),
        solarize=happens("solarize", v2.RandomSolarize, ("threshold", lambda: random_.choice([0.0, 3.5, 128.0, 256.0]))),
        sharpness=happens("sharpness", v2.RandomAdjustSharpness, ("sharpness_factor", lambda: random_.choice([0.0, 0.5, 2.0]))))

# PyTorch adds the taps of a blur up in an order of its own, and solves for a perspective with rounding errors, before 8 bits are made
NEARLY = dict(blur=(1, 0.001), perspective=(255, 0.01))
for name, make in TESTS.items():
    setattr(Vision, "test_" + name, lambda self, make=make, nearly=NEARLY.get(name, ()): self.compare(make, *nearly))

if __name__ == "__main__":
    support.main()
