"""The ledger is complete, points at what exists, and its verdicts are those of its checks."""

import ast
import json
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

from skcurse.cli import main
from skcurse.ledger import Finding, as_text, check_rows, choose, read_ledger
from skcurse.theory import icl_concentration

ROOT = Path(__file__).parents[1]
ROWS = read_ledger()
VERDICTS = ("holds exactly", "holds within", "holds under preconditions", "does not hold as stated")


def numbered(letter, last):
    return [f"{letter}.{i}" for i in range(1, last + 1)]


# Counted in the papers, by kind; where a paper prints no number, by its cross references and order.
STATEMENTS = {
    "Curse": {
        "Definition": ["4.1", "4.3", "6.1", "6.2", "C.1", "C.3", "C.4", *numbered("D", 6),
                       *numbered("E", 4), "F.1", "F.2", "K.1", "K.2"],
        "Claim": ["4.2", "C.2"],
        "Assumption": ["D.7", "F.3"],
        "Fact": numbered("B", 9)[1:],
        "Lemma": ["5.1", "B.1", "E.5", "F.4", *numbered("G", 7), *numbered("H", 4), "I.3", "I.4",
                  "I.5", "K.3"],
        "Theorem": ["5.2", "5.3", "I.1", "I.2"],
        "Proposition": ["6.3", *numbered("J", 3)],
    },
    "ICL": {
        "Definition": ["2.1", "3.1", "4.1", "A.1"],
        "Remark": ["1"],
        "Lemma": [*numbered("4", 6), *numbered("A", 10), *numbered("B", 16), *numbered("C", 24),
                  *numbered("D", 6)],
        "Theorem": ["3.1", "3.2", "B.1", "C.1", "D.1"],
        "Induction hypothesis": [*numbered("B", 3), *numbered("C", 4), "D.1"],
    },
}  # fmt: skip


@pytest.mark.parametrize(("paper", "total"), [("Curse", 60), ("ICL", 80)])
def test_every_numbered_statement_has_a_row(paper, total):
    found = {}
    for row in ROWS:
        if row.paper == paper:
            kind, _, number = row.statement.rpartition(" ")
            found.setdefault(kind, set()).add(number)
    assert found == {kind: set(numbers) for kind, numbers in STATEMENTS[paper].items()}
    assert sum(map(len, found.values())) == total


def test_names_are_unique_and_parts_in_order():
    assert len({row.name for row in ROWS}) == len(ROWS)
    parts = [int(row.part) for row in ROWS if row.statement == "Lemma K.3"]
    assert parts == list(range(1, 14))


@pytest.mark.parametrize("row", [row for row in ROWS if row.where], ids=lambda row: row.name)
def test_functions_and_diagnostics_exist(row):
    found = resolve_name(row.where)
    assert callable(found)
    # The name is the one a user would import, not an alias of something else.
    assert found.__name__ == row.where.rpartition(".")[2]


