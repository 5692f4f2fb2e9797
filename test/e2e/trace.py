"""`ftrun --trace FILE.pftrace`: a trace of Perfetto, read by a decoder of our own, written from the field numbers of
github.com/google/perfetto (protos/perfetto/trace), and by the schema itself, compiled, where PyPI's package can be had. Its tracks
are there, slices nest and times do not run backwards, kernels take no longer than their step, and the file has an end."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  h = relu(Linear(16, name="fc1")(x))
  logits = Linear(4, name="fc2")(h)
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); workers = 2; prefetch = 2 }
train { model = M; data = D; batch = 4; epochs = 5; optimizer = adamw(lr=0.01); eval every 1 epoch
  checkpoint { dir = "runs"; every = 1 epoch; keep = 2 } }
"""
TRACKS = {"steps", "waiting for data", "compute", "loader 1", "evaluation", "checkpoint"}


def fields(data):
    """The fields of a message: (number, value) in order; value is an integer, or bytes."""
    at, out = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                assert value < 1 << 64
                return value

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            out.append((number, varint()))
        elif wire == 2:
            length = varint()
            assert at + length <= len(data), "a message ends behind the one that it is in"
            out.append((number, data[at : at + length]))
            at += length
        else:
            raise AssertionError(f"wire type {wire}")
    return out


def one(message, number, otherwise=None):
    found = [value for field, value in message if field == number]
    assert len(found) <= 1, f"field {number} is there {len(found)} times"
    return found[0] if found else otherwise


class Decoded:
    """Slices of each track by process and name: (start, end, name, notes), and what the packets say in their order."""

    def __init__(self, data):
        self.tracks, self.slices, self.process, self.times = {}, {}, {}, []
        names, notes, kinds, open_slices = {}, {}, {}, {}
        for number, packet in fields(data):
            assert number == 1, "a Trace has packets only"
            packet = fields(packet)
            sequence, flags = one(packet, 10), one(packet, 13, 0)
            assert sequence, "a packet without a sequence"
            interned = one(packet, 12)
            if interned is not None:
                assert flags & 1, "names in a packet that does not clear the state"
                tables = {1: kinds, 2: names, 3: notes}
                for table in tables.values():
                    for key in [k for k in table if k[0] == sequence]:
                        del table[key]
                for field, entry in fields(interned):
                    entry = fields(entry)
                    tables[field][sequence, one(entry, 1)] = one(entry, 2).decode()
            descriptor = one(packet, 60)
            if descriptor is not None:
                descriptor = fields(descriptor)
                uuid = one(descriptor, 1)
                assert uuid not in self.tracks, "a track is described twice"
                process = one(descriptor, 3)
                if process is not None:
                    self.process[uuid] = one(fields(process), 6).decode()
                    self.tracks[uuid] = None
                else:
                    parent = one(descriptor, 5)
                    assert parent in self.process
                    self.tracks[uuid] = (self.process[parent], one(descriptor, 2).decode())
            event = one(packet, 11)
            if event is None:
                continue
            assert flags & 2 and names is not None
            event, time = fields(event), one(packet, 8)
            track, kind = one(event, 11), one(event, 9)
            assert self.tracks[track], "an event of no track"
            self.times.append(time)
            stack = open_slices.setdefault(track, [])
            if kind == 1:
                name = one(event, 23)
                name = name.decode() if name is not None else names[sequence, one(event, 10)]
                found = {"category": kinds[sequence, one(event, 3)]}
                for field, value in event:
                    if field == 4:
                        note = fields(value)
                        text = one(note, 6)
                        found[notes[sequence, one(note, 1)]] = text.decode() if text is not None else one(note, 3)
                stack.append((time, name, found))
            else:
                assert kind == 2 and stack, "an end without a beginning"
                start, name, found = stack.pop()
                assert time > start
                self.slices.setdefault(self.tracks[track], []).append((start, time, name, found))
        assert not any(open_slices.values()), "a slice without an end"

    def track(self, name):
        found = [slices for (_, track), slices in self.slices.items() if track == name]
        assert len(found) == 1, (name, list(self.slices))
        return found[0]


