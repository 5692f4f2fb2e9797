"""Defects of rates that fall until a layer freezes, of averages beside sharpness, of teachers and trainings that are rounded, of rounding that begins in the middle, of dimensions with steps, of factors of quantisation that other weights take in, of settings in sections, and of which dimension has the samples: see defects.py."""
from defects import defect

# ── passes/optimizer_schedule.c, optimizer_groups.c: rates of what comes to rest ──
R, RT = "passes/optimizer_schedule.c", "py test/num/optimizer.py"
defect("rest-rate-progress", R, "at_least_one(u, update_sub(u, end, warmup)));", "at_least_one(u, end));", RT)
defect("rest-rate-whole-steps", R, "update_add(u, update_mul(u, end, total), update_number(u, 0.5)));", "update_mul(u, end, total));", RT)
defect("rest-rate-scale", R, "lr = update_mul(u, lr, at_least_one(u, update_div(u, total, at_least_one(u, end))));",
       "lr = update_mul(u, lr, update_div(u, total, at_least_one(u, end)));", RT)
defect("rest-rate-unknown", R, "  if (rule.is_share) rate = make_select", "  if (!rule.is_share) rate = make_select", "py test/e2e/freeze_after.py")
defect("rest-rate-alike", "passes/optimizer_groups.c", "a->rest == b->rest &&\n         a->is_matrix", "\n         a->is_matrix", RT)
defect("rest-rate-shared", "passes/optimizer_groups.c", "&& (is_rate ? other->rest : 0) == rest) out[i]", ") out[i]", RT)
defect("rest-rate-held", "runtime/command/find_lr.c", ", \"train.freeze.rate.final\"", "", "py test/e2e/freeze_after.py")
defect("rest-rate-one", "frontend/recipe_groups.c", "  if (rest == 1) b->rest_rate = text;", "  if (rest) b->rest_rate = text;", "py test/e2e/freeze_after.py")

# ── frontend/folds.c, runtime/command/quantize_fold.c, quantize_smooth.c ──
F, FT = "frontend/folds.c", "py test/e2e/quantize_fold.py"
Q = "runtime/command/quantize_fold.c"
defect("fold-other-readers", F, "      if (!is_fine_edge(f, f->graph->nodes.at[i], side)) return false;", "      is_fine_edge(f, f->graph->nodes.at[i], side);\n  f->fold->why = NULL;", FT)
defect("fold-one-operand", F, "f->edges[node->id] >> side & 1) ||", "f->edges[node->id]) ||", FT)
defect("fold-sign-alone", F, "return compares && match_value(node->input[1 - side], 0);", "return compares && node->input[1 - side];", FT)
defect("fold-constants", F, "if (match_value(node, 0)) return true;", "if (node->op == OP_BROADCAST || match_value(node, 0)) return true;", FT)
defect("fold-roots", F, "if (f->axis[root->node->id] >= 0 && !is_tap)", "if (f->axis[root->node->id] >= 99 && !is_tap)", FT)
defect("fold-training", F, "fold.why = trained.why;", "fold.why = NULL;", FT)
defect("fold-axis", F, "if (there == before && to->dim[i] == from->dim[axis]) return i;", "if ((there == before || before) && to->dim[i] == from->dim[axis]) return i;", FT)
defect("fold-common-weights", "runtime/command/quantize_smooth.c", "for (int i = 0; i < count; i++) largest_weights(layers[i], weights);", "largest_weights(layers[0], weights);", FT)
defect("fold-not-smoothed", Q, "bool is_smoothed = reader && quantize_is_smoothed(q, reader) &&", "if (!reader) continue;\n      bool is_smoothed =", FT)
defect("fold-rows", Q, "layer->weight[k] *= of->factor[k / layer->rounding.columns];", "layer->weight[k] *= of->factor[k % of->features];", FT)
defect("fold-outputs", Q, "    layer->out = of->factor;\n", "", FT)

