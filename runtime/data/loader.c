/* loader: see loader.h. Workers claim free slots under a lock, several at a time. A slot is announced by
 * its own atomic `filled` and given back by the atomic `consumed`, so that neither side takes the lock while
 * the other is ahead. Waking a thread takes longer than a short step may wait for its data: a worker that
 * finds the ring full sleeps until a good part of it should be free, by the time that steps took
 * before, and is woken when half of it is free only if it sleeps still.
 * What is claimed are units: whole batches, or, where samples are read one by one, single samples,
 * so that a slow one holds up nothing but its own batch; whoever fills the last of a batch
 * announces it. */
#include "runtime/data/loader.h"
#include "base/clock.h"
#include "runtime/common/guard.h"
#include "runtime/common/order.h"
#include "runtime/common/watchdog.h"
#include "runtime/data/visits.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The next batch, with `aside`: the consumer sets it to WANTED, and the thread that changes this to
 * BUSY makes the batch. */
typedef enum { AHEAD_NONE, AHEAD_WANTED, AHEAD_BUSY, AHEAD_DONE } Ahead;

struct Loader {
  LoaderOptions options;
  _Atomic Ahead ahead;
  Status ahead_status; /* when DONE */
  int64_t steps_per_epoch;
  int64_t whole;           /* samples of a group on all ranks */
  int64_t *samples;        /* inline mode: the indices of a batch, */
  int64_t sampled;         /* … and its step; -1: none yet */
  _Atomic int64_t *filled; /* by slot: step + 1 whose batch it holds, */
  _Atomic int64_t *done;   /* … and how many units of the next one are in it */
  int64_t units;           /* of a batch */
  SourceWorker *worker;    /* inline mode */
  pthread_t *threads;
  int thread_count;
  atomic_int lanes; /* workers that have begun, for `spans` */
  pthread_mutex_t lock;
  pthread_cond_t has_free, has_filled;
  int64_t claimed;          /* units, under the lock */
  _Atomic int64_t consumed; /* steps given back, written by the consumer only */
  _Atomic int64_t wake_at;  /* `consumed` at which it wakes the workers; INT64_MAX: none sleeps */
  int sleeping;             /* workers that wait for free slots, under the lock */
  int64_t step_time;        /* nanoseconds, under the lock; 0: not known yet */
  bool consumer_waits, stop;
  int64_t failed_step; /* INT64_MAX: none */
  Status failure;
  char *failure_message;
  int64_t next; /* consumer: the step to hand out */
  int64_t waited;
};

int64_t loader_steps_per_epoch(int64_t samples, int64_t batch) { return samples / batch; }

static uint64_t loader_epoch(const Loader *loader, int64_t *step) {
  if (loader->options.repeat_first) *step %= loader->options.group;
  return (uint64_t)(*step / loader->steps_per_epoch);
}

/* In the order of the epoch: where the rank's rows of a batch begin. */
static int64_t first_of_rank(const LoaderOptions *options, int64_t batch) {
  return (batch * options->ranks + options->rank) * options->batch;
}

/* The sample at a position of an epoch. */
static int64_t sample_at(const Loader *loader, const Order *order, uint64_t epoch,
                         int64_t position) {
  const Visits *visits = source_visits(loader->options.source);
  if (!visits) return order_sample(order, position);
  return visits_sample(visits, loader->whole, loader->options.seed, epoch, position);
}

static void choose_samples(const Loader *loader, int64_t step, int64_t *samples) {
  const LoaderOptions *options = &loader->options;
  uint64_t epoch = loader_epoch(loader, &step);
  Order order = order_new(source_samples(options->source), options->shuffle, options->seed, epoch);
  int64_t batch = step % loader->steps_per_epoch * options->parts;
  int64_t moved = options->shuffle ? source_moved(options->source, options->seed, epoch) : 0;
  for (int64_t end = batch + options->parts; batch < end; batch++) {
    int64_t start = first_of_rank(options, batch);
    for (int64_t i = 0; i < options->batch; i++)
      *samples++ = sample_at(loader, &order, epoch, start + i) + moved;
  }
}

static Status fill_parts(const Loader *loader, SourceWorker *worker, int64_t step,
                         const int64_t *samples, void *slot) {
  const LoaderOptions *options = &loader->options;
  uint64_t epoch = loader_epoch(loader, &step);
  for (int64_t part = 0; part < options->parts; part++)
    STATUS_TRY(source_fill_part(options->source, worker, epoch, samples + part * options->batch,
                                part, slot));
  return STATUS_OK;
}

static void note_batch(const Loader *loader, int lane, int64_t step, int64_t start) {
  if (!start) return;
  spans_add(loader->options.spans,
            &(TraceSpan){SPAN_LOADER, lane % SPAN_LANES, start, clock_nanoseconds(),
                         step / loader->options.group + 1, NULL});
}

