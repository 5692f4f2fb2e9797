"""Defects of rates that fall until a layer freezes, and of factors of quantisation that other weights take in: see defects.py."""
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
