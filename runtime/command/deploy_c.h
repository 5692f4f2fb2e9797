/* deploy_c: a model as one C file: the text that ftc --inference --cpu portable has put into the artifact, and the
 * weights behind it. */
#ifndef FT_RUNTIME_DEPLOY_C_H
#define FT_RUNTIME_DEPLOY_C_H
#include "runtime/artifact/artifact.h"

/* library: the artifact's bytes, with the weights in place; they become those of the C file `name`, which includes
 * the header beside it. */
STATUS_CHECKED Status deploy_c(const Artifact *artifact, const char *name, Text *library);
#endif