@pytest.mark.parametrize("node", sorted({row.test for row in ROWS if row.test}))
def test_tests_exist(node):
    path, _, function = node.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert function in {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_a_verdict_or_says_where_it_is_used(row):
    assert row.says.endswith(".")
    if row.check:
        assert row.verdict.startswith(VERDICTS)
        assert row.test
        assert ":" in row.evidence
    else:
        assert row.used_in
        assert not row.verdict


def test_every_check_serves_a_row_and_no_finding_is_left_over():
    named = {row.check for row in ROWS if row.check}
    folder = ROOT / "skcurse" / "ledger"
    assert set(json.loads((folder / "verdicts.json").read_text("utf-8"))) == named
    offered = set()
    for path in folder.glob("_checks/[a-z]*.py"):
        for item in ast.parse(path.read_text("utf-8")).body:
            if (
                isinstance(item, ast.FunctionDef)
                and item.returns is not None
                and ast.unparse(item.returns) == "Finding"
                and not item.name.startswith("_")
            ):
                offered.add(f"{path.stem}.{item.name}")
    assert offered == named


def run(check):
    module, _, function = check.partition(".")
    return getattr(import_module(f"skcurse.ledger._checks.{module}"), function)()


FAST = {row.check: row for row in ROWS if row.check and not row.slow}


@pytest.mark.parametrize("check", FAST)
def test_recomputed_verdict_is_the_stored_one(check):
    finding = run(check)
    assert finding.verdict == FAST[check].verdict
    assert np.isfinite(list(finding.measured.values())).all()


def scaled(factor):
    """Break a function by a factor on what it returns, or on one field of it."""

    def breaks(function, field=None):
        def broken(*args, **kwargs):
            result = function(*args, **kwargs)
            if field is None:
                return result * factor
            return result._replace(**{field: getattr(result, field) * factor})

        return broken

    return breaks


@pytest.mark.parametrize(
    ("check", "target", "field", "factor"),
    [
        ("curse_data.sign_event", "residual_ssm.zero_risk", None, 1.2),
        ("curse_data.sign_event", "residual_ssm.persistence_risk", None, 0.9),
        ("curse_data.sign_event", "residual_ssm.sample_states", None, 1.1),
        ("curse_data.unit_rows", "residual_ssm.build_system", "P", 1 + 1e-8),
        ("curse_data.recursion", "residual_ssm.build_system", "M", 1 + 1e-8),
        ("curse_network.model", "attention_network.forward", None, 1 + 1e-8),
        ("curse_network.descent", "attention_ntk.gradient_descent", "weights", 1 + 1e-6),
        ("curse_network.exponentials", "tilted_moments.last_step_attention", None, 1 + 1e-8),
        ("curse_network.kernel", "ntk.neural_tangent_kernel", None, 1 + 1e-8),
        ("curse_network.initial_kernel", "ntk.ntk_singular_values", None, 1 + 1e-8),
        ("curse_network.derivative_of_loss", "attention_network.loss_gradient", "gradient", -1.0),
        ("curse_network.derivative_of_output", "ntk.kernel_features", None, 2.0),
        ("curse_dynamics.decomposition", "attention_ntk.descent_terms", "quadratic", 2.0),
        ("curse_generalization.residual_linear", "residual_ssm.exact_weights", "bias", 1e20),
        ("curse_generalization.residual_network", "residual_ssm.residual_coefficients", None, 1.1),
        ("icl_model.rates", "icl_population.population_gradient", "rates", 1 + 1e-8),
        ("icl_model.loss", "icl_population.population_gradient", "loss", 1 + 1e-8),
        ("icl_model.gradient", "softmax_icl.loss_gradient", "gradient", 1 + 1e-6),
        ("icl_model.self_attention", "softmax_icl.predict", None, 1 + 1e-8),
        ("icl_model.attention_scores", "softmax_icl.attention", None, 1 + 1e-8),
        ("icl_losses.balanced_floors", "icl_population.loss_lower_bound", None, 1.01),
        ("icl_losses.imbalanced_floors", "icl_population.loss_infimum", None, 0.5),
        ("icl_counts.balanced_event", "icl_concentration.count_event", "bound", 1.01),
        ("icl_counts.l1_tail", "icl_concentration.l1_tail", "bound", np.nan),
        ("icl_losses.imbalanced_event_loss", "icl_population.loss_lower_bound", None, np.nan),
    ],
)  # fmt: skip
def test_a_broken_formula_changes_the_verdict(check, target, field, factor, monkeypatch):
    row = FAST[check]
    function = resolve_name(f"skcurse.theory.{target}")
    monkeypatch.setattr(f"skcurse.theory.{target}", scaled(factor)(function, field))
    [result] = check_rows([row])
    assert result.finding.verdict == "does not hold as stated" != row.verdict
    assert not result.agrees


def test_rows_are_chosen_by_paper_statement_number_or_name():
    assert len(choose(ROWS, [])) == len(ROWS)
    assert {row.paper for row in choose(ROWS, ["icl"])} == {"ICL"}
    assert len(choose(ROWS, ["K.3"])) == len(choose(ROWS, ["lemma k.3"])) == 13
    assert len(choose(ROWS, ["Lemma B.1"])) == 2
    assert len(choose(ROWS, ["Curse Lemma B.1"])) == 1
    assert len(choose(ROWS, ["curse lemma k.3, part 4", "Fact B.6"])) == 2
    with pytest.raises(ValueError, match=r"no row 'Lemma Z\.9'"):
        choose(ROWS, ["Fact B.6", "Lemma Z.9"])


def test_text_has_a_block_a_row_and_counts():
    rows = choose(ROWS, ["Curse Lemma B.1", "Fact B.2"])
    text = as_text(rows)
    assert text.startswith("Curse Lemma B.1: holds exactly\n")
    assert "Curse Fact B.2: no verdict" in text
    assert text.endswith("2 rows: 1 holds exactly, 1 no verdict")


def test_command_prints_the_table(capsys):
    assert main(["ledger"]) == 0
    assert capsys.readouterr().out == as_text(ROWS) + "\n"
    assert main(["ledger", "K.1", "--json"]) == 0
    [record] = json.loads(capsys.readouterr().out)
    assert record["name"] == "Curse Definition K.1"
    assert main(["ledger", "--json"]) == 0
    verdicts = [record["verdict"] for record in json.loads(capsys.readouterr().out)]
    assert verdicts == [row.verdict or None for row in ROWS]
    assert None in verdicts
    assert main(["ledger", "nothing"]) == 2
    assert "no row 'nothing'" in capsys.readouterr().err


def test_command_recomputes_and_a_mismatch_is_exit_code_one(capsys, monkeypatch):
    argv = ["ledger", "--check", "ICL Lemma A.4"]
    assert main(argv) == 0
    assert "1 verdicts recomputed, 0 not as stored" in capsys.readouterr().out
    true = icl_concentration.count_event
    monkeypatch.setattr(icl_concentration, "count_event", scaled(1.01)(true, "bound"))
    assert main(argv) == 1
    assert "(stored: holds under preconditions)" in capsys.readouterr().out
    assert main([*argv, "--json"]) == 1
    [record] = json.loads(capsys.readouterr().out)
    assert not record["agrees"]


def test_recomputed_numbers_of_numpy_are_written_as_json(capsys):
    assert main(["ledger", "--check", "ICL Lemma C.12", "--json"]) == 0
    [record] = json.loads(capsys.readouterr().out)
    assert record["measured"]["steps of phase II at K 10"] == 0  # phase II is empty there


def test_a_check_that_raises_is_a_mismatch_and_says_why(monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("no such event")

    monkeypatch.setattr(icl_concentration, "count_event", broken)
    [result] = check_rows(choose(ROWS, ["ICL Lemma A.4"]))
    assert not result.agrees
    assert result.finding == Finding("raised ValueError", "no such event", {})


def test_workers_find_the_same():
    rows = choose(ROWS, ["Fact B.6", "Definition K.1", "ICL Lemma A.1"])
    assert check_rows(rows, n_jobs=2) == check_rows(rows)
