"""The tokenizer against GPT-2's algorithm written here as straightforwardly as it can be: pieces by the
categories of unicodedata, merges by their ranks, one pass over a piece at a time. The vocabulary is
trained here, by the same definition, on a text that is on every machine."""
import collections
import json
import os
import random
import re
import sys
import time
import unicodedata

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

LICENSE = "/usr/share/common-licenses/GPL-3"
WHITE = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}


def kind(character):
    if character in WHITE:
        return "space"
    return {"L": "letter", "N": "number"}.get(unicodedata.category(character)[0], "other")


def pieces(text):
    """'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"""
    at = 0
    while at < len(text):
        contraction = re.compile("'(?:[sdmt]|ll|ve|re)").match(text, at)
        start = at + (text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "space")
        end = start
        if contraction:
            end = contraction.end()
        elif kind(text[start]) != "space":
            while end < len(text) and kind(text[end]) == kind(text[start]):
                end += 1
        else:
            while end < len(text) and kind(text[end]) == "space":
                end += 1
            if end < len(text) and end - at > 1:  # the last one belongs to what follows
                end -= 1
        yield text[at:end]
        at = end


def letters_of_bytes():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(plain))
    return letters


LETTERS = letters_of_bytes()


def merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def train(text, count):
    words = collections.Counter("".join(LETTERS[b] for b in piece.encode()) for piece in pieces(text))
    words = [(list(word), n) for word, n in words.items()]
    merges = []
    for _ in range(count):
        pairs = collections.Counter()
        for symbols, n in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = [(merge(symbols, best) if best[0] in symbols else symbols, n) for symbols, n in words]
    return merges


class Reference:
    def __init__(self, vocabulary, merges):
        self.vocabulary, self.ranks = vocabulary, {pair: i for i, pair in enumerate(merges)}

    def piece(self, data):
        symbols = [LETTERS[b] for b in data]
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda pair: self.ranks.get(pair, 1 << 30))
            if best not in self.ranks:
                break
            symbols = merge(symbols, best)
        return [self.vocabulary[symbol] for symbol in symbols]

    def encode(self, text):
        out = []
        for i, part in enumerate(text.split("<|endoftext|>")):
            out += [self.vocabulary["<|endoftext|>"]] * (i > 0)
            for piece in pieces(part):
                out += self.piece(piece.encode())
        return out


TRICKY = [
    "", " ", "  ", "a", "I'm you're they'll we've he'd it's can't 'S 'LL 'x ''s", "don't  'twas", "tabs\t\tand\n\nlines \n  x   ",
    "  two  spaces   three    four", "trailing   ", "1234567890 12 ½ ² ٣٤ Ⅷ 一二", "naïve café Straße ÅÄÖ ñ e\u0301 ﬁ", "Привет, мир! Γειά σου Κόσμε",
    "日本語のテキスト、漢字とかな。中文测试", "👍🏽👨‍👩‍👧 🇩🇪 ❤️", "\u00a0nbsp\u00a0\u00a0x\u2003em\u3000wide\u200bzero\u180emongolian\ufefffeff", "\x1c\x1d\x85x\x0b\x0cy\r\nz\x00\x01",
    "x=y+z;if(a[0]!=b){return--c;}//\\\\", "___ ---- ==== \"quotes\" (brackets)", "<|endoftext|>a<|endoftext|><|endoftext|> b <|endoftext", "' 's ' s'", "हिन्दी ไทย עברית العربية",
    "\U0001d7d8\U0001d400 \U00020000\U0010ffff", "a" * 3000, " " * 2000 + "x", "ab" * 1000, "!?" * 900, "\n" * 1000,
]


