"""One step of gradient descent on the attention network as the peers would write it at their best.

All variants use the same stable formula: distances from the leading entry, one exponential each,
three sums. They run in double precision, in chunks of rows, on all cores.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)

Step = Callable[[np.ndarray], np.ndarray]


def prepared(X: np.ndarray) -> tuple[np.ndarray, ...]:
    """Distances, ranges and offsets of all windows for the neurons with w >= 0 and w < 0."""
    query, high, low = X[:, -1:], X.max(1, keepdims=True), X.min(1, keepdims=True)
    span = high - low
    positive = query >= 0
    sides = []
    for up in (positive, ~positive):
        top = np.where(up, high, low)
        gap = np.abs(top - X) / np.where(span > 0, span, 1.0)
        sides.append((gap, np.where(up, -span, span), top - query))
    rate = np.abs(query) * span
    return (*(np.stack(parts, axis=1) for parts in zip(*sides, strict=True)), rate)


def torch_step(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray, signs: np.ndarray, chunk: int, compiled: bool
) -> Step:
    """Eager or compiled PyTorch."""
    order = np.argsort(weights < 0, kind="stable")
    n_positive = int((weights >= 0).sum())
    gap, span, offset, rate = map(torch.from_numpy, prepared(X))
    query, target = torch.from_numpy(X[:, -1].copy()), torch.from_numpy(y.copy())
    mass = torch.from_numpy(signs[order] / np.sqrt(signs.size))
    total_mass = mass.sum()

    def moments(gap, span, offset, rate, size):
        e = torch.exp(-gap[:, :, None] * (rate * size)[:, None, :])
        powers = torch.stack([torch.ones_like(gap), gap, gap * gap], dim=1)
        total, first, second = torch.bmm(powers, e).unbind(1)
        first = first / total
        return offset + span * first, (second / total - first * first) * span * span

    def block(gap, span, offset, rate, query, target, positive, negative, mass):
        parts = [
            moments(gap[:, k], span[:, k], offset[:, k], rate, size)
            for k, size in enumerate((positive, negative))
        ]
        mean = torch.cat([part[0] for part in parts], dim=1)
        var = torch.cat([part[1] for part in parts], dim=1)
        residual = mean @ mass + query * total_mass - target
        return (residual * query) @ var

    run = torch.compile(block, dynamic=False) if compiled else block

    def step(w: np.ndarray) -> np.ndarray:
        size = torch.from_numpy(np.abs(w[order]))
        gradient = torch.zeros_like(size)
        for i in range(0, len(X), chunk):
            rows = slice(i, i + chunk)
            parts = (a[rows] for a in (gap, span, offset, rate, query, target))
            gradient += run(*parts, size[:n_positive], size[n_positive:], mass)
        out = np.empty_like(w)
        out[order] = (mass * gradient).numpy()
        return out

    return step


def jax_step(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray, signs: np.ndarray, chunk: int, fused: bool
) -> Step:
    """Jitted JAX, a scan over chunks; the sums fused with the exponential, or a product."""
    order = np.argsort(weights < 0, kind="stable")
    n_positive = int((weights >= 0).sum())
    arrays = (*prepared(X), X[:, -1], y)
    chunks = [jnp.asarray(a.reshape(-1, chunk, *a.shape[1:])) for a in arrays]
    mass = jnp.asarray(signs[order] / np.sqrt(signs.size))

    def moments(gap, span, offset, rate, size):
        e = jnp.exp(-gap[:, :, None] * (rate * size)[:, None, :])
        if fused:
            total, first, second = (jnp.sum(e * gap[:, :, None] ** k, axis=1) for k in range(3))
        else:
            powers = jnp.stack([jnp.ones_like(gap), gap, gap * gap], axis=1)
            total, first, second = jnp.moveaxis(powers @ e, 1, 0)
        first = first / total
        return offset + span * first, (second / total - first * first) * span * span

    @jax.jit
    def run(size):
        def add(gradient, rows):
            gap, span, offset, rate, query, target = rows
            parts = [
                moments(gap[:, k], span[:, k], offset[:, k], rate, part)
                for k, part in enumerate((size[:n_positive], size[n_positive:]))
            ]
            mean, var = (jnp.concatenate(pair, axis=1) for pair in zip(*parts, strict=True))
            residual = mean @ mass + query * mass.sum() - target
            return gradient + (residual * query) @ var, None

        return jax.lax.scan(add, jnp.zeros_like(size), chunks)[0]

    def step(w: np.ndarray) -> np.ndarray:
        out = np.empty_like(w)
        out[order] = np.asarray(mass * run(jnp.asarray(np.abs(w[order]))))
        return out

    return step


VARIANTS: dict[str, Callable[..., Step]] = {
    "torch eager": partial(torch_step, compiled=False),
    "torch compiled": partial(torch_step, compiled=True),
    "jax jit, product": partial(jax_step, fused=False),
    "jax jit, fused": partial(jax_step, fused=True),
}


def chunk_sizes(n_samples: int, n_neurons: int, n_features: int) -> list[int]:
    """Rows a chunk, so that 2^16 to 2^21 exponentials are in flight."""
    wanted = [2**k // (n_neurons * n_features) for k in (16, 18, 20, 21)]
    return sorted({c for c in map(partial(max, 1), wanted) if n_samples % c == 0})
