"""Defects that scripts/mutate plants in the compiler and the runtime, one at a time: a text that stands exactly once in a
file, what replaces it, and the test of `scripts/test --quick` that must notice. Each is a mistake that somebody could make
and that still builds: an index map or an operand order changed, a guard removed, a bound off by one, a wait left out."""
import os
from collections import namedtuple

Defect = namedtuple("Defect", "name file old new test")
DEFECTS = []


def defect(name, file, old, new, test):
    DEFECTS.append(Defect(name, file, old, new, test))


# ── passes/gradients.c ──
G, GT = "passes/gradients.c", "unit passes_gradients"
defect("tanh-sign", G, "binary(g, OP_SUB, like(g, Y, 1), mul(g, Y, Y))", "binary(g, OP_ADD, like(g, Y, 1), mul(g, Y, Y))", GT)
defect("sub-sign", G, "if (g->needed[1]) g->dx[1] = neg(g, DY);", "if (g->needed[1]) g->dx[1] = DY;", GT)
defect("div-sign", G, "g->dx[1] = neg(g, mul(g, over, Y));", "g->dx[1] = mul(g, over, Y);", GT)
defect("max-tie", G, "make_select(g->graph, tie, scale(g, DY, 0.5), DY)", "make_select(g->graph, tie, scale(g, DY, 1), DY)", "py test/num/ops.py")
defect("rmax-tie", G, "gradient_broadcast(g, binary(g, OP_DIV, DY, count), x)", "gradient_broadcast(g, DY, x)", "py test/num/ops.py")
defect("slice-sides", G, "make_pad(g->graph, dx, start->ints, high)", "make_pad(g->graph, dx, high, start->ints)", GT)
defect("select-operands", G, "if (g->needed[2]) g->dx[2] = make_select(g->graph, mask, zero(g), DY);",
       "if (g->needed[2]) g->dx[2] = make_select(g->graph, mask, DY, zero(g));", GT)
defect("relu-mask-form", G, "&& scaled == x && slope > 0;", "&& scaled == x;", GT)
defect("relu-test", "ir/match.c", "return test->op == OP_LE && test->input[0] == x", "return test->op != OP_SELECT && test->input[0] == x", "unit ir_match")
defect("concat-offset", G, "start[axis] += X(i)->type.shape.dim[axis];", "start[axis] += X(0)->type.shape.dim[axis];", GT)
defect("prod-zeros", G, "binary(g, OP_EQ, zeros, like(g, zeros, 1))", "binary(g, OP_GE, zeros, like(g, zeros, 1))",
       "py test/num/ops.py")

# ── frontend/weight.c ──
defect("weight-forgotten", "frontend/weight.c", "  if (op == OP_SUM && !is_mask)\n    value =", "  if (op == OP_SUM && !is_mask && false)\n    value =",
       "py test/random/daily.py")

# ── layers that are applied again ──
A = "py test/e2e/applied_again.py"
defect("again-old", "frontend/block.c", "b->frame->instance->applications > 1;", "b->frame->instance->applications > 2;", A)
defect("again-gradient", "frontend/block.c", "return now ? tensor_unary(b, OP_STOP_GRADIENT, now, loc) : NULL;", "return now;", A)
defect("again-once", "frontend/build.c", "  builder_local(b->frame, ast->name)->is_updated = true;\n", "", A)
defect("again-statistics", "frontend/statistics.c", "  if (seen.count > 1) x = ", "  if (seen.count > 9) x = ", A)
defect("again-sum", "frontend/statistics.c", "old->op == OP_STOP_GRADIENT ? old->input[0] : old", "old", A)

# ── codegen/host_transpose.c, kernels/transpose_x86.c ──
H, HT = "codegen/host_transpose.c", "py test/num/transposes.py"
defect("host-turn-last", H, "LLVMIntEQ, number, emit_index_const(e, tile->count - 1)", "LLVMIntEQ, number, emit_index_const(e, tile->count)", HT)
defect("host-turn-own", H, "node->op != OP_TRANSPOSE || !is_own[i] ||", "node->op != OP_TRANSPOSE ||", HT)
defect("host-turn-room", H, "emit_index_const(e, turn->columns.room), columns, rows};", "emit_index_const(e, turn->columns.room), rows, columns};", HT)
defect("host-turn-parts", "codegen/host_loop.c", "    return items;\n  }\n  own_items", "    return turn.items;\n  }\n  own_items", HT)
defect("turn-8", "kernels/transpose_x86.c", "TRANSPOSE(8, 16, 4)", "TRANSPOSE(8, 16, 3)", HT)

# ── passes/simplify*.c, cse.c ──
M, MT = "passes/simplify_move.c", "unit passes_meaning"
defect("slice-of-slice", M, "start[i] = inner[i] + outer[i] * inner_step[i];", "start[i] = inner[i] + outer[i];", MT)
defect("transpose-of-transpose", M, "perm[i] = inner->ints[outer->ints[i]];", "perm[i] = outer->ints[inner->ints[i]];", MT)
defect("concat-of-slices", M, "if (step[i] != 1 || start[i] != (i == axis ? at : 0)) return NULL;",
       "if (step[i] != 1 || (i != axis && start[i] != 0)) return NULL;", MT)
defect("pads-that-touch", M, "if (low[first] + size[0] != low[!first]) return NULL;", "if (low[first] + size[0] > low[!first]) return NULL;", MT)
defect("sum-of-broadcast", M, "if (node->op != OP_SUM) return x;\n", "if (node->op != OP_RMAX) return x;\n", MT)
defect("arg-order", "passes/simplify_math.c", "if (A->op == OP_NEG) return make_binary(graph, OP_SUB, B, A->input[0]);",
       "if (A->op == OP_NEG) return make_binary(graph, OP_SUB, A->input[0], B);", MT)
defect("comparison-turned", "passes/simplify_math.c", "Op op = node->op == OP_LT   ? OP_GT", "Op op = node->op == OP_LT   ? OP_LT", MT)
defect("select-nested", "passes/simplify_math.c",
       "if (b->op == OP_SELECT && b->input[0] == cond) return make_select(graph, cond, a, b->input[2]);",
       "if (b->op == OP_SELECT && b->input[0] == cond) return make_select(graph, cond, a, b->input[1]);", MT)
defect("cse-attributes", "ir/graph.c", "return i == a->attr_count && k == b->attr_count;\n}", "return true;\n}", MT)
defect("cse-commutes", "ir/ops.def", "T(BODY), 0, same, sub,", "T(BODY) | T(COMMUTES), 0, same, sub,", MT)

# ── passes/optimizer*.c, loss_scale.c ──
OT = "py test/num/optimizer.py"
R = "passes/optimizer_rules.c"
defect("adam-correction", R, "Node *count = update_add(u, u->step, update_number(u, 1));\n  Node *correction1",
       "Node *count = update_add(u, u->step, update_number(u, 2));\n  Node *correction1", OT)
defect("adam-decay", R, "Node *grads = is_decoupled ? u->grads : decayed_grads(u);", "Node *grads = u->grads;", OT)
defect("sgd-first-step", R, "make_select(u->graph, is_first, update_number(u, 1),\n", "make_select(u->graph, is_first, update_one_minus(u, update_setting(u, \"train.dampening\")),\n", OT)
defect("rmsprop-centred", R, "spread = update_sub(u, v, update_mul(u, mean, mean));", "spread = update_sub(u, v, mean);", OT)
defect("clip-order", "passes/optimizer.c",
       "  if (value > 0) grads = clipped_by_value(u, grads, value);\n  return norm > 0 ? clipped_by_norm(u, grads, norm) : grads;",
       "  if (norm > 0) grads = clipped_by_norm(u, grads, norm);\n  return value > 0 ? clipped_by_value(u, grads, value) : grads;", OT)
defect("clip-one", "passes/optimizer.c", "return norm > 0 ? clipped_by_norm(u, grads, norm) : grads;",
       "return norm > 0 && value <= 0 ? clipped_by_norm(u, grads, norm) : grads;", OT)
defect("ema-skipped", "passes/optimizer.c", "make_select(u->graph, counts, after, before) : after", "make_select(u->graph, counts, after, average) : after", "py test/e2e/recipe.py")
defect("ema-first", "passes/optimizer.c", "update_scaled(u, params, update_one_minus(u, decay))", "update_scaled(u, u->params, update_one_minus(u, decay))",
       "py test/e2e/recipe.py")
defect("loss-scale-finite", "passes/loss_scale.c", "return make_select(u->graph, u->is_finite, value, old);", "return value;", "py test/e2e/precision.py")
defect("loss-scale-growth", "passes/loss_scale.c", "Node *next = make_select(u->graph, is_due, grown, scale), *fallen", "Node *next = grown, *fallen", "py test/e2e/precision.py")

# ── passes/memplan.c, lifetime.c, schedule.c: what the verifier of planned graphs must refuse ──
PT = "unit passes_memplan"
defect("reuse-while-read", "passes/memplan.c", "if (slot < 0 || plan->times.last[base->id] != step || plan->slots.at[slot].last != step)",
       "if (slot < 0)", PT)
defect("state-read-later", "passes/memplan.c", "if (reader > step || leaf->op != OP_STATE ||", "if (leaf->op != OP_STATE ||", PT)
defect("roots-forgotten", "passes/lifetime.c", "read_at(&times, graph->roots.at[i].node, times.count);", ";", PT)
defect("pack-touching-steps", "passes/memplan_pack.c", "return a->first <= b->last && b->first <= a->last;",
       "return a->first < b->last && b->first < a->last;", PT)
defect("overwrite-moved", "passes/lifetime.c", "bool moves = op_info[node->op].op_class != CLASS_POINTWISE || elsewhere[i];",
       "bool moves = elsewhere[i];", PT)

