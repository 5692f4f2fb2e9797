"""Defects of products of 8-bit floats, and of the transposes that they ask for: see defects.py."""
from defects import defect

U8 = "unit codegen_float8"
defect("float8-halves", "kernels/mma_ptx.h", "int even = swap ? 0x2064 : 0x6420,", "int even = swap ? 0x6420 : 0x6420,", U8)
defect("float8-steps", "kernels/mma_ptx.h", "of / 2 * 4 + of % 2 + ((lane / 8 % 2) ^ upper) * 2;", "of / 2 * 4 + of % 2 + (lane / 8 % 2) * 2;", U8)
defect("float8-rows", "kernels/mma_ptx.h", "return IS_BYTE && !deep ? 2 * i + group : group * 8 + i;", "return group * 8 + i;", U8)
defect("float8-columns", "kernels/mma_ptx.h", "(Four){one[0], other[0], one[1], other[1]};", "(Four){one[0], one[1], other[0], other[1]};", U8)
defect("float8-part", "kernels/mma_ptx.h", "  if (HAS_PARTS) clear(&part);\n", "  if (HAS_PARTS) part = *sum;\n", U8)
defect("float8-formats", "codegen/nvptx_mma.c", "dtype_text(m->dtype), dtype_text(b));", "dtype_text(b), dtype_text(m->dtype));", U8)
defect("float8-pairs", "codegen/emit_memory.c", "LLVMValueRef arguments[2] = {high, low};", "LLVMValueRef arguments[2] = {low, high};", U8)
defect("float8-pitch", "passes/pitch.c", "dtype_bytes(dtype) == 1 ? 2 * UNIT : UNIT;", "dtype == DT_COUNT ? 2 * UNIT : UNIT;", U8)
defect("float8-rounded", "passes/fp8_products.c", "shape_elements(&node->input[0]->type.shape) && is_rounded_cast(behind_moves(node->input[0])) &&", "shape_elements(&node->input[0]->type.shape) &&", "lit passes/fp8_products.ftir")
defect("float8-register", "runtime/device/sim/sim_lanes_warp.inc", "m->a[row][l % 4 * 4 + k + (i >> 1) * 16] =", "m->a[row][l % 4 * 4 + k + (i & 1) * 16] =", "unit runtime_sim_warp")
defect("float8-tie", "runtime/common/float8.h", "(int)nearbyintf(ldexpf(size, bits - exponent));", "(int)roundf(ldexpf(size, bits - exponent));", "unit runtime_sim")
WG8, WP = "kernels/wgmma_ptx.h", "codegen/nvptx_wgmma.c"
defect("wgmma8-formats", WP, "dtype_text(w->dtype), dtype_text(are_bytes ? w->of_b : w->dtype));", "dtype_text(are_bytes ? w->of_b : w->dtype), dtype_text(w->dtype));", U8)
defect("wgmma8-swizzle", WG8, "((element / PIECE ^ row % 8) * PIECE | element % PIECE)", "((element / PIECE ^ row % (IS_BYTE ? 4 : 8)) * PIECE | element % PIECE)", U8)
defect("wgmma8-part-free", WG8, "    wgmma_wait(!IS_BYTE);\n    if (IS_BYTE) add_part(sum, &part);\n    at =",
       "    wgmma_wait(1);\n    if (IS_BYTE) add_part(sum, &part);\n    at =", U8)
defect("wgmma8-part-lost", WG8, "    if (IS_BYTE) add_part(sum, &part);\n    at =", "    if (IS_BYTE && t > 0) add_part(sum, &part);\n    at =", U8)
defect("wgmma8-box-lost", WG8, "    if (IS_BYTE) add_part(sum, &part);\n    before =", "    if (IS_BYTE && t > 0) add_part(sum, &part);\n    before =", U8)
defect("wgmma8-box-free", WG8, "tell_empty(memory, IS_BYTE ? ring->at : before, lane, IS_BYTE || t > 0);",
       "tell_empty(memory, IS_BYTE ? ring->at : before, lane, t > 0);", U8)
