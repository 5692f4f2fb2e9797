/* nvptx_region: see nvptx_region.h. */
#include "codegen/nvptx_region.h"

enum { LEAST_WINDOWS = 4 /* places of a window that are worth a region, and leave time to load the next one */ };

bool nvptx_may_region(const Contract *c) {
  const ConvForm *f = &c->form;
  bool reads_images = c->kind == KIND_CONV || c->kind == KIND_GRAD_INPUT;
  int64_t channels = c->kind == KIND_CONV ? f->in : f->out, most = INT32_MAX / 2 / 8; /* a word has a place, and three bits */
  int64_t lines = f->images * (f->in_height + f->out_height + 2 * f->kernel_height * f->dilation[0]);
  int64_t across = f->in_width + f->out_width + 2 * f->kernel_width * f->dilation[1];
  return reads_images && c->bytes == 2 && f->is_nhwc && f->stride[0] == 1 && f->stride[1] == 1 &&
         c->windows >= LEAST_WINDOWS && channels % (NVPTX_WGMMA_ROW / c->bytes) == 0 && c->a.is_async && lines < most / across &&
         !module_leaves_out(c->job->module, "conv_regions");
}

/* The position of a row among images with what the window reads around them. */
static int64_t region_position(const Contract *c, int64_t row) {
  const ConvForm *f = &c->form;
  bool is_forward = c->kind == KIND_CONV;
  int64_t height = is_forward ? f->out_height : f->in_height, width = is_forward ? f->out_width : f->in_width;
  int64_t lines = height + (f->kernel_height - 1) * f->dilation[0], across = width + (f->kernel_width - 1) * f->dilation[1];
  return (row / width / height * lines + row / width % height) * across + row % width;
}

void nvptx_lay_region(const Contract *c, Tile *tile) {
  const ConvForm *f = &c->form;
  int64_t width = c->kind == KIND_CONV ? f->out_width : f->in_width, most = 0, sum = 0, count = 0;
  int64_t across = (f->kernel_width - 1) * f->dilation[1];
  int64_t more = (f->kernel_height - 1) * f->dilation[0] * (width + across) + across + 1;
  for (int64_t row = 0; row < c->m; row += tile->tile_m, count++) {
    int64_t end = row + tile->tile_m < c->m ? row + tile->tile_m : c->m;
    int64_t rows = region_position(c, end - 1) - region_position(c, row) + more;
    sum += rows;
    if (rows > most) most = rows;
  }
  tile->region = (most + 7) / 8 * 8;
  tile->region_mean = count ? (double)sum / (double)count : 0;
  tile->regions = (c->kind == KIND_CONV ? f->in : f->out) > NVPTX_WGMMA_ROW / c->bytes ? 2 : 1;
}
