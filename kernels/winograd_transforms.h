/* winograd_transforms: the transforms of Winograd's minimal filtering (winograd_host.h) for tiles whose results are side x side, 2
 * or 4: of `side + 2` numbers in one dimension, which both dimensions take in turn. `side` is a constant wherever these are called. */
#ifndef FT_KERNELS_WINOGRAD_TRANSFORMS_H
#define FT_KERNELS_WINOGRAD_TRANSFORMS_H
#include "kernels/lanes_x86.h"
#include "kernels/winograd_host.h"

/* The transforms keep as many vectors as a tile has places, and are of what a register has. */
#ifdef __AVX512F__
enum { WIDE = 16 };
#else
enum { WIDE = 8 };
#endif
typedef float Vector __attribute__((ext_vector_type(WIDE)));
typedef float LooseVector __attribute__((ext_vector_type(WIDE), aligned(4)));
ALWAYS Vector vector_load(const float *from) { return *(const LooseVector *)from; }
ALWAYS void vector_store(float *to, Vector value) { *(LooseVector *)to = value; }

/* a * b + c, rounded once where the processor can: left to itself, the compiler shares products that are added and subtracted, and rounds them. */
#ifdef __FMA__
#define MULTIPLY_ADD(a, b, c) __builtin_elementwise_fma((Vector)(a), b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

/* The points of F(4, 3): 0, +-NEAR, +-FAR and infinity. Their powers, and the products of differences by which G divides. */
#define NEAR 0.625f
#define FAR 1.625f
#define NEAR_2 (NEAR * NEAR)
#define FAR_2 (FAR * FAR)
#define DIVISOR_0 (NEAR_2 * FAR_2)
#define DIVISOR_NEAR (2 * NEAR_2 * (NEAR_2 - FAR_2))
#define DIVISOR_FAR (2 * FAR_2 * (FAR_2 - NEAR_2))

/* B' d. */
ALWAYS void turn_pixels(int side, const Vector *d, Vector *out) {
  if (side == 2) {
    out[0] = d[0] - d[2];
    out[1] = d[1] + d[2];
    out[2] = d[2] - d[1];
    out[3] = d[1] - d[3];
    return;
  }
  Vector even = MULTIPLY_ADD(-FAR_2, d[2], d[4]), odd = MULTIPLY_ADD(-FAR_2, d[1], d[3]);
  out[0] = MULTIPLY_ADD(DIVISOR_0, d[0], MULTIPLY_ADD(-(NEAR_2 + FAR_2), d[2], d[4]));
  out[1] = MULTIPLY_ADD(NEAR, odd, even);
  out[2] = MULTIPLY_ADD(-NEAR, odd, even);
  even = MULTIPLY_ADD(-NEAR_2, d[2], d[4]);
  odd = MULTIPLY_ADD(-NEAR_2, d[1], d[3]);
  out[3] = MULTIPLY_ADD(FAR, odd, even);
  out[4] = MULTIPLY_ADD(-FAR, odd, even);
  out[5] = MULTIPLY_ADD(DIVISOR_0, d[1], MULTIPLY_ADD(-(NEAR_2 + FAR_2), d[3], d[5]));
}

/* A y. */
ALWAYS void turn_slopes(int side, const Vector *y, Vector *out) {
  out[0] = y[0];
  if (side == 2) {
    out[1] = y[0] + y[1];
    out[2] = y[0] - y[1];
    out[3] = -y[1];
    return;
  }
  Vector even = MULTIPLY_ADD(NEAR_2, y[2], y[0]), odd = MULTIPLY_ADD(NEAR_2, y[3], y[1]);
  out[1] = MULTIPLY_ADD(NEAR, odd, even);
  out[2] = MULTIPLY_ADD(-NEAR, odd, even);
  even = MULTIPLY_ADD(FAR_2, y[2], y[0]);
  odd = MULTIPLY_ADD(FAR_2, y[3], y[1]);
  out[3] = MULTIPLY_ADD(FAR, odd, even);
  out[4] = MULTIPLY_ADD(-FAR, odd, even);
  out[5] = y[3];
}

/* A' m. */
ALWAYS void turn_sums(int side, const Vector *m, Vector *out) {
  if (side == 2) {
    out[0] = m[0] + m[1] + m[2];
    out[1] = m[1] - m[2] - m[3];
    return;
  }
  Vector near = m[1] + m[2], far = m[3] + m[4];
  out[0] = m[0] + (near + far);
  out[2] = MULTIPLY_ADD(NEAR_2, near, FAR_2 * far);
  near = m[1] - m[2];
  far = m[3] - m[4];
  out[1] = MULTIPLY_ADD(NEAR, near, FAR * far);
  out[3] = MULTIPLY_ADD(NEAR * NEAR_2, near, MULTIPLY_ADD(FAR * FAR_2, far, m[5]));
}

/* G g, of three. */
ALWAYS void turn_weights(int side, Lanes a, Lanes b, Lanes c, Lanes *out) {
  out[0] = side == 2 ? a : a * (1 / DIVISOR_0);
  if (side == 2) {
    Lanes half = (a + c) * 0.5f, middle = b * 0.5f;
    out[1] = half + middle;
    out[2] = half - middle;
    out[3] = c;
    return;
  }
  Lanes even = (a + NEAR_2 * c) * (1 / DIVISOR_NEAR), odd = b * (NEAR / DIVISOR_NEAR);
  out[1] = even + odd;
  out[2] = even - odd;
  even = (a + FAR_2 * c) * (1 / DIVISOR_FAR);
  odd = b * (FAR / DIVISOR_FAR);
  out[3] = even + odd;
  out[4] = even - odd;
  out[5] = c;
}

/* G' u, to three. */
ALWAYS void turn_back(int side, const Vector *u, Vector *out) {
  if (side == 2) {
    Vector sum = (u[1] + u[2]) * 0.5f;
    out[0] = u[0] + sum;
    out[1] = (u[1] - u[2]) * 0.5f;
    out[2] = sum + u[3];
    return;
  }
  Vector near = (u[1] + u[2]) * (1 / DIVISOR_NEAR), far = (u[3] + u[4]) * (1 / DIVISOR_FAR);
  out[0] = u[0] * (1 / DIVISOR_0) + (near + far);
  out[1] = (u[1] - u[2]) * (NEAR / DIVISOR_NEAR) + (u[3] - u[4]) * (FAR / DIVISOR_FAR);
  out[2] = u[5] + (NEAR_2 * near + FAR_2 * far);
}
#endif
