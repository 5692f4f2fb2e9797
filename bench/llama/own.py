"""ft for bench/llama/run, by its Python package:

    MODEL.so W.safetensors TOKENS THREADS LENGTH READS PROMPT…

prints the tokens a second at which prompts of LENGTH tokens are read (the median of READS of them, each to the scores behind it, after one that does not count),
the tokens a second after the first behind PROMPT, and then those tokens."""
import statistics
import sys
import time

import numpy

import ft


def main():
    path, weights = sys.argv[1:3]
    tokens, threads, length, reads, *prompt = map(int, sys.argv[3:])
    with ft.Model(path, device="cpu", threads=threads, train=False, predict=False, generate=True) as model:
        model.load_weights(weights)
        spent = []
        for i in range(1 + reads):
            text = numpy.random.default_rng(i).integers(0, model.vocabulary, length).tolist()
            text[0] = i  # so that nothing is remembered
            begin = time.perf_counter()
            next(model.generate(text, 1, temperature=0))
            spent.append(time.perf_counter() - begin)
        text = model.generate(prompt, tokens, temperature=0)
        out = [next(text)]
        begin = time.perf_counter()
        out += text
        print(length / statistics.median(spent[1:]), (tokens - 1) / (time.perf_counter() - begin), *out)


if __name__ == "__main__":
    main()
