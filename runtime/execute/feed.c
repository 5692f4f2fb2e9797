/* feed: see feed.h. Invariant: either `kept` or `loader` serves, but while a step is open; the loader's slots outlive it. */
#include "runtime/execute/feed.h"
#include "base/clock.h"
#include "plan/step_form.h"
#include "runtime/common/watchdog.h"
#include "runtime/execute/programme.h"
#include "runtime/data/loader.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Feed {
  Exec *exec;
  Programme programme; /* where it stands: at its beginning between two steps */
  FeedOptions options;
  int64_t batch, parts, next; /* next: counts parts */
  int64_t at_once;            /* of a batch's parts, in one run of the step (plan_parts_at_once) */
  int64_t rank, ranks;        /* whose rows of a batch of ranks x batch these are */
  DeviceKept *kept;
  Loader *loader;
  void **slots;
  int slot_count;
  bool has_sizes;       /* rows of several lengths: a programme for each */
  StepRule rule;        /* which form a step has */
  Text paths;           /* of the source's files, with commas between */
  bool is_step;         /* the programme trains */
  bool is_open;         /* no file of the start is being inflated */
  int64_t waited;       /* nanoseconds, for batches, … */
  int64_t opening;      /* … and while it is not open */
  int64_t *samples;     /* while the split is sent to the device, */
  SourceWorker *worker; /* … and the buffers for that */
};

/* ── kept on the device ───────────────────────────────────────────────────────────────────── */
static Status fill(void *context, int64_t first, void *batch) {
  Feed *feed = context;
  int64_t last = source_samples(feed->options.source) - 1;
  for (int64_t i = 0; i < feed->batch; i++) feed->samples[i] = first + i < last ? first + i : last;
  watchdog_progress();
  return source_fill(feed->options.source, feed->worker, feed->samples, batch);
}

/* Sending all of a split is worth it if a good part of it will be used. FT_KEEP_DATA=0 or 1
 * decides otherwise. */
static bool feed_is_worth_keeping(const Feed *feed) {
  const FeedOptions *options = &feed->options;
  const char *chosen = getenv("FT_KEEP_DATA");
  if (options->by_batch || options->repeat_first) return false;
  if (source_is_single(options->source) || source_is_random(options->source)) return false;
  if (source_visits(options->source)) return false; /* a device knows shuffled and plain orders */
  if (feed->ranks > 1) return false;                /* a device's batches are whole ones */
  if (plan_parts_at_once(exec_plan(feed->exec)) > 1) return false; /* not all runs take as many */
  if (source_is_text(options->source) && options->shuffle) return false; /* windows move */
  if (source_samples(options->source) < feed->batch) return false;
  /* the device's epochs are whole batches, not whole steps */
  if (source_samples(options->source) / feed->batch % feed->parts) return false;
  if (chosen && chosen[0]) return strcmp(chosen, "0") != 0;
  double used =
      (double)(options->end_step - options->first_step) * (double)feed->parts * (double)feed->batch;
  return used * 8 >= (double)source_samples(options->source);
}

static Status feed_keep(Feed *feed) {
  const Plan *plan = exec_plan(feed->exec);
  DeviceData data = {.samples = source_samples(feed->options.source),
                     .batch = feed->batch,
                     .shuffle = feed->options.shuffle,
                     .seed = feed->options.seed,
                     .inputs = plan->inputs.at,
                     .input_count = plan->inputs.count,
                     .batch_bytes = exec_batch_bytes(feed->exec),
                     .fill = fill,
                     .context = feed};
  feed->samples = calloc((size_t)feed->batch, sizeof *feed->samples);
  if (!feed->samples) return status_errno(ENOMEM, "batches");
  Status status = source_worker_new(feed->options.source, feed->options.seed, &feed->worker);
  watchdog_begin("the samples, all of which the device keeps", text_cstr(&feed->paths), 0);
  if (status == STATUS_OK) status = exec_keep(feed->exec, &data, &feed->kept);
  watchdog_end();
  source_worker_free(feed->worker);
  feed->worker = NULL;
  free(feed->samples);
  feed->samples = NULL;
  return status;
}

