/* loss_scale: fp16 gradients that neither vanish nor overflow, with torch.amp.GradScaler's rules,
 * wholly inside the step graph; a layer's own precision=fp16 switches it on too. The gradient of
 * the loss starts as the state OWN_LOSS_SCALE; the update divides by it, and where a gradient is
 * not finite nothing is updated: parameters and optimiser states stay as they are, the scale is
 * multiplied by train.loss_scale.backoff, unless that is below LOSS_SCALE_FLOOR (torch has no
 * floor: its scale ends at 0 and every gradient with it), and OWN_SKIPPED counts. After
 * train.loss_scale.every updates in a row the scale grows by train.loss_scale.growth. The state
 * OWN_STEP counts skipped steps too (data and schedule go on); the optimiser's own count, as in
 * bias corrections, does not. */
#ifndef FT_PASSES_LOSS_SCALE_H
#define FT_PASSES_LOSS_SCALE_H
#include "passes/optimizer.h"

/* The smallest normal number of fp16. */
#define LOSS_SCALE_FLOOR 0x1p-14

/* By the recipe, or because a layer asks for it. */
bool loss_scale_is_used(const SettingValue *settings, const Graph *graph);
/* What to differentiate in place of the loss: itself, or (fp16) times the scale; over the number of
 * parts of a batch, so that a part overflows where the whole batch would. */
Node *loss_scale_apply(SettingValue *settings, Graph *graph, Node *loss);
/* fp16: u->grads becomes the plain gradients, u->step the number of updates made so far, and from
 * now on every assign keeps the old value if the step is skipped. */
void update_unscale(Update *u);
/* f32[]: what gradients are multiplied with to be those of the loss itself; NULL: there is no loss scale. */
Node *loss_scale_inverse(Update *u);
/* For train.log.layers, before that: the root grad_factor, where gradients in memory need one. */
void update_show_factor(Update *u);
/* fp16: the next scale, and roots loss_scale and skipped. Ends the above. */
void update_rescale(Update *u);
/* What `target` becomes: `value`, or its old value if the step is skipped. */
Node *update_unless_skipped(Update *u, const char *target, Node *value);
#endif