# ── passes/fuse*.c, layout, storage, masks ──
RANDOM = "unit codegen_random"
defect("fuse-read-in-row", "passes/fuse_group.c", "return group->shape == SHAPE_ROW && divisor == group->elements / group->reduced;",
       "return group->shape == SHAPE_ROW;", RANDOM)
defect("fuse-columns", "passes/fuse_group.c", "if (x[i] != y[i]) return false;", "if (x[i] * y[i] < 0) return false;", RANDOM)
defect("fuse-cycle", "passes/fuse_order.c", "*found = to == end && from != start;", "*found = false;", "unit passes_fuse_order")
defect("storage-inverse", "passes/storage.c", "Storage storage = storage_of_transpose(node), back = storage_inverse(&storage);",
       "Storage storage = storage_of_transpose(node), back = storage;", "py test/e2e/storage.py")

# ── codegen: the emitter, for both targets ──
E = "codegen/emit.c"
defect("index-no-wrap", E, "  if (top > high) digit", "  if (top > high && low > unit) digit", RANDOM)
defect("index-border", E, "if (weight < high || weight % high) from = k;", "if (weight < high) from = k;", RANDOM)
defect("memo-index", E, "is_equal = (a->digit[i].value == b->digit[i].value) & (a->digit[i].extent == b->digit[i].extent);",
       "is_equal = a->digit[i].value == b->digit[i].value;", "py test/num/moves.py")
defect("pad-low", "codegen/emit_move.c", "emit_in_range(emitter, value, in->dim[d], -low[d], out->dim[d] - 1 - low[d])",
       "emit_in_range(emitter, value, in->dim[d] + 1, -low[d], out->dim[d] - 1 - low[d])", RANDOM)
defect("slice-step", "codegen/emit_move.c", "emit_mul(emitter, digit.value, step[d]);",
       "emit_mul(emitter, digit.value, step[0]);", RANDOM)
defect("transpose-map", "codegen/emit_move.c", "while (end < shape->rank && source[end] == source[end - 1] + 1) end++;",
       "while (end < shape->rank && source[end] > source[end - 1]) end++;", RANDOM)
defect("sign-of-nan", "codegen/emit_point.c", "LLVMValueRef rest = LLVMBuildSelect(builder, down, LLVMConstReal(p->type, -1), x, \"\");",
       "LLVMValueRef rest = LLVMBuildSelect(builder, down, LLVMConstReal(p->type, -1), zero, \"\");", "py test/num/nonfinite.py")
defect("cast-unsigned", "codegen/emit_point.c", "return LLVMBuildIntCast2(builder, value, type, emit_is_signed(from), \"\");",
       "return LLVMBuildIntCast2(builder, value, type, true, \"\");", "py test/num/casts.py")
defect("byte-division", "codegen/emit_point.c", "is_simple &= quotient == wanted;", "", "unit codegen_bytes")
defect("collapse-border", "codegen/collapse.c", "if (first != second) walk->border[d] = true;", "", "lit codegen/borders.ft")
defect("bf16-to-even", "codegen/emit_memory.c", "LLVMConstInt(word, 0x7fff, false)", "LLVMConstInt(word, 0x8000, false)", "py test/num/casts.py")

# ── poolings of integers ──
defect("pooled-negative", "passes/integers.c", "return is_inverse && is_not_negative(scale, MOST_STEPS);", "return is_inverse || is_not_negative(scale, MOST_STEPS);", "py test/num/integers.py")
defect("pooled-row-of-floats", "kernels/integer_x86.c", "place.y = at->y * p->pool_height + i;", "place.y = at->y;", "py test/num/integers.py")
defect("pooled-line", "kernels/integer_x86.c", "item->first * p->pool_height * p->stride_height - p->pad_top", "item->first * p->stride_height - p->pad_top", "py test/num/integers.py")

# ── matrices outside of layers that are rounded; products of few rows ──
R = "py test/e2e/quantize_matrix.py"
defect("matrix-axis", "frontend/quantize_matrix.c", "*axis = 1 - *axis;", "*axis = *axis;", R)
defect("matrix-unread", "frontend/builtin_shape.c", "if (call->builtin->which) table = quantize_table(b, table, call->loc);", "", R)
defect("matrix-order", "runtime/command/quantize_layers.c", "return layer->is_turned ? i % r->columns * r->rows + i / r->columns : i;", "return i;", R)
defect("matrix-scales", "runtime/checkpoint/weight_packed.c", "p->rows_of_scale = p->rows / of->dim[0];", "p->rows_of_scale = p->rows;", R)
R = "py test/num/few_rows.py"
defect("few-rest", "kernels/gemm_few_x86.c", "((uint16_t *)part)[i] = ((const uint16_t *)from)[i];", "((uint16_t *)part)[i] = i ? ((const uint16_t *)from)[i] : 0;", R)
defect("turned-gradient", "passes/storage.c", "plain_of(t, dot->input[1]), plain_of(t, dot->input[0]),", "plain_of(t, dot->input[0]), plain_of(t, dot->input[1]),", "py test/e2e/storage.py")
defect("few-batch", "kernels/gemm_few_x86.c", "few_at(type, args[p->arg_b], block->batch * p->k * p->n)", "few_at(type, args[p->arg_b], 0)", R)

# ── codegen: the CPU ──
defect("kept-elsewhere", "codegen/own_index.c", "is_other[input] |= !is_reduce && (is_other[i] || (is_own[i] && !hands_on(node)));",
       "is_other[input] |= !is_reduce && is_other[i];\n      is_own[input] |= is_own[i];", "py test/num/moves.py")
# an expensive value is kept where it has as many elements as the kernel walks over, wherever it is read: issue 10, A1
defect("kept-by-count", "codegen/host_row.c", "    if (!is_own[i] || first[i] == last[i] || !row_is_worth_keeping(node, is_expensive) ||\n",
       "    (void)is_own, (void)is_expensive, (void)row_is_worth_keeping;\n    if (shape_elements(&node->type.shape) != row->rows * row->row_elements ||\n"
       "        first[i] == last[i] || !host_is_expensive(node->op) ||\n", "py test/num/moves.py")
defect("store-before-read", "codegen/host.c",
       "value[i] = emit_value(e, kernel->body->roots.at[i].node, index);\n  for (int i = 0; i < count; i++)\n    if (value[i])\n",
       "if ((value[i] = emit_value(e, kernel->body->roots.at[i].node, index)))\n", RANDOM)
defect("column-short-part", "codegen/host_column.c", "to = emit_min(e, emit_add(e, from, emit_index_const(e, column->part_rows)), to);",
       "to = emit_add(e, from, emit_index_const(e, column->part_rows));", "py test/num/ops.py")
defect("column-extreme", "codegen/host_column.c", "all->at[extreme].value = load_buffer(column, extreme, local);",
       "(void)local, all->at[extreme].value = load_buffer(column, extreme, place);", "py test/num/ops.py")
defect("column-slot", "codegen/host_column.c", "(int64_t)i * column->parts * sums * 8", "(int64_t)i * sums * 8", "py test/num/ops.py")
defect("argmax-depth", "codegen/reductions.c", "DT_I32, stage + 1, extreme", "DT_I32, stage, extreme", "py test/num/ops.py")

# ── codegen: the GPU, run by the simulator ──
defect("row-parts", "codegen/nvptx_row.c", "for (int mask = lanes / 2; mask >= 1; mask /= 2)", "for (int mask = lanes / 2; mask > 1; mask /= 2)", "unit codegen_nvptx")
defect("row-barrier", "codegen/nvptx_row.c", "  entry_end_if(entry, after);\n  entry_barrier(entry);\n  LLVMValueRef total",
       "  entry_end_if(entry, after);\n  LLVMValueRef total", "unit codegen_nvptx")
defect("column-barrier", "codegen/nvptx_column.c", "  entry_barrier(entry);\n  for (int i = 0; i < count * c->width; i++) {\n    LLVMValueRef total",
       "  for (int i = 0; i < count * c->width; i++) {\n    LLVMValueRef total", "unit codegen_nvptx")
defect("column-valid", "codegen/nvptx_column.c", "valid[u] = c->rows % unit ? entry_less(entry, row, c->end) : NULL;", "valid[u] = NULL;", "unit codegen_nvptx")
defect("row-sums-rows", "codegen/nvptx_row.c", "entry_and(entry, r->row_valid, r->valid[e]));\n  if (r->sums.count) r->meets", "r->valid[e]);\n  if (r->sums.count) r->meets", "unit codegen_nvptx")
defect("row-sums-teams", "codegen/nvptx_row_sums.c", "for (int t = 1; t < teams; t++)", "for (int t = 1; t < teams - 1; t++)", "unit codegen_nvptx")
defect("row-sums-parts", "codegen/nvptx_row_sums.c", "if (is_there) value = LLVMBuildSelect(entry->b, is_there, value, zero, \"\");", "(void)zero;", "unit codegen_nvptx")
defect("row-sums-barrier", "codegen/nvptx_row_sums.c", "  entry_barrier(entry);\n", "", "unit codegen_nvptx")
defect("row-sums-pattern", "passes/fuse_group.c", "pattern[0] != -rows->reduced ||\n               pattern[1] != length", "false", "lit passes/row_sums.ftir")
defect("product-maxima-join", "kernels/gemm_columns.h", "if (is_maximum(number) && a > b) return a;", "if (is_maximum(number) && a < b) return a;", "py test/e2e/column_sums.py")
defect("product-maxima-number", "codegen/nvptx_sums.c", "? c->totals - c->maxima + maxima : totals;", "? maxima : totals;", "py test/e2e/column_sums.py")
defect("product-sums-batch", "passes/fuse_prepare.c", "return form.batch == 1 && dot", "return dot", "lit passes/row_sums.ftir")
defect("turn-source", "codegen/turn.c", "turn->source[i] += place[j] < place[i];", "turn->source[i] += place[j] > place[i];", RANDOM)

