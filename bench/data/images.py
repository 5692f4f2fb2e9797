"""Makes a folder of synthetic photographs: images.py FOLDER COUNT [CLASSES].

What a decoder's time depends on is the size of a picture and how many coefficients of it are not zero, so these have the size of
ImageNet's (500 x 375 or so, upright or not, about 100 KB, 4:2:0) and the statistics of photographs: shapes of all sizes that hide
each other, with radii of a power law ("dead leaves"), and in them textures whose amplitude falls as 1 / f. Each has its own seed,
so the same arguments make the same files."""
import os
import sys

import numpy
from PIL import Image



def texture(random, height, width):
    """A field with amplitude 1 / f, mean 0 and deviation 1."""
    fy, fx = numpy.fft.fftfreq(height)[:, None], numpy.fft.rfftfreq(width)[None]
    spectrum = numpy.fft.rfft2(random.standard_normal((height, width), dtype="f4")) / numpy.maximum(numpy.hypot(fy, fx), 1 / max(height, width))
    field = numpy.fft.irfft2(spectrum, (height, width))
    return ((field - field.mean()) / field.std()).astype("f4")


def picture(seed):
    random = numpy.random.default_rng(seed)
    long, short = int(random.integers(470, 531)), int(random.integers(330, 401))
    height, width = (short, long) if random.random() < 0.75 else (long, short)
    ys, xs = numpy.mgrid[:height, :width].astype("f4")
    pixels = numpy.empty((height, width, 3), "f4")
    pixels[:] = random.uniform(40, 215, 3)
    contrast = numpy.full((height, width), 12, "f4")
    for radius in numpy.sort(6 * random.power(1.5, 60) ** -1.7)[::-1]:  # the nearer ones are smaller
        radius = min(radius, 180)
        y, x, form, turn = random.uniform(0, height), random.uniform(0, width), random.uniform(0.4, 1), random.uniform(0, 3.2)
        dy, dx = ys - y, xs - x
        inside = (dx * numpy.cos(turn) + dy * numpy.sin(turn)) ** 2 + ((dy * numpy.cos(turn) - dx * numpy.sin(turn)) / form) ** 2 < radius**2
        pixels[inside] = random.uniform(20, 235, 3)
        contrast[inside] = random.uniform(4, 42)
    luma = texture(random, height, width) * contrast
    tint = numpy.stack([texture(random, height, width) for _ in range(3)], -1) * 5
    grain = random.standard_normal((height, width, 1), dtype="f4") * 2.5
    return Image.fromarray((pixels + luma[:, :, None] + tint + grain).clip(0, 255).astype("u1"))


def make(folder, count, classes=10):
    """Those that are there are kept. Returns the bytes of all."""
    total = 0
    for i in range(count):
        path = os.path.join(folder, f"class{i % classes:03d}", f"{i:06d}.jpg")
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            picture(i).save(path + ".part", "JPEG", quality=90 + 2 * (i % 3), subsampling="4:2:0")
            os.replace(path + ".part", path)
        total += os.path.getsize(path)
    return total


if __name__ == "__main__":
    made = make(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:]))
    print(f"{sys.argv[2]} images, {made / int(sys.argv[2]) / 1000:.1f} KB on average")
