/* ftrun_flags: the command line of ftrun (flags.h). */
#ifndef FT_TOOLS_FTRUN_FLAGS_H
#define FT_TOOLS_FTRUN_FLAGS_H
#include "tools/flags.h"

enum {
  TRAIN = 1,
  EVAL = 2,
  PREDICT = 4,
  BENCH = 8,
  INFO = 16,
  DEVICES = 32,
  GENERATE = 64,
  TOKENIZE = 128,
  REPORT = 256, /* these two look at logs: ftrun_view.h */
  WATCH = 512,
  TUNE = 1024, /* ftrun_tune.h */
  DEPLOY = 2048,
  SHRINK = 4096, /* ftrun_shrink.h */
  QUANTIZE = 8192, /* ftrun_quantize.h */
  SENSITIVITY = 16384,
  LOTTERY = 32768 /* ftrun_lottery.h */
};
enum { COMMAND_TRAIN }; /* its number: the command that is meant where none is named */
extern const CommandLine ftrun_line;
#endif