# ── kernels ──
defect("gpu-model-last-round", "plan/gpu_model.c", "if (!rest && full) full--, rest = at_once;", "if (false) full--, rest = at_once;", "unit plan_gpu_model")
defect("math-contract", "CMakeLists.txt", "list(APPEND flags -ffp-contract=on)", "list(APPEND flags -ffp-contract=fast)", "lit codegen/math_contract.ft")
defect("conv-stride", "codegen/nvptx_contract.c", "{\"gemm_stride_width\", f->stride[1]}", "{\"gemm_stride_width\", f->stride[0]}", "unit codegen_nvptx")
defect("layout-places", "passes/layout_choose.c", "&& extent(reshape, 1) == extent(from, 1);", ";", "py test/num/functions.py")
defect("layout-order", "passes/layout.c", "d == 1 ? rank - 1 : d - 1;", "d == 1 ? rank - 1 : 5 - d;", "lit passes/layout_places.ftir")
defect("layout-axes", "passes/layout.c", "reduced[layout_place(rank, (int)old->attr[i].ints[k])] = true;", "reduced[layout_place(4, (int)old->attr[i].ints[k])] = true;", "py test/num/functions.py")
defect("layout-argmax", "passes/layout_choose.c", "return is_any_order ? l->chosen[operand->id].fold[d] : (Fold){0};",
       "return is_any_order || d >= 0 ? f->home[operand->id].fold[d] : (Fold){0};", "py test/num/ops.py")

# ── the parts of a batch ──
A, AT = "passes/optimizer_accumulate.c", "py test/random/daily.py"
defect("sums-kept", "codegen/lower.c", "  if (good && program->micro) clear_sums(&lowering, program->train);\n", "", AT)
defect("parts-factor", A, "return factor ? times_factor(u, sum, factor) : sum;", "return factor && is_micro ? times_factor(u, sum, factor) : sum;", AT)
defect("part-overwrites", A, "totals[i] = update_add(u, before, grads->input[i]);", "totals[i] = is_micro ? grads->input[i] : update_add(u, before, grads->input[i]);",
       AT)

# ── runtime ──
defect("order-repeats", "runtime/common/order.c", "low ^= mix(high ^ order->key[round + 1]) & low_mask;", "low = mix(high ^ order->key[round + 1]) & low_mask;",
       "unit runtime_order")
defect("order-epoch", "runtime/common/order.c", "uint64_t state = mix(mix(seed) ^ epoch);", "uint64_t state = mix(mix(seed));", "unit runtime_order")
defect("loader-start", "runtime/data/loader.c", "return (batch * options->ranks + options->rank) * options->batch;",
       "return (batch * options->ranks + options->rank) * (options->batch - 1);", "unit runtime_loader")
defect("loader-slot-early", "runtime/data/loader.c", "int64_t free_until = atomic_load(&loader->consumed) + slots;", "int64_t free_until = atomic_load(&loader->consumed) + slots + 1;", "unit runtime_loader")
defect("loader-wake", "runtime/data/loader.c", "if (loader->consumer_waits) pthread_cond_signal(&loader->has_filled);", "", "unit runtime_loader")
defect("permute-inverse", "runtime/common/permute.c", "Storage back = storage_inverse(&tensor->storage);", "Storage back = tensor->storage;", "unit runtime_permute")
defect("half-rounding", "runtime/common/round_half.h", "magnitude += 0xfff + (magnitude >> 13 & 1);", "magnitude += 0x1000;", "unit runtime_npy")
defect("big-endian", "runtime/common/element.c", "at[is_big_endian ? bytes - 1 - i : i]", "at[i]", "unit runtime_npy")
defect("normal-angle", "runtime/execute/init.c", "cos(6.283185307179586 * word[1] * 0x1p-32)", "cos(1.5707963267948966 * word[1] * 0x1p-32)", "unit runtime_init")
defect("truncated-two", "runtime/execute/init.c", "if (fabs(value) <= 2) return value;", "if (value <= 2) return value;", "unit runtime_init")
defect("claim-twice", "runtime/device/cpu/dev_cpu.c", "return seen < ticket && atomic_compare_exchange_strong(&state->ticket, &seen, ticket);",
       "return seen <= ticket && atomic_compare_exchange_strong(&state->ticket, &seen, ticket);", "unit runtime_exec")
defect("walk-ready", "runtime/device/cpu/dev_cpu.c", "if (!is_done(walk, task->after[i])) return false;", "if (i > 0 && !is_done(walk, task->after[i])) return false;",
       "unit runtime_exec")
defect("walk-done", "runtime/device/cpu/dev_cpu.c", "    if (!is_part_done(walk, index, part)) return false;", "    if (part == 0 && !is_part_done(walk, index, part)) return false;",
       "unit runtime_exec")
defect("scratch-of-part", "runtime/device/cpu/dev_cpu.c", "run_task(graph, &graph->task[task], part, walk->thread, walk->ticket);", "run_task(graph, &graph->task[task], part, part, walk->ticket);",
       "py test/e2e/limits.py")
defect("order-readers", "plan/plan_order.c", "for (int i = 0; i < piece->readers.count; i++) need(finder, step, piece->readers.at[i]);", "",
       "unit plan_order")
defect("order-call", "plan/plan_order.c", "for (int k = 0; k < finder->insteads_by_end[i]->call_count; k++)", "for (int k = 1; k < finder->insteads_by_end[i]->call_count; k++)",
       "unit plan_order")
defect("writes-role", "plan/plan_writes.c", "if (role == ROLE_NONE || role_has(role, w->by)) return NULL;", "return NULL;",
       "unit plan_kinds")
defect("writes-once", "plan/plan_writes.c", "if (span_bytes(&w->of[place].twice, begin, begin + bytes))", "if (false)",
       "unit plan_kinds")
defect("writes-sums", "plan/plan_writes.c", "if (wrong < 0 && !clears && !adds(plan, graph, step, &read)) wrong = i;", "",
       "unit plan_kinds")
defect("sample-top-p", "runtime/command/sample.c", "(among == 0 || sum < options->top_p * total)", "(among == 0 || sum < options->top_p)", "unit runtime_sample")
defect("sample-ties", "runtime/command/sample.c", "return x < y ? -1 : x > y;", "return x > y ? -1 : x < y;", "unit runtime_sample")
defect("checkpoint-copy", "runtime/checkpoint/ckpt_writer.c", "ckpt_file_write(writer->file[i].file, writer->snapshot, 0)", "ckpt_file_write(writer->file[i].file, NULL, 0)", "unit runtime_ckpt_writer")
defect("checkpoint-waits", "runtime/checkpoint/ckpt_writer.c", "STATUS_TRY(ckpt_writer_result(writer, true));", "STATUS_TRY(ckpt_writer_result(writer, false));", "unit runtime_ckpt_writer")
defect("reserved-waits", "runtime/device/cpu/dev_cpu.c", "(seen = atomic_load(ticket)) <= walk->ticket;", "(seen = atomic_load(ticket)) < 1;", "unit runtime_reserved")
defect("rounded-average", "runtime/execute/exec_round.c", "if (exec->rounded[p] == from) continue;", "if (exec->rounded[p] >= 0) continue;",
       "py test/e2e/precision.py")
defect("ranks-total", "passes/totals_parts.c", "return p->is_micro ? now : totals_over_ranks(t, op, now);", "return now;", "unit passes_ranks")
defect("ranks-share", "passes/totals_parts.c", "    rest = totals_share(&p->t, rest);\n", "", "unit passes_ranks")
defect("ranks-number", "passes/totals.c", "if (t->ranks) batch = make_binary(graph, OP_MUL, batch, t->ranks);", "", "unit passes_ranks")
defect("ranks-random", "passes/totals_ranks.c", "make_binary(fresh, OP_MUL, before, count)};", "make_binary(fresh, OP_MUL, before, make_like(fresh, count, 0))};", "unit passes_ranks")
defect("ranks-first", "passes/fuse_body.c", "for (int i = 0; i < node->input_count; i++)\n      inputs[i] =\n",
       "for (int i = 0; i < 2; i++)\n      inputs[i] =\n", "unit passes_ranks")
