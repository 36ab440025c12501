#!/usr/bin/env python3
"""Draws the rows that suites/leveldb-compound.sh has measured: how many times as fast each part of the patch is as the unmodified LevelDB on
the same volume.

  plot.py MEASURES > PICTURE.svg      MEASURES: lines of row, side and microseconds, with tabs between them
"""
import statistics
import sys
from xml.sax.saxutils import escape

PARTS = [("commit", "#4477aa", "commit"), ("open", "#ddaa33", "commit, open"), ("block", "#bb5566", "commit, open, block")]
LEFT, TOP, BAR, GAP, WIDTH = 250, 60, 11, 12, 560
MOST = 3.5


def medians(lines):
    runs = {}
    for line in lines:
        row, side, took = line.rstrip("\n").split("\t")
        if row.startswith("flushes"):
            continue
        runs.setdefault(row, {}).setdefault(side, []).append(float(took))
    return {row: {side: statistics.median(took) for side, took in sides.items()} for row, sides in runs.items()}


def main(path):
    with open(path, encoding="utf-8") as measures:
        rows = medians(measures)
    height = TOP + len(rows) * (len(PARTS) * BAR + GAP) + 40
    at = lambda ratio: LEFT + min(ratio, MOST) / MOST * WIDTH
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="10" y="20" font-size="14">LevelDB with compound operations: speed beside the unmodified LevelDB on the same volume</text>']
    for place, (_, colour, label) in enumerate(PARTS):
        x = LEFT + place * 150
        out.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{colour}"/><text x="{x + 17}" y="42">{label}</text>')
    y = TOP
    for row, sides in rows.items():
        out.append(f'<text x="{LEFT - 8}" y="{y + 1.5 * BAR + 4}" text-anchor="end">{escape(row)}</text>')
        for part, colour, _ in PARTS:
            if part in sides:
                ratio = sides["weft"] / sides[part]
                out.append(f'<rect x="{LEFT}" y="{y}" width="{at(ratio) - LEFT:.1f}" height="{BAR - 1}" fill="{colour}"/>'
                           f'<text x="{at(ratio) + 4:.1f}" y="{y + 9}" font-size="10">{ratio:.2f}</text>')
            y += BAR
        y += GAP
    for ratio in (0, 1, 2, 3):
        out.append(f'<line x1="{at(ratio):.1f}" y1="{TOP - 6}" x2="{at(ratio):.1f}" y2="{y}" stroke="black" stroke-width="{1 if ratio == 1 else 0.3}"/>'
                   f'<text x="{at(ratio):.1f}" y="{y + 16}" text-anchor="middle">{ratio}</text>')
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
