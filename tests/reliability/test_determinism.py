"""Maps are the same in any company, in another process, and with another number of threads."""

import sys

import pytest

from reliability import determinism

CHUNKS = 1e-6  # of the largest entry: sums of float32 in another order


@pytest.fixture(scope="module")
def maps():
    return determinism.compute_maps(determinism.WAYS)


@pytest.mark.parametrize("way", ["alone", "reversed"])
def test_company_changes_no_bit(maps, way):
    assert set(determinism.difference(maps, maps, (way, "batch")).values()) == {0.0}


@pytest.mark.parametrize("way", [way for way in determinism.WAYS if way.startswith("chunks")])
def test_chunks_change_the_rounding_alone(maps, way):
    assert max(determinism.difference(maps, maps, (way, "batch")).values()) < CHUNKS


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_another_process_changes_no_bit(maps, threads, tmp_path):
    base, _ = determinism.compute_elsewhere(sys.executable, 1, tmp_path)
    found, _ = determinism.compute_elsewhere(sys.executable, threads, tmp_path)
    assert set(determinism.difference(found, base).values()) == {0.0}
