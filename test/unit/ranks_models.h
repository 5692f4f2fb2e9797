/* ranks_models: programs for tests of several ranks. */
#ifndef FT_TEST_RANKS_MODELS_H
#define FT_TEST_RANKS_MODELS_H
static const char *const models[] = {
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  h = relu(Linear(7, name=\"a\")(x))\n  s = Linear(4, name=\"b\")(dropout(h, 0.3))\n"
    "  loss = mean(cross_entropy(s, y, ignore=1))\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01); clip = 0.5; ema = 0.9 }\n",
    /* a sum, and a penalty that no sample influences */
    "model M(x: f32[B, 5]) {\n"
    "  param w: [5, 2] = normal(0.3)\n"
    "  loss = sum((x @ w) ** 2) + 0.1 * sum(w * w)\n  metric largest = max(x @ w)\n}\n"
    "train { model = M; optimizer = sgd(lr=0.01, momentum=0.9) }\n",
    /* the penalty weighed against a mean over what counts */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  s = Linear(3, name=\"a\")(x)\n  param w: [3] = normal(0.3)\n"
    "  loss = mean(cross_entropy(s + w, y, ignore=0)) + 0.5 * sum(w * w)\n"
    "  metric spread = max(s) - min(s)\n}\n"
    "train { model = M; optimizer = adam(lr=0.02) }\n",
    /* a mean over rows of several positions each, random numbers of samples and of parameters */
    "model M(x: f32[B, 4, 6]) {\n"
    "  h = tanh(Linear(6, name=\"a\")(x))\n  h = dropout(rearrange(h, \"b t c -> (b t) c\"), 0.5)\n"
    "  param w: [6] = normal(0.3)\n"
    "  loss = mean(h * dropout(w, 0.4))\n  metric size = mean(abs(h))\n}\n"
    "train { model = M; optimizer = rmsprop(lr=0.01) }\n",
    /* a metric whose totals need others first; parts of a rank cannot be gone through again */
    "model M(x: f32[B, 5]) {\n"
    "  s = tanh(Linear(3, name=\"a\")(x))\n  loss = mean(s ** 2)\n  metric spread = std(s) + "
    "max(abs(s - mean(s)))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1) }\n",
    /* a state that follows the batch, and is read by the next part of it */
    "model M(x: f32[B, 5]) {\n"
    "  state s: f32[1, 5]\n  v = Linear(5, name=\"a\")(x) - s\n"
    "  update s = 0.5 * s + 0.5 * mean(x, axis=0, keepdims=true)\n  loss = mean(v ** 2) + "
    "sum(s)\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1) }\n",
    /* batches in which nothing counts: no loss, and no gradient */
    "model M(x: f32[B, 5], w: f32[B]) {\n"
    "  v = sum(Linear(3, name=\"a\")(x) ** 2, axis=-1)\n  u = f32(w > 0.9)\n"
    "  loss = mean(weighted(v * u, u))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.01) }\n",
    /* rates and decays of their own, a frozen parameter, one that is read twice */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  param w: [5, 5] = normal(0.3)\n  h = tanh(x @ w) @ transpose(w)\n"
    "  s = Linear(3, name=\"b\")(Linear(40, name=\"a\")(h))\n"
    "  loss = mean(cross_entropy(s, y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01, weight_decay=0.3 on rank >= 2)\n"
    "  lr = 0.1x on \"b.*\"; lr = 0x on \"a.bias\"; clip = norm(0.3) }\n",
    /* products that are cut: a gated layer, heads of attention side by side, a table of words whose
     * rows score them, an index of the largest */
    "model M(x: i32[B, T=4], y: i32[B, T]) {\n"
    "  param wte: [12, 12] = normal(0.3)\n  h = embed(wte, x)\n"
    "  q, k, v = split(Linear(36, name=\"qkv\")(h), 3, axis=-1)\n"
    "  q = rearrange(q, \"b t (h d) -> b h t d\", h=4)\n"
    "  k = rearrange(k, \"b t (h d) -> b h t d\", h=4)\n"
    "  v = rearrange(v, \"b t (h d) -> b h t d\", h=4)\n"
    "  a = rearrange(attention(q, k, v, causal=true, dropout=0.3), \"b h t d -> b t (h d)\")\n"
    "  h = h + dropout(Linear(12, name=\"out\")(a), 0.2)\n"
    "  g = dropout(silu(Linear(24, name=\"gate\")(h)) * Linear(24, name=\"up\")(h), 0.3)\n"
    "  h = h + Linear(12, bias=false, name=\"down\")(g)\n"
    "  s = RMSNorm(name=\"n\")(h) @ transpose(wte)\n"
    "  loss = mean(cross_entropy(s, y, ignore=2))\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01, weight_decay=0.3 on rank >= 2); clip = 0.2 }\n",
    /* rows between cut products: samples or positions, norms, random numbers of rows, a table of
     * positions, one of words that scores others (its rows are cut by 2 and 4, or not) */
    "model M(x: i32[B, T=4], y: i32[B, T]) {\n"
    "  param wte: [8, 12] = normal(0.3)\n  param wpe: [T, 12] = normal(0.3)\n"
    "  h = dropout(embed(wte, x) + wpe, 0.1)\n"
    "  repeat i in 0..2 as h {\n"
    "    n = LayerNorm(name=\"n1\")(h)\n"
    "    q = rearrange(Linear(12, name=\"q\")(n), \"b t (h d) -> b h t d\", h=4)\n"
    "    k = rearrange(Linear(6, name=\"k\")(n), \"b t (h d) -> b h t d\", h=2)\n"
    "    v = rearrange(Linear(6, name=\"v\")(n), \"b t (h d) -> b h t d\", h=2)\n"
    "    a = rearrange(attention(q, k, v, causal=true, dropout=0.2), \"b h t d -> b t (h d)\")\n"
    "    h = h + dropout(Linear(12, name=\"out\")(a), 0.2)\n"
    "    m = Linear(12, name=\"down\")(gelu(Linear(24, name=\"up\")(LayerNorm(name=\"n2\")(h))))\n"
    "    h = h + dropout(m, 0.1)\n  }\n"
    "  s = LayerNorm(name=\"f\")(h) @ transpose(wte)\n"
    "  loss = mean(cross_entropy(s, y)) + 0.01 * mean(h * h)\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y))\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01, weight_decay=0.3 on rank >= 2); clip = 0.2 }\n",
    /* rows to the end: classes that are not cut, an embedding that is not, a mean over positions,
     * a mask of its own, norms behind the sums */
    "model M(x: i32[B, T=4], y: i32[B], w: f32[B, T]) {\n"
    "  param wte: [7, 12] = normal(0.3)\n  param g: [T, 1] = normal(0.3)\n"
    "  h = embed(wte, x) * rearrange(w, \"b (t o) -> b t o\", o=1)\n"
    "  repeat i in 0..2 as h {\n"
    "    m = Linear(12, name=\"down\")(relu(Linear(24, name=\"up\")(h)))\n"
    "    h = RMSNorm(name=\"n\")(h + g * dropout(m, 0.1) + g)\n  }\n"
    "  s = Linear(5, name=\"head\")(mean(h, axis=1))\n"
    "  loss = mean(cross_entropy(s, y))\n  metric most = max(abs(h)) + mean(s ** 2)\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01); clip = 0.2; ema = 0.9 }\n",
    /* one gradient of two parameters, of which one is cut */
    "model M(x: f32[B, 5]) {\n"
    "  param a: [1] = normal(0.3)\n  param b: [2] = normal(0.3)\n"
    "  loss = mean(Linear(2, bias=false, name=\"l\")(x) * (b + a))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9); clip = 0.2 }\n",
    /* channels, and their statistics */
    "model M(x: f32[B, 2, 4, 4], y: i32[B]) {\n"
    "  h = relu(BatchNorm(name=\"n\")(Conv2d(12, 3, padding=1, name=\"c\")(x)))\n"
    "  h = relu(Conv2d(5, 3, name=\"d\")(h))\n"
    "  loss = mean(cross_entropy(Linear(12, name=\"b\")(flatten(h, from=1)), y, ignore=2))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9) }\n",
    /* statistics of all samples, and an unbiased variance of them */
    "model M(x: f32[B, 2, 4, 4], y: i32[B]) {\n"
    "  h = relu(BatchNorm(name=\"n\")(Conv2d(3, 3, padding=1, name=\"c\")(x)))\n"
    "  s = Linear(3, name=\"b\")(mean(h, axis=[2, 3]))\n"
    "  loss = mean(cross_entropy(BatchNorm(name=\"m\")(s), y, ignore=2))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9) }\n",
    /* matrices that ranks share out: three of a shape, two, one; behind others, which adamw trains */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  h = Linear(9, name=\"a\")(x)\n  repeat i in 0..3 as h { h = h + tanh(Linear(9, "
    "name=\"w\")(h)) }\n"
    "  repeat i in 0..2 as g { h = h + Linear(9, name=\"d\", bias=false)(relu(Linear(4, "
    "name=\"u\")(h))) }\n"
    "  loss = mean(cross_entropy(Linear(4, name=\"head\")(h), y))\n}\n"
    "train { model = M; optimizer = muon(lr=0.02) on rank == 2 and not (\"head.*\"); clip = 0.5; "
    "ema = 0.9 }\n",
    /* bf16 parameters that are rounded by random numbers */
    "model M(x: f32[B, 5]) {\n"
    "  h = tanh(Linear(40, name=\"a\")(x))\n"
    "  loss = mean(tanh(Linear(7, name=\"b\")(Linear(9, name=\"c\")(h))) ** 2)\n}\n"
    "train { model = M; optimizer = adamw(lr=0.001); lr = 0.1x on \"a.*\"\n"
    "  precision = bf16(parameters=bf16) }\n",
    /* the same, of which nothing else is rounded: parts of products are sums of f32 everywhere */
    "model M(x: f32[B, 5]) {\n"
    "  h = tanh(Linear(24, name=\"a\", precision=f32)(x))\n"
    "  h = tanh(Linear(11, name=\"b\", precision=f32)(h))\n"
    "  h = Linear(12, name=\"d\", precision=f32)(tanh(Linear(36, name=\"c\", precision=f32)(h)))\n"
    "  loss = mean(h ** 2)\n}\n"
    "train { model = M; optimizer = adamw(lr=0.001); lr = 0.1x on \"b.*\"\n"
    "  precision = bf16(parameters=bf16) }\n",
    /* cut matrices of two shapes, and of three in each of two ways, with uncut ones */
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  h = Linear(6, name=\"a\")(x)\n"
    "  repeat i in 0..3 as h {\n"
    "    q, k = split(Linear(24, name=\"qk\", bias=false)(h), 2, axis=-1)\n"
    "    h = h + Linear(6, name=\"o\", bias=false)(tanh(q) * k)\n  }\n"
    "  repeat i in 0..2 as g { h = h + tanh(Linear(6, name=\"w\", bias=false)(h)) }\n"
    "  loss = mean(cross_entropy(Linear(4, name=\"head\")(h), y))\n}\n"
    "train { model = M; optimizer = muon(lr=0.02) on rank == 2 and not (\"head.*\"); clip = 0.5 }\n",
    /* nothing but matrices */
    "model M(x: f32[B, 8]) {\n"
    "  param w: [8, 8] = normal(0.3)\n  param v: [8, 8] = normal(0.3)\n  param u: [8, 40] = "
    "normal(0.3)\n"
    "  loss = mean(tanh(tanh(x @ w) @ v @ u) ** 2)\n}\n"
    "train { model = M; optimizer = muon(lr=0.02, nesterov=false, adjust=original) }\n",
    /* no multiple of the ranks: a vocabulary of 23 whose rows score, with smoothed labels, features
     * with derivatives that are infinite at zero, and random numbers of them */
    "model M(x: i32[B, T=3], y: i32[B, T]) {\n"
    "  param wte: [23, 6] = normal(0.3)\n  h = embed(wte, x)\n"
    "  param g: [11] = normal(0.3)\n"
    "  a = Linear(11, name=\"up\")(h)\n  u = dropout(sqrt(abs(a)) * exp(g) + log(1 + a * a), 0.2)\n"
    "  h = LayerNorm(name=\"n\")(h + Linear(6, name=\"down\")(u * mean(h, axis=-1, keepdims=true)))\n"
    "  s = h @ transpose(wte)\n"
    "  r = tanh(s) * logsumexp(s, axis=-1, keepdims=true)\n"
    "  loss = mean(cross_entropy(s + 0.1 * r, y, smoothing=0.1, ignore=2))\n"
    "  size = max(s, axis=-1) - min(s, axis=-1)\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y) + size)\n}\n"
    "train { model = M; optimizer = adamw(lr=0.01, weight_decay=0.3 on rank >= 2); clip = 0.2; ema = 0.9 }\n",
    /* scores by a layer of its own, of which all are given out; weights of classes */
    "model M(x: f32[B, 4], y: i32[B]) {\n"
    "  s = Linear(17, name=\"head\")(tanh(Linear(9, name=\"a\")(x)))\n"
    "  p = softmax(s, axis=-1)\n  output p\n"
    "  loss = mean(cross_entropy(s + 0.1 * sum(p * p, axis=-1, keepdims=true) * s, y, ignore=1))\n"
    "  metric right = mean(f32(argmax(p, axis=-1) == y))\n}\n"
    "train { model = M; optimizer = sgd(lr=0.1, momentum=0.9); clip = 0.2 }\n",
};
#endif
