"""[Curse], Sections 4.1 and 6.1, Appendix C: the residual state space model and its laws."""

import numpy as np

from skcurse.datasets import ResidualSSM
from skcurse.ledger._finding import Finding, identity, judged, largest, within
from skcurse.theory import residual_ssm

GAMMAS = (-0.9, -0.5, 0.0, 0.5, 0.8, 0.95, 0.999)


def _system(n: int, gamma: float) -> residual_ssm.ResidualSystem:
    rng = np.random.default_rng(n)
    return residual_ssm.build_system(residual_ssm.spread_angles(n, rng), gamma, n, rng)


def recursion() -> Finding:
    """Definition 4.1: h <- A h + B u, u = C h, step by step, against P."""
    error = 0.0
    for n in (4, 16, 32):
        for gamma in GAMMAS:
            system = _system(n, gamma)
            B = system.C
            A = system.M - np.outer(B, system.C)
            h = start = np.random.default_rng(0).normal(size=n)
            for row in system.P:
                u = system.C @ h
                error = largest(error, abs(u - row @ start))
                h = A @ h + B * u
    tried = "N = d = 4, 16, 32, gamma -0.9 to 0.999, B = C^T, A = M - B C"
    return identity(error, tried, tolerance=1e-10)


def unit_rows() -> Finding:
    """Claim 4.2: u_k = P_k h, unit rows, consecutive inner products gamma."""
    error = 0.0
    for n in (4, 16, 32, 64):
        for gamma in GAMMAS:
            P = _system(n, gamma).P
            norms = np.abs(np.linalg.norm(P, axis=1) - 1)
            inner = np.abs(np.sum(P[1:] * P[:-1], axis=1) - gamma)
            error = largest(error, norms.max(), inner.max())
    tried = "N = d = 4 to 64, gamma -0.9 to 0.999, by an orthogonal A + B C with tilted read-out"
    return identity(error, tried, tolerance=1e-10)


def training_law() -> Finding:
    """Definition 4.3: covariance of (x, y) in a large sample against P P^T + noise^2 I."""
    error, n, noise = 0.0, 400_000, 0.3
    for gamma in (-0.5, 0.8):
        model = ResidualSSM(n_steps=6, gamma=gamma, noise=noise)
        Z = np.column_stack(model.sample(n, random_state=1))
        P = model.system().P
        error = largest(error, np.abs(Z.T @ Z / n - P @ P.T - noise**2 * np.eye(7)).max())
    tried = "400,000 windows of 6 steps, gamma -0.5 and 0.8, noise 0.3: every covariance"
    return judged(error < 0.02, tried, {"largest error": error}, yes=within(0.02))


def sign_event() -> Finding:
    """Definition 6.1: the rejection-free law against plain rejection, and its closed forms."""
    error, consistent = 0.0, 0.0
    for gamma in (-0.5, 0.5, 0.8):
        system = _system(8, gamma)
        rng = np.random.default_rng(3)
        u = residual_ssm.sample_states(system, 300_000, rng) @ system.P.T
        kept = u[u[:, -2] * u[:, -1] < 0]
        v = residual_ssm.sample_states(system, 300_000, rng, sign_inconsistent=True) @ system.P.T
        consistent = largest(consistent, float(np.mean(v[:, -2] * v[:, -1] >= 0)))
        by_rejection, direct = (z.T @ z / len(z) for z in (kept, v))
        share = len(kept) / len(u) - np.arccos(gamma) / np.pi
        zero = np.mean(kept[:, -1] ** 2) - residual_ssm.zero_risk(gamma)
        last = np.mean((kept[:, -1] - kept[:, -2]) ** 2) - residual_ssm.persistence_risk(gamma)
        error = largest(error, *np.abs([share, zero, last]), np.abs(by_rejection - direct).max())
    return judged(
        error < 0.03 and consistent == 0,
        "gamma -0.5, 0.5, 0.8: moments and risks against plain rejection from 300,000 draws",
        {"largest error": error, "share of consistent signs": consistent},
        yes=within(0.03),
    )
