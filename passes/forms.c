/* forms: see forms.h. */
#include "passes/forms.h"

Node *forms_get(Forms *forms, const Node *old, int form) {
  int key[] = {old->id, form}, found = lookup_find(&forms->made, key, sizeof key);
  if (found >= 0) return forms->nodes.at[found];
  Node *node = forms->make(forms->pass, old, form);
  lookup_add(&forms->made, key, sizeof key, forms->nodes.count);
  VEC_PUSH(forms->made.arena, forms->nodes, node);
  return node;
}

Graph *forms_end(Forms *forms, int form) {
  for (int i = 0; i < forms->old->nodes.count; i++)
    if (node_is_agreed(forms->old->nodes.at[i])) forms_get(forms, forms->old->nodes.at[i], form);
  for (int i = 0; i < forms->old->roots.count; i++) {
    const Root *root = &forms->old->roots.at[i];
    graph_add_root(forms->fresh, root->kind, root->name, forms_get(forms, root->node, form));
  }
  return forms->fresh;
}
