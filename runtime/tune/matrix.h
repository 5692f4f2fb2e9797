/* matrix: the few operations on symmetric positive definite matrices that a Gaussian process needs. Row-major f64, of n
 * rows with `pitch` elements each; only the lower triangle is read and written unless said otherwise. Written so that every
 * inner loop goes along rows. */
#ifndef FT_RUNTIME_TUNE_MATRIX_H
#define FT_RUNTIME_TUNE_MATRIX_H
#include <stdbool.h>

double matrix_dot(const double *a, const double *b, int count);
/* a = L Lᵀ in place, from row `first` on: the rows before it are of L already. False: not positive definite. */
bool matrix_factor(double *a, int n, int pitch, int first);
/* inverse = L⁻¹, from row `first` on; its upper triangle is not touched. */
void matrix_invert_lower(const double *l, double *inverse, int n, int pitch, int first);
/* out = Mᵀ M for a lower triangular M: with M = L⁻¹ that is (L Lᵀ)⁻¹. */
void matrix_gram(const double *m, double *out, int n, int pitch);
/* out = M x, out = Mᵀ x for a lower triangular M. */
void matrix_times(const double *m, const double *x, double *out, int n, int pitch);
void matrix_transposed_times(const double *m, const double *x, double *out, int n, int pitch);
#endif
