"""ftc --lsp with a scripted client: messages as one types, what hover, definition, completion and renaming answer, in files that
have errors too, and what an editor should not send."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

PARTS = """// twice as wide
block Wide(width: int)(x: [B, D]) {
  return Linear(2 * width, name="fc")(x)
}
"""
MODEL = """import "parts.ft"
hyper hidden: int = 16    // units of the hidden layer
preset small { hidden = 8 }
// what is trained: größer 𝄞
model M(x: f32[B, 1, 2, 4], y: i32[B]) {
  fc1 = Linear(hidden)
  h = relu(fc1(flatten(x, from=1)))
  repeat i in 0..2 as h { h = relu(Linear(hidden, name="in")(h)) }
  h = Wide(4)(h)
  logits = Linear(4, name="head")(h)
  loss = mean(cross_entropy(logits, y))
  metric good = accuracy(logits, y)
}
data D { train = npy("x.npy", "y.npy") | normalize(mean=0) }
train {
  model = M; data = D; batch = 16
  optimizer = adamw(lr=1e-3)
  schedule = cosine(warmup=10 steps)
  log { every = 10 steps }
}
"""


class Client:
    def __init__(self, **capabilities):
        command = [os.path.join(support.BUILD, "bin", "ftc"), "--lsp"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.last, self.kept, self.capabilities = 0, [], capabilities

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def read(self):
        length = None
        while (line := self.process.stdout.readline()) != b"\r\n":
            if not line:
                raise EOFError(self.process.stderr.read().decode())
            name, value = line.split(b": ")
            length = int(value) if name == b"Content-Length" else length
        message = json.loads(self.process.stdout.read(length))
        assert message["jsonrpc"] == "2.0", message
        return message

    def until(self, holds):
        """The first message for which it holds; others are kept."""
        for message in self.kept:
            if holds(message):
                self.kept.remove(message)
                return message
        while not holds(message := self.read()):
            self.kept.append(message)
        return message

    def whole(self, method, **params):
        self.last += 1
        number = self.last
        self.send(id=number, method=method, params=params)
        return self.until(lambda message: message.get("id") == number)

    def ask(self, method, **params):
        answer = self.whole(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def tell(self, method, **params):
        self.send(method=method, params=params)

    def start(self):
        return self.ask("initialize", processId=None, rootUri=None, capabilities=self.capabilities)

    def stop(self):
        self.ask("shutdown")
        self.tell("exit")
        self.process.stdin.close()
        rest, told = self.process.stdout.read(), self.process.stderr.read()
        code = self.process.wait(30)
        self.process.stdout.close()
        self.process.stderr.close()
        return code, rest, told


class Open:
    """An open file: its text, as the client has it."""

    def __init__(self, client, path, text, utf8=False):
        self.client, self.uri, self.text, self.version, self.utf8 = client, "file://" + path, text, 1, utf8
        client.tell("textDocument/didOpen", textDocument={"uri": self.uri, "languageId": "ft", "version": 1, "text": text})

    def units(self, text):
        return len(text.encode()) if self.utf8 else len(text.encode("utf-16-le")) // 2

    def position(self, offset):
        line = self.text.rfind("\n", 0, offset) + 1
        return {"line": self.text.count("\n", 0, offset), "character": self.units(self.text[line:offset])}

    def place(self, before, behind=""):
        offset = self.text.index(before + behind) + len(before)
        return {"textDocument": {"uri": self.uri}, "position": self.position(offset)}

    def edit(self, *pairs):
        """Replaces texts one after another, as an editor does: each in what the last one left."""
        changes = []
        for old, new in pairs:
            at = self.text.index(old)
            span = {"start": self.position(at), "end": self.position(at + len(old))}
            changes.append({"range": span, "text": new})
            self.text = self.text[:at] + new + self.text[at + len(old):]
        self.changed(changes)

    def replace(self, text):
        self.text = text
        self.changed([{"text": text}])

    def changed(self, changes):
        self.version += 1
        self.client.tell("textDocument/didChange", textDocument={"uri": self.uri, "version": self.version}, contentChanges=changes)

    def messages(self):
        """What the server says of this version."""
        return self.client.until(lambda message: message.get("method") == "textDocument/publishDiagnostics"
                                 and message["params"]["uri"] == self.uri and message["params"]["version"] == self.version)["params"]["diagnostics"]

    def marked(self, span):
        lines = self.text.split("\n")
        assert span["start"]["line"] == span["end"]["line"], span
        line = lines[span["start"]["line"]].encode("utf-8" if self.utf8 else "utf-16-le")
        size = 1 if self.utf8 else 2
        return line[span["start"]["character"] * size:span["end"]["character"] * size].decode("utf-8" if self.utf8 else "utf-16-le")

    def hover(self, before, behind=""):
        answer = self.client.ask("textDocument/hover", **self.place(before, behind))
        return answer and answer["contents"]["value"]

    def labels(self, before, behind=""):
        return [item["label"] for item in self.client.ask("textDocument/completion", **self.place(before, behind))["items"]]


class Server(support.Case):
    def setUp(self):
        super().setUp()
        with open(self.path("parts.ft"), "w") as file:
            file.write(PARTS)

    def client(self, **capabilities):
        client = Client(**capabilities)
        self.addCleanup(client.process.kill)
        return client

    def begin(self, text=MODEL, utf8=False, **capabilities):
        client = self.client(general={"positionEncodings": ["utf-8"] if utf8 else ["utf-16"]}, **capabilities)
        self.assertEqual(client.start()["capabilities"]["positionEncoding"], "utf-8" if utf8 else "utf-16")
        client.tell("initialized")
        return client, Open(client, self.path("model.ft"), text, utf8)

    def end(self, client):
        code, rest, told = client.stop()
        self.assertEqual((code, rest, told), (0, b"", b""))

    def test_messages_as_one_types(self):
        for utf8 in (False, True):
            client, file = self.begin(utf8=utf8, textDocument={"publishDiagnostics": {"relatedInformation": True}})
            self.assertEqual(file.messages(), [])
            file.edit(("// what is trained: größer 𝄞\n", "/* größer 𝄞 */ "), ("relu(fc1(", "rely(fc1("))
            (one,) = file.messages()
            self.assertEqual((one["severity"], one["source"], one["message"]), (1, "ftc", "unknown name 'rely'; did you mean 'relu'?"))
            self.assertEqual(file.marked(one["range"]), "rely")
            file.edit(("rely(fc1(", "relu(fc1"))
            self.assertIn("expected", file.messages()[0]["message"])
            file.edit(("relu(fc1", "relu(fc1("), ("𝄞", "𝄞𝄞"), ("𝄞𝄞 */ model", "*/ /* 𝄞 */ model"))
            self.assertEqual(file.messages(), [])
            file.edit(("  metric good", "  metric good = loss\n  metric good"))  # a note says where the first one is
            self.assertEqual([note["location"]["uri"] for note in file.messages()[0]["relatedInformation"]], [file.uri])
            file.replace(MODEL.replace("hidden)\n", "hidden, 3, 4, 5, 6, 7)\n"))
            (one,) = file.messages()
            self.assertIn("too many arguments", one["message"])
            self.end(client)

    def test_agrees_with_ftc(self):
        """Each message that ftc prints of a file, at its line."""
        client, file = self.begin()
        for old, new in (("16    //", '"a"    //'), ("train {\n", "train {\n  bach = 3\n"), ("cosine", "cosin"), ("metric good", "metric epoch"), ("{ hidden", "{ hiden")):
            text = MODEL.replace(old, new)
            file.replace(text)
            with open(self.path("model.ft"), "w") as out:
                out.write(text)
            printed = support.run("ftc", "model.ft", "-o", "m.so", check=False, cwd=self.folder, env={"NO_COLOR": "1"}).stderr
            told = [f"model.ft:{one['range']['start']['line'] + 1}:{one['range']['start']['character'] + 1}: error: {one['message']}" for one in file.messages()]
            self.assertTrue(told)
            for one in told:
                self.assertIn(one.split("\n")[0], printed)
        self.end(client)

    def test_hover(self):
        client, file = self.begin()
        file.messages()
        for before, behind, wanted in (
                ("hyper ", "hidden", "hidden = 16\n```\nunits of the hidden layer"), ("M(", "x", "x: f32[16,1,2,4]"), ("f32[", "B", "B = 16"),
                ("  ", "fc1 =", "144 parameters"), ("relu(", "fc1", "`fc1.weight` f32[16,8]"), ("  ", "logits =", "logits: f32[16,4]"),
                ("h = ", "relu(fc1", "relu(x)"), ("h = ", "Wide", "block Wide(width: int)(x: [B, D])\n```\ntwice as wide"), ("h = ", "Wide", "136 parameters, gives f32[16,8]"),
                ("relu(", "Linear(", "`h.0.in` and 1 more: 544 parameters"), ("mean(", "cross_entropy", "*Shapes:*"), ("", "model M", "What is trained"),
                ("model ", "M(", "here: 860 parameters"), ("data = D; ", "batch", "`32` by default"), ("adamw(", "lr=", "learning rate, before the schedule"),
                ("schedule = ", "cosine", "half a cosine"), ("| ", "normalize", "normalize(mean=0, std=1)"), ("train = ", "npy", "NumPy's arrays"), ("log { ", "every", "train.log.every")):
            self.assertIn(wanted, file.hover(before, behind) or "", f"{before}|{behind}")
        self.assertIsNone(file.hover("// what ", "is"))
        # the last text that could be read goes on to answer, wherever its lines are now
        file.edit(("// what is trained", "\n\n// what is trained"), ("h = Wide(4)(h)", "h = Wide(4)(h)\n  z = gelu(h, "))
        self.assertTrue(file.messages())
        self.assertIn("logits: f32[16,4]", file.hover("  ", "logits ="))
        self.assertIn("fc1 = Linear(out=16", file.hover("  ", "fc1 ="))
        self.assertIn("h: f32[16,", file.hover("gelu(", "h, "))
        self.assertIn("approximate", file.hover("z = ", "gelu"))
        self.end(client)

    def test_definition_references_rename(self):
        client, file = self.begin()
        file.messages()

        def goes(before, behind):
            found = client.ask("textDocument/definition", **file.place(before, behind))
            return found and (os.path.basename(found["uri"]), found["range"]["start"]["line"], found["range"]["start"]["character"])

        self.assertEqual(goes("Linear(", "hidden"), ("model.ft", 1, 6))
        self.assertEqual(goes("{ ", "hidden = 8"), ("model.ft", 1, 6))
        self.assertEqual(goes("relu(", "fc1"), ("model.ft", 5, 2))
        self.assertEqual(goes("(logits, ", "y))"), ("model.ft", 4, 28))
        self.assertEqual(goes("h = ", "Wide"), ("parts.ft", 1, 6))
        self.assertEqual(goes("import ", '"parts.ft"'), ("parts.ft", 0, 0))
        self.assertEqual(goes("model = ", "M"), ("model.ft", 4, 6))
        self.assertEqual(goes("fc1 = ", "Linear"), ("blocks.ft" if "Linear" in open(os.path.join(support.ROOT, "frontend/std/blocks.ft")).read() else "nn.ft",) + goes("fc1 = ", "Linear")[1:])
        self.assertIsNone(goes("= ", "mean"))
        places = client.ask("textDocument/references", context={"includeDeclaration": True}, **file.place("hyper ", "hidden"))
        self.assertEqual([one["range"]["start"]["line"] for one in places], [1, 2, 5, 7])
        self.assertEqual(len(client.ask("textDocument/references", context={"includeDeclaration": False}, **file.place("hyper ", "hidden"))), 3)
        edits = client.ask("textDocument/rename", newName="units", **file.place("hyper ", "hidden"))["changes"][file.uri]
        for edit in sorted(edits, key=lambda edit: -edit["range"]["start"]["line"]):
            lines = file.text.split("\n")
            line, begin, stop = edit["range"]["start"]["line"], edit["range"]["start"]["character"], edit["range"]["end"]["character"]
            lines[line] = lines[line][:begin] + edit["newText"] + lines[line][stop:]
            file.text = "\n".join(lines)
        file.replace(file.text)
        self.assertEqual(file.messages(), [])
        # in a tune block a word of the study itself and the values are no hypers; `hyper.seed` and what stands behind `if` are
        text = file.text
        file.replace('hyper seed: int = 1 // of it\nhyper gp: str = "a"\n' + text + "\ntune {\n  hyper.seed = int(1, 3)\n  seed = 5; sampler = gp\n  gp = [a, seed]; units = int(1, 4) if gp = seed\n}\n")
        lines = file.text.split("\n").index("tune {") + 1
        for name, wanted in (("seed", [(0, 6), (lines, 8)]), ("gp", [(1, 6), (lines + 2, 2), (lines + 2, 39)])):
            edits = client.ask("textDocument/rename", newName="other", **file.place("hyper ", name + ":"))["changes"][file.uri]
            self.assertEqual([(edit["range"]["start"]["line"], edit["range"]["start"]["character"]) for edit in edits], wanted)
        file.replace(text)
        for name, before, behind in (("logits", "  ", "fc1 ="), ("2x", "  ", "fc1 ="), ("if", "  ", "fc1 ="), ("z", "M(", "x:"), ("z", "= ", "Wide"), ("fc1", "hyper ", "units"), ("z", "// ", "what")):
            self.assertIn("error", client.whole("textDocument/rename", newName=name, **file.place(before, behind)), name)
        self.assertEqual(len(client.ask("textDocument/rename", newName="layer", **file.place("  ", "fc1 ="))["changes"][file.uri]), 2)
        symbols = client.ask("textDocument/documentSymbol", textDocument={"uri": file.uri})
        self.assertEqual([one["name"] for one in symbols], ['"parts.ft"', "units", "small", "M", "D", "train"])
        self.assertEqual([one["name"] for one in symbols[3]["children"]], ["good"])
        self.end(client)

    def test_completion(self):
        client, file = self.begin()
        file.messages()
        for old, before, wanted, unwanted in (
                ("", "", {"model", "hyper", "distributed"}, {"relu"}), ("  fc1 = Linear", "  fc1 = ", {"x", "hidden", "Wide", "Conv2d", "relu", "zeros", "training"}, {"logits", "adamw", "batch"}),
                ("  h = relu(fc1(", "  ", {"param", "repeat", "metric", "fc1"}, {"return"}), ("Linear(hidden)", "Linear(", {"out=", "bias=", "name="}, set()),
                ("Wide(4)", "Wide(", {"width="}, {"B="}), ("{ hidden = 8", "{ ", {"hidden"}, {"relu"}), ("batch = 16", "", {"batch", "optimizer", "epochs", "freeze", "log"}, {"warmup", "relu", "total_steps"}),
                ("adamw(lr=1e-3)", "", {"adamw", "lion", "sgd"}, {"cosine"}), ("(lr=1e-3", "(", {"lr=", "betas=", "weight_decay="}, {"momentum="}), ("cosine(", "", {"plateau", "wsd"}, {"adamw"}),
                ("warmup=10 steps", "", {"warmup=", "final="}, {"gamma="}), ("every = 10", "", {"every", "jsonl"}, {"batch"}), ("npy(", "", {"npy", "folder", "tar"}, {"hflip"}),
                ("normalize(", "", {"normalize", "hflip", "mixup"}, {"npy"}), ("mean=0", "", {"mean=", "std="}, set()), ("M; data", "", {"M"}, {"D"}), ("D; batch", "", {"D"}, {"M"})):
            labels = set(file.labels(file.text[:file.text.index(old)] + before, ""))
            self.assertFalse(wanted - labels, f"{old}|{before}: {wanted - labels}")
            self.assertFalse(unwanted & labels, f"{old}|{before}: {unwanted & labels}")
        for entry, wanted, unwanted in (("", {"goal", "sampler", "hidden", "train.lr"}, {"relu"}), ("sampler = ", {"gp", "cma"}, {"log"}),
                                        ("hidden = ", {"log", "int"}, {"gp"}), ("goal = max(", {"valid"}, {"log"}), ("hidden = [1, 2] ", {"if"}, {"gp"})):
            text = file.text
            file.replace(text + "\ntune {\n  " + entry)
            labels = set(file.labels(file.text, ""))
            file.replace(text)
            self.assertFalse((wanted - labels) | (unwanted & labels), f"tune: {entry}")
        file.edit(("  log {", "  checkpoint { best = max(valid."))
        self.assertEqual(set(file.labels("max(valid.")), {"loss", "good"})
        file.edit(("h = relu(fc1(flatten(x, from=1)))", "h = x."))
        self.assertEqual(set(file.labels("h = x.")), {"shape", "rank", "size", "dtype"})
        self.assertEqual(file.labels("// what is"), [])
        self.end(client)

    def test_imports_as_they_are_typed(self):
        client, file = self.begin(textDocument={"publishDiagnostics": {"relatedInformation": True}})
        self.assertEqual(file.messages(), [])
        parts = Open(client, self.path("parts.ft"), PARTS)
        self.assertEqual(parts.messages(), [])  # no model, and none is wanted
        self.assertEqual(file.messages(), [])
        parts.edit(('2 * width, name="fc"', "2 * widht"))
        parts.messages()
        (one,) = file.messages()
        self.assertIn("unknown name 'widht'", one["message"])
        self.assertEqual((one["range"]["start"]["line"], one["relatedInformation"][0]["location"]["uri"]), (0, parts.uri))
        client.tell("textDocument/didClose", textDocument={"uri": parts.uri})
        self.assertEqual(file.messages(), [])
        self.end(client)

    def test_rules_of_the_protocol(self):
        client = self.client()
        self.assertEqual(client.whole("textDocument/hover")["error"]["code"], -32002)
        client.start()
        self.assertEqual(client.whole("textDocument/formatting", textDocument={"uri": "file:///x"})["error"]["code"], -32601)
        self.assertEqual(client.whole("$/what")["error"]["code"], -32601)
        self.assertEqual(client.whole("initialize", capabilities={})["error"]["code"], -32600)
        self.assertEqual(client.whole("textDocument/hover", textDocument={"uri": "file:///x"})["error"]["code"], -32602)
        client.tell("$/setTrace", value="off")
        file = Open(client, "/untitled", MODEL)
        one = b'{"jsonrpc":"2.0","id":"a","method":"textDocument/hover","params":{"textDocument":{"uri":"%s"},"position":{"line":5,"character":3}}}' % file.uri.encode()
        stop = b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"a"}}'
        client.raw(b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in (one, stop)))
        self.assertIn(client.until(lambda message: message.get("id") == "a").get("error", {}).get("code", -32800), (-32800,))
        self.assertEqual(client.ask("shutdown"), None)
        self.assertEqual(client.whole("textDocument/hover")["error"]["code"], -32600)
        client.tell("exit")
        self.assertEqual(client.process.wait(30), 0)
        client = self.client()
        client.start()
        client.process.stdin.close()
        self.assertEqual(client.process.wait(30), 1)  # no shutdown

    def test_hostile(self):
        client, file = self.begin()
        file.messages()
        body = b'{"jsonrpc":"2.0","method":"$/x"}'
        for bad in (b"\r\n\r\n", b"Content-Length: x\r\n\r\n", b"Content-Length: -5\r\n\r\n", b"Content-Length: 99999999999999999999999\r\n\r\n", b"A: b\r\n" * 3000 + b"\r\n",
                    b"\0" * 70000, b"Content-Length: " * 9000, b"Content-Length: 3\r\n\r\n{]}", b"Content-Length: 2\r\n\r\n[]", b"Content-Length: 4\r\n\r\nnull",
                    b"Content-Length: 3\r\n\r\n\xff\xfe\xfd", b"Content-Length: 9000000\r\n\r\n" + b"{" * 9000000, b"Content-Length: 100000\r\n\r\n" + b"[" * 100000,
                    b"Content-Length: 4000000\r\n\r\n" + b"[" + b"{}," * 1333332 + b"{}]", b"content-length:%d\n\n%s" % (len(body), body)):
            client.raw(bad)
            self.assertIsNotNone(file.hover("  ", "fc1 ="), bad[:30])
        for params in (None, [], 3, {}, {"textDocument": 1}, {"textDocument": {"uri": 5}}, {"textDocument": {"uri": file.uri}, "position": []},
                       {"textDocument": {"uri": file.uri}, "position": {"line": -1, "character": 1 << 60}}, {"textDocument": {"uri": file.uri}, "position": {"line": 1 << 62, "character": "x"}}):
            for method in ("hover", "completion", "definition", "references", "rename", "documentSymbol", "documentHighlight", "didOpen", "didChange", "didClose" if params != {"textDocument": {"uri": file.uri}} else "x"):
                if method.startswith("didClose") and isinstance(params, dict) and params.get("textDocument") == {"uri": file.uri}:
                    continue
                client.last += 1
                client.send(id=client.last, method=f"textDocument/{method}", params=params)
                client.until(lambda message: message.get("id") == client.last)
        for changes in (5, [5], [{}], [{"text": 5}], [{"range": {}, "text": ""}], [{"range": {"start": {"line": 9, "character": 9}, "end": {"line": 0, "character": 0}}, "text": "x"}] * 3000):
            file.changed(changes)
            client.ask("textDocument/documentSymbol", textDocument={"uri": file.uri})
        for text in ("\0", "model M(\0", "{" * 100000, "(" * 100000, "hyper a = 1\n" * 30000, "block " * 50000, "x" * 600000, '"' * 1000, "/*" * 1000, "\ud7ff" * 1000, "\r" * 1000,
                     "model M(x: f32[B, 4]) {\n" + "  repeat i in 0..10000 { repeat k in 0..10000 { x = x + 1 } }\n" * 3 + "  loss = mean(x)\n}\n"):
            file.replace(text)
            client.ask("textDocument/documentSymbol", textDocument={"uri": file.uri})
            file.messages()
            file.hover(text[:5])
            file.labels(text[:5])
        file.replace(MODEL)
        self.assertEqual(file.messages(), [])
        self.assertIsNotNone(file.hover("  ", "fc1 ="))
        for name in ("untitled:Untitled-1", "file:///no/such/place/%zz%00%41.ft", "http://x/y", ""):
            client.tell("textDocument/didOpen", textDocument={"uri": name, "version": 1, "text": 'import "../../etc/passwd"\nimport "/etc/passwd"\n'})
            said = client.until(lambda message, name=name: message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == name)
            self.assertTrue(said["params"]["diagnostics"])
        self.end(client)

    def test_examples(self):
        """Every example is looked at without a message; many texts in one process take no more memory than a few."""
        client = self.client()
        client.start()
        for _ in range(2):
            for name in sorted(os.listdir(support.EXAMPLES)):
                if name.endswith(".ft"):
                    with open(os.path.join(support.EXAMPLES, name)) as text:
                        file = Open(client, os.path.join(support.EXAMPLES, name), text.read())
                    self.assertEqual(file.messages(), [], name)
                    file.hover(file.text[:file.text.index("model ")], "model ")
                    client.tell("textDocument/didClose", textDocument={"uri": file.uri})
        with open(f"/proc/{client.process.pid}/statm") as pages:
            before = int(pages.read().split()[1])
        file = Open(client, self.path("model.ft"), MODEL)
        for i in range(60):
            file.replace(MODEL.replace("hidden: int = 16", f"hidden: int = {i + 4}"))
            file.messages()
        with open(f"/proc/{client.process.pid}/statm") as pages:
            self.assertLess(int(pages.read().split()[1]) - before, 2000 if not support.IS_SANITIZED else 200000)  # pages of 4 KiB
        self.end(client)


if __name__ == "__main__":
    support.main()
