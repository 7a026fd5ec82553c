/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_svg.h"

#include <assert.h>

#define SVG_WIDTH  920.0
#define SVG_LEFT   120.0 /* where the bars begin */
#define SVG_BAR    640.0 /* the longest */
#define SVG_TOP    56.0
#define SVG_STEP   48.0
#define SVG_HEIGHT 30.0 /* of a bar */
#define SVG_LETTER 6.6  /* about the width of one, at 12 px */

/* Dark enough for white letters, and apart for who does not see all colours:
 * neighbours differ in brightness. */
static const char *const svg_colours[SVG_MAX_PARTS] = {
    "#1f4e79", "#3f7fb5", "#0b6e4f", "#4c9a6a", "#8a4f00", "#b9770e",
    "#6c2d7c", "#9b59b6", "#7b241c", "#c0392b", "#444444", "#777777"};

static void svg_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '<')
            (void)fputs("&lt;", f);
        else if (*s == '>')
            (void)fputs("&gt;", f);
        else if (*s == '&')
            (void)fputs("&amp;", f);
        else if ((unsigned char)*s >= ' ')
            (void)fputc(*s, f);
    }
}

static void svg_label(FILE *f, double x, double y, const char *style,
                      const char *text)
{
    (void)fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, style);
    svg_text(f, text);
    (void)fprintf(f, "</text>\n");
}

static double svg_sum(const struct svg_chart *c, const struct svg_bar *b)
{
    double sum = 0;

    for (size_t i = 0; i < c->part_count; i++)
        sum += b->parts[i] > 0 ? b->parts[i] : 0;
    return sum;
}

/* A figure is written into its part where there is room for it. */
static void svg_bar_write(FILE *f, const struct svg_chart *c,
                          const struct svg_bar *b, double y, double scale)
{
    double x = SVG_LEFT;
    char text[48];

    svg_label(f, SVG_LEFT - 10, y + 20,
              " text-anchor=\"end\" font-weight=\"bold\"", b->name);
    for (size_t i = 0; i < c->part_count; i++) {
        double w = b->parts[i] > 0 ? b->parts[i] * scale : 0;
        int n = snprintf(text, sizeof(text), "%.4g", b->parts[i]);

        if (w <= 0)
            continue;
        (void)fprintf(f,
                      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                      "height=\"%.0f\" fill=\"%s\"><title>",
                      x, y, w, SVG_HEIGHT, svg_colours[i]);
        svg_text(f, c->parts[i]);
        (void)fprintf(f, ": %s ", text);
        svg_text(f, c->unit);
        (void)fprintf(f, "</title></rect>\n");
        if (w > (n + 1) * SVG_LETTER)
            svg_label(f, x + w / 2, y + 20,
                      " text-anchor=\"middle\" fill=\"#fff\"", text);
        x += w;
    }
    (void)snprintf(text, sizeof(text), "%.4g %s", svg_sum(c, b), c->unit);
    svg_label(f, x + 8, y + 20, "", text);
}

/* Three to a line, below the bars. */
static void svg_legend(FILE *f, const struct svg_chart *c, double y)
{
    size_t shown = 0;

    for (size_t i = 0; i < c->part_count; i++) {
        bool used = false;
        double x = SVG_LEFT + (double)(shown % 3) * 240;
        size_t line = shown / 3;
        double row = y + (double)line * 22;

        for (size_t b = 0; b < c->bar_count; b++)
            used |= c->bars[b].parts[i] > 0;
        if (!used)
            continue;
        (void)fprintf(f,
                      "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" "
                      "fill=\"%s\"/>\n",
                      x, row, svg_colours[i]);
        svg_label(f, x + 20, row + 12, "", c->parts[i]);
        shown++;
    }
}

void svg_write(FILE *f, const struct svg_chart *c)
{
    double legend_y = SVG_TOP + (double)c->bar_count * SVG_STEP + 12;
    size_t lines = (c->part_count + 2) / 3;
    double height = legend_y + (double)lines * 22 + 34;
    double most = 0;

    assert(c->part_count <= SVG_MAX_PARTS);
    for (size_t i = 0; i < c->bar_count; i++)
        most = svg_sum(c, &c->bars[i]) > most ? svg_sum(c, &c->bars[i]) : most;
    (void)fprintf(f,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                  "viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  SVG_WIDTH, height, SVG_WIDTH, height);
    svg_label(f, 20, 30, " font-size=\"17\" font-weight=\"bold\"", c->title);
    for (size_t i = 0; i < c->bar_count; i++)
        svg_bar_write(f, c, &c->bars[i], SVG_TOP + (double)i * SVG_STEP,
                      most > 0 ? SVG_BAR / most : 0);
    svg_legend(f, c, legend_y);
    svg_label(f, 20, height - 12, " fill=\"#555\"", c->note);
    (void)fprintf(f, "</svg>\n");
}
