/* sim_report: what the checker says. One line: where in the .ft file, which kernel, which line of
 * the PTX, what is wrong, at which place of which buffer, by which thread. */
#include "runtime/device/sim/sim_private.h"
#include <stdio.h>
#include <string.h>

/* sim_touch.h is for the handlers; these are its names for threads that are none. */
enum {
  WHO_MANY = 1024,
  WHO_ASYNC = 1026,
  WHO_ATOMIC = 1025,
  WHO_BLOCKS = 1027,
  WHO_PARTIAL = 1028,
  WHO_WARP = 1056,
  WHO_ATOMIC_WARP = 1088
};
enum { CLASH_UNWRITTEN = 1, CLASH_READ, CLASH_WRITE, CLASH_ASYNC, CLASH_STORED, CLASH_CONSTANT };

static void v_fault(SimWarp *w, const SimInst *in, const char *format, va_list args) {
  SimCta *cta = w->cta;
  w->state = WARP_FAULT;
  cta->fault_line = in->line;
  cta->failed_block = cta->block;
  vsnprintf(cta->fault, sizeof cta->fault, format, args);
}

const SimInst *sim_fault(SimWarp *w, const SimInst *in, const char *format, ...) {
  va_list args;
  va_start(args, format);
  v_fault(w, in, format, args);
  va_end(args);
  return NULL;
}

/* ── words ────────────────────────────────────────────────────────────────────────────────── */
enum { WHO_TEXT = 128, PLACE_TEXT = 200 };

static void block_text(const SimRun *run, int64_t block, char *out, size_t size) {
  int64_t x = run->launch->grid[0], y = run->launch->grid[1];
  snprintf(out, size, "block (%lld,%lld,%lld)", (long long)(block % x), (long long)(block / x % y),
           (long long)(block / x / y));
}

static void thread_text(const SimRun *run, uint64_t thread, char *out, size_t size) {
  uint64_t x = (uint64_t)run->launch->block[0], y = (uint64_t)run->launch->block[1];
  snprintf(out, size, "thread (%d,%d,%d)", (int)(thread % x), (int)(thread / x % y),
           (int)(thread / x / y));
}

static const char *lane_text(const SimWarp *w, int lane, char out[WHO_TEXT]) {
  char thread[48], block[64];
  thread_text(w->cta->run, (uint64_t)(w->index * SIM_LANES + lane), thread, sizeof thread);
  block_text(w->cta->run, w->cta->block, block, sizeof block);
  snprintf(out, WHO_TEXT, "%s of %s", thread, block);
  return out;
}

/* Who a record names. */
static const char *touch_text(const SimWarp *w, SimTouch x, bool is_shared, char out[WHO_TEXT]) {
  const SimRun *run = w->cta->run;
  uint64_t who = x >> TOUCH_THREAD & 2047;
  int64_t block = (int64_t)(x >> TOUCH_OWNER & ((1 << TOUCH_BLOCKS) - 1));
  bool is_here = is_shared || block == (w->cta->block & ((1 << TOUCH_BLOCKS) - 1));
  char thread[48] = "some thread", of[64] = "the same block";
  if (who < 1024) thread_text(run, who, thread, sizeof thread);
  if (who == WHO_MANY) snprintf(thread, sizeof thread, "several threads");
  if (who == WHO_ASYNC) snprintf(thread, sizeof thread, "a bulk copy");
  if (who == WHO_ATOMIC) snprintf(thread, sizeof thread, "an atomic instruction");
  if (who >= WHO_ATOMIC_WARP)
    snprintf(thread, sizeof thread, "an atomic instruction of warp %d",
             (int)(who - WHO_ATOMIC_WARP));
  else if (who >= WHO_WARP)
    snprintf(thread, sizeof thread, "lanes of warp %d", (int)(who - WHO_WARP));
  if (!is_here) block_text(run, block, of, sizeof of);
  if (who == WHO_BLOCKS)
    snprintf(out, WHO_TEXT, "several blocks");
  else
    snprintf(out, WHO_TEXT, "%s of %s", thread, of);
  return out;
}

