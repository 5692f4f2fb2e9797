/* Any bytes as a NumPy file: opened, read and converted, or refused. */
#define KIND "npy"
#include "test/fuzz/runtime_idx.c"
