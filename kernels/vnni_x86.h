/* vnni_x86: the instruction that adds to each of 16 sums the products of four unsigned by four signed bytes (vpdpbusd, of AVX-512
 * or AVX-VNNI), where a level may have it; the processor is asked for it when the program runs. */
#ifndef FT_KERNELS_VNNI_X86_H
#define FT_KERNELS_VNNI_X86_H
#include "kernels/lanes_x86.h"
#include <stdbool.h>
#if defined __AVX2__
#include <cpuid.h>
#include <immintrin.h>
#endif

typedef uint32_t WordLanes __attribute__((ext_vector_type(16)));
typedef uint32_t LooseWords __attribute__((ext_vector_type(16), aligned(4)));

#if defined __AVX512BW__
#define VNNI __attribute__((target("avx512vnni")))
ALWAYS VNNI WordLanes vnni_add(WordLanes sum, WordLanes a, WordLanes b) {
  return (WordLanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
static bool find_vnni(void) { /* the level has AVX-512, so the system keeps its registers */
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1);
}
#elif defined __AVX2__
#define VNNI __attribute__((target("avxvnni")))
#define LOW_HALF(x) (__m256i) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define HIGH_HALF(x) (__m256i) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
typedef uint32_t HalfWords __attribute__((ext_vector_type(8)));
ALWAYS WordLanes both_halves(__m256i low, __m256i high) {
  return __builtin_shufflevector((HalfWords)low, (HalfWords)high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                 11, 12, 13, 14, 15);
}
ALWAYS VNNI WordLanes vnni_add(WordLanes sum, WordLanes a, WordLanes b) {
  return both_halves(_mm256_dpbusd_avx_epi32(LOW_HALF(sum), LOW_HALF(a), LOW_HALF(b)),
                     _mm256_dpbusd_avx_epi32(HIGH_HALF(sum), HIGH_HALF(a), HIGH_HALF(b)));
}
static bool find_vnni(void) { /* AVX-VNNI */
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#else
#define VNNI
ALWAYS WordLanes vnni_add(WordLanes sum, WordLanes a, WordLanes b) {
  for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xffu) * (WordLanes)((IntLanes)(b << (24 - i)) >> 24);
  return sum;
}
#endif

#if defined __AVX2__
/* Asked once: cpuid is slow in a virtual machine. */
static bool has_vnni(void) {
  static _Atomic int known; /* 1: no, 2: yes */
  int is = known;
  if (!is) known = is = 1 + find_vnni();
  return is == 2;
}
#else
static bool has_vnni(void) { return false; }
#endif
#endif
