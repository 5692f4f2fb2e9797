/* devices: what this machine can run on, for `ftrun devices`. */
#ifndef FT_RUNTIME_DEVICES_H
#define FT_RUNTIME_DEVICES_H
#include <stdio.h>

/* One line a device, its --device name first; how GPUs are linked; for what is not there, why. */
void devices_print(FILE *out);
#endif