/* Now, if it shall be noted; else 0. */
static int64_t note_now(const Loader *loader) {
  return spans_is_open(loader->options.spans) ? clock_nanoseconds() : 0;
}

/* One row of a batch's parts. */
static Status loader_fill_row(const Loader *loader, SourceWorker *worker, int64_t step, int64_t row,
                              void *slot) {
  const LoaderOptions *options = &loader->options;
  uint64_t epoch = loader_epoch(loader, &step);
  Order order = order_new(source_samples(options->source), options->shuffle, options->seed, epoch);
  int64_t batch = step % loader->steps_per_epoch * options->parts + row / options->batch;
  int64_t start = first_of_rank(options, batch);
  return source_fill_row(options->source, worker, epoch,
                         sample_at(loader, &order, epoch, start + row % options->batch), row, slot);
}

int64_t loader_size(const Loader *loader, int64_t step) {
  uint64_t epoch = loader_epoch(loader, &step);
  return visits_size(source_visits(loader->options.source), loader->whole, loader->options.seed, epoch,
                     step % loader->steps_per_epoch / loader->options.group);
}

int64_t loader_sample(const Loader *loader, int64_t step, int64_t row) {
  const LoaderOptions *options = &loader->options;
  uint64_t epoch = loader_epoch(loader, &step);
  Order order = order_new(source_samples(options->source), options->shuffle, options->seed, epoch);
  int64_t batch = step % loader->steps_per_epoch * options->parts + row / options->batch;
  int64_t moved = options->shuffle ? source_moved(options->source, options->seed, epoch) : 0;
  return sample_at(loader, &order, epoch, first_of_rank(options, batch) + row % options->batch) +
         moved;
}

static Status loader_fill(const Loader *loader, SourceWorker *worker, int64_t unit,
                          int64_t *samples) {
  int64_t step = unit / loader->units;
  void *slot = loader->options.slots[step % loader->options.slot_count];
  if (loader->units > 1) return loader_fill_row(loader, worker, step, unit % loader->units, slot);
  choose_samples(loader, step, samples);
  return fill_parts(loader, worker, step, samples, slot);
}

/* Without workers. Samples lie anywhere in memory: fetching them costs more than copying them, so
 * the next batch is asked for now, to be in the cache a step later. */
static Status fill_inline(Loader *loader, int64_t step, void *slot) {
  int64_t start = note_now(loader);
  if (loader->sampled != step) choose_samples(loader, step, loader->samples);
  STATUS_TRY(fill_parts(loader, loader->worker, step, loader->samples, slot));
  note_batch(loader, 0, step, start);
  if (step + 1 >= loader->options.end_step) return STATUS_OK;
  choose_samples(loader, step + 1, loader->samples);
  loader->sampled = step + 1;
  source_prefetch(loader->options.source, loader->samples); /* of several parts the first */
  return STATUS_OK;
}

/* Under the lock: until half of the slots that come back are free, or, where it is known how long that
 * takes, somewhat before. If nothing came back until then, the consumer does something else, and its
 * word is waited for. */
static void sleep_until_free(Loader *loader) {
  int64_t half = (loader->options.slot_count - loader->options.holds + 1) / 2;
  int64_t before = loader->claimed / loader->units - loader->options.slot_count;
  int64_t start = clock_nanoseconds(), pause = loader->step_time * half * 3 / 4;
  if (before + half < atomic_load(&loader->wake_at)) atomic_store(&loader->wake_at, before + half);
  loader->sleeping++;
  if (atomic_load(&loader->consumed) > before) {
    pause = 0; /* by now, and it may not have seen `wake_at` */
  } else if (pause) {
    struct timespec time = {.tv_sec = (start + pause) / 1000000000,
                            .tv_nsec = (start + pause) % 1000000000};
    pthread_cond_timedwait(&loader->has_free, &loader->lock, &time);
  } else {
    pthread_cond_wait(&loader->has_free, &loader->lock);
  }
  if (--loader->sleeping == 0) atomic_store(&loader->wake_at, INT64_MAX);
  int64_t given = atomic_load(&loader->consumed) - before;
  loader->step_time = given > 0 ? (clock_nanoseconds() - start) / given : 0;
}

/* Under the lock: takes units of free slots, at most half of the ring. Returns their number. */
static int64_t claim_units(Loader *loader, int64_t *first) {
  int64_t slots = loader->options.slot_count;
  while (!loader->stop) {
    int64_t free_until = atomic_load(&loader->consumed) + slots;
    if (free_until > loader->options.end_step) free_until = loader->options.end_step;
    int64_t count = free_until * loader->units - loader->claimed;
    if (count > 0 && loader->failed_step == INT64_MAX) {
      int64_t most = (slots + 1) / 2;
      if (loader->units > 1) {
        count = 1;
      } else if (loader->thread_count > 1 || count > most) {
        int64_t share = (count + loader->thread_count - 1) / loader->thread_count;
        count = share < most ? share : most;
      }
      *first = loader->claimed;
      loader->claimed += count;
      return count;
    }
    bool is_over = count <= 0 && free_until == loader->options.end_step;
    if (is_over || loader->failed_step != INT64_MAX)
      pthread_cond_wait(&loader->has_free, &loader->lock);
    else
      sleep_until_free(loader);
  }
  return 0;
}

