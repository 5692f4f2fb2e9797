"""In the training graph of a plan: at least COUNT buckets begin while other gradients are still to be computed, each behind the step
that makes its last one, and no later one is smaller than the last; the totals of the
loss are waited for behind all of backward: overlap.py PLAN COUNT."""
import re
import sys

text = open(sys.argv[1]).read()
graph = text[text.index('graph "train"'):text.index('graph "eval"')]
steps = re.findall(r"^  (?:launch|call|begin|end|copy|fill) .*", graph, re.M)
work = [i for i, step in enumerate(steps) if re.match(r"  (launch|call)", step)]
buckets = [(i, int(re.search(r"moves=(\d+)", step).group(1))) for i, step in enumerate(steps) if "gradients of" in step and step.startswith("  begin")]
update = min(i for i, step in enumerate(steps) if step.startswith("  end") and "gradients of" in step)
backward = [i for i in work if i < update]
early = [i for i, _ in buckets if i < backward[-1]]
assert len(early) >= int(sys.argv[2]), (early, buckets, backward[-1])
totals = [i for i, step in enumerate(steps) if "totals of the loss" in step]
assert totals[0] < buckets[0][0] < buckets[-1][0] < totals[1], totals
for i, _ in buckets:
    after = [int(number) for number in re.search(r"after=([\d,]+)", steps[i]).group(1).split(",")]
    assert max(after) == max(j for j in range(i) if not steps[j].startswith("  begin")), f"step {i} begins late: {steps[i]}"
assert buckets[-1][1] == min(size for _, size in buckets[1:]), buckets