static const char *verb(const SimInst *in) {
  if (in->code == SIM_atom) return "an atomic update";
  if (in->code == SIM_cp_async) return "an asynchronous copy";
  if (in->code == SIM_ldmatrix) return "a matrix load";
  if (in->code == SIM_stmatrix) return "a matrix store";
  if (in->code == SIM_bulk || in->code == SIM_tensor) return "a bulk copy";
  if (in->code == SIM_tensor_store) return "a bulk store";
  return in->is_store ? "a store" : "a load";
}

/* "12 bytes after the end of work+64 f32[8]": the place that is nearest below, or above. */
static const char *place_text(const SimRun *run, uint64_t address, char out[PLACE_TEXT]) {
  const SimPlace *best = NULL;
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < run->place_count; i++) {
    const SimPlace *place = &run->places[i];
    uint64_t at = (uintptr_t)place->at, end = (uintptr_t)place->end;
    uint64_t distance = address < at ? at - address : address < end ? 0 : address - end + 1;
    if (distance >= least) continue;
    best = place;
    least = distance;
  }
  if (!best || least > UINT64_C(1) << 32) {
    snprintf(out, PLACE_TEXT, "address 0x%llx, far from every buffer of the launch",
             (unsigned long long)address);
  } else if (address < (uintptr_t)best->at) {
    snprintf(out, PLACE_TEXT, "%llu bytes before %s", (unsigned long long)least, best->name);
  } else if (address >= (uintptr_t)best->end) {
    snprintf(out, PLACE_TEXT, "%llu bytes after the end of %s", (unsigned long long)least - 1,
             best->name);
  } else {
    snprintf(out, PLACE_TEXT, "byte %llu of %s",
             (unsigned long long)(address - (uintptr_t)best->at), best->name);
  }
  return out;
}

/* ── findings ─────────────────────────────────────────────────────────────────────────────── */
const SimInst *sim_fault_global(SimWarp *w, const SimInst *in, int lane, uint64_t address,
                                int bytes) {
  char place[PLACE_TEXT], who[WHO_TEXT];
  const SimRun *run = w->cta->run;
  place_text(run, address, place);
  lane_text(w, lane, who);
  if (w->unready >> lane & 1)
    return sim_fault(w, in,
                     "too early: %s of %d bytes at %s, by %s, before griddepcontrol.wait: the "
                     "kernel before may still be at work there",
                     verb(in), bytes, place, who);
  if (address & (uint64_t)(bytes - 1))
    return sim_fault(w, in, "misaligned: %s of %d bytes at %s, by %s", verb(in), bytes, place, who);
  for (int i = 0; i < run->place_count; i++)
    if (address >= (uintptr_t)run->places[i].at &&
        address + (uint64_t)bytes <= (uintptr_t)run->places[i].end)
      return sim_fault(w, in, "write to an input: %s of %d bytes at %s, by %s", verb(in), bytes,
                       place, who);
  return sim_fault(w, in, "out of bounds: %s of %d bytes at %s, by %s", verb(in), bytes, place,
                   who);
}

const SimInst *sim_fault_unready(SimWarp *w, const SimInst *in) {
  char who[WHO_TEXT];
  return sim_fault(w, in, "too early: %s ends without griddepcontrol.wait: this kernel may end before the "
                   "one before it, and the next would wait for this one only",
                   lane_text(w, __builtin_ctz(w->unready & w->mask), who));
}

static const SimInst *fault_space(SimWarp *w, const SimInst *in, int lane, uint64_t address,
                                  int bytes, const char *space, int64_t size) {
  char who[WHO_TEXT];
  lane_text(w, lane, who);
  if (address & (uint64_t)(bytes - 1))
    return sim_fault(w, in, "misaligned: %s of %d bytes at byte %lld of %s memory, by %s", verb(in),
                     bytes, (long long)address, space, who);
  return sim_fault(w, in,
                   "out of bounds: %s of %d bytes at byte %lld of %s memory (%lld bytes), by %s",
                   verb(in), bytes, (long long)address, space, (long long)size, who);
}

const SimInst *sim_fault_shared(SimWarp *w, const SimInst *in, int lane, uint64_t address,
                                int bytes) {
  return fault_space(w, in, lane, address, bytes, "shared", w->cta->run->shared_bytes);
}

const SimInst *sim_fault_local(SimWarp *w, const SimInst *in, int lane, uint64_t address,
                               int bytes) {
  return fault_space(w, in, lane, address, bytes, "local", w->cta->run->kernel->local_bytes);
}