static void loader_announce(Loader *loader, int64_t unit, Status status) {
  int64_t step = unit / loader->units, slot = step % loader->options.slot_count;
  watchdog_progress();
  if (status == STATUS_OK) {
    if (atomic_fetch_add(&loader->done[slot], 1) + 1 < loader->units) return;
    atomic_store_explicit(&loader->done[slot], 0, memory_order_relaxed);
    atomic_store_explicit(&loader->filled[slot], step + 1, memory_order_release);
  }
  pthread_mutex_lock(&loader->lock);
  if (status != STATUS_OK && step < loader->failed_step) {
    free(loader->failure_message);
    loader->failed_step = step;
    loader->failure = status;
    loader->failure_message = strdup(status_message());
  }
  if (loader->consumer_waits) pthread_cond_signal(&loader->has_filled);
  pthread_mutex_unlock(&loader->lock);
}

static void *loader_work(void *argument) {
  Loader *loader = argument;
  int64_t first, count;
  int lane = atomic_fetch_add(&loader->lanes, 1);
  int64_t *samples =
      calloc((size_t)loader->options.batch, (size_t)loader->options.parts * sizeof *samples);
  SourceWorker *worker = NULL;
  Status status = samples ? STATUS_OK : status_errno(ENOMEM, "loader");
  if (status == STATUS_OK)
    status = source_worker_new(loader->options.source, loader->options.seed, &worker);
  for (;;) {
    pthread_mutex_lock(&loader->lock);
    count = claim_units(loader, &first);
    pthread_mutex_unlock(&loader->lock);
    if (!count) break;
    for (int64_t unit = first; unit < first + count; unit++) {
      int64_t start = note_now(loader);
      if (status == STATUS_OK) status = loader_fill(loader, worker, unit, samples);
      note_batch(loader, lane, unit / loader->units, start);
      loader_announce(loader, unit, status);
      if (status != STATUS_OK) break;
    }
  }
  source_worker_free(worker);
  free(samples);
  return NULL;
}

/* Workers leave signals to the main thread. */
static Status loader_start_workers(Loader *loader) {
  sigset_t before;
  guard_block_signals(&before);
  int error = 0, wanted = loader->options.workers;
  loader->threads = calloc((size_t)wanted, sizeof *loader->threads);
  if (!loader->threads) error = ENOMEM;
  /* a claim divides by the number of workers: say it before the first one starts */
  pthread_mutex_lock(&loader->lock);
  loader->thread_count = wanted;
  int started = 0;
  while (!error && started < wanted) {
    error = pthread_create(&loader->threads[started], NULL, loader_work, loader);
    if (!error) started++;
  }
  loader->thread_count = started;
  pthread_mutex_unlock(&loader->lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error ? status_errno(error, "cannot start %d data workers", wanted) : STATUS_OK;
}

Status loader_new(const LoaderOptions *options, Loader **out) {
  *out = NULL;
  Loader *loader = calloc(1, sizeof *loader);
  if (!loader) return status_errno(ENOMEM, "loader");
  pthread_mutex_init(&loader->lock, NULL);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&loader->has_free, &clock);
  pthread_condattr_destroy(&clock);
  pthread_cond_init(&loader->has_filled, NULL);
  loader->options = *options;
  if (loader->options.group < 1) loader->options.group = 1;
  if (loader->options.parts < 1) loader->options.parts = 1;
  if (loader->options.ranks < 1) loader->options.ranks = 1;
  int64_t group = loader->options.group, whole = options->batch * loader->options.ranks;
  whole *= loader->options.parts;
  loader->whole = whole * group;
  loader->steps_per_epoch =
      group * loader_steps_per_epoch(source_epoch_samples(options->source), loader->whole);
  if (source_is_single(options->source)) loader->units = options->batch * loader->options.parts;
  if (loader->units < 1) loader->units = 1;
  loader->consumed = loader->next = options->first_step;
  loader->wake_at = INT64_MAX;
  loader->claimed = options->first_step * loader->units;
  loader->failed_step = INT64_MAX;
  loader->sampled = -1;
  loader->samples =
      calloc((size_t)options->batch, (size_t)loader->options.parts * sizeof *loader->samples);
  loader->filled = calloc((size_t)options->slot_count, sizeof *loader->filled);
  loader->done = calloc((size_t)options->slot_count, sizeof *loader->done);
  Status status = STATUS_OK;
  if (!loader->samples || !loader->filled || !loader->done)
    status = status_errno(ENOMEM, "loader");
  else if (options->workers > 0)
    status = loader_start_workers(loader);
  else
    status = source_worker_new(options->source, options->seed, &loader->worker);
  if (status == STATUS_OK)
    *out = loader;
  else
    loader_free(loader);
  return status;
}

