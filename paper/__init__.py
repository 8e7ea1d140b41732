"""The paper's figures, one file each; `python -m paper --figure all --data DIR` makes them. Pictures and numbers lie in
`results/`."""