/* Steps in parts; the largest number where that is too many. */
static int64_t parts_of(const Feed *feed, int64_t steps) {
  int64_t parts;
  return __builtin_mul_overflow(steps, feed->parts, &parts) ? INT64_MAX : parts;
}

/* ── through the host ─────────────────────────────────────────────────────────────────────── */
/* Does a thread of the step that has nothing to do make the next batch? */
static bool is_aside(const Feed *feed) {
  return feed->options.workers == 0 && !feed->options.by_batch && exec_has_idle(feed->exec);
}

static Status feed_make_slots(Feed *feed) {
  int holds = exec_holds(feed->exec);
  /* those under way to the device, the one in use, and those prepared ahead */
  int ahead = feed->options.workers ? feed->options.prefetch : is_aside(feed);
  int count = holds + 1 + ahead;
  feed->slots = calloc((size_t)count, sizeof *feed->slots);
  if (!feed->slots) return status_errno(ENOMEM, "batches");
  feed->slot_count = count;
  for (int i = 0; i < count; i++) STATUS_TRY(exec_batch_new(feed->exec, &feed->slots[i]));
  return STATUS_OK;
}

static Status start_loader(Feed *feed, int64_t first_step, int64_t end_step) {
  LoaderOptions options = {.source = feed->options.source,
                           .batch = feed->batch,
                           .rank = feed->rank,
                           .ranks = feed->ranks,
                           .parts = feed->at_once,
                           .group = feed->parts,
                           .shuffle = feed->options.shuffle,
                           .seed = feed->options.seed,
                           .first_step = parts_of(feed, first_step),
                           .end_step = parts_of(feed, end_step),
                           .repeat_first = feed->options.repeat_first,
                           .workers = feed->options.workers,
                           .aside = is_aside(feed),
                           .slots = feed->slots,
                           .slot_count = feed->slot_count,
                           .holds = exec_holds(feed->exec),
                           .spans = feed->options.spans};
  return loader_new(&options, &feed->loader);
}

/* Into how many runs the programme's batch is cut, and how many parts each of them takes. */
static void find_parts(Feed *feed) {
  const PlanProgramme *programme = feed->programme.of;
  feed->is_step = strcmp(programme->name, PROGRAMME_STEP) == 0;
  feed->parts = plan_batches(programme);
  feed->at_once = feed->is_step ? plan_parts_at_once(exec_plan(feed->exec)) : 1;
}

/* Which programme a step is follows from its number, or from its batch. */
static void find_sizes(Feed *feed) {
  const Plan *plan = exec_plan(feed->exec);
  feed->rule = step_rule_of(plan->settings);
  for (int i = 0; i < plan->programmes.count && !feed->rule.grow.kind; i++)
    feed->has_sizes |= plan->programmes.at[i].form.size > 0;
}

/* ── the whole ────────────────────────────────────────────────────────────────────────────── */
Status feed_new(Exec *exec, const char *programme, const FeedOptions *options, Feed **out) {
  Programme start;
  *out = NULL;
  STATUS_TRY(programme_start(exec, programme, &start));
  Feed *feed = calloc(1, sizeof *feed);
  if (!feed) return status_errno(ENOMEM, "batches");
  feed->exec = exec;
  feed->programme = start;
  feed->options = *options;
  if (feed->options.prefetch < 1) feed->options.prefetch = 1;
  feed->batch = (int64_t)setting_number(exec_plan(exec)->settings, "train.batch");
  feed->rank = exec_rank(exec);
  feed->ranks = exec_ranks(exec);
  find_parts(feed);
  find_sizes(feed);
  feed->next = parts_of(feed, options->first_step);
  feed->is_open = !source_is_inflating(options->source);
  source_append_paths(options->source, &feed->paths);
  Status status = feed_is_worth_keeping(feed) ? feed_keep(feed) : STATUS_OK;
  if (status == STATUS_OK && !feed->kept) status = feed_make_slots(feed);
  if (status == STATUS_OK && !feed->kept)
    status = start_loader(feed, options->first_step, options->end_step);
  if (status == STATUS_OK)
    *out = feed;
  else
    feed_free(feed);
  return status;
}