defect("ranks-rounding", "passes/shard_random.c", "(double)(param->alone - param->begin)", "(double)(-param->begin)", "unit passes_ranks")
defect("ranks-matrices", "passes/optimizer_muon.c", "make_like(u->graph, first, (double)run->share)", "make_like(u->graph, first, 1)", "unit passes_ranks")
defect("ranks-exchanged", "passes/shard_matrices.c", "x = make_transpose(fresh, x, exchange_two);", "(void)exchange_two;", "unit passes_ranks")
PR = "py test/e2e/prune_ranks.py"
defect("prune-number", "passes/prune_ranks.c", "times_number(u, all_of_rank(u, MESH_DATA, number), share->own)", "times_number(u, all_of_rank(u, MESH_DATA, number), share->local)", PR)
defect("prune-counted-twice", "passes/prune_ranks.c", "if (ranks == 1) return is_here;", "if (ranks >= 1) return is_here;", PR)
defect("prune-counts", "passes/prune_select.c", "if (m->join) counts = m->join(m->user, counts);", "", PR)
defect("zero-frozen-stage", "passes/shard.c", "return end || !pack ? end : pack->type.shape.dim[0];", "return end;", "py test/e2e/freezing.py")
defect("prune-frozen-stage", "passes/prune.c", "    count_for_others(u);\n", "    if (u->mask) count_for_others(u);\n", PR)
defect("prune-cut", "passes/prune_ranks.c", "return row_of_rank(u, x, share->tensor, MESH_TENSOR);", "return row_of_rank(u, x, share->tensor, MESH_DATA);", PR)
defect("prune-stages", "passes/prune.c", "(t->of_stages ? node_attr(one->param, ATTR_START)->ints[0] : before)", "before", PR)
defect("prune-norms", "passes/chunks.c", "choice->is_within[k] = true;", "choice->is_within[k] = false;", PR)
defect("ranks-statistics", "passes/totals_ranks.c", "inputs[k] = for_all_samples(s, old->input[k], inputs[k]);", "(void)for_all_samples;", "unit passes_ranks")
defect("ranks-parts", "passes/totals_parts.c", "if (!totals_average_states(t)) return false;", "if (!p.is_micro && !totals_average_states(t)) return false;", "unit passes_ranks")
defect("tensor-objective", "passes/tensor.c", "(t->fresh, objective, 1.0 / (double)t->cuts.ranks)", "(t->fresh, objective, 1.0)", "unit passes_ranks")
defect("tensor-rows", "passes/tensor.c", "index = make_binary(t->fresh, OP_SUB, index, first);", "(void)first;", "unit passes_ranks")
defect("tensor-random", "passes/tensor.c", "(double)(whole - inner)", "(double)inner", "unit passes_ranks")
defect("tensor-scatter", "passes/tensor.c", "  made = ranks_exchanged(t, make_reshape(t->fresh, share, tensor_runs(t, old, t->cuts.ranks)));", "  made = share;", "unit passes_ranks")
defect("tensor-rounding", "passes/shard_random.c", "(double)(param->runs - param->run)", "(double)(param->run * p->tensor)", "unit passes_ranks")
defect("tensor-matrices", "passes/optimizer_muon.c", "back[] = {2, 0, 1, 3};", "back[] = {2, 1, 0, 3};", "unit passes_ranks")
defect("tensor-shares", "passes/precision.c", "|| p->is_share[node->id];", ";", "unit passes_ranks")
defect("tensor-iota", "passes/tensor.c", "(double)(cut.run * (t->cuts.ranks - 1))", "(double)cut.run", "unit passes_ranks")
defect("tensor-uneven-sum", "passes/tensor.c", "return is_clean ? own : without_behind(t, operand, cut, own, node->op);", "return is_clean ? own : without_behind(t, operand, cut, own, OP_PROD);", "unit passes_ranks")
defect("tensor-uneven-gradient", "passes/tensor.c", "return make_select(t->fresh, within, part, same);", "return (void)within, (void)same, part;", "unit passes_ranks")
defect("tensor-uneven-random", "passes/tensor.c", "if (!is_uneven(t, random)) whole = inner * t->cuts.ranks;", "whole = inner * t->cuts.ranks;", "unit passes_ranks")
defect("tensor-uneven-rounding", "passes/shard_random.c", "runs = run / cut->ints[1] * cut->ints[2];", "runs = runs + 0;", "unit passes_ranks")
defect("tensor-uneven-file", "runtime/execute/exec_parts.c", "runs.step = cut->length * unit;", "runs.step = runs.step + 0;", "unit runtime_ckpt_list")
defect("shard-joined-part", "passes/shard_join.c", "int64_t start[] = {0, joined->begin};", "int64_t start[] = {0, 0};", "unit passes_ranks")
defect("shard-joined-whole", "passes/shard_join.c", "int64_t start[] = {0, joined->begin}, parts[]", "int64_t start[] = {0, 0}, parts[]", "unit passes_ranks")
defect("tensor-norm", "passes/optimizer_groups.c", "if (ranks > 1) flat = update_piecewise_scaled(u, flat, shares);", "", "unit passes_ranks")
defect("tensor-heads", "passes/tensor_cut.c", "*out = (Cut){1, have / t->ranks};", "*out = (Cut){1, cut.run};", "unit passes_ranks")
defect("tensor-slice", "passes/tensor_cut.c", "start % group == 0;", "start % cut.run == 0;", "unit passes_ranks")
defect("zero-index", "passes/shard.c", "make_like(s->fresh, index, (double)s->ranks)", "make_like(s->fresh, index, 1)", "unit passes_ranks")
defect("zero-total", "passes/shard.c", "Node *all = make_all_reduce(s->fresh, reduce->op, own);", "Node *all = make_all_reduce(s->fresh, OP_RMAX, own);", "unit passes_ranks")
defect("zero-sums", "passes/shard.c", "node_int(state, ATTR_OFFSET, 0) + s->elements / s->ranks;", "node_int(state, ATTR_OFFSET, 0);", "py test/e2e/ranks.py")
defect("zero-part", "runtime/execute/exec_parts.c", "int64_t part = type_bytes(&type), first = part * exec_rank(exec), left", "int64_t part = type_bytes(&type), first = part * (exec_rank(exec) / 2), left", "py test/e2e/ranks.py")
defect("ranks-nothing", "passes/optimizer_accumulate.c", "return make_select(u->graph, is_none, sums, update_scaled(u, sums, factor));", "(void)is_none;\n  return update_scaled(u, sums, factor);", "unit passes_ranks")
defect("ranks-bucket", "passes/allreduce.c", "if (k && a->of_operand[k] != a->of_operand[k - 1]) first = k;", "", "unit passes_ranks")
defect("read-unwritten", "plan/plan_order.c", "if (!(piece->has & (by == HAS_STEP ? HAS_STEP : HAS_STEP | HAS_CALL))) return i;", "(void)by;", "unit plan_kinds")
defect("window-bytes", "plan/plan_parse.c", "buffer.place = plan_whole_place(p->plan, buffer.place, &buffer.offset);", "", "unit plan_places")
defect("window-overlap", "plan/plan_parse.c", "int place = plan_whole_place(p->plan, next->place, &at);", "int place = next->place;", "unit plan_places")
defect("window-inside", "plan/plan_place.c", "if (place->bytes <= of->bytes && place->offset <= of->bytes - place->bytes)", "if (place->bytes <= of->bytes)", "unit plan_places")

# ── plan/comm_cost.c, simulate/ ──
CC = "plan/comm_cost.c"
defect("cost-ring-hops", CC, "double between = rounds * (f->nodes - 1);", "double between = f->nodes - 1;", "unit plan_comm_cost")
defect("cost-bus-bandwidth", CC, "double network = fabric->network * fabric->local;", "double network = fabric->network;", "unit plan_comm_cost")
defect("cost-levels-part", CC, "ring_seconds(&out, rounds, bytes / f->local)", "ring_seconds(&out, rounds, bytes)", "unit plan_comm_cost")
defect("bucket-root", CC, "sqrt((double)total * latency / slope)", "sqrt((double)total * latency * slope)", "unit plan_comm_cost")
TL = "simulate/timeline.c"
defect("timeline-waits-for-all", TL, "if (!has_come && takes_part(s, collective)) return false;", "(void)has_come;", "unit simulate_timeline")
defect("timeline-first-ready", TL, "if (task[i].queue != TIMELINE_COMPUTE || !timeline_is_ready(s, i)) continue;",
       "if (task[i].queue != TIMELINE_COMPUTE || s->begun[i]) continue;", "unit simulate_timeline")
defect("timeline-both-busy", TL, "both += to - from;", "both += to;", "unit simulate_timeline")
defect("cluster-bits", "simulate/cluster.c", '{"Gb", 1e9 / 8}', '{"Gb", 1e9}', "unit simulate_cluster")
defect("cluster-twice", "simulate/cluster.c", "if (words->is_set[key]) return", "if (words->is_set[key] && key > 2) return", "unit simulate_cluster")
defect("stages-gradient", "passes/autodiff.c", "  receive_gradients(graph, forward, gradient);\n", "", "unit passes_stages")
defect("unroll-rows", "passes/unroll.c", "input->type.shape.dim[0] * u->micro", "input->type.shape.dim[0] * (u->micro & 1)", "unit passes_stages")
defect("unroll-states", "passes/unroll.c", "    u->values.at[index] = map[root->node->id];\n", "", "unit passes_stages")
defect("pipeline-once", "passes/optimizer_accumulate.c", "Node *sum = make_binary(fresh, OP_ADD, before, inputs[0]);", "Node *sum = inputs[0];", "unit passes_stages")
defect("pipeline-norm", "passes/optimizer_groups.c", "if (stages > 1) {", "if (stages > 64) {", "unit passes_stages")
defect("pipeline-tasks", "passes/schedule.c", "  s->task = tasks.task;\n", "", "unit passes_stages")
defect("pipeline-order", "passes/tasks.c", "int64_t end = phase == 1 ? sent_at(p, &m) : 0", "int64_t end = 0", "unit passes_stages")
defect("pipeline-interleave", "plan/pipeline_order.c", "if (kind == BACKWARD) own = p->chunks - 1 - own;", "", "unit plan_pipeline_order")
defect("pieces-slice", "passes/pieces.c", "start[cut.dim] = piece * cut.run;", "start[cut.dim] = piece / 2 * cut.run;", "unit passes_pieces")
defect("pieces-random", "passes/pieces.c", "(double)(piece * shape_elements(&type.shape)))};", "(double)piece)};", "unit passes_pieces")
defect("pieces-fused", "passes/fuse_group.c", "x->piece && y->piece && x->piece != y->piece;", "x->piece && y->piece && x->piece > y->piece + 9;", "lit passes/pieces.ft")
defect("pieces-put-together", "passes/pieces.c", "attr_int(ATTR_AXIS, p->cuts.cut[node->id].dim)", "attr_int(ATTR_AXIS, 0)", "unit passes_pieces")
defect("pieces-waited", "passes/schedule.c", "if (wait_a != wait_b) return wait_a < wait_b;", "if (wait_a != wait_b) return wait_a > wait_b;", "lit passes/pieces.ft")
defect("collectives-late", "passes/schedule.c", "return node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER || op_is_message(node->op);", "return node->op == OP_REDUCE_SCATTER || op_is_message(node->op);",
       "lit passes/allreduce_early.ft")
defect("bucket-waits-for-later", "passes/allreduce.c", "if (more > spare || next->id > latest) break;", "if (more > spare) break;", "lit passes/allreduce_late.ft")
defect("bucket-last-large", "passes/allreduce.c", "int64_t most = behind > size.last ? behind : size.last;", "int64_t most = size.bytes + behind;",
       "lit passes/allreduce_early.ft")
