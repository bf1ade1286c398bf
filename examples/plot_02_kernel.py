"""
===========================
The kernel and its spectrum
===========================

Near initialisation the attention network learns like kernel regression with its neural tangent
kernel. The kernel is positive definite, as the convergence theorem assumes, yet gradient descent
feels only a handful of its directions: the eigenvalues fall so fast that the smallest one, which
sets the theorem's rate, is out of reach of any training run.
"""

# %%
# The kernel
# ----------
# As the width grows, the kernel of the network at initialisation approaches the one of infinite
# width, which `AttentionNTKKernel` computes by quadrature.

import sys

import matplotlib.pyplot as plt
import numpy as np

from skcurse import AttentionNTKKernel, AttentionNTKRegressor, make_residual_ssm

X, y = make_residual_ssm(64, n_steps=16, gamma=0.8, random_state=0)
X = X[np.argsort(X[:, -1])]  # sorted by the last step, the query
kernel = AttentionNTKKernel()(X)

widths = [64, 1024, 16384]
networks = {}
for m in widths:
    distances = []
    for seed in range(5):
        network = AttentionNTKRegressor(m, regime="lazy", max_iter=1, random_state=seed).fit(X, y)
        gap = np.linalg.norm(network.neural_tangent_kernel(X) - kernel)
        distances.append(gap / np.linalg.norm(kernel))
    networks[m] = network
    print(f"{m:6d} neurons: relative distance to infinite width {np.mean(distances):.3f}")

# %%
# Its spectrum
# ------------
# The eigenvalues of a matrix in double precision end at about 1e-16 of the largest one. Those of
# this kernel go on below: `ntk_eigenvalues` takes singular values of the kernel's factor and
# squares them, which resolves them to 1e-30, and calls the rest NaN.

limit = AttentionNTKRegressor(regime="infinite").fit(X, y)
spectrum = limit.ntk_eigenvalues(X)
resolved = np.isfinite(spectrum)
print(f"{resolved.sum()} of {len(X)} eigenvalues are above 1e-30 of the largest")

# With the step size 1 / λ_max, this many steps shrink a residual along an eigenvector by e.
patience = spectrum[0] / spectrum[resolved]
print(f"{np.sum(patience < 1e6)} of them are felt within a million steps")

# %%
# The picture
# -----------
# Left: windows whose last steps share a sign are alike, others are unlike, and nothing is learnt
# from or about windows that end near zero. That block pattern is all that the first steps of
# training can see. Right: the spectrum, with the eigenvalues of the matrix itself for comparison;
# they are rounding errors where they leave the curve.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
bound = np.quantile(np.abs(kernel), 0.98)
image = left.imshow(kernel, cmap="RdBu_r", vmin=-bound, vmax=bound)
ticks = np.linspace(0, len(X) - 1, 5).astype(int)
left.set_xticks(ticks, [f"{x:.1f}" for x in X[ticks, -1]])
left.set_yticks(ticks, [f"{x:.1f}" for x in X[ticks, -1]])
left.set(title="kernel of infinite width", xlabel="last step of a window")
left.set_ylabel("last step of another")
figure.colorbar(image, ax=left, shrink=0.85, extend="both")

index = np.arange(1, len(X) + 1)
for (m, network), color, marker in zip(
    networks.items(), ["#CC79A7", "#E69F00", "#56B4E9"], "vD^", strict=True
):
    right.semilogy(
        index, network.ntk_eigenvalues(X), marker, color=color, markersize=3, label=f"{m} neurons"
    )
right.semilogy(index, spectrum, "o", color="#0072B2", markersize=3, label="infinite width")
matrix = np.abs(np.linalg.eigvalsh(kernel)[::-1])
right.semilogy(index, matrix, "x", color="0.5", markersize=3, label="|eigvalsh|, infinite width")
right.axhline(1e-30 * spectrum[0], color="k", linestyle="--", linewidth=1, label="resolution")
right.set(title="its spectrum", xlabel="index", ylabel="eigenvalue")
right.legend(fontsize=8, frameon=False)

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
plt.show()
