"""The gradient against automatic differentiation; needs the extra ``autodiff``."""

import numpy as np
import pytest

from skcurse.theory.attention_ntk import initial_network, loss_gradient, neural_tangent_kernel

pytestmark = pytest.mark.extra
torch = pytest.importorskip("torch")


def torch_outputs(X, w, a):
    scores = w[:, None, None] * X[None, :, -1:] * X
    mean = torch.sum(torch.softmax(scores, dim=2) * X, dim=2)
    return a @ mean / len(w) ** 0.5


def tensors(n=40, m=32, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    w, a = initial_network(m, rng, antisymmetric=False)
    return [torch.tensor(z, dtype=torch.float64) for z in (X, y, w, a)]


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_gradient_is_that_of_autograd(alpha):
    X, y, w, a = tensors()
    s = torch.linspace(0.0, 2.0, len(X), dtype=torch.float64)
    start = w + 0.2
    w.requires_grad_(True)
    residual = torch_outputs(X, w, a) - y
    loss = (s * residual**2).sum() / 2 + alpha * ((w - start) ** 2).sum() / 2
    loss.backward()
    ours = loss_gradient(
        X.numpy(),
        y.numpy(),
        w.detach().numpy(),
        a.numpy(),
        sample_weight=s.numpy(),
        alpha=alpha,
        initial_weights=start.detach().numpy(),
    )
    assert ours.loss == pytest.approx(loss.item(), rel=1e-13)
    np.testing.assert_allclose(ours.gradient, w.grad.numpy(), rtol=1e-10, atol=1e-13)


def test_kernel_is_that_of_the_jacobian():
    X, _, w, a = tensors(n=10, m=8)
    J = torch.autograd.functional.jacobian(lambda v: torch_outputs(X, v, a), w).numpy()
    kernel = neural_tangent_kernel(X.numpy(), None, w.numpy())
    np.testing.assert_allclose(kernel, J @ J.T, rtol=1e-11, atol=1e-14)