defect("cluster-stride", "simulate/cluster.c", "together = fabric.local / mesh_stride(mesh, axis);", "together = fabric.local;", "unit simulate_cluster")
F, FT = "passes/float8.c", "py test/e2e/float8_gpt.py"
defect("float8-format", F, "is_gradient ? OP_ROUND_E5M2 : OP_ROUND_E4M3", "is_gradient && x->id < 0 ? OP_ROUND_E5M2 : OP_ROUND_E4M3", FT)
defect("float8-end", F, "rounding == OP_ROUND_E4M3 ? FLOAT8_LARGEST_E4M3 : FLOAT8_LARGEST_E5M2", "rounding == OP_ROUND_E4M3 ? FLOAT8_LARGEST_E4M3 : 49152", FT)
defect("float8-scale-of-another", F, "factor = factor ? make_binary(fresh, OP_MUL, factor, inverse) : inverse;",
       "factor = factor && old->origin.is_backward ? factor : factor ? make_binary(fresh, OP_MUL, factor, inverse) : inverse;", FT)
defect("float8-rounded-gradient", "passes/precision.c", "p->share[i] = is_gradient ? NULL : share;", "p->share[i] = is_gradient && i < 0 ? NULL : share;", FT)
FD, FDT = "passes/float8_delayed.c", "py test/e2e/float8_delayed.py"
defect("float8-delayed-now", FD, "make_reduce(graph, OP_RMAX, history, (int64_t[]){0}, 1)", "make_reduce(graph, OP_RMAX, make_state(graph, ROLE_FLOAT8, HISTORY, history->type, 0), (int64_t[]){0}, 1)", FDT)
defect("float8-delayed-first", FD, "make_select(graph, is_first, make_like(graph, before, 0), before);", "make_select(graph, is_first, before, before);", FDT)
defect("float8-delayed-part", FD, "largest = make_binary(graph, OP_MAX, before, largest);", "largest = make_binary(graph, OP_MAX, largest, largest);", FDT)
defect("float8-delayed-ranks", FD, "setting_ranks(settings) != 1 ? make_all_reduce", "setting_ranks(settings) < 0 ? make_all_reduce", FDT)
defect("float8-delayed-unknown", FD, "make_binary(graph, OP_AND, is_some, make_unary(graph, OP_ISFINITE, largest))", "is_some", FDT)
defect("float8-delayed-twice", "frontend/tensor.c", "b->product_uses.at[place]++);", "b->product_uses.at[place]);", "lit frontend/product_numbers.ft")
# ── products of whole numbers on GPUs ──
SP, SPU, SPN = "kernels/sparse_ptx.c", "unit codegen_sparse", "py test/num/sparse.py"
defect("sparse-four", SP, "return number % 2 * 4 + number / 2;", "return number;", SPU)
defect("sparse-halves", SP, "out[2] = is_odd ? own[1] : got[0];", "out[2] = is_odd ? own[1] : got[1];", SPU)
defect("sparse-places", SP, "places[i / 4] |= place << i % 4 * 4;", "places[i / 4] |= place << i % 4 * 2;", SPU)
defect("sparse-last", SP, "if (first == 3) first = 2, value[1] = value[0], value[0] = 0;", "if (first == 3) first = 2;", SPN)
defect("sparse-three", SP, "return count > 2 ? 0x7fff7fff :", "return", SPN)
defect("sparse-column", SP, "int row = column % ROWS, half = column % COLUMNS / ROWS;", "int row = column % ROWS, half = column / ROWS % 4 / 2;", SPU)
defect("sparse-rest", SP, "k < gemm_k() && column < gemm_n() ? b[k * apart] : 0;", "column < gemm_n() ? b[k * apart] : 0;", SPN)
defect("sparse-row", SP, "if (row >= gemm_m() || k >= gemm_k()) return out;", "if (row >= gemm_m()) return out;", SPN)
defect("sparse-layout", "passes/layout_choose.c", "if (rounded_in_groups(dot) || sparse_has_kernel(dot))", "if (rounded_in_groups(dot))", SPN)
defect("sparse-read", "passes/sparse.c", "if (!passes_on && !(is_product && k == 1)) is_read", "if (0) is_read", "lit passes/sparse.ftir")
defect("sparse-across", "passes/sparse.c", "is_across != form.tb && !form.ta &&", "!form.ta &&", "lit passes/sparse.ftir")
defect("sparse-narrow", "passes/narrow.c", "if (!is_cast_param(old, pass->dtype) || pass->is_packed[old->id]) return NULL;", "if (!is_cast_param(old, pass->dtype)) return NULL;", SPN)
defect("sparse-deploy", "runtime/command/deploy_sparse.c", "if (kept > KEPT) return false;", "if (kept > KEPT + 1) return false;", SPN)
defect("sparse-found", "runtime/command/deploy_sparse.c", "first < columns; first += FOUR", "first < FOUR; first += FOUR", SPN)
defect("sparse-sim", "runtime/device/sim/sim_lanes_warp.inc", "metadata[l / 4 * 4 + in->sub * 2 + four / 4]", "metadata[l / 4 * 4 + four / 4]", "unit runtime_sim_warp")
GW, WN, NI = "kernels/gemm_whole.h", "unit codegen_whole", "py test/num/integers.py"
defect("whole-signs", "codegen/nvptx_whole.c", "range[0] < 0, range[2] < 0);", "range[2] < 0, range[0] < 0);", WN)
defect("whole-row-fault", GW, "if (is_row_faulty(args, batch, row[i])) faults", "if (is_row_faulty(args, batch, row[i]) > 1) faults", WN)
defect("whole-tail", GW, "x[e] = k + e < gemm_run() ? row[k + e] : 0;", "x[e] = row[k + e];", WN)
defect("whole-across", GW, "fault |= memory[i * PACK_LANES + thread];", "fault |= memory[i * PACK_LANES];", WN)
defect("whole-combine", "kernels/gemm_operand.h", "place % across * group_width(), sum);", "place % across, sum);", WN)
defect("whole-range", GW, " || whole < low || whole > (is_a ? gemm_a_high() : gemm_b_high());", " || whole < low;", NI)
defect("whole-nan", GW, "int is_nan = gemm_b_is_sure() && gemm_faults_b(args)[batch * gemm_n() + column[e]];", "int is_nan = 0;", NI)
defect("whole-library", "codegen/library.c", "node_attr(p->product, ATTR_INTEGERS) ||", "(0 && node_attr(p->product, ATTR_INTEGERS)) ||", NI)
defect("store-fence", "runtime/device/sim/sim_lanes_tensor.inc", "if (w->cta->dirty[at >> 2]) {", "if (0) {", "unit runtime_sim_store")
defect("store-reader", "runtime/device/sim/sim_touch.h", "if (t->is_shared && who == TOUCH_ASYNC) return CLASH_STORED;", "", "unit runtime_sim_store")
defect("store-reader-many", "runtime/device/sim/sim_touch.h", "if (is_store && r_mine && touch_thread(y) == TOUCH_ASYNC) return false;", "", "unit runtime_sim_store")
defect("store-reader-warp", "runtime/device/sim/sim_touch.h", "((y >> TOUCH_OWNER == now >> TOUCH_OWNER) & (b == TOUCH_ASYNC)));", "(uint64_t)0);", "unit runtime_sim_store")
defect("store-group", "runtime/device/sim/sim_lanes_tensor.inc", "copy->group < w->stored_groups[lane] - in->imm;", "copy->group <= w->stored_groups[lane] - in->imm;", "unit runtime_sim_store")
defect("store-swizzle", "runtime/device/sim/sim_bulk.c", "uint32_t from = tensor_swizzled(map, copy->to +", "uint32_t from = (copy->to +", "unit runtime_sim_store")
defect("store-early", "runtime/device/sim/sim_lanes_tensor.inc", "if (!copy->has_arrived) sim_bulk_store(cta, copy);", "", "unit runtime_sim_store")
defect("store-target", "runtime/device/sim/sim_lanes_tensor.inc", "if (wide && !tensor_target(w, in, l, to, wide)) return NULL;", "", "unit runtime_sim_store")
defect("stmatrix-order", "runtime/device/sim/sim_decode_warp.c", "*is_turned = true, at += strlen(\".trans\");", "at += strlen(\".trans\");", "unit runtime_sim_store")
defect("stmatrix-across", "runtime/device/sim/sim_lanes_warp.inc", "row[in->mode ? minor : major][in->mode ? major : minor] =", "row[major][minor] =", "unit runtime_sim_store")
defect("stmatrix-writer", "runtime/device/sim/sim_lanes_warp.inc", "if (!touch_run(w, &store, &touches, (int64_t)at, &lanes, 4)) return NULL;", "", "unit runtime_sim_store")
defect("label-block", "runtime/device/sim/sim_parse.c", "for (int block = jump->block; block >= 0 && p->labels.count; block = p->around.at[block]) {", "for (int block = 0; block >= 0 && p->labels.count; block = p->around.at[block]) {", "unit runtime_sim_store")
defect("whole-sim-signs", "runtime/device/sim/sim_lanes_warp.inc", "int bit = is_b ? 1 : 2;", "int bit = is_b ? 2 : 1;", "unit runtime_sim_warp")
defect("place-image", GW, "fault |= faults[place.image * gemm_in_height() + y];", "fault |= faults[y];", WN)
defect("place-stride", GW, "place.y * gemm_stride_height() - gemm_pad_top() + window * gemm_dilation_height();", "place.y - gemm_pad_top() + window * gemm_dilation_height();", WN)
defect("place-group", GW, "(x * gemm_groups() + group) * gemm_run();", "x * gemm_groups() * gemm_run();", WN)
defect("place-packed", GW, "gemm_b_row_bytes() + at;", "gemm_b_row_bytes() + window * gemm_run();", WN)
defect("place-joined", GW, "lane / each * (is_a ? gemm_source_dilation() : 1)", "lane / each", WN)
defect("place-margin", GW, "- (is_a ? gemm_source_pad() : 0);", ";", WN)
defect("place-line", GW, "(unsigned)across < (unsigned)(is_a ? gemm_source_width() : gemm_source_kernel());", "across >= 0;", WN)
defect("place-width", "codegen/nvptx_whole.c", "f->in_width += f->padding[1];", "", WN)
defect("place-kernel", "codegen/nvptx_whole.c", "(f->kernel_width + c->joined - 1) / c->joined;", "f->kernel_width / c->joined;", WN)
defect("place-kind", "passes/integers.c", "for_gpu ? f->groups == 1 || f->in >= INTEGERS_LEAST_CHANNELS", "for_gpu ? f->groups == 1", NI)
# ── products by rounded weights on GPUs ──
RP, RU, NR = "kernels/rounded_ptx.c", "unit codegen_rounded", "py test/num/rounded.py"
defect("rounded-last-bits", RP, "out[2][0] = pair(last[0], last[1])", "out[2][0] = 0", NR)
defect("rounded-stage", RP, "multiply_staged_block(memory + at * stage", "multiply_staged_block(memory", RU)
defect("rounded-scale-lane", RP, "unit % 2 * COLUMNS + half * ROWS + lane / 4", "half * ROWS + lane / 4", RU)
defect("rounded-infinite", RP, "rest[i] = last[i] = 0;", "last[i] = 0;", NR)
defect("rounded-nan", RP, "if (size != size) return size;", "", NR)
defect("rounded-tail", RP, "first + gemm_room() : gemm_blocks() * block_steps();", "first + gemm_room() : first + gemm_room();", RU)
defect("rounded-beyond", RP, "row < gemm_m() ? gemm_group() - of : 0;", "row < gemm_m() ? 4 : 0;", RU)
defect("rounded-parts", RP, "begin = batch_split % gemm_splits() * part;", "begin = 0;", RU)
defect("rounded-halves", RP, "number[0] | number[2] << 4", "number[0] | number[1] << 4", RU)
defect("rounded-room", "codegen/nvptx_rounded.c", "while (p.room % p.unit) p.unit /= 2;", "while (p.room % p.unit > STEP) p.unit /= 2;", RU)
STALLS = "py test/e2e/stalls.py"
defect("stalls-blind", "runtime/common/watchdog.c", "|| now[1] != seen[1]) still", ") still", STALLS)
defect("stalls-batch-unwatched", "runtime/execute/feed.c", 'watchdog_begin("a batch"', 'if (0) watchdog_begin("a batch"', STALLS)
defect("stalls-writer-unwatched", "runtime/checkpoint/ckpt_writer.c", "  begin_wait(writer);\n  pthread_join", "  pthread_join", STALLS)
defect("stalls-checkpoint-untold", "runtime/checkpoint/ckpt_writer.c", "  watchdog_saved(file->info.step, file->folder);", "", STALLS)
defect("stalls-idle-counts", "runtime/common/watchdog.c", "now[0] % 2 == 0 || ", "", STALLS)
defect("waits-progress", "runtime/device/cuda/cuda_wait.c", "if (next == run) {", "if (next >= run) {", "py test/e2e/waits.py")