defect("wgmma8-order", "codegen/nvptx_tile.c", "(c->unit == UNIT_MMA8 && c->a.is_deep && c->b.is_deep);", "(c->unit == UNIT_MMA8 && c->a.is_deep);", U8)
defect("fp8-along-k", "passes/fp8_products.c", "node_int(old, k ? ATTR_TRANS_B : ATTR_TRANS_A, 0) != k;", "node_int(old, k ? ATTR_TRANS_B : ATTR_TRANS_A, 0) != 0;", "lit passes/fp8_along_k.ftir")
defect("turn-pitch", "codegen/nvptx_transpose.c", "run % TURN_RUN && !turn_has_pitch(job);", "run % TURN_RUN && (!turn_has_pitch(job) || run > 0);", "unit codegen_pitch")
defect("turn-within-read", "codegen/nvptx_transpose.c", "while (type->pitch && shape_last(&type->shape) % width)", "while (type->pitch && width < 0)", "unit codegen_pitch")
defect("turn-within-written", "codegen/nvptx_transpose.c", "shape_last(&job->result_type[r].shape) % width) width /= 2;", "width < 0) width /= 2;", "unit codegen_pitch")
TB, PITCHED = "codegen/nvptx_bytes.c", "unit codegen_pitch"
defect("turn-bytes-words", TB, "HIGH = 0x7362", "HIGH = 0x6372", PITCHED)
defect("turn-bytes-change", TB, "bytes_xor(bytes, bytes_xor(bytes, number, bytes_change(bytes, piece)), entry_const(entry, ahead % BYTES_LINES));",
       "bytes_xor(bytes, number, entry_const(entry, ahead % BYTES_LINES));", PITCHED)
defect("turn-bytes-half", TB, "entry_const(entry, ahead % BYTES_LINES));", "entry_const(entry, 0));", PITCHED)
defect("turn-bytes-lines", TB, "if (lines % bytes->tile) is_inside = entry_less(", "if (lines % BYTES_PIECE) is_inside = entry_less(", PITCHED)
defect("turn-bytes-across", TB, "if (length % bytes->tile) is_inside = entry_and(", "if (length % BYTES_PIECE) is_inside = entry_and(", PITCHED)
defect("turn-bytes-pitch", TB, "i == shape->rank - 1 && type->pitch ? type->pitch : shape", "i == shape->rank - 1 && type->pitch ? type->pitch + BYTES_PIECE : shape", PITCHED)
defect("turn-bytes-pieces", TB, "if (distance[d] != 1 && distance[d] % BYTES_PIECE) return false;", "if (distance[d] < 0) return false;", PITCHED)
defect("turn-bytes-end", TB, "ends[i] = load_end(bytes, pointer, at[i], end);", "ends[i] = load_end(bytes, pointer, at[i], 0);", PITCHED)
defect("turn-bytes-behind", TB, "int64_t end = bytes->shape.extent[bytes->shape.row] % BYTES_PIECE;", "int64_t end = 0;", "py test/e2e/pitch.py")
defect("turn-bytes-batch", TB, "bytes->base[1] = entry_add(entry, bytes->base[1], entry_mul(entry, at, bytes->to[d]));",
       "bytes->base[1] = entry_add(entry, bytes->base[1], entry_mul(entry, at, bytes->from[d]));", PITCHED)
defect("fp8-odd", "passes/fp8_products.c", "is_whole_row(p, form.m) && is_whole_row(p, form.n) &&", "is_whole_row(p, form.m) &&", "lit passes/fp8_along_k.ftir")
defect("fp8-codes", "codegen/emit_memory.c", "narrow_two(emitter, dtype, before[0], before[1])", "narrow_two(emitter, dtype, before[1], before[0])", "lit ptx/float8.ft")
defect("fp8-bytes", "codegen/emit_memory.c", "LLVMBuildZExt(b, code[0], both, \"\")", "LLVMBuildZExt(b, code[1], both, \"\")", "lit ptx/float8.ft")
defect("fp8-scale", "passes/approximate.c", "if (is_scale) continue;", "", "lit passes/approximate.ftir")
defect("fuse-orders", "passes/fuse_group.c", "&& reads_in_another_order(plan, reduction, loop))", "&& false)", "lit passes/fuse_orders.ftir")
defect("reduce-rows", "passes/fuse_prepare.c", "(part > PART_MOST && !are_many)", "part > PART_MOST", "lit passes/fuse_orders.ftir")
defect("fp8-folded", "passes/fuse_prepare.c", "p->keeps_orders && dtype_is_float8", "!p->for_gpu && dtype_is_float8", "lit passes/fp8_along_k.ftir")
defect("fp8-simplified", "passes/simplify.c", "if (!better && !is_left) better", "if (!better) better", "lit passes/fp8_along_k.ftir")
defect("wgmma8-sim-formats", "runtime/device/sim/sim_lanes_wgmma.inc", "(in->mode - WGMMA_FLOAT8) & (is_b ? 1 : 2);", "(in->mode - WGMMA_FLOAT8) & (is_b ? 2 : 1);", "unit runtime_sim_hopper")
defect("wgmma8-sim-registers", "runtime/device/sim/sim_lanes_wgmma.inc", "int k = (l % 4 + (i >> 1) * 4) * side + e;", "int k = (l % 4 + (i & 1) * 4) * side + e;", "unit runtime_sim_hopper")
