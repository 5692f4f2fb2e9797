"""Writes the table that examples/regression.ft learns: y = f(x) + noise of standard deviation 0.05,
x uniform in [-1, 1]^8. Deterministic.

    /usr/bin/python3 make_regression.py DIR
"""
import os
import sys

import numpy

if len(sys.argv) != 2:
    sys.exit(__doc__.strip())
os.makedirs(sys.argv[1], exist_ok=True)
for split, samples, seed in (("train", 10000, 1), ("valid", 2000, 2)):
    random = numpy.random.RandomState(seed)
    x = random.uniform(-1, 1, (samples, 8)).astype(numpy.float32)
    y = numpy.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2 - numpy.abs(x[:, 4]) + 0.3 * x[:, 5]
    y = (y + random.normal(0, 0.05, samples)).astype(numpy.float32)
    numpy.save(os.path.join(sys.argv[1], split + "-x.npy"), x)
    numpy.save(os.path.join(sys.argv[1], split + "-y.npy"), y)
