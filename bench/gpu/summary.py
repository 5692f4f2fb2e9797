"""Results as Markdown: everything that gpu.json holds, and nothing else.

  summary.py GPU.json…     of several calls, the later one counts; to standard output"""
import json
import sys

import cases

# the product rate of dense bf16 that the vendor's datasheets name, in TFLOP/s
DATASHEET = {"H100": 989, "H200": 989, "A100": 312}


def head(result):
    seen, pack = result.get("machine", {}), result.get("pack", {})
    lines = [f"# ft on {seen.get('gpu', 'no GPU')}", ""]
    if result.get("is_tiny"):
        lines += ["A rehearsal: small sizes, on a driver without a GPU. Its times say nothing.", ""]
    lines.append(f"{result.get('date', 'no date')}; ft {pack.get('commit', 'unknown')}, packed {pack.get('packed', '?')}. " + "; ".join(f"{key} {value}" for key, value in seen.items() if key != "gpu" and value))
    ceilings = result.get("ceilings", {})
    if ceilings.get("copy_gb_s"):
        lines += ["", f"Measured here by PyTorch: copy {ceilings['copy_gb_s']:.0f} GB/s; products of 8192 x 8192 x 8192 in TFLOP/s: " +
                  ", ".join(f"{kind} {ceilings[kind + '_tflops']:.1f}" for kind in ("f32", "tf32", "bf16")) + "."]
    return lines


def features(result):
    found = result.get("features")
    if not found:
        return []
    good = [name for name, why in found.items() if why == ""]
    lines = ["", "## Smoke", "", f"As the simulator has it: {', '.join(good) or 'nothing'}."]
    lines += [f"- **{name}**: {why}" for name, why in found.items() if why]
    smoke = result.get("smoke", {})
    if smoke:
        wrong = [f"{name}, {way}: {said}" for name, ways in smoke.items() for way, said in ways.items() if not isinstance(said, float)]
        right = [apart for ways in smoke.values() for apart in ways.values() if isinstance(apart, float)]
        lines += ["", f"Models, small, in several ways: {len(right)} runs have the simulator's losses" + (f" (at most {max(right):.1e} apart)" if right else "") + f", {len(wrong)} have not."]
        lines += [f"- {what}" for what in wrong]
    return lines


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if part and whole else "-"


def times(case, ceilings, gpu):
    v = case["values"]
    unit = "tokens" if "T" in v else "samples"
    per_step = v["batch"] * v.get("T", 1)
    lines = ["", f"### {case['case']}: batch {v['batch']}, {cases.CASES[case['case']]['precision']}", "", f"| | ms a step | {unit}/s | memory, MiB | ft is faster by |", "|---|---|---|---|---|"]
    ours = case.get("ft_ms")

    def row(label, ms, memory, ratio):
        return f"| {label} | {ms:.4f} | {per_step * 1000 / ms:.0f} | {memory / 2**20:.0f} | {ratio} |" if memory else f"| {label} | {ms:.4f} | {per_step * 1000 / ms:.0f} | - | {ratio} |"

    for label, ms in case.get("ft", {}).items():
        lines.append(row(("**ft**" if ms == ours else "ft") + f", {label}", ms, case["ft_memory"].get(label), "") if isinstance(ms, float) else f"| ft, {label} | {ms} | | | |")
    for peer, got in case.get("peers", {}).items():
        label = cases.PEERS.get(peer, peer)
        if "ms" in got:
            lines.append(row(label, got["ms"], got.get("memory"), f"{got['ms'] / ours:.2f}x" if ours else "-"))
        else:
            lines.append(f"| {label} | {got.get('missing') or got.get('failed')} | | | |")
    lines.append("")
    if case.get("ratio"):
        goal = cases.CASES[case["case"]].get("goal")
        lines.append(f"Against the fastest peer: **{case['ratio']:.2f}x**" + (f" (goal on an H100: {goal}x)." if goal else "."))
    if case.get("mfu_rate"):
        precision = cases.CASES[case["case"]]["precision"]
        lines.append(f"ft: {case['mfu_rate'] / 1e12:.1f} TFLOP/s, {share(case['mfu_rate'] / 1e12, ceilings.get(precision + '_tflops'))} of the products' rate measured here"
                     + "".join(f", {share(case['mfu_rate'] / 1e12, rate)} of the datasheet's {rate}" for name, rate in DATASHEET.items() if name in gpu and precision == "bf16")
                     + f"; {share(case.get('moved', 0) / 1e9, ceilings.get('copy_gb_s'))} of the copy bandwidth (bytes of the plan).")
    return lines


