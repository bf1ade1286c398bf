"""The command line says what it found, or in one line why it could not."""

import csv
import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from skcurse.cli import build_parser, main
from skcurse.comparison import compare
from skcurse.datasets import ResidualSSM
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.plugins import hookimpl, isolated_plugins

QUICK = ["--set", "attention.n_neurons=16", "--set", "attention.max_iter=5", "--n-samples", "60"]
LINEAR = ["--estimator", "residual_linear", "persistence"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")


def walk(path, n_rows=200, header="date,load", seed=0):
    values = np.cumsum(np.random.default_rng(seed).normal(size=n_rows)).tolist()
    days = np.datetime64("2020-01-01") + np.arange(n_rows)
    lines = [f"{day},{value!r}" for day, value in zip(days, values, strict=True)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return np.array(values)


def table(path="skcurse-compare/table.csv"):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_embedded_run(capsys):
    assert main(["compare", "--folds", "2", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = table()
    names = ["attention", "residual_linear", "persistence", "gradient_boosting"]
    assert [row["estimator"] for row in rows] == names
    for reference in ("(predict zero)", "(persistence)", "(best residual linear)"):
        assert reference in out
    assert "update_alignment" in out
    for row in rows:
        mean = float(row["mean_test_mse_sign_inconsistent"])
        splits = [float(row[f"split{k}_test_mse_sign_inconsistent"]) for k in range(2)]
        assert mean == pytest.approx(np.mean(splits), rel=1e-12)
    assert sorted(os.listdir("skcurse-compare")) == ["residual_ssm.png", "table.csv"]
    assert Path("skcurse-compare/residual_ssm.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_is_compare_and_the_verdict_is_computed(capsys):
    argv = ["compare", *LINEAR, "--seed", "3", "--set", "data.gamma=-.5,.8", "--folds", "3"]
    argv += ["--n-samples", "300"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    by_hand = compare(
        {"residual_linear": ResidualLinearRegressor()},
        {"residual_ssm": ResidualSSM()},
        data_grid={"gamma": [-0.5, 0.8]},
        cv=3,
        n_samples=300,
        random_state=3,
    )
    rows = [row for row in table() if row["estimator"] == "residual_linear"]
    assert [row["param_gamma"] for row in rows] == ["-0.5", "0.8"]
    for key in ("mean_test_mse", "split2_test_mse_sign_inconsistent"):
        np.testing.assert_allclose([float(r[key]) for r in rows], by_hand.results_[key], rtol=1e-10)
    errors = by_hand.scores("mse", "sign_inconsistent")
    for gamma, error in zip((-0.5, 0.8), errors, strict=True):
        excess = error.mean() / ResidualSSM(gamma=gamma).best_residual_risk("sign_inconsistent") - 1
        section = out.split(f"residual_ssm, gamma = {gamma}, sign_inconsistent:")[1]
        said = re.search(r"residual_linear is ([\d.]+)% (above|below) the best", section)
        assert float(said[1]) == pytest.approx(100 * abs(excess), abs=0.06)
        assert said[2] == ("above" if excess > 0 else "below")
        ranking = re.findall(r"(?:<|^) *([a-z_ ]+?) ([\d.e-]+)", section.splitlines()[1])
        means = [float(value) for _, value in ranking]
        assert len(means) == 3
        assert means == sorted(means)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_attention_is_judged_fold_by_fold(capsys):
    argv = ["compare", "--estimator", "attention", "residual_linear", "--folds", "2", *QUICK]
    assert main([*argv, "--set", "data.gamma=-.9,.8"]) == 0
    out = capsys.readouterr().out
    for gamma in ("-0.9", "0.8"):
        rows = [row for row in table() if row["param_gamma"] == gamma]
        errors = [
            [float(row[f"split{k}_test_mse_sign_inconsistent"]) for k in range(2)] for row in rows
        ]
        zero = ResidualSSM(gamma=float(gamma)).zero_risk("sign_inconsistent")
        section = out.split(f"gamma = {gamma}, sign_inconsistent:")[1].split("residual_ssm, ")[0]
        above = sum(a > zero for a in errors[0])
        worse = sum(a > b for a, b in zip(*errors, strict=True))
        assert f"attention costs more than predicting zero in {above} of 2 folds" in section
        assert f"attention costs more than residual_linear in {worse} of 2 folds" in section
    assert out.count("last_step_attention: 1 is uniform") == 1


def test_a_csv_file_is_split_in_time_and_scaled_by_its_training_rows(tmp_path, capsys):
    values = walk(tmp_path / "walk.csv")
    argv = ["compare", "--data", "walk.csv", "--n-steps", "5", *LINEAR]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "rows 1-120 train, rows 161-200 test (200 in all), 5 values in, 1 out" in out
    z = (values - values[:120].mean()) / values[:120].std()
    persistence = np.mean((z[160:] - z[159:-1]) ** 2)
    X = np.lib.stride_tricks.sliding_window_view(z, 5)[:-1]
    linear = ResidualLinearRegressor().fit(X[:115], z[5:120])
    fitted = np.mean((linear.predict(X[155:]) - z[160:]) ** 2)
    errors = {row["estimator"]: float(row["mean_test_mse"]) for row in table()}
    assert errors["persistence"] == pytest.approx(persistence, rel=1e-10)
    assert errors["residual_linear"] == pytest.approx(fitted, rel=1e-8)
    skill = 1 - fitted / persistence
    assert f"error {abs(skill):.1%} {'lower' if skill > 0 else 'higher'}" in out
    gains = (z[160:] - z[159:-1]) ** 2 - (linear.predict(X[155:]) - z[160:]) ** 2
    deviation = gains - skill * (z[160:] - z[159:-1]) ** 2
    error = deviation.reshape(20, 2).mean(axis=1).std(ddof=1) / np.sqrt(20) / persistence
    word = "cannot be told from" if abs(skill) < 2 * error else "beats" if skill > 0 else "loses to"
    assert f"residual_linear {word} persistence: error" in out
    assert f"(standard error {error:.1%})" in out
    assert (tmp_path / "skcurse-compare" / "walk-load.png").exists()


@pytest.mark.parametrize(
    ("extra", "train", "test"),
    [
        (["--train-rows", "100", "--test-rows", "50"], "1-100", "151-200"),
        (["--rows", "150"], "1-90", "121-150"),
        (["--rows", "0.5", "--train-rows", "0.8"], "1-80", "81-100"),
        (["--rows", "all", "--horizon", "3"], "1-120", "161-200"),
    ],
)
def test_rows_can_be_chosen(tmp_path, capsys, extra, train, test):
    walk(tmp_path / "walk.csv")
    assert main(["compare", "--data", "walk.csv", "--n-steps", "4", *LINEAR, *extra]) == 0
    assert f"rows {train} train, rows {test} test" in capsys.readouterr().out


def test_every_default_estimator_forecasts_a_series_at_any_horizon(capsys):
    for horizon in ("1", "2"):
        argv = ["compare", "--data", "sunspots", "--n-steps", "6", "--horizon", horizon]
        argv += ["--set", "attention.n_neurons=8", "--set", "attention.max_iter=2"]
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert "failed" not in out
        rows = table()
        assert len(rows) == 5
        assert all(np.isfinite(float(row["mean_test_mse"])) for row in rows)
        assert "persistence: error" in out


def test_only_the_past_of_a_series_is_seen(tmp_path):
    """Wrecking every row after the training part moves no fitted number."""
    values = walk(tmp_path / "walk.csv")
    argv = ["compare", "--data", "walk.csv", "--n-steps", "5", "--diagnostic", "coefficients"]
    seen = []

    class Plugin:
        @hookimpl
        def skcurse_diagnostics(self):
            return {"coefficients": lambda e, X, y: seen.append(e.coef_.copy()) or 0.0}

    with isolated_plugins(Plugin()):
        main([*argv, "--estimator", "residual_linear"])
        lines = (tmp_path / "walk.csv").read_text().splitlines()
        lines[121:] = [line.split(",")[0] + f",{1e6 * i}" for i, line in enumerate(lines[121:])]
        (tmp_path / "walk.csv").write_text("\n".join(lines))
        main([*argv, "--estimator", "residual_linear"])
    assert len(values) == 200
    np.testing.assert_array_equal(seen[0], seen[1])


def test_prompts_have_estimators_and_diagnostics_of_their_own(capsys):
    argv = ["compare", "--data", "icl_prompts", "--folds", "2", "--n-samples", "100"]
    argv += ["--set", "softmax_icl.max_iter=5", "--set", "gradient_boosting.max_iter=5"]
    assert main([*argv, "--set", "data.vocabulary_size=3"]) == 0
    assert [row["estimator"] for row in table()] == ["softmax_icl", "Ridge", "gradient_boosting"]
    out = capsys.readouterr().out
    assert "attention_concentration" in out
    assert "sign_agreement" not in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--data", "nothing"],
            "Unknown data model 'nothing'. There are 'co2'.*'residual_ssm'.* CSV",
        ),
        (["--data", "sunspot"], "Did you mean 'sunspots'"),
        (["--data", "residual_sm"], "Did you mean 'residual_ssm'"),
        (["--data", "nothing.csv"], "No such file"),
        (["--data", "walk.csv", "--column", "lod"], "no column 'lod'; it has 'date', 'load'"),
        (["--data", "walk.csv", "--n-steps", "300"], "too few for 10 windows of 300 values"),
        (["--data", "walk.csv", "--test-rows", "0.9"], "120 rows to train on and 180 to test on"),
        (["--data", "walk.csv", "--n-steps", "111"], "--n-steps of at most 110"),
        (["--data", "walk.csv", "--rows", "9"], "use a longer series"),
        (["--data", "walk.csv", "--rows", "3"], "--test-rows 0.2: of 3 rows that is none"),
        (["--data", "walk.csv", "--train-rows", "many"], "--train-rows must be"),
        (["--data", "walk.csv", "--train-rows", "1.0"], "--train-rows must be"),
        (["--column", "load"], "--column and --fill are for CSV files"),
        (["--n-steps", "4", "--set", "data.n_steps=8"], "say the same"),
        (["--set", "data.gamma=0.5", "--set", "data.gamma=0.6"], "data.gamma is given twice"),
        (["--out", ""], "--out must name a folder"),
        (["--data", "table.csv", "--out", "."], "would overwrite the data"),
        (["--data", "walk.csv", "--rows", "0"], "--rows must be"),
        (["--data", "walk.csv", "--horizon", "0"], "--horizon must be at least 1"),
        (["--data", "walk.csv", "--n-steps", "0"], "--n-steps and"),
        (["--data", "walk.csv", "--set", "data.noise=1"], "a series has no parameters"),
        (["--data", "walk.csv", "--test-rows", "1", "--horizon", "3"], "test rows are too few"),
        (["--data", "gaps.csv"], r"line 3 \(2020-01-02\), column 'load'.*--fill linear"),
        (["--data", "flat.csv"], "constant over its 120 training rows"),
        (["--horizon", "2"], "leave out --horizon"),
        (["--data", "icl_prompts", "--n-steps", "3"], "leave out --n-steps"),
        (["--set", "gamma=1"], "--set takes"),
        (["--set", "data.gamma="], "--set takes"),
        (["--set", "data.gama=1"], "no data model has a parameter 'gama'"),
        (["--set", "data.gamma=2"], "gamma"),
        (["--set", "forest.depth=2"], r"--set forest\.\*"),
        (["--set", "residual_linear.alpha=1,2"], "takes one value"),
        (["--set", "residual_linear.alfa=1"], "alfa"),
        (["--estimator", "atention"], "Unknown estimator 'atention'. Did you mean 'attention'"),
        (["--estimator", "ridge"], "Did you mean .*'Ridge'"),
        (["--estimator", "VotingRegressor"], r"VotingRegressor\(\) raised TypeError"),
        (["--set", "data.n_steps=abc"], "n_steps must be"),
        (["--set", "data.gamma=abc"], "gamma"),
        (["--diagnostic", "sign_agreemant"], "Did you mean 'sign_agreement'"),
        (["--folds", "1"], "n_splits"),
        (["--n-samples", "0"], "n_samples"),
        (["--out", "walk.csv"], "Cannot write to --out walk.csv"),
        (["--out", "walk.csv/below"], "Cannot write to --out walk.csv/below"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(tmp_path, capsys, argv, message):
    walk(tmp_path / "walk.csv")
    text = (tmp_path / "walk.csv").read_text().splitlines()
    (tmp_path / "gaps.csv").write_text("\n".join([*text[:2], "2020-01-02,", *text[3:]]))
    walk(tmp_path / "table.csv")
    flat = [re.sub(",.*", ",1.0", line) for line in text[1:150]]
    (tmp_path / "flat.csv").write_text("\n".join([text[0], *flat, *text[150:]]))
    assert main(["compare", *argv]) == 2
    out, err = capsys.readouterr()
    assert re.search(message, err, re.IGNORECASE)
    assert err.startswith("skcurse: error: ")
    assert err.count("\n") == 1
    assert "mean squared error" not in out
    assert not list(tmp_path.glob("skcurse-compare/*"))
    assert (tmp_path / "table.csv").read_text() == (tmp_path / "walk.csv").read_text()


def test_infinite_training_on_the_command_line():
    infinite = ["--set", "attention.max_iter=inf", "--set", "attention.alpha=1.0"]
    chosen = ["--set", "attention.regime=infinite", "--estimator", "attention"]
    small = ["--folds", "2", "--n-samples", "30", "--set", "data.n_steps=4"]
    assert main(["compare", *small, *infinite, *chosen]) == 0
    assert table()[0]["mean_test_n_iter"] == "nan"
    assert not Path("skcurse-compare/failures.txt").exists()


@pytest.mark.parametrize(
    "argv", [[], ["compares"], ["compare", "--fill", "mean"], ["compare", "x"]]
)
def test_bad_usage_is_exit_code_two(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: skcurse" in capsys.readouterr().err


def test_warnings_are_one_line_and_told_once(capsys):
    argv = ["compare", "--folds", "3", "--estimator", "residual_linear", "--n-samples", "30"]
    assert main([*argv, "--set", "data.gamma=-.9"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("skcurse: note: The newest value")
    assert err.count("\n") == 1
    assert ".py" not in err


def test_gaps_are_filled_on_request(tmp_path, capsys):
    walk(tmp_path / "walk.csv")
    text = (tmp_path / "walk.csv").read_text().splitlines()
    (tmp_path / "gaps.csv").write_text("\n".join([*text[:2], "2020-01-02,", *text[3:]]))
    assert main(["compare", "--data", "gaps.csv", "--fill", "linear", *LINEAR]) == 0
    assert "1 missing cells of 'load' filled (linear)" in capsys.readouterr().out


def test_an_estimator_that_fails_is_reported_with_the_others(capsys):
    argv = ["compare", "--folds", "2", "--estimator", "residual_linear", "IsotonicRegression"]
    assert main(argv) == 1
    out = capsys.readouterr().out
    assert "fit raised ValueError: Isotonic regression input X" in out
    assert "fit fit" not in out
    good, bad = table()
    assert float(good["mean_test_mse"]) < 0.1
    assert np.isnan(float(bad["mean_test_mse"]))


def test_tracebacks_are_written_and_do_not_stay(capsys):
    argv = ["compare", "--folds", "2", "--estimator", "residual_linear"]
    assert main([*argv, "IsotonicRegression"]) == 1
    text = Path("skcurse-compare/failures.txt").read_text("utf-8")
    assert "fit, IsotonicRegression on residual_ssm, fold 1: raised ValueError" in text
    assert "Traceback" in text
    out = capsys.readouterr().out
    assert "failures.txt" in out
    assert "failures_" not in out
    assert main(argv) == 0
    assert not Path("skcurse-compare/failures.txt").exists()


def test_every_estimator_fails(capsys):
    argv = ["compare", "--folds", "2", "--estimator", "IsotonicRegression"]
    assert main(argv) == 1
    assert re.search(r"IsotonicRegression +- +-", capsys.readouterr().out)


def test_an_estimator_that_does_not_iterate(capsys):
    assert main(["compare", "--folds", "2", "--estimator", "Ridge"]) == 0
    assert "failed" not in capsys.readouterr().out


class Offers:
    """A plugin whose names others have too."""

    @hookimpl
    def skcurse_estimators(self):
        own = ResidualLinearRegressor
        return {"Ridge": own, "persistence": own, "mute": CannotPredict}

    @hookimpl
    def skcurse_data_models(self):
        return {"co2": ResidualSSM, "plain": ResidualSSM, "spoilt": Spoilt}

    @hookimpl
    def skcurse_diagnostics(self):
        return {"n_iter": lambda estimator, X, y: 0.0}


class CannotPredict(ResidualLinearRegressor):
    def predict(self, X):
        raise RuntimeError("not a word")


def test_an_estimator_that_cannot_predict_has_failed(capsys):
    with isolated_plugins(Offers()):
        assert main(["compare", "--folds", "2", "--estimator", "mute"]) == 1
    out = capsys.readouterr().out
    assert "mse predict raised RuntimeError: not a word" in out
    assert "mse_sign_inconsistent predict under sign_inconsistent raised" in out


class Spoilt(ResidualSSM):
    def __init__(self, gamma=0.8):
        raise RuntimeError("no money")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--estimator", "Ridge"], "plugin 'Offers' .* and scikit-learn"),
        (["--estimator", "persistence"], "the command itself and plugin 'Offers'"),
        (["--data", "co2"], "plugin 'Offers' .* and the bundled series"),
        (["--data", "plain"], "plugin 'Offers' .* and a file here"),
        (["--data", "residual_ssm"], "skcurse's data models and a file here"),
        (["--diagnostic", "n_iter"], "the command itself and plugin 'Offers'"),
        (["--data", "spoilt"], r"'spoilt': Spoilt\(\) raised RuntimeError: no money"),
    ],
)
def test_names_of_two_owners_and_bad_data_models_are_one_line(capsys, argv, message):
    for name in ("plain", "residual_ssm"):
        walk(Path(name))
    argv = ["compare", *([] if "--data" in argv else ["--data", "./plain"]), *argv]
    with isolated_plugins(Offers()):
        assert main(argv) == 2
        assert main(["compare", "--data", "./plain", "--n-steps", "5", *LINEAR[:2]]) == 0
    err = capsys.readouterr().err
    assert re.search(message, err)
    assert err.count("\n") == 1


def test_without_matplotlib_everything_else_works(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert main(["compare", "--folds", "2", *LINEAR]) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "pip install 'skcurse[plot]'" in err
    assert os.listdir("skcurse-compare") == ["table.csv"]
    assert "residual_linear" in out


def test_nothing_half_written(monkeypatch):
    assert main(["compare", "--folds", "2", *LINEAR, "--out", "o"]) == 0
    before = Path("o/table.csv").read_text()
    monkeypatch.setattr("csv.writer", lambda file: file.write("half") and None)
    with pytest.raises(AttributeError):
        main(["compare", "--folds", "3", *LINEAR, "--out", "o"])
    assert sorted(os.listdir("o")) == ["residual_ssm.png", "table.csv"]
    assert Path("o/table.csv").read_text() == before


def test_plugins_as_text_and_as_json(capsys):
    assert main(["plugins"]) == 0
    text = capsys.readouterr().out
    assert main(["plugins", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    ours = next(row for row in rows if row["name"] == "skcurse")
    assert "residual_ssm" in ours["data_models"]
    for row in rows:
        assert f"{row['name']} (" in text
        for kind in ("data_models", "diagnostics", "estimators"):
            assert all(name in text for name in row[kind])


def test_a_plugin_that_prints_spoils_no_json(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loud.py").write_text("print('hello')\n1 / 0")
    monkeypatch.setenv("SKCURSE_PLUGINS", "loud,ghost")
    with isolated_plugins(entry_points=[EntryPoint("loud", "loud", "skcurse")]):
        assert main(["plugins", "--json"]) == 0
        out, err = capsys.readouterr()
        assert main(["plugins"]) == 0
        text = capsys.readouterr().out
        assert main(["compare", "--data", "of_loud"]) == 2
        assert "What plugin 'loud' (run time) offers is missing" in capsys.readouterr().err
    assert [row["state"] for row in json.loads(out)] == ["loaded", "broken", "absent"]
    assert "hello" in err
    assert "ghost (not installed): absent" in text


def test_as_a_process():
    argv = ["compare", "--folds", "2", *LINEAR, "--diagnostic", "sign_agreement"]
    done = subprocess.run([sys.executable, "-m", "skcurse", *argv], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Written: skcurse-compare" in done.stdout
    closed = subprocess.run(
        f"{sys.executable} -m skcurse plugins | head -0", shell=True, capture_output=True, text=True
    )
    assert closed.stderr == ""


@pytest.mark.skipif("SKCURSE_ETT_DIR" not in os.environ, reason="SKCURSE_ETT_DIR is not set")
def test_the_transformer_series(capsys):
    path = os.path.join(os.environ["SKCURSE_ETT_DIR"], "ETTh1.csv")
    assert main(["compare", "--data", path, "--column", "OT", *LINEAR]) == 0
    assert "rows 1-8640 train, rows 11521-14400 test (17420 in all), 96 values in" in (
        capsys.readouterr().out
    )
    errors = {row["estimator"]: float(row["mean_test_mse"]) for row in table()}
    assert errors["residual_linear"] == pytest.approx(0.0038, abs=5e-5)
    assert errors["persistence"] == pytest.approx(0.0042, abs=5e-5)


def test_help_names_every_option():
    parser = build_parser()
    action = next(a for a in parser._actions if a.dest == "command" or a.choices)
    assert "130 interrupted" in " ".join(parser.format_help().split())
    page = " ".join(action.choices["compare"].format_help().split())
    for word in ("--data", "--fill {linear,previous}", "residual_ridge", "default: 14400"):
        assert word in page