# ── runtime/device/cuda: the start of a run ──
CS = "py test/e2e/cuda_start.py"
defect("graph-failure-ends-the-run", "runtime/device/cuda/cuda_graph.c", "    return go_on_plainly(graph, steps);", "    return STATUS_FAULT;", CS)
defect("graph-failure-said-each-time", "runtime/device/cuda/cuda_graph.c", "  device->is_plain = true;\n  say_warning", "  say_warning", CS)
defect("graph-lost-when-upload-fails", "runtime/device/cuda/cuda_graph.c", "  STATUS_TRY(cuda_say(device, result, \"making it\"));", "  (void)0;", CS)
defect("graphs-made-late", "runtime/execute/feed.c", "    step += is_one ? count : 1;", "    step += feed->options.end_step;", CS)
defect("graphs-of-other-slots", "runtime/device/cuda/cuda_run.c", "int64_t run = device->runs + ahead;", "int64_t run = device->runs + ahead / 2;", CS)
defect("headroom-forgotten-by-data", "runtime/device/cuda/cuda_data.c", "(uint64_t)(kept->bytes + cuda_headroom(device)) > free_bytes)", "(uint64_t)kept->bytes > free_bytes)", CS)
defect("headroom-forgotten-by-slots", "runtime/device/cuda/dev_cuda.c", "  if (leaves_headroom(device, room)) return;\n", "  if ((uint64_t)device->block_bytes <= room->free) return;\n", CS)
defect("context-not-entered", "runtime/device/cuda/dev_cuda.c", "  if (now != device->context) device->driver->context_set(device->context);", "  (void)0;", "py test/e2e/embed_cuda.py")
defect("context-not-left", "runtime/device/cuda/dev_cuda.c", "  if (context_before != device->context) device->driver->context_set(context_before);", "  (void)device;", "py test/e2e/embed_cuda.py")
defect("context-of-one-call", "runtime/ft.c", "  exec_enter(model->exec);\n  Status status = exec_step(model->exec, &step);", "  Status status = exec_step(model->exec, &step);", "py test/e2e/embed_cuda.py")
CU = "py test/e2e/cubin.py"
defect("cubin-of-other-ptx", "plan/plan_cubin.c", "  if (plan_checksum(text, start) != head.ptx) return cubin;\n", "", CU)
defect("cubin-damaged", "plan/plan_cubin.c", "  if (plan_checksum((const char *)bytes, (size_t)head.bytes) != head.sum) return cubin;\n", "", CU)
defect("cubin-last-bytes", "plan/plan_cubin.c", "left > 2 ? digits[group & 63] : '='", "digits[group & 63]", CU)
defect("cubin-for-another-gpu", "plan/plan_cubin.c", "if (number < 10 || number / 10 != major) return false;", "if (number < 10 || number / 10 > major) return false;", CU)
defect("cubin-refused-ends-the-run", "runtime/device/cuda/cuda_module.c", "  if (!*is_cubin) STATUS_TRY(cuda_module_load(", "  if (!*is_cubin && !artifact->cubin.target) STATUS_TRY(cuda_module_load(", CU)
defect("pieces-without-head", "runtime/device/cuda/cuda_pieces.c", "if (s->is_kernel && s->piece != piece) continue;", "if ((s->is_kernel || i) && s->piece != piece) continue;", "unit runtime_cuda_pieces")
defect("pieces-share-variables", "runtime/device/cuda/cuda_pieces.c", 'line_has(line, ".global") || ', "", "unit runtime_cuda_pieces")
defect("modules-only-the-first", "runtime/device/cuda/cuda_module.c", "i < modules->count && result == CUDA_ERROR_NOT_FOUND; i++", "i < 1; i++", CS)
defect("log-without-spills", "runtime/device/cuda/cuda_module.c", "(void *)(uintptr_t)INFO_BYTES, (void *)(uintptr_t)1}", "(void *)(uintptr_t)INFO_BYTES, (void *)(uintptr_t)0}", CS)
defect("log-without-end", "runtime/device/cuda/cuda_log.c", "Line left = {log, strnlen(log, size)};", "Line left = {log, strlen(log)};", "unit runtime_cuda_log")
defect("log-name-of-another", "runtime/device/cuda/cuda_log.c", "if (log_find(line, properties)) copy_printable(", "if (log_find(line, properties) && !*kernel) copy_printable(", "unit runtime_cuda_log")
defect("wide-operand", "codegen/nvptx_contract.c", "int64_t most = (int64_t)INT32_MAX - 16;", "int64_t most = INT64_MAX / 2;", "py test/e2e/long_rows.py")
REGION, CONV = "kernels/wgmma_region.h", "unit codegen_nvptx"
defect("region-distance", REGION, "line * gemm_dilation_height(), across", "line, across", CONV)
defect("region-back", REGION, "(more_lines() - down) * width + more_columns() - across;", "down * width + across;", CONV)
defect("region-outside", REGION, "int place = is_inside ? ", "int place = is_inside || y < 0 ? ", CONV)
defect("region-swizzle", REGION, "distance_in(window, made_width())) & 7", "distance_in(window, padded_width())) & 7", CONV)
defect("region-swizzle-images", REGION, "lines = line - image * (uint32_t)more_lines();", "lines = line;", CONV)
defect("wgmma-piece", "kernels/wgmma_ptx.h", "    if (!piece(w->thread, c, tile, deep, PIECE, &along, &k)) continue;\n    Element", "    piece(w->thread, c, tile, deep, PIECE, &along, &k);\n    Element", CONV)
PLACES = "py test/random/daily.py"
defect("places-order", "codegen/nvptx_places.c", "place /= domain->tile[i];", "place /= 1;", PLACES)
defect("places-column", "codegen/nvptx_column.c", "nvptx_set_place(&c->domain, u % c->places);", "nvptx_set_place(&c->domain, u / c->places);", PLACES)
defect("places-fold", "codegen/emit.c", "emit_index_const(emitter, more % by);", "emit_index_const(emitter, more % by * 0);", PLACES)
defect("places-fold-quotient", "codegen/emit.c", "emit_index_const(emitter, more / by));", "emit_index_const(emitter, more));", PLACES)
defect("places-phase", "codegen/emit_window.c", "low = high = LLVMConstIntGetSExtValue(walk->phase[i].value);", "high = LLVMConstIntGetSExtValue(walk->phase[i].value), low = high + 1;", PLACES)
defect("places-least", "codegen/emit_window.c", "emit_least(walk->start[i].value) + low - window->pad[i];", "emit_least(walk->start[i].value) + low;", PLACES)
defect("region-late", REGION, "gemm_kernel_width() - gemm_stages() + 2; }", "gemm_kernel_width(); }", CONV)
defect("region-block", REGION, "block % 2 ? bytes : 0", "block % 2 ? 0 : 0", CONV)
defect("region-half", REGION, "row[i] ^ (uint32_t)((half * HALF + s) * 32)", "row[i] ^ (uint32_t)((half + s) * 32)", CONV)
defect("region-size", "codegen/nvptx_region.c", "if (rows > most) most = rows;", "if (row == 0) most = rows;", CONV)
defect("mapped-window", "kernels/wgmma_ptx.h", "gemm_kind() == 2 ? window_of(&w->class, step.tap)", "gemm_kind() == 2 ? step.tap", CONV)
defect("mapped-parity", "kernels/wgmma_ptx.h", "    parity ^= at == 0;\n    ahead", "    ahead", CONV)
PITCH = "unit codegen_pitch"
defect("pitch-end-of-row", "kernels/gemm_panel.h", "return length - (deep ? k : start + along);", "return length - (deep ? k : start + along) + wide;", PITCH)
defect("pitch-result", "codegen/collapse.c", "if (walk->result && walk->result[root].pitch)", "if (walk->result && root < 0)", "py test/e2e/pitch.py")
defect("pitch-map", "codegen/nvptx_map.c", ".dim = {row, rows, c->batches}", ".dim = {row < 0 ? row : operand->pitch, rows, c->batches}", PITCH)
defect("pitch-place", "codegen/emit.c", "emit_mul(emitter, index_linear(emitter, &row), pitch)", "emit_mul(emitter, index_linear(emitter, &row), shape->dim[shape->rank - 1])", PITCH)
defect("pitch-splits", "kernels/gemm_operand.h", "return gemm_m() * gemm_wide_n() / group_width()", "return gemm_m() * gemm_n() / group_width()", PITCH)
defect("pitch-long-rows", "codegen/nvptx_long.c", "entry_mul(entry, row, r->pitch % r->width)", "entry_mul(entry, row, r->length % r->width)", PITCH)
defect("pitch-joined", "passes/pitch.c", "  p->may[x] &= p->may[y];\n", "", "lit passes/pitch.ftir")
defect("pitch-looked-at", "runtime/execute/replay_explain.c", "  if (!type->pitch) return STATUS_OK;\n  char *packed", "  if (type) return STATUS_OK;\n  char *packed", "py test/e2e/pitch.py")
SWA = "py test/e2e/swa.py"
defect("swa-first", "passes/optimizer.c", "update_op(u, OP_GE, nth, first), joins, zero)", "update_op(u, OP_GT, nth, first), joins, zero)", SWA)
defect("swa-count", "passes/optimizer.c", "update_div(u, others, update_add(u, others, one))", "update_div(u, others, update_add(u, nth, one))", SWA)
defect("swa-skipped", "passes/optimizer.c", "if (u->is_finite) step = make_select(graph, is_given, step, ", "if (u->is_finite) step = make_select(graph, is_given, make_cast(graph, update_counter(u, ROLE_STEP, OWN_STEP), DT_F64), ", SWA)
defect("swa-epoch", "passes/optimizer.c", "if (u->is_finite) step = make_select", "if (false) step = make_select", SWA)
defect("swa-epoch-skipped", "passes/optimizer.c", "swa_every_is_given(u), counts, make_like(u->graph, counts, 1))", "swa_every_is_given(u), counts, counts)", SWA)
ST, STT = "frontend/statistics.c", "py test/e2e/running_statistics.py"
defect("statistics-count", ST, 'arith_binary(b, "+", value_tensor(count), value_int(1), call->loc)', 'arith_binary(b, "+", value_tensor(count), value_int(2), call->loc)', STT)
defect("statistics-first", ST, "tensor_select(b, is_first, value, next.node, call->loc)", "tensor_select(b, is_first, next.node, next.node, call->loc)", STT)
defect("statistics-others", ST, "return !statistics_only(b) || (value->kind", "return true || (value->kind", STT)
CS, CST = "codegen/csource_instruction.c", "unit codegen_csource"
defect("csource-phis", "codegen/csource.c", "bool meet = phis_meet(from, to);", "bool meet = from == to && !phis_meet(from, to);", CST)
defect("csource-shift", CS, '"(%s)((%s)%s >> %s)", to, sign, a,', '"(%s)((%s)%s >> %s)", to, in, a,', CST)
defect("csource-unordered", CS, '[LLVMRealUGT] = {"<=", true}', '[LLVMRealUGT] = {">", false}', CST)
defect("csource-lanes", CS, "csource_text(c, from[from_lane >= lanes], false)", "csource_text(c, from[0], false)", CST)
defect("inference-workspace", "plan/plan_inference.c", "i < step->input_count || buffer->place == PLACE_WORKSPACE", "i < step->input_count", "py test/e2e/deploy_c.py")

