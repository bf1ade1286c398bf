"""Spectrum of the neural tangent kernel from the table against torch.func and JAX.

The peers differentiate the network for every row, as their documentation shows, or use the closed
form of the derivative; both then need the singular values of an n × m matrix, or the eigenvalues
of the kernel, which lose all that is below 1e-16 of the largest.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from attention_step import problem
from measure import print_header, print_row, ratio_row, take_turns
from torch.func import jacrev, vmap

from skcurse.theory.collocation import CollocationTable
from skcurse.theory.ntk import ntk_singular_values

jax.config.update("jax_enable_x64", True)


def from_table(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Eigenvalues by the collocation table, set-up included."""
    table = CollocationTable(X, interval=(weights.min(), weights.max()))
    return table.ntk_eigenvalues(weights)


def torch_kernel(X: torch.Tensor, weights: torch.Tensor, chunk: int) -> torch.Tensor:
    """Eigenvalues of the kernel from jacobians by torch.func."""

    def neuron_sum(w, x):
        # The signs do not enter the kernel.
        return (torch.softmax(w[:, None] * x[-1] * x, dim=1) @ x).sum()

    jacobian = vmap(jacrev(neuron_sum), in_dims=(None, 0), chunk_size=chunk)(weights, X)
    return torch.linalg.eigvalsh(jacobian @ jacobian.T / weights.numel())


@partial(jax.jit, static_argnames="by_hand")
def jax_kernel(X: jax.Array, weights: jax.Array, by_hand: bool) -> jax.Array:
    """Eigenvalues of the kernel from derivatives by JAX, or in closed form."""

    def output(w, x):
        return jax.nn.softmax(w[:, None] * x[-1] * x, axis=1) @ x

    def features(x):
        if not by_hand:
            return jax.grad(lambda w: output(w, x).sum())(weights)
        share = jax.nn.softmax(weights[:, None] * x[-1] * x, axis=1)
        mean = share @ x
        return x[-1] * (share @ (x * x) - mean * mean)

    phi = jax.lax.map(features, X, batch_size=4)
    return jnp.linalg.eigvalsh(phi @ phi.T / weights.size)


def rows(rounds: int = 5) -> list[dict]:
    """Rows of the table."""
    X, _, weights, _ = problem(512, 16_384, 32)
    Xt, wt, Xj, wj = torch.tensor(X), torch.tensor(weights), jnp.asarray(X), jnp.asarray(weights)
    table = CollocationTable(X, interval=(weights.min(), weights.max()))
    contenders = {
        "table with set-up": lambda: from_table(X, weights),
        "table": lambda: table.ntk_eigenvalues(weights),
        "direct singular values": lambda: ntk_singular_values(X, weights) ** 2,
        "torch.func": lambda: torch_kernel(Xt, wt, 16).numpy()[::-1],
        "jax.grad": lambda: np.asarray(jax_kernel(Xj, wj, by_hand=False))[::-1],
        "jax closed form": lambda: np.asarray(jax_kernel(Xj, wj, by_hand=True))[::-1],
    }
    exact = contenders["direct singular values"]()
    for name, spectrum in contenders.items():
        np.testing.assert_allclose(spectrum()[:8], exact[:8], rtol=1e-6, err_msg=name)
    times = take_turns(contenders, rounds)
    autodiff, all_peers = ["torch.func", "jax.grad"], ["torch.func", "jax.grad", "jax closed form"]
    label = "NTK spectrum, (n, m, d) = (512, 16384, 32)"
    return [
        ratio_row(f"{label}", times, "table", autodiff),
        ratio_row("  with set-up", times, "table with set-up", autodiff),
        ratio_row("  with set-up, peer's closed form too", times, "table with set-up", all_peers),
    ]


if __name__ == "__main__":
    print_header()
    for row in rows():
        print_row(row)
