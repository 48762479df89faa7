"""Golden vectors of the integer arithmetic, computed with exact Python integers and fractions.

    python tests/vectors/generate.py [-o DIR]

Each file DIR/NAME.npz holds, for case i, arrays "i/..." (inputs, parameters, "i/y" the expected
output), and "cases".  The code is written for exactness and shares nothing with any implementation;
NumPy only stores the arrays and draws the inputs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cases_elementwise import elementwise_cases, pool_cases, table_cases
from cases_product import conv_cases, matmul_cases
from cases_rescale import quantize_cases, rescale_cases, wide_cases
from cases_resize import resize_cases
from cases_rows import attention_cases, norm_cases, softmax_cases

MAKERS = (
    rescale_cases,
    wide_cases,
    quantize_cases,
    conv_cases,
    matmul_cases,
    elementwise_cases,
    table_cases,
    pool_cases,
    softmax_cases,
    attention_cases,
    norm_cases,
    resize_cases,
)


def generate(folder: Path) -> None:
    """Write every file of vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in MAKERS:
        make(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent)
    generate(parser.parse_args().output)


if __name__ == "__main__":
    main()
