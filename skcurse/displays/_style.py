"""What all displays share: axes, colours, and the error without matplotlib."""

from __future__ import annotations

from typing import Any

# Okabe and Ito: told apart with any colour vision. Black is kept for reference lines.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
MARKERS = "osD^vPX"
LABEL: dict[str, Any] = {"fontsize": 9}
LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "handletextpad": 0.4}
COLUMN_WIDTH = 3.3  # inches, one column of a two-column paper


def make_axes(ax: Any, height: float = 2.4, rows: int = 1) -> Any:
    """Return `ax`, or the axes of a new figure one column wide; an array of them if rows > 1.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'skcurse[plot]'.") from error
    if ax is not None:
        return ax
    _, ax = plt.subplots(rows, 1, figsize=(COLUMN_WIDTH, height), layout="constrained")
    return ax
