"""Defects of generation and of rounded weights: see defects.py."""
from defects import defect

# ── the end of a prompt ──
D, DT = "runtime/execute/decoder.c", "py test/e2e/generate.py"
defect("prompt-earlier", D, "decoder->is_moved || at != decoder->done)", "decoder->is_moved)", DT)
defect("prompt-beyond", D, "decoder->is_moved = count < width;", "decoder->is_moved = false;", DT)
defect("prompt-number", D, "if (!decoder->has_ahead || !has_nan(", "if (true || !has_nan(", DT)
defect("prompt-last", D, "? 1 : seen - 1 - at;", "? 1 : seen - at;", DT)
# ── rounded weights ──
R = "py test/num/rounded.py"
defect("rounded-across", "passes/integers.c", "if (!is_inner || !run || !f.k) return 0;", "if (!run || !f.k) return 0;", R)
defect("rounded-of-batch", "passes/integers.c", "&& pass->is_weight[old->input[1]->id]", "&& pass->is_weight", R)
defect("rounded-folded", "passes/layout_choose.c", "if (rounded_in_groups(dot) || sparse_has_kernel(dot)) return (Fold){0};", "if (false) return (Fold){0};", R)
defect("rounded-odd", "kernels/rounded_x86.c", "    if (left) {", "    if (false) {", R)
defect("rounded-block", "kernels/rounded_host.h", "return ROUNDED_BLOCK / p->rows * p->rows;", "return ROUNDED_BLOCK;", R)
defect("rounded-any-scale", "kernels/rounded_x86.c", "if (is_scale(p, b, step, least)) return least;", "return least;", R)
defect("rounded-panel-end", "kernels/rounded_x86.c", "if (i < count) lanes_store(", "if (i + 1 < count) lanes_store(", R)
B = "kernels/rounded_bf16.h"
defect("rounded-bf16-scale", B, "panel->scales + part * panel->width +", "panel->scales +", R)
defect("rounded-bf16-end", B, "for (; i < count; i += 2) to[i / 2] =", "for (; i + 2 < count; i += 2) to[i / 2] =", R)
defect("rounded-bf16-odd", B, "&& p->group % 2 == 0 &&", "&& p->group > 0 &&", R)
defect("rounded-bf16-deep", B, "+ at / rounded_steps(p) * width * 4;", "+ 0 * at;", R)
defect("rounded-bf16-large", B, "widened_unit(bits) / rounded_unit(bits);", "widened_unit(bits);", R)
defect("rounded-f16", "passes/integers.c", "&weights, dtype == DT_BF16);", "&weights, true);", R)
defect("rounded-row-offset", "kernels/rounded_x86.c", "p->bits == 8 ? 128 : 8, at,", "p->bits == 8 ? 127 : 8, at,", R)
defect("rounded-row-carry", "kernels/rounded_x86.c", "whole = (whole - digit) >> 8;", "whole = whole >> 8;", R)
defect("rounded-row-piece", "kernels/rounded_x86.c", "at += (count + rounded_steps(p) - 1) / rounded_steps(p)", "at += count / rounded_steps(p)", R)
defect("rounded-row-tiny", "kernels/rounded_x86.c", "if (exponent < -119) exponent", "if (exponent < -90) exponent", R)
defect("rounded-row-small", "kernels/rounded_x86.c", "&& !is_whole && !has_small(a, p->k);", "&& !is_whole;", R)
defect("rounded-row-batch", "kernels/rounded_x86.c", "if (item.batch != batch) {", "if (batch < 0) {", R)
defect("rounded-row-nan", "kernels/rounded_x86.c", "if (exponent > 128) return false;", "if (exponent > 128) exponent = 128;", R)
