/* approximate: elementary functions for results that are rounded to 16 bits; passes/approximate.c chooses where.
 * Relative errors, to which rounding adds 2^-9 (bf16) or 2^-11 (f16), as test/e2e/approximate.py measures them:
 *   exp, sigmoid 2^-21 + |x| 2^-23; tanh 2^-21; erf 2^-22
 * Results of exp and sigmoid below 2^-125 may be 0. On a GPU they are made by its approximate instructions (PTX ISA: ex2.approx
 * 2 ulp, rcp.approx 1 ulp; numbers below 2^-126 count as 0), on a CPU exp and sigmoid by fewer instructions than those of math.c. All
 * polynomials here are minimax, found by Lawson's iteration (1961). Included by math.c. */
#ifndef FT_KERNELS_APPROXIMATE_H
#define FT_KERNELS_APPROXIMATE_H

#ifdef __NVPTX__
HELPER float exp_approximate(float x) { return __nvvm_ex2_approx_ftz_f(x * LOG2_E_F32); }
HELPER float inverse_approximate(float x) { return __nvvm_rcp_approx_ftz_f(x); }
#else
/* 2^n 2^f, n the nearest integer: 2^(n-1) is made of its exponent alone, 0 for n = -126 and infinity for n = 129. */
HELPER float exp_approximate(float x) {
  float y = x * LOG2_E_F32;
  y = y > 129.0f ? 129.0f : y; /* NaN passes both */
  y = y < -126.0f ? -126.0f : y;
  float shifted = y + (ROUND_F32 + 126.0f), f = y - (shifted - (ROUND_F32 + 126.0f));
  float twice = 0x1.5bba14p-9f;
  twice = twice * f + 0x1.3cea88p-6f;
  twice = twice * f + 0x1.c6b752p-4f;
  twice = twice * f + 0x1.ebf9bcp-2f;
  twice = twice * f + 0x1.62e42ap0f;
  return (twice * f + 2.0f) * f32_bits(bits_f32(shifted) << 23);
}
HELPER float inverse_approximate(float x) { return 1.0f / x; }
#endif

MATH float ft_exp_approximate_f32(float x) { return exp_approximate(x); }

MATH float ft_sigmoid_approximate_f32(float x) { return inverse_approximate(1.0f + exp_approximate(-x)); }

#ifdef __NVPTX__
/* 1 - 2 / (e^2|x| + 1); near 0, where that cancels, an odd polynomial. */
MATH float ft_tanh_approximate_f32(float x) {
  float size = abs_f32(x), z = x * x;
  float tail = 0x1.1a7c04p-6f;
  tail = tail * z - 0x1.b28c74p-5f;
  tail = tail * z + 0x1.10e9fcp-3f;
  tail = tail * z - 0x1.5554d6p-2f;
  float small = (tail * z) * x + x;
  float large = 1.0f - 2.0f * inverse_approximate(1.0f + exp_approximate(2.0f * size));
  return copy_sign_f32(size < 0.5f ? small : large, x);
}

/* Near 0 an odd polynomial; beyond, 1 - exp(-q) with q = -log(erfc). */
MATH float ft_erf_approximate_f32(float x) {
  float size = abs_f32(x), z = x * x;
  float tail = -0x1.3a17fep-11f;
  tail = tail * z + 0x1.473bb2p-8f;
  tail = tail * z - 0x1.b68b56p-6f;
  tail = tail * z + 0x1.ce1a6ap-4f;
  tail = tail * z - 0x1.8126e6p-2f;
  tail = tail * z + 0x1.06eba6p-3f;
  float small = tail * x + x;
  float t = (size > 4.0f ? 4.0f : size) - 1.0f;
  float q = 0x1.449274p-10f;
  q = q * t - 0x1.302af6p-7f;
  q = q * t + 0x1.521a32p-5f;
  q = q * t + 0x1.afaf9ap-1f;
  q = q * t + 0x1.51c9c0p1f;
  q = q * t + 0x1.d97fbep0f;
  float large = 1.0f - exp_approximate(-q);
  return copy_sign_f32(size < 0.921875f ? small : large, x);
}
#else
/* No form that is good to 2^-21 takes less than the exact one. */
MATH float ft_tanh_approximate_f32(float x) { return ft_tanh_f32(x); }
MATH float ft_erf_approximate_f32(float x) { return ft_erf_f32(x); }
#endif
#endif
