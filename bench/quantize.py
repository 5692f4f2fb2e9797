#!/usr/bin/env python3
"""What `ftrun quantize` costs: faster.ft of docs/faster-training.md, with cosine as its schedule, on the first 6,000 images of Fashion-MNIST, and
examples/gpt_bytes.ft on the pages of docs/, each trained with some seeds and then rounded in several ways. For each way the means, the lowest and
the highest, of accuracy in percent or of bits per byte, and the bytes of the file.

    bench/quantize.py [--build build] [--seeds 3] [faster.ft] [gpt_bytes.ft]"""
import argparse
import os
import re
import subprocess
import tempfile

from less_work import COSINE, ROOT, program, write_text

WAYS = {
    "faster.ft": ["*=w8a8", "*=w4a8", "*=w4a8 --gptq", "*=w2", "*=w2 --gptq"],
    "gpt_bytes.ft": ["*=w8a8", "*=w8a8d", "*=w4g32", "*=w4g32a8d", "*=w4g32 --gptq", "*=w3g32", "*=w3g32 --gptq"],
}


def summary(values):
    return f"{sum(values) / len(values):.3f} ({min(values):.3f}, {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("models", nargs="*", default=list(WAYS))
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_text(folder)
        model, weights, out = (os.path.join(folder, name) for name in ("model.ft", "w.safetensors", "q.ft"))
        ftrun = os.path.join(flags.build, "bin", "ftrun")
        for name in flags.models:
            data = [] if name == "faster.ft" else ["--data", folder]
            with open(model, "w") as file:
                file.write(program(name, COSINE if name == "faster.ft" else ""))
            results, sizes = {"f32": []}, {}
            for seed in range(1, flags.seeds + 1):
                subprocess.run([ftrun, model, *data, "--set", f"train.seed={seed}", "--save", weights], check=True, capture_output=True)
                for way in WAYS[name]:
                    form, *more = way.split()
                    said = subprocess.run([ftrun, "quantize", model, *data, "--weights", weights, "-o", out, "--layers", form, *more], check=True, capture_output=True, text=True).stdout
                    line = re.search(r"(?m)^(accuracy|bits_per_byte) +(\S+) +(\S+)$", said)
                    by = 100 if line[1] == "accuracy" else 1
                    results.setdefault(way, []).append(by * float(line[3]))
                    sizes[way] = os.path.getsize(out.replace(".ft", ".safetensors"))
                results["f32"].append(by * float(line[2]))
                sizes["f32"] = os.path.getsize(weights)
            for way, values in results.items():
                print(f"{name}  {way:32s}  {summary(values)}  {sizes[way]:,} bytes", flush=True)


if __name__ == "__main__":
    main()
