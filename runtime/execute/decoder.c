/* decoder: see decoder.h. */
#include "runtime/execute/decoder.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Decoder {
  Exec *exec;
  const PlanProgramme *generate; /* NULL: by evaluating windows, with this: */
  ExecGraph eval;
  const PlanTensor *input;
  const PlanOutput *output;
  int64_t texts; /* that go on at once */
  int64_t window;
  int position;        /* the state of that name */
  int64_t first, done; /* text[first .. first + done) is remembered */
  bool is_moved;       /* the graphs count on from elsewhere */
  bool has_ahead;      /* positions behind the text were computed, too: of tokens that are not there */
  bool is_careful;     /* this is not to be done */
  void *slot;
};

/* ── the plan ─────────────────────────────────────────────────────────────────────────────── */
static const PlanTensor *decoder_find_input(const Plan *plan) {
  for (int i = 0; i < plan->inputs.count; i++)
    if (plan->inputs.at[i].is_needed_for_predict) return &plan->inputs.at[i];
  return NULL;
}

/* The first output of scores for texts of `positions`. */
static const PlanOutput *decoder_find_output(const PlanGraph *graph, int64_t positions) {
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    const Shape *shape = &output->type.shape;
    if (output->kind == OUTPUT_RESULT && output->type.dtype == DT_F32 && shape->rank == 3 &&
        shape->dim[0] > 0 && shape->dim[1] == positions)
      return output;
  }
  return NULL;
}

Status decoder_check(const Plan *plan) {
  const PlanTensor *input = decoder_find_input(plan);
  char have[TYPE_TEXT];
  for (int i = 0; i < plan->inputs.count; i++)
    if (plan->inputs.at[i].is_needed_for_predict && &plan->inputs.at[i] != input)
      return status_fail(STATUS_USER, "generate needs a model of one input, but %s needs %s and %s",
                         plan->model, input->name, plan->inputs.at[i].name);
  if (!input || input->type.shape.rank != 2 ||
      (input->type.dtype != DT_I32 && input->type.dtype != DT_I64))
    return status_fail(STATUS_USER, "generate needs a model of tokens i32[B,T]%s%s%s%s",
                       input ? ", but " : "", input ? input->name : "", input ? " is " : "",
                       input ? type_text(&input->type, have) : "");
  const PlanOutput *output =
      decoder_find_output(plan_result(plan, PROGRAMME_EVALUATE), input->type.shape.dim[1]);
  if (!output || output->type.shape.dim[0] != input->type.shape.dim[0])
    return status_fail(STATUS_USER,
                       "generate needs an output of scores f32[B,T,V]: add `output logits` to %s",
                       plan->model);
  return STATUS_OK;
}

static int64_t widest_run(const PlanProgramme *generate) {
  int64_t most = 1;
  for (int i = 0; i < generate->runs.count; i++)
    if (generate->runs.at[i].positions > most) most = generate->runs.at[i].positions;
  return most;
}

/* The input has room for the tokens of all texts: a plan is a file, it may say anything. */
static bool can_remember(const Plan *plan) {
  const PlanProgramme *generate = plan_find_programme(plan, PROGRAMME_GENERATE);
  const PlanOutput *output =
      generate ? decoder_find_output(plan_result(plan, PROGRAMME_GENERATE), 1) : NULL;
  int64_t room = shape_elements(&decoder_find_input(plan)->type.shape);
  return output && output->type.shape.dim[0] <= room / widest_run(generate);
}

const char *decoder_programme(const Plan *plan, bool is_windowed) {
  return is_windowed || !can_remember(plan) ? PROGRAMME_EVALUATE : PROGRAMME_GENERATE;
}

int64_t decoder_vocabulary(const Plan *plan) {
  const Shape *shape = &decoder_find_input(plan)->type.shape;
  return decoder_find_output(plan_result(plan, PROGRAMME_EVALUATE), shape->dim[1])
      ->type.shape.dim[2];
}

int64_t decoder_texts(const Decoder *decoder) { return decoder->texts; }

