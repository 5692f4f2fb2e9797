"""runtime/image against Pillow (9.4 to 12; 13 makes the two passes of some resizings in another order, for a difference of
1): files of many kinds decode to the same pixels, damaged ones are refused, and resampling, maps and colours give the same bytes over random images and numbers."""
import io
import os
import random
import struct
import subprocess
import sys
import warnings
import zlib

import numpy
from PIL import Image, ImageEnhance, ImageOps

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

warnings.simplefilter("ignore")  # of Pillow's, about transparency and large images
PROGRAM = os.path.join(support.BUILD, "unit", "image_program")
FILTERS = [Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.BOX, Image.Resampling.LANCZOS]
random_ = random.Random(13)


class Failed(Exception):
    pass


class Program:
    """The library, in a process of its own (test/tools/image_program.c)."""

    def __init__(self, **environment):
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, **environment))

    def ask(self, *words, payload=b""):
        line = " ".join(repr(word) if isinstance(word, float) else str(int(word)) if isinstance(word, bool) else str(word) for word in words)
        self.process.stdin.write(line.encode() + b"\n" + payload)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        if not answer or answer.startswith("failed"):
            raise Failed(answer or f"the program ended at: {line}")
        return answer

    def pixels(self):
        height, width, channels = map(int, self.ask("get").split())
        return numpy.frombuffer(self.process.stdout.read(height * width * channels), "u1").reshape(height, width, channels)

    def load(self, array):
        array = numpy.ascontiguousarray(array)
        self.ask("load", array.shape[0], array.shape[1], array.shape[2] if array.ndim == 3 else 1, payload=array.tobytes())

    def decode(self, data, channels=3, least=(0, 0)):
        self.ask("decode", channels, *least, len(data), payload=data)
        return self.pixels()

    def made(self, array, *words):
        self.load(array)
        self.ask(*words)
        return self.pixels()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(30)


def scene(height, width, channels=3):
    """Smooth waves with some noise: compresses like a picture, and has all values."""
    y, x = numpy.mgrid[0:height, 0:width]
    planes = []
    for _ in range(channels):
        a, b, c = (random_.uniform(-0.3, 0.3) for _ in range(3))
        planes.append(140 * numpy.sin(a * x + b * y + 20 * c) + 128)
    noise = numpy.random.default_rng(random_.randrange(2**32)).normal(0, random_.choice([0, 5, 40]), (height, width, channels))
    return numpy.clip(numpy.stack(planes, 2) + noise, 0, 255).astype("u1")


def noise(height, width, channels=3):
    return numpy.random.default_rng(random_.randrange(2**32)).integers(0, 256, (height, width, channels), "u1")


def of_pillow(image):
    array = numpy.asarray(image)
    return array if array.ndim == 3 else array[:, :, None]


def to_pillow(array):
    return Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])


