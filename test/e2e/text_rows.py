"""Transforms of texts against their definition in numpy: documents packed or padded, next tokens, masked tokens as Hugging Face's
DataCollatorForLanguageModeling has them, labels. What a row holds is compared number by number; a resumed run, workers and ranks change nothing."""
import json
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import hosts
import orders
import support
import texts

T, SEED = 8, 5
# every input is an output; the loss of a step tells which rows were in it
MODEL = """
model M(INPUTS) {
  param w: [1] = ones
  loss = mean(w * sin(f32(t) * (1 + f32(iota([8]))))) EXTRA
  OUTPUTS
}
data D { train = SOURCE; DATA }
train { batch = BATCH; epochs = 2; seed = 5; optimizer = sgd(lr=0.1); log { every = 1 steps } }
distributed { data = any }
"""
TYPES = {"t": "i32[B, 8]", "n": "i32[B, 8]", "d": "i64[B, 8]", "p": "i32[B, 8]", "l": "i32[B]", "y": "i32[B]"}


def cut(documents):
    """Pieces of at most T tokens: (tokens, the rest of the document behind the piece)."""
    return [(document[at : at + T], document[at + T :]) for document in documents for at in range(0, len(document), T)]


def best_fit(pieces):
    """Best fit decreasing: each piece, the longest first, into the row where it leaves the least room, of several the one that got its room last."""
    rows, stamp = [], 0
    for i in sorted(range(len(pieces)), key=lambda i: -len(pieces[i][0])):
        length = len(pieces[i][0])
        open_rows = [row for row in rows if T - row["used"] >= length]
        if open_rows:
            row = min(open_rows, key=lambda row: (T - row["used"], -row["stamp"]))
        else:
            rows.append(row := {"used": 0, "pieces": []})
        row["pieces"].append(i)
        row["used"] += length
        stamp += 1
        row["stamp"] = stamp
    rows = [sorted(row["pieces"]) for row in rows]
    return [[pieces[i] for i in row] for row in sorted(rows)]


def in_order(documents):
    rows, used = [], T
    for document in documents:
        while document:
            if used == T:
                rows.append([])
                used = 0
            rows[-1].append((document[: T - used], document[T - used :]))
            document, used = document[T - used :], used + len(rows[-1][-1][0])
    return rows


def parts(rows, token=0, shift=1):
    """tokens, targets, documents, positions and lengths of rows of pieces."""
    t, n = numpy.full((len(rows), T), token), numpy.full((len(rows), T), -1)
    d, p, l = numpy.zeros((len(rows), T), int), numpy.zeros((len(rows), T), int), numpy.zeros(len(rows), int)
    for i, row in enumerate(rows):
        for k, (piece, rest) in enumerate(row):
            at = slice(l[i], l[i] + len(piece))
            after = (piece + rest)[shift:]
            t[i, at], d[i, at], p[i, at] = piece, k + 1, range(len(piece))
            n[i, at] = [after[j] if j < len(after) else -1 for j in range(len(piece))]
            l[i] += len(piece)
    return {"t": t, "n": n, "d": d, "p": p, "l": l}


def masked(tokens, filled, place, epoch, end, mask, vocabulary, p=0.15, replace=0.8, random=0.1):
    """Tokens and targets by the draws that docs/data.md gives."""
    t, n = tokens.copy(), numpy.full(tokens.shape, -1)
    for i, row in enumerate(tokens):
        for j in range(filled[i]):
            words = orders.philox((SEED, 0), (i, place << 16, epoch, 0x40000000 | j))
            if words[0] >= int(p * 2**32) or row[j] == end:
                continue
            n[i, j] = row[j]
            t[i, j] = mask if words[1] < int(replace * 2**32) else words[2] * vocabulary >> 32 if words[1] < int((replace + random) * 2**32) else row[j]
    return t, n