# ── frontend/recipe.c, apply.c: settings below what is chosen; frontend/std/quant.ft: a range that is no number ──
A, AT = "frontend/apply.c", "py test/e2e/tune_apply.py"
defect("section-of-section", "frontend/recipe.c", "(entry->kind == AST_SECTION ? section(b, prefix, entry) : section_entry(b, prefix, entry))", "section_entry(b, prefix, entry)", AT)
defect("section-any", "frontend/recipe.c", "is_known |= strcmp(names[i], ast->name) == 0;", "is_known = true;", "lit frontend/errors/section_of_ranks.ft")
defect("section-of-ranks", "frontend/recipe.c", "if (!is_known && strcmp(ast->name, \"distributed\") == 0)", "if (false)", "lit frontend/errors/section_of_ranks.ft")
defect("apply-words-in-sections", A, "bool is_quoted = is_in_section || ", "bool is_quoted = (is_in_section && false) || ", AT)
defect("apply-one-section", A, "for (; (dot = strchr(name, '.')); name = dot + 1)", "for (int i = 0; (dot = strchr(name, '.')) && i++ < 1; name = dot + 1)", AT)
defect("range-no-number", "frontend/std/quant.ft", "where(reshape(size, []) != 0, y, x)", "where(reshape(size, []) > 0, y, x)", "py test/num/integers.py")

# ── frontend/sizes.c, passes/samples.c: which dimension has the samples, and what of it no input tells ──
S, ST = "frontend/sizes.c", "py test/num/divided.py"
defect("sizes-nan", S, "return x == y || (isnan(x) && isnan(y));", "return x == y;", "py test/num/evaluation.py")
defect("sizes-counted", S, "    if (is_number || is_one)", "    if ((is_number && false) || is_one)", ST)
defect("sizes-one-sample", S, "    if (is_number || is_one)", "    if (is_number || (is_one && false))", ST)
defect("sizes-hidden-broadcast", S, "  if (batch == 1 && hides_broadcast(b, graph, built[1], built[2], there[1])) return false;\n", "", ST)
defect("sizes-hidden-in-parts", S, "  if (further && hides_broadcast(b, graph, whole, further, there)) return false;\n", "  (void)further;\n", ST)
defect("sizes-spread", S, "                   (grown[i] >= 0 && axis[node->input[0]->id] < 0);", "                   false;", ST)
defect("sizes-pairs", S, "    if (grown[i] >= 0 && is_told[x->id])", "    if (grown[i] > axis[i] && is_told[x->id])", ST)
defect("samples-counted", "passes/samples.c", "node_int(node, ATTR_AXIS, -1) == axis) return samples_mixed();", "node_int(node, ATTR_AXIS, -1) == axis) return samples_along(f, node, axis, 0);", ST)
defect("samples-pairs", "passes/samples.c", "if (grown >= 0 && x->kind == SAMPLES_EACH) return samples_mixed();", "if (grown >= 0 && x->kind == SAMPLES_EACH) return same;", ST)
defect("samples-spread-level", "passes/samples.c", "x->level + (x->kind == SAMPLES_ALL));\n  if (x->kind", "x->level);\n  if (x->kind", ST)
defect("init-infinite", "plan/plan_print.c", "  if (isfinite(value))\n    plan_print_number(out, value);\n  else", "  if (!isnan(value))\n    plan_print_number(out, value);\n  else", "py test/num/nonfinite.py")
defect("init-type", "ir/infer.c", "  return !is_const || infer_value(in, in->given->dtype, args->floats[0]);", "  return true || is_const || args;", "unit ir_infer")
defect("init-far", "runtime/execute/init.c", "value = value > low ? value < high ? value : high : value <= low ? low : 0;", "value = value > low ? value < high ? value : high : low;", "unit runtime_init")
defect("prune-two-of-four-begin", "passes/prune.c", "PRUNE_N_OF_M) begin = update_op(u, OP_MAX, begin, one);", "PRUNE_LAYER) begin = update_op(u, OP_MAX, begin, one);",
       "py test/e2e/prune.py")