# ── clusters of two blocks: kernels/wgmma_ptx.h, codegen/nvptx_tile.c ──
W9, CLUSTER = "kernels/wgmma_ptx.h", "unit codegen_nvptx"
defect("pair-half", W9, "int first = rank * (tile / 2);", "int first = 0 * rank * (tile / 2);", CLUSTER)
defect("pair-boxes", W9, "else if (i % 2 == rank)", "else if (i % 2 == 0 * rank)", CLUSTER)
defect("pair-shared-side", W9, "gemm_pair() == (is_a ? 2 : 1)", "gemm_pair() == (is_a ? 1 : 2)", CLUSTER)
defect("pair-tells-itself", W9, "mbarrier_arrive_far_if(empty_of(memory, stage), lane % 2, does && lane < 2);",
       "mbarrier_arrive_far_if(empty_of(memory, stage), cluster_rank(), does && lane < 2);", CLUSTER)
defect("pair-one-arrival", W9, "threads() / 32 * (gemm_pair() ? 2 : 1)", "threads() / 32", CLUSTER)
defect("pair-scope", W9, "gemm_pair() && barrier == WAIT_EMPTY", "gemm_pair() > 2 && barrier == WAIT_EMPTY", CLUSTER)
defect("pair-start", W9, "  if (gemm_pair())\n    cluster_meet();\n  else\n    __nvvm_bar_sync(0);", "  __nvvm_bar_sync(0);", CLUSTER)
defect("pair-end", W9, "  /* the other block tells this one's mbarriers, and may do so late */\n  if (gemm_pair()) cluster_meet();", "", CLUSTER)
defect("pair-rank", W9, "if (gemm_pair() == 1) row = row * 2 + rank;", "if (gemm_pair() == 1) row = row * 2 + 1 - rank * 0 - 1;", CLUSTER)
defect("pair-beyond", W9, "if (!gemm_pair() || (w.row0 < gemm_m() && w.column0 < gemm_n()))", "if (w.row0 >= 0)", CLUSTER)
defect("pair-odd", "codegen/nvptx_tile.c", "  if (tile->pair) count[tile->pair - 1] += count[tile->pair - 1] % 2;\n", "", CLUSTER)
defect("pair-map", "codegen/nvptx_map.c", "t->pair == 1 ? t->tile_n / 2 : t->tile_n", "t->tile_n", CLUSTER)
defect("pair-directive", "codegen/ptx_text.c", "cluster 2, 1, 1", "cluster 1, 1, 1", CLUSTER)
defect("cluster-grid", "runtime/device/cuda/cuda_graph.c", "fit - fit % step->cluster;", "fit;", "py test/e2e/cuda.py")

# ── what pad and full put into a tensor: frontend/builtin.c, tensor.c; running sums, rows of each sample: frontend/std/nn.ft; plan/plan_check.c ──
defect("pad-flag", "frontend/builtin.c", "*out = is_number ? value_number(v) : (double)v->i;", "*out = is_number ? value_number(v) : 0;", "lit frontend/pad_value.ft")
defect("pad-inexact", "frontend/builtin.c", "return tensor_number(call->b, v, dtype, call->at[index], out);", "*out = value_number(v);\n  return true;", "lit frontend/errors/pad_value.ft")
defect("cumsum-last-round", "frontend/std/nn.ft", "    if 2 ** i < n {\n      before =", "    if 2 ** i * 2 < n {\n      before =", "py test/num/functions.py")
defect("take-each-sum", "frontend/std/nn.ft", "sum(where(numbers == places, rows, zeros([], dtype=x.dtype)), axis=2)", "max(where(numbers == places, rows, zeros([], dtype=x.dtype)), axis=2)", "py test/num/functions.py")
defect("output-of-none", "plan/plan_check.c", "if (!shape_elements(&output->type.shape)) continue;", "", "py test/e2e/limits.py")

# ── messages about what was called: frontend/builder.c, tensor.c ──
defect("written-outermost", "frontend/builder.c", "if (!before.name) b->written", "b->written", "lit mistakes/names.test")
defect("written-operation", "frontend/tensor.c", "return name ? arena_printf(", "return name && b->written.is_operator ? arena_printf(", "lit mistakes/names.test")

# ── warnings of one place: base/diag.c ──
defect("diag-again", "base/diag.c", "  diag->repeated++;\n  return true;", "  return true;", "lit mistakes/warnings.test")
defect("loc-column", "base/diag.h", "a.line == b.line && a.column == b.column", "a.line == b.line", "lit mistakes/warnings.test")

# ── values that are computed at many places: passes/fuse_unit.c ──
defect("fuse-places", "passes/fuse_unit.c", "if (cone->nodes > PULLED_MOST || !is_first_pull(walk, node, index)) return;", "if (cone->nodes > PULLED_MOST || !is_first_pull(walk, node, 0)) return;", "lit passes/fuse.ftir")
defect("fuse-places-most", "passes/fuse_unit.c", "if (cone->nodes > PULLED_MOST || !is_first_pull(", "if (!is_first_pull(", "lit passes/fuse.ftir")

