"""Defects of the rounding errors of sums: see defects.py."""
from defects import defect

COLUMN, ADVERSE = "codegen/host_column.c", "py test/num/adverse.py"
defect("sums-chunk-kept", COLUMN, "  clear_buffers(&chunk);\n", "", ADVERSE)
defect("sums-chunk-end", COLUMN, "emit_min(e, emit_add(e, chunks.counter, emit_index_const(e, CHUNK_ROWS)), to)", "emit_add(e, chunks.counter, emit_index_const(e, CHUNK_ROWS))", "py test/num/ops.py")
defect("sums-one-chunk", COLUMN, "CHUNK_ROWS = 256", "CHUNK_ROWS = 1 << 20", ADVERSE)
defect("sums-parts-lost", "kernels/tile_x86.h", "*to = adds ? *to + sum[i][j] : sum[i][j];", "*to = sum[i][j];", ADVERSE)
