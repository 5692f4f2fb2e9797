"""Ratios of the kernels of the examples, which need no GPU: sectors stored against the bytes of the results, how much is loaded 16
bytes at a time, and instructions for each element of named kernels, within budgets written beside them. A sample of blocks is
enough (ftrun bench --blocks), since blocks are alike."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
from sim_traffic import ENTROPY, NORM, NORM_BACK, POINTWISE, SOFTMAX, SOFTMAX_BACK, model

EXAMPLES = ("fashion_mlp", "fashion_cnn", "resnet_tiny", "gpt_bytes", "reviews", "autoencoder")
BLOCKS = 8  # of each launch
LARGE = 2048  # sectors of a result: 64 KiB. Of smaller ones the ends of rows are much
STORED = 1.05
# example, kernel: how many times its result it stores, and why more than that
STORES_MORE = {
    ("fashion_cnn", "conv_grad_weight"): (5.8, "sums of the parts of a batch, which its second launch adds"),
    ("fashion_cnn", "column_le_select_sum"): (1.06, "the same of columns"),
    ("resnet_tiny", "conv_grad_weight"): (4.6, "the same of weights"),
    ("resnet_tiny", "column_le_mul_select_sum_sub_add"): (2.9, "the same of columns"),
    ("gpt_bytes", "row_rmax_sub_exp_sum_eq_select"): (1.06, "rows for all multiprocessors: a sample of blocks is 3 % off"),
    ("gpt_bytes", "row_gather_mul_sum_add_rsqrt"): (1.06, "the same"),
    ("reviews", "one_attention"): (1.12, "the same: the last block of queries is a part of one"),
    ("reviews", "column_mul_add_neg_concat_transpose_sum"): (1.07, "sums of the parts of a batch"),
    ("reviews", "row_gather_transpose_add_sum_mul_sub"): (1.18, "rows of 192 columns begin anywhere in a sector"),
    ("reviews", "row_transpose_sum"): (1.12, "the same"),
}
# example, kernel: the least share of loads, in percent, that are of 16 bytes, and why not all
NARROWER = {
    ("fashion_mlp", "loop_div_add"): (0, "pixels of one byte"),
    ("fashion_cnn", "loop_div_add"): (0, "the same"),
    ("autoencoder", "loop_div"): (0, "the same"),
    ("resnet_tiny", "loop_div_add_transpose"): (0, "the same"),
    ("resnet_tiny", "conv_"): (0, "operands of f32 go by 4 bytes where the channels of a place are not multiples of 16 bytes, and masks by words"),
    ("resnet_tiny", "column_le_mul_select_sum_sub_add"): (0, "the second launch of sums: one number a column"),
    ("fashion_mlp", "dot_le_dot_select_sum"): (0, "rows of 10 scores, 40 bytes, begin anywhere in 16"),
    ("fashion_cnn", "dot_le_random_ge_dot_select_mul"): (0, "the same"),
    ("resnet_tiny", "one_dot"): (0, "the same"),
    ("reviews", "one_dot"): (0, "rows of 2 scores"),
    ("fashion_cnn", "one_conv"): (0, "images of one channel"),
    ("gpt_bytes", "attention_grad"): (90, "a row's largest score and sum are one number"),
    ("reviews", "attention_grad"): (90, "the same"),
    ("gpt_bytes", "scatter_add"): (0, "gradients of single features, by atomics"),
    ("reviews", "scatter_add"): (0, "the same"),
    ("reviews", "loop_gather_transpose"): (0, "rows that are turned"),
    ("reviews", "row_gather_transpose_add_sum_mul_sub"): (0, "the same"),
}
# name: model, columns, elements, labels, kernel, thread instructions an element at most. The figure is what the kernel took on the day
# that it was written, and a twentieth more: who makes a kernel shorter lowers it.
ELEMENTS = 1 << 18
BUDGETS = {
    "gelu + sigmoid": (POINTWISE, 1024, False, r"loop", 107),
    "softmax": (SOFTMAX, 1024, False, r"row", 43),
    "softmax and its gradient": (SOFTMAX_BACK, 1024, False, r"row", 58),
    "layer norm": (NORM, 768, False, r"row", 22.7),
    "layer norm's gradient": (NORM_BACK, 768, False, r"row", 64.3),
    "cross entropy with its gradient, 1024 classes": (ENTROPY, 1024, True, r"row", 51.7),
    "cross entropy with its gradient, 4095 classes": (ENTROPY, 4095, True, r"row", 83.4),  # twice an exponential, which costs less than 4-byte loads
    "cross entropy with its gradient, 16001 classes": (ENTROPY, 16001, True, r"row", 72.8),
}
ROW = re.compile(r" *(\d+) +(\d+) +\S+ +(\d+) +[0-9.]+% +[0-9.]+% +\d+[ ~] +\d+ +\d+% +(\S+) +(\S+)  \d+ +.* \(k\d+_(\w+)\)$")


class Budgets(support.Case):
    def rows(self, artifact, *flags):
        """(kernel, instructions, sectors stored, of the result, percent of wide loads or None)"""
        table = support.run("ftrun", "bench", artifact, "--device", "sim", "--gpu-model", "h100", *flags).stdout
        found = [row for row in map(ROW.match, table.splitlines()) if row]
        self.assertTrue(found, table)
        for row in found:
            times = float(row[4][:-1]) if row[4] != "-" else 0.0
            yield row[6], int(row[1]), int(row[3]), times, None if row[5] == "-" else int(row[5][:-1])

    @staticmethod
    def allowed(table, example, kernel, default):
        return next((limit for (of, part), (limit, _) in table.items() if of == example and part in kernel), default)

    def test_examples(self):
        for example in EXAMPLES:
            artifact = self.path(f"{example}.ptx")
            support.run("ftc", os.path.join(support.ROOT, "examples", example + ".ft"), "-o", artifact)
            for kernel, instructions, stored, times, wide in self.rows(artifact, "--blocks", BLOCKS):
                with self.subTest(example=example, kernel=kernel):
                    if times and stored / times >= LARGE:
                        self.assertLessEqual(times, self.allowed(STORES_MORE, example, kernel, STORED))
                    if wide is not None and instructions >= 1000:
                        self.assertGreaterEqual(wide, self.allowed(NARROWER, example, kernel, 100))

    def test_instructions_for_an_element(self):
        for name, (body, columns, labels, pattern, budget) in BUDGETS.items():
            artifact = self.compile(model(body, columns, ELEMENTS, labels), "--disable=join_launches", name="model.ptx")
            elements = ELEMENTS // columns * columns
            most = max(32 * instructions / elements for kernel, instructions, *_ in self.rows(artifact, "--made-up-data", "--steps", 1)
                       if re.match(pattern, kernel))
            print(f"{name}: {most:.1f} instructions an element, budget {budget}", file=sys.stderr)
            with self.subTest(name):
                self.assertLessEqual(most, budget)


if __name__ == "__main__":
    support.main()