# ── epilogues of blocks that stay: codegen/nvptx_tile.c; gelu in them: frontend/std/nn.ft ──
defect("epilogue-ahead", "codegen/nvptx_tile.c", "groups / multiplying_threads(tile, c->unit) : AHEAD_ALONE", "groups / multiplying_threads(tile, c->unit) / 2 : AHEAD_ALONE", "lit ptx/epilogue.ft")
defect("gelu-cube", "frontend/std/nn.ft", "0.044715 * sqrt(8 / pi) * (x * x)", "0.044715 * sqrt(2 / pi) * (x * x)", "py test/num/ops.py")

# ── runtime/command/deploy_ptx ──
P, PD, PT = "runtime/command/deploy_ptx.part", "runtime/command/deploy_ptx.c", "py test/e2e/deploy_ptx.py"
defect("ptx-place-of-argument", PD, "2 * at + !is_kept", "2 * at + is_kept", PT)
defect("ptx-argument-order", P, "    argument[i] = &value[i];", "    argument[i] = &value[count - 1 - i];", PT)
defect("ptx-arguments-of-step", PD, "  t->arg_count += step->arg_count;", "  t->arg_count += step->arg_count - (t->kernel_count > 1);", PT)
defect("ptx-shared-bytes", P, "(unsigned)step[FTM_STEP_BLOCK + 2], (unsigned)step[FTM_STEP_SHARED], stream", "(unsigned)step[FTM_STEP_BLOCK + 2], 0, stream", PT)
defect("ptx-weights-chunk", P, "to_device(m->weights + done, room", "to_device(m->weights, room", PT)
defect("ptx-last-sample", P, "(uint64_t)(samples - 1) * sample, have = 1", "(uint64_t)(samples - 2) * sample, have = 1", PT)
defect("ptx-map-address", P, "value[map[FTM_MAP_ARG]], at + 128 * i", "value[0], at + 128 * i", PT)
defect("ptx-map-strides", P, "if (i) strides[i - 1] = (uint64_t)map[FTM_MAP_STRIDES + i];", "if (i) strides[i - 1] = (uint64_t)map[FTM_MAP_STRIDES + 1];", PT)
defect("ptx-values-looked-at", P, "if (!code && !is_host && port[FTM_PORT_BELOW]) code =", "if (!code && is_host && port[FTM_PORT_BELOW]) code =", PT)
defect("ptx-value-zero", "kernels/deploy_ptx.c", "  else if (element == 4 || element == -4)\n    ((GLOBAL int32_t *)values)[i] = 0;", "  else if (element == 4)\n    ((GLOBAL int32_t *)values)[i] = 0;", PT)
defect("ptx-weights-sum", P, "if (!code && sum != head[4])", "if (!code && sum == head[4] + 1)", PT)
defect("ptx-output-of-host", P, "if (is_host) FTM_TRY(to_host(outputs[i], from, bytes", "if (is_host) FTM_TRY(to_host(outputs[0], from, bytes", PT)

# ── joined launches: codegen/join.c, join_text.c, nvptx_entry.c ──
J, JT, JOINED = "codegen/join.c", "codegen/join_text.c", "py test/e2e/joined.py"
defect("join-what-waits", J, "if (j->group[step->after[i]] >= first) first = j->group[step->after[i]] + 1;",
       "if (j->group[step->after[i]] >= first) first = j->group[step->after[i]];", JOINED)
defect("join-arguments", JT, "p->join->name, p->part->parameters[parameter]);", "p->join->name, parameter);", JOINED)
defect("join-threads", JT, "  if (p->part->threads < p->join->threads && !p->part->follows)\n", "  if (p->part->threads > p->join->threads && !p->part->follows)\n", JOINED)
defect("join-blocks", JT, 'append_split(p->out, "%join_y", "%join_z", "%join_own", grid[1]);', 'append_split(p->out, "%join_z", "%join_y", "%join_own", grid[1]);', JOINED)
defect("join-by-rows", J, "if (!x->by_rows[i] || !y->by_rows[k] || !is_same", "if (!is_same", JOINED)
defect("join-behind", JT, '  } else if (p->part->is_followed && is_word(word, length, "ret")) {\n    text_printf(p->out, "bra \\t$join_behind_%d", p->number);\n', "", JOINED)
defect("rows-of-others", "kernels/rows_ptx.c", "w->row0 * gemm_a_pitch(), left, gemm_a_quads()", "0, left, gemm_a_quads()", JOINED)
defect("rows-behind-k", "kernels/rows_ptx.c", "return quad < quads() ? quad : quads();", "return quad;", JOINED)
defect("chain-check-nan", "runtime/execute/replay_explain.c", "spot->step = operand_step(kernel, arg);", "spot->step = kernel->index;", JOINED)
defect("join-shared-memory", JT, "if (parts[i].shared_bytes > shared) shared = parts[i].shared_bytes;", "shared = parts[i].shared_bytes;", JOINED)
defect("join-left-out", "codegen/nvptx_entry.c", "      left_out[node_int(body->nodes.at[i], ATTR_INDEX, 0)] = false;", "      left_out[node_int(body->nodes.at[i], ATTR_INDEX, 0)] = true;", JOINED)
defect("join-body-of-another", "plan/plan_body.c", "    if (gives_buffer(body, buffer)) return body;\n", "    if (body->arg_count < 0 && gives_buffer(body, buffer)) return body;\n", JOINED)
defect("split-operands", "codegen/nvptx_entry.c", "if (is_of_second && body) is_used", "if (is_sum && body) is_used", "unit codegen_nvptx")
defect("join-parts-fewer", "plan/plan_step.c", "return (is_row && all == step->grid[0]) ||", "return (is_row && all <= step->grid[0]) ||", "unit plan_text")
defect("join-workspace", "codegen/lower_kernel.c", "join_is_wanted(lowering->module) && end < SMALL ? end : 0;", "join_is_wanted(lowering->module) && end < 0 ? end : 0;", "lit ptx/join_workspace.ft")
defect("join-apart", "passes/memplan.c", "if (is_apart) fresh.first = 0, fresh.last = plan->times.count;", "if (plan->context->is_plain) fresh.first = 0, fresh.last = plan->times.count;", "lit ptx/join_apart.ft")

# ── kernels that begin early: codegen/ptx_text.c, plan/plan_order.c, runtime/device/cuda/cuda_graph.c ──
PT, EARLY = "codegen/ptx_text.c", "py test/e2e/cuda_early.py"
defect("early-no-wait", PT, '"\\tgriddepcontrol.wait;\\n\\tgriddepcontrol.launch_dependents;\\n"', '"\\tgriddepcontrol.launch_dependents;\\n"', EARLY)
defect("early-constant-loads", PT, "while (!is_ordinary && (", "while (is_ordinary && (", EARLY)
defect("early-ordinary", "codegen/lower_kernel.c", "!launch->is_call && !launch->is_ordinary &&", "!launch->is_call &&", "lit ptx/early.ft")
defect("early-behind-a-call", "runtime/device/cuda/cuda_graph.c", "before->call ? NULL : &steps[before->first]", "&steps[before->first]", EARLY)
defect("early-behind-several", "runtime/device/cuda/cuda_graph.c", "item->call || item->after_count != 1", "item->call || item->after_count < 1", EARLY)
defect("early-anything-before", "plan/plan_order.c", "step->is_early && before && before->is_early", "step->is_early && before", "unit plan_order")
defect("early-wait-at-the-end", PT, '!strncmp(at, "\\t.", 2)', 'strncmp(at, "\\tret;", 5)', EARLY)

# ── runtime/checkpoint/weight_prefix.c ──
W, WT = "runtime/checkpoint/weight_prefix.c", "py test/e2e/init_weights.py"
defect("prefix-first", W, "    if (count > most)\n", "    if (count > 0 && !most)\n", WT)
defect("prefix-of-one", W, "behind <= plain || ", "behind + plain == 0 || ", WT)
defect("prefix-tie", W, "    else if (count == most)\n", "    else if (count > INT32_MAX / 2)\n", WT)

# ── kernels/grouped_x86.c ──
W = "kernels/grouped_x86.c"
defect("grouped-one-channel", W, "out.at[0] == out.at[out.count - 1];", "out.at[0] == out.at[out.count / 2];", WT)
defect("grouped-right-padding", W, "p->width - left < columns ? p->width - left : columns;", "p->width - left <= columns ? p->width : columns;", WT)
defect("grouped-last-lines", W, "p->out_height - y < p->lines ? p->out_height - y : p->lines;", "p->lines;", WT)
defect("grouped-last-pixels", W, "int64_t count = p->out_width - x < p->pixels ? p->out_width - x : p->pixels;", "int64_t count = p->pixels;", WT)
defect("grouped-dilation", W, "across = p->dilation_width * p->ins", "across = p->dilation_height * p->ins", WT)
defect("grouped-step", W, "if (step == GROUPED_LANES) ", "if (p->stride_width == 1) ", WT)
defect("grouped-room", "kernels/grouped_host.h", "  return grouped_room(p) <= most;", "  return grouped_room(p) <= 4 * most;", "py test/e2e/deploy.py")

# ── kernels/integer_tiles.h ──
W, WT = "kernels/integer_tiles.h", "py test/num/integers.py"
defect("integer-rest-of-tile", W, "if (here.rest) here.rest += row;", "if (here.rest) here.rest += row / 2;", WT)
defect("integer-fault-of-column", W, "Lanes fault = lanes_load(f->fault + j * INTEGER_LANES);", "Lanes fault = lanes_load(f->fault);", WT)
defect("integer-not-a-slope", "passes/integers.c", "match_rounded(inputs[0], &r) && is_slope(inputs[1]->input[0], &r) ?", "match_rounded(inputs[0], &r) ?", WT)

for path in sorted(name for name in os.listdir(os.path.dirname(os.path.abspath(__file__))) if name.startswith("defects_")):  # those of one kind each
    __import__(path[: -len(".py")])
