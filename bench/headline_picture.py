#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the summary.json of bench/headline.py as an SVG; needs matplotlib (setup/setup.sh --picture).

  bench/headline_picture.py runs/headline/summary.json headline.svg
"""

import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Colours and greys that stand out from light and dark pages, as the report of a run has.
GREY = "#8b949e"
COLOURS = {"plain": GREY, "model_free": "#d4811f", "static": "#9a6dd7", "full": "#2f81f7",
           "full_early": "#2da44e"}
LABELS = {"plain": "plain", "model_free": "model-free", "static": "static EAGLE", "full": "full",
          "full_early": "full + early gradients"}
STYLE = {"text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "xtick.color": GREY,
         "ytick.color": GREY, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9,
         "axes.titlesize": 10, "svg.hashsalt": "tlt", "svg.fonttype": "none"}


def mean_by_step(summaries, way, value):
    return [statistics.mean(map(value, steps))
            for steps in zip(*(summary["ways"][way]["steps"] for summary in summaries))]


def mean(summaries, way, value):
    return statistics.mean(mean_by_step(summaries, way, value))


def lines(axis, title, by_way):
    axis.set_title(title, loc="left")
    axis.set_xlabel("step")
    for way, values in by_way.items():
        axis.plot(range(1, len(values) + 1), values, color=COLOURS[way], label=LABELS[way])


def bars(axis, title, ways, parts):
    """Stacked bars by way; parts: label -> (opacity, seconds by way)."""
    axis.set_title(title, loc="left")
    axis.set_xlabel("seconds per step")
    left = [0.0] * len(ways)
    for label, (opacity, seconds) in parts.items():
        drawn = axis.barh(range(len(ways)), seconds, left=left, alpha=opacity,
                          color=[COLOURS[way] for way in ways], edgecolor=GREY, linewidth=0.3)
        for i, bar in enumerate(drawn):
            if seconds[i] > 0.12 * max(map(sum, zip(left, seconds))):
                axis.text(left[i] + seconds[i] / 2, bar.get_y() + bar.get_height() / 2, label,
                          ha="center", va="center", fontsize=8,
                          color="white" if opacity > 0.5 else GREY)
        left = [before + more for before, more in zip(left, seconds)]
    axis.set_yticks(range(len(ways)), [LABELS[way] for way in ways])
    axis.invert_yaxis()


def draw(summaries, path):
    ways = list(summaries[0]["ways"])
    drafting = [way for way in ways if way != "plain"]
    plain = mean_by_step(summaries, "plain", lambda step: step["rollout_seconds"])

    def seconds(key):
        return [mean(summaries, way, lambda step: step[key]) for way in ways]

    def idle(use):
        return [mean(summaries, way, lambda step: step["idle"][use]) for way in ways]

    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    rollout, update, whole = map(seconds, ("rollout_seconds", "update_seconds", "step_seconds"))
    other = [a - b - c for a, b, c in zip(whole, rollout, update)]
    bars(axes[0][0], "where the time goes", ways,
         {"rollout": (1.0, rollout), "update": (0.7, update), "other": (0.3, other)})
    lines(axes[0][1], "rollout speedup against plain",
          {way: [a / b for a, b in zip(plain, mean_by_step(
              summaries, way, lambda step: step["rollout_seconds"]))] for way in drafting})
    axes[0][1].axhline(1, color=GREY, linewidth=0.8)
    lines(axes[0][2], "acceptance length",
          {way: mean_by_step(summaries, way, lambda step: step["acceptance_length"])
           for way in drafting})
    axes[0][2].legend(frameon=False, labelcolor=GREY)
    lines(axes[1][0], "training score (the same for all)",
          {way: mean_by_step(summaries, way, lambda step: step["score"]) for way in ways})
    bars(axes[1][1], "idle workers", ways,
         {"drafter": (1.0, idle("drafter")), "gradients": (0.7, idle("gradients")),
          "lost": (0.15, idle("lost"))})
    tail = [[step["response_length"][name] for step in summaries[0]["ways"]["plain"]["steps"]]
            for name in ("p50", "p99")]
    axes[1][2].set_title("response length: median, 99th percentile", loc="left")
    axes[1][2].set_xlabel("step")
    for values in tail:
        axes[1][2].plot(range(1, len(values) + 1), values, color=GREY)
    figure.savefig(path, transparent=True, metadata={"Date": None})


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = json.loads(pathlib.Path(sys.argv[1]).read_text())
    draw(found if isinstance(found, list) else [found], sys.argv[2])


if __name__ == "__main__":
    main()
