"""The vectors that the repository holds are those that the generator writes."""

from __future__ import annotations

import generate
import numpy as np
from golden import FOLDER


def test_generator_writes_the_stored_vectors(tmp_path):
    generate.generate(tmp_path)
    stored = sorted(p.name for p in FOLDER.glob("*.npz"))
    assert sorted(p.name for p in tmp_path.iterdir()) == stored
    for name in stored:
        with np.load(FOLDER / name) as old, np.load(tmp_path / name) as new:
            assert old.files == new.files
            for key in old.files:
                np.testing.assert_array_equal(old[key], new[key], f"{name} {key}")
                assert old[key].dtype == new[key].dtype
