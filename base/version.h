/* version: of ft, one for its tools and what they write. */
#ifndef FT_BASE_VERSION_H
#define FT_BASE_VERSION_H
#define FT_VERSION "0.5.0"
#endif