void loader_free(Loader *loader) {
  if (!loader) return;
  pthread_mutex_lock(&loader->lock);
  loader->stop = true;
  pthread_cond_broadcast(&loader->has_free);
  pthread_mutex_unlock(&loader->lock);
  for (int i = 0; i < loader->thread_count; i++) pthread_join(loader->threads[i], NULL);
  pthread_cond_destroy(&loader->has_free);
  pthread_cond_destroy(&loader->has_filled);
  pthread_mutex_destroy(&loader->lock);
  free(loader->threads);
  free(loader->samples);
  free((void *)loader->filled);
  free((void *)loader->done);
  source_worker_free(loader->worker);
  free(loader->failure_message);
  free(loader);
}

/* Gives the batch handed out before back to the workers. */
static void loader_give_back(Loader *loader) {
  if (loader->next - loader->options.first_step <= loader->options.holds) return;
  int64_t consumed = atomic_load_explicit(&loader->consumed, memory_order_relaxed) + 1;
  atomic_store(&loader->consumed, consumed);
  if (consumed < atomic_load(&loader->wake_at)) return;
  pthread_mutex_lock(&loader->lock);
  atomic_store(&loader->wake_at, INT64_MAX);
  pthread_cond_broadcast(&loader->has_free);
  pthread_mutex_unlock(&loader->lock);
}

static Status wait_for_batch(Loader *loader, int64_t step) {
  int64_t slot = step % loader->options.slot_count, start = clock_nanoseconds();
  Status status = STATUS_OK;
  pthread_mutex_lock(&loader->lock);
  loader->consumer_waits = true;
  while (atomic_load(&loader->filled[slot]) != step + 1 && step < loader->failed_step)
    pthread_cond_wait(&loader->has_filled, &loader->lock);
  loader->consumer_waits = false;
  if (atomic_load(&loader->filled[slot]) != step + 1)
    status = status_fail(loader->failure, "%s",
                         loader->failure_message ? loader->failure_message : "data");
  pthread_mutex_unlock(&loader->lock);
  loader->waited += clock_nanoseconds() - start;
  return status;
}

static void *inline_slot(const Loader *loader, int64_t step) {
  return loader->options.slots[step % (loader->options.holds + 1 + loader->options.aside)];
}

void loader_fill_ahead(void *context) {
  Loader *loader = context;
  Ahead wanted = AHEAD_WANTED;
  if (atomic_load_explicit(&loader->ahead, memory_order_relaxed) != wanted ||
      !atomic_compare_exchange_strong(&loader->ahead, &wanted, AHEAD_BUSY))
    return;
  loader->ahead_status = fill_inline(loader, loader->next, inline_slot(loader, loader->next));
  atomic_store_explicit(&loader->ahead, AHEAD_DONE, memory_order_release);
}

/* Is the batch there? What failed ahead fails again here, with the message in this thread. */
static bool take_ahead(Loader *loader) {
  Ahead state = AHEAD_WANTED;
  if (atomic_compare_exchange_strong(&loader->ahead, &state, AHEAD_NONE) || state == AHEAD_NONE)
    return false;
  while (atomic_load_explicit(&loader->ahead, memory_order_acquire) != AHEAD_DONE) sched_yield();
  atomic_store_explicit(&loader->ahead, AHEAD_NONE, memory_order_relaxed);
  return loader->ahead_status == STATUS_OK;
}

static Status next_inline(Loader *loader, const void **batch) {
  void *slot = inline_slot(loader, loader->next);
  if (!take_ahead(loader)) STATUS_TRY(fill_inline(loader, loader->next, slot));
  *batch = slot;
  loader->next++;
  if (loader->options.aside && loader->next < loader->options.end_step)
    atomic_store_explicit(&loader->ahead, AHEAD_WANTED, memory_order_release);
  return STATUS_OK;
}

Status loader_next(Loader *loader, const void **batch) {
  int64_t step = loader->next;
  if (loader->options.workers == 0) return next_inline(loader, batch);
  loader_give_back(loader);
  int64_t slot = step % loader->options.slot_count;
  if (atomic_load_explicit(&loader->filled[slot], memory_order_acquire) != step + 1)
    STATUS_TRY(wait_for_batch(loader, step));
  *batch = loader->options.slots[slot];
  loader->next++;
  return STATUS_OK;
}

int64_t loader_waited(const Loader *loader) { return loader->waited; }
