"""A simulated step computes as long as its kernels were measured to take, twice that where four ranks have two cores:
sum_of_times.py TIMES OUT [TRACE]."""
import json
import re
import sys

kernels = json.load(open(sys.argv[1]))["kernels"]
ms = sum(kernel["us"] or 0 for kernel in kernels if kernel["kind"] not in ("begin", "end")) / 1e3
text = open(sys.argv[2]).read()
slowness = 2 if "share cores" in text else 1
compute, exposed, communication = (float(re.search(rf"^{what} +([0-9.]+) ms", text, re.M).group(1)) for what in ("compute", "exposed communication", "communication"))
assert abs(compute - slowness * ms) < 0.002, (compute, slowness, ms)
assert slowness == 1 or abs(exposed - communication) < 0.002, "no core is left to communicate on"
if len(sys.argv) > 3:
    for event in json.load(open(sys.argv[3]))["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in ("launch", "call"):
            own = kernels[event["args"]["number"]]
            assert own["name"] == event["args"]["kernel"] and abs(own["us"] - event["dur"]) < 0.002, (own, event)
