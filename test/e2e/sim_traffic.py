"""Global memory traffic of generated kernels, counted by the simulator, against the least: every input
read once, every result written once. All must stay within 5 %. Where rows share weights, there are as many
rows as fill a GPU, so that reading the weights once a block does not count. Odd widths, whose rows begin in
the middle of a 32-byte sector, are among them."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

WITHIN = 1.05
SMALL = 1 << 18  # elements
LARGE = 1 << 22


def model(body, columns, elements, labels=False, optimizer="sgd(lr=0.001)"):
    t = "i32[B]" if labels else "f32[B, N]"
    return f"""model M(x: f32[B, N={columns}], t: {t}) {{
{body}
}}
data D {{ train = npy("x.npy", "t.npy") }}
train {{ model = M; data = D; batch = {elements // columns}; epochs = 1; optimizer = {optimizer}; eval every 0 epochs }}
"""


def with_result(expression):
    return f"  param w: [1] = normal(1)\n  y = {expression}\n  output y\n  loss = sum(w)"


POINTWISE = with_result("gelu(x * 2 + t) + sigmoid(x - t)")
SOFTMAX = with_result("softmax(x)")
SOFTMAX_BACK = "  param v: [B, N] = normal(1)\n  loss = sum(softmax(v + x) * t)"
WEIGHTS = "  param w: [N] = normal(1)\n  param b: [N] = normal(1)\n"
NORM = WEIGHTS + "  y = layer_norm(x, weight=w, bias=b)\n  output y\n  loss = sum(y * t)"
NORM_BACK = WEIGHTS + "  param v: [B, N] = normal(1)\n  y = layer_norm(v * x, weight=w, bias=b)\n  loss = sum(y * t)"
BATCH_NORM = "  param v: [B, N] = normal(1)\n  y = BatchNorm()(v * x)\n  output y\n  loss = sum(relu(y) * t)"
ENTROPY = "  param w: [B, N] = normal(1)\n  loss = mean(cross_entropy(w + x, t))"
TURNED = {  # name: how x lies, how it is turned, with what is fused
    "rows and columns": ("f32[B, K=512]", "transpose(x) * 2", 1024),
    "nhwc to nchw": ("f32[B, H=24, W=24, C=64]", "transpose(x, 0, 3, 1, 2)", 8),
    "nchw to nhwc": ("f32[B, C=64, H=24, W=24]", "relu(transpose(x, 0, 2, 3, 1))", 8),
    "bytes": ("u8[B, K=2112]", "transpose(x)", 2080),
    "few bytes": ("u8[B, K=224]", "transpose(x)", 160),
    "bytes of three channels": ("u8[B, C=3, H=64, W=64]", "f32(transpose(x, 0, 2, 3, 1)) / 255", 16),
    "first and last": ("f32[B, K=40, N=96]", "transpose(x, 2, 1, 0)", 64),
    "f16": ("f32[B, K=512]", "f16(transpose(f16(x)))", 512),
}
ADAMW = "  param w: [B, N] = normal(1)\n  loss = sum(w * x * t)"

# A kernel over rows that makes sums of columns, too, leaves what each of its blocks has of them, in f32, for its second launch.
SUM_BLOCKS, SUMS = 264, 2
# name: model, elements, labels, columns. All kernels of the model must be within the limit that move more than
# SIGNIFICANT of what its largest does: the rest are scalars, and second launches of sums in two.
SIGNIFICANT = 0.05
CASES = {
    "pointwise": (POINTWISE, SMALL, False, (100, 1024)),
    "softmax": (SOFTMAX, SMALL, False, (64, 127, 256, 333, 1000, 1023, 1024, 2048, 4096, 16001)),
    "softmax and its gradient": (SOFTMAX_BACK, SMALL, False, (64, 256, 333, 1023, 1024, 3000, 4096)),
    "cross entropy with its gradient": (ENTROPY, SMALL, True, (256, 333, 1000, 1023, 1024, 4096, 5001, 16001)),
    "layer norm": (NORM, LARGE, False, (256, 1024)),
    "layer norm and its gradients": (NORM_BACK, LARGE, False, (256, 768, 1023)),
    "batch norm and its gradients": (BATCH_NORM, LARGE, False, (256,)),
    "sgd": (ENTROPY, SMALL, True, (1000,)),
    "adamw": (ADAMW, SMALL, False, (1000,)),
}


class Traffic(support.Case):
    def counted(self, text, *flags):
        artifact = self.compile(text, *flags, "--disable=join_launches", name="model.ptx")  # each kernel by itself
        return support.run("ftrun", "bench", artifact, "--device", "sim", "--made-up-data", "--steps", 1).stdout

    def moved(self, text, *flags):
        """Per kernel: sectors, how many times the least they are, conflicts of banks for each access, and sectors stored."""
        table = self.counted(text, *flags)
        rows = [re.match(r" *\d+ +(\d+) +([0-9.]+)x +(\d+) +([0-9.]+)% .*\((\w+)\)$", line) for line in table.splitlines()]
        found = {row[5]: (int(row[1]), float(row[2]), float(row[4]) / 100, int(row[3])) for row in rows if row}
        self.assertTrue(found, table)
        return found

    def check(self, name):
        body, elements, labels, widths = CASES[name]
        for columns in widths:
            optimizer = "adamw(lr=0.001)" if name == "adamw" else "sgd(lr=0.001)"
            found = self.moved(model(body, columns, elements, labels, optimizer))
            largest = max(sectors for sectors, *_ in found.values())
            for kernel, (sectors, times, *_) in found.items():
                if sectors < SIGNIFICANT * largest:
                    continue
                print(f"{name}, {columns} columns: {kernel} {times:.3f}", file=sys.stderr)
                parts = SUM_BLOCKS * columns * SUMS * 4 // 32 if kernel + "_columns" in found else 0
                # of the second launch two warps each read a half of a sector; the one that comes later may find it in L1
                warps = 2 if kernel.endswith("_columns") else 1
                with self.subTest(columns=columns, kernel=kernel):
                    self.assertLessEqual(times * (1 - parts / sectors), WITHIN * warps)

    def test_products_store_whole_sectors(self):
        """Four neighbours of a result are one store, also where a block computes tile after tile (setmaxnreg: sm_90a)."""
        source = """model M(x: f32[B, K=64]) {
  h = Linear(2304, name="fc")(x)
  output h
  loss = mean(h * h)
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 2560; precision = bf16; optimizer = sgd(lr=0.001); eval every 0 epochs }
"""
        found = self.moved(source, "--gpu", "sm_90a")
        with open(self.path("model.ptx")) as file:
            kernels = re.findall(r"\.entry (\w+)(.*?)\n}\n", file.read(), re.S)
        kernel = next(name for name, text in kernels if "setmaxnreg" in text and "add_mul" in name)
        print(f"{kernel}: {found[kernel]}", file=sys.stderr)
        # h, its gradient in bf16, and for each tile of 128 rows what it has of the bias's gradient
        self.assertEqual(found[kernel][3], (2560 * 2304 * (4 + 2) + 2560 // 128 * 2304 * 4) // 32)

    def test_transposes(self):
        """Tiles go through shared memory: both ways move whole lines, and the banks are shared well."""
        for name, (lies, turned, batch) in TURNED.items():
            source = f"""model M(x: {lies}) {{
  param w: [1] = normal(1)
  y = {turned}
  output y
  loss = sum(w)
}}
data D {{ train = npy("x.npy") }}
train {{ model = M; data = D; batch = {batch}; optimizer = sgd(lr=0.001); eval every 0 epochs }}
"""
            found = self.moved(source)
            kernel = max(found, key=lambda one: found[one][0])
            print(f"{name}: {kernel} {found[kernel]}", file=sys.stderr)
            with self.subTest(name):
                self.assertIn("transpose", kernel)
                self.assertLessEqual(found[kernel][1], WITHIN)
                if name != "bytes of three channels":
                    self.assertLessEqual(found[kernel][2], 0 if "bytes" in name else 0.5)

    def test_pooling_of_a_norm(self):
        """Windows normalise what they see: the convolution's result is read and the pooled image written, by one kernel,
        and nothing else. Windows overlap: rows of places are read again, from a cache that the simulator has little of."""
        source = """model M(x: f32[B, 8, 64, 64]) {
  y = Conv2d(64, 3, padding=1, bias=false, name="c")(x)
  loss = mean(max_pool2d(relu(BatchNorm(name="n")(y)), 3, stride=2, padding=1))
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 2; precision = bf16; optimizer = sgd(lr=0.001); eval every 0 epochs }
"""
        found = self.moved(source)
        kernels = [name for name in found if "pool_max" in name and "grad" not in name]
        print(f"pooling of a norm: {[(name, found[name]) for name in kernels]}", file=sys.stderr)
        self.assertEqual(len(kernels), 1)
        self.assertIn("sub_mul_pool_max", kernels[0])
        self.assertLessEqual(found[kernels[0]][1], 1.6)

    def test_mask_behind_a_norm(self):
        """relu's mask comes from what the norm's gradient reads. Where a kernel of its own makes the sums for that gradient two images
        fewer move: relu's result is not read, nor what it masks written. Where the convolution's epilogue does, which writes one of them
        anyway, it is the one that is read, less 2,048 sectors of the scale and the bias."""
        source = """model M(x: f32[B, 8, 32, 32]) {
  h = relu(BatchNorm(name="n")(Conv2d(64, 3, padding=1, bias=false, name="c")(x)))
  loss = mean(Conv2d(8, 3, padding=1, bias=false, name="d")(h))
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 4; precision = bf16; optimizer = sgd(lr=0.001); eval every 0 epochs }
"""
        image = 4 * 32 * 32 * 64 * 2 // 32  # sectors
        for others, images in (("slope_epilogues", 1.7), ("dce", 0.75)):
            moved = []
            for disable in (others, others + ",masks"):
                text = self.counted(source, f"--disable={disable}")
                rows = re.findall(r"^ *\d+ +(\d+) .*\((k\d+_\w+)\)$", text, re.M)
                self.assertGreater(len(rows), 8)
                # of gradients of weights, whose splits begin within images' rows, what the small cache has depends on addresses
                moved.append(sum(int(sectors) for sectors, kernel in rows if "grad_weight" not in kernel))
            print(f"mask behind a norm: {moved} sectors, without {others}", file=sys.stderr)
            self.assertGreater(moved[1] - moved[0], images * image)

    def test_few_channels(self):
        """Three channels: products read them 16 bytes at a time, without registers between, in half of the instructions or less."""
        source = """model M(x: u8[B, 3, 40, 40]) {
  loss = mean(Conv2d(64, 7, stride=2, padding=3, bias=false, name="c")(f32(x) / 255) ** 2)
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 2; precision = bf16; optimizer = sgd(lr=0.001); eval every 0 epochs }
"""
        counts = []
        for flags in ((), ("--disable=channels",)):
            found = re.findall(r"^ *(\d+) .*\(k\d+_\w*conv\w*\)$", self.counted(source, *flags), re.M)
            counts.append(sum(map(int, found)))
        print(f"few channels: {counts} instructions", file=sys.stderr)
        self.assertLess(counts[0] * 2, counts[1])

    def test_column_sums(self):
        """Mean and variance of a convolution's result: nothing reads it for them, and the numbers that tiles leave are few.
        In backward, its gradient leaves the next convolution with the sums made: nothing reads it for them, and the
        convolution reads in its place what the mask and the sums need."""
        source = """model M(x: f32[B, C=16, H=32, W=32], t: i32[B]) {
  h = relu(BatchNorm(name="bn")(Conv2d(64, 3, padding=1, bias=false, name="conv")(x)))
  h = Conv2d(8, 3, padding=1, name="last")(h)
  loss = mean(cross_entropy(Linear(10, name="fc")(mean(h, axis=[2, 3])), t))
}
data D { train = npy("x.npy", "t.npy") }
train { model = M; data = D; batch = 2; optimizer = sgd(lr=0.01); eval every 0 epochs }
"""
        result = 2 * 32 * 32 * 64 * 4 // 32  # sectors of what the convolution writes
        total = {}
        for disable in ("dce", "slope_epilogues", "column_sums,slope_epilogues"):
            found = self.moved(source, f"--disable={disable}")
            total[disable] = sum(sectors for kernel, (sectors, *_) in found.items() if "grad_weight" not in kernel)
            self.assertEqual(any(kernel.endswith("_columns") for kernel in found), "column_sums" not in disable)
        both, forward, none = (sectors / result for sectors in total.values())
        print(f"column sums: results not moved: {none - forward:.3f} forward, {forward - both:.3f} backward", file=sys.stderr)
        self.assertGreater(none - forward, 0.9)
        self.assertGreater(forward - both, 0.9)

    def test_attention(self):
        """No matrix of scores goes to memory: a block of queries (keys) reads its rows once, and tiles of keys (queries)
        as far as the causal order lets them see each other. Least: four tensors forward, eight backward."""
        source = """model M(x: f32[B, T=%d, E=8], y: f32[B, T, F=64]) {
  q, k, v = split(Linear(192, name="a")(x), 3, axis=-1)
  z = attention(reshape(q, [B, 1, T, F]), reshape(k, [B, 1, T, F]), reshape(v, [B, 1, T, F]), causal=true)
  loss = mean((reshape(z, [B, T, F]) - y) ** 2)
}
data D { train = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 2; precision = bf16; optimizer = sgd(lr=0.001); eval every 0 epochs }
"""
        for length in (128, 384):
            found = {re.sub(r"k\d+_", "", kernel): times for kernel, (_, times, *_) in self.moved(source % length).items()}
            for kernel, rows, own, least in (("", 128, 2, 4), ("_grad", 128, 4, 8), ("_grad_keys", 64, 4, 8)):
                expected = (own + 2 * (length // rows + 1) / 2) / least
                print(f"attention{kernel} of {length}: {found['one_attention' + kernel]}, expected {expected}", file=sys.stderr)
                self.assertLess(abs(found["one_attention" + kernel] - expected), 0.03 * expected)


for index, name in enumerate(CASES):
    setattr(Traffic, f"test_{index:02d}_" + re.sub(r"\W+", "_", name), lambda self, name=name: self.check(name))
if __name__ == "__main__":
    support.main()
