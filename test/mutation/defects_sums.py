"""Defects of the rounding errors of sums, and of streams of random numbers: see defects.py."""
from defects import defect

COLUMN, ADVERSE = "codegen/host_column.c", "py test/num/adverse.py"
defect("sums-chunk-kept", COLUMN, "  clear_buffers(&chunk);\n", "", ADVERSE)
defect("sums-chunk-end", COLUMN, "emit_min(e, emit_add(e, chunks.counter, emit_index_const(e, CHUNK_ROWS)), to)", "emit_add(e, chunks.counter, emit_index_const(e, CHUNK_ROWS))", "py test/num/ops.py")
defect("sums-one-chunk", COLUMN, "CHUNK_ROWS = 256", "CHUNK_ROWS = 1 << 20", ADVERSE)
defect("sums-parts-lost", "kernels/tile_x86.h", "*to = adds ? *to + sum[i][j] : sum[i][j];", "*to = sum[i][j];", ADVERSE)

# ── passes/streams.c ──
STREAMS, MEANING = "passes/streams.c", "unit passes_meaning"
defect("streams-shared", STREAMS, "made->step == step && made->stream == stream", "made->step == step", MEANING)
defect("streams-kept", STREAMS, "Attr stream = attr_int(ATTR_STREAM, 0);", "Attr stream = attr_int(ATTR_STREAM, 1);", MEANING)
defect("streams-high", "kernels/math.c", "(uint32_t)stream + (uint32_t)((uint64_t)step >> 32)", "(uint32_t)stream", "unit codegen_random")
defect("streams-high-attention", "kernels/attention_drop.h", "(uint32_t)numbers[3][0] + (uint32_t)(numbers[1][0] >> 32)", "(uint32_t)numbers[3][0]", "unit codegen_attention")
defect("streams-high-drawn", "kernels/attention_draws.h", "(unsigned)*(const GLOBAL uint64_t *)attention_stream(w->args) + (unsigned)(step >> 32)", "(unsigned)*(const GLOBAL uint64_t *)attention_stream(w->args)", "unit codegen_flash")