void feed_free(Feed *feed) {
  if (!feed) return;
  Status ignored = is_aside(feed) ? exec_sync(feed->exec) : STATUS_OK; /* no thread in the loader */
  (void)ignored;
  loader_free(feed->loader);
  exec_drop(feed->exec, feed->kept);
  for (int i = 0; i < feed->slot_count; i++) exec_batch_free(feed->exec, feed->slots[i]);
  free(feed->slots);
  text_free(&feed->paths);
  free(feed);
}

Status feed_restart(Feed *feed, const char *programme, int64_t first_step, int64_t end_step) {
  STATUS_TRY(programme_start(feed->exec, programme, &feed->programme));
  find_parts(feed);
  feed->next = parts_of(feed, first_step);
  feed->options.end_step = end_step;
  if (feed->kept) return STATUS_OK;
  STATUS_TRY(exec_sync(feed->exec)); /* batches under way lie in the slots */
  loader_free(feed->loader);
  feed->loader = NULL;
  return start_loader(feed, first_step, end_step);
}

Status feed_resize(Feed *feed, int workers, int prefetch) {
  if (feed->kept) return STATUS_OK;
  STATUS_TRY(exec_sync(feed->exec)); /* batches under way lie in the slots */
  loader_free(feed->loader);
  feed->loader = NULL;
  for (int i = 0; i < feed->slot_count; i++) exec_batch_free(feed->exec, feed->slots[i]);
  free(feed->slots);
  feed->slots = NULL;
  feed->slot_count = 0;
  feed->options.workers = workers;
  feed->options.prefetch = prefetch < 1 ? 1 : prefetch;
  STATUS_TRY(feed_make_slots(feed));
  return start_loader(feed, feed->next / feed->parts, feed->options.end_step);
}

Status feed_next(Feed *feed, const void **batch) {
  bool is_open = feed->is_open;
  int64_t start = clock_nanoseconds();
  watchdog_begin("a batch", text_cstr(&feed->paths), feed->is_step ? feed->next / feed->parts + 1 : 0);
  feed->next++;
  Status status = loader_next(feed->loader, batch);
  watchdog_end();
  *(is_open ? &feed->waited : &feed->opening) += clock_nanoseconds() - start;
  if (!is_open) feed->is_open = !source_is_inflating(feed->options.source);
  return status;
}

Status feed_open_step(Feed *feed) {
  int64_t step = feed->next / feed->parts;
  if (!feed->kept) return STATUS_OK;
  if (!feed->slots) STATUS_TRY(feed_make_slots(feed));
  return start_loader(feed, step, step + 1);
}

void feed_close_step(Feed *feed) {
  if (!feed->kept || !feed->loader) return;
  Status ignored = exec_sync(feed->exec); /* batches under way lie in the slots */
  (void)ignored;
  loader_free(feed->loader);
  feed->loader = NULL;
}

int64_t feed_sample(const Feed *feed, int64_t back, int64_t row) {
  return loader_sample(feed->loader, feed->next - 1 - back, row);
}

/* Up to `most` batches in a row, by one graph. */
static Status run_batches(Feed *feed, ExecGraph graph, int64_t most, int64_t *count) {
  *count = 1;
  if (feed->kept) {
    int64_t limit = exec_most_steps(feed->exec, graph);
    *count = most < limit ? most : limit;
    exec_tell(feed->exec, feed->next / feed->parts + 1, (feed->next + *count - 1) / feed->parts + 1);
    STATUS_TRY(exec_run_kept(feed->exec, graph, feed->kept, feed->next, (int)*count));
    feed->next += *count;
    return STATUS_OK;
  }
  const void *batch;
  int64_t number = feed->next / feed->parts + 1;
  STATUS_TRY(feed_next(feed, &batch));
  exec_tell(feed->exec, number, number);
  if (is_aside(feed))
    return exec_run_beside(feed->exec, graph, batch, loader_fill_ahead, feed->loader);
  return exec_run(feed->exec, graph, batch);
}

