/* sampler_private: what the files sampler*.c share. */
#ifndef FT_RUNTIME_TUNE_SAMPLER_PRIVATE_H
#define FT_RUNTIME_TUNE_SAMPLER_PRIVATE_H
#include "runtime/tune/gp.h"
#include "runtime/tune/random.h"
#include "runtime/tune/sampler.h"

enum { SOBOL_MOST = SPACE_MOST };
typedef struct {
  uint32_t direction[SOBOL_MOST][32];
} SobolTable;

struct Sampler {
  SamplerKind kind;
  const Space *space;
  uint64_t seed;
  Gp gp;
  bool has_gp;
  int goals;
  SobolTable sobol;
};

enum { SAMPLER_FIRST = 10 }; /* trials that are drawn before a model is made */

/* The purposes of random numbers. */
enum { DRAW_UNIFORM = 1, DRAW_GP, DRAW_TPE, DRAW_CMA, DRAW_SOBOL, DRAW_GOALS };

typedef struct {
  const Sampler *sampler;
  const Observation *seen;
  int count;
  int64_t number;
} Proposal;

Status sampler_next_gp(Sampler *sampler, const Proposal *proposal, double *point);
Status sampler_next_tpe(const Proposal *proposal, double *point);
Status sampler_next_cma(const Proposal *proposal, double *point);
void sampler_next_random(const Proposal *proposal, double *point);
void sobol_prepare(SobolTable *table);
/* Point `number` of the scrambled sequence, each coordinate in (0, 1). */
void sobol_point(const SobolTable *table, int dims, uint64_t seed, int64_t number, double *unit);

/* How many observations have a value, or are known to have failed. */
int proposal_finished(const Proposal *proposal);
/* Nobody has had the point, and the space allows it. */
bool proposal_is_free(const Proposal *proposal, const double *point);
/* Point `nth` of those of the scrambled sequence that the space allows; one of the first 100000, else a random one. */
void sobol_allowed(const Proposal *proposal, int64_t nth, double *point);
#endif