const SimInst *sim_fault_local_unwritten(SimWarp *w, const SimInst *in, int lane, uint64_t address,
                                         int bytes) {
  char who[WHO_TEXT];
  return sim_fault(
      w, in,
      "read of local memory that nobody wrote: %s of %d bytes at byte %lld of local memory, by %s",
      verb(in), bytes, (long long)address, lane_text(w, lane, who));
}

const SimInst *sim_fault_unwritten(SimWarp *w, const SimInst *in, int lane, const SimPlace *place,
                                   const char *at, int bytes, int lanes) {
  char text[PLACE_TEXT], who[WHO_TEXT];
  for (int i = 0; i < lanes; i++, at += bytes) {
    if (!memchr(place->written + (at - place->at), 0, (size_t)bytes)) continue;
    lane += i;
    break;
  }
  return sim_fault(w, in, "read of memory that nobody wrote: %s of %d bytes at %s, by %s", verb(in),
                   bytes, place_text(w->cta->run, (uintptr_t)at, text), lane_text(w, lane, who));
}

const SimInst *sim_fault_clash(SimWarp *w, const SimInst *in, int lane, bool is_shared,
                               int64_t offset, int clash, SimTouch other) {
  char place[PLACE_TEXT], who[WHO_TEXT], whom[WHO_TEXT];
  if (is_shared) {
    snprintf(place, sizeof place, "byte %lld of shared memory", (long long)offset);
  } else {
    place_text(w->cta->run, (uint64_t)offset, place);
  }
  lane_text(w, lane, who);
  if (clash == CLASH_UNWRITTEN)
    return sim_fault(w, in, "read of shared memory that nobody wrote: %s at %s, by %s", verb(in),
                     place, who);
  if (clash == CLASH_ASYNC)
    return sim_fault(w, in, "unfinished copy: %s at %s, which a cp.async still fills, by %s",
                     verb(in), place, who);
  if (clash == CLASH_STORED)
    return sim_fault(w, in, "unfinished copy: %s at %s, which a bulk store still reads, by %s",
                     verb(in), place, who);
  bool is_read = !in->is_store && in->code != SIM_atom && in->code != SIM_cp_async &&
                 in->code != SIM_bulk && in->code != SIM_tensor;
  if (clash == CLASH_CONSTANT)
    return sim_fault(w, in,
                     "not constant: %s is %s by %s and %s by %s in one launch; what ld.global.nc "
                     "reads may not be written in it",
                     place, is_read ? "read by ld.global.nc" : "written", who,
                     is_read ? "written" : "read by ld.global.nc",
                     touch_text(w, other, is_shared, whom));
  return sim_fault(w, in, "race: %s is %s by %s and %s by %s, and nothing orders the two", place,
                   is_read ? "read" : "written", who, clash == CLASH_READ ? "read" : "written",
                   touch_text(w, other, is_shared, whom));
}

const SimInst *sim_fault_proxy(SimWarp *w, const SimInst *in, const char *what, bool is_shared,
                               uint64_t at, int who) {
  char place[PLACE_TEXT], thread[48];
  thread_text(w->cta->run, (uint64_t)who, thread, sizeof thread);
  if (is_shared)
    snprintf(place, sizeof place, "byte %llu of shared memory", (unsigned long long)at);
  else
    place_text(w->cta->run, at, place);
  return sim_fault(w, in,
                   "no proxy fence: %s %s, which %s wrote and did not make visible to it by "
                   "fence.proxy.async",
                   what, place, thread);
}

Status sim_report(const SimRun *run, const SimCta *cta) {
  const SimLaunch *launch = run->launch;
  char where[256] = "";
  if (launch->source && launch->line)
    snprintf(where, sizeof where, "%s:%u: ", launch->source, launch->line);
  Status kind = strcmp(cta->fault, "out of memory") == 0 ? STATUS_FAULT : STATUS_USER;
  return status_fail(kind, "%s%s%s%skernel %.160s, %s:%d: %s", where, launch->label ? "\"" : "",
                     launch->label ? launch->label : "", launch->label ? "\": " : "",
                     run->kernel->name, run->kernel->module->path, cta->fault_line, cta->fault);
}
