"""Spectrum of the neural tangent kernel by neural-tangents, in an environment of its own.

Its last release, 0.6.5, needs an older JAX than the other benchmarks. Pins that work, with all of
its implementations (under JAX 0.4.30, STRUCTURED_DERIVATIVES and AUTO fail), on Python 3.11:

    python3.11 -m venv nt
    nt/bin/pip install neural-tangents==0.6.5 jax==0.4.23 jaxlib==0.4.23 "numpy<2" "scipy<1.13"
    SKCURSE_NEURAL_TANGENTS_PYTHON=nt/bin/python python tests/benchmarks/ntk_spectrum.py

`ntk_spectrum` runs this script as ``python ntk_neural_tangents.py FILE.npz`` (X and weights). It
finds the quickest way on some of the rows, then writes lines of JSON to its standard output: first
the eigenvalues, what won, the race and the largest memory; after that, for every line ``time`` on
its standard input, the seconds of one evaluation.
"""

import json
import os
import resource
import sys
import time

N_DEVICES = os.cpu_count() or 1
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={N_DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import neural_tangents as nt  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)

RACE_ROWS = 64
ROUNDS = 3
IMPLEMENTATIONS = [
    "JACOBIAN_CONTRACTION",
    "STRUCTURED_DERIVATIVES",
    "AUTO",
    "NTK_VECTOR_PRODUCTS",
]


def network(weights, X):
    """Network of all signs 1 (they do not enter the kernel), without its factor 1/√m."""
    share = jax.nn.softmax(weights[:, None] * (X[:, -1:] * X)[:, None, :], axis=-1)
    return jnp.einsum("nmd,nd->n", share, X)[:, None]


def kernel_function(implementation):
    """Kernel of all pairs of rows; a row of X is a sample, the output is a scalar."""
    return nt.empirical_ntk_fn(
        network,
        trace_axes=(-1,),
        vmap_axes=0,
        implementation=getattr(nt.NtkImplementation, implementation),
    )


def in_row_batches(implementation, X, n_batches, jit):
    """Kernel by `nt.batch`; compiled as a whole, a batch's Jacobian is shared by its blocks."""
    kernel = nt.batch(
        kernel_function(implementation), batch_size=len(X) // n_batches, device_count=0
    )
    kernel = jax.jit(kernel) if jit else kernel
    return lambda weights: kernel(X, None, weights)


def in_neuron_chunks(implementation, X, chunk, n_devices):
    """The kernel is a sum over neurons: chunks that fit the cache, shared out over devices."""
    kernel = kernel_function(implementation)

    def partial_sum(weights):
        def add(total, chunk_weights):
            return total + kernel(X, None, chunk_weights), None

        zero = jnp.zeros((len(X), len(X)))
        return jax.lax.scan(add, zero, weights.reshape(-1, chunk))[0]

    if n_devices == 1:
        return jax.jit(partial_sum)
    shared = jax.pmap(partial_sum)
    return lambda weights: np.asarray(shared(weights.reshape(n_devices, -1))).sum(axis=0)


def seconds(kernel, weights):
    """Seconds of one evaluation."""
    start = time.perf_counter()
    jax.block_until_ready(kernel(weights))
    return time.perf_counter() - start


def race(variants, weights):
    """Least seconds of every variant that runs, after a call that compiles it."""
    runners = {}
    for variant, kernel in variants.items():
        try:
            seconds(kernel, weights)
        except Exception as error:
            print(f"neural-tangents, {variant}: {error!r}"[:200], file=sys.stderr)
        else:
            runners[variant] = kernel
    times = {variant: [] for variant in runners}
    for _ in range(ROUNDS):
        for variant, kernel in runners.items():
            times[variant].append(seconds(kernel, weights))
    return {variant: min(values) for variant, values in times.items()}


def tuned(X, weights):
    """Quickest kernel on the first rows, for all rows: first the grouping, then the implementation.

    The implementations other than NTK_VECTOR_PRODUCTS build the same Jacobians, so the grouping
    that suits one suits all; that one differentiates all pairs of rows, and is far behind.
    """
    part, m = X[:RACE_ROWS], weights.size
    groupings = {("rows", n, jit): in_row_batches for n, jit in [(1, 1), (4, 1), (8, 1), (4, 0)]}
    for devices in {1, N_DEVICES if m % N_DEVICES == 0 else 1}:
        for chunk in (16, 64, 256, 1024):
            if m // devices % chunk == 0:
                groupings["neurons", chunk, devices] = in_neuron_chunks

    def name(implementation, kind, size, other):
        extra = f"jit {other}" if kind == "rows" else f"{other} devices"
        return f"{implementation}, {kind} {size}, {extra}"

    first = IMPLEMENTATIONS[0]
    names = {name(first, *key): key for key in groupings}
    times = race({k: groupings[v](first, part, *v[1:]) for k, v in names.items()}, weights)
    best = names[min(times, key=times.get)]
    made = {name(each, *best): each for each in IMPLEMENTATIONS}
    make = groupings[best]
    times |= race({k: make(v, part, *best[1:]) for k, v in made.items()}, weights)
    winner = min(made, key=lambda k: times.get(k, np.inf))
    return winner, times, make(made[winner], X, *best[1:])


def main():
    """Answer lines of standard input."""
    # AUTO prints the cost of what it compares, which is no answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with np.load(sys.argv[1]) as file:
        X, weights = jnp.asarray(file["X"]), jnp.asarray(file["weights"])
    winner, times, kernel = tuned(X, weights)

    def spectrum():
        # NumPy's solver is quicker than that of JAX, which finds the vectors too.
        return np.linalg.eigvalsh(np.asarray(kernel(weights)) / weights.size)[::-1]

    first = {"eigenvalues": spectrum().tolist(), "winner": winner, "race_seconds": times}
    first["versions"] = {"neural-tangents": nt.__version__, "jax": jax.__version__}
    first["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(first), file=answers)
    for line in sys.stdin:
        if line.strip() == "time":
            start = time.perf_counter()
            spectrum()
            print(json.dumps(time.perf_counter() - start), file=answers)


if __name__ == "__main__":
    main()
