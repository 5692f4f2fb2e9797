/* minimise: a smooth function of a few numbers within bounds, by L-BFGS with projection (Nocedal and Wright, Numerical
 * Optimization, algorithms 7.4 and 7.5; bounds: variables at a bound whose gradient points outward are left alone). */
#ifndef FT_RUNTIME_TUNE_MINIMISE_H
#define FT_RUNTIME_TUNE_MINIMISE_H

enum { MINIMISE_MOST = 80 }; /* variables */

/* The value at x, with its gradient; may be infinite or NAN where the function is not defined. */
typedef double (*MinimiseFunction)(void *context, const double *x, double *gradient);

typedef struct {
  MinimiseFunction function;
  void *context;
  int count, most_steps;
  const double *low, *high;
  double tolerance; /* ends where no component of the projected gradient is larger */
} Minimise;

/* Moves x, which lies within the bounds, to a local minimum, and returns its value. Never ends at a worse value. */
double minimise(const Minimise *problem, double *x);
#endif