# ── files ──
def jpeg(array, mode=None, **options):
    out = io.BytesIO()
    image = to_pillow(array) if array.shape[2] != 4 else Image.fromarray(array, "CMYK")
    (image.convert(mode) if mode else image).save(out, "JPEG", **options)
    return out.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def filtered(rows, step):
    """Rows of bytes with a random filter each (PNG specification, 9.2)."""
    out, above = b"", None
    for row in rows:
        row = numpy.frombuffer(row, "u1").astype(int)
        up = numpy.zeros_like(row) if above is None else above
        left = numpy.concatenate([numpy.zeros(step, int), row])[: len(row)]
        corner = numpy.concatenate([numpy.zeros(step, int), up])[: len(row)]
        kind = random_.randrange(5)
        guess = left + up - corner
        distance = numpy.stack([abs(guess - left), abs(guess - up), abs(guess - corner)])
        paeth = numpy.choose(distance.argmin(0), [left, up, corner])
        taken = [0, left, up, (left + up) // 2, paeth][kind]
        out += bytes([kind]) + ((row - taken) % 256).astype("u1").tobytes()
        above = row
    return out


def png(height, width, bits, kind, interlaced=False, palette=None, chunks=()):
    """A PNG of random samples, of any kind there is."""
    samples = SAMPLES[kind]
    most = min(2**bits, len(palette) // 3) if palette else 2**bits
    values = numpy.random.default_rng(random_.randrange(2**32)).integers(0, most, (height, width, samples), "u2")
    if random_.random() < 0.5:  # of 16 bits, small ones
        values //= 2 ** random_.choice([0, 0, 7, 8]) if bits == 16 else 1
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, across, down in passes:
        part = values[y::down, x::across]
        if part.size == 0:
            continue
        rows = []
        for row in part:
            if bits == 16:
                rows.append(row.astype(">u2").tobytes())
            else:
                digits = (row.reshape(-1)[:, None] >> numpy.arange(bits - 1, -1, -1)) & 1
                rows.append(numpy.packbits(digits.reshape(-1).astype("u1")).tobytes())
        data += filtered(rows, max(1, samples * bits // 8))
    packed = zlib.compress(data, random_.choice([0, 1, 9]))
    cut = random_.randrange(len(packed) + 1)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced))
    colours = chunk(b"PLTE", palette) if palette else b""
    return b"\x89PNG\r\n\x1a\n" + head + colours + b"".join(chunks) + chunk(b"IDAT", packed[:cut]) + chunk(b"IDAT", packed[cut:]) + chunk(b"IEND", b"")


def all_kinds_of_png():
    for kind, depths in ((0, (1, 2, 4, 8, 16)), (2, (8, 16)), (3, (1, 2, 4, 8)), (4, (8, 16)), (6, (8, 16))):
        for bits in depths:
            for interlaced in (False, True):
                size = random_.randrange(1, 40), random_.randrange(1, 40)
                palette = noise(1, random_.randrange(1, 2**bits + 1)).tobytes() if kind == 3 else None
                more = []
                if kind in (0, 2, 3) and random_.random() < 0.5:
                    more = [chunk(b"tRNS", {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: b"\x80"}[kind])]
                yield png(*size, bits, kind, interlaced, palette, more)


def all_kinds_of_jpeg():
    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            size = random_.randrange(1, 90), random_.randrange(1, 90)
            yield jpeg(scene(*size), quality=random_.choice([5, 50, 90, 100]), subsampling=subsampling, progressive=progressive)
    for progressive in (False, True):
        yield jpeg(scene(33, 50, 1), progressive=progressive)
        yield jpeg(scene(40, 35, 4), progressive=progressive)  # CMYK
        yield jpeg(noise(31, 17), progressive=progressive, optimize=True, restart_marker_blocks=2)
    mixed = jpeg(scene(40, 35, 4))
    place = mixed.index(b"Adobe") + 11
    yield mixed[:place] + b"\2" + mixed[place + 1 :]  # YCCK
    plain = jpeg(scene(40, 35))
    yield plain[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0" + plain[2:]  # RGB that is not transformed
    yield plain[:2] + b"\xff\xfe\0\x04hi" + plain[2:]


class Files(support.Case):
    def setUp(self):
        super().setUp()
        self.program = Program()
        self.addCleanup(self.program.close)

    def same_as_pillow(self, data):
        with Image.open(io.BytesIO(data)) as image:
            for channels, mode in ((3, "RGB"), (1, "L")):
                expected = of_pillow(image.convert(mode))
                numpy.testing.assert_array_equal(self.program.decode(data, channels), expected, str((image.format, image.mode, image.size)))
            self.assertEqual(self.program.ask("size", len(data), payload=data), f"{image.height} {image.width}")

    def test_kinds_of_jpeg(self):
        for _ in range(6):
            for data in all_kinds_of_jpeg():
                self.same_as_pillow(data)

    def test_kinds_of_png(self):
        for _ in range(12):
            for data in all_kinds_of_png():
                self.same_as_pillow(data)

    def test_index_beyond_the_palette(self):
        """Such a colour is black, as newer versions of Pillow have it; 9.4 shows a grey."""
        data = png(9, 9, 8, 3, palette=bytes(range(30)))
        at = data.index(b"PLTE")
        short = data[: at - 4] + chunk(b"PLTE", bytes(range(15))) + data[at + 4 + 30 + 4 :]
        black = data[: at - 4] + chunk(b"PLTE", bytes(range(15)) + bytes(15)) + data[at + 4 + 30 + 4 :]
        numpy.testing.assert_array_equal(self.program.decode(short), self.program.decode(black))
        self.same_as_pillow(black)

    def test_scaled(self):
        """Scale and pixels of Pillow's draft."""
        for case in range(60):
            height, width = random_.randrange(1 if case % 4 == 0 else 16, 300), random_.randrange(1 if case % 4 == 1 else 16, 300)
            size = random_.choice([(height, width, 3), (height, width, 3), (height, width, 1)])
            data = jpeg(scene(*size), quality=80, progressive=random_.random() < 0.5, subsampling=random_.randrange(3) if size[2] == 3 else 0)
            least = random_.randrange(1, height + 20), random_.randrange(1, width + 20)
            got = self.program.decode(data, 3, least)
            with Image.open(io.BytesIO(data)) as image:
                image.draft(image.mode, least[::-1])
                numpy.testing.assert_array_equal(got, numpy.asarray(image.convert("RGB")))

    def test_parts(self):
        """A part has the pixels that the whole has there, at any scale."""
        for case in range(150):
            height, width = random_.randrange(4, 200), random_.randrange(4, 200)
            size = random_.choice([(height, width, 3)] * 4 + [(height, width, 1), (height, width, 4)])
            data = jpeg(scene(*size), quality=80, progressive=case % 3 == 0, **({} if size[2] == 4 else {"subsampling": random_.randrange(3)}))
            if case % 10 == 0:
                data = png(height, width, 8, 2)
            x, y = random_.randrange(width), random_.randrange(height)
            box = x, y, random_.randrange(x, width) + 1, random_.randrange(y, height) + 1
            for by in 1, 2, 4, 8:
                channels = random_.choice([1, 3])
                whole = self.program.decode(data, channels, (height // by, width // by))
                least = (box[3] - box[1]) // by, (box[2] - box[0]) // by
                inside = [float(word) for word in self.program.ask("decode_part", channels, *least, len(data), *box, payload=data).split()]
                got = self.program.pixels()
                if whole.shape[:2] == (-(-height // by), -(-width // by)) and min(least) > 0 and case % 10:
                    top, left = box[1] // by, box[0] // by
                    self.assertEqual(inside[:2], [box[0] / by - left, box[1] / by - top])
                    self.assertEqual(inside[2:], [min(box[2] / by - left, got.shape[1]), min(box[3] / by - top, got.shape[0])])
                    numpy.testing.assert_array_equal(got, whole[top : top + got.shape[0], left : left + got.shape[1]], str((size, box, by)))
        for box in ((-1, 0, 5, 5), (3, 3, 3, 5), (0, 0, 900, 5)):
            with self.assertRaisesRegex(Failed, "the box"):
                self.program.ask("decode_part", 3, 0, 0, len(data), *box, payload=data)

    def test_orientation(self):
        for orientation in range(1, 9):
            for order in "II", "MM":
                end = {"II": "<", "MM": ">"}[order]
                tiff = order.encode() + struct.pack(end + "HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)
                picture = scene(30, 21)
                data = jpeg(picture, quality=95, exif=b"Exif\0\0" + tiff)
                packed = png(9, 13, 8, 2, chunks=[chunk(b"eXIf", tiff)])
                for file in data, packed:
                    with Image.open(io.BytesIO(file)) as image:
                        expected = numpy.asarray(ImageOps.exif_transpose(image).convert("RGB"))
                        self.same_as_pillow(file)
                    self.assertEqual(self.program.ask("orientation", len(file), payload=file), str(orientation))
                    self.program.decode(file)
                    self.program.ask("turn", orientation)
                    numpy.testing.assert_array_equal(self.program.pixels(), expected)

    def test_damage(self):
        """Cut short anywhere, or with any byte changed: an answer or a sentence, and the next file is read as ever."""
        refused = 0
        files = [*list(all_kinds_of_jpeg())[::2], *list(all_kinds_of_png())[::3]]
        for data in files:
            for _ in range(12):
                cut = data[: random_.randrange(len(data))]
                changed = bytearray(data)
                for _ in range(random_.randrange(1, 4)):
                    changed[random_.randrange(len(data))] = random_.randrange(256)
                for bad in cut, bytes(changed):
                    try:
                        got = self.program.decode(bad)
                        with Image.open(io.BytesIO(bad)) as image:
                            expected = numpy.array(image.convert("RGB"))
                            if image.mode == "P":  # an index behind the palette's end: black, and a grey in Pillow
                                expected[numpy.asarray(image) >= len(image.getpalette(None) or ()) // 3] = 0
                            numpy.testing.assert_array_equal(got, expected)
                    except Failed as error:
                        refused += 1
                        self.assertRegex(str(error), "^failed (the (JPEG|PNG) image|the image has|the file is empty|neither)")
                    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                        pass  # Pillow refuses more: what it does not need for the pixels
            self.same_as_pillow(data)
        self.assertGreater(refused, len(files) * 6)

    def test_refuses(self):
        huge = bytearray(png(3, 3, 8, 2))
        huge[16:24] = struct.pack(">II", 2**20, 2**20)
        huge[29:33] = struct.pack(">I", zlib.crc32(bytes(huge[12:29])))
        tall = bytearray(jpeg(scene(20, 20)))
        at = tall.index(b"\xff\xc0")
        tall[at + 5 : at + 9] = struct.pack(">HH", 65000, 65000)
        wide = bytearray(tall)
        wide[at + 5 : at + 9] = struct.pack(">HH", 16000, 16000)
        thin = bytearray(huge)
        thin[16:24] = struct.pack(">II", 2**14, 2**13)
        thin[29:33] = struct.pack(">I", zlib.crc32(bytes(thin[12:29])))
        for data, words in ((b"", "empty"), (b"GIF89a" + bytes(20), "a GIF image; JPEG and PNG are read"), (b"hello", "neither a JPEG nor a PNG"),
                            (bytes(huge), "1048576 x 1048576 pixels"), (bytes(tall), "65000 x 65000 pixels"), (bytes(wide), "truncated"),
                            (bytes(thin), "truncated"), (jpeg(scene(50, 50))[:-600], "truncated"), (png(40, 40, 8, 2)[:-60], "truncated")):
            with self.assertRaisesRegex(Failed, words):
                self.program.decode(data)


class Compared(support.Case):
    """With the code for each kind of processor."""

    kinds = "v4", "v3", "base"

    def setUp(self):
        super().setUp()
        self.programs = [Program(FT_IMAGE_ROWS=kind) for kind in self.kinds]
        for program in self.programs:
            self.addCleanup(program.close)

    def arrays(self, count, least=1):
        for _ in range(count):
            array = random_.choice([scene, noise])(random_.randrange(least, 60), random_.randrange(least, 60), random_.choice([1, 3]))
            yield array, to_pillow(array), array.shape[0], array.shape[1]

    def check(self, array, expected, *words):
        for program in self.programs:
            numpy.testing.assert_array_equal(program.made(array, *words), of_pillow(expected), repr(words))


class Sizes(Compared):
    def test_resample(self):
        for case in range(200):
            channels = random_.choice([1, 3, 3])
            array = random_.choice([scene, noise])(random_.randrange(1, 120), random_.randrange(1, 120), channels)
            height, width = array.shape[:2]
            image = to_pillow(array)
            new = random_.randrange(1, 100), random_.randrange(1, 100)
            if case % 5 == 0:
                new = height, random_.randrange(1, 100)
            if case % 5 == 1:
                new = random_.randrange(1, 100), width
            box = 0, 0, width, height
            if case % 3 == 0:
                x, y = random_.uniform(0, width * 0.9), random_.uniform(0, height * 0.9)
                box = x, y, random_.uniform(x + 0.01, width), random_.uniform(y + 0.01, height)
            if case % 3 == 1:
                x, y = random_.randrange(width), random_.randrange(height)
                box = x, y, random_.randrange(x, width) + 1, random_.randrange(y, height) + 1
            for filter_, name in enumerate(FILTERS):
                self.check(array, image.resize(new[::-1], name, box=box), "resample", *map(float, box), *new, filter_)

    def test_resample_to_itself(self):
        array = noise(17, 33)
        for filter_, name in enumerate(FILTERS):
            self.check(array, to_pillow(array), "resample", 0.0, 0.0, 33.0, 17.0, 17, 33, filter_)

    def test_window(self):
        """A part of a resampled image, from the pixels that it needs, is what Pillow cuts out of the whole."""
        for case in range(100):
            array = random_.choice([scene, noise])(random_.randrange(1, 120), random_.randrange(1, 120), random_.choice([1, 3, 3]))
            height, width = array.shape[0] if case % 5 == 0 else random_.randrange(1, 100), array.shape[1] if case % 5 < 2 else random_.randrange(1, 100)
            x, y = random_.randrange(width), random_.randrange(height)
            size = random_.randrange(height - y) + 1, random_.randrange(width - x) + 1
            for filter_, name in list(enumerate(FILTERS))[1:]:
                expected = to_pillow(array).resize((width, height), name).crop((x, y, x + size[1], y + size[0]))
                self.check(array, expected, "window", height, width, x, y, *size, filter_)

    def test_bad_boxes(self):
        for box in ((-1, 0, 5, 5), (0, 0, 11, 5), (3, 0, 3, 5), (0, 0, 5, float("nan"))):
            with self.assertRaisesRegex(Failed, "the box"):
                self.programs[0].made(noise(10, 10), "resample", *map(float, box), 4, 4, 1)


class Places(Compared):
    kinds = ("v4",)

    def test_crop(self):
        for array, image, height, width in self.arrays(200):
            x, y = random_.randrange(-20, width + 20), random_.randrange(-20, height + 20)
            across, down = random_.randrange(1, 70), random_.randrange(1, 70)
            self.check(array, image.crop((x, y, x + across, y + down)), "crop", x, y, down, across)

    def test_pad(self):
        for array, image, _, _ in self.arrays(150):
            left, top, right, bottom = (random_.choice([0, 1, 5, 30]) for _ in range(4))
            fill = [random_.randrange(256) for _ in range(3)]
            value = tuple(fill) if array.shape[2] == 3 else fill[0]
            expected = ImageOps.expand(image, (left, top, right, bottom), value)
            self.check(array, expected, "pad", left, top, right, bottom, 0, 0, 0, *fill)
            around = (top, bottom), (left, right), (0, 0)
            for kind, name in ((1, "edge"), (2, "reflect"), (3, "symmetric")):
                if kind == 1 or (max(left, right) < array.shape[1] and max(top, bottom) < array.shape[0]):  # numpy 1.24 reflects wrongly beyond
                    self.check(array, to_pillow(numpy.pad(array, around, name)), "pad", left, top, right, bottom, kind)

    def test_flip(self):
        for array, image, _, _ in self.arrays(40):
            self.check(array, ImageOps.mirror(image), "flip_x")
            self.check(array, ImageOps.flip(image), "flip_y")

    def test_channels(self):
        for array, image, _, _ in self.arrays(20):
            self.check(array, image.convert("L"), "channels", 1)
            self.check(array, image.convert("RGB"), "channels", 3)
            self.check(array, image.convert("L").convert(image.mode), "grey")

    def test_affine(self):
        for case, (array, image, height, width) in enumerate(self.arrays(300)):
            scale = random_.choice([0.01, 1, 1, 3])
            matrix = [random_.uniform(-2, 2) * scale for _ in range(6)]
            matrix[2], matrix[5] = random_.uniform(-width, 2 * width), random_.uniform(-height, 2 * height)
            if case % 4 == 0:
                matrix[1] = matrix[3] = 0.0
            if case % 16 == 1:
                matrix[0] = random_.uniform(1e3, 1e5)  # beyond 16 bits
            fill = [random_.randrange(256) for _ in range(3)]
            value = tuple(fill) if array.shape[2] == 3 else fill[0]
            for filter_ in 0, 1, 2:
                expected = image.transform(image.size, Image.Transform.AFFINE, matrix, FILTERS[filter_], fillcolor=value)
                self.check(array, expected, "affine", *matrix, filter_, *fill)

    def test_perspective(self):
        for case, (array, image, height, width) in enumerate(self.arrays(150)):
            c = [random_.uniform(-2, 2) for _ in range(6)] + [random_.uniform(-0.02, 0.05) for _ in range(2)]
            c[2], c[5] = random_.uniform(-width, 2 * width), random_.uniform(-height, 2 * height)
            fill = [random_.randrange(256) for _ in range(3)]
            value = tuple(fill) if array.shape[2] == 3 else fill[0]
            for filter_ in 0, 1, 2:
                expected = image.transform(image.size, Image.Transform.PERSPECTIVE, c, FILTERS[filter_], fillcolor=value)
                self.check(array, expected, "perspective", *c, 0.0, 0.0, filter_, *fill)

    def test_rotate(self):
        for case, (array, image, height, width) in enumerate(self.arrays(200)):
            angle = random_.choice([random_.uniform(-400, 400), 90.0 * random_.randrange(-5, 6), random_.randrange(-180, 180) * 1.0])
            fill = [random_.randrange(256) for _ in range(3)]
            value = tuple(fill) if array.shape[2] == 3 else fill[0]
            for filter_ in 0, 1:
                self.check(array, image.rotate(angle, FILTERS[filter_], fillcolor=value), "rotate", angle, 0, 0, 0, 0, 0, filter_, *fill)

    def test_affine_of_torchvision(self):
        """The map is torchvision's: a turn, two shears and a scale around the middle, then a translation. It is inverted here
        as a matrix, so only the places within rounding of a pixel's edge could differ."""
        for array, image, height, width in self.arrays(60):
            angle, move = random_.uniform(-180, 180), [float(random_.randrange(-9, 9)) for _ in range(2)]
            scale, shear = random_.uniform(0.5, 2), [random_.uniform(-40, 40) for _ in range(2)]
            turn, (sx, sy) = numpy.radians(angle), numpy.radians(shear)
            rotation = numpy.array([[numpy.cos(turn), -numpy.sin(turn)], [numpy.sin(turn), numpy.cos(turn)]])
            shear_y, shear_x = numpy.array([[1, 0], [-numpy.tan(sy), 1]]), numpy.array([[1, -numpy.tan(sx)], [0, 1]])
            middle = numpy.array([width, height]) / 2
            inverse = numpy.linalg.inv(scale * rotation @ shear_y @ shear_x)
            offset = middle - inverse @ (middle + move)
            matrix = [*inverse[0], offset[0], *inverse[1], offset[1]]
            expected = of_pillow(image.transform(image.size, Image.Transform.AFFINE, matrix, FILTERS[1]))
            got = self.programs[0].made(array, "affine_of", angle, *move, scale, *map(float, shear), 1)
            self.assertLess((abs(got.astype(int) - expected) > 1).mean(), 0.01)


class Colours(Compared):
    def test_enhance(self):
        kinds = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color,
                 "sharpness": ImageEnhance.Sharpness}
        for array, image, _, _ in self.arrays(60):
            for name, kind in kinds.items():
                for factor in 0.0, 1.0, random_.uniform(0, 1), random_.uniform(1, 4), random_.uniform(-1, 0):
                    self.check(array, kind(image).enhance(factor), name, factor)

    def test_hue(self):
        """Every colour there is, turned by nothing, and some by every angle."""
        every = numpy.mgrid[0:256, 0:256, 0:256].astype("u1").reshape(3, -1).T.reshape(4096, 4096, 3)
        hsv = numpy.asarray(to_pillow(every).convert("HSV"))
        self.programs = self.programs[:1]
        for shift in 0.0, 0.37:
            turned = hsv.copy()
            turned[:, :, 0] += numpy.int32(shift * 255).astype("u1")
            self.check(every, Image.fromarray(turned, "HSV").convert("RGB"), "hue", shift)
        part = every.reshape(-1, 3)[::97].reshape(-1, 1, 3)
        for shift in numpy.linspace(-0.5, 0.5, 256):
            turned = numpy.asarray(to_pillow(part).convert("HSV")).copy()
            turned[:, :, 0] += numpy.int32(shift * 255).astype("u1")
            self.check(part, Image.fromarray(turned, "HSV").convert("RGB"), "hue", float(shift))

    def test_tables(self):
        for array, image, _, _ in self.arrays(60):
            low, high = sorted(random_.choices(range(256), k=2))
            array = random_.choice([array, array // 2 + 30, numpy.clip(array, low, high), array // 64 * 64])
            image = to_pillow(array)
            self.check(array, ImageOps.invert(image), "invert")
            self.check(array, ImageOps.autocontrast(image), "autocontrast")
            self.check(array, ImageOps.equalize(image), "equalize")
            for bits in range(1, 9):
                self.check(array, ImageOps.posterize(image, bits), "posterize", bits)
            for threshold in 0, 1, 128, 255, 256, random_.uniform(0, 256):
                self.check(array, ImageOps.solarize(image, threshold), "solarize", threshold)

    def test_erase(self):
        for array, _, height, width in self.arrays(60):
            x, y, across, down = random_.randrange(-9, width + 9), random_.randrange(-9, height + 9), random_.randrange(40), random_.randrange(40)
            fill = numpy.array([random_.randrange(256) for _ in range(3)], "u1")
            expected = array.copy()
            expected[max(0, y) : max(0, y + down), max(0, x) : max(0, x + across)] = fill[: array.shape[2]]
            self.check(array, to_pillow(expected), "erase", x, y, down, across, 0, 0, 0, *fill)

    def test_blur(self):
        """torchvision's weights, in f64: equal wherever the exact value does not lie within 1e-3 of the middle of two."""
        for array, _, height, width in self.arrays(80, least=12):
            taps, sigma = [random_.choice([1, 3, 5, 9, 23]) for _ in range(2)], [random_.uniform(0.1, 5) for _ in range(2)]
            taps = [min(t, (size - 1) // 2 * 2 - 1) for t, size in zip(taps, (width, height))]
            exact = array.astype("f8")
            for axis, t, s in ((1, taps[0], sigma[0]), (0, taps[1], sigma[1])):
                x = numpy.arange(t) - (t - 1) / 2
                weights = numpy.exp(-0.5 * (x / s) ** 2)
                around = [(t // 2, t // 2) if i == axis else (0, 0) for i in range(3)]
                windows = numpy.lib.stride_tricks.sliding_window_view(numpy.pad(exact, around, "reflect"), t, axis)
                exact = windows @ (weights / weights.sum())
            clear = abs(exact - numpy.floor(exact) - 0.5) > 1e-3
            for program in self.programs:
                got = program.made(array, "blur", *taps, *map(float, sigma))
                numpy.testing.assert_array_equal(got[clear], numpy.rint(exact)[clear])
                self.assertLessEqual(abs(got - exact).max(), 0.502)
        with self.assertRaisesRegex(Failed, "odd number of taps"):
            self.programs[0].made(noise(9, 9), "blur", 2, 3, 1.0, 1.0)
        with self.assertRaisesRegex(Failed, "reflects 4 pixels"):
            self.programs[0].made(noise(9, 4), "blur", 9, 3, 1.0, 1.0)


if __name__ == "__main__":
    support.main()
