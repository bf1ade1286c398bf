"""One table of speed ratios, measured in turns in one process.

Run as ``python tests/benchmarks/run.py [--quick] [--json FILE] [--threads N]``. A ratio is the best
peer's time over ours, round by round: above 1 this package is faster. In the rows "GD step grows"
the large problem takes the peer's place: 1 is a cost that does not grow. With SKCURSE_ETT_DIR set
to the folder of the ETT files, NLinear is fitted too.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import attention_step
import icl_population_speed
import nlinear_ett
import ntk_spectrum
import predict_compression
import softmax_icl_step
import torch
from measure import print_header, print_row, surroundings
from threadpoolctl import threadpool_limits

PARTS = [
    attention_step,
    ntk_spectrum,
    predict_compression,
    softmax_icl_step,
    icl_population_speed,
]


def main() -> None:
    """Measure all parts, print the table, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the smaller shape")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="for NumPy and PyTorch")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"))
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.quick:
        attention_step.SHAPES = attention_step.SHAPES[:1]
    if "SKCURSE_ETT_DIR" in os.environ and not options.quick:
        PARTS.append(nlinear_ett)
    found = []
    about = surroundings()
    for name, value in about.items():
        print(f"{name}: {value}")
    with threadpool_limits(options.threads):
        print_header()
        for part in PARTS:
            for row in part.rows(options.rounds):
                print_row(row)
                found.append(row)
    large: dict[str, float] = {}
    if not options.quick:
        script = Path(__file__).with_name("attention_large.py")
        command = [sys.executable, script]
        large = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print("10,000 steps at (n, m, d) = (100000, 1000000, 32)")
        for name, value in large.items():
            print(f"    {name}: {value:.6g}")
    report = {"about": about, "rows": found, "large": large}
    options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