class Trace(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = place.name
        random = numpy.random.RandomState(3)
        numpy.save(self.path("x.npy"), random.rand(40, 8).astype("float32"))
        numpy.save(self.path("y.npy"), random.randint(0, 4, 40))
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL)
        support.run("ftc", "m.ft", "-o", "m.so", cwd=self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, *flags, check=True, model="m.so"):
        return support.run("ftrun", model, "--threads", 2, *flags, check=check, cwd=self.folder)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def check_times(self, trace, first, last):
        """What holds of every trace."""
        self.assertEqual(trace.times, sorted(trace.times))
        for slices in trace.slices.values():
            for before, after in zip(slices, slices[1:]):
                self.assertLessEqual(before[1], after[0])
        steps = trace.track("steps")
        self.assertEqual([s[2] for s in steps], [f"step {n}" for n in range(first, last + 1)])
        for start, end, _, notes in steps:
            threads = [[k for k in slices if k[3]["step"] == notes["step"]] for (_, track), slices in trace.slices.items() if track.startswith("compute")]
            self.assertTrue(any(threads))
            for inside in threads:
                self.assertTrue(all(start <= k[0] and k[1] <= end for k in inside))
                self.assertLessEqual(sum(k[1] - k[0] for k in inside), end - start)
        for wait in trace.track("waiting for data"):
            self.assertTrue(any(s[0] <= wait[0] and wait[1] <= s[1] for s in steps))

    def test_tracks(self):
        said = self.train("--trace", "t.pftrace").stdout
        self.assertIn("trace: steps 11 to 20 go to t.pftrace", said)
        trace = Decoded(self.read("t.pftrace"))
        self.assertEqual(list(trace.process.values()), ["rank 0: M on cpu, 2 threads"])
        names = {track for _, track in trace.slices}
        self.assertLessEqual(TRACKS, names)
        self.check_times(trace, 11, 20)
        kernels = [k for (_, track), slices in trace.slices.items() if track.startswith("compute") for k in slices]
        labels = {k[2] for k in kernels}
        self.assertTrue(any(l.startswith("fc1: dot + bias + relu") for l in labels), labels)
        self.assertTrue(any(l.startswith("fc2 backward: dot") for l in labels), labels)
        self.assertTrue(any(l.startswith("update: adamw") for l in labels), labels)
        self.assertLessEqual({"fc1", "fc2", "loss"}, {k[3].get("layer") for k in kernels})
        # 10 steps an epoch, 5 epochs: five evaluations and checkpoints, whatever the window
        self.assertEqual([e[2] for e in trace.track("evaluation")], [f"evaluation after step {n}" for n in (10, 20, 30, 40, 50)])
        self.assertEqual([e[2] for e in trace.track("checkpoint")], [f"checkpoint of step {n}" for n in (10, 20, 30, 40, 50)])
        for name in names:
            if name.startswith("loader"):
                self.assertTrue(all(s[2].startswith("batch of step ") for s in trace.track(name)))

    def test_same_training(self):
        """A trace changes nothing."""
        self.train("--save", "a.safetensors", "--set", "train.checkpoint.dir=")
        self.train("--save", "b.safetensors", "--set", "train.checkpoint.dir=", "--trace", "t.pftrace", "--trace-steps", "3:8")
        self.assertEqual(self.read("a.safetensors"), self.read("b.safetensors"))
        self.check_times(Decoded(self.read("t.pftrace")), 3, 8)

    def test_schema(self):
        """Perfetto's own schema reads every field, and knows all of them."""
        done = subprocess.run([os.path.join(support.ROOT, "scripts", "perfetto-protos"), support.BUILD], capture_output=True, text=True, timeout=200)
        if done.returncode:
            self.skipTest(done.stderr.strip())
        self.train("--trace", "t.perfetto-trace", "--trace-steps", "2:4")
        check = """
import sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
trace = schema.Trace()
data = open(sys.argv[1], "rb").read()
trace.ParseFromString(data)
tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
names = {}
begins = ends = 0
for p in trace.packet:
    for n in p.interned_data.event_names: names[n.iid] = n.name
    if not p.HasField("track_event"): continue
    e = p.track_event
    assert e.track_uuid in tracks
    begins += e.type == schema.TrackEvent.TYPE_SLICE_BEGIN
    ends += e.type == schema.TrackEvent.TYPE_SLICE_END
    if e.type == schema.TrackEvent.TYPE_SLICE_BEGIN: assert e.name or names[e.name_iid]
    assert p.sequence_flags == schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
assert begins and begins == ends
from google.protobuf import unknown_fields
def known(message):
    assert not len(unknown_fields.UnknownFieldSet(message)), message
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if hasattr(value, "__len__") else [value]: known(inner)
known(trace)
print(begins)
"""
        read = subprocess.run([sys.executable, "-c", check, self.path("t.perfetto-trace")], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=done.stdout.strip()))
        self.assertEqual(read.returncode, 0, read.stderr)
        trace = Decoded(self.read("t.perfetto-trace"))
        self.assertEqual(int(read.stdout), sum(map(len, trace.slices.values())))

    def test_json(self):
        """Chrome's format has all steps, or those of the window."""
        for flags, count in ([], 6), (["--trace-steps", "2:4"], 3):
            self.train("--steps", 6, "--trace", "t.json", *flags)
            events = json.loads(self.read("t.json"))["traceEvents"]
            self.assertEqual(len({e["args"]["step"] for e in events}), count)
            self.assertTrue(any(e["name"].startswith("fc1: dot + bias + relu") and e["args"]["layer"] == "fc1" for e in events))

    def test_short_and_resumed(self):
        self.assertIn("steps 1 to 6 go", self.train("--steps", 6, "--trace", "t.pftrace").stdout)
        self.check_times(Decoded(self.read("t.pftrace")), 1, 6)
        self.assertIn("steps 7 to 16 go", self.train("--steps", 16, "--resume", "runs", "--trace", "t.pftrace").stdout)
        self.check_times(Decoded(self.read("t.pftrace")), 7, 16)

    def test_refused(self):
        for flags, words in (
            (["--trace", "t.pftrace", "--trace-steps", "5"], "--trace-steps 5: expected the first and the last step, such as 100:110"),
            (["--trace", "t.pftrace", "--trace-steps", "0:3"], "expected the first and the last step"),
            (["--trace", "t.pftrace", "--trace-steps", "7:3"], "expected the first and the last step"),
            (["--trace", "t.pftrace", "--trace-steps", "1:99999999999999999999"], "expected the first and the last step"),
            (["--trace", "t.pftrace", "--trace-steps", "51:60"], "--trace-steps 51:60: this run has steps 1 to 50"),
            (["--trace-steps", "1:3"], "--trace-steps goes with --trace FILE"),
            (["--trace", "none/t.pftrace"], "none/t.pftrace"),
        ):
            done = self.train(*flags, check=False)
            self.assertEqual(done.returncode, 1, flags)
            self.assertIn(words, done.stderr)

    def test_parts(self):
        """A step of several runs is one slice."""
        support.run("ftc", "m.ft", "--set", "train.accumulate=2", "-o", "parts.so", cwd=self.folder)
        self.train("--trace", "t.pftrace", "--trace-steps", "2:3", model="parts.so")
        trace = Decoded(self.read("t.pftrace"))
        self.check_times(trace, 2, 3)
        self.assertEqual(len(trace.track("waiting for data")), 4)


if __name__ == "__main__":
    support.main()
