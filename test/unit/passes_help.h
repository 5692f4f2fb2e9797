/* passes_help: for the unit tests of passes that come after autodiff: random steps, and the check
 * that two graphs compute the same roots. */
#ifndef FT_TEST_PASSES_HELP_H
#define FT_TEST_PASSES_HELP_H
#include "ir_help.h"
#include "turn.h"
#include "passes/pass.h"
#include "passes/probe.h"
#include <math.h>

static const char to_step[] =
    "shapes,simplify,cse,dce,autodiff,precision,widen,optimizer,simplify2,cse2,dce2";

static FILE *help_quiet;

static inline int help_random_count(int usual) {
  const char *soak = getenv("FT_SOAK");
  return soak && *soak ? usual * 10 : usual;
}

/* A function of the seed, so that one seed alone means what it means among others. */
static inline PassContext help_context(Arena *arena, Diag *diag, int seed) {
  static const char *const optimizer[] = {"sgd", "adam", "adamw"};
  PassContext context = {
      .arena = arena, .diag = diag, .settings = settings_new(arena), .of = PASS_OF_TRAIN};
  const char *why;
  if (!help_quiet) help_quiet = fopen("/dev/null", "w");
  diag_init(diag, arena, help_quiet); /* it warns of params that do not influence the loss */
  setting_set(arena, context.settings, setting_find("train.optimizer"), optimizer[seed % 3],
              &why);
  setting_set(arena, context.settings, setting_find("train.schedule"), "cosine", &why);
  return context;
}

static inline Graph *help_pass(PassContext *context, Graph *graph, const char *passes) {
  Graph *after = passes_run_named(context, graph, passes);
  if (!after) fail_msg("%s failed on:\n%s", passes, graph_to_text(graph, context->arena));
  return after;
}

static inline bool help_is_close(double a, double b) {
  return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-8 * fmax(1, fmax(fabs(a), fabs(b)));
}

static inline void help_same_roots(PassContext *context, const Graph *before, const Graph *after,
                                   const char *what) {
  Probe old = {context->arena, before, context->settings, 1},
        fresh = {context->arena, after, context->settings, 1};
  Tensor **x = probe_run(&old, context->diag), **y = probe_run(&fresh, context->diag);
  assert_non_null(x);
  assert_non_null(y);
  for (int i = 0; i < before->roots.count; i++) {
    const Root *root = &before->roots.at[i];
    const Node *node = graph_find_root(after, root->kind, root->name);
    if (!node) fail_msg("%s: the root '%s' is gone", what, root->name);
    const Tensor *a = x[root->node->id], *b = y[node->id];
    assert_true(type_equal(&a->type, &b->type));
    for (int64_t k = 0; k < shape_elements(&a->type.shape); k++)
      if (a->f ? !help_is_close(a->f[k], b->f[k]) : a->i[k] != b->i[k])
        fail_msg("%s: element %lld of the root '%s' changed from %g to %g", what, (long long)k,
                 root->name, a->f ? a->f[k] : (double)a->i[k], b->f ? b->f[k] : (double)b->i[k]);
  }
}
#endif