class Rows(texts.Texts):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        lengths = [3, 5, 8, 1, 2, 20, 7, 16, 4, 4, 6, 1, 9, *random.integers(1, 14, 40)]
        self.documents = [[int(c) for c in random.integers(97, 123, length)] for length in lengths]
        self.labels = [int(random.integers(0, 3)) for _ in lengths]
        for i, part in enumerate((slice(0, 13), slice(13, 53))):
            self.write(f"d-{i}.jsonl", "".join(json.dumps({"text": bytes(d).decode(), "y": y}) + "\n" for d, y in zip(self.documents[part], self.labels[part])))
        numpy.array([token for d in self.documents for token in [*d, 7]], "<u2").tofile(self.path("k.bin"))

    def model(self, source, inputs, data="shuffle = false", name="m.so", batch=4, extra=""):
        text = MODEL.replace("INPUTS", ", ".join(f"{i}: {TYPES[i]}" for i in inputs)).replace("OUTPUTS", "; ".join(f"output {i}" for i in inputs))
        return self.compile(text.replace("SOURCE", source).replace("DATA", data).replace("BATCH", str(batch)).replace("EXTRA", extra), name=name)

    def same(self, source, inputs, want):
        have = self.predicted(self.model(source, inputs), "train", *inputs)
        for name, value in zip(inputs, have):
            numpy.testing.assert_array_equal(value, want[name], f"{source}: {name}")

    def test_pack(self):
        ended = [[*d, 7] for d in self.documents]
        for source, rows, options in (
            ('jsonl("d-*.jsonl") | pack', best_fit(cut(self.documents)), {}), ('jsonl("d-*.jsonl", end=7) | pack(length=8, token=3)', best_fit(cut(ended)), {"token": 3}),
            ('tokens("k.bin", end=7) | pack(cut=true) | shift(by=2)', in_order(ended), {"shift": 2}),
        ):
            with self.subTest(source):
                self.same(source, "tndp", parts(rows, **options))
                self.assertLess(numpy.mean(parts(rows)["d"] == 0), 0.1)
        for i, document in enumerate(self.documents):
            self.write(f"b-{i:02}.txt", bytes(document))
        self.same('bytes("b-*.txt", keys="lengths, tokens") | pack', "lt", parts(best_fit(cut(self.documents))))

    def test_pad(self):
        rows = [[(d[:T], d[T:])] for d in self.documents]
        want = {**parts(rows, token=32), "y": self.labels}
        self.same('jsonl("d-*.jsonl", label="y") | pad(length=8, token=32)', "ty", want)
        self.same('jsonl("d-*.jsonl", label="y") | pad(token=32)', "tly", want)
        self.same('jsonl("d-*.jsonl") | pad(token=32) | shift', "tnl", want)
        self.same('jsonl("d-*.jsonl", label="y", keys="label, documents, positions, tokens, targets", limit=20) | pad(token=32)', "ydptn", {k: v[:20] for k, v in want.items()})
        self.same('tokens("k.bin", end=7) | pad', "tnl", parts([[(d[:T], d[T:])] for d in ([*d, 7] for d in self.documents)]))

    def test_mask(self):
        stream = numpy.array([token for d in self.documents for token in [*d, 7]])
        windows = stream[: len(stream) // T * T].reshape(-1, T)
        packed = parts(best_fit(cut([[*d, 7] for d in self.documents])), token=32)
        for source, tokens, filled, place, options in (
            ('tokens("k.bin", end=7) | mask(token=1, vocabulary=128)', windows, [T] * len(windows), 0, {}),
            ('jsonl("d-*.jsonl", end=7) | pack(token=32) | mask(token=1, vocabulary=128, p=0.5, replace=0.5, random=0.3)', packed["t"], packed["l"], 1, {"p": 0.5, "replace": 0.5, "random": 0.3}),
        ):
            with self.subTest(source):
                want = [masked(tokens, filled, place, epoch, 7, 1, 128, **options) for epoch in (0, 1)]
                self.same(source, "tn", dict(zip("tn", want[0])))
                artifact = self.model(source, "tn", extra="+ 0.01 * mean(f32(n))")  # each epoch masks others
                have, steps = self.losses(artifact, "--set", "train.lr=0"), len(tokens) // 4
                for step, loss in enumerate(have):
                    rows = slice(step % steps * 4, step % steps * 4 + 4)
                    t, n = want[step // steps][0][rows], want[step // steps][1][rows]
                    self.assertAlmostEqual(loss, numpy.mean(numpy.sin(t.astype("f4") * numpy.arange(1, 9, dtype="f4"))) + 0.01 * n.mean(), places=4)

    def test_share_of_masks(self):
        """80 % the mask, 10 % any token, 10 % as they were, of 15 % of the tokens: within 5 standard deviations."""
        tokens = numpy.random.default_rng(1).integers(2, 100, 200_000).astype("<u2")
        tokens.tofile(self.path("k.bin"))
        t, n = self.predicted(self.model('tokens("k.bin") | mask(token=1, vocabulary=100)', "tn", batch=100), "train", "t", "n")
        original, asked = tokens.reshape(-1, T), n >= 0
        numpy.testing.assert_array_equal(n[asked], original[asked])
        numpy.testing.assert_array_equal(t[~asked], original[~asked])
        count = asked.sum()
        for have, of, share in ((count, asked.size, 0.15), ((t[asked] == 1).sum(), count, 0.8 + 0.1 / 100), ((t[asked] == original[asked]).sum(), count, 0.1 + 0.1 / 100)):
            self.assertLess(abs(have - of * share), 5 * (of * share * (1 - share)) ** 0.5)
        random = t[asked & (t != 1) & (t != original)]
        self.assertEqual((random.min(), random.max()), (0, 99))

    def test_resumed_on_ranks_with_workers(self):
        source = 'jsonl("d-*.jsonl", end=7) | pack | mask(token=1, vocabulary=128, p=0.5)'
        whole = self.losses(self.model(source, "tn", data="workers = 0"))
        self.assertNotEqual(whole[: len(whole) // 2], whole[len(whole) // 2 :])
        artifact = self.model(source, "tn", data="workers = 3; prefetch = 3")
        self.losses(artifact, "--steps", "11", "--set", "train.checkpoint.dir=" + self.path("d"))
        self.assertEqual(self.losses(artifact, "--resume", self.path("d")), whole)
        if hosts.HAS_MPI:
            ranks = self.losses(["--ranks", "2", self.model(source, "tn", data="workers = 1; prefetch = 2", batch=2)])
            numpy.testing.assert_allclose(ranks, whole, rtol=1e-5)

    def test_attention_within_documents(self):
        """With documents and positions as inputs, each document of a row has the numbers that it has alone: by attention in numpy."""
        source = """
model M(t: i32[B, 8], n: i32[B, 8], d: i32[B, 8], p: i32[B, 8]) {
  x = Embedding(128, 4, name="e")(t) + Embedding(8, 4, name="p")(p)
  one = reshape(d, [B, 8, 1]) == reshape(d, [B, 1, 8])
  y = reshape(attention(reshape(x, [B, 1, 8, 4]), reshape(x, [B, 1, 8, 4]), reshape(x, [B, 1, 8, 4]), mask=reshape(one, [B, 1, 8, 8])), [B, 8, 4])
  loss = mean(cross_entropy(Linear(128, name="o")(y), n, ignore=-1))
  output t; output d; output y
}
data D { train = jsonl("d-*.jsonl", end=7) | pack }
train { batch = 4; epochs = 1; optimizer = sgd(lr=0.1) }"""
        artifact = self.compile(source)
        support.run("ftrun", artifact, "--save", "w2", cwd=self.folder)
        support.run("ftrun", "predict", artifact, "--split", "train", "--weights", "w2", *[w for o in "tdy" for w in ("--output", f"{o}={o}.npy")], cwd=self.folder)
        t, d, y = (numpy.load(self.path(f"{o}.npy")) for o in "tdy")
        weights = support.read_safetensors(self.path("w2"))
        self.assertGreater(d.max(), 2)
        for row in range(len(t)):
            for number in range(1, d[row].max() + 1):
                here = d[row] == number
                x = weights["e.weight"][t[row, here]] + weights["p.weight"][: here.sum()]
                scores = numpy.exp(x @ x.T / 2)
                numpy.testing.assert_allclose(y[row, here], scores @ x / scores.sum(1, keepdims=True), rtol=2e-5, atol=2e-6)

    def test_parts_of_splits_and_orders(self):
        artifact = self.model('jsonl("d-*.jsonl", label="y") | pad', "ty", data="valid = 0.25 of train by y | pad; order = balanced(y)")
        have = [self.predicted(artifact, split, "t", "y") for split in ("train", "valid")]
        self.assertLessEqual(numpy.ptp([numpy.sum(have[1][1] == y) * 4 - self.labels.count(y) for y in range(3)]), 8)
        rows = sorted(map(tuple, numpy.concatenate([numpy.column_stack(part) for part in have])))
        want = parts([[(d[:T], d[T:])] for d in self.documents])["t"]
        self.assertEqual(rows, sorted(map(tuple, numpy.column_stack([want, self.labels]))))
        self.assertEqual(len(self.losses(artifact)), 2 * (len(have[0][1]) // 4))
        said = support.run("ftrun", artifact, "--data", self.folder, "--dry-run", cwd=self.folder).stdout
        self.assertEqual(said.count(", the tokens once for all splits of these files"), 2, said)

    def test_classes(self):
        names = ["bad", "fine", "good"]
        for split, part in (("a", slice(0, 40)), ("b", slice(40, 53))):
            self.write(f"{split}.jsonl", "".join(json.dumps({"label": names[y], "text": bytes(d).decode()}) + "\n" for d, y in zip(self.documents[part], self.labels[part])))
        self.same('jsonl("a.jsonl", label="label") | pad', "ty", {**parts([[(d[:T], d[T:])] for d in self.documents[:40]]), "y": self.labels[:40]})
        listed = 'jsonl("b.jsonl", label="label", classes="good, bad, fine") | pad'
        self.same(listed, "ty", {**parts([[(d[:T], d[T:])] for d in self.documents[40:]]), "y": [(y + 1) % 3 for y in self.labels[40:]]})
        self.write("c.jsonl", '{"text": "ab", "label": "new"}\n' * 8)
        both = self.model('jsonl("a.jsonl", label="label") | pad', "ty", data='valid = jsonl("c.jsonl", label="label") | pad')
        self.fails(1, "class 'bad' is in ./a.jsonl, but not in ./c.jsonl", "ftrun", both, "--data", ".", cwd=self.folder)
        self.fails(1, "c.jsonl line 1: label 'new' is none of those that classes= lists", "ftrun", self.model(listed.replace("b.", "c."), "ty"), cwd=self.folder)

    def test_dry_run_and_info(self):
        artifact = self.model('jsonl("d-*.jsonl", label="y") | pad(token=32)', "ty")
        said = support.run("ftrun", artifact, "--dry-run", cwd=self.folder).stdout
        tokens, long = sum(map(len, self.documents)), sum(len(d) > T for d in self.documents)
        padding = 1 - sum(min(len(d), T) for d in self.documents) / (53 * T)
        self.assertIn(f"train: {tokens} tokens of 53 documents in 2 files, 53 rows of 8, of which {100 * padding:.1f} % are padding; {long} documents are longer and are cut off; ", said)
        self.assertIn('jsonl("d-*.jsonl", label="y") | pad(length=0, token=32)', support.run("ftrun", "info", artifact).stdout)

    def test_refused(self):
        for source, inputs, needle in (
            ('tokens("k.bin") | pack', "t", "end= has to say which token ends a document"), ('tokens("k.bin") | hflip', "tn", "hflip is for images, and tokens is a text; there are pack, pad, mask and shift"),
            ('npy("x.npy") | shift', "t", "shift is for texts, and npy is none"), ('tokens("k.bin") | mask(1, 128) | shift', "tn", "mask and shift both say what is to be predicted"),
            ('tokens("k.bin") | shift | pack', "tn", "pack, or pad, is the first transform"), ('tokens("k.bin", end=7) | pack | pad', "tn", "pack, or pad, is the first transform"),
            ('tokens("k.bin") | mask(1, 128)', "t", "mask asks for tokens, but no input gets the targets"), ('tokens("k.bin") | mask(1)', "tn", "mask needs vocabulary"),
            ('tokens("k.bin") | mask(1, 128, replace=0.9, random=0.2)', "tn", "replace and random are shares of the same tokens"), ('tokens("k.bin") | mask(1, 128, p=2)', "tn", "p must be a number from 0 to 1"),
            ('jsonl("d-0.jsonl", label="y")', "ty", "a label is of one document"), ('jsonl("d-0.jsonl", classes="a")', "tn", "classes= is for labels"),
            ('jsonl("d-0.jsonl", keys="tokens, lenghts") | pad', "tl", "keys= has 'lenghts'; there are tokens, targets, documents, positions, lengths and label"),
            ('jsonl("d-0.jsonl", keys="tokens, tokens") | pad', "tl", "keys= has 'tokens' twice"), ('jsonl("d-0.jsonl", keys="tokens") | pad', "tl", "keys= has 1 parts for 2 inputs"),
            ('jsonl("d-0.jsonl", keys="tokens, label") | pad', "ty", "no label= says which member has the label"), ('jsonl("d-0.jsonl") | pack', "tndpl", "keys= has to say what each of 5 inputs gets"),
            ('jsonl("d-0.jsonl") | pad(bucket=3)', "tl", "pad has no argument 'bucket'; did you mean 'buckets'?"),
        ):
            with self.subTest(source):
                with self.assertRaisesRegex(AssertionError, ".*") as raised:
                    self.model(source, inputs)
                self.assertIn(needle, str(raised.exception))
        few = self.model('jsonl("d-*.jsonl", label="y") | pad', "ty", extra="+ mean(cross_entropy(Linear(2)(f32(t)), y))")
        self.fails(1, f"the label of document {self.labels.index(2)}: holds 2, but input y takes 0 to 1", "ftrun", few, cwd=self.folder)
        self.write("empty.jsonl", '{"text": "a", "y": 1}\n{"text": "", "y": 0}\n')
        for source, inputs, needle in (
            ('jsonl("d-0.jsonl") | pad(length=16)', "tn", "pad(length=16), but the model's inputs have rows of 8 tokens"),
            ('jsonl("empty.jsonl", label="y") | pad', "ty", "has no token in document 1 (from 0)"), ('jsonl("d-0.jsonl", label="z") | pad', "ty", "d-0.jsonl line 1: has no member 'z'; it has 'text', 'y'"),
            ('jsonl("d-0.jsonl", keys="tokens, lengths") | pad', "tp", "lengths are for an input of i32[B], but p is i32[4,8]"),
        ):
            with self.subTest(source):
                self.fails(1, needle, "ftrun", self.model(source, inputs), cwd=self.folder)


if __name__ == "__main__":
    support.main()
