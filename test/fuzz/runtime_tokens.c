#define KIND (size & 1 ? "tokens16" : "tokens32")
#include "test/fuzz/runtime_idx.c"
