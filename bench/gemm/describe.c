/* describe: writes C that describes one product to kernels/gemm_x86.c, as codegen/host_gemm.c does
 * for an artifact: describe NAME M N K TA TB TYPE, an OPERAND_.... Fields have their names, so that a new one of
 * GemmProduct is 0 here and compiles. */
#include "kernels/gemm_host.h"
#include <stdio.h>
#include <stdlib.h>

#ifdef __AVX512F__
enum { VECTOR_BYTES = 64 };
#else
enum { VECTOR_BYTES = 32 };
#endif

int main(int count, char **word) {
  if (count != 8) return 2;
  long m = atol(word[2]), n = atol(word[3]), k = atol(word[4]);
  int ta = atoi(word[5]), tb = atoi(word[6]), type = atoi(word[7]);
  GemmTile tile = gemm_choose(1, m, n, k, ta, type, VECTOR_BYTES);
  long width = (long)tile.vectors * GEMM_LANES;
  int rows[2] = {m >= tile.rows ? (int)tile.rows : 0, (int)(m % tile.rows)};
  int vectors[2] = {n >= width ? (int)tile.vectors : 0,
                    (int)((n % width + GEMM_LANES - 1) / GEMM_LANES)};
  printf("#include \"kernels/gemm_host.h\"\n");
  for (int i = 0; i < 4; i++)
    if (rows[i & 1] && vectors[i >> 1])
      printf("GemmTileKernel gemm_tile_%c%dx%d;\n", tile.depth ? 'p' : ta ? 't' : 'n', rows[i & 1], vectors[i >> 1]);
  printf("static const GemmProduct product = {\n"
         "    .batch = 1, .m = %ld, .n = %ld, .k = %ld, .ta = %d, .tb = %d,\n",
         m, n, k, ta, tb);
  printf(
      "    .rows = %d, .vectors = %d, .in_place = %d, .depth = %ld, .down = %ld, .across = %ld,\n",
      (int)tile.rows, (int)tile.vectors, (int)gemm_in_place(n, k, tb), (long)tile.depth,
      (long)tile.down, (long)tile.across);
  printf("    .type = %d, .may_use = GEMM_AMX | GEMM_DPBF16 | GEMM_WIDENED,\n", type);
  printf("    .is_packed = %d, .arg_a = 1, .arg_b = 2, .arg_c = 3, .near = {%ld}, .tile = {", tile.is_packed, (long)gemm_near(3, m * n, 4));
  for (int i = 0; i < 4; i++)
    if (rows[i & 1] && vectors[i >> 1])
      printf("gemm_tile_%c%dx%d, ", tile.depth ? 'p' : ta ? 't' : 'n', rows[i & 1], vectors[i >> 1]);
    else
      printf("0, ");
  printf("}};\nvoid gemm_%s(void *const *args, int64_t begin, int64_t end) {\n"
         "  gemm_run(&product, args, begin, end);\n}\n",
         word[1]);
  printf("int64_t gemm_work_%s(void) { return %ld; }\n", word[1], (long)tile.work);
  printf("void gemm_pack_%s(void *const *args, int64_t begin, int64_t end) {\n"
         "  gemm_pack_run(&product, args, begin, end);\n}\n"
         "int64_t gemm_packs_%s(void) { return product.is_packed ? gemm_pack_items(&product) : 0; }\n",
         word[1], word[1]);
  fprintf(stderr, "%s: tile %dx%d\n", word[1], (int)tile.rows, (int)tile.vectors);
  return 0;
}
