"""Defects of matrix products on CPUs: see defects.py."""
from defects import defect

defect("gemm-bottom", "kernels/gemm_x86.c", "gemm_x86_finish(p, args, batch, row, is_bottom ? m - row : rows, column",
       "gemm_x86_finish(p, args, batch, row, rows, column", "unit codegen_gemm")
defect("gemm-packed-part", "kernels/gemm_host.h", "return (batch * p->k + first) * gemm_packed_columns(p)", "return batch * p->k * gemm_packed_columns(p)",
       "unit codegen_gemm_shapes")
defect("gemm-left-turned", "kernels/panel_x86.h", "  COLUMNS(2)\n", "  COLUMNS(1)\n", "unit codegen_gemm_shapes")
defect("gemm-packed-odd", "kernels/gemm_x86.c", "  for (; k % UNROLL; k--) {\n", "  for (; k == 1; k--) {\n", "unit codegen_gemm_shapes")
defect("gemm-left-step", "kernels/gemm_x86.c", "transpose_eight(row, left + k * LEFT_STEP, LEFT_STEP)", "transpose_eight(row, left + k * LEFT_STEP, 8)", "unit codegen_gemm_shapes")
defect("gemm-packed-sums", "kernels/gemm_x86.c", "(before * p->down + i) * rows * most", "(before + i) * rows * most",
       "unit codegen_gemm_shapes")
defect("gemm-packed-batch", "kernels/gemm_x86.c", "  a = operand_address(p, a, block->batch * p->m * p->k);\n", "", "unit codegen_gemm_shapes")
defect("gemm-pairs-end", "kernels/gemm_bf16_x86.c", "interleave(even, left > 1 ? even + n : NULL, 2 * most, left > 0 ? columns : 0, width,",
       "interleave(even, even + n, 2 * most, columns, width,", "unit codegen_gemm_shapes")
defect("gemm-pairs-there", "kernels/gemm_bf16_x86.c", "s->pitch = is_there ? p->k / 2 : PAIR_PITCH;", "s->pitch = is_there ? part->words : PAIR_PITCH;",
       "unit codegen_gemm_shapes")
defect("gemm-pairs-direct", "kernels/gemm_bf16_x86.c", "at->columns == s->width && rows % 16 == 0", "at->columns == s->width", "unit codegen_gemm_shapes")
defect("gemm-joins-sums", "kernels/gemm_x86.c", "p->epilogue && p->depth != p->k;", "false;", "unit codegen_gemm_shapes")
defect("gemm-joins-last-columns", "kernels/gemm_x86.c", "p->epilogue ? strip - block->strip : 0;", "strip - block->strip;", "unit codegen_gemm_shapes")
defect("gemm-joins-rows", "kernels/gemm_blocks.h", "&& next.tile_row == block.tile_row;", ";", "unit codegen_gemm_shapes")
defect("gemm-pairs-joins-sums", "kernels/gemm_bf16_x86.c", "p->depth < p->k && !is_direct ?", "p->depth < 0 && !is_direct ?", "unit codegen_gemm_shapes")
defect("gemm-pairs-joins-direct", "kernels/gemm_bf16_x86.c", "is_direct = !p->epilogue && p->m % 16 == 0 && p->n % 16 == 0;", "is_direct = !p->epilogue;", "unit codegen_gemm_shapes")
defect("gemm-panel", "kernels/gemm_x86.c", "panel[i * width + j + lane] = lanes_at(type, b, from + lane * k + i);",
       "panel[i * width + j + lane] = lanes_at(type, b, from + i * k + lane);", "unit codegen_gemm")
defect("gemm-ragged", "kernels/gemm_x86.c", "for (int64_t j = 0; j < some; j++) row[j]", "for (int64_t j = 0; j + 1 < some; j++) row[j]", "unit codegen_gemm_shapes")
defect("gemm-ragged-rest", "kernels/gemm_x86.c", "j < some ? lanes_at(type, b, from + j * across + i * down) : 0.0f;", "j < some ? lanes_at(type, b, from + j + i * down) : 0.0f;", "unit codegen_gemm_shapes")
defect("gemm-left-some", "kernels/gemm_x86.c", "int64_t from = k * m + row;", "int64_t from = k * m + row + (some == SOME && k > 8);", "unit codegen_gemm_shapes")
defect("gemm-left-end", "kernels/gemm_x86.c", "(p->k - first) * m - GEMM_LANES : INT64_MAX;", "(p->k - first) * m - 1 : INT64_MAX;", "unit codegen_gemm_shapes")
defect("gemm-pairs-first", "kernels/gemm_bf16_x86.c", "(1u << count) - 1 : 0u;", "(1u << count / 2 * 2) - 1 : 0u;", "unit codegen_gemm_shapes")
defect("gemm-pairs-words", "kernels/gemm_bf16_x86.c", "column, columns, (part.depth + 1) / 2, is_last}", "column, columns, part.depth / 2, is_last}", "unit codegen_gemm_shapes")
defect("gemm-pairs-direct-rows", "kernels/gemm_bf16_x86.c", "!p->epilogue && p->m % 4 == 0 && p->n % GEMM_LANES == 0;", "!p->epilogue && p->n % GEMM_LANES == 0;", "unit codegen_gemm_shapes")
defect("tile-copy-rest", "kernels/lanes_x86.h", "(__mmask16)((1u << count) - 1)", "(__mmask16)((1u << (count - 1)) - 1)", "unit codegen_gemm_shapes")
defect("gemm-steps-rest", "kernels/gemm_x86.c", "  for (; k % TILE_STEPS; k--, a += a_k, b += b_k) tile_add", "  for (; k % TILE_STEPS; k--, a += a_k) tile_add", "unit codegen_gemm_shapes")
defect("gemm-along-panel", "kernels/gemm_x86.c", "j = right ? inner : outer;", "j = outer;", "unit codegen_gemm_shapes")
defect("conv-steps-rest", "kernels/conv_x86.c", "k % TILE_STEPS; k--, from++, b += vectors * GEMM_LANES)", "k % TILE_STEPS; k--, b += vectors * GEMM_LANES)", "py test/num/convolutions.py")
