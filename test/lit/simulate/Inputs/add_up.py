"""The parts of a simulated step are the step, and the trace's events are those of the step: add_up.py OUT TRACE."""
import json
import re
import sys

text = open(sys.argv[1]).read()
ms = {name: float(value) for name, value in re.findall(r"^(step|compute|exposed communication|bubble|communication) +([0-9.]+) ms", text, re.M)}
assert len(ms) == 5, ms
assert abs(ms["step"] - ms["compute"] - ms["exposed communication"] - ms["bubble"]) < 0.002, ms
assert 0 < ms["exposed communication"] <= ms["communication"], ms
events = [event for event in json.load(open(sys.argv[2]))["traceEvents"] if event["ph"] == "X"]
end = max(event["ts"] + event["dur"] for event in events) / 1e3
assert abs(end - ms["step"]) < 0.002, (end, ms)
for queue, name in ((1, "compute"), (2, "communication")):
    own = sorted((event["ts"], event["dur"]) for event in events if event["tid"] == queue)
    assert abs(sum(duration for _, duration in own) / 1e3 - ms[name]) < 0.002, name
    assert all(a + d <= b + 0.002 for (a, d), (b, _) in zip(own, own[1:])), f"{name}: two at a time"
alone, *_, last = re.findall(r"^ +\d+ +\d+ +([0-9.]+) +([0-9.]+) +\d+ +([0-9.]+)%", text, re.M)
assert float(last[0]) == ms["step"] and abs(float(last[2]) - 100 * float(alone[0]) / ms["step"]) < 0.5, (alone, last)
