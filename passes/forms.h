/* forms: the values of an old graph in other forms: in another order or type, or a part of them
 * only. A form is a number that means something to the pass. Each form of a value is made when it is
 * first asked for, once. */
#ifndef FT_PASSES_FORMS_H
#define FT_PASSES_FORMS_H
#include "passes/pass.h"

typedef struct {
  const Graph *old;
  Graph *fresh;
  /* Makes the value, of others that it gets by forms_get; NULL: there is no such form of it. */
  Node *(*make)(void *pass, const Node *old, int form);
  void *pass;
  Lookup made; /* begins as {.arena = scratch}; by node of `old` and form: an index to */
  VEC(Node *) nodes;
} Forms;

Node *forms_get(Forms *forms, const Node *old, int form);
/* The new graph, complete with the roots, which are in this form. */
Graph *forms_end(Forms *forms, int form);
#endif
