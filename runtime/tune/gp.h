/* gp: a Gaussian process over [0, 1]^D: f is drawn with covariance
 *
 *   k(a, b) = scale · (1 + √(5 s) + 5 s / 3) · exp(-√(5 s)),   s = Σ_d inverse_square_length_d · (a_d - b_d)²
 *
 * (Matérn 5/2 with a length for each dimension; Rasmussen and Williams 2006, 4.17), and seen with normal noise. Of
 * a dimension of choices without an order (a_d - b_d)² is 1 where they differ. Lengths, scale and noise are those of the largest
 * posterior density, with priors that keep them off where few observations say little. */
#ifndef FT_RUNTIME_TUNE_GP_H
#define FT_RUNTIME_TUNE_GP_H
#include <stdbool.h>

enum { GP_MOST_DIMS = 64, GP_MOST = 1000 /* observations */ };

typedef struct {
  int dims, count, capacity;
  bool is_apart[GP_MOST_DIMS]; /* dimensions of choices */
  double *x;                   /* [count][dims] */
  double *y;                   /* standardised */
  /* of the newest fit, logarithms: an inverse squared length for each dimension, scale, noise */
  double parameter[GP_MOST_DIMS + 2];
  int fitted; /* how many observations that fit had; 0: none yet */
  double *factor, *inverse, *work,
      *work_inverse;                         /* [capacity][capacity]: L, L⁻¹, and two of scratch */
  double *weight, *scratch, *kernel, *slope; /* K⁻¹ y, … [capacity] */
} Gp;

/* False: no memory. */
bool gp_init(Gp *gp, int dims, const bool *is_apart);
void gp_free(Gp *gp);
/* Takes these observations in place of all it had. The parameters are fitted anew where there are enough new ones to move
 * them. False: no memory. */
bool gp_fit(Gp *gp, const double *x, const double *y, int count);
/* Of f at x. `mean_gradient`, `deviation_gradient`: NULL, or [dims]. */
void gp_predict(Gp *gp, const double *x, double *mean, double *deviation, double *mean_gradient,
                double *deviation_gradient);
/* One observation more, with the parameters as they are: a trial that still runs, with the value that is presumed. */
bool gp_append(Gp *gp, const double *x, double y);
#endif
