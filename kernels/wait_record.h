/* wait_record: what a kernel of `ftc --debug-waits` says before it gives up a wait that has taken too
 * many polls. The module's variable ft_waits holds the address of WAIT_RECORDS + 1 records of
 * WAIT_WORDS 32-bit words each, in memory that the host can still read when the kernel is gone; 0:
 * nobody listens. Word 0 of the first record counts the waits that were given up; wait i is told in
 * record i + 1. plan/waits.h says the same for the runtime; codegen/nvptx_waits.c compares them. */
#ifndef FT_KERNELS_WAIT_RECORD_H
#define FT_KERNELS_WAIT_RECORD_H

enum { WAIT_RECORDS = 15, WAIT_WORDS = 16 };
enum {
  WAIT_WHOLE,   /* 1 when all of the record is written, which happens last */
  WAIT_KERNEL,  /* codegen/nvptx_waits.h: of the entry's name */
  WAIT_BARRIER, /* which of a stage's barriers, below */
  WAIT_STAGE,   /* of a ring; a warpgroup's number for WAIT_TURN */
  WAIT_PARITY,  /* of the phase that does not end */
  WAIT_BLOCK,   /* x, y, z */
  WAIT_THREAD = WAIT_BLOCK + 3,
};
enum { WAIT_FULL, WAIT_EMPTY, WAIT_TURN };
#endif