int64_t decoder_seen(int64_t window, int64_t count) {
  int64_t half = window / 2 ? window / 2 : 1;
  if (count <= window) return count;
  return count - (count - window + half - 1) / half * half;
}

/* A plan is a file: it may say anything. */
static Status check_position(const Decoder *decoder) {
  const Plan *plan = exec_plan(decoder->exec);
  const Type *type = decoder->position < 0 ? NULL : &plan->states.at[decoder->position].type;
  int64_t widest = widest_run(decoder->generate);
  if (type && type->dtype == DT_I64 && !type->shape.rank &&
      (widest == 1 || widest < decoder->window))
    return STATUS_OK;
  return status_fail(STATUS_USER, "the plan's graphs for generation do not fit its inputs");
}

Status decoder_new(Exec *exec, bool is_windowed, Decoder **out) {
  const Plan *plan = exec_plan(exec);
  STATUS_TRY(decoder_check(plan));
  Decoder *decoder = calloc(1, sizeof *decoder);
  if (!decoder) return status_errno(ENOMEM, "generate");
  const char *programme = decoder_programme(plan, is_windowed);
  bool remembers = !strcmp(programme, PROGRAMME_GENERATE);
  *decoder = (Decoder){.exec = exec,
                       .generate = remembers ? plan_find_programme(plan, programme) : NULL,
                       .eval = exec_result_graph(exec, PROGRAMME_EVALUATE),
                       .input = decoder_find_input(plan),
                       .position = plan_find_role(plan, ROLE_POSITION)};
  const Shape *shape = &decoder->input->type.shape;
  decoder->window = shape->dim[1];
  decoder->output =
      decoder_find_output(plan_result(plan, programme), remembers ? 1 : shape->dim[1]);
  decoder->texts = decoder->output->type.shape.dim[0];
  Status status = exec_batch_new(exec, &decoder->slot);
  if (status == STATUS_OK && remembers) status = check_position(decoder);
  if (status != STATUS_OK) {
    decoder_free(decoder);
    return status;
  }
  *out = decoder;
  return STATUS_OK;
}

void decoder_free(Decoder *decoder) {
  if (!decoder) return;
  exec_batch_free(decoder->exec, decoder->slot);
  free(decoder);
}

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
/* Tokens [at, at + count) of each text, `stride` places apart; the last one again up to `width`. */
static Status decoder_run(Decoder *decoder, ExecGraph graph, const int64_t *const *text,
                          int64_t texts, int64_t at, int64_t count, int64_t width, int64_t stride) {
  char *tokens = (char *)decoder->slot + decoder->input->offset;
  STATUS_TRY(exec_sync(decoder->exec)); /* the slot may still be read */
  for (int64_t t = 0; t < texts; t++)
    for (int64_t i = 0; i < width; i++) {
      int64_t token = text[t][at + (i < count ? i : count - 1)];
      if (decoder->input->type.dtype == DT_I32)
        ((int32_t *)(void *)tokens)[t * stride + i] = (int32_t)token;
      else
        ((int64_t *)(void *)tokens)[t * stride + i] = token;
    }
  return exec_run(decoder->exec, graph, decoder->slot);
}

/* Of position `at` of each text; `rows`: positions of a text. */
static Status decoder_read_scores(Decoder *decoder, int64_t texts, int64_t at, int64_t rows,
                                  float *score) {
  int64_t count = decoder->output->type.shape.dim[2], bytes = count * (int64_t)sizeof(float);
  STATUS_TRY(exec_sync(decoder->exec));
  for (int64_t t = 0; t < texts; t++)
    STATUS_TRY(exec_read(decoder->exec, decoder->output->place,
                         decoder->output->offset + (t * rows + at) * bytes, bytes,
                         score + t * count));
  return STATUS_OK;
}

/* The graphs count on from here. */
static Status set_position(Decoder *decoder, int64_t position) {
  STATUS_TRY(exec_sync(decoder->exec));
  decoder->done = position;
  decoder->is_moved = false;
  return exec_write_state(decoder->exec, decoder->position, sizeof position, &position);
}

