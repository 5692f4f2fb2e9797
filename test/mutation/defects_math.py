"""Defects of elementary functions, and of what ft.h and sizes of a batch say: see defects.py."""
from defects import defect

# ── kernels/math.c: tanh and erf by quotients ──
M, MT = "kernels/math.c", "unit codegen_math"
defect("tanh-nan", M, "size > 9.1f ? 9.1f : size;", "size < 9.1f ? size : 9.1f;", MT)
defect("tanh-half-power", M, "(0.5f * power - 0.5f)", "(0.5f * power - 0x1.0001p-1f)", MT)
defect("erf-seam", M, "size < 0.35f ? small", "size < 0.45f ? small", MT)
defect("erf-odd-term", M, "odd = odd * z - 0x1.223630p-5f;", "odd = odd * z - 0x1.22f630p-5f;", MT)
defect("erf-saturation", M, "size > 4.0f ? 4.0f : size, z", "size > 3.6f ? 3.6f : size, z", MT)
defect("epilogue-pairs", "codegen/host_loop.c", "int pair = 2 * kernel->module->vector_bytes / (int)sizeof(float);", "int pair = 32;", "lit codegen/epilogue_pairs.ft")

# ── kernels/approximate.h ──
A, AT = "kernels/approximate.h", "py test/e2e/approximate.py"
defect("approximate-overflow", A, "y > 129.0f ? 129.0f : y;", "y > 127.0f ? 127.0f : y;", AT)
defect("approximate-underflow", A, "y < -126.0f ? -126.0f : y;", "y < -125.0f ? -125.0f : y;", AT)
defect("approximate-nan", A, "y = y > 129.0f ? 129.0f : y;", "y = y < 129.0f ? y : 129.0f;", AT)
defect("approximate-term", A, "twice = twice * f + 0x1.3cea88p-6f;", "twice = twice * f + 0x1.3dea88p-6f;", AT)

# ── runtime/ft.c, frontend/sizes.c ──
defect("seed-resumed", "runtime/ft.c", "  take_seed(model, info.seed);\n", "", "py test/e2e/python_package.py")
defect("seed-of-masks", "runtime/ft.c", "  take_seed(model, seed);\n", "", "py test/e2e/python_package.py")
defect("averaged-unsaid", "frontend/sizes.c", "if (training && !noted && !b->is_again)", "if (training && !noted && b->is_again)", "lit frontend/accumulate_literal.ft")
