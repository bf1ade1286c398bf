"""Every Python block of the README runs, in order, in one namespace."""

import re
import shlex
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict[str, object] = {"__name__": "readme"}
    code = blocks("python")
    assert len(code) >= 3
    for block in code:
        exec(compile(block, str(README), "exec"), namespace)


def test_set_up_is_two_commands_and_the_tests_are_the_second():
    commands = [line for block in blocks("bash") for line in block.splitlines() if "&&" in line]
    assert len(commands) == 2
    main_job, tests = (shlex.split(command) for command in commands)
    assert main_job[-2:] == ["skcurse", "compare"]
    assert tests[-3:] == ["python", "-m", "pytest"]


@pytest.mark.parametrize("line", [b for block in blocks("bash") for b in block.splitlines()])
def test_command_lines_are_real_subcommands(line):
    words = shlex.split(line, comments=True)
    if "skcurse" in words[:1]:
        from skcurse.cli import build_parser

        build_parser().parse_args(words[1:])
