"""The paper's figures: `python -m paper --figure all --data DIR` makes them; pictures and numbers lie in `results/`."""
