"""Threads of our own: one of linear algebra in each, and none of it left behind."""

import contextlib
from threading import current_thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from skcurse.estimators._resources import parallel_map

BLAS = ThreadpoolController().select(user_api="blas")


def n_threads():
    return {library["num_threads"] for library in BLAS.info()}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if n_threads() != {2}:
            pytest.skip("linear algebra has no threads here")
        yield
        assert n_threads() == {2}


def seen(_row):
    return current_thread(), n_threads()


def test_workers_have_one_thread_of_linear_algebra_each():
    with parallel_map(2) as blocks:
        for _ in range(3):
            workers = list(blocks(seen, range(6)))
            assert {thread for thread, _ in workers}.isdisjoint({current_thread()})
            assert all(number == {1} for _, number in workers)
            assert n_threads() == {2}
        # The first of two maps ends before the other does.
        maps = zip(blocks(seen, range(3)), blocks(seen, range(3)), strict=True)
        assert all(number == {1} for pair in maps for _, number in pair)


def test_one_task_needs_no_other_thread():
    for n_jobs in (None, 2):
        with parallel_map(n_jobs) as blocks:
            assert list(blocks(seen, [0])) == [(current_thread(), {2})]


def test_rows_come_in_order_and_none_is_lost():
    with parallel_map(3) as blocks:
        assert list(blocks(divmod, range(100), [7] * 100)) == [divmod(i, 7) for i in range(100)]
        assert list(blocks(abs, [])) == []


def test_errors_leave_no_limit_behind():
    with parallel_map(2) as blocks, pytest.raises(ZeroDivisionError):
        list(blocks(lambda x: 1 / x, [1, 0, 2]))
    assert n_threads() == {2}
    kept = []
    with contextlib.suppress(KeyboardInterrupt), parallel_map(2) as blocks:
        kept.append(blocks(abs, [1, 2, 3]))
        next(kept[0])
        assert n_threads() == {1}
        raise KeyboardInterrupt
    # The map has not come to its end, as where a traceback holds on to it.
    assert n_threads() == {2}


def test_products_in_workers_are_right():
    A = np.random.default_rng(0).standard_normal((4, 300, 300))
    with parallel_map(2) as blocks:
        found = list(blocks(lambda M: M @ M.T, A))
    np.testing.assert_allclose(found, A @ A.swapaxes(1, 2), rtol=1e-10, atol=1e-10)
