/* nvptx_places: the neighbouring places of an image that a thread computes together. */
#ifndef FT_CODEGEN_NVPTX_PLACES_H
#define FT_CODEGEN_NVPTX_PLACES_H
#include "codegen/nvptx_private.h"

enum { MOST_PLACES = 4 };

/* Divides two digits of the domain, of which a thread takes `width` elements side by side, into tiles, and gives the number of
 * places in one; 1, and the domain stays as it is: nothing is to be gained. Tiled digits are reduced, or are not, as is said, and
 * none of them is the last digit. --disable=window_tiles: always 1. */
int nvptx_tile_places(const Job *job, Domain *domain, bool is_reduced, int width);
/* From now on indices are those of this place of each tile. */
void nvptx_set_place(Domain *domain, int place);
#endif
