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
defect("rounded-of-batch", "passes/integers.c", "|| !pass->is_weight[old->input[1]->id]) return NULL;\n    Node", "|| !pass->is_weight) return NULL;\n    Node", R)
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
defect("rounded-f16", "passes/integers.c", "dtype == DT_BF16 ? ROUNDED_BF16 : ROUNDED_ANY);", "ROUNDED_BF16);", R)
# ── rows of whole numbers ──
Y, W = "kernels/rounded_bytes.h", "py test/num/dynamic.py"
defect("rows-range", Y, "(x >= -128) & (x <= 127);", "(x >= -128) & (x <= 200);", W)
defect("rows-whole", Y, "~is_within | (__builtin_convertvector(whole, Lanes) != x);", "~is_within;", W)
defect("rows-fault", Y, "    if (any)\n", "    if (false && any)\n", W)
defect("rows-fault-batch", Y, "any |= faults[i];", "any |= faults[0];", W)
defect("rows-offset", Y, "total[j] * -128u;", "total[j] * -127u;", W)
defect("rows-sign", Y, "& low) ^ sign) - (SignedLanes)sign)", "& low))", W)
defect("rows-half", Y, "word >> (4 * half) & low", "word >> (4 * half - 4 * half) & low", W)
defect("rows-scale", Y, "at = part * panel->width + column, words", "at = column, words", W)
defect("rows-deep", Y, "+ s->first % p->group / rounded_steps(p) * width * 4;", "+ 0 * s->first;", W)
defect("rows-word", Y, "word += s.words * s.parts;", "word += s.words;", W)
defect("rows-padded", Y, "bool is_one_run = each * 4 == p->group;", "bool is_one_run = true;", W)
defect("rows-strip", Y, "[item->stride / LANES - 1](p", "[rounded_width(p) / LANES - 1](p", W)
defect("rows-moved", "passes/integers.c", "to->dim[to->rank - 1] != k || !k) return;", "!k) return;", W)
defect("rows-rule", "passes/integers.c", "r[0].is_known ? ROUNDED_WHOLE_RULE : ROUNDED_WHOLE", "ROUNDED_WHOLE", W)
defect("rows-large", "passes/integers.c", "r[0].low < -128 || r[0].high > 127 ||", "", W)
defect("rows-turned", "passes/integers.c", "node_int(old, ATTR_TRANS_A, 0) || r[0].low", "r[0].low", W)
defect("rows-rest", "frontend/std/quant.ft", "max(abs(stop_gradient(x)), axis=-1, keepdims=true)", "max(abs(x), axis=-1, keepdims=true)", W)
defect("rows-first", "frontend/quantize_matrix.c", "  if (bits_of_rows(b, first)) {", "  if (false && bits_of_rows(b, first)) {", "py test/e2e/quantize_matrix.py")
defect("rows-shared", "runtime/command/quantize_layers.c", "|| layer->form.is_dynamic) return;", ") return;", "py test/e2e/quantize.py")
defect("rows-smooth", "runtime/command/quantize_smooth.c", "!layer->is_matrix && ", "", "py test/e2e/quantize_matrix.py")
defect("rounded-row-offset", "kernels/rounded_x86.c", "p->bits == 8 ? 128 : 8, at,", "p->bits == 8 ? 127 : 8, at,", R)
defect("rounded-row-carry", "kernels/rounded_x86.c", "whole = (whole - digit) >> 8;", "whole = whole >> 8;", R)
defect("rounded-row-piece", "kernels/rounded_x86.c", "at += (count + rounded_steps(p) - 1) / rounded_steps(p)", "at += count / rounded_steps(p)", R)
defect("rounded-row-tiny", "kernels/rounded_x86.c", "if (exponent < -119) exponent", "if (exponent < -90) exponent", R)
defect("rounded-row-small", "kernels/rounded_x86.c", "&& !is_whole && !has_small(a, p->k);", "&& !is_whole;", R)
defect("rounded-row-batch", "kernels/rounded_x86.c", "if (item.batch != batch) {", "if (batch < 0) {", R)
defect("rounded-row-nan", "kernels/rounded_x86.c", "if (exponent > 128) return false;", "if (exponent > 128) exponent = 128;", R)