static Status forget(Decoder *decoder, int64_t first) {
  STATUS_TRY(exec_sync(decoder->exec));
  /* positions that are not there yet are multiplied by zero, which must not meet what is no
   * number */
  STATUS_TRY(exec_clear(decoder->exec, FOR_TEXT));
  decoder->first = first;
  decoder->has_ahead = false;
  return set_position(decoder, 0);
}

void decoder_restart(Decoder *decoder, int64_t same) {
  int64_t kept = same - decoder->first;
  if (kept < decoder->done) {
    decoder->done = kept > 0 ? kept : 0;
    decoder->is_moved = true;
  }
}

/* What takes the next tokens of the first `seen`, and at which position it begins: the last token is the last run's, which has
 * scores. A run that is wider than what is left before it begins earlier, and computes a few positions again; or, of a short
 * text, goes beyond it, over what comes later. Of very few tokens each is read alone, which takes less time. */
static const PlanRun *next_run(const Decoder *decoder, int64_t seen, int64_t *at) {
  enum { WORTH = 5 }; /* tokens that take as long as this many times the width */
  const PlanProgramme *generate = decoder->generate;
  int64_t done = decoder->done, end = seen - 1, left = end - done;
  *at = done;
  for (int i = 0; i + 1 < generate->runs.count; i++) {
    const PlanRun *run = &generate->runs.at[i];
    int64_t width = run->positions;
    if (left < width && left * WORTH < width) continue;
    if (left < width && end >= width) *at = end - width;
    if (left >= width || end >= width || (done + width <= decoder->window && !decoder->is_careful)) return run;
  }
  return &generate->runs.at[generate->runs.count - 1];
}

static Status decoder_read(Decoder *decoder, const int64_t *const *text, int64_t texts, int64_t seen) {
  while (decoder->done < seen) {
    int64_t at, last = decoder->generate->runs.count - 1;
    const PlanRun *next = next_run(decoder, seen, &at);
    int64_t width = next->positions, there = next == &decoder->generate->runs.at[last] ? 1 : seen - 1 - at;
    int64_t count = there < width ? there : width;
    if (decoder->is_moved || at != decoder->done) STATUS_TRY(set_position(decoder, at));
    ExecGraph graph = exec_graph_of(exec_plan(decoder->exec), next);
    STATUS_TRY(decoder_run(decoder, graph, text, texts, decoder->first + at, count, width, width));
    decoder->done = at + count;
    decoder->is_moved = count < width;
    decoder->has_ahead |= decoder->is_moved;
  }
  return STATUS_OK;
}

static bool has_nan(const float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (x[i] != x[i]) return true;
  return false;
}

Status decoder_scores(Decoder *decoder, const int64_t *const *text, int64_t texts, int64_t count,
                      float *score) {
  int64_t seen = decoder_seen(decoder->window, count), first = count - seen;
  if (!decoder->generate) {
    STATUS_TRY(decoder_run(decoder, decoder->eval, text, texts, first, seen, seen, decoder->window));
    return decoder_read_scores(decoder, texts, seen - 1, decoder->window, score);
  }
  if (decoder->done >= seen) decoder_restart(decoder, count - 1); /* these scores again */
  if (!decoder->done || first != decoder->first) STATUS_TRY(forget(decoder, first));
  STATUS_TRY(decoder_read(decoder, text, texts, seen));
  STATUS_TRY(decoder_read_scores(decoder, texts, 0, 1, score));
  if (!decoder->has_ahead || !has_nan(score, texts * decoder->output->type.shape.dim[2])) return STATUS_OK;
  /* perhaps of positions that are not there, see forget */
  STATUS_TRY(forget(decoder, first));
  decoder->is_careful = true;
  Status status = decoder_read(decoder, text, texts, seen);
  decoder->is_careful = false;
  return status == STATUS_OK ? decoder_read_scores(decoder, texts, 0, 1, score) : status;
}
