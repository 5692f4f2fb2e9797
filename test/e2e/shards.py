"""Shards of samples, tar(...), against Python's tarfile and, where it is installed, WebDataset: which files are a sample, their order and
what they hold, in archives of every form, plain and compressed; indexes beside them; several shards in training; and what is refused."""
import gzip
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest

import numpy
from PIL import Image, ImageOps

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

HAS_WEBDATASET = importlib.util.find_spec("webdataset") is not None
MODEL = """
model M(%(inputs)s) {
  loss = mean(Linear(1, name="fc")(reshape(f32(%(first)s), B, %(size)s)))
%(outputs)s
}
data D { train = %(source)s }
train { batch = 2; epochs = 1; eval = none; optimizer = sgd(lr=0.0); seed = 3 }
"""
IMAGES = dict(inputs="image: u8[B, 3, 8, 8], label: i32[B]", first="image", size=192)


def packed(members, **form):
    """A tar archive of (name, bytes) or of TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **form) as tar:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def special(name, kind):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "elsewhere"
    return info, b""


def grouped(path):
    """The samples of a shard by the rule of WebDataset's documentation: files in a row that have the same name up to the first dot."""
    samples = []
    with tarfile.open(path) as tar:
        for member in tar:
            folder, _, last = member.name.rpartition("/")
            key, dot, ending = last.partition(".")
            if not member.isreg() or not dot or not key or member.name.startswith("__meta__"):
                continue
            key = os.path.join(folder, key)
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            samples[-1][ending.lower()] = tar.extractfile(member).read()
    return samples


