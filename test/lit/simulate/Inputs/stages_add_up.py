"""The parts of each stage are the step, and the trace has its tasks; a message begins when it has been made and ends before it is
read: stages_add_up.py OUT TRACE."""
import json
import re
import sys

text = open(sys.argv[1]).read()
step = float(re.search(r"^step +([0-9.]+) ms", text, re.M).group(1))
stages = [[float(n) for n in row] for row in re.findall(r"^ +[0-9]+ +([0-9.]+) +([0-9.]+) +([0-9.]+) +[0-9.]+ [KMG]iB$", text, re.M)]
assert len(stages) == 2, text
for stage in stages:
    assert abs(sum(stage) - step) < 0.004, (stage, step)
for i, name in enumerate(("compute", "exposed communication", "bubble")):
    mean = float(re.search(rf"^{name} +([0-9.]+) ms", text, re.M).group(1))
    assert abs(mean - sum(stage[i] for stage in stages) / 2) < 0.002, name
events = [event for event in json.load(open(sys.argv[2]))["traceEvents"] if event["ph"] == "X"]
assert {event["tid"] for event in events} == {1, 2, 3, 4}
assert abs(max(event["ts"] + event["dur"] for event in events) / 1e3 - step) < 0.002
for stage, tid in ((0, 1), (1, 3)):
    own = sorted((event["ts"], event["dur"]) for event in events if event["tid"] == tid)
    assert abs(sum(duration for _, duration in own) / 1e3 - stages[stage][0]) < 0.004
    assert all(a + d <= b + 0.002 for (a, d), (b, _) in zip(own, own[1:])), "two kernels at a time"
sent, received = ([(event["name"], event["ts"], event["dur"]) for event in events if event["args"]["kernel"] == kernel] for kernel in ("send", "receive"))
assert sent and sorted(sent) == sorted(received), "a message is one task of two ranks"
