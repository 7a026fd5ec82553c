/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_SVG_H
#define TOOLS_MOTE_BENCH_SVG_H

/*
 * A chart as one self-contained SVG file: a bar for each row, made of phases
 * one behind the other, with their figures. Pure, apart from the stream.
 */

#include "vmm/util.h"

#include <stdio.h>

#define SVG_MAX_PARTS 12

struct svg_bar {
    const char *name;
    double parts[SVG_MAX_PARTS]; /* in `unit`; not above 0: not there */
};

struct svg_chart {
    const char *title;
    const char *note; /* a line below: how it was made */
    const char *unit;
    const char *const *parts; /* what each part of a bar is called */
    size_t part_count;        /* at most SVG_MAX_PARTS */
    const struct svg_bar *bars;
    size_t bar_count;
};

void svg_write(FILE *f, const struct svg_chart *c);

#endif
