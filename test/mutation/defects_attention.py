"""Defects of attention: see defects.py."""
from defects import defect

defect("attention-correction", "kernels/attention_x86.c", "    Lanes sum = lanes_load(sums) * correction[i];",
       "    Lanes sum = lanes_load(sums);", "unit codegen_attention")
defect("attention-hidden", "kernels/attention_x86.c", "    if (any) return false;\n  }\n  return true;", "    if (any) return false;\n    return true;\n  }\n  return true;",
       "unit codegen_attention")
defect("attention-items", "kernels/attention_ring.h", "(turn % 2 ? attention_blocks() - 1 - block : block)", "(turn % 2 ? attention_blocks() - block : block)",
       "unit codegen_flash")
defect("attention-place", "kernels/attention_ring.h", "  w.place = turn % attention_places();", "  w.place = 0;", "unit codegen_flash")
defect("attention-ring", "kernels/attention_ring.h", "    compute(&w, memory, count);\n    begin += count;", "    compute(&w, memory, count);", "unit codegen_flash")
defect("attention-section", "kernels/attention_ring.h", "smaller(attention_section(), all - first)", "attention_section()", "unit codegen_flash")
defect("attention-turn", "kernels/attention_wgmma_forward_ptx.c", "ALWAYS void pass_with_turn(const Here *w, Panel memory, int group, int t) {\n  await_turn(memory, group, t);",
       "ALWAYS void pass_with_turn(const Here *w, Panel memory, int group, int t) {", "unit codegen_flash")
defect("attention-numbers", "kernels/attention_ring.h", "(beside ? own : 0)", "0", "unit codegen_flash")
defect("attention-maps", "codegen/nvptx_attention.c", "(has_numbers && a->form.rows % a->cut.tile)", "false", "unit codegen_flash")
defect("attention-cap-gain", "kernels/attention_softmax.h", "__builtin_fmaxf(1.0f - s * s, 0.0f)", "1.0f - s * s", "unit codegen_flash")
defect("attention-cap-x86", "kernels/attention_x86.c", "pull * lanes_load(bend + j) : pull", "pull : pull", "unit codegen_attention")
defect("attention-cap-decode", "passes/decode.c", "if (node_attr(old, ATTR_SOFTCAP))", "if (false)", "unit passes_decode")
defect("attention-bits-turned", "kernels/attention_bits.h", "pair >> w->lane / 4 & 0x01010101u", "pair >> w->lane % 4 & 0x01010101u", "unit codegen_flash")
defect("attention-bits-alive", "kernels/attention_bits.h", "at - __builtin_clz(alive) * PIECE", "at - (__builtin_clz(alive) + 1) * PIECE", "unit codegen_flash")
defect("attention-bits-pieces", "kernels/attention_bits.h", "k < (attention_tile() + 31) / 32", "k < attention_tile() / 32", "py test/num/attention.py")
defect("attention-added-across", "kernels/attention_added.h", "is_transposed ? attention_mask_row() : 1; /* to", "1; /* to", "py test/num/attention.py")
defect("attention-added-ends", "kernels/attention_added.h", "limit % multiple == 0 ? x : smaller(x, limit - 1)", "x", "py test/num/attention.py")
defect("attention-one-place", "kernels/attention_ring.h", "    group_barrier(own_group(&w)); /* its results have been stored */\n", "", "unit codegen_flash")
defect("attention-split-values", "kernels/attention_wgmma_backward_keys_ptx.c", "values = own_rows(w, memory, 0, 2)", "values = own_rows(w, memory, 0, 1)", "py test/num/attention.py")
defect("attention-split-numbers", "kernels/attention_wgmma_backward_keys_ptx.c",
       "    weigh_columns(s, gain, tile_numbers(memory, QUERIES, n), w->lane);\n    store_tile(memory, QUERIES, n, w->lane);",
       "    store_tile(memory, QUERIES, n, w->lane);\n    weigh_columns(s, gain, tile_numbers(memory, QUERIES, n), w->lane);", "unit codegen_flash")
