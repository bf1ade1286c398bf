"""Time one loss-and-gradient step of the in-context learner against PyTorch and JAX.

Run as ``python tests/benchmarks/softmax_icl_step.py``. Contenders take turns within one process,
all in double precision and with the threads the machine has; each peer is the best of several
chunk sizes, with the gradient written out by hand and by its automatic differentiation.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from measure import Times, print_header, print_row, ratio_row, take_turns
from threadpoolctl import ThreadpoolController

from skcurse.theory.counted_prompts import count_prompts
from skcurse.theory.softmax_icl import loss_gradient

jax.config.update("jax_enable_x64", True)

# (prompts, N, d) and the number of distinct tokens, None for all distinct
SHAPES = [((4096, 128, 32), 32), ((4096, 128, 32), None), ((1024, 1024, 64), None)]

Arrays = tuple[np.ndarray, ...]  # tokens (P, N, d), labels (P, N), query (P, d), target (P,), Q


def problem(n_prompts: int, n_context: int, n_features: int, vocabulary: int | None) -> Arrays:
    rng = np.random.default_rng(0)
    width = n_features + 1
    rows = rng.standard_normal((n_prompts, n_context * width + n_features))
    tokens = rows[:, : n_context * width].reshape(n_prompts, n_context, width)
    if vocabulary is not None:
        keys = rng.standard_normal((vocabulary, n_features))
        tokens[:, :, :-1] = keys[rng.integers(vocabulary, size=(n_prompts, n_context))]
        rows[:, -n_features:] = keys[rng.integers(vocabulary, size=n_prompts)]
    query_key = 0.01 * rng.standard_normal((n_features, n_features))
    target = rng.standard_normal(n_prompts)
    # The estimator leaves tokens where they are in its table and copies their labels.
    labels = np.ascontiguousarray(tokens[:, :, -1])
    return tokens[:, :, :-1], labels, rows[:, -n_features:], target, query_key


def ours(arrays: Arrays) -> Callable[[], np.ndarray]:
    """One step as the estimator takes it: a thread for each block, none within its products."""
    *prompts, query_key = arrays
    counted = count_prompts(*prompts)
    batch = partial(loss_gradient, *prompts) if counted is None else counted.loss_gradient
    libraries = ThreadpoolController()
    pool = ThreadPoolExecutor(os.cpu_count())

    def step() -> np.ndarray:
        with libraries.limit(limits=1, user_api="blas"):
            return batch(query_key, map=pool.map).gradient

    return step


def torch_step(arrays: Arrays, chunk: int, by_hand: bool) -> Callable[[], np.ndarray]:
    *data, query_key = (torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    n = len(data[0])

    def predict(tokens, labels, query, q):
        scores = torch.bmm(tokens, (query @ q.T)[:, :, None])[:, :, 0]
        weights = torch.softmax(scores, dim=1)
        return weights, (weights * labels).sum(dim=1)

    def step() -> np.ndarray:
        gradient = torch.zeros_like(query_key)
        q = query_key if by_hand else query_key.clone().requires_grad_()
        for i in range(0, n, chunk):
            tokens, labels, query, target = (a[i : i + chunk] for a in data)
            weights, prediction = predict(tokens, labels, query, q)
            residual = prediction - target
            if by_hand:
                pull = weights * (labels - prediction[:, None]) * residual[:, None]
                gradient += torch.bmm(pull[:, None, :], tokens)[:, 0].T @ query
            else:
                (0.5 * residual @ residual).backward()
        return (gradient if by_hand else q.grad).numpy() / n

    return step


def jax_step(arrays: Arrays, chunk: int, by_hand: bool) -> Callable[[], np.ndarray]:
    *data, query_key = (jnp.asarray(a) for a in arrays)
    n = len(data[0])
    chunks = [a.reshape(n // chunk, chunk, *a.shape[1:]) for a in data]

    def predict(tokens, labels, query, q):
        weights = jax.nn.softmax(jnp.einsum("pnd,pd->pn", tokens, query @ q.T), axis=1)
        return weights, (weights * labels).sum(axis=1)

    def loss(q, tokens, labels, query, target):
        residual = predict(tokens, labels, query, q)[1] - target
        return 0.5 * residual @ residual

    def gradient(q, tokens, labels, query, target):
        weights, prediction = predict(tokens, labels, query, q)
        pull = weights * (labels - prediction[:, None]) * (prediction - target)[:, None]
        return jnp.einsum("pn,pnd->pd", pull, tokens).T @ query

    slope = gradient if by_hand else jax.grad(loss)

    @jax.jit
    def total(q, *chunks):
        def add(sum_, chunk):
            return sum_ + slope(q, *chunk), None

        return lax.scan(add, jnp.zeros_like(q), chunks)[0] / n

    return lambda: np.asarray(total(query_key, *chunks))


def race(arrays: Arrays, rounds: int) -> tuple[Times, list[str]]:
    """Times of ours and of the best variant of each peer, taken in turns; names of the peers."""
    n = len(arrays[0])
    steps = {"skcurse": ours(arrays)}
    for peer, make in (("torch", torch_step), ("jax", jax_step)):
        for by_hand in (True, False):
            for chunk in (c for c in (8, 32, 128, 512, n) if c <= n):
                kind = "by hand" if by_hand else "autodiff"
                steps[f"{peer} {kind}, chunks of {chunk}"] = make(arrays, chunk, by_hand)
    reference = steps["skcurse"]()
    for name, step in steps.items():
        np.testing.assert_allclose(step(), reference, rtol=0, atol=1e-13, err_msg=name)
    # A short race chooses each peer's best variant; only these go into the measured one.
    trial = {name: min(t) for name, t in take_turns(steps, 3, seconds=0.0).items()}
    best = [min((n for n in trial if n.startswith(p)), key=trial.get) for p in ("torch", "jax")]
    return take_turns({name: steps[name] for name in ["skcurse", *best]}, rounds), best


def rows(rounds: int = 5) -> list[dict]:
    """Rows of the table."""
    found = []
    for shape, vocabulary in SHAPES:
        times, peers = race(problem(*shape, vocabulary), rounds)
        kind = "distinct" if vocabulary is None else f"{vocabulary} repeated"
        found.append(ratio_row(f"ICL step, {shape}, {kind}", times, "skcurse", peers))
    return found


if __name__ == "__main__":
    print_header()
    for row in rows():
        print_row(row)