/* The programme of step `step`, from 0; *most: steps that can be of it in a row. */
static Status feed_choose(const Feed *feed, int64_t step, int64_t *most, Programme *out) {
  const char *name = feed->programme.of->name;
  int64_t until = INT64_MAX;
  *out = feed->programme;
  if (strcmp(name, PROGRAMME_STEP) != 0) return STATUS_OK;
  StepForm form = {0};
  if (feed->options.total_steps)
    form = step_form(&feed->rule, exec_plan(feed->exec)->settings, feed->options.total_steps, step, &until);
  if (until - step < *most) *most = until - step;
  if (feed->has_sizes && feed->loader) {
    *most = 1;
    form.size = loader_size(feed->loader, step * feed->parts);
  } else if (step_rule_is_one(&feed->rule)) {
    return STATUS_OK;
  }
  return programme_start_form(feed->exec, name, form, out);
}

Status feed_programme(Feed *feed, Programme *out) {
  int64_t most = 1;
  STATUS_TRY(feed_choose(feed, feed->next / feed->parts, &most, &feed->programme));
  *out = feed->programme;
  return STATUS_OK;
}

ExecGraph feed_result(const Feed *feed) { return programme_result(&feed->programme); }

/* Up to `most` steps from `step` on are of this programme. */
static int64_t steps_in_a_row(const Feed *feed, int64_t step, int64_t most) {
  int64_t left = feed->options.end_step - step;
  return most < left ? most : left;
}

Status feed_run(Feed *feed, int64_t most, int64_t *steps) {
  Programme *programme = &feed->programme;
  int64_t step = feed->next / feed->parts, count;
  STATUS_TRY(feed_choose(feed, step, &most, programme));
  *steps = 1;
  if (programme_is_one_run(programme))
    return run_batches(feed, programme_graph(programme), steps_in_a_row(feed, step, most), steps);
  do {
    ExecGraph graph = programme_graph(programme);
    STATUS_TRY(run_batches(feed, graph, programme_left(programme), &count));
  } while (!programme_advance(programme, count));
  return STATUS_OK;
}

/* ── before the first step ────────────────────────────────────────────────────────────────── */
/* What run_batches would run, so many runs from now. */
static Status make_batches_ready(const Feed *feed, ExecGraph graph, int64_t most, int ahead, int64_t *count) {
  *count = 1;
  if (!feed->kept) return exec_make_ready(feed->exec, graph, ahead, 0);
  int64_t limit = exec_most_steps(feed->exec, graph);
  *count = most < limit ? most : limit;
  return exec_make_ready(feed->exec, graph, ahead, (int)*count);
}

Status feed_make_ready(Feed *feed, FeedPause *pause, const void *context) {
  enum { RUNS = 64 };
  int64_t step = feed->next / feed->parts, count;
  for (int run = 0; run < RUNS && step < feed->options.end_step;) {
    Programme programme;
    int64_t most = pause(context, step), left;
    if (feed->has_sizes && feed->loader) return exec_make_all_ready(feed->exec); /* batches say which */
    STATUS_TRY(feed_choose(feed, step, &most, &programme));
    bool is_one = programme_is_one_run(&programme), is_over = false;
    for (count = 0; !is_over; run++) {
      left = is_one ? steps_in_a_row(feed, step, most) : programme_left(&programme);
      STATUS_TRY(make_batches_ready(feed, programme_graph(&programme), left, run, &count));
      is_over = is_one || programme_advance(&programme, count);
    }
    step += is_one ? count : 1;
  }
  return STATUS_OK;
}

bool feed_is_kept(const Feed *feed) { return feed->kept != NULL; }

bool feed_is_open(const Feed *feed) { return feed->is_open || feed->kept; }

double feed_opening(const Feed *feed) { return (double)feed->opening * 1e-9; }

double feed_wait(const Feed *feed) { return (double)feed->waited * 1e-9; }

int64_t feed_memory(const Feed *feed) { return feed->slot_count * exec_batch_bytes(feed->exec); }