defect("attention-tiles-before", "kernels/attention_tiles_ptx.c", "int own = i < thread % LIST_WARPS;", "int own = i <= thread % LIST_WARPS;", "unit codegen_flash")
defect("attention-tiles-causal", "kernels/attention_tiles_ptx.c", "w->first >= keys_seen(from + attention_tile())", "w->first >= keys_seen(from)", "unit codegen_flash")
defect("attention-tiles-heads", "kernels/attention_tiles_ptx.c", "own.head = w->group * heads + i;", "own.head = w->group * heads;", "unit codegen_flash")
defect("attention-tiles-plane", "kernels/attention_tiles.h", "plane += attention_rows_are_keys() ? w->group : w->head;", "plane += w->group;", "unit codegen_flash")
defect("attention-tiles-key", "kernels/attention_queries.h", "(attention_has_lists() ? tile_listed(w, t) : t)", "t", "unit codegen_flash")
defect("attention-tiles-start", "kernels/attention_wgmma_backward_keys_ptx.c", "  if (!attention_has_lists()) return tiles_of_queries(w, start);\n  *start = 0;\n",
       "  int count = tiles_of_queries(w, start);\n  if (!attention_has_lists()) return count;\n", "py test/num/attention.py")
defect("attention-wide-start", "passes/heads.c", "(start % PIECE == 0 && row % PIECE == 0)", "(start % PIECE == 0 || row % PIECE == 0)", "lit passes/attention_wide.ftir")
defect("attention-wide-f32", "passes/attention.c", "becomes_narrow(context, old) ? ATTENTION_MOST :", "becomes_narrow(context, old) || form.rows ? ATTENTION_MOST :", "lit passes/attention_wide.ftir")
# what the causal order hides of a block is left out
defect("attention-part-keys", "kernels/attention_x86.c", "part->keys = keys_of_row(p, block, part->first + part->rows - 1);", "part->keys = keys_of_row(p, block, part->first);",
       "unit codegen_attention")
defect("attention-part-rows", "kernels/attention_x86.c", "block->key + j - (p->keys - p->rows) - block->first;", "block->key + j - block->first;", "unit codegen_attention")
defect("attention-part-unseen", "kernels/attention_x86.c", "    clear_unseen(block, seen, slope);\n", "", "unit codegen_attention")
defect("attention-part-weights", "kernels/attention_x86.c", "    clear_unseen(block, seen, score);\n", "", "unit codegen_attention")
defect("attention-part-pairs", "kernels/attention_pairs.h", "rows_before(p, block, j) / PAIRED * PAIRED,", "rows_before(p, block, j),", "unit codegen_attention")
defect("attention-part-nothing", "kernels/attention_pairs.h", "    else if (!adds)\n", "    else if (false)\n", "unit codegen_attention")
# few queries
F = "kernels/attention_few.h"
defect("attention-few-lanes", F, "((l) & (by) ? LANES : 0)", "((l) & (by) ? 0 : LANES)", "unit codegen_attention")
defect("attention-few-rows", F, "query.at + i * query.step;", "query.at;", "unit codegen_attention")
defect("attention-few-odd", F, "    if (j < count) sum[0][i]", "    if (false) sum[0][i]", "unit codegen_attention")
defect("attention-few-half", F, "sum[half][i] += weight[j + half]", "sum[half][i] += weight[j]", "unit codegen_attention")
defect("attention-few-vectors", F, "if (VECTORS == 4 && width == 4 * LANES)", "if (VECTORS == 4 && width <= 4 * LANES)", "unit codegen_attention")
defect("attention-few-padded", F, "if (p->features % LANES == 0) return", "if (p->features >= LANES) return", "unit codegen_attention")
# dropout is of training
defect("attention-dropout-evaluated", "frontend/builtin_attention.c", "  if (!builder_trains(call->b)) out->dropout = 0;\n", "", "py test/e2e/generate.py")
D, DT = "kernels/attention_drop.h", "unit codegen_attention"
defect("attention-drop-edge", D, "if (within + keys > DRAWN_AT_ONCE)", "if (keys > DRAWN_AT_ONCE)", DT)
defect("attention-drop-carry", D, "b[k] = a[k] >> 32;", "b[k] = (WideLanes)(block >> 32);", DT)
defect("attention-drop-within", D, "row->word = row->room + within;", "row->word = row->room;", DT)
defect("attention-drop-below", D, "return draw >= (IntLanes)", "return draw > (IntLanes)", "py test/num/attention_dropout.py")
defect("attention-drop-gain", "kernels/attention_x86.c", "drawn_kept(&drawn, j, pulled * (float)p->gain, (Lanes)0.0f)", "drawn_kept(&drawn, j, pulled, (Lanes)0.0f)", DT)
defect("attention-drop-values", "kernels/attention_x86.c", "w->dv + i * width, (float)p->gain,", "w->dv + i * width, 1,", DT)
defect("attention-drop-row", "kernels/attention_x86.c", "    if (p->drop_below) draw_row(p, draws, (block->first + i) * p->keys + block->key, seen, &drawn);",
       "    if (p->drop_below) draw_row(p, draws, (block->first + i) * p->keys, seen, &drawn);", DT)
