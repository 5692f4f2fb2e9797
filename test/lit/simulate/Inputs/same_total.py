"""The total of a program's memory is that of its level in the table by distributed.zero: same_total.py OUT LEVEL."""
import re
import sys

text = open(sys.argv[1]).read()
total = re.search(r"^total +\d+  ([0-9.]+ \w+)$", text, re.M).group(1)
line = re.search(rf"^ +{sys.argv[2]} .* ([0-9.]+ \w+)$", text, re.M)
assert line and line.group(1) == total, (line and line.group(0), total)
