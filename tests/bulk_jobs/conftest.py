"""Datasets of Hugging Face keep their caches below the folder of the test."""

import datasets
import pytest


@pytest.fixture(autouse=True)
def _caches_below_tmp_path(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf" / "datasets")
