"""Defects of convolutions by Winograd's algorithm: see defects.py."""
from defects import defect

T, W, WT = "kernels/winograd_transforms.h", "kernels/winograd_x86.c", "py test/num/convolutions.py"
defect("winograd-slopes", T, "    out[3] = -y[1];", "    out[3] = y[1];", WT)
defect("winograd-second-row", W, "rows = p->out_height - y < side ? p->out_height - y : side;", "rows = side;", WT)
defect("winograd-first-row", W, "for (int i = side - 1; i >= 0; i--) vector_store(to[i]", "for (int i = 0; i < side; i++) vector_store(to[i]", WT)
defect("winograd-last-pixel", W, "int64_t columns = count - x < side ? count - x : side;", "int64_t columns = side;", WT)
defect("winograd-turned-columns", W, "int from = turned ? 8 - x : x, down", "int from = turned ? 6 + x : x, down", WT)
defect("winograd-outside", W, "x >= 0 && x < s->width", "x >= 0 && x <= s->width", WT)
defect("winograd-whole", W, ".is_whole = first >= 0 && first + rows <= height}", ".is_whole = first >= 0 && first + rows <= height + 1}", WT)
defect("winograd-near-tiles", W, "x += NEAR_TILES * side) {", "x += NEAR_TILES * side - 1) {", WT)
defect("winograd-parts", W, "for (int64_t part = 1; part < p->parts; part++) {", "for (int64_t part = 1; part < p->parts - 1; part++) {", WT)
defect("winograd-part-lines", W, "last - line < p->lines ? last - line : p->lines, x", "p->lines, x", WT)
defect("winograd-last-item", W, "if (r.line + r.lines > winograd_lines(p)) r.lines", "if (r.line + r.lines > winograd_lines(p) + 1) r.lines", WT)
defect("winograd-images-padding", "codegen/host_conv.c", ".pad_left = f->kernel_width - 1 - f->padding[1],", ".pad_left = f->padding[1],", WT)
# The points nearer to each other, or at 0, +-1, +-2: right, and with larger errors.
defect("winograd-points", T, "#define NEAR 0.625f\n#define FAR 1.625f\n", "#define NEAR 1.0f\n#define FAR 2.0f\n", WT)
defect("winograd-rounded-slopes", T, "  out[5] = y[3];\n", "  out[5] = y[3] * 1.00001f;\n", WT)
defect("winograd-weights-back", T, "u[0] * (1 / DIVISOR_0)", "u[0] * (1 / FAR_2)", WT)
H = "codegen/host_winograd.c"
defect("winograd-far-slopes", H, "if (has_weights && winograd_packed_bytes(p)", "if (winograd_packed_bytes(p)", "lit codegen/winograd_side.ft")
defect("winograd-forward-size", H, "host_conv_sides(f, conv->op == OP_CONV_GRAD_INPUT);", "host_conv_sides(f, false);", "lit codegen/winograd_images.ft")
