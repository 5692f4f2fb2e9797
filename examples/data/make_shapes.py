"""Draws small labelled colour images for examples/resnet_tiny.ft: ten classes of shapes and
textures, at random places, sizes, angles and colours, on noise. Deterministic.

    /usr/bin/python3 make_shapes.py DIR [train images (default 8000)]
"""
import os
import sys

import numpy

SIZE = 32


def draw(random, label):
    y, x = numpy.mgrid[0:SIZE, 0:SIZE] + 0.5
    centre = random.uniform(11, 21, 2)
    radius = random.uniform(6, 11)
    angle = random.uniform(0, 2 * numpy.pi)
    u, v = x - centre[0], y - centre[1]
    u, v = u * numpy.cos(angle) + v * numpy.sin(angle), v * numpy.cos(angle) - u * numpy.sin(angle)
    distance = numpy.hypot(u, v)
    square = numpy.maximum(abs(u), abs(v))
    mask = [
        distance < radius,  # disc
        (distance < radius) & (distance > 0.55 * radius),  # ring
        square < 0.8 * radius,  # square
        (square < 0.8 * radius) & (square > 0.45 * radius),  # frame
        (v > -0.6 * radius) & (v < radius - 1.8 * abs(u)),  # triangle
        (numpy.minimum(abs(u), abs(v)) < 0.28 * radius) & (square < radius),  # cross
        (abs(v) < 0.3 * radius) & (abs(u) < 1.3 * radius),  # bar
        (distance < radius) & (numpy.sin(u * 1.6) > 0),  # striped disc
        (square < 0.85 * radius) & ((numpy.floor(u / 3) + numpy.floor(v / 3)) % 2 == 0),  # chequered square
        numpy.hypot(abs(u) - 0.6 * radius, v) < 0.45 * radius,  # two dots
    ][label]
    background = random.uniform(0, 255, 3)
    colour = random.uniform(0, 255, 3)
    while abs(colour - background).sum() < 180:
        colour = random.uniform(0, 255, 3)
    image = numpy.where(mask, colour[:, None, None], background[:, None, None])
    return numpy.clip(image + random.normal(0, 20, image.shape), 0, 255).astype(numpy.uint8)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 8000
    os.makedirs(folder, exist_ok=True)
    for split, samples, seed in (("train", count, 1), ("valid", max(100, count // 8), 2)):
        random = numpy.random.RandomState(seed)
        labels = random.randint(0, 10, samples).astype(numpy.int32)
        numpy.save(os.path.join(folder, split + "-images.npy"), numpy.stack([draw(random, k) for k in labels]))
        numpy.save(os.path.join(folder, split + "-labels.npy"), labels)


main()
