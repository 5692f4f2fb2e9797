"""Global memory traffic of generated kernels, counted by the simulator, against the least: every input
read once, every result written once. Kernels within 5 % must stay there. Those that are known to miss
are listed with their number: the test fails when one becomes worse, and when one becomes better, so that
it moves to the others."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

WITHIN = 1.05


def model(body, columns, batch, labels=False, optimizer="sgd(lr=0.001)"):
    t = "i32[B]" if labels else "f32[B, N]"
    return f"""model M(x: f32[B, N={columns}], t: {t}) {{
{body}
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {batch}; epochs = 1; optimizer = {optimizer}; eval every 0 epochs }}
"""


def with_result(expression):
    return f"  param w: [1] = normal(1)\n  y = {expression}\n  output y\n  loss = sum(w)"


NORM = "  param w: [N] = normal(1)\n  param b: [N] = normal(1)\n  y = layer_norm(x, weight=w, bias=b)\n  output y\n  loss = sum(y * t)"
ENTROPY = "  param w: [B, N] = normal(1)\n  loss = mean(cross_entropy(w + x, t))"

# name: model, the kernel's name, what it moves if it is known to miss (None: within 5 %)
CASES = {
    "pointwise": (model(with_result("gelu(x * 2 + t) + sigmoid(x - t)"), 1024, 256), "k0_loop", None),
    "softmax, 256 columns": (model(with_result("softmax(x)"), 256, 512), "k0_row", None),
    "softmax, 4096 columns": (model(with_result("softmax(x)"), 4096, 64), "k0_row", None),
    "cross entropy with gradient, 256 columns": (model(ENTROPY, 256, 512, True), "k0_row", None),
    "cross entropy with gradient, 1000 columns": (model(ENTROPY, 1000, 256, True), "k0_row", None),
    "gradients of layer norm's weights": (model(NORM, 256, 512), "k1_column_sum_mul_sub ", None),
    "sgd": (model(ENTROPY, 256, 512, True), "loop_mul_add_sub", None),
    "adamw": (model("  param w: [B, N] = normal(1)\n  loss = sum(w * x * t)", 1024, 256, optimizer="adamw(lr=0.001)"), "loop_sub_mul_add_sqrt_div", None),
    # rows that are not kept: each stage reads them again, and what the cache has lost comes twice
    "softmax, 1024 columns": (model(with_result("softmax(x)"), 1024, 256), "k0_row", 1.750),
    "layer norm, 1024 columns": (model(NORM, 1024, 256), "k0_row", 1.378),
    # a block has 8 rows, and reads weight and bias for them again
    "layer norm, 256 columns": (model(NORM, 256, 512), "k0_row", 1.109),
}


class Traffic(support.Case):
    def moved(self, text, kernel):
        """How many times the least the kernel moves."""
        artifact = self.compile(text, name="model.ptx")
        table = support.run("ftrun", "bench", artifact, "--device", "sim", "--made-up-data", "--steps", 1).stdout
        for row in table.splitlines():
            found = re.match(r" *\d+ +\d+ +([0-9.]+)x .*\((\w+)\)$", row)
            if found and kernel.strip() in found[2] and not (kernel.endswith(" ") and found[2].endswith("_combine")):
                return float(found[1])
        self.fail(f"no kernel {kernel} in\n{table}")

    def check(self, name):
        text, kernel, misses = CASES[name]
        moved = self.moved(text, kernel)
        print(f"{name}: {moved:.3f} of the least", file=sys.stderr)
        if misses is None:
            self.assertLessEqual(moved, WITHIN)
        else:
            self.assertLess(moved, misses * 1.02, "worse than it was")
            self.assertGreater(moved, misses * 0.98, "better than it was: change its number, or take it off the list")


for index, name in enumerate(CASES):
    setattr(Traffic, f"test_{index:02d}_" + re.sub(r"\W+", "_", name), lambda self, name=name: self.check(name))
if __name__ == "__main__":
    support.main()