class Tokenizer(support.Case):
    @classmethod
    def setUpClass(cls):
        cls.text = open(LICENSE).read()
        cls.merges = train(cls.text[:12000] + " Привет мир 日本語 日本語 \n\n\n    " * 20, 400)
        words = sorted(LETTERS.values()) + [a + b for a, b in cls.merges] + ["<|endoftext|>"]
        cls.vocabulary = {word: i for i, word in enumerate(words)}
        cls.reference = Reference(cls.vocabulary, cls.merges)

    def write(self, vocabulary=None, lines=None):
        with open(self.path("vocab.json"), "w") as file:
            json.dump(vocabulary or self.vocabulary, file)
        with open(self.path("merges.txt"), "w") as file:
            file.write("#version: 0.2\n" + "".join(line + "\n" for line in lines or [f"{a} {b}" for a, b in self.merges]))
        return self.folder

    def write_whole(self, path, pairs):
        """As tokenizer.json; merges as strings or as pairs, as older and newer libraries write them."""
        plain = {word: i for word, i in self.vocabulary.items() if word != "<|endoftext|>"}
        whole = {"version": "1.0", "added_tokens": [{"id": self.vocabulary["<|endoftext|>"], "content": "<|endoftext|>", "special": True}], "normalizer": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": plain, "merges": [list(m) if pairs else " ".join(m) for m in self.merges]}}
        with open(path, "w") as file:
            json.dump(whole, file)
        return path

    def tokens(self, tokenizer, data):
        with open(self.path("text"), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return [int(word) for word in support.run("ftrun", "tokenize", self.path("text"), "--tokenizer", tokenizer).stdout.split()]

    def test_the_reference_cuts_as_the_expression_says(self):
        self.assertEqual(list(pieces("I'll  see 3 of\tthem!! \n x")), ["I", "'ll", " ", " see", " 3", " of", "\t", "them", "!!", " \n", " x"])
        self.assertLess(len(self.reference.encode(self.text)), 0.6 * len(self.text))

    def test_tricky_texts(self):
        folder = self.write()
        for text in TRICKY + ["\n".join(TRICKY)]:
            self.assertEqual(self.tokens(folder, text), self.reference.encode(text), ascii(text[:60]))

    def test_random_texts(self):
        folder, draw = self.write(), random.Random(3)
        alphabet = "aabeinost TH'\n\t  sdmtlvre123.,!é日\u00a0😀\u2003" + "".join(chr(draw.randrange(0x20, 0x2FFF)) for _ in range(200))
        text = "".join(draw.choice(alphabet if draw.random() < 0.5 else "the license of ") for _ in range(30000))
        self.assertEqual(self.tokens(folder, text), self.reference.encode(text))
        self.assertEqual(self.tokens(folder, self.text), self.reference.encode(self.text))
        every = "".join(chr(c) for c in range(0x3000) if not 0xD800 <= c < 0xE000)  # each category, as it is in both tables
        self.assertEqual(self.tokens(folder, " ".join(every)), self.reference.encode(" ".join(every)))

    def test_all_forms_of_the_files(self):
        wanted = self.reference.encode(self.text[:3000])
        self.assertEqual(self.tokens(self.write(), self.text[:3000]), wanted)
        self.assertEqual(self.tokens(self.path("vocab.json"), self.text[:3000]), wanted)
        os.rename(self.path("vocab.json"), self.path("encoder.json"))
        os.rename(self.path("merges.txt"), self.path("vocab.bpe"))
        self.assertEqual(self.tokens(self.folder, self.text[:3000]), wanted)
        for pairs in (False, True):
            path = self.write_whole(self.path(f"whole{pairs}.json"), pairs)
            self.assertEqual(self.tokens(path, self.text[:3000] + "<|endoftext|>"), wanted + [self.vocabulary["<|endoftext|>"]])

    def test_bytes_that_are_no_text_keep_their_tokens(self):
        folder = self.write()
        data = b"good \xff\xfe bad \xc3 \xe2\x82 end\xf0\x9f\x98"
        names = {i: word for word, i in self.vocabulary.items()}
        back = {letter: byte for byte, letter in LETTERS.items()}
        tokens = self.tokens(folder, data)
        self.assertEqual(bytes(back[c] for t in tokens for c in names[t]), data)

    def test_order_of_merges_that_make_what_others_made(self):
        # two ways to abc; the pair that the second makes has a lower rank than the second itself
        letters = sorted(LETTERS.values())
        extra = ["ab", "abc", "bc", "abca"]
        vocabulary = {word: i for i, word in enumerate(letters + extra)}
        merges = [("a", "b"), ("ab", "c"), ("abc", "a"), ("b", "c"), ("a", "bc")]
        for order in (merges, merges[3:] + merges[:3], [merges[3], merges[2], merges[4], merges[0], merges[1]]):
            folder = self.write(vocabulary, [" ".join(pair) for pair in order])
            reference = Reference({**vocabulary, "<|endoftext|>": -1}, order)
            for text in ("abcabcabcab", "abcbcaabcabcbcabca", "aabbcc" * 9):
                self.assertEqual(self.tokens(folder, text), reference.encode(text), (order, text))

    def test_long_pieces_take_no_longer(self):
        folder = self.write()
        start = time.monotonic()
        for data in ("ab" * 500_000, " " * 1_000_000, "é" * 500_000, "x!" * 200_000, "<|endoftex" * 100_000):
            tokens = self.tokens(folder, data)
            self.assertGreater(len(tokens), 0)
        self.assertLess(time.monotonic() - start, 20)  # the square of a million would be hours

    def test_a_file_for_training(self):
        folder = self.write()
        end = self.vocabulary["<|endoftext|>"]
        for name, text in (("one", self.text[:5000]), ("two", "short")):
            with open(self.path(name), "w") as file:
                file.write(text)
        wanted = [end, *self.reference.encode(self.text[:5000]), end, *self.reference.encode("short")]
        done = support.run("ftrun", "tokenize", self.path("one"), self.path("two"), "--tokenizer", folder, "--output", self.path("x.bin"))
        self.assertIn(f"{len(wanted)} tokens (u16) written to", done.stdout)
        head = numpy.fromfile(self.path("x.bin"), numpy.int32, 256)
        self.assertEqual(head[:4].tolist(), [20240520, 1, len(wanted), 0])
        self.assertEqual(numpy.fromfile(self.path("x.bin"), numpy.uint16, offset=1024).tolist(), wanted)
        support.run("ftrun", "tokenize", self.path("one"), self.path("two"), "--tokenizer", folder, "--output", self.path("y.bin"), "--no-header")
        self.assertEqual(numpy.fromfile(self.path("y.bin"), numpy.uint16).tolist(), wanted)
        self.assertEqual(sorted(os.listdir(self.folder)), ["merges.txt", "one", "two", "vocab.json", "x.bin", "y.bin"])

    def test_a_large_vocabulary_is_u32(self):
        vocabulary = dict(self.vocabulary, zz=1 << 17)
        folder = self.write(vocabulary)
        with open(self.path("one"), "w") as file:
            file.write("hello")
        support.run("ftrun", "tokenize", self.path("one"), "--tokenizer", folder, "--output", self.path("x.bin"))
        self.assertEqual(numpy.fromfile(self.path("x.bin"), numpy.int32, 3).tolist(), [20240801, 7, 1 + len(self.reference.encode("hello"))])
        self.assertEqual(numpy.fromfile(self.path("x.bin"), numpy.uint32, offset=1024).tolist(), [self.vocabulary["<|endoftext|>"], *self.reference.encode("hello")])

    def test_bad_files(self):
        with open(self.path("text"), "w") as file:
            file.write("x")

        def fails(needle, path=self.folder):
            self.fails(1, needle, "ftrun", "tokenize", self.path("text"), "--tokenizer", path)

        fails("there is neither vocab.json with merges.txt nor tokenizer.json in this folder")
        fails("No such file", self.path("nothing"))
        self.write(lines=["a b c"])
        fails('merges.txt: merge 2, "a b c", is not two tokens')
        self.write(lines=["zq qz"])
        fails('merges.txt: merge 2, "zq qz", is of tokens that the vocabulary lacks')
        self.write({"a": 0})
        fails("vocab.json: has no token for the byte 0x00: it is no byte-level vocabulary")
        self.write({**self.vocabulary, "a": -4})
        fails("the number -4 of a token is not in 0..")
        self.write({**self.vocabulary, "a": 1.5})
        fails('the token "a" has no whole number')
        self.write({**self.vocabulary, "a": self.vocabulary["b"]})
        fails("two tokens have the number")
        with open(self.path("vocab.json"), "w") as file:
            file.write('{"a": ')
        fails("vocab.json: is no JSON: line 1")
        whole = json.load(open(self.write_whole(self.path("t.json"), True)))
        for change, needle in (({"pre_tokenizer": {"type": "Metaspace"}}, "cuts texts in another way than GPT-2"), ({"normalizer": {"type": "NFC"}}, "has a normalizer"),
                               ({"model": {"type": "Unigram"}}, "is no tokenizer of byte pairs"), ({"added_tokens": [{"id": 3}]}, "added token 1 has no content")):
            with open(self.path("t.json"), "w") as file:
                json.dump({**whole, **change}, file)
            fails(needle, self.path("t.json"))
        self.fails(2, "tokenize needs --tokenizer PATH", "ftrun", "tokenize", self.path("text"))

    def test_generation_by_text(self):
        folder = self.write()
        count = len(self.vocabulary)
        source = """model M(x: i32[B, T], next: i32[B, T]) {
  param w: [%d, %d] = zeros
  logits = embed(w, x)
  loss = mean(cross_entropy(logits, next))
  output logits
}
data D { train = bytes("none") }
train { model = M; data = D; batch = 1; optimizer = sgd(lr=0.1) }
hyper T: int = 8
""" % (count, count)
        artifact = self.compile(source)
        text = "The licenses 日é👍!"
        tokens = self.reference.encode(text)
        follow = numpy.zeros((count, count), numpy.float32)
        last = dict(zip(tokens, tokens[1:]))
        self.assertEqual(len(last), len(tokens) - 1)  # no token twice: each knows what follows
        for token, after in last.items():
            follow[token, after] = 9
        follow[tokens[-1], self.vocabulary["<|endoftext|>"]] = 9
        follow[self.vocabulary["<|endoftext|>"], tokens[0]] = 9
        support.write_safetensors(self.path("w.safetensors"), {"w": follow})
        common = ["generate", artifact, "--weights", self.path("w.safetensors"), "--tokenizer", folder, "--temperature", "0"]
        for prompt in ("", "The", "The licenses 日"):
            done = support.run("ftrun", *common, "--prompt", prompt, "--tokens", "100")
            self.assertEqual(done.stdout, text + "\n")
        self.fails(1, "more than the model", "ftrun", "generate", self.compile(source.replace(str(count), "300")), *common[2:], "--prompt", "The")
        self.fails(1, "name its vocabulary with --tokenizer FOLDER", "ftrun", "generate", self.compile(source), "--weights", self.path("w.safetensors"), "--prompt", "The")


if __name__ == "__main__":
    support.main()