defect("attention-drop-pairs", "kernels/attention_pairs.h", "  Draws draws = attention_draws_of(p, args, b, h);\n  slopes(", "  Draws draws = attention_draws_of(p, args, b, 0);\n  slopes(", DT)
defect("attention-drop-parts", "passes/optimizer_accumulate.c", "if (node_step_operand(old) >= 0 && ", "if (old->op == OP_RANDOM && ", "py test/num/attention_dropout.py")
defect("attention-drop-layers", "passes/attention.c", "(double)node_int(draws, ATTR_STREAM, 0));", "(double)node_int(old, ATTR_STREAM, 0));", "py test/num/attention_dropout.py")
defect("attention-drop-ranks", "passes/attention.c", "return make_binary(graph, OP_ADD, number, first);", "return number;", "unit passes_ranks")
defect("attention-drop-samples", "passes/attention.c", "make_like(graph, sample, (double)dim[1])", "make_like(graph, sample, 1)", "py test/num/attention_dropout.py")
defect("attention-drop-written", "passes/attention.c", "make_dot(w->graph, in_groups(w, written_kept(w, p)), in_groups(w, dy), true, false)",
       "make_dot(w->graph, in_groups(w, p), in_groups(w, dy), true, false)", "py test/num/attention_dropout.py")
defect("attention-drop-body", "runtime/execute/body_attention.c", "(uint64_t)first.i + (uint64_t)(i * f->keys + j)", "(uint64_t)first.i + (uint64_t)j", "unit codegen_body")
defect("attention-drop-plan", "plan/plan_window.c", "(more < 2 || (a->share > 0 && a->share < 1))", "(more < 2 || a->share > 0)", "unit codegen_body")
defect("attention-drop-shrink", "passes/shrink.c", "      tie_dim(t, form.draws, d, d);", "      keep_input(t, form.draws, d);", "py test/e2e/shrink.py")
DG, DN = "kernels/attention_draws.h", "py test/num/attention_dropout.py"
defect("attention-draws-bit", DG, "lane % 2 * 2 + j % 2;", "j % 2;", DN)
defect("attention-draws-turn", DG, "is_transposed ? j % 4 : j / 2 % 2", "is_transposed ? j / 2 % 2 : j / 2 % 2", DN)
defect("attention-draws-query", DG, "+ lane / 4 % 2 + lane / 8 % 2 * 8 :", "+ lane / 4 % 2 :", DN)
defect("attention-draws-aligned", DG, " && draws.first % 4 == 0)", ")", "unit codegen_flash")
defect("attention-draws-values", "kernels/attention_gradient.h", "  if (attention_drop_below()) scale_sums(dv, drop_gain());\n", "", DN)
defect("attention-draws-slopes", "kernels/attention_ptx.h", "    keep_drawn(&drawn, slope, slope);\n    if (caps())", "    if (caps())", DN)
defect("attention-draws-deltas", "kernels/attention_gradient.h", "sum_of_row(sum) / drop_gain()", "sum_of_row(sum)", DN)
defect("attention-draws-gain", "kernels/attention_gradient.h", "scale_sums(dk, scale() * drop_gain());", "scale_sums(dk, scale());", DN)
defect("attention-draws-hopper", "codegen/nvptx_attention.c", "|| a->form.draws >= 0) return false;", ") return false;", DN)
defect("attention-drift", "kernels/attention_softmax.h", "correction[i] = exp2_of(f->base[i] - from);", "correction[i] = exp2_of(f->base[i] - from * 1.0000001f);",
       "py test/num/attention.py")
