"""Draws how uneven every step is, before and after balancing, as an SVG without any library."""

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 170, 56, 62, 70
COLOURS = {"before": "#c0643c", "after": "#3c7dc0"}


def _top(ratios):
    """The upper end of the axis: the next quarter above the largest ratio."""
    return max(1.25, -(-max(ratios) // 0.25) * 0.25)


def _panel(left, phase, before, after):
    top = _top(before + after)
    steps = len(before)
    x = [left + WIDTH * i / max(1, steps - 1) for i in range(steps)]

    def y(ratio):
        return TOP + HEIGHT * (top - ratio) / (top - 1)

    parts = [f'<text x="{left}" y="{TOP - 14}" font-size="14">{phase}</text>']
    ticks = 4
    for i in range(ticks + 1):
        value = 1 + (top - 1) * i / ticks
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for i in range(steps):
        parts.append(f'<text x="{x[i]:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{i}</text>')
    parts.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">step</text>')
    for name, ratios in (("before", before), ("after", after)):
        points = " ".join(f"{x[i]:.1f},{y(ratios[i]):.1f}" for i in range(steps))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x[i]:.1f}" cy="{y(ratios[i]):.1f}" r="3" fill="{COLOURS[name]}">'
                  f'<title>step {i}, {name}: {ratios[i]:.3f}</title></circle>' for i in range(steps)]
    return parts


def imbalance_svg(ratios):
    """`ratios`: {phase: (max/mean over ranks of every step before, after)}. 1.00 is perfectly even."""
    width = LEFT + len(ratios) * (WIDTH + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 48}" '
             f'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-size="14">Tokens of the slowest rank / mean of all ranks, in every step '
             f'(1.00: all ranks are equal)</text>']
    for i, name in enumerate(COLOURS):
        x = LEFT + 130 * i
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="34" y2="34" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 30}" y="38">{name} balancing</text>')
    for i, (phase, (before, after)) in enumerate(ratios.items()):
        parts += _panel(LEFT + i * (WIDTH + GAP), phase, before, after)
    return "\n".join(parts + ["</svg>"]) + "\n"
