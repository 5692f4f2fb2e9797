/* engine: what moves bytes between ranks. An engine is a plug-in: a shared library that exports one
 * symbol, ft_engine, an EngineType. All its functions are called by one thread, the same one from
 * open to close. What fails says why, in ENGINE_WHY bytes at most; the job is at its end then.
 */
#ifndef FT_RUNTIME_ENGINE_H
#define FT_RUNTIME_ENGINE_H
#include "runtime/communicate/comm.h"
#include <stdbool.h>

#define ENGINE_SYMBOL "ft_engine"
/* The version grows with every change of the table, of CommWork or of DType. */
enum { ENGINE_VERSION = 6, ENGINE_WHY = 512 };

typedef struct Engine Engine;
typedef struct EngineWork EngineWork; /* under way */
/* WAITS: for another rank. MOVES: something has come or gone since the last time, and more may at
 * once. */
typedef enum { ENGINE_WAITS, ENGINE_MOVES, ENGINE_DONE } EngineState;

typedef struct {
  int version; /* ENGINE_VERSION; comes first for ever */
  bool keeps_all; /* it does all works itself: none is done in memory that ranks share (shared.h) */
  /* Joins the others: returns when all have come. piece: at most so many elements in one message;
   * 0: as many as the engine likes. */
  bool (*open)(const CommPlace *place, int64_t piece, Engine **out, char *why);
  /* Leaves. After a failure it waits for nobody, and sees to it that the process can exit. */
  void (*close)(Engine *engine, bool has_failed);
  int (*rank)(const Engine *engine);
  int (*ranks)(const Engine *engine);
  const char *(*text)(const Engine *engine); /* "Open MPI 4.1.4" */
  /* All ranks call it for the same axis in the same order, before the first work. The ranks that
   * give the same color are the group of that axis, CommWork.over, for each other, in the order of
   * their ranks. Returns when all have called. Axes that are never split are not used; MESH_ALL,
   * all ranks, is there from the beginning. */
  bool (*split)(Engine *engine, MeshAxis axis, int color, char *why);
  /* Begins the work and does not wait. The caller has looked at it (comm_check). */
  bool (*begin)(Engine *engine, const CommWork *work, EngineWork **out, char *why);
  /* Goes on with all that is under way; DONE: this one has ended and is freed. */
  bool (*go_on)(Engine *engine, EngineWork *work, EngineState *state, char *why);
} EngineType;
#endif
