"""Spectrum of the neural tangent kernel from the table against autodiff and the closed form.

The peers differentiate the network for every row, as their documentation shows, or use the closed
form of the derivative; all then need the eigenvalues of the kernel, which lose what is below 1e-16
of the largest. Each is tuned first: variants run a short race on some of the rows. With
SKCURSE_NEURAL_TANGENTS_PYTHON set to an interpreter of an environment that has neural-tangents (see
`ntk_neural_tangents`), that library takes part too.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
import torch
from attention_step import problem
from measure import on_all_cores, on_one_blas_thread, print_header, print_row, ratio_row, take_turns
from torch.func import grad, vmap

from skcurse.theory.kernel_table import KernelTable
from skcurse.theory.ntk import ntk_singular_values

jax.config.update("jax_enable_x64", True)

SHAPE = (512, 16_384, 32)
RACE_ROWS = 64
PYTHON = "SKCURSE_NEURAL_TANGENTS_PYTHON"

Spectrum = Callable[[], np.ndarray]


def from_table(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Eigenvalues by a table, set-up included, as the estimator's `ntk_eigenvalues` has them."""
    interval = (weights.min(), weights.max())
    return KernelTable(X, interval, map=on_all_cores).singular_values(weights) ** 2


def eigenvalues(features: np.ndarray) -> np.ndarray:
    """Eigenvalues of the kernel, largest first; JAX's own solver finds the vectors too."""
    return np.linalg.eigvalsh(features @ features.T / features.shape[1])[::-1]


def torch_spectrum(X: np.ndarray, weights: np.ndarray, rows: int, neurons: int) -> Spectrum:
    """Eigenvalues from gradients by torch.func, compiled; blocks of the Jacobian."""

    def neuron_sum(w, x):
        # The signs do not enter the kernel.
        return (torch.softmax(w[:, None] * (x[-1] * x), dim=1) @ x).sum()

    gradients = torch.compile(vmap(grad(neuron_sum), in_dims=(None, 0)), dynamic=False)
    chunks, parts = torch.tensor(X).split(rows), torch.tensor(weights).split(neurons)

    def spectrum():
        features = [torch.cat([gradients(w, x) for w in parts], dim=1) for x in chunks]
        return eigenvalues(torch.cat(features).numpy())

    return spectrum


def jax_spectrum(
    X: np.ndarray, weights: np.ndarray, rows: int, neurons: int, by_hand: bool
) -> Spectrum:
    """Eigenvalues from derivatives by JAX, or in closed form, compiled; blocks of the Jacobian."""

    def output(w, x):
        return jax.nn.softmax(w[:, None] * (x[-1] * x), axis=1) @ x

    def features(w, x):
        if not by_hand:
            return jax.grad(lambda w: output(w, x).sum())(w)
        share = jax.nn.softmax(w[:, None] * (x[-1] * x), axis=1)
        mean = share @ x
        return x[-1] * (share @ (x * x) - mean * mean)

    @jax.jit
    def jacobian(X, w):
        def block(x):
            return jax.lax.map(lambda part: features(part, x), w.reshape(-1, neurons)).ravel()

        return jax.lax.map(block, X, batch_size=rows)

    Xj, wj = jnp.asarray(X), jnp.asarray(weights)
    return lambda: eigenvalues(np.asarray(jacobian(Xj, wj)))


class NeuralTangents:
    """Evaluations by neural-tangents in another interpreter, which stays ready between them."""

    def __init__(self, python: str, X: np.ndarray, weights: np.ndarray) -> None:
        script = Path(__file__).with_name("ntk_neural_tangents.py")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "problem.npz"
            np.savez(file, X=X, weights=weights)
            self._process = subprocess.Popen(
                [python, script, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.about = json.loads(self._answer())
        self.eigenvalues = np.array(self.about.pop("eigenvalues"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def __call__(self) -> np.ndarray:
        """One evaluation there; the eigenvalues are those of the first one."""
        print("time", file=self._process.stdin, flush=True)
        self._answer()
        return self.eigenvalues

    def _answer(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"neural-tangents ended with code {self._process.wait()}.")
        return line


def tuned(X: np.ndarray, weights: np.ndarray) -> dict[str, Spectrum]:
    """Peers of this interpreter, with the variants that win a race on the first rows."""
    m = weights.size
    by_torch = [(1, m // 4), (4, m // 16), (16, m)]
    by_jax = list(product((1, 4), (m // 8, m // 4, m)))
    peers = {}
    for name, make, blocks in [
        ("torch.func", torch_spectrum, by_torch),
        ("jax.grad", partial(jax_spectrum, by_hand=False), by_jax),
        ("jax closed form", partial(jax_spectrum, by_hand=True), by_jax),
    ]:
        race = {block: make(X[:RACE_ROWS], weights, *block) for block in blocks}
        times = take_turns(race, 3, 0.0)
        rows, neurons = min(race, key=lambda block: min(times[block]))
        peers[f"{name}, blocks of {rows} × {neurons}"] = make(X, weights, rows, neurons)
    return peers


def measured(
    X: np.ndarray, weights: np.ndarray, peers: dict[str, Spectrum], rounds: int
) -> list[dict]:
    """Ours at hand against the best peer that differentiates, and with set-up against each."""
    table = KernelTable(X, (weights.min(), weights.max()), map=on_all_cores)
    contenders = {
        "table with set-up": on_one_blas_thread(lambda: from_table(X, weights)),
        "table": on_one_blas_thread(lambda: table.singular_values(weights) ** 2),
        **peers,
    }
    exact = ntk_singular_values(X, weights, map=on_all_cores) ** 2
    for name, spectrum in contenders.items():
        np.testing.assert_allclose(spectrum()[:8], exact[:8], rtol=1e-6, err_msg=name)
    times = take_turns(contenders, rounds)
    autodiff = [name for name in peers if not name.startswith("jax closed form")]
    found = [ratio_row(f"NTK spectrum {SHAPE}, table at hand", times, "table", autodiff)]
    for name in peers:
        label = f"  with set-up, against {name.split(',')[0]}"
        found.append(ratio_row(label, times, "table with set-up", [name]))
    return found


def rows(rounds: int = 5) -> list[dict]:
    """Rows of the table."""
    X, _, weights, _ = problem(*SHAPE)
    peers = tuned(X, weights)
    if PYTHON not in os.environ:
        return measured(X, weights, peers, rounds)
    with NeuralTangents(os.environ[PYTHON], X, weights) as other:
        peers[f"neural-tangents, {other.about['winner']}"] = other
        found = measured(X, weights, peers, rounds)
    found[-1]["neural_tangents"] = other.about
    found[-1]["notes"] = {"peak memory there, GiB": other.about["peak_gib"]}
    return found


if __name__ == "__main__":
    print_header()
    for row in rows():
        print_row(row)