def kernels(result):
    found, lines = result.get("kernels", {}), []
    plain = {name: row for name, row in found.items() if row["kind"] == "kernel"}
    if plain:
        lines += ["", "## Kernels against the copy", "", "| | us | GB/s | of the copy |", "|---|---|---|---|"]
        lines += [f"| {row['name']} | {row['us']:.1f} | {row['gb_s']:.0f} | {row['share']:.1f} % |" for row in plain.values()]
    attention = {name: row for name, row in found.items() if row["kind"] == "attention"}
    if attention:
        lines += ["", "## Attention, bf16, TFLOP/s forward / backward", "", "B T = 16384, H D = 2048. Published: FlashAttention-3's paper, FP16, H100 SXM5. Share: of the best published at this head size.", "",
                  "| head size | ft | flash (torch) | cuDNN (torch) | published | share forward | share backward |", "|---|---|---|---|---|---|---|"]
        for row in attention.values():
            published, best = cases.PUBLISHED[row["name"]], cases.BEST_PUBLISHED[cases.ATTENTIONS[row["name"]]["head"]]
            pairs = [row["rates"], *(row.get("peers", {}).get(kind, (None, None)) for kind in ("flash", "cudnn")), published]
            texts = [" / ".join(f"{rate:.0f}" if rate else "-" for rate in pair) for pair in pairs]
            lines.append(f"| {row['name']} | {' | '.join(texts)} | {share(row['rates'][0], best[0])} | {share(row['rates'][1], best[1])} |")
    products = {name: row for name, row in found.items() if row["kind"] == "product"}
    if products:
        lines += ["", "## Products, TFLOP/s", "", "| | ft's own | torch (cuBLAS) | share |", "|---|---|---|---|"]
        lines += [f"| {row['name']} | {row['rate']:.1f} | {row.get('peer') or 0:.1f} | {share(row['rate'], row.get('peer'))} |" for row in products.values()]
    if result.get("starts"):
        lines += ["", "## The first start", "", "Seconds of a whole process of one step whose kernels are not in the driver's cache.", "", "| | PTX in one piece | in up to eight, side by side |", "|---|---|---|"]
        lines += [f"| {name} | {seconds['1']:.2f} | {seconds['8']:.2f} |" for name, seconds in result["starts"].items()]
    return lines


def markdown(result):
    lines = head(result) + features(result)
    if result.get("suite"):
        lines += ["", "## Values and gradients on the GPU", ""] + [f"- {program}: {said}" for program, said in result["suite"].items()]
    gpu, ceilings = result.get("machine", {}).get("gpu", ""), result.get("ceilings", {})
    if result.get("cases"):
        lines += ["", "## Steps against peers", "", "Medians of rounds of many steps; every other process stopped meanwhile. f32 is f32 everywhere (no tf32); bf16 is autocast for torch."]
        for case in result["cases"].values():
            lines += times(case, ceilings, gpu)
    lines += kernels(result)
    if result.get("failures"):
        lines += ["", "## What failed", ""] + [f"- {what}" for what in dict.fromkeys(result["failures"])]
    if result.get("done"):
        lines += ["", "Seconds: " + ", ".join(f"{unit} {seconds:.0f}" for unit, seconds in result["done"].items()) + "."]
    return "\n".join(lines) + "\n"


def merge(results):
    whole = {}
    for result in results:
        for key, value in result.items():
            if isinstance(value, dict):
                whole.setdefault(key, {}).update(value)
            elif isinstance(value, list):
                whole.setdefault(key, []).extend(what for what in value if what not in whole.get(key, []))
            else:
                whole[key] = value
    return whole


def main():
    results = []
    for path in sys.argv[1:]:
        with open(path) as file:
            results.append(json.load(file))
    print(markdown(merge(results)), end="")


if __name__ == "__main__":
    main()
