"""Draws loads per rank before and after balancing as an SVG without any library."""

BAR, GAP, HEIGHT, MARGIN = 22, 8, 160, 50
COLOURS = {"before": "#c0643c", "after": "#3c7dc0"}


def _bars(x, tokens, top, colour, label):
    parts = []
    highest = top or 1
    for rank, value in enumerate(tokens):
        height = HEIGHT * value / highest
        left = x + rank * (BAR + GAP)
        parts.append(f'<rect x="{left:.1f}" y="{MARGIN + HEIGHT - height:.1f}" width="{BAR}" height="{height:.1f}" '
                     f'fill="{colour}"><title>rank {rank}: {value}</title></rect>')
        parts.append(f'<text x="{left + BAR / 2:.1f}" y="{MARGIN + HEIGHT + 14}" text-anchor="middle">{rank}</text>')
    mean = HEIGHT * (sum(tokens) / len(tokens)) / highest
    y = MARGIN + HEIGHT - mean
    width = len(tokens) * (BAR + GAP)
    parts.append(f'<line x1="{x - 3}" x2="{x + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#222" stroke-dasharray="4 3"/>')
    parts.append(f'<text x="{x}" y="{MARGIN + HEIGHT + 32}">{label}</text>')
    return parts


def loads_svg(totals, ranks):
    """`totals`: {phase: (tokens per rank before, after)}. The dashed line is the mean."""
    group = ranks * (BAR + GAP)
    width = MARGIN + len(totals) * (2 * group + 70)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 2 * MARGIN}" '
             f'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    x = MARGIN
    for phase, (before, after) in totals.items():
        top = max(max(before), max(after))
        parts.append(f'<text x="{x}" y="24" font-size="14">{phase}: tokens per rank</text>')
        parts += _bars(x, before, top, COLOURS["before"], "before")
        parts += _bars(x + group + 20, after, top, COLOURS["after"], "after")
        x += 2 * group + 70
    return "\n".join(parts + ["</svg>"]) + "\n"