defect("prune-rounded", "frontend/recipe_prune.c", "(class == CLASS_POINTWISE || class == CLASS_MOVE); k++)", "class == CLASS_MOVE; k++)", "py test/e2e/prune.py")
defect("prune-parts-zeros", "frontend/recipe_prune_parts.c", "if (node->op == OP_MUL && (of[0] == 0 || of[1] == 0)) return 0;", "", "py test/e2e/prune_parts.py")
defect("prune-parts-features", "frontend/recipe_prune_parts.c", "if (!of.form || is_other) return none;", "if (!of.form || is_other) continue;", "py test/e2e/prune_parts.py")
defect("prune-parts-groups", "frontend/recipe_prune_parts.c", "if (!is_same && (node->op != OP_RESHAPE || (whole && !shape_equal(in, whole)))) return NULL;", "if (!is_same) return NULL;", "py test/e2e/prune_parts.py")

# ── passes/sharpness.c, frontend/average.c: averages of parameters stay where the weights are moved ──
A, AT = "passes/sharpness.c", "py test/e2e/distil.py"
defect("sharpness-average-moves", A, "s.moved[stays.at[i]->id] = stays.at[i];", "(void)stays;", AT)
defect("sharpness-average-every", A, "!graph_find_root(old, ROOT_STAYS, NULL)", "true", AT)
# ── frontend/quantize_switch.c: rounding that begins, and ranges that stay, in the middle of a training ──
S, ST = "frontend/quantize_switch.c", "py test/num/quant.py"
defect("switch-unlike", S, "type_equal(&(*first)->type, &(*second)->type)", "true", "py test/e2e/quantize.py")
defect("switch-late", S, 'tensor_binary(b, OP_GE, ">=", step', 'tensor_binary(b, OP_GT, ">=", step', ST)
defect("switch-share-cut", S, 'steps, loc), tensor_const(b, DT_F64, 0.5, loc)', 'steps, loc), tensor_const(b, DT_F64, 0.999, loc)', ST)
defect("switch-observes-on", S, 'if (key == observe_key) {', 'if (key == after_key) {', ST)
defect("switch-never-seen", "frontend/std/quant.ft", "where(max_abs > 0, max_abs, now))", "max_abs)", "py test/e2e/quantize.py")
# ── frontend/quantize.c, runtime/checkpoint/ckpt.c: a teacher that is rounded, rounding that begins with --resume ──
defect("quantize-frozen-pattern", "frontend/quantize.c", "return length && !strncmp(word, layer, length) && (word[length] == '.' || !word[length]);", "return length && word;", AT)
defect("resume-rounding-begins", "runtime/checkpoint/ckpt.c", "is_of_rounding && !safetensors_find(file, name)", "is_of_rounding && file", "py test/e2e/quantize.py")
# ── runtime/tune/space.c: values of a range with steps are those that a journal has ──
defect("tune-step-zero", "runtime/tune/space.c", "places = 14 - (int)floor", "places = 30 - (int)floor", "unit runtime_tune")
defect("tune-step-binary", "runtime/tune/space.c", "shorter : exact, dim->high)", "exact : exact, INFINITY)", "unit runtime_tune")
defect("tune-step-old-journal", "runtime/tune/space_text.c", "< 1e-9 * dim->step) *value", "< 0 * dim->step) *value", "unit runtime_tune")
# ── runtime/tune/sampler_gp.c: what a Gaussian process is fitted to ──
defect("gp-extremes", "runtime/tune/sampler_gp.c", "log1p(fmin(y[i], EXTREME))", "log1p(y[i])", "unit runtime_tune")
defect("gp-always-bent", "runtime/tune/sampler_gp.c", "if (spread > 0 && is_skewed) y[i]", "if (spread > 0) y[i]", "unit runtime_tune")
# ── tools/ftrun_study_build.c: numbers of the log that a setting brings ──
defect("goal-brought", "tools/ftrun_study_build.c", 'chooses(b, "train.ema train.average")', 'chooses(b, "train.ema_average")', "py test/e2e/tune_goals.py")