def png(i, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(numpy.random.default_rng(i).integers(0, 256, (8 + i % 3, 9, 3), "u1")).save(out, kind)
    return out.getvalue()


class Shards(support.Case):
    def write(self, name, data):
        with open(self.path(name), "wb" if isinstance(data, bytes) else "w") as file:
            file.write(data)

    def recipe(self, source, **form):
        names = [part.split(":")[0].strip() for part in form["inputs"].replace("[B, ", "[").split(", ") if ":" in part]
        return MODEL % dict(form, source=source, outputs="\n".join("  output " + name for name in names)), names

    def predicted(self, source, **form):
        text, names = self.recipe(source, **form)
        artifact = self.compile(text, name="model.so")
        if not os.path.exists(self.path("weights")):
            support.run("ftrun", artifact, "--data", self.folder, "--steps", "1", "--save", self.path("weights"))
        done = support.run("ftrun", "predict", artifact, "--data", self.folder, "--split", "train", "--weights", self.path("weights"),
                    *[word for name in names for word in ("--output", f"{name}={self.path(name)}.npy")])
        self.said = done.stderr
        return [numpy.load(self.path(name + ".npy")) for name in names]

    def refused(self, source, needle, **form):
        self.write("r.ft", self.recipe(source, **(form or IMAGES))[0])
        self.fails(1, needle, "ftrun", self.path("r.ft"), "--data", self.folder, "--dry-run")

    def expect(self, samples):
        crop = lambda data: numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((8, 8), Image.Resampling.BILINEAR))
        return (numpy.stack([crop(next(s[e] for e in ("jpg", "jpeg", "png") if e in s)) for s in samples]).transpose(0, 3, 1, 2),
                numpy.array([int(s["cls"]) for s in samples], "i4"))

    def odd(self, first, count):
        """Members as archives may have them; every sample is whole."""
        long = "deep/" * 30 + "folder.of/" + "x" * 120
        members = [special("folder", tarfile.DIRTYPE), ("__meta__/info.json", b"{}"), ("README", b"no dot"), special("0.jpg", tarfile.SYMTYPE)]
        for i in range(first, first + count):
            name = [f"{i:03}", f"a/b.c/{i}", f"{long}{i}", f"\u00e9\u4e16/{i}"][i % 4]
            kind = ["jpg", "PNG", "jpeg", "png"][i // 4 % 4]
            members += [(f"{name}.{kind}", png(i, "JPEG" if kind.startswith("j") else "PNG")), (f"{name}.txt", b""), (f"{name}.Cls", b" %d\n" % (i * 7)),
                        (f"{name}.seg.png", b"another file")]
        return members

    def test_as_tarfile_and_webdataset_have_them(self):
        forms = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
        paths = []
        for i in range(6):
            members = self.odd(i * 8, 8)
            if forms[i % 3] == tarfile.USTAR_FORMAT:  # has no room for such names
                members = [m for m in members if isinstance(m[0], tarfile.TarInfo) or len(m[0]) < 90]
            data = packed(members, format=forms[i % 3])
            if i == 4:
                joined = gzip.compress(data[:5000]) + gzip.compress(data[5000:])
                data = gzip.compress(data)
            self.write(f"s-{i:02}.tar", data)
            paths.append(self.path(f"s-{i:02}.tar"))
        subprocess.run(["zstd", "-q", "--rm", "-f", paths[5], "-o", paths[5] + ".zst"], check=True)
        with open(paths[5] + ".zst", "rb") as file:
            zst = file.read()
        self.write("s-05.tar", packed(self.odd(40, 8), format=tarfile.PAX_FORMAT))
        samples = [sample for path in paths for sample in grouped(path)]
        if HAS_WEBDATASET:
            import webdataset

            theirs = list(webdataset.WebDataset(paths, shardshuffle=False, empty_check=False))
            self.assertEqual([{k: v for k, v in s.items() if k not in ("__url__", "__local_path__")} for s in theirs], samples)
        self.write("s-05.tar", zst)
        self.write("s-04.tar", joined)  # a stream of tarfile's, and so WebDataset, would stop behind the first one
        image, label = self.expect(samples)
        for source in ('tar("s-{00..05}.tar") | resize((8, 8))', 'tar("s-*.tar") | resize((8, 8))',
                       'tar("s-{00,01}.tar", "s-0[2-5].tar", keys="jpg;jpeg;png, cls") | resize((8, 8))'):
            got, labels = self.predicted(source, **IMAGES)
            numpy.testing.assert_array_equal(got, image)
            numpy.testing.assert_array_equal(labels, label)
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if "index" in name), [f"s-{i:02}.tar.ftindex" for i in range(4)])

    @unittest.skipUnless(HAS_WEBDATASET, "no webdataset here (PyPI)")
    def test_what_webdataset_writes(self):
        import webdataset

        random = numpy.random.default_rng(2)
        with webdataset.ShardWriter(self.path("w-%03d.tar"), maxcount=4, verbose=0) as writer:
            for i in range(11):
                writer.write({"__key__": f"sample{i:04}", "x.npy": random.standard_normal((3, 2)).astype("f4"), "cls": i, "json": {"age": i / 4, "box": [[i, 2], [3, 4]]}})
        rows = list(webdataset.WebDataset(sorted(self.path(n) for n in os.listdir(self.folder) if n.endswith(".tar")), shardshuffle=False, empty_check=False).decode())
        got = self.predicted('tar("w-{000..002}.tar", keys="x.npy, cls, json:age, json:box")', inputs="x: f32[B, 3, 2], label: i64[B], age: f32[B], box: i32[B, 2, 2]",
                             first="x", size=6)
        for have, want in zip(got, ([r["x.npy"] for r in rows], [r["cls"] for r in rows], [r["json"]["age"] for r in rows], [r["json"]["box"] for r in rows])):
            numpy.testing.assert_array_equal(have, numpy.array(want, have.dtype))

    def test_values(self):
        table = [(3, 1.5, True), (-4, 2, False), (2**31 - 1, -1e30, True)]
        array = numpy.arange(6).reshape(2, 3)
        members = []
        for i, (whole, real, flag) in enumerate(table):
            out = io.BytesIO()
            numpy.save(out, (array + i).astype([">i2", "<i8", "u1"][i]))
            members += [(f"{i}.m.npy", out.getvalue()), (f"{i}.id", b"+%d" % whole if whole > 0 else b"%d" % whole), (f"{i}.json", json.dumps({"r": real, "f": flag}).encode()),
                        (f"{i}.v.json", json.dumps(real).encode())]
        self.write("v.tar", packed(members))
        got = self.predicted('tar("v.tar", keys="m.npy, id, json:r, json:f, v.json")', inputs="m: i32[B, 2, 3], id: i32[B], r: f32[B], f: bool[B], v: f32[B, 1]", first="m", size=6)
        want = [numpy.stack([array + i for i in range(3)]), [t[0] for t in table], [t[1] for t in table], [t[2] for t in table], [[t[1]] for t in table]]
        for have, expected in zip(got, want):
            numpy.testing.assert_array_equal(have, numpy.array(expected, have.dtype))

    def test_an_index_is_only_for_its_archive(self):
        self.write("s.tar", packed(self.odd(0, 4)))
        source = 'tar("s.tar") | resize((8, 8))'
        self.write("t.ft", self.recipe(source, **IMAGES)[0])
        support.run("ftrun", self.path("t.ft"), "--data", self.folder, "--dry-run")
        self.assertFalse(os.path.exists(self.path("s.tar.ftindex")))
        self.predicted(source, **IMAGES)
        with open(self.path("s.tar.ftindex"), "rb") as file:
            index = file.read()
        when = os.stat(self.path("s.tar")).st_mtime_ns
        for first, keep in ((4, True), (8, False)):
            other = packed(self.odd(first, 4))
            self.write("s.tar", other)
            if keep:  # of the same time, too
                os.utime(self.path("s.tar"), ns=(when, when))
            image, label = self.expect(grouped(self.path("s.tar")))
            for data in (index, index[:-1], index[:60], b"FTTARIX1", index[:100] + bytes([index[100] ^ 1]) + index[101:]):
                self.write("s.tar.ftindex", data)
                got, labels = self.predicted(source, **IMAGES)
                numpy.testing.assert_array_equal(got, image)
                numpy.testing.assert_array_equal(labels, label)
        for data in (b"of someone else",):  # what has the name stays
            self.write("s.tar.ftindex", data)
            support.run("ftrun", self.path("t.ft"), "--data", self.folder)
            with open(self.path("s.tar.ftindex"), "rb") as file:
                self.assertEqual(file.read(), data)
        os.remove(self.path("s.tar.ftindex"))
        os.symlink(self.path("victim"), self.path("s.tar.ftindex"))
        support.run("ftrun", self.path("t.ft"), "--data", self.folder)
        self.assertFalse(os.path.exists(self.path("victim")))

    def test_turned_and_damaged_images(self):
        members, files = [], []
        os.makedirs(self.path("photos", "a"))
        for i in range(12):
            out = io.BytesIO()
            exif = Image.Exif()
            exif[0x112] = i % 10
            Image.fromarray(numpy.random.default_rng(i).integers(0, 256, (6 + i, 13, 3), "u1")).save(out, "PNG" if i % 3 == 0 else "JPEG", exif=exif)
            data = {2: b"", 3: out.getvalue()[:60], 11: b"no image"}.get(i, out.getvalue())
            members += [(f"{i:02}.jpg", data), (f"{i:02}.cls", b"%d" % i)]
            files.append(data)
            self.write(f"photos/a/{i:02}.jpg", data)
        self.write("s.tar", packed(members))
        real = [{2: 4, 3: 4, 11: 0}.get(i, i) for i in range(12)]
        turned = [ImageOps.exif_transpose(Image.open(io.BytesIO(files[i]))).convert("RGB").resize((8, 8), Image.Resampling.BILINEAR) for i in real]
        for source in ('tar("s.tar", damaged=skip, exif=true)', 'folder("photos", damaged=skip, exif=true)'):
            for cache in ("", "; cache = 1 MiB"):
                image, label = self.predicted(source + " | resize((8, 8))" + cache, **IMAGES)
                numpy.testing.assert_array_equal(image, numpy.stack(turned).transpose(0, 3, 1, 2))
                if source.startswith("tar"):
                    self.assertEqual(label.tolist(), real)
                self.assertRegex(self.said, r"warning: train: 3 damaged images were left out, the one behind it taken instead: \S*/02(.jpg)? and others")
        form = dict(IMAGES, inputs="image: u8[B, 3, 8, 8], label: i32[B]")
        for kind in ("tar(\"s.tar\"", "folder(\"photos\""):
            weights = set()
            for workers in (0, 3):
                self.write("t.ft", self.recipe(kind + f", damaged=skip) | random_resized_crop(8) | hflip; workers = {workers}", **form)[0].replace("lr=0.0", "lr=0.1"))
                done = support.run("ftrun", self.path("t.ft"), "--data", self.folder, "--save", self.path("w.safetensors"))
                self.assertIn("train: 3 damaged images were left out", done.stdout + done.stderr)
                weights.add(support.read_safetensors(self.path("w.safetensors"))["fc.weight"].tobytes())
            self.assertEqual(len(weights), 1)
        self.write("t.ft", self.recipe('tar("s.tar") | resize((8, 8))', **IMAGES)[0])
        self.fails(1, ".jpg is empty", "ftrun", self.path("t.ft"), "--data", self.folder, "--no-shuffle")
        self.write("s.tar", packed([(f"{i}.{e}", b"1") for i in range(2) for e in ("jpg", "cls")]))
        self.write("t.ft", self.recipe('tar("s.tar", damaged=skip) | resize((8, 8))', **IMAGES)[0])
        self.fails(1, "neither a JPEG nor a PNG image", "ftrun", self.path("t.ft"), "--data", self.folder)

    def test_resuming_notices_other_data(self):
        text = self.recipe('tar("s.tar") | resize((8, 8)); valid = npy("x.npy", "y.npy")', **IMAGES)[0]
        text = text.replace("epochs = 1;", 'epochs = 2; checkpoint { dir = "C"; every = 1 epoch }'.replace("C", self.path("runs")) + ";")
        numpy.save(self.path("x.npy"), numpy.zeros((2, 3, 8, 8), "u1"))
        numpy.save(self.path("y.npy"), numpy.zeros(2, "i4"))
        self.write("t.ft", text)
        said = "the training data is not that of"
        for name, change, form in (("s.tar", lambda: packed(self.odd(8, 4)), 'tar("s.tar") | resize((8, 8))'),
                                   ("x.npy", lambda: open(self.path("x.npy"), "rb").read()[:-1] + b"7", 'npy("x.npy", "y.npy")')):
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            self.write("s.tar", packed(self.odd(0, 4)))
            self.write("t.ft", text.replace('tar("s.tar") | resize((8, 8))', form))
            run = lambda *more: support.run("ftrun", self.path("t.ft"), "--allow-paths", "--data", self.folder, *more)
            run("--epochs", "1")
            done = run("--resume", self.path("runs"))
            self.assertNotIn(said, done.stdout + done.stderr)
            self.write(name, change())
            done = run("--resume", self.path("runs"), "--epochs", "3")
            self.assertIn(said, done.stdout + done.stderr)

    def test_refused(self):
        good = [("0.jpg", png(0, "JPEG")), ("0.cls", b"1"), ("1.jpg", png(1, "JPEG")), ("1.cls", b"2")]
        data = packed(good)
        source = 'tar("s.tar") | resize((8, 8))'
        artifact = self.compile(self.recipe(source, **IMAGES)[0])
        end = len(data) // 512 * 512
        while not any(data[end - 512:end]):
            end -= 512
        for content, needle in (
            (b"", "is empty"), (b"no archive" * 100, "is no tar archive"), (b"x", "is no tar archive"),
            (data[:end], "is truncated: the blocks of zeros"), (data[:600], "is truncated: member 0.jpg has"),
            (data[:end - 100], "is truncated: member 1.cls has 1 bytes"),
            (data[:100] + b"9" + data[101:], "is no tar archive"), (data[:end] + b"x" * 512 + data[end:], f"at byte {end} stands no member"),
            (data + data, "goes on behind its end"), (packed([("README", b"x")]), "holds no sample"),
            (packed(good[:1] + good), "sample 0 has two files .jpg"), (packed(good[:3]), "sample 1 has no .cls, only .jpg: keys="),
            (packed(good[::2] + good[1::2]), "sample 0 has no .cls, only .jpg"), (gzip.compress(data)[:-20], "is truncated: the gzip data ends too early"),
            (gzip.compress(data)[:-8] + bytes(8), "is damaged: the gzip data is not valid"), (gzip.compress(data) + b"rest", "is damaged: the gzip data"),
            (packed([special("x", tarfile.GNUTYPE_SPARSE)] + good), "holds the sparse file x"),
            (packed(good, format=tarfile.PAX_FORMAT, pax_headers={"path": "x"}), "gives all members one name"),
        ):
            self.write("s.tar", content)
            self.fails(1, needle, "ftrun", artifact, "--data", self.folder, "--dry-run")
            self.assertEqual([name for name in os.listdir(self.folder) if "index" in name], [])
        self.refused('tar("s-{0..3}.tar") | resize((8, 8))', "s-0.tar not found")
        for keys, needle in (("jpg;gif, cls", "input image: keys= has 'gif': it is none of"), ("jpg", "keys= is for 1 input, but the model has 2"),
                             ("jpg, png", "images are for the first input only"), ("jpg;npy, cls", "images or numbers, not both"),
                             ("jpg, cls:x", "behind a colon stands the name"), ("jpg, ", "no ending of a file's name")):
            self.refused(f'tar("s.tar", keys="{keys}") | resize((8, 8))', needle)
        self.refused('tar("s.tar", keys="npy, cls") | resize((8, 8))', "transforms are for images")

    def test_refused_where_it_is_read(self):
        source, numbers = 'tar("s.tar", keys="json, cls", index=false)', dict(inputs="x: f32[B, 2], label: i32[B]", first="x", size=2)
        artifact = self.compile(self.recipe(source, **numbers)[0])
        for x, label, needle in ((b"[1, 2]", b"one", "0.cls holds 'one', which is no whole number"), (b"[1, 2]", b"", "0.cls holds '', which"),
                                 (b"[1, 2]", b"3000000000", "does not fit i32"), (b"[1, 2]", b"9" * 30, "no whole number"), (b"[1]", b"1", "of the shape of a sample of input x"),
                                 (b"[1, \"a\"]", b"1", "something else than numbers"), (b"[1, [2]]", b"1", "of the shape"), (b"[1, 2", b"1", "is no JSON: line 1"),
                                 (b"3", b"1", "of the shape"), (b"[" * 5000, b"1", "is no JSON")):
            self.write("s.tar", packed([(f"{i}.{e}", v) for i in range(2) for e, v in (("json", x), ("cls", label))]))
            self.fails(1, needle, "ftrun", artifact, "--data", self.folder)
        self.write("s.tar", packed([(f"{i}.{e}", v) for i in range(2) for e, v in (("jpg", b""), ("cls", b"1"))]))
        self.write("t.ft", self.recipe('tar("s.tar") | resize((8, 8))', **IMAGES)[0])
        self.fails(1, ".jpg is empty", "ftrun", self.path("t.ft"), "--data", self.folder)


if __name__ == "__main__":
    support.main()
