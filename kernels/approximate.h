/* approximate: elementary functions for results that are rounded to 16 bits, of a GPU's approximate
 * instructions (PTX ISA: ex2.approx 2 ulp, rcp.approx 1 ulp; numbers below 2^-126 count as 0).
 * passes/approximate.c chooses where. Relative errors, to which rounding adds 2^-9 (bf16) or 2^-11
 * (f16), as test/e2e/approximate.py measures them with the instructions' errors at these bounds:
 *   exp, sigmoid 2^-21 + |x| 2^-23; tanh 2^-18; erf 2^-22
 * Results of exp and sigmoid below 2^-126 are 0. Included by math.c. */
#ifndef FT_KERNELS_APPROXIMATE_H
#define FT_KERNELS_APPROXIMATE_H

MATH float ft_exp_approximate_f32(float x) { return __nvvm_ex2_approx_ftz_f(x * LOG2_E_F32); }

MATH float ft_sigmoid_approximate_f32(float x) {
  return __nvvm_rcp_approx_ftz_f(1.0f + __nvvm_ex2_approx_ftz_f(x * -LOG2_E_F32));
}

/* 2 sigmoid(2 x) - 1; near 0, where that cancels, its series. */
MATH float ft_tanh_approximate_f32(float x) {
  float z = x * x;
  float small = (z * 0x1.111112p-3f - 0x1.555556p-2f) * z * x + x;
  float large = 2.0f * ft_sigmoid_approximate_f32(2.0f * x) - 1.0f;
  return copy_sign_f32(abs_f32(x) < 0x1p-4f ? small : large, x);
}

MATH float ft_erf_approximate_f32(float x) {
  ErfF32 parts = erf_parts_f32(x);
  float large = 1.0f - __nvvm_ex2_approx_ftz_f(parts.q * -LOG2_E_F32);
  return copy_sign_f32(abs_f32(x) < 0.921875f ? parts.small : large, x);
}
#endif
