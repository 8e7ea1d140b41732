"""The mathematics: scores, the envelope, solvers and model surgery. Knows no files and no method names."""
