"""Plots of a training for notebooks: loss, norms, clip factors, learning rates and ratios of updates to weights.

    kaon.plot.training(kaon.admin.Cluster())

Needs matplotlib (pip install matplotlib). Functions return a matplotlib Figure, which a notebook shows.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from .admin import Cluster, Step
from .errors import FailedPreconditionError, InvalidArgumentError


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise FailedPreconditionError("kaon.plot needs matplotlib, which is not installed: pip install "
                                      "matplotlib") from None
    return pyplot


def _number(value: Optional[float]) -> float:
    return math.nan if value is None else value


def _names(steps: Sequence[Step]) -> List[str]:
    """Returns the groups of all steps in the order of their first appearance."""
    return list(dict.fromkeys(name for step in steps for name in step.norms or {}))


def _draw(axes: Any, steps: Sequence[Step], title: str, lines: Mapping[str, List[float]], scale: str) -> None:
    numbers = [step.step for step in steps]
    for name, values in lines.items():
        axes.plot(numbers, values, label=name, linewidth=1)
    axes.set_title(title)
    axes.set_yscale(scale)
    axes.grid(True, alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="small")
    # A skipped step changed nothing.
    for step in steps:
        if step.outcome == "skip":
            axes.axvline(step.step, color="tab:red", alpha=0.3, linewidth=1)


def _draw_ratios(axes: Any, ratios: Mapping[str, float]) -> None:
    axes.barh(list(ratios), list(ratios.values()))
    axes.invert_yaxis()
    axes.set_title("update / weight of the newest update")
    if any(value > 0 for value in ratios.values()):
        axes.set_xscale("log")
    axes.tick_params(axis="y", labelsize="x-small")


def history(steps: Iterable[Step], ratios: Optional[Mapping[str, float]] = None) -> Any:
    """Plots the train steps of Cluster.steps(); a red line marks a skipped one. `ratios`: of the newest update to the
    weights, by parameter. The history has none of earlier steps. InvalidArgumentError if no step is a train step."""
    trained = [step for step in steps if step.kind == "train"]
    if not trained:
        raise InvalidArgumentError("no train step is in the history: run a step first")
    pyplot = _pyplot()
    groups = _names(trained)
    norms: Dict[str, List[float]] = {"all": [_number(step.grad_norm) for step in trained]}
    clips: Dict[str, List[float]] = {}
    rates: Dict[str, List[float]] = {}
    for name in groups:
        rows = [(step.norms or {}).get(name) for step in trained]
        norms[name] = [_number(row.norm if row else None) for row in rows]
        clips[name] = [_number(row.clip_factor if row else None) for row in rows]
        rates[name] = [_number((step.rates or {}).get(name)) for step in trained]
    figure, axes = pyplot.subplots(3 if ratios else 2, 2, figsize=(11, 9 if ratios else 6), layout="constrained")
    _draw(axes[0][0], trained, "loss", {"loss": [_number(step.loss) for step in trained]}, "linear")
    _draw(axes[0][1], trained, "gradient norm", norms, "log")
    _draw(axes[1][0], trained, "clip factor", clips, "linear")
    _draw(axes[1][1], trained, "learning rate", rates, "linear")
    if ratios:
        _draw_ratios(figure.add_subplot(axes[2][0].get_subplotspec().get_gridspec()[2, :]), ratios)
        axes[2][0].remove()
        axes[2][1].remove()
    # The notebook shows what the function returns, and not the open figure once more.
    pyplot.close(figure)
    return figure


def training(cluster: Optional[Cluster] = None, *, limit: int = 1000, parameters: Optional[Sequence[str]] = None,
             num_parameters: int = 16) -> Any:
    """Plots the newest steps of a cluster, and the ratio of the newest update to the weights: of `parameters`, or of
    the largest ones. Each ratio is a call that only an admin may make. `cluster` is as Cluster() without one."""
    cluster = cluster or Cluster()
    if parameters is None:
        rows = [row for row in cluster.parameters() if row.route != "frozen"]
        rows.sort(key=lambda row: -math.prod(row.shape))
        parameters = [row.name for row in rows[:num_parameters]]
    ratios = {name: cluster.parameter_stats(name).update_to_weight_ratio for name in parameters}
    return history(cluster.steps(limit), {name: ratio for name, ratio in ratios.items() if ratio is not None})
